/* The parts of a weights file in order, as one table: what each holds and how often. Sizes, pointers and names in the
 * safetensors file all come from it. */
#include "core/import_llama2c.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/artifact.h"
#include "core/artifact_make.h"
#include "core/files.h"
#include "core/json.h"
#include "core/mem.h"
#include "core/tokenizer.h"

#define HEADER_INTS  7
#define UBATCH       16
#define GOLDEN_MAX   8
#define ALIGN        64
#define MAX_LAYERS   1024
#define MAX_DIM      65536

static int32_t ubatch(const struct llama2c *w)
{
	return w->seq_len < UBATCH ? w->seq_len : UBATCH;
}

/* --- the parts ---------------------------------------------------------------------------------------------- */

enum part { EMBEDDING, RMS_ATT, WQ, WK, WV, WO, RMS_FFN, W1, W2, W3, RMS_FINAL, ROPE, CLASSIFIER,
	PART_COUNT };

struct shape {
	int64_t times, rows, cols; /* cols 0: a vector of `rows` */
};

static struct shape shape_of(const struct llama2c *w, enum part part)
{
	int64_t kv = (int64_t)w->dim / w->n_heads * w->n_kv_heads;
	int64_t dim = w->dim, layers = w->n_layers, hidden = w->hidden_dim;

	switch (part) {
	case EMBEDDING:
		return (struct shape){ 1, w->vocab_size, dim };
	case RMS_ATT:
	case RMS_FFN:
		return (struct shape){ layers, dim, 0 };
	case WQ:
	case WO:
		return (struct shape){ layers, dim, dim };
	case WK:
	case WV:
		return (struct shape){ layers, kv, dim };
	case W1:
	case W3:
		return (struct shape){ layers, hidden, dim };
	case W2:
		return (struct shape){ layers, dim, hidden };
	case RMS_FINAL:
		return (struct shape){ 1, dim, 0 };
	case ROPE:
		return (struct shape){ 2, (int64_t)w->seq_len * (dim / w->n_heads / 2), 0 };
	case CLASSIFIER:
		return (struct shape){ w->tied ? 0 : 1, w->vocab_size, dim };
	default:
		return (struct shape){ 0, 0, 0 };
	}
}

/* All factors are bounded by check_header(): no overflow. */
static uint64_t floats_of(struct shape s)
{
	return (uint64_t)s.times * (uint64_t)s.rows * (uint64_t)(s.cols ? s.cols : 1);
}

static const float **part_pointer(struct llama2c *w, enum part part)
{
	const float **const all[PART_COUNT] = {
		[EMBEDDING] = &w->embedding, [RMS_ATT] = &w->rms_att, [WQ] = &w->wq, [WK] = &w->wk,
		[WV] = &w->wv, [WO] = &w->wo, [RMS_FFN] = &w->rms_ffn, [W1] = &w->w1, [W2] = &w->w2,
		[W3] = &w->w3, [RMS_FINAL] = &w->rms_final, [CLASSIFIER] = &w->classifier };

	return all[part];
}

/* --- reading ------------------------------------------------------------------------------------------------ */

static int refuse(struct fault *f, const char *reason)
{
	return fault_set(f, -EINVAL, "give a version-0 export of llama2.c", "weights: %s", reason);
}

static int check_header(const struct llama2c *w, struct fault *f)
{
	const struct { int32_t value, most; const char *reason; } bounds[] = {
		{ w->dim, MAX_DIM, "dim is out of range" },
		{ w->hidden_dim, 4 * MAX_DIM, "hidden_dim is out of range" },
		{ w->n_layers, MAX_LAYERS, "n_layers is out of range" },
		{ w->n_heads, MAX_DIM, "n_heads is out of range" },
		{ w->n_kv_heads, MAX_DIM, "n_kv_heads is out of range" },
		{ w->vocab_size, MANIFEST_MAX_VOCAB, "vocab_size is out of range" },
		{ w->seq_len, MANIFEST_MAX_CONTEXT, "seq_len is out of range" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(bounds); i++)
		if (bounds[i].value < 1 || bounds[i].value > bounds[i].most)
			return refuse(f, bounds[i].reason);
	if (w->dim % w->n_heads || w->n_heads % w->n_kv_heads || (w->dim / w->n_heads) % 2)
		return refuse(f, "the heads do not divide dim evenly");
	return 0;
}

static int check_size(const struct llama2c *w, size_t len, struct fault *f)
{
	uint64_t want = HEADER_INTS * sizeof(int32_t);

	for (unsigned p = 0; p < PART_COUNT; p++) {
		want += floats_of(shape_of(w, (enum part)p)) * sizeof(float);
		if (want > LLAMA2C_MAX_BYTES)
			return refuse(f, "the header asks for more than the limit of 8 GiB");
	}
	if (want == len)
		return 0;
	return fault_set(f, -EINVAL, "give the whole file, and nothing more",
		"weights: the header asks for %llu bytes, the file has %zu", (unsigned long long)want, len);
}

static bool finite_all(const float *v, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		if (!isfinite(v[i]))
			return false;
	return true;
}

static int find_parts(struct llama2c *w, const char *bytes, struct fault *f)
{
	const float *at = (const float *)(const void *)(bytes + HEADER_INTS * sizeof(int32_t));

	for (unsigned p = 0; p < PART_COUNT; p++) {
		uint64_t n = floats_of(shape_of(w, (enum part)p));

		if (p != ROPE && !finite_all(at, n))
			return refuse(f, "a weight is not a finite number");
		if (p != ROPE)
			*part_pointer(w, (enum part)p) = at;
		at += n;
	}
	if (w->tied)
		w->classifier = w->embedding;
	return 0;
}

int llama2c_parse(const void *bytes, size_t len, struct llama2c *ret, struct fault *f)
{
	struct llama2c w = { 0 };
	int32_t h[HEADER_INTS];
	int err;

	if (len < sizeof h)
		return refuse(f, "the file is shorter than its header");
	memcpy(h, bytes, sizeof h);
	w.dim = h[0];
	w.hidden_dim = h[1];
	w.n_layers = h[2];
	w.n_heads = h[3];
	w.n_kv_heads = h[4];
	w.tied = h[5] > 0;
	w.vocab_size = h[5] < 0 && h[5] != INT32_MIN ? -h[5] : h[5];
	w.seq_len = h[6];
	err = check_header(&w, f);
	if (!err)
		err = check_size(&w, len, f);
	if (!err)
		err = find_parts(&w, bytes, f);
	if (!err)
		*ret = w;
	return err;
}

/* --- program and template ------------------------------------------------------------------------------------ */

int llama2c_program(const struct llama2c *w, struct buf *out)
{
	struct json_value *doc = json_new_object(), *l;
	int err;

	json_add_string(doc, "format", "npufs-sim-program");
	json_add_string(doc, "version", "0.7.6");
	json_add_string(doc, "architecture", "llama");
	l = json_add_object(doc, "llama");
	json_add_int(l, "dim", w->dim);
	json_add_int(l, "hidden_dim", w->hidden_dim);
	json_add_int(l, "n_layers", w->n_layers);
	json_add_int(l, "n_heads", w->n_heads);
	json_add_int(l, "n_kv_heads", w->n_kv_heads);
	json_add_int(l, "vocab_size", w->vocab_size);
	json_add_int(l, "max_seq_len", w->seq_len);
	json_add_int(l, "max_batch_size", 1);
	json_add_int(l, "ubatch", ubatch(w));
	json_add_double(l, "rope_theta", 10000);
	json_add_double(l, "norm_eps", 1e-5);
	json_add_bool(l, "tied_embeddings", w->tied);
	err = json_render(doc, true, out);
	json_free(doc);
	return err;
}

#define LENGTHS "\"csrs\":[\"cur_seq_len[0]\",\"past_kv_cur_seq_len[0]\"]"

static const char template_text[] =
	"{\"schema\":\"npufs-manifest-1\",\"kind\":\"llm\",\"description\":\"imported from llama2.c\","
	"\"calbin_version\":\"0.7.6\",\"compatible\":{\"runtime\":[\"0.7.6\"]},\"batch\":1,"
	"\"context_limit\":%d,\"tokenizer\":{\"type\":\"llama2c\",\"file\":\"tokenizer/tokenizer.bin\","
	"\"vocab_size\":%d,\"prefix\":[1],\"suffix\":[],\"stop\":[1,2]},"
	"\"defaults\":{\"max_new_tokens\":%d,\"temperature\":0},"
	"\"example\":{\"prompt\":\"Once upon a time\",\"max_new_tokens\":%d},\"programs\":["
	"{\"name\":\"prefill\",\"inputs\":[{\"name\":\"tokens\",\"dtype\":\"int32\",\"shape\":[%d]}],"
	"\"outputs\":[{\"name\":\"logits\",\"dtype\":\"float32\",\"shape\":[%d]}]," LENGTHS "},"
	"{\"name\":\"decode\",\"inputs\":[{\"name\":\"tokens\",\"dtype\":\"int32\",\"shape\":[1]}],"
	"\"outputs\":[{\"name\":\"logits\",\"dtype\":\"float32\",\"shape\":[%d]}]," LENGTHS "},"
	"{\"name\":\"kv_update\",\"inputs\":[],"
	"\"outputs\":[{\"name\":\"kv_length\",\"dtype\":\"int32\",\"shape\":[1]}]," LENGTHS "}],"
	"\"golden\":[{\"program\":\"prefill\",\"input\":\"golden/prefill.in\","
	"\"output\":\"golden/prefill.out\",\"valid\":%d,\"tolerance\":0.01}]}";

static int golden_tokens(const struct llama2c *w)
{
	return ubatch(w) < GOLDEN_MAX ? ubatch(w) : GOLDEN_MAX;
}

int llama2c_template(const struct llama2c *w, struct buf *out)
{
	int half = w->seq_len > 1 ? w->seq_len / 2 : 1;

	buf_printf(out, template_text, w->seq_len, w->vocab_size, half < 256 ? half : 256,
		half < 32 ? half : 32, ubatch(w), w->vocab_size, w->vocab_size, golden_tokens(w));
	return buf_error(out);
}

/* --- weights ------------------------------------------------------------------------------------------------- */

static const struct {
	enum part part;
	const char *name; /* %d: the layer */
} tensors[] = {
	{ EMBEDDING, "model.embed_tokens.weight" },
	{ RMS_ATT, "model.layers.%d.input_layernorm.weight" },
	{ WQ, "model.layers.%d.self_attn.q_proj.weight" },
	{ WK, "model.layers.%d.self_attn.k_proj.weight" },
	{ WV, "model.layers.%d.self_attn.v_proj.weight" },
	{ WO, "model.layers.%d.self_attn.o_proj.weight" },
	{ RMS_FFN, "model.layers.%d.post_attention_layernorm.weight" },
	{ W1, "model.layers.%d.mlp.gate_proj.weight" },
	{ W2, "model.layers.%d.mlp.down_proj.weight" },
	{ W3, "model.layers.%d.mlp.up_proj.weight" },
	{ RMS_FINAL, "model.norm.weight" },
	{ CLASSIFIER, "lm_head.weight" },
};

/* One name, "%d" replaced: the table's texts are no formats for strangers. */
static void tensor_name_of(size_t i, int64_t layer, char ret[96])
{
	const char *mark = strstr(tensors[i].name, "%d");

	if (mark)
		snprintf(ret, 96, "%.*s%lld%s", (int)(mark - tensors[i].name), tensors[i].name,
			(long long)layer, mark + 2);
	else
		snprintf(ret, 96, "%s", tensors[i].name);
}

static int weights_header(const struct llama2c *w, struct buf *out)
{
	struct json_value *doc = json_new_object();
	uint64_t at = 0;
	int err;

	for (size_t i = 0; i < ARRAY_SIZE(tensors); i++) {
		struct shape s = shape_of(w, tensors[i].part);

		for (int64_t layer = 0; layer < s.times; layer++) {
			struct json_value *t, *list;
			uint64_t bytes = floats_of((struct shape){ 1, s.rows, s.cols }) * sizeof(float);
			char name[96];

			tensor_name_of(i, layer, name);
			t = json_add_object(doc, name);
			json_add_string(t, "dtype", "F32");
			list = json_add_array(t, "shape");
			json_add_int(list, NULL, s.rows);
			if (s.cols)
				json_add_int(list, NULL, s.cols);
			list = json_add_array(t, "data_offsets");
			json_add_uint(list, NULL, at);
			json_add_uint(list, NULL, at + bytes);
			at += bytes;
		}
	}
	err = json_render(doc, false, out);
	json_free(doc);
	return err;
}

/* llama2.c rotates neighbours (2i, 2i+1) of a head, the device the pairs (i, i + half): the rows of q and k are put
 * in that order, which changes no product of the two. */
static void put_rotated(struct buf *out, const float *rows, int64_t n_rows, int64_t cols, int64_t head)
{
	for (int64_t r = 0; r < n_rows; r++) {
		int64_t base = r / head * head, i = r % head, half = head / 2;
		int64_t from = base + (i < half ? 2 * i : 2 * (i - half) + 1);

		buf_put(out, rows + from * cols, (size_t)cols * sizeof *rows);
	}
}

static void put_part(struct buf *out, const struct llama2c *w, enum part part)
{
	struct llama2c copy = *w;
	const float *values = *part_pointer(&copy, part);
	struct shape s = shape_of(w, part);
	uint64_t n = floats_of((struct shape){ 1, s.rows, s.cols });

	for (int64_t layer = 0; layer < s.times; layer++) {
		const float *at = values + (uint64_t)layer * n;

		if (part == WQ || part == WK)
			put_rotated(out, at, s.rows, s.cols, w->dim / w->n_heads);
		else
			buf_put(out, at, n * sizeof *at);
	}
}

int llama2c_weights(const struct llama2c *w, struct buf *out)
{
	AUTO_BUF struct buf header = BUF_INIT;
	uint64_t len;
	int err = weights_header(w, &header);

	while (!err && (header.len + sizeof len) % ALIGN)
		buf_puts(&header, " ");
	if (err || buf_error(&header))
		return -ENOMEM;
	len = header.len; /* the machine's order: little-endian, as the rest of the file */
	buf_put(out, &len, sizeof len);
	buf_put(out, header.data, header.len);
	for (size_t i = 0; i < ARRAY_SIZE(tensors); i++)
		put_part(out, w, tensors[i].part);
	return buf_error(out);
}

/* --- the import ------------------------------------------------------------------------------------------------ */

static int check_tokenizer(const struct llama2c *w, const struct buf *file, struct fault *f)
{
	static const int32_t one[] = { 1 };
	const struct file_spec listed = { 0 };
	const struct tokenizer_spec spec = {
		.type = TOKENIZER_LLAMA2C,
		.file = &listed,
		.vocab_size = (uint32_t)w->vocab_size,
		.prefix = (int32_t *)one, .stop = (int32_t *)one,
		.n_prefix = 1, .n_stop = 1,
	};
	struct tokenizer *t = NULL;
	int err = tokenizer_new(&spec, file->data, file->len, &t, f);

	tokenizer_free(t);
	return err;
}

struct package_file {
	const char *path;
	int (*make)(const struct llama2c *w, struct buf *out);
};

static int build_package(struct build *b, const struct llama2c *w, const struct buf *tokenizer,
	struct fault *f)
{
	static const struct package_file made[] = {
		{ "calbin/program.json", llama2c_program },
		{ "calbin/weights.safetensors", llama2c_weights },
	};
	AUTO_BUF struct buf in = BUF_INIT, out = BUF_INIT, template = BUF_INIT;
	int err = 0;

	for (size_t i = 0; !err && i < ARRAY_SIZE(made); i++) {
		AUTO_BUF struct buf text = BUF_INIT;

		err = made[i].make(w, &text);
		if (!err)
			err = build_file(b, made[i].path, text.data, text.len, f);
	}
	if (!err)
		err = build_file(b, "tokenizer/tokenizer.bin", tokenizer->data, tokenizer->len, f);
	if (!err)
		err = llama2c_golden(w, &in, &out);
	if (!err)
		err = build_file(b, "golden/prefill.in", in.data, in.len, f);
	if (!err)
		err = build_file(b, "golden/prefill.out", out.data, out.len, f);
	if (!err)
		err = llama2c_template(w, &template);
	return err ? err : build_manifest(b, template.data, template.len, f);
}

static int read_input(const char *path, struct buf *out, struct fault *f)
{
	FILE *file = fopen(path, "re");
	size_t n = 1;

	if (!file)
		return fault_set(f, -errno, "name a file that is there", "cannot read %s: %s", path,
			strerror(errno));
	while (n) {
		char *room = buf_room(out, 1 << 20);

		n = room ? fread(room, 1, 1 << 20, file) : 0;
		out->len += n;
	}
	fclose(file);
	return buf_error(out) ? fault_set(f, -ENOMEM, "free some memory", "no memory for %s", path) : 0;
}

int artifact_import_llama2c(const char *weights, const char *tokenizer, const char *dest,
	struct fault *f)
{
	AUTO_BUF struct buf bytes = BUF_INIT, tok = BUF_INIT;
	struct llama2c w;
	struct build b;
	int err = read_input(weights, &bytes, f);

	if (!err)
		err = read_input(tokenizer, &tok, f);
	if (!err)
		err = llama2c_parse(bytes.data ? bytes.data : "", bytes.len, &w, f);
	if (!err)
		err = check_tokenizer(&w, &tok, f);
	if (err)
		return err;
	err = build_begin(dest, &b, f);
	if (!err)
		err = build_package(&b, &w, &tok, f);
	return build_end(&b, err, f);
}
