/* Failures of a context: each call of the device, each allocation of the host, alone and over a whole life;
 * everything is rolled back, what was there is used again, and nothing leaks. */
#include "core/callable/cache.h"

#include "callable_rig.h"
#include "core/callable/buffer.h"

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
	rig_refused(&r, &image, call == RIG_ALLOCATE ? -ENOMEM : -EBUSY, NULL);
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
	rig_refused(&r, &image, -EBUSY, NULL);
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
	rig_refused(&r, &large, -EBUSY, NULL);
	assert_int_equal(callable_figures(r.c).allocated_bytes, 3 * BLOCK);
	rig_prepare(&r, &large);
	assert_int_equal(callable_figures(r.c).allocated_bytes, 3 * BLOCK);
	rig_fail(&r, RIG_ENROLL, 1, NPU_DEVICE_BUSY);
	rig_refused(&r, &large, -EBUSY, NULL);
	assert_int_equal(callable_figures(r.c).allocated_bytes, 6 * BLOCK);
	for (int i = 0; i < 1021; i++) /* all but what is resident of 1024 blocks' room */
		rig_prepare(&r, &filler);
	assert_int_equal(callable_figures(r.c).allocated_bytes, CAP);
	assert_int_equal(callable_figures(r.c).resident_bytes, CAP);
	rig_refused(&r, &filler, -ENOSPC, "allocated_bytes");
	rig_close(&r);
}

/* Three large ones whose upload failed are in the way of a fourth: they go, but not while what replays
 * refers to is being captured, and what stands behind them is found where it then is. */
static void prepare__spares_given_up_for_the_cap__not_in_a_capture_and_the_rest_is_found(
	void **state)
{
	AUTO_BUF struct buf large = BUF_INIT;
	AUTO_BUF struct buf filler = BUF_INIT;
	static const uint64_t sizes[] = { 3 * BLOCK, 4 * BLOCK, 5 * BLOCK };
	struct callable_graph *g = NULL;
	static struct rig r;

	(void)state;
	rig_open(&r, false);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		AUTO_BUF struct buf image = BUF_INIT;

		rig_image(sizes[i], &image);
		rig_fail(&r, RIG_COPY, 1, NPU_DEVICE_BUSY);
		rig_refused(&r, &image, -EBUSY, NULL);
	}
	rig_image(6 * BLOCK, &large);
	rig_image(BLOCK, &filler);
	for (int i = 0; i < 1012; i++)
		rig_prepare(&r, &filler);
	assert_int_equal(callable_figures(r.c).allocated_bytes, CAP);
	assert_int_equal(callable_graph_begin(r.c, CAPTURE_GLOBAL, 1, &r.f), 0);
	rig_refused(&r, &large, -ENOSPC, "allocated_bytes");
	assert_int_equal(callable_counts(r.c)->release, 0);
	assert_int_equal(callable_graph_end(r.c, &g, &r.f), 0);
	callable_graph_free(g);
	rig_prepare(&r, &large);
	assert_int_equal(callable_counts(r.c)->release, ARRAY_SIZE(sizes));
	rig_prepare(&r, &filler);
	assert_int_equal(r.last_copied_to, r.paper[r.n_paper - 1].address);
	assert_int_equal(callable_figures(r.c).allocated_bytes, (1012 + 6 + 1) * BLOCK);
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
	rig_refused(&r, &image, -EIO, NULL);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(prepare__allocation_fails__rolled_back),
		cmocka_unit_test(prepare__upload_fails__rolled_back_and_storage_reused),
		cmocka_unit_test(prepare__registration_fails__rolled_back_and_storage_reused),
		cmocka_unit_test(prepare__whole_block_fails__storage_reused),
		cmocka_unit_test(
			prepare__large_upload_fails__storage_reused_or_given_up_for_the_cap),
		cmocka_unit_test(
			prepare__spares_given_up_for_the_cap__not_in_a_capture_and_the_rest_is_found),
		cmocka_unit_test(prepare__no_host_memory_anywhere__rolled_back),
		cmocka_unit_test(
			prepare__memory_at_no_address_or_misaligned__poisoned_and_released),
		cmocka_unit_test(
			life__each_call_of_each_kind_fails_once__goes_on_and_nothing_leaks),
		cmocka_unit_test(
			life__each_allocation_of_the_host_fails_once__goes_on_and_nothing_leaks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
