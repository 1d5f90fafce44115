/* What a job's .out holds in each shape and form. What is computed is known from fake_device.h: text
 * goes on with the next letter of the alphabet, and the program "double" doubles its first input. */
#include "tests/engine_rig.h"

#include <ctype.h>

#include "core/engine/textout.h"

static struct job *ended(const char *json)
{
	struct job *j = submit(json);

	assert_string_equal(job_state_name(await_end(j)), "done");
	return j;
}

static size_t read_out(const char *json, char *ret, size_t size)
{
	struct job *j = ended(json);
	ssize_t n = job_read(j, JOB_OUT, 0, ret, size - 1);

	assert_true(n >= 0);
	ret[n] = '\0';
	job_put(j);
	return (size_t)n;
}

static void check_bytes(const char *json, const void *want, size_t n)
{
	char got[4096];

	assert_int_equal(read_out(json, got, sizeof got), n);
	assert_memory_equal(got, want, n);
}

/* --- OpenAI ----------------------------------------------------------------------------------- */

static const struct json_value *member(const struct json_value *v, const char *key)
{
	const struct json_value *m = json_member(v, key);

	if (!m)
		fail_msg("no \"%s\"", key);
	return m;
}

static int64_t number(const struct json_value *v, const char *key)
{
	int64_t n = -1;

	assert_int_equal(json_int64(member(v, key), &n), 0);
	return n;
}

/* One choice of this text; returns the document, of which the rest is to be checked. */
static struct json_value *completion(const char *json, const char *text, const char *finish)
{
	static const char *const keys[] = { "id", "object", "created", "model", "choices",
		"usage" };
	char got[4096];
	struct json_value *doc = NULL;
	const struct json_value *v, *choice;
	size_t n = read_out(json, got, sizeof got), i = 0;

	assert_int_equal(json_parse(got, n, &doc, NULL), 0);
	for (v = json_first(doc); v && i < ARRAY_SIZE(keys); v = json_next(v))
		assert_string_equal(json_key(v), keys[i++]);
	assert_int_equal(i, ARRAY_SIZE(keys));
	assert_string_equal(json_string(member(doc, "object")), "text_completion");
	assert_int_equal(json_count(member(doc, "choices")), 1);
	choice = json_first(member(doc, "choices"));
	assert_string_equal(json_string(member(choice, "text")), text);
	assert_int_equal(number(choice, "index"), 0);
	assert_int_equal(json_type(member(choice, "logprobs")), JSON_NULL);
	assert_string_equal(json_string(member(choice, "finish_reason")), finish);
	return doc;
}

static void check_usage(const struct json_value *doc, int64_t prompt, int64_t output)
{
	const struct json_value *usage = member(doc, "usage");

	assert_int_equal(number(usage, "prompt_tokens"), prompt);
	assert_int_equal(number(usage, "completion_tokens"), output);
	assert_int_equal(number(usage, "total_tokens"), prompt + output);
}

static void run__openai_body__text_completion(void **state)
{
	int64_t now = clock_wall() / NS_PER_SEC;
	struct json_value *doc;

	(void)state;
	start(&fake_ops);
	doc = completion("{\"model\":\"echo\",\"prompt\":\"abc\",\"max_tokens\":3,\"user\":\"u\","
			 "\"id\":\"r-7\"}",
		"def", "length");
	assert_string_equal(json_string(member(doc, "id")), "cmpl-r-7");
	assert_string_equal(json_string(member(doc, "model")), "echo");
	assert_in_range(number(doc, "created"), now, now + 60);
	check_usage(doc, 3, 3);
	json_free(doc);
}

/* Of a model whose tokens are bytes a NUL is text as well. */
static void run__nul_in_the_text__does_not_end_the_documents_text(void **state)
{
	(void)state;
	start(&fake_ops);
	json_free(completion("{\"prompt\":[97,0,98],\"max_tokens\":1,\"echo\":true}",
		"a" TEXTOUT_REPLACEMENT "bd", "length"));
	check_bytes("{\"tokens\":[97,0,98],\"max_new_tokens\":1,\"echo\":true,\"output\":\"text\"}",
		"a\0bd\n", 5);
}

static void run__openai_echo_and_stop__counted_and_told(void **state)
{
	struct json_value *doc;

	(void)state;
	start(&fake_ops);
	doc = completion("{\"prompt\":[97,98,99],\"n\":1,\"echo\":true,\"stop\":[\"fg\"]}", "abcde",
		"stop");
	check_usage(doc, 3, 4);
	json_free(doc);
	fake.stop_len = 5;
	doc = completion("{\"prompt\":[\"abc\"],\"output\":\"openai\"}", "de", "stop");
	check_usage(doc, 3, 2);
	json_free(doc);
}

static void run__openai_without_id__each_its_own(void **state)
{
	char ids[2][64];

	(void)state;
	start(&fake_ops);
	for (int i = 0; i < 2; i++) {
		struct json_value *doc =
			completion("{\"prompt\":\"abc\",\"max_tokens\":1}", "d", "length");
		const char *id = json_string(member(doc, "id"));

		assert_int_equal(strlen(id), 21);
		assert_memory_equal(id, "cmpl-", 5);
		for (const char *c = id + 5; *c; c++)
			assert_true(isxdigit((unsigned char)*c));
		strcpy(ids[i], id);
		json_free(doc);
	}
	assert_string_not_equal(ids[0], ids[1]);
}

static void run__openai_fields_with_output_text__text(void **state)
{
	(void)state;
	start(&fake_ops);
	check_runs("{\"prompt\":\"abc\",\"max_tokens\":2,\"output\":\"text\"}", "de\n");
}

/* --- tensors ---------------------------------------------------------------------------------- */

static const char two_outputs[] =
	"{\"schema\":\"npufs-manifest-1\",\"kind\":\"tensor\",\"description\":\"for tests\","
	"\"calbin_version\":\"1.0\",\"compatible\":{\"runtime\":[\"0.7.6\"]},\"batch\":1,"
	"\"example\":{\"inputs\":[{\"name\":\"x\",\"shape\":[2],\"datatype\":\"FP32\",\"data\":[1,"
	"2]}]},\"programs\":[{\"name\":\"double\","
	"\"inputs\":[{\"name\":\"x\",\"dtype\":\"float32\",\"shape\":[2]}],"
	"\"outputs\":[{\"name\":\"y\",\"dtype\":\"float32\",\"shape\":[2]},"
	"{\"name\":\"count\",\"dtype\":\"int32\",\"shape\":[1]}]}],"
	"\"golden\":[{\"program\":\"double\",\"input\":\"golden/in.bin\",\"output\":\"golden/"
	"out.bin\",\"tolerance\":0.01}]}";

static void start_doubling(const char *template, uint32_t n_outputs)
{
	static const char in[] = "\0\0\x80\x3f\0\0\0\x40", out[] = "\0\0\0\x40\0\0\x80\x40\0\0\0\0";
	static const struct tensor_spec x = { "x", DTYPE_FLOAT32, 1, { 2 } },
					y[] = { { "y", DTYPE_FLOAT32, 1, { 2 } },
						{ "count", DTYPE_INT32, 1, { 1 } } };
	static struct model_info doubling;
	const struct fake_file files[] = { { "golden/in.bin", in, 8 },
		{ "golden/out.bin", out, n_outputs == 1 ? 8 : 12 } };

	doubling = (struct model_info){ "double", "graph", &x, y, 1, n_outputs, { NULL }, 0 };
	fake.models = &doubling;
	fake.n_models = 1;
	fake_store_new(r.store);
	fake_store_add(r.store, "double", template, files, 2);
	start(&fake_store_ops);
}

#define ASK(more) \
	"{\"inputs\":[{\"name\":\"x\",\"shape\":[2],\"datatype\":\"FP32\",\"data\":[1.5,-3]}" \
	"]" more "}"

static void check_document(const char *json, const char *want)
{
	AUTO_BUF struct buf compact = BUF_INIT;
	struct json_value *doc = NULL;
	char got[4096];
	size_t n = read_out(json, got, sizeof got);

	assert_int_equal(json_parse(got, n, &doc, NULL), 0);
	assert_int_equal(json_render(doc, false, &compact), 0);
	assert_string_equal(buf_text(&compact), want);
	json_free(doc);
}

#define Y "{\"name\":\"y\",\"datatype\":\"FP32\",\"shape\":[2],\"data\":[3,-6]}"
#define N "{\"name\":\"count\",\"datatype\":\"INT32\",\"shape\":[1],\"data\":[0]}"

static void run__tensor_document__the_outputs_asked_for(void **state)
{
	(void)state;
	start_doubling(two_outputs, 2);
	check_document(ASK(""), "{\"model_name\":\"double\",\"outputs\":[" Y "," N "]}");
	check_document(ASK(",\"id\":\"42\",\"outputs\":[{\"name\":\"count\"},{\"name\":\"y\"}]"),
		"{\"model_name\":\"double\",\"id\":\"42\",\"outputs\":[" N "," Y "]}");
	check_document(ASK(",\"output\":\"json\",\"outputs\":[{\"name\":\"count\"}]"),
		"{\"model_name\":\"double\",\"outputs\":[" N "]}");
}

static void run__tensor_as_bytes__exact(void **state)
{
	static const char npy[] =
		"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }"
		"                                                            \n"
		"\0\0\x40\x40\0\0\xc0\xc0";

	(void)state;
	start_doubling(fake_tensor_template, 1);
	check_bytes(ASK(",\"output\":\"raw\""), "\0\0\x40\x40\0\0\xc0\xc0", 8);
	check_bytes(ASK(",\"output\":\"npy\""), npy, sizeof npy - 1);
}

static void run__one_of_two_tensors_as_bytes__named(void **state)
{
	(void)state;
	start_doubling(two_outputs, 2);
	check_bytes(ASK(",\"output\":\"raw\",\"outputs\":[{\"name\":\"count\"}]"), "\0\0\0\0", 4);
}

static void check_reason(const char *json, const char *field, const char *reason)
{
	struct job *j = submit(json);
	struct job_view v;

	assert_string_equal(job_state_name(await_end(j)), "failed");
	job_look(j, &v);
	assert_int_equal(v.fault.err, -EINVAL);
	assert_string_equal(v.fault.field, field);
	assert_string_equal(v.fault.reason, reason);
	job_put(j);
}

static void run__tensors_that_do_not_fit__both_sides_told(void **state)
{
	(void)state;
	start_doubling(two_outputs, 2);
	check_reason(ASK(",\"output\":\"npy\""), "output",
		"\"npy\" and \"raw\" hold one tensor; the model has 2 outputs");
	check_reason(ASK(",\"outputs\":[{\"name\":\"cuont\"}]"), "outputs",
		"the model has no output \"cuont\"; did you mean \"count\"?");
	check_reason(ASK(",\"outputs\":[{\"name\":\"probabilities\"}]"), "outputs",
		"the model has no output \"probabilities\"");
	/* As many bytes, of another type; and one more than there is. */
	check_reason("{\"inputs\":[{\"name\":\"x\",\"shape\":[2],\"datatype\":\"INT32\","
		     "\"data\":[1,2]}]}",
		"inputs", "the input \"x\" is int32[2]; the model takes float32[2]");
	check_reason("{\"inputs\":[{\"name\":\"x\",\"shape\":[2],\"datatype\":\"FP32\","
		     "\"data\":[1,2]},{\"name\":\"z\",\"shape\":[1],\"datatype\":\"FP32\","
		     "\"data\":[1]}]}",
		"inputs", "2 inputs are given; the model takes 1");
	check_reason("{\"inputs\":[{\"name\":\"x\",\"shape\":[1,2],\"datatype\":\"INT8\","
		     "\"data\":[1,2]}]}",
		"inputs", "the input \"x\" is int8[1,2]; the model takes float32[2]");
	check_reason("{\"inputs\":[{\"name\":\"x\",\"file\":\"x.npy\"}]}", "inputs[0].file",
		"the file \"x.npy\" was not attached");
	assert_int_equal(fake_count("infer:double"), 1); /* the golden run */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(run__openai_body__text_completion),
		TEST(run__openai_echo_and_stop__counted_and_told),
		TEST(run__nul_in_the_text__does_not_end_the_documents_text),
		TEST(run__openai_without_id__each_its_own),
		TEST(run__openai_fields_with_output_text__text),
		TEST(run__tensor_document__the_outputs_asked_for),
		TEST(run__tensor_as_bytes__exact),
		TEST(run__one_of_two_tensors_as_bytes__named),
		TEST(run__tensors_that_do_not_fit__both_sides_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
