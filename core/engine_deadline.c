/* The thread that ends jobs at their deadline. It is apart from the device's, so that an inference
 * that does not come back delays no answer. A job on the device is answered here and leaves the
 * device at its next turn there; until then its buffers are touched by nobody (device contract 5). */
#include <errno.h>

#include "core/clock.h"
#include "core/engine_impl.h"

static void sleep_locked(struct engine *e, int64_t next)
{
	struct timespec until = clock_timespec(next);

	if (next == INT64_MAX)
		lock_cond_wait(&e->due, &e->lock);
	else
		lock_cond_wait_until(&e->due, &e->lock, &until);
}

/* The next job that is past its deadline, counted; NULL when all is over. */
static struct job *wait_overdue(struct engine *e, bool *ret_waited)
{
	struct job *j = NULL;
	int64_t next;

	lock_take(&e->lock);
	while (!e->ended && (next = deadlines_next(&e->deadlines)) > clock_mono())
		sleep_locked(e, next);
	if (!e->ended) {
		j = job_get(job_of_deadline(deadlines_pop(&e->deadlines)));
		*ret_waited = engine_forget_locked(e, j);
	}
	lock_drop(&e->lock);
	return j;
}

void *engine_deadline_main(void *engine)
{
	struct engine *e = engine;
	struct fault f = FAULT_NONE;
	bool waited = false;
	struct job *j;

	fault_set(&f, -ETIMEDOUT, "give a longer deadline_ms, or send it when less waits",
		"the deadline passed");
	while ((j = wait_overdue(e, &waited))) {
		engine_end(e, j, JOB_EXPIRED, NULL, &f);
		if (waited)
			job_put(j);
	}
	return NULL;
}
