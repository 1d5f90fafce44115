/* The same failures as a job sees them, through the engine: who is answered how, and that the device
 * is recovered without anyone's help (device contract 9). The engine opens a device of its own. */
#include "core/matrix/matrix_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/blob.h"
#include "core/base/clock.h"
#include "core/base/json.h"
#include "core/base/mem.h"
#include "core/engine/engine.h"
#include "core/job/verdict.h"

#define PATIENCE_MS 30000
#define DEADLINE_MS 200
#define DRAIN_MS    10000

struct running {
	struct health health;
	struct models *models;
	struct engine *engine;
};

static bool wait_for(bool (*done)(void *), void *what)
{
	const struct timespec nap = { .tv_nsec = NS_PER_MS };
	int64_t end = clock_mono() + PATIENCE_MS * NS_PER_MS;

	while (!done(what) && clock_mono() < end)
		nanosleep(&nap, NULL);
	return done(what);
}

static bool settled(void *r)
{
	enum health_state s = health_state(&((struct running *)r)->health);

	return s == HEALTH_READY || s == HEALTH_DEGRADED || s == HEALTH_FAILED;
}

static bool ended(void *j)
{
	return job_ended(j);
}

static int start(struct matrix *m, struct running *r, struct fault *f)
{
	const struct engine_config config = {
		.ops = m->ops,
		.device = m->config->device,
		.max_active = 1,
		.queue_limit = 16,
		.user_limit = 16,
		.output_bytes = 1 << 20,
		.batch_bytes = 1 << 20,
		.file_bytes = 1 << 20,
	};
	int err = models_new(m->config->store, m->ops, &r->models, f);

	if (!err && m->alias)
		err = models_set_default(r->models, m->alias, f);
	if (err) {
		models_free(take_ptr(r->models));
		return err;
	}
	health_init(&r->health, m->ops, models_alias(r->models, models_default(r->models)));
	err = engine_new(&config, r->models, &r->health, &r->engine);
	if (!err && !(wait_for(settled, r) && health_is_ready(&r->health)))
		err = -EIO;
	return err;
}

/* An engine that does not stop is left as it is: its thread still uses what would be freed. */
static void stop(struct matrix *m, struct running *r)
{
	device_layer_release();
	if (r->engine && engine_stop(r->engine, DRAIN_MS)) {
		matrix_judge(m, false, "the engine does not stop");
		return;
	}
	engine_free(r->engine);
	if (r->models) {
		models_free(r->models);
		health_done(&r->health);
	}
	free(r);
}

/* --- jobs ------------------------------------------------------------------------------------- */

static int check_model(void *engine, const struct request *req, struct fault *f)
{
	return engine_model(engine, req, f);
}

/* The manifest's example, for this model, and with a deadline. */
static int request_text(const struct matrix *m, int64_t deadline_ms, struct buf *out)
{
	struct json_value *root;
	int err = json_parse(m->manifest->example, strlen(m->manifest->example), &root, NULL);

	if (err)
		return err;
	json_remove(root, "model");
	json_remove(root, "deadline_ms");
	if (deadline_ms)
		json_add_int(root, "deadline_ms", deadline_ms);
	err = json_render(root, false, out);
	json_free(root);
	return err;
}

/* The job, ended or not; NULL: refused. */
static struct job *run_job(struct matrix *m, struct running *r, int64_t deadline_ms)
{
	const struct verdict_checker checker = { check_model, r->engine };
	AUTO_BUF struct buf text = BUF_INIT;
	struct job_order order = { 0 };
	struct fault f = FAULT_NONE;
	struct job *j = job_new(0, JOB_FORMAT_JSON, NULL, 0);
	int err = j ? request_text(m, deadline_ms, &text) : -ENOMEM;

	struct blob *content = err ? NULL : blob_new(text.data, text.len);

	if (!err)
		err = verdict_judge(JOB_FORMAT_JSON, content, &checker, &order, &f);
	order.request = content;
	if (!err)
		err = engine_submit(r->engine, j, &order, &f);
	blob_put(content);
	if (err) {
		matrix_judge(m, false, "the job was refused: %s", f.reason);
		job_put(j);
		return NULL;
	}
	wait_for(ended, j);
	return j;
}

static void judge_job(struct matrix *m, struct job *j, enum job_state want, const char *which)
{
	struct job_view v = { .state = JOB_WRITING };

	if (j)
		job_look(j, &v);
	matrix_judge(m, j && v.state == want, "%s: %s%s%s", which,
		j ? job_state_name(v.state) : "refused", v.fault.err ? ", " : "", v.fault.reason);
}

static uint64_t recoveries(struct running *r)
{
	uint64_t n;

	lock_take(&r->health.lock);
	n = r->health.recoveries;
	lock_drop(&r->health.lock);
	return n;
}

/* What is planted when the engine is ready, how the job ends, and what it takes to go on. */
static const struct trial {
	const char *fault;
	int64_t deadline_ms;
	enum job_state state;
	uint64_t recoveries;
} trials[] = {
	{ NULL, 0, JOB_DONE, 0 },
	{ "infer@1:DeviceBusy/infer@2:DeviceBusy", 0, JOB_DONE, 0 },
	{ "infer@1:DeviceUnavailable", 0, JOB_FAILED, 1 },
	{ "Wait@1:Timeout", 0, JOB_FAILED, 1 },
	{ "Wait@1:DeviceCrash", 0, JOB_FAILED, 1 },
	{ "GetStatus@1:ccu", 0, JOB_FAILED, 1 },
	{ "Wait@1:hang", DEADLINE_MS, JOB_EXPIRED, 0 },
};

enum { NOTHING, BUSY, UNAVAILABLE, TIMEOUT, CRASH, CCU, HANG };

static void judge_trial(struct matrix *m, struct running *r, const struct trial *t)
{
	int64_t start_ns = clock_mono();
	struct job *first, *next = NULL;

	matrix_plant(t->fault);
	first = run_job(m, r, t->deadline_ms);
	judge_job(m, first, t->state, "the job");
	if (t->deadline_ms)
		matrix_judge(m, clock_mono() - start_ns < PATIENCE_MS / 2 * NS_PER_MS,
			"the deadline's answer came late");
	device_layer_release();
	if (first)
		next = run_job(m, r, 0);
	judge_job(m, next, JOB_DONE, "the next job");
	matrix_judge(m, recoveries(r) == t->recoveries, "%s, %llu recoveries, the next one %s",
		first ? job_state_name(job_state(first)) : "refused",
		(unsigned long long)recoveries(r), next ? job_state_name(job_state(next)) : "none");
	job_put(first);
	job_put(next);
}

static void trial(struct matrix *m, int arg)
{
	struct fault f = FAULT_NONE;
	struct running *r = calloc(1, sizeof *r);
	int err = r ? start(m, r, &f) : -ENOMEM;

	if (err)
		matrix_judge(m, false, "the engine does not start: %s",
			f.reason[0] ? f.reason : fault_errno_name(err));
	else
		judge_trial(m, r, &trials[arg]);
	matrix_plant(NULL);
	if (r)
		stop(m, r);
}

static const struct matrix_case cases[] = {
	{ "a job", FOR_ANY, NEEDS_NOTHING, trial, NOTHING },
	{ "a job on a busy device", FOR_ANY, NEEDS_NOTHING, trial, BUSY },
	{ "a job whose submit finds no device", FOR_ANY, NEEDS_NOTHING, trial, UNAVAILABLE },
	{ "a job whose Wait times out", FOR_ANY, NEEDS_NOTHING, trial, TIMEOUT },
	{ "a job whose Wait crashes", FOR_ANY, NEEDS_NOTHING, trial, CRASH },
	{ "a job with a CCU exception", FOR_ANY, NEEDS_NOTHING, trial, CCU },
	{ "a job whose Wait hangs", FOR_ANY, NEEDS_NOTHING, trial, HANG },
};

const struct matrix_group matrix_engine = { "infer", cases, ARRAY_SIZE(cases) };
