/* The checked caller: what must not reach a backend does not, and what a backend does not tell is
 * found out. */
#include "core/device.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#include "core/base/mem.h"
#include "tests/fake_device.h"

static const struct device_params params = { .threads = 1, .kv_sequences = 4 };
static char log_text[1 << 16];

static const char *calls(void)
{
	fake_log(log_text, sizeof log_text);
	fake_log_clear();
	return log_text;
}

struct rig {
	struct device *d;
	struct slot *prefill, *decode;
};

static enum npu_error access_code;
static unsigned accesses;

static enum npu_error read_mem(struct vdevice *d, uint64_t address, void *to, size_t size)
{
	(void)d, (void)address, (void)to, (void)size;
	accesses++;
	return access_code;
}

static enum npu_error write_mem(struct vdevice *d, uint64_t address, const void *from, size_t size)
{
	(void)d, (void)address, (void)from, (void)size;
	accesses++;
	return access_code;
}

static enum npu_error read_reg(struct vdevice *d, uint64_t address, uint32_t *ret)
{
	(void)d, (void)address;
	accesses++;
	*ret = 7;
	return access_code;
}

static enum npu_error write_reg(struct vdevice *d, uint64_t address, uint32_t value)
{
	(void)d, (void)address, (void)value;
	accesses++;
	return access_code;
}

static struct rig rig;
static struct device_ops ops_with; /* memory and registers */

static int opened(void **state)
{
	fake_reset();
	rig = (struct rig){ 0 };
	*state = &rig;
	ops_with = fake_ops;
	ops_with.read_mem = read_mem;
	ops_with.write_mem = write_mem;
	ops_with.read_reg = read_reg;
	ops_with.write_reg = write_reg;
	if (device_open(&ops_with, &params, &rig.d))
		return -1;
	fake_log_clear();
	return 0;
}

static int configured(void **state)
{
	if (opened(state) || device_load(rig.d, "/x") || device_configure(rig.d) ||
		device_kv_open(rig.d) ||
		device_slot_new(rig.d, device_model(rig.d, "prefill"), &rig.prefill) ||
		device_slot_new(rig.d, device_model(rig.d, "decode"), &rig.decode))
		return -1;
	fake_log_clear();
	return 0;
}

static int down(void **state)
{
	(void)state;
	device_slot_free(rig.prefill);
	device_slot_free(rig.decode);
	device_unload(rig.d);
	device_close(rig.d);
	return 0;
}

/* --- opening ---------------------------------------------------------------------------------- */

static void open__backend_lacks_a_field__refused_unasked(void **state)
{
	struct device_ops ops[6];
	struct device *d;

	(void)state;
	fake_reset();
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++)
		ops[i] = fake_ops;
	ops[0].wait = NULL;
	ops[1].create_vdevice = NULL;
	ops[2].kv_seq_len = NULL; /* half a KV manager */
	ops[3].reset_output = NULL;
	ops[4].run_status = NULL;
	ops[5].name = NULL;
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++)
		assert_int_equal(device_open(&ops[i], &params, &d), NPU_DEVICE_UNSUPPORT);
	assert_string_equal(calls(), "");
}

static void open__each_step_fails__undone(void **state)
{
	struct device *d;

	(void)state;
	fake_reset();
	fake_fail("create_vdevice", 1, NPU_NO_DEVICE);
	assert_int_equal(device_open(&fake_ops, &params, &d), NPU_NO_DEVICE);
	assert_string_equal(calls(), "create_vdevice ");
	fake_fail("status", 1, NPU_DEVICE_UNAVAILABLE);
	assert_int_equal(device_open(&fake_ops, &params, &d), NPU_DEVICE_UNAVAILABLE);
	assert_string_equal(calls(), "create_vdevice status shutdown ");
	fake_fail("info", 1, NPU_UNKNOWN);
	assert_int_equal(device_open(&fake_ops, &params, &d), NPU_UNKNOWN);
	assert_string_equal(calls(), "create_vdevice status info shutdown ");
	device_close(NULL);
}

static void load__configure__status_again_and_no_ini(void **state)
{
	struct rig *r = *state;

	assert_int_equal(device_load(r->d, "/x"), NPU_SUCCESS);
	assert_int_equal(device_load(r->d, "/y"), NPU_ALREADY_CONFIGURED);
	assert_int_equal(device_configure(r->d), NPU_SUCCESS);
	assert_int_equal(device_configure(r->d), NPU_ALREADY_CONFIGURED);
	assert_string_equal(calls(), "create_calbin configure status ");
}

static void configure__status_then_bad__error_and_still_undone(void **state)
{
	struct rig *r = *state;

	device_load(r->d, "/x");
	fake_fail("status", 1, NPU_DEVICE_CRASH);
	assert_int_equal(device_configure(r->d), NPU_DEVICE_CRASH);
	fake_log_clear();
	assert_int_equal(device_unload(r->d), NPU_SUCCESS);
	assert_string_equal(calls(), "reset_configuration destroy_calbin ");
}

static void slot_new__not_configured__refused_unasked(void **state)
{
	struct rig *r = *state;
	struct slot *s;

	device_load(r->d, "/x");
	fake_log_clear();
	assert_int_equal(device_slot_new(r->d, device_model(r->d, "decode"), &s),
		NPU_MISS_CONFIGURATION);
	assert_int_equal(device_kv_open(r->d), NPU_MISS_CONFIGURATION);
	assert_string_equal(calls(), "");
}

static void slot_new__second_buffer_fails__first_destroyed(void **state)
{
	struct rig *r = *state;
	struct slot *s;

	fake_fail("create_output_buf", 1, NPU_MEMORY_ALLOCATION);
	assert_int_equal(device_slot_new(r->d, device_model(r->d, "decode"), &s),
		NPU_MEMORY_ALLOCATION);
	assert_string_equal(calls(), "create_input_buf create_output_buf destroy_input_buf ");
}

static void unload__configured__order_of_the_contract(void **state)
{
	struct rig *r = *state;

	device_slot_free(take_ptr(r->prefill));
	device_slot_free(take_ptr(r->decode));
	fake_fail("reset_configuration", 1, NPU_DEVICE_BUSY);
	assert_int_equal(device_unload(r->d), NPU_DEVICE_BUSY);
	assert_string_equal(calls(),
		"destroy_input_buf destroy_output_buf destroy_input_buf destroy_output_buf "
		"destroy_kv reset_configuration destroy_calbin ");
	assert_int_equal(device_load(r->d, "/y"), NPU_SUCCESS); /* the place is free all the same */
}

/* --- slices and CSRs: prefill's input is int32[4], 16 bytes ----------------------------------- */

static void slice__bounds__only_good_ones_reach_the_backend(void **state)
{
	static const struct {
		size_t index, capacity;
		uint64_t offset, size;
		enum npu_error code;
	} rows[] = {
		{ 0, 16, 0, 16, NPU_SUCCESS },
		{ 0, 16, 12, 4, NPU_SUCCESS },
		{ 0, 4, 0, 4, NPU_SUCCESS },
		{ 0, 16, 0, 0, NPU_OUT_OF_RANGE },
		{ 0, 16, 16, 0, NPU_OUT_OF_RANGE },
		{ 0, 64, 0, 20, NPU_OUT_OF_RANGE },
		{ 0, 16, 4, 16, NPU_OUT_OF_RANGE },
		{ 0, 16, 20, 4, NPU_OUT_OF_RANGE },
		{ 0, 12, 0, 16, NPU_OUT_OF_RANGE },                   /* more than the host has */
		{ 0, 16, UINT64_MAX - 3, 8, NPU_OUT_OF_RANGE },       /* offset + size wraps to 4 */
		{ 0, SIZE_MAX, 4, UINT64_MAX - 3, NPU_OUT_OF_RANGE }, /* wraps to 0 */
		{ 0, 16, 2, 4, NPU_INVALID_VALUE },
		{ 0, 16, 0, 6, NPU_INVALID_VALUE },
		{ 1, 16, 0, 4, NPU_INVALID_VALUE },
		{ SIZE_MAX, 16, 0, 4, NPU_INVALID_VALUE },
	};
	struct rig *r = *state;
	int32_t host[16];

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		enum npu_error code = device_slot_in(r->prefill, rows[i].index, host,
			rows[i].capacity, rows[i].offset, rows[i].size);

		assert_int_equal(code, rows[i].code);
		assert_string_equal(calls(), code ? "" : "slice_input ");
	}
	/* the output is float32[257], 1028 bytes */
	assert_int_equal(device_slot_out(r->prefill, 0, host, 1028, 1024, 4), NPU_SUCCESS);
	assert_int_equal(device_slot_out(r->prefill, 0, host, 1028, 1028, 4), NPU_OUT_OF_RANGE);
	assert_int_equal(device_slot_out(r->prefill, 1, host, 1028, 0, 4), NPU_INVALID_VALUE);
	assert_string_equal(calls(), "slice_output ");
}

/* max_seq_len is 16. */
static void lengths__bounds__checked_before_the_setter(void **state)
{
	static const struct {
		uint32_t past, cur;
		const char *set; /* "": refused */
	} rows[] = {
		{ 0, 1, "cur=1 set_csr past=1 set_csr " },
		{ 12, 4, "cur=4 set_csr past=16 set_csr " },
		{ 0, 16, "cur=16 set_csr past=16 set_csr " },
		{ 0, 0, "" },
		{ 0, 17, "" },
		{ 13, 4, "" },
		{ 16, 1, "" },
		{ UINT32_MAX, 2, "" }, /* past + cur wraps to 1 */
		{ UINT32_MAX - 1, 4, "" },
		{ 2, UINT32_MAX, "" },
	};
	struct rig *r = *state;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_int_equal(device_slot_lengths(r->prefill, rows[i].past, rows[i].cur),
			rows[i].set[0] ? NPU_SUCCESS : NPU_OUT_OF_RANGE);
		assert_string_equal(calls(), rows[i].set);
	}
	fake_fail("set_csr", 1, NPU_INVALID_VALUE);
	assert_int_equal(device_slot_lengths(r->prefill, 0, 1), NPU_INVALID_VALUE);
	assert_string_equal(calls(), "cur=1 set_csr ");
}

/* --- inference -------------------------------------------------------------------------------- */

static int32_t tokens[4];
static float logits[FAKE_VOCAB];

static void bind(struct rig *r)
{
	device_slot_in(r->prefill, 0, tokens, sizeof tokens, 0, sizeof tokens);
	device_slot_out(r->prefill, 0, logits, sizeof logits, 0, sizeof logits);
	device_slot_lengths(r->prefill, 0, 4);
	fake_log_clear();
}

static void submit__failed__slot_is_idle(void **state)
{
	struct rig *r = *state;

	bind(r);
	fake_fail("infer", 1, NPU_DEVICE_BUSY);
	assert_int_equal(device_slot_submit(r->prefill, DEVICE_AUTO), NPU_DEVICE_BUSY);
	assert_string_equal(calls(), "infer:prefill infer ");
	assert_int_equal(device_slot_submit(r->prefill, DEVICE_AUTO), NPU_SUCCESS);
	assert_int_equal(device_slot_wait(r->prefill), NPU_SUCCESS);
}

static void submit__in_flight__slot_is_untouchable(void **state)
{
	struct rig *r = *state;

	bind(r);
	assert_int_equal(device_slot_submit(r->prefill, DEVICE_AUTO), NPU_SUCCESS);
	fake_log_clear();
	assert_int_equal(device_slot_submit(r->prefill, DEVICE_AUTO), NPU_DEVICE_BUSY);
	assert_int_equal(device_slot_in(r->prefill, 0, tokens, 16, 0, 16), NPU_DEVICE_BUSY);
	assert_int_equal(device_slot_out(r->prefill, 0, logits, 1028, 0, 1028), NPU_DEVICE_BUSY);
	assert_int_equal(device_slot_lengths(r->prefill, 0, 1), NPU_DEVICE_BUSY);
	assert_string_equal(calls(), "");
	assert_int_equal(device_slot_wait(r->prefill), NPU_SUCCESS);
	assert_string_equal(calls(), "wait run_status ");
}

/* Another slot in place of one that is spoiled. */
static void renew(struct rig *r)
{
	device_slot_free(r->prefill);
	assert_int_equal(device_slot_new(r->d, device_model(r->d, "prefill"), &r->prefill), 0);
	bind(r);
}

static enum npu_error level_code;
static unsigned levels;

static enum npu_error reset_level(struct vdevice *d)
{
	(void)d;
	levels++;
	return level_code;
}

/* The privileged levels tell what the device told, and ask nothing else of it. */
static void reset__every_error__told_and_nothing_else_called(void **state)
{
	struct device_ops ops = fake_ops;
	struct device *d;

	(void)state;
	ops.reset_ccu = ops.reset = reset_level;
	assert_int_equal(device_open(&ops, &params, &d), 0);
	fake_log_clear();
	for (int code = 0; code < NPU_ERROR_COUNT; code++) {
		level_code = (enum npu_error)code;
		assert_int_equal(device_reset_ccu(d), code);
		assert_int_equal(device_reset(d), code);
	}
	assert_int_equal(levels, 2 * NPU_ERROR_COUNT);
	assert_string_equal(calls(), "");
	device_close(d);
}

/* Each of the four accesses. */
static enum npu_error access(struct device *d, int i)
{
	uint32_t value = 0;

	switch (i) {
	case 0:
		return device_read_mem(d, 0, &value, 4);
	case 1:
		return device_write_mem(d, 0, &value, 4);
	case 2:
		return device_read_reg(d, 0, &value);
	default:
		return device_write_reg(d, 0, value);
	}
}

static void access__each__counted_told_and_without_it_unsupported(void **state)
{
	struct device *with, *without;

	(void)state;
	accesses = 0;
	assert_int_equal(device_open(&ops_with, &params, &with), 0);
	assert_int_equal(device_open(&fake_ops, &params, &without), 0);
	for (int i = 0; i < 4; i++) {
		const enum device_call call = (enum device_call)(CALL_READ_MEM + i);
		uint64_t before = device_calls(call);

		assert_int_equal(access(without, i), NPU_DEVICE_UNSUPPORT);
		assert_int_equal(device_calls(call), before);
		access_code = NPU_OUT_OF_RANGE;
		assert_int_equal(access(with, i), NPU_OUT_OF_RANGE);
		access_code = NPU_SUCCESS;
		assert_int_equal(access(with, i), NPU_SUCCESS);
		assert_int_equal(device_calls(call), before + 2);
	}
	assert_int_equal(accesses, 8);
	device_close(with);
	device_close(without);
}

static void access__in_flight__busy_and_not_asked(void **state)
{
	struct rig *r = *state;

	bind(r);
	accesses = 0;
	assert_int_equal(device_slot_submit(r->prefill, DEVICE_AUTO), NPU_SUCCESS);
	for (int i = 0; i < 4; i++)
		assert_int_equal(access(r->d, i), NPU_DEVICE_BUSY);
	assert_int_equal(accesses, 0);
	assert_int_equal(device_slot_wait(r->prefill), NPU_SUCCESS);
	for (int i = 0; i < 4; i++)
		assert_int_equal(access(r->d, i), NPU_SUCCESS);
	assert_int_equal(accesses, 4);
}

static void wait__ccu_exception__crash_though_wait_succeeded(void **state)
{
	struct rig *r = *state;

	bind(r);
	fake.status = RUN_DONE_CCU_EXCEPTION;
	device_slot_submit(r->prefill, DEVICE_AUTO);
	assert_int_equal(device_slot_wait(r->prefill), NPU_DEVICE_CRASH);
	assert_true(device_slot_spoiled(r->prefill));
	assert_int_equal(device_slot_submit(r->prefill, DEVICE_AUTO), NPU_NOT_EXPECTED);
	renew(r);
	fake.status = RUN_RUNNING; /* late: that says nothing against a Wait that succeeded */
	device_slot_submit(r->prefill, DEVICE_AUTO);
	assert_int_equal(device_slot_wait(r->prefill), NPU_SUCCESS);
	fake_fail("wait", 1, NPU_TIMEOUT);
	device_slot_submit(r->prefill, DEVICE_AUTO);
	assert_int_equal(device_slot_wait(r->prefill), NPU_TIMEOUT);
	renew(r);
}

static void submit__mapped_before_the_last_reset__refused(void **state)
{
	struct rig *r = *state;

	bind(r);
	device_slot_reset(r->prefill);
	fake_log_clear();
	assert_int_equal(device_slot_submit(r->prefill, DEVICE_AUTO), NPU_INVALID_VALUE);
	device_slot_in(r->prefill, 0, tokens, sizeof tokens, 0, sizeof tokens);
	assert_int_equal(device_slot_submit(r->prefill, DEVICE_AUTO), NPU_INVALID_VALUE);
	assert_int_equal(fake_count("infer"), 0);
}

static void submit__second_in_flight__refused_though_another_slot(void **state)
{
	struct rig *r = *state;
	struct slot *other;

	bind(r);
	assert_int_equal(device_slot_new(r->d, device_model(r->d, "prefill"), &other), 0);
	device_slot_in(other, 0, tokens, sizeof tokens, 0, sizeof tokens);
	device_slot_out(other, 0, logits, sizeof logits, 0, sizeof logits);
	assert_int_equal(device_slot_submit(r->prefill, DEVICE_AUTO), NPU_SUCCESS);
	assert_int_equal(device_in_flight(r->d), 1);
	assert_int_equal(device_slot_submit(other, DEVICE_PONG), NPU_DEVICE_BUSY);
	assert_int_equal(device_set_parallel(r->d, true), NPU_DEVICE_UNSUPPORT);
	assert_int_equal(device_reset(r->d), NPU_DEVICE_UNSUPPORT);
	assert_int_equal(device_slot_wait(r->prefill), NPU_SUCCESS);
	device_slot_free(other);
}

/* --- KV: every void call is verified ---------------------------------------------------------- */

static void kv__ordinary_life__lengths(void **state)
{
	struct rig *r = *state;

	assert_int_equal(device_kv_allocate(r->d, 5), NPU_SUCCESS);
	assert_int_equal(device_kv_allocate(r->d, 5), NPU_INVALID_VALUE);
	assert_int_equal(device_kv_allocate(r->d, -1), NPU_INVALID_VALUE);
	assert_int_equal(device_kv_apply(r->d, 5, 4), NPU_SUCCESS);
	assert_int_equal(device_kv_len(r->d, 5), 4);
	assert_int_equal(device_kv_apply(r->d, 5, 13), NPU_OUT_OF_RANGE); /* 17 of 16 */
	assert_int_equal(device_kv_apply(r->d, 5, 0), NPU_INVALID_VALUE);
	assert_int_equal(device_kv_apply(r->d, 5, -1), NPU_INVALID_VALUE);
	assert_int_equal(device_kv_apply(r->d, 6, 1), NPU_INVALID_VALUE);
	assert_int_equal(device_kv_truncate(r->d, 5, 5), NPU_INVALID_VALUE);
	assert_int_equal(device_kv_truncate(r->d, 5, -1), NPU_INVALID_VALUE);
	assert_int_equal(device_kv_truncate(r->d, 6, 0), NPU_INVALID_VALUE);
	assert_int_equal(device_kv_truncate(r->d, 5, 1), NPU_SUCCESS);
	assert_int_equal(device_kv_len(r->d, 5), 1);
	assert_int_equal(device_kv_free(r->d, 5), NPU_SUCCESS);
	assert_int_equal(device_kv_len(r->d, 5), -1);
}

static void kv_allocate__no_room__not_even_asked(void **state)
{
	struct rig *r = *state;

	fake.kv_capacity = 0;
	assert_false(device_kv_can_allocate(r->d));
	assert_int_equal(device_kv_allocate(r->d, 0), NPU_MEMORY_ALLOCATION);
	assert_string_equal(calls(), "");
}

static void kv__silent_failures__found_out(void **state)
{
	struct rig *r = *state;

	fake.silent_allocate = true;
	assert_int_equal(device_kv_allocate(r->d, 0), NPU_NOT_EXPECTED);
	fake.silent_allocate = false;
	assert_int_equal(device_kv_allocate(r->d, 0), NPU_SUCCESS);
	fake.short_apply = true;
	assert_int_equal(device_kv_apply(r->d, 0, 3), NPU_NOT_EXPECTED);
	fake.short_apply = false;
	fake_fail("kv_apply", 1, NPU_UNKNOWN);
	assert_int_equal(device_kv_apply(r->d, 0, 3), NPU_NOT_EXPECTED);
	fake.silent_remove = true;
	assert_int_equal(device_kv_truncate(r->d, 0, 0), NPU_NOT_EXPECTED);
	fake.silent_free = true;
	assert_int_equal(device_kv_free(r->d, 0), NPU_NOT_EXPECTED);
	fake.silent_free = false;
	assert_int_equal(device_kv_free(r->d, 0), NPU_SUCCESS);
}

static void calls__each__counted_by_name(void **state)
{
	struct rig *r = *state;
	uint64_t waits = device_calls(CALL_WAIT), infers = device_calls(CALL_INFER);

	bind(r);
	device_slot_submit(r->prefill, DEVICE_AUTO);
	device_slot_wait(r->prefill);
	assert_int_equal(device_calls(CALL_WAIT), waits + 1);
	assert_int_equal(device_calls(CALL_INFER), infers + 1);
	assert_string_equal(device_call_name(CALL_WAIT), "Wait");
	for (int c = 0; c < CALL_COUNT; c++)
		assert_non_null(device_call_name((enum device_call)c));
}

#define OPENED(test)     cmocka_unit_test_setup_teardown(test, opened, down)
#define CONFIGURED(test) cmocka_unit_test_setup_teardown(test, configured, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(open__backend_lacks_a_field__refused_unasked),
		cmocka_unit_test(open__each_step_fails__undone),
		OPENED(load__configure__status_again_and_no_ini),
		OPENED(configure__status_then_bad__error_and_still_undone),
		OPENED(slot_new__not_configured__refused_unasked),
		CONFIGURED(slot_new__second_buffer_fails__first_destroyed),
		CONFIGURED(unload__configured__order_of_the_contract),
		CONFIGURED(slice__bounds__only_good_ones_reach_the_backend),
		CONFIGURED(lengths__bounds__checked_before_the_setter),
		CONFIGURED(submit__failed__slot_is_idle),
		CONFIGURED(submit__in_flight__slot_is_untouchable),
		CONFIGURED(reset__every_error__told_and_nothing_else_called),
		OPENED(access__each__counted_told_and_without_it_unsupported),
		CONFIGURED(access__in_flight__busy_and_not_asked),
		CONFIGURED(wait__ccu_exception__crash_though_wait_succeeded),
		CONFIGURED(submit__mapped_before_the_last_reset__refused),
		CONFIGURED(submit__second_in_flight__refused_though_another_slot),
		CONFIGURED(kv__ordinary_life__lengths),
		CONFIGURED(kv_allocate__no_room__not_even_asked),
		CONFIGURED(kv__silent_failures__found_out),
		CONFIGURED(calls__each__counted_by_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
