/* Ranked mutexes. A thread takes locks only in rising rank, so no two threads can wait for each
 * other; two locks of one rank are never held together. No lock is held across a reply to the
 * kernel, a callback into another module or a wait for the device: lock_assert_none() stands in
 * front of those.
 *
 * With NPUFS_DEBUG=1 every breach prints what was held and aborts. Without it a lock is a bare
 * pthread mutex and the assertions are nothing. Functions named *_locked() begin with
 * lock_assert_held(). */
#ifndef NPUFS_CORE_BASE_LOCK_H
#define NPUFS_CORE_BASE_LOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#ifndef NPUFS_DEBUG
#define NPUFS_DEBUG 0
#endif

enum lock_rank {
	RANK_CONTROL = 15,
	RANK_ENGINE = 20,
	RANK_SESSIONS = 25,
	RANK_CALLABLES = 26,
	RANK_PARK = 28,
	RANK_LATER = 29,
	RANK_JOB = 30,
	RANK_ANNOUNCE = 45,
	RANK_NOTIFY = 46,
	RANK_SPOOL = 47,
	RANK_JOBAUDIT = 48,
	RANK_MODELS = 50,
	RANK_TRACE_RECORD = 54,
	RANK_HEALTH = 55,
	RANK_PRIVILEGED = 56,
	RANK_AUDIT = 57,
	RANK_APPROVALS = 58,
	RANK_TRACE = 59,
	RANK_METRICS = 60,
	RANK_DEVICE = 65, /* inside a software device */
	RANK_LAYER = 66,
	RANK_LOG = 70,
};

struct lock {
	pthread_mutex_t m;
	enum lock_rank rank; /* fixed after init, as is the name */
	const char *name;    /* borrowed; for the message of a breach */
};

/* A lock with static storage needs no lock_init(). */
#define LOCK_INIT(rank, name) \
	{ \
		PTHREAD_MUTEX_INITIALIZER, (rank), (name) \
	}

void lock_init(struct lock *l, enum lock_rank rank, const char *name);
void lock_done(struct lock *l); /* nobody holds it or waits for it */

/* A condition, waited for with the monotonic clock. The lock waited with is the only one the
 * thread holds: waiting gives up that one alone. Wakings may be spurious, so the caller tests its
 * condition in a loop. */
struct lock_cond {
	pthread_cond_t c;
};

void lock_cond_init(struct lock_cond *c);
void lock_cond_done(struct lock_cond *c);

/* The checks; called by the functions below when NPUFS_DEBUG is 1. */
void lock_check_take(const struct lock *l);
void lock_check_drop(const struct lock *l);
void lock_check_held(const struct lock *l);
void lock_check_only(const struct lock *l);
void lock_check_none(void);

static inline void lock_take(struct lock *l)
{
#if NPUFS_DEBUG
	lock_check_take(l);
#endif
	pthread_mutex_lock(&l->m);
}

static inline void lock_drop(struct lock *l)
{
#if NPUFS_DEBUG
	lock_check_drop(l);
#endif
	pthread_mutex_unlock(&l->m);
}

static inline void lock_assert_held(const struct lock *l)
{
#if NPUFS_DEBUG
	lock_check_held(l);
#else
	(void)l;
#endif
}

/* This thread holds no lock at all. */
static inline void lock_assert_none(void)
{
#if NPUFS_DEBUG
	lock_check_none();
#endif
}

static inline void lock_cond_signal(struct lock_cond *c)
{
	pthread_cond_signal(&c->c);
}

static inline void lock_cond_broadcast(struct lock_cond *c)
{
	pthread_cond_broadcast(&c->c);
}

static inline void lock_cond_wait(struct lock_cond *c, struct lock *l)
{
#if NPUFS_DEBUG
	lock_check_only(l);
#endif
	pthread_cond_wait(&c->c, &l->m);
}

/* `deadline` is a time of CLOCK_MONOTONIC. True when it passed. */
static inline bool lock_cond_wait_until(struct lock_cond *c, struct lock *l,
	const struct timespec *deadline)
{
#if NPUFS_DEBUG
	lock_check_only(l);
#endif
	return pthread_cond_timedwait(&c->c, &l->m, deadline) != 0;
}

#endif
