/* The engine with the recording backend. What text comes out is known from fake_device.h: after L
 * tokens comes the letter 'a' + L % 26, so "abc" is continued "defg...". */
#include "tests/engine_rig.h"

/* --- text ------------------------------------------------------------------------------------- */

static void run__lengths__as_worked_out_by_hand(void **state)
{
	(void)state;
	start(&fake_ops);
	check_runs("{\"prompt\":\"abc\",\"max_new_tokens\":3}", "def\n");
	check_runs("{\"prompt\":\"abc\",\"max_new_tokens\":1}", "d\n");
	check_runs("{\"prompt\":\"abc\"}",
		"defghijklmnop\n"); /* to the context's end: 3 + 13 = 16 */
	check_runs("{\"prompt\":\"abc\",\"max_new_tokens\":13}", "defghijklmnop\n");
	check_runs("{\"prompt\":\"aaaaaaaaaaaaaaa\"}", "p\n");                /* 15 + 1 */
	check_fails("{\"prompt\":\"aaaaaaaaaaaaaaaa\"}", -E2BIG);             /* 16 leave no room */
	check_fails("{\"prompt\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}", -E2BIG); /* 28 do not fit */
	check_fails("{\"prompt\":\"abc\",\"max_new_tokens\":14}", -E2BIG);
	check_runs("{\"tokens\":[97,98]}", "cdefghijklmnop\n");
	check_fails("{\"tokens\":[97,257]}", -EINVAL);
	check_fails("{\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"FP32\",\"data\":[1]}"
		    "]}",
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
	check_runs("{\"prompt\":\"abc\",\"stop\":\"pq\"}",
		"defghijklmnop\n"); /* half a stop string is text */
	check_runs("{\"prompt\":\"abc\",\"echo\":true,\"max_new_tokens\":2}", "abcde\n");
	check_runs("{\"prompt\":\"abc\",\"echo\":true,\"stop\":\"bc\",\"max_new_tokens\":2}",
		"abcde\n");
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
	j = submit("{\"prompt\":\"abc\",\"max_new_tokens\":2,\"output\":\"json\",\"seed\":5,"
		   "\"request_id\":\"q\"}");
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
	const struct fake_file files[] = { { "golden/in.bin", in, 8 },
		{ "golden/out.bin", out, 8 } };
	static const struct tensor_spec x = { "x", DTYPE_FLOAT32, 1, { 2 } },
					y = { "y", DTYPE_FLOAT32, 1, { 2 } };
	static struct model_info doubling = { "double", "graph", &x, &y, 1, 1, { NULL }, 0 };
	char got[1024] = "";
	struct job *j;

	(void)state;
	fake.models = &doubling;
	fake.n_models = 1;
	fake_store_new(r.store);
	fake_store_add(r.store, "double", fake_tensor_template, files, 2);
	start(&fake_store_ops);
	j = submit("{\"inputs\":[{\"name\":\"x\",\"shape\":[2],\"datatype\":\"FP32\",\"data\":[1.5,"
		   "-3]}]}");
	assert_int_equal(await_end(j), JOB_DONE);
	assert_true(job_read(j, JOB_OUT, 0, got, sizeof got - 1) > 0);
	assert_non_null(strstr(got, "-6"));
	assert_non_null(strstr(got, "\"y\""));
	job_put(j);
	check_fails("{\"inputs\":[{\"name\":\"z\",\"shape\":[2],\"datatype\":\"FP32\",\"data\":[1,"
		    "2]}]}",
		-EINVAL);
	check_fails("{\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"FP32\",\"data\":[1]}"
		    "]}",
		-EINVAL);
	check_fails("{\"prompt\":\"x\"}", -EINVAL);
	assert_int_equal(fake_count("infer:double"), 2); /* the golden run and one job */
}

static void run__many_at_once__all_right_and_interleaved(void **state)
{
	struct job *j[40];

	(void)state;
	start(&fake_ops);
	for (int i = 0; i < 40; i++)
		assert_int_equal(submit_as((uint32_t)(i % 3),
					 i % 2 ? "{\"prompt\":\"ab\",\"max_new_tokens\":4}"
					       : "{\"prompt\":\"abcdef\",\"max_new_tokens\":3}",
					 &j[i]),
			0);
	for (int i = 0; i < 40; i++) {
		check_output(j[i], i % 2 ? "cdef\n" : "ghi\n");
		job_put(j[i]);
	}
}

/* --- admission -------------------------------------------------------------------------------- */

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

/* --- cancel and deadline ---------------------------------------------------------------------- */

static void cancel__in_each_state__answered_at_once_others_go_on(void **state)
{
	struct job *writing = job_new(1, JOB_FORMAT_TEXT, NULL, 0), *running, *queued, *other;

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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
