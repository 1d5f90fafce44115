/* Counting is all that happens between the library and the device; one caller at a time, as for all of
 * a context. */
#include "core/callable/memory.h"

enum npu_error memory_allocate(struct callable_memory *m, uint64_t bytes, uint64_t align,
	uint64_t *ret_address)
{
	m->counts.allocate++;
	return m->ops->allocate(m->context, bytes, align, ret_address);
}

enum npu_error memory_copy(struct callable_memory *m, uint64_t to, const void *from, uint64_t bytes)
{
	m->counts.copy++;
	return m->ops->copy(m->context, to, from, bytes);
}

enum npu_error memory_fetch(struct callable_memory *m, void *to, uint64_t from, uint64_t bytes)
{
	m->counts.fetch++;
	return m->ops->fetch(m->context, to, from, bytes);
}

enum npu_error memory_release(struct callable_memory *m, uint64_t address)
{
	m->counts.release++;
	return m->ops->release(m->context, address);
}

enum npu_error memory_enroll(struct callable_memory *m, int32_t id, uint64_t address,
	uint64_t bytes)
{
	m->counts.enroll++;
	return m->ops->enroll(m->context, id, address, bytes);
}

enum npu_error memory_launch(struct callable_memory *m, const void *packet, uint64_t bytes)
{
	m->counts.launch++;
	return m->ops->launch(m->context, packet, bytes);
}

enum npu_error memory_drain(struct callable_memory *m)
{
	m->counts.drain++;
	return m->ops->drain(m->context);
}

enum npu_error memory_exchange_mode(struct callable_memory *m, enum capture_mode *mode)
{
	m->counts.exchange_mode++;
	return m->ops->exchange_mode(m->context, mode);
}

enum npu_error memory_begin_capture(struct callable_memory *m, enum capture_mode mode)
{
	m->counts.begin_capture++;
	return m->ops->begin_capture(m->context, mode);
}

enum npu_error memory_end_capture(struct callable_memory *m)
{
	m->counts.end_capture++;
	return m->ops->end_capture(m->context);
}
