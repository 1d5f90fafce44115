/* A prepare takes its steps in an order in which each can still fail without a trace, and publishes
 * last, where nothing can fail any more:
 *
 *   validate the image      -EINVAL before anything else, whatever the state
 *   open, not poisoned      life-cycle
 *   an id, a row of the host
 *   [ the thread's capture mode is relaxed ]
 *   a place, the upload, the device's table
 *   [ and restored ]
 *   publish: the block's used, the entry, the figures
 *
 * Ids are the indices of the entries, so they are minted in order, and a failure uses none up. */
#include "core/callable/cache_impl.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>

#include "core/base/mem.h"
#include "core/callable/image.h"

/* --- errors that all share -------------------------------------------------------------------- */

int cache_check_open(const struct callable_cache *c, struct fault *f)
{
	if (c->state != CACHE_OPEN)
		return fault_set(f, -EBADFD, "open another context", "the context is closed");
	if (c->poisoned)
		return fault_set(f, -ENOTRECOVERABLE, "close the context and open another",
			"the context is poisoned: the state of the device is unknown");
	return 0;
}

/* What reaches beyond one feature of the device may have left anything behind; that there is no
 * memory is a refusal before anything was touched. */
static bool leaves_unknown(enum npu_error code)
{
	return npu_error_row(code)->taints >= NPU_TAINTS_GENERATION &&
		code != NPU_MEMORY_ALLOCATION;
}

int cache_device_failed(struct callable_cache *c, enum npu_error code, const char *what,
	struct fault *f)
{
	if (leaves_unknown(code))
		c->poisoned = true;
	return fault_from_device(f, code, what);
}

static int check_id(int32_t id, struct fault *f)
{
	if (id < 0 || id >= CALLABLE_IDS_MAX)
		return fault_at(f, -EINVAL, "id", -1, "use an id that was prepared",
			"%" PRId32 " is not in 0..%d", id, CALLABLE_IDS_MAX - 1);
	return 0;
}

/* NULL: not resident, as `f` says. */
static const struct cache_entry *find_entry(const struct callable_cache *c, int32_t id,
	struct fault *f)
{
	if ((size_t)id < c->n_entries)
		return &c->entries[id];
	fault_at(f, -ENOENT, "id", -1, "use an id that was prepared",
		"no callable %" PRId32 " is resident", id);
	return NULL;
}

/* --- prepare ---------------------------------------------------------------------------------- */

static int reserve_entry(struct callable_cache *c, struct fault *f)
{
	struct cache_entry *moved;

	if (c->n_entries == CALLABLE_IDS_MAX)
		return fault_at(f, -ENOSPC, "registrations", -1,
			"close the context and prepare less",
			"the limit of %d registrations is reached", CALLABLE_IDS_MAX);
	moved = mem_grow(c->entries, c->n_entries, &c->cap_entries, 64, sizeof *moved);
	if (!moved)
		return fault_set(f, -ENOMEM, "try again later", "no memory for another callable");
	c->entries = moved;
	return 0;
}

/* Everything that touches the device; *ret is the block that it went to. */
static int upload(struct callable_cache *c, const void *bytes, uint64_t len, size_t *ret,
	struct fault *f)
{
	int err = cache_place(c, len, ret, f);
	enum npu_error code;
	uint64_t to;

	if (err)
		return err;
	to = c->blocks[*ret].address + c->blocks[*ret].used;
	code = memory_copy(&c->memory, to, bytes, len);
	if (code != NPU_SUCCESS)
		return cache_device_failed(c, code, "uploading a callable", f);
	code = memory_enroll(&c->memory, (int32_t)c->n_entries, to, len);
	return code == NPU_SUCCESS ? 0 : cache_device_failed(c, code, "registering a callable", f);
}

/* A thread whose mode is not what the capture was begun with is of unknown state, too. */
static int restore_failed(struct callable_cache *c, enum npu_error code, int err, struct fault *f)
{
	struct fault restore = FAULT_NONE, before = FAULT_NONE;

	if (err && f)
		before = *f;
	cache_device_failed(c, code, "restoring the thread's capture mode", &restore);
	c->poisoned = true;
	restore.err = fault_set(f, err ? err : restore.err, "close the context and open another",
		"%s%s%s", restore.reason, err ? "; before that: " : "", before.reason);
	if (f)
		f->device = code;
	return restore.err;
}

static int upload_relaxed(struct callable_cache *c, const void *bytes, uint64_t len, size_t *ret,
	struct fault *f)
{
	enum capture_mode mode = CAPTURE_RELAXED;
	enum npu_error code = memory_exchange_mode(&c->memory, &mode);
	int err;

	if (code != NPU_SUCCESS)
		return cache_device_failed(c, code, "relaxing the thread's capture mode", f);
	err = upload(c, bytes, len, ret, f);
	code = memory_exchange_mode(&c->memory, &mode);
	return code == NPU_SUCCESS ? err : restore_failed(c, code, err, f);
}

static int32_t publish(struct callable_cache *c, const struct image *image, size_t block)
{
	struct cache_block *b = &c->blocks[block];
	uint64_t charged = CALLABLE_ALIGN_UP(image->header.total_bytes, CALLABLE_ALIGN);

	c->entries[c->n_entries] = (struct cache_entry){ b->address + b->used,
		image->header.total_bytes, image->header.n_tensors, image->header.n_scalars };
	b->used += charged;
	c->resident += charged;
	return (int32_t)c->n_entries++;
}

int32_t callable_prepare(struct callable_cache *c, const void *bytes, uint64_t len, struct fault *f)
{
	struct image image;
	size_t block;

	if (image_validate(bytes, len, &image, f) || cache_check_open(c, f) || reserve_entry(c, f))
		return -1;
	if (c->capturing ? upload_relaxed(c, bytes, len, &block, f)
			 : upload(c, bytes, len, &block, f))
		return -1;
	return publish(c, &image, block);
}

/* --- launch ----------------------------------------------------------------------------------- */

static int check_args(const struct callable_args *args, struct fault *f)
{
	if (args->n_tensors > CALLABLE_TENSORS_MAX || (args->n_tensors && !args->tensors))
		return fault_at(f, -EINVAL, "tensors", -1, "give as many as the callable takes",
			"%" PRIu32 " tensors", args->n_tensors);
	if (args->n_scalars > CALLABLE_SCALARS_MAX || (args->n_scalars && !args->scalars))
		return fault_at(f, -EINVAL, "scalars", -1, "give as many as the callable takes",
			"%" PRIu32 " scalars", args->n_scalars);
	return 0;
}

static int check_signature(const struct cache_entry *e, const struct callable_args *args,
	struct fault *f)
{
	if (e->n_tensors == args->n_tensors && e->n_scalars == args->n_scalars)
		return 0;
	return fault_at(f, -EINVAL, e->n_tensors == args->n_tensors ? "scalars" : "tensors", -1,
		"give as many as the callable takes",
		"%" PRIu32 " tensors and %" PRIu32 " scalars, not %" PRIu32 " and %" PRIu32,
		args->n_tensors, args->n_scalars, e->n_tensors, e->n_scalars);
}

static int submit(struct callable_cache *c, struct fault *f)
{
	enum npu_error code;

	if (c->capturing)
		return graph_add(c->capturing, &c->packet, f);
	code = memory_launch(&c->memory, c->packet.data, c->packet.bytes);
	return code == NPU_SUCCESS ? 0 : cache_device_failed(c, code, "launching a callable", f);
}

static int find_resident(struct callable_cache *c, int32_t id, const struct cache_entry **ret,
	struct fault *f)
{
	int err = cache_check_open(c, f);

	if (err)
		return err;
	*ret = find_entry(c, id, f);
	return *ret ? 0 : -ENOENT;
}

int callable_launch(struct callable_cache *c, int32_t id, const struct callable_args *args,
	struct fault *f)
{
	const struct cache_entry *e = NULL;
	int err = check_id(id, f);

	if (!err)
		err = check_args(args, f);
	if (!err)
		err = find_resident(c, id, &e, f);
	if (!err)
		err = check_signature(e, args, f);
	if (err)
		return err;
	packet_make(&c->packet, c->capturing ? PACKET_REPLAY : PACKET_LAUNCH, id, e->address,
		e->bytes, args);
	return submit(c, f);
}

int callable_wait(struct callable_cache *c, struct fault *f)
{
	int err = cache_check_open(c, f);
	enum npu_error code = err ? NPU_SUCCESS : memory_drain(&c->memory);

	return code == NPU_SUCCESS ? err : cache_device_failed(c, code, "waiting for what runs", f);
}

/* --- what there is ---------------------------------------------------------------------------- */

int callable_unregister(struct callable_cache *c, int32_t id, struct fault *f)
{
	(void)c;
	return fault_at(f, -EBADFD, "id", -1, "close the context",
		"callable %" PRId32 " cannot be unregistered: callables stay until the close", id);
}

int callable_resolve(struct callable_cache *c, int32_t id, uint64_t *ret_address,
	uint64_t *ret_bytes, struct fault *f)
{
	const struct cache_entry *e = NULL;
	int err = check_id(id, f);

	if (!err)
		err = find_resident(c, id, &e, f);
	if (err)
		return err;
	*ret_address = e->address;
	*ret_bytes = e->bytes;
	return 0;
}

struct callable_figures callable_figures(const struct callable_cache *c)
{
	return (struct callable_figures){ .resident_bytes = c->resident,
		.allocated_bytes = c->allocated,
		.buffer_bytes = c->buffered,
		.registrations = (uint32_t)c->n_entries,
		.poisoned = c->poisoned };
}

const struct callable_memory_counts *callable_counts(const struct callable_cache *c)
{
	return &c->memory.counts;
}

/* --- life ------------------------------------------------------------------------------------- */

struct callable_cache *callable_cache_new(const struct callable_memory_ops *ops, void *context)
{
	struct callable_cache *c = calloc(1, sizeof *c);

	if (c)
		c->memory = (struct callable_memory){ .ops = ops, .context = context };
	return c;
}

static int end_capture(struct callable_cache *c, struct fault *f)
{
	enum npu_error code;

	if (!c->capturing)
		return 0;
	code = memory_end_capture(&c->memory);
	if (code != NPU_SUCCESS)
		return cache_device_failed(c, code, "ending a capture", f);
	graph_destroy(c->capturing);
	free(take_ptr(c->capturing));
	return 0;
}

/* Once is enough: nothing was launched since. What may still run keeps its memory. */
static int drain(struct callable_cache *c, struct fault *f)
{
	enum npu_error code = c->drained ? NPU_SUCCESS : memory_drain(&c->memory);

	if (code != NPU_SUCCESS)
		return cache_device_failed(c, code, "waiting for what runs", f);
	c->drained = true;
	return 0;
}

static void forget(struct callable_cache *c)
{
	while (c->graphs) {
		struct callable_graph *g = c->graphs;

		c->graphs = g->next;
		graph_destroy(g);
	}
	c->n_entries = 0;
	c->resident = 0;
}

int callable_close(struct callable_cache *c, struct fault *f)
{
	enum npu_error code, blocks;
	int err = 0;

	if (c->state == CACHE_CLOSED)
		return 0;
	c->state = CACHE_CLOSING;
	err = end_capture(c, f);
	if (!err)
		err = drain(c, f);
	if (err)
		return err;
	forget(c);
	code = cache_release_buffers(c);
	blocks = cache_release(c);
	if (code == NPU_SUCCESS)
		code = blocks;
	if (code != NPU_SUCCESS)
		return cache_device_failed(c, code, "releasing device memory", f);
	c->state = CACHE_CLOSED;
	return 0;
}

void callable_lose(struct callable_cache *c)
{
	if (c->capturing)
		graph_destroy(c->capturing);
	free(take_ptr(c->capturing));
	forget(c);
	c->n_blocks = c->n_buffers = 0;
	c->allocated = c->buffered = 0;
	c->state = CACHE_CLOSED;
}

void callable_cache_free(struct callable_cache *c)
{
	if (!c)
		return;
	assert(!c->n_blocks && !c->n_buffers && !c->graphs && !c->capturing);
	free(c->blocks);
	free(c->buffers);
	free(c->entries);
	free(c);
}
