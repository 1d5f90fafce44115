/* Two audit trails of one kind: of commands, who tried what on the privileged plane, and what came of
 * it (design 5); of jobs, the digests of what was asked and answered, never more of it.
 *
 * STORE/audit/ (0700) holds NNNNNNNN.jsonl (0600), a record a line, oldest first:
 *
 *   {"seq":7,"time":"2026-01-31T12:00:00.123Z","uid":0,"gid":0,"pid":41,"comm":"bash",
 *    "loginuid":1000,"command":"reset_ccu","node":"control/reset_ccu","args":"SHA-256",
 *    "decision":"intent","why":"","message":"the operator's reason","prev":"SHA-256","hash":"SHA-256"}
 *
 * in one line, without blanks, in this order. `args` is the digest of the arguments, which are never
 * written themselves. STORE/audit-jobs/ is the same with records of jobs that ended:
 *
 *   {"seq":7,"time":"when it ended","job":41,"uid":1000,"gid":1000,"request_sha256":"SHA-256",
 *    "model_sha256":"SHA-256","output_sha256":"SHA-256","prompt_tokens":12,"output_tokens":10,
 *    "verdict":"done","error":"","lost":0,"prev":"SHA-256","hash":"SHA-256"}
 *
 * where a digest is null of what did not come to be (a job that never ran has none of its request),
 * and `lost` is how many records before this one were not written.
 *
 * `hash` is the SHA-256 of the line's own bytes before `,"hash":`; among them is `prev`, the hash of the
 * record before (64 zeros in the first), so no record can be changed, left out or put in without
 * changing all that follow. The chain runs on from file to file.
 *
 * Bytes without a newline at the end of a file are what a crash left of a record that nobody was
 * told was written. They stay; the next record begins a new file and has, before `prev`, the member
 * `torn`: their SHA-256 (of all such ends since the record before, in order).
 *
 * Before a record that would be the 65th since the last one (of jobs the 1025th), and at the end of the
 * daemon, comes a checkpoint, a line of the same chain:
 *
 *   {"seq":65,"time":"...","checkpoint":64,"prev":"SHA-256","signature":"npufs-audit-checkpoint-1
 *    KEYID HEX","hash":"SHA-256"}
 *
 * where `checkpoint` is how many lines there have been, and the signature (core/artifact/signature.h) is the
 * daemon's own, over the line's bytes before `,"signature":`. The daemon's key is made with the trail
 * (core/control/audit_seal.h). The file `head` has the sequence number and hash of the newest line, signed
 * likewise, and is replaced after each record, or each batch of them. A trail of before there were
 * checkpoints goes on with them, and is not asked for them in what it had.
 *
 * So audit_verify() finds what was changed, left out, put in, moved or, at the end, removed as far back
 * as the head tells; and a trail that somebody without the daemon's private key wrote anew.
 *
 * What it cannot show: that the newest lines and the head were put back together to what both were at an
 * earlier time; what came after the head, where a crash came between a record and its head; and
 * anything that was done by who can read the private key, as root can. Against these keep the public
 * key and the last hash, or the checkpoints that syslog gets, where the store's owner cannot change
 * them.
 *
 * Each record of a command also goes to syslog (LOG_AUTHPRIV), without its digests, and each
 * checkpoint of both as it is: after it is on the disk, and only if syslog takes it at once.
 *
 * The oldest files may be moved elsewhere; the rest is then a chain that begins later. Of commands
 * nothing is removed here, and since refused attempts are anybody's, and looks as many as anybody who may
 * look wants, they stop being written first; of jobs the oldest file makes room for the next.
 *
 * Writing syncs the disk, and waits for others that do: never on a thread that serves the mount, and
 * never with a lock held. Negative errnos. */
#ifndef NPUFS_CORE_CONTROL_AUDIT_H
#define NPUFS_CORE_CONTROL_AUDIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/access.h"
#include "core/base/buf.h"
#include "core/base/crypto.h"
#include "core/base/fault.h"

#define AUDIT_FILE_BYTES    (1u << 20) /* a file that would grow past it is followed by the next */
#define AUDIT_FILES_MAX     256        /* files in the folder; then -ENOSPC */
#define AUDIT_FILES_REFUSED 192        /* the same for refused attempts and looks */
#define AUDIT_LINE_MAX      2048       /* bytes of a line and its newline */
#define AUDIT_MESSAGE_MAX   256        /* bytes of a message; the rest is cut */
#define AUDIT_NAME_MAX      64         /* of command, node and why */
#define AUDIT_COMM_SIZE     16         /* of the kernel's name of a program, and a NUL */

#define AUDIT_JOBS_FILES_MAX 256 /* files of the trail of jobs */

#define AUDIT_CHECKPOINT_EVERY      64 /* records at most without a checkpoint */
#define AUDIT_JOBS_CHECKPOINT_EVERY 1024

enum audit_trail { AUDIT_COMMANDS, AUDIT_JOBS, AUDIT_TRAIL_COUNT };

struct audit;

/* Who gets each line; a test's own. Never waits. */
extern void (*audit_mirror)(const char *line);

enum audit_decision {
	AUDIT_INTENT, /* allowed, and about to be done */
	AUDIT_REFUSED,
	AUDIT_DONE,
	AUDIT_FAILED,
	AUDIT_PENDING,  /* allowed, and waits for approval: `why` is the operation's id */
	AUDIT_APPROVED, /* by one approver: `why` is the key's id, `message` the operation's */
	AUDIT_DECISION_COUNT
};

/* Texts may be anything: they are sanitised and cut. NULL is "". */
struct audit_record {
	const struct cred *who;
	int64_t login;    /* audit_login()'s */
	const char *comm; /* audit_comm()'s; NULL and "": not known */
	const char *command, *node;
	const char *args; /* only their digest is written */
	enum audit_decision decision;
	const char
		*why; /* a word for a refusal, the name of an error for a failure, an operation's id
			    for an intent that was approved */
	const char *message;
	bool look; /* not written, where that would leave too little room for commands */
};

/* Texts are words and hexadecimal digits, "" where there is no digest. */
struct audit_job {
	int64_t ended; /* wall ns */
	uint64_t job;
	uint32_t uid, gid;
	char request[SHA256_HEX_SIZE], model[SHA256_HEX_SIZE], output[SHA256_HEX_SIZE];
	uint64_t prompt_tokens, output_tokens;
	const char *verdict, *error; /* static texts */
	uint64_t lost;               /* records before it */
};

/* The user who once logged in to what became this process; -1 where it is not known. Ask while the
 * process is known to be there. */
int64_t audit_login(pid_t pid);
/* The name of the program that it runs, which that may have chosen itself; "" where it is not known. */
void audit_comm(pid_t pid, char ret[AUDIT_COMM_SIZE]);

/* Make folder and key if need be, verify the end of the chain (all of the newest file that has records)
 * and the head, and go on from there. -EBADMSG: it is broken, and `f` says where; -EBUSY: in use. */
int audit_open(const char *store, enum audit_trail trail, struct audit **ret, struct fault *f);
/* Nobody writes. Ends with a checkpoint, if the disk takes it. NULL is fine. */
void audit_close(struct audit *a);

/* On the disk when it returns 0. Else the record is not part of the trail, and what it announces
 * must not be done; a later one may succeed. -ESTALE: something else is in the folder's place; -EBADMSG
 * and others of audit_open(): in the newest file's. -EIO where `a` is NULL: a trail that could not be
 * opened. Threads may write at the same time. */
int audit_write(struct audit *a, const struct audit_record *r);
/* The same for several of one decision, looks or not, all with one sync, or one for each file they go to.
 * Where it fails, only the first *ret_written, always set, are part of the trail. */
int audit_write_all(struct audit *a, const struct audit_record *r, size_t n, size_t *ret_written);
/* What to do then. */
#define AUDIT_UNWRITTEN_ACTION \
	"see to the audit folder of the store and its disk; npufs-admin audit verify tells more"
/* Did the last of these fail? True where `a` is NULL. */
bool audit_fails(const struct audit *a);
/* The same for the trail of jobs. */
int audit_write_jobs(struct audit *a, const struct audit_job *jobs, size_t n, size_t *ret_written);

/* Has it been begun? */
bool audit_is_there(const char *store, enum audit_trail trail);

/* The whole chain, with a daemon running or not: `out` gets what was found, in lines. -EBADMSG at
 * the first break: `f` has file, line and the line's first byte; a trail that is missing is -ENOENT. */
int audit_verify(const char *store, enum audit_trail trail, struct buf *out, struct fault *f);

/* The last `most` whole lines, oldest first, unverified but without control characters: `visit` gets
 * each without its newline, and ends it all by not returning 0. A daemon may be writing more. */
typedef int audit_visitor(void *context, const char *line);
int audit_show(const char *store, enum audit_trail trail, uint64_t most, audit_visitor *visit,
	void *context, struct fault *f);

#endif
