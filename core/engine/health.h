/* The daemon's state of health: one word, a reason and what an operator wants to know. Set by the
 * engine's thread, read by anyone in microseconds, also while the device hangs. */
#ifndef NPUFS_CORE_ENGINE_HEALTH_H
#define NPUFS_CORE_ENGINE_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/fault.h"
#include "core/base/lock.h"
#include "core/device.h"

enum health_state {
	HEALTH_STARTING,
	HEALTH_READY,
	HEALTH_DEGRADED,
	HEALTH_DRAINING,
	HEALTH_RECOVERING,
	HEALTH_FAILED,
	HEALTH_STATE_COUNT
};

/* What the golden runs of a generation have passed through. */
enum health_golden { HEALTH_NO_GOLDEN, HEALTH_GOLDEN, HEALTH_GOLDEN_KV };

struct health {
	struct lock lock;
	/* by lock */
	enum health_state state;
	char reason[224], action[160];
	char backend[32];
	bool measuring_only, faults_planted;
	bool device_open;
	struct device_info device;
	char model[65];         /* configured now; "" none */
	char default_model[65]; /* fixed after start; "" none */
	uint64_t generation;
	int64_t since, last_golden, last_error_at; /* wall ns, 0 never */
	int64_t last_progress;                     /* monotonic ns: the last checked inference */
	int64_t last_entry;                        /* likewise: when the last one began */
	enum npu_error last_error;
	uint64_t recoveries;
	uint32_t room, most;       /* sequences let on the device at once, and how many at best */
	int64_t next_try;          /* wall ns of the end of a cool-down; 0 none */
	int64_t away_since;        /* monotonic ns: in quarantine; 0: not */
	bool resets_locked;        /* a storm of them was stopped */
	bool unaudited;            /* the trail of commands cannot be written */
	bool poisoned;             /* the context of callables is */
	enum health_golden golden; /* of the generation */
	bool evidence;             /* likewise: there is some for it */
	char parallel[96];         /* how many are in flight, and why not two */
};

/* `default_model`: alias of the model for requests that name none, NULL without one. */
void health_init(struct health *h, const struct device_ops *ops, const char *default_model);
void health_done(struct health *h);

/* `reason` and `action` may be NULL: none. */
void health_set(struct health *h, enum health_state s, const char *reason, const char *action);
void health_set_fault(struct health *h, enum health_state s, const struct fault *f);
void health_set_device(struct health *h, const struct device_info *info);
/* 0: none. */
void health_set_generation(struct health *h, const char *model, uint64_t generation,
	enum health_golden golden);
void health_note_entry(struct health *h, int64_t mono);
void health_set_parallel(struct health *h, const char *text);
/* Of the generation: the store has evidence for exactly this device and artifact. */
void health_set_evidence(struct health *h, bool matching);
void health_proven(struct health *h, enum health_golden *ret_golden, bool *ret_evidence);
void health_note_progress(struct health *h);
void health_note_error(struct health *h, enum npu_error code);
void health_note_recovery(struct health *h);
void health_note_golden(struct health *h);
void health_set_room(struct health *h, uint32_t room, uint32_t most);
void health_set_next_try(struct health *h, int64_t wall);
/* Since when an inference has not come back (monotonic ns); 0: it has. */
void health_set_away(struct health *h, int64_t since);

void health_set_resets_locked(struct health *h, bool locked);
void health_set_unaudited(struct health *h, bool unaudited);
void health_set_poisoned(struct health *h, bool poisoned);

enum health_state health_state(struct health *h);
/* The same, with what it says of it as a fault without an errno. */
enum health_state health_why(struct health *h, struct fault *ret);
const char *health_state_name(enum health_state s);
uint64_t health_generation(struct health *h); /* 0: none */
bool health_is_ready(struct health *h);       /* ready or degraded: jobs are taken and run */

/* The text of /health: the state's word alone on the first line, then "key: value" lines. */
void health_render(struct health *h, uint64_t queued, uint64_t running, struct buf *out);
/* The text of /version. */
void health_render_version(struct health *h, const char *daemon_version, struct buf *out);

#endif
