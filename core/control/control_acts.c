#include "core/control/control_acts.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/mem.h"
#include "core/control/control_raw.h"
#include "core/device_layer.h"
#include "core/engine/trace.h"

static int operate(struct control_acts *c, enum engine_operation what,
	const struct privileged_order *o, struct fault *f)
{
	const struct engine_order order = { .what = what,
		.force = o->forced,
		.only = o->approved,
		.generation = o->generation };

	return engine_operate(c->engine, &order, f);
}

#define OPERATION(name, what) \
	static int name(void *context, const struct privileged_order *o, struct fault *f) \
	{ \
		return operate(context, what, o, f); \
	}
OPERATION(do_unload, ENGINE_UNLOAD)
OPERATION(do_configure, ENGINE_CONFIGURE)
OPERATION(do_drain, ENGINE_DRAIN)
OPERATION(do_reset_ccu, ENGINE_RESET_CCU)
OPERATION(do_reset_config, ENGINE_RESET_CONFIG)
OPERATION(do_reset_device, ENGINE_RESET_DEVICE)
#undef OPERATION

static int do_load(void *context, const struct privileged_order *o, struct fault *f)
{
	struct control_acts *c = context;
	struct engine_order order = { .what = ENGINE_LOAD, .force = o->forced };

	order.model = models_choose(c->models, o->args, f);
	return order.model < 0 ? order.model : engine_operate(c->engine, &order, f);
}

static int do_parallel(void *context, const struct privileged_order *o, struct fault *f)
{
	if (strcmp(o->args, "on") == 0)
		return operate(context, ENGINE_PARALLEL_ON, o, f);
	if (strcmp(o->args, "off") == 0)
		return operate(context, ENGINE_PARALLEL_OFF, o, f);
	return fault_set(f, -EINVAL, "write on or off", "neither on nor off");
}

static int do_faults(void *context, const struct privileged_order *o, struct fault *f)
{
	struct fault_plan plan;
	int err = strcmp(o->args, "none") ? fault_plan_parse(o->args, &plan, f) : 0;

	(void)context;
	if (!err)
		device_layer_plan(LAYER_DEVICE, strcmp(o->args, "none") ? &plan : NULL);
	if (!err)
		device_layer_release(); /* what hung by an earlier plan goes on */
	return err;
}

/* What is kept is registered again at the next start: it is kept first, or a crash would lose it. */
static int do_prepare(void *context, const struct privileged_order *o, struct fault *f)
{
	struct control_acts *c = context;
	struct callables *t = engine_callables(c->engine);
	char name[CALLABLES_NAME_MAX + 1] = "";
	const struct engine_order order = { .what = ENGINE_PREPARE, .name = name };
	int err;

	memcpy(name, o->args, strcspn(o->args, " ")); /* the gate has counted the words */
	err = callables_keep(t, name, f);
	if (!err)
		err = engine_operate(c->engine, &order, f);
	if (err)
		callables_unkeep(t, name);
	return err;
}

static int do_close_callables(void *context, const struct privileged_order *o, struct fault *f)
{
	return operate(context, ENGINE_CLOSE_CALLABLES, o, f);
}

static int do_trace_start(void *context, const struct privileged_order *o, struct fault *f)
{
	unsigned long long seconds, bytes;
	char end;

	(void)context;
	if (sscanf(o->args, "%llu %llu%c", &seconds, &bytes, &end) != 2)
		return fault_set(f, -EINVAL, "write two numbers", "SECONDS BYTES are no numbers");
	return trace_start(seconds, bytes, f);
}

static int do_trace_stop(void *context, const struct privileged_order *o, struct fault *f)
{
	(void)context, (void)o, (void)f;
	trace_stop();
	return 0;
}

static int do_unlock(void *context, const struct privileged_order *o, struct fault *f)
{
	struct control_acts *c = context;

	(void)o, (void)f;
	privileged_unlock(c->gate);
	return 0;
}

#define RAW(name, command) \
	static int name(void *context, const struct privileged_order *o, struct fault *f) \
	{ \
		struct control_acts *c = context; \
\
		return control_raw_act(c->engine, command, o, c->reading, f); \
	}
RAW(do_memory_read, PRIVILEGED_MEMORY_READ)
RAW(do_memory_write, PRIVILEGED_MEMORY_WRITE)
RAW(do_register_read, PRIVILEGED_REGISTER_READ)
RAW(do_register_write, PRIVILEGED_REGISTER_WRITE)
#undef RAW

static bool busy(void *context)
{
	return engine_busy(((struct control_acts *)context)->engine);
}

static bool raw_is_there(const struct control_acts *a)
{
	return a->raw_access;
}

static bool faults_are_there(const struct control_acts *a)
{
	(void)a;
	return device_layer_is_there();
}

static privileged_act *const table[PRIVILEGED_COUNT] = {
	[PRIVILEGED_RESET_CCU] = do_reset_ccu,
	[PRIVILEGED_RESET_CONFIG] = do_reset_config,
	[PRIVILEGED_RESET_DEVICE] = do_reset_device,
	[PRIVILEGED_LOAD] = do_load,
	[PRIVILEGED_UNLOAD] = do_unload,
	[PRIVILEGED_CONFIGURE] = do_configure,
	[PRIVILEGED_DRAIN] = do_drain,
	[PRIVILEGED_PARALLEL] = do_parallel,
	[PRIVILEGED_MEMORY_READ] = do_memory_read,
	[PRIVILEGED_MEMORY_WRITE] = do_memory_write,
	[PRIVILEGED_REGISTER_READ] = do_register_read,
	[PRIVILEGED_REGISTER_WRITE] = do_register_write,
	[PRIVILEGED_TRACE_START] = do_trace_start,
	[PRIVILEGED_TRACE_STOP] = do_trace_stop,
	[PRIVILEGED_PREPARE] = do_prepare,
	[PRIVILEGED_CLOSE_CALLABLES] = do_close_callables,
	[PRIVILEGED_FAULTS] = do_faults,
	[PRIVILEGED_UNLOCK] = do_unlock,
};

/* Those that are there only as it was mounted. */
static const struct {
	enum privileged_command command;
	bool (*there)(const struct control_acts *a);
} conditions[] = {
	{ PRIVILEGED_MEMORY_READ, raw_is_there },
	{ PRIVILEGED_MEMORY_WRITE, raw_is_there },
	{ PRIVILEGED_REGISTER_READ, raw_is_there },
	{ PRIVILEGED_REGISTER_WRITE, raw_is_there },
	{ PRIVILEGED_FAULTS, faults_are_there },
};

void control_acts_give(struct control_acts *a, struct privileged_owner *ret)
{
	for (size_t c = 0; c < ARRAY_SIZE(table); c++)
		ret->act[c] = table[c];
	for (size_t i = 0; i < ARRAY_SIZE(conditions); i++)
		if (!conditions[i].there(a))
			ret->act[conditions[i].command] = NULL;
	ret->busy = busy;
	ret->context = a;
}
