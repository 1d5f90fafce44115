#include "core/admin/admin.h"

#include <errno.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/fault_plan.h"
#include "core/matrix/matrix.h"
#include "core/version.h"
#include "mountopts/options.h"

static bool of_the_device(const char *name, size_t len)
{
	static const char *const names[] = { "device", "fault", "threads", "sim_delay",
		"kv_sequences" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strlen(names[i]) == len && memcmp(names[i], name, len) == 0)
			return true;
	return false;
}

/* The mount's other options would do nothing here; whoever gives one believes otherwise. */
static int check_names(const char *options, struct fault *f)
{
	while (options && *options) {
		size_t item = strcspn(options, ","), name = strcspn(options, "=,");

		if (name && !of_the_device(options, name))
			return fault_set(f, -EINVAL,
				"give device, fault, threads, sim_delay or kv_sequences",
				"the matrix has no option \"%.*s\"", (int)name, options);
		options += item + (options[item] == ',');
	}
	return 0;
}

static int read_options(const struct admin_call *c, struct mount_options *o,
	struct fault_plan *plan, struct fault *f)
{
	int err;

	options_defaults(o);
	err = options_parse(c->value, o, f);
	if (!err)
		err = check_names(c->value, f);
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
