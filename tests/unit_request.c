#include "core/job/request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/request_checks.h"

static struct request *accepted_text(const char *text, size_t len)
{
	struct request *r = NULL;
	struct fault f = FAULT_NONE;

	if (request_from_text(text, len, &r, &f))
		fail_msg("%s: %s", text, f.reason);
	return r;
}

/* --- text ------------------------------------------------------------------------------------- */

static void request_from_text__one_final_line_end__dropped(void **state)
{
	static const struct {
		const char *text, *prompt;
	} rows[] = {
		{ "Q", "Q" },
		{ "Q\n", "Q" },
		{ "Q\n\n", "Q\n" },
		{ "Q\r\n", "Q" },
		{ "Q\r\n\r\n", "Q\r\n" },
		{ "Q\r", "Q\r" },
		{ "Q\n\r", "Q\n\r" },
		{ "  Q  ", "  Q  " },
		{ "\nQ", "\nQ" },
		{ "\n\n", "\n" },
		{ "\r", "\r" },
		{ "\xef\xbb\xbfhi\r\n", "hi" },
		{ "\xef\xbb\xbf\xef\xbb\xbfx", "\xef\xbb\xbfx" },
		{ "a\xc3\xa9\n", "a\xc3\xa9" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct request *r = accepted_text(rows[i].text, strlen(rows[i].text));

		assert_string_equal(r->prompt, rows[i].prompt);
		assert_int_equal(r->prompt_len, strlen(rows[i].prompt));
		request_free(r);
	}
}

static void request_from_text__defaults__set(void **state)
{
	struct request *r = accepted_text("x", 1);

	(void)state;
	assert_null(r->model);
	assert_null(r->tokens);
	assert_null(r->inputs);
	assert_null(r->stops);
	assert_string_equal(r->request_id, "");
	assert_int_equal(r->max_new_tokens, -1);
	assert_false(
		r->temperature_given || r->seed_given || r->stream || r->echo || r->output_given);
	assert_true(r->sampling.top_p == 1 && r->sampling.min_p == 0 &&
		r->sampling.repeat_penalty == 1);
	assert_int_equal(r->sampling.top_k, 0);
	assert_int_equal(r->deadline_ms, 0);
	assert_int_equal(r->priority, 0);
	assert_int_equal(r->output, REQUEST_TEXT);
	assert_int_equal(r->shape, ANSWER_OWN);
	assert_null(r->outputs);
	request_free(r);
}

static void request_from_text__not_a_prompt__refused(void **state)
{
	static const struct {
		const char *text;
		size_t len;
		int err;
		long offset;
		const char *part;
	} rows[] = {
		{ B(""), -EINVAL, 0, "empty" },
		{ B("\n"), -EINVAL, 0, "empty" },
		{ B("\r\n"), -EINVAL, 0, "empty" },
		{ B("\xef\xbb\xbf"), -EINVAL, 0, "empty" },
		{ B("\xef\xbb\xbf\n"), -EINVAL, 0, "empty" },
		{ B("\xc0\xaf\xed\xa0\x80"), -EILSEQ, 0, "not UTF-8" },
		{ B("abc\xff"), -EILSEQ, 3, "not UTF-8" },
		{ B("ab\xe2\x82"), -EILSEQ, 2, "not UTF-8" },
		{ B("abc\0def"), -EINVAL, 3, "NUL" },
		{ B("\xff\xfeh\0i\0"), -EILSEQ, 0, "UTF-16" },
		{ B("h\0i\0"), -EILSEQ, 0, "UTF-16" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct request *r = NULL;
		struct fault f = FAULT_NONE;
		int err = request_from_text(rows[i].text, rows[i].len, &r, &f);

		if (err != rows[i].err || f.err != err || f.offset != rows[i].offset ||
			!strstr(f.reason, rows[i].part) || r)
			fail_msg("row %zu: %d at %ld: %s", i, err, f.offset, f.reason);
		assert_string_equal(f.field, "prompt");
	}
}

/* --- fields that are right -------------------------------------------------------------------- */

static void request_from_json__every_field__set(void **state)
{
	struct request *r = accepted(
		"{\"model\":\"tiny-1.2_x\",\"prompt\":\"Hi\\n\",\"max_new_tokens\":1048576,"
		"\"temperature\":0.25,"
		"\"top_k\":2147483647,\"top_p\":0.5,\"min_p\":0.125,\"repeat_penalty\":1.5,"
		"\"seed\":18446744073709551615,\"stop\":[\"a\",\"\\u00e9\"],\"deadline_ms\":"
		"604800000,"
		"\"priority\":-100,\"stream\":true,\"echo\":true,\"output\":\"json\",\"request_"
		"id\":\"A.b_c:d-9\"}");

	(void)state;
	assert_string_equal(r->model, "tiny-1.2_x");
	assert_string_equal(r->prompt, "Hi\n");
	assert_int_equal(r->prompt_len, 3);
	assert_int_equal(r->max_new_tokens, 1048576);
	assert_true(r->temperature_given && r->sampling.temperature == 0.25);
	assert_int_equal(r->sampling.top_k, 2147483647);
	assert_true(r->sampling.top_p == 0.5 && r->sampling.min_p == 0.125);
	assert_true(r->sampling.repeat_penalty == 1.5);
	assert_true(r->seed_given && r->sampling.seed == UINT64_MAX);
	assert_string_equal(r->stops[0], "a");
	assert_string_equal(r->stops[1], "\xc3\xa9");
	assert_null(r->stops[2]);
	assert_int_equal(r->deadline_ms, 604800000);
	assert_int_equal(r->priority, -100);
	assert_true(r->stream && r->echo && r->output_given);
	assert_int_equal(r->output, REQUEST_JSON);
	assert_string_equal(r->request_id, "A.b_c:d-9");
	request_free(r);
}

static void request_from_json__mark_and_crlf__accepted(void **state)
{
	struct request *r = accepted("\xef\xbb\xbf{\"model\":\"m\",\r\n\"prompt\":\"x\"}\r\n");

	(void)state;
	assert_string_equal(r->model, "m");
	assert_string_equal(r->prompt, "x");
	request_free(r);
}

static void request_from_json__seed_forms__exact(void **state)
{
	static const struct {
		const char *text;
		uint64_t seed;
	} rows[] = {
		{ "0", 0 },
		{ "-0", 0 },
		{ "1.0", 1 },
		{ "1e3", 1000 },
		{ "1000000000000000", 1000000000000000ULL },
		{ "9007199254740993", 9007199254740993ULL },
		{ "9223372036854775808", 9223372036854775808ULL },
		{ "18446744073709551615", 18446744073709551615ULL },
	};
	char json[100];

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct request *r;

		snprintf(json, sizeof json, "{\"prompt\":\"x\",\"seed\":%s}", rows[i].text);
		r = accepted(json);
		assert_true(r->sampling.seed == rows[i].seed);
		request_free(r);
	}
}

static void request_from_json__ends_of_ranges__accepted(void **state)
{
	static const char *const members[] = {
		"\"temperature\":0",
		"\"temperature\":2",
		"\"temperature\":-0",
		"\"temperature\":2.0",
		"\"top_p\":1",
		"\"top_p\":1e-300",
		"\"min_p\":0",
		"\"min_p\":1",
		"\"repeat_penalty\":2",
		"\"repeat_penalty\":0.001",
		"\"top_k\":0",
		"\"max_new_tokens\":1",
		"\"max_new_tokens\":1e3",
		"\"deadline_ms\":1",
		"\"priority\":100",
		"\"priority\":-100.0",
		"\"stream\":false",
		"\"output\":\"text\"",
		"\"stop\":\"x\"",
		"\"stop\":[]",
		"\"request_id\":\"x\"",
		"\"model\":\"0\"",
	};
	char json[100];

	(void)state;
	for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
		snprintf(json, sizeof json, "{\"prompt\":\"x\",%s}", members[i]);
		request_free(accepted(json));
	}
}

static void request_from_json__completion_body__taken(void **state)
{
	struct request *r = accepted("{\"model\":\"m\",\"prompt\":[\"Say\"],\"max_tokens\":7,"
				     "\"temperature\":0,\"top_p\":1,\"n\":1,"
				     "\"stream\":false,\"logprobs\":null,\"echo\":false,\"stop\":"
				     "\"\\n\",\"presence_penalty\":0,"
				     "\"frequency_penalty\":0.0,\"best_of\":1,\"user\":\"u1\","
				     "\"suffix\":null,\"seed\":null}");

	(void)state;
	assert_string_equal(r->prompt, "Say");
	assert_int_equal(r->prompt_len, 3);
	assert_int_equal(r->max_new_tokens, 7);
	assert_string_equal(r->stops[0], "\n");
	assert_false(r->seed_given);
	assert_int_equal(r->shape, ANSWER_OPENAI);
	request_free(r);
	r = accepted("{\"prompt\":[3,1,2]}");
	assert_null(r->prompt);
	assert_int_equal(r->n_tokens, 3);
	assert_int_equal(r->tokens[0], 3);
	assert_int_equal(r->tokens[2], 2);
	request_free(r);
}

static void request_from_json__other_names__taken(void **state)
{
	struct request *r = accepted("{\"model_alias\":\"m\",\"prompt\":\"x\",\"id\":\"r7\"}");

	(void)state;
	assert_string_equal(r->model, "m");
	assert_string_equal(r->request_id, "r7");
	request_free(r);
}

static void request_from_json__tokens__kept_in_order(void **state)
{
	struct request *r = accepted("{\"tokens\":[0,2147483647,1.0,1e2]}");

	(void)state;
	assert_null(r->prompt);
	assert_int_equal(r->n_tokens, 4);
	assert_int_equal(r->tokens[0], 0);
	assert_int_equal(r->tokens[1], 2147483647);
	assert_int_equal(r->tokens[2], 1);
	assert_int_equal(r->tokens[3], 100);
	request_free(r);
}

static void request_from_json__null__as_if_left_out(void **state)
{
	struct request *r = accepted(
		"{\"prompt\":\"x\",\"model\":null,\"tokens\":null,\"top_k\":null,\"session\":null,"
		"\"max_tokens\":null,\"max_new_tokens\":3}");

	(void)state;
	assert_null(r->model);
	assert_int_equal(r->max_new_tokens, 3);
	request_free(r);
}

/* --- fields that are wrong -------------------------------------------------------------------- */

static void request_from_json__not_an_object__refused(void **state)
{
	(void)state;
	refused(B("[1,2]"), -EINVAL, "", "the request is an array, must be an object");
	refused(B("\"hi\""), -EINVAL, "", "is a string, must be an object");
	refused(B("null"), -EINVAL, "", "is null, must be an object");
	refused(B("7"), -EINVAL, "", "is a number, must be an object");
	refused(B("true"), -EINVAL, "", "is true or false, must be an object");
}

static void request_from_json__not_json__refused(void **state)
{
	(void)state;
	refused(B(""), -EINVAL, "", "not whole JSON: the text is empty");
	refused(B("hello"), -EINVAL, "", "not JSON");
	refused(B("{\"prompt\":\"x\""), -EINVAL, "", "not whole JSON");
	refused(B("{\"prompt\":\"x\"} x"), -EINVAL, "", "more text after the end");
	refused(B("{\"prompt\":\"x\",}"), -EINVAL, "", "a comma before the closing bracket");
	refused(B("{\"prompt\":\"x\"}\0"), -EINVAL, "", "NUL");
	refused(B("{\"prompt\":\"a\0b\"}"), -EINVAL, "", "NUL");
	refused(B("{\"prompt\":\"a\\u0000b\"}"), -EINVAL, "", "NUL");
	refused(B("{\"prompt\":\"\\ud800\"}"), -EINVAL, "", "surrogate");
	refused(B("{\"model\":\"m\",\"prompt\":\"a\xff\xc3"
		  "b\"}"),
		-EILSEQ, "", "not UTF-8");
	refused(B("\xff\xfe{\0"), -EILSEQ, "", "UTF-16");
	refused(B("{\"prompt\":\"x\",\"prompt\":\"y\"}"), -EINVAL, "prompt",
		"given twice, at bytes 1 and 14");
	refused(B("{\"prompt\":\"x\",\"a\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["
		  "[[[[[[[[[[["),
		-EINVAL, "", "nesting deeper than 64");
}

static void request_from_json__unknown_field__nearest_named(void **state)
{
	(void)state;
	refused(B("{\"prompt\":\"x\",\"temprature\":1}"), -EINVAL, "temprature",
		"unknown field \"temprature\"; did you mean \"temperature\"?");
	refused(B("{\"prmopt\":\"x\"}"), -EINVAL, "prmopt", "did you mean \"prompt\"?");
	refused(B("{\"Model\":\"x\"}"), -EINVAL, "Model", "did you mean \"model\"?");
	refused(B("{\"max_token\":1}"), -EINVAL, "max_token", "did you mean \"max_tokens\"?");
	refused(B("{\"\":1}"), -EINVAL, "", "unknown field \"\"");
	refused(B("{\"zzzzzzzz\":{\"a\":[1]}}"), -EINVAL, "zzzzzzzz", "unknown field \"zzzzzzzz\"");
	refused(B("{\"a\\nb\":1}"), -EINVAL, "a?b", "unknown field \"a?b\"");
}

static void request_from_json__wrong_type__both_named(void **state)
{
	static const struct {
		const char *member, *field, *part;
	} rows[] = {
		{ "\"model\":1", "model", "\"model\" is 1, must be a string" },
		{ "\"model\":[]", "model", "\"model\" is an array, must be a string" },
		{ "\"temperature\":\"1\"", "temperature",
			"\"temperature\" is a string, must be a number 0..2" },
		{ "\"temperature\":true", "temperature",
			"is true or false, must be a number 0..2" },
		{ "\"top_k\":1.5", "top_k", "\"top_k\" is 1.5, must be an integer 0..2147483647" },
		{ "\"top_k\":{}", "top_k", "is an object, must be an integer" },
		{ "\"top_p\":[1]", "top_p", "is an array, must be a number above 0, at most 1" },
		{ "\"max_new_tokens\":\"5\"", "max_new_tokens",
			"is a string, must be an integer 1..1048576" },
		{ "\"max_tokens\":\"5\"", "max_tokens",
			"\"max_tokens\" is a string, must be an integer 1..1048576" },
		{ "\"seed\":\"5\"", "seed",
			"is a string, must be an integer 0..18446744073709551615" },
		{ "\"seed\":0.5", "seed", "\"seed\" is 0.5, must be" },
		{ "\"stop\":7", "stop", "\"stop\" is 7, must be a string or array" },
		{ "\"stop\":[\"a\",7]", "stop", "\"stop\" is 7, must be a string or array" },
		{ "\"stream\":1", "stream", "\"stream\" is 1, must be true or false" },
		{ "\"echo\":\"true\"", "echo", "\"echo\" is a string, must be true or false" },
		{ "\"output\":5", "output",
			"\"output\" is 5, must be a string, \"text\", \"json\" or \"openai\"; of" },
		{ "\"output\":\"xml\"", "output",
			"\"output\" must be a string, \"text\", \"json\" or \"openai\"; of" },
		{ "\"request_id\":5", "request_id", "is 5, must be a string of 1..128" },
		{ "\"user\":5", "user", "is 5, must be a string" },
	};
	char json[200];

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		int n = snprintf(json, sizeof json, "{\"prompt\":\"x\",%s}", rows[i].member);

		refused(json, (size_t)n, -EINVAL, rows[i].field, rows[i].part);
	}
}

static void request_from_json__out_of_range__range_named(void **state)
{
	static const struct {
		const char *member, *field, *part;
	} rows[] = {
		{ "\"temperature\":-0.1", "temperature",
			"\"temperature\" is -0.1, must be a number 0..2" },
		{ "\"temperature\":2.01", "temperature", "is 2.01, must be" },
		{ "\"temperature\":1e308", "temperature", "is 1e308, must be" },
		{ "\"top_p\":0", "top_p", "\"top_p\" is 0, must be a number above 0, at most 1" },
		{ "\"top_p\":1e-400", "top_p", "is 1e-400, must be" },
		{ "\"top_p\":1.0000001", "top_p", "is 1.0000001, must be" },
		{ "\"min_p\":-1", "min_p", "must be a number 0..1" },
		{ "\"min_p\":1.1", "min_p", "must be a number 0..1" },
		{ "\"repeat_penalty\":0", "repeat_penalty", "must be a number above 0, at most 2" },
		{ "\"repeat_penalty\":2.5", "repeat_penalty",
			"must be a number above 0, at most 2" },
		{ "\"top_k\":-1", "top_k", "\"top_k\" is -1, must be an integer 0..2147483647" },
		{ "\"top_k\":2147483648", "top_k", "is 2147483648, must be" },
		{ "\"max_new_tokens\":0", "max_new_tokens", "is 0, must be an integer 1..1048576" },
		{ "\"max_new_tokens\":1048577", "max_new_tokens", "is 1048577, must be" },
		{ "\"max_new_tokens\":-5", "max_new_tokens", "is -5, must be" },
		{ "\"deadline_ms\":0", "deadline_ms", "must be an integer 1..604800000" },
		{ "\"deadline_ms\":604800001", "deadline_ms", "is 604800001" },
		{ "\"deadline_ms\":99999999999999999999", "deadline_ms",
			"is 99999999999999999999, must be" },
		{ "\"priority\":101", "priority", "must be an integer -100..100" },
		{ "\"priority\":-101", "priority", "is -101" },
		{ "\"seed\":-1", "seed",
			"\"seed\" is -1, must be an integer 0..18446744073709551615" },
		{ "\"seed\":18446744073709551616", "seed", "is 18446744073709551616, must be" },
		{ "\"seed\":1e300", "seed", "is 1e300, must be" },
	};
	char json[200];

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		int n = snprintf(json, sizeof json, "{\"prompt\":\"x\",%s}", rows[i].member);

		refused(json, (size_t)n, -ERANGE, rows[i].field, rows[i].part);
	}
}

static void request_from_json__numbers_that_are_none__refused(void **state)
{
	static const char *const numbers[] = { "NaN", "Infinity", "-Infinity", "nan", "1e999",
		"1e400", "01", ".5", "5.", "0x10", "+1", "1e", "--1", "1,5" };
	char json[100];

	(void)state;
	for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
		int n = snprintf(json, sizeof json, "{\"prompt\":\"x\",\"temperature\":%s}",
			numbers[i]);

		refused(json, (size_t)n, -EINVAL, "", "");
	}
}

static void request_from_json__texts_not_taken__refused(void **state)
{
	char json[1000], id[200];

	(void)state;
	refused(B("{\"prompt\":\"x\",\"model\":\"\"}"), -EINVAL, "model",
		"must be a string, an alias");
	refused(B("{\"prompt\":\"x\",\"model\":\"../m\"}"), -EINVAL, "model",
		"must be a string, an alias");
	refused(B("{\"prompt\":\"x\",\"model\":\"a b\"}"), -EINVAL, "model",
		"must be a string, an alias");
	refused(B("{\"prompt\":\"x\",\"request_id\":\"\"}"), -EINVAL, "request_id", "1..128");
	refused(B("{\"prompt\":\"x\",\"request_id\":\"a b\"}"), -EINVAL, "request_id", "1..128");
	refused(B("{\"prompt\":\"x\",\"request_id\":\"\\u00e9\"}"), -EINVAL, "request_id",
		"1..128");
	refused(B("{\"prompt\":\"x\",\"id\":\"a/b\"}"), -EINVAL, "id", "1..128");
	memset(id, 'i', sizeof id);
	snprintf(json, sizeof json, "{\"prompt\":\"x\",\"request_id\":\"%.128s\"}", id);
	request_free(accepted(json));
	snprintf(json, sizeof json, "{\"prompt\":\"x\",\"request_id\":\"%.129s\"}", id);
	refused(json, strlen(json), -EINVAL, "request_id", "1..128");
	memset(id, 's', sizeof id);
	snprintf(json, sizeof json, "{\"prompt\":\"x\",\"stop\":\"%.128s%.128s\"}", id, id);
	request_free(accepted(json));
	snprintf(json, sizeof json, "{\"prompt\":\"x\",\"stop\":\"%.128s%.129s\"}", id, id);
	refused(json, strlen(json), -EINVAL, "stop", "1..256 bytes");
	refused(B("{\"prompt\":\"x\",\"stop\":\"\"}"), -EINVAL, "stop", "1..256 bytes");
	refused(B("{\"prompt\":\"x\",\"stop\":[\"a\",\"\"]}"), -EINVAL, "stop", "1..256 bytes");
	request_free(accepted("{\"prompt\":\"x\",\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\","
			      "\"7\",\"8\",\"9\",\"10\","
			      "\"11\",\"12\",\"13\",\"14\",\"15\",\"16\"]}"));
	refused(B("{\"prompt\":\"x\",\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\","
		  "\"9\",\"10\",\"11\","
		  "\"12\",\"13\",\"14\",\"15\",\"16\",\"17\"]}"),
		-EINVAL, "stop", "at most 16 strings");
}

static void request_from_json__what_to_run__exactly_one(void **state)
{
	(void)state;
	refused(B("{}"), -EINVAL, "prompt",
		"none of \"prompt\", \"tokens\", \"inputs\", \"callable\" and \"graph\" is given");
	refused(B("{\"model\":\"m\",\"prompt\":null}"), -EINVAL, "prompt", "none of \"prompt\"");
	refused(B("{\"model\":\"m\",\"prompt\":{\"a\":1}}"), -EINVAL, "prompt",
		"\"prompt\" is an object, must be a string");
	refused(B("{\"prompt\":\"\"}"), -EINVAL, "prompt", "the prompt is empty");
	refused(B("{\"prompt\":[\"\"]}"), -EINVAL, "prompt", "the prompt is empty");
	refused(B("{\"prompt\":[]}"), -EINVAL, "prompt", "is an array, must be a string");
	refused(B("{\"prompt\":[\"a\",\"b\"]}"), -EINVAL, "prompt", "several prompts");
	refused(B("{\"prompt\":[[1],[2]]}"), -EINVAL, "prompt", "several prompts");
	refused(B("{\"tokens\":[]}"), -EINVAL, "tokens", "\"tokens\" is empty");
	refused(B("{\"tokens\":\"x\"}"), -EINVAL, "tokens",
		"is a string, must be an array of integers");
	refused(B("{\"tokens\":[1,-1]}"), -ERANGE, "tokens[1]",
		"is -1, must be an integer 0..2147483647");
	refused(B("{\"tokens\":[1,2,2147483648]}"), -ERANGE, "tokens[2]", "is 2147483648, must be");
	refused(B("{\"tokens\":[1,2.5]}"), -EINVAL, "tokens[1]", "is 2.5, must be");
	refused(B("{\"tokens\":[\"1\"]}"), -EINVAL, "tokens[0]", "is a string, must be");
	refused(B("{\"prompt\":[1,null]}"), -EINVAL, "prompt[1]", "is null, must be");
	refused(B("{\"prompt\":\"x\",\"tokens\":[1]}"), -EINVAL, "tokens",
		"\"prompt\" and \"tokens\" are both given");
	refused(B("{\"prompt\":[2],\"tokens\":[1]}"), -EINVAL, "tokens",
		"\"prompt\" and \"tokens\" are both given");
	refused(B("{\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"INT8\",\"data\":[1]}],"
		  "\"tokens\":[1]}"),
		-EINVAL, "inputs", "\"tokens\" and \"inputs\" are both given");
}

static void request_from_json__two_names_of_one_field__refused(void **state)
{
	(void)state;
	refused(B("{\"prompt\":\"x\",\"max_tokens\":1,\"max_new_tokens\":1}"), -EINVAL,
		"max_new_tokens", "\"max_new_tokens\" is given twice");
	refused(B("{\"prompt\":\"x\",\"model\":\"m\",\"model_alias\":\"m\"}"), -EINVAL,
		"model_alias", "\"model\" is given twice");
}

static void request_from_json__known_but_not_offered__refused(void **state)
{
	(void)state;
	refused(B("{\"session\":\"s\",\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":"
		  "\"FP32\",\"data\":[1]}]}"),
		-EOPNOTSUPP, "session", "tensors have no sessions");
	refused(B("{\"prompt\":\"x\",\"n\":2}"), -EINVAL, "n", "\"n\" can only be 1");
	refused(B("{\"prompt\":\"x\",\"best_of\":\"1\"}"), -EINVAL, "best_of",
		"\"best_of\" can only be 1");
	refused(B("{\"prompt\":\"x\",\"presence_penalty\":0.5}"), -EINVAL, "presence_penalty",
		"can only be 0");
	refused(B("{\"prompt\":\"x\",\"frequency_penalty\":-1}"), -EINVAL, "frequency_penalty",
		"can only be 0");
	refused(B("{\"prompt\":\"x\",\"logprobs\":1}"), -EINVAL, "logprobs", "can only be null");
	refused(B("{\"prompt\":\"x\",\"suffix\":\"\"}"), -EINVAL, "suffix", "can only be null");
}

static void request_from_json__session__a_name_or_refused(void **state)
{
	static const char *const bad[] = { "\"\"", "\".hidden\"", "\"a/b\"", "\"a b\"",
		"\"\u00e9\"",
		"\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"" };
	struct fault f = FAULT_NONE;
	struct request *r = NULL;
	char text[200];

	(void)state;
	assert_int_equal(request_from_json(B("{\"prompt\":\"x\",\"session\":\"Chat_1.b-2\"}"), &r,
				 &f),
		0);
	assert_string_equal(r->session, "Chat_1.b-2");
	request_free(r);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		snprintf(text, sizeof text, "{\"prompt\":\"x\",\"session\":%s}", bad[i]);
		refused(text, strlen(text), -EINVAL, "session", "\"session\" must be a string of");
	}
	refused(B("{\"prompt\":\"x\",\"session\":1}"), -EINVAL, "session", "\"session\" is 1");
}

/* --- the documents' table --------------------------------------------------------------------- */

static void request_fields__documented__ours_only_and_complete(void **state)
{
	static const char *const names[] = { "model", "prompt", "tokens", "inputs", "outputs",
		"callable", "scalars", "graph", "repeat", "max_new_tokens", "temperature", "top_k",
		"top_p", "min_p", "repeat_penalty", "seed", "stop", "deadline_ms", "priority",
		"stream", "echo", "output", "request_id", "session" };
	size_t n = 0;
	const struct request_field *fields = request_fields(&n);

	(void)state;
	assert_int_equal(n, sizeof names / sizeof names[0]);
	for (size_t i = 0; i < n; i++) {
		assert_string_equal(fields[i].name, names[i]);
		assert_true(fields[i].type[0] && fields[i].doc[0]);
		assert_null(strchr(fields[i].doc, '\n'));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(request_from_text__one_final_line_end__dropped),
		cmocka_unit_test(request_from_text__defaults__set),
		cmocka_unit_test(request_from_text__not_a_prompt__refused),
		cmocka_unit_test(request_from_json__every_field__set),
		cmocka_unit_test(request_from_json__mark_and_crlf__accepted),
		cmocka_unit_test(request_from_json__seed_forms__exact),
		cmocka_unit_test(request_from_json__ends_of_ranges__accepted),
		cmocka_unit_test(request_from_json__completion_body__taken),
		cmocka_unit_test(request_from_json__other_names__taken),
		cmocka_unit_test(request_from_json__tokens__kept_in_order),
		cmocka_unit_test(request_from_json__null__as_if_left_out),
		cmocka_unit_test(request_from_json__not_an_object__refused),
		cmocka_unit_test(request_from_json__not_json__refused),
		cmocka_unit_test(request_from_json__unknown_field__nearest_named),
		cmocka_unit_test(request_from_json__wrong_type__both_named),
		cmocka_unit_test(request_from_json__out_of_range__range_named),
		cmocka_unit_test(request_from_json__numbers_that_are_none__refused),
		cmocka_unit_test(request_from_json__texts_not_taken__refused),
		cmocka_unit_test(request_from_json__what_to_run__exactly_one),
		cmocka_unit_test(request_from_json__two_names_of_one_field__refused),
		cmocka_unit_test(request_from_json__known_but_not_offered__refused),
		cmocka_unit_test(request_from_json__session__a_name_or_refused),
		cmocka_unit_test(request_fields__documented__ours_only_and_complete),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
