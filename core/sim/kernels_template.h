/* The kernels for one vector width; included by kernels.c only, once a width, which defines and
 * this file undefines at its end: WIDTH (floats a vector), NAME(x) (a name of this variant),
 * VARIANT (its own), TARGET (attribute of every function), the tile sizes, EVENS and ODDS (lanes of
 * a pair of vectors), MAX, MIN, MADD(a, b, c) (a * b + c), FROM_INT8.
 *
 * The matrix products run over columns with two independent chains of sums, even and odd columns,
 * so that an addition need not wait for the one before; tiles of several blocks or tokens hide the
 * rest of the latency and reuse what was loaded. How tiles are cut never changes the order of one
 * output's sum, and where a product and a sum are one operation, and rounded once, is said by MADD
 * and not left to the compiler, which might say it differently in different tiles. */

#define VECS   (MATRIX_BLOCK / WIDTH) /* vectors a block */
#define INLINE TARGET static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

typedef float NAME(vec) __attribute__((vector_size(4 * WIDTH)));
typedef float NAME(loose) __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef int32_t NAME(ints) __attribute__((vector_size(4 * WIDTH)));
typedef uint32_t NAME(words) __attribute__((vector_size(4 * WIDTH)));

#define VEC   NAME(vec)
#define INTS  NAME(ints)
#define WORDS NAME(words)

INLINE VEC NAME(load)(const float *p)
{
	return *(const NAME(loose) *)p;
}

INLINE void NAME(store)(float *p, VEC v)
{
	*(NAME(loose) *)p = v;
}

INLINE VEC NAME(splat)(float f)
{
	return f - (VEC){ 0 };
}

INLINE VEC NAME(choose)(INTS mask, VEC a, VEC b)
{
	return (VEC)((mask & (INTS)a) | (~mask & (INTS)b));
}

/* All ones in the lanes below n. */
INLINE INTS NAME(lanes_below)(size_t n)
{
	static const int32_t number[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
	INTS lane;

	memcpy(&lane, number, sizeof(lane));
	return lane < (int32_t)n;
}

/* Sums of neighbours: of a in the lower half, of b in the upper. */
INLINE VEC NAME(fold)(VEC a, VEC b)
{
	return __builtin_shufflevector(a, b, EVENS) + __builtin_shufflevector(a, b, ODDS);
}

INLINE VEC NAME(fold_max)(VEC a)
{
	VEC even = __builtin_shufflevector(a, a, EVENS), odd = __builtin_shufflevector(a, a, ODDS);

	return MAX(even, odd);
}

INLINE float NAME(sum)(VEC a)
{
	for (int i = WIDTH; i > 1; i /= 2)
		a = NAME(fold)(a, a);
	return a[0];
}

INLINE float NAME(max)(VEC a)
{
	for (int i = WIDTH; i > 1; i /= 2)
		a = NAME(fold_max)(a);
	return a[0];
}

/* e^x = 2^n * e^r with n = round(x / ln 2) and |r| <= ln 2 / 2, where the series up to r^6 / 6! is
 * good to the last bit or two. Adding 1.5 * 2^23 rounds to an integer and leaves it in the low
 * bits. Arguments are cut to the range whose results are normal numbers. */
INLINE VEC NAME(exp)(VEC x)
{
	const float round = 12582912.0f, log2e = 1.44269504f;
	const float ln2_high = 0.693145752f, ln2_low = 1.42860677e-6f;
	VEC t, n, r, p;

	x = MIN(MAX(x, NAME(splat)(-87.3f)), NAME(splat)(88.3f));
	t = MADD(x, NAME(splat)(log2e), NAME(splat)(round));
	n = t - round;
	r = MADD(n, NAME(splat)(-ln2_high), x);
	r = MADD(n, NAME(splat)(-ln2_low), r);
	p = MADD(r, NAME(splat)(1.0f / 720), NAME(splat)(1.0f / 120));
	p = MADD(p, r, NAME(splat)(1.0f / 24));
	p = MADD(p, r, NAME(splat)(1.0f / 6));
	p = MADD(p, r, NAME(splat)(0.5f));
	p = MADD(p, r, NAME(splat)(1.0f));
	p = MADD(p, r, NAME(splat)(1.0f));
	return p * (VEC)(((WORDS)t + 127) << 23);
}

/* --- matrix products -------------------------------------------------------------------------- */

/* The matrix's elements from number `at` of a block on. */
INLINE const void *NAME(block)(const struct matrix *m, uint32_t block, size_t at, const bool int8)
{
	const size_t item = int8 ? sizeof(int8_t) : sizeof(float);

	return (const char *)m->packed + ((size_t)block * m->cols * MATRIX_BLOCK + at) * item;
}

INLINE VEC NAME(weight)(const void *from, size_t at, const bool int8)
{
	if (int8)
		return (VEC)FROM_INT8((const int8_t *)from + at);
	return NAME(load)((const float *)from + at);
}

/* A block of results: scaled (int8), added to what is there (add), and only its valid rows written.
 */
INLINE void NAME(put)(float *y, const VEC *sum, const float *scale, uint32_t valid, bool add)
{
	float edge[MATRIX_BLOCK] = { 0 }, *to = valid < MATRIX_BLOCK ? edge : y;

	if (valid < MATRIX_BLOCK)
		memcpy(edge, y, valid * sizeof(*y));
	UNROLL for (int v = 0; v < VECS; v++)
	{
		VEC old = add ? NAME(load)(to + v * WIDTH) : NAME(splat)(0);

		NAME(store)
		(to + v * WIDTH,
			scale ? MADD(sum[v], NAME(load)(scale + v * WIDTH), old) : sum[v] + old);
	}
	if (valid < MATRIX_BLOCK)
		memcpy(y, edge, valid * sizeof(*y));
}

#define TILE_SIZE (TILE_TOKENS * TILE_BLOCKS)
#define TILE_MOST (VECS * (TILE_SIZE > LONE_BLOCKS ? TILE_SIZE : LONE_BLOCKS))

INLINE void NAME(tile)(const struct matrix *m, struct rows x, struct rows y, uint32_t block,
	bool add, const int tokens, const int blocks, const bool int8)
{
	const void *w[TILE_MOST]; /* where each of the tile's vectors of a column begins */
	VEC even[TILE_MOST], odd[TILE_MOST];
	uint32_t c;

	UNROLL for (int i = 0; i < tokens * blocks * VECS; i++) even[i] = odd[i] = NAME(splat)(0);
	UNROLL for (int b = 0; b < blocks * VECS; b++) w[b] =
		NAME(block)(m, block + b / VECS, b % VECS * WIDTH, int8);
	for (c = 0; c + 1 < m->cols; c += 2) {
		UNROLL for (int b = 0; b < blocks * VECS; b++)
		{
			VEC w0 = NAME(weight)(w[b], (size_t)c * MATRIX_BLOCK, int8);
			VEC w1 = NAME(weight)(w[b], (size_t)c * MATRIX_BLOCK + MATRIX_BLOCK, int8);

			UNROLL for (int t = 0; t < tokens; t++)
			{
				const float *in = x.at + t * x.stride + c;
				int i = t * blocks * VECS + b;

				even[i] = MADD(w0, NAME(splat)(in[0]), even[i]);
				odd[i] = MADD(w1, NAME(splat)(in[1]), odd[i]);
			}
		}
	}
	if (c < m->cols) {
		UNROLL for (int b = 0; b < blocks * VECS; b++)
		{
			VEC w0 = NAME(weight)(w[b], (size_t)c * MATRIX_BLOCK, int8);

			UNROLL for (int t = 0; t < tokens; t++)
			{
				VEC in = NAME(splat)(x.at[t * x.stride + c]);
				int i = t * blocks * VECS + b;

				even[i] = MADD(w0, in, even[i]);
			}
		}
	}
	UNROLL for (int i = 0; i < tokens * blocks; i++)
	{
		uint32_t row = (block + i % blocks) * MATRIX_BLOCK;
		VEC sum[VECS];

		UNROLL for (int v = 0; v < VECS; v++) sum[v] =
			even[i * VECS + v] + odd[i * VECS + v];
		NAME(put)
		(y.at + i / blocks * y.stride + row, sum, int8 ? m->scale + row : NULL,
			m->rows - row, add);
	}
}

INLINE struct rows NAME(skip)(struct rows r, uint32_t n)
{
	return (struct rows){ r.at + n * r.stride, r.stride };
}

/* All tokens for the blocks of one tile, whose weights stay in the first-level cache meanwhile. */
INLINE void NAME(strip)(const struct matrix *m, struct rows x, struct rows y, uint32_t n,
	uint32_t block, bool add, const int tokens, const int blocks, const bool int8)
{
	for (; n >= (uint32_t)tokens; n -= tokens) {
		NAME(tile)(m, x, y, block, add, tokens, blocks, int8);
		x.at += tokens * x.stride;
		y.at += tokens * y.stride;
	}
	for (; n > 0; n--) {
		NAME(tile)(m, x, y, block, add, 1, blocks, int8);
		x.at += x.stride;
		y.at += y.stride;
	}
}

INLINE void NAME(span)(const struct matrix *m, struct rows x, struct rows y, uint32_t n,
	uint32_t first, uint32_t last, bool add, const bool int8)
{
	uint32_t b = first;

	if (n < TILE_TOKENS)
		for (; b + LONE_BLOCKS <= last; b += LONE_BLOCKS)
			NAME(strip)(m, x, y, n, b, add, 1, LONE_BLOCKS, int8);
	for (; b + TILE_BLOCKS <= last; b += TILE_BLOCKS)
		NAME(strip)(m, x, y, n, b, add, TILE_TOKENS, TILE_BLOCKS, int8);
	for (; b < last; b++)
		NAME(strip)(m, x, y, n, b, add, TILE_TOKENS, 1, int8);
}

TARGET static void NAME(matmul)(const struct matrix *m, struct rows x, struct rows y, uint32_t n,
	uint32_t first, uint32_t last, bool add)
{
	if (m->int8)
		NAME(span)(m, x, y, n, first, last, add, true);
	else
		NAME(span)(m, x, y, n, first, last, add, false);
}

/* --- one row ---------------------------------------------------------------------------------- */

TARGET static void NAME(
	rmsnorm)(float *out, const float *x, const float *weight, size_t n, float eps)
{
	VEC squares = { 0 };
	float scale;

	for (size_t i = 0; i < n; i += WIDTH)
		squares = MADD(NAME(load)(x + i), NAME(load)(x + i), squares);
	scale = 1.0f / __builtin_sqrtf(NAME(sum)(squares) / (float)n + eps);
	for (size_t i = 0; i < n; i += WIDTH)
		NAME(store)(out + i, NAME(load)(x + i) * scale * NAME(load)(weight + i));
}

TARGET static void NAME(swiglu)(float *gate, const float *up, size_t n)
{
	for (size_t i = 0; i < n; i += WIDTH) {
		VEC g = NAME(load)(gate + i);

		NAME(store)(gate + i, g / (1.0f + NAME(exp)(-g)) * NAME(load)(up + i));
	}
}

/* Of n values whose greatest is `max` make exponentials, zeros after them; return their sum. */
INLINE float NAME(exponentials)(float *x, size_t n, float max)
{
	VEC total = { 0 };
	size_t i;

	for (i = 0; i + WIDTH <= n; i += WIDTH) {
		VEC e = NAME(exp)(NAME(load)(x + i) - max);

		total += e;
		NAME(store)(x + i, e);
	}
	if (i < n) {
		VEC e = NAME(exp)(NAME(load)(x + i) - max);

		e = NAME(choose)(NAME(lanes_below)(n - i), e, NAME(splat)(0));
		total += e;
		NAME(store)(x + i, e);
		i += WIDTH;
	}
	for (; i < matrix_pad(n); i += WIDTH)
		NAME(store)(x + i, NAME(splat)(0));
	return NAME(sum)(total);
}

INLINE float NAME(greatest)(const float *x, size_t n)
{
	const VEC least = NAME(splat)(-FLT_MAX);
	VEC max = least;
	size_t i;

	for (i = 0; i + WIDTH <= n; i += WIDTH)
		max = MAX(max, NAME(load)(x + i));
	if (i < n)
		max = MAX(max, NAME(choose)(NAME(lanes_below)(n - i), NAME(load)(x + i), least));
	return NAME(max)(max);
}

TARGET static void NAME(softmax)(float *x, size_t n)
{
	float share = 1.0f / NAME(exponentials)(x, n, NAME(greatest)(x, n));

	for (size_t i = 0; i < n; i += WIDTH)
		NAME(store)(x + i, NAME(load)(x + i) * share);
}

/* --- attention -------------------------------------------------------------------------------- */

INLINE void NAME(scores)(float *scores, const float *q, const float *k, size_t n, size_t head_dim,
	float scale)
{
	for (size_t i = 0; i < n; i += MATRIX_BLOCK, k += head_dim * MATRIX_BLOCK) {
		VEC s[VECS];

		UNROLL for (int v = 0; v < VECS; v++) s[v] = NAME(splat)(0);
		for (size_t d = 0; d < head_dim; d++)
			UNROLL for (int v = 0; v < VECS; v++) s[v] =
				MADD(NAME(load)(k + d * MATRIX_BLOCK + v * WIDTH),
					NAME(splat)(q[d]), s[v]);
		UNROLL for (int v = 0; v < VECS; v++)
			NAME(store)(scores + i + v * WIDTH, s[v] * scale);
	}
}

#define DIMS 8 /* head dimensions mixed at once */

/* Lanes of `v` past the last position may be anything, NaN too, and so are made zero, not
 * multiplied by it. */
INLINE void NAME(
	mix_block)(VEC *sum, const float *scores, const float *v, const size_t *dims, size_t valid)
{
	UNROLL for (int l = 0; l < VECS; l++)
	{
		INTS keep = NAME(lanes_below)(valid > (size_t)l * WIDTH ? valid - l * WIDTH : 0);
		VEC s = NAME(load)(scores + l * WIDTH);

		UNROLL for (int d = 0; d < DIMS; d++)
		{
			VEC value = NAME(load)(v + dims[d] * MATRIX_BLOCK + l * WIDTH);

			if (valid < MATRIX_BLOCK)
				value = (VEC)((INTS)value & keep);
			sum[d] = MADD(s, value, sum[d]);
		}
	}
}

/* out[d] = share * sum over positions of scores * v[d], for DIMS dimensions (a short last group
 * repeats its last dimension). The sums across lanes of all of them are taken together, by folding
 * pairs. */
INLINE void NAME(mix)(float *out, const float *scores, const float *v, size_t n, size_t head_dim,
	size_t first, float share)
{
	size_t count = head_dim - first < DIMS ? head_dim - first : DIMS, dims[DIMS], i;
	float sums[DIMS > WIDTH ? DIMS : WIDTH];
	VEC sum[DIMS];

	UNROLL for (int d = 0; d < DIMS; d++)
	{
		dims[d] = first + ((size_t)d < count ? (size_t)d : count - 1);
		sum[d] = NAME(splat)(0);
	}
	for (i = 0; i + MATRIX_BLOCK <= n; i += MATRIX_BLOCK)
		NAME(mix_block)(sum, scores + i, v + i * head_dim, dims, MATRIX_BLOCK);
	if (i < n)
		NAME(mix_block)(sum, scores + i, v + i * head_dim, dims, n - i);
	UNROLL for (int left = WIDTH, vecs = DIMS; left > 1; left /= 2)
	{
		int pairs = vecs > 1 ? vecs / 2 : 1;

		UNROLL for (int p = 0; p < pairs; p++) sum[p] =
			NAME(fold)(sum[2 * p], sum[vecs > 1 ? 2 * p + 1 : 2 * p]);
		vecs = pairs;
	}
	memcpy(sums, sum, sizeof(sums));
	for (size_t d = 0; d < count; d++)
		out[first + d] = sums[d] * share;
}

TARGET static void NAME(attend)(float *out, const float *q, const float *k, const float *v,
	size_t n, size_t head_dim, float scale, float *scores)
{
	float share;

	NAME(scores)(scores, q, k, n, head_dim, scale);
	share = 1.0f / NAME(exponentials)(scores, n, NAME(greatest)(scores, n));
	for (size_t d = 0; d < head_dim; d += DIMS)
		NAME(mix)(out, scores, v, n, head_dim, d, share);
}

static const struct kernels NAME(kernels) = {
	.name = VARIANT,
	.matmul = NAME(matmul),
	.rmsnorm = NAME(rmsnorm),
	.swiglu = NAME(swiglu),
	.softmax = NAME(softmax),
	.attend = NAME(attend),
};

#undef VECS
#undef TILE_SIZE
#undef TILE_MOST
#undef INLINE
#undef UNROLL
#undef VEC
#undef INTS
#undef WORDS
#undef DIMS
#undef WIDTH
#undef NAME
#undef VARIANT
#undef TARGET
#undef TILE_TOKENS
#undef TILE_BLOCKS
#undef LONE_BLOCKS
#undef EVENS
#undef ODDS
#undef MAX
#undef MIN
#undef MADD
#undef FROM_INT8
