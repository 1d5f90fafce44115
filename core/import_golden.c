/* The golden run of an imported model, computed here on the host in plain double arithmetic straight from llama2.c's own
 * layout: it shares nothing with the software device, so the two check each other. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/import_llama2c.h"
#include "core/mem.h"

#define TOKENS_MAX 8
#define UBATCH     16

struct pass {
	const struct llama2c *w;
	int n, head, kv; /* tokens; size of a head; size of a key */
	double *x, *q, *att, *hid;  /* of one token */
	double *keys, *values;      /* of all tokens, one layer */
};

static void rmsnorm(double *out, const double *x, const float *gain, int n)
{
	double sum = 0;

	for (int i = 0; i < n; i++)
		sum += x[i] * x[i];
	sum = 1 / sqrt(sum / n + 1e-5);
	for (int i = 0; i < n; i++)
		out[i] = x[i] * sum * (double)gain[i];
}

static void matvec(double *out, const float *m, const double *x, int rows, int cols)
{
	for (int r = 0; r < rows; r++) {
		out[r] = 0;
		for (int c = 0; c < cols; c++)
			out[r] += (double)m[(size_t)r * (size_t)cols + (size_t)c] * x[c];
	}
}

static void rotate(double *v, int n, int head, int position)
{
	for (int i = 0; i < n; i += 2) {
		double angle = position * pow(10000, -(double)(i % head) / head);
		double a = v[i], b = v[i + 1];

		v[i] = a * cos(angle) - b * sin(angle);
		v[i + 1] = a * sin(angle) + b * cos(angle);
	}
}

static void attend(struct pass *p, int h, int position, double *out)
{
	int kv_head = h * p->w->n_kv_heads / p->w->n_heads;
	const double *q = p->q + h * p->head;
	double weight[TOKENS_MAX], sum = 0, most = -INFINITY;

	for (int t = 0; t <= position; t++) {
		const double *k = p->keys + t * p->kv + kv_head * p->head;

		weight[t] = 0;
		for (int i = 0; i < p->head; i++)
			weight[t] += q[i] * k[i];
		weight[t] /= sqrt(p->head);
		most = fmax(most, weight[t]);
	}
	for (int t = 0; t <= position; t++)
		sum += weight[t] = exp(weight[t] - most);
	for (int i = 0; i < p->head; i++) {
		out[i] = 0;
		for (int t = 0; t <= position; t++)
			out[i] += weight[t] / sum * p->values[t * p->kv + kv_head * p->head + i];
	}
}

static void attention(struct pass *p, size_t l, double *x, int position)
{
	const struct llama2c *w = p->w;
	size_t dim = (size_t)w->dim, kv = (size_t)p->kv;

	rmsnorm(p->x, x, w->rms_att + l * dim, w->dim);
	matvec(p->q, w->wq + l * dim * dim, p->x, w->dim, w->dim);
	matvec(p->keys + position * p->kv, w->wk + l * kv * dim, p->x, p->kv, w->dim);
	matvec(p->values + position * p->kv, w->wv + l * kv * dim, p->x, p->kv, w->dim);
	rotate(p->q, w->dim, p->head, position);
	rotate(p->keys + position * p->kv, p->kv, p->head, position);
	for (int h = 0; h < w->n_heads; h++)
		attend(p, h, position, p->att + h * p->head);
	matvec(p->x, w->wo + l * dim * dim, p->att, w->dim, w->dim);
	for (int i = 0; i < w->dim; i++)
		x[i] += p->x[i];
}

static void feed_forward(struct pass *p, size_t l, double *x)
{
	const struct llama2c *w = p->w;
	size_t dim = (size_t)w->dim, hidden = (size_t)w->hidden_dim;
	double *up = p->hid + hidden;

	rmsnorm(p->x, x, w->rms_ffn + l * dim, w->dim);
	matvec(p->hid, w->w1 + l * hidden * dim, p->x, w->hidden_dim, w->dim);
	matvec(up, w->w3 + l * hidden * dim, p->x, w->hidden_dim, w->dim);
	for (size_t i = 0; i < hidden; i++)
		p->hid[i] = p->hid[i] / (1 + exp(-p->hid[i])) * up[i];
	matvec(p->x, w->w2 + l * dim * hidden, p->hid, w->dim, w->hidden_dim);
	for (int i = 0; i < w->dim; i++)
		x[i] += p->x[i];
}

/* Layer by layer over all tokens: `state` holds one vector a token. */
static void forward(struct pass *p, const int32_t *tokens, double *state)
{
	size_t dim = (size_t)p->w->dim;

	for (int t = 0; t < p->n; t++)
		for (size_t i = 0; i < dim; i++)
			state[(size_t)t * dim + i] = (double)p->w->embedding[(size_t)tokens[t] * dim + i];
	for (size_t l = 0; l < (size_t)p->w->n_layers; l++)
		for (int t = 0; t < p->n; t++) {
			attention(p, l, state + (size_t)t * dim, t);
			feed_forward(p, l, state + (size_t)t * dim);
		}
}

static void put_logits(struct pass *p, const double *last, struct buf *out)
{
	const struct llama2c *w = p->w;

	rmsnorm(p->x, last, w->rms_final, w->dim);
	for (int32_t v = 0; v < w->vocab_size; v++) {
		double logit;
		float stored;

		matvec(&logit, w->classifier + (size_t)v * (size_t)w->dim, p->x, 1, w->dim);
		stored = (float)logit;
		buf_put(out, &stored, sizeof stored);
	}
}

/* BOS, then ids spread over the vocabulary. */
static void choose_tokens(const struct llama2c *w, int n, int32_t tokens[UBATCH])
{
	tokens[0] = w->vocab_size > 1 ? 1 : 0;
	for (int i = 1; i < n; i++)
		tokens[i] = (int32_t)((int64_t)w->vocab_size * i / n);
}

int llama2c_golden(const struct llama2c *w, struct buf *in, struct buf *out)
{
	int width = w->seq_len < UBATCH ? w->seq_len : UBATCH;
	int n = width < TOKENS_MAX ? width : TOKENS_MAX;
	int head = w->dim / w->n_heads, kv = head * w->n_kv_heads;
	size_t dim = (size_t)w->dim, hidden = (size_t)w->hidden_dim;
	size_t room = 3 * dim + 2 * hidden + TOKENS_MAX * (2 * (size_t)kv + dim);
	AUTO_FREE double *memory = calloc(room, sizeof *memory);
	int32_t tokens[UBATCH] = { 0 };

	if (!memory)
		return -ENOMEM;
	struct pass p = { .w = w, .n = n, .head = head, .kv = kv, .x = memory, .q = memory + dim,
		.att = memory + 2 * dim, .hid = memory + 3 * dim };

	p.keys = p.hid + 2 * hidden;
	p.values = p.keys + TOKENS_MAX * kv;
	double *state = p.values + TOKENS_MAX * kv;

	choose_tokens(w, n, tokens);
	forward(&p, tokens, state);
	buf_put(in, tokens, (size_t)width * sizeof *tokens);
	put_logits(&p, state + (size_t)(n - 1) * dim, out);
	return buf_error(in) || buf_error(out) ? -ENOMEM : 0;
}
