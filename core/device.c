/* The checked caller of a backend.
 *
 * States of a device, and what may be asked in each:
 *   opened      load, status, close
 *   loaded      queries, configure, unload
 *   configured  slots, KV, inference, status, unload (once slots are gone)
 * States of a slot: idle -> submitted -> idle (Wait returned). A submitted slot is untouchable: its
 * host memory, model and device stay valid until device_slot_wait() has come back
 * (device contract 5.3). */
#include "core/device.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"

struct device {
	const struct device_ops *ops;
	struct vdevice *vdev;
	struct calbin *calbin;
	struct kvman *kv;
	bool configured;
	struct llm_info llm;
	struct device_info info;
	unsigned slots; /* alive */
};

struct slot {
	struct device *device;
	struct model *model;
	const struct model_info *info;
	struct inbuf *in;
	struct outbuf *out;
	bool submitted;
};

static _Atomic uint64_t calls[CALL_COUNT];

static const char *const call_names[CALL_COUNT] = {
	[CALL_CREATE_VDEVICE] = "CreateVDevice",
	[CALL_STATUS] = "Status",
	[CALL_INFO] = "GetDeviceInfo",
	[CALL_CREATE_CALBIN] = "CreateCalbin",
	[CALL_CONFIGURE] = "configure",
	[CALL_RESET_CONFIGURATION] = "ResetConfiguration",
	[CALL_SHUTDOWN] = "Shutdown",
	[CALL_CREATE_BUFFER] = "createBuf",
	[CALL_SLICE] = "SliceTensorByName",
	[CALL_CSR] = "SetCsrByName",
	[CALL_INFER] = "infer",
	[CALL_WAIT] = "Wait",
	[CALL_KV] = "KvManager",
};

static void count(enum device_call call)
{
	atomic_fetch_add_explicit(&calls[call], 1, memory_order_relaxed);
}

uint64_t device_calls(enum device_call call)
{
	return atomic_load_explicit(&calls[call], memory_order_relaxed);
}

const char *device_call_name(enum device_call call)
{
	return call_names[call];
}

static bool ops_complete(const struct device_ops *o)
{
	bool kv = o->create_kv && o->destroy_kv && o->kv_can_allocate && o->kv_allocate &&
		o->kv_free && o->kv_remove_tokens_at_end && o->kv_exists && o->kv_apply &&
		o->kv_seq_len && o->kv_clear;

	return o->name && o->create_vdevice && o->status && o->get_device_info &&
		o->reset_configuration && o->shutdown && o->create_calbin && o->destroy_calbin &&
		o->model_count && o->model_at && o->get_model_by_name && o->get_llm_info &&
		o->version && o->model_info && o->configure && o->create_input_buf &&
		o->create_output_buf && o->destroy_input_buf && o->destroy_output_buf &&
		o->slice_input && o->slice_output && o->reset_input && o->reset_output &&
		o->set_csr && o->get_csr && o->infer && o->wait && o->run_status &&
		(kv || !o->create_kv);
}

static enum npu_error first_status(struct device *d)
{
	enum npu_error code = device_status(d);

	if (code)
		return code;
	count(CALL_INFO);
	return d->ops->get_device_info(d->vdev, &d->info);
}

enum npu_error device_open(const struct device_ops *ops, const struct device_params *p,
	struct device **ret)
{
	enum npu_error code;

	if (!ops_complete(ops))
		return NPU_DEVICE_UNSUPPORT;
	AUTO_FREE struct device *d = calloc(1, sizeof *d);
	if (!d)
		return NPU_MEMORY_ALLOCATION;
	d->ops = ops;
	count(CALL_CREATE_VDEVICE);
	code = ops->create_vdevice(p, &d->vdev);
	if (code)
		return code;
	if (!d->vdev)
		return NPU_NO_DEVICE;
	code = first_status(d);
	if (code) {
		count(CALL_SHUTDOWN);
		ops->shutdown(d->vdev);
		return code;
	}
	*ret = take_ptr(d);
	return NPU_SUCCESS;
}

void device_close(struct device *d)
{
	if (!d)
		return;
	assert(!d->calbin && !d->slots);
	count(CALL_SHUTDOWN);
	d->ops->shutdown(d->vdev);
	free(d);
}

enum npu_error device_status(struct device *d)
{
	count(CALL_STATUS);
	return d->ops->status(d->vdev);
}

void device_versions(const struct device *d, struct device_info *ret)
{
	*ret = d->info;
}

/* --- calbin ----------------------------------------------------------------------------------- */

enum npu_error device_load(struct device *d, const char *path)
{
	struct calbin *calbin = NULL;
	enum npu_error code;

	if (d->calbin)
		return NPU_ALREADY_CONFIGURED;
	count(CALL_CREATE_CALBIN);
	code = d->ops->create_calbin(d->vdev, path, &calbin);
	if (code)
		return code;
	if (!calbin)
		return NPU_INVALID_CALBIN;
	d->calbin = calbin;
	d->ops->get_llm_info(calbin, &d->llm);
	return NPU_SUCCESS;
}

enum npu_error device_configure(struct device *d)
{
	enum npu_error code;

	assert(d->calbin);
	if (d->configured)
		return NPU_ALREADY_CONFIGURED;
	count(CALL_CONFIGURE);
	code = d->ops->configure(d->vdev, d->calbin, false);
	if (code)
		return code;
	d->configured = true;
	return device_status(d);
}

enum npu_error device_unload(struct device *d)
{
	enum npu_error code = NPU_SUCCESS;

	assert(!d->slots);
	if (d->kv)
		d->ops->destroy_kv(d->kv);
	d->kv = NULL;
	if (d->configured) {
		count(CALL_RESET_CONFIGURATION);
		code = d->ops->reset_configuration(d->vdev);
		d->configured = false;
	}
	if (d->calbin)
		d->ops->destroy_calbin(d->calbin);
	d->calbin = NULL;
	return code;
}

size_t device_model_count(struct device *d)
{
	assert(d->calbin);
	return d->ops->model_count(d->calbin);
}

struct model *device_model(struct device *d, const char *name)
{
	assert(d->calbin);
	return d->ops->get_model_by_name(d->calbin, name);
}

const struct model_info *device_model_info(struct device *d, struct model *m)
{
	return d->ops->model_info(m);
}

void device_llm_info(struct device *d, struct llm_info *ret)
{
	*ret = d->llm;
}

const char *device_calbin_version(struct device *d)
{
	assert(d->calbin);
	return d->ops->version(d->calbin);
}

void device_golden(struct device *d, const char *model, struct buf *ret_in, struct buf *ret_out)
{
	assert(d->calbin);
	if (d->ops->get_golden_input)
		d->ops->get_golden_input(d->calbin, model, ret_in);
	if (d->ops->get_golden_output)
		d->ops->get_golden_output(d->calbin, model, ret_out);
}

/* --- slots ------------------------------------------------------------------------------------ */

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
	AUTO_FREE struct slot *s = calloc(1, sizeof *s);
	if (!s)
		return NPU_MEMORY_ALLOCATION;
	s->device = d;
	s->model = m;
	s->info = d->ops->model_info(m);
	count(CALL_CREATE_BUFFER);
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

enum npu_error device_slot_in(struct slot *s, size_t input, const void *host, size_t capacity,
	uint64_t offset, uint64_t size)
{
	enum npu_error code =
		slice_check(s->info->inputs, s->info->n_inputs, input, capacity, offset, size);

	if (code || s->submitted)
		return code ? code : NPU_DEVICE_BUSY;
	count(CALL_SLICE);
	return s->device->ops->slice_input(s->in, s->info->inputs[input].name, host, offset, size);
}

enum npu_error device_slot_out(struct slot *s, size_t output, void *host, size_t capacity,
	uint64_t offset, uint64_t size)
{
	enum npu_error code =
		slice_check(s->info->outputs, s->info->n_outputs, output, capacity, offset, size);

	if (code || s->submitted)
		return code ? code : NPU_DEVICE_BUSY;
	count(CALL_SLICE);
	return s->device->ops->slice_output(s->out, s->info->outputs[output].name, host, offset,
		size);
}

enum npu_error device_slot_lengths(struct slot *s, uint32_t past, uint32_t cur)
{
	uint32_t limit = s->device->llm.max_seq_len;
	enum npu_error code;

	if (s->submitted)
		return NPU_DEVICE_BUSY;
	if (cur < 1 || cur > limit || past > limit - cur)
		return NPU_OUT_OF_RANGE;
	count(CALL_CSR);
	code = s->device->ops->set_csr(s->model, CSR_CUR_LEN, cur);
	if (code)
		return code;
	count(CALL_CSR);
	return s->device->ops->set_csr(s->model, CSR_PAST_LEN, past + cur);
}

enum npu_error device_slot_submit(struct slot *s)
{
	struct device *d = s->device;
	enum npu_error code;

	if (s->submitted)
		return NPU_DEVICE_BUSY;
	count(CALL_INFER);
	code = d->ops->infer(d->vdev, s->model, s->in, s->out, DEVICE_AUTO);
	s->submitted = code == NPU_SUCCESS;
	return code;
}

enum npu_error device_slot_wait(struct slot *s)
{
	enum npu_error code;

	assert(s->submitted);
	count(CALL_WAIT);
	code = s->device->ops->wait(s->out);
	s->submitted = false;
	if (!code && s->device->ops->run_status(s->out) == RUN_DONE_CCU_EXCEPTION)
		code = NPU_DEVICE_CRASH;
	return code;
}

void device_slot_reset(struct slot *s)
{
	assert(!s->submitted);
	s->device->ops->reset_input(s->in);
	s->device->ops->reset_output(s->out);
}

/* --- KV --------------------------------------------------------------------------------------- */

enum npu_error device_kv_open(struct device *d)
{
	enum npu_error code;

	if (!d->configured)
		return NPU_MISS_CONFIGURATION;
	if (!d->ops->create_kv)
		return NPU_DEVICE_UNSUPPORT;
	if (d->kv)
		return NPU_MEMORY_ALREADY_REGISTERED;
	count(CALL_KV);
	code = d->ops->create_kv(d->vdev, d->calbin, &d->kv);
	return code || d->kv ? code : NPU_MEMORY_ALLOCATION;
}

bool device_kv_can_allocate(struct device *d)
{
	count(CALL_KV);
	return d->kv && d->ops->kv_can_allocate(d->kv, 1);
}

enum npu_error device_kv_allocate(struct device *d, int32_t seq)
{
	const struct kv_seq_info info = { .seq_id = seq, .n_tokens = 0 };

	if (seq < 0 || d->ops->kv_exists(d->kv, seq))
		return NPU_INVALID_VALUE;
	if (!device_kv_can_allocate(d))
		return NPU_MEMORY_ALLOCATION;
	count(CALL_KV);
	d->ops->kv_allocate(d->kv, &info);
	if (!d->ops->kv_exists(d->kv, seq) || d->ops->kv_seq_len(d->kv, seq) != 0)
		return NPU_NOT_EXPECTED;
	return NPU_SUCCESS;
}

enum npu_error device_kv_free(struct device *d, int32_t seq)
{
	count(CALL_KV);
	d->ops->kv_free(d->kv, seq);
	return d->ops->kv_exists(d->kv, seq) ? NPU_NOT_EXPECTED : NPU_SUCCESS;
}

enum npu_error device_kv_apply(struct device *d, int32_t seq, int32_t n_tokens)
{
	const struct kv_seq_info info = { .seq_id = seq, .n_tokens = n_tokens };
	int32_t len = device_kv_len(d, seq);

	if (len < 0 || n_tokens < 1)
		return NPU_INVALID_VALUE;
	if ((uint32_t)len > d->llm.max_seq_len ||
		(uint32_t)n_tokens > d->llm.max_seq_len - (uint32_t)len)
		return NPU_OUT_OF_RANGE;
	count(CALL_KV);
	if (!d->ops->kv_apply(d->kv, &info))
		return NPU_NOT_EXPECTED; /* only a bool: no reason to be had */
	return device_kv_len(d, seq) == len + n_tokens ? NPU_SUCCESS : NPU_NOT_EXPECTED;
}

int32_t device_kv_len(struct device *d, int32_t seq)
{
	return d->ops->kv_seq_len(d->kv, seq);
}

enum npu_error device_kv_truncate(struct device *d, int32_t seq, int32_t len)
{
	int32_t now = device_kv_len(d, seq);

	if (now < 0 || len < 0 || len > now)
		return NPU_INVALID_VALUE;
	if (len == now)
		return NPU_SUCCESS;
	count(CALL_KV);
	d->ops->kv_remove_tokens_at_end(d->kv, seq, (size_t)(now - len));
	return device_kv_len(d, seq) == len ? NPU_SUCCESS : NPU_NOT_EXPECTED;
}
