/* Between approvals.c (the operations) and approvals_sign.c (what signatures do to them). */
#ifndef NPUFS_CORE_CONTROL_APPROVALS_IMPL_H
#define NPUFS_CORE_CONTROL_APPROVALS_IMPL_H

#include "core/base/lock.h"
#include "core/control/approvals.h"

#define PLACES (APPROVALS_PENDING_MAX + APPROVALS_KEPT_MAX)

enum state { UNUSED, PENDING, COMPLETE, WITHDRAWN, EXPIRED, VOID };

struct operation {
	enum state state;
	uint64_t number; /* rising: which is older */
	char id[APPROVAL_ID_SIZE];
	int64_t deadline;
	char *text; /* what is signed, owned, as are command and reason */
	char *command, *reason;
	struct cred who;
	int64_t login;
	uint64_t generation;
	char signers[APPROVALS_NEED_MAX][KEY_ID_SIZE];
	unsigned n_signers;
};

struct approvals {
	int root;                      /* fixed, as are owner and the ids */
	struct approvals_owner owner;  /* fixed */
	char store[APPROVAL_ID_SIZE];  /* fixed */
	char daemon[APPROVAL_ID_SIZE]; /* fixed */
	struct lock lock;
	struct operation places[PLACES]; /* by lock */
	uint64_t last;                   /* number given; by lock */
};

/* The moment of a look at an operation; taken before the lock. */
struct moment {
	int64_t now;
	uint64_t generation;
};

struct moment approvals_moment(const struct approvals *a);
/* The operation, when it is pending. */
int approvals_find_pending_locked(struct approvals *a, const char *id, const struct moment *m,
	struct operation **ret);
struct operation *approvals_find_locked(struct approvals *a, const char *id); /* or NULL */

#endif
