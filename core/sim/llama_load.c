/* Building and freeing a model: weights by a table of names, then all the memory an inference will
 * need. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/mem.h"
#include "core/sim/llama_internal.h"

#define MAX_DIM    (1u << 16)
#define MAX_HIDDEN (1u << 20)
#define MAX_LAYERS 1024u
#define MAX_VOCAB  (1u << 20)
#define MAX_SEQ    (1u << 20)
#define MAX_UBATCH 4096u

static bool within(uint32_t n, uint32_t most)
{
	return n >= 1 && n <= most;
}

enum npu_error llama_check(const struct llama_config *c)
{
	bool sane = within(c->dim, MAX_DIM) && within(c->hidden_dim, MAX_HIDDEN) &&
		within(c->n_layers, MAX_LAYERS) && within(c->n_heads, c->dim) &&
		within(c->n_kv_heads, c->n_heads) && within(c->vocab_size, MAX_VOCAB) &&
		within(c->max_seq_len, MAX_SEQ) && within(c->ubatch, MAX_UBATCH) &&
		c->ubatch <= c->max_seq_len && c->max_batch_size == 1;

	if (!sane || c->n_heads % c->n_kv_heads != 0 || c->dim % (2 * c->n_heads) != 0)
		return NPU_INVALID_CALBIN;
	return c->rope_theta > 0 && c->norm_eps >= 0 ? NPU_SUCCESS : NPU_INVALID_CALBIN;
}

/* --- weights ---------------------------------------------------------------------------------- */

enum width { DIM, HEADS, KV_HEADS, HIDDEN };

static uint32_t width(const struct llama *l, enum width w)
{
	const uint32_t widths[] = {
		[DIM] = l->c.dim,
		[HEADS] = l->c.n_heads * l->head_dim,
		[KV_HEADS] = l->c.n_kv_heads * l->head_dim,
		[HIDDEN] = l->c.hidden_dim,
	};

	return widths[w];
}

static const struct {
	const char *name;
	size_t member;
	enum width rows, cols;
} layer_matrices[] = {
	{ "self_attn.q_proj", offsetof(struct llama_layer, q), HEADS, DIM },
	{ "self_attn.k_proj", offsetof(struct llama_layer, k), KV_HEADS, DIM },
	{ "self_attn.v_proj", offsetof(struct llama_layer, v), KV_HEADS, DIM },
	{ "self_attn.o_proj", offsetof(struct llama_layer, o), DIM, HEADS },
	{ "mlp.gate_proj", offsetof(struct llama_layer, gate), HIDDEN, DIM },
	{ "mlp.up_proj", offsetof(struct llama_layer, up), HIDDEN, DIM },
	{ "mlp.down_proj", offsetof(struct llama_layer, down), DIM, HIDDEN },
};

static const struct {
	const char *name;
	size_t member;
} layer_vectors[] = {
	{ "input_layernorm", offsetof(struct llama_layer, input_norm) },
	{ "post_attention_layernorm", offsetof(struct llama_layer, post_norm) },
};

static void *member_of(struct llama_layer *layer, size_t offset)
{
	return (char *)layer + offset;
}

static enum npu_error load_layer(struct llama *l, const struct safetensors *st, uint32_t number)
{
	struct llama_layer *layer = &l->layers[number];
	char name[96];

	for (size_t i = 0; i < ARRAY_SIZE(layer_matrices); i++) {
		enum npu_error code;

		snprintf(name, sizeof(name), "model.layers.%u.%s.weight", number,
			layer_matrices[i].name);
		code = matrix_load(st, name, width(l, layer_matrices[i].rows),
			width(l, layer_matrices[i].cols),
			member_of(layer, layer_matrices[i].member));
		if (code != NPU_SUCCESS)
			return code;
	}
	for (size_t i = 0; i < ARRAY_SIZE(layer_vectors); i++) {
		enum npu_error code;

		snprintf(name, sizeof(name), "model.layers.%u.%s.weight", number,
			layer_vectors[i].name);
		code = matrix_load_vector(st, name, l->c.dim,
			member_of(layer, layer_vectors[i].member));
		if (code != NPU_SUCCESS)
			return code;
	}
	return NPU_SUCCESS;
}

static enum npu_error load_weights(struct llama *l, const struct safetensors *st)
{
	enum npu_error code;

	code = matrix_load(st, "model.embed_tokens.weight", l->c.vocab_size, l->c.dim, &l->embed);
	if (code == NPU_SUCCESS && !l->c.tied_embeddings)
		code = matrix_load(st, "lm_head.weight", l->c.vocab_size, l->c.dim, &l->head);
	if (code == NPU_SUCCESS)
		code = matrix_load_vector(st, "model.norm.weight", l->c.dim, &l->norm);
	for (uint32_t i = 0; code == NPU_SUCCESS && i < l->c.n_layers; i++)
		code = load_layer(l, st, i);
	return code;
}

/* --- memory ----------------------------------------------------------------------------------- */

/* Rows for a micro-batch; false: no memory. */
static bool batch_rows(const struct llama *l, uint32_t values, struct rows *ret)
{
	ret->stride = matrix_pad(values);
	ret->at = matrix_floats(ret->stride * l->c.ubatch);
	return ret->at != NULL;
}

static bool make_scratch(const struct llama *l, struct llama_lane *lane)
{
	struct llama_scratch *s = &lane->s;
	uint32_t heads = width(l, HEADS), kv_heads = width(l, KV_HEADS);
	bool ok = batch_rows(l, l->c.dim, &s->x) && batch_rows(l, heads, &s->q) &&
		batch_rows(l, kv_heads, &s->k) && batch_rows(l, kv_heads, &s->v) &&
		batch_rows(l, heads, &s->mixed) && batch_rows(l, l->c.hidden_dim, &s->gate) &&
		batch_rows(l, l->c.hidden_dim, &s->up);

	for (unsigned m = 0; ok && m < pool_members(lane->pool); m++) {
		s->scores[m] = matrix_floats(matrix_pad(l->c.max_seq_len));
		ok = s->scores[m] && batch_rows(l, l->c.dim, &s->norm[m]);
	}
	return ok;
}

static void free_scratch(struct llama_scratch *s)
{
	struct rows *const all[] = { &s->x, &s->q, &s->k, &s->v, &s->mixed, &s->gate, &s->up };

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		free(all[i]->at);
	for (size_t m = 0; m < POOL_MAX; m++) {
		free(s->norm[m].at);
		free(s->scores[m]);
	}
}

static void lane_free(struct llama_lane *lane)
{
	pool_free(lane->pool);
	free_scratch(&lane->s);
	free(lane);
}

struct llama_lane *llama_lane_new(const struct llama *l)
{
	struct llama_lane *lane = calloc(1, sizeof(*lane));

	if (!lane)
		return NULL;
	if (pool_new(l->threads, &lane->pool) == 0 && make_scratch(l, lane))
		return lane;
	lane_free(lane);
	return NULL;
}

/* Made at load, so that one inference at a time needs no memory. */
static bool make_first_lane(struct llama *l)
{
	struct llama_lane *lane = llama_lane_new(l);

	if (lane)
		lanes_give(&l->lanes, &lane->link);
	return lane != NULL;
}

static bool make_turns(struct llama *l)
{
	uint32_t half = l->head_dim / 2;

	l->turns = matrix_floats((size_t)l->c.max_seq_len * l->head_dim);
	if (!l->turns)
		return false;
	for (uint32_t i = 0; i < half; i++) {
		double speed = pow(l->c.rope_theta, -(double)i / half);
		float *turn = l->turns;

		for (uint32_t pos = 0; pos < l->c.max_seq_len; pos++, turn += l->head_dim) {
			turn[i] = (float)cos(pos * speed);
			turn[half + i] = (float)sin(pos * speed);
		}
	}
	return true;
}

enum npu_error llama_new(const struct llama_config *c, const struct safetensors *weights,
	const struct kernels *kernels, unsigned threads, struct llama **ret)
{
	enum npu_error code = llama_check(c);
	struct llama *l;

	if (code != NPU_SUCCESS)
		return code;
	l = calloc(1, sizeof(*l));
	if (!l)
		return NPU_MEMORY_ALLOCATION;
	l->c = *c;
	l->head_dim = c->dim / c->n_heads;
	l->threads = threads;
	l->kernels = kernels;
	lanes_init(&l->lanes);
	l->layers = calloc(c->n_layers, sizeof(*l->layers));
	code = l->layers ? load_weights(l, weights) : NPU_MEMORY_ALLOCATION;
	if (code == NPU_SUCCESS && !(make_first_lane(l) && make_turns(l)))
		code = NPU_MEMORY_ALLOCATION;
	if (code != NPU_SUCCESS) {
		llama_free(l);
		return code;
	}
	*ret = l;
	return NPU_SUCCESS;
}

void llama_free(struct llama *l)
{
	if (!l)
		return;
	for (struct lane *lane; (lane = lanes_take(&l->lanes));)
		lane_free((struct llama_lane *)lane);
	lanes_done(&l->lanes);
	for (uint32_t i = 0; l->layers && i < l->c.n_layers; i++) {
		for (size_t m = 0; m < ARRAY_SIZE(layer_matrices); m++)
			matrix_done(member_of(&l->layers[i], layer_matrices[m].member));
		for (size_t v = 0; v < ARRAY_SIZE(layer_vectors); v++)
			free(*(float **)member_of(&l->layers[i], layer_vectors[v].member));
	}
	free(l->layers);
	matrix_done(&l->embed);
	matrix_done(&l->head);
	free(l->norm);
	free(l->turns);
	free(l);
}
