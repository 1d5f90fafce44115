/* Scope cleanup and ownership hand-over: AUTO_FREE frees at the end of the scope, take_ptr() moves
 * a pointer out of its holder so that the cleanup finds NULL. */
#ifndef NPUFS_CORE_BASE_MEM_H
#define NPUFS_CORE_BASE_MEM_H

#include <stdlib.h>

static inline void mem_free_cleanup(void *holder)
{
	free(*(void **)holder);
}

#define AUTO_CLEANUP(fn) __attribute__((cleanup(fn)))
#define AUTO_FREE        AUTO_CLEANUP(mem_free_cleanup)

#define take_ptr(holder) \
	__extension__({ \
		__typeof__(holder) taken_ = (holder); \
		(holder) = NULL; \
		taken_; \
	})

/* Room for one more behind `len` rows of `size` bytes, twice as many as before when it is used up, at
 * first `first`: the rows, perhaps moved, or NULL without memory, when they stay where they are. */
static inline void *mem_grow(void *rows, size_t len, size_t *cap, size_t first, size_t size)
{
	size_t more = *cap ? *cap * 2 : first;
	void *moved = rows;

	if (len < *cap)
		return rows;
	moved = realloc(rows, more * size);
	if (moved)
		*cap = more;
	return moved;
}

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#endif
