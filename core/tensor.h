/* Tensor shapes and element types, as the manifest, the device and the requests name them. */
#ifndef NPUFS_CORE_TENSOR_H
#define NPUFS_CORE_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TENSOR_MAX_RANK 8
#define TENSOR_NAME_MAX 63

enum dtype {
	DTYPE_INVALID,
	DTYPE_BOOL,
	DTYPE_INT8,
	DTYPE_UINT8,
	DTYPE_INT16,
	DTYPE_UINT16,
	DTYPE_INT32,
	DTYPE_UINT32,
	DTYPE_INT64,
	DTYPE_UINT64,
	DTYPE_FLOAT16,
	DTYPE_FLOAT32,
	DTYPE_FLOAT64,
	DTYPE_COUNT
};

struct tensor_spec {
	char name[TENSOR_NAME_MAX + 1];
	enum dtype dtype;
	uint32_t rank; /* 0..TENSOR_MAX_RANK */
	int64_t dims[TENSOR_MAX_RANK];
};

size_t dtype_size(enum dtype t);              /* bytes an element; 0 for invalid */
const char *dtype_name(enum dtype t);         /* "float32"; the manifest's spelling */
const char *dtype_kserve(enum dtype t);       /* "FP32"; the spelling of KServe v2 */
enum dtype dtype_from_name(const char *name); /* either spelling; DTYPE_INVALID when neither */

/* Elements, or -1 when the product overflows or a dimension is negative. */
int64_t tensor_elements(const struct tensor_spec *t);
/* Bytes, or -1 likewise. */
int64_t tensor_bytes(const struct tensor_spec *t);
bool tensor_same_shape(const struct tensor_spec *a,
	const struct tensor_spec *b); /* rank and dims */
/* No infinities and nothing that is no number among these tensor_bytes(); whole numbers are finite. */
bool tensor_is_finite(const struct tensor_spec *t, const void *data);
/* "float32[2,3]" for messages; returns ret. */
#define TENSOR_TEXT_SIZE 224
const char *tensor_text(const struct tensor_spec *t, char ret[TENSOR_TEXT_SIZE]);

#endif
