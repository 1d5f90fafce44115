/* What a backend itself says to values that the checked caller never lets through. For the matrix
 * alone: nothing is submitted by these, and the buffers they need are their own. */
#ifndef NPUFS_CORE_DEVICE_PROBE_H
#define NPUFS_CORE_DEVICE_PROBE_H

#include "core/device.h"

enum npu_error device_probe_csr(struct device *d, struct model *m, const char *name,
	uint32_t value);
/* 0 is also an error: a read-back of a value that is not 0 alone says something. */
uint32_t device_probe_read_csr(struct device *d, struct model *m, const char *name);
/* On a fresh input buffer of the model, or an output buffer; NPU_MEMORY_ALLOCATION without one. */
enum npu_error device_probe_slice_in(struct device *d, struct model *m, const char *tensor,
	const void *host, uint64_t offset, uint64_t size);
enum npu_error device_probe_slice_out(struct device *d, struct model *m, const char *tensor,
	void *host, uint64_t offset, uint64_t size);

#endif
