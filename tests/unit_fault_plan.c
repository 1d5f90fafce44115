#include "core/fault_plan.h"

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

static struct fault_plan plan;

static void takes(const char *spec, size_t n)
{
	struct fault f = FAULT_NONE;
	int err = fault_plan_parse(spec, &plan, &f);

	if (err)
		fail_msg("%s: %s", spec, f.reason);
	assert_int_equal(plan.n, n);
}

/* Refused at that byte, with that in the reason; the old plan stays. */
static void refuses(const char *spec, long at, const char *said)
{
	struct fault_plan before = plan;
	struct fault f = FAULT_NONE;
	int err = fault_plan_parse(spec, &plan, &f);

	if (err != -EINVAL && err != -E2BIG)
		fail_msg("%s was taken", spec);
	assert_string_equal(f.field, "fault");
	if (f.offset != at || !strstr(f.reason, said) || !f.action[0])
		fail_msg("%s: at %ld: %s", spec, f.offset, f.reason);
	assert_memory_equal(&before, &plan, sizeof plan);
}

static void check(size_t i, enum plan_call call, uint64_t from, uint64_t to,
	enum plan_effect effect)
{
	assert_int_equal(plan.rules[i].call, call);
	assert_int_equal(plan.rules[i].from, from);
	assert_int_equal(plan.rules[i].to, to);
	assert_int_equal(plan.rules[i].effect, effect);
}

static void parse__the_three_forms_of_a_count__from_and_to(void **state)
{
	(void)state;
	takes("Wait@3:DeviceCrash/infer@*:DeviceBusy/Apply@2-:false", 3);
	check(0, PLAN_WAIT, 3, 3, PLAN_ERROR);
	assert_int_equal(plan.rules[0].code, NPU_DEVICE_CRASH);
	check(1, PLAN_INFER, 1, UINT64_MAX, PLAN_ERROR);
	assert_int_equal(plan.rules[1].code, NPU_DEVICE_BUSY);
	check(2, PLAN_APPLY, 2, UINT64_MAX, PLAN_FALSE);
}

static void parse__every_error_by_its_name__its_code(void **state)
{
	char spec[80];

	(void)state;
	for (int code = 0; code < NPU_ERROR_COUNT; code++) {
		snprintf(spec, sizeof spec, "infer@1:%s",
			npu_error_row((enum npu_error)code)->name);
		takes(spec, 1);
		assert_int_equal(plan.rules[0].effect, PLAN_ERROR);
		assert_int_equal(plan.rules[0].code, code);
	}
}

static void parse__every_call__takes_a_hang_and_says_its_own_name(void **state)
{
	char spec[80];

	(void)state;
	for (int call = 0; call < PLAN_CALLS; call++) {
		snprintf(spec, sizeof spec, "%s@1:hang", plan_call_name((enum plan_call)call));
		takes(spec, 1);
		check(0, (enum plan_call)call, 1, 1, PLAN_HANG);
	}
}

static void parse__every_word__some_call_takes_it(void **state)
{
	const char *const *words = plan_effect_words();
	struct fault_plan p;
	char spec[80];

	(void)state;
	for (size_t i = 0; words[i]; i++) {
		const char *word = strcmp(words[i], "delay=MS") == 0 ? "delay=5" : words[i];
		bool any = false;

		for (int call = 0; call < PLAN_CALLS && !any; call++) {
			snprintf(spec, sizeof spec, "%s@1:%s", plan_call_name((enum plan_call)call),
				word);
			any = fault_plan_parse(spec, &p, NULL) == 0;
		}
		if (!any)
			fail_msg("no call takes %s", word);
		assert_int_equal(p.rules[0].effect, PLAN_HANG + i);
	}
}

static void parse__delay__its_milliseconds_within_the_limit(void **state)
{
	(void)state;
	takes("Status@1:delay=0", 1);
	takes("Status@1:delay=60000", 1);
	check(0, PLAN_STATUS, 1, 1, PLAN_DELAY);
	assert_int_equal(plan.rules[0].ms, 60000);
	refuses("Status@1:delay=60001", 9, "0 to 60000");
	refuses("Status@1:delay=", 9, "0 to 60000");
	refuses("Status@1:delay=1e3", 9, "0 to 60000");
	refuses("Status@1:delay=-1", 9, "0 to 60000");
}

static void parse__empty__no_rules(void **state)
{
	(void)state;
	takes("", 0);
}

static void parse__wrong_words__place_and_the_nearest_right_one(void **state)
{
	(void)state;
	takes("Wait@1:nan", 1);
	refuses("Wiat@1:nan", 0, "did you mean Wait?");
	refuses("Wait@1:nan/Inferr@1:hang", 11, "did you mean infer?");
	refuses("Wait@1:DeviceCrush", 7, "did you mean DeviceCrash?");
	refuses("Wait@1:hnag", 7, "did you mean hang?");
	refuses("Wait@1:qqqqqqqqqq", 7, "no effect \"qqqqqqqqqq\"");
	refuses("wait@1:nan", 0, "did you mean Wait?");
}

static void parse__broken_rules__refused_at_their_place(void **state)
{
	(void)state;
	refuses("Wait", 4, "'@'");
	refuses("Wait@", 5, "no number");
	refuses("Wait@0:nan", 5, "no number");
	refuses("Wait@-:nan", 5, "no number");
	refuses("Wait@01:nan", 5, "no number");
	refuses("Wait@1 :nan", 5, "no number");
	refuses("Wait@99999999999999999999:nan", 5, "no number");
	refuses("Wait@1", 6, "':'");
	refuses("Wait@1:", 7, "no effect");
	refuses("/Wait@1:nan", 0, "no call");
	refuses("Wait@1:nan/", 11, "no call");
	refuses("Wait@1:nan//Wait@2:nan", 11, "no call");
}

static void parse__what_a_call_cannot_do__refused_with_what_it_can(void **state)
{
	(void)state;
	refuses("Free@1:DeviceBusy", 7, "it can: hang delay=MS silent");
	refuses("infer@1:nan", 8, "it can: errors");
	refuses("GetStatus@1:DeviceCrash", 12, "ccu");
	refuses("CreateCalbin@1:silent", 15, "null");
}

static void parse__more_than_the_limits__refused(void **state)
{
	size_t rules = FAULT_PLAN_MAX_RULES, at = 0;
	char *spec = calloc(1, FAULT_PLAN_MAX_BYTES + 2);
	struct fault f;

	(void)state;
	for (size_t i = 0; i < rules; i++)
		at += (size_t)sprintf(spec + at, "%sWait@1:nan", i ? "/" : "");
	takes(spec, rules);
	strcat(spec, "/Wait@1:nan");
	refuses(spec, (long)at + 1, "at most 32 faults");
	memset(spec, 'x', FAULT_PLAN_MAX_BYTES + 1);
	assert_int_equal(fault_plan_parse(spec, &plan, &f), -E2BIG);
	free(spec);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parse__the_three_forms_of_a_count__from_and_to),
		cmocka_unit_test(parse__every_error_by_its_name__its_code),
		cmocka_unit_test(parse__every_call__takes_a_hang_and_says_its_own_name),
		cmocka_unit_test(parse__every_word__some_call_takes_it),
		cmocka_unit_test(parse__delay__its_milliseconds_within_the_limit),
		cmocka_unit_test(parse__empty__no_rules),
		cmocka_unit_test(parse__wrong_words__place_and_the_nearest_right_one),
		cmocka_unit_test(parse__broken_rules__refused_at_their_place),
		cmocka_unit_test(parse__what_a_call_cannot_do__refused_with_what_it_can),
		cmocka_unit_test(parse__more_than_the_limits__refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
