/* What the engine's files share; nobody else includes it.
 *   engine.c         what callers see: admission, queues, cancel, start and stop
 *   engine_loop.c    the thread: what to do next
 *   engine_device.c  the device: verification, load, swap, recovery
 *   engine_active.c  the jobs on the device: begin, step, end
 *   engine_deadline.c  the other thread: ends jobs at their deadline */
#ifndef NPUFS_CORE_ENGINE_IMPL_H
#define NPUFS_CORE_ENGINE_IMPL_H

#include <pthread.h>

#include "core/deadlines.h"
#include "core/engine.h"
#include "core/lock.h"
#include "core/run.h"

/* After so many jobs of one model, jobs that wait for another get their turn. */
#define ENGINE_SWAP_AFTER 64
/* A stop answers what still runs after its drain, and gives the device so long to come back. */
#define ENGINE_STOP_GRACE_MS 2000
/* Recoveries in a row without a single good inference between them. */
#define ENGINE_MAX_RECOVERIES 3
/* A step that the device was too busy to take is tried so often again, after 1, 2, 4, ... ms. */
#define ENGINE_MAX_TRIES 8
/* Between two tries of one recovery: so long, then twice that. */
#define ENGINE_RECOVERY_PAUSE_MS 100

struct active {
	struct job *job; /* counted */
	struct run *run;
	unsigned tries;      /* of its next step */
	uint64_t lines_done; /* of a batch, when it was looked at last */
};

struct engine {
	struct engine_config config;
	struct models *models;
	struct health *health;
	struct sessions *sessions;
	pthread_t thread, deadline_thread;

	struct lock lock;
	struct lock_cond work; /* something to do came */
	struct lock_cond idle; /* nothing runs any more */
	struct lock_cond due;  /* another deadline came */
	/* by lock */
	struct queue *queues; /* one a model */
	struct deadlines deadlines;
	size_t queued, running;
	struct job **held; /* those that run; their counts are the thread's */
	bool draining, stopping;
	bool gone;  /* the thread is at its end */
	bool ended; /* the device's thread has: no job is left */

	/* the thread's own */
	struct device *device;
	struct generation *generation;
	struct model_view model; /* of the generation */
	int current;             /* its model; -1 none */
	uint64_t generations;
	size_t served;       /* jobs begun since the last swap */
	unsigned recoveries; /* in a row */
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
/* The same at a stop: the spool still has it as queued, so it is left rather than ended. */
void engine_leave(struct engine *e, struct job *j, const struct fault *why);
void engine_leave_waiting(struct engine *e, const struct fault *why);
/* What a job is told that the stop ends. */
void engine_stopped(struct fault *ret);
/* End all that wait for a model, or for any (-1). */
void engine_end_waiting(struct engine *e, int model, const struct fault *why);

/* --- engine_device.c -------------------------------------------------------------------------- */
void engine_open(struct engine *e);
/* Make `model` the configured one; nothing may be active. On failure the model is FAILED and its
 * waiting jobs are ended. */
void engine_swap(struct engine *e, int model);
/* After an error that reached beyond its job: nothing may be active. */
void engine_recover(struct engine *e, const struct fault *why);
void engine_close(struct engine *e);

/* --- engine_active.c -------------------------------------------------------------------------- */
bool engine_has_room(struct engine *e);
void engine_begin(struct engine *e, struct job *j); /* takes the queue's count */
void engine_step_all(struct engine *e);
void engine_leave_active(struct engine *e, const struct fault *why);

#endif
