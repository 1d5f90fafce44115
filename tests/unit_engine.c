/* The engine with the recording backend. What text comes out is known from fake_device.h: after L tokens comes the
 * letter 'a' + L % 26, so "abc" is continued "defg...". */
#include "core/engine.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/engine_impl.h"
#include "core/mem.h"
#include "core/verdict.h"
#include "tests/fake_device.h"
#include "tests/fake_store.h"

#define PATIENCE_MS 20000

static struct rig {
	struct health health;
	struct models *models;
	struct engine *engine;
	char store[64];
	bool stopped;
} r;

static struct engine_config config;

static void start(const struct device_ops *ops)
{
	struct fault f = FAULT_NONE;

	config.ops = ops;
	health_init(&r.health, ops);
	assert_int_equal(models_new(r.store, ops, &r.models, &f), 0);
	assert_int_equal(engine_new(&config, r.models, &r.health, &r.engine), 0);
}

static int up(void **state)
{
	(void)state;
	fake_reset();
	memset(&r, 0, sizeof r);
	config = (struct engine_config){ .device = { .threads = 1 }, .max_active = 4, .queue_limit = 10000,
		.user_limit = 5000, .output_bytes = 1 << 20 };
	return 0;
}

static void stop(void)
{
	fake_let_go();
	engine_stop(r.engine, 10000);
	r.stopped = true;
}

static int down(void **state)
{
	uint64_t queued, running;

	(void)state;
	if (!r.stopped)
		stop();
	engine_counts(r.engine, &queued, &running);
	assert_int_equal(queued, 0);
	assert_int_equal(running, 0);
	engine_free(r.engine);
	models_free(r.models);
	health_done(&r.health);
	if (r.store[0])
		fake_store_remove(r.store);
	return 0;
}

static void nap(void)
{
	usleep(1000);
}

static void await_health(enum health_state s)
{
	int ms = 0;

	while (health_state(&r.health) != s && ms++ < PATIENCE_MS)
		nap();
	assert_string_equal(health_state_name(health_state(&r.health)), health_state_name(s));
}

/* --- jobs ------------------------------------------------------------------------------------------------------ */

static int check_model(void *context, const struct request *req, struct fault *f)
{
	return engine_model(context, req, f);
}

static int submit_as(uint32_t uid, const char *json, struct job **ret)
{
	const struct verdict_checker checker = { check_model, r.engine };
	struct blob *b = blob_new(json, strlen(json));
	struct job_order order = { 0 };
	struct fault f = FAULT_NONE;
	int err = verdict_judge(JOB_FORMAT_JSON, b, &checker, &order, &f);

	*ret = job_new(uid, uid, JOB_FORMAT_JSON);
	order.request = b;
	if (!err)
		err = engine_submit(r.engine, *ret, &order, &f);
	assert_true(err == f.err);
	blob_put(b);
	return err;
}

static struct job *submit(const char *json)
{
	struct job *j;
	int err = submit_as(1000, json, &j);

	if (err)
		fail_msg("%s was refused: %d", json, err);
	return j;
}

static enum job_state await_end(struct job *j)
{
	int ms = 0;

	while (!job_ended(j) && ms++ < PATIENCE_MS)
		nap();
	return job_state(j);
}

static void check_output(struct job *j, const char *want)
{
	char got[4096] = "";

	assert_string_equal(job_state_name(await_end(j)), "done");
	assert_true(job_read(j, JOB_OUT, 0, got, sizeof got - 1) >= 0);
	assert_string_equal(got, want);
}

static void check_error(struct job *j, enum job_state state, int err)
{
	char c;

	assert_string_equal(job_state_name(await_end(j)), job_state_name(state));
	assert_int_equal(job_read(j, JOB_OUT, 0, &c, 1), err);
}

static void check_runs(const char *json, const char *want)
{
	struct job *j = submit(json);

	check_output(j, want);
	job_put(j);
}

static void check_fails(const char *json, int err)
{
	struct job *j;

	if (submit_as(1000, json, &j))
		fail_msg("%s was refused", json);
	check_error(j, JOB_FAILED, err);
	job_put(j);
}

/* --- text ------------------------------------------------------------------------------------------------------- */

static void run__lengths__as_worked_out_by_hand(void **state)
{
	(void)state;
	start(&fake_ops);
	check_runs("{\"prompt\":\"abc\",\"max_new_tokens\":3}", "def\n");
	check_runs("{\"prompt\":\"abc\",\"max_new_tokens\":1}", "d\n");
	check_runs("{\"prompt\":\"abc\"}", "defghijklmnop\n"); /* to the context's end: 3 + 13 = 16 */
	check_runs("{\"prompt\":\"abc\",\"max_new_tokens\":13}", "defghijklmnop\n");
	check_runs("{\"prompt\":\"aaaaaaaaaaaaaaa\"}", "p\n");               /* 15 + 1 */
	check_fails("{\"prompt\":\"aaaaaaaaaaaaaaaa\"}", -E2BIG);            /* 16 leave no room */
	check_fails("{\"prompt\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}", -E2BIG); /* 28 do not fit */
	check_fails("{\"prompt\":\"abc\",\"max_new_tokens\":14}", -E2BIG);
	check_runs("{\"tokens\":[97,98]}", "cdefghijklmnop\n");
	check_fails("{\"tokens\":[97,257]}", -EINVAL);
	check_fails("{\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"FP32\",\"data\":[1]}]}",
		-EINVAL);
}

static void run__stops__text_ends_before_them(void **state)
{
	struct job_view v;
	struct job *j;

	(void)state;
	start(&fake_ops);
	check_runs("{\"prompt\":\"abc\",\"stop\":\"fg\"}", "de\n");
	check_runs("{\"prompt\":\"abc\",\"stop\":[\"zz\",\"d\"]}", "\n");
	check_runs("{\"prompt\":\"abc\",\"stop\":\"pq\"}", "defghijklmnop\n"); /* half a stop string is text */
	check_runs("{\"prompt\":\"abc\",\"echo\":true,\"max_new_tokens\":2}", "abcde\n");
	check_runs("{\"prompt\":\"abc\",\"echo\":true,\"stop\":\"bc\",\"max_new_tokens\":2}", "abcde\n");
	fake.stop_len = 5;
	j = submit("{\"prompt\":\"abc\"}");
	check_output(j, "de\n");
	job_look(j, &v);
	assert_string_equal(v.finish_reason, "stop");
	assert_int_equal(v.prompt_tokens, 3);
	assert_int_equal(v.output_tokens, 2);
	assert_int_equal(v.generation, 1);
	job_put(j);
	fake.stop_len = 3;
	check_runs("{\"prompt\":\"abc\"}", "\n"); /* stops at once */
	check_runs("{\"prompt\":\"abc\",\"echo\":true}", "abc\n");
}

static void run__output_json__document(void **state)
{
	struct job *j;
	char got[4096] = "";

	(void)state;
	start(&fake_ops);
	j = submit("{\"prompt\":\"abc\",\"max_new_tokens\":2,\"output\":\"json\",\"seed\":5,\"request_id\":\"q\"}");
	assert_int_equal(await_end(j), JOB_DONE);
	assert_true(job_read(j, JOB_OUT, 0, got, sizeof got - 1) > 0);
	assert_non_null(strstr(got, "\"text\":\t\"de\"") ?: strstr(got, "\"text\": \"de\""));
	assert_non_null(strstr(got, "length"));
	assert_non_null(strstr(got, "\"q\""));
	job_put(j);
}

static void run__output_past_its_limit__efbig(void **state)
{
	(void)state;
	config.output_bytes = 5;
	start(&fake_ops);
	check_runs("{\"prompt\":\"abc\",\"max_new_tokens\":4}", "defg\n");
	check_fails("{\"prompt\":\"abc\",\"max_new_tokens\":5}", -EFBIG);
	check_fails("{\"prompt\":\"abc\",\"max_new_tokens\":1,\"output\":\"json\"}", -EFBIG);
	check_runs("{\"prompt\":\"abc\",\"max_new_tokens\":1}", "d\n");
}

/* Nine tokens in micro-batches of 4, 4 and 1; two answers, of which the second is never fed. */
static void run__prompt_longer_than_a_micro_batch__in_several(void **state)
{
	(void)state;
	start(&fake_ops);
	await_health(HEALTH_READY);
	fake_log_clear();
	check_runs("{\"prompt\":\"abcdefghi\",\"max_new_tokens\":2}", "jk\n");
	assert_int_equal(fake_count("infer:prefill"), 2);
	assert_int_equal(fake_count("infer:decode"), 2);
	assert_int_equal(fake_count("infer:kv_update"), 4);
}

static void run__tensors__output_document(void **state)
{
	static const float in[] = { 1, 2 }, out[] = { 2, 4 };
	const struct fake_file files[] = { { "golden/in.bin", in, 8 }, { "golden/out.bin", out, 8 } };
	static const struct tensor_spec x = { "x", DTYPE_FLOAT32, 1, { 2 } }, y = { "y", DTYPE_FLOAT32, 1, { 2 } };
	static struct model_info doubling = { "double", "graph", &x, &y, 1, 1, { NULL }, 0 };
	char got[1024] = "";
	struct job *j;

	(void)state;
	fake.models = &doubling;
	fake.n_models = 1;
	fake_store_new(r.store);
	fake_store_add(r.store, "double", fake_tensor_template, files, 2);
	start(&fake_store_ops);
	j = submit("{\"inputs\":[{\"name\":\"x\",\"shape\":[2],\"datatype\":\"FP32\",\"data\":[1.5,-3]}]}");
	assert_int_equal(await_end(j), JOB_DONE);
	assert_true(job_read(j, JOB_OUT, 0, got, sizeof got - 1) > 0);
	assert_non_null(strstr(got, "-6"));
	assert_non_null(strstr(got, "\"y\""));
	job_put(j);
	check_fails("{\"inputs\":[{\"name\":\"z\",\"shape\":[2],\"datatype\":\"FP32\",\"data\":[1,2]}]}", -EINVAL);
	check_fails("{\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"FP32\",\"data\":[1]}]}", -EINVAL);
	check_fails("{\"prompt\":\"x\"}", -EINVAL);
	assert_int_equal(fake_count("infer:double"), 2); /* the golden run and one job */
}

static void run__many_at_once__all_right_and_interleaved(void **state)
{
	struct job *j[40];

	(void)state;
	start(&fake_ops);
	for (int i = 0; i < 40; i++)
		assert_int_equal(submit_as((uint32_t)(i % 3), i % 2 ? "{\"prompt\":\"ab\",\"max_new_tokens\":4}"
								       : "{\"prompt\":\"abcdef\",\"max_new_tokens\":3}",
					 &j[i]),
			0);
	for (int i = 0; i < 40; i++) {
		check_output(j[i], i % 2 ? "cdef\n" : "ghi\n");
		job_put(j[i]);
	}
}

/* --- admission --------------------------------------------------------------------------------------------------- */

static void admit__full__eagain_edquot_erofs(void **state)
{
	struct job *j[8], *refused;

	(void)state;
	config.max_active = 1;
	config.queue_limit = 3;
	config.user_limit = 2;
	start(&fake_ops);
	fake_hold();
	assert_int_equal(submit_as(1, "{\"prompt\":\"a\"}", &j[0]), 0);
	fake_await_held(); /* it runs, and counts no more among those that wait */
	assert_int_equal(submit_as(1, "{\"prompt\":\"a\"}", &j[1]), 0);
	assert_int_equal(submit_as(1, "{\"prompt\":\"a\"}", &j[2]), 0);
	assert_int_equal(engine_admit(r.engine, 1, NULL), -EDQUOT);
	assert_int_equal(engine_admit(r.engine, 2, NULL), 0);
	assert_int_equal(submit_as(1, "{\"prompt\":\"a\"}", &refused), -EDQUOT);
	assert_int_equal(job_state(refused), JOB_WRITING); /* not ended by it */
	job_put(refused);
	assert_int_equal(engine_position(r.engine, j[0]), 0);
	assert_int_equal(engine_position(r.engine, j[1]), 1);
	assert_int_equal(engine_position(r.engine, j[2]), 2);
	assert_int_equal(submit_as(2, "{\"prompt\":\"a\"}", &j[3]), 0);
	assert_int_equal(engine_position(r.engine, j[3]), 2);
	assert_int_equal(engine_admit(r.engine, 3, NULL), -EAGAIN);
	engine_cancel(r.engine, j[1]); /* makes room */
	assert_int_equal(engine_admit(r.engine, 1, NULL), 0);
	stop();
	assert_int_equal(engine_admit(r.engine, 1, NULL), -EROFS);
	assert_int_equal(submit_as(1, "{\"prompt\":\"a\"}", &j[4]), -EROFS);
	for (int i = 0; i < 5; i++)
		job_put(j[i]);
}

static void model__unknown__enoent_with_the_nearest(void **state)
{
	struct job *j;

	(void)state;
	start(&fake_ops);
	assert_int_equal(submit_as(1, "{\"prompt\":\"a\",\"model\":\"ecco\"}", &j), -ENOENT);
	job_put(j);
	check_runs("{\"prompt\":\"abc\",\"model\":\"echo\",\"max_new_tokens\":1}", "d\n");
}

/* --- cancel and deadline ------------------------------------------------------------------------------------------- */

static void cancel__in_each_state__answered_at_once_others_go_on(void **state)
{
	struct job *writing = job_new(1, 1, JOB_FORMAT_TEXT), *running, *queued, *other;

	(void)state;
	config.max_active = 1;
	start(&fake_ops);
	engine_cancel(r.engine, writing);
	check_error(writing, JOB_CANCELLED, -ECANCELED);
	fake_hold();
	running = submit("{\"prompt\":\"abc\"}");
	fake_await_held();
	queued = submit("{\"prompt\":\"abc\"}");
	other = submit("{\"prompt\":\"abc\",\"max_new_tokens\":2}");
	engine_cancel(r.engine, running); /* the device hangs: the answer does not wait for it */
	assert_int_equal(job_state(running), JOB_CANCELLED);
	engine_cancel(r.engine, queued);
	assert_int_equal(job_state(queued), JOB_CANCELLED);
	engine_cancel(r.engine, queued);
	fake_let_go();
	check_output(other, "de\n");
	engine_cancel(r.engine, other); /* too late */
	check_output(other, "de\n");
	job_put(writing);
	job_put(running);
	job_put(queued);
	job_put(other);
}

static void deadline__queued_and_running__fires_while_the_device_hangs(void **state)
{
	struct job *running, *queued, *patient;
	int64_t start_time;

	(void)state;
	config.max_active = 1;
	start(&fake_ops);
	fake_hold();
	start_time = clock_mono();
	running = submit("{\"prompt\":\"abc\",\"deadline_ms\":60}");
	fake_await_held();
	queued = submit("{\"prompt\":\"abc\",\"deadline_ms\":20}");
	patient = submit("{\"prompt\":\"abc\",\"max_new_tokens\":2,\"deadline_ms\":60000}");
	check_error(queued, JOB_EXPIRED, -ETIMEDOUT);
	check_error(running, JOB_EXPIRED, -ETIMEDOUT);
	assert_true(clock_mono() - start_time >= 60 * NS_PER_MS);
	assert_true(clock_mono() - start_time < 5 * NS_PER_SEC);
	fake_let_go();
	check_output(patient, "de\n");
	job_put(running);
	job_put(queued);
	job_put(patient);
}

/* --- errors of the device -------------------------------------------------------------------------------------------- */

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
	assert_int_equal(r.health.recoveries, 1);
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
	assert_true(r.health.recoveries >= 4);
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
	assert_int_equal(r.health.recoveries, 1);
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

static void start__device_missing__failed_and_jobs_answered(void **state)
{
	struct job *j;
	int err;

	(void)state;
	fake_fail("create_vdevice", 0, NPU_NO_DEVICE);
	start(&fake_ops);
	err = submit_as(1000, "{\"prompt\":\"abc\"}", &j); /* may come before or after the failure */
	if (!err)
		check_error(j, JOB_FAILED, -ENODEV);
	job_put(j);
	await_health(HEALTH_FAILED);
	assert_true(engine_admit(r.engine, 1, NULL) < 0);
	if (submit_as(1000, "{\"prompt\":\"abc\"}", &j) == 0) /* by a file that was opened before */
		check_error(j, JOB_FAILED, -ENODEV);
	job_put(j);
}

/* --- several models ---------------------------------------------------------------------------------------------------- */

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
	assert_true(after >= 200 - ENGINE_SWAP_AFTER - (int)config.max_active); /* beta did not wait for all */
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

/* A job that was judged before its model failed, and queued after: the model that serves is not torn down for it. */
static void swap__model_known_to_be_broken__not_tried(void **state)
{
	struct job *j = job_new(1, 1, JOB_FORMAT_TEXT);
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

/* --- the end ------------------------------------------------------------------------------------------------------------ */

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

/* --- everything at once ---------------------------------------------------------------------------------------------------- */

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
		shared[i] = job_new(1, 1, JOB_FORMAT_TEXT);
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

/* The same with the device's thread taking part: no deadline is left behind by a job that is gone. */
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

#define TEST(name) cmocka_unit_test_setup_teardown(name, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(run__lengths__as_worked_out_by_hand),
		TEST(run__stops__text_ends_before_them),
		TEST(run__output_json__document),
		TEST(run__output_past_its_limit__efbig),
		TEST(run__prompt_longer_than_a_micro_batch__in_several),
		TEST(run__tensors__output_document),
		TEST(run__many_at_once__all_right_and_interleaved),
		TEST(admit__full__eagain_edquot_erofs),
		TEST(model__unknown__enoent_with_the_nearest),
		TEST(cancel__in_each_state__answered_at_once_others_go_on),
		TEST(deadline__queued_and_running__fires_while_the_device_hangs),
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
		TEST(start__device_missing__failed_and_jobs_answered),
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
