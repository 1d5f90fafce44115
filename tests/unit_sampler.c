/* Choosing tokens: shares computed by hand, cuts, ties, penalties, and one known sequence. */
#include "core/engine/sampler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/prng.h"

#define LN2 0.6931472f

static const struct sampling plain = { .temperature = 1,
	.top_p = 1,
	.min_p = 0,
	.repeat_penalty = 1,
	.top_k = 0,
	.seed = 1 };

static struct sampler *open_sampler(struct sampling p, uint32_t vocab)
{
	struct sampler *s = NULL;

	assert_int_equal(sampler_new(&p, vocab, &s), 0);
	return s;
}

/* How often each token is picked in n picks. */
static void count(struct sampling p, const float *logits, uint32_t vocab, int n, int *ret_counts)
{
	struct sampler *s = open_sampler(p, vocab);

	memset(ret_counts, 0, vocab * sizeof *ret_counts);
	for (int i = 0; i < n; i++) {
		int32_t token = sampler_pick(s, logits, NULL);

		assert_in_range(token, 0, vocab - 1);
		ret_counts[token]++;
	}
	sampler_free(s);
}

static void assert_near(int got, int want, int within)
{
	if (abs(got - want) > within)
		fail_msg("%d is not within %d of %d", got, within, want);
}

static void prng__published_states__published_values(void **state)
{
	struct prng p = { { 1, 2, 3, 4 } };
	uint64_t seed = 0;

	(void)state;
	assert_true(prng_splitmix(&seed) == 0xe220a8397b1dcdaf);
	assert_true(prng_splitmix(&seed) == 0x6e789e6aa1b965f4);
	assert_true(prng_next(&p) == 11520);
	assert_true(prng_next(&p) == 0);
	assert_true(prng_next(&p) == 1509978240);
	assert_true(prng_next(&p) == 1215971899390074240);
}

static void sampler_pick__four_equal__top_bits_of_the_generator(void **state)
{
	/* splitmix64 from seed 0 fills xoshiro256**; its first outputs shifted right by 62. */
	static const int32_t want[] = { 2, 2, 0, 1, 2, 3, 1, 2, 3, 3, 0, 0, 0, 2, 1, 1 };
	const float logits[] = { 2, 2, 2, 2 };
	struct sampling p = plain;
	struct sampler *s;

	(void)state;
	p.seed = 0;
	s = open_sampler(p, 4);
	for (size_t i = 0; i < sizeof want / sizeof *want; i++)
		assert_int_equal(sampler_pick(s, logits, NULL), want[i]);
	sampler_free(s);
}

static void sampler_pick__temperature_1__softmax_shares(void **state)
{
	const float logits[] = { 0, LN2, 2 * LN2 }; /* 1/7 2/7 4/7 */
	int counts[3];

	(void)state;
	count(plain, logits, 3, 70000, counts);
	assert_near(counts[0], 10000, 600);
	assert_near(counts[1], 20000, 800);
	assert_near(counts[2], 40000, 800);
}

static void sampler_pick__other_temperatures__scaled_shares(void **state)
{
	const float logits[] = { -100, LN2 - 100, 2 * LN2 - 100 };
	struct sampling p = plain;
	int counts[3];

	(void)state;
	p.temperature = 0.5; /* 1/21 4/21 16/21 */
	count(p, logits, 3, 42000, counts);
	assert_near(counts[0], 2000, 300);
	assert_near(counts[1], 8000, 500);
	assert_near(counts[2], 32000, 600);
	p.temperature = 2; /* 1 : sqrt 2 : 2, of 4.41421 */
	count(p, logits, 3, 44142, counts);
	assert_near(counts[0], 10000, 600);
	assert_near(counts[1], 14142, 700);
	assert_near(counts[2], 20000, 700);
	p.temperature = 1e-300;
	count(p, logits, 3, 100, counts);
	assert_int_equal(counts[2], 100);
}

static void sampler_pick__logprob__share_before_filters(void **state)
{
	const float logits[] = { 0, LN2, 2 * LN2 };
	struct sampling p = plain;
	struct sampler *s;
	float logprob = 9;

	(void)state;
	p.temperature = 0;
	p.top_k = 1;
	p.repeat_penalty = 2;
	s = open_sampler(p, 3);
	assert_int_equal(sampler_pick(s, logits, &logprob), 2);
	assert_true(fabsf(logprob - -0.5596158f) < 1e-5f); /* ln 4/7 */
	/* 2 ln 2 was halved to ln 2 by now; the first of the equals. The share does not know. */
	assert_int_equal(sampler_pick(s, logits, &logprob), 1);
	assert_true(fabsf(logprob - -1.2527630f) < 1e-5f); /* ln 2/7 */
	sampler_free(s);
}

static void sampler_pick__temperature_0__lowest_id_of_equals(void **state)
{
	float logits[100];
	struct sampling p = plain;

	(void)state;
	p.temperature = 0;
	for (uint32_t n = 1; n <= 100; n++)
		for (uint32_t at = 0; at < n; at += 7) {
			struct sampler *s = open_sampler(p, n);

			for (uint32_t i = 0; i < n; i++)
				logits[i] = i < at ? -2.5f : -2;
			assert_int_equal(sampler_pick(s, logits, NULL), at);
			logits[n - 1] = 7;
			assert_int_equal(sampler_pick(s, logits, NULL), n - 1);
			sampler_free(s);
		}
}

static void sampler_pick__top_k_1__same_as_greedy(void **state)
{
	struct sampling one = plain, greedy = plain;
	struct prng random = { { 5, 6, 7, 8 } };
	float logits[200];
	struct sampler *a, *b;

	(void)state;
	one.top_k = 1;
	one.temperature = 1.7;
	greedy.temperature = 0;
	a = open_sampler(one, 200);
	b = open_sampler(greedy, 200);
	for (int round = 0; round < 500; round++) {
		for (int i = 0; i < 200; i++)
			logits[i] = (float)prng_below(&random, 30); /* many ties */
		assert_int_equal(sampler_pick(a, logits, NULL), sampler_pick(b, logits, NULL));
	}
	sampler_free(a);
	sampler_free(b);
}

static void sampler_pick__top_k__ties_cut_by_id(void **state)
{
	const float logits[] = { 1, 1, 2, 1, 1 };
	struct sampling p = plain;
	int counts[5];

	(void)state;
	p.top_k = 3; /* 2 has e / (e + 2) */
	count(p, logits, 5, 10000, counts);
	assert_int_equal(counts[3] + counts[4], 0);
	assert_near(counts[0], 2119, 300);
	assert_near(counts[1], 2119, 300);
	assert_near(counts[2], 5761, 300);
	p.top_k = 5;
	count(p, logits, 5, 10000, counts);
	assert_true(counts[3] > 1000 && counts[4] > 1000);
	p.top_k = 1000;
	count(p, logits, 5, 10000, counts);
	assert_true(counts[3] > 1000 && counts[4] > 1000);
}

/* 1/8 1/2 1/8 1/4 */
static const float halves[] = { 0, 2 * LN2, 0, LN2 };

static void sampler_pick__top_p__fewest_that_reach_it(void **state)
{
	static const struct {
		double top_p;
		int kept[4];
	} cases[] = { { 0.01, { 0, 1, 0, 0 } }, { 0.49, { 0, 1, 0, 0 } }, { 0.51, { 0, 1, 0, 1 } },
		{ 0.74, { 0, 1, 0, 1 } }, { 0.76, { 1, 1, 0, 1 } }, { 0.88, { 1, 1, 1, 1 } },
		{ 1, { 1, 1, 1, 1 } } };
	struct sampling p = plain;
	int counts[4];

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		p.top_p = cases[i].top_p;
		count(p, halves, 4, 500, counts);
		for (int t = 0; t < 4; t++)
			assert_int_equal(counts[t] > 0, cases[i].kept[t]);
	}
	p.top_p = 0.51; /* shares of what is left: 2/3 1/3 */
	count(p, halves, 4, 30000, counts);
	assert_near(counts[1], 20000, 600);
	assert_near(counts[3], 10000, 600);
}

static void sampler_pick__min_p__share_of_the_best(void **state)
{
	struct sampling p = plain;
	int counts[4];

	(void)state;
	p.min_p = 0.3;
	count(p, halves, 4, 500, counts);
	assert_true(counts[0] == 0 && counts[1] && counts[2] == 0 && counts[3]);
	p.min_p = 0.2;
	count(p, halves, 4, 500, counts);
	assert_true(counts[0] && counts[1] && counts[2] && counts[3]);
	p.min_p = 1;
	count(p, (const float[]){ 3, 1, 3, 2 }, 4, 500, counts);
	assert_true(counts[0] > 100 && counts[1] == 0 && counts[2] > 100 && counts[3] == 0);
}

static void sampler_pick__filters_together__each_of_what_is_left(void **state)
{
	struct sampling p = plain;
	int counts[4];

	(void)state;
	p.top_p = 0.6; /* alone it keeps two; after the others 1/2 of 3/4 is enough */
	count(p, halves, 4, 500, counts);
	assert_true(counts[1] && counts[3]);
	p.min_p = 0.3;
	count(p, halves, 4, 500, counts);
	assert_int_equal(counts[1], 500);
	p.min_p = 0;
	p.top_k = 2;
	count(p, halves, 4, 500, counts);
	assert_int_equal(counts[1], 500);
}

static void sampler_pick__repeat_penalty__less_likely_on_both_sides_of_0(void **state)
{
	struct sampling p = plain;
	struct sampler *s;

	(void)state;
	p.temperature = 0;
	p.repeat_penalty = 2;
	s = open_sampler(p, 2);
	assert_int_equal(sampler_pick(s, (const float[]){ 2, 1.5f }, NULL), 0);
	assert_int_equal(sampler_pick(s, (const float[]){ 2, 1.5f }, NULL), 1); /* 1 : 1.5 */
	assert_int_equal(sampler_pick(s, (const float[]){ 2, 1.5f }, NULL), 0); /* 1 : 0.75 */
	sampler_free(s);
	s = open_sampler(p, 2);
	sampler_accept(s, 0);
	assert_int_equal(sampler_pick(s, (const float[]){ -1, -1.5f }, NULL), 1); /* -2 : -1.5 */
	sampler_free(s);
	s = open_sampler(p, 2);
	sampler_accept(s, 0);
	sampler_accept(s, 0);
	sampler_accept(s, 99); /* none of the vocabulary's */
	sampler_accept(s, -1);
	assert_int_equal(sampler_pick(s, (const float[]){ 4, 1.5f }, NULL), 0); /* 2 : 1.5 */
	sampler_free(s);
}

/* What the penalty made less likely is cut as such. */
static void sampler_pick__repeat_penalty_and_top_k__cut_after_the_penalty(void **state)
{
	const float logits[] = { 2, 1.9f, 0 };
	struct sampling p = plain;
	struct sampler *s;

	(void)state;
	p.repeat_penalty = 2;
	p.top_k = 1;
	s = open_sampler(p, 3);
	assert_int_equal(sampler_pick(s, logits, NULL), 0); /* it is 1 now */
	assert_int_equal(sampler_pick(s, logits, NULL), 1); /* and this 0.95 */
	assert_int_equal(sampler_pick(s, logits, NULL), 0);
	sampler_free(s);
}

static void sampler_pick__repeat_penalty__window_of_64(void **state)
{
	const float logits[] = { 2, 1.5f, -9 };
	struct sampling p = plain;

	(void)state;
	p.temperature = 0;
	p.repeat_penalty = 2;
	for (int after = 0; after < 200; after++) {
		struct sampler *s = open_sampler(p, 3);

		sampler_accept(s, 0);
		for (int i = 0; i < after; i++)
			sampler_accept(s, 2);
		assert_int_equal(sampler_pick(s, logits, NULL), after < 64 ? 1 : 0);
		sampler_free(s);
	}
}

static void sampler_pick__extreme_values__still_a_token(void **state)
{
	const float far[] = { -3e38f, 3e38f, 3e38f, 0 };
	struct sampling p = plain;
	int counts[4];

	(void)state;
	p.repeat_penalty = 1e-300;
	count(p, far, 4, 100, counts);
	p.repeat_penalty = 2;
	p.temperature = 0.001;
	count(p, far, 4, 100, counts);
	count(plain, far, 4, 100, counts);
	assert_true(counts[1] > 20 && counts[2] > 20 && counts[0] + counts[3] == 0);
	count(plain, far, 1, 10, counts);
	assert_int_equal(counts[0], 10);
}

static void sampler_pick__seed__decides_everything(void **state)
{
	float logits[50];
	struct sampling p = plain;
	struct sampler *a, *b, *c;
	int differ = 0;

	(void)state;
	for (int i = 0; i < 50; i++)
		logits[i] = (float)(i % 7);
	p.top_p = 0.9;
	p.seed = 42;
	a = open_sampler(p, 50);
	b = open_sampler(p, 50);
	p.seed = 43;
	c = open_sampler(p, 50);
	for (int i = 0; i < 200; i++) {
		int32_t token = sampler_pick(a, logits, NULL);

		assert_int_equal(token, sampler_pick(b, logits, NULL));
		differ += token != sampler_pick(c, logits, NULL);
	}
	assert_true(differ > 100);
	sampler_free(a);
	sampler_free(b);
	sampler_free(c);
}

static int by_logit(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return (x < y) - (x > y);
}

/* The lowest logit that may be picked, by sorting. */
static float lowest_kept(const float *logits, size_t n, const struct sampling *p)
{
	float sorted[300];
	double sum = 0, reached = 0;

	memcpy(sorted, logits, n * sizeof *sorted);
	qsort(sorted, n, sizeof *sorted, by_logit);
	if (p->top_k && (size_t)p->top_k < n)
		n = (size_t)p->top_k;
	for (size_t i = 0; i < n; i++)
		sum += exp((sorted[i] - sorted[0]) / p->temperature);
	for (size_t i = 0; i < n; i++) {
		reached += exp((sorted[i] - sorted[0]) / p->temperature) / sum;
		if (reached >= p->top_p)
			return sorted[i];
	}
	return sorted[n - 1];
}

static void sampler_pick__random_logits__same_cut_as_sorting(void **state)
{
	struct prng random = { { 9, 8, 7, 6 } };
	float logits[300];

	(void)state;
	for (int round = 0; round < 60; round++) {
		struct sampling p = { .temperature = 0.3 + (double)prng_below(&random, 100) / 60,
			.top_p = 0.1 + (double)prng_below(&random, 90) / 100,
			.repeat_penalty = 1,
			.top_k = (int32_t)prng_below(&random, 300),
			.seed = prng_next(&random) };
		struct sampler *s = open_sampler(p, 300);
		float least, seen = 1e9f;

		for (int i = 0; i < 300; i++)
			logits[i] = (float)(prng_next(&random) >> 40) / (1 << 22);
		least = lowest_kept(logits, 300, &p);
		for (int i = 0; i < 3000; i++) {
			float l = logits[sampler_pick(s, logits, NULL)];

			seen = l < seen ? l : seen;
		}
		assert_true(seen >= least && seen <= least + 1);
		sampler_free(s);
	}
}

static void sampler_pick__large_flat_vocabulary__no_slow_case(void **state)
{
	const uint32_t vocab = 1 << 20;
	float *logits = calloc(vocab, sizeof *logits);
	struct sampling p = plain;
	struct sampler *s;
	float logprob;

	(void)state;
	p.top_p = 0.5;
	p.top_k = 1 << 19;
	s = open_sampler(p, vocab);
	for (int i = 0; i < 3; i++) {
		/* half of half, lowest ids */
		assert_true(sampler_pick(s, logits, &logprob) < 1 << 18);
		assert_true(fabsf(logprob + 20 * LN2) < 1e-3f);
	}
	sampler_free(s);
	free(logits);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(prng__published_states__published_values),
		cmocka_unit_test(sampler_pick__four_equal__top_bits_of_the_generator),
		cmocka_unit_test(sampler_pick__temperature_1__softmax_shares),
		cmocka_unit_test(sampler_pick__other_temperatures__scaled_shares),
		cmocka_unit_test(sampler_pick__logprob__share_before_filters),
		cmocka_unit_test(sampler_pick__temperature_0__lowest_id_of_equals),
		cmocka_unit_test(sampler_pick__top_k_1__same_as_greedy),
		cmocka_unit_test(sampler_pick__top_k__ties_cut_by_id),
		cmocka_unit_test(sampler_pick__top_p__fewest_that_reach_it),
		cmocka_unit_test(sampler_pick__min_p__share_of_the_best),
		cmocka_unit_test(sampler_pick__filters_together__each_of_what_is_left),
		cmocka_unit_test(sampler_pick__repeat_penalty__less_likely_on_both_sides_of_0),
		cmocka_unit_test(sampler_pick__repeat_penalty_and_top_k__cut_after_the_penalty),
		cmocka_unit_test(sampler_pick__repeat_penalty__window_of_64),
		cmocka_unit_test(sampler_pick__extreme_values__still_a_token),
		cmocka_unit_test(sampler_pick__seed__decides_everything),
		cmocka_unit_test(sampler_pick__random_logits__same_cut_as_sorting),
		cmocka_unit_test(sampler_pick__large_flat_vocabulary__no_slow_case),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
