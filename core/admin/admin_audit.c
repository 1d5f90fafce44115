#include "core/admin/admin.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "core/control/audit.h"

static int verify(const struct admin_call *c, enum audit_trail trail, const char *name)
{
	AUTO_BUF struct buf found = BUF_INIT;
	struct fault f = FAULT_NONE;

	if (audit_verify(c->args[0], trail, &found, &f))
		return admin_failed(c, &f, NULL);
	fprintf(c->out, "ok: %s: %s", name, buf_text(&found));
	return ADMIN_OK;
}

/* Of jobs there is none before the first mount, nor where it is not wanted. */
static int verify_jobs(const struct admin_call *c)
{
	if (audit_is_there(c->args[0], AUDIT_JOBS))
		return verify(c, AUDIT_JOBS, "jobs");
	fputs("jobs: no trail is there\n", c->out);
	return ADMIN_OK;
}

/* Both are looked at, whatever the first is like. */
int admin_audit_verify(const struct admin_call *c)
{
	int commands = verify(c, AUDIT_COMMANDS, "commands"), jobs = verify_jobs(c);

	return commands == ADMIN_OK ? jobs : commands;
}

static int put_line(void *out, const char *line)
{
	return fprintf(out, "%s\n", line) < 0 ? -EIO : 0;
}

static int read_count(const char *text, uint64_t *ret, struct fault *f)
{
	char *end;

	*ret = UINT64_MAX;
	if (!text)
		return 0;
	errno = 0;
	*ret = strtoull(text, &end, 10);
	if (text[0] >= '0' && text[0] <= '9' && !*end && !errno)
		return 0;
	return fault_set(f, -EINVAL, "give how many lines", "--last needs a number");
}

int admin_audit_show(const struct admin_call *c)
{
	struct fault f = FAULT_NONE;
	uint64_t most;
	int err = read_count(c->value, &most, &f);

	if (!err)
		err = audit_show(c->args[0], c->flag ? AUDIT_JOBS : AUDIT_COMMANDS, most, put_line,
			c->out, &f);
	if (err && !f.err)
		fault_set(&f, err, "", "cannot write the output");
	return err ? admin_failed(c, &f, NULL) : ADMIN_OK;
}
