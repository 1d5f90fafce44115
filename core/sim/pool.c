/* Everything waits at gates. A gate is a counter: opening it adds one and wakes sleepers, waiting
 * at it means until it is no longer the number one saw before. Waiters spin first (steps of an
 * inference are microseconds apart) and then sleep in the kernel (inferences may be hours apart).
 *
 *   start gate   opened by pool_run: members begin; with `stopping` set they end
 *   barrier gate opened by the last member to arrive
 *
 * No wake-up is lost: a sleeper announces itself before the kernel compares the counter, the opener
 * adds before it looks for sleepers, and both are sequentially consistent. */
#include "core/sim/pool.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SPINS 2000

struct gate {
	_Atomic uint32_t passed;
	_Atomic uint32_t sleepers;
} __attribute__((aligned(64)));

struct member {
	struct pool *pool;
	unsigned number;
	pthread_t thread;
};

struct pool {
	struct gate start, barrier;
	_Atomic uint32_t arrived;
	unsigned members, spins;
	unsigned threads; /* running ones; members - 1 once built */
	bool stopping;    /* published by the start gate, as are work and arg */
	void (*work)(void *arg, unsigned member);
	void *arg;
	struct member member[POOL_MAX];
};

static void gate_open(struct gate *g)
{
	atomic_fetch_add(&g->passed, 1);
	if (atomic_load(&g->sleepers) > 0)
		syscall(SYS_futex, &g->passed, FUTEX_WAKE_PRIVATE, POOL_MAX, NULL, NULL, 0);
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#endif
}

static void gate_wait(struct gate *g, uint32_t seen, unsigned spins)
{
	for (unsigned i = 0; i < spins; i++) {
		if (atomic_load_explicit(&g->passed, memory_order_acquire) != seen)
			return;
		relax();
	}
	atomic_fetch_add(&g->sleepers, 1);
	while (atomic_load(&g->passed) == seen)
		syscall(SYS_futex, &g->passed, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
	atomic_fetch_sub(&g->sleepers, 1);
}

void pool_barrier(struct pool *p)
{
	uint32_t seen;

	if (p->members == 1)
		return;
	seen = atomic_load(&p->barrier.passed);
	if (atomic_fetch_add(&p->arrived, 1) + 1 < p->members) {
		gate_wait(&p->barrier, seen, p->spins);
		return;
	}
	atomic_store(&p->arrived, 0);
	gate_open(&p->barrier);
}

static void *member_main(void *arg)
{
	struct member *m = arg;
	struct pool *p = m->pool;

	for (uint32_t seen = 0;; seen++) {
		gate_wait(&p->start, seen, p->spins);
		if (p->stopping)
			return NULL;
		p->work(p->arg, m->number);
		pool_barrier(p);
	}
}

void pool_run(struct pool *p, void (*work)(void *arg, unsigned member), void *arg)
{
	if (p->members == 1) {
		work(arg, 0);
		return;
	}
	p->work = work;
	p->arg = arg;
	gate_open(&p->start);
	work(arg, 0);
	pool_barrier(p);
}

/* Signals are the program's business; its own threads take them. */
static int start_threads(struct pool *p)
{
	sigset_t all, before;
	int err = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (err == 0 && p->threads + 1 < p->members) {
		struct member *m = &p->member[p->threads];

		*m = (struct member){ .pool = p, .number = p->threads + 1 };
		err = pthread_create(&m->thread, NULL, member_main, m);
		if (err == 0)
			p->threads++;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -err;
}

int pool_new(unsigned members, struct pool **ret)
{
	struct pool *p = aligned_alloc(_Alignof(struct pool), sizeof(*p));
	int err;

	if (!p)
		return -ENOMEM;
	*p = (struct pool){ 0 };
	p->members = members < 1 ? 1 : members > POOL_MAX ? POOL_MAX : members;
	/* Spinning for somebody who has no processor to run on only keeps them from it. */
	p->spins = p->members <= (unsigned long)sysconf(_SC_NPROCESSORS_ONLN) ? SPINS : 0;
	err = start_threads(p);
	if (err < 0) {
		pool_free(p);
		return err;
	}
	*ret = p;
	return 0;
}

void pool_free(struct pool *p)
{
	if (!p)
		return;
	p->stopping = true;
	gate_open(&p->start);
	for (unsigned i = 0; i < p->threads; i++)
		pthread_join(p->member[i].thread, NULL);
	free(p);
}

unsigned pool_members(const struct pool *p)
{
	return p->members;
}

void pool_share(const struct pool *p, unsigned member, uint32_t n, uint32_t *ret_first,
	uint32_t *ret_last)
{
	*ret_first = (uint32_t)((uint64_t)n * member / p->members);
	*ret_last = (uint32_t)((uint64_t)n * (member + 1) / p->members);
}
