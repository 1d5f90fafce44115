/* llama2.c's weights: small ones made here, damaged in every way, and a real model whose text is
 * known. */
#include "core/artifact/import_llama2c.h"

#include "artifact_files.h"

#include <errno.h>
#include <math.h>

#include "core/artifact/artifact.h"
#include "core/artifact/import_golden.h"
#include "core/artifact/tokenizer.h"
#include "core/base/json.h"
#include "core/sim/kernels.h"
#include "core/sim/llama.h"
#include "core/sim/program.h"
#include "core/sim/safetensors.h"

#define DATA "../shared/data/stories260K/"

/* --- small files ------------------------------------------------------------------------------ */

struct header {
	int32_t dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, seq_len;
};

static const struct header small = { 8, 12, 2, 2, 1, 10, 6 };

/* Floats after the header, counted by hand from the format's description. */
static size_t floats_of(const struct header *h)
{
	size_t dim = (size_t)h->dim, hidden = (size_t)h->hidden_dim, layers = (size_t)h->n_layers;
	size_t head = dim / (size_t)h->n_heads, kv = head * (size_t)h->n_kv_heads;
	size_t vocab = (size_t)abs(h->vocab_size);
	size_t layer = dim + 2 * dim * dim + 2 * kv * dim + dim + 3 * dim * hidden;

	return vocab * dim + layers * layer + dim + (size_t)h->seq_len * head +
		(h->vocab_size < 0 ? vocab * dim : 0);
}

/* Weight k is k / 64: each says where it was. */
static void make_file(const struct header *h, struct buf *out)
{
	size_t n = floats_of(h);

	buf_put(out, h, sizeof *h);
	for (size_t k = 0; k < n; k++) {
		float value = (float)k / 64;

		buf_put(out, &value, sizeof value);
	}
}

static int parse(const struct buf *file, struct llama2c_weights *w, struct fault *f)
{
	*f = (struct fault)FAULT_NONE;
	return import_llama2c_parse(buf_text(file), file->len, w, f);
}

static void parse__small_file__parts_in_order(void **state)
{
	AUTO_BUF struct buf file = BUF_INIT;
	struct llama2c_weights w;
	struct fault f;

	(void)state;
	make_file(&small, &file);
	assert_int_equal(parse(&file, &w, &f), 0);
	assert_int_equal(w.dim, 8);
	assert_int_equal(w.hidden_dim, 12);
	assert_int_equal(w.vocab_size, 10);
	assert_int_equal(w.seq_len, 6);
	assert_int_equal(w.ubatch, 6);
	assert_true(w.tied);
	/* dim 8, kv 4, hidden 12, two layers: 80 | 16 | 128 | 64 | 64 | 128 | 16 | 192 | 192 | 192
	 * | 8 */
	assert_true(w.embedding[0] == 0);
	assert_true(w.rms_att[0] == 80 / 64.0f);
	assert_true(w.wq[0] == 96 / 64.0f);
	assert_true(w.wk[0] == 224 / 64.0f);
	assert_true(w.wv[0] == 288 / 64.0f);
	assert_true(w.wo[0] == 352 / 64.0f);
	assert_true(w.rms_ffn[0] == 480 / 64.0f);
	assert_true(w.w1[0] == 496 / 64.0f);
	assert_true(w.w2[0] == 688 / 64.0f);
	assert_true(w.w3[0] == 880 / 64.0f);
	assert_true(w.rms_final[0] == 1072 / 64.0f);
	assert_ptr_equal(w.classifier, w.embedding);
}

/* After the final norm's 8 come 6 positions of 4 in two tables that are not used. */
static void parse__negative_vocab__own_classifier(void **state)
{
	AUTO_BUF struct buf file = BUF_INIT;
	struct header h = small;
	struct llama2c_weights w;
	struct fault f;

	(void)state;
	h.vocab_size = -10;
	make_file(&h, &file);
	assert_int_equal(parse(&file, &w, &f), 0);
	assert_false(w.tied);
	assert_int_equal(w.vocab_size, 10);
	assert_true(w.classifier[0] == (1080 + 24) / 64.0f);
}

static void parse__too_short_or_long__both_numbers(void **state)
{
	AUTO_BUF struct buf file = BUF_INIT;
	struct llama2c_weights w;
	struct fault f;
	char want[64], have[64];
	size_t whole;

	(void)state;
	make_file(&small, &file);
	whole = file.len;
	snprintf(want, sizeof want, "asks for %zu bytes", whole);
	for (size_t n = 28; n < whole + 8; n += 3) {
		if (n == whole)
			continue;
		buf_room(&file, 16);
		assert_int_equal(import_llama2c_parse(file.data, n, &w, &f), -EINVAL);
		snprintf(have, sizeof have, "the file has %zu", n);
		assert_non_null(strstr(f.reason, want));
		assert_non_null(strstr(f.reason, have));
	}
	for (size_t n = 0; n < 28; n++)
		assert_int_equal(import_llama2c_parse(file.data, n, &w, &f), -EINVAL);
}

static void parse__header_out_of_range__field_named(void **state)
{
	static const int32_t values[] = { 0, -1, INT32_MIN, INT32_MAX };
	static const char *const names[] = { "dim", "hidden_dim", "n_layers", "n_heads",
		"n_kv_heads", "vocab_size", "seq_len" };
	AUTO_BUF struct buf file = BUF_INIT;
	struct llama2c_weights w;
	struct fault f;

	(void)state;
	make_file(&small, &file);
	for (size_t i = 0; i < 7; i++)
		for (size_t v = 0; v < 4; v++) {
			int32_t kept, *field = (int32_t *)(void *)file.data + i;

			if (i == 5 && values[v] == -1)
				continue; /* one token and its own classifier */
			kept = *field;
			*field = values[v];
			assert_int_equal(parse(&file, &w, &f), -EINVAL);
			assert_string_equal(f.field, names[i]);
			*field = kept;
		}
	assert_int_equal(parse(&file, &w, &f), 0);
}

/* Products of these wrap around in 32 and, some, in 64 bits; nothing may be allocated or read for
 * them. */
static void parse__huge_products__refused(void **state)
{
	static const struct header rows[] = {
		{ 65536, 262144, 1024, 1, 1, 1048576, 1048576 },
		{ 65536, 65536, 1, 1, 1, 65536, 1 },
		{ 32768, 131072, 1024, 2, 2, -1048576, 1048576 },
	};
	AUTO_BUF struct buf file = BUF_INIT;
	struct llama2c_weights w;
	struct fault f;

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		buf_reset(&file);
		buf_put(&file, &rows[i], sizeof rows[i]);
		assert_int_equal(parse(&file, &w, &f), -EINVAL);
		assert_non_null(strstr(f.reason, "the file has 28"));
	}
	assert_non_null(strstr(f.reason, "asks for "));
}

static void parse__heads_that_do_not_divide__refused(void **state)
{
	static const struct header rows[] = {
		{ 8, 12, 2, 3, 1, 10, 6 }, /* 8 / 3 */
		{ 8, 12, 2, 4, 3, 10, 6 }, /* 4 / 3 */
		{ 6, 12, 2, 2, 1, 10, 6 }, /* heads of 3 */
		{ 8, 12, 2, 2, 4, 10, 6 }, /* more kv heads than heads */
		{ 8, 12, 2, 16, 1, 10, 6 },
	};
	AUTO_BUF struct buf file = BUF_INIT;
	struct llama2c_weights w;
	struct fault f;

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		buf_reset(&file);
		make_file(&small, &file);
		memcpy(file.data, &rows[i], sizeof rows[i]);
		assert_int_equal(parse(&file, &w, &f), -EINVAL);
		assert_non_null(strstr(f.reason, "heads"));
	}
}

static void parse__weight_not_finite__refused_with_its_place(void **state)
{
	static const float bad[] = { NAN, INFINITY, -INFINITY };
	static const size_t places[] = { 0, 79, 500, 1079 };
	AUTO_BUF struct buf file = BUF_INIT;
	struct llama2c_weights w;
	struct fault f;

	(void)state;
	make_file(&small, &file);
	for (size_t i = 0; i < 12; i++) {
		float kept, *weight = (float *)(void *)(file.data + 28) + places[i % 4];

		kept = *weight;
		*weight = bad[i / 4];
		assert_int_equal(parse(&file, &w, &f), -EINVAL);
		assert_int_equal(f.offset, 28 + 4 * places[i % 4]);
		*weight = kept;
	}
	/* in the unused tables it is nobody's concern */
	((float *)(void *)(file.data + 28))[1085] = NAN;
	assert_int_equal(parse(&file, &w, &f), 0);
}

/* --- conversion ------------------------------------------------------------------------------- */

static float first_of_row(const struct safetensors *s, const char *name, size_t row)
{
	const struct safetensors_view *v = safetensors_find(s, name);
	size_t cols;
	float value;

	assert_non_null(v);
	cols = v->rank == 2 ? (size_t)v->dims[1] : 1;
	memcpy(&value, (const char *)v->data + row * cols * sizeof value, sizeof value);
	return value;
}

/* A head has 4 rows: 0 1 2 3 of the file become 0 2 1 3. Layer 1's wq begins 64 floats after layer
 * 0's. */
static void safetensors__small_file__names_shapes_order(void **state)
{
	static const size_t order[] = { 0, 2, 1, 3, 4, 6, 5, 7 };
	AUTO_BUF struct buf file = BUF_INIT, out = BUF_INIT;
	const struct safetensors_view *v;
	struct llama2c_weights w;
	struct safetensors *s;
	struct fault f;

	(void)state;
	make_file(&small, &file);
	assert_int_equal(parse(&file, &w, &f), 0);
	assert_int_equal(import_llama2c_safetensors(&w, &out), 0);
	assert_int_equal(safetensors_parse(out.data, out.len, &s), NPU_SUCCESS);
	assert_int_equal(safetensors_count(s), 2 + 2 * 9);
	v = safetensors_find(s, "model.layers.1.mlp.down_proj.weight");
	assert_non_null(v);
	assert_int_equal(v->dtype, DTYPE_FLOAT32);
	assert_int_equal(v->dims[0], 8);
	assert_int_equal(v->dims[1], 12);
	assert_int_equal(((const char *)v->data - out.data) % 4, 0);
	assert_null(safetensors_find(s, "lm_head.weight"));
	for (size_t row = 0; row < 8; row++)
		assert_true(first_of_row(s, "model.layers.1.self_attn.q_proj.weight", row) ==
			(float)(96 + 64 + 8 * order[row]) / 64);
	for (size_t row = 0; row < 4; row++) {
		assert_true(first_of_row(s, "model.layers.0.self_attn.k_proj.weight", row) ==
			(float)(224 + 8 * order[row]) / 64);
		assert_true(first_of_row(s, "model.layers.0.self_attn.v_proj.weight", row) ==
			(float)(288 + 8 * row) / 64);
	}
	assert_true(first_of_row(s, "model.layers.1.input_layernorm.weight", 0) == 88 / 64.0f);
	assert_true(first_of_row(s, "model.layers.0.post_attention_layernorm.weight", 0) ==
		480 / 64.0f);
	assert_true(first_of_row(s, "model.layers.0.mlp.gate_proj.weight", 0) == 496 / 64.0f);
	assert_true(first_of_row(s, "model.layers.0.mlp.up_proj.weight", 0) == 880 / 64.0f);
	assert_true(
		first_of_row(s, "model.layers.1.self_attn.o_proj.weight", 0) == (352 + 64) / 64.0f);
	assert_true(first_of_row(s, "model.norm.weight", 7) == 1079 / 64.0f);
	safetensors_close(s);
}

static void program_and_template__small_file__taken_by_their_readers(void **state)
{
	AUTO_BUF struct buf file = BUF_INIT, program = BUF_INIT, template = BUF_INIT;
	struct header h = { 8, 12, 2, 2, 1, -259, 40 };
	struct llama2c_weights w;
	struct sim_program *p;
	struct manifest *m;
	struct fault f;

	(void)state;
	make_file(&h, &file);
	assert_int_equal(parse(&file, &w, &f), 0);
	assert_int_equal(w.ubatch, 16);
	assert_int_equal(import_llama2c_program(&w, &program), 0);
	assert_int_equal(sim_program_parse(program.data, program.len, &p), NPU_SUCCESS);
	assert_int_equal(p->llama.max_seq_len, 40);
	assert_int_equal(p->llama.ubatch, 16);
	assert_false(p->llama.tied_embeddings);
	assert_true(p->llama.norm_eps == 1e-5);
	sim_program_free(p);
	assert_int_equal(import_llama2c_template(&w, 12, &template), 0);
	assert_int_equal(manifest_parse(template.data, template.len, false, &m, &f), 0);
	assert_int_equal(m->context_limit, 40);
	assert_int_equal(m->tokenizer.vocab_size, 259);
	assert_int_equal(m->default_max_new_tokens, 20);
	assert_int_equal(m->n_programs, 3);
	assert_int_equal(m->golden[0].valid, 12);
	manifest_free(m);
}

/* One layer that adds nothing (its output matrices are 0): the logits are the normalised embedding
 * times the classifier. Embedding of token t is (t + 1, 0); normalised (sqrt 2, 0); with the final
 * gain 3 each logit is 3 sqrt 2 (v + 1). */
static void golden__layer_that_adds_nothing__by_hand(void **state)
{
	const struct header h = { 2, 1, 1, 1, 1, 4, 3 };
	AUTO_BUF struct buf file = BUF_INIT, in = BUF_INIT, out = BUF_INIT;
	struct llama2c_weights w;
	const float *logits;
	const int32_t *tokens;
	uint32_t valid;
	struct fault f;
	float *at;

	(void)state;
	make_file(&h, &file);
	at = (float *)(void *)(file.data + 28);
	memset(at, 0, floats_of(&h) * sizeof *at);
	for (int t = 0; t < 4; t++)
		at[2 * t] = (float)(t + 1);
	for (int i = 0; i < 2; i++)
		at[8 + 2 + 16 + 2 + 6 + i] =
			3; /* after embedding, norm, four matrices, norm, w1 w2 w3 */
	assert_int_equal(parse(&file, &w, &f), 0);
	assert_true(w.rms_final[0] == 3);
	assert_int_equal(import_golden(&w, &in, &out, &valid), 0);
	assert_int_equal(valid, 3);
	assert_int_equal(in.len, 12);
	assert_int_equal(out.len, 16);
	tokens = (const int32_t *)(const void *)in.data;
	logits = (const float *)(const void *)out.data;
	assert_int_equal(tokens[0], 1);
	for (int v = 0; v < 4; v++)
		assert_true(fabs((double)logits[v] - 3 * sqrt(2) * (v + 1)) < 1e-4);
}

static void golden__overflowing_weights__edom(void **state)
{
	const struct header h = { 2, 1, 1, 1, 1, 4, 3 };
	AUTO_BUF struct buf file = BUF_INIT, in = BUF_INIT, out = BUF_INIT;
	struct llama2c_weights w;
	struct fault f;
	uint32_t valid;
	float *at;

	(void)state;
	make_file(&h, &file);
	at = (float *)(void *)(file.data + 28);
	for (size_t i = 0; i < floats_of(&h); i++)
		at[i] = 3e38f;
	assert_int_equal(parse(&file, &w, &f), 0);
	assert_int_equal(import_golden(&w, &in, &out, &valid), -EDOM);
}

/* --- a real model ----------------------------------------------------------------------------- */

struct imported {
	struct work w;
	struct artifact *artifact;
	struct llama *llama;
	struct tokenizer *tokenizer;
};

static struct llama *load_llama(const char *dir)
{
	struct safetensors *s;
	struct sim_program *p;
	struct llama *l;
	char path[256];

	snprintf(path, sizeof path, "%s/calbin", dir);
	assert_int_equal(sim_program_load(path, &p), NPU_SUCCESS);
	snprintf(path, sizeof path, "%s/calbin/" SIM_WEIGHTS_FILE, dir);
	assert_int_equal(safetensors_open(path, &s), NPU_SUCCESS);
	assert_int_equal(llama_new(&p->llama, s, kernels_at(0), 1, &l), NPU_SUCCESS);
	safetensors_close(s);
	sim_program_free(p);
	return l;
}

/* False, and the test is skipped, where the model is not at hand. */
static bool import_stories(struct imported *x)
{
	struct fault f = FAULT_NONE;
	const char *store;
	void *pieces = NULL;
	size_t n;

	if (access(DATA "stories260K.bin", R_OK) != 0) {
		print_message("skipped: no " DATA "\n");
		return false;
	}
	work_make(&x->w);
	work_key(&x->w, "key", NULL);
	store = work_path(&x->w, "store");
	if (store_init(store, &f) ||
		store_trust(store, work_path(&x->w, "key.pub.pem"), (char[KEY_ID_SIZE]){ 0 }, &f) ||
		artifact_import_llama2c(DATA "stories260K.bin", DATA "tok512.bin",
			work_path(&x->w, "store/models/stories"), &f) ||
		artifact_sign(work_path(&x->w, "store/models/stories"), work_path(&x->w, "key.pem"),
			&f, NULL) ||
		artifact_verify(store, "stories", &x->artifact, &f) ||
		artifact_read(x->artifact, x->artifact->manifest->tokenizer.file, &pieces, &n,
			&f) ||
		tokenizer_new(&x->artifact->manifest->tokenizer, pieces, n, &x->tokenizer, &f))
		fail_msg("%s", f.reason);
	free(pieces);
	x->llama = load_llama(x->artifact->dir);
	return true;
}

static void imported_done(struct imported *x)
{
	llama_free(x->llama);
	tokenizer_free(x->tokenizer);
	artifact_free(x->artifact);
	work_remove(&x->w);
}

/* The device and the importer's own arithmetic come to the same logits. */
static void golden__real_model__agrees_with_the_device(void **state)
{
	struct imported x;
	struct fault f = FAULT_NONE;
	const struct golden_spec *g;
	float logits[512], worst = 0;
	struct llama_kv *kv;
	void *in, *out;
	size_t n;

	(void)state;
	if (!import_stories(&x))
		skip();
	g = &x.artifact->manifest->golden[0];
	assert_int_equal(artifact_read(x.artifact, g->input, &in, &n, &f), 0);
	assert_int_equal(n, 64);
	assert_int_equal(artifact_read(x.artifact, g->output, &out, &n, &f), 0);
	assert_int_equal(n, sizeof logits);
	kv = llama_kv_new(x.llama);
	assert_int_equal(llama_forward(x.llama, kv, in, g->valid, 0, logits), NPU_SUCCESS);
	for (size_t i = 0; i < 512; i++)
		worst = fmaxf(worst, fabsf(logits[i] - ((float *)out)[i]));
	assert_true((double)worst < 0.001);
	llama_kv_free(kv);
	free(in);
	free(out);
	imported_done(&x);
}

static int32_t likeliest(const float *logits, size_t n)
{
	size_t best = 0;

	for (size_t i = 1; i < n; i++)
		if (logits[i] > logits[best])
			best = i;
	return (int32_t)best;
}

/* One line of the reference's record: its ids begin with the prompt's. */
static void check_line(struct imported *x, const struct json_value *line)
{
	const struct json_value *ids = json_member(line, "token_ids");
	const char *prompt = json_string(json_member(line, "prompt"));
	struct llama_kv *kv = llama_kv_new(x->llama);
	int32_t *tokens;
	float logits[512];
	uint32_t past = 0;
	size_t n;

	assert_int_equal(tokenizer_encode(x->tokenizer, prompt, strlen(prompt), &tokens, &n), 0);
	for (const struct json_value *v = json_first(ids); v; v = json_next(v)) {
		int32_t token = past < n ? tokens[past] : likeliest(logits, 512);
		int64_t want;

		assert_int_equal(llama_forward(x->llama, kv, &token, 1, past++, logits),
			NPU_SUCCESS);
		assert_int_equal(json_int64(v, &want), 0);
		assert_int_equal(past < n ? tokens[past] : likeliest(logits, 512), want);
	}
	llama_kv_free(kv);
	free(tokens);
}

static void import__real_model__writes_what_the_reference_writes(void **state)
{
	struct imported x;
	char *line = NULL;
	size_t room = 0, lines = 0;
	FILE *record;
	ssize_t n;

	(void)state;
	if (!import_stories(&x))
		skip();
	record = fopen(DATA "greedy.jsonl", "re");
	assert_non_null(record);
	for (; lines < 4 && (n = getline(&line, &room, record)) > 0; lines++) {
		struct json_value *doc;

		assert_int_equal(json_parse(line, (size_t)n, &doc, NULL), 0);
		check_line(&x, doc);
		json_free(doc);
	}
	assert_true(lines > 0);
	free(line);
	fclose(record);
	imported_done(&x);
}

static void import__unfit_tokenizer__nothing_made(void **state)
{
	AUTO_BUF struct buf file = BUF_INIT;
	const struct header h = { 8, 12, 1, 2, 1, 300, 6 };
	struct fault f = FAULT_NONE;
	struct work w;

	(void)state;
	work_make(&w);
	make_file(&h, &file);
	work_write(&w, "weights", file.data, file.len);
	work_write_text(&w, "tokenizer", "too short");
	assert_int_equal(store_init(work_path(&w, "store"), &f), 0);
	assert_int_equal(artifact_import_llama2c(work_path(&w, "weights"),
				 work_path(&w, "tokenizer"), work_path(&w, "store/models/x"), &f),
		-EINVAL);
	assert_non_null(strstr(f.reason, "tokenizer"));
	assert_false(work_has(&w, "store/models/x"));
	assert_int_equal(artifact_import_llama2c(work_path(&w, "nothing"),
				 work_path(&w, "tokenizer"), work_path(&w, "store/models/x"), &f),
		-ENOENT);
	assert_int_equal(rmdir(work_path(&w, "store/models")), 0);
	work_remove(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parse__small_file__parts_in_order),
		cmocka_unit_test(parse__negative_vocab__own_classifier),
		cmocka_unit_test(parse__too_short_or_long__both_numbers),
		cmocka_unit_test(parse__header_out_of_range__field_named),
		cmocka_unit_test(parse__huge_products__refused),
		cmocka_unit_test(parse__heads_that_do_not_divide__refused),
		cmocka_unit_test(parse__weight_not_finite__refused_with_its_place),
		cmocka_unit_test(safetensors__small_file__names_shapes_order),
		cmocka_unit_test(program_and_template__small_file__taken_by_their_readers),
		cmocka_unit_test(golden__layer_that_adds_nothing__by_hand),
		cmocka_unit_test(golden__overflowing_weights__edom),
		cmocka_unit_test(golden__real_model__agrees_with_the_device),
		cmocka_unit_test(import__real_model__writes_what_the_reference_writes),
		cmocka_unit_test(import__unfit_tokenizer__nothing_made),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
