/* An address is a host pointer, but is followed only after it was found within an allocation. The
 * packet is copied into a space of the device's own before the entry looks at it, as over a bus: the
 * host cannot change what is being checked.
 *
 * A row of the table: EMPTY -> QUEUED (enroll) -> LOADED or FAILED (executed, by the queue or by the
 * first launch). It fails when what it says is not in the device's memory. */
#include "core/callable/memory_soft.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "core/base/mem.h"
#include "core/callable/consume.h"
#include "core/callable/limits.h"

struct allocation {
	uint8_t *data;
	uint64_t bytes;
};

enum row_state { ROW_EMPTY, ROW_QUEUED, ROW_LOADED, ROW_FAILED };

struct table_row {
	uint64_t address, bytes;
	enum row_state state;
};

struct memory_soft {
	struct allocation *allocations;
	size_t n, cap;
	uint64_t allocated;
	struct table_row table[CALLABLE_IDS_MAX];
	uint32_t queued;
	bool capturing;
	enum capture_mode mode;
	struct packet_dispatch dispatch;
	struct consume_vm vm;
	enum packet_answer answer;
	_Alignas(8) uint8_t space[PACKET_BYTES_MAX];
};

/* --- memory ----------------------------------------------------------------------------------- */

static uint8_t *at_address(uint64_t address)
{
	return (uint8_t *)(uintptr_t)
		address; /* NOLINT: the device's addresses are this process's */
}

static uint64_t address_of(const uint8_t *data)
{
	return (uint64_t)(uintptr_t)data;
}

uint8_t *memory_soft_at(struct memory_soft *s, uint64_t address, uint64_t bytes)
{
	for (size_t i = s->n; i-- > 0;) {
		uint64_t from = address - address_of(s->allocations[i].data);

		if (address >= address_of(s->allocations[i].data) &&
			from <= s->allocations[i].bytes && bytes <= s->allocations[i].bytes - from)
			return at_address(address);
	}
	return NULL;
}

/* Nothing that could disturb a capture, unless the thread says that it knows what it does. */
static bool disturbs(const struct memory_soft *s)
{
	return s->capturing && s->mode != CAPTURE_RELAXED;
}

static enum npu_error soft_allocate(void *context, uint64_t bytes, uint64_t align,
	uint64_t *ret_address)
{
	struct memory_soft *s = context;
	struct allocation *moved;
	uint8_t *data;

	if (disturbs(s))
		return NPU_NOT_EXPECTED;
	moved = mem_grow(s->allocations, s->n, &s->cap, 16, sizeof *moved);
	if (!moved)
		return NPU_MEMORY_ALLOCATION;
	s->allocations = moved;
	if (!bytes || bytes > SIZE_MAX - align)
		return NPU_INVALID_VALUE;
	data = aligned_alloc(align, CALLABLE_ALIGN_UP(bytes, align));
	if (!data)
		return NPU_MEMORY_ALLOCATION;
	s->allocations[s->n++] = (struct allocation){ data, bytes };
	s->allocated += bytes;
	*ret_address = address_of(data);
	return NPU_SUCCESS;
}

static enum npu_error soft_copy(void *context, uint64_t to, const void *from, uint64_t bytes)
{
	struct memory_soft *s = context;
	uint8_t *at = memory_soft_at(s, to, bytes);

	if (disturbs(s))
		return NPU_NOT_EXPECTED;
	if (!at)
		return NPU_OUT_OF_RANGE;
	memcpy(at, from, bytes);
	return NPU_SUCCESS;
}

static enum npu_error soft_fetch(void *context, void *to, uint64_t from, uint64_t bytes)
{
	struct memory_soft *s = context;
	const uint8_t *at = memory_soft_at(s, from, bytes);

	if (disturbs(s))
		return NPU_NOT_EXPECTED;
	if (!at)
		return NPU_OUT_OF_RANGE;
	memcpy(to, at, bytes);
	return NPU_SUCCESS;
}

static enum npu_error soft_release(void *context, uint64_t address)
{
	struct memory_soft *s = context;

	if (disturbs(s))
		return NPU_NOT_EXPECTED;
	for (size_t i = 0; i < s->n; i++)
		if (address_of(s->allocations[i].data) == address) {
			s->allocated -= s->allocations[i].bytes;
			free(s->allocations[i].data);
			s->allocations[i] = s->allocations[--s->n];
			return NPU_SUCCESS;
		}
	return NPU_INVALID_VALUE;
}

/* --- the table -------------------------------------------------------------------------------- */

static enum npu_error soft_enroll(void *context, int32_t id, uint64_t address, uint64_t bytes)
{
	struct memory_soft *s = context;

	if (disturbs(s))
		return NPU_NOT_EXPECTED;
	if (id < 0 || id >= CALLABLE_IDS_MAX)
		return NPU_OUT_OF_RANGE;
	s->queued += s->table[id].state != ROW_QUEUED;
	s->table[id] = (struct table_row){ address, bytes, ROW_QUEUED };
	return NPU_SUCCESS;
}

static void execute(struct memory_soft *s, struct table_row *row)
{
	row->state = memory_soft_at(s, row->address, row->bytes) ? ROW_LOADED : ROW_FAILED;
	s->queued--;
}

void memory_soft_run_queue(struct memory_soft *s)
{
	for (size_t i = 0; s->queued && i < ARRAY_SIZE(s->table); i++)
		if (s->table[i].state == ROW_QUEUED)
			execute(s, &s->table[i]);
}

/* --- launching -------------------------------------------------------------------------------- */

static uint8_t *visible(void *context, uint64_t address, uint64_t bytes)
{
	return memory_soft_at(context, address, bytes);
}

static enum packet_answer consume(void *device, const struct packet_prefix *prefix,
	const uint8_t *payload, uint64_t bytes)
{
	struct memory_soft *s = device;
	struct table_row *row = &s->table[prefix->id];

	if (row->state == ROW_QUEUED)
		execute(s, row);
	if (row->state == ROW_FAILED)
		return PACKET_NOT_REGISTERED;
	return consume_vm(&s->vm, prefix, payload, bytes);
}

static enum npu_error soft_launch(void *context, const void *packet, uint64_t bytes)
{
	struct memory_soft *s = context;
	struct packet_space space = { s->space, address_of(s->space), sizeof s->space };

	memcpy(s->space, packet, bytes < sizeof s->space ? bytes : sizeof s->space);
	s->answer = packet_enter(&s->dispatch, &space, space.address, bytes);
	return packet_answer_error(s->answer);
}

/* --- order ------------------------------------------------------------------------------------ */

static enum npu_error soft_drain(void *context)
{
	if (((struct memory_soft *)context)->capturing)
		return NPU_NOT_EXPECTED;
	memory_soft_run_queue(context);
	return NPU_SUCCESS;
}

static enum npu_error soft_exchange_mode(void *context, enum capture_mode *mode)
{
	struct memory_soft *s = context;
	enum capture_mode before = s->mode;

	s->mode = *mode;
	*mode = before;
	return NPU_SUCCESS;
}

static enum npu_error soft_begin_capture(void *context, enum capture_mode mode)
{
	struct memory_soft *s = context;

	if (s->capturing)
		return NPU_NOT_EXPECTED;
	s->capturing = true;
	s->mode = mode;
	return NPU_SUCCESS;
}

static enum npu_error soft_end_capture(void *context)
{
	struct memory_soft *s = context;

	if (!s->capturing)
		return NPU_NOT_EXPECTED;
	s->capturing = false;
	return NPU_SUCCESS;
}

const struct callable_memory_ops memory_soft_ops = {
	.name = "soft",
	.allocate = soft_allocate,
	.copy = soft_copy,
	.fetch = soft_fetch,
	.release = soft_release,
	.enroll = soft_enroll,
	.launch = soft_launch,
	.drain = soft_drain,
	.exchange_mode = soft_exchange_mode,
	.begin_capture = soft_begin_capture,
	.end_capture = soft_end_capture,
};

/* --- the device ------------------------------------------------------------------------------- */

struct memory_soft *memory_soft_new(void)
{
	struct memory_soft *s = calloc(1, sizeof *s);

	if (!s)
		return NULL;
	s->vm.visible = visible;
	s->vm.context = s;
	s->dispatch.device = s;
	s->dispatch.consumers[PACKET_VM] = consume;
	return s;
}

void memory_soft_free(struct memory_soft *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->n; i++)
		free(s->allocations[i].data);
	free(s->allocations);
	free(s);
}

void memory_soft_set_consumer(struct memory_soft *s, enum packet_kind kind,
	packet_consumer *consumer)
{
	assert((unsigned)kind < PACKET_KINDS_MAX);
	s->dispatch.consumers[kind] = consumer;
}

uint64_t memory_soft_allocated(const struct memory_soft *s)
{
	return s->allocated;
}

enum packet_answer memory_soft_answer(const struct memory_soft *s)
{
	return s->answer;
}

enum capture_mode memory_soft_mode(const struct memory_soft *s)
{
	return s->mode;
}

uint32_t memory_soft_queued(const struct memory_soft *s)
{
	return s->queued;
}
