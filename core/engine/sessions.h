/* Conversations that go on: the tokens of each session, kept on the host, and the KV of those tokens
 * where the device has it. The tokens are the session; the KV only saves computing them again, so
 * it may go at any time (another model, a recovery, room for others) and the text stays the same.
 * In memory only: a session ends with the daemon.
 *
 * One job of a session at a time, from engine_submit() until it has ended and its run has left the
 * device. Only a job that ends well makes the session longer.
 *
 * Any thread may call what is not marked as the engine's thread's: the device's part belongs to that
 * thread. No lock is held across a call of the device. */
#ifndef NPUFS_CORE_ENGINE_SESSIONS_H
#define NPUFS_CORE_ENGINE_SESSIONS_H

#include "core/engine/sequence.h"
#include "core/job/job.h"

struct sessions_limits {
	uint32_t all, user; /* sessions of all users, of one */
	int64_t idle_ns;    /* freed when not used for so long; 0: never */
};

struct sessions;
struct session;

/* A session at one moment. */
struct session_view {
	uint64_t id; /* never used again */
	char name[SESSION_NAME_SIZE];
	uint32_t uid, gid;
	int model;              /* its index; -1 while the session has no tokens, as `limit` is 0 */
	uint32_t length, limit; /* tokens */
	bool in_use;            /* a job of it is queued or running */
	uint64_t generation;    /* whose device has its KV; 0: none */
	int64_t changed;        /* wall ns */
};

/* 1..64 letters, digits, dots, underscores and hyphens, no dot in front. */
bool session_name_valid(const char *name);

int sessions_new(const struct sessions_limits *limits, struct sessions **ret);
void sessions_free(struct sessions *t); /* NULL is fine */

/* --- jobs ------------------------------------------------------------------------------------- */

/* Could a job of this user go on with that session now? -EACCES another's; -EBUSY it has a job;
 * -ENOSPC, -EDQUOT it would have to be made. *ret_model: the model it is bound to, or -1. */
int sessions_check(struct sessions *t, uint32_t uid, const char *name, int *ret_model,
	struct fault *f);
/* The job has the session, which is made when it is not there, until sessions_settle(). The same
 * errors, and -EINVAL when the order is for another model. */
int sessions_claim(struct sessions *t, uint32_t uid, uint64_t job, const struct job_order *order,
	struct fault *f);
/* How the job ended is decided. Done: what its run offered becomes the session's. Else the session is
 * as before; one that the job made is gone. Of a job that has no claim (any more): nothing. */
void sessions_settle(struct sessions *t, const char *name, uint64_t job, bool done);

/* --- the engine's thread ---------------------------------------------------------------------- */

/* A run of the job begins; sessions_end() when it leaves the device. -ECANCELED: the job has ended;
 * -ESTALE: the model is not the one that the tokens are for. *ret_tokens stays valid until
 * sessions_end(). */
int sessions_begin(struct sessions *t, const char *name, uint64_t job, const char *model_sha256,
	struct session **ret, const int32_t **ret_tokens, uint32_t *ret_n, struct fault *f);
/* The KV that the device has of it, cut to its length; false: none. It is the run's until
 * sessions_end(). */
bool sessions_take_kv(struct sessions *t, struct session *s, struct generation *g,
	struct sequence *ret);
/* All tokens, as they are to be when the job ends well. -ENOMEM. */
int sessions_offer(struct sessions *t, struct session *s, uint64_t job, const int32_t *tokens,
	uint32_t n, uint32_t limit, const char *model_sha256);
/* The run leaves; `q` NULL: it took no KV. The session is not the run's to touch any more. */
enum npu_error sessions_end(struct sessions *t, struct session *s, struct generation *g,
	struct sequence *q);

/* Does the device have KV that could give way? */
bool sessions_can_evict(struct sessions *t, const struct generation *g);
/* Let KV of removed sessions, and then of those that do not run, least recently used first, give way
 * until the device has room for one sequence, or none is left. */
void sessions_make_room(struct sessions *t, struct generation *g);
/* Are there removed sessions whose KV is still on the device? And free it; `g` may be NULL. */
bool sessions_has_removed(struct sessions *t);
void sessions_free_removed(struct sessions *t, struct generation *g);

/* --- the folder ------------------------------------------------------------------------------- */

/* Errors as of mkdir(2), and -EDQUOT. */
int sessions_make(struct sessions *t, uint32_t uid, uint32_t gid, const char *name);
/* -EBUSY while in use. What the device has of it is freed by the engine's thread (engine_wake). */
int sessions_remove(struct sessions *t, uint64_t id);
/* Cut the tail. -EBUSY; -EINVAL no length that the session can have; -EOPNOTSUPP a larger one. */
int sessions_trim(struct sessions *t, uint64_t id, uint64_t length);
int sessions_check_trim(struct sessions *t, uint64_t id, uint64_t length); /* would it be cut? */
bool sessions_find(struct sessions *t, const char *name, struct session_view *ret);
bool sessions_look(struct sessions *t, uint64_t id, struct session_view *ret);
/* The first one, in the order in which they were made, whose id is larger. */
bool sessions_next(struct sessions *t, uint64_t id, struct session_view *ret);
size_t sessions_count(struct sessions *t);
/* Free what was not used for too long: how many. */
size_t sessions_tidy(struct sessions *t);

#endif
