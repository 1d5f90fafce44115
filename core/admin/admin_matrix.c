#include "core/admin/admin.h"

#include "core/fault_plan.h"
#include "core/log.h"
#include "core/matrix/matrix.h"
#include "core/version.h"
#include "mountopts/options.h"

static int read_options(const struct admin_call *c, struct mount_options *o,
	struct fault_plan *plan, struct fault *f)
{
	int err;

	options_defaults(o);
	err = options_parse(c->value, o, f);
	return err ? err : fault_plan_parse(o->fault, plan, f);
}

static int run(const struct admin_call *c, const struct mount_options *o,
	const struct fault_plan *plan, struct fault *f)
{
	struct matrix_config config = {
		.device = {
			.threads = o->threads,
			.step_delay_us = (unsigned)o->sim_delay_us,
			.kv_sequences = o->kv_sequences,
		},
		.store = c->args[0],
		.model = c->n_args > 1 ? c->args[1] : NULL,
		.faults = plan->n ? plan : NULL,
		.evidence = NPUFS_VERSION,
	};
	int err = device_find(o->device, &config.ops, f);

	return err ? err : matrix_run(&config, c->out, f);
}

int admin_matrix(const struct admin_call *c)
{
	struct mount_options options;
	struct fault f = FAULT_NONE;
	struct fault_plan plan;
	int failed = read_options(c, &options, &plan, &f);

	log_open(false, LEVEL_NONE); /* what goes wrong is planted: the cases tell of it */
	if (!failed)
		failed = run(c, &options, &plan, &f);
	if (failed < 0)
		return admin_failed(c, &f, NULL);
	if (failed)
		fprintf(c->err, "npufs-admin: %d cases failed\n", failed);
	return failed ? ADMIN_FAILED : ADMIN_OK;
}
