/* Security: who may not is refused, nothing is done, and the attempt is in the audit trail by exactly
 * one record; who may is audited before and after. Each case has a trail of its own. */
#include "core/matrix/matrix_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/files_write.h"
#include "core/base/mem.h"
#include "core/control/privileged.h"

#define NOBODY 65534

struct plane {
	struct matrix *m;
	char store[sizeof MATRIX_WORK_TEMPLATE];
	struct audit *audit;
	struct privileged *gate;
	unsigned acts;
	size_t records; /* of the trail, and of those that say what is looked for */
	size_t found;
	const char *looked_for[2];
};

/* --- the plane -------------------------------------------------------------------------------- */

static int act(void *context, const struct privileged_order *o, struct fault *f)
{
	struct plane *p = context;
	enum npu_error code = p->m->device ? device_reset_ccu(p->m->device) : NPU_SUCCESS;

	(void)o;
	p->acts++;
	return code ? fault_from_device(f, code, "the reset") : 0;
}

static int plane_open(struct plane *p, struct fault *f)
{
	struct privileged_owner owner = { .context = p };

	for (size_t i = 0; i < PRIVILEGED_COUNT; i++)
		owner.act[i] = act;
	strcpy(p->store, MATRIX_WORK_TEMPLATE);
	if (!mkdtemp(p->store))
		return -errno;
	int err = audit_open(p->store, AUDIT_COMMANDS, &p->audit, f);
	return err ? err : privileged_new(p->audit, &owner, &p->gate);
}

static void plane_close(struct plane *p)
{
	privileged_free(p->gate);
	audit_close(p->audit);
	if (p->store[0])
		files_remove_tree(AT_FDCWD, p->store);
}

/* --- the trail -------------------------------------------------------------------------------- */

static int look(void *context, const char *line)
{
	struct plane *p = context;

	p->records++;
	p->found += strstr(line, p->looked_for[0]) && strstr(line, p->looked_for[1]);
	return 0;
}

static void count_records(struct plane *p, const char *one, const char *other)
{
	struct fault f = FAULT_NONE;

	p->records = p->found = 0;
	p->looked_for[0] = one;
	p->looked_for[1] = other;
	audit_show(p->store, AUDIT_COMMANDS, 1000, look, p, &f);
}

static void judge_chain(struct plane *p)
{
	AUTO_BUF struct buf said = BUF_INIT;
	struct fault f = FAULT_NONE;
	int err = audit_verify(p->store, AUDIT_COMMANDS, &said, &f);

	matrix_judge(p->m, !err, "the audit trail: %s", f.reason);
}

/* A plant of the matrix's own tests: what was refused leaves no trace. */
static void lose_trail(const struct plane *p)
{
	const struct matrix_plant *plant = p->m->config->plant;
	char dir[sizeof p->store + 8];

	if (!plant || strcmp(plant->spec, MATRIX_LOSES_AUDIT) != 0)
		return;
	snprintf(dir, sizeof dir, "%s/audit", p->store);
	files_remove_tree(AT_FDCWD, dir);
	mkdir(dir, 0700);
}

/* --- the cases -------------------------------------------------------------------------------- */

static void text_of(enum privileged_command c, char *ret, size_t size)
{
	const struct privileged_row *row = privileged_row(c);

	snprintf(ret, size, "%s%s%s", row->name, row->args[0] ? " " : "", row->args);
}

static void unauthorised(struct matrix *m, int arg)
{
	static const struct cred nobody = { .uid = NOBODY, .gid = NOBODY, .pid = 1 };
	struct plane p = { .m = m };
	struct fault f = FAULT_NONE;
	char command[128], uid[32];
	int err = plane_open(&p, &f);

	text_of((enum privileged_command)arg, command, sizeof command);
	snprintf(uid, sizeof uid, "\"uid\":%d,", NOBODY);
	matrix_judge(m, !err, "the privileged plane does not open: %s", f.reason);
	matrix_mark(m);
	if (!err) {
		err = privileged_run(p.gate, &nobody, command, "curious", &f);
		lose_trail(&p);
		count_records(&p, "\"decision\":\"refused\"", uid);
		matrix_judge(m, err == -EACCES, "%s", err ? fault_errno_name(err) : "allowed");
		matrix_judge(m, !p.acts && !matrix_calls(m, CALL_RESET_CCU), "it was done");
		matrix_judge(m, p.records == 1 && p.found == 1,
			"refused with EACCES, %zu records in the trail, %zu of the refusal",
			p.records, p.found);
	}
	plane_close(&p);
}

static struct cred operator_cred(void)
{
	return (struct cred){ .uid = (uint32_t)geteuid(),
		.gid = (uint32_t)getegid(),
		.pid = 1,
		.roles = ROLE_ROOT };
}

static void authorised(struct matrix *m, int arg)
{
	const struct cred operator= operator_cred();
	struct plane p = { .m = m };
	struct fault f = FAULT_NONE;
	int err = plane_open(&p, &f);

	(void)arg;
	device_layer_allow_resets(true);
	matrix_judge(m, !err, "the privileged plane does not open: %s", f.reason);
	if (!err) {
		err = privileged_run(p.gate, &operator, "reset_ccu", "a test of the matrix", &f);
		matrix_judge(m, !err && p.acts == 1, "%s, done %u times",
			err ? fault_errno_name(err) : "allowed", p.acts);
		count_records(&p, "\"decision\":\"intent\"", "reset_ccu");
		matrix_judge(m, p.found == 1, "%zu records of the intent", p.found);
		count_records(&p, "\"decision\":\"done\"", "reset_ccu");
		matrix_judge(m, p.records == 2 && p.found == 1,
			"%zu records in the trail, %zu of the result", p.records, p.found);
		judge_chain(&p);
		matrix_judge(m, true, "intent and result are in the trail, and its chain is whole");
	}
	plane_close(&p);
}

/* What cannot be audited is not done. */
static void not_audited(struct matrix *m, int arg)
{
	const struct cred operator= operator_cred();
	struct plane p = { .m = m };
	struct privileged_owner owner = { .act = { act }, .context = &p };
	struct fault f = FAULT_NONE;
	int err = privileged_new(NULL, &owner, &p.gate);

	(void)arg;
	if (!err)
		err = privileged_run(p.gate, &operator, "reset_ccu", "a test of the matrix", &f);
	matrix_judge(m, err == -EIO && !p.acts, "%s, done %u times",
		err ? fault_errno_name(err) : "allowed", p.acts);
	plane_close(&p);
}

static const struct matrix_case cases[] = {
	{ "unauthorised reset", FOR_ANY, NEEDS_DEVICE, unauthorised, PRIVILEGED_RESET_CCU },
	{ "unauthorised device reset", FOR_ANY, NEEDS_DEVICE, unauthorised,
		PRIVILEGED_RESET_DEVICE },
	{ "unauthorised read of memory", FOR_ANY, NEEDS_DEVICE, unauthorised,
		PRIVILEGED_MEMORY_READ },
	{ "unauthorised write of memory", FOR_ANY, NEEDS_DEVICE, unauthorised,
		PRIVILEGED_MEMORY_WRITE },
	{ "unauthorised trace", FOR_ANY, NEEDS_DEVICE, unauthorised, PRIVILEGED_TRACE_START },
	{ "an operator's reset", FOR_ANY, NEEDS_DEVICE, authorised, 0 },
	{ "a reset that cannot be audited", FOR_ANY, NEEDS_DEVICE, not_audited, 0 },
};

const struct matrix_group matrix_security = { "security", cases, ARRAY_SIZE(cases) };
