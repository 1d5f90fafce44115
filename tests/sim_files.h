/* Weights files and calbin folders made by tests of the software device. */
#ifndef NPUFS_TESTS_SIM_FILES_H
#define NPUFS_TESTS_SIM_FILES_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/buf.h"
#include "core/sim/llama.h"
#include "core/sim/safetensors.h"

#define MAX_WEIGHTS 64

struct weight {
	char name[96];
	uint32_t rank, rows, cols; /* cols 1 when rank is 1 */
	float *f;
	int8_t *q; /* instead of f, with a scale a row */
	float *scale;
};

struct weights {
	struct weight w[MAX_WEIGHTS];
	size_t n;
};

static inline struct weight *weights_find(struct weights *all, const char *name)
{
	for (size_t i = 0; i < all->n; i++)
		if (strcmp(all->w[i].name, name) == 0)
			return &all->w[i];
	fail_msg("no weight %s", name);
	return NULL;
}

static inline struct weight *weights_add(struct weights *all, const char *name, uint32_t rank,
	uint32_t rows, uint32_t cols, const float *values)
{
	struct weight *w = &all->w[all->n++];
	size_t bytes = (size_t)rows * cols * sizeof(float);

	assert_true(all->n <= MAX_WEIGHTS);
	*w = (struct weight){ .rank = rank, .rows = rows, .cols = cols };
	snprintf(w->name, sizeof(w->name), "%s", name);
	w->f = calloc(1, bytes);
	if (values)
		memcpy(w->f, values, bytes);
	return w;
}

static inline void weights_free(struct weights *all)
{
	for (size_t i = 0; i < all->n; i++) {
		free(all->w[i].f);
		free(all->w[i].q);
		free(all->w[i].scale);
	}
	all->n = 0;
}

static inline void header_entry(struct buf *h, const char *name, const char *suffix,
	const char *dtype, const struct weight *w, bool vector, size_t *at, size_t bytes)
{
	buf_printf(h, "%s\"%s%s\":{\"dtype\":\"%s\",\"shape\":[%u", h->len ? "," : "{", name,
		suffix, dtype, w->rows);
	if (!vector)
		buf_printf(h, ",%u", w->cols);
	buf_printf(h, "],\"data_offsets\":[%zu,%zu]}", *at, *at + bytes);
	*at += bytes;
}

static inline void put_file(struct buf *out, const char *header, size_t header_len,
	const void *data, size_t n)
{
	for (int i = 0; i < 8; i++) {
		char byte = (char)((uint64_t)header_len >> 8 * i);

		buf_put(out, &byte, 1);
	}
	buf_put(out, header, header_len);
	buf_put(out, data, n);
}

/* The bytes of a weights file. */
static inline void weights_file(const struct weights *all, struct buf *out)
{
	AUTO_BUF struct buf header = BUF_INIT, data = BUF_INIT;
	size_t at = 0;

	for (size_t i = 0; i < all->n; i++) {
		const struct weight *w = &all->w[i];
		size_t n = (size_t)w->rows * w->cols;

		header_entry(&header, w->name, "", w->q ? "I8" : "F32", w, w->rank == 1, &at,
			w->q ? n : n * sizeof(float));
		buf_put(&data, w->q ? (const void *)w->q : w->f, w->q ? n : n * sizeof(float));
		if (!w->q)
			continue;
		header_entry(&header, w->name, "_scale", "F32", w, true, &at,
			w->rows * sizeof(float));
		buf_put(&data, w->scale, w->rows * sizeof(float));
	}
	buf_puts(&header, all->n ? "}" : "{}");
	put_file(out, header.data, header.len, data.data, data.len);
	assert_int_equal(buf_error(out), 0);
}

/* A matrix as int8 with a scale a row; `f` becomes what that means. */
static inline void weight_quantise(struct weight *w)
{
	w->q = calloc(w->rows, w->cols);
	w->scale = calloc(w->rows, sizeof(float));
	for (uint32_t r = 0; r < w->rows; r++) {
		float most = 0, *row = w->f + (size_t)r * w->cols;

		for (uint32_t c = 0; c < w->cols; c++)
			most = fmaxf(most, fabsf(row[c]));
		w->scale[r] = most / 127;
		for (uint32_t c = 0; c < w->cols; c++) {
			w->q[(size_t)r * w->cols + c] = (int8_t)lrintf(row[c] / w->scale[r]);
			row[c] = w->q[(size_t)r * w->cols + c] * w->scale[r];
		}
	}
}

/* --- a random llama --------------------------------------------------------------------------- */

static inline float random_float(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return (float)(*seed >> 40) / (1 << 23) - 1;
}

static inline void random_weight(struct weights *all, uint64_t *seed, const char *name,
	uint32_t rank, uint32_t rows, uint32_t cols, float middle, float spread)
{
	struct weight *w = weights_add(all, name, rank, rows, cols, NULL);

	for (size_t i = 0; i < (size_t)rows * cols; i++)
		w->f[i] = middle + spread * random_float(seed);
}

/* Sizes that are multiples of nothing, to meet every edge of the blocked kernels. */
static const struct llama_config odd_llama = {
	.dim = 36,
	.hidden_dim = 53,
	.n_layers = 2,
	.n_heads = 6,
	.n_kv_heads = 2,
	.vocab_size = 41,
	.max_seq_len = 43,
	.max_batch_size = 1,
	.ubatch = 19,
	.rope_theta = 10000,
	.norm_eps = 1e-5,
	.tied_embeddings = false,
};

#define ODD_LLAMA_JSON \
	"{\"format\":\"npufs-sim-program\",\"version\":\"0.7.6\",\"architecture\":\"llama\"," \
	"\"llama\":{" \
	"\"dim\":36,\"hidden_dim\":53,\"n_layers\":2,\"n_heads\":6,\"n_kv_heads\":2," \
	"\"vocab_size\":41,\"max_seq_len\":43,\"max_batch_size\":1,\"ubatch\":19,\"rope_theta\":" \
	"10000.0," \
	"\"norm_eps\":1e-05,\"tied_embeddings\":false}}"

static inline void random_llama(const struct llama_config *c, uint64_t seed, struct weights *all)
{
	uint32_t kv = c->dim / c->n_heads * c->n_kv_heads;
	const struct {
		const char *name;
		uint32_t rows, cols;
	} matrices[] = {
		{ "self_attn.q_proj", c->dim, c->dim },
		{ "self_attn.k_proj", kv, c->dim },
		{ "self_attn.v_proj", kv, c->dim },
		{ "self_attn.o_proj", c->dim, c->dim },
		{ "mlp.gate_proj", c->hidden_dim, c->dim },
		{ "mlp.up_proj", c->hidden_dim, c->dim },
		{ "mlp.down_proj", c->dim, c->hidden_dim },
	};
	char name[96];

	random_weight(all, &seed, "model.embed_tokens.weight", 2, c->vocab_size, c->dim, 0, 1);
	random_weight(all, &seed, "model.norm.weight", 1, c->dim, 1, 1, 0.5f);
	if (!c->tied_embeddings)
		random_weight(all, &seed, "lm_head.weight", 2, c->vocab_size, c->dim, 0, 0.5f);
	for (uint32_t l = 0; l < c->n_layers; l++) {
		snprintf(name, sizeof(name), "model.layers.%u.input_layernorm.weight", l);
		random_weight(all, &seed, name, 1, c->dim, 1, 1, 0.5f);
		snprintf(name, sizeof(name), "model.layers.%u.post_attention_layernorm.weight", l);
		random_weight(all, &seed, name, 1, c->dim, 1, 1, 0.5f);
		for (size_t i = 0; i < sizeof(matrices) / sizeof(matrices[0]); i++) {
			snprintf(name, sizeof(name), "model.layers.%u.%s.weight", l,
				matrices[i].name);
			random_weight(all, &seed, name, 2, matrices[i].rows, matrices[i].cols, 0,
				0.4f);
		}
	}
}

/* --- folders ---------------------------------------------------------------------------------- */

struct folder {
	char path[64];
};

static inline void folder_make(struct folder *f)
{
	strcpy(f->path, "/tmp/npufs-unit-XXXXXX");
	assert_non_null(mkdtemp(f->path));
}

static inline void folder_write(const struct folder *f, const char *name, const void *bytes,
	size_t n)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", f->path, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, n), n);
	close(fd);
}

static inline void folder_write_text(const struct folder *f, const char *name, const char *text)
{
	folder_write(f, name, text, strlen(text));
}

static inline void folder_write_weights(const struct folder *f, const struct weights *all)
{
	AUTO_BUF struct buf bytes = BUF_INIT;

	weights_file(all, &bytes);
	folder_write(f, "weights.safetensors", bytes.data, bytes.len);
}

/* A random llama of odd_llama's shape. */
static inline void folder_write_llama(const struct folder *f)
{
	struct weights all = { .n = 0 };

	random_llama(&odd_llama, 42, &all);
	folder_write_weights(f, &all);
	folder_write_text(f, "program.json", ODD_LLAMA_JSON);
	weights_free(&all);
}

static inline void folder_remove(const struct folder *f)
{
	static const char *const names[] = { "program.json", "weights.safetensors",
		"golden/prefill.in", "golden/prefill.out", "golden" };
	char path[128];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", f->path, names[i]);
		remove(path);
	}
	assert_int_equal(rmdir(f->path), 0);
}

#endif
