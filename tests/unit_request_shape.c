/* In whose shape a request is, what of OpenAI's and KServe's bodies is taken, and which forms of
 * output go with what. */
#include "core/job/request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/request_checks.h"

#define X "\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"INT8\",\"data\":[1]}]"

static void check_shape(const char *json, enum answer_shape shape, enum request_output output)
{
	struct request *r = accepted(json);

	if (r->shape != shape || r->output != output)
		fail_msg("%s: shape %d, output %d", json, (int)r->shape, (int)r->output);
	request_free(r);
}

static void request_from_json__shape__by_output_or_body(void **state)
{
	(void)state;
	check_shape("{\"prompt\":\"x\"}", ANSWER_OWN, REQUEST_TEXT);
	check_shape("{\"prompt\":[\"x\"],\"temperature\":0,\"id\":\"a\"}", ANSWER_OWN,
		REQUEST_TEXT);
	check_shape("{\"prompt\":\"x\",\"output\":\"text\"}", ANSWER_OWN, REQUEST_TEXT);
	check_shape("{\"prompt\":\"x\",\"output\":\"json\"}", ANSWER_OWN, REQUEST_JSON);
	check_shape("{\"prompt\":\"x\",\"output\":\"openai\"}", ANSWER_OPENAI, REQUEST_JSON);
	check_shape("{\"prompt\":\"x\",\"max_tokens\":5,\"output\":\"text\"}", ANSWER_OWN,
		REQUEST_TEXT);
	check_shape("{\"prompt\":\"x\",\"output\":\"json\",\"n\":1}", ANSWER_OWN, REQUEST_JSON);
	check_shape("{" X "}", ANSWER_KSERVE, REQUEST_JSON);
	check_shape("{" X ",\"output\":\"json\"}", ANSWER_OWN, REQUEST_JSON);
	check_shape("{" X ",\"output\":\"npy\"}", ANSWER_OWN, REQUEST_NPY);
	check_shape("{" X ",\"output\":\"raw\"}", ANSWER_OWN, REQUEST_RAW);
	check_shape("{\"output\":null," X "}", ANSWER_KSERVE, REQUEST_JSON);
}

static void request_from_json__any_field_of_openai__its_shape(void **state)
{
	static const char *const members[] = { "\"max_tokens\":5", "\"n\":1", "\"best_of\":1",
		"\"user\":\"u\"", "\"logprobs\":null", "\"suffix\":null", "\"logit_bias\":{}",
		"\"logit_bias\":null", "\"presence_penalty\":0", "\"frequency_penalty\":0",
		"\"stream_options\":{\"include_usage\":true,\"include_obfuscation\":false}",
		"\"stream_options\":{}" };
	char json[200];

	(void)state;
	for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
		snprintf(json, sizeof json, "{\"prompt\":\"x\",%s}", members[i]);
		check_shape(json, ANSWER_OPENAI, REQUEST_JSON);
	}
}

static void request_from_json__prompt_in_arrays__taken(void **state)
{
	struct request *r = accepted("{\"prompt\":[[7,8]],\"max_tokens\":1}");

	(void)state;
	assert_null(r->prompt);
	assert_int_equal(r->n_tokens, 2);
	assert_int_equal(r->tokens[0], 7);
	assert_int_equal(r->tokens[1], 8);
	request_free(r);
	refused(B("{\"prompt\":[\"a\",\"b\"]}"), -EINVAL, "prompt", "holds several prompts");
	refused(B("{\"prompt\":[[1],[2]]}"), -EINVAL, "prompt", "holds several prompts");
	refused(B("{\"prompt\":[[]]}"), -EINVAL, "prompt", "\"prompt\" is empty");
	refused(B("{\"prompt\":[]}"), -EINVAL, "prompt", "\"prompt\" is an array");
	refused(B("{\"prompt\":[1,\"a\"]}"), -EINVAL, "prompt[1]", "is a string, must be");
}

static void request_from_json__of_openai_not_honoured__refused(void **state)
{
	(void)state;
	refused(B("{\"prompt\":\"x\",\"logit_bias\":{\"50256\":-100}}"), -EINVAL, "logit_bias",
		"\"logit_bias\" can only be {} here");
	refused(B("{\"prompt\":\"x\",\"logit_bias\":[]}"), -EINVAL, "logit_bias", "only be {}");
	refused(B("{\"prompt\":\"x\",\"stream_options\":1}"), -EINVAL, "stream_options",
		"is 1, must be an object");
	refused(B("{\"prompt\":\"x\",\"stream_options\":{\"include_usage\":1}}"), -EINVAL,
		"stream_options", "is 1, must be");
	refused(B("{\"prompt\":\"x\",\"stream_options\":{\"include_usages\":true}}"), -EINVAL,
		"stream_options", "did you mean \"include_usage\"?");
	refused(B("{\"messages\":[]}"), -EINVAL, "messages", "unknown field \"messages\"");
}

static void request_set_shape__of_a_plain_body__document(void **state)
{
	struct request *r = accepted("{\"prompt\":\"x\"}");

	(void)state;
	request_set_shape(r, ANSWER_OPENAI);
	assert_int_equal(r->shape, ANSWER_OPENAI);
	assert_int_equal(r->output, REQUEST_JSON);
	request_set_shape(r, ANSWER_OWN);
	assert_int_equal(r->shape, ANSWER_OWN);
	request_free(r);
}

/* --- KServe ----------------------------------------------------------------------------------- */

static void request_from_json__outputs__names_in_order(void **state)
{
	struct request *r = accepted("{" X ",\"outputs\":[{\"name\":\"b\"},{\"name\":\"a\","
				     "\"parameters\":{\"binary_data\":false,"
				     "\"classification\":0}}]}");

	(void)state;
	assert_string_equal(r->outputs[0], "b");
	assert_string_equal(r->outputs[1], "a");
	assert_null(r->outputs[2]);
	request_free(r);
	r = accepted("{\"outputs\":[]," X "}");
	assert_null(r->outputs);
	request_free(r);
}

static void request_from_json__outputs_wrong__refused(void **state)
{
	(void)state;
	refused(B("{" X ",\"outputs\":{}}"), -EINVAL, "outputs", "is an object, must be an array");
	refused(B("{" X ",\"outputs\":[\"y\"]}"), -EINVAL, "outputs[0]", "must be an object");
	refused(B("{" X ",\"outputs\":[{}]}"), -EINVAL, "outputs[0].name", "is missing");
	refused(B("{" X ",\"outputs\":[{\"name\":1}]}"), -EINVAL, "outputs[0].name",
		"is 1, must be a string");
	refused(B("{" X ",\"outputs\":[{\"name\":\"y\"},{\"name\":\"y\"}]}"), -EINVAL,
		"outputs[1].name", "repeats the name \"y\" of \"outputs[0]\"");
	refused(B("{" X ",\"outputs\":[{\"nam\":\"y\"}]}"), -EINVAL, "outputs[0].nam",
		"did you mean \"name\"?");
	refused(B("{" X ",\"outputs\":[{\"name\":\"y\",\"parameters\":{\"binary_data\":true}}]}"),
		-EINVAL, "outputs[0].parameters.binary_data", "can only be false here");
}

static void request_from_json__parameters_that_ask_nothing__passed_over(void **state)
{
	struct request *r = accepted(
		"{\"id\":\"7\",\"parameters\":{\"binary_data_output\":false,\"sequence_id\":0,"
		"\"sequence_start\":false,\"sequence_end\":false,\"priority\":0,\"timeout\":0,"
		"\"content_type\":\"np\"},\"inputs\":[{\"name\":\"x\",\"shape\":[1],"
		"\"datatype\":\"INT8\",\"data\":[1],\"parameters\":{\"content_type\":\"np\"}}]}");

	(void)state;
	assert_int_equal(r->shape, ANSWER_KSERVE);
	request_free(r);
	check_shape("{" X ",\"parameters\":null}", ANSWER_KSERVE, REQUEST_JSON);
	check_shape("{" X ",\"parameters\":{\"timeout\":null}}", ANSWER_KSERVE, REQUEST_JSON);
}

static void request_from_json__parameters_that_ask__refused_with_what_to_do(void **state)
{
	static const struct {
		const char *parameters, *field, *part, *action;
	} rows[] = {
		{ "{\"binary_data_output\":true}", "parameters.binary_data_output",
			"can only be false", "\"raw\" or \"npy\"" },
		{ "{\"sequence_id\":42}", "parameters.sequence_id", "can only be 0", "on its own" },
		{ "{\"priority\":1}", "parameters.priority", "can only be 0", "\"priority\"" },
		{ "{\"timeout\":1000}", "parameters.timeout", "can only be 0", "\"deadline_ms\"" },
		{ "{\"content_type\":\"str\"}", "parameters.content_type", "can only be \"np\"",
			"numbers" },
		{ "{\"timeuot\":0}", "parameters.timeuot", "did you mean \"timeout\"?", "leave" },
		{ "{\"binary_data\":false}", "parameters.binary_data", "unknown parameter",
			"leave" },
		{ "[]", "parameters", "is an array, must be an object", "correct" },
	};
	char json[300];

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct fault f = FAULT_NONE;
		struct request *r = NULL;
		int n = snprintf(json, sizeof json, "{" X ",\"parameters\":%s}",
			rows[i].parameters);

		refused(json, (size_t)n, -EINVAL, rows[i].field, rows[i].part);
		request_from_json(json, (size_t)n, &r, &f);
		if (!strstr(f.action, rows[i].action))
			fail_msg("%s: %s", rows[i].parameters, f.action);
	}
	refused(B("{\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"INT8\",\"data\":[1],"
		  "\"parameters\":{\"binary_data_size\":1}}]}"),
		-EINVAL, "inputs[0].parameters.binary_data_size", "can only be null here");
}

/* --- what does not go together ---------------------------------------------------------------- */

static void request_from_json__output_and_subject__must_fit(void **state)
{
	(void)state;
	refused(B("{\"prompt\":\"x\",\"output\":\"npy\"}"), -EINVAL, "output",
		"text has no form \"npy\" or \"raw\"");
	refused(B("{\"output\":\"raw\",\"tokens\":[1]}"), -EINVAL, "output", "text has no form");
	refused(B("{" X ",\"output\":\"text\"}"), -EINVAL, "output", "tensors have no form");
	refused(B("{" X ",\"output\":\"openai\"}"), -EINVAL, "output", "tensors have no form");
	refused(B("{\"prompt\":\"x\",\"outputs\":[{\"name\":\"y\"}]}"), -EINVAL, "outputs",
		"\"outputs\" chooses tensors");
	refused(B("{\"prompt\":\"x\",\"parameters\":{}}"), -EINVAL, "parameters",
		"\"parameters\" belong to \"inputs\"");
	refused(B("{" X ",\"output\":\"npy\",\"outputs\":[{\"name\":\"y\"},{\"name\":\"z\"}]}"),
		-EINVAL, "outputs", "hold one tensor");
	check_shape("{" X ",\"output\":\"npy\",\"outputs\":[{\"name\":\"y\"}]}", ANSWER_OWN,
		REQUEST_NPY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(request_from_json__shape__by_output_or_body),
		cmocka_unit_test(request_from_json__any_field_of_openai__its_shape),
		cmocka_unit_test(request_from_json__prompt_in_arrays__taken),
		cmocka_unit_test(request_from_json__of_openai_not_honoured__refused),
		cmocka_unit_test(request_set_shape__of_a_plain_body__document),
		cmocka_unit_test(request_from_json__outputs__names_in_order),
		cmocka_unit_test(request_from_json__outputs_wrong__refused),
		cmocka_unit_test(request_from_json__parameters_that_ask_nothing__passed_over),
		cmocka_unit_test(request_from_json__parameters_that_ask__refused_with_what_to_do),
		cmocka_unit_test(request_from_json__output_and_subject__must_fit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
