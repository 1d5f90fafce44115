/* All filters are cuts in one order: logit descending, id ascending. top_k keeps so many from its
 * start, min_p all down to a share of the first's probability, top_p (of what is left, as shares
 * of their sum) the fewest that reach it. So the kept set is a beginning of that order, found by
 * selection, without sorting; the draw then walks over the kept tokens by id.
 *
 * Equal tokens everywhere: probabilities are integers. A token's weight is 2^40 * 2^-d, where d
 * is its distance from the best logit in units of log2 after the temperature, rounded to 2^-24.
 * 2^-d is a product of three table entries, which come from square roots and products: operations
 * that IEEE arithmetic rounds in one way, with none that a compiler could fuse. Sums of integers
 * do not depend on their order, and 2^20 tokens of weight 2^40 stay below 2^64. Less than 2^-40
 * of the best is nothing. */
#include "core/engine/sampler.h"

#include <assert.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/prng.h"

#define MAX_VOCAB   (1u << 23)
#define WEIGHT_ONE  (1ULL << 40)
#define WEIGHT_LOG2 40
#define LOG2_E      1.4426950408889634
#define LANES       16

struct candidate {
	float logit;
	int32_t id;
	uint64_t weight;
};

struct sampler {
	struct sampling p;
	uint32_t vocab;
	struct prng prng;
	int32_t window[SAMPLER_WINDOW]; /* the last tokens; a ring */
	uint32_t n_window, oldest;
	float *penalised;             /* vocab of them; NULL without a penalty */
	struct candidate *candidates; /* vocab of them; NULL at temperature 0 */
	double fraction[3][256];      /* [k][i] = 2^-(i / 256^(k+1)) */
};

/* --- life ------------------------------------------------------------------------------------- */

static void fill_fractions(struct sampler *s)
{
	double root = 0.5; /* 2^-(2^-bit), by square roots */

	for (int level = 0; level < 3; level++) {
		double *table = s->fraction[level];

		table[0] = 1;
		for (int bit = 128; bit; bit /= 2) {
			root = sqrt(root);
			table[bit] = root;
		}
		for (int i = 1; i < 256; i++)
			if (i & (i - 1))
				table[i] = table[i & (i - 1)] * table[i & -i];
	}
}

static void assert_params(const struct sampling *p, uint32_t vocab)
{
	assert(vocab > 0 && vocab <= MAX_VOCAB);
	assert(p->temperature >= 0 && isfinite(p->temperature));
	assert(p->top_p > 0 && p->top_p <= 1 && p->min_p >= 0 && p->min_p <= 1);
	assert(p->repeat_penalty > 0 && isfinite(p->repeat_penalty) && p->top_k >= 0);
	(void)p;
	(void)vocab;
}

int sampler_new(const struct sampling *p, uint32_t vocab, struct sampler **ret)
{
	bool penalty = p->repeat_penalty != 1, random = p->temperature > 0;
	struct sampler *s;

	assert_params(p, vocab);
	s = calloc(1, sizeof *s);
	if (!s)
		return -ENOMEM;
	s->p = *p;
	s->vocab = vocab;
	if (penalty)
		s->penalised = malloc(vocab * sizeof *s->penalised);
	if (random)
		s->candidates = malloc(vocab * sizeof *s->candidates);
	if ((penalty && !s->penalised) || (random && !s->candidates)) {
		sampler_free(s);
		return -ENOMEM;
	}
	prng_seed(&s->prng, p->seed);
	if (random)
		fill_fractions(s);
	*ret = s;
	return 0;
}

void sampler_free(struct sampler *s)
{
	if (!s)
		return;
	free(s->penalised);
	free(s->candidates);
	free(s);
}

void sampler_accept(struct sampler *s, int32_t token)
{
	if (s->n_window < SAMPLER_WINDOW) {
		s->window[s->n_window++] = token;
		return;
	}
	s->window[s->oldest] = token;
	s->oldest = (s->oldest + 1) % SAMPLER_WINDOW;
}

/* --- penalty and greedy ----------------------------------------------------------------------- */

static bool seen_before(const struct sampler *s, uint32_t place)
{
	for (uint32_t i = 0; i < place; i++)
		if (s->window[i] == s->window[place])
			return true;
	return false;
}

/* Once a token, however often it is in the window: towards less likely on either side of 0. */
static const float *penalise(struct sampler *s, const float *logits)
{
	float penalty = (float)s->p.repeat_penalty;

	if (!s->penalised)
		return logits;
	memcpy(s->penalised, logits, s->vocab * sizeof *logits);
	for (uint32_t i = 0; i < s->n_window; i++) {
		int32_t token = s->window[i];
		float *l;

		if (token < 0 || (uint32_t)token >= s->vocab || seen_before(s, i))
			continue;
		l = &s->penalised[token];
		*l = *l > 0 ? fminf(*l / penalty, FLT_MAX) : fmaxf(*l * penalty, -FLT_MAX);
	}
	return s->penalised;
}

/* In lanes, so that the compiler can use vectors without reordering anything that matters. */
static float greatest(const float *v, uint32_t n)
{
	float lanes[LANES], best = v[0];
	uint32_t i;

	for (int k = 0; k < LANES; k++)
		lanes[k] = v[0];
	for (i = 0; i + LANES <= n; i += LANES)
		for (int k = 0; k < LANES; k++)
			lanes[k] = v[i + k] > lanes[k] ? v[i + k] : lanes[k];
	for (; i < n; i++)
		best = v[i] > best ? v[i] : best;
	for (int k = 0; k < LANES; k++)
		best = lanes[k] > best ? lanes[k] : best;
	return best;
}

static int32_t first_equal(const float *v, uint32_t n, float value)
{
	uint32_t i = 0;

	while (i < n - 1 && v[i] != value)
		i++;
	return (int32_t)i;
}

/* --- selection -------------------------------------------------------------------------------- */

static bool comes_before(const struct candidate *a, const struct candidate *b)
{
	return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

static void swap(struct candidate *a, struct candidate *b)
{
	struct candidate t = *a;

	*a = *b;
	*b = t;
}

/* Move those that come before c[hi-1] to the front of c[lo, hi), and it behind them. Its new
 * place and the sum of their weights. */
static size_t partition(struct candidate *c, size_t lo, size_t hi, uint64_t *ret_sum)
{
	size_t store = lo;

	*ret_sum = 0;
	for (size_t i = lo; i < hi - 1; i++) {
		if (!comes_before(&c[i], &c[hi - 1]))
			continue;
		*ret_sum += c[i].weight;
		swap(&c[i], &c[store++]);
	}
	swap(&c[store], &c[hi - 1]);
	return store;
}

/* Bring the fewest first of the order whose weights reach `target` (1..the sum of all) to the
 * front of c; how many they are. Expected linear time; the pivots' places are random but the same
 * every time. */
static size_t select_first(struct candidate *c, size_t n, uint64_t target)
{
	struct prng pivots = { { 1, 2, 3, 4 } };
	size_t lo = 0, hi = n;

	while (hi - lo > 1) {
		uint64_t sum;
		size_t at;

		swap(&c[lo + prng_below(&pivots, hi - lo)], &c[hi - 1]);
		at = partition(c, lo, hi, &sum);
		if (target <= sum) {
			hi = at;
		} else if (target <= sum + c[at].weight) {
			return at + 1;
		} else {
			target -= sum + c[at].weight;
			lo = at + 1;
		}
	}
	return hi;
}

/* --- filters and the draw --------------------------------------------------------------------- */

static uint64_t weight_of(const struct sampler *s, float logit, float best)
{
	double distance = ((double)best - (double)logit) / s->p.temperature * LOG2_E;
	uint32_t d;
	double w;

	if (!(distance <= WEIGHT_LOG2))
		return 0;
	d = (uint32_t)(distance * (1 << 24) + 0.5);
	w = s->fraction[0][d >> 16 & 255] * s->fraction[1][d >> 8 & 255] * s->fraction[2][d & 255];
	return (uint64_t)(w * (double)WEIGHT_ONE) >> (d >> 24);
}

static size_t keep_top_k(struct sampler *s, const float *logits)
{
	size_t n = s->vocab;

	for (size_t i = 0; i < n; i++)
		s->candidates[i] = (struct candidate){ logits[i], (int32_t)i, 1 };
	if (s->p.top_k > 0 && (size_t)s->p.top_k < n)
		n = select_first(s->candidates, n, (uint64_t)s->p.top_k);
	return n;
}

static size_t keep_min_p(struct sampler *s, size_t n, float best)
{
	uint64_t least = (uint64_t)ceil(s->p.min_p * (double)WEIGHT_ONE);
	size_t kept = 0;

	for (size_t i = 0; i < n; i++) {
		struct candidate c = s->candidates[i];

		c.weight = weight_of(s, c.logit, best);
		if (c.weight && c.weight >= least)
			s->candidates[kept++] = c;
	}
	return kept;
}

static uint64_t sum_weights(const struct candidate *c, size_t n)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += c[i].weight;
	return sum;
}

static size_t keep_top_p(struct sampler *s, size_t n)
{
	uint64_t total = sum_weights(s->candidates, n);
	uint64_t target = (uint64_t)ceil(s->p.top_p * (double)total);

	if (s->p.top_p >= 1)
		return n;
	return select_first(s->candidates, n, target > total ? total : target);
}

static int32_t draw(struct sampler *s, const float *logits, size_t n, float best)
{
	uint64_t left = prng_below(&s->prng, sum_weights(s->candidates, n));
	struct candidate last = s->candidates[0];

	for (size_t i = 1; i < n; i++)
		if (comes_before(&last, &s->candidates[i]))
			last = s->candidates[i];
	for (uint32_t i = 0; i < s->vocab; i++) {
		const struct candidate c = { logits[i], (int32_t)i, 0 };
		uint64_t weight;

		if (comes_before(&last, &c))
			continue;
		weight = weight_of(s, c.logit, best);
		if (left < weight)
			return c.id;
		left -= weight;
	}
	return last.id;
}

static float log_share(const float *logits, uint32_t n, int32_t picked)
{
	double best = greatest(logits, n), sum = 0;

	for (uint32_t i = 0; i < n; i++)
		sum += exp(logits[i] - best);
	return (float)(logits[picked] - best - log(sum));
}

int32_t sampler_pick(struct sampler *s, const float *logits, float *ret_logprob)
{
	const float *l = penalise(s, logits);
	float best = greatest(l, s->vocab);
	int32_t token;

	if (s->p.temperature > 0) {
		size_t n = keep_top_p(s, keep_min_p(s, keep_top_k(s, l), best));

		token = draw(s, l, n, best);
	} else {
		token = first_equal(l, s->vocab, best);
	}
	sampler_accept(s, token);
	if (ret_logprob)
		*ret_logprob = log_share(logits, s->vocab, token);
	return token;
}
