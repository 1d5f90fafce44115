/* The device under resident callables: what the library asks of it, as a table. memory_*() are the
 * table's only callers; they count each call. Addresses are the device's, 0 is none. */
#ifndef NPUFS_CORE_CALLABLE_MEMORY_H
#define NPUFS_CORE_CALLABLE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/npu_error.h"

/* Who may not call what could disturb a capture: nobody, the capturing thread, or no restriction. */
enum capture_mode { CAPTURE_GLOBAL, CAPTURE_THREAD_LOCAL, CAPTURE_RELAXED };

/* Every field is required. The codes are the device's own. */
struct callable_memory_ops {
	const char *name;
	/* At least `bytes` at a multiple of `align`. NPU_MEMORY_ALLOCATION: there is none, and
	 * nothing was changed. */
	enum npu_error (
		*allocate)(void *context, uint64_t bytes, uint64_t align, uint64_t *ret_address);
	/* `from` is free for re-use when it returns. */
	enum npu_error (*copy)(void *context, uint64_t to, const void *from, uint64_t bytes);
	/* The other way. What was launched before it is waited for by drain. */
	enum npu_error (*fetch)(void *context, void *to, uint64_t from, uint64_t bytes);
	/* On failure it stays allocated, and can be tried again. It does not wait for the device
	 * when nothing was launched from there. */
	enum npu_error (*release)(void *context, uint64_t address);
	/* Enter a callable into the device's table. It may be only enqueued: what goes wrong then
	 * shows at the first launch, which must not depend on it. An id that was refused, or whose
	 * caller gave up, may be entered again. */
	enum npu_error (*enroll)(void *context, int32_t id, uint64_t address, uint64_t bytes);
	/* Hand a packet (packet.h) to the device's entry. Neither allocates nor locks. */
	enum npu_error (*launch)(void *context, const void *packet, uint64_t bytes);
	/* Wait until nothing runs any more. The one call that synchronises. */
	enum npu_error (*drain)(void *context);
	/* Swap the calling thread's mode for `*mode`. While a capture is on, the first five are
	 * refused unless it is CAPTURE_RELAXED. */
	enum npu_error (*exchange_mode)(void *context, enum capture_mode *mode);
	enum npu_error (*begin_capture)(void *context, enum capture_mode mode);
	enum npu_error (*end_capture)(void *context);
};

struct callable_memory_counts {
	uint64_t allocate, copy, fetch, release, enroll, launch, drain, exchange_mode,
		begin_capture, end_capture;
};

struct callable_memory {
	const struct callable_memory_ops *ops;
	void *context;
	struct callable_memory_counts counts;
};

enum npu_error memory_allocate(struct callable_memory *m, uint64_t bytes, uint64_t align,
	uint64_t *ret_address);
enum npu_error memory_copy(struct callable_memory *m, uint64_t to, const void *from,
	uint64_t bytes);
enum npu_error memory_fetch(struct callable_memory *m, void *to, uint64_t from, uint64_t bytes);
enum npu_error memory_release(struct callable_memory *m, uint64_t address);
enum npu_error memory_enroll(struct callable_memory *m, int32_t id, uint64_t address,
	uint64_t bytes);
enum npu_error memory_launch(struct callable_memory *m, const void *packet, uint64_t bytes);
enum npu_error memory_drain(struct callable_memory *m);
enum npu_error memory_exchange_mode(struct callable_memory *m, enum capture_mode *mode);
enum npu_error memory_begin_capture(struct callable_memory *m, enum capture_mode mode);
enum npu_error memory_end_capture(struct callable_memory *m);

#endif
