/* One line of the audit trail: made from a record, and read back. The form is in audit.h. */
#ifndef NPUFS_CORE_CONTROL_AUDIT_LINE_H
#define NPUFS_CORE_CONTROL_AUDIT_LINE_H

#include <stddef.h>
#include <stdint.h>

#include "core/artifact/signature.h"
#include "core/base/buf.h"
#include "core/base/crypto.h"
#include "core/control/audit.h"

/* What the first record follows. */
#define AUDIT_NO_HASH "0000000000000000000000000000000000000000000000000000000000000000"

struct audit_line { /* the chain's part of a record */
	uint64_t seq;
	char torn[SHA256_HEX_SIZE]; /* "" where there is none */
	char prev[SHA256_HEX_SIZE];
	char hash[SHA256_HEX_SIZE];
	/* Of a checkpoint: how many bytes at the line's start are signed. 0: it is a record. */
	size_t signed_len;
	struct signature signature;
	uint64_t count;
};

/* Append the line of a record of that trail (struct audit_record or audit_job), with its newline; seq,
 * torn and prev are given in `l`, the hash is set. -EMSGSIZE is a fault of the limits in audit.h. */
int audit_line_put(enum audit_trail trail, const void *record, int64_t wall_ns,
	struct audit_line *l, struct buf *out);

/* The same for a checkpoint, signed with `k`. */
int audit_line_checkpoint(const struct key *k, int64_t wall_ns, struct audit_line *l,
	struct buf *out);
/* The record's line for others to read, without newline and without digests. */
int audit_line_plain(const struct audit_record *r, int64_t wall_ns, uint64_t seq, struct buf *out);

/* Any bytes without newline. NULL, or what is wrong with them (static text): they are no record, or
 * the hash is not theirs. */
const char *audit_line_get(enum audit_trail trail, const char *line, size_t len,
	struct audit_line *ret);

#endif
