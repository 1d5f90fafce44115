/* A weight matrix [rows, cols] as the kernels read it: blocks of MATRIX_BLOCK rows, and in a block
 * column after column, so that one vector holds a column's MATRIX_BLOCK rows and a product needs no
 * sum across lanes. The last block is filled up with zero rows. Vectors are padded with zeros
 * likewise. */
#ifndef NPUFS_CORE_SIM_MATRIX_H
#define NPUFS_CORE_SIM_MATRIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/npu_error.h"
#include "core/sim/safetensors.h"

#define MATRIX_BLOCK 16

struct matrix {
	uint32_t rows, cols;
	bool int8;    /* elements are int8_t and row r means `scale[r]` times them; else float */
	void *packed; /* owned; element (r, c) is at ((r / 16) * cols + c) * 16 + r % 16 */
	float *scale; /* owned; padded; NULL unless int8 */
};

/* n rounded up to whole blocks. */
static inline size_t matrix_pad(size_t n)
{
	return (n + MATRIX_BLOCK - 1) / MATRIX_BLOCK * MATRIX_BLOCK;
}

static inline uint32_t matrix_blocks(const struct matrix *m)
{
	return (m->rows + MATRIX_BLOCK - 1) / MATRIX_BLOCK;
}

/* n floats on a cache line, freed with free(): zeroed, or as they come. NULL: no memory. */
float *matrix_floats(size_t n);
float *matrix_floats_raw(size_t n);

/* Tensor `name`, F32, or I8 with a tensor "<name>_scale" of F32 [rows]. NPU_INVALID_CALBIN when it
 * is missing, NPU_INVALID_DATA_TYPE, NPU_INVALID_DATA_SHAPE. `ret` may be given to matrix_done()
 * whatever came back. */
enum npu_error matrix_load(const struct safetensors *st, const char *name, uint32_t rows,
	uint32_t cols, struct matrix *ret);
void matrix_done(struct matrix *m);

/* Tensor `name`, F32 [n], padded; the caller frees it. Errors as above. */
enum npu_error matrix_load_vector(const struct safetensors *st, const char *name, uint32_t n,
	float **ret);

/* Row r as floats; cols of them are written. */
void matrix_row(const struct matrix *m, uint32_t r, float *ret);

#endif
