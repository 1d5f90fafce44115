#include "core/job/answer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static void check_object(enum answer_shape shape, const struct fault *f, const char *want)
{
	AUTO_BUF struct buf got = BUF_INIT;
	struct json_value *v = answer_error(shape, f);

	assert_int_equal(json_render(v, false, &got), 0);
	assert_string_equal(buf_text(&got), want);
	json_free(v);
}

static struct fault made(int err, const char *field, long offset, const char *action)
{
	struct fault f;

	fault_at(&f, err, field, offset, action, "\"n\" is 2");
	return f;
}

static void answer_error__own__every_part(void **state)
{
	struct fault f = made(-EINVAL, "n", 12, "give 1");

	(void)state;
	check_object(ANSWER_OWN, &f,
		"{\"error\":{\"errno\":22,\"name\":\"EINVAL\",\"field\":\"n\",\"offset\":12,"
		"\"reason\":\"\\\"n\\\" is 2\",\"action\":\"give 1\"}}");
	f = made(-EIO, NULL, -1, "");
	check_object(ANSWER_OWN, &f,
		"{\"error\":{\"errno\":5,\"name\":\"EIO\",\"field\":null,\"offset\":null,"
		"\"reason\":\"\\\"n\\\" is 2\",\"action\":\"\"}}");
}

static void answer_error__openai__type_and_code_by_errno(void **state)
{
	static const struct {
		int err;
		const char *field, *want;
	} rows[] = {
		{ -EINVAL, "n",
			"\"type\":\"invalid_request_error\",\"param\":\"n\",\"code\":null" },
		{ -ERANGE, "n",
			"\"type\":\"invalid_request_error\",\"param\":\"n\",\"code\":null" },
		{ -E2BIG, "prompt",
			"\"type\":\"invalid_request_error\",\"param\":\"prompt\","
			"\"code\":\"context_length_exceeded\"" },
		{ -ENOENT, "model",
			"\"type\":\"invalid_request_error\",\"param\":\"model\","
			"\"code\":\"model_not_found\"" },
		{ -ENOENT, "inputs[0].file",
			"\"type\":\"invalid_request_error\",\"param\":\"inputs[0].file\","
			"\"code\":null" },
		{ -EFBIG, NULL, "\"type\":\"invalid_request_error\",\"param\":null,\"code\":null" },
		{ -EAGAIN, NULL,
			"\"type\":\"rate_limit_error\",\"param\":null,"
			"\"code\":\"rate_limit_exceeded\"" },
		{ -EDQUOT, NULL,
			"\"type\":\"rate_limit_error\",\"param\":null,"
			"\"code\":\"rate_limit_exceeded\"" },
		{ -EIO, NULL, "\"type\":\"server_error\",\"param\":null,\"code\":null" },
		{ -ETIMEDOUT, NULL, "\"type\":\"server_error\",\"param\":null,\"code\":null" },
		{ -ESHUTDOWN, NULL, "\"type\":\"server_error\",\"param\":null,\"code\":null" },
	};
	char want[300];

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct fault f = made(rows[i].err, rows[i].field, 3, "give 1");

		snprintf(want, sizeof want,
			"{\"error\":{\"message\":\"\\\"n\\\" is 2 (give 1)\",%s}}", rows[i].want);
		check_object(ANSWER_OPENAI, &f, want);
	}
}

static void answer_error__kserve__one_text(void **state)
{
	struct fault f = made(-EINVAL, "n", 12, "give 1");

	(void)state;
	check_object(ANSWER_KSERVE, &f, "{\"error\":\"\\\"n\\\" is 2 (give 1)\"}");
	f = made(-EINVAL, "n", 12, "");
	check_object(ANSWER_KSERVE, &f, "{\"error\":\"\\\"n\\\" is 2\"}");
}

static void answer_error__longest_texts__whole(void **state)
{
	struct fault f = made(-EINVAL, "n", 0, "");
	char want[600];

	(void)state;
	memset(f.reason, 'r', sizeof f.reason - 1);
	memset(f.action, 'a', sizeof f.action - 1);
	f.reason[sizeof f.reason - 1] = f.action[sizeof f.action - 1] = '\0';
	snprintf(want, sizeof want, "{\"error\":\"%s (%s)\"}", f.reason, f.action);
	check_object(ANSWER_KSERVE, &f, want);
}

static void answer_render_error__each_shape__text_of_err(void **state)
{
	struct fault f = made(-EINVAL, "n", 12, "give 1");
	AUTO_BUF struct buf out = BUF_INIT;

	(void)state;
	answer_render_error(ANSWER_OWN, &f, &out);
	assert_string_equal(buf_text(&out),
		"error: 22 EINVAL\nfield: n\noffset: 12\nreason: \"n\" is 2\naction: give 1\n");
	buf_reset(&out);
	answer_render_error(ANSWER_KSERVE, &f, &out);
	assert_string_equal(buf_text(&out), "{\n  \"error\": \"\\\"n\\\" is 2 (give 1)\"\n}\n");
	buf_reset(&out);
	f = made(-EIO, NULL, -1, "");
	answer_render_error(ANSWER_OWN, &f, &out);
	assert_string_equal(buf_text(&out), "error: 5 EIO\nreason: \"n\" is 2\n");
	buf_reset(&out);
	answer_render_error(ANSWER_OPENAI, &f, &out);
	assert_string_equal(buf_text(&out),
		"{\n  \"error\": {\n    \"message\": \"\\\"n\\\" is 2\",\n"
		"    \"type\": \"server_error\",\n    \"param\": null,\n    \"code\": null\n  "
		"}\n}\n");
}

static void answer_http_status__errno_of_either_sign__as_http_has_it(void **state)
{
	static const struct {
		int err, http;
	} rows[] = {
		{ EINVAL, 400 },
		{ ERANGE, 400 },
		{ EILSEQ, 400 },
		{ E2BIG, 400 },
		{ EOPNOTSUPP, 400 },
		{ ENOENT, 404 },
		{ ETIMEDOUT, 408 },
		{ EFBIG, 413 },
		{ EAGAIN, 429 },
		{ EDQUOT, 429 },
		{ EIO, 500 },
		{ EBADMSG, 500 },
		{ EBUSY, 503 },
		{ ENODEV, 503 },
		{ ENOMEM, 503 },
		{ ESHUTDOWN, 503 },
		{ ENOSPC, 507 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		assert_int_equal(answer_http_status(rows[i].err), rows[i].http);
		assert_int_equal(answer_http_status(-rows[i].err), rows[i].http);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(answer_error__own__every_part),
		cmocka_unit_test(answer_error__openai__type_and_code_by_errno),
		cmocka_unit_test(answer_error__kserve__one_text),
		cmocka_unit_test(answer_error__longest_texts__whole),
		cmocka_unit_test(answer_render_error__each_shape__text_of_err),
		cmocka_unit_test(answer_http_status__errno_of_either_sign__as_http_has_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
