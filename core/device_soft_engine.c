/* Parallel mode: Ping and Pong, a thread each.
 *
 * An inference is run by its engine from submit on, in the order of that engine's submits; between
 * the engines there is no order. What keeps two that run at once apart:
 *
 *   tensors     every output buffer has the device's own memory of all of them
 *   KV          a sequence is in flight on one engine only, and until it has finished there the KV
 *               manager leaves the sequence alone (device_soft_llm.c)
 *   arithmetic  a lane of the model for each (core/sim/lanes.h)
 *
 * The caller owns everything that is not in flight. The lock is held to queue, to take and to finish,
 * never to compute. */
#include "core/device_soft.h"

#include <signal.h>
#include <stdlib.h>

#include "core/device_soft_internal.h"

/* --- an engine's thread ----------------------------------------------------------------------- */

/* The oldest, waited for; NULL when it is time to stop and nothing is left. */
static struct outbuf *next_locked(struct soft_engine *e)
{
	struct outbuf *out;

	lock_assert_held(&e->set->lock);
	while (!e->queue.first && !e->stopping)
		lock_cond_wait(&e->work, &e->set->lock);
	out = e->queue.first;
	if (out) {
		soft_queue_take(&e->queue, out);
		out->state = OUT_RUNNING;
	}
	return out;
}

static void finish_locked(struct soft_engine *e, struct outbuf *out)
{
	lock_assert_held(&e->set->lock);
	e->load--;
	if (out->seq)
		out->seq->in_flight--;
	out->state = OUT_FINISHED; /* from here on it is the caller's */
	lock_cond_broadcast(&e->set->finished);
}

static void *engine_run(void *engine)
{
	struct soft_engine *e = engine;
	struct outbuf *out;

	lock_take(&e->set->lock);
	while ((out = next_locked(e))) {
		lock_drop(&e->set->lock);
		soft_run(out);
		lock_take(&e->set->lock);
		finish_locked(e, out);
	}
	lock_drop(&e->set->lock);
	return NULL;
}

/* --- on and off ------------------------------------------------------------------------------- */

static void stop_one(struct soft_engine *e)
{
	lock_take(&e->set->lock);
	e->stopping = true;
	lock_cond_signal(&e->work);
	lock_drop(&e->set->lock);
	pthread_join(e->thread, NULL);
	lock_cond_done(&e->work);
}

static void set_free(struct soft_engines *set, int n)
{
	while (n > 0)
		stop_one(&set->engine[--n]);
	lock_cond_done(&set->finished);
	lock_done(&set->lock);
	free(set);
}

static int start_one(struct soft_engines *set, struct soft_engine *e)
{
	int err;

	e->set = set;
	soft_queue_init(&e->queue);
	lock_cond_init(&e->work);
	err = pthread_create(&e->thread, NULL, engine_run, e);
	if (err)
		lock_cond_done(&e->work);
	return err;
}

/* Signals are the program's business; its own threads take them. */
static struct soft_engines *set_new(void)
{
	struct soft_engines *set = calloc(1, sizeof(*set));
	sigset_t all, before;
	int n = 0;

	if (!set)
		return NULL;
	lock_init(&set->lock, RANK_DEVICE, "soft engines");
	lock_cond_init(&set->finished);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (n < DEVICE_ENGINES && start_one(set, &set->engine[n]) == 0)
		n++;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (n == DEVICE_ENGINES)
		return set;
	set_free(set, n);
	return NULL;
}

void soft_engines_stop(struct vdevice *d)
{
	if (d->engines)
		set_free(d->engines, DEVICE_ENGINES);
	d->engines = NULL;
}

/* Nothing happens, silently, while something is in flight; that there is no memory for the threads
 * is told by the status from then on, until it is switched again. */
void soft_enable_parallel(struct vdevice *d, bool on)
{
	if (soft_engines_busy(d))
		return;
	if (!on)
		soft_engines_stop(d);
	else if (!d->engines)
		d->engines = set_new();
	d->no_engines = on && !d->engines;
}

/* --- submit and wait -------------------------------------------------------------------------- */

static unsigned load(struct soft_engines *set, int engine)
{
	unsigned n;

	lock_take(&set->lock);
	n = set->engine[engine].load;
	lock_drop(&set->lock);
	return n;
}

bool soft_engines_busy(const struct vdevice *d)
{
	if (d->engines)
		return load(d->engines, DEVICE_PING) || load(d->engines, DEVICE_PONG);
	return d->queue.first != NULL;
}

/* Has the engine's last sequence been computed, and does it wait for kv_update? */
static bool awaits_update(const struct kvman *kv, int engine)
{
	const struct soft_seq *s = kv->current[engine];

	return s && !s->in_flight && s->staged;
}

/* The less loaded one. Of two alike, what comes with a sequence of its own keeps off the one that
 * waits for kv_update, and what comes without goes there. */
static int choose_auto(struct vdevice *d, const struct kvman *kv)
{
	unsigned ping = load(d->engines, DEVICE_PING), pong = load(d->engines, DEVICE_PONG);
	bool follows = kv && !kv->applied;

	if (ping != pong || !kv)
		return pong < ping ? DEVICE_PONG : DEVICE_PING;
	return awaits_update(kv, DEVICE_PING) != follows &&
			awaits_update(kv, DEVICE_PONG) == follows
		? DEVICE_PONG
		: DEVICE_PING;
}

int soft_engine_choose(struct vdevice *d, enum device_task task, const struct kvman *kv)
{
	int engine = task == DEVICE_AUTO ? choose_auto(d, kv) : (int)task;
	const struct soft_seq *s;

	s = !kv ? NULL : kv->applied ? kv->applied : kv->current[engine];
	if (!s || !s->in_flight || s->engine == engine)
		return engine;
	return -1;
}

void soft_engine_submit(struct vdevice *d, int engine, struct outbuf *out)
{
	struct soft_engine *e = &d->engines->engine[engine];

	lock_take(&d->engines->lock);
	if (out->seq) {
		out->seq->in_flight++;
		out->seq->engine = engine;
	}
	soft_queue_put(&e->queue, out);
	e->load++;
	lock_cond_signal(&e->work);
	lock_drop(&d->engines->lock);
}

void soft_engines_drain(struct vdevice *d)
{
	const struct soft_engine *e = d->engines->engine;

	lock_take(&d->engines->lock);
	while (e[DEVICE_PING].load || e[DEVICE_PONG].load)
		lock_cond_wait(&d->engines->finished, &d->engines->lock);
	lock_drop(&d->engines->lock);
}

void soft_engine_wait(struct vdevice *d, struct outbuf *out)
{
	lock_take(&d->engines->lock);
	while (out_in_flight(out))
		lock_cond_wait(&d->engines->finished, &d->engines->lock);
	lock_drop(&d->engines->lock);
}
