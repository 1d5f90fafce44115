/* Every end of a job goes through publish(): one thread ends it, stores what it leaves, and takes the
 * list of waiters off under the lock; without the lock it wakes them. A waiter is therefore woken
 * once, by whoever took it off the list, or taken back by job_unwait(), never both. */
#include "core/job/job.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/mem.h"
#include "core/control/jobaudit.h"
#include "core/engine/metrics.h"
#include "core/job/job_impl.h"

/* Of jobs without a spool, which keeps the numbers of the others. */
static _Atomic uint64_t next_id = 1;

struct job *job_new(uint32_t uid, enum job_format format, struct spool *spool, uint64_t file_id)
{
	struct job *j = calloc(1, sizeof *j);

	if (!j)
		return NULL;
	atomic_init(&j->refs, 1);
	lock_init(&j->lock, RANK_JOB, "job");
	j->id = spool ? spool_next_job(spool) : atomic_fetch_add(&next_id, 1);
	j->spool = spool;
	j->file_id = file_id;
	j->uid = uid;
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
	if (j->parked)
		j->free_parked(j->parked);
	blob_put(j->order.request);
	blob_put(j->order.files);
	spool_file_put(j->file);
	sha256_finish(j->request_digest, j->request_sha256);
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

const char *const job_state_names[JOB_STATE_COUNT + 1] = {
	[JOB_WRITING] = "writing",
	[JOB_QUEUED] = "queued",
	[JOB_RUNNING] = "running",
	[JOB_DONE] = "done",
	[JOB_FAILED] = "failed",
	[JOB_CANCELLED] = "cancelled",
	[JOB_EXPIRED] = "expired",
};

const char *job_state_name(enum job_state s)
{
	return job_state_names[s];
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
	blob_get(order->files);
	j->request_size = order->request ? blob_len(order->request) : order->request_size;
	j->queued = order->queued ? order->queued : clock_wall();
	j->queued_mono = clock_mono() - (clock_wall() - j->queued);
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

bool job_start(struct job *j, uint64_t generation)
{
	bool starts;

	lock_take(&j->lock);
	starts = j->state == JOB_QUEUED && !j->ending;
	if (starts) {
		j->state = JOB_RUNNING;
		j->generation = generation;
		j->started = clock_wall();
		j->started_mono = clock_mono();
	}
	lock_drop(&j->lock);
	return starts;
}

void job_set_model(struct job *j, const char *alias, const char *sha256)
{
	lock_take(&j->lock);
	strncpy(j->model_alias, alias, sizeof j->model_alias - 1);
	strncpy(j->model_sha256, sha256, sizeof j->model_sha256 - 1);
	lock_drop(&j->lock);
}

void job_set_refused(struct job *j, enum answer_shape shape, uint64_t request_size, uint32_t gid)
{
	lock_take(&j->lock);
	j->order.gid = gid;
	j->order.shape = shape;
	j->request_size = request_size;
	lock_drop(&j->lock);
}

void job_set_lines(struct job *j, const struct run_lines *lines)
{
	lock_take(&j->lock);
	j->lines = *lines;
	lock_drop(&j->lock);
}

void job_park(struct job *j, void *run, void (*free_run)(void *run))
{
	j->parked = run;
	j->free_parked = free_run;
}

void *job_unpark(struct job *j)
{
	return take_ptr(j->parked);
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
	return job_state_ended(j->state) || (what == JOB_STREAM && offset < j->stream_size);
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
	if (j->format != JOB_FORMAT_BATCH)
		buf_put(&j->stream, text, len);
	if (!j->stream_digest)
		j->stream_digest = sha256_new();
	if (!j->stream_digest)
		return -ENOMEM;
	sha256_update(j->stream_digest, text, len);
	j->stream_size += len;
	return buf_error(&j->stream);
}

/* Only the engine's thread appends; another may end the job meanwhile. */
static bool may_append(struct job *j, uint64_t *ret_size)
{
	bool runs;

	lock_take(&j->lock);
	runs = j->state == JOB_RUNNING && !j->ending;
	*ret_size = j->stream_size;
	lock_drop(&j->lock);
	return runs;
}

int job_append(struct job *j, const char *text, size_t len, size_t limit)
{
	struct job_waiter *ripe = NULL;
	uint64_t size;
	int err = 0;

	if (!may_append(j, &size))
		return 0;
	if (size > limit || len > limit - size)
		return -EFBIG;
	if (j->format == JOB_FORMAT_BATCH)
		err = job_store_append(j, size, text, len);
	if (err)
		return err;
	lock_take(&j->lock);
	if (j->state == JOB_RUNNING && !j->ending) {
		err = append_locked(j, text, len);
		ripe = take_ripe_locked(j);
	}
	lock_drop(&j->lock);
	wake_all(ripe);
	return err;
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

static bool claim(struct job *j)
{
	bool first;

	lock_take(&j->lock);
	first = !job_state_ended(j->state) && !j->ending;
	j->ending |= first;
	lock_drop(&j->lock);
	return first;
}

/* The end becomes visible. What is large and stored is no longer needed in memory, and an open
 * result keeps the job: it must not keep the request, whose file may be gone. */
static void publish_locked(struct job *j, struct job_ending *end, bool stored)
{
	const struct job_outcome *o = end->outcome;

	j->state = end->state;
	j->ended = end->ended;
	j->ended_mono = end->ended_mono;
	j->fault = take_ptr(end->fault);
	j->stored = stored;
	memcpy(j->output_sha256, end->output_sha256, sizeof j->output_sha256);
	if (o) {
		j->outcome = *o;
		j->outcome.out = NULL;
		j->out_is_stream = o->out == NULL;
		j->out_size = o->out ? o->out->len : j->stream_size;
	}
	if (o && o->out && !(stored && o->out->len > JOB_OUT_IN_MEMORY)) {
		j->out = *o->out;
		*o->out = (struct buf)BUF_INIT;
	}
	if (end->state != JOB_DONE) /* half a result is no result */
		j->stream_size = 0;
	if (end->state != JOB_DONE || (stored && j->stream.len > JOB_OUT_IN_MEMORY))
		buf_done(&j->stream);
	blob_put(take_ptr(j->order.request));
}

/* The file stays open only for a result that is read from it. */
static struct spool_file *done_with_file_locked(struct job *j)
{
	bool needed = j->state == JOB_DONE && j->stored && j->out_size > JOB_OUT_IN_MEMORY;

	return needed ? NULL : take_ptr(j->file);
}

static void publish(struct job *j, struct job_ending *end, bool stored)
{
	struct job_waiter *ripe;
	struct spool_file *file;

	lock_take(&j->lock);
	publish_locked(j, end, stored);
	file = done_with_file_locked(j);
	ripe = take_ripe_locked(j);
	lock_drop(&j->lock);
	wake_all(ripe);
	spool_file_put(file);
}

/* Only the thread that ends the job has the digest now. */
static void finish_digest(struct job *j, struct job_ending *end)
{
	const struct job_outcome *o = end->outcome;
	char of_stream[SHA256_HEX_SIZE] = "";

	if (j->stream_digest)
		sha256_finish(take_ptr(j->stream_digest), of_stream);
	if (o && o->out)
		sha256_hex(buf_text(o->out), o->out->len, end->output_sha256);
	else if (o)
		memcpy(end->output_sha256, of_stream, sizeof of_stream);
}

/* The result could not be kept: it ends so, at least here. */
static void fail_ending(struct job_ending *end, int err)
{
	struct fault f = FAULT_NONE;

	fault_set(&f, err, "make room in the store, then write the request again",
		"the result could not be kept: %s", strerror(-err));
	free(end->fault);
	end->fault = keep_fault(&f);
	end->state = JOB_FAILED;
	end->outcome = NULL;
	end->output_sha256[0] = '\0';
}

static bool begin_end(struct job *j, const struct fault *why, struct job_ending *end)
{
	if (!claim(j))
		return false;
	end->ended = clock_wall();
	end->ended_mono = clock_mono();
	end->fault = why ? keep_fault(why) : NULL;
	finish_digest(j, end);
	return true;
}

void job_on_settled(struct job *j, void (*settled)(void *context, struct job *j, bool done),
	void *context)
{
	j->settled = settled;
	j->settled_context = context;
}

static void settle(struct job *j, bool done)
{
	lock_assert_none();
	if (j->settled)
		j->settled(j->settled_context, j, done);
}

static const char *error_name(const struct fault *f)
{
	if (!f || !f->err)
		return "";
	return f->device != NPU_SUCCESS ? npu_error_row(f->device)->name : fault_errno_name(f->err);
}

static void audit_record_locked(const struct job *j, struct audit_job *ret)
{
	*ret = (struct audit_job){ .ended = j->ended,
		.job = j->id,
		.uid = j->uid,
		.gid = j->order.gid,
		.prompt_tokens = j->outcome.prompt_tokens,
		.output_tokens = j->outcome.output_tokens,
		.verdict = job_state_name(j->state),
		.error = error_name(j->fault) };
	memcpy(ret->request, j->request_sha256, sizeof ret->request);
	memcpy(ret->model, j->model_sha256, sizeof ret->model);
	memcpy(ret->output, j->output_sha256, sizeof ret->output);
}

/* A file that is removed before it was handed over, an empty one perhaps, was no job yet. */
static void audit_end(struct job *j)
{
	struct audit_job record;
	bool was_job;

	lock_take(&j->lock);
	was_job = j->queued || j->state != JOB_CANCELLED;
	audit_record_locked(j, &record);
	lock_drop(&j->lock);
	if (was_job)
		jobaudit_ended(&record);
}

/* Every end comes here. */
bool job_end(struct job *j, enum job_state state, const struct job_outcome *outcome,
	const struct fault *why)
{
	struct job_ending end = { .state = state, .outcome = outcome };
	int err;

	assert(job_state_ended(state));
	lock_assert_none();
	if (!begin_end(j, why, &end))
		return false;
	err = job_store_end(j, &end);
	if (err && state == JOB_DONE) {
		fail_ending(&end, err);
		job_store_end(j, &end); /* a head may still fit */
	}
	settle(j, end.state == JOB_DONE);
	publish(j, &end, !err);
	audit_end(j);
	return true;
}

bool job_leave(struct job *j, const struct fault *why)
{
	struct job_ending end = { .state = JOB_FAILED };

	if (!begin_end(j, why, &end))
		return false;
	settle(j, false);
	publish(j, &end, false);
	return true;
}

void job_move_file(struct job *j, uint64_t file_id)
{
	assert(job_state(j) == JOB_WRITING);
	j->file_id = file_id;
}

void job_set_uid(struct job *j, uint32_t uid)
{
	assert(job_state(j) == JOB_WRITING);
	j->uid = uid;
}

bool job_is_shared(struct job *j)
{
	return atomic_load(&j->refs) > 1;
}

/* --- waiting ---------------------------------------------------------------------------------- */

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
