/* Capture and replay, with preparing in both modes of a capture; every failure in it; and the weak
 * consumer, which nothing replaces in this program. */
#include "core/callable/graph.h"

#include "callable_rig.h"

static const enum capture_mode modes[] = { CAPTURE_GLOBAL, CAPTURE_THREAD_LOCAL };

static int launch(struct rig *r, int32_t id, struct packet_tensor t)
{
	struct callable_args args = { PACKET_VM, 1, 0, &t, NULL };

	return callable_launch(r->c, id, &args, &r->f);
}

static int32_t prepare_scale(struct rig *r, float by)
{
	AUTO_BUF struct buf image = BUF_INIT;

	rig_scale(by, &image);
	return callable_prepare(r->c, image.data, image.len, &r->f);
}

static void begin(struct rig *r, enum capture_mode mode, uint32_t most)
{
	if (callable_graph_begin(r->c, mode, most, &r->f) < 0)
		fail_msg("%s", r->f.reason);
}

static struct callable_graph *end(struct rig *r)
{
	struct callable_graph *g = NULL;

	if (callable_graph_end(r->c, &g, &r->f) < 0)
		fail_msg("%s", r->f.reason);
	return g;
}

/* --- preparing in a capture ------------------------------------------------------------------- */

static void prepare__first_and_64_more_in_each_mode__nothing_synchronised(void **state)
{
	(void)state;
	for (size_t m = 0; m < ARRAY_SIZE(modes); m++) {
		static struct rig r;
		struct callable_graph *g;
		struct packet_tensor t;
		float *x;

		rig_open(&r, true);
		t = rig_tensor(&r, 1, &x);
		begin(&r, modes[m], 65);
		for (int32_t i = 0; i < 65; i++) {
			if (prepare_scale(&r, i % 2 ? 0.5f : 2.0f) != i)
				fail_msg("%s", r.f.reason);
			assert_int_equal(memory_soft_mode(r.soft), modes[m]);
			assert_int_equal(launch(&r, i, t), 0);
		}
		assert_int_equal(callable_counts(r.c)->drain, 0);
		assert_int_equal(callable_counts(r.c)->launch, 0); /* only captured */
		assert_int_equal(callable_counts(r.c)->copy, 65);  /* at once */
		assert_int_equal(callable_counts(r.c)->exchange_mode, 130);
		g = end(&r);
		assert_int_equal(callable_graph_launches(g), 65);
		/* The first replay, with every registration still enqueued. */
		assert_int_equal(memory_soft_queued(r.soft), 65);
		x[0] = 3;
		assert_int_equal(callable_graph_replay(g, &r.f), 0);
		assert_true(x[0] == 6);
		assert_int_equal(callable_counts(r.c)->drain, 0);
		callable_graph_free(g);
		rig_close(&r);
	}
}

/* Without relaxing, the device refuses: so what the test above shows is not for nothing. */
static void soft__not_relaxed_in_a_capture__refuses(void **state)
{
	struct memory_soft *s = memory_soft_new();
	enum capture_mode mode = CAPTURE_RELAXED;
	uint64_t address;

	(void)state;
	assert_int_equal(memory_soft_ops.begin_capture(s, CAPTURE_THREAD_LOCAL), NPU_SUCCESS);
	assert_int_equal(memory_soft_ops.allocate(s, 64, 64, &address), NPU_NOT_EXPECTED);
	assert_int_equal(memory_soft_ops.drain(s), NPU_NOT_EXPECTED);
	assert_int_equal(memory_soft_ops.exchange_mode(s, &mode), NPU_SUCCESS);
	assert_int_equal(mode, CAPTURE_THREAD_LOCAL);
	assert_int_equal(memory_soft_ops.allocate(s, 64, 64, &address), NPU_SUCCESS);
	memory_soft_free(s);
}

static void prepare__fails_in_a_capture__mode_restored(void **state)
{
	static const enum rig_call calls[] = { RIG_ALLOCATE, RIG_COPY, RIG_ENROLL };

	(void)state;
	for (size_t m = 0; m < ARRAY_SIZE(modes); m++)
		for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
			static struct rig r;

			rig_open(&r, true);
			begin(&r, modes[m], 1);
			rig_fail(&r, calls[i], 1, NPU_DEVICE_BUSY);
			assert_int_equal(prepare_scale(&r, 2), -1);
			assert_int_equal(r.f.err, -EBUSY);
			assert_int_equal(memory_soft_mode(r.soft), modes[m]);
			assert_int_equal(callable_counts(r.c)->exchange_mode, 2);
			assert_int_equal(prepare_scale(&r, 2), 0);
			callable_graph_free(end(&r));
			rig_close(&r);
		}
}

static void prepare__mode_not_restored__reported_and_poisoned(void **state)
{
	struct callable_graph *g;
	static struct rig r;

	(void)state;
	for (int upload_fails = 0; upload_fails < 2; upload_fails++) {
		rig_open(&r, true);
		begin(&r, CAPTURE_GLOBAL, 1);
		rig_fail(&r, RIG_EXCHANGE, 2, NPU_DEVICE_BUSY);
		if (upload_fails)
			rig_fail(&r, RIG_COPY, 1, NPU_OUT_OF_RANGE);
		assert_int_equal(prepare_scale(&r, 2), -1);
		assert_non_null(strstr(r.f.reason, "restoring the thread's capture mode"));
		assert_int_equal(!!strstr(r.f.reason, "uploading"), upload_fails);
		assert_int_equal(callable_figures(r.c).registrations, 0);
		assert_int_equal(callable_figures(r.c).resident_bytes, 0);
		assert_true(callable_figures(r.c).poisoned);
		assert_int_equal(prepare_scale(&r, 2), -1);
		assert_int_equal(r.f.err, -ENOTRECOVERABLE);
		assert_int_equal(callable_graph_end(r.c, &g, &r.f), -ENOTRECOVERABLE);
		rig_close(&r); /* ends the capture, too */
	}
}

static void prepare__mode_not_relaxed__nothing_touched(void **state)
{
	static struct rig r;

	(void)state;
	rig_open(&r, true);
	begin(&r, CAPTURE_GLOBAL, 1);
	rig_fail(&r, RIG_EXCHANGE, 1, NPU_DEVICE_BUSY);
	assert_int_equal(prepare_scale(&r, 2), -1);
	assert_int_equal(callable_counts(r.c)->allocate, 0);
	assert_false(callable_figures(r.c).poisoned);
	assert_int_equal(prepare_scale(&r, 2), 0);
	rig_close(&r);
}

/* --- replay ----------------------------------------------------------------------------------- */

static void replay__100_times__buffers_right_and_nothing_allocated(void **state)
{
	static struct rig r;
	struct callable_memory_counts before, after;
	struct callable_graph *g;
	struct packet_tensor t, u;
	float *x, *y;
	size_t calls;

	(void)state;
	rig_open(&r, true);
	t = rig_tensor(&r, 1, &x);
	u = rig_tensor(&r, 1, &y);
	prepare_scale(&r, 3);
	prepare_scale(&r, -0.5f);
	begin(&r, CAPTURE_THREAD_LOCAL, 8);
	calls = host_calls;
	assert_int_equal(launch(&r, 0, t), 0);
	assert_int_equal(launch(&r, 1, u), 0);
	assert_int_equal(launch(&r, 1, t), 0);
	assert_int_equal(launch(&r, 0, t), 0);
	assert_int_equal(host_calls, calls);
	g = end(&r);
	before = *callable_counts(r.c);
	calls = host_calls;
	for (int i = 0; i < 100; i++) {
		x[0] = (float)(i + 1);
		y[0] = (float)(2 * i);
		assert_int_equal(callable_graph_replay(g, &r.f), 0);
		assert_true(x[0] == (float)(i + 1) * -4.5f);
		assert_true(y[0] == (float)-i);
	}
	after = *callable_counts(r.c);
	assert_int_equal(host_calls, calls);
	assert_int_equal(after.launch - before.launch, 400);
	before.launch = after.launch;
	assert_memory_equal(&before, &after, sizeof after);
	callable_graph_free(g);
	rig_close(&r);
}

static void launch__registration_executed_late_and_wrong__said_at_the_first_launch(void **state)
{
	static struct rig r;
	struct packet_tensor t;
	float *x;

	(void)state;
	rig_open(&r, true);
	t = rig_tensor(&r, 1, &x);
	assert_int_equal(prepare_scale(&r, 2), 0);
	/* What the device was told to load is not its memory: enrolling took it all the same. */
	assert_int_equal(memory_soft_ops.enroll(r.soft, 0, 64, 64), NPU_SUCCESS);
	assert_int_equal(launch(&r, 0, t), -EINVAL); /* executed by the launch itself */
	assert_int_equal(memory_soft_answer(r.soft), PACKET_NOT_REGISTERED);
	assert_int_equal(memory_soft_ops.enroll(r.soft, 0, 64, 64), NPU_SUCCESS);
	memory_soft_run_queue(r.soft); /* or before it */
	assert_int_equal(memory_soft_queued(r.soft), 0);
	assert_int_equal(launch(&r, 0, t), -EINVAL);
	assert_int_equal(memory_soft_answer(r.soft), PACKET_NOT_REGISTERED);
	assert_int_equal(prepare_scale(&r, 2), 1);
	assert_int_equal(launch(&r, 1, t), 0);
	rig_close(&r);
}

static void replay__a_launch_fails__stops_there(void **state)
{
	static struct rig r;
	struct callable_graph *g;
	struct packet_tensor t;
	float *x;

	(void)state;
	rig_open(&r, true);
	t = rig_tensor(&r, 1, &x);
	prepare_scale(&r, 3);
	begin(&r, CAPTURE_GLOBAL, 3);
	for (int i = 0; i < 3; i++)
		assert_int_equal(launch(&r, 0, t), 0);
	g = end(&r);
	x[0] = 1;
	rig_fail(&r, RIG_LAUNCH, 2, NPU_DEVICE_BUSY);
	assert_int_equal(callable_graph_replay(g, &r.f), -EBUSY);
	assert_true(x[0] == 3);
	rig_fail(&r, RIG_LAUNCH, 2, NPU_DEVICE_CRASH);
	assert_int_equal(callable_graph_replay(g, &r.f), -EIO);
	assert_int_equal(callable_graph_replay(g, &r.f), -ENOTRECOVERABLE);
	callable_graph_free(g);
	rig_close(&r);
}

/* --- life-cycle ------------------------------------------------------------------------------- */

static void capture__wrong_calls__refused_by_class(void **state)
{
	static struct rig r;
	struct callable_graph *g = NULL, *other;
	struct packet_tensor t;
	float *x;

	(void)state;
	rig_open(&r, true);
	t = rig_tensor(&r, 1, &x);
	prepare_scale(&r, 3);
	assert_int_equal(callable_graph_end(r.c, &g, &r.f), -EBADFD);
	assert_int_equal(callable_graph_begin(r.c, CAPTURE_RELAXED, 1, &r.f), -EINVAL);
	assert_int_equal(callable_graph_begin(r.c, CAPTURE_GLOBAL, 0, &r.f), -EINVAL);
	assert_int_equal(callable_graph_begin(r.c, CAPTURE_GLOBAL, 4097, &r.f), -EINVAL);
	begin(&r, CAPTURE_GLOBAL, 1);
	assert_int_equal(callable_graph_begin(r.c, CAPTURE_GLOBAL, 1, &r.f), -EBADFD);
	assert_int_equal(launch(&r, 7, t), -ENOENT);
	assert_int_equal(launch(&r, 0, t), 0);
	assert_int_equal(launch(&r, 0, t), -ENOSPC);
	assert_string_equal(r.f.field, "launches");
	g = end(&r);
	assert_int_equal(callable_graph_launches(g), 1);
	begin(&r, CAPTURE_GLOBAL, 1);
	assert_int_equal(callable_graph_replay(g, &r.f), -EBADFD);
	other = end(&r);
	assert_int_equal(callable_graph_replay(other, &r.f), 0); /* of no launches */
	callable_graph_free(g);
	callable_graph_free(other);
	rig_close(&r);
}

static void close__with_graphs__destroyed_before_the_memory(void **state)
{
	static struct rig r;
	struct callable_graph *g, *h;
	struct packet_tensor t;
	float *x;

	(void)state;
	rig_open(&r, true);
	t = rig_tensor(&r, 1, &x);
	prepare_scale(&r, 3);
	begin(&r, CAPTURE_GLOBAL, 1);
	assert_int_equal(launch(&r, 0, t), 0);
	g = end(&r);
	begin(&r, CAPTURE_GLOBAL, 1);
	h = end(&r);
	begin(&r, CAPTURE_THREAD_LOCAL, 1); /* and one that was not ended */
	rig_fail(&r, RIG_RELEASE, 1, NPU_DEVICE_BUSY);
	assert_int_equal(callable_close(r.c, &r.f), -EBUSY);
	assert_int_equal(callable_graph_replay(g, &r.f), -EBADFD);
	assert_int_equal(callable_graph_launches(g), 0);
	callable_graph_free(h);
	rig_close(&r);
	assert_int_equal(callable_graph_replay(g, &r.f), -EBADFD);
	callable_graph_free(g); /* after all: once, and the handle is its owner's */
	callable_graph_free(NULL);
}

static void capture__device_cannot_begin_or_end__no_graph_and_tried_again(void **state)
{
	static struct rig r;
	struct callable_graph *g = NULL;

	(void)state;
	rig_open(&r, true);
	rig_fail(&r, RIG_BEGIN, 1, NPU_DEVICE_BUSY);
	assert_int_equal(callable_graph_begin(r.c, CAPTURE_GLOBAL, 1, &r.f), -EBUSY);
	begin(&r, CAPTURE_GLOBAL, 1);
	rig_fail(&r, RIG_END, 1, NPU_DEVICE_BUSY);
	assert_int_equal(callable_graph_end(r.c, &g, &r.f), -EBUSY);
	assert_null(g);
	g = end(&r);
	callable_graph_free(g);
	for (size_t at = 1; at <= 2; at++) {
		host_fails_at = at;
		assert_int_equal(callable_graph_begin(r.c, CAPTURE_GLOBAL, 1, &r.f), -ENOMEM);
		assert_int_equal(host_fails_at, 0);
	}
	begin(&r, CAPTURE_GLOBAL, 1);
	rig_fail(&r, RIG_END, 1, NPU_DEVICE_BUSY);
	assert_int_equal(callable_close(r.c, &r.f), -EBUSY);
	rig_close(&r);
}

static void abandon__capture_on__nothing_kept_or_poisoned(void **state)
{
	struct callable_graph *g;
	static struct rig r;

	(void)state;
	rig_open(&r, true);
	callable_graph_abandon(r.c); /* none is on */
	begin(&r, CAPTURE_GLOBAL, 1);
	callable_graph_abandon(r.c);
	assert_int_equal(callable_graph_end(r.c, &g, &r.f), -EBADFD);
	assert_int_equal(prepare_scale(&r, 2), 0);
	begin(&r, CAPTURE_GLOBAL, 1);
	rig_fail(&r, RIG_END, 1, NPU_DEVICE_BUSY);
	callable_graph_abandon(r.c);
	assert_int_equal(prepare_scale(&r, 2), -1);
	assert_int_equal(r.f.err, -ENOTRECOVERABLE);
	rig_close(&r);
}

static void packet_consume__not_replaced__unsupported_payload(void **state)
{
	static struct rig r;
	struct packet_tensor t;
	struct callable_args args = { 7, 1, 0, &t, NULL };
	float *x;

	(void)state;
	rig_open(&r, true);
	t = rig_tensor(&r, 1, &x);
	prepare_scale(&r, 3);
	assert_int_equal(callable_launch(r.c, 0, &args, &r.f), -EOPNOTSUPP);
	assert_int_equal(memory_soft_answer(r.soft), PACKET_UNSUPPORTED_PAYLOAD);
	memory_soft_set_consumer(r.soft, PACKET_VM, NULL);
	assert_int_equal(launch(&r, 0, t), -EOPNOTSUPP);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(prepare__first_and_64_more_in_each_mode__nothing_synchronised),
		cmocka_unit_test(soft__not_relaxed_in_a_capture__refuses),
		cmocka_unit_test(prepare__fails_in_a_capture__mode_restored),
		cmocka_unit_test(prepare__mode_not_restored__reported_and_poisoned),
		cmocka_unit_test(prepare__mode_not_relaxed__nothing_touched),
		cmocka_unit_test(replay__100_times__buffers_right_and_nothing_allocated),
		cmocka_unit_test(
			launch__registration_executed_late_and_wrong__said_at_the_first_launch),
		cmocka_unit_test(replay__a_launch_fails__stops_there),
		cmocka_unit_test(capture__wrong_calls__refused_by_class),
		cmocka_unit_test(close__with_graphs__destroyed_before_the_memory),
		cmocka_unit_test(capture__device_cannot_begin_or_end__no_graph_and_tried_again),
		cmocka_unit_test(abandon__capture_on__nothing_kept_or_poisoned),
		cmocka_unit_test(packet_consume__not_replaced__unsupported_payload),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
