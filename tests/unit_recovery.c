/* Every error of the device at every call that can give it: what becomes of the job, the buffers, the
 * admission, the health and the metrics. What is due is copied by hand from the action column of
 * device contract 9. */
#include "tests/engine_rig.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "core/engine/metrics.h"

enum due { GOES_ON, RETRIES, FAILS_JOB, RELOADS, GIVES_UP, WAITS, STOPS };

/* By value. `passes`: the retry column does not say no. */
static const struct {
	enum due due;
	bool passes;
} contract[NPU_ERROR_COUNT] = {
	[0] = { GOES_ON, false },
	[1] = { RELOADS, true },  /* lower admission */
	[2] = { RELOADS, false }, /* drain */
	[3] = { STOPS, false },   /* stop submitting */
	[4] = { FAILS_JOB, false },
	[5] = { GIVES_UP, false }, /* roll the artifact back: here there is no older one */
	[6] = { WAITS, true },
	[7] = { RELOADS, false },
	[8] = { STOPS, false },
	[9] = { STOPS, false },
	[10] = { GIVES_UP, false },
	[11] = { GIVES_UP, false },
	[12] = { GIVES_UP, false },
	[13] = { RELOADS, true },
	[14] = { FAILS_JOB, false },
	[15] = { RELOADS, false },
	[16] = { RELOADS, false },
	[17] = { RETRIES, true },
	[18] = { WAITS, true },
	[19] = { GIVES_UP, false },
	[20] = { RELOADS, false },
	[21] = { GIVES_UP, false },
	[22] = { GIVES_UP, false },
	[23] = { STOPS, false },
	[24] = { STOPS, false },
	[25] = { STOPS, false },
	[26] = { WAITS, true },
	[27] = { FAILS_JOB, false },
	[28] = { RELOADS, false },
	[29] = { FAILS_JOB, false },
};

#define SHORT "{\"prompt\":\"abc\",\"max_new_tokens\":1}"

static void again(void)
{
	void *state = NULL;

	down(&state);
	up(&state);
}

static uint64_t counted(const char *metric, enum npu_error code)
{
	AUTO_BUF struct buf all = BUF_INIT;
	char line[128];
	const char *at;

	metrics_render(&all);
	snprintf(line, sizeof line, "\n%s{code=\"%s\"} ", metric, npu_error_row(code)->name);
	at = strstr(buf_text(&all), line);
	return at ? strtoull(at + strlen(line), NULL, 10) : 0;
}

#define ERRORS "npufs_device_errors_total"

/* Nothing is taken any more, and for that reason. */
static void check_refused(enum npu_error code)
{
	struct fault f = FAULT_NONE;

	await_health(HEALTH_FAILED);
	assert_int_equal(engine_admit(r.engine, 1, &f), npu_error_row(code)->err);
	assert_true(f.reason[0] && f.action[0]);
	assert_int_equal(seen().last_error, code);
}

static void check_serves(uint64_t generation, uint64_t recoveries)
{
	struct job *j = submit(SHORT);
	struct job_view v;

	check_output(j, "d\n");
	job_look(j, &v);
	assert_int_equal(v.generation, generation);
	job_put(j);
	assert_int_equal(health_state(&r.health), HEALTH_READY);
	assert_int_equal(seen().recoveries, recoveries);
}

/* --- while the device is opened and the model brought up -------------------------------------- */

static void open_once(const char *call, enum npu_error code)
{
	uint64_t before = counted(ERRORS, code);
	struct job *j;
	int err;

	print_message("%s: %s\n", call, npu_error_row(code)->name);
	fake_fail(call, 1, code);
	start(&fake_ops);
	err = submit_as(1000, SHORT, &j); /* may come before or after the failure */
	if (contract[code].passes) {
		assert_int_equal(err, 0);
		check_output(j, "d\n");
		assert_int_equal(health_state(&r.health), HEALTH_READY);
	} else {
		if (!err)
			check_error(j, JOB_FAILED, npu_error_row(code)->err);
		check_refused(code);
		assert_int_equal(fake_count("infer"), 0);
	}
	assert_true(counted(ERRORS, code) > before);
	job_put(j);
	again();
}

static void opening__every_error_at_every_call__passes_or_is_refused(void **state)
{
	static const char *const calls[] = { "create_vdevice", "status", "info", "create_calbin",
		"configure", "create_input_buf", "create_output_buf", "create_kv" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
		for (int code = 1; code < NPU_ERROR_COUNT; code++)
			open_once(calls[i], (enum npu_error)code);
}

/* --- while a job runs ------------------------------------------------------------------------- */

static void run_once(const char *call, enum npu_error code)
{
	enum due due = contract[code].due;
	uint64_t before = counted(ERRORS, code);
	unsigned buffers;
	struct job *j;

	print_message("%s: %s\n", call, npu_error_row(code)->name);
	start(&fake_ops);
	await_health(HEALTH_READY);
	buffers = fake_count("create_input_buf");
	fake_fail(call, 1, code);
	j = submit(SHORT);
	if (due == RETRIES && strcmp(call, "wait") != 0) {
		check_output(j, "d\n");
		due = FAILS_JOB; /* as for all else */
	} else {
		check_error(j, JOB_FAILED, npu_error_row(code)->err);
	}
	if (due == FAILS_JOB || due == RETRIES) {
		check_serves(1, 0);
		assert_int_equal(fake_count("create_input_buf"), buffers);
		assert_int_equal(fake_count("reset_configuration"), 0);
	} else if (due == RELOADS || due == WAITS) {
		check_serves(2, 1);
		assert_int_equal(fake_count("create_input_buf"), 2 * buffers);
		assert_int_equal(fake_count("reset_configuration"), 1);
	} else {
		check_refused(code);
		assert_int_equal(fake_count("create_input_buf"), buffers);
		assert_int_equal(fake_count("reset_configuration"), due == GIVES_UP);
	}
	assert_true(counted(ERRORS, code) > before);
	job_put(j);
	again();
}

static void running__every_error_at_every_call__as_the_table_says(void **state)
{
	static const char *const calls[] = { "slice_input", "slice_output", "set_csr", "infer",
		"wait" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
		for (int code = 1; code < NPU_ERROR_COUNT; code++)
			run_once(calls[i], (enum npu_error)code);
}

/* --- while a generation is unloaded ----------------------------------------------------------- */

static void unload_once(enum npu_error code)
{
	struct job *j;

	print_message("reset_configuration: %s\n", npu_error_row(code)->name);
	start(&fake_ops);
	await_health(HEALTH_READY);
	fake_fail("wait", 1, NPU_TIMEOUT);
	fake_fail("reset_configuration", 1, code);
	j = submit(SHORT);
	check_error(j, JOB_FAILED, -ETIMEDOUT);
	job_put(j);
	if (contract[code].due == STOPS) {
		check_refused(code);
		assert_int_equal(fake_count("configure"), 1);
	} else {
		check_serves(2, 1);
	}
	again();
}

static void unloading__every_error__stops_or_brings_up_again(void **state)
{
	(void)state;
	for (int code = 1; code < NPU_ERROR_COUNT; code++)
		unload_once((enum npu_error)code);
}

/* --- the reactions ---------------------------------------------------------------------------- */

static void memory__short_again_and_again__fewer_at_once_then_given_up(void **state)
{
	static const uint32_t rooms[] = { 4, 2, 1 };

	(void)state;
	config.max_active = 8;
	start(&fake_ops);
	await_health(HEALTH_READY);
	for (size_t i = 0; i < ARRAY_SIZE(rooms); i++) {
		fake_fail("infer", 1, NPU_MEMORY_ALLOCATION);
		check_fails(SHORT, -ENOMEM);
		await_health(HEALTH_READY);
		assert_int_equal(seen().room, rooms[i]);
	}
	fake_fail("infer", 1, NPU_MEMORY_ALLOCATION);
	check_fails(SHORT, -ENOMEM);
	check_refused(NPU_MEMORY_ALLOCATION);
	assert_true(seen().next_try > clock_wall()); /* it may pass */
}

static void memory__enough_again__as_many_at_once_as_before(void **state)
{
	(void)state;
	config.max_active = 2;
	start(&fake_ops);
	await_health(HEALTH_READY);
	fake_fail("infer", 1, NPU_MEMORY_ALLOCATION);
	check_fails(SHORT, -ENOMEM);
	for (int i = 0; i < ENGINE_RAISE_AFTER; i++) {
		assert_int_equal(i ? seen().room : 1, 1);
		check_runs(SHORT, "d\n");
	}
	await_health(HEALTH_READY);
	check_runs(SHORT, "d\n");
	assert_int_equal(seen().room, 2);
}

/* What is kept as evidence is not torn down. */
static void stopped__asked_again__nothing_reaches_the_device(void **state)
{
	struct job *j;

	(void)state;
	start(&fake_ops);
	await_health(HEALTH_READY);
	fake_fail("wait", 1, NPU_ASSERT);
	check_fails(SHORT, -EIO);
	await_health(HEALTH_FAILED);
	fake_log_clear();
	if (submit_as(1000, SHORT, &j) == 0) /* by a file that was opened before */
		check_error(j, JOB_FAILED, -EIO);
	job_put(j);
	usleep(50000);
	assert_int_equal(fake_count("infer") + fake_count("destroy_calbin") + fake_count("status"),
		0);
}

static void quarantine__wait_comes_late__answered_in_time_then_recovered(void **state)
{
	struct job *a, *b;

	(void)state;
	config.max_active = 1;
	config.wait_limit_ns = 50 * NS_PER_MS;
	start(&fake_ops);
	await_health(HEALTH_READY);
	fake_hold();
	a = submit(SHORT);
	b = submit(SHORT);
	fake_await_held();
	fake_log_clear();
	check_error(a, JOB_FAILED, -ETIMEDOUT);
	await_health(HEALTH_RECOVERING);
	assert_true(seen().away_since != 0);
	usleep(100000);
	assert_int_equal(job_state(b), JOB_QUEUED);
	assert_int_equal(fake_count("reset_input") + fake_count("infer") + fake_count("status"), 0);
	fake_let_go();
	check_output(b, "d\n");
	assert_int_equal(seen().away_since, 0);
	assert_int_equal(seen().recoveries, 1);
	assert_int_equal(seen().generation, 2);
	job_put(a);
	job_put(b);
}

static void quarantine__wait_never_comes__deadlines_and_cancels_go_on(void **state)
{
	struct job *a, *b, *c;

	(void)state;
	config.wait_limit_ns = 20 * NS_PER_MS;
	start(&fake_ops);
	await_health(HEALTH_READY);
	fake_hold();
	a = submit(SHORT);
	fake_await_held();
	check_error(a, JOB_FAILED, -ETIMEDOUT);
	b = submit("{\"prompt\":\"abc\",\"deadline_ms\":10}");
	c = submit(SHORT);
	check_error(b, JOB_EXPIRED, -ETIMEDOUT);
	engine_cancel(r.engine, c);
	check_error(c, JOB_CANCELLED, -ECANCELED);
	job_put(a);
	job_put(b);
	job_put(c);
}

static void quarantine__a_second_time__as_the_first(void **state)
{
	(void)state;
	config.wait_limit_ns = 50 * NS_PER_MS;
	start(&fake_ops);
	for (int i = 0; i < 3; i++) {
		struct job *j;

		await_health(HEALTH_READY);
		fake_hold();
		j = submit(SHORT);
		fake_await_held();
		check_error(j, JOB_FAILED, -ETIMEDOUT);
		await_health(HEALTH_RECOVERING);
		usleep(100000); /* nobody watches for long while it is away */
		fake_let_go();
		job_put(j);
	}
	await_health(HEALTH_READY);
}

static bool serves(void)
{
	struct job *j;
	bool good = !submit_as(1000, SHORT, &j) && await_end(j) == JOB_DONE;

	job_put(j);
	return good;
}

/* Where the limit is so short, a busy machine passes it too. */
static void check_serves_in_the_end(void)
{
	int tries = 0;

	while (!serves() && tries++ < 100)
		await_health(HEALTH_READY);
	assert_true(tries <= 100);
	await_health(HEALTH_READY);
}

/* Given up and back at the same moment: whoever comes last, what serves says so. */
static void quarantine__wait_comes_at_the_limit__ready_in_the_end(void **state)
{
	(void)state;
	config.wait_limit_ns = 2 * NS_PER_MS;
	start(&fake_ops);
	await_health(HEALTH_READY);
	for (int i = 0; i < 400; i++) {
		struct job *j;

		check_serves_in_the_end();
		fake_hold();
		j = submit(SHORT);
		fake_await_held();
		usleep(1850 + (unsigned)(i % 50) * 5);
		fake_let_go();
		await_end(j);
		job_put(j);
		await_health(HEALTH_READY);
		for (int ms = 0; seen().away_since && ms < 1000; ms++)
			nap();
		assert_int_equal(seen().away_since, 0);
	}
	check_serves_in_the_end();
}

/* --- what was given up and may pass ----------------------------------------------------------- */

static void start_two(void)
{
	fake_store_new(r.store);
	fake_store_add(r.store, "alpha", fake_llm_template, NULL, 0);
	fake_store_add(r.store, "beta", fake_llm_template, NULL, 0);
	start(&fake_store_ops);
}

static void await_failed(const char *model)
{
	struct model_view v;
	int ms = 0;

	do {
		models_get(r.models, models_find(r.models, model), &v);
		nap();
	} while (v.state != MODEL_FAILED && ms++ < PATIENCE_MS);
	assert_int_equal(v.state, MODEL_FAILED);
}

/* The engine's thread sleeps and sees it at its next look. */
static void cool_down_passes(void)
{
	usleep(200000);
	lock_take(&r.engine->lock);
	assert_true(r.engine->cool_at > clock_mono() && r.engine->cool_at != INT64_MAX);
	r.engine->cool_at = clock_mono();
	lock_drop(&r.engine->lock);
}

static void cool_down__all_models_given_up__all_are_tried_again(void **state)
{
	(void)state;
	start_two();
	await_health(HEALTH_READY);
	fake_fail("configure", 0, NPU_TIMEOUT);
	fake_fail("wait", 1, NPU_DEVICE_CRASH);
	check_fails(SHORT, -EIO);
	await_health(HEALTH_FAILED);
	await_failed("alpha");
	await_failed("beta");
	fake_reset();
	cool_down_passes();
	await_health(HEALTH_READY);
	check_runs(SHORT, "d\n");
	check_runs("{\"model\":\"beta\",\"prompt\":\"abc\",\"max_new_tokens\":1}", "d\n");
}

static enum model_state state_of(const char *model)
{
	struct model_view v;

	models_get(r.models, models_find(r.models, model), &v);
	return v.state;
}

static void touch(const char *file)
{
	char path[128];

	snprintf(path, sizeof path, "%s/models/%s", r.store, file);
	assert_int_equal(utimensat(AT_FDCWD, path, NULL, 0), 0);
}

/* The same artifact put there once more serves at once: the cool-down is not for it. */
static void cool_down__artifact_put_again__serves_at_once_and_for_good(void **state)
{
	(void)state;
	start_two();
	await_health(HEALTH_READY);
	fake_fail("configure", 0, NPU_TIMEOUT);
	fake_fail("wait", 1, NPU_DEVICE_CRASH);
	check_fails(SHORT, -EIO);
	await_health(HEALTH_FAILED);
	await_failed("beta");
	fake_reset();
	touch("alpha/manifest.json");
	touch("beta/manifest.json");
	await_health(HEALTH_READY);
	assert_int_equal(seen().next_try, 0);
	usleep(200000);
	lock_take(&r.engine->lock);
	assert_true(r.engine->cool_at == INT64_MAX);
	lock_drop(&r.engine->lock);
	check_runs(SHORT, "d\n");
	assert_int_equal(state_of("alpha"), MODEL_READY);
	assert_int_equal(state_of("beta"), MODEL_AVAILABLE);
}

/* One that is damaged for good does not keep another from its next try. */
static void cool_down__default_is_given_up_for_good__the_other_serves(void **state)
{
	(void)state;
	start_two();
	await_health(HEALTH_READY);
	fake_fail("wait", 1, NPU_INVALID_CONFIGURATION);
	fake_fail("configure", 0, NPU_TIMEOUT);
	check_fails(SHORT, -EIO);
	await_health(HEALTH_FAILED);
	await_failed("beta");
	fake_reset();
	cool_down_passes();
	await_health(HEALTH_DEGRADED);
	check_runs("{\"model\":\"beta\",\"prompt\":\"abc\",\"max_new_tokens\":1}", "d\n");
	assert_int_equal(state_of("alpha"), MODEL_FAILED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(opening__every_error_at_every_call__passes_or_is_refused),
		TEST(running__every_error_at_every_call__as_the_table_says),
		TEST(unloading__every_error__stops_or_brings_up_again),
		TEST(memory__short_again_and_again__fewer_at_once_then_given_up),
		TEST(memory__enough_again__as_many_at_once_as_before),
		TEST(stopped__asked_again__nothing_reaches_the_device),
		TEST(quarantine__wait_comes_late__answered_in_time_then_recovered),
		TEST(quarantine__wait_never_comes__deadlines_and_cancels_go_on),
		TEST(quarantine__a_second_time__as_the_first),
		TEST(quarantine__wait_comes_at_the_limit__ready_in_the_end),
		TEST(cool_down__all_models_given_up__all_are_tried_again),
		TEST(cool_down__artifact_put_again__serves_at_once_and_for_good),
		TEST(cool_down__default_is_given_up_for_good__the_other_serves),
	};

	metrics_start("test");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
