#include "core/base/fault.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "core/base/utf8.h"

static void fault_at__all_given__all_kept(void **state)
{
	struct fault f = FAULT_NONE;

	(void)state;
	assert_int_equal(fault_at(&f, -ERANGE, "top_p", 17, "give a number 0..1", "top_p is %d", 7),
		-ERANGE);
	assert_int_equal(f.err, -ERANGE);
	assert_int_equal(f.device, NPU_SUCCESS);
	assert_int_equal(f.offset, 17);
	assert_string_equal(f.field, "top_p");
	assert_string_equal(f.reason, "top_p is 7");
	assert_string_equal(f.action, "give a number 0..1");
}

static void fault_set__over_an_older_fault__replaces_all(void **state)
{
	struct fault f = FAULT_NONE;

	(void)state;
	fault_at(&f, -ERANGE, "top_p", 17, "old", "old");
	fault_from_device(&f, NPU_DEVICE_CRASH, "prefill");
	assert_int_equal(fault_set(&f, -EINVAL, "do", "why"), -EINVAL);
	assert_int_equal(f.device, NPU_SUCCESS);
	assert_int_equal(f.offset, -1);
	assert_string_equal(f.field, "");
	assert_string_equal(f.reason, "why");
}

static void fault_at__no_fault_wanted__returns_err(void **state)
{
	(void)state;
	assert_int_equal(fault_at(NULL, -EIO, "x", 1, "a", "%s", "r"), -EIO);
	assert_int_equal(fault_set(NULL, -EPERM, NULL, "r"), -EPERM);
	assert_int_equal(fault_from_device(NULL, NPU_NO_DEVICE, "starting"), -ENODEV);
}

static void fault_set__controls_and_bad_bytes__become_marks(void **state)
{
	struct fault f = FAULT_NONE;

	(void)state;
	fault_set(&f, -EINVAL, "a\nb", "%s", "tab\t esc\033[31m nl\n del\177 end");
	assert_string_equal(f.reason, "tab? esc?[31m nl? del? end");
	assert_string_equal(f.action, "a?b");
	fault_set(&f, -EINVAL, "", "%s",
		"csi\xc2\x9b ok\xc3\xa9 line\xe2\x80\xa8 bad\xff\xc3( cut\xe2\x82");
	assert_string_equal(f.reason,
		"csi? ok\xc3\xa9 line? bad?"
		"?( cut?"
		"?");
	fault_at(&f, -EINVAL, "na\nme", -1, "", "r");
	assert_string_equal(f.field, "na?me");
}

static void fault_set__too_long__cut_between_characters(void **state)
{
	struct fault f = FAULT_NONE;
	char text[2001];

	(void)state;
	for (size_t i = 0; i + 1 < sizeof text; i += 2)
		memcpy(text + i, "\xc3\xa9", 2);
	text[2000] = '\0';
	for (int shift = 0; shift < 2; shift++) {
		fault_set(&f, -EINVAL, text, "%s%s", shift ? "x" : "", text);
		assert_int_equal(strlen(f.reason), shift ? 223 : 222);
		assert_int_equal(utf8_valid_prefix(f.reason, strlen(f.reason)), strlen(f.reason));
		assert_null(strchr(f.reason, '?'));
		assert_int_equal(strlen(f.action), 158);
	}
}

static void fault_from_device__code__tells_step_message_and_name(void **state)
{
	struct fault f = FAULT_NONE;

	(void)state;
	assert_int_equal(fault_from_device(&f, NPU_TIMEOUT, "decode"), -ETIMEDOUT);
	assert_int_equal(f.device, NPU_TIMEOUT);
	assert_int_equal(f.err, -ETIMEDOUT);
	assert_non_null(strstr(f.reason, "decode: "));
	assert_non_null(strstr(f.reason, "13, Timeout"));
	assert_string_equal(f.action, npu_error_row(NPU_TIMEOUT)->action);
}

static void fault_errno_name__known_and_unknown__named(void **state)
{
	(void)state;
	assert_string_equal(fault_errno_name(22), "EINVAL");
	assert_string_equal(fault_errno_name(-22), "EINVAL");
	assert_string_equal(fault_errno_name(-EILSEQ), "EILSEQ");
	assert_string_equal(fault_errno_name(ETIMEDOUT), "ETIMEDOUT");
	assert_string_equal(fault_errno_name(-EDQUOT), "EDQUOT");
	assert_string_equal(fault_errno_name(-EWOULDBLOCK), "EAGAIN");
	assert_string_equal(fault_errno_name(0), "E?");
	assert_string_equal(fault_errno_name(100000), "E?");
	assert_string_equal(fault_errno_name(-2147483647 - 1), "E?");
}

/* Every errno that a device error can show has a name. */
static void fault_errno_name__device_errors__all_named(void **state)
{
	(void)state;
	for (int i = 1; i < NPU_ERROR_COUNT; i++)
		assert_string_not_equal(fault_errno_name(npu_error_row((enum npu_error)i)->err),
			"E?");
}

static void fault_nearest__slips__found(void **state)
{
	static const char *const names[] = { "temperature", "top_k", "top_p", "seed", "stop",
		"max_new_tokens", "min_p", "stream", "n", NULL };

	(void)state;
	assert_string_equal(fault_nearest("temprature", names), "temperature");
	assert_string_equal(fault_nearest("temperatuer", names), "temperature");
	assert_string_equal(fault_nearest("Temperature", names), "temperature");
	assert_string_equal(fault_nearest("MAX_NEW_TOKENS", names), "max_new_tokens");
	assert_string_equal(fault_nearest("max_tokens", (const char *const[]){ "mx_tokens", NULL }),
		"mx_tokens");
	assert_string_equal(fault_nearest("sede", names), "seed");
	assert_string_equal(fault_nearest("topk", names), "top_k");
	assert_string_equal(fault_nearest("otp_p", names), "top_p");
	assert_string_equal(fault_nearest("stp", names), "stop");
}

static void fault_nearest__nothing_like_it__null(void **state)
{
	static const char *const names[] = { "temperature", "seed", "n", "id", NULL };
	static const char *const none[] = { NULL };
	char huge[1001];

	(void)state;
	memset(huge, 'n', 1000);
	huge[1000] = '\0';
	assert_null(fault_nearest("x", names));
	assert_null(fault_nearest("", names));
	assert_null(fault_nearest("prompt", names));
	assert_null(fault_nearest("ix", names));
	assert_null(fault_nearest(huge, names));
	assert_null(fault_nearest("seed", none));
}

static void fault_nearest__equally_near__first_wins(void **state)
{
	static const char *const names[] = { "top_k", "top_p", NULL };

	(void)state;
	assert_string_equal(fault_nearest("top_x", names), "top_k");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fault_at__all_given__all_kept),
		cmocka_unit_test(fault_set__over_an_older_fault__replaces_all),
		cmocka_unit_test(fault_at__no_fault_wanted__returns_err),
		cmocka_unit_test(fault_set__controls_and_bad_bytes__become_marks),
		cmocka_unit_test(fault_set__too_long__cut_between_characters),
		cmocka_unit_test(fault_from_device__code__tells_step_message_and_name),
		cmocka_unit_test(fault_errno_name__known_and_unknown__named),
		cmocka_unit_test(fault_errno_name__device_errors__all_named),
		cmocka_unit_test(fault_nearest__slips__found),
		cmocka_unit_test(fault_nearest__nothing_like_it__null),
		cmocka_unit_test(fault_nearest__equally_near__first_wins),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
