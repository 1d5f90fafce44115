/* What becomes of a failure that reaches beyond its job. The table of errors names the reaction; here
 * is how each is done, by the device's thread, with nothing active:
 *
 *   reaction   then
 *   RELOAD     the generation is closed and brought up again
 *   LOWER      the same with half as many sequences at once; with one left, the model is given up
 *   ROLL_BACK  the model's version before, else the model is given up
 *   WAIT       the device is asked again and again, more and more seldom; then as RELOAD
 *   STOP       nothing is submitted or torn down any more; jobs are refused
 *
 * Brought up means the whole way, golden runs included: nothing serves without. No level of reset is
 * used but the one that unloads a generation (device contract 7). A storm has three limits: so many
 * recoveries in a row without a job that went well, so many tries of one recovery, and a cool-down,
 * twice as long each time, before what was given up for a reason that may pass is tried once more. */
#include "core/engine/engine_impl.h"

#include <errno.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/engine/metrics.h"

#define SHIFT_MAX 5 /* of pauses and cool-downs */

static enum npu_reaction reaction_of(const struct fault *f)
{
	return npu_error_row(f->device)->reaction;
}

/* --- giving up -------------------------------------------------------------------------------- */

void engine_halt(struct engine *e, const struct fault *why)
{
	lock_take(&e->lock);
	e->stop_reason = *why;
	lock_drop(&e->lock);
	e->stopped = true;
	engine_fail(e, why);
}

bool engine_stopped_for(struct engine *e, struct fault *ret)
{
	lock_take(&e->lock);
	*ret = e->stop_reason;
	lock_drop(&e->lock);
	return ret->err != 0;
}

bool engine_make_way(struct engine *e)
{
	struct fault f = FAULT_NONE;
	enum npu_error code = engine_close_generation(e);

	if (npu_error_row(code)->reaction != NPU_REACT_STOP)
		return true;
	fault_from_device(&f, code, "unloading a model");
	engine_halt(e, &f);
	return false;
}

/* What may pass is tried again after a cool-down; what does not needs another artifact. Models that
 * are given up one after the other wait for the same end, and make the next wait longer once. */
static void give_up(struct engine *e, int model, const struct fault *f)
{
	enum npu_reaction r = reaction_of(f);
	unsigned shift;
	int64_t cool;

	engine_model_failed(e, model, f);
	if (r == NPU_REACT_ROLL_BACK || f->err == -EBADMSG)
		return;
	if (e->cool_at == INT64_MAX)
		e->cool_downs++;
	shift = e->cool_downs ? e->cool_downs - 1 : 0;
	cool = ENGINE_COOL_DOWN_MS << (shift < SHIFT_MAX ? shift : SHIFT_MAX);
	e->cooling[model] = true;
	e->cool_at = clock_mono() + cool * NS_PER_MS;
	health_set_next_try(e->health, clock_wall() + cool * NS_PER_MS);
}

/* --- bringing up ------------------------------------------------------------------------------ */

/* A device that is not there may be there again under another handle. */
static int ask_device(struct engine *e, struct fault *f)
{
	enum npu_error code = e->device ? device_status(e->device) : NPU_SUCCESS;

	if (code == NPU_NO_DEVICE) {
		engine_end_context(e, true);
		device_close(e->device);
		e->device = NULL;
		code = NPU_SUCCESS;
	}
	if (code)
		return fault_from_device(f, code, "asking for the device's status");
	return engine_open_device(e, f);
}

/* After which try it is enough, by the reaction to what came of it. What is waited for may never come:
 * an operator is not kept waiting with it. */
static bool enough_tries(struct engine *e, const struct fault *f, unsigned tries)
{
	if (reaction_of(f) == NPU_REACT_WAIT && !engine_is_asked(e))
		return false;
	return npu_error_row(f->device)->retry == NPU_RETRY_NO ||
		tries + 1 >= ENGINE_MAX_RECOVERIES;
}

static bool again(struct engine *e, const struct fault *f, unsigned tries)
{
	unsigned shift = tries < SHIFT_MAX ? tries : SHIFT_MAX;

	if (enough_tries(e, f, tries))
		return false;
	engine_set_state(e, HEALTH_RECOVERING, f);
	return engine_pause(e, ENGINE_RECOVERY_PAUSE_MS << shift);
}

/* True when it serves. Else `f` says why; no reason (err 0) when the engine is to stop. */
static bool try_up(struct engine *e, int model, struct fault *f)
{
	for (unsigned tries = 0;; tries++) {
		*f = (struct fault)FAULT_NONE;
		if (ask_device(e, f) == 0 && engine_open_generation(e, model, f) == 0) {
			engine_serve(e);
			return true;
		}
		if (!again(e, f, tries))
			return false;
	}
}

/* It failed, and nothing is given up for that: it is time to stop, or for an operator; what was waited
 * for is asked for again after that. */
static bool is_put_off(struct engine *e, const struct fault *f)
{
	return reaction_of(f) == NPU_REACT_WAIT || !engine_pause(e, 0);
}

/* Any model that can serve, the one before first. `f` is why not. */
static bool fall_back(struct engine *e, struct fault *f)
{
	struct model_view v;
	int n = (int)models_count(e->models);

	*f = (struct fault)FAULT_NONE;
	for (int k = -1; k < n; k++) {
		int i = k < 0 ? e->fallback : k;

		if (i < 0)
			continue;
		models_get(e->models, i, &v);
		if (v.state == MODEL_FAILED)
			continue;
		if (try_up(e, i, f))
			return true;
		if (is_put_off(e, f))
			return false;
		give_up(e, i, f);
	}
	return false;
}

void engine_bring_up(struct engine *e, int model, struct fault *f)
{
	if (try_up(e, model, f) || is_put_off(e, f))
		return;
	if (reaction_of(f) == NPU_REACT_STOP &&
		npu_error_row(f->device)->taints != NPU_TAINTS_INSTANCE) {
		engine_halt(e, f);
		return;
	}
	give_up(e, model, f);
	struct fault others = *f;
	if (!fall_back(e, &others) && !is_put_off(e, &others))
		engine_fail(e, f);
}

/* --- recovery --------------------------------------------------------------------------------- */

/* True when there was something left to take away. */
static bool lower(struct engine *e)
{
	bool lowered = e->room > 1;

	e->room = e->room / 2 + e->room % 2;
	e->good = 0;
	health_set_room(e->health, e->room, e->config.max_active);
	return lowered;
}

static bool enough(struct engine *e, enum npu_reaction r, int model, const struct fault *why)
{
	if (r == NPU_REACT_LOWER && !lower(e))
		return true;
	if (r == NPU_REACT_ROLL_BACK)
		return !models_roll_back(e->models, model, why);
	return ++e->recoveries > ENGINE_MAX_RECOVERIES;
}

static void recover(struct engine *e, const struct fault *why)
{
	enum npu_reaction r = reaction_of(why);
	struct fault f = *why;
	int model = e->current;

	metrics_add_at(METRIC_RECOVERIES, r, 1);
	if (r == NPU_REACT_STOP) {
		engine_halt(e, why);
		return;
	}
	engine_set_state(e, HEALTH_RECOVERING, why);
	health_note_recovery(e->health);
	if (!engine_make_way(e))
		return;
	e->fallback = -1;
	if (!enough(e, r, model, why)) {
		engine_bring_up(e, model, &f);
		return;
	}
	give_up(e, model, why);
	if (!fall_back(e, &f) && !is_put_off(e, &f))
		engine_fail(e, why);
}

void engine_recover(struct engine *e, const struct fault *why)
{
	int64_t begin = trace_begin();
	int model = e->current;

	recover(e, why);
	trace_host(begin, TRACE_RECOVERY, model, why->device, why->err);
}

void engine_note_good(struct engine *e)
{
	e->recoveries = 0;
	e->cool_downs = 0;
	if (e->room == e->config.max_active || ++e->good % ENGINE_RAISE_AFTER)
		return;
	e->room++;
	health_set_room(e->health, e->room, e->config.max_active);
}

static void cool_no_more(struct engine *e)
{
	e->cool_at = INT64_MAX;
	health_set_next_try(e->health, 0);
}

void engine_begin_anew(struct engine *e, int model, struct fault *f)
{
	lock_take(&e->lock);
	e->stop_reason = (struct fault)FAULT_NONE;
	lock_drop(&e->lock);
	e->stopped = false;
	e->recoveries = e->cool_downs = 0;
	e->fallback = -1;
	cool_no_more(e);
	for (size_t i = 0; i < models_count(e->models); i++) {
		e->cooling[i] = false;
		models_revive(e->models, (int)i);
	}
	engine_set_state(e, HEALTH_RECOVERING, NULL);
	engine_bring_up(e, model, f);
}

/* --- what is due from time to time ------------------------------------------------------------ */

/* Another artifact is tried at once; what waits for its cool-down is the one that was given up. */
static void forget_cool_down(struct engine *e, int model)
{
	e->cooling[model] = false;
	for (size_t i = 0; i < models_count(e->models); i++)
		if (e->cooling[i])
			return;
	cool_no_more(e);
}

/* A changed artifact of the model that serves is taken when the device has drained. */
static void look_at(struct engine *e, int model)
{
	struct model_view v;
	struct fault f;

	if (!models_changed(e->models, model))
		return;
	if (models_reload(e->models, model, &f))
		log_error("a changed model is not used: %s", f.reason);
	else
		forget_cool_down(e, model);
	models_get(e->models, model, &v);
	e->renew = e->renew || (model == e->current && strcmp(v.sha256, e->model.sha256) != 0);
	if (e->generation)
		engine_serve(e);
}

static void look_at_all(struct engine *e)
{
	e->look_at = clock_mono() + ENGINE_LOOK_MS * NS_PER_MS;
	for (int i = 0; i < (int)models_count(e->models); i++)
		look_at(e, i);
	engine_renew_context(e);
}

/* All that wait are tried again. Where nothing serves that is now: requests are refused until then,
 * so none can ask for it. */
static void end_cool_down(struct engine *e)
{
	int first = -1;

	cool_no_more(e);
	for (int i = 0; i < (int)models_count(e->models); i++) {
		if (!e->cooling[i])
			continue;
		e->cooling[i] = false;
		models_set_state(e->models, i, MODEL_AVAILABLE, 0, &(struct fault)FAULT_NONE);
		if (first < 0 || i == models_default(e->models))
			first = i;
	}
	if (e->generation) {
		engine_serve(e);
		return;
	}
	e->recoveries = ENGINE_MAX_RECOVERIES; /* one try */
	engine_swap(e, first);
}

/* Status() never stands for it (device contract 7). */
static void golden(struct engine *e)
{
	struct fault f = FAULT_NONE;
	int err;

	e->golden_at = clock_mono() + e->config.golden_ns;
	metrics_add(METRIC_GOLDEN_RUNS, 1);
	if (e->model.manifest->kind == MANIFEST_LLM) /* idle sessions may have all of it */
		sessions_make_room(e->sessions, e->generation);
	err = engine_golden(e, e->model.artifact, &f);
	if (!err) {
		health_note_golden(e->health);
		return;
	}
	models_name(e->models, e->current, &f);
	engine_recover(e, &f);
}

static bool golden_due(const struct engine *e, int64_t now)
{
	return e->config.golden_ns && e->generation && !e->n_active && now >= e->golden_at;
}

static bool serves_nothing(struct engine *e, int *ret_model)
{
	struct model_view v;

	if (e->generation || !models_count(e->models))
		return false;
	*ret_model = models_default(e->models);
	models_get(e->models, *ret_model, &v);
	return v.state == MODEL_AVAILABLE;
}

int64_t engine_next_due(const struct engine *e)
{
	int64_t next = e->look_at < e->cool_at ? e->look_at : e->cool_at;

	if (e->stopped || e->on_hold)
		return clock_mono() + 3600 * NS_PER_SEC; /* nothing is due any more */
	return e->config.golden_ns && e->generation && e->golden_at < next ? e->golden_at : next;
}

void engine_tend(struct engine *e)
{
	int64_t now = clock_mono();
	int model;

	if (e->stopped || e->on_hold || now < engine_next_due(e))
		return;
	if (now >= e->look_at)
		look_at_all(e);
	if (now >= e->cool_at)
		end_cool_down(e);
	if (serves_nothing(e, &model))
		engine_swap(e, model);
	else if (golden_due(e, now))
		golden(e);
}
