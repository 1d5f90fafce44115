/* Jobs that launch resident callables, in the engine: beside other jobs, over faults, and when the
 * context ends under them. */
#include "tests/engine_rig.h"

#include "tests/launch_rig.h"

#define V(name) "{\"name\":\"" name "\",\"shape\":[2],\"datatype\":\"FP32\",\"data\":[1,2]}"
#define ON(which) \
	"{\"callable\":" which ",\"inputs\":[" V("x") "," V("y") "," V("z") "],\"scalars\":[2]}"
#define ADD ON("\"add\"")
#define SUM \
	"{\n  \"callable\": \"add\",\n  \"outputs\": [\n    {\n      \"name\": \"z\",\n      " \
	"\"datatype\": \"FP32\",\n      \"shape\": [2],\n      \"data\": [2, 4]\n    }\n  ]\n}\n"
#define FOREVER \
	"{\"callable\":\"add\",\"repeat\":1000000,\"inputs\":[" V("x") "," V("y") "," V( \
		"z") "],\"scalars\":[2]}"
#define TWICE \
	"{\"callable\":\"add\",\"repeat\":2,\"outputs\":[{\"name\":\"z\"}],\"inputs\":[" V( \
		"x") "," V("y") "," V("z") "],\"scalars\":[2]}"
#define PROMPT "{\"prompt\":\"abc\",\"max_new_tokens\":3}"

static char store[32];
static struct callables *t;

static int operate(enum engine_operation what, const char *name)
{
	const struct engine_order order = { .what = what, .name = name };
	struct fault f = FAULT_NONE;

	return engine_operate(r.engine, &order, &f);
}

/* Ready, with "add" registered and kept. */
static void begin_on(const struct device_ops *ops)
{
	start(ops);
	await_health(HEALTH_READY);
	t = engine_callables(r.engine);
	launch_rig_keep(t, "add", "add");
	assert_int_equal(operate(ENGINE_PREPARE, "add"), 0);
}

static void begin(void)
{
	begin_on(launch_rig_ops(&fake_ops));
}

static int up_with_store(void **state)
{
	strcpy(store, "/tmp/npufs-unit-XXXXXX");
	assert_non_null(mkdtemp(store));
	up(state);
	config.store = store;
	return 0;
}

static int down_with_store(void **state)
{
	char command[64];

	memset(&launch_faults, 0, sizeof launch_faults);
	down(state);
	launch_rig_done();
	snprintf(command, sizeof command, "rm -r %s", store);
	assert_int_equal(system(command), 0);
	return 0;
}

static uint64_t in_use(void)
{
	AUTO_BUF struct buf text = BUF_INIT;
	const char *at;

	callables_render(t, &text);
	at = strstr(buf_text(&text), "buffer_bytes: ");
	assert_non_null(at);
	return strtoull(at + strlen("buffer_bytes: "), NULL, 10);
}

/* --- beside others ---------------------------------------------------------------------------- */

static void launch__beside_prompts__both_answered(void **state)
{
	struct job *jobs[16];

	(void)state;
	begin();
	for (int i = 0; i < 16; i++)
		jobs[i] = submit(i % 2 ? PROMPT : ADD);
	for (int i = 0; i < 16; i++) {
		check_output(jobs[i], i % 2 ? "def\n" : SUM);
		job_put(jobs[i]);
	}
	assert_int_equal(in_use(), 0);
}

/* With room for one, neither kind waits for the other's queue to be empty. */
static void launch__one_at_a_time__kinds_take_turns(void **state)
{
	struct job *prompts[8], *launches[8];
	struct job_view first, last;

	(void)state;
	config.max_active = 1;
	begin();
	fake_hold();
	prompts[0] = submit(PROMPT);
	fake_await_held();
	for (int i = 1; i < 8; i++)
		prompts[i] = submit(PROMPT);
	for (int i = 0; i < 8; i++)
		launches[i] = submit(ADD);
	fake_let_go();
	check_output(prompts[7], "def\n");
	check_output(launches[7], SUM);
	job_look(launches[0], &first);
	job_look(prompts[7], &last);
	assert_true(first.ended < last.ended);
	job_look(prompts[1], &first);
	job_look(launches[7], &last);
	assert_true(first.ended < last.ended);
	for (int i = 0; i < 8; i++) {
		check_output(prompts[i], "def\n");
		job_put(prompts[i]);
		job_put(launches[i]);
	}
}

static void prepare__while_a_job_is_on_the_device__not_drained(void **state)
{
	struct job *j;

	(void)state;
	begin();
	j = submit(FOREVER);
	while (job_state(j) != JOB_RUNNING)
		nap();
	launch_rig_keep(t, "more", "softmax");
	assert_int_equal(operate(ENGINE_PREPARE, "more"), 0);
	assert_int_equal(job_state(j), JOB_RUNNING);
	assert_int_equal(operate(ENGINE_CLOSE_CALLABLES, NULL), -EBUSY);
	engine_cancel(r.engine, j);
	job_put(j);
	check_runs(ADD, SUM);
	assert_int_equal(in_use(), 0);
}

/* A callable may be registered for longer than an inference may take; then all is as it was before. */
static void prepare__longer_than_wait_limit__health_as_before(void **state)
{
	(void)state;
	config.wait_limit_ns = 1000 * NS_PER_MS;
	begin();
	launch_rig_copy_ms = 1500;
	launch_rig_keep(t, "more", "softmax");
	assert_int_equal(operate(ENGINE_PREPARE, "more"), 0);
	assert_int_equal(health_state(&r.health), HEALTH_READY);
	assert_int_equal(operate(ENGINE_DRAIN, NULL), 0);
	launch_rig_keep(t, "again", "softmax");
	assert_int_equal(operate(ENGINE_PREPARE, "again"), 0);
	assert_int_equal(health_state(&r.health), HEALTH_DRAINING);
	assert_string_equal(seen().reason, "the operator drained the device; new jobs are refused");
}

/* An image of many children, of which none is called: a launch makes one step and validates all. */
static void keep_library(const char *name)
{
	struct buf spec = BUF_INIT, image = BUF_INIT;
	struct fault f = FAULT_NONE;
	uint64_t number;

	buf_puts(&spec,
		"{\"format\":\"npufs-callable-1\",\"name\":\"library\",\"tensors\":[],"
		"\"scalars\":[],\"orchestration\":[\"mov s0, s1\"],\"children\":[");
	for (int i = 0; i < 100; i++) {
		buf_printf(&spec, "%s{\"id\":%d,\"name\":\"f%d\",\"code\":[\"mov s0, s1\"",
			i ? "," : "", i, i);
		for (int k = 0; k < 100; k++)
			buf_puts(&spec, ",\"fma v0, v1, v2, v3\"");
		buf_puts(&spec, "]}");
	}
	buf_puts(&spec, "]}");
	if (image_build(buf_text(&spec), spec.len, &image, &f))
		fail_msg("%s", f.reason);
	buf_done(&spec);
	assert_int_equal(callables_create(t, name, &number), 0);
	assert_int_equal(callables_commit(t, number, &image), 0);
	assert_int_equal(callables_keep(t, name, &f), 0);
	assert_int_equal(operate(ENGINE_PREPARE, name), 0);
}

static void launch__repeated_image_of_many_children__others_have_their_turns(void **state)
{
	struct job *j;

	(void)state;
	begin();
	keep_library("library");
	j = submit("{\"callable\":\"library\",\"repeat\":1000000}");
	while (job_state(j) != JOB_RUNNING)
		nap();
	check_runs(PROMPT, "def\n");
	engine_cancel(r.engine, j);
	job_put(j);
}

/* What is wrong with the image comes before what is wrong with the context. */
static void prepare__malformed_without_a_context__invalid_argument(void **state)
{
	struct buf bytes = BUF_INIT;
	struct fault f = FAULT_NONE;
	uint64_t number;

	(void)state;
	start(&fake_ops);
	await_health(HEALTH_READY);
	t = engine_callables(r.engine);
	buf_puts(&bytes, "no image");
	assert_int_equal(callables_create(t, "bad", &number), 0);
	assert_int_equal(callables_commit(t, number, &bytes), 0);
	assert_int_equal(callables_keep(t, "bad", &f), 0);
	assert_int_equal(operate(ENGINE_PREPARE, "bad"), -EINVAL);
	launch_rig_keep(t, "add", "add");
	assert_int_equal(operate(ENGINE_PREPARE, "add"), -EOPNOTSUPP);
}

static void launch__without_a_usable_model__refused_as_all_are(void **state)
{
	struct fault f = FAULT_NONE;

	(void)state;
	fake_fail("configure", 0, NPU_INVALID_CONFIGURATION);
	start(launch_rig_ops(&fake_ops));
	await_health(HEALTH_FAILED);
	assert_true(engine_admit(r.engine, 1, &f) < 0);
}

/* It was let in before the model failed, and needs no generation. */
static void launch__when_the_model_has_failed_meanwhile__answered(void **state)
{
	(void)state;
	begin();
	fake_fail("configure", 0, NPU_INVALID_CONFIGURATION);
	assert_true(operate(ENGINE_CONFIGURE, NULL) < 0);
	await_health(HEALTH_FAILED);
	check_runs(ADD, SUM);
}

/* --- faults ----------------------------------------------------------------------------------- */

static void fault__of_the_job__context_stays(void **state)
{
	uint64_t before;

	(void)state;
	begin();
	before = callables_number(t);
	launch_faults = (struct launch_faults){ .code = NPU_INVALID_VALUE, .launches = 1 };
	check_fails(ADD, -EINVAL);
	check_runs(ADD, SUM);
	assert_int_equal(callables_number(t), before);
	assert_int_equal(health_state(&r.health), HEALTH_READY);
	assert_int_equal(in_use(), 0);
}

static void fault__busy_for_a_while__tried_again(void **state)
{
	(void)state;
	begin();
	launch_faults = (struct launch_faults){ .code = NPU_DEVICE_BUSY, .launches = 2 };
	check_runs(ADD, SUM);
	launch_faults = (struct launch_faults){ .code = NPU_DEVICE_BUSY, .copies = 2 };
	check_runs(ADD, SUM); /* with what it was given, not with what was there before */
	launch_faults = (struct launch_faults){ .code = NPU_DEVICE_BUSY, .fetches = 2 };
	check_runs(ADD, SUM);
	launch_faults = (struct launch_faults){ .code = NPU_DEVICE_BUSY, .ends = 1 };
	check_runs(TWICE, SUM);
	launch_faults = (struct launch_faults){ .code = NPU_DEVICE_BUSY, .launches = 1 };
	check_fails(TWICE, -EBUSY); /* nobody knows how much of a replay has been */
	check_runs(TWICE, SUM);
	assert_int_equal(in_use(), 0);
}

static void fault__no_device_memory__the_jobs_own_matter(void **state)
{
	(void)state;
	begin();
	launch_faults = (struct launch_faults){ .code = NPU_MEMORY_ALLOCATION, .copies = 1 };
	check_fails(ADD, -ENOMEM);
	check_runs(ADD, SUM);
	assert_int_equal(seen().recoveries, 0);
}

/* The state of the device is unknown after it: what was resident is registered anew, and the model
 * that serves is proven again. */
static void fault__that_reaches_further__registered_anew(void **state)
{
	uint64_t before;

	(void)state;
	begin();
	before = callables_number(t);
	launch_faults = (struct launch_faults){ .code = NPU_DEVICE_CRASH, .launches = 1 };
	check_fails(ADD, -EIO);
	check_runs(ADD, SUM);
	assert_int_equal(callables_number(t), before + 1);
	assert_int_equal(seen().recoveries, 1);
	check_runs(PROMPT, "def\n");
}

static void fault__at_every_launch__left_poisoned_in_the_end(void **state)
{
	AUTO_BUF struct buf usage = BUF_INIT;
	uint64_t before;

	(void)state;
	begin();
	before = callables_number(t);
	for (int i = 0; i <= ENGINE_MAX_RECOVERIES; i++) {
		launch_faults = (struct launch_faults){ .code = NPU_UNKNOWN, .launches = 1 };
		check_fails(ADD, -EIO);
		check_runs(PROMPT, "def\n"); /* the model's own recoveries count for themselves */
	}
	check_fails(ADD, -ENOTRECOVERABLE);
	assert_int_equal(callables_number(t), before + ENGINE_MAX_RECOVERIES);
	callables_render(t, &usage);
	assert_non_null(strstr(buf_text(&usage), "state: poisoned\n"));
	assert_true(seen().poisoned);
	assert_int_equal(operate(ENGINE_CLOSE_CALLABLES, NULL), 0);
	assert_false(seen().poisoned);
	launch_rig_keep(t, "add", "add");
	assert_int_equal(operate(ENGINE_PREPARE, "add"), 0);
	check_runs(ADD, SUM);
}

static void fault__that_stops_all__the_context_too_until_an_operator_ends_it(void **state)
{
	uint64_t before;
	int ms = 0;

	(void)state;
	begin();
	before = callables_number(t);
	launch_faults = (struct launch_faults){ .code = NPU_ASSERT, .launches = 1 };
	check_fails(ADD, -EIO);
	await_health(HEALTH_FAILED);
	usleep((ENGINE_LOOK_MS + 200) * 1000); /* nothing that is due touches it */
	assert_int_equal(callables_number(t), before);
	assert_true(seen().poisoned);
	assert_int_equal(operate(ENGINE_CONFIGURE, NULL), 0);
	while (callables_number(t) != before + 1 && ms++ < PATIENCE_MS)
		nap();
	check_runs(ADD, SUM);
}

static void prepare__nothing_may_be_submitted__refused(void **state)
{
	uint64_t copies;

	(void)state;
	begin();
	fake_fail("wait", 1, NPU_ASSERT);
	check_fails(PROMPT, -EIO);
	await_health(HEALTH_FAILED);
	copies = launch_rig_copies;
	launch_rig_keep(t, "more", "softmax");
	assert_int_equal(operate(ENGINE_PREPARE, "more"), -EIO);
	assert_int_equal(launch_rig_copies, copies);
	assert_int_equal(operate(ENGINE_CONFIGURE, NULL), 0);
	assert_int_equal(operate(ENGINE_PREPARE, "more"), 0);
}

/* A capture that stays on would take the launches of others, which then never run. */
static void fault__capture_cannot_be_ended__not_left_to_the_next_job(void **state)
{
	uint64_t before;

	(void)state;
	begin();
	before = callables_number(t);
	launch_faults = (struct launch_faults){ .code = NPU_DEVICE_BUSY, .ends = 2 };
	check_fails(TWICE, -ENOTRECOVERABLE);
	check_runs(ADD, SUM);
	check_runs(TWICE, SUM);
	assert_int_equal(callables_number(t), before + 1);
}

/* Nothing is given up to the device: what is there in the end is the new context's. */
static void fault__context_cannot_be_closed__kept_until_a_later_try(void **state)
{
	uint64_t before, allocated;
	int ms = 0;

	(void)state;
	begin();
	before = callables_number(t);
	allocated = memory_soft_allocated(launch_rig_memory);
	launch_faults = (struct launch_faults){ .code = NPU_DEVICE_CRASH,
		.launches = 1,
		.releases = 3 + 4 }; /* the job's, and the first try's */
	check_fails(ADD, -EIO);
	while (callables_number(t) != before + 1 && ms++ < PATIENCE_MS)
		nap();
	check_runs(ADD, SUM);
	assert_int_equal(callables_number(t), before + 1);
	assert_int_equal(launch_faults.releases, 0);
	assert_int_equal(memory_soft_allocated(launch_rig_memory), allocated);
	assert_false(seen().poisoned);
}

/* Those that wait find that it is gone, and leave its tries to who looks after it. */
static void fault__context_cannot_be_closed_for_a_while__not_for_those_to_try_that_wait(
	void **state)
{
	struct job *prompt, *launches[5];
	uint64_t before;
	int ms = 0;

	(void)state;
	config.max_active = 1;
	begin();
	before = callables_number(t);
	fake_hold();
	prompt = submit(PROMPT);
	fake_await_held();
	for (size_t i = 0; i < ARRAY_SIZE(launches); i++)
		launches[i] = submit(ADD);
	launch_faults =
		(struct launch_faults){ .code = NPU_DEVICE_CRASH, .launches = 1, .releases = 1000 };
	fake_let_go();
	for (size_t i = 0; i < ARRAY_SIZE(launches); i++) {
		check_error(launches[i], JOB_FAILED, i ? -EBADFD : -EIO);
		job_put(launches[i]);
	}
	launch_faults.releases = 0;
	job_put(prompt);
	while (callables_number(t) != before + 1 && ms++ < PATIENCE_MS)
		nap();
	check_runs(ADD, SUM);
}

/* --- contexts that end ------------------------------------------------------------------------ */

static void reset__with_residents__same_names_in_another_context(void **state)
{
	uint64_t before;

	(void)state;
	begin();
	before = callables_number(t);
	assert_int_equal(operate(ENGINE_RESET_CONFIG, NULL), 0);
	assert_int_equal(callables_number(t), before + 1);
	check_runs(ADD, SUM);
}

/* A device that is broken until it is reset. */
static enum npu_error reset_that_mends(struct vdevice *d)
{
	(void)d;
	launch_faults.copies = 0;
	return NPU_SUCCESS;
}

static void reset__of_a_device_that_takes_nothing__registered_behind_it(void **state)
{
	static struct device_ops ops;

	(void)state;
	ops = *launch_rig_ops(&fake_ops);
	ops.reset = reset_that_mends;
	begin_on(&ops);
	launch_faults.code = NPU_DEVICE_CRASH;
	launch_faults.copies = 1000;
	assert_int_equal(operate(ENGINE_RESET_DEVICE, NULL), 0);
	check_runs(ADD, SUM);
}

static void id__of_a_context_that_ended__never_launches(void **state)
{
	struct job_order order = { .model = 1, .context = 1, .shape = ANSWER_OWN };
	struct fault f = FAULT_NONE;
	struct job *j;

	(void)state;
	begin();
	assert_int_equal(operate(ENGINE_RESET_CONFIG, NULL), 0);
	j = job_new(1000, JOB_FORMAT_JSON, NULL, 0);
	order.request = blob_new(ON("0"), strlen(ON("0")));
	order.model = engine_find(r.engine, CALLABLES_ALIAS);
	assert_int_equal(engine_submit(r.engine, j, &order, &f), 0);
	check_error(j, JOB_FAILED, -ESTALE);
	blob_put(order.request);
	job_put(j);
}

static void close__then_launch__nothing_there(void **state)
{
	struct job *j;

	(void)state;
	begin();
	assert_int_equal(operate(ENGINE_CLOSE_CALLABLES, NULL), 0);
	assert_int_equal(submit_as(1000, ADD, &j), -ENOENT);
	job_put(j);
}

#define LAUNCH_TEST(name) cmocka_unit_test_setup_teardown(name, up_with_store, down_with_store)

int main(void)
{
	const struct CMUnitTest tests[] = {
		LAUNCH_TEST(launch__beside_prompts__both_answered),
		LAUNCH_TEST(launch__one_at_a_time__kinds_take_turns),
		LAUNCH_TEST(prepare__while_a_job_is_on_the_device__not_drained),
		LAUNCH_TEST(prepare__longer_than_wait_limit__health_as_before),
		LAUNCH_TEST(launch__repeated_image_of_many_children__others_have_their_turns),
		LAUNCH_TEST(prepare__malformed_without_a_context__invalid_argument),
		LAUNCH_TEST(launch__without_a_usable_model__refused_as_all_are),
		LAUNCH_TEST(launch__when_the_model_has_failed_meanwhile__answered),
		LAUNCH_TEST(fault__of_the_job__context_stays),
		LAUNCH_TEST(fault__busy_for_a_while__tried_again),
		LAUNCH_TEST(fault__no_device_memory__the_jobs_own_matter),
		LAUNCH_TEST(fault__that_reaches_further__registered_anew),
		LAUNCH_TEST(fault__at_every_launch__left_poisoned_in_the_end),
		LAUNCH_TEST(fault__that_stops_all__the_context_too_until_an_operator_ends_it),
		LAUNCH_TEST(prepare__nothing_may_be_submitted__refused),
		LAUNCH_TEST(fault__capture_cannot_be_ended__not_left_to_the_next_job),
		LAUNCH_TEST(fault__context_cannot_be_closed__kept_until_a_later_try),
		LAUNCH_TEST(
			fault__context_cannot_be_closed_for_a_while__not_for_those_to_try_that_wait),
		LAUNCH_TEST(reset__with_residents__same_names_in_another_context),
		LAUNCH_TEST(reset__of_a_device_that_takes_nothing__registered_behind_it),
		LAUNCH_TEST(id__of_a_context_that_ended__never_launches),
		LAUNCH_TEST(close__then_launch__nothing_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
