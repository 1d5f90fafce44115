/* One run of one request: its states, its results and those who wait for them. A job is made with
 * its request file and ends exactly once; a new run of the same file is a new job, so that readers
 * and results belong to one run. Counted; any thread may hold it. What changes is guarded by the
 * job's own lock. */
#ifndef NPUFS_CORE_JOB_JOB_H
#define NPUFS_CORE_JOB_JOB_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/base/blob.h"
#include "core/base/buf.h"
#include "core/base/crypto.h"
#include "core/base/fault.h"
#include "core/engine/deadlines.h"
#include "core/engine/queue.h"
#include "core/job/answer.h"

/* writing -> queued -> running -> done | failed | cancelled | expired; every state may go to the
 * last four. */
enum job_state {
	JOB_WRITING,
	JOB_QUEUED,
	JOB_RUNNING,
	JOB_DONE,
	JOB_FAILED,
	JOB_CANCELLED,
	JOB_EXPIRED,
	JOB_STATE_COUNT
};

enum job_format { JOB_FORMAT_TEXT, JOB_FORMAT_JSON, JOB_FORMAT_BATCH };

/* What a result file shows. */
enum job_result { JOB_OUT, JOB_ERR, JOB_STREAM };

#define MODEL_ALIAS_SIZE  65
#define SESSION_NAME_SIZE 65

struct job;
struct record_run;
struct spool;
struct spool_file;

/* Somebody who waits for a job; embedded by the owner. wake() is called once, without any lock,
 * from the thread that made the wait end; after it the job no longer knows the waiter. */
struct job_waiter {
	enum job_result what;
	size_t offset; /* of a stream: wake when there is more than this */
	void (*wake)(struct job_waiter *w);
	struct job_waiter *next, **link; /* private */
};

/* How far a batch is. */
struct run_lines {
	uint64_t total; /* not blank; 0 while it is not known, and for what is no batch */
	uint64_t done, failed;
};

/* What a job is asked to do, fixed by job_queue(). */
struct job_order {
	struct blob *request; /* the job takes its own count; NULL: it is read from the spool */
	struct blob *files; /* the numbers of the spool's files that it names, in order; likewise */
	uint64_t request_size;
	int64_t queued; /* wall ns; 0 now. Of a job of an earlier start: when it was accepted */
	int model;
	int32_t priority;
	int64_t deadline_ms; /* 0 none */
	bool stream;
	enum answer_shape shape;
	char session[SESSION_NAME_SIZE]; /* "": none */
	uint32_t gid;                    /* its owner's, as of a session that it makes */
	uint64_t context; /* of callables, whose ids it has: when it was accepted; 0 none */
};

/* Everything there is to say about a job at one moment. */
struct job_view {
	uint64_t id;
	uint32_t uid;
	enum job_state state;
	enum job_format format;
	int model; /* -1 before it was queued */
	char model_alias[MODEL_ALIAS_SIZE], model_sha256[SHA256_HEX_SIZE]; /* "" unknown */
	bool stream;       /* asked for a listed STEM.stream */
	bool stream_apart; /* what .stream has is not what .out has */
	bool stored;       /* the spool has what it left */
	enum answer_shape shape;
	struct run_lines lines;               /* of a batch */
	uint64_t generation;                  /* of the device, 0 before it ran */
	int64_t made, queued, started, ended; /* wall ns, 0 where it did not happen */
	int64_t queue_ns, run_ns; /* durations on the monotonic clock, still growing or final */
	uint64_t prompt_tokens, output_tokens;
	size_t request_size, out_size, stream_size;
	const char *finish_reason; /* "stop", "length" or "" */
	bool seed_known;
	uint64_t seed;
	char request_sha256[SHA256_HEX_SIZE], output_sha256[SHA256_HEX_SIZE];
	char request_id[129];
	struct fault fault;
};

/* Its results are kept in that file of the spool; NULL: in memory only. NULL: no memory. */
struct job *job_new(uint32_t uid, enum job_format format, struct spool *spool, uint64_t file_id);
/* A job that ended before, from its file's head; `to_read`: its output is going to be read, so it is
 * verified unless it is large. -EIO: it is damaged. */
int job_revive(struct spool *spool, uint64_t file_id, bool to_read, struct job **ret);
/* A job of an earlier start that is to run, still to be queued; or NULL. */
struct job *job_again(struct spool *spool, uint64_t file_id, const struct record_run *r);
struct job *job_get(struct job *j);
void job_put(struct job *j); /* NULL is fine */

uint64_t job_id(const struct job *j);
uint32_t job_uid(const struct job *j);
enum job_format job_format(const struct job *j);
enum job_state job_state(struct job *j);
extern const char *const job_state_names[JOB_STATE_COUNT + 1]; /* NULL-ended */
const char *job_state_name(enum job_state s);
static inline bool job_state_ended(enum job_state s)
{
	return s >= JOB_DONE;
}
bool job_ended(struct job *j);
void job_look(struct job *j, struct job_view *ret);

/* The engine's: its places in a queue and among the deadlines, guarded by the engine's lock. */
struct queue_item *job_queue_item(struct job *j);
struct job *job_of_queue_item(struct queue_item *item);
struct deadline *job_deadline(struct job *j);
struct job *job_of_deadline(struct deadline *item);

/* writing -> queued. -EALREADY unless it was writing. */
int job_queue(struct job *j, const struct job_order *order);
const struct job_order *job_order(const struct job *j); /* fixed once queued */

/* queued -> running; false when it has ended meanwhile. */
bool job_start(struct job *j, uint64_t generation);
void job_set_request_id(struct job *j, const char *id);
void job_set_model(struct job *j, const char *alias, const char *sha256);
void job_set_lines(struct job *j, const struct run_lines *lines);

/* Its file in the spool, which is open already: it need not be opened until the job has ended. */
void job_use_file(struct job *j, struct spool_file *file);
/* The request's bytes, the caller's count; once. Of a batch none: it is read piece by piece. */
int job_content(struct job *j, struct blob **ret);
ssize_t job_read_request(struct job *j, uint64_t offset, char *ret, size_t size);
/* A batch that was begun before, or is begun anew, goes on behind its last whole answer: how many
 * there are. */
int job_resume(struct job *j, struct run_lines *ret);

/* The bytes of the n-th file that the request names, appended to `ret`. */
int job_read_file(struct job *j, size_t n, uint64_t most, struct buf *ret);
/* What an order would tell, where it ends without being queued. */
void job_set_refused(struct job *j, enum answer_shape shape, uint64_t request_size, uint32_t gid);

/* What a run leaves with its job while others have their turn; freed with the job. */
void job_park(struct job *j, void *run, void (*free_run)(void *run));
void *job_unpark(struct job *j); /* or NULL */

/* While it runs: more text for the stream. -EFBIG past `limit` bytes. */
int job_append(struct job *j, const char *text, size_t len, size_t limit);

struct job_outcome {
	uint64_t prompt_tokens, output_tokens;
	const char *finish_reason; /* static text */
	bool seed_known;
	uint64_t seed;
	struct buf *out; /* taken: what .out holds; NULL: the stream's text is the output */
};

/* Ends the job unless it has ended: the first one wins, true for it. What it leaves is in the spool
 * before anybody can see that it ended; a result that cannot be kept makes it FAILED. All waiters
 * are woken before it returns. No lock may be held. `outcome` with JOB_DONE, `why` with the others;
 * -EAGAIN in it becomes -EBUSY. */
bool job_end(struct job *j, enum job_state state, const struct job_outcome *outcome,
	const struct fault *why);
/* The daemon stops: who waits is told why, and the spool still has the job as queued, or as being
 * written. True when it had not ended. */
bool job_leave(struct job *j, const struct fault *why);
/* Another file is to be its own; only while it is being written. */
void job_move_file(struct job *j, uint64_t file_id);
/* Nothing more of it is stored, for its file is going to be something else. -EBUSY while something is: try
 * again, or not at all. job_go_on_storing() takes it back. */
int job_stop_storing(struct job *j);
void job_go_on_storing(struct job *j);
/* It is to be another user's; only while it is being written. */
void job_set_uid(struct job *j, uint32_t uid);
/* Its file is gone, or is going to be another run's: nothing of it is kept there from now on. Who has
 * the job open goes on reading what it left. */
void job_forget_file(struct job *j);
bool job_is_shared(struct job *j); /* more than one holder */
/* `settled` is called once by the thread that ends the job (or leaves it: not done), without any
 * lock, when it is decided how and before anybody can see it: for what must be so by then. To be set
 * before others have the job; NULL takes it back. */
void job_on_settled(struct job *j, void (*settled)(void *context, struct job *j, bool done),
	void *context);

/* Wait. False when there is nothing to wait for any more: the caller goes on by itself. */
bool job_wait(struct job *j, struct job_waiter *w);
/* True when it still waited: it is the caller's again and wake() will not be called. */
bool job_unwait(struct job *j, struct job_waiter *w);
bool job_ripe(struct job *j, enum job_result what, size_t offset);

/* Copy up to size bytes of a result. Of .out and .err only once the job has ended. Returns the
 * count, 0 at the end, the job's negative errno for .out and .stream of a job that did not end
 * well. */
ssize_t job_read(struct job *j, enum job_result what, size_t offset, char *ret, size_t size);

/* What the spool keeps of the job as it is. */
void job_record(struct job *j, struct record_run *ret);

/* The text of STEM.err. */
void job_render_error(const struct job_view *v, struct buf *out);

#endif
