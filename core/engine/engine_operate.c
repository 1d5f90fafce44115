/* What an operator asks for. The asker waits; the device's thread drains, does it and says what came of
 * it. One at a time:
 *
 *   asked     begun is false: the asker may still take it back
 *   begun     the device's thread has it, and the asker waits for as long as it takes
 *   done      err is what came of it
 *
 * Each level follows the same way: drain, act, verify by the device's status, configure, golden runs,
 * ready. Only this makes a device serve again that was stopped for an error. */
#include "core/engine/engine_impl.h"

#include <errno.h>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/engine/metrics.h"

struct operation {
	struct engine_order order;
	bool begun, done;
	int err;
	struct fault fault;
};

/* How each is done; `reset` names the level it begins with. */
static const struct row {
	enum npu_error (*reset)(struct device *d);
	bool strict; /* refused while jobs run; the others wait for them */
	bool holds, refuses;
	bool anew;   /* the model is brought up again */
	bool beside; /* what is on the device stays there: it is done between two inferences */
	const char *state; /* what health says while it holds */
} rows[ENGINE_OPERATION_COUNT] = {
	[ENGINE_LOAD] = { .anew = true },
	[ENGINE_UNLOAD] = { .holds = true, .state = "the operator unloaded the model; jobs wait" },
	[ENGINE_CONFIGURE] = { .anew = true },
	[ENGINE_RESET_CONFIG] = { .strict = true, .anew = true },
	[ENGINE_RESET_CCU] = { .reset = device_reset_ccu, .strict = true, .anew = true },
	[ENGINE_RESET_DEVICE] = { .reset = device_reset, .strict = true, .anew = true },
	[ENGINE_DRAIN] = { .holds = true,
		.refuses = true,
		.state = "the operator drained the device; new jobs are refused" },
	[ENGINE_PARALLEL_ON] = { .holds = false },
	[ENGINE_PARALLEL_OFF] = { .holds = false },
	[ENGINE_PREPARE] = { .beside = true },
	[ENGINE_CLOSE_CALLABLES] = { .strict = true },
	[ENGINE_READ] = { .beside = true },
	[ENGINE_WRITE] = { .strict = true },
};

/* --- the asker -------------------------------------------------------------------------------- */

bool engine_busy(struct engine *e)
{
	bool busy;

	lock_take(&e->lock);
	busy = e->running != 0;
	lock_drop(&e->lock);
	return busy;
}

static int ask_locked(struct engine *e, struct operation *o, struct fault *f)
{
	lock_assert_held(&e->lock);
	if (e->draining || e->gone)
		return fault_set(f, -ESHUTDOWN, "wait until it has started again",
			"the daemon is stopping");
	if (e->operation)
		return fault_set(f, -EBUSY, "wait for its end", "another operation is under way");
	if (rows[o->order.what].strict && !o->order.force && e->running)
		return fault_set(f, -EBUSY, "wait for the jobs, or add the word force",
			"jobs are running");
	e->operation = o;
	lock_cond_signal(&e->work);
	return 0;
}

static int await_locked(struct engine *e, struct operation *o, struct fault *f)
{
	struct timespec until = clock_timespec(clock_mono() + ENGINE_OPERATE_MS * NS_PER_MS);
	bool late = false;

	while (!o->done && (o->begun || !(late || e->draining))) {
		if (o->begun)
			lock_cond_wait(&e->done, &e->lock);
		else
			late = lock_cond_wait_until(&e->done, &e->lock, &until);
	}
	if (!o->done) { /* nobody has begun it */
		e->operation = NULL;
		if (e->draining)
			return fault_set(f, -ESHUTDOWN, "wait until it has started again",
				"the daemon is stopping");
		return fault_set(f, -ETIMEDOUT, "look at health",
			"the device's thread is held; nothing was done");
	}
	*f = o->fault;
	return o->err;
}

int engine_operate(struct engine *e, const struct engine_order *order, struct fault *f)
{
	struct operation o = { .order = *order, .fault = FAULT_NONE };
	int err;

	lock_take(&e->lock);
	err = ask_locked(e, &o, f);
	if (!err)
		err = await_locked(e, &o, f);
	lock_drop(&e->lock);
	return err;
}

/* --- the device's thread ---------------------------------------------------------------------- */

bool engine_is_asked(struct engine *e)
{
	bool asked;

	lock_take(&e->lock);
	asked = e->operation;
	lock_drop(&e->lock);
	return asked;
}

bool engine_is_held(struct engine *e)
{
	bool held;

	lock_take(&e->lock);
	held = e->on_hold || (e->operation && !rows[e->operation->order.what].beside);
	lock_drop(&e->lock);
	return held;
}

/* What can be begun now: not while jobs are on the device that nobody wants to fail. */
static struct operation *take(struct engine *e)
{
	struct operation *o;

	lock_take(&e->lock);
	o = e->operation;
	if (o && e->n_active && !o->order.force && !rows[o->order.what].beside)
		o = NULL;
	if (o)
		o->begun = true;
	lock_drop(&e->lock);
	return o;
}

static void finish_locked(struct engine *e, struct operation *o)
{
	lock_assert_held(&e->lock);
	e->operation = NULL;
	o->done = true;
	lock_cond_signal(&e->done);
}

static void set_held(struct engine *e, const struct row *r)
{
	lock_take(&e->lock);
	e->on_hold = r->holds;
	e->refusing = r->refuses;
	lock_drop(&e->lock);
}

static int reset(struct engine *e, const struct row *r, struct fault *f)
{
	enum npu_error code;
	int err = engine_reach_device(e, f); /* what is resident comes back behind it */

	if (err)
		return err;
	code = r->reset(e->device);
	if (!code)
		code = device_status(e->device); /* what it said is verified */
	metrics_device_error(code);
	return code ? fault_from_device(f, code, "resetting the device") : 0;
}

static bool is_missing(const struct engine *e, enum engine_operation what)
{
	const struct device_ops *ops = e->config.ops;

	return (what == ENGINE_RESET_CCU && !ops->reset_ccu) ||
		(what == ENGINE_RESET_DEVICE && !ops->reset);
}

static int model_for(const struct engine *e, const struct engine_order *o)
{
	if (o->what == ENGINE_LOAD)
		return o->model;
	return e->current >= 0 ? e->current : models_default(e->models);
}

/* What became of it is what serves now. */
static int bring_up(struct engine *e, int model, struct fault *f)
{
	struct fault why = FAULT_NONE;
	struct model_view v;

	engine_begin_anew(e, model, &why);
	if (e->current == model)
		return 0;
	models_get(e->models, model, &v);
	*f = v.fault.err ? v.fault : why;
	return f->err ? f->err : -EIO;
}

/* Without a reset of its own the unload is the act; one that comes behind it reaches further. */
static int act(struct engine *e, const struct row *r, struct fault *f)
{
	enum npu_error code = e->generation ? engine_close_generation(e) : NPU_SUCCESS;

	if (r->strict) /* a reset may reach what is resident */
		engine_end_context(e, false);
	if (r->reset)
		return reset(e, r, f);
	return code ? fault_from_device(f, code, "unloading the model") : 0;
}

static int do_anew(struct engine *e, const struct engine_order *o, struct fault *f)
{
	int model = model_for(e, o), err;

	if (model < 0)
		return models_choose(e->models, NULL, f);
	err = act(e, &rows[o->what], f);
	if (!err)
		return bring_up(e, model, f);
	if (npu_error_row(f->device)->reaction == NPU_REACT_STOP)
		engine_halt(e, f);
	else
		engine_fail(e, f);
	return err;
}

static int do_hold(struct engine *e, const struct engine_order *o, struct fault *f)
{
	struct fault why = FAULT_NONE;
	enum npu_error code = NPU_SUCCESS;

	if (o->what == ENGINE_UNLOAD && e->generation)
		code = engine_close_generation(e);
	fault_set(&why, -EBUSY, "write configure or load to control", "%s", rows[o->what].state);
	engine_set_state(e, HEALTH_DRAINING, &why);
	return code ? fault_from_device(f, code, "unloading the model") : 0;
}

static int do_parallel(struct engine *e, const struct engine_order *o, struct fault *f)
{
	bool on = o->what == ENGINE_PARALLEL_ON;

	e->config.pairs = on;
	if (!e->generation)
		return 0; /* at its next opening */
	if (!on) {
		enum npu_error code = generation_set_parallel(e->generation, false);

		health_set_parallel(e->health, "off");
		return code ? fault_from_device(f, code, "switching two engines off") : 0;
	}
	engine_pair_open(e);
	if (e->generation->n_lanes == 2)
		return 0;
	e->config.pairs = false;
	return fault_set(f, -EPERM,
		"run npufs-admin matrix on this device; health says what is missing",
		"two in flight are not proven here");
}

static enum npu_error access_registers(struct engine *e, const struct engine_access *a, bool write)
{
	uint8_t *b = a->bytes;
	uint32_t value = b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
	enum npu_error code = write ? device_write_reg(e->device, a->address, value)
				    : device_read_reg(e->device, a->address, &value);

	for (int i = 0; !write && !code && i < DEVICE_REGISTER_BYTES; i++)
		b[i] = (uint8_t)(value >> (8 * i));
	return code;
}

static int do_access(struct engine *e, const struct engine_order *o, struct fault *f)
{
	const struct engine_access *a = o->access;
	const bool write = o->what == ENGINE_WRITE;
	enum npu_error code;
	int err = engine_open_device(e, f);

	if (err)
		return err;
	if (a->registers)
		code = access_registers(e, a, write);
	else if (write)
		code = device_write_mem(e->device, a->address, a->bytes, a->size);
	else
		code = device_read_mem(e->device, a->address, a->bytes, a->size);
	metrics_device_error(code);
	return code ? fault_from_device(f, code, "reaching the device's memory") : 0;
}

static int do_it(struct engine *e, const struct engine_order *o, struct fault *f)
{
	const struct row *r = &rows[o->what];
	struct fault others = FAULT_NONE;

	if (o->only && o->generation != (e->generation ? e->generation->number : 0))
		return fault_set(f, -ESTALE, "ask for it anew",
			"another generation is on the device than was approved");
	if (is_missing(e, o->what))
		return fault_from_device(f, NPU_DEVICE_UNSUPPORT, "resetting the device");
	if (e->n_active && !r->beside) {
		fault_set(&others, -EIO, "send it again", "the operator took the device");
		engine_fail_active(e, &others);
	}
	if (o->what == ENGINE_PARALLEL_ON || o->what == ENGINE_PARALLEL_OFF)
		return do_parallel(e, o, f);
	if (o->what == ENGINE_PREPARE)
		return engine_prepare(e, o->name, f);
	if (o->what == ENGINE_CLOSE_CALLABLES)
		return engine_close_context(e, f);
	if (o->access)
		return do_access(e, o, f);
	set_held(e, r);
	return r->anew ? do_anew(e, o, f) : do_hold(e, o, f);
}

void engine_do_operation(struct engine *e)
{
	struct operation *o = take(e);

	if (!o)
		return;
	o->err = do_it(e, &o->order, &o->fault);
	lock_take(&e->lock);
	finish_locked(e, o);
	lock_drop(&e->lock);
}

/* Nobody has begun it: the asker may leave, and the operation with it, whenever it has the lock. */
void engine_drop_operation(struct engine *e)
{
	struct operation *o;

	lock_take(&e->lock);
	o = e->operation;
	if (o) {
		o->err = fault_set(&o->fault, -ESHUTDOWN, "wait until it has started again",
			"the daemon is stopping");
		finish_locked(e, o);
	}
	lock_drop(&e->lock);
}
