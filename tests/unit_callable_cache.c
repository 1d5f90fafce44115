/* The cache of a context: limits, placing, growth, failures at every call, the order of error classes,
 * poisoning and closing. Memory is of paper where nothing is launched. */
#include "core/callable/cache.h"

#include "callable_rig.h"
#include "core/callable/buffer.h"

#define BLOCK (2ull << 20)
#define CAP   (2ull << 30)

/* Refused with this errno and, unless NULL, this field; nothing changed. */
static void refused(struct rig *r, const struct buf *image, int err, const char *field)
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

/* --- limits ----------------------------------------------------------------------------------- */

static void prepare__8192_ids__the_8193rd_refused(void **state)
{
	AUTO_BUF struct buf image = BUF_INIT;
	static uint64_t addresses[8192];
	static struct rig r;

	(void)state;
	rig_open(&r, false);
	rig_scale(2, &image);
	for (int32_t i = 0; i < 8192; i++) {
		assert_int_equal(rig_prepare(&r, &image), i);
		assert_int_equal(r.last_enrolled, i);
		addresses[i] = rig_address(&r, i);
	}
	refused(&r, &image, -ENOSPC, "registrations");
	assert_int_equal(callable_counts(r.c)->copy, 8192);
	for (int32_t i = 0; i < 8192; i++)
		assert_int_equal(rig_address(&r, i), addresses[i]);
	rig_close(&r);
}

static void prepare__2_gib__refused_with_all_residents_intact(void **state)
{
	AUTO_BUF struct buf image = BUF_INIT;
	AUTO_BUF struct buf tiny = BUF_INIT;
	struct callable_args args = { .kind = PACKET_VM,
		.n_tensors = 1,
		.tensors = &(struct packet_tensor){ 64, 4 } };
	static uint64_t addresses[1024];
	static struct rig r;

	(void)state;
	rig_open(&r, false);
	rig_image(BLOCK, &image);
	rig_scale(2, &tiny);
	for (int i = 0; i < 1024; i++)
		addresses[rig_prepare(&r, &image)] = r.last_copied_to;
	assert_int_equal(callable_figures(r.c).allocated_bytes, CAP);
	refused(&r, &image, -ENOSPC, "allocated_bytes");
	refused(&r, &tiny, -ENOSPC, "allocated_bytes"); /* no tail is left */
	assert_int_equal(callable_figures(r.c).allocated_bytes, CAP);
	assert_int_equal(callable_figures(r.c).resident_bytes, CAP);
	for (int32_t i = 0; i < 1024; i++) {
		assert_int_equal(rig_address(&r, i), addresses[i]);
		assert_int_equal(callable_launch(r.c, i, &args, &r.f), 0);
	}
	assert_int_equal(r.paper_bytes, CAP);
	rig_close(&r);
}

static void prepare__tails__charged(void **state)
{
	AUTO_BUF struct buf half = BUF_INIT;
	AUTO_BUF struct buf tiny = BUF_INIT;
	static struct rig r;

	(void)state;
	rig_open(&r, false);
	rig_image(BLOCK / 2 + 64, &half); /* one to a block */
	rig_scale(2, &tiny);
	for (int i = 0; i < 1024; i++)
		rig_prepare(&r, &half);
	assert_int_equal(callable_figures(r.c).allocated_bytes, CAP);
	assert_int_equal(callable_figures(r.c).resident_bytes, 1024 * (BLOCK / 2 + 64));
	refused(&r, &half, -ENOSPC, "allocated_bytes"); /* though nearly 1 GiB is unused */
	rig_prepare(&r, &tiny);                         /* a tail has room for it */
	assert_int_equal(callable_figures(r.c).allocated_bytes, CAP);
	rig_close(&r);
}

/* --- placing ---------------------------------------------------------------------------------- */

static void prepare__small_images__share_a_block_64_byte_aligned(void **state)
{
	AUTO_BUF struct buf image = BUF_INIT;
	static struct rig r;
	uint64_t first;

	(void)state;
	rig_open(&r, false);
	assert_int_equal(callable_figures(r.c).allocated_bytes, 0); /* no arena at first */
	rig_image(8192 + 64, &image);
	first = rig_address(&r, rig_prepare(&r, &image));
	for (uint64_t i = 1; i < BLOCK / (8192 + 64); i++)
		assert_int_equal(rig_address(&r, rig_prepare(&r, &image)), first + i * 8256);
	assert_int_equal(callable_counts(r.c)->allocate, 1);
	rig_prepare(&r, &image); /* spans no blocks */
	assert_int_equal(callable_counts(r.c)->allocate, 2);
	assert_int_equal(r.last_copied_to, r.paper[1].address);
	assert_int_equal(callable_figures(r.c).allocated_bytes, 2 * BLOCK);
	rig_close(&r);
}

static void prepare__large_image_between_small_ones__apart_and_tails_kept(void **state)
{
	AUTO_BUF struct buf small = BUF_INIT;
	AUTO_BUF struct buf large = BUF_INIT;
	static struct rig r;
	uint64_t first;

	(void)state;
	rig_open(&r, false);
	rig_image(4096, &small);
	rig_image(BLOCK + 64, &large);
	first = rig_address(&r, rig_prepare(&r, &small));
	rig_prepare(&r, &large);
	assert_int_equal(r.paper[1].bytes, BLOCK + 64);
	assert_int_equal(rig_address(&r, rig_prepare(&r, &small)), first + 4096);
	assert_int_equal(callable_counts(r.c)->allocate, 2);
	assert_int_equal(callable_figures(r.c).allocated_bytes, 2 * BLOCK + 64);
	assert_int_equal(callable_figures(r.c).resident_bytes, BLOCK + 64 + 8192);
	rig_close(&r);
}

static void prepare__any_older_block_with_room__taken_first(void **state)
{
	AUTO_BUF struct buf most = BUF_INIT;
	AUTO_BUF struct buf small = BUF_INIT;
	static struct rig r;
	uint64_t first;

	(void)state;
	rig_open(&r, false);
	rig_image(BLOCK - 4096, &most);
	rig_image(4096, &small);
	first = rig_address(&r, rig_prepare(&r, &most));
	rig_prepare(&r, &most);
	rig_prepare(&r, &most);
	assert_int_equal(rig_address(&r, rig_prepare(&r, &small)), first + BLOCK - 4096);
	rig_close(&r);
}

/* First fit, as the simplest program does it. */
static size_t first_fit(uint64_t used[RIG_BLOCKS], uint64_t bytes)
{
	size_t i = 0;

	while (used[i] + bytes > BLOCK)
		i++;
	used[i] += bytes;
	return i;
}

static void prepare__sizes_mixed__each_in_the_first_block_with_room(void **state)
{
	static const uint64_t sizes[] = { 768 << 10, 512, 300 << 10, 1 << 20, 64 << 10, BLOCK };
	struct buf images[ARRAY_SIZE(sizes)] = { 0 };
	static uint64_t used[RIG_BLOCKS];
	static struct rig r;
	uint32_t random = 1;

	(void)state;
	rig_open(&r, false);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
		rig_image(sizes[i], &images[i]);
	for (int i = 0; i < 1000; i++) {
		size_t which = (random >> 16) % ARRAY_SIZE(sizes);
		size_t block = first_fit(used, sizes[which]);

		rig_prepare(&r, &images[which]);
		assert_int_equal(r.last_copied_to + sizes[which],
			r.paper[block].address + used[block]);
		random = random * 1103515245 + 12345;
	}
	rig_close(&r);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
		buf_done(&images[i]);
}

static void prepare__identical_image_twice__two_ids(void **state)
{
	AUTO_BUF struct buf image = BUF_INIT;
	static struct rig r;
	int32_t a, b;

	(void)state;
	rig_open(&r, false);
	rig_scale(2, &image);
	a = rig_prepare(&r, &image);
	b = rig_prepare(&r, &image);
	assert_int_equal(a, 0);
	assert_int_equal(b, 1);
	assert_true(rig_address(&r, a) != rig_address(&r, b));
	assert_int_equal(callable_counts(r.c)->copy, 2);
	assert_int_equal(callable_counts(r.c)->enroll, 2);
	rig_close(&r);
}

static void prepare__65_in_a_row__all_launch(void **state)
{
	static struct rig r;
	struct packet_tensor t;
	float *x;

	(void)state;
	rig_open(&r, true);
	t = rig_tensor(&r, 1, &x);
	for (int i = 0; i < 65; i++) {
		AUTO_BUF struct buf image = BUF_INIT;

		rig_scale((float)(i + 1), &image);
		assert_int_equal(rig_prepare(&r, &image), i);
	}
	for (int i = 64; i >= 0; i--) {
		struct callable_args args = { PACKET_VM, 1, 0, &t, NULL };

		x[0] = 2;
		assert_int_equal(callable_launch(r.c, i, &args, &r.f), 0);
		assert_true(x[0] == 2 * (float)(i + 1));
	}
	rig_close(&r);
}

/* --- failures --------------------------------------------------------------------------------- */

static void failure_at(enum rig_call call, bool new_block)
{
	AUTO_BUF struct buf image = BUF_INIT;
	AUTO_BUF struct buf filler = BUF_INIT;
	static struct rig r;
	uint64_t would_be;
	int32_t next = 0;

	rig_open(&r, false);
	rig_image(4096, &image);
	rig_image(BLOCK, &filler);
	if (!new_block)
		next = rig_prepare(&r, &image) + 1;
	else
		next = rig_prepare(&r, &filler) + 1;
	rig_fail(&r, call, 1, call == RIG_ALLOCATE ? NPU_MEMORY_ALLOCATION : NPU_DEVICE_BUSY);
	refused(&r, &image, call == RIG_ALLOCATE ? -ENOMEM : -EBUSY, NULL);
	assert_int_equal(r.f.device,
		call == RIG_ALLOCATE ? NPU_MEMORY_ALLOCATION : NPU_DEVICE_BUSY);
	assert_false(callable_figures(r.c).poisoned);
	would_be = new_block && r.n_paper > 1 ? r.paper[1].address : r.paper[0].address + 4096;
	assert_int_equal(rig_prepare(&r, &image), next); /* the id was not used up */
	if (call != RIG_ALLOCATE)
		assert_int_equal(rig_address(&r, next), would_be); /* nor the room */
	assert_int_equal(callable_figures(r.c).allocated_bytes, (new_block ? 2 : 1) * BLOCK);
	rig_close(&r);
}

static void prepare__allocation_fails__rolled_back(void **state)
{
	(void)state;
	failure_at(RIG_ALLOCATE, true);
}

static void prepare__upload_fails__rolled_back_and_storage_reused(void **state)
{
	(void)state;
	failure_at(RIG_COPY, false);
	failure_at(RIG_COPY, true);
}

static void prepare__registration_fails__rolled_back_and_storage_reused(void **state)
{
	(void)state;
	failure_at(RIG_ENROLL, false);
	failure_at(RIG_ENROLL, true);
}

/* 2 MiB are still of a shared block, and that block is there for the next. */
static void prepare__whole_block_fails__storage_reused(void **state)
{
	AUTO_BUF struct buf image = BUF_INIT;
	AUTO_BUF struct buf small = BUF_INIT;
	static struct rig r;

	(void)state;
	rig_open(&r, false);
	rig_image(BLOCK, &image);
	rig_image(4096, &small);
	rig_fail(&r, RIG_COPY, 1, NPU_DEVICE_BUSY);
	refused(&r, &image, -EBUSY, NULL);
	rig_prepare(&r, &small);
	assert_int_equal(r.last_copied_to, r.paper[0].address);
	assert_int_equal(callable_figures(r.c).allocated_bytes, BLOCK);
	rig_close(&r);
}

static void prepare__large_upload_fails__storage_reused_or_given_up_for_the_cap(void **state)
{
	AUTO_BUF struct buf large = BUF_INIT;
	AUTO_BUF struct buf filler = BUF_INIT;
	static struct rig r;

	(void)state;
	rig_open(&r, false);
	rig_image(3 * BLOCK, &large);
	rig_image(BLOCK, &filler);
	rig_fail(&r, RIG_COPY, 1, NPU_DEVICE_BUSY);
	refused(&r, &large, -EBUSY, NULL);
	assert_int_equal(callable_figures(r.c).allocated_bytes, 3 * BLOCK);
	rig_prepare(&r, &large);
	assert_int_equal(callable_figures(r.c).allocated_bytes, 3 * BLOCK);
	rig_fail(&r, RIG_ENROLL, 1, NPU_DEVICE_BUSY);
	refused(&r, &large, -EBUSY, NULL);
	assert_int_equal(callable_figures(r.c).allocated_bytes, 6 * BLOCK);
	for (int i = 0; i < 1021; i++) /* all but what is resident of 1024 blocks' room */
		rig_prepare(&r, &filler);
	assert_int_equal(callable_figures(r.c).allocated_bytes, CAP);
	assert_int_equal(callable_figures(r.c).resident_bytes, CAP);
	refused(&r, &filler, -ENOSPC, "allocated_bytes");
	rig_close(&r);
}

static void prepare__no_host_memory_anywhere__rolled_back(void **state)
{
	AUTO_BUF struct buf image = BUF_INIT;
	static struct rig r;
	int failures = 0;

	(void)state;
	rig_scale(2, &image);
	for (size_t at = 1; at < 6; at++) {
		rig_open(&r, true);
		host_fails_at = at;
		if (callable_prepare(r.c, image.data, image.len, &r.f) < 0) {
			failures++;
			assert_int_equal(r.f.err, -ENOMEM);
			assert_int_equal(callable_figures(r.c).registrations, 0);
			assert_int_equal(callable_figures(r.c).resident_bytes, 0);
		}
		host_fails_at = 0;
		assert_int_equal(callable_figures(r.c).poisoned, false);
		rig_prepare(&r, &image);
		rig_close(&r);
	}
	assert_int_equal(failures, 4); /* entries, blocks, the device's list, its memory */
}

static void prepare__memory_at_no_address_or_misaligned__poisoned_and_released(void **state)
{
	AUTO_BUF struct buf image = BUF_INIT;
	static struct rig r;

	(void)state;
	rig_scale(2, &image);
	rig_open(&r, false);
	r.next += 32;
	refused(&r, &image, -EIO, NULL);
	assert_true(callable_figures(r.c).poisoned);
	rig_close(&r);
}

/* What a context does in its life, as a row of what happens: images that share blocks, one that is alone
 * and begins another block, buffers, launches, a graph. Whatever call fails, the same step is done once
 * more and the rest goes on as if nothing had been. */
struct life {
	struct rig r;
	struct buf images[3]; /* small, of more than half a block, large */
	int32_t next;
	uint64_t resident, buffers[2];
	size_t n_buffers;
	int failed;
};

static bool life_failed(struct life *l, int err)
{
	assert_true(err == 0 || l->r.f.err < 0);
	l->failed += err != 0;
	return err != 0;
}

static bool life_prepare(struct life *l, int which)
{
	const struct buf *image = &l->images[which];
	struct callable_figures now;
	int32_t id = callable_prepare(l->r.c, image->data, image->len, &l->r.f);

	assert_int_equal(id, id < 0 ? -1 : l->next);
	l->next += id >= 0;
	l->resident += id >= 0 ? CALLABLE_ALIGN_UP(image->len, CALLABLE_ALIGN) : 0;
	now = callable_figures(l->r.c);
	assert_int_equal(now.registrations, l->next);
	assert_int_equal(now.resident_bytes, l->resident);
	assert_false(now.poisoned);
	return life_failed(l, id < 0);
}

static bool life_buffer(struct life *l, int which)
{
	(void)which;
	if (life_failed(l, callable_buffer_take(l->r.c, 64, &l->buffers[l->n_buffers], &l->r.f)))
		return true;
	l->n_buffers++;
	return false;
}

static bool life_give_back(struct life *l, int which)
{
	if (life_failed(l, callable_buffer_release(l->r.c, l->buffers[which], &l->r.f)))
		return true;
	l->n_buffers--;
	return false;
}

/* The small image, on the first buffer: 2 becomes 4, unless it did not run. */
static bool life_launch(struct life *l, int id)
{
	struct packet_tensor t = { l->buffers[0], 64 };
	struct callable_args args = { PACKET_VM, 1, 0, &t, NULL };
	float *x = (float *)(void *)memory_soft_at(l->r.soft, t.address, t.bytes);
	int err;

	x[0] = 2;
	err = callable_launch(l->r.c, id, &args, &l->r.f);
	assert_true(x[0] == (err ? 2 : 4));
	return life_failed(l, err);
}

static const struct {
	bool (*step)(struct life *l, int which);
	int which;
} life_steps[] = {
	{ life_prepare, 0 },
	{ life_buffer, 0 },
	{ life_launch, 0 },
	{ life_prepare, 1 },
	{ life_prepare, 1 }, /* begins a block */
	{ life_prepare, 2 }, /* its own */
	{ life_buffer, 0 },
	{ life_prepare, 0 }, /* in the first block's tail */
	{ life_launch, 4 },
	{ life_give_back, 1 },
	{ life_prepare, 2 },
	{ life_launch, 0 },
};

static void life_begin(struct life *l)
{
	rig_open(&l->r, true);
	l->next = 0;
	l->resident = 0;
	l->n_buffers = 0;
	l->failed = 0;
}

/* Whatever is left of it is released, each once. */
static void life_end(struct life *l)
{
	while (callable_close(l->r.c, &l->r.f) < 0)
		assert_true(++l->failed < 2);
	assert_int_equal(callable_figures(l->r.c).allocated_bytes, 0);
	assert_int_equal(callable_figures(l->r.c).buffer_bytes, 0);
	assert_int_equal(memory_soft_allocated(l->r.soft), 0);
	rig_close(&l->r);
}

static void life_run(struct life *l)
{
	for (size_t i = 0; i < ARRAY_SIZE(life_steps); i++)
		while (life_steps[i].step(l, life_steps[i].which))
			assert_int_equal(l->failed, 1); /* the call that fails does so once */
	assert_int_equal(callable_figures(l->r.c).allocated_bytes,
		2 * BLOCK + 2 * l->images[2].len);
	life_end(l);
}

static void life_images(struct life *l)
{
	rig_scale(2, &l->images[0]);
	rig_image(BLOCK / 2 + 64, &l->images[1]);
	rig_image(BLOCK + 64, &l->images[2]);
}

static void life_done(struct life *l)
{
	for (size_t i = 0; i < ARRAY_SIZE(l->images); i++)
		buf_done(&l->images[i]);
}

static void life__each_call_of_each_kind_fails_once__goes_on_and_nothing_leaks(void **state)
{
	/* So many there are of each: two blocks, two large ones, two buffers; ... */
	static const struct {
		enum rig_call call;
		size_t calls;
	} rows[] = { { RIG_ALLOCATE, 6 }, { RIG_COPY, 6 }, { RIG_ENROLL, 6 }, { RIG_LAUNCH, 3 },
		{ RIG_RELEASE, 6 }, { RIG_DRAIN, 1 } };
	static struct life l;

	(void)state;
	life_images(&l);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		for (size_t at = 1; at <= rows[i].calls + 1; at++) {
			life_begin(&l);
			rig_fail(&l.r, rows[i].call, at, NPU_DEVICE_BUSY);
			life_run(&l);
			if (l.failed != (at <= rows[i].calls))
				fail_msg("call %d, number %zu: %d failed", (int)rows[i].call, at,
					l.failed);
		}
	life_done(&l);
}

static void life__each_allocation_of_the_host_fails_once__goes_on_and_nothing_leaks(void **state)
{
	static struct life l;
	bool more = true;
	size_t at;

	(void)state;
	life_images(&l);
	for (at = 1; more; at++) {
		life_begin(&l);
		host_fails_at = at;
		life_run(&l);
		more = host_fails_at == 0;
		host_fails_at = 0;
		assert_int_equal(l.failed, more);
	}
	assert_true(at > 6 + 3); /* the device's six, and the library's own */
	life_done(&l);
}

/* --- order of errors, life-cycle -------------------------------------------------------------- */

static void unregister__any_id__invalid_state(void **state)
{
	AUTO_BUF struct buf image = BUF_INIT;
	static struct rig r;

	(void)state;
	rig_scale(2, &image);
	rig_open(&r, false);
	assert_int_equal(callable_unregister(r.c, rig_prepare(&r, &image), &r.f), -EBADFD);
	assert_int_equal(callable_unregister(r.c, 5, &r.f), -EBADFD);
	rig_address(&r, 0);
	rig_close(&r);
}

static int launch(struct rig *r, int32_t id)
{
	struct packet_tensor t = { 64, 4 };
	struct callable_args args = { PACKET_VM, 1, 0, &t, NULL };

	return callable_launch(r->c, id, &args, &r->f);
}

static void launch__ids_that_are_none__refused_before_the_device(void **state)
{
	AUTO_BUF struct buf image = BUF_INIT;
	struct packet_tensor t[40] = { { 64, 4 } };
	struct callable_args args = { PACKET_VM, 2, 0, t, NULL };
	static struct rig r;

	(void)state;
	rig_scale(2, &image);
	rig_open(&r, false);
	rig_prepare(&r, &image);
	assert_int_equal(launch(&r, -1), -EINVAL);
	assert_int_equal(launch(&r, INT32_MIN), -EINVAL);
	assert_int_equal(launch(&r, 8192), -EINVAL);
	assert_int_equal(launch(&r, INT32_MAX), -EINVAL);
	assert_int_equal(launch(&r, 1), -ENOENT);
	assert_int_equal(launch(&r, 8191), -ENOENT);
	assert_int_equal(callable_launch(r.c, 0, &args, &r.f), -EINVAL); /* takes one */
	args.n_tensors = CALLABLE_TENSORS_MAX + 1;
	assert_int_equal(callable_launch(r.c, 0, &args, &r.f), -EINVAL);
	assert_int_equal(callable_counts(r.c)->launch, 0);
	assert_false(callable_figures(r.c).poisoned);
	assert_int_equal(launch(&r, 0), 0);
	assert_int_equal(callable_close(r.c, &r.f), 0);
	assert_int_equal(launch(&r, 0), -EBADFD);
	assert_int_equal(callable_counts(r.c)->launch, 1);
	rig_close(&r);
}

static void prepare__malformed_in_a_wrong_state__invalid_argument(void **state)
{
	AUTO_BUF struct buf image = BUF_INIT;
	AUTO_BUF struct buf bad = BUF_INIT;
	static struct rig r;
	uint64_t address;

	(void)state;
	rig_scale(2, &image);
	buf_put(&bad, image.data, image.len);
	bad.data[0] = 'X';
	rig_open(&r, false);
	rig_fail(&r, RIG_COPY, 1, NPU_DEVICE_CRASH);
	refused(&r, &image, -EIO, NULL);
	refused(&r, &bad, -EINVAL, "magic"); /* poisoned */
	refused(&r, &image, -ENOTRECOVERABLE, NULL);
	assert_int_equal(launch(&r, -1), -EINVAL);
	assert_int_equal(callable_close(r.c, &r.f), 0);
	refused(&r, &bad, -EINVAL, "magic"); /* closed */
	refused(&r, &image, -EBADFD, NULL);
	assert_int_equal(launch(&r, -1), -EINVAL);
	assert_int_equal(callable_buffer_take(r.c, 0, &address, &r.f), -EINVAL);
	assert_int_equal(callable_buffer_take(r.c, 1, &address, &r.f), -EBADFD);
	rig_close(&r);
}

static void poison__state_of_the_device_unknown__said_until_closed(void **state)
{
	static const enum rig_call calls[] = { RIG_ALLOCATE, RIG_COPY, RIG_ENROLL };
	AUTO_BUF struct buf image = BUF_INIT;
	static struct rig r;

	(void)state;
	rig_scale(2, &image);
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		rig_open(&r, false);
		rig_fail(&r, calls[i], 1, NPU_TIMEOUT);
		refused(&r, &image, -ETIMEDOUT, NULL);
		assert_true(callable_figures(r.c).poisoned);
		refused(&r, &image, -ENOTRECOVERABLE, NULL);
		assert_int_equal(launch(&r, 0), -ENOTRECOVERABLE);
		rig_close(&r);
	}
	rig_open(&r, false);
	rig_prepare(&r, &image);
	rig_fail(&r, RIG_LAUNCH, 1, NPU_INVALID_VALUE); /* of this launch alone */
	assert_int_equal(launch(&r, 0), -EINVAL);
	assert_int_equal(launch(&r, 0), 0);
	rig_fail(&r, RIG_LAUNCH, 1, NPU_DEVICE_CRASH);
	assert_int_equal(launch(&r, 0), -EIO);
	assert_int_equal(launch(&r, 0), -ENOTRECOVERABLE);
	assert_int_equal(callable_counts(r.c)->launch, 3);
	rig_close(&r);
}

/* --- close ------------------------------------------------------------------------------------ */

static void close__releases_fail__kept_and_released_by_a_retry(void **state)
{
	AUTO_BUF struct buf image = BUF_INIT;
	static struct rig r;

	(void)state;
	rig_open(&r, false);
	rig_image(BLOCK, &image);
	for (int i = 0; i < 5; i++)
		rig_prepare(&r, &image);
	rig_fail(&r, RIG_RELEASE, 3, NPU_DEVICE_BUSY);
	assert_int_equal(callable_close(r.c, &r.f), -EBUSY);
	assert_int_equal(callable_counts(r.c)->release, 5); /* one pass, to the end */
	assert_int_equal(callable_figures(r.c).allocated_bytes, BLOCK);
	assert_int_equal(r.paper_bytes, BLOCK);
	assert_int_equal(launch(&r, 0), -EBADFD);
	refused(&r, &image, -EBADFD, NULL);
	rig_fail(&r, RIG_RELEASE, 1, NPU_DEVICE_CRASH);
	assert_int_equal(callable_close(r.c, &r.f), -EIO);
	assert_int_equal(callable_close(r.c, &r.f), 0);
	assert_int_equal(callable_counts(r.c)->release, 7);
	assert_int_equal(callable_counts(r.c)->drain, 1);
	assert_int_equal(r.paper_bytes, 0);
	assert_int_equal(callable_close(r.c, &r.f), 0); /* and once more is nothing */
	assert_int_equal(callable_counts(r.c)->release, 7);
	rig_close(&r);
}

static void close__drain_fails__nothing_released_until_it_does(void **state)
{
	AUTO_BUF struct buf image = BUF_INIT;
	static struct rig r;

	(void)state;
	rig_open(&r, false);
	rig_scale(2, &image);
	rig_prepare(&r, &image);
	rig_fail(&r, RIG_DRAIN, 1, NPU_TIMEOUT);
	assert_int_equal(callable_close(r.c, &r.f), -ETIMEDOUT);
	assert_int_equal(callable_counts(r.c)->release, 0);
	assert_int_equal(callable_figures(r.c).allocated_bytes, BLOCK);
	rig_close(&r);
}

static void close__nothing_prepared__nothing_released(void **state)
{
	static struct rig r;

	(void)state;
	rig_open(&r, true);
	rig_close(&r);
	callable_cache_free(NULL);
}

/* --- the launch path -------------------------------------------------------------------------- */

static void launch__thousand_times__no_allocation_no_upload(void **state)
{
	AUTO_BUF struct buf image = BUF_INIT;
	static struct rig r;
	struct packet_tensor t;
	struct callable_args args = { PACKET_VM, 1, 0, &t, NULL };
	size_t before;
	float *x;

	(void)state;
	rig_open(&r, true);
	t = rig_tensor(&r, 1, &x);
	rig_scale(-1, &image);
	rig_prepare(&r, &image);
	x[0] = 3;
	before = host_calls;
	for (int i = 0; i < 1001; i++)
		if (callable_launch(r.c, 0, &args, &r.f) < 0)
			fail_msg("%s", r.f.reason);
	assert_int_equal(host_calls, before);
	assert_true(x[0] == -3);
	assert_int_equal(callable_counts(r.c)->allocate, 1);
	assert_int_equal(callable_counts(r.c)->copy, 1);
	assert_int_equal(callable_counts(r.c)->enroll, 1);
	assert_int_equal(callable_counts(r.c)->drain, 0);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(prepare__8192_ids__the_8193rd_refused),
		cmocka_unit_test(prepare__2_gib__refused_with_all_residents_intact),
		cmocka_unit_test(prepare__tails__charged),
		cmocka_unit_test(prepare__small_images__share_a_block_64_byte_aligned),
		cmocka_unit_test(prepare__large_image_between_small_ones__apart_and_tails_kept),
		cmocka_unit_test(prepare__any_older_block_with_room__taken_first),
		cmocka_unit_test(prepare__sizes_mixed__each_in_the_first_block_with_room),
		cmocka_unit_test(prepare__identical_image_twice__two_ids),
		cmocka_unit_test(prepare__65_in_a_row__all_launch),
		cmocka_unit_test(prepare__allocation_fails__rolled_back),
		cmocka_unit_test(prepare__upload_fails__rolled_back_and_storage_reused),
		cmocka_unit_test(prepare__registration_fails__rolled_back_and_storage_reused),
		cmocka_unit_test(prepare__whole_block_fails__storage_reused),
		cmocka_unit_test(
			prepare__large_upload_fails__storage_reused_or_given_up_for_the_cap),
		cmocka_unit_test(prepare__no_host_memory_anywhere__rolled_back),
		cmocka_unit_test(
			prepare__memory_at_no_address_or_misaligned__poisoned_and_released),
		cmocka_unit_test(
			life__each_call_of_each_kind_fails_once__goes_on_and_nothing_leaks),
		cmocka_unit_test(
			life__each_allocation_of_the_host_fails_once__goes_on_and_nothing_leaks),
		cmocka_unit_test(unregister__any_id__invalid_state),
		cmocka_unit_test(launch__ids_that_are_none__refused_before_the_device),
		cmocka_unit_test(prepare__malformed_in_a_wrong_state__invalid_argument),
		cmocka_unit_test(poison__state_of_the_device_unknown__said_until_closed),
		cmocka_unit_test(close__releases_fail__kept_and_released_by_a_retry),
		cmocka_unit_test(close__drain_fails__nothing_released_until_it_does),
		cmocka_unit_test(close__nothing_prepared__nothing_released),
		cmocka_unit_test(launch__thousand_times__no_allocation_no_upload),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
