/* The trace: its bounds, its format, and what the engine with the recording backend leaves in it. */
#include "tests/engine_rig.h"
#include "tests/trace_checks.h"

static struct trace_doc doc;

static int trace_up(void **state)
{
	trace_done();
	return up(state);
}

static int trace_down(void **state)
{
	trace_done();
	trace_doc_done(&doc);
	memset(&doc, 0, sizeof doc);
	return down(state);
}

#define TRACE_TEST(name) cmocka_unit_test_setup_teardown(name, trace_up, trace_down)

static void begin_trace(void)
{
	assert_int_equal(trace_start(60, TRACE_MAX_BYTES, NULL), 0);
}

static struct trace_view look(void)
{
	struct trace_view v;

	trace_look(&v);
	return v;
}

/* --- bounds ----------------------------------------------------------------------------------- */

static void start__out_of_bounds__einval_and_the_last_one_stays(void **state)
{
	struct fault f = FAULT_NONE;

	(void)state;
	begin_trace();
	trace_queue(7, 0, 1000);
	trace_stop();
	assert_int_equal(trace_start(0, 1 << 20, &f), -EINVAL);
	assert_string_equal(f.reason, "a trace takes 1 to 3600 seconds");
	assert_int_equal(trace_start(3601, 1 << 20, &f), -EINVAL);
	assert_int_equal(trace_start(1, (64 << 10) - 1, &f), -EINVAL);
	assert_string_equal(f.reason, "a trace takes 65536 to 67108864 bytes");
	assert_int_equal(trace_start(1, (64 << 20) + 1, NULL), -EINVAL);
	assert_int_equal(look().events, 1);
	assert_int_equal(trace_start(1, 64 << 10, &f), 0);
	trace_stop();
	assert_int_equal(trace_start(3600, 64 << 20, &f), 0);
}

static void start__one_records__ebusy(void **state)
{
	struct fault f = FAULT_NONE;

	(void)state;
	begin_trace();
	assert_true(trace_on());
	assert_int_equal(trace_start(60, 1 << 20, &f), -EBUSY);
	assert_int_equal(f.err, -EBUSY);
	trace_stop();
	trace_stop();
	assert_false(trace_on());
	assert_int_equal(trace_start(60, 1 << 20, &f), 0);
}

static void render__none_or_one_that_records__refused(void **state)
{
	AUTO_BUF struct buf out = BUF_INIT;

	(void)state;
	assert_int_equal(trace_render(&out), -ENODATA);
	assert_false(look().any);
	begin_trace();
	assert_int_equal(trace_render(&out), -EBUSY);
	assert_int_equal(out.len, 0);
	trace_stop();
	trace_read(&doc); /* without a single event, too */
	assert_int_equal(doc.n, 0);
	assert_string_equal(doc.ended_by, "stop");
}

static void hooks__off__nothing(void **state)
{
	(void)state;
	assert_true(trace_begin() == 0);
	begin_trace();
	assert_true(trace_begin() > 0);
	trace_stop();
	trace_queue(1, 0, 5);
	trace_step(clock_mono(), TRACE_COMPUTE, DEVICE_AUTO, 1, NPU_SUCCESS);
	assert_int_equal(look().events, 0);
}

static void record__time_is_over__off_by_itself(void **state)
{
	int64_t before;

	(void)state;
	assert_int_equal(trace_start(1, 1 << 20, NULL), 0);
	before = trace_begin();
	assert_true(look().ended == TRACE_STILL_ON && look().left_ns > 0);
	while (look().ended == TRACE_STILL_ON)
		nap();
	assert_true(clock_mono() - before >= NS_PER_SEC - NS_PER_MS);
	trace_step(before, TRACE_COMPUTE, DEVICE_AUTO, 1, NPU_SUCCESS); /* began in time */
	assert_true(trace_on());
	trace_step(clock_mono(), TRACE_COMPUTE, DEVICE_AUTO, 2, NPU_SUCCESS);
	assert_false(trace_on());
	trace_read(&doc);
	assert_string_equal(doc.ended_by, "time");
	assert_int_equal(doc.n, 1);
	assert_int_equal(doc.rows[0].tokens, 1);
	assert_true(doc.rows[0].end - doc.rows[0].begin >= NS_PER_SEC - NS_PER_MS);
	assert_int_equal(trace_start(1, 1 << 20, NULL), 0);
}

/* Events as wide as they can be: the text keeps within what was asked for. */
static void record__full__off_by_itself_and_the_rest_is_counted(void **state)
{
	const struct fault why = { .device = NPU_MEMORY_ALREADY_REGISTERED };

	(void)state;
	assert_int_equal(trace_start(60, 64 << 10, NULL), 0);
	for (int i = 0; i < 1000; i++)
		trace_delivery(1, UINT64_MAX, INT16_MIN, UINT32_MAX, &why);
	assert_int_equal(look().ended, TRACE_BY_SIZE);
	trace_read(&doc);
	assert_true(doc.n >= 200);
	assert_int_equal(doc.rows[0].begin, 1);
	assert_int_equal(doc.n + doc.dropped, 1000);
	assert_string_equal(doc.ended_by, "size");
	assert_true(doc.text.len <= 64 << 10);
	assert_string_equal(doc.rows[0].error, "MemoryAlreadyRegistered");
	assert_int_equal(trace_start(60, 64 << 10, NULL), 0); /* it needs no stop */
}

/* --- whose an inference is -------------------------------------------------------------------- */

static _Atomic bool rendered;

static void *render_all(void *ret_ns)
{
	AUTO_BUF struct buf out = BUF_INIT;
	const int64_t begin = clock_mono();

	assert_int_equal(trace_render(&out), 0);
	*(int64_t *)ret_ns = clock_mono() - begin;
	atomic_store(&rendered, true);
	return NULL;
}

/* Who looks is the thread that serves the mount. */
static void look__while_a_large_one_is_rendered__does_not_wait(void **state)
{
	int64_t longest = 0, all = 0;
	pthread_t t;

	(void)state;
	begin_trace();
	for (uint64_t job = 1; look().ended == TRACE_STILL_ON; job++)
		trace_queue(job, 0, 1000);
	atomic_store(&rendered, false);
	pthread_create(&t, NULL, render_all, &all);
	while (!atomic_load(&rendered)) {
		const int64_t begin = clock_mono();

		look();
		longest = clock_mono() - begin > longest ? clock_mono() - begin : longest;
		nap();
	}
	pthread_join(t, NULL);
	assert_true(longest < all / 2);
}

static void step__turns_of_two_lanes__each_its_job(void **state)
{
	(void)state;
	begin_trace();
	trace_turn(0, 11, 3);
	trace_turn(1, 12, 3);
	trace_step(trace_begin(), TRACE_COMPUTE, DEVICE_PING, 1, NPU_SUCCESS);
	trace_step(trace_begin(), TRACE_COMPUTE, DEVICE_PONG, 1, NPU_DEVICE_CRASH);
	trace_turn_over();
	trace_step(trace_begin(), TRACE_COMPUTE, DEVICE_AUTO, 1, NPU_SUCCESS);
	trace_stop();
	trace_read(&doc);
	assert_int_equal(doc.n, 3);
	assert_int_equal(doc.rows[0].job, 11);
	assert_int_equal(doc.rows[0].model, 3);
	assert_string_equal(doc.rows[0].engine, "ping");
	assert_int_equal(doc.rows[1].job, 12);
	assert_string_equal(doc.rows[1].engine, "pong");
	assert_string_equal(doc.rows[1].error, "DeviceCrash");
	assert_int_equal(doc.rows[2].job, 0);
	assert_int_equal(doc.rows[2].model, -1);
	assert_string_equal(doc.rows[2].engine, "auto");
}

static void step__turn_of_an_older_trace__nobodys(void **state)
{
	(void)state;
	begin_trace();
	trace_turn(0, 11, 0);
	trace_stop();
	begin_trace();
	trace_step(trace_begin(), TRACE_COMPUTE, DEVICE_AUTO, 1, NPU_SUCCESS);
	trace_stop();
	trace_read(&doc);
	assert_int_equal(doc.rows[0].job, 0);
}

/* --- the engine ------------------------------------------------------------------------------- */

/* The device's thread writes the last event when others see the job's end already. */
static void end_trace(void)
{
	stop();
	trace_stop();
	trace_read(&doc);
	trace_check_nesting(&doc);
}

static void check_row(size_t i, const char *name, uint64_t tokens, const char *engine)
{
	assert_true(i < doc.n);
	assert_string_equal(doc.rows[i].name, name);
	assert_int_equal(doc.rows[i].tokens, tokens);
	assert_string_equal(doc.rows[i].engine, engine);
	assert_string_equal(doc.rows[i].error, "none");
}

/* One inference: from row `i` on. */
static size_t check_inference(size_t i, uint64_t tokens)
{
	check_row(i++, "transfer_in", tokens, "auto");
	check_row(i++, "compute", tokens, "auto");
	check_row(i++, "checks", tokens, "auto");
	check_row(i++, "transfer_out", tokens, "auto");
	return i;
}

/* "abc" is fed, then "d"; "e" is the last one and never fed. */
static void engine__one_job__its_events_in_order(void **state)
{
	struct job *j;
	size_t i = 0;

	(void)state;
	start(&fake_ops);
	await_health(HEALTH_READY);
	begin_trace();
	j = submit("{\"prompt\":\"abc\",\"max_new_tokens\":2}");
	check_output(j, "de\n");
	end_trace();
	check_row(i++, "queue", 0, "none");
	for (uint64_t tokens = 3; tokens; tokens = tokens == 3 ? 1 : 0) {
		i = check_inference(i, tokens);
		check_row(i++, "kv_update", tokens, "auto");
		i = check_inference(i, tokens);
		assert_true(doc.rows[i - 1].end <= doc.rows[i - 5].end);
	}
	check_row(i++, "delivery", 2, "none");
	for (size_t k = 0; k < i; k++) {
		assert_int_equal(doc.rows[k].job, job_id(j));
		assert_int_equal(doc.rows[k].model, 0);
		assert_int_equal(doc.rows[k].thread, doc.rows[0].thread);
	}
	check_row(i, "generation_close", 0, "none");
	assert_non_null(strstr(buf_text(&doc.text), "{\"name\":\"device's thread\"}"));
	assert_int_equal(doc.rows[i].job, 0);
	assert_int_equal(doc.n, i + 1);
	assert_int_equal(doc.dropped, 0);
	job_put(j);
}

static void engine__texts_of_a_user__none_in_it(void **state)
{
	struct job *j;

	(void)state;
	start(&fake_ops);
	await_health(HEALTH_READY);
	begin_trace();
	j = submit("{\"prompt\":\"mArKeR\",\"max_new_tokens\":3,\"request_id\":\"mArKeR-1\","
		   "\"session\":\"mArKeR\",\"output\":\"json\",\"stop\":\"mArKeR\"}");
	assert_int_equal(await_end(j), JOB_DONE);
	end_trace();
	trace_find(&doc, 0, "delivery");
	assert_null(strstr(buf_text(&doc.text), "mArKeR"));
	assert_null(strstr(buf_text(&doc.text), "0x"));
	job_put(j);
}

/* The device loses a job: what it met, and the generation opened anew within the recovery. */
static void engine__recovery__has_close_and_open_in_it(void **state)
{
	size_t compute, recovery, closed, opened, delivery;
	struct job *j;

	(void)state;
	start(&fake_ops);
	await_health(HEALTH_READY);
	begin_trace();
	fake_fail("wait", 1, NPU_DEVICE_CRASH);
	j = submit("{\"prompt\":\"abc\",\"max_new_tokens\":2}");
	check_error(j, JOB_FAILED, npu_error_row(NPU_DEVICE_CRASH)->err);
	await_health(HEALTH_READY);
	check_runs("{\"prompt\":\"abc\",\"max_new_tokens\":1}", "d\n");
	end_trace();
	compute = trace_find(&doc, 0, "compute");
	delivery = trace_find(&doc, compute, "delivery");
	recovery = trace_find(&doc, delivery, "recovery");
	closed = trace_find(&doc, recovery, "generation_close");
	opened = trace_find(&doc, closed, "generation_open");
	assert_string_equal(doc.rows[compute].error, "DeviceCrash");
	assert_string_equal(doc.rows[delivery].error, "DeviceCrash");
	assert_int_equal(doc.rows[delivery].job, job_id(j));
	assert_string_equal(doc.rows[recovery].error, "DeviceCrash");
	assert_true(doc.rows[opened].end <= doc.rows[recovery].end);
	assert_int_equal(doc.rows[opened].model, 0);
	assert_string_equal(doc.rows[opened].error, "none");
	job_put(j);
}

static void engine__cancelled_in_the_queue__delivery_without_queue(void **state)
{
	struct job *first, *second;
	size_t i;

	(void)state;
	config.max_active = 1;
	start(&fake_ops);
	await_health(HEALTH_READY);
	begin_trace();
	fake_hold();
	first = submit("{\"prompt\":\"abc\",\"max_new_tokens\":1}");
	fake_await_held();
	second = submit("{\"prompt\":\"ab\"}");
	engine_cancel(r.engine, second);
	fake_let_go();
	check_output(first, "d\n");
	end_trace();
	i = trace_find(&doc, 0, "delivery");
	assert_int_equal(doc.rows[i].job, job_id(second));
	assert_string_equal(doc.rows[i].error, "ECANCELED");
	assert_int_equal(doc.rows[trace_find(&doc, i + 1, "delivery")].job, job_id(first));
	for (i = 0; i < doc.n; i++)
		assert_true(
			strcmp(doc.rows[i].name, "queue") != 0 || doc.rows[i].job == job_id(first));
	job_put(first);
	job_put(second);
}

/* --- threads ---------------------------------------------------------------------------------- */

static _Atomic bool write_on;

static void *write_events(void *role)
{
	trace_thread_is(*(enum trace_thread *)role);
	while (atomic_load(&write_on)) {
		int64_t begin = trace_begin();

		trace_turn(0, 5, 1);
		trace_step(begin, TRACE_COMPUTE, DEVICE_AUTO, 1, NPU_SUCCESS);
		trace_host(begin, TRACE_OPEN, 1, NPU_SUCCESS, 0);
		trace_turn_over();
	}
	return NULL;
}

/* Traces begin, end and are read while two threads write: each is whole. */
static void record__two_threads_write__every_trace_is_whole(void **state)
{
	enum trace_thread roles[] = { TRACE_OF_DEVICE, TRACE_OF_DEADLINES };
	pthread_t threads[2];
	uint64_t all = 0;

	(void)state;
	atomic_store(&write_on, true);
	for (size_t i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, write_events, &roles[i]), 0);
	for (int round = 0; round < 60; round++) {
		assert_int_equal(trace_start(60, 64 << 10, NULL), 0);
		usleep(round % 3 ? 20 : 3000); /* stopped, or full */
		trace_stop();
		trace_read(&doc);
		for (size_t i = 0; i < doc.n; i++)
			assert_true(doc.rows[i].model == 1 || doc.rows[i].model == -1);
		all += doc.n;
		trace_doc_done(&doc);
	}
	atomic_store(&write_on, false);
	for (size_t i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	assert_true(all > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TRACE_TEST(start__out_of_bounds__einval_and_the_last_one_stays),
		TRACE_TEST(start__one_records__ebusy),
		TRACE_TEST(render__none_or_one_that_records__refused),
		TRACE_TEST(hooks__off__nothing),
		TRACE_TEST(record__time_is_over__off_by_itself),
		TRACE_TEST(record__full__off_by_itself_and_the_rest_is_counted),
		TRACE_TEST(look__while_a_large_one_is_rendered__does_not_wait),
		TRACE_TEST(step__turns_of_two_lanes__each_its_job),
		TRACE_TEST(step__turn_of_an_older_trace__nobodys),
		TRACE_TEST(engine__one_job__its_events_in_order),
		TRACE_TEST(engine__texts_of_a_user__none_in_it),
		TRACE_TEST(engine__recovery__has_close_and_open_in_it),
		TRACE_TEST(engine__cancelled_in_the_queue__delivery_without_queue),
		TRACE_TEST(record__two_threads_write__every_trace_is_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
