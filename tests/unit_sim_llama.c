/* The decoder against a plain one in double precision, and against itself however the work is cut:
 * tokens together or one by one, one thread or several, int8 or the floats it stands for. */
#include "core/sim/llama.h"

#include "sim_files.h"

#define N_TOKENS  40
#define TOLERANCE 2e-4

static const int32_t text[N_TOKENS] = { 1, 7, 40, 0, 3, 3, 12, 29, 38, 5, 17, 22, 9, 31, 2, 14, 6,
	25, 33, 11, 8, 39, 4, 19, 27, 13, 36, 21, 10, 30, 16, 35, 20, 28, 15, 37, 18, 26, 34, 24 };

struct model {
	struct weights weights;
	struct buf bytes;
	struct safetensors *file;
};

static void model_make(struct model *m, const struct llama_config *c, bool int8)
{
	*m = (struct model){ .bytes = BUF_INIT };
	random_llama(c, 42, &m->weights);
	for (size_t i = 0; int8 && i < m->weights.n; i++)
		if (m->weights.w[i].rank == 2)
			weight_quantise(&m->weights.w[i]);
	weights_file(&m->weights, &m->bytes);
	assert_int_equal(safetensors_parse(m->bytes.data, m->bytes.len, &m->file), NPU_SUCCESS);
}

static void model_done(struct model *m)
{
	safetensors_close(m->file);
	buf_done(&m->bytes);
	weights_free(&m->weights);
}

/* Logits after each of the N_TOKENS tokens, computed `step` at a time (only a step's last are
 * wanted from it); others stay zero. */
static float *run(const struct model *m, const struct llama_config *c, const struct kernels *k,
	unsigned threads, uint32_t step)
{
	float *logits = calloc((size_t)N_TOKENS * c->vocab_size, sizeof(float));
	struct llama_kv *kv;
	struct llama *l;

	assert_int_equal(llama_new(c, m->file, k, threads, &l), NPU_SUCCESS);
	kv = llama_kv_new(l);
	assert_non_null(kv);
	for (uint32_t past = 0; past < N_TOKENS; past += step) {
		uint32_t n = N_TOKENS - past < step ? N_TOKENS - past : step;

		assert_int_equal(llama_forward(l, kv, text + past, n, past,
					 logits + (size_t)(past + n - 1) * c->vocab_size),
			NPU_SUCCESS);
	}
	llama_kv_free(kv);
	llama_free(l);
	return logits;
}

/* --- the plain one ---------------------------------------------------------------------------- */

struct plain {
	struct llama_config c;
	struct weights *w;
	double *keys, *values; /* [layer][position][kv] */
};

static const float *named(struct plain *p, int layer, const char *name)
{
	char full[96];

	snprintf(full, sizeof(full), "model.layers.%d.%s.weight", layer, name);
	return weights_find(p->w, full)->f;
}

static void product(double *y, const float *w, const double *x, uint32_t rows, uint32_t cols)
{
	for (uint32_t r = 0; r < rows; r++) {
		y[r] = 0;
		for (uint32_t c = 0; c < cols; c++)
			y[r] += (double)w[r * cols + c] * x[c];
	}
}

static void normalised(double *y, const double *x, const float *w, uint32_t n, double eps)
{
	double squares = 0;

	for (uint32_t i = 0; i < n; i++)
		squares += x[i] * x[i];
	for (uint32_t i = 0; i < n; i++)
		y[i] = x[i] / sqrt(squares / n + eps) * w[i];
}

static void rotated(double *head, uint32_t hd, uint32_t pos, double theta)
{
	for (uint32_t i = 0; i < hd / 2; i++) {
		double angle = pos / pow(theta, 2.0 * i / hd), a = head[i], b = head[i + hd / 2];

		head[i] = a * cos(angle) - b * sin(angle);
		head[i + hd / 2] = a * sin(angle) + b * cos(angle);
	}
}

static void plain_attention(struct plain *p, int layer, uint32_t pos, double *x)
{
	const struct llama_config *c = &p->c;
	uint32_t hd = c->dim / c->n_heads, kv = hd * c->n_kv_heads,
		 group = c->n_heads / c->n_kv_heads;
	double norm[64], q[64], mixed[64] = { 0 }, out[64];
	double *keys = p->keys + (size_t)layer * N_TOKENS * kv;
	double *values = p->values + (size_t)layer * N_TOKENS * kv;

	normalised(norm, x, named(p, layer, "input_layernorm"), c->dim, c->norm_eps);
	product(q, named(p, layer, "self_attn.q_proj"), norm, c->dim, c->dim);
	product(keys + pos * kv, named(p, layer, "self_attn.k_proj"), norm, kv, c->dim);
	product(values + pos * kv, named(p, layer, "self_attn.v_proj"), norm, kv, c->dim);
	for (uint32_t h = 0; h < c->n_kv_heads; h++)
		rotated(keys + pos * kv + h * hd, hd, pos, c->rope_theta);
	for (uint32_t h = 0; h < c->n_heads; h++) {
		double weight[N_TOKENS], total = 0;
		uint32_t at = h / group * hd;

		rotated(q + h * hd, hd, pos, c->rope_theta);
		for (uint32_t t = 0; t <= pos; t++) {
			double score = 0;

			for (uint32_t d = 0; d < hd; d++)
				score += q[h * hd + d] * keys[t * kv + at + d];
			total += weight[t] = exp(score / sqrt(hd));
		}
		for (uint32_t t = 0; t <= pos; t++)
			for (uint32_t d = 0; d < hd; d++)
				mixed[h * hd + d] += weight[t] / total * values[t * kv + at + d];
	}
	product(out, named(p, layer, "self_attn.o_proj"), mixed, c->dim, c->dim);
	for (uint32_t i = 0; i < c->dim; i++)
		x[i] += out[i];
}

static void plain_mlp(struct plain *p, int layer, double *x)
{
	const struct llama_config *c = &p->c;
	double norm[64], gate[64], up[64], out[64];

	normalised(norm, x, named(p, layer, "post_attention_layernorm"), c->dim, c->norm_eps);
	product(gate, named(p, layer, "mlp.gate_proj"), norm, c->hidden_dim, c->dim);
	product(up, named(p, layer, "mlp.up_proj"), norm, c->hidden_dim, c->dim);
	for (uint32_t i = 0; i < c->hidden_dim; i++)
		gate[i] *= up[i] / (1 + exp(-gate[i]));
	product(out, named(p, layer, "mlp.down_proj"), gate, c->dim, c->hidden_dim);
	for (uint32_t i = 0; i < c->dim; i++)
		x[i] += out[i];
}

static double *plain_run(struct plain *p)
{
	const struct llama_config *c = &p->c;
	size_t cache = (size_t)c->n_layers * N_TOKENS * c->dim;
	double *logits = calloc((size_t)N_TOKENS * c->vocab_size, sizeof(double));
	const float *embed = weights_find(p->w, "model.embed_tokens.weight")->f;
	const float *head = c->tied_embeddings ? embed : weights_find(p->w, "lm_head.weight")->f;

	p->keys = calloc(cache, sizeof(double));
	p->values = calloc(cache, sizeof(double));
	for (uint32_t pos = 0; pos < N_TOKENS; pos++) {
		double x[64], norm[64];

		for (uint32_t i = 0; i < c->dim; i++)
			x[i] = embed[(size_t)text[pos] * c->dim + i];
		for (uint32_t l = 0; l < c->n_layers; l++) {
			plain_attention(p, (int)l, pos, x);
			plain_mlp(p, (int)l, x);
		}
		normalised(norm, x, weights_find(p->w, "model.norm.weight")->f, c->dim,
			c->norm_eps);
		product(logits + (size_t)pos * c->vocab_size, head, norm, c->vocab_size, c->dim);
	}
	free(p->keys);
	free(p->values);
	return logits;
}

/* --- tests ------------------------------------------------------------------------------------ */

static void check_against_plain(const struct llama_config *c, bool int8)
{
	struct model m;
	struct plain p = { .c = *c };
	double *want;

	model_make(&m, c, int8);
	p.w = &m.weights;
	want = plain_run(&p);
	for (size_t v = 0; kernels_at(v); v++) {
		float *got = run(&m, c, kernels_at(v), 1, 1);

		for (size_t i = 0; i < (size_t)N_TOKENS * c->vocab_size; i++)
			assert_float_equal(got[i], want[i], TOLERANCE);
		free(got);
	}
	free(want);
	model_done(&m);
}

static void llama_forward__random_weights__agrees_with_plain_doubles(void **state)
{
	struct llama_config tied = odd_llama;

	(void)state;
	check_against_plain(&odd_llama, false);
	tied.tied_embeddings = true;
	tied.n_kv_heads = tied.n_heads;
	tied.rope_theta = 500;
	tied.norm_eps = 1e-3;
	check_against_plain(&tied, false);
}

static void llama_forward__int8_weights__agrees_with_what_they_stand_for(void **state)
{
	(void)state;
	check_against_plain(&odd_llama, true);
}

static void llama_forward__any_micro_batches__same_as_token_by_token(void **state)
{
	static const uint32_t steps[] = { 2, 3, 7, 16, 19 };
	struct model m;

	(void)state;
	model_make(&m, &odd_llama, false);
	for (size_t v = 0; kernels_at(v); v++) {
		float *one = run(&m, &odd_llama, kernels_at(v), 1, 1);

		for (size_t s = 0; s < sizeof(steps) / sizeof(steps[0]); s++) {
			float *many = run(&m, &odd_llama, kernels_at(v), 1, steps[s]);
			size_t last = (size_t)(N_TOKENS - 1) * odd_llama.vocab_size;

			for (size_t i = last; i < last + odd_llama.vocab_size; i++)
				assert_float_equal(many[i], one[i], TOLERANCE);
			free(many);
		}
		free(one);
	}
	model_done(&m);
}

static void llama_forward__several_threads__bit_identical(void **state)
{
	struct model m;

	(void)state;
	for (int int8 = 0; int8 <= 1; int8++) {
		model_make(&m, &odd_llama, int8);
		for (uint32_t step = 1; step <= 16; step += 5) {
			float *one = run(&m, &odd_llama, kernels_at(0), 1, step);

			for (unsigned threads = 2; threads <= 5; threads++) {
				float *more = run(&m, &odd_llama, kernels_at(0), threads, step);

				assert_memory_equal(one, more,
					(size_t)N_TOKENS * odd_llama.vocab_size * sizeof(float));
				free(more);
			}
			free(one);
		}
		model_done(&m);
	}
}

static void llama_forward__another_sequence_between__no_crosstalk(void **state)
{
	float apart[41], together[41], other[41];
	struct llama_kv *a, *b;
	struct llama *l;
	struct model m;

	(void)state;
	model_make(&m, &odd_llama, false);
	assert_int_equal(llama_new(&odd_llama, m.file, kernels_at(0), 1, &l), NPU_SUCCESS);
	a = llama_kv_new(l);
	b = llama_kv_new(l);
	llama_forward(l, a, text, 5, 0, apart);
	llama_forward(l, a, text + 5, 1, 5, apart);
	llama_forward(l, b, text, 5, 0, together);
	llama_forward(l, a, text + 9, 7, 0, other);
	llama_forward(l, b, text + 5, 1, 5, together);
	assert_memory_equal(apart, together, sizeof(apart));
	assert_memory_not_equal(apart, other, sizeof(apart));
	llama_kv_free(a);
	llama_kv_free(b);
	llama_free(l);
	model_done(&m);
}

static void llama_forward__tokens_and_positions_out_of_range__refused(void **state)
{
	const int32_t bad[] = { 1, 41 }, negative[] = { -1 };
	struct llama_kv *kv;
	struct llama *l;
	struct model m;
	float logits[41];

	(void)state;
	model_make(&m, &odd_llama, false);
	assert_int_equal(llama_new(&odd_llama, m.file, kernels_at(0), 1, &l), NPU_SUCCESS);
	kv = llama_kv_new(l);
	assert_int_equal(llama_forward(l, kv, bad, 2, 0, logits), NPU_INVALID_VALUE);
	assert_int_equal(llama_forward(l, kv, negative, 1, 0, logits), NPU_INVALID_VALUE);
	assert_int_equal(llama_forward(l, kv, text, 0, 0, logits), NPU_INVALID_VALUE);
	assert_int_equal(llama_forward(l, kv, text, 20, 0, logits), NPU_INVALID_VALUE);
	assert_int_equal(llama_forward(l, kv, text, 2, 42, logits), NPU_INVALID_VALUE);
	assert_int_equal(llama_forward(l, kv, text, 1, UINT32_MAX, logits), NPU_INVALID_VALUE);
	assert_int_equal(llama_forward(l, kv, text, 2, 41, logits), NPU_SUCCESS);
	llama_kv_free(kv);
	llama_free(l);
	model_done(&m);
}

static void llama_check__sizes_that_do_not_fit__invalid_calbin(void **state)
{
	struct llama_config c[] = { odd_llama, odd_llama, odd_llama, odd_llama, odd_llama,
		odd_llama, odd_llama, odd_llama };

	(void)state;
	assert_int_equal(llama_check(&odd_llama), NPU_SUCCESS);
	c[0].n_heads = 5;    /* does not divide dim */
	c[1].n_heads = 12;   /* heads of an odd size have no pairs to turn */
	c[2].n_kv_heads = 4; /* does not divide n_heads */
	c[3].n_layers = 0;
	c[4].ubatch = 44; /* more than the context */
	c[5].max_batch_size = 2;
	c[6].rope_theta = 0;
	c[7].dim = 0;
	for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++)
		assert_int_equal(llama_check(&c[i]), NPU_INVALID_CALBIN);
}

static enum npu_error load_spoilt(const char *name, void (*spoil)(struct weight *w))
{
	struct weights all = { .n = 0 };
	AUTO_BUF struct buf bytes = BUF_INIT;
	struct llama *l = NULL;
	struct safetensors *st;
	enum npu_error code;

	random_llama(&odd_llama, 1, &all);
	spoil(weights_find(&all, name));
	weights_file(&all, &bytes);
	assert_int_equal(safetensors_parse(bytes.data, bytes.len, &st), NPU_SUCCESS);
	code = llama_new(&odd_llama, st, kernels_at(0), 1, &l);
	if (code == NPU_SUCCESS)
		llama_free(l);
	safetensors_close(st);
	weights_free(&all);
	return code;
}

static void rename_it(struct weight *w)
{
	w->name[0] = 'M';
}

static void transpose_shape(struct weight *w)
{
	uint32_t rows = w->rows;

	w->rows = w->cols;
	w->cols = rows;
}

static void make_int8(struct weight *w)
{
	w->q = calloc(w->rows, w->cols);
	w->scale = calloc(w->rows, sizeof(float));
}

static void keep(struct weight *w)
{
	(void)w;
}

static void llama_new__weights_missing_or_wrong__own_errors(void **state)
{
	(void)state;
	assert_int_equal(load_spoilt("model.norm.weight", keep), NPU_SUCCESS);
	assert_int_equal(load_spoilt("model.norm.weight", rename_it), NPU_INVALID_CALBIN);
	assert_int_equal(load_spoilt("lm_head.weight", rename_it), NPU_INVALID_CALBIN);
	assert_int_equal(load_spoilt("model.layers.1.mlp.down_proj.weight", rename_it),
		NPU_INVALID_CALBIN);
	assert_int_equal(load_spoilt("model.layers.1.mlp.down_proj.weight", transpose_shape),
		NPU_INVALID_DATA_SHAPE);
	assert_int_equal(load_spoilt("model.layers.0.input_layernorm.weight", make_int8),
		NPU_INVALID_DATA_TYPE);
	assert_int_equal(load_spoilt("model.layers.0.self_attn.v_proj.weight", make_int8),
		NPU_SUCCESS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(llama_forward__random_weights__agrees_with_plain_doubles),
		cmocka_unit_test(llama_forward__int8_weights__agrees_with_what_they_stand_for),
		cmocka_unit_test(llama_forward__any_micro_batches__same_as_token_by_token),
		cmocka_unit_test(llama_forward__several_threads__bit_identical),
		cmocka_unit_test(llama_forward__another_sequence_between__no_crosstalk),
		cmocka_unit_test(llama_forward__tokens_and_positions_out_of_range__refused),
		cmocka_unit_test(llama_check__sizes_that_do_not_fit__invalid_calbin),
		cmocka_unit_test(llama_new__weights_missing_or_wrong__own_errors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
