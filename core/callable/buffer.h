/* Device memory for what launches work on: the caller's, beside the blocks of the images. What is not
 * given back is released by callable_close() with all the rest. Errors: limits.h. */
#ifndef NPUFS_CORE_CALLABLE_BUFFER_H
#define NPUFS_CORE_CALLABLE_BUFFER_H

#include "core/callable/cache.h"

/* At least `bytes` (1 or more), at a multiple of CALLABLE_ALIGN. -ENOSPC names "buffer_bytes". */
int callable_buffer_take(struct callable_cache *c, uint64_t bytes, uint64_t *ret_address,
	struct fault *f);
/* `from` is free for re-use when it returns. */
int callable_buffer_write(struct callable_cache *c, uint64_t address, const void *from,
	uint64_t bytes, struct fault *f);
/* What was launched before must be waited for first: callable_wait(). */
int callable_buffer_read(struct callable_cache *c, void *to, uint64_t address, uint64_t bytes,
	struct fault *f);
/* On failure the context keeps it, and releases it when it closes. */
int callable_buffer_release(struct callable_cache *c, uint64_t address, struct fault *f);

#endif
