/* A batch over the recording device: order, bad lines, resuming, failures of the device, and what
 * is held between the steps. The device gives 'a' + L % 26 after L tokens, a byte being a token: the
 * text of "a" goes on with "b", that of "ab" with "c". */
#include "core/job/batch.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/base/mem.h"
#include "tests/fake_device.h"

static const struct device_params params = { .threads = 1 };

static struct rig {
	struct device *device;
	struct manifest *manifest;
	struct tokenizer *tokenizer;
	struct generation *generation;
	struct model_view model;
	struct run_limits limits;
	struct run *run;
	struct step_fault fault;
	struct buf answers;
	size_t most_read; /* in one step */
	unsigned yields, steps;
	bool swap; /* another generation after each yield */
} r;

static const char tensor_manifest[] =
	"{\"schema\":\"npufs-manifest-1\",\"kind\":\"tensor\",\"description\":\"for tests\","
	"\"calbin_version\":\"1.0\",\"compatible\":{\"runtime\":[\"0.7.6\"]},\"batch\":1,"
	"\"example\":{\"inputs\":[{\"name\":\"x\",\"shape\":[2],\"datatype\":\"FP32\",\"data\":[1,"
	"2]}]},\"programs\":[{\"name\":\"double\","
	"\"inputs\":[{\"name\":\"x\",\"dtype\":\"float32\",\"shape\":[2]}],"
	"\"outputs\":[{\"name\":\"y\",\"dtype\":\"float32\",\"shape\":[2]}]}],\"files\":[]}";

static void open_generation(uint64_t number)
{
	struct fault f = FAULT_NONE;

	if (generation_open(r.device, r.manifest, NULL, number, &r.generation, &f))
		fail_msg("%s", f.reason);
}

static void open_model(const char *manifest)
{
	struct fault f = FAULT_NONE;

	if (manifest_parse(manifest, strlen(manifest), true, &r.manifest, &f))
		fail_msg("%s: %s", f.field, f.reason);
	if (r.manifest->kind == MANIFEST_LLM)
		assert_int_equal(tokenizer_new(&r.manifest->tokenizer, NULL, 0, &r.tokenizer, &f),
			0);
	assert_int_equal(device_open(&fake_ops, &params, &r.device), 0);
	open_generation(1);
	r.model = (struct model_view){ .alias = "m",
		.manifest = r.manifest,
		.tokenizer = r.tokenizer };
	r.limits.output_bytes = 1 << 20;
}

static int up(void **state)
{
	(void)state;
	memset(&r, 0, sizeof r);
	fake_reset();
	return 0;
}

static int down(void **state)
{
	(void)state;
	if (r.run)
		r.run->ops->free(r.run);
	generation_close(r.generation);
	device_close(r.device);
	tokenizer_free(r.tokenizer);
	manifest_free(r.manifest);
	buf_done(&r.answers);
	return 0;
}

/* --- what the batch reads --------------------------------------------------------------------- */

static size_t bytes_read;

struct text {
	const char *bytes;
	size_t len;
};

static ssize_t read_text(void *context, uint64_t offset, char *ret, size_t size)
{
	const struct text *t = context;
	size_t n = offset < t->len ? t->len - (size_t)offset : 0;

	if (n > size)
		n = size;
	memcpy(ret, t->bytes + offset, n);
	bytes_read += n;
	return (ssize_t)n;
}

static struct text given;

static void start_source(const struct run_source *source)
{
	struct fault f = FAULT_NONE;

	assert_int_equal(run_batch_new(r.generation, &r.model, source, &r.limits, &r.run, &f), 0);
}

static void start_after(const char *text, uint64_t done, uint64_t failed)
{
	const struct run_source source = { .read = read_text,
		.context = &given,
		.before = { .done = done, .failed = failed } };

	if (!r.device)
		open_model(fake_manifest);
	given = (struct text){ text, strlen(text) };
	start_source(&source);
}

static void start(const char *text)
{
	start_after(text, 0, 0);
}

/* --- running ---------------------------------------------------------------------------------- */

static bool halves; /* a step is taken in two where it can be */

static enum step take_step(void)
{
	const float *logits = NULL;
	struct sequence_feed feed;
	struct infer_result got;

	if (!halves || !r.run->ops->plan(r.run, &feed))
		return r.run->ops->step(r.run, &r.answers, &r.fault);
	got = sequence_feed(r.generation, feed.seq, feed.tokens, feed.n, &logits);
	return r.run->ops->absorb(r.run, &got, logits, &r.answers, &r.fault);
}

static enum step step(void)
{
	size_t before = bytes_read;
	enum step s;

	memset(&r.fault, 0, sizeof r.fault);
	s = take_step();
	assert_int_equal(buf_error(&r.answers), 0);
	if (bytes_read - before > r.most_read)
		r.most_read = bytes_read - before;
	r.steps++;
	return s;
}

/* Nothing is held at a yield: the device has all its room, and the generation may go. */
static void yielded(void)
{
	r.yields++;
	if (r.manifest->kind == MANIFEST_LLM && fake.kv_capacity == 1)
		assert_true(device_kv_can_allocate(r.device));
	if (!r.swap)
		return;
	generation_close(r.generation);
	open_generation(r.yields + 1);
	r.run->generation = r.generation;
}

static enum step run(void)
{
	enum step s;

	do {
		s = step();
		if (s == STEP_YIELD)
			yielded();
	} while (s == STEP_MORE || s == STEP_YIELD);
	return s;
}

static void stop(void)
{
	assert_int_equal(r.run->ops->free(take_ptr(r.run)), NPU_SUCCESS);
}

static const char *text_of(const struct json_value *response)
{
	const struct json_value *body = json_member(response, "body");

	return json_string(json_member(body ? body : response, "text"));
}

/* Of each answer: its id or "-", "=" and the text, or "!" and the error's name. */
static const char *summary(void)
{
	static char text[4096];
	const char *line = buf_text(&r.answers), *end;
	size_t at = 0;

	text[0] = '\0';
	for (; (end = strchr(line, '\n')); line = end + 1) {
		struct fault f = FAULT_NONE;
		struct json_value *v;
		const struct json_value *id, *error;

		if (json_parse(line, (size_t)(end - line), &v, &f))
			fail_msg("%s", f.reason);
		id = json_member(v, "custom_id");
		error = json_member(v, "error");
		at += (size_t)snprintf(text + at, sizeof text - at, "%s%s%s%s", at ? " " : "",
			json_string(id) ? json_string(id) : "-",
			json_type(error) == JSON_NULL ? "=" : "!",
			json_type(error) == JSON_NULL ? text_of(json_member(v, "response"))
				: json_member(error, "name")
				? json_string(json_member(error, "name"))
				: json_string(json_member(error, "code")));
		json_free(v);
	}
	assert_string_equal(line, "");
	return text;
}

static void check_counts(uint64_t total, uint64_t done, uint64_t failed)
{
	assert_int_equal(r.run->lines.total, total);
	assert_int_equal(r.run->lines.done, done);
	assert_int_equal(r.run->lines.failed, failed);
}

#define LINE(id, prompt) \
	"{\"custom_id\":\"" id "\",\"prompt\":\"" prompt "\",\"max_new_tokens\":1}\n"

/* --- order and bad lines ---------------------------------------------------------------------- */

static void run__good_and_bad_lines__answered_in_order(void **state)
{
	(void)state;
	fake.kv_capacity = 1;
	start("\xef\xbb\xbf" LINE("1",
		"a") "\r\n"
		     "{\"prompt\":\"ab\",\"max_new_tokens\":2,\"model\":\"m\"}\r\n"
		     "nonsense\n"
		     " \t\n" LINE("5", "aaa") LINE("1",
			     "a") "{\"custom_id\":\"7\",\"prompt\":\"a\",\"model\":\"other\"}\n"
				  "{\"custom_id\":\"8\",\"prompt\":\"12345678901234567\"}\n"
				  "{\"custom_id\":\"9\",\"inputs\":[{\"name\":\"x\",\"shape\":[1],"
				  "\"datatype\":"
				  "\"FP32\",\"data\":[1]}]}\n"
				  "{\"custom_id\":\"10\",\"prompt\":\"a\",\"output\":\"text\","
				  "\"max_new_tokens\":1}");
	assert_int_equal(run(), STEP_ENDED);
	assert_string_equal(summary(),
		"1=b -=cd -!EINVAL 5=d 1!EINVAL 7!EINVAL 8!E2BIG "
		"9!EINVAL 10=b");
	check_counts(9, 4, 5);
	assert_non_null(strstr(r.answers.data, "line 7: the custom_id is already that of line 1"));
	assert_non_null(strstr(r.answers.data, "\"line\":11"));
	assert_true(r.yields >= 4);
}

static void run__openai_lines__their_form_also_for_errors(void **state)
{
	const char *last;

	(void)state;
	start("{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":"
	      "{\"prompt\":\"a\",\"max_tokens\":1}}\n"
	      "broken\n"
	      "{\"custom_id\":\"a\",\"body\":{\"prompt\":\"a\"}}\n");
	assert_int_equal(run(), STEP_ENDED);
	check_counts(3, 1, 2);
	assert_memory_equal(r.answers.data, "{\"id\":\"batch_req_", 17);
	last = strchr(r.answers.data, '\n') + 1;
	assert_memory_equal(last, "{\"id\":\"batch_req_", 17);
	assert_non_null(strstr(last, "\"custom_id\":null,\"response\":null,\"error\":{\"code\":"));
}

static void run__resumed_behind_an_openai_line__the_same_form(void **state)
{
	(void)state;
	start_after("{\"custom_id\":\"a\",\"body\":{\"prompt\":\"a\",\"max_tokens\":1}}\nbroken\n",
		1, 0);
	assert_int_equal(run(), STEP_ENDED);
	check_counts(2, 1, 1);
	assert_memory_equal(r.answers.data, "{\"id\":\"batch_req_", 17);
}

static void run__nothing_but_blanks__ended_without_answers(void **state)
{
	(void)state;
	start("\n \n\r\n");
	assert_int_equal(run(), STEP_ENDED);
	check_counts(0, 0, 0);
	assert_int_equal(r.answers.len, 0);
}

static void run__total__known_before_the_first_answer(void **state)
{
	(void)state;
	start(LINE("1", "a") "\n" LINE("2", "a") LINE("3", "a"));
	check_counts(0, 0, 0);
	while (r.answers.len == 0)
		assert_int_not_equal(step(), STEP_FAILED);
	check_counts(3, 1, 0);
}

static void finish__sums_of_the_lines__and_no_document(void **state)
{
	AUTO_BUF struct buf out = BUF_INIT;
	struct job_outcome o;

	(void)state;
	start("{\"prompt\":\"ab\",\"max_new_tokens\":2}\nbad\n" LINE("2", "abc"));
	assert_int_equal(run(), STEP_ENDED);
	assert_int_equal(r.run->ops->finish(r.run, &out, &o), 0);
	assert_int_equal(out.len, 0);
	assert_int_equal(o.prompt_tokens, 5);
	assert_int_equal(o.output_tokens, 3);
	assert_string_equal(o.finish_reason, "stop");
	assert_false(o.seed_known);
}

static void run__tensors__a_document_each(void **state)
{
	static const struct tensor_spec x = { "x", DTYPE_FLOAT32, 1, { 2 } };
	static const struct tensor_spec y = { "y", DTYPE_FLOAT32, 1, { 2 } };
	static struct model_info info = { "double", "graph", &x, &y, 1, 1,
		{ CSR_CUR_LEN, CSR_PAST_LEN }, 2 };

	(void)state;
	fake.models = &info;
	fake.n_models = 1;
	open_model(tensor_manifest);
	start("{\"custom_id\":\"1\",\"inputs\":[{\"name\":\"x\",\"shape\":[2],\"datatype\":"
	      "\"FP32\",\"data\":[1,2.5]}]}\n"
	      "{\"prompt\":\"a\"}\n");
	assert_int_equal(run(), STEP_ENDED);
	check_counts(2, 1, 1);
	assert_non_null(strstr(r.answers.data, "\"data\":[2,5]"));
}

/* --- other generations ------------------------------------------------------------------------ */

static void run__generation_replaced_at_each_yield__goes_on(void **state)
{
	(void)state;
	r.swap = true;
	start(LINE("1", "a") LINE("2", "ab") "bad\n" LINE("3", "abc"));
	assert_int_equal(run(), STEP_ENDED);
	assert_string_equal(summary(), "1=b 2=c -!EINVAL 3=d");
	assert_true(r.generation->number > 3);
}

static void run__no_room_on_the_device__waits(void **state)
{
	(void)state;
	start(LINE("1", "a"));
	fake.kv_capacity = 0;
	while (step() != STEP_YIELD)
		assert_int_equal(r.answers.len, 0);
	assert_int_equal(step(), STEP_YIELD);
	fake.kv_capacity = 1;
	assert_int_equal(run(), STEP_ENDED);
	assert_string_equal(summary(), "1=b");
	check_counts(1, 1, 0);
}

/* --- resuming --------------------------------------------------------------------------------- */

static const char ten[] = LINE("1", "a") "bad\n\n" LINE("3", "aaa") LINE("4", "a") LINE("5", "aa")
	LINE("1", "a") " \n" LINE("7", "a") LINE("8", "a") "{}\n" LINE("10", "ab");

static void run__resumed_anywhere__the_answers_that_were_missing(void **state)
{
	static const bool good[] = { true, false, true, true, true, false, true, true, false,
		true };
	AUTO_BUF struct buf all = BUF_INIT;
	uint64_t done = 0;

	(void)state;
	start(ten);
	assert_int_equal(run(), STEP_ENDED);
	buf_puts(&all, summary());
	assert_string_equal(buf_text(&all),
		"1=b -!EINVAL 3=d 4=b 5=c 1!EINVAL 7=b 8=b -!EINVAL 10=c");
	for (size_t k = 0; k <= 10; k++) {
		const char *rest = all.data;

		for (size_t i = 0; i < k && rest; i++)
			rest = (rest = strchr(rest, ' ')) ? rest + 1 : NULL;
		stop();
		buf_reset(&r.answers);
		start_after(ten, done, k - done);
		check_counts(0, done, k - done);
		assert_int_equal(run(), STEP_ENDED);
		assert_string_equal(summary(), rest ? rest : "");
		check_counts(10, 7, 3);
		done += k < 10 && good[k];
	}
}

/* --- failures --------------------------------------------------------------------------------- */

static void run__device_refuses_a_line__that_line_only(void **state)
{
	(void)state;
	fake.kv_capacity = 1;
	start(LINE("1", "a") LINE("2", "a") LINE("3", "a"));
	while (r.answers.len == 0)
		step();
	fake_fail("infer", 1, NPU_INVALID_VALUE);
	assert_int_equal(run(), STEP_ENDED);
	assert_string_equal(summary(), "1=b 2!EINVAL 3=b");
	assert_non_null(strstr(r.answers.data, "line 2: "));
	check_counts(3, 2, 1);
}

/* The line that met the error is answered by it, so that it is not what meets the device again. */
static void run__device_crashes__line_answered_step_failed_resumed_behind_it(void **state)
{
	(void)state;
	start(LINE("1", "a") LINE("2", "ab") LINE("3", "a"));
	while (r.answers.len == 0)
		step();
	fake_fail("wait", 1, NPU_DEVICE_CRASH);
	assert_int_equal(run(), STEP_FAILED);
	assert_int_equal(r.fault.fault.device, NPU_DEVICE_CRASH);
	assert_memory_equal(r.fault.fault.reason, "line 2: ", 8);
	assert_false(r.fault.again);
	assert_string_equal(summary(), "1=b 2!EIO");
	check_counts(3, 1, 1);
	stop();
	start_after(given.bytes, 1, 1);
	assert_int_equal(run(), STEP_ENDED);
	assert_string_equal(summary(), "1=b 2!EIO 3=b");
	check_counts(3, 2, 1);
}

static void run__device_crashes_where_a_line_begins__the_same(void **state)
{
	(void)state;
	start(LINE("1", "a") LINE("2", "ab"));
	while (r.answers.len == 0)
		step();
	fake.silent_allocate = true;
	assert_int_equal(run(), STEP_FAILED);
	assert_true(npu_error_row(r.fault.fault.device)->taints > NPU_TAINTS_FEATURE);
	assert_string_equal(summary(), "1=b 2!EIO");
}

static void run__device_busy__the_same_line_again(void **state)
{
	(void)state;
	start(LINE("1", "a") LINE("2", "ab"));
	while (r.answers.len == 0)
		step();
	fake_fail("infer", 1, NPU_DEVICE_BUSY);
	assert_int_equal(run(), STEP_FAILED);
	assert_true(r.fault.again);
	assert_int_equal(r.fault.fault.device, NPU_DEVICE_BUSY);
	assert_int_equal(run(), STEP_ENDED);
	assert_string_equal(summary(), "1=b 2=c");
	check_counts(2, 2, 0);
}

static void run__device_always_busy__answered_after_eight_more_tries(void **state)
{
	unsigned again = 0;
	enum step s;

	(void)state;
	start(LINE("1", "a") LINE("2", "a"));
	fake_fail("infer", 0, NPU_DEVICE_BUSY);
	while ((s = run()) == STEP_FAILED)
		again++;
	assert_int_equal(s, STEP_ENDED);
	assert_string_equal(summary(), "1!EBUSY 2!EBUSY");
	assert_int_equal(again, 16);
}

/* The tries are those of one step: a line of many may meet a busy device more often. */
static void run__device_busy_now_and_then__the_line_goes_on(void **state)
{
	unsigned again = 0;
	enum step s;

	(void)state;
	start("{\"custom_id\":\"1\",\"prompt\":\"a\",\"max_new_tokens\":5}\n");
	fake_log_clear();
	while (fake_count("kv_allocate") == 0)
		step();
	for (unsigned i = 0; i < 4; i++) {
		for (unsigned busy = 0; busy < 5; busy++, again++) {
			fake_fail("infer", 1, NPU_DEVICE_BUSY);
			assert_int_equal(step(), STEP_FAILED);
			assert_true(r.fault.again);
		}
		assert_int_equal(step(), STEP_MORE);
	}
	s = run();
	assert_int_equal(s, STEP_ENDED);
	assert_string_equal(summary(), "1=bcdef");
	assert_int_equal(again, 20);
}

static void run__output_too_large__that_line_only(void **state)
{
	(void)state;
	open_model(fake_manifest);
	r.limits.output_bytes = 200; /* of text and of its document */
	start(LINE("1",
		"a") "{\"custom_id\":\"2\",\"prompt\":\"a\",\"max_new_tokens\":15}\n" LINE("3",
		"a"));
	assert_int_equal(run(), STEP_ENDED);
	assert_string_equal(summary(), "1=b 2!EFBIG 3=b");
}

static ssize_t read_broken(void *context, uint64_t offset, char *ret, size_t size)
{
	(void)context;
	(void)offset;
	(void)ret;
	(void)size;
	return -EIO;
}

static void run__file_cannot_be_read__failed(void **state)
{
	const struct run_source source = { .read = read_broken };

	(void)state;
	open_model(fake_manifest);
	start_source(&source);
	assert_int_equal(run(), STEP_FAILED);
	assert_int_equal(r.fault.fault.err, -EIO);
	assert_int_equal(r.fault.fault.device, 0);
	assert_false(r.fault.again);
}

static void free__in_the_middle_of_a_line__given_back(void **state)
{
	(void)state;
	start("{\"prompt\":\"a\",\"max_new_tokens\":9}\n");
	fake_log_clear();
	while (fake_count("kv_allocate") == 0)
		step();
	step();
	step();
	assert_int_equal(fake_count("kv_free"), 0);
	stop();
	assert_int_equal(fake_count("kv_free"), 1);
}

static void free__device_would_not_give_back__its_code(void **state)
{
	(void)state;
	fake.kv_capacity = 9;
	start(LINE("1", "a"));
	fake.silent_free = true;
	assert_int_equal(run(), STEP_ENDED);
	assert_string_equal(summary(), "1=b");
	assert_int_not_equal(r.run->ops->free(take_ptr(r.run)), NPU_SUCCESS);
}

/* --- size ------------------------------------------------------------------------------------- */

static void run__line_too_long__that_line_only(void **state)
{
	AUTO_BUF struct buf text = BUF_INIT;
	size_t n = 3 * (size_t)BATCH_LINE_MAX;

	(void)state;
	buf_puts(&text, LINE("1", "a") "{\"custom_id\":\"2\",\"prompt\":\"");
	memset(buf_room(&text, n), 'x', n);
	text.len += n;
	buf_puts(&text, "\"}\n" LINE("3", "a"));
	start(text.data);
	assert_int_equal(run(), STEP_ENDED);
	assert_string_equal(summary(), "1=b -!E2BIG 3=b");
	assert_non_null(strstr(r.answers.data, "line 2: the line is longer than 4194304 bytes"));
	check_counts(3, 2, 1);
}

static void run__many_blank_lines__bounded_bytes_in_a_step(void **state)
{
	AUTO_BUF struct buf text = BUF_INIT;
	size_t n = 900000;

	(void)state;
	memset(buf_room(&text, 3 * n), ' ', 3 * n);
	for (size_t i = 0; i < n; i++)
		text.data[text.len + 3 * i] = '\n';
	text.len += 3 * n;
	buf_puts(&text, LINE("1", "a"));
	start(text.data);
	assert_int_equal(run(), STEP_ENDED);
	assert_string_equal(summary(), "1=b");
	assert_non_null(strstr(r.answers.data, "\"line\":900001"));
	assert_true(r.most_read <= (1 << 20) + BATCH_CHUNK_SIZE);
	assert_true(r.steps >= 3 + 11);
}

static void run__more_lines_than_the_limit__refused_before_any_runs(void **state)
{
	AUTO_BUF struct buf text = BUF_INIT;
	size_t n = BATCH_LINES_MAX;

	(void)state;
	buf_puts(&text, LINE("1", "a"));
	memset(buf_room(&text, n), '\n', n);
	text.len += n;
	start(text.data);
	assert_int_equal(run(), STEP_FAILED);
	assert_int_equal(r.fault.fault.err, -E2BIG);
	assert_non_null(strstr(r.fault.fault.reason, "1000000"));
	assert_int_equal(r.answers.len, 0);
	stop();
	text.data[text.len - 1] = '\0';
	start(text.data);
	assert_int_equal(run(), STEP_ENDED);
}

static void run__many_bad_lines__bounded_answers_in_a_step(void **state)
{
	AUTO_BUF struct buf text = BUF_INIT;
	size_t before = 0, answers = 0;
	enum step s;

	(void)state;
	for (int i = 0; i < 1000; i++)
		buf_puts(&text, "bad\n");
	start(text.data);
	do {
		size_t now = 0;

		s = step();
		for (size_t i = before; i < r.answers.len; i++)
			now += r.answers.data[i] == '\n';
		assert_true(now <= 64);
		before = r.answers.len;
		answers += now;
	} while (s == STEP_MORE || s == STEP_YIELD);
	assert_int_equal(s, STEP_ENDED);
	assert_int_equal(answers, 1000);
	check_counts(1000, 0, 1000);
}

/* Lines made as they are read, all of one length. */
#define MADE_LINES 100000
#define MADE_SIZE  64

static void make_line(uint64_t i, char ret[MADE_SIZE + 1])
{
	int n = snprintf(ret, MADE_SIZE + 1,
		"{\"custom_id\":\"request-%06llu\",%s\"prompt\":\"a\"}", (unsigned long long)i,
		i % 10 ? "\"oops\":1," : "\"max_tokens\":1,");

	memset(ret + n, ' ', (size_t)(MADE_SIZE - n));
	ret[MADE_SIZE - 1] = '\n';
}

static ssize_t read_made(void *context, uint64_t offset, char *ret, size_t size)
{
	char line[MADE_SIZE + 1];
	size_t n = 0;

	(void)context;
	while (n < size && offset < (uint64_t)MADE_LINES * MADE_SIZE) {
		size_t from = (size_t)(offset % MADE_SIZE), part = MADE_SIZE - from;

		make_line(offset / MADE_SIZE, line);
		if (part > size - n)
			part = size - n;
		memcpy(ret + n, line + from, part);
		n += part;
		offset += part;
	}
	return (ssize_t)n;
}

static size_t memory(void)
{
	struct mallinfo2 m = mallinfo2(); /* all zero under a sanitizer */

	return m.uordblks + m.hblkhd;
}

static void run__100000_lines__in_5_mib(void **state)
{
	const struct run_source source = { .read = read_made };
	size_t before, most = 0, answers = 0;
	enum step s;

	(void)state;
	open_model(fake_manifest);
	before = memory();
	start_source(&source);
	do {
		s = step();
		for (const char *p = buf_text(&r.answers); (p = strchr(p, '\n')); p++)
			answers++;
		buf_reset(&r.answers);
		if (memory() - before > most)
			most = memory() - before;
	} while (s == STEP_MORE || s == STEP_YIELD);
	assert_int_equal(s, STEP_ENDED);
	check_counts(MADE_LINES, MADE_LINES / 10, MADE_LINES / 10 * 9);
	assert_int_equal(answers, MADE_LINES);
	assert_true(most < 5u << 20);
}

/* However many lines need no device, others have their turn between them. */
static void run__a_hundred_bad_lines__others_have_a_turn(void **state)
{
	char text[100 * 2 + 1] = "";
	enum step s;

	(void)state;
	for (int i = 0; i < 100; i++)
		strcat(text, "x\n");
	start(text);
	do
		s = step();
	while (s == STEP_MORE);
	assert_int_equal(s, STEP_YIELD);
	assert_int_equal(r.run->lines.failed, 64);
	assert_int_equal(step(), STEP_ENDED);
	assert_int_equal(r.run->lines.failed, 100);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(run__good_and_bad_lines__answered_in_order),
		TEST(run__openai_lines__their_form_also_for_errors),
		TEST(run__resumed_behind_an_openai_line__the_same_form),
		TEST(run__nothing_but_blanks__ended_without_answers),
		TEST(run__a_hundred_bad_lines__others_have_a_turn),
		TEST(run__total__known_before_the_first_answer),
		TEST(finish__sums_of_the_lines__and_no_document),
		TEST(run__tensors__a_document_each),
		TEST(run__generation_replaced_at_each_yield__goes_on),
		TEST(run__no_room_on_the_device__waits),
		TEST(run__resumed_anywhere__the_answers_that_were_missing),
		TEST(run__device_refuses_a_line__that_line_only),
		TEST(run__device_crashes__line_answered_step_failed_resumed_behind_it),
		TEST(run__device_crashes_where_a_line_begins__the_same),
		TEST(run__device_busy__the_same_line_again),
		TEST(run__device_always_busy__answered_after_eight_more_tries),
		TEST(run__device_busy_now_and_then__the_line_goes_on),
		TEST(run__output_too_large__that_line_only),
		TEST(run__file_cannot_be_read__failed),
		TEST(free__in_the_middle_of_a_line__given_back),
		TEST(free__device_would_not_give_back__its_code),
		TEST(run__line_too_long__that_line_only),
		TEST(run__many_blank_lines__bounded_bytes_in_a_step),
		TEST(run__many_bad_lines__bounded_answers_in_a_step),
		TEST(run__more_lines_than_the_limit__refused_before_any_runs),
		TEST(run__100000_lines__in_5_mib),
	};

	int failed = cmocka_run_group_tests_name("whole steps", tests, NULL, NULL);

	halves = true;
	return failed + cmocka_run_group_tests_name("steps in halves", tests, NULL, NULL);
}
