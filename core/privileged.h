/* The privileged plane: the commands that reach beyond one job, and the one function that carries
 * them out (design 5, device contract 7 and 10). Who may, a reason, how often, whether jobs run: all
 * is decided here, and every attempt is audited, refused ones by exactly one record, others by an
 * intent, which is on the disk before anything is done, and its result. What cannot be audited is
 * not done.
 *
 * Where the owner gives approvals, a destructive command is not done at once: it becomes an operation
 * that so many approvers must sign first, and the last signature carries it out.
 *
 * What a command does is its owner's, which gives a function for each that it has. */
#ifndef NPUFS_CORE_PRIVILEGED_H
#define NPUFS_CORE_PRIVILEGED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/access.h"
#include "core/approvals.h"
#include "core/audit.h"
#include "core/fault.h"

/* How often in an hour; so many may come at once. */
#define PRIVILEGED_RESETS       4   /* of each level */
#define PRIVILEGED_GENERATIONS  30  /* of each of load, unload, configure */
#define PRIVILEGED_READS        600 /* of memory */
#define PRIVILEGED_WRITES       60
#define PRIVILEGED_TRACE_STARTS 12
#define PRIVILEGED_TRACE_STOPS  60
#define PRIVILEGED_SWITCHES     12 /* of one engine or two */
#define PRIVILEGED_FAULT_PLANS  600
#define PRIVILEGED_REGISTERS    100000

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
	PRIVILEGED_TRACE_START,
	PRIVILEGED_TRACE_STOP,
	PRIVILEGED_PARALLEL,
	PRIVILEGED_DRAIN,
	PRIVILEGED_FAULTS,
	PRIVILEGED_REGISTER,
	PRIVILEGED_CLOSE_CALLABLES,
	PRIVILEGED_COUNT
};

struct privileged_row {
	const char *name;  /* one word or two */
	const char *node;  /* of the mount, where it is written */
	const char *args;  /* named, one blank between: "ADDRESS LENGTH"; "" for none */
	const char *level; /* of the device contract: "C1" or "C4" */
	bool destructive;  /* something is lost: the commands that need approval */
	bool needs_idle;   /* refused while jobs run, unless forced */
	unsigned an_hour;
	const char *summary;
};

const struct privileged_row *privileged_row(enum privileged_command c);

/* A command that has been allowed, for the function that carries it out. */
struct privileged_order {
	const struct cred *who;
	const char *args; /* as many words as the row names, unchecked; "" for none */
	bool forced;      /* jobs may be running: what that means for them is the function's */
	/* Approvers signed it, for the device with this generation on it: where another one may have
	 * come meanwhile the function looks again. `who` is who asked for it. */
	bool approved;
	uint64_t generation;
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

/* `audit` is borrowed; NULL, where it could not be opened: everything is -EIO. `uid` is the daemon's
 * own user, who may do what root may. */
int privileged_new(struct audit *audit, uint32_t uid, const struct privileged_owner *o,
	struct privileged **ret);
void privileged_free(struct privileged *p); /* nothing runs; NULL is fine */

/* `command` is a row's name, its arguments and, where the row needs idleness, perhaps the word
 * "force"; one blank between words. `reason` is for the audit trail. Takes as long as the disk and
 * the act do; any thread, without locks. In this order:
 *
 *   -EACCES      neither root nor the daemon's user
 *   -EINVAL      no such command, not its arguments; then: no reason (1 to PRIVILEGED_REASON_MAX
 *                bytes of UTF-8, not all blank, no control characters)
 *   -EOPNOTSUPP  the owner has no function for it
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
 *   -EACCES      neither root nor the daemon's user
 *   -EOPNOTSUPP  nothing needs approval
 *   those of approvals_sign()
 *   -EBUSY       jobs run: the last signature does not count, and can be given again
 *   -EIO         it could not be audited: likewise, unless `f` says that the command was done
 *   and what the function returns. */
int privileged_approve(struct privileged *p, const struct cred *who, const char *id,
	const char *line, struct fault *f);

#endif
