/* A weights file in the safetensors format: 8 bytes little-endian header length, a JSON header
 * {"name": {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__": {...}}, then the data.
 * The file is mapped read-only while the object lives; names and views die with it.
 *
 * NPU_FILE_NOT_FOUND when it cannot be opened, NPU_BROKEN_FILE for anything that is not exactly
 * such a file: every offset, size and product is checked, and the tensors must cover the data
 * without holes. */
#ifndef NPUFS_CORE_SIM_SAFETENSORS_H
#define NPUFS_CORE_SIM_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/npu_error.h"
#include "core/tensor.h"

#define SAFETENSORS_MAX_HEADER  (16u << 20)
#define SAFETENSORS_MAX_TENSORS 65536

struct safetensors;

struct safetensors_view {
	const char *name;
	enum dtype dtype; /* DTYPE_INVALID for a type of the format that has none here, as BF16 */
	uint32_t rank;
	int64_t dims[TENSOR_MAX_RANK];
	const void *data; /* little-endian; not necessarily aligned */
	size_t bytes;
};

enum npu_error safetensors_open(const char *path, struct safetensors **ret);
/* The same over bytes in memory, which must outlive the object. */
enum npu_error safetensors_parse(const void *bytes, size_t n, struct safetensors **ret);
void safetensors_close(struct safetensors *s); /* NULL is fine */

size_t safetensors_count(const struct safetensors *s);
const struct safetensors_view *safetensors_find(const struct safetensors *s, const char *name);

#endif
