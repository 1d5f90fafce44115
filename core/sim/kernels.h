/* The inner loops of the software NPU, in one variant for each vector width.
 *
 * What a kernel gives depends on its arguments alone: every sum is taken in an order that is fixed
 * by the shapes, so neither the number of threads, nor how rows are split among them, nor the
 * number of tokens computed together changes a bit. Different variants may differ in the last bits.
 *
 * "Padded" memory is a whole number of MATRIX_BLOCK floats on a 64-byte boundary, zero past the
 * values. */
#ifndef NPUFS_CORE_SIM_KERNELS_H
#define NPUFS_CORE_SIM_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/sim/matrix.h"

/* n rows of floats, `stride` floats apart. */
struct rows {
	float *at;
	size_t stride;
};

struct kernels {
	const char *name;

	/* y[t][r] = (add ? y[t][r] : 0) + sum over c of m[r][c] * x[t][c], for the first `n` rows
	 * of x and y and rows r of the blocks [first, last) of m. Nothing past m->rows is written.
	 */
	void (*matmul)(const struct matrix *m, struct rows x, struct rows y, uint32_t n,
		uint32_t first, uint32_t last, bool add);

	/* out = x / sqrt(mean(x^2) + eps) * weight; all padded, n values. */
	void (*rmsnorm)(float *out, const float *x, const float *weight, size_t n, float eps);

	/* gate = silu(gate) * up; both padded, n values. */
	void (*swiglu)(float *gate, const float *up, size_t n);

	/* x = softmax(x); padded, n >= 1 values. */
	void (*softmax)(float *x, size_t n);

	/* One query head over n >= 1 cached positions. `k` and `v` are laid out [positions /
	 * 16][head_dim][16]; what they hold past n is not used, whatever it is. `scores` is padded
	 * scratch for n values. */
	void (*attend)(float *out, const float *q, const float *k, const float *v, size_t n,
		size_t head_dim, float scale, float *scores);
};

/* The variants this processor can run, best first; NULL past the end. */
const struct kernels *kernels_at(size_t i);

#endif
