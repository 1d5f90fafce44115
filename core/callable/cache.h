/* The callables of one device context: prepared once, launched many times. Images up to a block's size
 * share blocks, a larger one has an allocation of its own; what was published stays where it is until
 * the context closes, and there is no other way to give anything back. Limits and errors: limits.h.
 *
 * One caller at a time: it takes no lock. Launching neither allocates nor waits. */
#ifndef NPUFS_CORE_CALLABLE_CACHE_H
#define NPUFS_CORE_CALLABLE_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/fault.h"
#include "core/callable/memory.h"
#include "core/callable/packet.h"

struct callable_cache;

struct callable_figures {
	uint64_t resident_bytes;  /* of the images that can be launched */
	uint64_t allocated_bytes; /* of all blocks, used or not */
	uint64_t buffer_bytes;    /* of what launches work on (buffer.h) */
	uint32_t registrations;
	bool poisoned;
};

/* NULL: no memory of the host. None of the device is taken before it is needed. */
struct callable_cache *callable_cache_new(const struct callable_memory_ops *ops, void *context);
/* Only what was closed, or never prepared anything; NULL is fine. */
void callable_cache_free(struct callable_cache *c);

/* Validate, place, upload and register an image; `bytes` are free for re-use afterwards. Every call
 * gives a new id, also for the same bytes: 0, 1, 2, ... A failure gives -1; no id was used up, no
 * resident was touched, and device memory that was taken on the way is there for the next one. */
int32_t callable_prepare(struct callable_cache *c, const void *bytes, uint64_t len,
	struct fault *f);

/* Hand a packet to the device, or to the graph while one is being captured. */
int callable_launch(struct callable_cache *c, int32_t id, const struct callable_args *args,
	struct fault *f);

/* Until nothing that was launched runs any more. The only call that waits, but for the close. */
int callable_wait(struct callable_cache *c, struct fault *f);

/* Always -EBADFD: callables stay until the context closes. */
int callable_unregister(struct callable_cache *c, int32_t id, struct fault *f);

/* Where the image is on the device. */
int callable_resolve(struct callable_cache *c, int32_t id, uint64_t *ret_address,
	uint64_t *ret_bytes, struct fault *f);

/* Wait for the device, destroy the graphs, release every block. What fails to release stays owned;
 * the error is reported, and another call releases what is left. From the first call on nothing can
 * be prepared or launched. 0 when there is nothing left, also when called again. */
int callable_close(struct callable_cache *c, struct fault *f);

/* The device is gone, and all of its memory with it: what the context had there is forgotten, and it
 * is closed. */
void callable_lose(struct callable_cache *c);

struct callable_figures callable_figures(const struct callable_cache *c);
const struct callable_memory_counts *callable_counts(const struct callable_cache *c);

#endif
