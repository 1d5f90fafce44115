#include "core/device_probe.h"

#include "core/device_impl.h"

enum npu_error device_probe_csr(struct device *d, struct model *m, const char *name, uint32_t value)
{
	device_count(CALL_CSR);
	return d->ops->set_csr(m, name, value);
}

uint32_t device_probe_read_csr(struct device *d, struct model *m, const char *name)
{
	return d->ops->get_csr(m, name);
}

enum npu_error device_probe_slice_in(struct device *d, struct model *m, const char *tensor,
	const void *host, uint64_t offset, uint64_t size)
{
	struct inbuf *b = NULL;
	enum npu_error code = d->ops->create_input_buf(m, &b);

	if (code || !b)
		return NPU_MEMORY_ALLOCATION;
	device_count(CALL_SLICE);
	code = d->ops->slice_input(b, tensor, host, offset, size);
	d->ops->reset_input(b);
	d->ops->destroy_input_buf(b);
	return code;
}

enum npu_error device_probe_slice_out(struct device *d, struct model *m, const char *tensor,
	void *host, uint64_t offset, uint64_t size)
{
	struct outbuf *b = NULL;
	enum npu_error code = d->ops->create_output_buf(m, &b);

	if (code || !b)
		return NPU_MEMORY_ALLOCATION;
	device_count(CALL_SLICE);
	code = d->ops->slice_output(b, tensor, host, offset, size);
	d->ops->reset_output(b);
	d->ops->destroy_output_buf(b);
	return code;
}
