/* The engine's dealings with the device: opening it, opening and closing generations, swaps.
 *
 *   starting    artifacts are verified, the device opened, the default model configured, warmed up
 *   ready       a generation serves
 *   degraded    it does, and another artifact of the store, or a newer one, is unusable
 *   recovering  engine_recover.c brings the device back; jobs wait
 *   failed      nothing serves: an operator is needed, or a cool-down has to pass; jobs are refused */
#include "core/engine/engine_impl.h"

#include <errno.h>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/engine/metrics.h"

void engine_show_state_locked(struct engine *e, enum health_state s, const struct fault *why)
{
	lock_assert_held(&e->lock);
	if (e->draining) /* that is what it then is until the end */
		return;
	if (why)
		health_set_fault(e->health, s, why);
	else
		health_set(e->health, s, NULL, NULL);
	metrics_set(METRIC_HEALTH_STATE, s);
}

void engine_set_state(struct engine *e, enum health_state s, const struct fault *why)
{
	lock_take(&e->lock);
	engine_show_state_locked(e, s, why);
	lock_drop(&e->lock);
	if (why)
		log_warning("%s: %s", health_state_name(s), why->reason);
	else
		log_info("%s", health_state_name(s));
}

/* The first model that cannot be used, or not in its newest version. */
static bool find_bad(struct engine *e, struct fault *ret)
{
	struct model_view v;

	for (size_t i = 0; i < models_count(e->models); i++) {
		models_get(e->models, (int)i, &v);
		*ret = v.state == MODEL_FAILED ? v.fault : v.refused;
		if (v.state == MODEL_FAILED || v.refused.err)
			return true;
	}
	return false;
}

void engine_serve(struct engine *e)
{
	struct fault bad;

	if (find_bad(e, &bad))
		engine_set_state(e, HEALTH_DEGRADED, &bad);
	else
		engine_set_state(e, HEALTH_READY, NULL);
}

int engine_golden(struct engine *e, const struct artifact *artifact, struct fault *f)
{
	int err;

	engine_enter_device(e);
	err = generation_golden(e->generation, artifact, f);
	if (engine_leave_device(e)) /* whatever came of it: it was given up */
		err = fault_from_device(f, NPU_TIMEOUT, "the golden run");
	return err;
}

static int prepare_and_prove(struct engine *e, const struct model_view *v, struct fault *f)
{
	int err = generation_prepare(e->device, v->manifest, v->artifact, ++e->generations,
		&e->generation, f);

	if (!err)
		err = engine_golden(e, v->artifact, f);
	if (err) {
		generation_close(e->generation);
		e->generation = NULL;
	}
	return err;
}

static enum health_golden golden_of(const struct model_view *v)
{
	if (!v->artifact || !v->manifest->n_golden)
		return HEALTH_NO_GOLDEN;
	return v->manifest->kind == MANIFEST_LLM ? HEALTH_GOLDEN_KV : HEALTH_GOLDEN;
}

static int open_generation(struct engine *e, int model, struct fault *f)
{
	int64_t begin = trace_begin();
	struct model_view v;
	int err;

	models_get(e->models, model, &v);
	if (v.state == MODEL_FAILED) {
		*f = v.fault;
		return f->err;
	}
	err = prepare_and_prove(e, &v, f);
	trace_host(begin, TRACE_OPEN, model, err ? f->device : NPU_SUCCESS, err);
	if (err) {
		metrics_device_error(f->device);
		models_name(e->models, model, f);
		return err;
	}
	e->current = model;
	e->served = 0;
	e->golden_at = clock_mono() + e->config.golden_ns;
	models_set_state(e->models, model, MODEL_READY, e->generations, NULL);
	models_get(e->models, model, &e->model);
	health_set_generation(e->health, v.alias, e->generations, golden_of(&v));
	metrics_set(METRIC_GENERATION, (int64_t)e->generations);
	engine_pair_open(e);
	return 0;
}

/* A newer version that does not come up, and not for a reason that may pass, makes room for the one
 * before. */
int engine_open_generation(struct engine *e, int model, struct fault *f)
{
	int err = open_generation(e, model, f);

	if (!err || npu_error_row(f->device)->retry != NPU_RETRY_NO ||
		!models_roll_back(e->models, model, f))
		return err;
	log_error("a model is rolled back: %s", f->reason);
	return open_generation(e, model, f);
}

enum npu_error engine_close_generation(struct engine *e)
{
	int64_t begin = trace_begin();
	enum npu_error code = generation_close(e->generation);

	trace_host(begin, TRACE_CLOSE, e->current, code, 0);
	if (code) {
		metrics_device_error(code);
		health_note_error(e->health, code);
	}
	e->generation = NULL;
	e->renew = false;
	if (e->current >= 0)
		models_set_state(e->models, e->current, MODEL_AVAILABLE, 0, NULL);
	e->current = -1;
	health_set_generation(e->health, NULL, 0, HEALTH_NO_GOLDEN);
	metrics_set(METRIC_GENERATION, 0);
	return code;
}

void engine_model_failed(struct engine *e, int model, const struct fault *f)
{
	models_set_state(e->models, model, MODEL_FAILED, 0, f);
	log_error("a model cannot be used: %s", f->reason);
	engine_end_waiting(e, model, f);
}

/* --- start and end ---------------------------------------------------------------------------- */

static void verify_all(struct engine *e)
{
	struct fault f;

	for (size_t i = 0; i < models_count(e->models) && engine_pause(e, 0); i++)
		if (models_verify(e->models, (int)i, &f))
			engine_model_failed(e, (int)i, &f);
}

int engine_reach_device(struct engine *e, struct fault *f)
{
	struct device_info info;
	enum npu_error code =
		e->device ? NPU_SUCCESS : device_open(e->config.ops, &e->config.device, &e->device);

	if (code) {
		metrics_device_error(code);
		return fault_from_device(f, code, "opening the device");
	}
	device_versions(e->device, &info);
	health_set_device(e->health, &info);
	return 0;
}

int engine_open_device(struct engine *e, struct fault *f)
{
	int err = engine_reach_device(e, f);

	if (!err)
		callables_attach(e->callables, e->device);
	return err;
}

void engine_fail(struct engine *e, const struct fault *f)
{
	engine_set_state(e, HEALTH_FAILED, f);
	engine_end_waiting(e, -1, f);
}

/* A model that is not usable never reaches the device. */
void engine_open(struct engine *e)
{
	int model = models_default(e->models);
	struct fault f = FAULT_NONE;
	struct model_view v;

	verify_all(e);
	if (!engine_pause(e, 0)) /* told to stop meanwhile: not all is verified */
		return;
	if (models_choose(e->models, NULL, &f) < 0) {
		engine_fail(e, &f);
		return;
	}
	models_get(e->models, model, &v);
	if (v.state == MODEL_FAILED)
		engine_fail(e, &v.fault);
	else
		engine_bring_up(e, model, &f);
}

void engine_close(struct engine *e)
{
	if (e->generation)
		engine_close_generation(e);
	engine_end_context(e, false);
	device_close(e->device);
}

/* --- another model, or another version of the same -------------------------------------------- */

void engine_swap(struct engine *e, int model)
{
	struct fault f = FAULT_NONE;
	struct model_view v;

	models_get(e->models, model, &v);
	if (v.state == MODEL_FAILED) { /* nobody else need suffer for it */
		engine_end_waiting(e, model, &v.fault);
		return;
	}
	e->fallback = e->current;
	if (!e->generation || engine_make_way(e))
		engine_bring_up(e, model, &f);
}
