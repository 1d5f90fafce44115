/* What the job's files share; nobody else includes it.
 *   job.c        states, ends, waiting, reading
 *   job_read.c   what it shows
 *   job_store.c  its file in the spool
 *
 * An end has three parts: under the lock it is decided who ends the job (`ending`), without it what
 * is left is stored, under it again the end is made visible and the waiters are taken off. */
#ifndef NPUFS_CORE_JOB_JOB_IMPL_H
#define NPUFS_CORE_JOB_JOB_IMPL_H

#include <stdatomic.h>

#include "core/base/clock.h"
#include "core/base/lock.h"
#include "core/job/job.h"
#include "core/spool/spool.h"

/* An output up to here stays in memory, too, while anybody has the job; a larger one is read from
 * the spool, and when it is revived not verified but by its size. */
#define JOB_OUT_IN_MEMORY (64 << 10)
#define JOB_OUT_VERIFIED  (1 << 20)

struct job {
	_Atomic unsigned refs;
	uint64_t id; /* fixed, like format, spool and, once queued, uid and file_id */
	uint32_t uid;
	enum job_format format;
	struct spool *spool; /* NULL: kept in memory only */
	uint64_t file_id;
	struct queue_item item; /* by the engine's lock, as is deadline */
	struct deadline deadline;

	struct lock lock;
	/* fixed once queued */
	struct job_order order;
	void (*settled)(void *context, struct job *j, bool done);
	void *settled_context;
	/* by lock */
	enum job_state state;
	bool ending;      /* somebody ends it: nobody else does, and nothing is appended */
	bool stored;      /* the spool has what it left */
	bool gone;        /* its file was removed */
	bool shut;        /* nothing more is stored in it */
	unsigned storing; /* threads that store something in it just now */
	char model_alias[MODEL_ALIAS_SIZE], model_sha256[SHA256_HEX_SIZE];
	struct run_lines lines;
	uint64_t generation;
	int64_t made, queued, started, ended;
	int64_t queued_mono, started_mono, ended_mono;
	struct buf stream, out; /* until they are only in the spool */
	uint64_t stream_size, out_size;
	struct sha256 *stream_digest; /* NULL while the stream is empty */
	bool out_is_stream;
	struct job_outcome outcome; /* .out stays NULL */
	char request_sha256[SHA256_HEX_SIZE], output_sha256[SHA256_HEX_SIZE];
	char *request_id;    /* NULL: it gave none */
	struct fault *fault; /* NULL unless it ended badly */
	uint64_t request_size;
	struct job_waiter *waiters;
	struct spool_file *file; /* kept open; NULL: it is opened when it is needed */
	/* the engine thread's */
	struct sha256 *request_digest;
	uint64_t request_seen;
	void *parked;
	void (*free_parked)(void *run);
};

/* How a job ends, before it is visible. */
struct job_ending {
	enum job_state state;
	int64_t ended, ended_mono;
	const struct job_outcome *outcome; /* NULL unless done */
	struct fault *fault;               /* owned */
	char output_sha256[SHA256_HEX_SIZE];
};

/* Keep what it leaves; 0 also where nothing is kept. */
int job_store_end(struct job *j, const struct job_ending *end);
/* To the file of a batch, behind `size` bytes of answers. */
int job_store_append(struct job *j, uint64_t size, const char *text, size_t len);
/* Bytes of a result that is only in the spool. */
ssize_t job_store_read(struct job *j, uint64_t at, char *ret, size_t size);
#endif
