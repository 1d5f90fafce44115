#include "core/tensor.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/mem.h"

struct dtype_row {
	const char *name, *kserve;
	size_t size;
};

static const struct dtype_row rows[] = {
	[DTYPE_INVALID] = { "invalid", "INVALID", 0 },
	[DTYPE_BOOL] = { "bool", "BOOL", 1 },
	[DTYPE_INT8] = { "int8", "INT8", 1 },
	[DTYPE_UINT8] = { "uint8", "UINT8", 1 },
	[DTYPE_INT16] = { "int16", "INT16", 2 },
	[DTYPE_UINT16] = { "uint16", "UINT16", 2 },
	[DTYPE_INT32] = { "int32", "INT32", 4 },
	[DTYPE_UINT32] = { "uint32", "UINT32", 4 },
	[DTYPE_INT64] = { "int64", "INT64", 8 },
	[DTYPE_UINT64] = { "uint64", "UINT64", 8 },
	[DTYPE_FLOAT16] = { "float16", "FP16", 2 },
	[DTYPE_FLOAT32] = { "float32", "FP32", 4 },
	[DTYPE_FLOAT64] = { "float64", "FP64", 8 },
};

static_assert(ARRAY_SIZE(rows) == DTYPE_COUNT, "one row for each element type");

static const struct dtype_row *row_of(enum dtype t)
{
	return &rows[(unsigned)t < DTYPE_COUNT ? t : DTYPE_INVALID];
}

size_t dtype_size(enum dtype t)
{
	return row_of(t)->size;
}

const char *dtype_name(enum dtype t)
{
	return row_of(t)->name;
}

const char *dtype_kserve(enum dtype t)
{
	return row_of(t)->kserve;
}

enum dtype dtype_from_name(const char *name)
{
	for (unsigned t = DTYPE_INVALID + 1; t < DTYPE_COUNT; t++)
		if (strcmp(name, rows[t].name) == 0 || strcmp(name, rows[t].kserve) == 0)
			return (enum dtype)t;
	return DTYPE_INVALID;
}

/* A dimension of 0 makes the product 0, but does not excuse an overflow of the others. */
int64_t tensor_elements(const struct tensor_spec *t)
{
	int64_t n = 1;
	bool empty = false;

	if (t->rank > TENSOR_MAX_RANK)
		return -1;
	for (uint32_t i = 0; i < t->rank; i++) {
		if (t->dims[i] < 0)
			return -1;
		if (t->dims[i] == 0)
			empty = true;
		else if (__builtin_mul_overflow(n, t->dims[i], &n))
			return -1;
	}
	return empty ? 0 : n;
}

int64_t tensor_bytes(const struct tensor_spec *t)
{
	int64_t n = tensor_elements(t);

	if (n < 0 || __builtin_mul_overflow(n, (int64_t)dtype_size(t->dtype), &n))
		return -1;
	return n;
}

bool tensor_same_shape(const struct tensor_spec *a, const struct tensor_spec *b)
{
	if (a->rank != b->rank || a->rank > TENSOR_MAX_RANK)
		return false;
	for (uint32_t i = 0; i < a->rank; i++)
		if (a->dims[i] != b->dims[i])
			return false;
	return true;
}

const char *tensor_text(const struct tensor_spec *t, char ret[TENSOR_TEXT_SIZE])
{
	uint32_t rank = t->rank < TENSOR_MAX_RANK ? t->rank : TENSOR_MAX_RANK;
	int at = snprintf(ret, TENSOR_TEXT_SIZE, "%s[", dtype_name(t->dtype));

	/* 8 dimensions of at most 20 characters and a comma each: it always fits. */
	for (uint32_t i = 0; i < rank; i++)
		at += snprintf(ret + at, TENSOR_TEXT_SIZE - (size_t)at, "%s%" PRId64, i ? "," : "",
			t->dims[i]);
	snprintf(ret + at, TENSOR_TEXT_SIZE - (size_t)at, "]");
	return ret;
}

/* --- numbers ----------------------------------------------------------------------------------- */

/* A value that is not finite times zero is not zero; the sum of such products stays 0 otherwise. */
static bool floats_finite(const float *v, size_t n)
{
	float acc[16] = { 0 };
	size_t i = 0;

	for (; i + 16 <= n; i += 16)
		for (size_t lane = 0; lane < 16; lane++)
			acc[lane] += v[i + lane] * 0.0f;
	for (; i < n; i++)
		acc[0] += v[i] * 0.0f;
	for (size_t lane = 1; lane < 16; lane++)
		acc[0] += acc[lane];
	return acc[0] == 0.0f;
}

static bool doubles_finite(const double *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!isfinite(v[i]))
			return false;
	return true;
}

/* An exponent of all ones is an infinity or no number. */
static bool halves_finite(const uint16_t *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if ((v[i] & 0x7c00) == 0x7c00)
			return false;
	return true;
}

bool tensor_is_finite(const struct tensor_spec *t, const void *data)
{
	size_t n = (size_t)tensor_elements(t);

	switch (t->dtype) {
	case DTYPE_FLOAT16:
		return halves_finite(data, n);
	case DTYPE_FLOAT32:
		return floats_finite(data, n);
	case DTYPE_FLOAT64:
		return doubles_finite(data, n);
	default:
		return true;
	}
}
