/* The checked caller's slots: buffers and inference.
 *
 * States of a slot: idle -> submitted -> idle (Wait returned), or spoiled for good. A submitted slot
 * is untouchable: its host memory, model and device stay valid until device_slot_wait() has come
 * back (device contract 5.3). */
#include "core/device_impl.h"

#include <assert.h>
#include <stdlib.h>

#include "core/base/mem.h"

/* What a tensor of a slot is mapped to. It counts only if it was mapped since the last reset. */
struct mapping {
	const void *host;
	uint64_t offset, size;
	uint64_t round;
};

struct slot {
	struct device *device;
	struct model *model;
	const struct model_info *info;
	struct inbuf *in;
	struct outbuf *out;
	bool submitted, spoiled;
	enum device_task task;
	uint64_t round;        /* of mappings, from 1; a reset begins the next */
	struct mapping maps[]; /* inputs, then outputs */
};

static enum npu_error slot_buffers(struct slot *s, const struct device_ops *ops)
{
	enum npu_error code = ops->create_input_buf(s->model, &s->in);

	if (code || !s->in)
		return code ? code : NPU_MEMORY_ALLOCATION;
	code = ops->create_output_buf(s->model, &s->out);
	if (code || !s->out) {
		ops->destroy_input_buf(s->in);
		return code ? code : NPU_MEMORY_ALLOCATION;
	}
	return NPU_SUCCESS;
}

enum npu_error device_slot_new(struct device *d, struct model *m, struct slot **ret)
{
	enum npu_error code;

	if (!d->configured)
		return NPU_MISS_CONFIGURATION;
	const struct model_info *info = d->ops->model_info(m);
	AUTO_FREE struct slot *s =
		calloc(1, sizeof *s + (info->n_inputs + info->n_outputs) * sizeof(struct mapping));
	if (!s)
		return NPU_MEMORY_ALLOCATION;
	s->device = d;
	s->model = m;
	s->info = info;
	s->round = 1;
	device_count(CALL_CREATE_BUFFER);
	code = slot_buffers(s, d->ops);
	if (code)
		return code;
	d->slots++;
	*ret = take_ptr(s);
	return NPU_SUCCESS;
}

void device_slot_free(struct slot *s)
{
	if (!s)
		return;
	assert(!s->submitted);
	s->device->ops->destroy_input_buf(s->in);
	s->device->ops->destroy_output_buf(s->out);
	s->device->slots--;
	free(s);
}

/* device contract 4: no zero, no overflow, within the tensor, within the host memory, aligned. */
static enum npu_error slice_check(const struct tensor_spec *tensors, size_t n, size_t index,
	size_t capacity, uint64_t offset, uint64_t size)
{
	int64_t bytes = index < n ? tensor_bytes(&tensors[index]) : -1;

	if (bytes < 0)
		return NPU_INVALID_VALUE;
	if (size == 0 || offset > (uint64_t)bytes || size > (uint64_t)bytes - offset ||
		size > capacity)
		return NPU_OUT_OF_RANGE;
	if (offset % DEVICE_SLICE_ALIGN || size % DEVICE_SLICE_ALIGN)
		return NPU_INVALID_VALUE;
	return NPU_SUCCESS;
}

static enum npu_error mapped(struct slot *s, size_t tensor, const void *host, uint64_t offset,
	uint64_t size, enum npu_error code)
{
	if (!code)
		s->maps[tensor] = (struct mapping){ host, offset, size, s->round };
	return code;
}

enum npu_error device_slot_in(struct slot *s, size_t input, const void *host, size_t capacity,
	uint64_t offset, uint64_t size)
{
	enum npu_error code =
		slice_check(s->info->inputs, s->info->n_inputs, input, capacity, offset, size);

	if (code || s->submitted)
		return code ? code : NPU_DEVICE_BUSY;
	device_count(CALL_SLICE);
	code = s->device->ops->slice_input(s->in, s->info->inputs[input].name, host, offset, size);
	return mapped(s, input, host, offset, size, code);
}

enum npu_error device_slot_out(struct slot *s, size_t output, void *host, size_t capacity,
	uint64_t offset, uint64_t size)
{
	enum npu_error code =
		slice_check(s->info->outputs, s->info->n_outputs, output, capacity, offset, size);

	if (code || s->submitted)
		return code ? code : NPU_DEVICE_BUSY;
	device_count(CALL_SLICE);
	code = s->device->ops->slice_output(s->out, s->info->outputs[output].name, host, offset,
		size);
	return mapped(s, s->info->n_inputs + output, host, offset, size, code);
}

enum npu_error device_slot_lengths(struct slot *s, uint32_t past, uint32_t cur)
{
	uint32_t limit = s->device->llm.max_seq_len;
	enum npu_error code;

	if (s->submitted)
		return NPU_DEVICE_BUSY;
	if (cur < 1 || cur > limit || past > limit - cur)
		return NPU_OUT_OF_RANGE;
	device_count(CALL_CSR);
	code = s->device->ops->set_csr(s->model, CSR_CUR_LEN, cur);
	if (code)
		return code;
	device_count(CALL_CSR);
	return s->device->ops->set_csr(s->model, CSR_PAST_LEN, past + cur);
}

/* Every tensor is mapped, and none still to what an earlier inference was given. */
static bool all_mapped(const struct slot *s)
{
	for (size_t i = 0; i < s->info->n_inputs + s->info->n_outputs; i++)
		if (s->maps[i].round != s->round)
			return false;
	return true;
}

/* One in flight, or one an engine. */
static bool engine_free(const struct device *d, enum device_task task)
{
	if (!d->parallel || task == DEVICE_AUTO)
		return d->in_flight < (d->parallel ? DEVICE_ENGINES : 1);
	return !d->engine_busy[task];
}

static enum npu_error may_submit(const struct slot *s, enum device_task task)
{
	if (task < DEVICE_AUTO || task > DEVICE_PONG)
		return NPU_INVALID_VALUE;
	if (s->submitted || !engine_free(s->device, task))
		return NPU_DEVICE_BUSY;
	if (s->spoiled)
		return NPU_NOT_EXPECTED;
	return all_mapped(s) ? NPU_SUCCESS : NPU_INVALID_VALUE;
}

static void note_submitted(struct slot *s, enum device_task task)
{
	s->submitted = true;
	s->task = task;
	s->device->in_flight++;
	if (task != DEVICE_AUTO)
		s->device->engine_busy[task] = true;
}

/* The class of an error decides whether its buffers may be used again (device contract 5.2). */
static enum npu_error spoil(struct slot *s, enum npu_error code)
{
	if (npu_error_reaches_further(code))
		s->spoiled = true;
	return code;
}

enum npu_error device_slot_submit(struct slot *s, enum device_task task)
{
	struct device *d = s->device;
	enum npu_error code = may_submit(s, task);

	if (code)
		return code;
	device_count(CALL_INFER);
	code = d->ops->infer(d->vdev, s->model, s->in, s->out, task);
	if (code)
		return spoil(s, code);
	note_submitted(s, task);
	return NPU_SUCCESS;
}

/* It is taken as submitted whatever happened: what was not is told by Wait. */
enum npu_error device_slot_submit_void(struct slot *s, enum device_task task)
{
	struct device *d = s->device;
	enum npu_error code = may_submit(s, task);

	if (code)
		return code;
	if (!d->ops->submit_void)
		return NPU_DEVICE_UNSUPPORT;
	device_count(CALL_INFER);
	d->ops->submit_void(d->vdev, s->model, s->in, s->out, task);
	note_submitted(s, task);
	return device_status(d);
}

enum device_run device_slot_status(struct slot *s)
{
	return s->device->ops->run_status(s->out);
}

bool device_slot_spoiled(const struct slot *s)
{
	return s->spoiled;
}

enum npu_error device_slot_wait(struct slot *s)
{
	struct device *d = s->device;
	enum npu_error code;

	assert(s->submitted);
	device_count(CALL_WAIT);
	code = d->ops->wait(s->out);
	s->submitted = false;
	d->in_flight--;
	if (s->task != DEVICE_AUTO)
		d->engine_busy[s->task] = false;
	if (!code && d->ops->run_status(s->out) == RUN_DONE_CCU_EXCEPTION)
		code = NPU_DEVICE_CRASH;
	return spoil(s, code);
}

void device_slot_reset(struct slot *s)
{
	assert(!s->submitted);
	s->device->ops->reset_input(s->in);
	s->device->ops->reset_output(s->out);
	s->round++;
}
