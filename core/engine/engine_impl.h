/* What the engine's files share; nobody else includes it.
 *   engine.c         what callers see: admission, queues, cancel, start and stop
 *   engine_loop.c    the thread: what to do next
 *   engine_device.c  the device: verification, load, swap
 *   engine_operate.c  what an operator asks for
 *   engine_recover.c  recovery, and what is due from time to time
 *   engine_active.c  the jobs on the device: begin, step, end
 *   engine_pair.c    steps of two jobs in flight together, where that is proven
 *   engine_callables.c  resident callables, and the jobs that launch them
 *   engine_deadline.c  the other thread: deadlines, and a device that does not come back */
#ifndef NPUFS_CORE_ENGINE_ENGINE_IMPL_H
#define NPUFS_CORE_ENGINE_ENGINE_IMPL_H

#include <pthread.h>

#include "core/base/lock.h"
#include "core/engine/deadlines.h"
#include "core/engine/engine.h"
#include "core/engine/run.h"
#include "core/engine/trace.h"

/* After so many jobs of one model, jobs that wait for another get their turn. */
#define ENGINE_SWAP_AFTER 64
/* A stop answers what still runs after its drain, and gives the device so long to come back. */
#define ENGINE_STOP_GRACE_MS 2000
/* Recoveries in a row without a single good inference between them. */
#define ENGINE_MAX_RECOVERIES 3
/* A step that the device was too busy to take is tried so often again, after 1, 2, 4, ... ms. */
#define ENGINE_MAX_TRIES 8
/* Between two tries of one recovery: so long, then twice that, up to 32 times. */
#define ENGINE_RECOVERY_PAUSE_MS 100
/* Before what was given up is tried again: so long, then twice that, up to 32 times. */
#define ENGINE_COOL_DOWN_MS 30000LL
/* After so many good jobs one more sequence is let on the device, where it was lowered. */
#define ENGINE_RAISE_AFTER 64
/* An operation that the device's thread has not begun by then is given up. */
#define ENGINE_OPERATE_MS 30000LL
/* Between two looks at whether artifacts have changed. */
#define ENGINE_LOOK_MS 2000LL

struct active {
	struct job *job; /* counted */
	struct run *run;
	unsigned tries;      /* of its next step */
	uint64_t lines_done; /* of a batch, when it was looked at last */
	bool unanswered;     /* the answer to its line that failed could not be kept */
	/* of a step whose feed was in flight with another's, until its turn comes */
	bool fed;
	struct infer_result got;
	const float *logits;
};

struct engine {
	struct engine_config config;
	struct models *models;
	struct health *health;
	struct sessions *sessions;
	struct callables *callables;
	pthread_t thread, deadline_thread;

	struct lock lock;
	struct lock_cond work; /* something to do came */
	struct lock_cond idle; /* nothing runs any more */
	struct lock_cond due;  /* another deadline came */
	/* by lock */
	struct queue *queues; /* one a model, and the one of engine_launches() */
	struct deadlines deadlines;
	size_t queued, running;
	struct job **held; /* those that run; their counts are the thread's */
	bool draining, stopping;
	bool gone;         /* the thread is at its end */
	bool ended;        /* the device's thread has: no job is left */
	int64_t in_device; /* monotonic ns since when the thread waits for it; 0: it does not */
	bool quarantined;  /* it has waited too long: all that ran was answered */
	struct operation *operation; /* asked for and not yet done */
	struct lock_cond done;       /* it is */
	bool on_hold;  /* an operator wants nothing begun; only the device's thread changes it */
	bool refusing; /* nor accepted */
	struct fault stop_reason; /* why nothing is submitted any more; err 0: it is */

	/* the thread's own */
	struct device *device;
	struct generation *generation;
	struct model_view model; /* of the generation */
	int current;             /* its model; -1 none */
	uint64_t generations;
	size_t served;                       /* jobs begun since the last swap */
	unsigned recoveries;                 /* in a row */
	unsigned cool_downs;                 /* likewise */
	bool *cooling;                       /* by model: it waits for cool_at */
	int fallback;                        /* the model to go back to, -1 none */
	uint32_t room;                       /* sequences let on the device at once */
	uint64_t good;                       /* jobs since that was lowered or raised */
	bool stopped;                        /* nothing is submitted any more */
	bool launch_turn;                    /* the next job is to be one that launches */
	unsigned renewals;                   /* of the context of callables, in a row */
	bool renew;                          /* the current model has a newer version */
	int64_t look_at, golden_at, cool_at; /* monotonic ns */
	struct active *active;
	size_t n_active;
};

void *engine_main(void *engine);
void *engine_deadline_main(void *engine);
/* Let the device's thread rest; false when it is to stop. */
bool engine_pause(struct engine *e, int64_t ms);

/* Take a job out of queue and deadlines; true when it was waiting. */
bool engine_forget_locked(struct engine *e, struct job *j);
/* End a job that is not in the queue any more, count it, and drop the engine's hold on it. */
void engine_end(struct engine *e, struct job *j, enum job_state state,
	const struct job_outcome *outcome, const struct fault *why);
/* The same of one whose deadline has passed. */
void engine_expire(struct engine *e, struct job *j);
/* The same at a stop: the spool still has it as queued, so it is left rather than ended. */
void engine_leave(struct engine *e, struct job *j, const struct fault *why);
void engine_leave_waiting(struct engine *e, const struct fault *why);
/* What a job is told that the stop ends. */
void engine_stopped(struct fault *ret);
/* The i-th of those that run, counted; NULL past the end. */
struct job *engine_hold_one(struct engine *e, size_t i);
/* End all that wait for a model, or for any (-1). */
void engine_end_waiting(struct engine *e, int model, const struct fault *why);

/* --- engine_device.c -------------------------------------------------------------------------- */
void engine_open(struct engine *e);
void engine_close(struct engine *e);
/* Make `model` the configured one, or its newest version; nothing may be active. */
void engine_swap(struct engine *e, int model);
int engine_reach_device(struct engine *e, struct fault *f); /* without its resident callables */
int engine_open_device(struct engine *e, struct fault *f);
int engine_open_generation(struct engine *e, int model, struct fault *f);
/* Its golden runs, watched like any inference. */
int engine_golden(struct engine *e, const struct artifact *artifact, struct fault *f);
enum npu_error engine_close_generation(struct engine *e);
void engine_serve(struct engine *e); /* ready, or degraded */
void engine_set_state(struct engine *e, enum health_state s, const struct fault *why);
void engine_show_state_locked(struct engine *e, enum health_state s, const struct fault *why);
void engine_model_failed(struct engine *e, int model, const struct fault *f);
void engine_fail(struct engine *e, const struct fault *f); /* nothing serves */

/* --- engine_recover.c ------------------------------------------------------------------------- */
/* Nothing is submitted or torn down any more, until an operator has it brought up. */
void engine_halt(struct engine *e, const struct fault *why);
/* Close the generation for another; false when the device is in no state for one. */
bool engine_make_way(struct engine *e);
/* Without a generation: have `model` serve, or another. `f` is scratch. */
void engine_bring_up(struct engine *e, int model, struct fault *f);
/* After an error that reached beyond its job: nothing may be active. */
void engine_recover(struct engine *e, const struct fault *why);
void engine_note_good(struct engine *e); /* a job, or a batch's line, went well */
/* Changed artifacts, ended cool-downs, golden runs: what is due by now. */
void engine_tend(struct engine *e);
int64_t engine_next_due(const struct engine *e);
bool engine_stopped_for(struct engine *e, struct fault *ret);

/* Give up what is stopped or has cooled down, and bring `model` up. */
void engine_begin_anew(struct engine *e, int model, struct fault *f);
/* An operation waits, or is being done. */
bool engine_is_asked(struct engine *e);
/* Nothing is to be begun: an operation waits, or holds. */
bool engine_is_held(struct engine *e);

/* --- engine_operate.c ------------------------------------------------------------------------- */
/* Do what is asked for, if it can be done now. */
void engine_do_operation(struct engine *e);
void engine_drop_operation(struct engine *e); /* the thread leaves */

/* --- engine_callables.c ----------------------------------------------------------------------- */
/* The place that stands for no model: of jobs that launch. */
int engine_launches(const struct engine *e);
/* End the context; `lost`: the device has gone. */
void engine_end_context(struct engine *e, bool lost);
/* A poisoned context is made anew, not for ever; one that cannot be closed is tried again. */
void engine_renew_context(struct engine *e);
/* A job that launched ended. */
void engine_launch_ended(struct engine *e, bool well);
int engine_prepare(struct engine *e, const char *name, struct fault *f);
int engine_close_context(struct engine *e, struct fault *f);
/* What engine_session() is for a model. */
int engine_check_launches(struct engine *e, const struct request *req, struct fault *f);
bool engine_has_launch_room(const struct engine *e);
int engine_begin_launches(struct engine *e, struct job *j, struct request *req,
	const struct run_limits *limits, struct run **ret, struct fault *f);

/* --- engine_deadline.c ------------------------------------------------------------------------ */
/* Around everything that waits for the device. Leaving: true when it was away too long. */
void engine_enter_device(struct engine *e);
bool engine_leave_device(struct engine *e);

/* --- engine_pair.c ---------------------------------------------------------------------------- */
/* Two in flight, for the generation just opened, if they are asked for and proven; health is told. */
void engine_pair_open(struct engine *e);
/* If the job at `i` and a later one can be fed together, they are now. The one at `i` may then be
 * another. */
void engine_pair_feed(struct engine *e, size_t i);
/* The step of a job, or the second half of it when it has been fed. */
enum step engine_pair_step(struct active *a, struct buf *piece, struct step_fault *f);

/* The trace is told whose inferences come next, on that lane. */
static inline void engine_trace_turn(unsigned lane, const struct active *a)
{
	if (trace_on())
		trace_turn(lane, job_id(a->job), job_order(a->job)->model);
}

/* --- engine_active.c -------------------------------------------------------------------------- */
bool engine_has_room(struct engine *e);
void engine_begin(struct engine *e, struct job *j); /* takes the queue's count */
void engine_step_all(struct engine *e);
void engine_leave_active(struct engine *e, const struct fault *why);
void engine_fail_active(struct engine *e, const struct fault *why);

#endif
