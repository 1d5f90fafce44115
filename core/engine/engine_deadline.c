/* The thread that ends jobs at their deadline. It is apart from the device's, so that an inference
 * that does not come back delays no answer. A job on the device is answered here and leaves the
 * device at its next turn there; until then its buffers are touched by nobody (device contract 5).
 * An inference that takes too long is given up likewise: all that ran is answered, and the device is
 * given nothing until Wait has returned, if ever. That is the quarantine. */
#include <errno.h>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/engine/engine_impl.h"
#include "core/engine/metrics.h"

/* --- the device's thread ---------------------------------------------------------------------- */

void engine_enter_device(struct engine *e)
{
	int64_t now = clock_mono();

	health_note_entry(e->health, now);
	lock_take(&e->lock);
	e->in_device = now;
	lock_drop(&e->lock);
}

bool engine_leave_device(struct engine *e)
{
	bool late;

	lock_take(&e->lock);
	e->in_device = 0;
	late = e->quarantined;
	e->quarantined = false;
	if (late) {
		health_set_away(e->health, 0);
		lock_cond_signal(&e->due); /* it waits for deadlines only, meanwhile */
	}
	lock_drop(&e->lock);
	return late;
}

/* --- this one --------------------------------------------------------------------------------- */

enum event { ENDED, OVERDUE, AWAY };

/* When the inference that is on, or could begin now, has taken too long. */
static int64_t away_at_locked(const struct engine *e)
{
	int64_t since = e->in_device ? e->in_device : clock_mono();

	lock_assert_held(&e->lock);
	return e->config.wait_limit_ns && !e->quarantined ? since + e->config.wait_limit_ns
							  : INT64_MAX;
}

static void sleep_locked(struct engine *e, int64_t next)
{
	struct timespec until = clock_timespec(next);

	if (next == INT64_MAX)
		lock_cond_wait(&e->due, &e->lock);
	else
		lock_cond_wait_until(&e->due, &e->lock, &until);
}

static enum event wait_locked(struct engine *e)
{
	for (;;) {
		int64_t next = deadlines_next(&e->deadlines), away = away_at_locked(e);
		int64_t now = clock_mono();

		if (e->ended)
			return ENDED;
		if (next <= now)
			return OVERDUE;
		if (e->in_device && away <= now)
			return AWAY;
		sleep_locked(e, next < away ? next : away);
	}
}

static void given_up(struct fault *ret)
{
	*ret = (struct fault)FAULT_NONE;
	fault_from_device(ret, NPU_TIMEOUT, "waiting for an inference");
}

/* All that tells of it is set before the device's thread can be back, which tells what is then. */
static void begin_quarantine_locked(struct engine *e)
{
	struct fault f;

	given_up(&f);
	e->quarantined = true;
	health_set_away(e->health, clock_mono() - e->config.wait_limit_ns);
	engine_show_state_locked(e, HEALTH_RECOVERING, &f);
}

/* The next job that is past its deadline is counted. */
static enum event wait_event(struct engine *e, struct job **ret, bool *ret_waited)
{
	enum event event;

	lock_take(&e->lock);
	event = wait_locked(e);
	if (event == OVERDUE) {
		*ret = job_get(job_of_deadline(deadlines_pop(&e->deadlines)));
		*ret_waited = engine_forget_locked(e, *ret);
	}
	if (event == AWAY)
		begin_quarantine_locked(e);
	lock_drop(&e->lock);
	return event;
}

/* The i-th of those that ran, counted; NULL past the end, and when the device's thread is back: it
 * ends the rest itself, and what runs by then is nothing of this. */
static struct job *hold_given_up(struct engine *e, size_t i)
{
	struct job *j = NULL;

	lock_take(&e->lock);
	if (e->quarantined && i < e->running)
		j = job_get(e->held[i]);
	lock_drop(&e->lock);
	return j;
}

static void quarantine(struct engine *e)
{
	struct fault f;
	struct job *j;

	given_up(&f);
	metrics_add(METRIC_QUARANTINES, 1);
	metrics_device_error(NPU_TIMEOUT);
	log_warning("%s: %s", health_state_name(HEALTH_RECOVERING), f.reason);
	for (size_t i = 0; (j = hold_given_up(e, i)); i++)
		engine_end(e, j, JOB_FAILED, NULL, &f);
}

void engine_expire(struct engine *e, struct job *j)
{
	struct fault f = FAULT_NONE;

	fault_set(&f, -ETIMEDOUT, "give a longer deadline_ms, or send it when less waits",
		"the deadline passed");
	engine_end(e, j, JOB_EXPIRED, NULL, &f);
}

static void expire(struct engine *e, struct job *j, bool waited)
{
	engine_expire(e, j);
	if (waited)
		job_put(j);
}

void *engine_deadline_main(void *engine)
{
	struct engine *e = engine;
	bool waited = false;
	struct job *j = NULL;

	trace_thread_is(TRACE_OF_DEADLINES);
	for (;;) {
		switch (wait_event(e, &j, &waited)) {
		case ENDED:
			return NULL;
		case OVERDUE:
			expire(e, j, waited);
			break;
		case AWAY:
			quarantine(e);
			break;
		}
	}
}
