#include "core/device_watch.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#define MODEL ((const void *)3)
#define DEV   ((const void *)16)
#define BIN   ((const void *)32)
#define IN    ((const void *)48)
#define OUT   ((const void *)64)
#define OUT2  ((const void *)80)
#define IN2   ((const void *)96)
#define KV    ((const void *)112)

static const struct tensor_spec ins[] = { { "a", DTYPE_FLOAT32, 1, { 2 } },
	{ "b", DTYPE_FLOAT32, 1, { 2 } } };
static const struct tensor_spec outs[] = { { "y", DTYPE_FLOAT32, 1, { 2 } } };
static const struct model_info plain = { "graph", "graph", ins, outs, 2, 1, { NULL }, 0 };
static const struct model_info llm = { "decode", "decode", ins, outs, 2, 1,
	{ CSR_CUR_LEN, CSR_PAST_LEN }, 2 };

static struct device_watch w;
static float memory[2];

static void clean(void)
{
	if (w.breaches)
		fail_msg("%s", w.first);
}

/* One breach and no other since the last look, with this text. */
static void broken(const char *text)
{
	if (w.breaches != 1 || !strstr(w.first, text))
		fail_msg("%u breaches: %s; not: %s", w.breaches, w.first, text);
	watch_clear(&w);
}

static void configured(const struct model_info *info)
{
	const struct llm_info limits = { 1, 16 };

	watch_init(&w);
	watch_made(&w, WATCH_DEVICE, DEV, NULL);
	watch_made(&w, WATCH_CALBIN, BIN, NULL);
	watch_loaded(&w, &limits);
	watch_configured(&w);
	watch_made(&w, WATCH_INPUT, IN, info);
	watch_made(&w, WATCH_OUTPUT, OUT, info);
}

static void map_all(const void *in, const void *out)
{
	watch_sliced(&w, WATCH_INPUT, in, "a", NULL, 8);
	watch_sliced(&w, WATCH_INPUT, in, "b", NULL, 8);
	watch_sliced(&w, WATCH_OUTPUT, out, "y", memory, 8);
}

static void submit(const void *in, const void *out)
{
	watch_submitting(&w, MODEL, in, out);
	watch_submitted(&w, MODEL, in, out);
}

static void finish(const void *out)
{
	watch_waiting(&w, out);
	watch_waited(&w, out, NPU_SUCCESS);
	watch_status(&w, out);
}

static void reset(const void *in, const void *out)
{
	watch_tensors_reset(&w, WATCH_INPUT, in);
	watch_tensors_reset(&w, WATCH_OUTPUT, out);
}

static void tear_down(void)
{
	watch_gone(&w, WATCH_INPUT, IN);
	watch_gone(&w, WATCH_OUTPUT, OUT);
	watch_reset_configuration(&w);
	watch_gone(&w, WATCH_CALBIN, BIN);
	watch_gone(&w, WATCH_DEVICE, DEV);
}

static void order__as_the_contract_says__no_breach_and_nothing_left(void **state)
{
	(void)state;
	configured(&plain);
	for (int i = 0; i < 3; i++) {
		map_all(IN, OUT);
		submit(IN, OUT);
		finish(OUT);
		reset(IN, OUT);
	}
	tear_down();
	clean();
	assert_int_equal(w.n, 0);
}

static void tear_down__each_wrong_order__named(void **state)
{
	(void)state;
	configured(&plain);
	watch_gone(&w, WATCH_OUTPUT, OUT);
	watch_reset_configuration(&w);
	broken("ResetConfiguration before 1 input buffers");
	configured(&plain);
	watch_made(&w, WATCH_KV, KV, NULL);
	watch_sequence(&w, 5, true);
	watch_gone(&w, WATCH_KV, KV);
	broken("KV managers go before 1 KV sequences");
	watch_gone(&w, WATCH_INPUT, IN);
	watch_gone(&w, WATCH_OUTPUT, OUT);
	watch_gone(&w, WATCH_CALBIN, BIN);
	broken("a calbin goes before ResetConfiguration");
	configured(&plain);
	watch_gone(&w, WATCH_INPUT, IN);
	watch_gone(&w, WATCH_OUTPUT, OUT);
	watch_gone(&w, WATCH_DEVICE, DEV);
	broken("devices go before 1 calbins");
}

static void gone__twice__named_and_not_to_be_passed_on(void **state)
{
	(void)state;
	configured(&plain);
	assert_true(watch_gone(&w, WATCH_OUTPUT, OUT));
	clean();
	assert_false(watch_gone(&w, WATCH_OUTPUT, OUT));
	broken("output buffers goes twice");
	assert_false(watch_gone(&w, WATCH_INPUT, OUT2));
	broken("input buffers goes twice");
}

static void in_flight__touched__each_way_named(void **state)
{
	(void)state;
	configured(&plain);
	map_all(IN, OUT);
	submit(IN, OUT);
	watch_sliced(&w, WATCH_INPUT, IN, "a", NULL, 8);
	broken("mapped while in flight");
	watch_tensors_reset(&w, WATCH_INPUT, IN);
	broken("reset while in flight");
	watch_gone(&w, WATCH_INPUT, IN);
	broken("input buffers goes while in flight");
	watch_gone(&w, WATCH_OUTPUT, OUT);
	broken("output buffers goes while in flight");
	configured(&plain);
	map_all(IN, OUT);
	submit(IN, OUT);
	watch_parallel(&w, true);
	broken("EnableParallelMode with 1 in flight");
	w.resets_allowed = true;
	watch_reset(&w, "ResetCCU");
	broken("ResetCCU with 1 in flight");
}

static void wait__not_submitted_or_twice__named(void **state)
{
	(void)state;
	configured(&plain);
	watch_waiting(&w, OUT);
	broken("a Wait without a submit that was taken");
	map_all(IN, OUT);
	watch_submitting(&w, MODEL, IN, OUT); /* and refused */
	watch_waiting(&w, OUT);
	broken("a Wait without a submit that was taken");
	submit(IN, OUT);
	finish(OUT);
	clean();
	watch_waiting(&w, OUT);
	broken("a Wait without a submit that was taken");
}

static void status__not_read_after_a_good_wait__named(void **state)
{
	(void)state;
	configured(&plain);
	map_all(IN, OUT);
	submit(IN, OUT);
	watch_waiting(&w, OUT);
	watch_waited(&w, OUT, NPU_SUCCESS);
	watch_gone(&w, WATCH_OUTPUT, OUT);
	broken("never read after Wait");
	configured(&plain);
	map_all(IN, OUT);
	submit(IN, OUT);
	watch_waiting(&w, OUT);
	watch_waited(&w, OUT, NPU_DEVICE_CRASH); /* there is nothing to read then */
	watch_gone(&w, WATCH_OUTPUT, OUT);
	clean();
}

static void mapping__of_an_earlier_run__named(void **state)
{
	(void)state;
	configured(&plain);
	map_all(IN, OUT);
	submit(IN, OUT);
	finish(OUT);
	watch_tensors_reset(&w, WATCH_OUTPUT, OUT);
	watch_sliced(&w, WATCH_OUTPUT, OUT, "y", memory, 8);
	clean();
	submit(IN, OUT);
	broken("a mapping of an earlier run");
	finish(OUT);
	reset(IN, OUT);
	map_all(IN, OUT);
	submit(IN, OUT);
	finish(OUT);
	clean();
	watch_sliced(&w, WATCH_INPUT, IN, "b", NULL, 8);
	broken("mapped again without a reset");
}

static void submit__tensor_not_mapped__named(void **state)
{
	(void)state;
	configured(&plain);
	watch_sliced(&w, WATCH_INPUT, IN, "a", NULL, 8);
	watch_sliced(&w, WATCH_OUTPUT, OUT, "y", memory, 8);
	submit(IN, OUT);
	broken("a tensor that is not mapped");
}

static void flight__more_than_allowed__named(void **state)
{
	(void)state;
	configured(&plain);
	watch_made(&w, WATCH_INPUT, IN2, &plain);
	watch_made(&w, WATCH_OUTPUT, OUT2, &plain);
	map_all(IN, OUT);
	map_all(IN2, OUT2);
	submit(IN, OUT);
	submit(IN2, OUT2);
	broken("more in flight than allowed");
	finish(OUT);
	finish(OUT2);
	reset(IN, OUT);
	reset(IN2, OUT2);
	watch_parallel(&w, true);
	map_all(IN, OUT);
	map_all(IN2, OUT2);
	submit(IN, OUT);
	submit(IN2, OUT2);
	clean();
	assert_ptr_equal(watch_output(&w, OUT)->host, memory);
	assert_null(watch_other_output(&w, OUT));
	finish(OUT2);
	assert_int_equal(watch_other_output(&w, OUT)->handle, (uintptr_t)OUT2);
}

static void lengths__missing_or_out_of_bounds__named(void **state)
{
	static const struct {
		uint32_t cur, total;
		const char *breach;
	} cases[] = {
		{ 1, 1, NULL },
		{ 16, 16, NULL },
		{ 4, 16, NULL },
		{ 0, 4, "out of bounds" },
		{ 5, 4, "out of bounds" },
		{ 1, 17, "out of bounds" },
	};

	(void)state;
	configured(&llm);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		watch_csr(&w, MODEL, CSR_CUR_LEN, cases[i].cur);
		watch_csr(&w, MODEL, CSR_PAST_LEN, cases[i].total);
		map_all(IN, OUT);
		submit(IN, OUT);
		if (cases[i].breach)
			broken(cases[i].breach);
		clean();
		finish(OUT);
		reset(IN, OUT);
	}
	watch_csr(&w, MODEL, CSR_CUR_LEN, 1); /* the other is that of the run before */
	map_all(IN, OUT);
	submit(IN, OUT);
	broken("without both lengths");
}

static void resets__not_allowed__named(void **state)
{
	(void)state;
	configured(&plain);
	watch_reset(&w, "Reset");
	broken("Reset, which nobody has allowed");
	w.resets_allowed = true;
	watch_reset(&w, "Reset");
	clean();
}

static void configure__twice__named(void **state)
{
	(void)state;
	configured(&plain);
	watch_configured(&w);
	broken("configured while another generation is");
}

static void breaches__more_than_one__the_first_is_kept_and_all_are_counted(void **state)
{
	(void)state;
	configured(&plain);
	watch_waiting(&w, OUT);
	watch_reset(&w, "Reset");
	assert_int_equal(w.breaches, 2);
	assert_non_null(strstr(w.first, "a Wait"));
}

static void handles__more_than_fit__not_watched_and_no_breach(void **state)
{
	(void)state;
	configured(&plain);
	for (uintptr_t i = 0; i < WATCH_MAX_HANDLES; i++)
		watch_made(&w, WATCH_INPUT, (const void *)(4096 + i), &plain);
	assert_int_equal(w.n, WATCH_MAX_HANDLES);
	assert_true(watch_gone(&w, WATCH_INPUT, (const void *)(4096 + WATCH_MAX_HANDLES - 1)));
	clean();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(order__as_the_contract_says__no_breach_and_nothing_left),
		cmocka_unit_test(tear_down__each_wrong_order__named),
		cmocka_unit_test(gone__twice__named_and_not_to_be_passed_on),
		cmocka_unit_test(in_flight__touched__each_way_named),
		cmocka_unit_test(wait__not_submitted_or_twice__named),
		cmocka_unit_test(status__not_read_after_a_good_wait__named),
		cmocka_unit_test(mapping__of_an_earlier_run__named),
		cmocka_unit_test(submit__tensor_not_mapped__named),
		cmocka_unit_test(flight__more_than_allowed__named),
		cmocka_unit_test(lengths__missing_or_out_of_bounds__named),
		cmocka_unit_test(resets__not_allowed__named),
		cmocka_unit_test(configure__twice__named),
		cmocka_unit_test(breaches__more_than_one__the_first_is_kept_and_all_are_counted),
		cmocka_unit_test(handles__more_than_fit__not_watched_and_no_breach),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
