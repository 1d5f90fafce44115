#include "core/callable/buffer.h"

#include <errno.h>
#include <inttypes.h>

#include "core/base/mem.h"
#include "core/callable/cache_impl.h"

static int check_room(const struct callable_cache *c, uint64_t bytes, struct fault *f)
{
	if (bytes <= CALLABLE_BUFFER_BYTES_MAX && c->buffered <= CALLABLE_BUFFER_BYTES_MAX - bytes)
		return 0;
	return fault_at(f, -ENOSPC, "buffer_bytes", -1, "use less at once",
		"%" PRIu64 " more bytes are over the limit of %llu; %" PRIu64 " are in use", bytes,
		CALLABLE_BUFFER_BYTES_MAX, c->buffered);
}

int callable_buffer_take(struct callable_cache *c, uint64_t bytes, uint64_t *ret_address,
	struct fault *f)
{
	struct cache_buffer b = { .bytes = bytes }, *moved;
	enum npu_error code;
	int err;

	if (!bytes)
		return fault_set(f, -EINVAL, "ask for one byte at least", "a buffer of 0 bytes");
	err = cache_check_open(c, f);
	if (!err)
		err = check_room(c, bytes, f);
	if (err)
		return err;
	moved = mem_grow(c->buffers, c->n_buffers, &c->cap_buffers, 16, sizeof b);
	if (!moved)
		return fault_set(f, -ENOMEM, "try again later", "no memory for a buffer");
	c->buffers = moved;
	code = memory_allocate(&c->memory, bytes, CALLABLE_ALIGN, &b.address);
	if (code != NPU_SUCCESS)
		return cache_device_failed(c, code, "allocating device memory", f);
	c->buffers[c->n_buffers++] = b;
	c->buffered += bytes;
	*ret_address = b.address;
	return 0;
}

int callable_buffer_write(struct callable_cache *c, uint64_t address, const void *from,
	uint64_t bytes, struct fault *f)
{
	int err = cache_check_open(c, f);
	enum npu_error code = err ? NPU_SUCCESS : memory_copy(&c->memory, address, from, bytes);

	return code == NPU_SUCCESS ? err : cache_device_failed(c, code, "writing device memory", f);
}

int callable_buffer_read(struct callable_cache *c, void *to, uint64_t address, uint64_t bytes,
	struct fault *f)
{
	int err = cache_check_open(c, f);
	enum npu_error code = err ? NPU_SUCCESS : memory_fetch(&c->memory, to, address, bytes);

	return code == NPU_SUCCESS ? err : cache_device_failed(c, code, "reading device memory", f);
}

int callable_buffer_release(struct callable_cache *c, uint64_t address, struct fault *f)
{
	enum npu_error code;
	size_t i = 0;

	while (i < c->n_buffers && c->buffers[i].address != address)
		i++;
	if (i == c->n_buffers)
		return 0; /* the context has closed, and released it */
	code = memory_release(&c->memory, address);
	if (code != NPU_SUCCESS)
		return cache_device_failed(c, code, "releasing device memory", f);
	c->buffered -= c->buffers[i].bytes;
	c->buffers[i] = c->buffers[--c->n_buffers];
	return 0;
}

enum npu_error cache_release_buffers(struct callable_cache *c)
{
	enum npu_error first = NPU_SUCCESS;
	size_t kept = 0;

	for (size_t i = 0; i < c->n_buffers; i++) {
		enum npu_error code = memory_release(&c->memory, c->buffers[i].address);

		if (first == NPU_SUCCESS)
			first = code;
		if (code == NPU_SUCCESS)
			c->buffered -= c->buffers[i].bytes;
		else
			c->buffers[kept++] = c->buffers[i];
	}
	c->n_buffers = kept;
	return first;
}
