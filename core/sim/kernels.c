/* One source, kernels_template.h, in the widths of AVX-512, AVX2 and of any processor. The choice
 * is made once, at run time, by asking the processor; explicit vectors make the speed independent
 * of what a compiler's vectoriser likes at which level of optimisation. */
#include "core/sim/kernels.h"

#include <float.h>
#include <string.h>

#include "core/base/mem.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define WIDTH         16
#define NAME(x)       x##_avx512
#define VARIANT       "avx512"
#define TARGET        __attribute__((target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")))
#define TILE_TOKENS   4 /* 4 tokens x 2 blocks x 2 chains = 16 of 32 registers */
#define TILE_BLOCKS   2
#define LONE_BLOCKS   4
#define EVENS         0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define ODDS          1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#define MAX(a, b)     _mm512_max_ps(a, b)
#define MIN(a, b)     _mm512_min_ps(a, b)
#define MADD(a, b, c) ((vec_avx512)_mm512_fmadd_ps(a, b, c))
#define FROM_INT8(p)  _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)(p))))
#include "core/sim/kernels_template.h"

#define WIDTH         8
#define NAME(x)       x##_avx2
#define VARIANT       "avx2"
#define TARGET        __attribute__((target("avx2,fma")))
#define TILE_TOKENS   2 /* 2 tokens x 1 block of 2 vectors x 2 chains = 8 of 16 registers */
#define TILE_BLOCKS   1
#define LONE_BLOCKS   2
#define EVENS         0, 2, 4, 6, 8, 10, 12, 14
#define ODDS          1, 3, 5, 7, 9, 11, 13, 15
#define MAX(a, b)     _mm256_max_ps(a, b)
#define MIN(a, b)     _mm256_min_ps(a, b)
#define MADD(a, b, c) ((vec_avx2)_mm256_fmadd_ps(a, b, c))
#define FROM_INT8(p)  _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)(p))))
#include "core/sim/kernels_template.h"
#endif

#define WIDTH   4
#define NAME(x) x##_plain
#define VARIANT "plain"
#define TARGET
#define TILE_TOKENS   1
#define TILE_BLOCKS   1
#define LONE_BLOCKS   1
#define EVENS         0, 2, 4, 6
#define ODDS          1, 3, 5, 7
#define MAX(a, b)     choose_plain((a) > (b), a, b)
#define MIN(a, b)     choose_plain((a) < (b), a, b)
#define MADD(a, b, c) ((a) * (b) + (c))
#define FROM_INT8(p)  ((vec_plain){ (p)[0], (p)[1], (p)[2], (p)[3] })
#include "core/sim/kernels_template.h"

#if defined(__x86_64__)
static bool has_avx512(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
		__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
		__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx2(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#endif

static bool has_any(void)
{
	return true;
}

static const struct {
	const struct kernels *kernels;
	bool (*runs_here)(void);
} variants[] = {
#if defined(__x86_64__)
	{ &kernels_avx512, has_avx512 },
	{ &kernels_avx2, has_avx2 },
#endif
	{ &kernels_plain, has_any },
};

const struct kernels *kernels_at(size_t i)
{
	for (size_t v = 0; v < ARRAY_SIZE(variants); v++)
		if (variants[v].runs_here() && i-- == 0)
			return variants[v].kernels;
	return NULL;
}
