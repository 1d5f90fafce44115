/* The jobs on the device. Each takes one step in turn. A job that ended otherwise meanwhile
 * (cancelled, past its deadline) leaves at its next turn, and what it holds on the device is given
 * back then. */
#include "core/engine/engine_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/engine/metrics.h"
#include "core/job/verdict.h"

/* A sequence is free, or a session's KV would give way. */
static bool device_has_room(struct engine *e)
{
	return e->model.manifest->kind != MANIFEST_LLM || device_kv_can_allocate(e->device) ||
		sessions_can_evict(e->sessions, e->generation);
}

bool engine_has_room(struct engine *e)
{
	return e->generation && e->n_active < e->room && device_has_room(e);
}

static void let_go_locked(struct engine *e, const struct job *j)
{
	size_t i = 0;

	lock_assert_held(&e->lock);
	while (e->held[i] != j)
		i++;
	e->held[i] = e->held[--e->running];
	if (e->draining && !e->running && !e->queued)
		lock_cond_signal(&e->idle);
}

static void let_go(struct engine *e, const struct job *j)
{
	lock_take(&e->lock);
	let_go_locked(e, j);
	lock_drop(&e->lock);
}

/* --- leaving and failing ---------------------------------------------------------------------- */

static void drop_active(struct engine *e, size_t i)
{
	for (size_t k = i + 1; k < e->n_active; k++)
		e->active[k - 1] = e->active[k];
	e->n_active--;
}

static void leave(struct engine *e, size_t i)
{
	struct active a = e->active[i];
	enum npu_error code = a.run->ops->free(a.run);

	if (code) {
		metrics_device_error(code);
		health_note_error(e->health, code);
	}
	drop_active(e, i);
	let_go(e, a.job);
}

/* A batch has its answers so far: it queues again and goes on behind them. */
static bool queue_again(struct engine *e, struct job *j)
{
	bool queued;

	if (job_format(j) != JOB_FORMAT_BATCH)
		return false;
	lock_take(&e->lock);
	queued = queue_push(&e->queues[job_order(j)->model], job_queue_item(j)) == 0;
	e->queued += queued;
	lock_drop(&e->lock);
	return queued;
}

void engine_fail_active(struct engine *e, const struct fault *why)
{
	while (e->n_active) {
		struct job *j = e->active[0].job;

		leave(e, 0);
		if (!queue_again(e, j))
			engine_end(e, j, JOB_FAILED, NULL, why);
	}
}

void engine_leave_active(struct engine *e, const struct fault *why)
{
	while (e->n_active) {
		struct job *j = e->active[0].job;

		leave(e, 0);
		engine_leave(e, j, why);
	}
}

static bool is_launch(const struct engine *e, const struct job *j)
{
	return job_order(j)->model == engine_launches(e);
}

/* The table of errors says how far a failure reaches: beyond its job, the generation is opened
 * anew. `ends`: a batch does not go on, for it would come to the same line again, and to the same
 * failure. */
static void fail_job(struct engine *e, struct job *j, const struct fault *why, bool ends)
{
	struct fault others = FAULT_NONE;
	bool further, launches;

	if (why->device) {
		metrics_device_error(why->device);
		health_note_error(e->health, why->device);
	}
	further = npu_error_reaches_further(why->device);
	launches = is_launch(e, j);
	if (!further || ends || !queue_again(e, j))
		engine_end(e, j, JOB_FAILED, NULL, why);
	if (further) {
		fault_set(&others, -EIO, "send it again",
			"the device had to be recovered while the job ran");
		engine_fail_active(e, &others);
		if (e->generation)
			engine_recover(e, why);
	}
	if (launches)
		engine_launch_ended(e, false);
}

/* --- begin ------------------------------------------------------------------------------------ */

/* Tensors from the files that the request names. */
static int attach_files(struct engine *e, struct job *j, struct request *req, struct fault *f)
{
	size_t n = 0;
	int err = 0;

	if (!job_order(j)->files)
		return 0;
	for (size_t i = 0; !err && i < req->n_inputs; i++) {
		AUTO_BUF struct buf bytes = BUF_INIT;

		if (!req->inputs[i].file)
			continue;
		err = job_read_file(j, n++, e->config.file_bytes, &bytes);
		if (err)
			return fault_at(f, err, "inputs", -1, "put it beside the request",
				"the file \"%s\" could not be read: %s", req->inputs[i].file,
				strerror(-err));
		err = request_attach(req, i, buf_text(&bytes), bytes.len, f);
	}
	return err;
}

static struct run_limits limits_of(struct engine *e, const struct job *j)
{
	return (struct run_limits){ .output_bytes = e->config.output_bytes,
		.sessions = e->sessions,
		.job = job_id(j),
		.callables = e->callables,
		.context = job_order(j)->context };
}

static int make_run(struct engine *e, struct job *j, const struct blob *content, struct run **ret,
	struct fault *f)
{
	const struct run_limits limits = limits_of(e, j);
	struct request *req = NULL;
	int err = verdict_parse(job_format(j), content, &req, f);

	if (err)
		return err;
	job_set_request_id(j, req->request_id ? req->request_id : "");
	err = attach_files(e, j, req, f);
	if (!err && is_launch(e, j))
		err = engine_begin_launches(e, j, req, &limits, ret, f);
	else if (!err)
		err = run_new(e->generation, &e->model, req, &limits, ret, f);
	if (err)
		request_free(req);
	return err;
}

static int begin_request(struct engine *e, struct job *j, struct run **ret, struct fault *f)
{
	struct blob *content = NULL;
	int err = job_content(j, &content);

	if (err)
		return fault_set(f, err, "write it again", "the request could not be read: %s",
			strerror(-err));
	err = make_run(e, j, content, ret, f);
	blob_put(content);
	return err;
}

static ssize_t read_batch(void *job, uint64_t offset, char *ret, size_t size)
{
	return job_read_request(job, offset, ret, size);
}

static int begin_batch(struct engine *e, struct job *j, struct run **ret, struct fault *f)
{
	const struct run_limits limits = limits_of(e, j);
	struct run_source source = { .read = read_batch, .context = j };
	int err = job_resume(j, &source.before);

	if (err)
		return fault_set(f, err, "write it again", "the batch could not be read: %s",
			strerror(-err));
	return run_batch_new(e->generation, &e->model, &source, &limits, ret, f);
}

static int begin(struct engine *e, struct job *j, struct run **ret, struct fault *f)
{
	struct run *parked = job_unpark(j);

	if (!parked && job_format(j) == JOB_FORMAT_BATCH)
		return begin_batch(e, j, ret, f);
	if (!parked)
		return begin_request(e, j, ret, f);
	parked->generation = e->generation;
	parked->model = &e->model;
	*ret = parked;
	return 0;
}

static void count_start(struct job *j)
{
	struct job_view v;

	metrics_add(METRIC_JOBS_STARTED, 1);
	job_look(j, &v);
	metrics_add(METRIC_QUEUE_TIME, v.queue_ns);
	if (trace_on())
		trace_queue(v.id, v.model, v.queue_ns);
}

/* It may have passed while the daemon was not there, and who ends jobs then comes a moment later. */
static bool is_late(struct job *j)
{
	return job_order(j)->deadline_ms && job_deadline(j)->at <= clock_mono();
}

void engine_begin(struct engine *e, struct job *j)
{
	struct fault f = FAULT_NONE;
	struct run *run = NULL;

	if (is_late(j)) {
		let_go(e, j);
		engine_expire(e, j);
		return;
	}
	e->served += !is_launch(e, j);
	if (job_start(j, is_launch(e, j) ? 0 : e->generation->number))
		count_start(j);
	else if (job_state(j) != JOB_RUNNING) { /* it ended on its way here */
		let_go(e, j);
		engine_end(e, j, JOB_CANCELLED, NULL, NULL);
		return;
	}
	if (!is_launch(e, j))
		job_set_model(j, e->model.alias, e->model.sha256);
	if (begin(e, j, &run, &f)) {
		let_go(e, j);
		fail_job(e, j, &f, false);
		return;
	}
	e->active[e->n_active++] =
		(struct active){ .job = j, .run = run, .lines_done = run->lines.done };
}

/* --- end -------------------------------------------------------------------------------------- */

static void deliver(struct engine *e, size_t i)
{
	struct active a = e->active[i];
	struct buf out = BUF_INIT;
	struct job_outcome outcome;
	struct fault f = FAULT_NONE;
	int err = a.run->ops->finish(a.run, &out, &outcome);
	bool launched;

	outcome.out = out.len ? &out : NULL;
	leave(e, i);
	if (err || out.len > e->config.output_bytes) {
		fault_set(&f, err ? err : -EFBIG, "ask for less output",
			"the output could not be kept");
		engine_end(e, a.job, JOB_FAILED, NULL, &f);
	} else {
		launched = is_launch(e, a.job);
		engine_end(e, a.job, JOB_DONE, &outcome, NULL);
		if (launched)
			engine_launch_ended(e, true);
		else
			engine_note_good(e); /* a good step alone may be a bad request's first */
	}
	buf_done(&out);
}

/* --- step ------------------------------------------------------------------------------------- */

/* Too busy to take a step: it is tried again later, a bounded number of times. */
static bool try_again(struct engine *e, struct active *a, const struct step_fault *f)
{
	if (!f->again || npu_error_row(f->fault.device)->retry != NPU_RETRY_BOUNDED ||
		a->tries == ENGINE_MAX_TRIES)
		return false;
	metrics_device_error(f->fault.device);
	return engine_pause(e, 1LL << a->tries++);
}

static int append(struct engine *e, struct job *j, const struct buf *piece)
{
	bool batch = job_format(j) == JOB_FORMAT_BATCH;

	return piece->len ? job_append(j, piece->data, piece->len,
				    batch ? e->config.batch_bytes : e->config.output_bytes)
			  : 0;
}

/* A line that went well shows as much as a job that did. */
static void note_lines(struct engine *e, struct active *a)
{
	if (a->run->lines.done > a->lines_done)
		engine_note_good(e);
	a->lines_done = a->run->lines.done;
	job_set_lines(a->job, &a->run->lines);
}

static enum step step_one(struct engine *e, struct active *a, struct step_fault *f)
{
	AUTO_BUF struct buf piece = BUF_INIT;
	int64_t start = clock_mono();
	enum step s;
	int err;

	engine_enter_device(e);
	engine_trace_turn(0, a);
	s = engine_pair_step(a, &piece, f);
	trace_turn_over();
	metrics_add(METRIC_DEVICE_BUSY, clock_mono() - start);
	if (engine_leave_device(e)) { /* whatever came of it: it was given up */
		f->again = false;
		fault_from_device(&f->fault, NPU_TIMEOUT, "waiting for an inference");
		return STEP_FAILED;
	}
	if (s == STEP_FAILED) { /* a batch may have answered its line by that failure */
		a->unanswered = append(e, a->job, &piece) != 0;
		return s;
	}
	health_note_progress(e->health);
	a->tries = 0;
	if (job_format(a->job) == JOB_FORMAT_BATCH)
		note_lines(e, a);
	err = append(e, a->job, &piece);
	if (!err)
		return s;
	fault_set(&f->fault, err, "ask for less output", "the output could not be kept");
	return STEP_FAILED;
}

static void free_run(void *run)
{
	struct run *r = run;

	r->ops->free(r); /* between two lines it holds nothing on the device */
}

/* Its count passes to the queue at once: whoever takes the job out there may drop it. */
static bool yield_turn(struct engine *e, const struct active *a, bool room)
{
	bool yielded;

	lock_take(&e->lock);
	yielded = (e->queued || !room) &&
		queue_push(&e->queues[e->current], job_queue_item(a->job)) == 0;
	if (yielded) {
		e->queued++;
		job_park(a->job, a->run, free_run);
		let_go_locked(e, a->job);
	}
	lock_drop(&e->lock);
	return yielded;
}

/* A batch between two lines lets others go first: it queues again among its user's jobs. So it does
 * while the device has no room; when nobody has it, that is seen before the next one begins. True
 * when it stays. */
static bool keeps_turn(struct engine *e, size_t i)
{
	if (!yield_turn(e, &e->active[i], device_has_room(e)))
		return true;
	drop_active(e, i);
	return false;
}

/* True when the job is still on the device. */
static bool step_job(struct engine *e, size_t i)
{
	struct step_fault f = { .fault = FAULT_NONE };
	struct job *j = e->active[i].job;
	bool unanswered;

	if (job_ended(j)) {
		leave(e, i);
		engine_end(e, j, JOB_CANCELLED, NULL, NULL);
		return false;
	}
	switch (step_one(e, &e->active[i], &f)) {
	case STEP_MORE:
		return true;
	case STEP_YIELD:
		return keeps_turn(e, i);
	case STEP_ENDED:
		deliver(e, i);
		return false;
	case STEP_FAILED:
		if (try_again(e, &e->active[i], &f))
			return true;
		unanswered = e->active[i].unanswered;
		leave(e, i);
		fail_job(e, j, &f.fault, unanswered);
		return false;
	}
	return true;
}

void engine_step_all(struct engine *e)
{
	for (size_t i = 0; i < e->n_active;) {
		engine_pair_feed(e, i);
		i += step_job(e, i);
	}
}
