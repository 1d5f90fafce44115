/* The locks that a thread holds, in the order it took them. Each was of higher rank than all
 * before it and leaving one out keeps the rest in order, so the last entry has the highest rank
 * and is all that a take must be compared with. A lock stays listed while its holder waits for a
 * condition with it: the thread runs nothing in between.
 *
 * The checks are compiled always and called only where NPUFS_DEBUG is 1, so one test can ask for
 * them in any build. */
#include "core/base/lock.h"

#include <stdio.h>
#include <stdlib.h>

#define HELD_MAX 16 /* more than there are ranks */

static _Thread_local const struct lock *held[HELD_MAX];
static _Thread_local unsigned n_held;

void lock_init(struct lock *l, enum lock_rank rank, const char *name)
{
	pthread_mutex_init(&l->m, NULL);
	l->rank = rank;
	l->name = name;
}

void lock_done(struct lock *l)
{
	pthread_mutex_destroy(&l->m);
}

void lock_cond_init(struct lock_cond *c)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&c->c, &attr);
	pthread_condattr_destroy(&attr);
}

void lock_cond_done(struct lock_cond *c)
{
	pthread_cond_destroy(&c->c);
}

static _Noreturn void breach(const char *what, const struct lock *l)
{
	fprintf(stderr, "npufs: lock breach: %s", what);
	if (l)
		fprintf(stderr, " %s (%d)", l->name, (int)l->rank);
	fputs("; held:", stderr);
	for (unsigned i = 0; i < n_held; i++)
		fprintf(stderr, " %s (%d)", held[i]->name, (int)held[i]->rank);
	fputs(n_held ? "\n" : " none\n", stderr);
	abort();
}

/* n_held when it is not held. */
static unsigned find(const struct lock *l)
{
	unsigned i = 0;

	while (i < n_held && held[i] != l)
		i++;
	return i;
}

void lock_check_take(const struct lock *l)
{
	if (n_held && held[n_held - 1]->rank >= l->rank)
		breach("rank does not rise on taking", l);
	if (n_held == HELD_MAX)
		breach("too many locks on taking", l);
	held[n_held++] = l;
}

void lock_check_drop(const struct lock *l)
{
	unsigned i = find(l);

	if (i == n_held)
		breach("dropping without holding", l);
	n_held--;
	for (; i < n_held; i++)
		held[i] = held[i + 1];
}

void lock_check_held(const struct lock *l)
{
	if (find(l) == n_held)
		breach("needs to be held:", l);
}

void lock_check_only(const struct lock *l)
{
	if (n_held != 1 || held[0] != l)
		breach("waiting needs this lock and no other:", l);
}

void lock_check_none(void)
{
	if (n_held)
		breach("no lock may be held here", NULL);
}
