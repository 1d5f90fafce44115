/* Points in time to act at, the earliest first: a binary heap of items embedded in what has a
 * deadline. Not locked: its owner is. */
#ifndef NPUFS_CORE_ENGINE_DEADLINES_H
#define NPUFS_CORE_ENGINE_DEADLINES_H

#include <stddef.h>
#include <stdint.h>

/* Zero-initialised: not in a heap. */
struct deadline {
	int64_t at;   /* monotonic ns; fixed while in the heap */
	size_t place; /* private: 1 + index; 0 outside */
};

struct deadlines {
	struct deadline **heap;
	size_t len, cap;
};

int deadlines_add(struct deadlines *d, struct deadline *item);     /* 0 or -ENOMEM */
void deadlines_remove(struct deadlines *d, struct deadline *item); /* nothing when it is not in */
int64_t deadlines_next(const struct deadlines *d);                 /* INT64_MAX when empty */
struct deadline *deadlines_pop(struct deadlines *d);               /* NULL when empty */
void deadlines_done(struct deadlines *d);

#endif
