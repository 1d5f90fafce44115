/* What the files of the sessions share; nobody else includes it.
 *   sessions.c      the table, the claims of jobs, the folder
 *   sessions_run.c  the engine's thread: runs, and KV on the device
 *
 * A session is in use while a job has its claim or a run of it is on the device. The two end apart: a
 * job that is cancelled or past its deadline has ended while its run may still be on the device.
 *
 *   claimed  running
 *   no       no       idle: trimmed, removed, claimed by the next job
 *   yes      no       its job waits, or has left the device and is being kept
 *   yes      yes      its job runs
 *   no       yes      its job has ended; the run leaves at its next turn
 *
 * How a job ends is decided after its run has left (its result is stored then), so a run offers its
 * tokens and the decision takes them or drops them. The KV is not touched by that: what it has too
 * much is cut when it is taken next (sessions_take_kv).
 *
 * Whoever has KV on the device is freed by the engine's thread only: it alone may use a session of
 * which it has seen that, without the lock. */
#ifndef NPUFS_CORE_ENGINE_SESSIONS_IMPL_H
#define NPUFS_CORE_ENGINE_SESSIONS_IMPL_H

#include "core/base/crypto.h"
#include "core/base/lock.h"
#include "core/engine/sessions.h"

struct tokens {
	int32_t *ids; /* NULL when there are none */
	uint32_t n;
};

struct session {
	/* fixed */
	uint64_t id;
	char name[SESSION_NAME_SIZE];
	uint32_t uid, gid;
	/* by the table's lock */
	struct session *next;
	struct tokens tokens;  /* not changed while it runs */
	struct tokens offered; /* by the run of the claim's job */
	char model_sha256[SHA256_HEX_SIZE], offered_sha256[SHA256_HEX_SIZE];
	int model, claimed_model;
	uint32_t limit, offered_limit;
	uint64_t claim; /* the job; 0 none */
	bool running;
	bool fresh;   /* made by a job, and none has ended well */
	int64_t used; /* monotonic ns */
	int64_t changed;
	uint64_t generation; /* whose device has `kv`; 0 none; set by the engine's thread */
	struct sequence kv;  /* the engine's thread's */
};

struct sessions {
	struct sessions_limits limits; /* fixed */
	struct lock lock;
	/* by lock */
	struct session *first, **end; /* in the order of their ids */
	struct session *removed;      /* their KV is to be freed */
	size_t count;
	uint64_t next_id;
};

void sessions_drop_tokens(struct tokens *k);
void sessions_free_one(struct session *s);
struct session *sessions_find_locked(struct sessions *t, const char *name);
/* One of the two ends of a use has come. A session that a job made for nothing goes with it: it may
 * be gone. */
void sessions_after_use_locked(struct sessions *t, struct session *s);

#endif
