/* The engine's dealings with resident callables: the context on the device, and the jobs that launch
 * them. These wait in a queue of their own behind those of the models, need no generation, and take
 * turns with the jobs of the model that serves. */
#include "core/engine/engine_impl.h"

#include <errno.h>
#include <string.h>

#include "core/base/log.h"

int engine_launches(const struct engine *e)
{
	return (int)models_count(e->models);
}

const char *engine_alias(const struct engine *e, int model)
{
	return model == engine_launches(e) ? CALLABLES_ALIAS : models_alias(e->models, model);
}

int engine_find(const struct engine *e, const char *alias)
{
	return strcmp(alias, CALLABLES_ALIAS) == 0 ? engine_launches(e)
						   : models_find(e->models, alias);
}

struct callables *engine_callables(struct engine *e)
{
	return e->callables;
}

/* --- the context ------------------------------------------------------------------------------ */

/* At a reset and at the end: what cannot be released is left with the device that holds it. */
void engine_end_context(struct engine *e, bool lost)
{
	struct fault f = FAULT_NONE;

	if (callables_detach(e->callables, lost, &f) == 0)
		return;
	log_error("the context of the callables was given up: %s", f.reason);
	callables_detach(e->callables, true, &f);
}

/* After a fault that left its state unknown: so often without a job that went well. What cannot be
 * released stays owned, and there is no other context until a later try has released it. Where nothing
 * may be submitted any more, it stays as it is until an operator ends that. */
void engine_renew_context(struct engine *e)
{
	struct fault f = FAULT_NONE;

	if (callables_poisoned(e->callables) && !e->stopped &&
		e->renewals < ENGINE_MAX_RECOVERIES) {
		e->renewals++;
		log_warning("the callables are registered anew: their context was poisoned");
		if (callables_detach(e->callables, false, &f))
			log_error("the context of the callables is not closed yet: %s", f.reason);
		else
			callables_attach(e->callables, e->device);
	}
	health_set_poisoned(e->health, callables_poisoned(e->callables));
}

/* One whose end is under way has its tries from time to time: they are not for those to use up who
 * find that it is gone. */
static void renew_open_context(struct engine *e)
{
	if (callables_number(e->callables))
		engine_renew_context(e);
}

void engine_launch_ended(struct engine *e, bool well)
{
	if (well)
		e->renewals = 0;
	else
		renew_open_context(e);
}

/* The quarantine is over, and no inference was given up that the model would have to be proven after:
 * what was shown before it is so again. */
static void end_quarantine(struct engine *e, enum health_state before, const struct fault *why)
{
	log_warning("registering a callable took longer than wait_limit");
	lock_take(&e->lock);
	engine_show_state_locked(e, before, why->reason[0] ? why : NULL);
	lock_drop(&e->lock);
}

int engine_prepare(struct engine *e, const char *name, struct fault *f)
{
	int err = engine_stopped_for(e, f) ? f->err : engine_open_device(e, f);
	enum health_state before;
	struct fault why;

	if (err)
		return callables_blame(e->callables, name, err, f);
	before = health_why(e->health, &why);
	engine_enter_device(e);
	err = callables_register(e->callables, name, f);
	if (engine_leave_device(e))
		end_quarantine(e, before, &why);
	err = callables_blame(e->callables, name, err, f);
	renew_open_context(e);
	return err;
}

int engine_close_context(struct engine *e, struct fault *f)
{
	int err = callables_close(e->callables, f);

	if (err)
		return err;
	err = callables_unkeep_all(e->callables, f);
	callables_attach(e->callables, e->device); /* and what could not be removed */
	e->renewals = 0;
	health_set_poisoned(e->health, false);
	return err;
}

/* --- jobs ------------------------------------------------------------------------------------- */

int engine_check_launches(struct engine *e, const struct request *req, struct fault *f)
{
	int err = callables_check(e->callables, req, f);

	return err ? err : engine_launches(e);
}

bool engine_has_launch_room(const struct engine *e)
{
	return e->n_active < e->room;
}

/* One image has a digest to show; of several there is no single one. */
int engine_begin_launches(struct engine *e, struct job *j, struct request *req,
	const struct run_limits *limits, struct run **ret, struct fault *f)
{
	char sha256[SHA256_HEX_SIZE] = "";
	int err = engine_open_device(e, f);

	if (!err)
		err = run_launch_new(req, limits, ret, f);
	if (!err && (*ret)->request->n_launches == 1)
		callables_sha256(e->callables, &(*ret)->request->launches[0], sha256);
	if (!err)
		job_set_model(j, CALLABLES_ALIAS, sha256);
	return err;
}
