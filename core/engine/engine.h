/* The engine: takes jobs, runs them on the one device, and is the only one who ends them (with the
 * user, who cancels). It has two threads of its own, the device's and one that keeps the deadlines
 * while the device works or hangs; nothing here blocks its callers.
 *
 *   request -> admission -> a queue per model -> sequences in turn -> checks -> delivery (the design
 * 3) */
#ifndef NPUFS_CORE_ENGINE_ENGINE_H
#define NPUFS_CORE_ENGINE_ENGINE_H

#include "core/engine/callables.h"
#include "core/engine/health.h"
#include "core/engine/models.h"
#include "core/engine/sessions.h"
#include "core/job/job.h"
#include "core/job/request.h"

struct engine_config {
	const struct device_ops *ops;
	struct device_params device;
	uint32_t max_active;   /* sequences interleaved on the device */
	uint64_t queue_limit;  /* jobs waiting, all users */
	uint64_t user_limit;   /* jobs waiting of one user */
	uint64_t output_bytes; /* of one job's output */
	uint64_t batch_bytes;  /* of a batch's answers */
	uint64_t file_bytes;   /* of a file that a request names */
	int64_t wait_limit_ns; /* an inference that takes longer is given up; 0: never */
	int64_t golden_ns;     /* between golden runs while idle; 0: none */
	bool pairs;            /* two in flight, where the store's evidence proves them */
	const char *store;     /* for the evidence; outlives the engine */
	struct sessions_limits sessions;
};

struct engine;

/* Starts the thread, which verifies the artifacts, opens the device and makes the default model
 * ready; health tells how far it is. `models` and `health` must outlive the engine. */
int engine_new(const struct engine_config *c, struct models *models, struct health *health,
	struct engine **ret);

/* No new jobs from now on (health: draining); waits up to `drain_ms` for those it has and answers who
 * waits for the rest with -ESHUTDOWN (in the spool they stay queued), also while the device holds its thread; later ones are refused. Then it
 * tears down in the contract's order and joins the thread. -ETIMEDOUT: the device has not come back
 * within ENGINE_STOP_GRACE_MS, its thread still runs, and nothing may be freed. Once. */
int engine_stop(struct engine *e, int64_t drain_ms);
void engine_free(struct engine *e); /* after engine_stop(); NULL is fine */

/* May this user start another job? -EAGAIN queue full, -EDQUOT the user's share, -EROFS draining,
 * or why the engine cannot run any. */
int engine_admit(struct engine *e, uint32_t uid, struct fault *f);

/* A parsed request's model; -ENOENT when there is none, or the model's own failure. */
int engine_model(struct engine *e, const struct request *req, struct fault *f);

/* The same for that user's request, which may be of a session: its errors, and -EINVAL when the
 * session is bound to another model. Without a model of its own the request is for the session's.
 * Of a request that launches callables: what is wrong with it, as of callables_plan(). */
int engine_session(struct engine *e, uint32_t uid, const struct request *req, struct fault *f);

/* Queue a job that is still being written: it takes its own count, and its session. On failure the job
 * is not ended. */
int engine_submit(struct engine *e, struct job *j, const struct job_order *order, struct fault *f);

/* Ask for its end: it is answered as cancelled at once; the device may run on for a step. */
void engine_cancel(struct engine *e, struct job *j);

/* What a job shows as its model, and the other way; -1 where there is none such. Jobs that launch
 * callables have CALLABLES_ALIAS. */
const char *engine_alias(const struct engine *e, int model);
int engine_find(const struct engine *e, const char *alias);

struct callables *engine_callables(struct engine *e); /* until engine_free() */
struct sessions *engine_sessions(struct engine *e);   /* until engine_free() */
void engine_wake(struct engine *e); /* to free what removed sessions have on the device */

/* What an operator has the device's thread do, with nothing on the device (device contract 2, 7): each
 * ends with golden runs before anything is served, but for the two that hold. */
enum engine_operation {
	ENGINE_LOAD,         /* serve that model, whatever became of it before */
	ENGINE_UNLOAD,       /* take the model off the device and hold */
	ENGINE_CONFIGURE,    /* bring the model up anew: also the end of holding, and of a stop */
	ENGINE_RESET_CONFIG, /* the three levels; then as configure */
	ENGINE_RESET_CCU,
	ENGINE_RESET_DEVICE,
	ENGINE_DRAIN,       /* let what runs end, begin nothing, refuse new jobs */
	ENGINE_PARALLEL_ON, /* where evidence allows it */
	ENGINE_PARALLEL_OFF,
	ENGINE_PREPARE, /* a callable that waits, beside the jobs */
	ENGINE_CLOSE_CALLABLES,
	ENGINE_READ, /* its memory or registers, between two inferences */
	ENGINE_WRITE,
	ENGINE_OPERATION_COUNT
};

/* Of ENGINE_READ and ENGINE_WRITE. Registers: DEVICE_REGISTER_BYTES, low byte first. */
struct engine_access {
	bool registers;
	uint64_t address;
	void *bytes;
	size_t size;
};

struct engine_order {
	enum engine_operation what;
	int model;                          /* of ENGINE_LOAD */
	const char *name;                   /* of ENGINE_PREPARE */
	const struct engine_access *access; /* outlives the order */
	bool force; /* jobs on the device fail now; else a reset is -EBUSY and the others wait for them */
	bool only; /* -ESTALE unless `generation` is on the device: it was approved for that one */
	uint64_t generation;
};

/* Waits for it: for threads that may. -EBUSY with jobs running, or another operation; -ETIMEDOUT when
 * the device's thread does not come to it within ENGINE_OPERATE_MS, and then it is not done;
 * -ESHUTDOWN. Else what came of it. While held, jobs wait. */
int engine_operate(struct engine *e, const struct engine_order *o, struct fault *f);
bool engine_busy(struct engine *e); /* jobs are on the device */

size_t engine_position(struct engine *e, struct job *j); /* 1 = next; 0 when it does not wait */
void engine_counts(struct engine *e, uint64_t *ret_queued, uint64_t *ret_running);

#endif
