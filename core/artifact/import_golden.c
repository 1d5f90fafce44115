/* Plain double arithmetic straight from llama2.c's own layout, rotating the pairs that it rotates:
 * nothing is shared with the software device or with the conversion of the weights, so that
 * agreement between them means something. All tokens go through a layer before the next layer
 * begins. */
#include "core/artifact/import_golden.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/mem.h"

#define BOS 1

struct pass {
	const struct llama2c_weights *w;
	size_t dim, kv, hidden, head;
	double *x;                /* [n, dim]: the tokens' state */
	double *keys, *values;    /* [n, kv] of this layer */
	double *norm, *q, *mixed; /* [dim] of this token */
	double *gate, *up;        /* [hidden] of this token */
	double scores[IMPORT_GOLDEN_MAX];
};

static void rms_norm(double *out, const double *x, const float *gain, size_t n)
{
	double squares = 0, scale;

	for (size_t i = 0; i < n; i++)
		squares += x[i] * x[i];
	/* an overflow must not end as the zeros that dividing by infinity gives */
	scale = isfinite(squares) ? 1 / sqrt(squares / (double)n + LLAMA2C_NORM_EPS) : (double)NAN;
	for (size_t i = 0; i < n; i++)
		out[i] = x[i] * scale * (double)gain[i];
}

static double dot(const float *row, const double *x, size_t n)
{
	double sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += (double)row[i] * x[i];
	return sum;
}

/* out [rows] = matrix [rows, cols] times x [cols], or that added to it. */
static void multiply(double *out, const float *matrix, const double *x, size_t rows, size_t cols,
	bool add)
{
	for (size_t r = 0; r < rows; r++)
		out[r] = dot(matrix + r * cols, x, cols) + (add ? out[r] : 0);
}

static void rotate(double *v, size_t n, size_t head, size_t position)
{
	for (size_t i = 0; i < n; i += 2) {
		double angle = (double)position *
			pow(LLAMA2C_ROPE_THETA, -(double)(i % head) / (double)head);
		double a = v[i], b = v[i + 1];

		v[i] = a * cos(angle) - b * sin(angle);
		v[i + 1] = a * sin(angle) + b * cos(angle);
	}
}

/* What head `h` of the token at `position` takes from all positions up to its own. */
static void attend(struct pass *p, size_t h, size_t position)
{
	size_t kv_head = h / (p->w->n_heads / p->w->n_kv_heads) * p->head;
	const double *q = p->q + h * p->head;
	double *mixed = p->mixed + h * p->head, most = -INFINITY, sum = 0;

	for (size_t t = 0; t <= position; t++) {
		p->scores[t] = 0;
		for (size_t i = 0; i < p->head; i++)
			p->scores[t] +=
				q[i] * p->keys[t * p->kv + kv_head + i] / sqrt((double)p->head);
		most = fmax(most, p->scores[t]);
	}
	for (size_t t = 0; t <= position; t++) {
		p->scores[t] = exp(p->scores[t] - most);
		sum += p->scores[t];
	}
	memset(mixed, 0, p->head * sizeof *mixed);
	for (size_t t = 0; t <= position; t++)
		for (size_t i = 0; i < p->head; i++)
			mixed[i] += p->scores[t] / sum * p->values[t * p->kv + kv_head + i];
}

static void attention(struct pass *p, size_t layer, size_t position)
{
	const struct llama2c_weights *w = p->w;
	double *x = p->x + position * p->dim, *key = p->keys + position * p->kv;

	rms_norm(p->norm, x, w->rms_att + layer * p->dim, p->dim);
	multiply(p->q, w->wq + layer * p->dim * p->dim, p->norm, p->dim, p->dim, false);
	multiply(key, w->wk + layer * p->kv * p->dim, p->norm, p->kv, p->dim, false);
	multiply(p->values + position * p->kv, w->wv + layer * p->kv * p->dim, p->norm, p->kv,
		p->dim, false);
	rotate(p->q, p->dim, p->head, position);
	rotate(key, p->kv, p->head, position);
	for (size_t h = 0; h < w->n_heads; h++)
		attend(p, h, position);
	multiply(x, w->wo + layer * p->dim * p->dim, p->mixed, p->dim, p->dim, true);
}

static void feed_forward(struct pass *p, size_t layer, size_t position)
{
	const struct llama2c_weights *w = p->w;
	size_t matrix = layer * p->hidden * p->dim;
	double *x = p->x + position * p->dim;

	rms_norm(p->norm, x, w->rms_ffn + layer * p->dim, p->dim);
	multiply(p->gate, w->w1 + matrix, p->norm, p->hidden, p->dim, false);
	multiply(p->up, w->w3 + matrix, p->norm, p->hidden, p->dim, false);
	for (size_t i = 0; i < p->hidden; i++)
		p->gate[i] = p->gate[i] / (1 + exp(-p->gate[i])) * p->up[i];
	multiply(x, w->w2 + matrix, p->gate, p->dim, p->hidden, true);
}

static void forward(struct pass *p, const int32_t *tokens, uint32_t n)
{
	for (size_t t = 0; t < n; t++)
		for (size_t i = 0; i < p->dim; i++)
			p->x[t * p->dim + i] =
				(double)p->w->embedding[(size_t)tokens[t] * p->dim + i];
	for (size_t layer = 0; layer < p->w->n_layers; layer++)
		for (size_t t = 0; t < n; t++) {
			attention(p, layer, t);
			feed_forward(p, layer, t);
		}
}

static int put_logits(struct pass *p, uint32_t n, struct buf *out)
{
	rms_norm(p->norm, p->x + (n - 1) * p->dim, p->w->rms_final, p->dim);
	for (size_t v = 0; v < p->w->vocab_size; v++) {
		float logit = (float)dot(p->w->classifier + v * p->dim, p->norm, p->dim);

		if (!isfinite(logit))
			return -EDOM;
		buf_put(out, &logit, sizeof logit);
	}
	return buf_error(out);
}

/* One block of memory, cut into the arrays. */
static double *cut(double **rest, size_t n)
{
	double *part = *rest;

	*rest += n;
	return part;
}

static double *make_pass(struct pass *p, const struct llama2c_weights *w, uint32_t n)
{
	size_t dim = w->dim, head = dim / w->n_heads, kv = head * w->n_kv_heads,
	       hidden = w->hidden_dim;
	double *memory = calloc(n * (dim + 2 * kv) + 3 * dim + 2 * hidden, sizeof *memory),
	       *rest = memory;

	if (!memory)
		return NULL;
	*p = (struct pass){ .w = w, .dim = dim, .kv = kv, .hidden = hidden, .head = head };
	p->x = cut(&rest, n * dim);
	p->keys = cut(&rest, n * kv);
	p->values = cut(&rest, n * kv);
	p->norm = cut(&rest, dim);
	p->q = cut(&rest, dim);
	p->mixed = cut(&rest, dim);
	p->gate = cut(&rest, hidden);
	p->up = cut(&rest, hidden);
	return memory;
}

/* BOS, then ids spread over the vocabulary. */
static void choose_tokens(const struct llama2c_weights *w, uint32_t n, int32_t *tokens)
{
	tokens[0] = w->vocab_size > BOS ? BOS : 0;
	for (uint32_t i = 1; i < n; i++)
		tokens[i] = (int32_t)((uint64_t)w->vocab_size * i / n);
}

int import_golden(const struct llama2c_weights *w, struct buf *in, struct buf *out,
	uint32_t *ret_valid)
{
	uint32_t n = w->ubatch < IMPORT_GOLDEN_MAX ? w->ubatch : IMPORT_GOLDEN_MAX;
	int32_t tokens[LLAMA2C_UBATCH] = { 0 };
	AUTO_FREE double *memory = NULL;
	struct pass p;
	int err;

	if (n > 4)
		n -= n / 4; /* leave some of the micro-batch empty, as most prompts do */
	memory = make_pass(&p, w, n);
	if (!memory)
		return -ENOMEM;
	choose_tokens(w, n, tokens);
	forward(&p, tokens, n);
	err = put_logits(&p, n, out);
	buf_put(in, tokens, w->ubatch * sizeof tokens[0]);
	if (!err)
		err = buf_error(in);
	if (!err)
		*ret_valid = n;
	return err;
}
