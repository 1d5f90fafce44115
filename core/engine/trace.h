/* The trace: when what happened to jobs, one bounded record at a time, as Chrome's trace-event JSON
 * for Perfetto and chrome://tracing. Numbers and fixed names only: nothing that a user wrote, no name
 * of a file, no address.
 *
 * A hook is a pair: `t = trace_begin()` before what is measured and one of the functions that take
 * `t` after it. While nothing is recorded that is one relaxed load and a test of `t`, which then is 0.
 * Hooks take no lock and allocate nothing, on any thread.
 *
 *   queue             from the submit of a job to its start; of a batch up to its first
 *   transfer_in       KV reserved, buffers bound, lengths set
 *   compute           from the device's submit to Wait's return, with what the runtime moves itself
 *   checks            the output is looked through
 *   transfer_out      the buffers give the host memory back
 *   kv_update         the second inference of a step, which commits KV; it has the four above in it
 *                     (of a job that launches callables: a tensor to the device, launches, a tensor
 *                     back, as transfer_in, compute and transfer_out)
 *   delivery          the end of a job: its results stored, who waits is woken
 *   generation_open, generation_close, recovery
 *
 * An event is written at its end: one that had begun before the record did is not in it (but for
 * queue), and neither is an inference that does not come back. */
#ifndef NPUFS_CORE_ENGINE_TRACE_H
#define NPUFS_CORE_ENGINE_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/clock.h"
#include "core/base/fault.h"
#include "core/device.h"

enum trace_kind {
	TRACE_QUEUE,
	TRACE_TRANSFER_IN,
	TRACE_COMPUTE,
	TRACE_CHECKS,
	TRACE_TRANSFER_OUT,
	TRACE_KV_UPDATE,
	TRACE_DELIVERY,
	TRACE_OPEN,
	TRACE_CLOSE,
	TRACE_RECOVERY,
	TRACE_KIND_COUNT
};

enum trace_thread { TRACE_OF_REQUESTS, TRACE_OF_DEVICE, TRACE_OF_DEADLINES, TRACE_THREAD_COUNT };

/* --- control ---------------------------------------------------------------------------------- */

#define TRACE_MIN_SECONDS 1
#define TRACE_MAX_SECONDS 3600
#define TRACE_MIN_BYTES   (64ULL << 10)
#define TRACE_MAX_BYTES   (64ULL << 20)

/* Record for that long or until the JSON would be larger than `bytes`, whatever comes first. The
 * memory, less than a fifth of `bytes`, is allocated here and the last trace's freed. -EINVAL out of
 * bounds, -EBUSY while one records, -ENOMEM. `f` may be NULL. */
int trace_start(uint64_t seconds, uint64_t bytes, struct fault *f);
void trace_stop(void); /* nothing where none records */
/* Append the last trace's JSON. -EBUSY while it still records, -ENODATA without one, -ENOMEM. Of one
 * that is full, what is dropped is counted up to here. */
int trace_render(struct buf *out);
void trace_done(void); /* stop, and free the last one */

enum trace_end { TRACE_STILL_ON, TRACE_BY_TIME, TRACE_BY_SIZE, TRACE_BY_STOP };

struct trace_view {
	bool any; /* else there was none, and the rest is 0 */
	enum trace_end ended;
	uint64_t seconds, bytes; /* as they were asked for */
	int64_t left_ns;         /* until it ends by time; 0 when it has ended */
	uint64_t events, dropped;
};

void trace_look(struct trace_view *ret);

/* --- hooks ------------------------------------------------------------------------------------ */

extern _Atomic uint32_t trace_number; /* of the trace that is on; 0: none */

static inline bool trace_on(void)
{
	return atomic_load_explicit(&trace_number, memory_order_relaxed) != 0;
}

static inline int64_t trace_begin(void)
{
	return trace_on() ? clock_mono() : 0;
}

#define TRACE_NO_MODEL (-1)

void trace_put_host(int64_t begin, enum trace_kind kind, int model, enum npu_error code, int err);
void trace_put_step(int64_t begin, enum trace_kind kind, enum device_task task, uint32_t tokens,
	enum npu_error code);

/* What is no job's: a generation or a recovery. `err` tells the error where the device has none. */
static inline void trace_host(int64_t begin, enum trace_kind kind, int model, enum npu_error code,
	int err)
{
	if (begin)
		trace_put_host(begin, kind, model, code, err);
}

/* Part of an inference; for the job whose turn it is. */
static inline void trace_step(int64_t begin, enum trace_kind kind, enum device_task task,
	uint32_t tokens, enum npu_error code)
{
	if (begin)
		trace_put_step(begin, kind, task, tokens, code);
}

/* What is a job's: call these only where trace_on(). */
void trace_queue(uint64_t job, int model, int64_t waited_ns);
void trace_delivery(int64_t begin, uint64_t job, int model, uint64_t tokens,
	const struct fault *why);
/* This thread's inferences on that lane (0; of two in flight the second: 1) are for the job, until its
 * turn is over. */
void trace_turn(unsigned lane, uint64_t job, int model);

void trace_turn_over(void);
void trace_thread_is(enum trace_thread t); /* this thread, from now on */

#endif
