/* One line of a batch: what is taken, what is refused and where, and how it is answered. The
 * members of OpenAI's input and output lines are those of its public reference of batches. */
#include "core/job/batch.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/base/mem.h"

static int parse(const char *text, const char *model, struct batch_ids *ids, uint64_t number,
	struct batch_entry *e, struct fault *f)
{
	const struct batch_line line = { .number = number, .text = text, .len = strlen(text) };

	*e = (struct batch_entry){ .number = 0 };
	*f = (struct fault)FAULT_NONE;
	return batch_parse(&line, model, ids, e, f);
}

/* --- parsing ---------------------------------------------------------------------------------- */

static void parse__good_lines__understood(void **state)
{
	static const struct {
		const char *text, *id, *prompt;
		bool openai;
	} rows[] = {
		{ "{\"prompt\":\"a\"}", NULL, "a", false },
		{ "{\"custom_id\":\"x\",\"prompt\":\"a\"}", "x", "a", false },
		{ "{\"prompt\":\"a\",\"custom_id\":\"x\",\"model\":\"m\"}", "x", "a", false },
		{ "{\"custom_id\":null,\"prompt\":\"a\",\"model_alias\":\"m\"}", NULL, "a", false },
		{ "{\"prompt\":\"a\",\"stream\":false,\"priority\":0}", NULL, "a", false },
		{ "{\"custom_id\":\"\xc3\xa9\",\"method\":\"POST\",\"url\":\"/v1/completions\","
		  "\"body\":{\"model\":\"m\",\"prompt\":\"b\",\"max_tokens\":3}}",
			"\xc3\xa9", "b", true },
		{ "{\"body\":{\"prompt\":\"b\"}}", NULL, "b", true },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct batch_entry e;
		struct fault f;

		if (parse(rows[i].text, "m", NULL, 7, &e, &f))
			fail_msg("%s: %s", rows[i].text, f.reason);
		assert_int_equal(e.number, 7);
		assert_int_equal(e.openai, rows[i].openai);
		assert_string_equal(e.request->prompt, rows[i].prompt);
		assert_int_equal(!e.custom_id, !rows[i].id);
		if (rows[i].id)
			assert_string_equal(e.custom_id, rows[i].id);
		batch_entry_done(&e);
		batch_entry_done(&e);
	}
}

static void parse__bad_lines__refused_with_place_and_id(void **state)
{
	static const struct {
		const char *text, *id;
		bool openai;
		int err;
		long offset;
		const char *field, *says;
	} rows[] = {
		{ "x", NULL, false, -EINVAL, 0, "", "" },
		{ "{\"prompt\":\"a\"", NULL, false, -EINVAL, 13, "", "" },
		{ "[1]", NULL, false, -EINVAL, 0, "", "an array" },
		{ "{\"custom_id\":7,\"prompt\":\"a\"}", NULL, false, -EINVAL, 13, "custom_id",
			"1..512" },
		{ "{\"custom_id\":\"\",\"prompt\":\"a\"}", NULL, false, -EINVAL, 13, "custom_id",
			"1..512" },
		{ "{\"custom_id\":\"x\",\"promt\":\"a\"}", "x", false, -EINVAL, 25, "promt",
			"\"prompt\"" },
		{ "{\"custom_id\":\"x\",\"prompt\":3}", "x", false, -EINVAL, 26, "prompt",
			"string" },
		{ "{\"custom_id\":\"x\"}", "x", false, -EINVAL, 0, "prompt", "none of" },
		{ "{\"prompt\":\"a\",\"deadline_ms\":5}", NULL, false, -EINVAL, 28, "deadline_ms",
			"whole batch" },
		{ "{\"prompt\":\"a\",\"priority\":5}", NULL, false, -EINVAL, 25, "priority",
			"whole batch" },
		{ "{\"prompt\":\"a\",\"stream\":true}", NULL, false, -EINVAL, 23, "stream",
			"whole batch" },
		{ "{\"inputs\":[{\"name\":\"x\",\"file\":\"x.npy\"}]}", NULL, false, -EINVAL, 10,
			"inputs", "cannot name a file" },
		{ "{\"prompt\":\"a\",\"model\":\"n\"}", NULL, false, -EINVAL, 22, "model",
			"\"n\"; this batch is for \"m\"" },
		{ "{\"prompt\":\"a\",\"model_alias\":\"n\"}", NULL, false, -EINVAL, 28,
			"model_alias", "\"n\"; this batch is for \"m\"" },
		{ "{\"custom_id\":\"x\",\"body\":{\"prompt\":\"a\",\"model\":\"n\"}}", "x", true,
			-EINVAL, 46, "model", "\"m\"" },
		{ "{\"custom_id\":\"x\",\"body\":{\"prompt\":\"a\",\"n\":2}}", "x", true, -EINVAL,
			42, "n", "1" },
		{ "{\"custom_id\":\"x\",\"method\":\"POST\",\"url\":\"/v1/completions\"}", "x",
			true, -EINVAL, 0, "body", "missing" },
		{ "{\"custom_id\":\"x\",\"body\":\"hi\"}", "x", true, -EINVAL, 24, "body",
			"a string" },
		{ "{\"custom_id\":\"x\",\"method\":\"GET\",\"body\":{\"prompt\":\"a\"}}", "x", true,
			-EOPNOTSUPP, 26, "method", "POST" },
		{ "{\"custom_id\":\"x\",\"url\":\"/v1/chat/completions\",\"body\":{\"messages\":"
		  "[]}}",
			"x", true, -EOPNOTSUPP, 23, "url", "/v1/completions" },
		{ "{\"custom_id\":\"x\",\"url\":1,\"body\":{\"prompt\":\"a\"}}", "x", true, -EINVAL,
			23, "url", "/v1/completions" },
		{ "{\"custom_id\":\"x\",\"prompt\":\"a\",\"body\":{}}", "x", true, -EINVAL, 26,
			"prompt", "beside" },
		{ "{\"custom_id\":\"x\",\"custom_id\":\"y\",\"prompt\":\"a\"}", NULL, false,
			-EINVAL, 17, "custom_id", "twice" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct batch_entry e;
		struct fault f;

		assert_int_equal(parse(rows[i].text, "m", NULL, 1, &e, &f), rows[i].err);
		assert_int_equal(f.err, rows[i].err);
		if (f.offset != rows[i].offset || strcmp(f.field, rows[i].field) != 0 ||
			!strstr(f.reason, rows[i].says) || !f.action[0])
			fail_msg("%s: \"%s\" at %ld: %s", rows[i].text, f.field, f.offset,
				f.reason);
		assert_null(e.request);
		assert_int_equal(e.openai, rows[i].openai);
		assert_int_equal(!e.custom_id, !rows[i].id);
		if (rows[i].id)
			assert_string_equal(e.custom_id, rows[i].id);
		batch_entry_done(&e);
	}
}

static void parse__too_long__refused_with_the_limit(void **state)
{
	const struct batch_line line = { .number = 9, .text = "", .too_long = true };
	struct batch_entry e = { .openai = true };
	struct fault f = FAULT_NONE;

	(void)state;
	assert_int_equal(batch_parse(&line, "m", NULL, &e, &f), -E2BIG);
	assert_non_null(strstr(f.reason, "4194304 bytes"));
	assert_int_equal(e.number, 9);
	assert_true(e.openai); /* the form of the line before */
}

static void parse__id_of_512_bytes__the_longest(void **state)
{
	char text[600] = "{\"prompt\":\"a\",\"custom_id\":\"";
	size_t at = strlen(text);
	struct batch_entry e;
	struct fault f;

	(void)state;
	memset(text + at, 'x', 512);
	strcpy(text + at + 512, "\"}");
	assert_int_equal(parse(text, NULL, NULL, 1, &e, &f), 0);
	assert_int_equal(strlen(e.custom_id), 512);
	batch_entry_done(&e);
	strcpy(text + at + 512, "x\"}");
	text[at + 512] = 'x';
	assert_int_equal(parse(text, NULL, NULL, 1, &e, &f), -EINVAL);
	batch_entry_done(&e);
}

static void parse__same_id_again__both_lines_named(void **state)
{
	struct batch_ids ids;
	struct batch_entry e;
	struct fault f;

	(void)state;
	assert_int_equal(batch_ids_init(&ids), 0);
	assert_int_equal(parse("{\"custom_id\":\"x\",\"promt\":1}", "m", &ids, 3, &e, &f), -EINVAL);
	batch_entry_done(&e);
	assert_int_equal(parse("{\"custom_id\":\"y\",\"prompt\":\"a\"}", "m", &ids, 5, &e, &f), 0);
	batch_entry_done(&e);
	assert_int_equal(parse("{\"custom_id\":\"x\",\"body\":{\"prompt\":\"a\"}}", "m", &ids, 8,
				 &e, &f),
		-EINVAL);
	assert_string_equal(f.field, "custom_id");
	assert_int_equal(f.offset, 13);
	batch_name_line(8, &f);
	assert_string_equal(f.reason, "line 8: the custom_id is already that of line 3");
	assert_string_equal(f.field, "custom_id");
	assert_int_equal(f.offset, 13);
	assert_string_equal(e.custom_id, "x");
	batch_entry_done(&e);
	batch_ids_done(&ids);
}

static void pass__any_line__its_id_is_kept(void **state)
{
	static const char *const lines[] = { "{\"custom_id\":\"a\",\"prompt\":\"x\"}",
		"{\"custom_id\":\"b\",\"nonsense\":1}", "not json", "[]",
		"{\"custom_id\":\"a\",\"body\":3}", "{\"custom_id\":5}" };
	struct batch_ids ids;
	struct batch_entry e;
	bool openai = false;
	struct fault f;

	(void)state;
	assert_int_equal(batch_ids_init(&ids), 0);
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		const struct batch_line line = { .number = i + 1,
			.text = lines[i],
			.len = strlen(lines[i]) };

		assert_int_equal(batch_pass(&line, &ids, &openai), 0);
	}
	assert_int_equal(parse("{\"custom_id\":\"a\",\"prompt\":\"x\"}", NULL, &ids, 9, &e, &f),
		-EINVAL);
	assert_non_null(strstr(f.reason, "line 1"));
	batch_entry_done(&e);
	assert_int_equal(parse("{\"custom_id\":\"b\",\"prompt\":\"x\"}", NULL, &ids, 9, &e, &f),
		-EINVAL);
	assert_non_null(strstr(f.reason, "line 2"));
	batch_entry_done(&e);
	batch_ids_done(&ids);
}

/* --- answering -------------------------------------------------------------------------------- */

static void put_answer(const struct batch_entry *e, const char *document, struct buf *out)
{
	AUTO_BUF struct buf doc = BUF_INIT;

	buf_puts(&doc, document);
	assert_int_equal(batch_answer(e, &doc, out), 0);
}

static void answer__own__one_compact_line(void **state)
{
	AUTO_BUF struct buf out = BUF_INIT;
	struct batch_entry e = { .number = 4, .custom_id = (char *)(uintptr_t) "a\"b" };

	(void)state;
	put_answer(&e, "{\n  \"text\": \"x\\ny\",\n  \"seed\": 18446744073709551615\n}\n", &out);
	e.custom_id = NULL;
	e.number = 5;
	put_answer(&e, "{}", &out);
	assert_string_equal(buf_text(&out),
		"{\"custom_id\":\"a\\\"b\",\"line\":4,\"response\":"
		"{\"text\":\"x\\ny\",\"seed\":18446744073709551615},\"error\":null}\n"
		"{\"custom_id\":null,\"line\":5,\"response\":{},\"error\":null}\n");
}

static void answer__own_error__fault_and_line(void **state)
{
	AUTO_BUF struct buf out = BUF_INIT;
	struct batch_entry e = { .number = 4 };
	struct json_value *v;
	const struct json_value *error;
	struct fault f = FAULT_NONE;
	int64_t n;

	(void)state;
	fault_at(&f, -ERANGE, "top_p", 11, "correct the value", "\"top_p\" is 7");
	assert_int_equal(batch_answer_error(&e, &f, &out), 0);
	assert_string_equal(f.reason, "\"top_p\" is 7");
	assert_ptr_equal(strchr(out.data, '\n'), out.data + out.len - 1);
	assert_int_equal(json_parse(out.data, out.len, &v, &f), 0);
	assert_int_equal(json_type(json_member(v, "response")), JSON_NULL);
	error = json_member(v, "error");
	assert_string_equal(json_string(json_member(error, "name")), "ERANGE");
	assert_string_equal(json_string(json_member(error, "field")), "top_p");
	assert_string_equal(json_string(json_member(error, "reason")), "line 4: \"top_p\" is 7");
	assert_string_equal(json_string(json_member(error, "action")), "correct the value");
	assert_int_equal(json_int64(json_member(error, "offset"), &n), 0);
	assert_int_equal(n, 11);
	json_free(v);
}

static struct json_value *openai_answer(const struct buf *out, char ret_id[64])
{
	static const char *const names[] = { "id", "custom_id", "response", "error" };
	struct json_value *v;
	const struct json_value *m;
	size_t i = 0;

	assert_int_equal(json_parse(out->data, out->len, &v, NULL), 0);
	assert_ptr_equal(strchr(out->data, '\n'), out->data + out->len - 1);
	for (m = json_first(v); m; m = json_next(m))
		assert_string_equal(json_key(m), names[i++]);
	assert_int_equal(i, 4);
	snprintf(ret_id, 64, "%s", json_string(json_member(v, "id")));
	assert_int_equal(strlen(ret_id), strlen("batch_req_") + 24);
	assert_memory_equal(ret_id, "batch_req_", 10);
	return v;
}

static void answer__openai__as_its_reference(void **state)
{
	AUTO_BUF struct buf out = BUF_INIT;
	const struct batch_entry e = { .number = 4,
		.openai = true,
		.custom_id = (char *)(uintptr_t) "request-1" };
	const struct json_value *response;
	struct json_value *v;
	char id[64], again[64];
	int64_t n;

	(void)state;
	put_answer(&e, "{\"object\": \"text_completion\", \"created\": 1711475054}", &out);
	v = openai_answer(&out, id);
	assert_string_equal(json_string(json_member(v, "custom_id")), "request-1");
	assert_int_equal(json_type(json_member(v, "error")), JSON_NULL);
	response = json_member(v, "response");
	assert_int_equal(json_int64(json_member(response, "status_code"), &n), 0);
	assert_int_equal(n, 200);
	assert_memory_equal(json_string(json_member(response, "request_id")), "req_", 4);
	assert_non_null(strstr(out.data,
		"\"body\":{\"object\":\"text_completion\",\"created\":1711475054}},\"error\":null}"
		"\n"));
	json_free(v);
	buf_reset(&out);
	put_answer(&e, "{}", &out);
	json_free(openai_answer(&out, again));
	assert_string_not_equal(id, again);
}

static void answer__openai_error__code_and_message(void **state)
{
	AUTO_BUF struct buf out = BUF_INIT;
	const struct batch_entry e = { .number = 4, .openai = true };
	struct fault f = FAULT_NONE;
	const struct json_value *error;
	struct json_value *v;
	char id[64];

	(void)state;
	fault_set(&f, -E2BIG, "shorten it", "the prompt is too long");
	assert_int_equal(batch_answer_error(&e, &f, &out), 0);
	v = openai_answer(&out, id);
	assert_int_equal(json_type(json_member(v, "custom_id")), JSON_NULL);
	assert_int_equal(json_type(json_member(v, "response")), JSON_NULL);
	error = json_member(v, "error");
	assert_int_equal(json_count(error), 2);
	assert_string_equal(json_string(json_member(error, "code")), "E2BIG");
	assert_string_equal(json_string(json_member(error, "message")),
		"line 4: the prompt is too long; shorten it");
	json_free(v);
}

static void answer__document_is_no_json__refused_and_nothing_put(void **state)
{
	AUTO_BUF struct buf out = BUF_INIT, doc = BUF_INIT;
	const struct batch_entry e = { .number = 4 };

	(void)state;
	assert_int_equal(batch_answer(&e, &doc, &out), -EIO);
	buf_puts(&doc, "text");
	assert_int_equal(batch_answer(&e, &doc, &out), -EIO);
	assert_int_equal(out.len, 0);
}

/* --- the first model -------------------------------------------------------------------------- */

static void first_model__of_the_first_good_line(void **state)
{
	static const struct {
		const char *text, *model;
		int err;
	} rows[] = {
		{ "{\"prompt\":\"a\",\"model\":\"m\"}", "m", 0 },
		{ "\xef\xbb\xbf\r\n \nbad\n{\"prompt\":\"a\",\"model\":\"m\"}\r\n{\"prompt\":\"a\","
		  "\"model\":\"n\"}\n",
			"m", 0 },
		{ "{\"body\":{\"prompt\":\"a\",\"model\":\"m\"}}\n", "m", 0 },
		{ "{\"prompt\":\"a\"}\n{\"prompt\":\"a\",\"model\":\"n\"}\n", NULL, 0 },
		{ "{\"model\":\"m\"}\n{\"prompt\":\"a\",\"model\":\"n\"}\n", "n", 0 },
		{ "{\"prompt\":\"a\",\"mod", NULL, -ENOENT },
		{ "", NULL, -ENOENT },
		{ "\n\n", NULL, -ENOENT },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char *model = NULL;

		assert_int_equal(batch_first_model(rows[i].text, strlen(rows[i].text), &model),
			rows[i].err);
		assert_int_equal(!model, !rows[i].model);
		if (model)
			assert_string_equal(model, rows[i].model);
		free(model);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parse__good_lines__understood),
		cmocka_unit_test(parse__bad_lines__refused_with_place_and_id),
		cmocka_unit_test(parse__too_long__refused_with_the_limit),
		cmocka_unit_test(parse__id_of_512_bytes__the_longest),
		cmocka_unit_test(parse__same_id_again__both_lines_named),
		cmocka_unit_test(pass__any_line__its_id_is_kept),
		cmocka_unit_test(answer__own__one_compact_line),
		cmocka_unit_test(answer__own_error__fault_and_line),
		cmocka_unit_test(answer__openai__as_its_reference),
		cmocka_unit_test(answer__openai_error__code_and_message),
		cmocka_unit_test(answer__document_is_no_json__refused_and_nothing_put),
		cmocka_unit_test(first_model__of_the_first_good_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
