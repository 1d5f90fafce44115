/* One inference is one function that every member of the pool runs from end to end; between two
 * lines of this table all members meet:
 *
 *   phase                                split by          reads             writes
 *   normalise, query, key, value rows    rows of q, k, v   x                 q, k, v
 *   turn, store, attend                  KV head           q, k, v, cache    cache, mixed
 *   output rows, added                   rows of o         mixed             x
 *   normalise, gate and up rows, SwiGLU  rows of gate, up  x                 gate
 *   down rows, added                     rows of down      gate              x
 *   (after the last layer) normalise, logits               x                 logits
 *
 * Normalising is so little work that each member does it for itself. Every output row is computed
 * by one member in an order of its own, so the split changes nothing (kernels.h).
 *
 * Only the last token's logits are wanted, and in the last layer nothing else depends on the other
 * tokens but their keys and values: from there on only the last token is computed.
 *
 * Keys and values of a layer and KV head are [positions / 16][head_dim][16]: scores of 16 positions
 * are one vector, and so is a dimension of 16 values. */
#include "core/sim/llama.h"

#include <math.h>
#include <stdlib.h>

#include "core/sim/llama_internal.h"

struct llama_kv {
	float *keys, *values;
};

struct step {
	const struct llama *l;
	struct llama_lane *lane;
	struct llama_kv *kv;
	uint32_t n, past;
	float *logits;
};

/* The tokens of a micro-batch from the first on. */
static struct rows from(struct rows r, uint32_t first)
{
	return (struct rows){ r.at + first * r.stride, r.stride };
}

static size_t head_floats(const struct llama *l)
{
	return matrix_pad(l->c.max_seq_len) * l->head_dim;
}

static size_t head_at(const struct llama *l, uint32_t layer, uint32_t kv_head)
{
	return ((size_t)layer * l->c.n_kv_heads + kv_head) * head_floats(l);
}

/* y (+)= m x for this member's rows of m. */
static void multiply(const struct step *st, unsigned member, const struct matrix *m, struct rows x,
	struct rows y, uint32_t n, bool add)
{
	uint32_t first, last;

	pool_share(st->lane->pool, member, matrix_blocks(m), &first, &last);
	st->l->kernels->matmul(m, x, y, n, first, last, add);
}

static struct rows normalise(const struct step *st, unsigned member, struct rows x, uint32_t n,
	const float *weight)
{
	const struct llama *l = st->l;
	struct rows out = st->lane->s.norm[member];

	for (uint32_t t = 0; t < n; t++)
		l->kernels->rmsnorm(out.at + t * out.stride, x.at + t * x.stride, weight, l->c.dim,
			(float)l->c.norm_eps);
	return out;
}

/* Turn the pairs (i, i + half) of one head by the angles of its position. */
static void turn(float *head, const float *turns, uint32_t half)
{
	for (uint32_t i = 0; i < half; i++) {
		float a = head[i], b = head[half + i], c = turns[i], s = turns[half + i];

		head[i] = a * c - b * s;
		head[half + i] = b * c + a * s;
	}
}

static void store_column(float *head, uint32_t pos, const float *values, uint32_t head_dim)
{
	float *to =
		head + (size_t)(pos / MATRIX_BLOCK) * head_dim * MATRIX_BLOCK + pos % MATRIX_BLOCK;

	for (uint32_t d = 0; d < head_dim; d++)
		to[d * MATRIX_BLOCK] = values[d];
}

/* One KV head of all tokens; queries from token `first` on. */
static void attend_head(const struct step *st, unsigned member, uint32_t layer, uint32_t kv_head,
	uint32_t first)
{
	const struct llama *l = st->l;
	const struct llama_scratch *s = &st->lane->s;
	uint32_t hd = l->head_dim, group = l->c.n_heads / l->c.n_kv_heads;
	float *keys = st->kv->keys + head_at(l, layer, kv_head);
	float *values = st->kv->values + head_at(l, layer, kv_head);
	float scale = 1.0f / sqrtf((float)hd);

	for (uint32_t t = 0; t < st->n; t++) {
		float *k = s->k.at + t * s->k.stride + kv_head * hd;

		turn(k, l->turns + (size_t)(st->past + t) * hd, hd / 2);
		store_column(keys, st->past + t, k, hd);
		store_column(values, st->past + t, s->v.at + t * s->v.stride + kv_head * hd, hd);
	}
	for (uint32_t t = first; t < st->n; t++) {
		for (uint32_t h = kv_head * group; h < (kv_head + 1) * group; h++) {
			float *q = s->q.at + t * s->q.stride + h * hd;

			turn(q, l->turns + (size_t)(st->past + t) * hd, hd / 2);
			l->kernels->attend(s->mixed.at + t * s->mixed.stride + h * hd, q, keys,
				values, st->past + t + 1, hd, scale, s->scores[member]);
		}
	}
}

static void attention(const struct step *st, unsigned member, uint32_t layer, uint32_t first)
{
	const struct llama *l = st->l;
	const struct llama_layer *w = &l->layers[layer];
	const struct llama_scratch *s = &st->lane->s;
	struct rows norm = normalise(st, member, s->x, st->n, w->input_norm);
	uint32_t head, last;

	multiply(st, member, &w->q, from(norm, first), from(s->q, first), st->n - first, false);
	multiply(st, member, &w->k, norm, s->k, st->n, false);
	multiply(st, member, &w->v, norm, s->v, st->n, false);
	pool_barrier(st->lane->pool);
	pool_share(st->lane->pool, member, l->c.n_kv_heads, &head, &last);
	for (; head < last; head++)
		attend_head(st, member, layer, head, first);
	pool_barrier(st->lane->pool);
	multiply(st, member, &w->o, from(s->mixed, first), from(s->x, first), st->n - first, true);
	pool_barrier(st->lane->pool);
}

static void mlp(const struct step *st, unsigned member, uint32_t layer, uint32_t first)
{
	const struct llama *l = st->l;
	const struct llama_layer *w = &l->layers[layer];
	struct rows x = from(st->lane->s.x, first), gate = st->lane->s.gate, up = st->lane->s.up;
	uint32_t n = st->n - first, block, last;
	struct rows norm = normalise(st, member, x, n, w->post_norm);

	multiply(st, member, &w->gate, norm, gate, n, false);
	multiply(st, member, &w->up, norm, up, n, false);
	pool_share(st->lane->pool, member, matrix_blocks(&w->gate), &block, &last);
	for (uint32_t t = 0; t < n; t++)
		l->kernels->swiglu(gate.at + t * gate.stride + block * MATRIX_BLOCK,
			up.at + t * up.stride + block * MATRIX_BLOCK,
			(size_t)(last - block) * MATRIX_BLOCK);
	pool_barrier(st->lane->pool);
	multiply(st, member, &w->down, gate, x, n, true);
	pool_barrier(st->lane->pool);
}

static void run_step(void *arg, unsigned member)
{
	const struct step *st = arg;
	const struct llama *l = st->l;
	const struct matrix *head = l->c.tied_embeddings ? &l->embed : &l->head;
	struct rows last = from(st->lane->s.x, st->n - 1), logits = { st->logits, l->c.vocab_size };

	for (uint32_t layer = 0; layer < l->c.n_layers; layer++) {
		uint32_t first = layer + 1 < l->c.n_layers ? 0 : st->n - 1;

		attention(st, member, layer, first);
		mlp(st, member, layer, first);
	}
	multiply(st, member, head, normalise(st, member, last, 1, l->norm), logits, 1, false);
}

enum npu_error llama_forward(struct llama *l, struct llama_kv *kv, const int32_t *tokens,
	uint32_t n, uint32_t past, float *logits)
{
	struct llama_lane *lane;
	struct step st;

	if (n < 1 || n > l->c.ubatch || past > l->c.max_seq_len - n)
		return NPU_INVALID_VALUE;
	for (uint32_t t = 0; t < n; t++)
		if (tokens[t] < 0 || (uint32_t)tokens[t] >= l->c.vocab_size)
			return NPU_INVALID_VALUE;
	lane = (struct llama_lane *)lanes_take(&l->lanes);
	if (!lane)
		lane = llama_lane_new(l);
	if (!lane)
		return NPU_MEMORY_ALLOCATION;
	st = (struct step){ l, lane, kv, n, past, logits };
	for (uint32_t t = 0; t < n; t++)
		matrix_row(&l->embed, (uint32_t)tokens[t], lane->s.x.at + t * lane->s.x.stride);
	pool_run(lane->pool, run_step, &st);
	lanes_give(&l->lanes, &lane->link);
	return NPU_SUCCESS;
}

const struct llama_config *llama_config(const struct llama *l)
{
	return &l->c;
}

struct llama_kv *llama_kv_new(const struct llama *l)
{
	size_t floats = (size_t)l->c.n_layers * l->c.n_kv_heads * head_floats(l);
	struct llama_kv *kv = calloc(1, sizeof(*kv));

	if (!kv)
		return NULL;
	/* Raw, so that memory is used as the sequence grows: what was not stored is never used. */
	kv->keys = matrix_floats_raw(floats);
	kv->values = matrix_floats_raw(floats);
	if (!kv->keys || !kv->values) {
		llama_kv_free(kv);
		return NULL;
	}
	return kv;
}

void llama_kv_free(struct llama_kv *kv)
{
	if (!kv)
		return;
	free(kv->keys);
	free(kv->values);
	free(kv);
}
