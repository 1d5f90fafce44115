/* KV and committed length of one sequence, step by step; the device's own length is asked after
 * each. */
#include "core/engine/sequence.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#include "tests/fake_device.h"

static const struct device_params params = { .threads = 1 };
static struct device *device;
static struct manifest *manifest;
static struct generation *g;
static struct sequence s;
static char log_text[1 << 16];

static const char *calls(void)
{
	fake_log(log_text, sizeof log_text);
	fake_log_clear();
	return log_text;
}

static int up(void **state)
{
	struct fault f = FAULT_NONE;

	(void)state;
	fake_reset();
	if (manifest_parse(fake_manifest, strlen(fake_manifest), true, &manifest, &f) ||
		device_open(&fake_pair_ops, &params, &device) ||
		generation_open(device, manifest, NULL, 1, &g, &f) || sequence_open(g, &s))
		return -1;
	fake_log_clear();
	return 0;
}

static int down(void **state)
{
	(void)state;
	sequence_close(g, &s);
	generation_close(g);
	device_close(device);
	manifest_free(manifest);
	return 0;
}

static struct infer_result feed(uint32_t n)
{
	static const int32_t tokens[] = { 'a', 'b', 'c', 'd' };
	const float *logits;

	return sequence_feed(g, &s, tokens, n, &logits);
}

static void check_lengths(uint32_t committed)
{
	assert_int_equal(s.committed, committed);
	assert_int_equal(device_kv_len(device, s.id), committed);
	assert_false(s.lost);
}

/* Three tokens by prefill: the next is 'a' + 3; then one by decode: 'a' + 4. */
static void feed__prefill_then_decode__logits_and_lengths(void **state)
{
	static const int32_t three[] = { 'x', 'y', 'z' };
	const float *logits;

	(void)state;
	assert_int_equal(sequence_feed(g, &s, three, 3, &logits).stage, INFER_DONE);
	assert_true(logits['d'] == 1.0f && logits['e'] == 0.0f);
	check_lengths(3);
	assert_string_equal(calls(),
		"kv_apply slice_input slice_output cur=3 set_csr past=3 set_csr infer:prefill "
		"infer wait "
		"run_status reset_input reset_output "
		"slice_output cur=3 set_csr past=3 set_csr infer:kv_update infer wait run_status "
		"reset_input reset_output ");
	assert_int_equal(sequence_feed(g, &s, three, 1, &logits).stage, INFER_DONE);
	assert_true(logits['e'] == 1.0f);
	check_lengths(4);
	assert_int_equal(fake_count("infer:decode"), 1);
	assert_int_equal(fake_count("past=4"), 2);
}

static void feed__any_step_fails__rolled_back_to_the_committed_length(void **state)
{
	static const struct {
		const char *call;
		unsigned nth;
		enum infer_stage stage;
	} rows[] = {
		{ "slice_input", 1, INFER_NOT_SUBMITTED },
		{ "infer", 1, INFER_NOT_SUBMITTED },
		{ "wait", 1, INFER_SUBMITTED },
		{ "infer", 2, INFER_NOT_SUBMITTED }, /* kv_update's */
		{ "wait", 2, INFER_SUBMITTED },
	};

	(void)state;
	assert_int_equal(feed(3).stage, INFER_DONE);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct infer_result r;

		fake_fail(rows[i].call, rows[i].nth, NPU_DEVICE_BUSY);
		r = feed(2);
		assert_int_equal(r.stage, rows[i].stage);
		assert_int_equal(r.code, NPU_DEVICE_BUSY);
		check_lengths(3);
	}
	assert_int_equal(feed(4).stage, INFER_DONE);
	check_lengths(7);
}

static void feed__apply_refused_or_half_done__not_submitted(void **state)
{
	(void)state;
	fake_fail("kv_apply", 1, NPU_UNKNOWN);
	assert_int_equal(feed(2).stage, INFER_NOT_SUBMITTED);
	check_lengths(0);
	fake.short_apply = true;
	assert_int_equal(feed(2).code, NPU_NOT_EXPECTED);
	assert_int_equal(fake_count("infer"), 0);
	check_lengths(0);
	fake.short_apply = false;
	fake.refused_apply = true;
	assert_int_equal(feed(2).code, NPU_NOT_EXPECTED);
	assert_int_equal(fake_count("infer"), 0);
	check_lengths(0); /* whatever it grew by is cut */
	fake.refused_apply = false;
	assert_int_equal(feed(2).stage, INFER_DONE);
}

static void feed__commit_loses_a_token__found_out_and_cut(void **state)
{
	(void)state;
	assert_int_equal(feed(3).stage, INFER_DONE);
	fake.short_commit = true;
	assert_int_equal(feed(2).code, NPU_NOT_EXPECTED);
	check_lengths(3);
	fake.short_commit = false;
	assert_int_equal(feed(2).stage, INFER_DONE);
	check_lengths(5);
}

static void feed__output_refused__rolled_back(void **state)
{
	(void)state;
	fake.poison_bits = 0x7fc00000;
	fake.poison = true;
	assert_int_equal(feed(2).stage, INFER_NOT_FINITE);
	check_lengths(0);
}

/* Context 16: whatever would pass it reaches no inference. */
static void feed__context_full__out_of_range(void **state)
{
	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(feed(4).stage, INFER_DONE);
	fake_log_clear();
	assert_int_equal(feed(1).code, NPU_OUT_OF_RANGE);
	assert_int_equal(fake_count("infer"), 0);
	check_lengths(16);
}

static void feed__truncate_fails_silently__sequence_is_lost_and_freed(void **state)
{
	int32_t id = s.id;

	(void)state;
	assert_int_equal(feed(3).stage, INFER_DONE);
	fake.silent_remove = true;
	fake_fail("wait", 1, NPU_TIMEOUT);
	assert_int_equal(feed(1).stage, INFER_SUBMITTED);
	assert_true(s.lost);
	assert_int_equal(device_kv_len(device, id), -1);
	fake_log_clear();
	assert_int_equal(sequence_close(g, &s), NPU_SUCCESS);
	assert_string_equal(calls(), ""); /* nothing is freed twice */
}

static void cut__shorter_and_verified__goes_on_from_there(void **state)
{
	(void)state;
	assert_int_equal(feed(4).stage, INFER_DONE);
	fake_log_clear();
	sequence_cut(g, &s, 4);
	assert_string_equal(calls(), "");
	sequence_cut(g, &s, 1);
	check_lengths(1);
	assert_int_equal(feed(2).stage, INFER_DONE);
	check_lengths(3);
	fake.silent_remove = true;
	sequence_cut(g, &s, 0);
	assert_true(s.lost);
	assert_int_equal(device_kv_len(device, s.id), -1);
}

static void open__no_room__memory_allocation(void **state)
{
	struct sequence more[3], last;

	(void)state;
	for (int i = 0; i < 3; i++)
		assert_int_equal(sequence_open(g, &more[i]), NPU_SUCCESS);
	assert_int_equal(sequence_open(g, &last), NPU_MEMORY_ALLOCATION);
	assert_int_not_equal(more[0].id, more[1].id);
	for (int i = 0; i < 3; i++)
		assert_int_equal(sequence_close(g, &more[i]), NPU_SUCCESS);
	assert_int_equal(sequence_open(g, &last), NPU_SUCCESS);
	assert_true(last.id > more[2].id); /* ids are not used again */
	fake.silent_free = true;
	assert_int_equal(sequence_close(g, &last), NPU_NOT_EXPECTED);
}

/* They are the runtime's int32. */
static void open__the_last_id__begins_again_at_0(void **state)
{
	struct sequence last, next;

	(void)state;
	g->next_sequence = INT32_MAX;
	assert_int_equal(sequence_open(g, &last), NPU_SUCCESS);
	assert_int_equal(last.id, INT32_MAX);
	assert_int_equal(sequence_close(g, &s), NPU_SUCCESS); /* which has the first */
	assert_int_equal(sequence_open(g, &next), NPU_SUCCESS);
	assert_int_equal(next.id, 0);
	assert_int_equal(sequence_close(g, &last), NPU_SUCCESS);
	s = next;
}

static void open__allocate_fails_silently__not_expected(void **state)
{
	struct sequence more;

	(void)state;
	fake.silent_allocate = true;
	assert_int_equal(sequence_open(g, &more), NPU_NOT_EXPECTED);
}

/* --- two in flight ---------------------------------------------------------------------------- */

static struct sequence other;

static void open_other(void)
{
	assert_int_equal(generation_set_parallel(g, true), NPU_SUCCESS);
	assert_int_equal(g->n_lanes, 2);
	assert_int_equal(sequence_open(g, &other), NPU_SUCCESS);
	fake_log_clear();
}

static void feed_two(uint32_t n, uint32_t n_other, struct infer_result ret[2],
	const float *logits[2])
{
	static const int32_t tokens[] = { 'a', 'b', 'c', 'd' };
	const struct sequence_feed feeds[] = { { &s, tokens, n }, { &other, tokens, n_other } };

	sequence_feed_many(g, feeds, 2, ret, logits);
}

/* Three tokens and four: 'a' + 3 and 'a' + 4 are next. Each apply stands right before its submit. */
static void feed_many__good__each_its_logits_and_length(void **state)
{
	const float *logits[2];
	struct infer_result r[2];

	(void)state;
	open_other();
	feed_two(3, 4, r, logits);
	assert_int_equal(r[0].stage, INFER_DONE);
	assert_int_equal(r[1].stage, INFER_DONE);
	assert_true(logits[0]['d'] == 1.0f && logits[1]['e'] == 1.0f);
	assert_string_equal(calls(),
		"kv_apply slice_input slice_output cur=3 set_csr past=3 set_csr infer:prefill "
		"infer ping "
		"kv_apply slice_input slice_output cur=4 set_csr past=4 set_csr infer:prefill "
		"infer pong wait run_status wait run_status "
		"reset_input reset_output reset_input reset_output "
		"slice_output cur=3 set_csr past=3 set_csr infer:kv_update infer ping "
		"slice_output cur=4 set_csr past=4 set_csr infer:kv_update infer pong "
		"wait run_status wait run_status "
		"reset_input reset_output reset_input reset_output ");
	check_lengths(3);
	assert_int_equal(other.committed, 4);
	feed_two(1, 2, r, logits); /* decode and prefill */
	assert_true(logits[0]['e'] == 1.0f && logits[1]['g'] == 1.0f);
	assert_int_equal(device_kv_len(device, other.id), 6);
	assert_int_equal(sequence_close(g, &other), NPU_SUCCESS);
}

/* Calls 1 and 2 are the two inferences', 3 and 4 kv_update's. */
static void feed_many__one_fails__only_that_one_rolled_back(void **state)
{
	static const struct {
		const char *call;
		unsigned nth, bad;
	} rows[] = {
		{ "kv_apply", 1, 0 },
		{ "infer", 1, 0 },
		{ "wait", 1, 0 },
		{ "infer", 3, 0 },
		{ "wait", 3, 0 },
		{ "kv_apply", 2, 1 },
		{ "infer", 2, 1 },
		{ "wait", 2, 1 },
		{ "infer", 4, 1 },
		{ "wait", 4, 1 },
	};
	uint32_t want[2] = { 0, 0 };

	(void)state;
	open_other();
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		bool apply = strcmp(rows[i].call, "kv_apply") == 0;
		const float *logits[2];
		struct infer_result r[2];

		fake_log_clear();
		fake_fail(rows[i].call, rows[i].nth, NPU_DEVICE_BUSY);
		feed_two(1, 2, r, logits);
		if (apply) /* only a bool: no reason, so it reaches all */
			assert_int_equal(r[rows[i].bad].code, NPU_NOT_EXPECTED);
		else
			want[!rows[i].bad] += rows[i].bad ? 1 : 2;
		assert_int_not_equal(r[rows[i].bad].stage, INFER_DONE);
		check_lengths(want[0]);
		assert_int_equal(other.committed, want[1]);
		assert_int_equal(device_kv_len(device, other.id), want[1]);
	}
	assert_int_equal(sequence_close(g, &other), NPU_SUCCESS);
}

static void feed_many__failure_beyond_its_job__nothing_committed_nor_submitted_after_it(
	void **state)
{
	const float *logits[2];
	struct infer_result r[2];

	(void)state;
	open_other();
	fake_fail("wait", 2, NPU_DEVICE_CRASH);
	feed_two(3, 4, r, logits);
	assert_int_equal(r[1].code, NPU_DEVICE_CRASH);
	assert_int_equal(r[0].stage, INFER_NOT_SUBMITTED);
	assert_int_equal(r[0].code, NPU_DEVICE_BUSY);
	assert_int_equal(fake_count("infer"), 2);
	check_lengths(0);
	assert_int_equal(other.committed, 0);
	assert_int_equal(sequence_close(g, &other), NPU_SUCCESS);
}

static void set_parallel__fails__one_lane_and_the_device_switched_back(void **state)
{
	(void)state;
	fake_fail("create_output_buf", 2, NPU_MEMORY_ALLOCATION);
	assert_int_equal(generation_set_parallel(g, true), NPU_MEMORY_ALLOCATION);
	assert_int_equal(g->n_lanes, 1);
	assert_string_equal(calls(),
		"parallel status create_input_buf create_output_buf create_input_buf "
		"create_output_buf destroy_input_buf destroy_input_buf destroy_output_buf "
		"serial status ");
	fake_fail("status", 1, NPU_MEMORY_ALLOCATION);
	assert_int_equal(generation_set_parallel(g, true), NPU_MEMORY_ALLOCATION);
	assert_int_equal(g->n_lanes, 1);
	assert_int_equal(generation_set_parallel(g, true), NPU_SUCCESS);
	assert_int_equal(generation_set_parallel(g, false), NPU_SUCCESS);
	assert_int_equal(g->n_lanes, 1);
	assert_int_equal(feed(3).stage, INFER_DONE);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(feed__prefill_then_decode__logits_and_lengths),
		TEST(feed__any_step_fails__rolled_back_to_the_committed_length),
		TEST(feed__apply_refused_or_half_done__not_submitted),
		TEST(feed__commit_loses_a_token__found_out_and_cut),
		TEST(feed__output_refused__rolled_back),
		TEST(feed__context_full__out_of_range),
		TEST(feed__truncate_fails_silently__sequence_is_lost_and_freed),
		TEST(feed_many__good__each_its_logits_and_length),
		TEST(feed_many__one_fails__only_that_one_rolled_back),
		TEST(feed_many__failure_beyond_its_job__nothing_committed_nor_submitted_after_it),
		TEST(set_parallel__fails__one_lane_and_the_device_switched_back),
		TEST(cut__shorter_and_verified__goes_on_from_there),
		TEST(open__no_room__memory_allocation),
		TEST(open__the_last_id__begins_again_at_0),
		TEST(open__allocate_fails_silently__not_expected),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
