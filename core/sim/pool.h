/* Threads that compute one thing together. Work is given as a function that is entered by every
 * member at once, with its number; members share the work by their number and meet at barriers. A
 * pool of one has no threads at all: the caller is member 0, and barriers cost nothing. */
#ifndef NPUFS_CORE_SIM_POOL_H
#define NPUFS_CORE_SIM_POOL_H

#include <stdint.h>

#define POOL_MAX 64

struct pool;

/* 0, -ENOMEM or -EAGAIN. `members` is cut to 1..POOL_MAX. */
int pool_new(unsigned members, struct pool **ret);
void pool_free(struct pool *p); /* NULL is fine */

unsigned pool_members(const struct pool *p);

/* work(arg, member) in every member; returns when all have. One caller at a time. */
void pool_run(struct pool *p, void (*work)(void *arg, unsigned member), void *arg);

/* In `work`: wait for all members. What each wrote before is seen by all after. */
void pool_barrier(struct pool *p);

/* The share [*ret_first, *ret_last) of n items that is `member`'s. */
void pool_share(const struct pool *p, unsigned member, uint32_t n, uint32_t *ret_first,
	uint32_t *ret_last);

#endif
