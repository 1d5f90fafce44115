/* Two in flight. It is only done while the evidence in the store is for exactly this device, driver,
 * firmware, runtime and artifact (device contract 6), which is asked at every opening of a
 * generation; all else is one in flight.
 *
 * Jobs take their steps in turn as ever. When it is a job's turn and a later one could be fed too,
 * both are fed together and the later one's result waits in its struct active until its own turn. So
 * what a job is given, and in which order jobs are served, is the same as with one in flight. A
 * result that waits stays valid: the second lane is used by the next pair at the earliest, and that
 * has its turn after this one's second. */
#include "core/engine/engine_impl.h"

#include <errno.h>
#include <stdio.h>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/engine/evidence.h"
#include "core/engine/metrics.h"

/* --- when ------------------------------------------------------------------------------------- */

#define SAY_SIZE (sizeof((struct health *)0)->parallel)

static void say_stale(int err, const struct fault *why, char ret[SAY_SIZE])
{
	if (err == -ENOENT)
		snprintf(ret, SAY_SIZE, "one in flight, no evidence");
	else if (err == -ESTALE)
		snprintf(ret, SAY_SIZE, "one in flight, evidence is stale: %s", why->field);
	else
		snprintf(ret, SAY_SIZE, "one in flight, the evidence cannot be used: %s",
			fault_errno_name(err));
	if (err != -ENOENT && err != -ESTALE)
		log_warning("the evidence cannot be used: %s", why->reason);
}

static void switch_on(struct engine *e, char ret[SAY_SIZE])
{
	enum npu_error code = generation_set_parallel(e->generation, true);

	if (code) {
		metrics_device_error(code);
		health_note_error(e->health, code);
	}
	snprintf(ret, SAY_SIZE, "%s%s",
		code ? "one in flight, the device refused: " : "two in flight",
		code ? npu_error_row(code)->name : "");
}

void engine_pair_open(struct engine *e)
{
	char say[SAY_SIZE] = "one in flight, the model takes tensors";
	struct fault why = FAULT_NONE;
	struct device_info info;
	int err;

	if (!e->config.store)
		return;
	device_versions(e->device, &info);
	err = evidence_check(e->config.store, &info, e->model.sha256, &why);
	health_set_evidence(e->health, !err);
	if (!e->config.pairs)
		return;
	if (e->generation->n_lanes && err)
		say_stale(err, &why, say);
	else if (e->generation->n_lanes)
		switch_on(e, say);
	health_set_parallel(e->health, say);
	log_info("parallel: %s", say);
}

/* --- which ------------------------------------------------------------------------------------ */

static bool can_be_fed(const struct active *a, struct sequence_feed *ret)
{
	return !a->fed && a->run->ops->plan && !job_ended(a->job) && a->run->ops->plan(a->run, ret);
}

/* The next after `i` that can be fed; n_active when there is none. */
static size_t find_partner(const struct engine *e, size_t i, struct sequence_feed *ret)
{
	for (size_t k = i + 1; k < e->n_active; k++)
		if (can_be_fed(&e->active[k], ret))
			return k;
	return e->n_active;
}

static bool reaches_further(const struct active *a)
{
	return a->got.stage != INFER_NOT_FINITE && npu_error_reaches_further(a->got.code);
}

static void keep(struct active *a, const struct infer_result *got, const float *logits)
{
	a->fed = true;
	a->got = *got;
	a->logits = logits;
}

/* An error that ends all jobs comes first: no result from beside it is delivered. */
static void worse_first(struct engine *e, size_t i, size_t k)
{
	struct active a = e->active[i];

	if (reaches_further(&a) || !reaches_further(&e->active[k]))
		return;
	e->active[i] = e->active[k];
	e->active[k] = a;
}

void engine_pair_feed(struct engine *e, size_t i)
{
	struct sequence_feed feeds[DEVICE_ENGINES];
	struct infer_result got[DEVICE_ENGINES];
	const float *logits[DEVICE_ENGINES] = { NULL };
	int64_t start;
	size_t k;

	if (!e->generation || e->generation->n_lanes < 2) /* without one there are launches only */
		return;
	if (!can_be_fed(&e->active[i], &feeds[0]))
		return;
	k = find_partner(e, i, &feeds[1]);
	if (k == e->n_active)
		return;
	start = clock_mono();
	engine_enter_device(e);
	engine_trace_turn(0, &e->active[i]);
	engine_trace_turn(1, &e->active[k]);
	sequence_feed_many(e->generation, feeds, 2, got, logits);
	metrics_add(METRIC_DEVICE_BUSY, clock_mono() - start);
	trace_turn_over();
	if (engine_leave_device(e)) /* whatever came of it: it was given up */
		got[0] = got[1] = (struct infer_result){ INFER_SUBMITTED, NPU_TIMEOUT,
			"waiting for an inference" };
	metrics_add(METRIC_PAIRED_STEPS, 1);
	keep(&e->active[i], &got[0], logits[0]);
	keep(&e->active[k], &got[1], logits[1]);
	worse_first(e, i, k);
}

enum step engine_pair_step(struct active *a, struct buf *piece, struct step_fault *f)
{
	if (!a->fed)
		return a->run->ops->step(a->run, piece, f);
	a->fed = false;
	return a->run->ops->absorb(a->run, &a->got, a->logits, piece, f);
}
