/* An engine with the recording backend, jobs for it, and checks of how they end. */
#ifndef NPUFS_TESTS_ENGINE_RIG_H
#define NPUFS_TESTS_ENGINE_RIG_H

#include "core/engine/engine.h"

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

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/engine/engine_impl.h"
#include "core/job/verdict.h"
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

static inline void start(const struct device_ops *ops)
{
	struct fault f = FAULT_NONE;

	config.ops = ops;
	health_init(&r.health, ops, NULL);
	assert_int_equal(models_new(r.store, ops, &r.models, &f), 0);
	assert_int_equal(engine_new(&config, r.models, &r.health, &r.engine), 0);
}

static inline int up(void **state)
{
	(void)state;
	fake_reset();
	memset(&r, 0, sizeof r);
	config = (struct engine_config){ .device = { .threads = 1 },
		.max_active = 4,
		.queue_limit = 10000,
		.user_limit = 5000,
		.output_bytes = 1 << 20,
		.sessions = { .all = 64, .user = 16 } };
	return 0;
}

static inline void stop(void)
{
	fake_let_go();
	engine_stop(r.engine, 10000);
	r.stopped = true;
}

static inline int down(void **state)
{
	uint64_t queued, running;

	(void)state;
	if (!r.engine) /* a test that made several cleaned up behind each */
		return 0;
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

static inline void nap(void)
{
	usleep(1000);
}

/* What health has at this moment; the engine's threads may be changing it. */
static inline struct health seen(void)
{
	struct health now;

	lock_take(&r.health.lock);
	now = r.health;
	lock_drop(&r.health.lock);
	return now;
}

static inline void await_health(enum health_state s)
{
	int ms = 0;

	while (health_state(&r.health) != s && ms++ < PATIENCE_MS)
		nap();
	assert_string_equal(health_state_name(health_state(&r.health)), health_state_name(s));
}

/* --- jobs ------------------------------------------------------------------------------------- */

static inline int check_model(void *context, const struct request *req, struct fault *f)
{
	return engine_session(context, 1000, req, f);
}

static inline int submit_as(uint32_t uid, const char *json, struct job **ret)
{
	const struct verdict_checker checker = { check_model, r.engine };
	struct blob *b = blob_new(json, strlen(json));
	struct job_order order = { 0 };
	struct fault f = FAULT_NONE;
	int err = verdict_judge(JOB_FORMAT_JSON, b, &checker, &order, &f);

	*ret = job_new(uid, JOB_FORMAT_JSON, NULL, 0);
	order.request = b;
	if (!err)
		err = engine_submit(r.engine, *ret, &order, &f);
	assert_true(err == f.err);
	blob_put(b);
	return err;
}

static inline struct job *submit(const char *json)
{
	struct job *j;
	int err = submit_as(1000, json, &j);

	if (err)
		fail_msg("%s was refused: %d", json, err);
	return j;
}

static inline enum job_state await_end(struct job *j)
{
	int ms = 0;

	while (!job_ended(j) && ms++ < PATIENCE_MS)
		nap();
	return job_state(j);
}

static inline void check_output(struct job *j, const char *want)
{
	char got[4096] = "";

	assert_string_equal(job_state_name(await_end(j)), "done");
	assert_true(job_read(j, JOB_OUT, 0, got, sizeof got - 1) >= 0);
	assert_string_equal(got, want);
}

static inline void check_error(struct job *j, enum job_state state, int err)
{
	char c;

	assert_string_equal(job_state_name(await_end(j)), job_state_name(state));
	assert_int_equal(job_read(j, JOB_OUT, 0, &c, 1), err);
}

static inline void check_runs(const char *json, const char *want)
{
	struct job *j = submit(json);

	check_output(j, want);
	job_put(j);
}

static inline void check_fails(const char *json, int err)
{
	struct job *j;

	if (submit_as(1000, json, &j))
		fail_msg("%s was refused", json);
	check_error(j, JOB_FAILED, err);
	job_put(j);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, up, down)

#endif
