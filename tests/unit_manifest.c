/* One right manifest of each kind; every wrong one is a right one with one text replaced. */
#include "core/artifact/manifest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/buf.h"

#define DIGEST_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define DIGEST_B "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

#define CSRS "\"csrs\":[\"cur_seq_len[0]\",\"past_kv_cur_seq_len[0]\"]"

static const char llm[] =
	"{\"schema\":\"npufs-manifest-1\",\"kind\":\"llm\",\"description\":\"a "
	"test\",\"calbin_version\":\"0.7.6\","
	"\"compatible\":{\"runtime\":[\"0.7.6\",\"0.7.7\"],\"driver\":[\"d-1\"]},\"batch\":1,"
	"\"context_limit\":64,"
	"\"tokenizer\":{\"type\":\"llama2c\",\"file\":\"tokenizer/"
	"tokenizer.bin\",\"vocab_size\":300,"
	"\"prefix\":[1],\"suffix\":[],\"stop\":[1,299]},"
	"\"defaults\":{\"max_new_tokens\":16,\"temperature\":0.5},"
	"\"example\":{\"prompt\":\"hello\",\"seed\":18446744073709551615},"
	"\"programs\":["
	"{\"name\":\"prefill\",\"inputs\":[{\"name\":\"tokens\",\"dtype\":\"int32\",\"shape\":[16]}"
	"],"
	"\"outputs\":[{\"name\":\"logits\",\"dtype\":\"float32\",\"shape\":[300]}]," CSRS "},"
	"{\"name\":\"kv_update\",\"inputs\":[],"
	"\"outputs\":[{\"name\":\"kv_length\",\"dtype\":\"int32\",\"shape\":[1]}]," CSRS "}],"
	"\"golden\":[{\"program\":\"prefill\",\"input\":\"golden/prefill.in\",\"output\":\"golden/"
	"prefill.out\","
	"\"valid\":12,\"tolerance\":0.01}],"
	"\"files\":[{\"path\":\"calbin/program.json\",\"size\":10,\"sha256\":\"" DIGEST_A "\"},"
	"{\"path\":\"golden/prefill.in\",\"size\":64,\"sha256\":\"" DIGEST_B "\"},"
	"{\"path\":\"golden/prefill.out\",\"size\":1200,\"sha256\":\"" DIGEST_B "\"},"
	"{\"path\":\"tokenizer/tokenizer.bin\",\"size\":0,\"sha256\":\"" DIGEST_B "\"}]}";

static const char tensor[] =
	"{\"schema\":\"npufs-manifest-1\",\"kind\":\"tensor\",\"description\":\"\",\"calbin_"
	"version\":\"0.7.6\","
	"\"compatible\":{\"runtime\":[\"0.7.6\"]},\"batch\":1,\"example\":{},"
	"\"programs\":[{\"name\":\"mlp\",\"inputs\":[{\"name\":\"a\",\"dtype\":\"float32\","
	"\"shape\":[1,2]},"
	"{\"name\":\"b\",\"dtype\":\"INT64\",\"shape\":[]}],"
	"\"outputs\":[{\"name\":\"y\",\"dtype\":\"uint8\",\"shape\":[3]}]}],"
	"\"golden\":[{\"program\":\"mlp\",\"input\":\"g.in\",\"output\":\"g.out\"}],"
	"\"files\":[{\"path\":\"g.in\",\"size\":16,\"sha256\":\"" DIGEST_A "\"},"
	"{\"path\":\"g.out\",\"size\":3,\"sha256\":\"" DIGEST_A "\"}]}";

static int parse(const char *text, bool need_files, struct manifest **ret, struct fault *f)
{
	*f = (struct fault)FAULT_NONE;
	return manifest_parse(text, strlen(text), need_files, ret, f);
}

static struct manifest *parse_good(const char *text, bool need_files)
{
	struct manifest *m = NULL;
	struct fault f;

	if (parse(text, need_files, &m, &f) != 0)
		fail_msg("%s: %s", f.field, f.reason);
	return m;
}

/* `text` with the first `from` replaced, in memory to be freed. */
static char *with(const char *text, const char *from, const char *to)
{
	const char *at = strstr(text, from);
	struct buf out = BUF_INIT;

	if (!at)
		fail_msg("the text has no %s", from);
	buf_put(&out, text, (size_t)(at - text));
	buf_puts(&out, to);
	buf_puts(&out, at + strlen(from));
	return out.data;
}

struct wrong {
	const char *from, *to;
	const char *field, *reason; /* the reason contains this */
};

static void refuse_each(const char *text, bool need_files, const struct wrong *rows, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		char *changed = with(text, rows[i].from, rows[i].to);
		struct manifest *m = NULL;
		struct fault f;

		if (parse(changed, need_files, &m, &f) != -EINVAL)
			fail_msg("taken: %s for %s", rows[i].to, rows[i].from);
		assert_null(m);
		assert_int_equal(f.err, -EINVAL);
		assert_string_equal(f.field, rows[i].field);
		if (!strstr(f.reason, rows[i].reason))
			fail_msg("%s: \"%s\" does not say \"%s\"", f.field, f.reason,
				rows[i].reason);
		assert_true(f.action[0]);
		free(changed);
	}
}

#define REFUSE(text, need_files, rows) \
	refuse_each(text, need_files, rows, sizeof rows / sizeof rows[0])

/* --- right ones ------------------------------------------------------------------------------- */

static void manifest_parse__llm__every_member(void **state)
{
	struct manifest *m = parse_good(llm, true);
	const struct program_spec *p = &m->programs[0];

	(void)state;
	assert_int_equal(m->kind, MANIFEST_LLM);
	assert_string_equal(m->description, "a test");
	assert_string_equal(m->calbin_version, "0.7.6");
	assert_int_equal(m->n_runtimes, 2);
	assert_string_equal(m->runtimes[1], "0.7.7");
	assert_int_equal(m->n_drivers, 1);
	assert_string_equal(m->drivers[0], "d-1");
	assert_int_equal(m->n_firmwares, 0);
	assert_int_equal(m->batch, 1);
	assert_int_equal(m->context_limit, 64);
	assert_int_equal(m->default_max_new_tokens, 16);
	assert_true(m->default_temperature == 0.5);
	assert_int_equal(m->n_programs, 2);
	assert_string_equal(p->name, "prefill");
	assert_int_equal(p->n_inputs, 1);
	assert_string_equal(p->inputs[0].name, "tokens");
	assert_int_equal(p->inputs[0].dtype, DTYPE_INT32);
	assert_int_equal(p->inputs[0].rank, 1);
	assert_int_equal(p->inputs[0].dims[0], 16);
	assert_int_equal(p->n_csrs, 2);
	assert_string_equal(p->csrs[1], "past_kv_cur_seq_len[0]");
	assert_int_equal(m->programs[1].n_inputs, 0);
	assert_int_equal(m->programs[1].n_outputs, 1);
	manifest_free(m);
}

static void manifest_parse__llm__tokenizer_golden_files(void **state)
{
	struct manifest *m = parse_good(llm, true);

	(void)state;
	assert_int_equal(m->tokenizer.type, TOKENIZER_LLAMA2C);
	assert_ptr_equal(m->tokenizer.file, &m->files[3]);
	assert_int_equal(m->tokenizer.vocab_size, 300);
	assert_int_equal(m->tokenizer.n_prefix, 1);
	assert_int_equal(m->tokenizer.prefix[0], 1);
	assert_int_equal(m->tokenizer.n_suffix, 0);
	assert_int_equal(m->tokenizer.n_stop, 2);
	assert_int_equal(m->tokenizer.stop[1], 299);
	assert_int_equal(m->n_golden, 1);
	assert_ptr_equal(m->golden[0].program, &m->programs[0]);
	assert_ptr_equal(m->golden[0].input, &m->files[1]);
	assert_ptr_equal(m->golden[0].output, &m->files[2]);
	assert_int_equal(m->golden[0].valid, 12);
	assert_true(m->golden[0].tolerance == 0.01);
	assert_int_equal(m->n_files, 4);
	assert_string_equal(m->files[0].path, "calbin/program.json");
	assert_int_equal(m->files[0].size, 10);
	assert_string_equal(m->files[0].sha256, DIGEST_A);
	manifest_free(m);
}

static void manifest_parse__example__pretty_and_exact(void **state)
{
	struct manifest *m = parse_good(llm, true);

	(void)state;
	assert_string_equal(m->example,
		"{\n  \"prompt\": \"hello\",\n  \"seed\": 18446744073709551615\n}\n");
	manifest_free(m);
}

static void manifest_parse__tensor__no_llm_members(void **state)
{
	struct manifest *m = parse_good(tensor, true);

	(void)state;
	assert_int_equal(m->kind, MANIFEST_TENSOR);
	assert_int_equal(m->context_limit, 0);
	assert_int_equal(m->tokenizer.type, TOKENIZER_NONE);
	assert_null(m->tokenizer.file);
	assert_int_equal(m->programs[0].inputs[1].dtype, DTYPE_INT64);
	assert_int_equal(m->programs[0].inputs[1].rank, 0);
	assert_int_equal(m->golden[0].valid, 0);
	assert_true(m->golden[0].tolerance == 0);
	manifest_free(m);
}

static void manifest_parse__bytes_tokenizer__no_file(void **state)
{
	char *text = with(llm, "\"llama2c\",\"file\":\"tokenizer/tokenizer.bin\"", "\"bytes\"");
	struct manifest *m = parse_good(text, true);

	(void)state;
	assert_int_equal(m->tokenizer.type, TOKENIZER_BYTES);
	assert_null(m->tokenizer.file);
	manifest_free(m);
	free(text);
}

static void manifest_parse__optional_members_absent__taken(void **state)
{
	static const char *const parts[] = {
		"\"defaults\":{\"max_new_tokens\":16,\"temperature\":0.5},",
		"\"max_new_tokens\":16,", ",\"driver\":[\"d-1\"]", ",\"tolerance\":0.01"
	};

	(void)state;
	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
		char *text = with(llm, parts[i], "");
		struct manifest *m = parse_good(text, true);

		assert_int_equal(m->default_max_new_tokens, i < 2 ? 0 : 16);
		manifest_free(m);
		free(text);
	}
}

static void manifest_parse__template__entries_without_digest(void **state)
{
	char *text = strdup(llm), *files = strstr(text, ",\"files\":");
	struct manifest *m;

	(void)state;
	strcpy(files, "}");
	m = parse_good(text, false);
	assert_int_equal(m->n_files, 3);
	assert_string_equal(m->tokenizer.file->path, "tokenizer/tokenizer.bin");
	assert_string_equal(m->golden[0].input->path, "golden/prefill.in");
	assert_int_equal(m->golden[0].input->size, 0);
	assert_string_equal(m->golden[0].input->sha256, "");
	manifest_free(m);
	free(text);
}

static void manifest_lookup__known_and_unknown__found_or_null(void **state)
{
	struct manifest *m = parse_good(llm, true);

	(void)state;
	assert_ptr_equal(manifest_program(m, "kv_update"), &m->programs[1]);
	assert_null(manifest_program(m, "decode"));
	assert_ptr_equal(manifest_file(m, "golden/prefill.in"), &m->files[1]);
	assert_null(manifest_file(m, "golden"));
	manifest_free(m);
	manifest_free(NULL);
}

/* --- wrong ones ------------------------------------------------------------------------------- */

static void manifest_parse__unknown_member__nearest_name(void **state)
{
	static const struct wrong rows[] = {
		{ "\"batch\":1", "\"batch\":1,\"bacth\":1", "bacth", "did you mean \"batch\"?" },
		{ "\"driver\"", "\"drivers\"", "compatible.drivers", "did you mean \"driver\"?" },
		{ "\"suffix\"", "\"sufix\"", "tokenizer.sufix", "did you mean \"suffix\"?" },
		{ "\"temperature\"", "\"temprature\"", "defaults.temprature",
			"did you mean \"temperature\"?" },
		{ "\"dtype\"", "\"type\"", "programs[0].inputs[0].type",
			"did you mean \"dtype\"?" },
		{ "\"csrs\"", "\"csr\"", "programs[0].csr", "did you mean \"csrs\"?" },
		{ "\"valid\"", "\"vaild\"", "golden[0].vaild", "did you mean \"valid\"?" },
		{ "\"size\":64", "\"sizes\":64", "files[1].sizes", "did you mean \"size\"?" },
		{ "\"batch\":1", "\"batch\":1,\"xyzzy\":1", "xyzzy", "no such member" },
	};

	(void)state;
	REFUSE(llm, true, rows);
}

static void manifest_parse__missing_member__named(void **state)
{
	static const struct wrong rows[] = {
		{ "\"schema\":\"npufs-manifest-1\",", "", "schema", "is missing" },
		{ "\"kind\":\"llm\",", "", "kind", "is missing" },
		{ "\"description\":\"a test\",", "", "description", "is missing" },
		{ "\"calbin_version\":\"0.7.6\",", "", "calbin_version", "is missing" },
		{ "\"batch\":1,", "", "batch", "is missing" },
		{ "\"context_limit\":64,", "", "context_limit", "is missing" },
		{ "\"runtime\":[\"0.7.6\",\"0.7.7\"],", "", "compatible.runtime", "is missing" },
		{ "\"vocab_size\":300,", "", "tokenizer.vocab_size", "is missing" },
		{ ",\"file\":\"tokenizer/tokenizer.bin\"", "", "tokenizer.file", "is missing" },
		{ "\"inputs\":[],", "", "programs[1].inputs", "is missing" },
		{ "\"program\":\"prefill\",", "", "golden[0].program", "is missing" },
		{ ",\"size\":64", "", "files[1].size", "is missing" },
	};

	(void)state;
	REFUSE(llm, true, rows);
}

static void manifest_parse__wrong_type__both_types_named(void **state)
{
	static const struct wrong rows[] = {
		{ "\"batch\":1", "\"batch\":\"1\"", "batch", "must be a number, not a string" },
		{ "\"kind\":\"llm\"", "\"kind\":1", "kind", "must be a string, not a number" },
		{ "\"example\":{\"prompt\":\"hello\",\"seed\":18446744073709551615}",
			"\"example\":[]", "example", "must be an object, not an array" },
		{ "\"suffix\":[]", "\"suffix\":null", "tokenizer.suffix", "must be an array" },
		{ "\"inputs\":[]", "\"inputs\":[3]", "programs[1].inputs[0]", "must be an object" },
		{ "[\"cur_seq_len[0]\"", "[7", "programs[0].csrs[0]", "1 to 63 bytes" },
		{ "[\"0.7.6\",\"0.7.7\"]", "[\"0.7.6\",7]", "compatible.runtime[1]",
			"1 to 31 bytes" },
		{ "\"shape\":[16]", "\"shape\":[\"16\"]", "programs[0].inputs[0].shape[0]",
			"an integer from 1" },
		{ "\"prefix\":[1]", "\"prefix\":[true]", "tokenizer.prefix[0]",
			"an integer from 0 to 299" },
	};

	(void)state;
	REFUSE(llm, true, rows);
}

static void manifest_parse__out_of_range__bounds_named(void **state)
{
	static const struct wrong rows[] = {
		{ "\"batch\":1", "\"batch\":0", "batch", "from 1 to 1024" },
		{ "\"batch\":1", "\"batch\":1.5", "batch", "an integer" },
		{ "\"batch\":1", "\"batch\":-1", "batch", "from 1 to 1024" },
		{ "\"batch\":1", "\"batch\":4294967297", "batch", "from 1 to 1024" },
		{ "\"context_limit\":64", "\"context_limit\":1048577", "context_limit",
			"from 1 to 1048576" },
		{ "\"vocab_size\":300", "\"vocab_size\":258", "tokenizer.vocab_size",
			"must be 259 at least" },
		{ "\"vocab_size\":300", "\"vocab_size\":1048577", "tokenizer.vocab_size",
			"1048576" },
		{ "\"stop\":[1,299]", "\"stop\":[1,300]", "tokenizer.stop[1]", "from 0 to 299" },
		{ "\"stop\":[1,299]", "\"stop\":[-1]", "tokenizer.stop[0]", "from 0 to 299" },
		{ "\"max_new_tokens\":16", "\"max_new_tokens\":65", "defaults.max_new_tokens",
			"64" },
		{ "\"max_new_tokens\":16", "\"max_new_tokens\":0", "defaults.max_new_tokens",
			"from 1" },
		{ "\"temperature\":0.5", "\"temperature\":2.1", "defaults.temperature",
			"from 0 to 2" },
		{ "\"temperature\":0.5", "\"temperature\":-0.1", "defaults.temperature",
			"from 0 to 2" },
		{ "\"tolerance\":0.01", "\"tolerance\":-1", "golden[0].tolerance", "from 0" },
		{ "\"runtime\":[\"0.7.6\",\"0.7.7\"]", "\"runtime\":[]", "compatible.runtime",
			"has 0 items" },
		{ "\"driver\":[\"d-1\"]", "\"driver\":[]", "compatible.driver", "has 0 items" },
		{ "\"driver\":[\"d-1\"]", "\"driver\":[\"\"]", "compatible.driver[0]",
			"1 to 31 bytes" },
		{ "\"shape\":[16]", "\"shape\":[0]", "programs[0].inputs[0].shape[0]", "from 1" },
		{ "\"shape\":[16]", "\"shape\":[1,1,1,1,1,1,1,1,1]", "programs[0].inputs[0].shape",
			"has 9 items" },
		{ "\"shape\":[16]", "\"shape\":[268435457]", "programs[0].inputs[0].shape",
			"more than 1073741824" },
		{ "\"shape\":[16]", "\"shape\":[9223372036854775807,9223372036854775807]",
			"programs[0].inputs[0].shape", "more than" },
		{ "\"size\":10", "\"size\":68719476737", "files[0].size", "68719476736" },
		{ "\"size\":10", "\"size\":-1", "files[0].size", "an integer" },
	};

	(void)state;
	REFUSE(llm, true, rows);
}

static void manifest_parse__wrong_values__refused(void **state)
{
	static const struct wrong rows[] = {
		{ "npufs-manifest-1\"", "npufs-manifest-2\",\"later\":1", "schema",
			"must be npufs-manifest-1" },
		{ "\"kind\":\"llm\"", "\"kind\":\"LLM\"", "kind", "must be llm or tensor" },
		{ "a test", "a\\ntest", "description", "one line" },
		{ "\"0.7.6\",\"compatible\"", "\"0.7 6\",\"compatible\"", "calbin_version",
			"printable" },
		{ "\"llama2c\"", "\"bpe\"", "tokenizer.type", "bytes or llama2c" },
		{ "\"llama2c\"", "\"bytes\"", "tokenizer.file", "has no file" },
		{ "\"int32\"", "\"int31\"", "programs[0].inputs[0].dtype", "an element type" },
		{ "\"name\":\"tokens\"", "\"name\":\"to kens\"", "programs[0].inputs[0].name",
			"printable" },
		{ "\"name\":\"kv_update\"", "\"name\":\"prefill\"", "programs[1]",
			"an earlier one" },
		{ "\"program\":\"prefill\"", "\"program\":\"decode\"", "golden[0]",
			"does not have" },
		{ "[{\"name\":\"tokens\"",
			"[{\"name\":\"tokens\",\"dtype\":\"int8\",\"shape\":[]},{\"name\":"
			"\"tokens\"",
			"programs[0].inputs[1]", "an earlier one" },
	};

	(void)state;
	REFUSE(llm, true, rows);
}

static void manifest_parse__golden_run__checked_against_its_program(void **state)
{
	static const struct wrong rows[] = {
		{ "\"size\":64", "\"size\":63", "golden[0].input",
			"63 bytes and the program's tensors have 64" },
		{ "\"size\":1200", "\"size\":1204", "golden[0].output", "1204 bytes" },
		{ "\"input\":\"golden/prefill.in\"", "\"input\":\"golden/other.in\"",
			"golden[0].input", "does not list" },
		{ "\"valid\":12", "\"valid\":17", "golden[0].valid", "from 1 to 16" },
		{ "\"valid\":12", "\"valid\":0", "golden[0].valid", "from 1 to 16" },
		{ "\"valid\":12,", "", "golden[0].valid", "from 1 to 16" },
	};
	static const struct wrong of_short_context[] = {
		{ "\"context_limit\":64", "\"context_limit\":11", "golden[0].valid",
			"from 1 to 11" },
	};
	static const struct wrong of_tensor[] = {
		{ "\"size\":16", "\"size\":15", "golden[0].input",
			"15 bytes and the program's tensors have 16" },
		{ "\"output\":\"g.out\"", "\"output\":\"g.out\",\"valid\":1", "golden[0].valid",
			"from 0 to 0" },
	};

	char *short_answers = with(llm, "\"max_new_tokens\":16", "\"max_new_tokens\":1");

	(void)state;
	REFUSE(llm, true, rows);
	REFUSE(short_answers, true, of_short_context);
	REFUSE(tensor, true, of_tensor);
	free(short_answers);
}

static void manifest_parse__tensor_with_llm_members__refused(void **state)
{
	static const struct wrong rows[] = {
		{ "\"batch\":1", "\"batch\":1,\"context_limit\":5", "context_limit",
			"only an llm" },
		{ "\"batch\":1", "\"batch\":1,\"defaults\":{}", "defaults", "only an llm" },
		{ "\"batch\":1", "\"batch\":1,\"tokenizer\":{}", "tokenizer", "only an llm" },
		{ "\"shape\":[3]}]", "\"shape\":[3]}],\"csrs\":[\"x\"]", "programs[0].csrs",
			"of an llm" },
	};

	(void)state;
	REFUSE(tensor, true, rows);
}

static void manifest_parse__paths__plain_relative_ones_only(void **state)
{
	static const char *const paths[] = { "/etc/passwd", "../x", "a/../b", "a/./b", "a//b", "a/",
		".", "..", "", "a\\\\b", "a\\u0001b", "caf\\u00e9", "manifest.json", "manifest.sig",
		"a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a" };

	(void)state;
	for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
		char *text = with(llm, "calbin/program.json", paths[i]);
		struct manifest *m;
		struct fault f;

		if (parse(text, true, &m, &f) != -EINVAL)
			fail_msg("taken: %s", paths[i]);
		assert_string_equal(f.field, "files[0].path");
		free(text);
	}
}

static void manifest_parse__long_path__255_bytes_at_most(void **state)
{
	char path[300], *text;
	struct manifest *m;
	struct fault f;

	(void)state;
	memset(path, 'p', sizeof path);
	path[255] = '\0';
	text = with(llm, "calbin/program.json", path);
	manifest_free(parse_good(text, true));
	free(text);
	path[255] = 'p';
	path[256] = '\0';
	text = with(llm, "calbin/program.json", path);
	assert_int_equal(parse(text, true, &m, &f), -EINVAL);
	free(text);
}

static void manifest_parse__odd_but_plain_paths__taken(void **state)
{
	static const char *const paths[] = { "a", ".a", "...", "a b", "..a/b..",
		"manifest.json.bak", "sub/manifest.json", "a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a" };

	(void)state;
	for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
		char *text = with(llm, "calbin/program.json", paths[i]);

		manifest_free(parse_good(text, true));
		free(text);
	}
}

static void manifest_parse__files__digests_and_duplicates(void **state)
{
	static const struct wrong rows[] = {
		{ DIGEST_A, "AAAA", "files[0].sha256", "64 lower-case hex digits" },
		{ DIGEST_A, "Aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
			"files[0].sha256", "64 lower-case hex digits" },
		{ DIGEST_A, DIGEST_A "a", "files[0].sha256", "65 bytes" },
		{ "calbin/program.json", "golden/prefill.in", "files[1]", "an earlier one" },
	};

	(void)state;
	REFUSE(llm, true, rows);
}

static void manifest_parse__files_by_mode__required_or_refused(void **state)
{
	char *without = strdup(llm), *files = strstr(without, ",\"files\":");
	struct manifest *m;
	struct fault f;

	(void)state;
	strcpy(files, "}");
	assert_int_equal(parse(without, true, &m, &f), -EINVAL);
	assert_string_equal(f.field, "files");
	assert_int_equal(parse(llm, false, &m, &f), -EINVAL);
	assert_string_equal(f.field, "files");
	free(without);
}

static void manifest_parse__template_paths__checked_too(void **state)
{
	char *text = strdup(llm), *files = strstr(text, ",\"files\":"), *changed;
	struct manifest *m;
	struct fault f;

	(void)state;
	strcpy(files, "}");
	changed = with(text, "golden/prefill.out", "../prefill.out");
	assert_int_equal(parse(changed, false, &m, &f), -EINVAL);
	assert_string_equal(f.field, "golden[0].output");
	free(changed);
	free(text);
}

static void manifest_parse__no_json__offset_and_reason(void **state)
{
	struct manifest *m;
	struct fault f;

	(void)state;
	assert_int_equal(parse("{\"schema\":}", true, &m, &f), -EINVAL);
	assert_int_equal(f.offset, 10);
	assert_non_null(strstr(f.reason, "manifest"));
	assert_int_equal(parse("[]", true, &m, &f), -EINVAL);
	assert_int_equal(parse("\"x\"", true, &m, &f), -EINVAL);
	assert_int_equal(parse("", true, &m, &f), -EINVAL);
	assert_int_equal(parse("{\"a\":\"\xff\"}", true, &m, &f), -EILSEQ);
	assert_int_equal(parse("{\"batch\":1,\"batch\":2}", true, &m, &f), -EINVAL);
}

static void manifest_parse__too_many__bounds_hold(void **state)
{
	AUTO_BUF struct buf list = BUF_INIT, one = BUF_INIT;
	struct manifest *m;
	struct fault f;
	char *text;

	(void)state;
	for (int i = 0; i <= MANIFEST_MAX_FILES; i++)
		buf_printf(&list, "%s{\"path\":\"f%d\",\"size\":1,\"sha256\":\"" DIGEST_A "\"}",
			i ? "," : "", i);
	buf_printf(&one, "[%s,{\"path\"", list.data);
	text = with(llm, "[{\"path\"", one.data);
	assert_int_equal(parse(text, true, &m, &f), -EINVAL);
	assert_string_equal(f.field, "files");
	assert_non_null(strstr(f.reason, "has 1029 items"));
	free(text);
	buf_reset(&list);
	for (int i = 0; i < MANIFEST_MAX_BYTES; i++)
		buf_puts(&list, " ");
	buf_puts(&list, llm);
	assert_int_equal(parse(list.data, true, &m, &f), -EINVAL);
	assert_non_null(strstr(f.reason, "1048576"));
}

/* --- aliases ---------------------------------------------------------------------------------- */

static void alias_valid__table(void **state)
{
	static const char *const good[] = { "a", "7", "dates", "Llama-3.2_1b", "a..b",
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" };
	static const char *const bad[] = { "", ".", "..", ".hidden", "-x", "_x", "a/b", "a b",
		"caf\xc3\xa9", "a\n",
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" };

	(void)state;
	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
		assert_true(alias_valid(good[i]));
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		assert_false(alias_valid(bad[i]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(manifest_parse__llm__every_member),
		cmocka_unit_test(manifest_parse__llm__tokenizer_golden_files),
		cmocka_unit_test(manifest_parse__example__pretty_and_exact),
		cmocka_unit_test(manifest_parse__tensor__no_llm_members),
		cmocka_unit_test(manifest_parse__bytes_tokenizer__no_file),
		cmocka_unit_test(manifest_parse__optional_members_absent__taken),
		cmocka_unit_test(manifest_parse__template__entries_without_digest),
		cmocka_unit_test(manifest_lookup__known_and_unknown__found_or_null),
		cmocka_unit_test(manifest_parse__unknown_member__nearest_name),
		cmocka_unit_test(manifest_parse__missing_member__named),
		cmocka_unit_test(manifest_parse__wrong_type__both_types_named),
		cmocka_unit_test(manifest_parse__out_of_range__bounds_named),
		cmocka_unit_test(manifest_parse__wrong_values__refused),
		cmocka_unit_test(manifest_parse__golden_run__checked_against_its_program),
		cmocka_unit_test(manifest_parse__tensor_with_llm_members__refused),
		cmocka_unit_test(manifest_parse__paths__plain_relative_ones_only),
		cmocka_unit_test(manifest_parse__long_path__255_bytes_at_most),
		cmocka_unit_test(manifest_parse__odd_but_plain_paths__taken),
		cmocka_unit_test(manifest_parse__files__digests_and_duplicates),
		cmocka_unit_test(manifest_parse__files_by_mode__required_or_refused),
		cmocka_unit_test(manifest_parse__template_paths__checked_too),
		cmocka_unit_test(manifest_parse__no_json__offset_and_reason),
		cmocka_unit_test(manifest_parse__too_many__bounds_hold),
		cmocka_unit_test(alias_valid__table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
