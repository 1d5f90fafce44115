/* Jobs that wait for one model: fair by user, then by priority, then first come first served. Users
 * take turns, so one with ten thousand jobs delays another's first by one job. Not locked: its
 * owner is. */
#ifndef NPUFS_CORE_ENGINE_QUEUE_H
#define NPUFS_CORE_ENGINE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct queue_user;

/* Embedded in what waits; zero-initialised. */
struct queue_item {
	uint32_t uid;
	int32_t priority; /* larger goes first among one user's */
	/* private */
	struct queue_item *next, *prev;
	struct queue_user *user; /* NULL while it does not wait */
};

struct queue {
	struct queue_user *turn; /* whose turn it is; the users form a ring */
	size_t len;
};

int queue_push(struct queue *q, struct queue_item *item);    /* 0 or -ENOMEM */
struct queue_item *queue_pop(struct queue *q);               /* NULL when empty */
bool queue_remove(struct queue *q, struct queue_item *item); /* false: it does not wait */
static inline bool queue_waits(const struct queue_item *item)
{
	return item->user != NULL;
}

/* How many are taken before `item` if nobody else comes; 0 = it is next. Counted up to
 * QUEUE_POSITION_MAX, so that asking for it costs no more than that plus the number of users. */
#define QUEUE_POSITION_MAX 1000
size_t queue_position(const struct queue *q, const struct queue_item *item);

size_t queue_user_len(const struct queue *q, uint32_t uid);

#endif
