/* Batches from jobs/ to the device and back: what the engine does with them when the device fails,
 * when others wait, and when nothing can be given room. The device gives 'a' + L % 26 after L
 * tokens. */
#include "tests/jobdir_rig.h"

#include "core/base/json.h"
#include "core/engine/engine_impl.h"

#define LINE(id, prompt) \
	"{\"custom_id\":\"" id "\",\"prompt\":\"" prompt "\",\"max_new_tokens\":1}\n"

static enum job_state await_end(const char *name)
{
	struct job *j = result(name);
	enum job_state s;
	int ms = 0;

	while (!job_ended(j) && ms++ < 20000)
		usleep(1000);
	s = job_state(j);
	job_put(j);
	return s;
}

static const char *member_text(const struct json_value *v, const char *key)
{
	const struct json_value *m = json_member(v, key);

	return m ? json_string(m) : NULL;
}

static void check_line(const char *line, size_t len, struct buf *got)
{
	struct fault f = FAULT_NONE;
	struct json_value *v;
	const struct json_value *response, *error;

	if (json_parse(line, len, &v, &f))
		fail_msg("%s: %s", line, f.reason);
	response = json_member(v, "response");
	error = json_member(v, "error");
	buf_printf(got, "%s%s%s", got->len ? " " : "", member_text(v, "custom_id"),
		json_type(error) == JSON_NULL ? "=" : "!");
	buf_puts(got,
		json_type(error) == JSON_NULL ? member_text(response, "text")
					      : member_text(error, "name"));
	json_free(v);
}

/* "1=b 2!EIO": of each answer the id, then the text or the error's name. */
static void check_answers(const char *name, const char *want)
{
	AUTO_BUF struct buf got = BUF_INIT;
	static char text[1 << 16];
	struct job *j = result(name);
	const char *line = text, *end;
	ssize_t n;

	assert_int_equal(await_end(name), JOB_DONE);
	n = job_read(j, JOB_OUT, 0, text, sizeof text - 1);
	job_put(j);
	assert_true(n >= 0);
	text[n] = '\0';
	for (; (end = strchr(line, '\n')); line = end + 1)
		check_line(line, (size_t)(end - line), &got);
	assert_string_equal(line, "");
	assert_string_equal(buf_text(&got), want);
}

/* --- the device fails ------------------------------------------------------------------------- */

static void crash__two_batches_on_the_device__one_line_lost(void **state)
{
	(void)state;
	fake_hold();
	assert_int_equal(echo(&alice, "a.jsonl", LINE("1", "a") LINE("2", "ab") LINE("3", "a")), 0);
	fake_await_held();
	assert_int_equal(echo(&bob, "b.jsonl", LINE("1", "ab") LINE("2", "a") LINE("3", "ab")), 0);
	fake_fail("wait", 2, NPU_DEVICE_CRASH);
	fake_let_go();
	assert_int_equal(await_end("a.out"), JOB_DONE);
	assert_int_equal(await_end("b.out"), JOB_DONE);
	assert_int_equal(has_line("a.status", "\nlines_failed: 1\n") +
			has_line("b.status", "\nlines_failed: 1\n"),
		1);
	assert_true(has_line("a.status", "\nlines_failed: 0\n") ||
		has_line("b.status", "\nlines_failed: 0\n"));
	assert_true(has_line("a.status", "\nlines: 3\n") && has_line("b.status", "\nlines: 3\n"));
	assert_int_equal(health.recoveries, 1);
	assert_int_equal(health_state(&health), HEALTH_READY);
}

static void crash__in_the_middle__that_line_alone_and_the_batch_goes_on(void **state)
{
	(void)state;
	fake_hold();
	assert_int_equal(echo(&alice, "a.jsonl", LINE("1", "a") LINE("2", "ab") LINE("3", "a")), 0);
	fake_await_held();
	fake_fail("wait", 2, NPU_DEVICE_CRASH); /* the held one was called */
	fake_let_go();
	check_answers("a.out", "1=b 2!EIO 3=b");
	assert_int_equal(health.recoveries, 1);
}

/* More of them than the engine recovers from in a row, with good lines between. */
static void crash__now_and_then__batch_goes_on(void **state)
{
	AUTO_BUF struct buf text = BUF_INIT;

	(void)state;
	for (int i = 0; i < 60; i++)
		buf_puts(&text, "{\"prompt\":\"a\",\"max_new_tokens\":1}\n");
	for (unsigned i = 1; i <= ENGINE_MAX_RECOVERIES + 2; i++)
		fake_fail("wait", 10 * i, NPU_DEVICE_CRASH);
	assert_int_equal(echo(&alice, "a.jsonl", buf_text(&text)), 0);
	assert_int_equal(await_end("a.out"), JOB_DONE);
	assert_true(has_line("a.status", "\nlines_done: 55\nlines_failed: 5\n"));
	assert_int_equal(health.recoveries, ENGINE_MAX_RECOVERIES + 2);
}

static void crash__at_every_line__failed_after_bounded_recoveries(void **state)
{
	(void)state;
	fake_fail("wait", 0, NPU_DEVICE_CRASH);
	assert_int_equal(echo(&alice, "a.jsonl",
				 LINE("1", "a") LINE("2", "a") LINE("3", "a") LINE("4", "a")
					 LINE("5", "a") LINE("6", "a")),
		0);
	assert_int_equal(await_end("a.out"), JOB_FAILED);
	for (int ms = 0; health_state(&health) != HEALTH_FAILED && ms < 20000; ms++)
		usleep(1000); /* it is answered first */
	assert_int_equal(health_state(&health), HEALTH_FAILED);
	assert_int_equal(health.recoveries, ENGINE_MAX_RECOVERIES + 1);
}

static uint64_t recoveries(void)
{
	uint64_t n;

	lock_take(&health.lock);
	n = health.recoveries;
	lock_drop(&health.lock);
	return n;
}

/* A job is answered before the device is recovered. */
static void await_recovery(void)
{
	for (int ms = 0; (!recoveries() || health_state(&health) != HEALTH_READY) && ms < 20000;
		ms++)
		usleep(1000);
}

/* Its answer does not fit into batch_size=: it would be tried again and again. */
static void crash__the_answer_cannot_be_kept__failed_after_one_recovery(void **state)
{
	prepare(state);
	config.batch_bytes = 16;
	start();
	fake_fail("wait", 0, NPU_DEVICE_CRASH);
	assert_int_equal(echo(&alice, "a.jsonl", LINE("1", "a")), 0);
	assert_int_equal(await_end("a.out"), JOB_FAILED);
	await_recovery();
	assert_int_equal(recoveries(), 1);
	assert_int_equal(health_state(&health), HEALTH_READY);
}

/* A single job that was on the device fails, as ever; the batch does not. */
static void crash__a_batch_and_a_single_job__only_the_batch_goes_on(void **state)
{
	(void)state;
	fake_hold();
	assert_int_equal(echo(&alice, "a.json", "{\"prompt\":\"abc\",\"max_new_tokens\":9}"), 0);
	fake_await_held();
	assert_int_equal(echo(&bob, "b.jsonl", LINE("1", "a") LINE("2", "ab")), 0);
	fake_fail("wait", 4, NPU_DEVICE_CRASH);
	fake_let_go();
	assert_int_equal(await_end("a.out"), JOB_FAILED);
	assert_int_equal(await_end("b.out"), JOB_DONE);
	assert_true(has_line("b.status", "\nlines: 2\n"));
	assert_int_equal(health.recoveries, 1);
}

/* --- room on the device ----------------------------------------------------------------------- */

/* A line's sequence that was not freed would keep all further ones waiting for ever. */
static void kv__free_fails_silently__room_comes_back(void **state)
{
	(void)state;
	fake.kv_capacity = 1;
	fake.silent_free = true;
	assert_int_equal(echo(&alice, "a.jsonl", LINE("1", "a") LINE("2", "ab") LINE("3", "a")), 0);
	check_answers("a.out", "1=b 2=c 3=b");
	assert_true(health.recoveries >= 2);
}

static void kv__room_for_one__two_batches_in_turn(void **state)
{
	(void)state;
	fake.kv_capacity = 1;
	assert_int_equal(echo(&alice, "a.jsonl", LINE("1", "a") LINE("2", "ab") LINE("3", "a")), 0);
	assert_int_equal(echo(&bob, "b.jsonl", LINE("1", "a") LINE("2", "ab") LINE("3", "a")), 0);
	check_answers("a.out", "1=b 2=c 3=b");
	check_answers("b.out", "1=b 2=c 3=b");
	assert_int_equal(health.recoveries, 0);
}

/* --- the file --------------------------------------------------------------------------------- */

static void rename__to_a_batch__runs(void **state)
{
	(void)state;
	assert_int_equal(echo(&alice, "tmp", LINE("1", "a")), 0);
	assert_int_equal(rename_as(&alice, "tmp", "a.jsonl"), 0);
	check_answers("a.out", "1=b");
}

/* What an earlier run of the file left behind its lines answers nothing of the next one. */
static void rename__away_and_back__answered_anew(void **state)
{
	struct jobdir_file *f;

	(void)state;
	assert_int_equal(echo(&alice, "a.jsonl", LINE("1", "a")), 0);
	check_answers("a.out", "1=b");
	assert_int_equal(rename_as(&alice, "a.jsonl", "lines"), 0);
	assert_int_equal(open_as(&alice, "lines", O_WRONLY, &f), 0);
	assert_int_equal(write_text(f, 0, LINE("2", "b")), 0);
	jobdir_release(d, f);
	assert_int_equal(rename_as(&alice, "lines", "b.jsonl"), 0);
	check_answers("b.out", "2=b");
}

static void model__of_the_first_line_unknown__refused_at_close(void **state)
{
	(void)state;
	assert_int_equal(echo(&alice, "a.jsonl", "{\"model\":\"none\",\"prompt\":\"a\"}\n"),
		-ENOENT);
	assert_int_equal(await_end("a.out"), JOB_FAILED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(crash__two_batches_on_the_device__one_line_lost),
		TEST(crash__in_the_middle__that_line_alone_and_the_batch_goes_on),
		TEST(crash__now_and_then__batch_goes_on),
		TEST(crash__at_every_line__failed_after_bounded_recoveries),
		cmocka_unit_test_teardown(
			crash__the_answer_cannot_be_kept__failed_after_one_recovery, down),
		TEST(crash__a_batch_and_a_single_job__only_the_batch_goes_on),
		TEST(kv__free_fails_silently__room_comes_back),
		TEST(kv__room_for_one__two_batches_in_turn),
		TEST(rename__to_a_batch__runs),
		TEST(rename__away_and_back__answered_anew),
		TEST(model__of_the_first_line_unknown__refused_at_close),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
