#include "core/engine/deadlines.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "core/base/mem.h"

#define FIRST_CAP 16

static void put_at(struct deadlines *d, size_t i, struct deadline *item)
{
	d->heap[i] = item;
	item->place = i + 1;
}

static void swap(struct deadlines *d, size_t a, size_t b)
{
	struct deadline *item = d->heap[a];

	put_at(d, a, d->heap[b]);
	put_at(d, b, item);
}

static bool before(const struct deadlines *d, size_t a, size_t b)
{
	return d->heap[a]->at < d->heap[b]->at;
}

static void rise(struct deadlines *d, size_t i)
{
	for (; i > 0 && before(d, i, (i - 1) / 2); i = (i - 1) / 2)
		swap(d, i, (i - 1) / 2);
}

static void sink(struct deadlines *d, size_t i)
{
	for (;;) {
		size_t least = i, left = 2 * i + 1, right = left + 1;

		if (left < d->len && before(d, left, least))
			least = left;
		if (right < d->len && before(d, right, least))
			least = right;
		if (least == i)
			return;
		swap(d, i, least);
		i = least;
	}
}

static int make_room(struct deadlines *d)
{
	struct deadline **heap = mem_grow(d->heap, d->len, &d->cap, FIRST_CAP, sizeof *heap);

	if (!heap)
		return -ENOMEM;
	d->heap = heap;
	return 0;
}

int deadlines_add(struct deadlines *d, struct deadline *item)
{
	if (make_room(d))
		return -ENOMEM;
	put_at(d, d->len++, item);
	rise(d, d->len - 1);
	return 0;
}

void deadlines_remove(struct deadlines *d, struct deadline *item)
{
	size_t i = item->place;

	if (i-- == 0)
		return;
	item->place = 0;
	if (i == --d->len)
		return;
	put_at(d, i, d->heap[d->len]);
	rise(d, i);
	sink(d, i);
}

int64_t deadlines_next(const struct deadlines *d)
{
	return d->len ? d->heap[0]->at : INT64_MAX;
}

struct deadline *deadlines_pop(struct deadlines *d)
{
	struct deadline *first = d->len ? d->heap[0] : NULL;

	if (first)
		deadlines_remove(d, first);
	return first;
}

void deadlines_done(struct deadlines *d)
{
	free(d->heap);
	*d = (struct deadlines){ 0 };
}
