/* One table has a row for each part of the file, in its order: how large it is, where its pointer
 * goes and what it is called in the artifact. Reading, naming and writing all go by it. */
#include "core/artifact/import_llama2c.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/artifact/manifest.h"
#include "core/base/json.h"
#include "core/base/mem.h"

#define HEADER_INTS  7
#define HEADER_BYTES (HEADER_INTS * sizeof(int32_t))
#define ALIGNMENT    64 /* of the tensors' data in the artifact */
#define NAME_SIZE    96

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
	"both files are little-endian and taken as they are");

/* --- the parts -------------------------------------------------------------------------------- */

enum size { NONE, DIM, KV_DIM, HIDDEN, VOCAB, ROPE };

struct part {
	enum size rows, cols; /* cols NONE: a vector */
	bool each_layer;
	bool rotated;            /* its rows are to be put in another order */
	size_t member;           /* in struct llama2c_weights */
	const char *name, *tail; /* a layer's number goes between; name NULL: not kept */
};

#define MEMBER(m) offsetof(struct llama2c_weights, m)
#define LAYER     "model.layers."

static const struct part parts[] = {
	{ VOCAB, DIM, false, false, MEMBER(embedding), "model.embed_tokens.weight", "" },
	{ DIM, NONE, true, false, MEMBER(rms_att), LAYER, ".input_layernorm.weight" },
	{ DIM, DIM, true, true, MEMBER(wq), LAYER, ".self_attn.q_proj.weight" },
	{ KV_DIM, DIM, true, true, MEMBER(wk), LAYER, ".self_attn.k_proj.weight" },
	{ KV_DIM, DIM, true, false, MEMBER(wv), LAYER, ".self_attn.v_proj.weight" },
	{ DIM, DIM, true, false, MEMBER(wo), LAYER, ".self_attn.o_proj.weight" },
	{ DIM, NONE, true, false, MEMBER(rms_ffn), LAYER, ".post_attention_layernorm.weight" },
	{ HIDDEN, DIM, true, false, MEMBER(w1), LAYER, ".mlp.gate_proj.weight" },
	{ DIM, HIDDEN, true, false, MEMBER(w2), LAYER, ".mlp.down_proj.weight" },
	{ HIDDEN, DIM, true, false, MEMBER(w3), LAYER, ".mlp.up_proj.weight" },
	{ DIM, NONE, false, false, MEMBER(rms_final), "model.norm.weight", "" },
	{ ROPE, NONE, false, false, 0, NULL, NULL },
	{ VOCAB, DIM, false, false, MEMBER(classifier), "lm_head.weight", "" },
};

#define CLASSIFIER (&parts[ARRAY_SIZE(parts) - 1])

static uint64_t size_of(const struct llama2c_weights *w, enum size s)
{
	const uint64_t sizes[] = {
		[NONE] = 1,
		[DIM] = w->dim,
		[KV_DIM] = w->dim / w->n_heads * w->n_kv_heads,
		[HIDDEN] = w->hidden_dim,
		[VOCAB] = w->vocab_size,
		[ROPE] = (uint64_t)w->seq_len * (w->dim / w->n_heads), /* both: cosines and sines */
	};

	return sizes[s];
}

static uint32_t times(const struct llama2c_weights *w, const struct part *p)
{
	if (p == CLASSIFIER)
		return w->tied ? 0 : 1;
	return p->each_layer ? w->n_layers : 1;
}

/* Of one layer. The header's bounds keep this, and all layers together, far from 2^64. */
static uint64_t floats(const struct llama2c_weights *w, const struct part *p)
{
	return size_of(w, p->rows) * size_of(w, p->cols);
}

static const float **place(struct llama2c_weights *w, const struct part *p)
{
	return (const float **)(void *)((char *)w + p->member);
}

static const float *values(const struct llama2c_weights *w, const struct part *p)
{
	return *(const float *const *)(const void *)((const char *)w + p->member);
}

/* --- reading ---------------------------------------------------------------------------------- */

#define GIVE_EXPORT "give a version-0 export of llama2.c"

static const struct {
	const char *name;
	size_t member;
	int32_t most;
} header_rows[HEADER_INTS] = {
	{ "dim", MEMBER(dim), LLAMA2C_MAX_DIM },
	{ "hidden_dim", MEMBER(hidden_dim), LLAMA2C_MAX_HIDDEN },
	{ "n_layers", MEMBER(n_layers), LLAMA2C_MAX_LAYERS },
	{ "n_heads", MEMBER(n_heads), LLAMA2C_MAX_DIM },
	{ "n_kv_heads", MEMBER(n_kv_heads), LLAMA2C_MAX_DIM },
	{ "vocab_size", MEMBER(vocab_size), MANIFEST_MAX_VOCAB },
	{ "seq_len", MEMBER(seq_len), MANIFEST_MAX_CONTEXT },
};

static int read_header(const void *bytes, struct llama2c_weights *w, struct fault *f)
{
	int32_t h[HEADER_INTS];

	memcpy(h, bytes, sizeof h);
	w->tied = h[5] >= 0;
	if (h[5] < 0 && h[5] >= -MANIFEST_MAX_VOCAB)
		h[5] = -h[5];
	for (size_t i = 0; i < HEADER_INTS; i++) {
		if (h[i] < 1 || h[i] > header_rows[i].most)
			return fault_at(f, -EINVAL, header_rows[i].name, (long)(i * sizeof h[0]),
				GIVE_EXPORT, "%s is %" PRId32 "; it must be from 1 to %" PRId32,
				header_rows[i].name, h[i], header_rows[i].most);
		*(uint32_t *)(void *)((char *)w + header_rows[i].member) = (uint32_t)h[i];
	}
	w->ubatch = w->seq_len < LLAMA2C_UBATCH ? w->seq_len : LLAMA2C_UBATCH;
	if (w->dim % w->n_heads || w->n_heads % w->n_kv_heads || w->dim / w->n_heads % 2)
		return fault_set(f, -EINVAL, GIVE_EXPORT,
			"dim %u, %u heads and %u kv heads do not divide into heads of even size",
			w->dim, w->n_heads, w->n_kv_heads);
	return 0;
}

static int check_size(const struct llama2c_weights *w, size_t len, struct fault *f)
{
	uint64_t want = HEADER_BYTES;

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		want += times(w, &parts[i]) * floats(w, &parts[i]) * sizeof(float);
	if (want == len)
		return 0;
	return fault_set(f, -EINVAL, "give the whole file and nothing more",
		"the header asks for %" PRIu64 " bytes, the file has %zu", want, len);
}

static int find_parts(struct llama2c_weights *w, const char *bytes, struct fault *f)
{
	const float *at = (const float *)(const void *)(bytes + HEADER_BYTES);

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		uint64_t n = times(w, &parts[i]) * floats(w, &parts[i]);

		for (uint64_t k = 0; parts[i].name && k < n; k++)
			if (!isfinite(at[k]))
				return fault_at(f, -EINVAL, NULL,
					(long)((const char *)&at[k] - bytes),
					"export the model again",
					"a weight is not a finite number");
		if (parts[i].name)
			*place(w, &parts[i]) = at;
		at += n;
	}
	if (w->tied)
		w->classifier = w->embedding;
	return 0;
}

int import_llama2c_parse(const void *bytes, size_t len, struct llama2c_weights *ret,
	struct fault *f)
{
	struct llama2c_weights w = { .dim = 0 };
	int err;

	if (len < HEADER_BYTES)
		return fault_set(f, -EINVAL, GIVE_EXPORT,
			"the file has %zu bytes, its header alone needs %zu", len, HEADER_BYTES);
	err = read_header(bytes, &w, f);
	if (!err)
		err = check_size(&w, len, f);
	if (!err)
		err = find_parts(&w, bytes, f);
	if (!err)
		*ret = w;
	return err;
}

/* --- weights.safetensors ---------------------------------------------------------------------- */

static void add_tensor(struct json_value *doc, const struct llama2c_weights *w,
	const struct part *p, uint32_t layer, uint64_t *at)
{
	struct json_value *tensor, *list;
	char name[NAME_SIZE];

	if (p->each_layer)
		snprintf(name, sizeof name, "%s%u%s", p->name, layer, p->tail);
	else
		snprintf(name, sizeof name, "%s", p->name);
	tensor = json_add_object(doc, name);
	json_add_string(tensor, "dtype", "F32");
	list = json_add_array(tensor, "shape");
	json_add_uint(list, NULL, size_of(w, p->rows));
	if (p->cols != NONE)
		json_add_uint(list, NULL, size_of(w, p->cols));
	list = json_add_array(tensor, "data_offsets");
	json_add_uint(list, NULL, *at);
	*at += floats(w, p) * sizeof(float);
	json_add_uint(list, NULL, *at);
}

/* Padded so that the data begins at a multiple of ALIGNMENT. */
static int make_header(const struct llama2c_weights *w, struct buf *ret)
{
	struct json_value *doc = json_new_object();
	uint64_t at = 0;
	int err;

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		for (uint32_t layer = 0; parts[i].name && layer < times(w, &parts[i]); layer++)
			add_tensor(doc, w, &parts[i], layer, &at);
	err = json_render(doc, false, ret);
	json_free(doc);
	while (!err && !buf_error(ret) && (ret->len + sizeof(uint64_t)) % ALIGNMENT)
		buf_puts(ret, " ");
	return err ? err : buf_error(ret);
}

/* llama2.c rotates the pairs (2i, 2i + 1) of a head, the device the pairs (i, i + half of the
 * head). Queries and keys in the same new order have the same products. */
static void put_rotated(const float *matrix, uint64_t rows, uint64_t cols, uint64_t head,
	struct buf *out)
{
	for (uint64_t row = 0; row < rows; row++) {
		uint64_t first = row / head * head, i = row % head, half = head / 2;
		uint64_t from = first + (i < half ? 2 * i : 2 * (i - half) + 1);

		buf_put(out, matrix + from * cols, cols * sizeof *matrix);
	}
}

static void put_part(const struct llama2c_weights *w, const struct part *p, struct buf *out)
{
	uint64_t n = floats(w, p);

	for (uint32_t layer = 0; layer < times(w, p); layer++) {
		const float *at = values(w, p) + layer * n;

		if (p->rotated)
			put_rotated(at, size_of(w, p->rows), size_of(w, p->cols),
				w->dim / w->n_heads, out);
		else
			buf_put(out, at, n * sizeof *at);
	}
}

int import_llama2c_safetensors(const struct llama2c_weights *w, struct buf *out)
{
	AUTO_BUF struct buf header = BUF_INIT;
	uint64_t len;
	int err = make_header(w, &header);

	if (err)
		return err;
	len = header.len;
	buf_put(out, &len, sizeof len);
	buf_put(out, header.data, header.len);
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		if (parts[i].name)
			put_part(w, &parts[i], out);
	return buf_error(out);
}

/* --- program and template --------------------------------------------------------------------- */

int import_llama2c_program(const struct llama2c_weights *w, struct buf *out)
{
	struct json_value *doc = json_new_object(), *llama;
	int err;

	json_add_string(doc, "format", "npufs-sim-program");
	json_add_string(doc, "version", "0.7.6");
	json_add_string(doc, "architecture", "llama");
	llama = json_add_object(doc, "llama");
	json_add_uint(llama, "dim", w->dim);
	json_add_uint(llama, "hidden_dim", w->hidden_dim);
	json_add_uint(llama, "n_layers", w->n_layers);
	json_add_uint(llama, "n_heads", w->n_heads);
	json_add_uint(llama, "n_kv_heads", w->n_kv_heads);
	json_add_uint(llama, "vocab_size", w->vocab_size);
	json_add_uint(llama, "max_seq_len", w->seq_len);
	json_add_uint(llama, "max_batch_size", 1);
	json_add_uint(llama, "ubatch", w->ubatch);
	json_add_double(llama, "rope_theta", LLAMA2C_ROPE_THETA);
	json_add_double(llama, "norm_eps", LLAMA2C_NORM_EPS);
	json_add_bool(llama, "tied_embeddings", w->tied);
	err = json_render(doc, true, out);
	json_free(doc);
	return err;
}

#define CSRS   "\"csrs\": [\"cur_seq_len[0]\", \"past_kv_cur_seq_len[0]\"]"
#define TENSOR "[{\"name\": \"%s\", \"dtype\": \"%s\", \"shape\": [%u]}]"

static void put_program(struct buf *out, const char *name, uint32_t width, uint32_t vocab)
{
	buf_printf(out,
		"{\"name\": \"%s\", \"inputs\": " TENSOR ", \"outputs\": " TENSOR ", " CSRS "}, ",
		name, "tokens", "int32", width, "logits", "float32", vocab);
}

int import_llama2c_template(const struct llama2c_weights *w, uint32_t valid, struct buf *out)
{
	uint32_t half = w->seq_len > 1 ? w->seq_len / 2 : 1; /* leaves as much for the prompt */

	buf_printf(out,
		"{\"schema\": \"" MANIFEST_SCHEMA "\", \"kind\": \"llm\", "
		"\"description\": \"imported from llama2.c\", "
		"\"calbin_version\": \"0.7.6\", \"compatible\": {\"runtime\": [\"0.7.6\"]}, "
		"\"batch\": 1, "
		"\"context_limit\": %u, "
		"\"tokenizer\": {\"type\": \"llama2c\", \"file\": \"tokenizer/tokenizer.bin\", "
		"\"vocab_size\": %u, \"prefix\": [1], \"suffix\": [], \"stop\": [1, 2]}, "
		"\"defaults\": {\"max_new_tokens\": %u, \"temperature\": 0}, "
		"\"example\": {\"prompt\": \"Once upon a time\", \"max_new_tokens\": %u}, "
		"\"programs\": [",
		w->seq_len, w->vocab_size, half < 256 ? half : 256, half < 32 ? half : 32);
	put_program(out, "prefill", w->ubatch, w->vocab_size);
	put_program(out, "decode", 1, w->vocab_size);
	buf_printf(out,
		"{\"name\": \"kv_update\", \"inputs\": [], \"outputs\": " TENSOR ", " CSRS "}], "
		"\"golden\": [{\"program\": \"prefill\", \"input\": \"golden/prefill.in\", "
		"\"output\": \"golden/prefill.out\", \"valid\": %u, \"tolerance\": 0.01}]}\n",
		"kv_length", "int32", 1u, valid);
	return buf_error(out);
}
