/* The device's thread. Each round: decide which model the device serves, fill it with waiting jobs
 * of that model, one step for every job on it. It sleeps only when there is neither a job on the
 * device nor one waiting. */
#include "core/engine/engine_impl.h"

#include <errno.h>

#include "core/base/clock.h"

/* False when it is time to stop. */
static bool wait_for_work(struct engine *e)
{
	struct timespec until = clock_timespec(engine_next_due(e));
	bool over = false, go_on;

	lock_take(&e->lock);
	while (!e->stopping && !e->n_active && (!e->queued || e->on_hold) && !e->operation &&
		!over && !sessions_has_removed(e->sessions)) {
		if (e->draining)
			lock_cond_signal(&e->idle);
		over = lock_cond_wait_until(&e->work, &e->lock, &until);
	}
	go_on = !e->stopping;
	lock_drop(&e->lock);
	return go_on;
}

static bool other_waits_locked(const struct engine *e, int *ret_model)
{
	size_t n = models_count(e->models);

	for (size_t k = 1; k <= n; k++) {
		size_t i = ((size_t)(e->current + (int)k)) % n;

		if ((int)i != e->current && e->queues[i].len) {
			*ret_model = (int)i;
			return true;
		}
	}
	return false;
}

/* Which model to serve: the configured one while it has jobs, and not longer than ENGINE_SWAP_AFTER
 * jobs while others wait. -1: none waits. */
static int choose_model(struct engine *e)
{
	int other = -1;
	bool own, others;

	lock_take(&e->lock);
	others = models_count(e->models) && other_waits_locked(e, &other);
	own = e->current >= 0 && e->queues[e->current].len;
	lock_drop(&e->lock);
	if (own && (!others || e->served < ENGINE_SWAP_AFTER))
		return e->current;
	return others ? other : own ? e->current : -1;
}

bool engine_pause(struct engine *e, int64_t ms)
{
	struct timespec until = clock_timespec(clock_mono() + ms * NS_PER_MS);
	bool over = false, go_on;

	lock_take(&e->lock);
	while (!e->stopping && !over)
		over = lock_cond_wait_until(&e->work, &e->lock, &until);
	go_on = !e->stopping;
	lock_drop(&e->lock);
	return go_on;
}

static struct job *pop_job(struct engine *e, int model)
{
	struct queue_item *item;

	lock_take(&e->lock);
	item = queue_pop(&e->queues[model]);
	if (item) {
		e->queued--;
		e->held[e->running++] = job_of_queue_item(item);
	}
	lock_drop(&e->lock);
	return item ? job_of_queue_item(item) : NULL;
}

static bool waits(struct engine *e, int model)
{
	bool some;

	lock_take(&e->lock);
	some = model >= 0 && e->queues[model].len;
	lock_drop(&e->lock);
	return some;
}

/* Of the model that serves, or one that launches: they take turns. The device is asked for room only
 * when somebody waits for it. */
static struct job *next_job(struct engine *e)
{
	struct job *j = NULL;

	for (int tries = 0; !j && tries < 2; tries++) {
		int model;

		e->launch_turn = !e->launch_turn;
		model = e->launch_turn ? engine_launches(e) : e->current;
		if (waits(e, model) &&
			(e->launch_turn ? engine_has_launch_room(e) : engine_has_room(e)))
			j = pop_job(e, model);
	}
	return j;
}

/* Sequences that nobody has any more were not freed. */
static void recover_room(struct engine *e)
{
	struct fault f = FAULT_NONE;

	fault_from_device(&f, NPU_NOT_EXPECTED, "freeing KV sequences");
	engine_recover(e, &f);
}

static void fill(struct engine *e)
{
	int model = choose_model(e);
	struct job *j;

	if (e->stopped) {
		engine_end_waiting(e, -1, &e->stop_reason);
		return;
	}
	if (engine_is_held(e)) /* it drains */
		return;
	if (e->renew && (model < 0 || model == e->current)) { /* it drains first, as below */
		if (e->n_active == 0)
			engine_swap(e, e->current);
		return;
	}
	if (model >= 0 && model != e->current) {
		if (e->n_active == 0) /* until then no new ones: it drains */
			engine_swap(e, model);
		return;
	}
	if (model >= 0 && !e->n_active && !engine_has_room(e))
		recover_room(e);
	while ((j = next_job(e)))
		engine_begin(e, j);
}

static void leave_everything(struct engine *e)
{
	struct fault f;

	engine_stopped(&f);
	engine_leave_active(e, &f);
	engine_leave_waiting(e, &f);
}

void *engine_main(void *engine)
{
	struct engine *e = engine;

	trace_thread_is(TRACE_OF_DEVICE);
	engine_open(e);
	while (wait_for_work(e)) {
		engine_tend(e);
		engine_do_operation(e);
		sessions_free_removed(e->sessions, e->generation);
		fill(e);
		engine_step_all(e);
	}
	engine_drop_operation(e);
	leave_everything(e);
	engine_close(e);
	lock_take(&e->lock);
	e->gone = true;
	lock_cond_signal(&e->idle);
	lock_drop(&e->lock);
	return NULL;
}
