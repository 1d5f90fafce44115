#include "core/engine/infer.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#include "core/base/mem.h"
#include "core/device_layer.h"
#include "tests/fake_device.h"

#define CSRS \
	{ \
		CSR_CUR_LEN, CSR_PAST_LEN \
	}

static char log_text[1 << 16];
static struct device *device;

static const char *calls(void)
{
	fake_log(log_text, sizeof log_text);
	fake_log_clear();
	return log_text;
}

/* One program "x": in[3] of a type to out[3] of it. */
static struct tensor_spec in, out;
static struct model_info info;
static struct program_spec spec;
static struct program *program;

static const struct device_ops *ops = &fake_pair_ops;

static void make(enum dtype type, uint32_t n)
{
	static const struct device_params params = { .threads = 1 };

	fake_reset();
	in = (struct tensor_spec){ "in", type, 1, { n } };
	out = (struct tensor_spec){ "out", type, 1, { n } };
	info = (struct model_info){ "x", "graph", &in, &out, 1, 1, CSRS, 2 };
	spec = (struct program_spec){ .name = "x",
		.inputs = &in,
		.outputs = &out,
		.n_inputs = 1,
		.n_outputs = 1 };
	fake.models = &info;
	fake.n_models = 1;
	assert_int_equal(device_open(ops, &params, &device), 0);
	assert_int_equal(device_load(device, "/x"), 0);
	assert_int_equal(device_configure(device), 0);
	assert_int_equal(program_new(device, &spec, &program), 0);
	fake_log_clear();
}

static int down(void **state)
{
	(void)state;
	program_free(take_ptr(program));
	device_unload(device);
	device_close(device);
	return 0;
}

static void infer__good__calls_in_the_order_of_the_contract(void **state)
{
	struct infer_result r;

	(void)state;
	make(DTYPE_FLOAT32, 3);
	memcpy(program_input(program, 0), (const float[]){ 1, -2, 0.5f }, 12);
	r = infer_checked(program, 5, 2);
	assert_int_equal(r.stage, INFER_DONE);
	assert_int_equal(r.code, NPU_SUCCESS);
	assert_string_equal(calls(),
		"slice_input slice_output cur=2 set_csr past=7 set_csr infer:x infer wait "
		"run_status reset_input reset_output ");
	assert_memory_equal(program_output(program, 0), ((const float[]){ 2, -4, 1 }), 12);
}

static void infer__no_lengths__no_csr_set(void **state)
{
	(void)state;
	make(DTYPE_FLOAT32, 3);
	assert_int_equal(infer_checked(program, 0, 0).stage, INFER_DONE);
	assert_string_equal(calls(),
		"slice_input slice_output infer:x infer wait run_status reset_input reset_output ");
}

static void infer__each_step_fails__stage_code_and_nothing_after_it(void **state)
{
	static const struct {
		const char *call;
		enum infer_stage stage;
		const char *log;
	} rows[] = {
		{ "slice_input", INFER_NOT_SUBMITTED, "slice_input reset_input reset_output " },
		{ "slice_output", INFER_NOT_SUBMITTED,
			"slice_input slice_output reset_input reset_output " },
		{ "set_csr", INFER_NOT_SUBMITTED,
			"slice_input slice_output cur=1 set_csr reset_input reset_output " },
		{ "infer", INFER_NOT_SUBMITTED,
			"slice_input slice_output cur=1 set_csr past=1 set_csr infer:x infer "
			"reset_input reset_output " },
		{ "wait", INFER_SUBMITTED,
			"slice_input slice_output cur=1 set_csr past=1 set_csr infer:x infer wait "
			"reset_input reset_output " },
	};

	(void)state;
	make(DTYPE_FLOAT32, 3);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct infer_result r;

		fake_fail(rows[i].call, 1, NPU_DEVICE_BUSY);
		r = infer_checked(program, 0, 1);
		assert_int_equal(r.stage, rows[i].stage);
		assert_int_equal(r.code, NPU_DEVICE_BUSY);
		assert_string_equal(calls(), rows[i].log);
	}
	assert_int_equal(infer_checked(program, 0, 1).stage,
		INFER_DONE); /* and it can be used again */
}

/* The class of the error decides whether buffers are used again (device contract 5.2). */
static void infer__error_reaches_beyond_the_job__buffers_never_used_again(void **state)
{
	static const char *const steps[] = { "infer", "wait" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		make(DTYPE_FLOAT32, 3);
		fake_fail(steps[i], 1, NPU_DEVICE_UNAVAILABLE);
		assert_int_equal(infer_checked(program, 0, 1).code, NPU_DEVICE_UNAVAILABLE);
		fake_log_clear();
		assert_int_equal(infer_checked(program, 0, 1).stage, INFER_NOT_SUBMITTED);
		assert_int_equal(fake_count("infer"), 0);
		down(state);
	}
}

static void infer__ccu_exception__never_delivered(void **state)
{
	struct infer_result r;

	(void)state;
	make(DTYPE_FLOAT32, 3);
	fake.status = RUN_DONE_CCU_EXCEPTION;
	r = infer_checked(program, 0, 1);
	assert_int_equal(r.stage, INFER_SUBMITTED);
	assert_int_equal(r.code, NPU_DEVICE_CRASH);
}

static void infer__lengths_out_of_bounds__not_submitted(void **state)
{
	(void)state;
	make(DTYPE_FLOAT32, 3);
	assert_int_equal(infer_checked(program, 16, 1).code, NPU_OUT_OF_RANGE);
	assert_int_equal(infer_checked(program, UINT32_MAX, 2).stage, INFER_NOT_SUBMITTED);
	assert_int_equal(fake_count("infer"), 0);
}

/* Bits of IEEE 754. */
static void infer__not_a_finite_number__refused(void **state)
{
	static const struct {
		enum dtype type;
		uint32_t n;
		uint64_t bits;
		bool good;
	} rows[] = {
		{ DTYPE_FLOAT32, 1, 0x7f800000, false }, /* infinity */
		{ DTYPE_FLOAT32, 40, 0xff800000, false },
		{ DTYPE_FLOAT32, 16, 0x7fc00000, false }, /* no number */
		{ DTYPE_FLOAT32, 3, 0x7f800001, false },  /* a signalling one */
		{ DTYPE_FLOAT32, 3, 0x7f7fffff, true },   /* the largest */
		{ DTYPE_FLOAT32, 3, 0x00000001, true },   /* the smallest */
		{ DTYPE_FLOAT32, 3, 0x80000000, true },   /* -0 */
		{ DTYPE_FLOAT64, 2, 0x7ff0000000000000, false },
		{ DTYPE_FLOAT64, 2, 0x7ff8000000000000, false },
		{ DTYPE_FLOAT64, 2, 0x7fefffffffffffff, true },
		{ DTYPE_FLOAT16, 2, 0x7c00, false },
		{ DTYPE_FLOAT16, 2, 0xfe00, false },
		{ DTYPE_FLOAT16, 2, 0x7bff, true },
		{ DTYPE_INT32, 2, 0x7fc00000, true }, /* a number like any other */
		{ DTYPE_UINT8, 4, 0xff, true },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct infer_result r;

		make(rows[i].type, rows[i].n);
		fake.poison_bits = rows[i].bits;
		fake.poison = true;
		r = infer_checked(program, 0, 0);
		assert_int_equal(r.stage, rows[i].good ? INFER_DONE : INFER_NOT_FINITE);
		assert_int_equal(r.code, rows[i].good ? NPU_SUCCESS : NPU_NOT_EXPECTED);
		if (i + 1 < ARRAY_SIZE(rows))
			down(NULL);
	}
}

static void program_new__no_buffer__error_and_nothing_left(void **state)
{
	struct program *p = NULL;

	(void)state;
	make(DTYPE_FLOAT32, 3);
	fake_fail("create_input_buf", 1, NPU_MEMORY_ALLOCATION);
	assert_int_equal(program_new(device, &spec, &p), NPU_MEMORY_ALLOCATION);
	assert_null(p);
	program_free(NULL);
}

static void infer__device_delivers_nothing__an_earlier_output_is_not_taken_for_it(void **state)
{
	struct fault_plan plan;
	struct infer_result r;

	(void)state;
	assert_int_equal(fault_plan_parse("Wait@2:silent", &plan, NULL), 0);
	ops = device_layer_over(&fake_ops);
	device_layer_plan(LAYER_DEVICE, &plan);
	make(DTYPE_FLOAT32, 3);
	ops = &fake_pair_ops;
	r = infer_checked(program, 0, 0);
	assert_int_equal(r.stage, INFER_DONE);
	r = infer_checked(program, 0, 0);
	assert_int_equal(r.stage, INFER_NOT_FINITE);
	assert_int_equal(r.code, NPU_NOT_EXPECTED);
}

/* --- two in flight ---------------------------------------------------------------------------- */

static struct program *second;

static void make_two(void)
{
	make(DTYPE_FLOAT32, 3);
	assert_int_equal(device_set_parallel(device, true), 0);
	assert_int_equal(program_new(device, &spec, &second), 0);
	memcpy(program_input(program, 0), (const float[]){ 1, 2, 3 }, 12);
	memcpy(program_input(second, 0), (const float[]){ 10, 20, 30 }, 12);
	fake_log_clear();
}

static int down_two(void **state)
{
	program_free(take_ptr(second));
	return down(state);
}

static void run_two(struct infer_result ret[2])
{
	const struct infer_order orders[] = { { program, 5, 2, NULL, DEVICE_PING },
		{ second, 1, 3, NULL, DEVICE_PONG } };

	infer_checked_many(orders, 2, ret);
}

#define SUBMIT(cur, past, engine) \
	"slice_input slice_output cur=" cur " set_csr past=" past " set_csr infer:x infer " engine \
	" "
#define RESETS "reset_input reset_output reset_input reset_output "

static void infer_many__good__both_submitted_before_any_wait(void **state)
{
	struct infer_result r[2];

	(void)state;
	make_two();
	run_two(r);
	assert_int_equal(r[0].stage, INFER_DONE);
	assert_int_equal(r[1].stage, INFER_DONE);
	assert_string_equal(calls(),
		SUBMIT("2", "7", "ping")
			SUBMIT("3", "4", "pong") "wait run_status wait run_status " RESETS);
	assert_memory_equal(program_output(program, 0), ((const float[]){ 2, 4, 6 }), 12);
	assert_memory_equal(program_output(second, 0), ((const float[]){ 20, 40, 60 }), 12);
}

/* What was submitted is waited for and delivered, whatever the other came to. */
static void infer_many__one_fails__the_other_is_delivered(void **state)
{
	static const struct {
		const char *call;
		unsigned nth, bad;
		enum infer_stage stage;
	} rows[] = {
		{ "slice_input", 1, 0, INFER_NOT_SUBMITTED },
		{ "infer", 1, 0, INFER_NOT_SUBMITTED },
		{ "wait", 1, 0, INFER_SUBMITTED },
		{ "slice_output", 2, 1, INFER_NOT_SUBMITTED },
		{ "set_csr", 4, 1, INFER_NOT_SUBMITTED },
		{ "infer", 2, 1, INFER_NOT_SUBMITTED },
		{ "wait", 2, 1, INFER_SUBMITTED },
	};

	(void)state;
	make_two();
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct infer_result r[2];
		unsigned bad = rows[i].bad;

		fake_log_clear();
		fake_fail(rows[i].call, rows[i].nth, NPU_DEVICE_BUSY);
		run_two(r);
		assert_int_equal(r[bad].stage, rows[i].stage);
		assert_int_equal(r[bad].code, NPU_DEVICE_BUSY);
		assert_int_equal(r[!bad].stage, INFER_DONE);
		assert_int_equal(device_in_flight(device), 0);
		assert_int_equal(fake_count("wait"), rows[i].stage == INFER_NOT_SUBMITTED ? 1 : 2);
		assert_int_equal(fake_count("reset_output"), 2);
	}
}

static void infer_many__first_reaches_beyond_its_job__second_not_submitted(void **state)
{
	struct infer_result r[2];

	(void)state;
	make_two();
	fake_fail("infer", 1, NPU_DEVICE_UNAVAILABLE);
	run_two(r);
	assert_int_equal(r[0].code, NPU_DEVICE_UNAVAILABLE);
	assert_int_equal(r[1].stage, INFER_NOT_SUBMITTED);
	assert_int_equal(r[1].code, NPU_DEVICE_BUSY);
	assert_int_equal(fake_count("infer"), 1);
	assert_int_equal(fake_count("wait"), 0);
	assert_int_equal(device_in_flight(device), 0);
}

static void infer_many__second_reaches_beyond_its_job__first_is_still_waited_for(void **state)
{
	struct infer_result r[2];

	(void)state;
	make_two();
	fake_fail("infer", 2, NPU_DEVICE_UNAVAILABLE);
	run_two(r);
	assert_int_equal(r[0].stage, INFER_DONE);
	assert_int_equal(r[1].code, NPU_DEVICE_UNAVAILABLE);
	assert_int_equal(fake_count("wait"), 1);
	assert_int_equal(device_in_flight(device), 0);
}

/* Nothing goes to a second engine that the device was not told to have. */
static void infer_many__parallel_off__second_refused(void **state)
{
	struct infer_result r[2];

	(void)state;
	make_two();
	assert_int_equal(device_set_parallel(device, false), 0);
	fake_log_clear();
	run_two(r);
	assert_int_equal(r[0].stage, INFER_DONE);
	assert_int_equal(r[1].stage, INFER_NOT_SUBMITTED);
	assert_int_equal(r[1].code, NPU_DEVICE_BUSY);
	assert_int_equal(fake_count("infer"), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(infer__good__calls_in_the_order_of_the_contract, down),
		cmocka_unit_test_teardown(infer__no_lengths__no_csr_set, down),
		cmocka_unit_test_teardown(infer__each_step_fails__stage_code_and_nothing_after_it,
			down),
		cmocka_unit_test(infer__error_reaches_beyond_the_job__buffers_never_used_again),
		cmocka_unit_test_teardown(infer__ccu_exception__never_delivered, down),
		cmocka_unit_test_teardown(infer__lengths_out_of_bounds__not_submitted, down),
		cmocka_unit_test_teardown(infer__not_a_finite_number__refused, down),
		cmocka_unit_test_teardown(
			infer__device_delivers_nothing__an_earlier_output_is_not_taken_for_it,
			down),
		cmocka_unit_test_teardown(infer_many__good__both_submitted_before_any_wait,
			down_two),
		cmocka_unit_test_teardown(infer_many__one_fails__the_other_is_delivered, down_two),
		cmocka_unit_test_teardown(
			infer_many__first_reaches_beyond_its_job__second_not_submitted, down_two),
		cmocka_unit_test_teardown(
			infer_many__second_reaches_beyond_its_job__first_is_still_waited_for,
			down_two),
		cmocka_unit_test_teardown(infer_many__parallel_off__second_refused, down_two),
		cmocka_unit_test_teardown(program_new__no_buffer__error_and_nothing_left, down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
