/* The engine's dealings with the device: opening, swapping generations, recovery.
 *
 *   starting    artifacts are verified, the device opened, the default model configured, warmed up
 *   ready       a generation serves
 *   degraded    it does, and another artifact of the store is unusable
 *   recovering  the generation is torn down and opened anew, golden run included
 *   failed      nothing serves and nothing will without an operator; jobs are refused */
#include "core/engine_impl.h"

#include <errno.h>

#include "core/log.h"
#include "core/metrics.h"

static void show_state(struct engine *e, enum health_state s, const struct fault *why)
{
	if (why)
		health_set_fault(e->health, s, why);
	else
		health_set(e->health, s, NULL, NULL);
	metrics_set(METRIC_HEALTH_STATE, s);
}

static void set_state(struct engine *e, enum health_state s, const struct fault *why)
{
	lock_take(&e->lock);
	if (!e->draining) /* that is what it then is until the end */
		show_state(e, s, why);
	lock_drop(&e->lock);
	if (why)
		log_warning("%s: %s", health_state_name(s), why->reason);
	else
		log_info("%s", health_state_name(s));
}

/* The first model that cannot be used, or -1. */
static int failed_model(struct engine *e, struct model_view *v)
{
	for (size_t i = 0; i < models_count(e->models); i++) {
		models_get(e->models, (int)i, v);
		if (v->state == MODEL_FAILED)
			return (int)i;
	}
	return -1;
}

static void serve(struct engine *e)
{
	struct model_view bad;

	if (failed_model(e, &bad) >= 0)
		set_state(e, HEALTH_DEGRADED, &bad.fault);
	else
		set_state(e, HEALTH_READY, NULL);
}

static int open_generation(struct engine *e, int model, struct fault *f)
{
	struct model_view v;
	int err;

	models_get(e->models, model, &v);
	if (v.state == MODEL_FAILED) {
		*f = v.fault;
		return f->err;
	}
	err = generation_open(e->device, v.manifest, v.artifact, ++e->generations, &e->generation,
		f);
	if (err) {
		metrics_device_error(f->device);
		models_name(e->models, model, f);
		return err;
	}
	e->current = model;
	e->served = 0;
	models_set_state(e->models, model, MODEL_READY, e->generations, NULL);
	models_get(e->models, model, &e->model);
	health_set_generation(e->health, v.alias, e->generations);
	metrics_set(METRIC_GENERATION, (int64_t)e->generations);
	engine_pair_open(e);
	return 0;
}

static void close_generation(struct engine *e)
{
	enum npu_error code = generation_close(e->generation);

	if (code) {
		metrics_device_error(code);
		health_note_error(e->health, code);
	}
	e->generation = NULL;
	if (e->current >= 0)
		models_set_state(e->models, e->current, MODEL_AVAILABLE, 0, NULL);
	e->current = -1;
	health_set_generation(e->health, NULL, 0);
	metrics_set(METRIC_GENERATION, 0);
}

static void model_failed(struct engine *e, int model, const struct fault *f)
{
	models_set_state(e->models, model, MODEL_FAILED, 0, f);
	log_error("a model cannot be used: %s", f->reason);
	engine_end_waiting(e, model, f);
}

/* --- start ------------------------------------------------------------------------------------ */

static void verify_all(struct engine *e)
{
	struct fault f;

	for (size_t i = 0; i < models_count(e->models) && engine_pause(e, 0); i++)
		if (models_verify(e->models, (int)i, &f))
			model_failed(e, (int)i, &f);
}

static int open_device(struct engine *e, struct fault *f)
{
	struct device_info info;
	enum npu_error code = device_open(e->config.ops, &e->config.device, &e->device);

	if (code) {
		metrics_device_error(code);
		return fault_from_device(f, code, "opening the device");
	}
	device_versions(e->device, &info);
	health_set_device(e->health, &info);
	return 0;
}

static void fail(struct engine *e, const struct fault *f)
{
	set_state(e, HEALTH_FAILED, f);
	engine_end_waiting(e, -1, f);
}

/* A model that is not usable never reaches the device. */
void engine_open(struct engine *e)
{
	int model = models_default(e->models);
	struct fault f = FAULT_NONE;
	int err;

	verify_all(e);
	if (!engine_pause(e, 0)) /* told to stop meanwhile: not all is verified */
		return;
	err = models_choose(e->models, NULL, &f) < 0 ? f.err : 0;
	if (!err) {
		struct model_view v;

		models_get(e->models, model, &v);
		err = v.state == MODEL_FAILED ? v.fault.err : 0;
		f = v.fault;
	}
	if (!err)
		err = open_device(e, &f);
	if (!err) {
		err = open_generation(e, model, &f);
		if (err)
			model_failed(e, model, &f);
	}
	if (err)
		fail(e, &f);
	else
		serve(e);
}

void engine_close(struct engine *e)
{
	if (e->generation)
		close_generation(e);
	device_close(e->device);
}

/* --- another model ---------------------------------------------------------------------------- */

void engine_swap(struct engine *e, int model)
{
	struct fault f = FAULT_NONE;
	int previous = e->current;
	struct model_view v;

	models_get(e->models, model, &v);
	if (v.state == MODEL_FAILED) { /* nobody else need suffer for it */
		engine_end_waiting(e, model, &v.fault);
		return;
	}
	if (!e->device && open_device(e, &f)) {
		fail(e, &f);
		return;
	}
	if (e->generation)
		close_generation(e);
	if (open_generation(e, model, &f) == 0) {
		serve(e);
		return;
	}
	model_failed(e, model, &f);
	if (previous >= 0 && open_generation(e, previous, &f) == 0)
		serve(e);
	else
		fail(e, &f);
}

/* --- recovery --------------------------------------------------------------------------------- */

/* An error that may be gone after a while; false when it is none, or the engine is to stop. */
static bool may_pass(struct engine *e, const struct fault *f)
{
	return npu_error_row(f->device)->retry != NPU_RETRY_NO &&
		engine_pause(e, ENGINE_RECOVERY_PAUSE_MS << e->recoveries);
}

void engine_recover(struct engine *e, const struct fault *why)
{
	struct fault f = *why;
	int model = e->current;

	set_state(e, HEALTH_RECOVERING, why);
	health_note_recovery(e->health);
	close_generation(e);
	while (++e->recoveries <= ENGINE_MAX_RECOVERIES) {
		if (open_generation(e, model, &f) == 0) {
			serve(e);
			return;
		}
		if (!may_pass(e, &f))
			break;
	}
	model_failed(e, model, &f);
	fail(e, &f);
}
