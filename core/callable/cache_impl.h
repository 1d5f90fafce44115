/* The context's inside, for cache*.c and graph.c. */
#ifndef NPUFS_CORE_CALLABLE_CACHE_IMPL_H
#define NPUFS_CORE_CALLABLE_CACHE_IMPL_H

#include "core/callable/cache.h"
#include "core/callable/graph.h"
#include "core/callable/limits.h"

enum cache_state { CACHE_OPEN, CACHE_CLOSING, CACHE_CLOSED };

struct cache_block {
	uint64_t address, bytes;
	uint64_t used; /* from the start; what is behind it is free */
	bool shared;   /* of CALLABLE_BLOCK_BYTES; else for one image */
};

struct cache_buffer {
	uint64_t address, bytes;
};

/* The first `n` blocks have no room for an image that shares and has `bytes` or more. */
struct cache_full {
	uint64_t bytes;
	size_t n;
};

struct cache_entry {
	uint64_t address, bytes;
	uint32_t n_tensors, n_scalars;
};

struct callable_cache {
	struct callable_memory memory;
	enum cache_state state;
	bool poisoned;
	bool drained; /* since closing began */
	struct cache_block *blocks;
	size_t n_blocks, cap_blocks;
	struct cache_full full;
	struct cache_entry *entries; /* by id */
	size_t n_entries, cap_entries;
	uint64_t resident, allocated;
	struct cache_buffer *buffers;
	size_t n_buffers, cap_buffers;
	uint64_t buffered;             /* bytes */
	struct callable_graph *graphs; /* all that are not destroyed, but the one being captured */
	struct callable_graph *capturing;
	struct packet packet; /* the one that is being launched */
};

struct callable_graph {
	struct callable_cache *cache; /* NULL: destroyed */
	struct callable_graph *next;
	uint32_t n, most;
	struct packet *packets;
};

/* The life-cycle errors that all calls share. */
int cache_check_open(const struct callable_cache *c, struct fault *f);
/* An error of the device's; it poisons the context where the device's state is unknown after it. */
int cache_device_failed(struct callable_cache *c, enum npu_error code, const char *what,
	struct fault *f);

/* Room for an image of `bytes`, which begins at blocks[*ret].address + used; nothing is taken from
 * it yet. */
int cache_place(struct callable_cache *c, uint64_t bytes, size_t *ret, struct fault *f);
/* One pass over all blocks; the first code that is not NPU_SUCCESS. */
enum npu_error cache_release(struct callable_cache *c);
enum npu_error cache_release_buffers(struct callable_cache *c); /* likewise */

/* --- graph.c ---------------------------------------------------------------------------------- */

int graph_add(struct callable_graph *g, const struct packet *p, struct fault *f);
/* It keeps nothing but its struct, which is its owner's. */
void graph_destroy(struct callable_graph *g);

#endif
