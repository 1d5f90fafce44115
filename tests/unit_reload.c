/* Artifacts that change under an engine that runs, and golden runs while it idles. */
#include "tests/engine_rig.h"

#include <sys/stat.h>

#include "core/engine/metrics.h"

#define SHORT "{\"prompt\":\"abc\",\"max_new_tokens\":1}"

static char first_sha256[SHA256_HEX_SIZE];

static void start_one(void)
{
	struct model_view v;

	fake_store_new(r.store);
	fake_store_add(r.store, "alpha", fake_llm_template, NULL, 0);
	start(&fake_store_ops);
	await_health(HEALTH_READY);
	models_get(r.models, 0, &v);
	strcpy(first_sha256, v.sha256);
}

static void in_store(const char *name, char ret[128])
{
	snprintf(ret, 128, "%s/%s", r.store, name);
}

static void move(const char *from, const char *to)
{
	char a[128], b[128];

	in_store(from, a);
	in_store(to, b);
	assert_int_equal(rename(a, b), 0);
}

/* As an operator installs a new version: made beside, then two renames. */
static void install(const char *description)
{
	char template[4096];
	const char *at = strstr(fake_llm_template, "for tests");

	snprintf(template, sizeof template, "%.*s%s%s", (int)(at - fake_llm_template),
		fake_llm_template, description, at + strlen("for tests"));
	fake_store_add(r.store, "next", template, NULL, 0);
	move("models/alpha", "alpha-before");
	move("models/next", "models/alpha");
}

static void damage(const char *name)
{
	char path[128];
	FILE *file;

	in_store(name, path);
	file = fopen(path, "r+");
	assert_non_null(file);
	fputc('P', file);
	fclose(file);
}

static bool refused(void)
{
	struct model_view v;

	models_get(r.models, 0, &v);
	return v.refused.err != 0;
}

static bool newer(void)
{
	struct model_view v;

	models_get(r.models, 0, &v);
	return v.state == MODEL_READY && strcmp(v.sha256, first_sha256) != 0;
}

static void await(bool (*what)(void))
{
	int ms = 0;

	while (!what() && ms++ < PATIENCE_MS)
		nap();
	assert_true(what());
}

static void check_generation(uint64_t generation)
{
	struct job *j = submit(SHORT);
	struct job_view v;

	check_output(j, "d\n");
	job_look(j, &v);
	assert_int_equal(v.generation, generation);
	job_put(j);
}

static void changed__good_version__next_jobs_use_it(void **state)
{
	(void)state;
	start_one();
	check_generation(1);
	install("newer");
	await(newer);
	check_generation(2);
	assert_int_equal(health_state(&r.health), HEALTH_READY);
	assert_int_equal(seen().recoveries, 0);
}

static void changed__while_jobs_run__they_end_on_the_old_one(void **state)
{
	struct job *running, *waiting;
	struct job_view v;

	(void)state;
	config.max_active = 1;
	start_one();
	fake_hold();
	running = submit("{\"prompt\":\"abc\",\"max_new_tokens\":5}");
	fake_await_held();
	install("newer");
	waiting = submit(SHORT);
	usleep((ENGINE_LOOK_MS + 100) * 1000);
	fake_let_go();
	check_output(running, "defgh\n");
	job_look(running, &v);
	assert_int_equal(v.generation, 1);
	check_output(waiting, "d\n");
	await(newer);
	job_put(running);
	job_put(waiting);
}

static void changed__damaged_version__old_one_serves_and_health_says_why(void **state)
{
	(void)state;
	start_one();
	install("newer");
	damage("models/alpha/calbin/program.bin");
	await(refused);
	await_health(HEALTH_DEGRADED);
	assert_non_null(strstr(seen().reason, "alpha"));
	check_generation(1);
	assert_int_equal(fake_count("create_calbin"), 1); /* it never saw the device */
}

/* The one that serves is where its folder was moved to, and is brought up from there. */
static void changed__damaged_version__old_one_survives_a_recovery(void **state)
{
	(void)state;
	start_one();
	fake_store_add(r.store, "next", fake_llm_template, NULL, 0);
	damage("models/next/calbin/program.bin");
	move("models/alpha", "alpha-before");
	move("models/next", "models/alpha");
	await(refused);
	fake_fail("wait", 1, NPU_TIMEOUT);
	check_fails(SHORT, -ETIMEDOUT);
	check_generation(2);
	await_health(HEALTH_DEGRADED);
}

/* Before anybody has looked at the new one. */
static void changed__recovery_at_once__no_job_lost_and_the_new_one_taken(void **state)
{
	struct job *j;

	(void)state;
	start_one();
	fake_hold();
	j = submit(SHORT);
	fake_await_held();
	fake_fail("wait", 1, NPU_TIMEOUT);
	install("newer");
	fake_let_go();
	check_error(j, JOB_FAILED, -ETIMEDOUT);
	job_put(j);
	check_generation(2);
	await(newer);
	check_generation(3);
}

/* A folder that was removed is not used; the same files are there under the name. */
static void changed__removed_and_put_back__survives_a_recovery(void **state)
{
	char command[300];

	(void)state;
	start_one();
	snprintf(command, sizeof command,
		"cd %s && cp -a models/alpha kept && rm -r models/alpha && mv kept models/alpha",
		r.store);
	assert_int_equal(system(command), 0);
	fake_fail("wait", 1, NPU_TIMEOUT);
	check_fails(SHORT, -ETIMEDOUT);
	check_generation(2);
}

/* The same artifact installed once more: the folder that it was in before may go. */
static void changed__the_same_put_there__old_folder_is_not_needed(void **state)
{
	(void)state;
	start_one();
	install("for tests");
	usleep((ENGINE_LOOK_MS + 500) * 1000);
	damage("alpha-before/calbin/program.bin");
	fake_fail("wait", 1, NPU_TIMEOUT);
	check_fails(SHORT, -ETIMEDOUT);
	check_generation(2);
	assert_false(newer());
}

/* It is signed and whole, and the device does not take it. */
static void changed__version_does_not_come_up__rolled_back_and_no_job_lost(void **state)
{
	struct job *j[20];

	(void)state;
	start_one();
	fake.broken_path = "models/alpha"; /* the version before is reached otherwise */
	install("newer");
	for (int i = 0; i < 20; i++) {
		j[i] = submit(SHORT);
		usleep((useconds_t)(ENGINE_LOOK_MS * 1000 / 15));
	}
	await(refused);
	for (int i = 0; i < 20; i++) {
		check_output(j[i], "d\n");
		job_put(j[i]);
	}
	await_health(HEALTH_DEGRADED);
	check_generation(3);
}

static void changed__failed_model_repaired__serves_again(void **state)
{
	(void)state;
	fake_store_new(r.store);
	fake_store_add(r.store, "alpha", fake_llm_template, NULL, 0);
	damage("models/alpha/calbin/program.bin");
	start(&fake_store_ops);
	await_health(HEALTH_FAILED);
	fake_store_add(r.store, "next", fake_llm_template, NULL, 0);
	move("models/alpha", "alpha-before");
	move("models/next", "models/alpha");
	await_health(HEALTH_READY);
	check_generation(1);
}

/* A job finds that the artifact is at fault, and there is a version before. */
static void roll_back__error_of_the_artifact_at_work__version_before_serves(void **state)
{
	(void)state;
	start_one();
	install("newer");
	await(newer);
	fake_fail("wait", 1, NPU_INVALID_CONFIGURATION);
	check_fails(SHORT, -EIO);
	check_generation(3);
	assert_false(newer());
	await_health(HEALTH_DEGRADED);
}

/* --- golden runs ------------------------------------------------------------------------------ */

static const struct tensor_spec x = { "x", DTYPE_FLOAT32, 1, { 2 } },
				y = { "y", DTYPE_FLOAT32, 1, { 2 } };
static struct model_info doubling = { "double", "graph", &x, &y, 1, 1, { NULL }, 0 };

static void begin_golden(int64_t every_ms)
{
	static const float in[2] = { 1, 2 }, out[2] = { 2, 4 };
	const struct fake_file files[] = { { "golden/in.bin", in, 8 },
		{ "golden/out.bin", out, 8 } };

	config.golden_ns = every_ms * NS_PER_MS;
	fake.models = &doubling;
	fake.n_models = 1;
	fake_store_new(r.store);
	fake_store_add(r.store, "double", fake_tensor_template, files, 2);
	start(&fake_store_ops);
}

static void start_golden(int64_t every_ms)
{
	begin_golden(every_ms);
	await_health(HEALTH_READY);
}

static bool ran_five(void)
{
	return fake_count("infer") >= 5;
}

/* Health as it is now, while the engine's thread goes on. */
static struct health health_now(void)
{
	struct health h;

	lock_take(&r.health.lock);
	h = r.health;
	lock_drop(&r.health.lock);
	return h;
}

static void golden__idle__runs_at_the_interval(void **state)
{
	int64_t first;

	(void)state;
	start_golden(10);
	first = health_now().last_golden;
	await(ran_five);
	assert_true(health_now().last_golden > first);
	assert_int_equal(health_state(&r.health), HEALTH_READY);
	assert_int_equal(health_now().recoveries, 0);
}

static void golden__no_interval__never_again(void **state)
{
	(void)state;
	start_golden(0);
	usleep(100000);
	assert_int_equal(fake_count("infer"), 1);
}

static bool recovered(void)
{
	return health_now().recoveries == 1 && health_is_ready(&r.health);
}

static bool failed(void)
{
	return health_state(&r.health) == HEALTH_FAILED;
}

/* What computes wrongly once is brought up again; for ever, it serves nothing. Status() is content
 * all the time. */
static void golden__other_output__recovers_or_fails(void **state)
{
	(void)state;
	start_golden(10);
	fake_fail("wait", 1, NPU_TIMEOUT);
	await(recovered);
	fake.poison_bits = 0x3f800000; /* 1.0 */
	fake.poison = true;
	await(failed);
	assert_non_null(strstr(health_now().reason, "golden"));
}

/* One that does not come back is told as such from the first on. */
static void golden__hangs_as_the_model_is_opened__quarantine_until_it_is_back(void **state)
{
	(void)state;
	config.wait_limit_ns = 50 * NS_PER_MS;
	fake_hold();
	begin_golden(0);
	await_health(HEALTH_RECOVERING);
	assert_true(health_now().away_since != 0);
	fake_let_go();
	await_health(HEALTH_READY);
	assert_int_equal(health_now().away_since, 0);
	assert_int_equal(health_now().generation, 2); /* what came late counts for nothing */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(changed__good_version__next_jobs_use_it),
		TEST(changed__while_jobs_run__they_end_on_the_old_one),
		TEST(changed__damaged_version__old_one_serves_and_health_says_why),
		TEST(changed__damaged_version__old_one_survives_a_recovery),
		TEST(changed__recovery_at_once__no_job_lost_and_the_new_one_taken),
		TEST(changed__removed_and_put_back__survives_a_recovery),
		TEST(changed__the_same_put_there__old_folder_is_not_needed),
		TEST(changed__version_does_not_come_up__rolled_back_and_no_job_lost),
		TEST(changed__failed_model_repaired__serves_again),
		TEST(roll_back__error_of_the_artifact_at_work__version_before_serves),
		TEST(golden__idle__runs_at_the_interval),
		TEST(golden__no_interval__never_again),
		TEST(golden__other_output__recovers_or_fails),
		TEST(golden__hangs_as_the_model_is_opened__quarantine_until_it_is_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
