/* The checked caller of a backend.
 *
 * States of a device, and what may be asked in each:
 *   opened      load, status, close
 *   loaded      queries, configure, unload
 *   configured  slots, KV, inference, status, unload (once slots are gone) */
#include "core/device_impl.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "core/base/mem.h"

static _Atomic uint64_t calls[CALL_COUNT];

static const char *const call_names[CALL_COUNT] = {
	[CALL_CREATE_VDEVICE] = "CreateVDevice",
	[CALL_STATUS] = "Status",
	[CALL_INFO] = "GetDeviceInfo",
	[CALL_CREATE_CALBIN] = "CreateCalbin",
	[CALL_CONFIGURE] = "configure",
	[CALL_RESET_CONFIGURATION] = "ResetConfiguration",
	[CALL_RESET_CCU] = "ResetCCU",
	[CALL_RESET] = "Reset",
	[CALL_READ_MEM] = "ReadMem",
	[CALL_WRITE_MEM] = "WriteMem",
	[CALL_READ_REG] = "ReadRegister",
	[CALL_WRITE_REG] = "WriteRegister",
	[CALL_PARALLEL] = "EnableParallelMode",
	[CALL_SHUTDOWN] = "Shutdown",
	[CALL_CREATE_BUFFER] = "createBuf",
	[CALL_SLICE] = "SliceTensorByName",
	[CALL_CSR] = "SetCsrByName",
	[CALL_INFER] = "infer",
	[CALL_WAIT] = "Wait",
	[CALL_KV] = "KvManager",
};

void device_count(enum device_call call)
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
		(kv || !o->create_kv) && !o->callables == !o->callable_context;
}

static enum npu_error first_status(struct device *d)
{
	enum npu_error code = device_status(d);

	if (code)
		return code;
	device_count(CALL_INFO);
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
	d->dump_ini = p->dump_ini;
	device_count(CALL_CREATE_VDEVICE);
	code = ops->create_vdevice(p, &d->vdev);
	if (code)
		return code;
	if (!d->vdev)
		return NPU_NO_DEVICE;
	code = first_status(d);
	if (code) {
		device_count(CALL_SHUTDOWN);
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
	device_count(CALL_SHUTDOWN);
	d->ops->shutdown(d->vdev);
	free(d);
}

enum npu_error device_callables(struct device *d, const struct callable_memory_ops **ret_ops,
	void **ret_context)
{
	void *context;

	if (!d->ops->callables)
		return NPU_DEVICE_UNSUPPORT;
	context = d->ops->callable_context(d->vdev);
	if (!context)
		return NPU_MEMORY_ALLOCATION;
	*ret_ops = d->ops->callables;
	*ret_context = context;
	return NPU_SUCCESS;
}

enum npu_error device_status(struct device *d)
{
	device_count(CALL_STATUS);
	return d->ops->status(d->vdev);
}

void device_versions(const struct device *d, struct device_info *ret)
{
	*ret = d->info;
}

/* Of a privileged call, counted when it may be made: `there` says whether the backend has it. */
static enum npu_error begin_privileged(struct device *d, enum device_call call, bool there)
{
	if (!there)
		return NPU_DEVICE_UNSUPPORT;
	if (d->in_flight)
		return NPU_DEVICE_BUSY;
	device_count(call);
	return NPU_SUCCESS;
}

static enum npu_error reset_level(struct device *d, enum device_call call,
	enum npu_error (*level)(struct vdevice *))
{
	enum npu_error code = begin_privileged(d, call, level);

	return code ? code : level(d->vdev);
}

enum npu_error device_reset_ccu(struct device *d)
{
	return reset_level(d, CALL_RESET_CCU, d->ops->reset_ccu);
}

enum npu_error device_reset(struct device *d)
{
	return reset_level(d, CALL_RESET, d->ops->reset);
}

enum npu_error device_read_mem(struct device *d, uint64_t address, void *to, size_t size)
{
	enum npu_error code = begin_privileged(d, CALL_READ_MEM, d->ops->read_mem);

	return code ? code : d->ops->read_mem(d->vdev, address, to, size);
}

enum npu_error device_write_mem(struct device *d, uint64_t address, const void *from, size_t size)
{
	enum npu_error code = begin_privileged(d, CALL_WRITE_MEM, d->ops->write_mem);

	return code ? code : d->ops->write_mem(d->vdev, address, from, size);
}

enum npu_error device_read_reg(struct device *d, uint64_t address, uint32_t *ret)
{
	enum npu_error code = begin_privileged(d, CALL_READ_REG, d->ops->read_reg);

	return code ? code : d->ops->read_reg(d->vdev, address, ret);
}

enum npu_error device_write_reg(struct device *d, uint64_t address, uint32_t value)
{
	enum npu_error code = begin_privileged(d, CALL_WRITE_REG, d->ops->write_reg);

	return code ? code : d->ops->write_reg(d->vdev, address, value);
}

enum npu_error device_set_parallel(struct device *d, bool on)
{
	enum npu_error code = begin_privileged(d, CALL_PARALLEL, d->ops->enable_parallel);

	if (code)
		return code;
	d->ops->enable_parallel(d->vdev, on);
	code = device_status(d);
	d->parallel = on && !code;
	return code;
}

unsigned device_in_flight(const struct device *d)
{
	return d->in_flight;
}

/* --- calbin ----------------------------------------------------------------------------------- */

enum npu_error device_load(struct device *d, const char *path)
{
	struct calbin *calbin = NULL;
	enum npu_error code;

	if (d->calbin)
		return NPU_ALREADY_CONFIGURED;
	device_count(CALL_CREATE_CALBIN);
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
	device_count(CALL_CONFIGURE);
	code = d->ops->configure(d->vdev, d->calbin, d->dump_ini);
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
		device_count(CALL_RESET_CONFIGURATION);
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
