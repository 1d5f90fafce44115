/* One checked inference, in the order of device contract 5:
 *   1 the slot is idle and its buffers are bound to this run's host memory
 *   2 a failed submit is never waited for and never delivered
 *   3 after a submit nothing is touched until Wait has returned
 *   4 a successful Wait still needs a status other than DONE_CCU_EXCEPTION (in device_slot_wait)
 *   5 only finite numbers leave; then the buffers forget the host memory
 * Where two are in flight each goes through all of them; 2 and 3 are between them as well: the one is
 * waited for whatever the other came to, and no buffer is touched before both have come back. */
#include "core/engine/infer.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/lock.h"
#include "core/base/mem.h"
#include "core/engine/trace.h"

struct program {
	struct device *device;
	struct slot *slot;
	const struct program_spec *spec;
	void **in, **out; /* host memory, one a tensor */
};

static int host_memory(const struct tensor_spec *tensors, size_t n, void ***ret)
{
	void **host = calloc(n ? n : 1, sizeof *host);

	if (!host)
		return -ENOMEM;
	*ret = host;
	for (size_t i = 0; i < n; i++) {
		host[i] = calloc(1, (size_t)tensor_bytes(&tensors[i]));
		if (!host[i])
			return -ENOMEM;
	}
	return 0;
}

static void host_free(void **host, size_t n)
{
	for (size_t i = 0; host && i < n; i++)
		free(host[i]);
	free(host);
}

enum npu_error program_new(struct device *d, const struct program_spec *spec, struct program **ret)
{
	struct program *p = calloc(1, sizeof *p);
	enum npu_error code = NPU_MEMORY_ALLOCATION;

	if (!p)
		return code;
	p->device = d;
	p->spec = spec;
	if (host_memory(spec->inputs, spec->n_inputs, &p->in) ||
		host_memory(spec->outputs, spec->n_outputs, &p->out))
		goto fail;
	code = device_slot_new(d, device_model(d, spec->name), &p->slot);
	if (code)
		goto fail;
	*ret = p;
	return NPU_SUCCESS;
fail:
	program_free(p);
	return code;
}

void program_free(struct program *p)
{
	if (!p)
		return;
	device_slot_free(p->slot);
	host_free(p->in, p->spec->n_inputs);
	host_free(p->out, p->spec->n_outputs);
	free(p);
}

const struct program_spec *program_spec_of(const struct program *p)
{
	return p->spec;
}

void *program_input(struct program *p, size_t i)
{
	assert(i < p->spec->n_inputs);
	return p->in[i];
}

const void *program_output(const struct program *p, size_t i)
{
	assert(i < p->spec->n_outputs);
	return p->out[i];
}

static enum npu_error bind_host(struct program *p)
{
	enum npu_error code = NPU_SUCCESS;

	for (size_t i = 0; !code && i < p->spec->n_inputs; i++) {
		size_t n = (size_t)tensor_bytes(&p->spec->inputs[i]);
		code = device_slot_in(p->slot, i, p->in[i], n, 0, n);
	}
	for (size_t i = 0; !code && i < p->spec->n_outputs; i++) {
		size_t n = (size_t)tensor_bytes(&p->spec->outputs[i]);
		size_t first = dtype_size(p->spec->outputs[i].dtype);

		/* A device that delivers nothing must not leave an earlier run's output as this
		 * one's: until it does, the first number is none. */
		memset(p->out[i], 0xff, first < n ? first : n);
		code = device_slot_out(p->slot, i, p->out[i], n, 0, n);
	}
	return code;
}

static bool outputs_finite(const struct program *p)
{
	for (size_t i = 0; i < p->spec->n_outputs; i++)
		if (!tensor_is_finite(&p->spec->outputs[i], p->out[i]))
			return false;
	return true;
}

static struct infer_result result(enum infer_stage stage, enum npu_error code, const char *what)
{
	return (struct infer_result){ .stage = stage, .code = code, .what = what };
}

static struct infer_result prepare(const struct infer_order *o)
{
	struct program *p = o->program;
	enum npu_error code =
		o->apply ? device_kv_apply(p->device, *o->apply, (int32_t)o->cur) : NPU_SUCCESS;

	if (code)
		return result(INFER_NOT_SUBMITTED, code, "reserving KV");
	code = bind_host(p);
	if (code)
		return result(INFER_NOT_SUBMITTED, code, "binding buffers");
	code = o->cur ? device_slot_lengths(p->slot, o->past, o->cur) : NPU_SUCCESS;
	return result(INFER_NOT_SUBMITTED, code, "setting lengths");
}

static void trace(int64_t begin, enum trace_kind kind, const struct infer_order *o,
	enum npu_error code)
{
	trace_step(begin, kind, o->task, o->cur, code);
}

/* ret_begin: when the device was given it, for the trace. */
static struct infer_result submit(const struct infer_order *o, int64_t *ret_begin)
{
	int64_t begin = trace_begin();
	struct infer_result r = prepare(o);

	trace(begin, TRACE_TRANSFER_IN, o, r.code);
	if (r.code)
		return r;
	*ret_begin = trace_begin();
	r.code = device_slot_submit(o->program->slot, o->task);
	if (!r.code)
		return result(INFER_SUBMITTED, NPU_SUCCESS, "computing");
	trace(*ret_begin, TRACE_COMPUTE, o, r.code);
	return result(INFER_NOT_SUBMITTED, r.code, "submitting");
}

static struct infer_result check(const struct infer_order *o)
{
	int64_t begin = trace_begin();
	bool finite = outputs_finite(o->program);

	trace(begin, TRACE_CHECKS, o, finite ? NPU_SUCCESS : NPU_NOT_EXPECTED);
	return finite ? result(INFER_DONE, NPU_SUCCESS, "")
		      : result(INFER_NOT_FINITE, NPU_NOT_EXPECTED, "checking the output");
}

static struct infer_result collect(const struct infer_order *o, int64_t begin)
{
	enum npu_error code = device_slot_wait(o->program->slot);

	trace(begin, TRACE_COMPUTE, o, code);
	return code ? result(INFER_SUBMITTED, code, "computing") : check(o);
}

static void give_back(const struct infer_order *o)
{
	int64_t begin = trace_begin();

	device_slot_reset(o->program->slot);
	trace(begin, TRACE_TRANSFER_OUT, o, NPU_SUCCESS);
}

void infer_checked_many(const struct infer_order *orders, size_t n, struct infer_result *ret)
{
	int64_t begin[DEVICE_ENGINES];
	bool spoiled = false;

	lock_assert_none();
	assert(n <= DEVICE_ENGINES);
	for (size_t i = 0; i < n; i++) {
		ret[i] = spoiled ? result(INFER_NOT_SUBMITTED, NPU_DEVICE_BUSY, "submitting")
				 : submit(&orders[i], &begin[i]);
		spoiled |= npu_error_reaches_further(ret[i].code);
	}
	for (size_t i = 0; i < n; i++)
		if (ret[i].stage == INFER_SUBMITTED)
			ret[i] = collect(&orders[i], begin[i]);
	for (size_t i = 0; i < n; i++)
		give_back(&orders[i]);
}

struct infer_result infer_checked(struct program *p, uint32_t past, uint32_t cur)
{
	const struct infer_order alone = { p, past, cur, NULL, DEVICE_AUTO };
	struct infer_result r;

	infer_checked_many(&alone, 1, &r);
	return r;
}
