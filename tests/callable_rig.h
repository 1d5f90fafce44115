/* For tests of callables: allocations of the host that are counted and refused, a device memory that
 * fails at a chosen call and may be of paper, images of any size, and the examples. */
#ifndef NPUFS_TESTS_CALLABLE_RIG_H
#define NPUFS_TESTS_CALLABLE_RIG_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/files.h"
#include "core/base/mem.h"
#include "core/callable/cache.h"
#include "core/callable/graph.h"
#include "core/callable/image.h"
#include "core/callable/memory_soft.h"

/* --- the host's allocator (linked with --wrap) ------------------------------------------------ */

static size_t host_calls, host_fails_at; /* 0: none fails; else this many calls from now */

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);

static bool host_refuses(void)
{
	host_calls++;
	return host_fails_at && --host_fails_at == 0;
}

void *__wrap_malloc(size_t n)
{
	return host_refuses() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return host_refuses() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
	return host_refuses() ? NULL : __real_realloc(p, n);
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
	return host_refuses() ? NULL : __real_aligned_alloc(align, n);
}

/* --- device memory ---------------------------------------------------------------------------- */

enum rig_call {
	RIG_ALLOCATE,
	RIG_COPY,
	RIG_FETCH,
	RIG_RELEASE,
	RIG_ENROLL,
	RIG_LAUNCH,
	RIG_DRAIN,
	RIG_EXCHANGE,
	RIG_BEGIN,
	RIG_END,
	RIG_CALLS
};

#define RIG_BLOCKS 1100

/* With `soft`, calls that do not fail go there. Without, memory is of paper: addresses and nothing
 * behind them, so that gigabytes cost nothing. */
struct rig {
	struct memory_soft *soft;
	struct callable_cache *c;
	struct fault f;
	size_t fails_at[RIG_CALLS]; /* this many calls from now; 0: none */
	enum npu_error code[RIG_CALLS];
	struct {
		uint64_t address, bytes;
	} paper[RIG_BLOCKS];
	size_t n_paper;
	uint64_t next, paper_bytes;
	int32_t last_enrolled;
	uint64_t last_copied_to;
};

static bool rig_fails(struct rig *r, enum rig_call call)
{
	return r->fails_at[call] && --r->fails_at[call] == 0;
}

#define RIG_FAIL(r, call) \
	do { \
		if (rig_fails(r, call)) \
			return (r)->code[call]; \
	} while (0)

static enum npu_error rig_allocate(void *context, uint64_t bytes, uint64_t align, uint64_t *ret)
{
	struct rig *r = context;

	RIG_FAIL(r, RIG_ALLOCATE);
	if (r->soft)
		return memory_soft_ops.allocate(r->soft, bytes, align, ret);
	assert_true(r->n_paper < RIG_BLOCKS);
	*ret = r->next;
	r->next += bytes + 4096; /* blocks are not contiguous */
	r->paper[r->n_paper].address = *ret;
	r->paper[r->n_paper++].bytes = bytes;
	r->paper_bytes += bytes;
	return NPU_SUCCESS;
}

static enum npu_error rig_copy(void *context, uint64_t to, const void *from, uint64_t bytes)
{
	struct rig *r = context;

	RIG_FAIL(r, RIG_COPY);
	r->last_copied_to = to;
	return r->soft ? memory_soft_ops.copy(r->soft, to, from, bytes) : NPU_SUCCESS;
}

static enum npu_error rig_fetch(void *context, void *to, uint64_t from, uint64_t bytes)
{
	struct rig *r = context;

	RIG_FAIL(r, RIG_FETCH);
	assert_non_null(r->soft);
	return memory_soft_ops.fetch(r->soft, to, from, bytes);
}

/* Freed twice, or never allocated, fails the test. */
static enum npu_error rig_release(void *context, uint64_t address)
{
	struct rig *r = context;
	size_t i = 0;

	RIG_FAIL(r, RIG_RELEASE);
	if (r->soft)
		return memory_soft_ops.release(r->soft, address);
	while (i < r->n_paper && r->paper[i].address != address)
		i++;
	assert_true(i < r->n_paper);
	r->paper_bytes -= r->paper[i].bytes;
	r->paper[i] = r->paper[--r->n_paper];
	return NPU_SUCCESS;
}

static enum npu_error rig_enroll(void *context, int32_t id, uint64_t address, uint64_t bytes)
{
	struct rig *r = context;

	RIG_FAIL(r, RIG_ENROLL);
	r->last_enrolled = id;
	return r->soft ? memory_soft_ops.enroll(r->soft, id, address, bytes) : NPU_SUCCESS;
}

static enum npu_error rig_launch(void *context, const void *packet, uint64_t bytes)
{
	struct rig *r = context;

	RIG_FAIL(r, RIG_LAUNCH);
	return r->soft ? memory_soft_ops.launch(r->soft, packet, bytes) : NPU_SUCCESS;
}

static enum npu_error rig_drain(void *context)
{
	struct rig *r = context;

	RIG_FAIL(r, RIG_DRAIN);
	return r->soft ? memory_soft_ops.drain(r->soft) : NPU_SUCCESS;
}

static enum npu_error rig_exchange(void *context, enum capture_mode *mode)
{
	struct rig *r = context;

	RIG_FAIL(r, RIG_EXCHANGE);
	return r->soft ? memory_soft_ops.exchange_mode(r->soft, mode) : NPU_SUCCESS;
}

static enum npu_error rig_begin(void *context, enum capture_mode mode)
{
	struct rig *r = context;

	RIG_FAIL(r, RIG_BEGIN);
	return r->soft ? memory_soft_ops.begin_capture(r->soft, mode) : NPU_SUCCESS;
}

static enum npu_error rig_end(void *context)
{
	struct rig *r = context;

	RIG_FAIL(r, RIG_END);
	return r->soft ? memory_soft_ops.end_capture(r->soft) : NPU_SUCCESS;
}

static const struct callable_memory_ops rig_ops = { "rig", rig_allocate, rig_copy, rig_fetch,
	rig_release, rig_enroll, rig_launch, rig_drain, rig_exchange, rig_begin, rig_end };

static inline void rig_fail(struct rig *r, enum rig_call call, size_t at, enum npu_error code)
{
	r->fails_at[call] = at;
	r->code[call] = code;
}

static inline void rig_open(struct rig *r, bool soft)
{
	*r = (struct rig){ .next = 1ull << 40, .f = FAULT_NONE, .last_enrolled = -1 };
	if (soft) {
		r->soft = memory_soft_new();
		assert_non_null(r->soft);
	}
	r->c = callable_cache_new(&rig_ops, r);
	assert_non_null(r->c);
}

/* Close, with nothing left. */
static inline void rig_close(struct rig *r)
{
	if (callable_close(r->c, &r->f) < 0)
		fail_msg("close: %s", r->f.reason);
	assert_int_equal(callable_figures(r->c).allocated_bytes, 0);
	assert_int_equal(r->n_paper, 0);
	callable_cache_free(r->c);
	memory_soft_free(r->soft);
}

/* --- images ----------------------------------------------------------------------------------- */

static inline void rig_build(const char *spec, struct buf *out)
{
	struct fault f = FAULT_NONE;

	if (image_build(spec, strlen(spec), out, &f) < 0)
		fail_msg("%s: %s at %ld", f.field, f.reason, f.offset);
}

static inline void rig_example(const char *name, struct buf *out)
{
	AUTO_BUF struct buf path = BUF_INIT;
	AUTO_BUF struct buf text = BUF_INIT;
	AUTO_CLOSE int fd = -1;

	buf_printf(&path, "examples/callables/%s.json", name);
	assert_int_equal(files_open_input(buf_text(&path), &fd), 0);
	assert_int_equal(files_read(fd, 1 << 20, &text), 0);
	rig_build(buf_text(&text), out);
}

/* It multiplies x[0] by its child's constant. */
static inline void rig_scale(float by, struct buf *out)
{
	AUTO_BUF struct buf spec = BUF_INIT;

	buf_printf(&spec,
		"{\"format\":\"npufs-callable-1\",\"name\":\"scale\",\"tensors\":[{\"name\":\"x\","
		"\"dtype\":\"float32\",\"access\":\"inout\"}],\"scalars\":[],\"orchestration\":["
		"\"call scale\"],\"children\":[{\"id\":7,\"name\":\"scale\",\"code\":["
		"\"ld s1, x, s0\",\"ldc s2, s0\",\"fmul s1, s1, s2\",\"st s1, x, s0\"],"
		"\"dtype\":\"float32\",\"constants\":[%.3f]}]}",
		(double)by);
	rig_build(buf_text(&spec), out);
}

/* The same with as many constants as make it `bytes` long, a multiple of 64. */
static inline void rig_image(uint64_t bytes, struct buf *out)
{
	struct image_header h;
	struct image_child c;

	rig_scale(2, out);
	memcpy(&h, out->data, sizeof h);
	memcpy(&c, out->data + h.children_offset, sizeof c);
	assert_true(bytes % 64 == 0 && bytes >= h.total_bytes);
	assert_non_null(buf_room(out, bytes - out->len));
	memset(out->data + out->len, 0, bytes - out->len);
	out->len = bytes;
	h.total_bytes = bytes;
	c.bytes = bytes - c.offset;
	memcpy(out->data, &h, sizeof h);
	memcpy(out->data + h.children_offset, &c, sizeof c);
	assert_int_equal(image_validate(out->data, out->len, NULL, NULL), 0);
}

static inline int32_t rig_prepare(struct rig *r, const struct buf *image)
{
	int32_t id = callable_prepare(r->c, image->data, image->len, &r->f);

	if (id < 0)
		fail_msg("prepare: %s", r->f.reason);
	return id;
}

static inline uint64_t rig_address(struct rig *r, int32_t id)
{
	uint64_t address, bytes;

	assert_int_equal(callable_resolve(r->c, id, &address, &bytes, &r->f), 0);
	return address;
}

/* --- arguments -------------------------------------------------------------------------------- */

/* A tensor on the soft device; `*ret_host` is where it is for the test. */
static inline struct packet_tensor rig_tensor(struct rig *r, size_t elements, float **ret_host)
{
	struct packet_tensor t = { 0, elements * sizeof(float) };

	assert_int_equal(memory_soft_ops.allocate(r->soft, t.bytes, 64, &t.address), NPU_SUCCESS);
	*ret_host = (float *)(void *)memory_soft_at(r->soft, t.address, t.bytes);
	memset(*ret_host, 0, t.bytes);
	return t;
}

#define BLOCK (2ull << 20)
#define CAP   (2ull << 30)

/* Refused with this errno and, unless NULL, this field; nothing changed. */
static inline void rig_refused(struct rig *r, const struct buf *image, int err, const char *field)
{
	struct callable_figures before = callable_figures(r->c), after;

	r->f = (struct fault)FAULT_NONE;
	assert_int_equal(callable_prepare(r->c, image->data, image->len, &r->f), -1);
	after = callable_figures(r->c);
	if (r->f.err != err || (field && strcmp(r->f.field, field) != 0))
		fail_msg("%d, %s: %s", r->f.err, r->f.field, r->f.reason);
	assert_int_equal(after.registrations, before.registrations);
	assert_int_equal(after.resident_bytes, before.resident_bytes);
}

#endif
