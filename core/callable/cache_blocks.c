/* Only a successful registration moves `used` on. So a failed one leaves its room free without having
 * to undo anything, and a block that was allocated for it stays for the next: releasing it could
 * wait for the device, which preparing must not do.
 *
 * An allocation that a large image left behind serves a later one of the same size. When the cap is
 * in the way, such allocations are given up, so that they never cost a resident its place; not while
 * a capture is on. Every block has at least CALLABLE_BLOCK_BYTES, so that there are at most 1024.
 *
 * Room only shrinks, so what the last search found too full is so for the next image of that size
 * too: registering costs the same with many blocks as with few. */
#include "core/callable/cache_impl.h"

#include <errno.h>
#include <inttypes.h>

#include "core/base/mem.h"

static bool is_spare(const struct cache_block *b)
{
	return !b->shared && !b->used;
}

static bool fits(const struct cache_block *b, uint64_t bytes)
{
	if (bytes > CALLABLE_BLOCK_BYTES)
		return is_spare(b) && b->bytes == bytes;
	return b->shared && b->bytes - b->used >= bytes;
}

/* --- releasing -------------------------------------------------------------------------------- */

/* Release the blocks that `chosen` says, keeping the order of the rest: entries do not point here,
 * but a block that failed is tried again where it stood. */
static enum npu_error release_blocks(struct callable_cache *c,
	bool (*chosen)(const struct cache_block *b))
{
	enum npu_error first = NPU_SUCCESS;
	size_t kept = 0;

	for (size_t i = 0; i < c->n_blocks; i++) {
		struct cache_block *b = &c->blocks[i];
		enum npu_error code = NPU_SUCCESS;
		bool take = chosen(b);

		if (take)
			code = memory_release(&c->memory, b->address);
		if (first == NPU_SUCCESS)
			first = code;
		if (take && code == NPU_SUCCESS)
			c->allocated -= b->bytes;
		else
			c->blocks[kept++] = *b;
	}
	c->n_blocks = kept;
	c->full.n = 0;
	return first;
}

static bool is_any(const struct cache_block *b)
{
	(void)b;
	return true;
}

enum npu_error cache_release(struct callable_cache *c)
{
	return release_blocks(c, is_any);
}

/* --- growing ---------------------------------------------------------------------------------- */

static int check_cap(struct callable_cache *c, uint64_t bytes, struct fault *f)
{
	enum npu_error code = NPU_SUCCESS;

	if (c->allocated + bytes > CALLABLE_BYTES_MAX && !c->capturing)
		code = release_blocks(c, is_spare);
	if (code != NPU_SUCCESS)
		return cache_device_failed(c, code, "giving up device memory", f);
	if (c->allocated + bytes <= CALLABLE_BYTES_MAX)
		return 0;
	return fault_at(f, -ENOSPC, "allocated_bytes", -1, "close the context and prepare less",
		"%" PRIu64 " more bytes are over the limit of %llu; %" PRIu64 " are allocated",
		bytes, CALLABLE_BYTES_MAX, c->allocated);
}

static bool usable(uint64_t address, uint64_t bytes)
{
	return address && address % CALLABLE_ALIGN == 0 && address <= UINT64_MAX - bytes;
}

static int allocate(struct callable_cache *c, struct cache_block *b, struct fault *f)
{
	enum npu_error code = memory_allocate(&c->memory, b->bytes, CALLABLE_ALIGN, &b->address);

	if (code != NPU_SUCCESS)
		return cache_device_failed(c, code, "allocating device memory", f);
	if (!usable(b->address, b->bytes))
		return cache_device_failed(c, NPU_NOT_EXPECTED, "looking at device memory", f);
	return 0;
}

static int add_block(struct callable_cache *c, uint64_t bytes, struct fault *f)
{
	bool shared = bytes <= CALLABLE_BLOCK_BYTES;
	struct cache_block b = { .bytes = shared ? CALLABLE_BLOCK_BYTES : bytes, .shared = shared };
	struct cache_block *moved;
	int err = check_cap(c, b.bytes, f);

	if (err)
		return err;
	moved = mem_grow(c->blocks, c->n_blocks, &c->cap_blocks, 16, sizeof b);
	if (!moved)
		return fault_set(f, -ENOMEM, "try again later", "no memory for another block");
	c->blocks = moved;
	err = allocate(c, &b, f);
	if (b.address) {
		c->blocks[c->n_blocks++] = b;
		c->allocated += b.bytes;
	}
	return err;
}

/* The first block with room for so many bytes; n_blocks: none has. */
static size_t find_block(const struct callable_cache *c, uint64_t bytes)
{
	bool shares = bytes <= CALLABLE_BLOCK_BYTES;
	size_t i = shares && bytes >= c->full.bytes ? c->full.n : 0;

	while (i < c->n_blocks && !fits(&c->blocks[i], bytes))
		i++;
	return i;
}

int cache_place(struct callable_cache *c, uint64_t bytes, size_t *ret, struct fault *f)
{
	size_t i;
	int err;

	bytes = CALLABLE_ALIGN_UP(bytes, CALLABLE_ALIGN);
	i = find_block(c, bytes);
	if (i == c->n_blocks) {
		err = add_block(c, bytes, f);
		if (err)
			return err;
		i = c->n_blocks - 1; /* where it now is, after others may have gone */
	}
	if (bytes <= CALLABLE_BLOCK_BYTES)
		c->full = (struct cache_full){ bytes, i };
	*ret = i;
	return 0;
}
