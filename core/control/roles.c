#include "core/control/roles.h"

#include <errno.h>
#include <grp.h>
#include <stdlib.h>
#include <string.h>

/* A name of digits alone is a number, of any group: it need not have a name. */
static bool group_number(const char *text, uint32_t *ret)
{
	unsigned long long n;

	if (strspn(text, "0123456789") != strlen(text) || strlen(text) > 10)
		return false;
	n = strtoull(text, NULL, 10);
	*ret = (uint32_t)n;
	return n < ROLES_NO_GROUP;
}

static int find_group(const char *text, const char *option, uint32_t *ret, struct fault *f)
{
	const struct group *g;

	*ret = ROLES_NO_GROUP;
	if (!text[0] || group_number(text, ret))
		return 0;
	g = getgrnam(text);
	if (!g)
		return fault_at(f, -EINVAL, option, -1,
			"see getent group, or make one with groupadd",
			"%s=%s: there is no such group", option, text);
	*ret = g->gr_gid;
	return 0;
}

int roles_set(struct roles *r, uint32_t uid, const char *operator_group, const char *trace_group,
	struct fault *f)
{
	struct roles got = { .uid = uid };
	int err = find_group(operator_group, "operator_group", &got.operators, f);

	if (!err)
		err = find_group(trace_group, "trace_group", &got.tracers, f);
	if (!err)
		*r = got;
	return err;
}

/* An unmapped caller comes with the number that stands for no group. */
static bool is_member(const struct cred *c, uint32_t group)
{
	return group != ROLES_NO_GROUP && cred_in_group(c, group);
}

unsigned roles_of(const struct roles *r, const struct cred *c)
{
	return (c->uid == 0 || c->uid == r->uid ? ROLE_ROOT : 0) |
		(is_member(c, r->operators) ? ROLE_OPERATOR : 0) |
		(is_member(c, r->tracers) ? ROLE_TRACE : 0);
}
