/* The cache of a context: limits, placing, growth, the order of error classes, poisoning and closing. Memory
 * is of paper where nothing is launched. */
#include "core/callable/cache.h"

#include "callable_rig.h"
#include "core/callable/buffer.h"

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
	rig_refused(&r, &image, -ENOSPC, "registrations");
	assert_int_equal(callable_counts(r.c)->copy, 8192);
	for (int32_t i = 0; i < 8192; i++)
		assert_int_equal(rig_address(&r, i), addresses[i]);
	rig_close(&r);
}

/* The device's own table has the same bound, whoever asks. */
static void soft__enroll__only_ids_that_its_table_has(void **state)
{
	struct memory_soft *s = memory_soft_new();

	(void)state;
	assert_int_equal(memory_soft_ops.enroll(s, 8191, 64, 64), NPU_SUCCESS);
	assert_int_equal(memory_soft_ops.enroll(s, 8192, 64, 64), NPU_OUT_OF_RANGE);
	assert_int_equal(memory_soft_ops.enroll(s, -1, 64, 64), NPU_OUT_OF_RANGE);
	assert_int_equal(memory_soft_queued(s), 1);
	memory_soft_free(s);
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
	rig_refused(&r, &image, -ENOSPC, "allocated_bytes");
	rig_refused(&r, &tiny, -ENOSPC, "allocated_bytes"); /* no tail is left */
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
	rig_refused(&r, &half, -ENOSPC, "allocated_bytes"); /* though nearly 1 GiB is unused */
	rig_prepare(&r, &tiny);                             /* a tail has room for it */
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
	rig_refused(&r, &image, -EIO, NULL);
	rig_refused(&r, &bad, -EINVAL, "magic"); /* poisoned */
	rig_refused(&r, &image, -ENOTRECOVERABLE, NULL);
	assert_int_equal(launch(&r, -1), -EINVAL);
	assert_int_equal(callable_close(r.c, &r.f), 0);
	rig_refused(&r, &bad, -EINVAL, "magic"); /* closed */
	rig_refused(&r, &image, -EBADFD, NULL);
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
		rig_refused(&r, &image, -ETIMEDOUT, NULL);
		assert_true(callable_figures(r.c).poisoned);
		rig_refused(&r, &image, -ENOTRECOVERABLE, NULL);
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
	rig_refused(&r, &image, -EBADFD, NULL);
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
		cmocka_unit_test(soft__enroll__only_ids_that_its_table_has),
		cmocka_unit_test(prepare__2_gib__refused_with_all_residents_intact),
		cmocka_unit_test(prepare__tails__charged),
		cmocka_unit_test(prepare__small_images__share_a_block_64_byte_aligned),
		cmocka_unit_test(prepare__large_image_between_small_ones__apart_and_tails_kept),
		cmocka_unit_test(prepare__any_older_block_with_room__taken_first),
		cmocka_unit_test(prepare__sizes_mixed__each_in_the_first_block_with_room),
		cmocka_unit_test(prepare__identical_image_twice__two_ids),
		cmocka_unit_test(prepare__65_in_a_row__all_launch),
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
