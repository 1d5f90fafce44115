/* Who may use what only operators may (design 5): root and the daemon's own user everything, and each of
 * two groups of the system what its work needs. A row of a table says which roles it is for; that root
 * is among them needs no saying. What the groups are is fixed when the daemon starts.
 *
 * Supplementary groups count. The kernel tells them of a caller that waits: ask at submission, on the
 * thread that serves the mount, and carry the answer, as the bits, with what was submitted. */
#ifndef NPUFS_CORE_CONTROL_ROLES_H
#define NPUFS_CORE_CONTROL_ROLES_H

#include <stdbool.h>
#include <stdint.h>

#include "core/access.h"
#include "core/base/fault.h"

#define ROLE_ROOT     1u /* root and the daemon's user */
#define ROLE_OPERATOR 2u /* a member of the group of the option operator_group */
#define ROLE_TRACE    4u /* likewise of trace_group */

#define ROLES_NO_GROUP UINT32_MAX /* no process can be a member of it */

struct roles {
	uint32_t uid;                /* the daemon's */
	uint32_t operators, tracers; /* groups, or ROLES_NO_GROUP */
};

/* Each group by its name or its number; "" for none, where the role is nobody's but root's. -EINVAL, with
 * the option as field: there is no such group. */
int roles_set(struct roles *r, uint32_t uid, const char *operator_group, const char *trace_group,
	struct fault *f);

/* Every role that `c` has; 0: none. */
unsigned roles_of(const struct roles *r, const struct cred *c);

/* The one decision: may who has the roles `mine` use what is for the roles `wanted`? */
static inline bool roles_allow(unsigned mine, unsigned wanted)
{
	return mine & (wanted | ROLE_ROOT);
}

#endif
