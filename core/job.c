/* Every end of a job goes through job_end(): under the lock it decides who was first, stores the
 * result and takes the list of waiters off; without the lock it wakes them. A waiter is therefore
 * woken once, by whoever took it off the list, or taken back by job_unwait(), never both. */
#include "core/job.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/lock.h"
#include "core/mem.h"
#include "core/metrics.h"

struct job {
	_Atomic unsigned refs;
	uint64_t id; /* fixed, like uid, gid, format */
	uint32_t uid, gid;
	enum job_format format;
	struct queue_item item; /* by the engine's lock, as is deadline */
	struct deadline deadline;

	struct lock lock;
	/* fixed once queued */
	struct job_order order;
	/* by lock */
	enum job_state state;
	uint64_t generation;
	int64_t made, queued, started, ended;
	int64_t queued_mono, started_mono, ended_mono;
	struct buf stream, out;
	struct sha256 *stream_digest; /* NULL while the stream is empty */
	bool out_is_stream;
	struct job_outcome outcome; /* .out stays NULL */
	char request_sha256[SHA256_HEX_SIZE], output_sha256[SHA256_HEX_SIZE];
	char *request_id;    /* NULL: it gave none */
	struct fault *fault; /* NULL unless it ended badly */
	size_t request_size;
	struct job_waiter *waiters;
};

static _Atomic uint64_t next_id = 1;

struct job *job_new(uint32_t uid, uint32_t gid, enum job_format format)
{
	struct job *j = calloc(1, sizeof *j);

	if (!j)
		return NULL;
	atomic_init(&j->refs, 1);
	lock_init(&j->lock, RANK_JOB, "job");
	j->id = atomic_fetch_add(&next_id, 1);
	j->uid = uid;
	j->gid = gid;
	j->format = format;
	j->order.model = -1;
	j->made = clock_wall();
	return j;
}

struct job *job_get(struct job *j)
{
	atomic_fetch_add_explicit(&j->refs, 1, memory_order_relaxed);
	return j;
}

void job_put(struct job *j)
{
	if (!j || atomic_fetch_sub_explicit(&j->refs, 1, memory_order_acq_rel) != 1)
		return;
	assert(!j->waiters && !queue_waits(&j->item) && !j->deadline.place);
	blob_put(j->order.request);
	if (j->stream_digest)
		sha256_finish(j->stream_digest, j->output_sha256);
	buf_done(&j->stream);
	buf_done(&j->out);
	free(j->request_id);
	free(j->fault);
	lock_done(&j->lock);
	free(j);
}

uint64_t job_id(const struct job *j)
{
	return j->id;
}

uint32_t job_uid(const struct job *j)
{
	return j->uid;
}

enum job_format job_format(const struct job *j)
{
	return j->format;
}

enum job_state job_state(struct job *j)
{
	enum job_state s;

	lock_take(&j->lock);
	s = j->state;
	lock_drop(&j->lock);
	return s;
}

bool job_ended(struct job *j)
{
	return job_state_ended(job_state(j));
}

const char *job_state_name(enum job_state s)
{
	static const char *const names[JOB_STATE_COUNT] = {
		[JOB_WRITING] = "writing",
		[JOB_QUEUED] = "queued",
		[JOB_RUNNING] = "running",
		[JOB_DONE] = "done",
		[JOB_FAILED] = "failed",
		[JOB_CANCELLED] = "cancelled",
		[JOB_EXPIRED] = "expired",
	};

	return names[s];
}

struct queue_item *job_queue_item(struct job *j)
{
	return &j->item;
}

struct job *job_of_queue_item(struct queue_item *item)
{
	return (struct job *)((char *)item - offsetof(struct job, item));
}

struct deadline *job_deadline(struct job *j)
{
	return &j->deadline;
}

struct job *job_of_deadline(struct deadline *item)
{
	return (struct job *)((char *)item - offsetof(struct job, deadline));
}

const struct job_order *job_order(const struct job *j)
{
	return &j->order;
}

/* --- the way of a job ------------------------------------------------------------------------- */

static void take_order(struct job *j, const struct job_order *order)
{
	j->state = JOB_QUEUED;
	j->order = *order;
	blob_get(order->request);
	j->request_size = blob_len(order->request);
	j->queued = clock_wall();
	j->queued_mono = clock_mono();
	if (order->deadline_ms)
		j->deadline.at = j->queued_mono + order->deadline_ms * NS_PER_MS;
	j->item.uid = j->uid;
	j->item.priority = order->priority;
}

int job_queue(struct job *j, const struct job_order *order)
{
	bool taken;

	lock_take(&j->lock);
	taken = j->state == JOB_WRITING;
	if (taken)
		take_order(j, order);
	lock_drop(&j->lock);
	return taken ? 0 : -EALREADY;
}

bool job_start(struct job *j, uint64_t generation, struct blob **ret_request)
{
	char digest[SHA256_HEX_SIZE];
	struct blob *request;
	bool starts;

	lock_take(&j->lock);
	request = blob_get(j->order.request); /* its end may let it go at any moment */
	lock_drop(&j->lock);
	sha256_hex(blob_bytes(request), blob_len(request), digest);
	lock_take(&j->lock);
	starts = j->state == JOB_QUEUED;
	if (starts) {
		memcpy(j->request_sha256, digest, sizeof digest);
		j->state = JOB_RUNNING;
		j->generation = generation;
		j->started = clock_wall();
		j->started_mono = clock_mono();
	}
	lock_drop(&j->lock);
	if (!starts)
		blob_put(request);
	*ret_request = starts ? request : NULL;
	return starts;
}

void job_set_request_id(struct job *j, const char *id)
{
	char *copy = id[0] ? strdup(id) : NULL; /* without memory it is not shown */

	lock_take(&j->lock);
	free(j->request_id);
	j->request_id = copy;
	lock_drop(&j->lock);
}

static bool ripe_locked(const struct job *j, enum job_result what, size_t offset)
{
	return job_state_ended(j->state) || (what == JOB_STREAM && offset < j->stream.len);
}

/* Move the waiters that need wait no longer to a list of their own. */
static struct job_waiter *take_ripe_locked(struct job *j)
{
	struct job_waiter *ripe = NULL, *next;

	for (struct job_waiter *w = j->waiters; w; w = next) {
		next = w->next;
		if (!ripe_locked(j, w->what, w->offset))
			continue;
		*w->link = w->next;
		if (w->next)
			w->next->link = w->link;
		w->link = NULL;
		w->next = ripe;
		ripe = w;
	}
	return ripe;
}

static void wake_all(struct job_waiter *ripe)
{
	struct job_waiter *next;

	lock_assert_none();
	for (; ripe; ripe = next) {
		next = ripe->next;
		ripe->wake(ripe);
	}
}

/* The digest grows with the text, so that the end of a long job is as short as any. */
static int append_locked(struct job *j, const char *text, size_t len)
{
	buf_put(&j->stream, text, len);
	if (!j->stream_digest)
		j->stream_digest = sha256_new();
	if (!j->stream_digest)
		return -ENOMEM;
	sha256_update(j->stream_digest, text, len);
	return buf_error(&j->stream);
}

int job_append(struct job *j, const char *text, size_t len, size_t limit)
{
	struct job_waiter *ripe = NULL;
	int err = 0;

	lock_take(&j->lock);
	if (j->state == JOB_RUNNING) {
		if (len > limit || j->stream.len > limit - len)
			err = -EFBIG;
		else
			err = append_locked(j, text, len);
		ripe = take_ripe_locked(j);
	}
	lock_drop(&j->lock);
	wake_all(ripe);
	return err;
}

static void store_outcome(struct job *j, const struct job_outcome *outcome)
{
	j->outcome = *outcome;
	j->outcome.out = NULL;
	j->out_is_stream = outcome->out == NULL;
	if (outcome->out) {
		j->out = *outcome->out;
		*outcome->out = (struct buf)BUF_INIT;
	}
}

static void end_locked(struct job *j, enum job_state state, const struct job_outcome *outcome,
	struct fault *why)
{
	char digest[SHA256_HEX_SIZE];

	j->state = state;
	j->ended = clock_wall();
	j->ended_mono = clock_mono();
	j->fault = why;
	if (outcome)
		store_outcome(j, outcome);
	if (j->stream_digest) {
		sha256_finish(take_ptr(j->stream_digest), digest);
		if (j->out_is_stream)
			memcpy(j->output_sha256, digest, sizeof digest);
	}
	if (state != JOB_DONE) /* half a result is no result */
		buf_done(&j->stream);
	/* An open result keeps the job; it must not keep the request, whose file may be gone. */
	blob_put(take_ptr(j->order.request));
}

/* Most jobs end well and keep none. Without memory for it a job still ends, and says so. */
static struct fault *keep_fault(const struct fault *why)
{
	struct fault *f = malloc(sizeof *f);

	if (!f)
		return NULL;
	*f = *why;
	if (f->err ==
		-EAGAIN) /* from a result that means "not yet": its reader would ask for ever */
		f->err = -EBUSY;
	return f;
}

static struct fault fault_of(const struct job *j)
{
	struct fault f = FAULT_NONE;

	if (j->fault)
		return *j->fault;
	if (job_state_ended(j->state) && j->state != JOB_DONE)
		fault_set(&f, -ENOMEM, "send it again later", "no memory for the reason");
	return f;
}

bool job_end(struct job *j, enum job_state state, const struct job_outcome *outcome,
	const struct fault *why)
{
	struct job_waiter *ripe = NULL;
	struct fault *kept = why ? keep_fault(why) : NULL;
	char digest[SHA256_HEX_SIZE] = "";
	bool first;

	assert(job_state_ended(state));
	if (outcome && outcome->out)
		sha256_hex(buf_text(outcome->out), outcome->out->len, digest);
	lock_take(&j->lock);
	first = !job_state_ended(j->state);
	if (first) {
		memcpy(j->output_sha256, digest, sizeof digest);
		end_locked(j, state, outcome, take_ptr(kept));
		ripe = take_ripe_locked(j);
	}
	lock_drop(&j->lock);
	free(kept);
	wake_all(ripe);
	return first;
}

/* --- waiting and reading ---------------------------------------------------------------------- */

bool job_wait(struct job *j, struct job_waiter *w)
{
	bool waits;

	lock_take(&j->lock);
	waits = !ripe_locked(j, w->what, w->offset);
	if (waits) {
		w->next = j->waiters;
		if (w->next)
			w->next->link = &w->next;
		w->link = &j->waiters;
		j->waiters = w;
	}
	lock_drop(&j->lock);
	return waits;
}

bool job_unwait(struct job *j, struct job_waiter *w)
{
	bool waited;

	lock_take(&j->lock);
	waited = w->link != NULL;
	if (waited) {
		*w->link = w->next;
		if (w->next)
			w->next->link = w->link;
		w->link = NULL;
	}
	lock_drop(&j->lock);
	return waited;
}

bool job_ripe(struct job *j, enum job_result what, size_t offset)
{
	bool ripe;

	lock_take(&j->lock);
	ripe = ripe_locked(j, what, offset);
	lock_drop(&j->lock);
	return ripe;
}

static size_t copy_part(const struct buf *from, size_t offset, char *ret, size_t size)
{
	size_t n = offset < from->len ? from->len - offset : 0;

	if (n > size)
		n = size;
	if (n)
		memcpy(ret, from->data + offset, n);
	return n;
}

static ssize_t read_error(struct job *j, size_t offset, char *ret, size_t size)
{
	AUTO_BUF struct buf text = BUF_INIT;
	struct job_view v;

	job_look(j, &v);
	job_render_error(&v, &text);
	return buf_error(&text) ? -ENOMEM : (ssize_t)copy_part(&text, offset, ret, size);
}

ssize_t job_read(struct job *j, enum job_result what, size_t offset, char *ret, size_t size)
{
	ssize_t n;

	if (what == JOB_ERR)
		return read_error(j, offset, ret, size);
	lock_take(&j->lock);
	if (job_state_ended(j->state) && j->state != JOB_DONE)
		n = fault_of(j).err;
	else if (what == JOB_STREAM || j->out_is_stream)
		n = (ssize_t)copy_part(&j->stream, offset, ret, size);
	else
		n = (ssize_t)copy_part(&j->out, offset, ret, size);
	lock_drop(&j->lock);
	return n;
}

static void look_locked(const struct job *j, struct job_view *v)
{
	int64_t now = clock_mono();
	int64_t queue_end = j->started_mono ? j->started_mono : j->ended_mono ? j->ended_mono : now;
	int64_t run_end = j->ended_mono ? j->ended_mono : now;

	v->state = j->state;
	v->generation = j->generation;
	v->made = j->made;
	v->queued = j->queued;
	v->started = j->started;
	v->ended = j->ended;
	v->queue_ns = j->queued ? queue_end - j->queued_mono : 0;
	v->run_ns = j->started ? run_end - j->started_mono : 0;
	v->prompt_tokens = j->outcome.prompt_tokens;
	v->output_tokens = j->outcome.output_tokens;
	v->finish_reason = j->outcome.finish_reason ? j->outcome.finish_reason : "";
	v->seed_known = j->outcome.seed_known;
	v->seed = j->outcome.seed;
	v->stream_size = j->stream.len;
	v->out_size = j->out_is_stream ? j->stream.len : j->out.len;
	v->model = j->order.model;
	v->stream = j->order.stream;
	v->request_size = j->request_size;
	memcpy(v->request_sha256, j->request_sha256, sizeof v->request_sha256);
	memcpy(v->output_sha256, j->output_sha256, sizeof v->output_sha256);
	if (j->request_id)
		strncpy(v->request_id, j->request_id, sizeof v->request_id - 1);
	v->fault = fault_of(j);
}

void job_look(struct job *j, struct job_view *ret)
{
	*ret = (struct job_view){ .id = j->id, .uid = j->uid, .format = j->format };
	lock_take(&j->lock);
	look_locked(j, ret);
	lock_drop(&j->lock);
}

void job_render_error(const struct job_view *v, struct buf *out)
{
	const struct fault *f = &v->fault;

	if (v->state == JOB_DONE || !job_state_ended(v->state))
		return;
	buf_printf(out, "error: %d %s\n", -f->err, fault_errno_name(f->err));
	if (f->field[0])
		buf_printf(out, "field: %s\n", f->field);
	if (f->offset >= 0)
		buf_printf(out, "offset: %ld\n", f->offset);
	buf_printf(out, "reason: %s\n", f->reason);
	if (f->action[0])
		buf_printf(out, "action: %s\n", f->action);
}
