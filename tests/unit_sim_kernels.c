/* Every variant of the kernels this processor runs, against plain sums in double precision; and
 * that results do not depend, by a single bit, on how the work is cut. */
#include "core/sim/kernels.h"

#include <float.h>

#include "core/sim/pool.h"
#include "sim_files.h"

#define MAX_SIDE 80

static float *filled(size_t n, uint64_t seed)
{
	float *f = matrix_floats(matrix_pad(n));

	for (size_t i = 0; i < n; i++)
		f[i] = random_float(&seed);
	return f;
}

static struct matrix packed(uint32_t rows, uint32_t cols, bool int8, struct weight **ret,
	struct weights *all)
{
	AUTO_BUF struct buf bytes = BUF_INIT;
	struct safetensors *st;
	uint64_t seed = rows * 100 + cols;
	struct matrix m;

	random_weight(all, &seed, "m", 2, rows, cols, 0, 1);
	*ret = &all->w[all->n - 1];
	if (int8)
		weight_quantise(*ret);
	weights_file(all, &bytes);
	assert_int_equal(safetensors_parse(bytes.data, bytes.len, &st), NPU_SUCCESS);
	assert_int_equal(matrix_load(st, "m", rows, cols, &m), NPU_SUCCESS);
	safetensors_close(st);
	return m;
}

static void check_matmul(const struct kernels *k, uint32_t rows, uint32_t cols, uint32_t n,
	bool int8)
{
	struct weights all = { .n = 0 };
	struct weight *w;
	struct matrix m = packed(rows, cols, int8, &w, &all);
	struct rows x = { filled(n * cols, 7), cols }, y = { filled(n * rows, 8), rows };
	struct rows alone = { filled(n * rows, 8), rows };
	double *before = calloc(n * rows, sizeof(double));

	for (size_t i = 0; i < n * rows; i++)
		before[i] = y.at[i];
	k->matmul(&m, x, y, n, 0, matrix_blocks(&m), true);
	for (uint32_t t = 0; t < n; t++) {
		for (uint32_t r = 0; r < rows; r++) {
			double sum = before[t * rows + r];

			for (uint32_t c = 0; c < cols; c++)
				sum += (double)w->f[r * cols + c] * x.at[t * cols + c];
			assert_float_equal(y.at[t * rows + r], sum, 1e-4);
		}
		/* the same, a token and a block at a time */
		for (uint32_t b = 0; b < matrix_blocks(&m); b++)
			k->matmul(&m, (struct rows){ x.at + t * cols, cols },
				(struct rows){ alone.at + t * rows, rows }, 1, b, b + 1, true);
	}
	assert_memory_equal(y.at, alone.at, n * rows * sizeof(float));
	free(before);
	free(alone.at);
	free(x.at);
	free(y.at);
	matrix_done(&m);
	weights_free(&all);
}

static void matmul__any_shape__right_and_the_same_however_cut(void **state)
{
	static const uint32_t sides[] = { 1, 2, 15, 16, 17, 33, 64, MAX_SIDE };
	static const uint32_t counts[] = { 1, 2, 3, 4, 5, 9 };
	const size_t n_sides = sizeof(sides) / sizeof(sides[0]);

	(void)state;
	for (size_t v = 0; kernels_at(v); v++)
		for (size_t i = 0; i < n_sides * n_sides; i++)
			for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
				check_matmul(kernels_at(v), sides[i / n_sides], sides[i % n_sides],
					counts[c], false);
				check_matmul(kernels_at(v), sides[i / n_sides], sides[i % n_sides],
					counts[c], true);
			}
}

static void rmsnorm__against_doubles__close_and_padding_zero(void **state)
{
	(void)state;
	for (size_t v = 0; kernels_at(v); v++) {
		for (size_t n = 1; n < 50; n++) {
			float *x = filled(n, n), *w = filled(n, n + 1),
			      *out = matrix_floats(matrix_pad(n));
			double squares = 0;

			for (size_t i = 0; i < n; i++)
				squares += (double)x[i] * x[i];
			kernels_at(v)->rmsnorm(out, x, w, n, 1e-5f);
			for (size_t i = 0; i < n; i++)
				assert_float_equal(out[i], x[i] / sqrt(squares / n + 1e-5) * w[i],
					2e-6);
			for (size_t i = n; i < matrix_pad(n); i++)
				assert_true(out[i] == 0);
			free(x);
			free(w);
			free(out);
		}
	}
}

/* Through silu(x) * 1 = x / (1 + e^-x), over the whole range of the exponential. */
static void swiglu__whole_range__few_ulp(void **state)
{
	(void)state;
	for (size_t v = 0; kernels_at(v); v++) {
		for (float from = -86; from < 86; from += 0.37f) {
			float gate[MATRIX_BLOCK], up[MATRIX_BLOCK];

			for (int i = 0; i < MATRIX_BLOCK; i++) {
				gate[i] = from + 0.023f * (float)i;
				up[i] = 1;
			}
			kernels_at(v)->swiglu(gate, up, MATRIX_BLOCK);
			for (int i = 0; i < MATRIX_BLOCK; i++) {
				double x = from + 0.023f * (float)i, want = x / (1 + exp(-x));

				assert_true(fabs(gate[i] - want) <= 4 * FLT_EPSILON * fabs(want));
			}
		}
	}
}

static void softmax__any_length__sums_to_one_and_padding_zero(void **state)
{
	(void)state;
	for (size_t v = 0; kernels_at(v); v++) {
		for (size_t n = 1; n < 70; n++) {
			float *x = filled(n, n), *y = filled(n, n);
			double total = 0;

			for (size_t i = 0; i < n; i++)
				total += exp(x[i] = y[i] = 30 * x[i]);
			for (size_t i = n; i < matrix_pad(n); i++)
				y[i] = NAN;
			kernels_at(v)->softmax(y, n);
			for (size_t i = 0; i < n; i++)
				assert_float_equal(y[i], exp(x[i]) / total, 1e-6);
			for (size_t i = n; i < matrix_pad(n); i++)
				assert_true(y[i] == 0);
			free(x);
			free(y);
		}
	}
}

static void check_attend(const struct kernels *k, size_t n, size_t hd)
{
	size_t cache = matrix_pad(n) * hd;
	float *q = filled(hd, 1), *keys = filled(cache, 2), *values = filled(cache, 3);
	float *scores = matrix_floats(matrix_pad(n)), *out = calloc(hd, sizeof(float));
	double total = 0, *weight = calloc(n, sizeof(double));

#define PLACE(pos, d) (((pos) / 16 * hd + (d)) * 16 + (pos) % 16)
	for (size_t p = n; p < matrix_pad(n); p++)
		for (size_t d = 0; d < hd; d++)
			keys[PLACE(p, d)] = values[PLACE(p, d)] = NAN;
	k->attend(out, q, keys, values, n, hd, 0.7f, scores);
	for (size_t p = 0; p < n; p++) {
		double score = 0;

		for (size_t d = 0; d < hd; d++)
			score += (double)q[d] * keys[PLACE(p, d)];
		total += weight[p] = exp(score * 0.7f);
	}
	for (size_t d = 0; d < hd; d++) {
		double want = 0;

		for (size_t p = 0; p < n; p++)
			want += weight[p] / total * values[PLACE(p, d)];
		assert_float_equal(out[d], want, 2e-6);
	}
	free(q);
	free(keys);
	free(values);
	free(scores);
	free(out);
	free(weight);
}

static void attend__any_length__right_whatever_lies_past_the_end(void **state)
{
	(void)state;
	for (size_t v = 0; kernels_at(v); v++)
		for (size_t n = 1; n < 50; n += 3)
			for (size_t hd = 2; hd < 36; hd += 2)
				check_attend(kernels_at(v), n, hd);
}

/* --- the pool --------------------------------------------------------------------------------- */

#define ROUNDS 300

struct relay {
	struct pool *pool;
	unsigned slot[POOL_MAX];
};

/* Every member reads what all wrote before the barrier. */
static void run_relay(void *arg, unsigned member)
{
	struct relay *r = arg;
	unsigned members = pool_members(r->pool), sum;

	for (unsigned round = 0; round < ROUNDS; round++) {
		r->slot[member] += member + 1;
		pool_barrier(r->pool);
		sum = 0;
		for (unsigned m = 0; m < members; m++)
			sum += r->slot[m];
		assert_int_equal(sum, (round + 1) * members * (members + 1) / 2);
		pool_barrier(r->pool);
	}
}

static void pool_run__many_rounds__barriers_order_all(void **state)
{
	(void)state;
	for (unsigned n = 1; n <= 4; n++) {
		struct relay r = { .slot = { 0 } };

		assert_int_equal(pool_new(n, &r.pool), 0);
		for (int i = 0; i < 3; i++) {
			memset(r.slot, 0, sizeof(r.slot));
			pool_run(r.pool, run_relay, &r);
			usleep(2000); /* long enough for members to stop spinning and sleep */
		}
		pool_free(r.pool);
	}
}

static void pool_share__any_split__every_item_once(void **state)
{
	struct pool *p;

	(void)state;
	assert_int_equal(pool_new(3, &p), 0);
	for (uint32_t n = 0; n < 20; n++) {
		uint32_t next = 0, first, last;

		for (unsigned m = 0; m < 3; m++) {
			pool_share(p, m, n, &first, &last);
			assert_int_equal(first, next);
			assert_true(last >= first && last - first <= n / 3 + 1);
			next = last;
		}
		assert_int_equal(next, n);
	}
	pool_free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(matmul__any_shape__right_and_the_same_however_cut),
		cmocka_unit_test(rmsnorm__against_doubles__close_and_padding_zero),
		cmocka_unit_test(swiglu__whole_range__few_ulp),
		cmocka_unit_test(softmax__any_length__sums_to_one_and_padding_zero),
		cmocka_unit_test(attend__any_length__right_whatever_lies_past_the_end),
		cmocka_unit_test(pool_run__many_rounds__barriers_order_all),
		cmocka_unit_test(pool_share__any_split__every_item_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
