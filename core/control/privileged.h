/* The privileged plane: the commands that reach beyond one job, and the one function that carries
 * them out (design 5, device contract 7 and 10). Who may (by the roles that its credentials carry,
 * core/control/roles.h), a reason, how often, whether jobs run: all is decided here, and every attempt is audited, refused ones by exactly one record, others by an
 * intent, which is on the disk before anything is done, and its result. What cannot be audited is
 * not done.
 *
 * Where the owner gives approvals, a destructive command is not done at once: it becomes an operation
 * that so many approvers must sign first, and the last signature carries it out.
 *
 * Resets of all levels together that come too often lock all of them until an operator has looked at why:
 * in memory alone, so a new start of the daemon unlocks them too.
 *
 * What a command does is its owner's, which gives a function for each that it has. */
#ifndef NPUFS_CORE_CONTROL_PRIVILEGED_H
#define NPUFS_CORE_CONTROL_PRIVILEGED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/access.h"
#include "core/base/fault.h"
#include "core/control/approvals.h"
#include "core/control/audit.h"
#include "core/control/roles.h"

/* How often in an hour; so many may come at once. */
#define PRIVILEGED_RESETS       4   /* of each level */
#define PRIVILEGED_GENERATIONS  30  /* of each of load, unload, configure */
#define PRIVILEGED_READS        600 /* of memory, and of registers */
#define PRIVILEGED_WRITES       60
#define PRIVILEGED_TRACE_STARTS 12
#define PRIVILEGED_TRACE_STOPS  60
#define PRIVILEGED_SWITCHES     12 /* of one engine or two */
#define PRIVILEGED_FAULT_PLANS  600
#define PRIVILEGED_PREPARES     100000 /* of callables */
#define PRIVILEGED_UNLOCKS      12

/* Resets of all levels, carried out or refused for their rate: so many at once, and as many an hour, or
 * all are locked. Two levels may be tried as often as each may; the third then is for a person to think
 * about. */
#define PRIVILEGED_STORM_RESETS 8

/* Whose signatures are taken in, and who may withdraw what it asked for itself (root: everything). */
#define PRIVILEGED_APPROVERS ROLE_OPERATOR

#define PRIVILEGED_REASON_MAX 256 /* bytes */

enum privileged_command {
	PRIVILEGED_RESET_CCU,
	PRIVILEGED_RESET_CONFIG,
	PRIVILEGED_RESET_DEVICE,
	PRIVILEGED_LOAD,
	PRIVILEGED_UNLOAD,
	PRIVILEGED_CONFIGURE,
	PRIVILEGED_MEMORY_READ,
	PRIVILEGED_MEMORY_WRITE,
	PRIVILEGED_REGISTER_READ,
	PRIVILEGED_REGISTER_WRITE,
	PRIVILEGED_TRACE_START,
	PRIVILEGED_TRACE_STOP,
	PRIVILEGED_PARALLEL,
	PRIVILEGED_DRAIN,
	PRIVILEGED_FAULTS,
	PRIVILEGED_UNLOCK,
	PRIVILEGED_PREPARE,
	PRIVILEGED_CLOSE_CALLABLES,
	PRIVILEGED_COUNT
};

struct privileged_row {
	const char *name;  /* one word or two */
	const char *node;  /* of the mount, where it is written */
	const char *args;  /* named, one blank between: "ADDRESS LENGTH"; "" for none */
	const char *level; /* of the device contract: "C1" or "C4" */
	unsigned roles;    /* who may; root may too */
	bool destructive;  /* something is lost: the commands that need approval */
	bool needs_idle;   /* refused while jobs run, unless forced */
	bool reset;        /* one of those that make a storm */
	unsigned an_hour;
	const char *summary;
};

extern const struct privileged_row privileged_rows[PRIVILEGED_COUNT]; /* privileged_rows.c */

static inline const struct privileged_row *privileged_row(enum privileged_command c)
{
	return &privileged_rows[c];
}

/* A command that has been allowed, for the function that carries it out. */
struct privileged_order {
	const struct cred *who;
	const char *args; /* as many words as the row names, unchecked; "" for none */
	bool forced;      /* jobs may be running: what that means for them is the function's */
	/* Approvers signed it, for the device with this generation on it: where another one may have
	 * come meanwhile the function looks again. `who` is who asked for it. */
	bool approved;
	uint64_t generation;
	/* What the record of a good result is to say in place of the reason, if the function puts
	 * something there: AUDIT_MESSAGE_MAX bytes. */
	char *told;
};

/* 0 or a negative errno and why. Called without a lock, by several threads at a time. */
typedef int privileged_act(void *context, const struct privileged_order *o, struct fault *f);

/* Copied; all but context's are optional. */
struct privileged_owner {
	privileged_act *act[PRIVILEGED_COUNT]; /* NULL: -EOPNOTSUPP to who may ask */
	/* Whether jobs run. Only asked before: a job may begin afterwards, so what must not run
	 * beside one looks again itself. NULL: never. */
	bool (*busy)(void *context);
	int64_t (*now)(void *context); /* a test's clock, ns; NULL: the monotonic one */
	struct approvals *approvals;   /* borrowed; NULL: nothing needs approval */
	void *context;
};

struct privileged;

/* `audit` is borrowed; NULL, where it could not be opened: everything is -EIO. */
int privileged_new(struct audit *audit, const struct privileged_owner *o, struct privileged **ret);
void privileged_free(struct privileged *p); /* nothing runs; NULL is fine */

/* `command` is a row's name, its arguments and, where the row needs idleness, perhaps the word
 * "force"; one blank between words. `reason` is for the audit trail. Takes as long as the disk and
 * the act do; any thread, without locks. In this order:
 *
 *   -EACCES      none of `who`'s roles may
 *   -EINVAL      no such command, not its arguments; then: no reason (1 to PRIVILEGED_REASON_MAX
 *                bytes of UTF-8, not all blank, no control characters)
 *   -EOPNOTSUPP  the owner has no function for it
 *   -EPERM       resets are locked
 *   -EAGAIN      too often: a shell says "Resource temporarily unavailable"
 *   -EBUSY       jobs run
 *   -EIO         it could not be audited. Nothing was done, unless `f` says that it was
 *   -EINPROGRESS it waits for approval, and nothing is done yet: a shell says "Operation now in
 *                progress", and `f` the operation's id. Taken since it can be mistaken neither for
 *                a refusal that is worth another try, nor for success.
 *   what approvals_submit() returns, and what the function does. */
int privileged_run(struct privileged *p, const struct cred *who, const char *command,
	const char *reason, struct fault *f);

/* A line of approvals_sign() for the operation `id`. When it is the last that was needed the command
 * is carried out, and its result returned; 0 also while others are needed. Audited: what is refused
 * by one record, else the approval, and then the command as above. Errors:
 *
 *   -EACCES      none of `who`'s roles may
 *   -EOPNOTSUPP  nothing needs approval
 *   those of approvals_sign()
 *   -EPERM       resets are locked, or
 *   -EBUSY       jobs run: the last signature does not count, and can be given again
 *   -EIO         it could not be audited: likewise, unless `f` says that the command was done
 *   and what the function returns. */
int privileged_approve(struct privileged *p, const struct cred *who, const char *id,
	const char *line, struct fault *f);

/* Take back what waits for approval as `id`: by root, or who asked for it while still an operator. It is
 * over then, and its token stays spent. -EACCES, -EOPNOTSUPP, -EIO as above; -EPERM: another asked
 * for it; those of approvals_text(). */
int privileged_withdraw(struct privileged *p, const struct cred *who, const char *id,
	struct fault *f);

/* A storm of resets has locked them. */
bool privileged_locked(struct privileged *p);
/* What PRIVILEGED_UNLOCK does, for its function. */
void privileged_unlock(struct privileged *p);

#endif
