/* Two jobs in flight: only on evidence, with the answers of one in flight, and each failing alone. The
 * recording backend tells which engine was used. */
#include "tests/engine_rig.h"

#include "core/engine/evidence.h"
#include "tests/trace_checks.h"

static char store[64];

static int pair_up(void **state)
{
	up(state);
	strcpy(store, "/tmp/npufs-unit-XXXXXX");
	assert_non_null(mkdtemp(store));
	config.pairs = true;
	config.store = store;
	return 0;
}

static int pair_down(void **state)
{
	char command[128];

	snprintf(command, sizeof command, "rm -rf %s", store);
	return down(state) | system(command);
}

/* Sound evidence for the fake device with this firmware. */
static void prove(const char *firmware)
{
	static const char *const inputs[] = { "PQ", "PQ", "PQ", "PP", "QQ", "PQ", "QP" };
	struct evidence e = { .name = "echo", .device = fake.info, .submitted = 7, .waited = 7 };

	snprintf(e.device.firmware, sizeof e.device.firmware, "%s", firmware);
	sha256_hex(fake_manifest, strlen(fake_manifest), e.artifact);
	for (size_t i = 0; i < EVIDENCE_ORDERS; i++) {
		e.orders[i].rounds = 1;
		for (size_t k = 0; k < 2; k++)
			sha256_hex(&inputs[i][k], 1, e.orders[i].sha256[k]);
	}
	assert_int_equal(evidence_write(store, &e), 0);
}

static bool health_says(const char *line)
{
	AUTO_BUF struct buf text = BUF_INIT;
	char whole[160];

	health_render(&r.health, 0, 0, &text);
	snprintf(whole, sizeof whole, "\nparallel: %s\n", line);
	return strstr(buf_text(&text), whole) != NULL;
}

static const char *const requests[] = { "{\"prompt\":\"abc\"}", "{\"prompt\":\"abcdef\"}",
	"{\"prompt\":\"a\",\"max_new_tokens\":3}", "{\"prompt\":\"abcdefghijkl\"}",
	"{\"prompt\":\"ab\",\"stop\":\"fg\"}" };
static const char *const answers[] = { "defghijklmnop\n", "ghijklmnop\n", "bcd\n", "mnop\n",
	"cde\n" };

/* All of them wait before the first one runs, so that they run together. */
static void run_together(void)
{
	struct job *first, *j[ARRAY_SIZE(requests)];

	await_health(HEALTH_READY);
	fake_hold();
	first = submit("{\"prompt\":\"xyz\",\"max_new_tokens\":1}");
	fake_await_held();
	for (size_t i = 0; i < ARRAY_SIZE(requests); i++)
		j[i] = submit(requests[i]);
	fake_log_clear();
	fake_let_go();
	check_output(first, "d\n");
	job_put(first);
	for (size_t i = 0; i < ARRAY_SIZE(requests); i++) {
		check_output(j[i], answers[i]);
		job_put(j[i]);
	}
}

static void pair__proven__two_in_flight_and_the_same_answers(void **state)
{
	(void)state;
	prove("f1");
	start(&fake_pair_ops);
	run_together();
	assert_true(health_says("two in flight"));
	assert_true(fake_count("pong") > 10);
	assert_int_equal(fake_count("ping"), fake_count("pong"));
	assert_true(fake_count("infer") > 2 * fake_count("pong")); /* the last one left is alone */
}

/* Two that overlap are of two jobs, each on its engine's line of the trace. */
static size_t count_overlaps(const struct trace_doc *d)
{
	size_t n = 0;

	for (size_t i = 0; i < d->n; i++) {
		const struct trace_row *a = &d->rows[i], *b;

		if (strcmp(a->name, "compute") != 0 || strcmp(a->engine, "ping") != 0)
			continue;
		b = &d->rows[trace_find(d, i + 1, "compute")];
		assert_string_equal(b->engine, "pong");
		assert_true(b->begin < a->end && a->tid != b->tid);
		assert_true(a->job && b->job && a->job != b->job);
		n++;
	}
	return n;
}

static void pair__traced__each_on_its_line_for_its_job(void **state)
{
	static struct trace_doc doc;

	(void)state;
	prove("f1");
	start(&fake_pair_ops);
	await_health(HEALTH_READY);
	assert_int_equal(trace_start(60, TRACE_MAX_BYTES, NULL), 0);
	run_together();
	stop();
	trace_stop();
	trace_read(&doc);
	trace_check_nesting(&doc);
	assert_int_equal(count_overlaps(&doc), fake_count("pong"));
	assert_true(fake_count("pong") > 10);
	trace_doc_done(&doc);
	trace_done();
}

static void pair__odd_number__the_last_alone(void **state)
{
	(void)state;
	prove("f1");
	config.max_active = 3;
	start(&fake_pair_ops);
	run_together();
	assert_true(fake_count("pong") > 0);
}

static void pair__not_proven_or_not_asked__one_in_flight_and_health_says_why(void **state)
{
	(void)state;
	start(&fake_pair_ops);
	run_together();
	assert_true(health_says("one in flight, no evidence"));
	assert_int_equal(fake_count("pong") + fake_count("parallel"), 0);
}

static void pair__other_firmware__one_in_flight_and_named(void **state)
{
	(void)state;
	prove("f0");
	start(&fake_pair_ops);
	run_together();
	assert_true(health_says("one in flight, evidence is stale: firmware"));
	assert_int_equal(fake_count("pong") + fake_count("parallel"), 0);
}

static void pair__off__evidence_is_of_no_interest(void **state)
{
	(void)state;
	prove("f1");
	config.pairs = false;
	start(&fake_pair_ops);
	run_together();
	assert_true(health_says("off"));
	assert_int_equal(fake_count("pong") + fake_count("parallel"), 0);
}

static void pair__one_engine__one_in_flight(void **state)
{
	(void)state;
	prove("f1");
	start(&fake_ops);
	run_together();
	assert_true(health_says("one in flight, the device refused: DeviceUnsupport"));
}

static void pair__switching_on_fails__one_in_flight(void **state)
{
	(void)state;
	prove("f1");
	fake_fail("status", 3, NPU_MEMORY_ALLOCATION); /* after opening and configuring */
	start(&fake_pair_ops);
	run_together();
	assert_true(health_says("one in flight, the device refused: MemoryAllocation"));
	assert_int_equal(fake_count("pong"), 0);
}

/* Two jobs, both on the device; the nth call from now on fails. */
static void two_with_failure(const char *call, unsigned nth, enum npu_error code, struct job *j[2])
{
	struct job *first;

	await_health(HEALTH_READY);
	fake_hold();
	first = submit("{\"prompt\":\"xyz\",\"max_new_tokens\":1}");
	fake_await_held();
	j[0] = submit("{\"prompt\":\"abc\",\"max_new_tokens\":4}");
	j[1] = submit("{\"prompt\":\"abcdef\",\"max_new_tokens\":5}");
	fake_log_clear();
	fake_fail(call, nth, code);
	fake_let_go();
	await_end(first);
	job_put(first);
}

/* The next Wait is the first job's kv_update's; then come the pair's two and their kv_update's. */
static void pair__an_error_of_one_job__the_other_never_notices(void **state)
{
	static const char *const want[] = { "defg\n", "ghijk\n" };

	(void)state;
	prove("f1");
	start(&fake_pair_ops);
	for (unsigned nth = 2; nth <= 5; nth++) {
		struct job *j[2];
		int failed = 0;

		two_with_failure("wait", nth, NPU_INVALID_VALUE, j);
		for (int i = 0; i < 2; i++) {
			if (await_end(j[i]) == JOB_FAILED)
				failed++;
			else
				check_output(j[i], want[i]);
			job_put(j[i]);
		}
		assert_int_equal(failed, 1);
		assert_true(fake_count("pong") > 0);
	}
	assert_int_equal(health_state(&r.health), HEALTH_READY);
}

/* It is tried again, as with one in flight. */
static void pair__busy__both_end_well(void **state)
{
	(void)state;
	prove("f1");
	start(&fake_pair_ops);
	for (unsigned nth = 2; nth <= 5; nth++) {
		struct job *j[2];

		two_with_failure("infer", nth, NPU_DEVICE_BUSY, j);
		check_output(j[0], "defg\n");
		check_output(j[1], "ghijk\n");
		job_put(j[0]);
		job_put(j[1]);
	}
}

/* Whichever it hits: that job has the error, the other is told to come again, the next runs. */
static void pair__an_error_beyond_its_job__both_end_and_it_is_recovered(void **state)
{
	(void)state;
	prove("f1");
	start(&fake_pair_ops);
	for (unsigned nth = 2; nth <= 3; nth++) {
		struct job *j[2];
		struct job_view v[2];

		two_with_failure("wait", nth, NPU_TIMEOUT, j);
		for (int i = 0; i < 2; i++) {
			assert_int_equal(await_end(j[i]), JOB_FAILED);
			job_look(j[i], &v[i]);
			job_put(j[i]);
		}
		assert_int_equal(v[nth == 3].fault.err, -ETIMEDOUT);
		assert_int_equal(v[nth != 3].fault.err, -EIO);
		assert_string_equal(v[nth != 3].fault.action, "send it again");
		check_runs("{\"prompt\":\"abc\",\"max_new_tokens\":1}", "d\n");
		assert_true(health_says("two in flight")); /* asked again, and still proven */
	}
}

/* What became stale counts from the next opening on. */
static void pair__stale_when_opened_again__one_in_flight(void **state)
{
	struct job *j[2];

	(void)state;
	prove("f1");
	start(&fake_pair_ops);
	await_health(HEALTH_READY);
	prove("f2");
	two_with_failure("wait", 3, NPU_TIMEOUT, j);
	for (int i = 0; i < 2; i++) {
		await_end(j[i]);
		job_put(j[i]);
	}
	run_together();
	assert_true(health_says("one in flight, evidence is stale: firmware"));
	assert_int_equal(fake_count("pong"), 0);
}

/* The third Wait is that of the pair's second: both are on the device. */
static void pair__one_cancelled_in_flight__the_other_goes_on(void **state)
{
	(void)state;
	prove("f1");
	start(&fake_pair_ops);
	for (int gone = 0; gone < 2; gone++) {
		struct job *first, *j[2];

		await_health(HEALTH_READY);
		fake_hold();
		first = submit("{\"prompt\":\"xyz\",\"max_new_tokens\":1}");
		fake_await_held();
		j[0] = submit(requests[0]);
		j[1] = submit(requests[1]);
		fake_hold_at(3);
		fake_let_go();
		fake_await_held();
		engine_cancel(r.engine, j[gone]);
		check_error(j[gone], JOB_CANCELLED, -ECANCELED);
		fake_let_go();
		check_output(j[!gone], answers[!gone]);
		job_put(first);
		job_put(j[0]);
		job_put(j[1]);
	}
}

#undef TEST
#define TEST(name) cmocka_unit_test_setup_teardown(name, pair_up, pair_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(pair__proven__two_in_flight_and_the_same_answers),
		TEST(pair__traced__each_on_its_line_for_its_job),
		TEST(pair__odd_number__the_last_alone),
		TEST(pair__not_proven_or_not_asked__one_in_flight_and_health_says_why),
		TEST(pair__other_firmware__one_in_flight_and_named),
		TEST(pair__off__evidence_is_of_no_interest),
		TEST(pair__one_engine__one_in_flight),
		TEST(pair__switching_on_fails__one_in_flight),
		TEST(pair__an_error_of_one_job__the_other_never_notices),
		TEST(pair__busy__both_end_well),
		TEST(pair__an_error_beyond_its_job__both_end_and_it_is_recovered),
		TEST(pair__stale_when_opened_again__one_in_flight),
		TEST(pair__one_cancelled_in_flight__the_other_goes_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
