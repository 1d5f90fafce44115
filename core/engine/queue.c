/* A ring of users, each with one list ordered by priority and arrival. A user is in the ring
 * exactly while something of theirs waits; pop takes the head of the user whose turn it is and
 * passes the turn on. Insertion walks back from the tail, so equal priorities cost nothing. */
#include "core/engine/queue.h"

#include <errno.h>
#include <stdlib.h>

struct queue_user {
	uint32_t uid;
	struct queue_user *next, *prev; /* the ring */
	struct queue_item *head, *tail;
	size_t len;
};

static struct queue_user *user_find(const struct queue *q, uint32_t uid)
{
	struct queue_user *u = q->turn;

	if (!u)
		return NULL;
	do {
		if (u->uid == uid)
			return u;
		u = u->next;
	} while (u != q->turn);
	return NULL;
}

/* A newcomer's turn comes last. */
static struct queue_user *user_join(struct queue *q, uint32_t uid)
{
	struct queue_user *u = calloc(1, sizeof *u);

	if (!u)
		return NULL;
	u->uid = uid;
	if (!q->turn) {
		u->next = u->prev = u;
		q->turn = u;
		return u;
	}
	u->next = q->turn;
	u->prev = q->turn->prev;
	u->prev->next = u;
	u->next->prev = u;
	return u;
}

static void user_leave(struct queue *q, struct queue_user *u)
{
	if (u->next == u) {
		q->turn = NULL;
	} else {
		if (q->turn == u)
			q->turn = u->next;
		u->prev->next = u->next;
		u->next->prev = u->prev;
	}
	free(u);
}

int queue_push(struct queue *q, struct queue_item *item)
{
	struct queue_user *u = user_find(q, item->uid);
	struct queue_item *before;

	if (!u)
		u = user_join(q, item->uid);
	if (!u)
		return -ENOMEM;
	before = u->tail;
	while (before && before->priority < item->priority)
		before = before->prev;
	item->prev = before;
	item->next = before ? before->next : u->head;
	*(item->prev ? &item->prev->next : &u->head) = item;
	*(item->next ? &item->next->prev : &u->tail) = item;
	item->user = u;
	u->len++;
	q->len++;
	return 0;
}

bool queue_remove(struct queue *q, struct queue_item *item)
{
	struct queue_user *u = item->user;

	if (!u)
		return false;
	*(item->prev ? &item->prev->next : &u->head) = item->next;
	*(item->next ? &item->next->prev : &u->tail) = item->prev;
	item->next = item->prev = NULL;
	item->user = NULL;
	q->len--;
	if (--u->len == 0)
		user_leave(q, u);
	return true;
}

struct queue_item *queue_pop(struct queue *q)
{
	struct queue_user *u = q->turn;
	struct queue_item *item;

	if (!u)
		return NULL;
	item = u->head;
	q->turn = u->next;
	queue_remove(q, item);
	return item;
}

size_t queue_position(const struct queue *q, const struct queue_item *item)
{
	size_t own = 0, others = 0;
	bool passed_own = false;

	for (const struct queue_item *i = item->prev; i && own < QUEUE_POSITION_MAX; i = i->prev)
		own++;
	/* Users before ours in the ring have had one turn more when ours comes. */
	for (const struct queue_user *u = q->turn; u; u = u->next == q->turn ? NULL : u->next) {
		size_t turns = passed_own ? own : own + 1;

		if (u == item->user)
			passed_own = true;
		else
			others += u->len < turns ? u->len : turns;
	}
	return own + others < QUEUE_POSITION_MAX ? own + others : QUEUE_POSITION_MAX;
}

size_t queue_user_len(const struct queue *q, uint32_t uid)
{
	const struct queue_user *u = user_find(q, uid);

	return u ? u->len : 0;
}
