#include "core/device_layer.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/device_null.h"
#include "core/device_watch.h"
#include "tests/fake_device.h"

static const struct device_params params = { .threads = 1, .kv_sequences = 4 };
static const struct device_ops *ops;
static struct device *device;

static int up(void **state)
{
	(void)state;
	fake_reset();
	ops = device_layer_over(&fake_ops);
	device = NULL;
	return 0;
}

static void plant(enum layer_side side, const char *spec)
{
	struct fault_plan plan;
	struct fault f = FAULT_NONE;

	if (fault_plan_parse(spec, &plan, &f))
		fail_msg("%s", f.reason);
	device_layer_plan(side, &plan);
}

static void open_all(void)
{
	assert_int_equal(device_open(ops, &params, &device), NPU_SUCCESS);
	assert_int_equal(device_load(device, NULL), NPU_SUCCESS);
	assert_int_equal(device_configure(device), NPU_SUCCESS);
	assert_int_equal(device_kv_open(device), NPU_SUCCESS);
}

static void close_all(void)
{
	assert_int_equal(device_unload(device), NPU_SUCCESS);
	device_close(device);
}

static void check_no_breach(void)
{
	char first[WATCH_TEXT_SIZE];

	if (device_layer_breaches(first, sizeof first))
		fail_msg("%s", first);
	assert_int_equal(device_layer_live(), 0);
}

static void check_breach(const char *text)
{
	char first[WATCH_TEXT_SIZE];

	assert_true(device_layer_breaches(first, sizeof first) > 0);
	if (!strstr(first, text))
		fail_msg("%s", first);
}

/* One decode of token 1 at position 0; the logits are the caller's. */
static struct slot *slot;

static enum npu_error submit(float *logits)
{
	static const int32_t token = 1;
	enum npu_error code = device_slot_in(slot, 0, &token, 4, 0, 4);

	if (!code)
		code = device_slot_out(slot, 0, logits, FAKE_VOCAB * 4, 0, FAKE_VOCAB * 4);
	if (!code)
		code = device_slot_lengths(slot, 0, 1);
	return code ? code : device_slot_submit(slot, DEVICE_AUTO);
}

static enum npu_error decode(float *logits)
{
	enum npu_error code = submit(logits);

	if (!code)
		code = device_slot_wait(slot);
	device_slot_reset(slot);
	return code;
}

static void new_slot(void)
{
	assert_int_equal(device_slot_new(device, device_model(device, "decode"), &slot), 0);
}

/* --- the layer alone -------------------------------------------------------------------------- */

static void over__nothing_planted__the_backend_unchanged_and_no_breach(void **state)
{
	float logits[FAKE_VOCAB];

	(void)state;
	open_all();
	new_slot();
	assert_int_equal(decode(logits), NPU_SUCCESS);
	assert_true(logits['b'] == 1);
	assert_int_equal(device_kv_allocate(device, 7), NPU_SUCCESS);
	assert_int_equal(device_kv_free(device, 7), NPU_SUCCESS);
	device_slot_free(slot);
	close_all();
	check_no_breach();
	assert_int_equal(device_layer_struck(LAYER_DEVICE), 0);
}

static void over__name_and_note__tell_of_it(void **state)
{
	(void)state;
	assert_string_equal(ops->name, "fake+fault");
	assert_true(ops->faults_planted);
	assert_false(ops->measuring_only);
	assert_string_equal(ops->own_manifest, fake_manifest);
	assert_true(device_layer_over(&device_null_ops)->measuring_only);
}

static void over__entries_the_backend_lacks__lacking(void **state)
{
	struct device_ops bare = fake_ops;

	(void)state;
	bare.get_golden_input = NULL;
	bare.reset_ccu = NULL;
	bare.kv_pos_min = NULL;
	ops = device_layer_over(&bare);
	assert_null(ops->get_golden_input);
	assert_null(ops->reset_ccu);
	assert_null(ops->kv_pos_min);
	assert_null(ops->enable_parallel);
	assert_non_null(ops->get_golden_output);
}

/* --- device side ------------------------------------------------------------------------------ */

static void device_side__nth_call__that_one_alone_and_not_made(void **state)
{
	float logits[FAKE_VOCAB];

	(void)state;
	plant(LAYER_DEVICE, "infer@2:DeviceBusy");
	open_all();
	new_slot();
	assert_int_equal(decode(logits), NPU_SUCCESS);
	assert_int_equal(decode(logits), NPU_DEVICE_BUSY);
	assert_int_equal(fake_count("infer"), 1);
	assert_int_equal(decode(logits), NPU_SUCCESS);
	assert_int_equal(device_layer_struck(LAYER_DEVICE), 1);
	device_slot_free(slot);
	close_all();
	check_no_breach();
}

static void device_side__outputs__spoiled_as_told(void **state)
{
	float logits[FAKE_VOCAB];

	(void)state;
	plant(LAYER_DEVICE, "Wait@1:nan/Wait@2:corrupt/GetStatus@3:ccu");
	open_all();
	new_slot();
	assert_int_equal(decode(logits), NPU_SUCCESS);
	assert_true(isnan(logits[0]) && logits['b'] == 1);
	assert_int_equal(decode(logits), NPU_SUCCESS);
	assert_true(logits[0] == 0 && logits['b'] == -1);
	assert_int_equal(decode(logits), NPU_DEVICE_CRASH);
	assert_true(device_slot_spoiled(slot));
	device_slot_free(slot);
	close_all();
	check_no_breach();
}

static void device_side__silent_kv__the_checked_caller_sees_it(void **state)
{
	(void)state;
	plant(LAYER_DEVICE,
		"Allocate@1:silent/Free@1:silent/Apply@1:true/Apply@2:grow/Apply@3:false");
	open_all();
	assert_int_equal(device_kv_allocate(device, 1), NPU_NOT_EXPECTED);
	assert_int_equal(device_kv_allocate(device, 1), NPU_SUCCESS);
	for (int i = 0; i < 3; i++)
		assert_int_equal(device_kv_apply(device, 1, 1), NPU_NOT_EXPECTED);
	assert_int_equal(device_kv_free(device, 1), NPU_NOT_EXPECTED);
	assert_int_equal(device_kv_free(device, 1), NPU_SUCCESS);
	close_all();
	check_no_breach();
}

static void device_side__null_handles__refused(void **state)
{
	(void)state;
	plant(LAYER_DEVICE, "CreateVDevice@1:null/CreateCalbin@1:null/createOutputBuf@1:null");
	assert_int_equal(device_open(ops, &params, &device), NPU_NO_DEVICE);
	assert_int_equal(device_open(ops, &params, &device), NPU_SUCCESS);
	assert_int_equal(device_load(device, NULL), NPU_INVALID_CALBIN);
	assert_int_equal(device_load(device, NULL), NPU_SUCCESS);
	assert_int_equal(device_configure(device), NPU_SUCCESS);
	assert_int_equal(device_slot_new(device, device_model(device, "decode"), &slot),
		NPU_MEMORY_ALLOCATION);
	close_all();
	check_no_breach();
}

static void device_side__delay__as_long_as_told(void **state)
{
	int64_t start;

	(void)state;
	open_all();
	plant(LAYER_DEVICE, "Status@1:delay=30/Status@1:DeviceUnavailable");
	start = clock_mono();
	assert_int_equal(device_status(device), NPU_DEVICE_UNAVAILABLE);
	assert_true(clock_mono() - start >= 30 * NS_PER_MS);
	close_all();
}

static void *ask_status(void *arg)
{
	*(enum npu_error *)arg = device_status(device);
	return NULL;
}

static void device_side__hang__until_released(void **state)
{
	enum npu_error code = NPU_UNKNOWN;
	pthread_t thread;

	(void)state;
	open_all();
	plant(LAYER_DEVICE, "Status@*:hang");
	pthread_create(&thread, NULL, ask_status, &code);
	while (!device_layer_hangs())
		usleep(1000);
	device_layer_release();
	pthread_join(thread, NULL);
	assert_int_equal(code, NPU_SUCCESS);
	assert_false(device_layer_hangs());
	assert_int_equal(device_status(device), NPU_SUCCESS);
	close_all();
}

/* A new plan set before the one who hangs has woken does not hold it again. */
static void release__new_plan_at_once__who_hung_goes_on(void **state)
{
	(void)state;
	open_all();
	for (int i = 0; i < 50; i++) {
		enum npu_error code = NPU_UNKNOWN;
		pthread_t thread;

		plant(LAYER_DEVICE, "Status@*:hang");
		pthread_create(&thread, NULL, ask_status, &code);
		while (!device_layer_hangs())
			usleep(100);
		device_layer_release();
		plant(LAYER_DEVICE, "Status@*:hang");
		pthread_join(thread, NULL);
		assert_int_equal(code, NPU_SUCCESS);
	}
	device_layer_release();
	close_all();
}

/* --- caller side ------------------------------------------------------------------------------ */

static void caller_side__misdeeds__the_watch_names_them(void **state)
{
	static const struct {
		const char *spec, *breach;
	} misdeeds[] = {
		{ "infer@1:DeviceBusy", NULL },
		{ "destroyOutputBuf@1:silent", "ResetConfiguration before 1 output buffers" },
		{ "destroyInputBuf@1:late", "ResetConfiguration before 1 input buffers" },
		{ "destroyKvManager@1:late", "ResetConfiguration before 1 KV managers" },
		{ "ResetConfiguration@1:silent", "a calbin goes before ResetConfiguration" },
		{ "destroyCalbin@1:silent", "devices go before 1 calbins" },
		{ "ResetAllTensors@1:silent", "mapped again without a reset" },
		{ "SliceTensorByName@1:silent", "a tensor that is not mapped" },
		{ "SetCsrByName@1:silent", "without both lengths" },
		{ "Wait@1:twice", "a Wait without a submit" },
		{ "Wait@1:silent", "tensors are reset while in flight" },
		{ "GetStatus@1:done", "never read after Wait" },
		{ "Free@1:silent", "KV managers go before 1 KV sequences" },
		{ "infer@2:silent", "a Wait without a submit" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof misdeeds / sizeof misdeeds[0]; i++) {
		float logits[FAKE_VOCAB];

		up(NULL);
		open_all();
		plant(LAYER_CALLER, misdeeds[i].spec);
		new_slot();
		decode(logits);
		decode(logits);
		device_kv_allocate(device, 1);
		device_kv_free(device, 1);
		device_slot_free(slot);
		close_all();
		if (misdeeds[i].breach)
			check_breach(misdeeds[i].breach);
		else
			check_no_breach();
	}
}

static void caller_side__submit_error_ignored__wait_without_a_submit(void **state)
{
	float logits[FAKE_VOCAB];

	(void)state;
	open_all();
	new_slot();
	assert_int_equal(decode(logits), NPU_SUCCESS);
	plant(LAYER_DEVICE, "infer@1:DeviceBusy");
	plant(LAYER_CALLER, "infer@1:accept");
	decode(logits);
	check_breach("a Wait without a submit that was taken");
	device_layer_clear_breaches();
	device_slot_free(slot);
	close_all();
	check_no_breach();
}

static void case_plan__beside_the_sides_plan__counts_its_own(void **state)
{
	struct fault_plan plan;

	(void)state;
	open_all();
	plant(LAYER_DEVICE, "Status@3:NoDevice");
	assert_int_equal(device_status(device), NPU_SUCCESS);
	assert_int_equal(fault_plan_parse("Status@1:Assert", &plan, NULL), 0);
	device_layer_case(LAYER_DEVICE, &plan);
	assert_int_equal(device_status(device), NPU_ASSERT);
	assert_int_equal(device_status(device), NPU_NO_DEVICE);
	close_all();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(over__nothing_planted__the_backend_unchanged_and_no_breach,
			up),
		cmocka_unit_test_setup(over__name_and_note__tell_of_it, up),
		cmocka_unit_test_setup(over__entries_the_backend_lacks__lacking, up),
		cmocka_unit_test_setup(device_side__nth_call__that_one_alone_and_not_made, up),
		cmocka_unit_test_setup(device_side__outputs__spoiled_as_told, up),
		cmocka_unit_test_setup(device_side__silent_kv__the_checked_caller_sees_it, up),
		cmocka_unit_test_setup(device_side__null_handles__refused, up),
		cmocka_unit_test_setup(device_side__delay__as_long_as_told, up),
		cmocka_unit_test_setup(device_side__hang__until_released, up),
		cmocka_unit_test_setup(release__new_plan_at_once__who_hung_goes_on, up),
		cmocka_unit_test_setup(caller_side__misdeeds__the_watch_names_them, up),
		cmocka_unit_test_setup(caller_side__submit_error_ignored__wait_without_a_submit,
			up),
		cmocka_unit_test_setup(case_plan__beside_the_sides_plan__counts_its_own, up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
