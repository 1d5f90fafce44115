#include "core/engine/engine.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "core/base/clock.h"
#include "core/engine/engine_impl.h"
#include "core/engine/metrics.h"

/* --- ending ----------------------------------------------------------------------------------- */

bool engine_forget_locked(struct engine *e, struct job *j)
{
	int model = job_order(j)->model;

	lock_assert_held(&e->lock);
	deadlines_remove(&e->deadlines, job_deadline(j));
	if (model < 0 || !queue_remove(&e->queues[model], job_queue_item(j)))
		return false;
	e->queued--;
	return true;
}

static void count_end(struct job *j, enum job_state state)
{
	struct job_view v;

	job_look(j, &v);
	metrics_add_at(METRIC_JOBS_FINISHED, state, 1);
	metrics_add(METRIC_JOB_TIME, v.run_ns);
	metrics_add(METRIC_PROMPT_TOKENS, (int64_t)v.prompt_tokens);
	metrics_add(METRIC_OUTPUT_TOKENS, (int64_t)v.output_tokens);
}

static void trace_end(struct job *j, int64_t begin)
{
	struct job_view v;

	job_look(j, &v);
	trace_delivery(begin, v.id, v.model, v.output_tokens, &v.fault);
}

/* True for who ended it. */
static bool end_traced(struct job *j, enum job_state state, const struct job_outcome *outcome,
	const struct fault *why)
{
	int64_t begin = trace_begin();
	bool ended = job_end(j, state, outcome, why);

	if (begin && ended)
		trace_end(j, begin);
	return ended;
}

static void end_counted(struct job *j, enum job_state state, const struct job_outcome *outcome,
	const struct fault *why)
{
	if (end_traced(j, state, outcome, why))
		count_end(j, state);
}

void engine_stopped(struct fault *ret)
{
	*ret = (struct fault)FAULT_NONE;
	fault_set(ret, -ESHUTDOWN, "it runs when the daemon is started again",
		"the daemon stopped");
}

void engine_end(struct engine *e, struct job *j, enum job_state state,
	const struct job_outcome *outcome, const struct fault *why)
{
	lock_take(&e->lock);
	deadlines_remove(&e->deadlines, job_deadline(j));
	lock_drop(&e->lock);
	end_counted(j, state, outcome, why);
	job_put(j);
}

static struct job *pop_any(struct engine *e, int model)
{
	struct queue_item *item = NULL;

	lock_take(&e->lock);
	for (int i = 0; !item && i <= engine_launches(e); i++)
		if (model < 0 || model == i)
			item = queue_pop(&e->queues[i]);
	if (item)
		e->queued--;
	lock_drop(&e->lock);
	return item ? job_of_queue_item(item) : NULL;
}

void engine_end_waiting(struct engine *e, int model, const struct fault *why)
{
	struct job *j;

	while ((j = pop_any(e, model)))
		engine_end(e, j, JOB_FAILED, NULL, why);
}

void engine_leave(struct engine *e, struct job *j, const struct fault *why)
{
	lock_take(&e->lock);
	deadlines_remove(&e->deadlines, job_deadline(j));
	lock_drop(&e->lock);
	job_leave(j, why);
	job_put(j);
}

void engine_leave_waiting(struct engine *e, const struct fault *why)
{
	struct job *j;

	while ((j = pop_any(e, -1)))
		engine_leave(e, j, why);
}

/* --- admission -------------------------------------------------------------------------------- */

static int refuse_failed(struct engine *e, struct fault *f)
{
	struct model_view v;
	struct fault stopped;
	int model = models_default(e->models);

	if (engine_stopped_for(e, &stopped)) {
		if (f)
			*f = stopped;
		return stopped.err;
	}
	if (model < 0)
		return models_choose(e->models, NULL, f);
	models_get(e->models, model, &v);
	if (v.state == MODEL_FAILED && f)
		*f = v.fault;
	if (v.state == MODEL_FAILED && v.fault.err)
		return v.fault.err;
	return fault_set(f, -ENODEV, "read health", "the device is not usable");
}

static size_t user_len_locked(struct engine *e, uint32_t uid)
{
	size_t n = 0;

	for (int i = 0; i <= engine_launches(e); i++)
		n += queue_user_len(&e->queues[i], uid);
	return n;
}

static int admit_locked(struct engine *e, uint32_t uid, struct fault *f)
{
	lock_assert_held(&e->lock);
	if (e->draining)
		return fault_set(f, -EROFS, "wait until it has started again",
			"the daemon is stopping");
	if (e->refusing)
		return fault_set(f, -EROFS, "wait, or ask the operator",
			"the operator is draining the device");
	if (e->queued >= e->config.queue_limit)
		return fault_set(f, -EAGAIN, "send it again later", "the queue is full (%llu jobs)",
			(unsigned long long)e->config.queue_limit);
	if (e->queued && user_len_locked(e, uid) >= e->config.user_limit)
		return fault_set(f, -EDQUOT, "wait for some of your jobs to end",
			"your share of the queue is full (%llu jobs)",
			(unsigned long long)e->config.user_limit);
	return 0;
}

int engine_admit(struct engine *e, uint32_t uid, struct fault *f)
{
	int err;

	lock_take(&e->lock);
	err = admit_locked(e, uid, f);
	lock_drop(&e->lock);
	if (!err && health_state(e->health) == HEALTH_FAILED)
		err = refuse_failed(e, f);
	return err;
}

int engine_model(struct engine *e, const struct request *req, struct fault *f)
{
	struct model_view v;
	int i = models_choose(e->models, req->model, f);

	if (i < 0)
		return i;
	models_get(e->models, i, &v);
	if (v.state != MODEL_FAILED)
		return i;
	if (f)
		*f = v.fault;
	return v.fault.err ? v.fault.err : -ENODEV;
}

/* What is to be for the model of the session, or for any. */
static int session_model(struct engine *e, const struct request *req, int bound, struct fault *f)
{
	struct request ask = *req;
	int model;

	if (bound >= 0 && !ask.model)
		ask.model = (char *)models_alias(e->models, bound);
	model = engine_model(e, &ask, f);
	if (model < 0 || bound < 0 || model == bound)
		return model;
	return fault_at(f, -EINVAL, "model", -1, "leave it out, or take another session",
		"the session \"%s\" is of the model \"%s\"", req->session,
		models_alias(e->models, bound));
}

int engine_session(struct engine *e, uint32_t uid, const struct request *req, struct fault *f)
{
	int bound = -1, err;

	if (req->launches)
		return engine_check_launches(e, req, f);
	err = req->session ? sessions_check(e->sessions, uid, req->session, &bound, f) : 0;

	return err ? err : session_model(e, req, bound, f);
}

struct sessions *engine_sessions(struct engine *e)
{
	return e->sessions;
}

void engine_wake(struct engine *e)
{
	lock_take(&e->lock);
	lock_cond_signal(&e->work);
	lock_drop(&e->lock);
}

static int enqueue_locked(struct engine *e, struct job *j, const struct job_order *order,
	struct fault *f)
{
	int err = order->queued ? 0 : admit_locked(e, job_uid(j), f); /* once is enough */

	if (!err)
		err = job_queue(j, order);
	if (err)
		return err;
	if (order->deadline_ms && deadlines_add(&e->deadlines, job_deadline(j)))
		return fault_set(f, -ENOMEM, "send it again later", "no memory for the deadline");
	if (queue_push(&e->queues[order->model], job_queue_item(j))) {
		deadlines_remove(&e->deadlines, job_deadline(j));
		return fault_set(f, -ENOMEM, "send it again later", "no memory for the queue");
	}
	job_get(j);
	e->queued++;
	if (order->deadline_ms)
		lock_cond_signal(&e->due);
	return 0;
}

/* However a job ends, this is where its session learns of it. */
static void settle_session(void *engine, struct job *j, bool done)
{
	struct engine *e = engine;

	sessions_settle(e->sessions, job_order(j)->session, job_id(j), done);
	if (sessions_has_removed(e->sessions))
		engine_wake(e);
}

static int take_session(struct engine *e, struct job *j, const struct job_order *order,
	struct fault *f)
{
	int err = sessions_claim(e->sessions, job_uid(j), job_id(j), order, f);

	if (!err)
		job_on_settled(j, settle_session, e);
	return err;
}

static void give_session_back(struct engine *e, struct job *j, const struct job_order *order)
{
	job_on_settled(j, NULL, NULL);
	sessions_settle(e->sessions, order->session, job_id(j), false);
}

int engine_submit(struct engine *e, struct job *j, const struct job_order *order, struct fault *f)
{
	int err = order->session[0] ? take_session(e, j, order, f) : 0;

	if (err)
		return err;
	lock_take(&e->lock);
	err = enqueue_locked(e, j, order, f);
	lock_drop(&e->lock);
	if (err && order->session[0])
		give_session_back(e, j, order);
	if (err)
		return err;
	lock_cond_signal(&e->work); /* without the lock: the thread that wakes needs it at once */
	metrics_add(METRIC_JOBS_ACCEPTED, 1);
	return 0;
}

void engine_cancel(struct engine *e, struct job *j)
{
	struct fault f = FAULT_NONE;
	bool waited;

	fault_set(&f, -ECANCELED, "write the request again to run it", "the request was removed");
	if (end_traced(j, JOB_CANCELLED, NULL, &f)) /* first: what has ended is queued no more */
		metrics_add_at(METRIC_JOBS_FINISHED, JOB_CANCELLED, 1);
	lock_take(&e->lock);
	waited = engine_forget_locked(e, j);
	lock_drop(&e->lock);
	if (waited)
		job_put(j);
}

size_t engine_position(struct engine *e, struct job *j)
{
	size_t position = 0;

	lock_take(&e->lock);
	if (queue_waits(job_queue_item(j)))
		position = 1 + queue_position(&e->queues[job_order(j)->model], job_queue_item(j));
	lock_drop(&e->lock);
	return position;
}

void engine_counts(struct engine *e, uint64_t *ret_queued, uint64_t *ret_running)
{
	lock_take(&e->lock);
	*ret_queued = e->queued;
	*ret_running = e->running;
	lock_drop(&e->lock);
}

/* --- start and stop --------------------------------------------------------------------------- */

static void release(struct engine *e)
{
	deadlines_done(&e->deadlines);
	lock_cond_done(&e->done);
	lock_cond_done(&e->due);
	lock_cond_done(&e->idle);
	lock_cond_done(&e->work);
	lock_done(&e->lock);
	free(e->active);
	free(e->held);
	free(e->queues);
	free(e->cooling);
	sessions_free(e->sessions);
	callables_free(e->callables);
	free(e);
}

static void end_deadlines(struct engine *e)
{
	lock_take(&e->lock);
	e->ended = true;
	lock_cond_signal(&e->due);
	lock_drop(&e->lock);
	pthread_join(e->deadline_thread, NULL);
}

static int start_threads(struct engine *e)
{
	if (pthread_create(&e->deadline_thread, NULL, engine_deadline_main, e))
		return -EAGAIN;
	if (pthread_create(&e->thread, NULL, engine_main, e) == 0)
		return 0;
	end_deadlines(e);
	return -EAGAIN;
}

int engine_new(const struct engine_config *c, struct models *models, struct health *health,
	struct engine **ret)
{
	size_t n_models = models_count(models);
	struct engine *e = calloc(1, sizeof *e);
	int err;

	if (!e)
		return -ENOMEM;
	e->config = *c;
	e->models = models;
	e->health = health;
	e->current = e->fallback = -1;
	e->room = c->max_active;
	e->look_at = clock_mono() + ENGINE_LOOK_MS * NS_PER_MS;
	e->cool_at = INT64_MAX;
	lock_init(&e->lock, RANK_ENGINE, "engine");
	lock_cond_init(&e->work);
	lock_cond_init(&e->idle);
	lock_cond_init(&e->due);
	lock_cond_init(&e->done);
	e->queues = calloc(n_models + 1, sizeof *e->queues);
	e->cooling = calloc(n_models ? n_models : 1, sizeof *e->cooling);
	e->active = calloc(c->max_active, sizeof *e->active);
	e->held = calloc(c->max_active, sizeof *e->held);
	err = e->queues && e->cooling && e->active && e->held ? 0 : -ENOMEM;
	if (!err)
		err = sessions_new(&c->sessions, &e->sessions);
	if (!err)
		err = callables_new(c->store, &e->callables);
	if (!err)
		err = start_threads(e);
	if (err) {
		release(e);
		return err;
	}
	*ret = e;
	return 0;
}

/* The device may hold its thread for long, or for ever: who waits is answered without it. */
struct job *engine_hold_one(struct engine *e, size_t i)
{
	struct job *j = NULL;

	lock_take(&e->lock);
	if (i < e->running)
		j = job_get(e->held[i]);
	lock_drop(&e->lock);
	return j;
}

static void answer_all(struct engine *e)
{
	struct fault f;
	struct job *j;

	engine_stopped(&f);
	engine_leave_waiting(e, &f);
	for (size_t i = 0; (j = engine_hold_one(e, i)); i++) {
		job_leave(j, &f);
		job_put(j);
	}
}

static void drain(struct engine *e, int64_t drain_ms)
{
	struct timespec until = clock_timespec(clock_mono() + drain_ms * NS_PER_MS);
	bool late = false;

	lock_take(&e->lock);
	e->draining = true;
	health_set(e->health, HEALTH_DRAINING, "the daemon is stopping", NULL);
	metrics_set(METRIC_HEALTH_STATE, HEALTH_DRAINING);
	lock_cond_signal(&e->work);
	lock_cond_signal(&e->done);
	while (!late && (e->running || e->queued))
		late = lock_cond_wait_until(&e->idle, &e->lock, &until);
	e->stopping = true;
	lock_cond_signal(&e->work);
	lock_drop(&e->lock);
}

static bool thread_leaves(struct engine *e, int64_t ms)
{
	struct timespec until = clock_timespec(clock_mono() + ms * NS_PER_MS);
	bool late = false, gone;

	lock_take(&e->lock);
	while (!e->gone && !late)
		late = lock_cond_wait_until(&e->idle, &e->lock, &until);
	gone = e->gone;
	lock_drop(&e->lock);
	return gone;
}

int engine_stop(struct engine *e, int64_t drain_ms)
{
	drain(e, drain_ms);
	answer_all(e);
	if (!thread_leaves(e, ENGINE_STOP_GRACE_MS))
		return -ETIMEDOUT;
	pthread_join(e->thread, NULL);
	end_deadlines(e);
	return 0;
}

void engine_free(struct engine *e)
{
	if (e)
		release(e);
}
