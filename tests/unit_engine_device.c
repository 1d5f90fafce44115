/* The engine when the device fails, when models are swapped, and when it stops. */
#include "tests/engine_rig.h"

/* --- errors of the device --------------------------------------------------------------------- */

static void busy__for_a_while__tried_again(void **state)
{
	(void)state;
	start(&fake_ops);
	await_health(HEALTH_READY);
	fake_fail("infer", 1, NPU_DEVICE_BUSY);
	fake_fail("infer", 2, NPU_DEVICE_BUSY);
	check_runs("{\"prompt\":\"abc\",\"max_new_tokens\":2}", "de\n");
	assert_int_equal(health_state(&r.health), HEALTH_READY);
}

static void busy__for_ever__job_fails_and_nothing_else(void **state)
{
	(void)state;
	start(&fake_ops);
	await_health(HEALTH_READY);
	fake_fail("infer", 0, NPU_DEVICE_BUSY);
	fake_log_clear();
	check_fails("{\"prompt\":\"abc\"}", -EBUSY);
	assert_int_equal(fake_count("infer"), ENGINE_MAX_TRIES + 1);
	assert_int_equal(fake_count("reset_configuration"), 0);
}

/* InvalidValue is the job's own; its neighbours never notice. */
static void error__of_a_job__others_unharmed(void **state)
{
	struct job *bad, *good;

	(void)state;
	start(&fake_ops);
	await_health(HEALTH_READY);
	fake_hold();
	bad = submit("{\"prompt\":\"abc\"}");
	fake_await_held();
	good = submit("{\"prompt\":\"abc\",\"max_new_tokens\":3}");
	fake_fail("infer", 1, NPU_INVALID_VALUE); /* the first one's kv_update */
	fake_let_go();
	check_error(bad, JOB_FAILED, -EINVAL);
	check_output(good, "def\n");
	assert_int_equal(fake_count("reset_configuration"), 0);
	job_put(bad);
	job_put(good);
}

static void error__of_the_device__all_fail_recovery_ready_again(void **state)
{
	struct job *a, *b, *c;
	struct job_view v;

	(void)state;
	config.max_active = 2;
	start(&fake_ops);
	await_health(HEALTH_READY);
	fake_hold();
	a = submit("{\"prompt\":\"abc\",\"max_new_tokens\":3}");
	fake_await_held();
	b = submit("{\"prompt\":\"abc\",\"max_new_tokens\":3}");
	c = submit("{\"prompt\":\"abc\",\"max_new_tokens\":3}");
	fake_fail("wait", 3, NPU_DEVICE_CRASH); /* a's first two were called or come; then b's */
	fake_let_go();
	check_error(a, JOB_FAILED, -EIO);
	check_error(b, JOB_FAILED, -EIO);
	check_output(c, "def\n"); /* waited for the recovery */
	job_look(c, &v);
	assert_int_equal(v.generation, 2);
	assert_int_equal(health_state(&r.health), HEALTH_READY);
	assert_int_equal(seen().recoveries, 1);
	job_put(a);
	job_put(b);
	job_put(c);
}

static void error__at_every_inference__failed_after_bounded_recoveries(void **state)
{
	struct fault f = FAULT_NONE;

	(void)state;
	start(&fake_ops);
	await_health(HEALTH_READY);
	fake_fail("wait", 0, NPU_DEVICE_CRASH);
	for (int i = 0; i < ENGINE_MAX_RECOVERIES; i++) {
		check_fails("{\"prompt\":\"abc\"}", -EIO);
		await_health(HEALTH_READY);
	}
	check_fails("{\"prompt\":\"abc\"}", -EIO);
	await_health(HEALTH_FAILED);
	assert_int_equal(engine_admit(r.engine, 1, &f), -EIO);
	assert_true(f.reason[0] != '\0');
}

static void recovery__device_busy_for_a_while__tried_again(void **state)
{
	(void)state;
	start(&fake_ops);
	await_health(HEALTH_READY);
	fake_fail("wait", 1, NPU_TIMEOUT);
	fake_fail("configure", 1, NPU_DEVICE_BUSY);
	check_fails("{\"prompt\":\"abc\"}", -ETIMEDOUT);
	check_runs("{\"prompt\":\"abc\",\"max_new_tokens\":1}", "d\n");
	assert_int_equal(health_state(&r.health), HEALTH_READY);
}

static void recovery__fails__waiting_jobs_are_answered(void **state)
{
	struct job *a, *b;

	(void)state;
	config.max_active = 1;
	start(&fake_ops);
	await_health(HEALTH_READY);
	fake_hold();
	a = submit("{\"prompt\":\"abc\"}");
	fake_await_held();
	b = submit("{\"prompt\":\"abc\"}");
	fake_fail("infer", 1, NPU_DEVICE_CRASH);
	fake_fail("create_calbin", 0, NPU_INVALID_CALBIN);
	fake_let_go();
	check_error(a, JOB_FAILED, -EIO);
	check_error(b, JOB_FAILED, -EBADMSG);
	await_health(HEALTH_FAILED);
	job_put(a);
	job_put(b);
}

/* A sequence that was not freed takes room until nothing can run: the generation is opened anew. */
static void kv__free_fails_silently__room_comes_back(void **state)
{
	(void)state;
	start(&fake_ops);
	await_health(HEALTH_READY);
	fake.kv_capacity = 1;
	fake.silent_free = true;
	for (int i = 0; i < 5; i++)
		check_runs("{\"prompt\":\"abc\",\"max_new_tokens\":1}", "d\n");
	assert_true(seen().recoveries >= 4);
}

static void kv__never_any_room__failed_not_spinning(void **state)
{
	(void)state;
	start(&fake_ops);
	await_health(HEALTH_READY);
	fake.kv_capacity = 0;
	check_fails("{\"prompt\":\"abc\"}", -EIO);
	await_health(HEALTH_FAILED);
}

static void kv__allocate_fails_silently__job_fails_and_recovery(void **state)
{
	(void)state;
	start(&fake_ops);
	await_health(HEALTH_READY);
	fake.silent_allocate = true;
	check_fails("{\"prompt\":\"abc\"}", -EIO);
	fake.silent_allocate = false;
	check_runs("{\"prompt\":\"abc\",\"max_new_tokens\":1}", "d\n");
	assert_int_equal(seen().recoveries, 1);
}

static void kv__roll_back_fails_silently__sequence_given_up(void **state)
{
	(void)state;
	start(&fake_ops);
	await_health(HEALTH_READY);
	fake.silent_remove = true;
	fake_fail("infer", 1, NPU_DEVICE_BUSY); /* would be tried again, were the KV known */
	check_fails("{\"prompt\":\"abc\"}", -EBUSY);
	check_runs("{\"prompt\":\"abc\",\"max_new_tokens\":1}", "d\n");
}

/* A device that is not there is waited for: nothing that was accepted is lost. */
static void start__device_missing__waits_for_it_and_says_so(void **state)
{
	struct job *j;

	(void)state;
	fake_fail("create_vdevice", 1, NPU_NO_DEVICE);
	fake_fail("create_vdevice", 2, NPU_NO_DEVICE);
	start(&fake_ops);
	j = submit("{\"prompt\":\"abc\",\"max_new_tokens\":1}");
	await_health(HEALTH_RECOVERING);
	assert_true(seen().action[0] != '\0');
	check_output(j, "d\n");
	job_put(j);
	assert_int_equal(health_state(&r.health), HEALTH_READY);
	assert_int_equal(fake_count("create_vdevice"), 3);
}

static void start__device_never_there__stop_and_deadlines_are_not_delayed(void **state)
{
	struct job *a, *b;

	(void)state;
	fake_fail("create_vdevice", 0, NPU_NO_DEVICE);
	start(&fake_ops);
	a = submit("{\"prompt\":\"abc\",\"deadline_ms\":50}");
	b = submit("{\"prompt\":\"abc\"}");
	check_error(a, JOB_EXPIRED, -ETIMEDOUT);
	engine_stop(r.engine, 0);
	r.stopped = true;
	check_error(b, JOB_FAILED, -ESHUTDOWN);
	job_put(a);
	job_put(b);
}

/* --- several models --------------------------------------------------------------------------- */

static void start_two(void)
{
	fake_store_new(r.store);
	fake_store_add(r.store, "alpha", fake_llm_template, NULL, 0);
	fake_store_add(r.store, "beta", fake_llm_template, NULL, 0);
	start(&fake_store_ops);
	await_health(HEALTH_READY);
}

static void swap__jobs_for_two__both_served_in_bounded_turns(void **state)
{
	struct job *a[200], *b;
	struct job_view v;
	int after = 0;

	(void)state;
	start_two();
	fake_hold();
	a[0] = submit("{\"prompt\":\"abc\",\"max_new_tokens\":1}");
	fake_await_held();
	b = submit("{\"prompt\":\"ab\",\"max_new_tokens\":1,\"model\":\"beta\"}");
	for (int i = 1; i < 200; i++)
		a[i] = submit("{\"prompt\":\"abc\",\"max_new_tokens\":1}");
	fake_let_go();
	check_output(b, "c\n");
	job_look(b, &v);
	assert_int_equal(v.generation, 2);
	for (int i = 0; i < 200; i++) {
		check_output(a[i], "d\n");
		job_look(a[i], &v);
		assert_true(v.generation == 1 || v.generation == 3);
		after += v.generation == 3;
		job_put(a[i]);
	}
	assert_true(after >=
		200 - ENGINE_SWAP_AFTER - (int)config.max_active); /* beta did not wait for all */
	assert_int_equal(fake_count("create_calbin"), 3);
	job_put(b);
}

static void swap__other_model_broken__its_jobs_fail_the_old_one_serves(void **state)
{
	struct job *j;

	(void)state;
	fake.broken_path = "models/beta";
	start_two();
	j = submit("{\"prompt\":\"ab\",\"model\":\"beta\"}");
	check_error(j, JOB_FAILED, -EBADMSG);
	job_put(j);
	check_runs("{\"prompt\":\"abc\",\"max_new_tokens\":1}", "d\n");
	await_health(HEALTH_DEGRADED);
	assert_int_equal(submit_as(1, "{\"prompt\":\"ab\",\"model\":\"beta\"}", &j), -EBADMSG);
	job_put(j);
	check_runs("{\"prompt\":\"abc\",\"model\":\"alpha\",\"max_new_tokens\":1}", "d\n");
}

/* A job that was judged before its model failed, and queued after: the model that serves is not
 * torn down for it. */
static void swap__model_known_to_be_broken__not_tried(void **state)
{
	struct job *j = job_new(1, JOB_FORMAT_TEXT, NULL, 0);
	struct job_order o = { .request = blob_new("ab", 2), .model = 1 };
	struct fault f = FAULT_NONE;

	(void)state;
	fake.broken_path = "models/beta";
	start_two();
	check_fails("{\"prompt\":\"ab\",\"model\":\"beta\"}", -EBADMSG);
	await_health(HEALTH_DEGRADED);
	fake_log_clear();
	assert_int_equal(engine_submit(r.engine, j, &o, &f), 0);
	check_error(j, JOB_FAILED, -EBADMSG);
	assert_int_equal(fake_count("destroy_calbin"), 0);
	blob_put(o.request);
	job_put(j);
}

static void swap__old_one_fails_too__failed_and_all_answered(void **state)
{
	struct job *a, *b, *c;

	(void)state;
	config.max_active = 1;
	start_two();
	fake_hold();
	a = submit("{\"prompt\":\"abc\",\"max_new_tokens\":1}");
	fake_await_held();
	b = submit("{\"prompt\":\"abc\",\"model\":\"beta\"}");
	fake_fail("configure", 0, NPU_INVALID_CONFIGURATION);
	fake_let_go();
	check_output(a, "d\n");
	check_error(b, JOB_FAILED, -EIO);
	await_health(HEALTH_FAILED);
	if (submit_as(1, "{\"prompt\":\"abc\"}", &c) == 0) /* alpha itself has not failed */
		check_error(c, JOB_FAILED, -EIO);
	job_put(a);
	job_put(b);
	job_put(c);
}

static void verify__artifact_damaged__degraded_or_failed(void **state)
{
	char path[128];
	struct job *j;
	FILE *file;

	(void)state;
	fake_store_new(r.store);
	fake_store_add(r.store, "alpha", fake_llm_template, NULL, 0);
	fake_store_add(r.store, "beta", fake_llm_template, NULL, 0);
	snprintf(path, sizeof path, "%s/models/beta/calbin/program.bin", r.store);
	file = fopen(path, "r+");
	fputc('P', file);
	fclose(file);
	start(&fake_store_ops);
	await_health(HEALTH_DEGRADED);
	assert_int_equal(submit_as(1, "{\"prompt\":\"ab\",\"model\":\"beta\"}", &j), -EBADMSG);
	job_put(j);
	check_runs("{\"prompt\":\"abc\",\"max_new_tokens\":1}", "d\n");
}

/* --- the end ---------------------------------------------------------------------------------- */

static void *let_go_later(void *arg)
{
	(void)arg;
	usleep(100000);
	fake_let_go();
	return NULL;
}

static void stop__jobs_queued_and_running__all_answered(void **state)
{
	struct job *j[6];
	pthread_t t;

	(void)state;
	config.max_active = 2;
	start(&fake_ops);
	await_health(HEALTH_READY);
	fake_hold();
	for (int i = 0; i < 6; i++)
		j[i] = submit("{\"prompt\":\"abc\",\"deadline_ms\":600000}");
	fake_await_held();
	pthread_create(&t, NULL, let_go_later, NULL);
	engine_stop(r.engine, 10); /* too short for them */
	r.stopped = true;
	pthread_join(t, NULL);
	for (int i = 0; i < 6; i++) {
		assert_true(job_ended(j[i]));
		check_error(j[i], JOB_FAILED, -ESHUTDOWN);
		job_put(j[i]);
	}
	assert_int_equal(health_state(&r.health), HEALTH_DRAINING);
	assert_int_equal(fake_count("reset_configuration"), 1);
	assert_int_equal(fake_count("shutdown"), 1);
}

static void stop__time_enough__all_done_first(void **state)
{
	struct job *j[20];

	(void)state;
	start(&fake_ops);
	for (int i = 0; i < 20; i++)
		j[i] = submit("{\"prompt\":\"abc\",\"max_new_tokens\":2}");
	engine_stop(r.engine, 20000);
	r.stopped = true;
	for (int i = 0; i < 20; i++) {
		assert_true(job_ended(j[i]));
		check_output(j[i], "de\n");
		job_put(j[i]);
	}
}

static void stop__at_once_after_start__draining_to_the_end(void **state)
{
	(void)state;
	start(&fake_ops);
	engine_stop(r.engine, 0);
	r.stopped = true;
	assert_int_equal(health_state(&r.health), HEALTH_DRAINING);
}

/* --- everything at once ----------------------------------------------------------------------- */

static void *users(void *arg)
{
	static const char *const requests[] = {
		"{\"prompt\":\"abc\",\"max_new_tokens\":2}",
		"{\"prompt\":\"abc\",\"max_new_tokens\":5,\"deadline_ms\":1}",
		"{\"prompt\":\"abc\",\"max_new_tokens\":9,\"priority\":3}",
	};
	unsigned seed = (unsigned)(uintptr_t)arg;

	for (int i = 0; i < 150; i++) {
		struct job *j;
		int err = submit_as(seed, requests[rand_r(&seed) % 3], &j);

		assert_int_equal(err, 0);
		if (rand_r(&seed) % 3 == 0)
			engine_cancel(r.engine, j);
		else if (rand_r(&seed) % 3 == 0)
			await_end(j);
		engine_position(r.engine, j);
		if (rand_r(&seed) % 4 == 0)
			engine_cancel(r.engine, j);
		assert_true(await_end(j) >= JOB_DONE);
		job_put(j);
	}
	return NULL;
}

#define RACES 500

static struct job *shared[RACES];
static pthread_barrier_t both;

static void *race_to_cancel(void *arg)
{
	(void)arg;
	for (int i = 0; i < RACES; i++) {
		pthread_barrier_wait(&both);
		engine_cancel(r.engine, shared[i]);
	}
	return NULL;
}

static void race_submits_and_cancels(void)
{
	struct job_order o = { .request = blob_new("abc", 3), .deadline_ms = 50 };
	pthread_t t;

	pthread_barrier_init(&both, NULL, 2);
	for (int i = 0; i < RACES; i++)
		shared[i] = job_new(1, JOB_FORMAT_TEXT, NULL, 0);
	pthread_create(&t, NULL, race_to_cancel, NULL);
	for (int i = 0; i < RACES; i++) {
		struct fault f = FAULT_NONE;
		int err;

		pthread_barrier_wait(&both);
		err = engine_submit(r.engine, shared[i], &o, &f);
		assert_true(err == 0 || err == -EALREADY);
	}
	pthread_join(t, NULL);
	pthread_barrier_destroy(&both);
	blob_put(o.request);
}

/* A cancel that comes while the job is being submitted: it ends and leaves nothing in the queue. */
static void cancel__while_it_is_submitted__waits_no_more(void **state)
{
	uint64_t queued, running;
	struct job *j;

	(void)state;
	config.max_active = 1;
	start(&fake_ops);
	fake_hold();
	j = submit("{\"prompt\":\"abc\",\"max_new_tokens\":1}");
	fake_await_held();
	race_submits_and_cancels();
	engine_counts(r.engine, &queued, &running);
	assert_int_equal(queued, 0);
	for (int i = 0; i < RACES; i++) {
		assert_int_equal(job_state(shared[i]), JOB_CANCELLED);
		assert_int_equal(engine_position(r.engine, shared[i]), 0);
		job_put(shared[i]);
	}
	fake_let_go();
	check_output(j, "d\n");
	job_put(j);
}

/* The same with the device's thread taking part: no deadline is left behind by a job that is gone.
 */
static void cancel__while_it_is_submitted_and_begun__no_trace(void **state)
{
	(void)state;
	start(&fake_ops);
	await_health(HEALTH_READY);
	race_submits_and_cancels();
	for (int i = 0; i < RACES; i++) {
		assert_true(await_end(shared[i]) >= JOB_DONE);
		job_put(shared[i]);
	}
	usleep(60000); /* past the deadlines */
}

static void everything__at_once__each_job_ends(void **state)
{
	pthread_t t[4];

	(void)state;
	start(&fake_ops);
	fake_fail("wait", 500, NPU_DEVICE_CRASH);
	fake_fail("infer", 200, NPU_DEVICE_BUSY);
	for (uintptr_t i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, users, (void *)(i + 1));
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(busy__for_a_while__tried_again),
		TEST(busy__for_ever__job_fails_and_nothing_else),
		TEST(error__of_a_job__others_unharmed),
		TEST(error__of_the_device__all_fail_recovery_ready_again),
		TEST(error__at_every_inference__failed_after_bounded_recoveries),
		TEST(recovery__device_busy_for_a_while__tried_again),
		TEST(recovery__fails__waiting_jobs_are_answered),
		TEST(kv__free_fails_silently__room_comes_back),
		TEST(kv__never_any_room__failed_not_spinning),
		TEST(kv__allocate_fails_silently__job_fails_and_recovery),
		TEST(kv__roll_back_fails_silently__sequence_given_up),
		TEST(start__device_missing__waits_for_it_and_says_so),
		TEST(start__device_never_there__stop_and_deadlines_are_not_delayed),
		TEST(swap__jobs_for_two__both_served_in_bounded_turns),
		TEST(swap__other_model_broken__its_jobs_fail_the_old_one_serves),
		TEST(swap__model_known_to_be_broken__not_tried),
		TEST(swap__old_one_fails_too__failed_and_all_answered),
		TEST(verify__artifact_damaged__degraded_or_failed),
		TEST(stop__jobs_queued_and_running__all_answered),
		TEST(stop__time_enough__all_done_first),
		TEST(stop__at_once_after_start__draining_to_the_end),
		TEST(cancel__while_it_is_submitted__waits_no_more),
		TEST(cancel__while_it_is_submitted_and_begun__no_trace),
		TEST(everything__at_once__each_job_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
