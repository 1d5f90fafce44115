/* What an operator has the device's thread do. */
#include "tests/engine_rig.h"

#define SHORT "{\"prompt\":\"abc\",\"max_new_tokens\":1}"

static struct device_ops ops; /* the recording backend with both resets */
static char at_reset[4096];   /* its log then */
static enum health_state at_wait;
static uint8_t memory[4]; /* of the device, at address 16 */
static uint32_t reg;
static enum npu_error reset_code;
static unsigned ccu_resets, device_resets;
static _Atomic enum npu_error status_code;

static enum npu_error reset_ccu(struct vdevice *d)
{
	(void)d;
	ccu_resets++;
	fake_log(at_reset, sizeof at_reset);
	return reset_code;
}

static enum npu_error reset(struct vdevice *d)
{
	(void)d;
	device_resets++;
	fake_log(at_reset, sizeof at_reset);
	return reset_code;
}

static enum npu_error status(struct vdevice *d)
{
	enum npu_error code = atomic_load(&status_code);

	return code ? code : fake_ops.status(d);
}

static enum npu_error wait_noting_health(struct outbuf *b)
{
	at_wait = health_state(&r.health);
	return fake_store_ops.wait(b);
}

static enum npu_error read_mem(struct vdevice *d, uint64_t address, void *to, size_t size)
{
	(void)d;
	if (address != 16 || size != sizeof memory)
		return NPU_OUT_OF_RANGE;
	memcpy(to, memory, size);
	return NPU_SUCCESS;
}

static enum npu_error write_mem(struct vdevice *d, uint64_t address, const void *from, size_t size)
{
	(void)d;
	if (address != 16 || size != sizeof memory)
		return NPU_OUT_OF_RANGE;
	memcpy(memory, from, size);
	return NPU_SUCCESS;
}

static enum npu_error read_reg(struct vdevice *d, uint64_t address, uint32_t *ret)
{
	(void)d;
	*ret = reg;
	return address == 8 ? NPU_SUCCESS : NPU_OUT_OF_RANGE;
}

static enum npu_error write_reg(struct vdevice *d, uint64_t address, uint32_t value)
{
	(void)d;
	reg = value;
	return address == 8 ? NPU_SUCCESS : NPU_OUT_OF_RANGE;
}

static void ready(void)
{
	ops = fake_ops;
	ops.status = status;
	atomic_store(&status_code, NPU_SUCCESS);
	ops.reset_ccu = reset_ccu;
	ops.reset = reset;
	ops.read_mem = read_mem;
	ops.write_mem = write_mem;
	ops.read_reg = read_reg;
	ops.write_reg = write_reg;
	reset_code = NPU_SUCCESS;
	ccu_resets = device_resets = 0;
	start(&ops);
	await_health(HEALTH_READY);
}

static int operate(enum engine_operation what, bool force)
{
	const struct engine_order o = { .what = what, .force = force };
	struct fault f = FAULT_NONE;
	int err = engine_operate(r.engine, &o, &f);

	assert_int_equal(err, f.err);
	assert_true(!err || (f.reason[0] && f.action[0]));
	return err;
}

static void check_generation(uint64_t want)
{
	struct job *j = submit(SHORT);
	struct job_view v;

	check_output(j, "d\n");
	job_look(j, &v);
	assert_int_equal(v.generation, want);
	job_put(j);
}

static void reset__each_level__acts_verifies_and_serves_anew(void **state)
{
	char log[4096];

	(void)state;
	ready();
	fake_log_clear();
	assert_int_equal(operate(ENGINE_RESET_CCU, false), 0);
	fake_log(log, sizeof log);
	assert_non_null(strstr(log,
		"reset_configuration destroy_calbin status status create_calbin configure "));
	assert_int_equal(ccu_resets, 1);
	check_generation(2);
	assert_int_equal(operate(ENGINE_RESET_DEVICE, false), 0);
	assert_int_equal(device_resets, 1);
	check_generation(3);
	assert_int_equal(operate(ENGINE_RESET_CONFIG, false), 0);
	check_generation(4);
	assert_int_equal(health_state(&r.health), HEALTH_READY);
	assert_int_equal(ccu_resets + device_resets, 2);
}

/* One after the other, whatever is between them. */
static void check_order(const char *log, const char *const *words)
{
	for (const char *at = log; *words; words++) {
		const char *found = strstr(at, *words);

		if (!found)
			fail_msg("no \"%s\" in \"%s\"", *words, at);
		at = found + strlen(*words);
	}
}

static void start_with_golden(void)
{
	static const float in[] = { 1, 2 }, out[] = { 2, 4 };
	const struct fake_file files[] = { { "golden/in.bin", in, 8 },
		{ "golden/out.bin", out, 8 } };
	static const struct tensor_spec x = { "x", DTYPE_FLOAT32, 1, { 2 } },
					y = { "y", DTYPE_FLOAT32, 1, { 2 } };
	static struct model_info doubling = { "double", "graph", &x, &y, 1, 1, { NULL }, 0 };

	fake.models = &doubling;
	fake.n_models = 1;
	fake_store_new(r.store);
	fake_store_add(r.store, "double", fake_tensor_template, files, 2);
	ops = fake_store_ops;
	ops.reset_ccu = reset_ccu;
	ops.reset = reset;
	ops.wait = wait_noting_health;
	reset_code = NPU_SUCCESS;
	ccu_resets = device_resets = 0;
	start(&ops);
	await_health(HEALTH_READY);
}

/* The device contract's way: nothing is on the device, the act, what its status says, the configuration,
 * the golden run, and only then ready. */
static void reset__each_level__drain_act_verify_configure_warm_up_ready(void **state)
{
	static const char *const before[] = { "destroy_input_buf ", "reset_configuration ",
		"destroy_calbin ", NULL };
	static const char *const after[] = { "status ", "create_calbin ", "configure ", "status ",
		"infer:double ", "wait ", NULL };
	static const struct {
		enum engine_operation what;
		bool acts; /* by a call of its own, behind the configuration's end */
	} levels[] = { { ENGINE_RESET_CCU, true }, { ENGINE_RESET_CONFIG, false },
		{ ENGINE_RESET_DEVICE, true } };
	char log[4096];

	(void)state;
	start_with_golden();
	for (size_t i = 0; i < ARRAY_SIZE(levels); i++) {
		fake_log_clear();
		at_reset[0] = '\0';
		at_wait = HEALTH_READY;
		assert_int_equal(operate(levels[i].what, false), 0);
		assert_int_equal(health_state(&r.health), HEALTH_READY);
		assert_int_not_equal(at_wait, HEALTH_READY);
		fake_log(log, sizeof log);
		assert_int_equal(at_reset[0] != '\0', levels[i].acts);
		assert_int_equal(strncmp(log, at_reset, strlen(at_reset)), 0);
		check_order(levels[i].acts ? at_reset : log, before);
		assert_null(strstr(at_reset, "create_calbin"));
		check_order(strstr(log, "destroy_calbin "), after);
		assert_int_equal(fake_count("infer:double"), 1);
	}
	assert_int_equal(ccu_resets, 1);
	assert_int_equal(device_resets, 1);
}

static void reset__fails__failed_until_one_goes_well(void **state)
{
	struct fault f = FAULT_NONE;

	(void)state;
	ready();
	reset_code = NPU_FAILED_SOFT_RESET;
	assert_int_equal(operate(ENGINE_RESET_DEVICE, false), -EIO);
	await_health(HEALTH_FAILED);
	assert_int_equal(seen().last_error, NPU_FAILED_SOFT_RESET);
	assert_true(engine_admit(r.engine, 1, &f) < 0);
	fake_log_clear();
	usleep((ENGINE_LOOK_MS + 200) * 1000); /* nothing that is due brings it back */
	assert_int_equal(fake_count("create_calbin"), 0);
	assert_int_equal(health_state(&r.health), HEALTH_FAILED);
	reset_code = NPU_SUCCESS;
	assert_int_equal(operate(ENGINE_RESET_DEVICE, false), 0);
	check_generation(2);
}

/* Of that level the unload is the act itself. */
static void reset__configuration_is_not_forgotten__failed_until_one_goes_well(void **state)
{
	struct fault f = FAULT_NONE;

	(void)state;
	ready();
	fake_fail("reset_configuration", 1, NPU_FAILED_SOFT_RESET);
	assert_int_equal(operate(ENGINE_RESET_CONFIG, false), -EIO);
	await_health(HEALTH_FAILED);
	assert_true(engine_admit(r.engine, 1, &f) < 0);
	assert_int_equal(operate(ENGINE_RESET_CONFIG, false), 0);
	check_generation(2);
	fake_fail("reset_configuration", 1, NPU_FAILED_SOFT_RESET);
	assert_int_equal(operate(ENGINE_RESET_DEVICE, false), 0); /* which reaches further */
	check_generation(3);
}

/* What was signed is about what was on the device then. */
static void approved__another_generation_is_there__stale_and_nothing_done(void **state)
{
	struct engine_order o = { .what = ENGINE_RESET_DEVICE, .only = true, .generation = 1 };
	struct fault f = FAULT_NONE;

	(void)state;
	ready();
	assert_int_equal(operate(ENGINE_CONFIGURE, false), 0);
	assert_int_equal(engine_operate(r.engine, &o, &f), -ESTALE);
	assert_int_equal(device_resets, 0);
	check_generation(2);
	o.generation = 2;
	assert_int_equal(engine_operate(r.engine, &o, &f), 0);
	check_generation(3);
}

static void reset__backend_has_none__not_supported(void **state)
{
	(void)state;
	start(&fake_ops);
	await_health(HEALTH_READY);
	assert_int_equal(operate(ENGINE_RESET_CCU, false), -EOPNOTSUPP);
	check_generation(1); /* nothing was torn down for it */
}

static void *let_go_later(void *arg)
{
	(void)arg;
	usleep(100000);
	fake_let_go();
	return NULL;
}

static void reset__jobs_running__busy_unless_forced(void **state)
{
	struct job *running, *waiting;
	pthread_t t;

	(void)state;
	config.max_active = 1;
	ready();
	fake_hold();
	running = submit("{\"prompt\":\"abc\",\"max_new_tokens\":5}");
	fake_await_held();
	waiting = submit(SHORT);
	assert_true(engine_busy(r.engine));
	assert_int_equal(operate(ENGINE_RESET_CCU, false), -EBUSY);
	assert_int_equal(ccu_resets, 0);
	pthread_create(&t, NULL, let_go_later, NULL);
	assert_int_equal(operate(ENGINE_RESET_CCU, true), 0);
	pthread_join(t, NULL);
	assert_int_equal(ccu_resets, 1);
	check_error(running, JOB_FAILED, -EIO);
	check_output(waiting, "d\n"); /* nobody's fault: it is not lost */
	job_put(running);
	job_put(waiting);
}

static int access_device(enum engine_operation what, bool registers, uint64_t address, void *bytes)
{
	const struct engine_access a = { registers, address, bytes, 4 };
	const struct engine_order o = { .what = what, .access = &a };
	struct fault f = FAULT_NONE;
	int err = engine_operate(r.engine, &o, &f);

	assert_int_equal(err, f.err);
	return err;
}

static void access__memory_and_registers__as_they_are_and_nothing_is_torn_down(void **state)
{
	uint8_t bytes[4] = { 0x78, 0x56, 0x34, 0x12 }, got[4] = { 0 };

	(void)state;
	ready();
	assert_int_equal(access_device(ENGINE_WRITE, false, 16, bytes), 0);
	assert_int_equal(access_device(ENGINE_READ, false, 16, got), 0);
	assert_memory_equal(got, bytes, 4);
	assert_int_equal(access_device(ENGINE_READ, false, 17, got), -ERANGE);
	assert_int_equal(access_device(ENGINE_WRITE, false, 1, bytes), -ERANGE);
	assert_int_equal(access_device(ENGINE_WRITE, true, 8, bytes), 0);
	assert_int_equal(reg, 0x12345678);
	reg = 0xa0b0c0d0;
	assert_int_equal(access_device(ENGINE_READ, true, 8, got), 0);
	assert_memory_equal(got, "\xd0\xc0\xb0\xa0", 4);
	check_generation(1);
}

static void access__backend_has_none__not_supported(void **state)
{
	uint8_t bytes[4] = { 0 };

	(void)state;
	start(&fake_ops);
	await_health(HEALTH_READY);
	for (int registers = 0; registers < 2; registers++) {
		assert_int_equal(access_device(ENGINE_READ, registers, 16, bytes), -EOPNOTSUPP);
		assert_int_equal(access_device(ENGINE_WRITE, registers, 16, bytes), -EOPNOTSUPP);
	}
	check_generation(1);
}

/* A look comes between two inferences of what runs, which notices nothing; a change waits for none. */
static void access__jobs_running__read_between_and_write_refused(void **state)
{
	uint8_t bytes[4] = { 0 };
	struct job *running;
	pthread_t t;

	(void)state;
	ready();
	fake_hold();
	running = submit("{\"prompt\":\"abc\",\"max_new_tokens\":5}");
	fake_await_held();
	assert_int_equal(access_device(ENGINE_WRITE, false, 16, bytes), -EBUSY);
	pthread_create(&t, NULL, let_go_later, NULL);
	assert_int_equal(access_device(ENGINE_READ, false, 16, bytes), 0);
	pthread_join(t, NULL);
	check_output(running, "defgh\n");
	job_put(running);
	check_generation(1);
}

static void unload__jobs_wait_until_configured(void **state)
{
	struct job *j;

	(void)state;
	ready();
	assert_int_equal(operate(ENGINE_UNLOAD, false), 0);
	await_health(HEALTH_DRAINING);
	assert_int_equal(fake_count("destroy_calbin"), 1);
	j = submit(SHORT);
	usleep((ENGINE_LOOK_MS + 200) * 1000); /* nothing that is due brings it back */
	assert_int_equal(job_state(j), JOB_QUEUED);
	assert_int_equal(operate(ENGINE_CONFIGURE, false), 0);
	check_output(j, "d\n");
	job_put(j);
	check_generation(2);
}

static void drain__what_runs_ends_and_new_jobs_are_refused(void **state)
{
	struct fault f = FAULT_NONE;
	struct job *running;
	pthread_t t;

	(void)state;
	ready();
	fake_hold();
	running = submit("{\"prompt\":\"abc\",\"max_new_tokens\":3}");
	fake_await_held();
	pthread_create(&t, NULL, let_go_later, NULL);
	assert_int_equal(operate(ENGINE_DRAIN, false), 0);
	pthread_join(t, NULL);
	assert_true(job_ended(running)); /* the drain waited for it */
	check_output(running, "def\n");
	job_put(running);
	assert_int_equal(engine_admit(r.engine, 1, &f), -EROFS);
	await_health(HEALTH_DRAINING);
	assert_int_equal(operate(ENGINE_CONFIGURE, false), 0);
	assert_int_equal(engine_admit(r.engine, 1, &f), 0);
	check_generation(2);
}

/* What no error may be left by itself, an operator may. */
static void configure__after_a_stop__serves_again(void **state)
{
	struct fault f = FAULT_NONE;

	(void)state;
	ready();
	fake_fail("wait", 1, NPU_ASSERT);
	check_fails(SHORT, -EIO);
	await_health(HEALTH_FAILED);
	assert_int_equal(operate(ENGINE_CONFIGURE, false), 0);
	await_health(HEALTH_READY);
	assert_int_equal(engine_admit(r.engine, 1, &f), 0);
	check_generation(2);
}

/* A device that is not there is waited for as long as it takes; who commands is not. */
static void operation__while_the_device_is_waited_for__done_or_told(void **state)
{
	const int64_t begin = clock_mono();
	struct job *j;

	(void)state;
	ready();
	atomic_store(&status_code, NPU_DEVICE_UNAVAILABLE);
	fake_fail("wait", 1, NPU_DEVICE_UNAVAILABLE);
	check_fails(SHORT, npu_error_row(NPU_DEVICE_UNAVAILABLE)->err);
	await_health(HEALTH_RECOVERING);
	j = submit(SHORT);
	assert_int_equal(operate(ENGINE_DRAIN, false), 0);
	await_health(HEALTH_DRAINING);
	assert_int_equal(operate(ENGINE_CONFIGURE, false),
		npu_error_row(NPU_DEVICE_UNAVAILABLE)->err);
	await_health(HEALTH_RECOVERING);
	assert_true(clock_mono() - begin < ENGINE_OPERATE_MS * NS_PER_MS / 2);
	assert_false(job_ended(j));
	atomic_store(&status_code, NPU_SUCCESS);
	check_output(j, "d\n");
	job_put(j);
}

static void load__other_model__serves_and_the_hold_is_over(void **state)
{
	struct engine_order o = { .what = ENGINE_LOAD, .model = 1 };
	struct fault f = FAULT_NONE;

	(void)state;
	fake_store_new(r.store);
	fake_store_add(r.store, "alpha", fake_llm_template, NULL, 0);
	fake_store_add(r.store, "beta", fake_llm_template, NULL, 0);
	start(&fake_store_ops);
	await_health(HEALTH_READY);
	assert_int_equal(operate(ENGINE_UNLOAD, false), 0);
	assert_int_equal(engine_operate(r.engine, &o, &f), 0);
	assert_string_equal(seen().model, "beta");
	await_health(HEALTH_READY);
	fake.broken_path = "models/alpha";
	o.model = 0;
	assert_int_equal(engine_operate(r.engine, &o, &f), -EBADMSG);
	assert_string_equal(seen().model, "beta"); /* a failed load returns to the old one */
	await_health(HEALTH_DEGRADED);
}

static void parallel__without_evidence__refused(void **state)
{
	(void)state;
	ready();
	assert_int_equal(operate(ENGINE_PARALLEL_ON, false), -EPERM);
	assert_int_equal(operate(ENGINE_PARALLEL_OFF, false), 0);
	check_generation(1);
}

static void *stop_engine(void *arg)
{
	(void)arg;
	engine_stop(r.engine, 0);
	return NULL;
}

static void stop__operation_waits_for_a_held_device__answered(void **state)
{
	struct job *j;
	pthread_t a, b;

	(void)state;
	ready();
	fake_hold();
	j = submit(SHORT);
	fake_await_held();
	pthread_create(&a, NULL, let_go_later, NULL);
	pthread_create(&b, NULL, stop_engine, NULL);
	assert_int_equal(operate(ENGINE_UNLOAD, false), -ESHUTDOWN);
	pthread_join(a, NULL);
	pthread_join(b, NULL);
	r.stopped = true;
	job_put(j);
}

static void *operate_often(void *arg)
{
	static const enum engine_operation all[] = { ENGINE_CONFIGURE, ENGINE_RESET_CCU,
		ENGINE_RESET_CONFIG, ENGINE_PARALLEL_OFF };
	unsigned seed = (unsigned)(uintptr_t)arg;

	for (int i = 0; i < 60; i++) {
		const struct engine_order o = { .what = all[rand_r(&seed) % 4],
			.force = rand_r(&seed) % 2 };
		struct fault f = FAULT_NONE;
		int err = engine_operate(r.engine, &o, &f);

		assert_true(err == 0 || err == -EBUSY);
	}
	return NULL;
}

/* Two operators and jobs at once: each operation is answered, each job ends, and it serves in the end. */
static void everything__at_once__each_is_answered(void **state)
{
	pthread_t t[2];

	(void)state;
	ready();
	for (uintptr_t i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, operate_often, (void *)(i + 1));
	for (int i = 0; i < 300; i++) {
		struct job *j = submit(SHORT);

		assert_true(await_end(j) == JOB_DONE || job_state(j) == JOB_FAILED);
		job_put(j);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	check_runs(SHORT, "d\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(reset__each_level__acts_verifies_and_serves_anew),
		TEST(reset__each_level__drain_act_verify_configure_warm_up_ready),
		TEST(reset__fails__failed_until_one_goes_well),
		TEST(reset__configuration_is_not_forgotten__failed_until_one_goes_well),
		TEST(approved__another_generation_is_there__stale_and_nothing_done),
		TEST(reset__backend_has_none__not_supported),
		TEST(reset__jobs_running__busy_unless_forced),
		TEST(access__memory_and_registers__as_they_are_and_nothing_is_torn_down),
		TEST(access__backend_has_none__not_supported),
		TEST(access__jobs_running__read_between_and_write_refused),
		TEST(unload__jobs_wait_until_configured),
		TEST(drain__what_runs_ends_and_new_jobs_are_refused),
		TEST(configure__after_a_stop__serves_again),
		TEST(operation__while_the_device_is_waited_for__done_or_told),
		TEST(load__other_model__serves_and_the_hold_is_over),
		TEST(parallel__without_evidence__refused),
		TEST(stop__operation_waits_for_a_held_device__answered),
		TEST(everything__at_once__each_is_answered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
