/* Packing copies every weight once, at load: afterwards nothing depends on the file any more, and a
 * matrix is read front to back in exactly the order it lies in memory. */
#include "core/sim/matrix.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CACHE_LINE 64

/* Whole cache lines, at least one. 0: too many. */
static size_t whole_lines(size_t n, size_t item)
{
	size_t bytes;

	if (__builtin_mul_overflow(n, item, &bytes) || bytes > SIZE_MAX - CACHE_LINE)
		return 0;
	return bytes ? (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE : CACHE_LINE;
}

static void *zeroed(size_t n, size_t item)
{
	size_t bytes = whole_lines(n, item);
	void *p = bytes ? aligned_alloc(CACHE_LINE, bytes) : NULL;

	if (p)
		memset(p, 0, bytes);
	return p;
}

float *matrix_floats(size_t n)
{
	return zeroed(n, sizeof(float));
}

float *matrix_floats_raw(size_t n)
{
	size_t bytes = whole_lines(n, sizeof(float));

	return bytes ? aligned_alloc(CACHE_LINE, bytes) : NULL;
}

static size_t place(const struct matrix *m, uint32_t r, uint32_t c)
{
	return ((size_t)(r / MATRIX_BLOCK) * m->cols + c) * MATRIX_BLOCK + r % MATRIX_BLOCK;
}

static void pack_floats(struct matrix *m, const unsigned char *from)
{
	float *to = m->packed;

	for (uint32_t r = 0; r < m->rows; r++)
		for (uint32_t c = 0; c < m->cols; c++, from += sizeof(float))
			memcpy(&to[place(m, r, c)], from, sizeof(float));
}

static void pack_bytes(struct matrix *m, const int8_t *from)
{
	int8_t *to = m->packed;

	for (uint32_t r = 0; r < m->rows; r++)
		for (uint32_t c = 0; c < m->cols; c++)
			to[place(m, r, c)] = *from++;
}

static enum npu_error load_scale(const struct safetensors *st, const char *name, struct matrix *m)
{
	char full[256];

	if ((size_t)snprintf(full, sizeof(full), "%s_scale", name) >= sizeof(full))
		return NPU_INVALID_CALBIN;
	return matrix_load_vector(st, full, m->rows, &m->scale);
}

enum npu_error matrix_load(const struct safetensors *st, const char *name, uint32_t rows,
	uint32_t cols, struct matrix *ret)
{
	const struct safetensors_view *v = safetensors_find(st, name);
	size_t item;

	*ret = (struct matrix){ .rows = rows, .cols = cols };
	if (!v)
		return NPU_INVALID_CALBIN;
	if (v->dtype != DTYPE_FLOAT32 && v->dtype != DTYPE_INT8)
		return NPU_INVALID_DATA_TYPE;
	if (v->rank != 2 || v->dims[0] != rows || v->dims[1] != cols)
		return NPU_INVALID_DATA_SHAPE;
	ret->int8 = v->dtype == DTYPE_INT8;
	item = dtype_size(v->dtype);
	ret->packed = zeroed(matrix_pad(rows) * cols, item);
	if (!ret->packed)
		return NPU_MEMORY_ALLOCATION;
	if (!ret->int8) {
		pack_floats(ret, v->data);
		return NPU_SUCCESS;
	}
	pack_bytes(ret, v->data);
	return load_scale(st, name, ret);
}

void matrix_done(struct matrix *m)
{
	free(m->packed);
	free(m->scale);
	*m = (struct matrix){ 0 };
}

enum npu_error matrix_load_vector(const struct safetensors *st, const char *name, uint32_t n,
	float **ret)
{
	const struct safetensors_view *v = safetensors_find(st, name);
	float *copy;

	if (!v)
		return NPU_INVALID_CALBIN;
	if (v->dtype != DTYPE_FLOAT32)
		return NPU_INVALID_DATA_TYPE;
	if (v->rank != 1 || v->dims[0] != n)
		return NPU_INVALID_DATA_SHAPE;
	copy = matrix_floats(matrix_pad(n));
	if (!copy)
		return NPU_MEMORY_ALLOCATION;
	memcpy(copy, v->data, v->bytes);
	*ret = copy;
	return NPU_SUCCESS;
}

void matrix_row(const struct matrix *m, uint32_t r, float *ret)
{
	const int8_t *bytes = m->packed;
	const float *floats = m->packed;

	for (uint32_t c = 0; c < m->cols; c++) {
		size_t at = place(m, r, c);

		ret[c] = m->int8 ? (float)bytes[at] * m->scale[r] : floats[at];
	}
}
