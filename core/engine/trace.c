/* Three states, told by trace_number, what was taken of the record, and the clock:
 *
 *   off    trace_number is 0: hooks do nothing, and the record is whole
 *   on     events are written
 *   full   all places are taken: hooks only count what is dropped; for everybody else it has ended
 *
 * A hook announces itself in `writers`, looks whether it is on, and takes a place of its own by one
 * addition. Who wants the record (to render, free or replace it) switches off and then waits until no
 * writer is left. Both sides write before they read, in one order for all threads: so either the
 * writer sees that it is off, or the other sees the writer. A hook never waits; it is waited for, and
 * for no longer than it takes to write one event.
 *
 * Time is over when a hook or anybody who asks sees the clock past it; there is no thread for it.
 *
 * Chrome's complete events of one line must nest, or viewers draw them wrong. Those of one thread do,
 * but two inferences in flight overlap, and so do waiting jobs: each engine has a line of its own, and
 * so has each job in the queue. */
#include "core/engine/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/lock.h"
#include "core/base/mem.h"
#include "core/version.h"

#define HOST        (DEVICE_AUTO - 1) /* no engine */
#define EVENT_TEXT  288               /* bytes of one event's JSON, at most */
#define OTHER_TEXT  4096              /* of all else in the document, at most */
#define MAX_THREADS 16                /* that are named in it */

struct event {
	int64_t begin, duration; /* monotonic ns */
	uint64_t job;            /* 0: none */
	uint32_t tokens, tid;
	int16_t model;
	int16_t err; /* errno; told where the device has no code */
	uint8_t kind, thread, code;
	int8_t engine;
};
_Static_assert(sizeof(struct event) * 5 < EVENT_TEXT, "as trace_start() promises");

_Atomic uint32_t trace_number;
static _Atomic uint32_t writers;
static _Atomic uint64_t taken; /* more than there is room for: the rest was dropped */

/* Held, before `lock`, by who renders the record, which takes time, and by who replaces it. */
static struct lock turn = LOCK_INIT(RANK_TRACE_RECORD, "trace's record");
static struct lock lock = LOCK_INIT(RANK_TRACE, "trace");
/* Written by lock while it is off and no writer is left; writers read the first three. */
static struct {
	struct event *events; /* NULL: there was none */
	uint64_t room;
	int64_t until;
	int64_t begin, begin_wall;
	uint64_t seconds, bytes;
	uint32_t number;
	bool stopped;
} record;

/* Whose turn it is; of an older trace: nobody's. */
static _Thread_local struct {
	uint32_t trace;
	uint64_t job;
	int model;
} turns[DEVICE_ENGINES];
static _Thread_local uint32_t own_tid;
static _Thread_local enum trace_thread own_role;

/* --- recording -------------------------------------------------------------------------------- */

static void write_event(const struct event *e)
{
	uint64_t i;

	if (e->begin >= record.until) {
		atomic_store(&trace_number, 0);
		return;
	}
	i = atomic_fetch_add_explicit(&taken, 1, memory_order_relaxed);
	if (i < record.room)
		record.events[i] = *e;
}

static void put(struct event *e)
{
	if (!own_tid)
		own_tid = (uint32_t)gettid();
	e->tid = own_tid;
	e->thread = (uint8_t)own_role;
	if (!e->duration)
		e->duration = clock_mono() - e->begin;
	atomic_fetch_add(&writers, 1);
	if (atomic_load(&trace_number))
		write_event(e);
	atomic_fetch_sub(&writers, 1);
}

static uint8_t known_code(enum npu_error code)
{
	return (uint8_t)((unsigned)code < NPU_ERROR_COUNT ? code : NPU_UNKNOWN);
}

void trace_put_host(int64_t begin, enum trace_kind kind, int model, enum npu_error code, int err)
{
	put(&(struct event){ .begin = begin,
		.kind = kind,
		.model = (int16_t)model,
		.code = known_code(code),
		.err = (int16_t)err,
		.engine = HOST });
}

void trace_put_step(int64_t begin, enum trace_kind kind, enum device_task task, uint32_t tokens,
	enum npu_error code)
{
	unsigned lane = task == DEVICE_PONG;
	bool known = turns[lane].trace == atomic_load_explicit(&trace_number, memory_order_relaxed);

	put(&(struct event){ .begin = begin,
		.kind = kind,
		.job = known ? turns[lane].job : 0,
		.model = (int16_t)(known ? turns[lane].model : TRACE_NO_MODEL),
		.tokens = tokens,
		.code = known_code(code),
		.engine = (int8_t)task });
}

void trace_queue(uint64_t job, int model, int64_t waited_ns)
{
	put(&(struct event){ .begin = clock_mono() - waited_ns,
		.duration = waited_ns,
		.kind = TRACE_QUEUE,
		.job = job,
		.model = (int16_t)model,
		.engine = HOST });
}

void trace_delivery(int64_t begin, uint64_t job, int model, uint64_t tokens,
	const struct fault *why)
{
	put(&(struct event){ .begin = begin,
		.kind = TRACE_DELIVERY,
		.job = job,
		.model = (int16_t)model,
		.tokens = (uint32_t)tokens,
		.code = known_code(why->device),
		.err = (int16_t)why->err,
		.engine = HOST });
}

void trace_turn(unsigned lane, uint64_t job, int model)
{
	turns[lane].trace = atomic_load_explicit(&trace_number, memory_order_relaxed);
	turns[lane].job = job;
	turns[lane].model = model;
}

void trace_turn_over(void)
{
	for (unsigned i = 0; i < DEVICE_ENGINES; i++)
		turns[i].trace = 0;
}

void trace_thread_is(enum trace_thread t)
{
	own_role = t;
}

/* --- control ---------------------------------------------------------------------------------- */

static uint64_t taken_now(void)
{
	return atomic_load_explicit(&taken, memory_order_relaxed);
}

static enum trace_end ended_locked(void)
{
	lock_assert_held(&lock);
	if (taken_now() >= record.room)
		return TRACE_BY_SIZE;
	if (record.stopped)
		return TRACE_BY_STOP;
	return clock_mono() >= record.until ? TRACE_BY_TIME : TRACE_STILL_ON;
}

static bool records_locked(void)
{
	return record.events && ended_locked() == TRACE_STILL_ON;
}

static uint64_t kept_locked(void)
{
	uint64_t n = taken_now();

	return n < record.room ? n : record.room;
}

/* From here on nobody else touches the record. */
static void switch_off_locked(void)
{
	lock_assert_held(&lock);
	atomic_store(&trace_number, 0);
	while (atomic_load(&writers))
		sched_yield();
}

/* What it was not filled with. */
static void shrink_locked(void)
{
	uint64_t n = kept_locked();
	struct event *less = realloc(record.events, (n ? n : 1) * sizeof *less);

	if (less)
		record.events = less;
}

static int check_bounds(uint64_t seconds, uint64_t bytes, struct fault *f)
{
	if (seconds < TRACE_MIN_SECONDS || seconds > TRACE_MAX_SECONDS)
		return fault_set(f, -EINVAL, "give a time in these bounds",
			"a trace takes %d to %d seconds", TRACE_MIN_SECONDS, TRACE_MAX_SECONDS);
	if (bytes < TRACE_MIN_BYTES || bytes > TRACE_MAX_BYTES)
		return fault_set(f, -EINVAL, "give a size in these bounds",
			"a trace takes %llu to %llu bytes", TRACE_MIN_BYTES, TRACE_MAX_BYTES);
	return 0;
}

/* Its pages are touched here, so that no hook has to wait for one. */
static int renew_locked(uint64_t seconds, uint64_t bytes, struct fault *f)
{
	uint64_t room = (bytes - OTHER_TEXT) / EVENT_TEXT;
	struct event *events = malloc(room * sizeof *events);

	if (!events)
		return fault_set(f, -ENOMEM, "ask for a smaller one", "no memory for the trace");
	memset(events, 0xff, room * sizeof *events);
	switch_off_locked();
	free(record.events);
	record.events = events;
	record.room = room;
	record.seconds = seconds;
	record.bytes = bytes;
	record.stopped = false;
	record.begin = clock_mono();
	record.begin_wall = clock_wall();
	record.until = record.begin + (int64_t)seconds * NS_PER_SEC;
	atomic_store_explicit(&taken, 0, memory_order_relaxed);
	record.number = record.number + 1 ? record.number + 1 : 1;
	atomic_store(&trace_number, record.number);
	return 0;
}

int trace_start(uint64_t seconds, uint64_t bytes, struct fault *f)
{
	int err = check_bounds(seconds, bytes, f);

	if (err)
		return err;
	lock_take(&turn);
	lock_take(&lock);
	if (records_locked())
		err = fault_set(f, -EBUSY, "stop it first, or wait", "a trace is being recorded");
	else
		err = renew_locked(seconds, bytes, f);
	lock_drop(&lock);
	lock_drop(&turn);
	return err;
}

void trace_stop(void)
{
	lock_take(&lock);
	if (records_locked()) {
		switch_off_locked();
		record.stopped = true;
		shrink_locked();
	}
	lock_drop(&lock);
}

void trace_done(void)
{
	lock_take(&turn);
	lock_take(&lock);
	switch_off_locked();
	free(record.events);
	record.events = NULL;
	lock_drop(&lock);
	lock_drop(&turn);
}

void trace_look(struct trace_view *ret)
{
	memset(ret, 0, sizeof *ret);
	lock_take(&lock);
	ret->any = record.events != NULL;
	if (ret->any) {
		ret->ended = ended_locked();
		ret->seconds = record.seconds;
		ret->bytes = record.bytes;
		ret->left_ns = ret->ended ? 0 : record.until - clock_mono();
		ret->events = kept_locked();
		ret->dropped = taken_now() - ret->events;
	}
	lock_drop(&lock);
}

/* --- rendering -------------------------------------------------------------------------------- */

/* Of a record that is off. */
struct summary {
	uint64_t kept, dropped;
	enum trace_end ended;
};

enum process { IN_DAEMON = 1, ON_DEVICE, IN_QUEUE };

static const char *const process_names
	[] = { [IN_DAEMON] = "npufs", [ON_DEVICE] = "device", [IN_QUEUE] = "queue, a line a job" };

static const char *const thread_names[TRACE_THREAD_COUNT] = { "requests", "device's thread",
	"deadlines" };

static const char *const engine_names[] = { "none", "auto", "ping", "pong" };

static const char *const end_names[] = { "", "time", "size", "stop" };

static const struct {
	const char *name;
	enum process process;
} kinds[TRACE_KIND_COUNT] = {
	[TRACE_QUEUE] = { "queue", IN_QUEUE },
	[TRACE_TRANSFER_IN] = { "transfer_in", ON_DEVICE },
	[TRACE_COMPUTE] = { "compute", ON_DEVICE },
	[TRACE_CHECKS] = { "checks", ON_DEVICE },
	[TRACE_TRANSFER_OUT] = { "transfer_out", ON_DEVICE },
	[TRACE_KV_UPDATE] = { "kv_update", ON_DEVICE },
	[TRACE_DELIVERY] = { "delivery", IN_DAEMON },
	[TRACE_OPEN] = { "generation_open", IN_DAEMON },
	[TRACE_CLOSE] = { "generation_close", IN_DAEMON },
	[TRACE_RECOVERY] = { "recovery", IN_DAEMON },
};

/* By begin; of two that begin together the longer one first, for it has the other in it. */
static int by_begin(const void *left, const void *right)
{
	const struct event *a = left, *b = right;

	if (a->begin != b->begin)
		return a->begin < b->begin ? -1 : 1;
	return a->duration == b->duration ? 0 : a->duration > b->duration ? -1 : 1;
}

static void put_name(struct buf *out, const char *of, int pid, uint32_t tid, const char *name)
{
	buf_printf(out,
		"{\"name\":\"%s\",\"ph\":\"M\",\"ts\":0,\"pid\":%d,\"tid\":%" PRIu32
		",\"args\":{\"name\":\"%s\"}},\n",
		of, pid, tid, name);
}

static bool seen(const uint32_t *tids, size_t n, uint32_t tid)
{
	for (size_t i = 0; i < n; i++)
		if (tids[i] == tid)
			return true;
	return false;
}

static void put_threads(uint64_t kept, struct buf *out)
{
	uint32_t tids[MAX_THREADS];
	size_t n = 0;

	for (uint64_t i = 0; i < kept && n < MAX_THREADS; i++) {
		const struct event *e = &record.events[i];

		if (kinds[e->kind].process != IN_DAEMON || seen(tids, n, e->tid))
			continue;
		tids[n++] = e->tid;
		put_name(out, "thread_name", IN_DAEMON, e->tid, thread_names[e->thread]);
	}
}

static void put_names(uint64_t kept, struct buf *out)
{
	for (int p = IN_DAEMON; p <= IN_QUEUE; p++)
		put_name(out, "process_name", p, 0, process_names[p]);
	for (int engine = DEVICE_AUTO; engine <= DEVICE_PONG; engine++)
		put_name(out, "thread_name", ON_DEVICE, (uint32_t)(engine - HOST),
			engine_names[engine - HOST]);
	put_threads(kept, out);
}

static uint64_t line_of(const struct event *e)
{
	switch (kinds[e->kind].process) {
	case ON_DEVICE:
		return (uint64_t)(e->engine - HOST);
	case IN_QUEUE:
		return e->job;
	default:
		return e->tid;
	}
}

static const char *error_name(const struct event *e)
{
	if (e->code)
		return npu_error_row(e->code)->name;
	return e->err ? fault_errno_name(e->err) : "none";
}

/* Microseconds, as the format has it, exact to the nanosecond. */
static void put_us(struct buf *out, const char *key, int64_t ns)
{
	buf_printf(out, "\"%s\":%" PRId64 ".%03d,", key, ns / 1000, (int)(ns % 1000));
}

static void put_event(struct buf *out, const struct event *e)
{
	buf_printf(out, "{\"name\":\"%s\",\"cat\":\"npufs\",\"ph\":\"X\",", kinds[e->kind].name);
	put_us(out, "ts", e->begin);
	put_us(out, "dur", e->duration);
	buf_printf(out,
		"\"pid\":%d,\"tid\":%" PRIu64 ",\"args\":{\"job\":%" PRIu64
		",\"model\":%d,\"tokens\":%" PRIu32 ",\"engine\":\"%s\",\"thread\":%" PRIu32
		",\"error\":\"%s\"}},\n",
		(int)kinds[e->kind].process, line_of(e), e->job, e->model, e->tokens,
		engine_names[e->engine - HOST], e->tid, error_name(e));
}

static void put_metadata(const struct summary *s, struct buf *out)
{
	char began[CLOCK_TEXT_SIZE];

	buf_puts(out, "\"displayTimeUnit\":\"ns\",\n\"metadata\":{");
	put_us(out, "began", record.begin);
	buf_printf(out,
		"\"began_wall\":\"%s\",\"clock\":\"CLOCK_MONOTONIC\",\"npufs\":\"%s\","
		"\"seconds\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"ended_by\":\"%s\","
		"\"events\":%" PRIu64 ",\"dropped\":%" PRIu64 "}}\n",
		clock_text(record.begin_wall, began), NPUFS_VERSION, record.seconds, record.bytes,
		end_names[s->ended], s->kept, s->dropped);
}

/* A list of JSON has no comma behind its last entry. */
static void drop_comma(struct buf *out)
{
	if (buf_error(out) == 0)
		out->len -= strlen(",\n");
}

static void render(const struct summary *s, struct buf *out)
{
	qsort(record.events, s->kept, sizeof *record.events, by_begin);
	buf_puts(out, "{\"traceEvents\":[\n");
	put_names(s->kept, out);
	for (uint64_t i = 0; i < s->kept; i++)
		put_event(out, &record.events[i]);
	drop_comma(out);
	buf_puts(out, "\n],\n");
	put_metadata(s, out);
}

/* From here on the record is as it is until another takes its place. */
static int finish(struct summary *ret)
{
	int err = 0;

	lock_take(&lock);
	if (!record.events)
		err = -ENODATA;
	else if (records_locked())
		err = -EBUSY;
	if (!err) {
		switch_off_locked();
		shrink_locked();
		ret->kept = kept_locked();
		ret->dropped = taken_now() - ret->kept;
		ret->ended = ended_locked();
	}
	lock_drop(&lock);
	return err;
}

int trace_render(struct buf *out)
{
	struct summary s;
	int err;

	lock_take(&turn);
	err = finish(&s);
	if (!err)
		render(&s, out);
	lock_drop(&turn);
	return err ? err : buf_error(out);
}
