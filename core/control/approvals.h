/* Destructive commands that wait for approval (design 5). Each is an operation with a text, fixed when
 * it is made (core/control/approval_text.h), that so many different approvers must sign before it runs: with
 * Ed25519 keys whose public halves are in STORE/approvers, as NAME.pem, by the rules of core/base/files.h.
 * The folder is read at each attempt; a signature whose key has left it meanwhile counts no more.
 *
 * Operations live in memory. A restart forgets them, and since the text has a random number of the
 * store (the file STORE/id, made at first use), of this run of the daemon and of the operation, no
 * signature ever fits another operation, run or store. Another generation voids what was asked of the
 * one before.
 *
 * States: pending -> complete, withdrawn, expired or void; a complete one may be made pending again by
 * the one caller that was told of it. What is over is remembered, for a clear answer, as long as
 * there is room for it.
 *
 * Any thread, without locks; the disk is waited for, so not one that serves the mount. */
#ifndef NPUFS_CORE_CONTROL_APPROVALS_H
#define NPUFS_CORE_CONTROL_APPROVALS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/fault.h"
#include "core/control/approval_text.h"

#define APPROVALS_PENDING_MAX 64
#define APPROVALS_KEPT_MAX    64 /* that are over */
#define APPROVALS_NEED_MAX    16
#define APPROVALS_EXPIRY_NS   (15 * 60 * 1000000000LL)

struct approvals;

/* Copied. All but `need` may be 0. */
struct approvals_owner {
	unsigned need;     /* different approvers, 1 to APPROVALS_NEED_MAX */
	int64_t expiry_ns; /* 0: APPROVALS_EXPIRY_NS */
	/* The number of the generation in force. NULL: always 0. */
	uint64_t (*generation)(void *context);
	int64_t (*now)(void *context); /* a test's clock, ns; NULL: the monotonic one */
	void *context;
};

/* -EBADMSG: STORE/id is not as it was made. */
int approvals_open(const char *store, const struct approvals_owner *o, struct approvals **ret,
	struct fault *f);
void approvals_close(struct approvals *a); /* nobody uses it; NULL is fine */

struct approvals_order {
	const struct cred *who;
	int64_t login;       /* audit_login()'s */
	const char *command; /* with its arguments, and "force" */
	const char *effect;  /* what it does, for who is to sign it */
	bool forced;         /* jobs that run then fail; else it is not done while they do */
	const char *reason;
};

/* -EINVAL, -E2BIG: as approval_text_put(). -EAGAIN: APPROVALS_PENDING_MAX wait already. */
int approvals_submit(struct approvals *a, const struct approvals_order *order,
	char ret_id[APPROVAL_ID_SIZE], struct fault *f);
/* -ENOENT: it is not pending. */
int approvals_withdraw(struct approvals *a, const char *id);
/* Who asked for a pending one; else the errors of approvals_sign(). */
int approvals_asker(struct approvals *a, const char *id, uint32_t *ret_uid, struct fault *f);

/* What is pending, oldest first; numbers rise and are never used again in this run. Returns how many. */
struct approvals_item {
	uint64_t number;
	char id[APPROVAL_ID_SIZE];
};
size_t approvals_list(struct approvals *a, struct approvals_item ret[APPROVALS_PENDING_MAX]);
/* The text to sign, then who has: of a pending one, else the errors of approvals_sign(). */
int approvals_text(struct approvals *a, const char *id, struct buf *out, struct fault *f);

/* What a signature did. */
struct approval {
	char key[KEY_ID_SIZE];
	const char *why; /* a word for the audit trail where it was refused; static */
	bool complete;   /* it was the last that was needed: the caller, and no other, must act */
	/* What was asked for, of every operation. */
	uint64_t generation;
	struct cred who;
	int64_t login;
	char command[APPROVAL_TEXT_MAX], reason[APPROVAL_TEXT_MAX];
};

/* Called without a lock when a signature is good and before it counts; not 0: it does not count. */
typedef int approvals_witness(void *context, const struct approval *what);

/* `line` is "npufs-approval-1 KEYID HEX", its newline optional, over the text. `witness` may be NULL.
 * In this order:
 *
 *   -EINVAL        no such line
 *   -ENOENT        no such operation (or it was over long ago)
 *   -EALREADY      it is complete        -ECANCELED  it was withdrawn
 *   -ETIME         it has expired        -ESTALE     another generation is in force
 *   -EKEYREJECTED  the key is not an approver's
 *   -EBADMSG       the signature is not over this text
 *   -EEXIST        that key has signed it already
 *   what reading the folder gives, the witness, and the four of states again: it may have changed. */
int approvals_sign(struct approvals *a, const char *id, const char *line, size_t len,
	approvals_witness *witness, void *context, struct approval *ret, struct fault *f);
/* Of the one that was told that it is complete, when it could not act: pending again, without the
 * signature of `key`. */
void approvals_reopen(struct approvals *a, const char *id, const char *key);

/* Tell one of these errors in the words of a table. Returns err. */
int approvals_refuse(struct fault *f, int err);
/* A word for each of these errors, for the audit trail. */
const char *approvals_word(int err);

#endif
