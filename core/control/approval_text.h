/* What approvers sign: the text of one destructive command that waits for them. It is fixed when the
 * operation is made and says all that will happen, and where:
 *
 *   npufs-approval-request-1
 *   store: 32 HEX DIGITS          of the file STORE/id
 *   daemon: 32 HEX DIGITS         of this run of it
 *   generation: 3
 *   operation: 32 HEX DIGITS      random, as the two before
 *   command: reset_device force
 *   effect: reset the device: the last resort; jobs that run then fail
 *   reason: what its operator wrote
 *   asked by: uid 0 gid 0 pid 41 loginuid 1000
 *   asked at: 2026-01-31T12:00:00.123Z
 *   expires: 2026-01-31T12:15:00.123Z
 *   approvers: 2
 *   end of what is signed
 *
 * Below that line, not signed, who has: "signed by KEYID" each. All is printable, one line each; the
 * command is plain ASCII, so what is seen is what is there. */
#ifndef NPUFS_CORE_CONTROL_APPROVAL_TEXT_H
#define NPUFS_CORE_CONTROL_APPROVAL_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/access.h"
#include "core/base/buf.h"
#include "core/base/crypto.h"

#define APPROVAL_WORD     "npufs-approval-1" /* of a signature line */
#define APPROVAL_ID_SIZE  33                 /* 32 lower-case hex digits and a NUL */
#define APPROVAL_TEXT_MAX 4096               /* bytes of what is signed */
#define APPROVAL_SHOW_MAX 8192               /* and of who has */

struct approval_facts {
	char store[APPROVAL_ID_SIZE], daemon[APPROVAL_ID_SIZE], operation[APPROVAL_ID_SIZE];
	uint64_t generation;
	const char *command, *effect, *reason;
	bool forced; /* jobs that run then fail; else it is not done while they do */
	const struct cred *who;
	int64_t login;          /* -1: not known */
	int64_t asked, expires; /* wall time, ns */
	unsigned need;
};

/* Random, in digits. 0 or -EIO. */
int approval_new_id(char ret[APPROVAL_ID_SIZE]);
bool approval_is_id(const char *text, size_t len);

/* -EINVAL: the command or reason cannot be shown as it is; -E2BIG: it is too long for that. */
int approval_text_put(const struct approval_facts *facts, struct buf *out);

/* Any bytes, as approvals/ID shows them. NULL, or what is wrong with them (static text); the
 * operation's id, and how many bytes at the start are what is signed. */
const char *approval_text_get(const char *text, size_t len, char ret_operation[APPROVAL_ID_SIZE],
	size_t *ret_signed);

#endif
