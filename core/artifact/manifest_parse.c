/* The document is read by tables (manifest_read.h) in an order that lets later parts look up
 * earlier ones:
 *
 *   head -> versions -> files -> tokenizer -> defaults -> programs -> golden runs -> example
 *
 * m->files is allocated once, for as many entries as there can be, since tokenizer and golden runs
 * point into it. Texts are copied; nothing of the document outlives the parse. */
#include "core/artifact/manifest_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/mem.h"

const struct spot manifest_root = { NULL, "manifest", 0 };

int manifest_no_memory(struct fault *f)
{
	return fault_set(f, -ENOMEM, "free memory, then try again", "no memory for the manifest");
}

bool manifest_printable(const char *text)
{
	for (; *text; text++)
		if (*text <= ' ' || *text > '~')
			return false;
	return true;
}

int manifest_copy_text(const char *text, char **ret, struct fault *f)
{
	*ret = strdup(text);
	return *ret ? 0 : manifest_no_memory(f);
}

/* --- the members of the document -------------------------------------------------------------- */

struct root_members {
	const char *schema, *kind, *description, *calbin_version;
	const struct json_value *compatible, *tokenizer, *defaults, *example, *programs, *golden,
		*files;
	uint32_t batch, context_limit;
};

#define AT(member) .name = #member, .offset = offsetof(struct root_members, member)

static bool one_line(const char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || *text == 0x7f)
			return false;
	return true;
}

static const struct member_row root_rows[] = {
	{ AT(schema), .kind = MEMBER_TEXT, .high = 64 },
	{ AT(kind), .kind = MEMBER_TEXT, .high = 64 },
	{ AT(description), .kind = MEMBER_TEXT, .high = MANIFEST_DESCRIPTION_MAX, .valid = one_line,
		.form = "one line" },
	{ AT(calbin_version), .kind = MEMBER_TEXT, .low = 1, .high = MANIFEST_VERSION_MAX,
		.valid = manifest_printable, .form = "printable ASCII without blanks" },
	{ AT(compatible), .kind = MEMBER_OBJECT },
	{ AT(batch), .kind = MEMBER_COUNT, .low = 1, .high = MANIFEST_MAX_BATCH },
	{ AT(context_limit), .kind = MEMBER_COUNT, .optional = true, .low = 1,
		.high = MANIFEST_MAX_CONTEXT },
	{ AT(tokenizer), .kind = MEMBER_OBJECT, .optional = true },
	{ AT(defaults), .kind = MEMBER_OBJECT, .optional = true },
	{ AT(example), .kind = MEMBER_OBJECT },
	{ AT(programs), .kind = MEMBER_ARRAY, .low = 1, .high = MANIFEST_MAX_PROGRAMS },
	{ AT(golden), .kind = MEMBER_ARRAY, .optional = true, .high = MANIFEST_MAX_GOLDEN },
	{ AT(files), .kind = MEMBER_ARRAY, .optional = true, .high = MANIFEST_MAX_FILES },
};

#undef AT

/* --- head ------------------------------------------------------------------------------------- */

/* Before the other members: those of a later schema may differ. */
static int check_schema(struct parser *p, const struct json_value *root)
{
	const struct json_value *v =
		json_type(root) == JSON_OBJECT ? json_member(root, "schema") : NULL;
	const struct spot at = { &manifest_root, "schema", 0 };
	const char *schema = v ? json_string(v) : NULL;

	if (schema && strcmp(schema, MANIFEST_SCHEMA) != 0)
		return manifest_refuse(&at, v, p->f, "use the tool and the daemon of one version",
			"must be %s", MANIFEST_SCHEMA);
	return 0;
}

static int take_kind(struct parser *p, const struct root_members *d)
{
	static const char *const names[] = { [MANIFEST_LLM] = "llm", [MANIFEST_TENSOR] = "tensor" };
	const struct spot at = { &manifest_root, "kind", 0 };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strcmp(d->kind, names[i]) == 0) {
			p->m->kind = (enum manifest_kind)i;
			return 0;
		}
	return manifest_refuse(&at, NULL, p->f, "write llm or tensor", "must be llm or tensor");
}

/* What an LLM needs and a tensor artifact must not have. */
static int check_llm_member(struct parser *p, const char *name, bool given, bool needed)
{
	const struct spot at = { &manifest_root, name, 0 };
	bool llm = p->m->kind == MANIFEST_LLM;

	if (given && !llm)
		return manifest_refuse(&at, NULL, p->f, "remove it, or make the kind llm",
			"only an llm has this member");
	if (!given && llm && needed)
		return manifest_refuse(&at, NULL, p->f, "add it", "is missing");
	return 0;
}

static int take_head(struct parser *p, const struct root_members *d)
{
	int err = take_kind(p, d);

	if (!err)
		err = check_llm_member(p, "context_limit", d->context_limit != 0, true);
	if (!err)
		err = check_llm_member(p, "tokenizer", d->tokenizer != NULL, true);
	if (!err)
		err = check_llm_member(p, "defaults", d->defaults != NULL, false);
	if (!err)
		err = manifest_copy_text(d->description, &p->m->description, p->f);
	if (!err)
		err = manifest_copy_text(d->calbin_version, &p->m->calbin_version, p->f);
	p->m->batch = d->batch;
	p->m->context_limit = d->context_limit;
	return err;
}

/* --- versions --------------------------------------------------------------------------------- */

struct version_members {
	const struct json_value *runtime, *driver, *firmware;
};

#define VERSIONS(member, is_optional) \
	{ \
		.name = #member, .kind = MEMBER_ARRAY, .optional = (is_optional), \
		.offset = offsetof(struct version_members, member), .low = 1, \
		.high = MANIFEST_MAX_VERSIONS \
	}

static const struct member_row version_rows[] = {
	VERSIONS(runtime, false),
	VERSIONS(driver, true),
	VERSIONS(firmware, true),
};

static int take_version_list(struct parser *p, const char *name, const struct json_value *list,
	char ***ret, size_t *n)
{
	const struct spot up = { &manifest_root, "compatible", 0 }, at = { &up, name, 0 };

	if (!list)
		return 0;
	*ret = calloc(json_count(list), sizeof **ret);
	if (!*ret)
		return manifest_no_memory(p->f);
	for (const struct json_value *v = json_first(list); v; v = json_next(v)) {
		const struct spot item = { &at, NULL, *n };
		const char *text = json_string(v);

		if (!text || !text[0] || strlen(text) > MANIFEST_VERSION_MAX ||
			!manifest_printable(text))
			return manifest_refuse(&item, v, p->f, "give a version, as \"0.7.6\"",
				"must be 1 to %d bytes of printable ASCII without blanks",
				MANIFEST_VERSION_MAX);
		if (manifest_copy_text(text, &(*ret)[*n], p->f))
			return -ENOMEM;
		++*n;
	}
	return 0;
}

static int take_versions(struct parser *p, const struct root_members *d)
{
	const struct spot at = { &manifest_root, "compatible", 0 };
	struct version_members v = { NULL, NULL, NULL };
	struct manifest *m = p->m;
	int err = manifest_read_object(&at, d->compatible, version_rows, ARRAY_SIZE(version_rows),
		&v, p->f);

	if (!err)
		err = take_version_list(p, "runtime", v.runtime, &m->runtimes, &m->n_runtimes);
	if (!err)
		err = take_version_list(p, "driver", v.driver, &m->drivers, &m->n_drivers);
	if (!err)
		err = take_version_list(p, "firmware", v.firmware, &m->firmwares, &m->n_firmwares);
	return err;
}

/* --- tokenizer -------------------------------------------------------------------------------- */

struct tokenizer_members {
	const char *type, *file;
	uint32_t vocab_size;
	const struct json_value *prefix, *suffix, *stop;
};

#define IDS(member) \
	{ \
		.name = #member, .kind = MEMBER_ARRAY, .high = MANIFEST_MAX_IDS, \
		.offset = offsetof(struct tokenizer_members, member) \
	}

static const struct member_row tokenizer_rows[] = {
	{ .name = "type",
		.kind = MEMBER_TEXT,
		.offset = offsetof(struct tokenizer_members, type),
		.high = 64 },
	{ .name = "file",
		.kind = MEMBER_TEXT,
		.optional = true,
		.offset = offsetof(struct tokenizer_members, file),
		.low = 1,
		.high = MANIFEST_PATH_MAX },
	{ .name = "vocab_size",
		.kind = MEMBER_COUNT,
		.offset = offsetof(struct tokenizer_members, vocab_size),
		.low = 1,
		.high = MANIFEST_MAX_VOCAB },
	IDS(prefix),
	IDS(suffix),
	IDS(stop),
};

/* The least vocabulary has a token for each byte, and for llama2c its three controls. */
static const struct {
	const char *name;
	enum tokenizer_type type;
	bool has_file;
	uint32_t least_vocab;
} tokenizer_types[] = {
	{ "bytes", TOKENIZER_BYTES, false, 256 },
	{ "llama2c", TOKENIZER_LLAMA2C, true, 259 },
};

static int take_ids(struct parser *p, const struct spot *up, const char *name,
	const struct json_value *list, int32_t **ret, size_t *n)
{
	uint32_t vocab = p->m->tokenizer.vocab_size;
	const struct spot at = { up, name, 0 };

	*ret = calloc(json_count(list) + 1, sizeof **ret);
	if (!*ret)
		return manifest_no_memory(p->f);
	for (const struct json_value *v = json_first(list); v; v = json_next(v)) {
		const struct spot item = { &at, NULL, *n };
		uint64_t id;

		if (json_type(v) != JSON_NUMBER || json_uint64(v, &id) < 0 || id >= vocab)
			return manifest_refuse(&item, v, p->f, "give a token's id",
				"must be an integer from 0 to %" PRIu32, vocab - 1);
		(*ret)[(*n)++] = (int32_t)id;
	}
	return 0;
}

static int take_tokenizer_type(struct parser *p, const struct spot *up, const struct json_value *v,
	const struct tokenizer_members *d)
{
	const struct spot type = { up, "type", 0 }, file = { up, "file", 0 },
			  vocab = { up, "vocab_size", 0 };
	size_t i = 0;

	while (i < ARRAY_SIZE(tokenizer_types) && strcmp(d->type, tokenizer_types[i].name) != 0)
		i++;
	if (i == ARRAY_SIZE(tokenizer_types))
		return manifest_refuse(&type, v, p->f, "write bytes or llama2c",
			"must be bytes or llama2c");
	if (d->vocab_size < tokenizer_types[i].least_vocab)
		return manifest_refuse(&vocab, v, p->f, "give the true size of the vocabulary",
			"must be %u at least", tokenizer_types[i].least_vocab);
	if (!d->file && tokenizer_types[i].has_file)
		return manifest_refuse(&file, v, p->f, "add it", "is missing");
	if (d->file && !tokenizer_types[i].has_file)
		return manifest_refuse(&file, v, p->f, "remove it",
			"this type of tokenizer has no file");
	p->m->tokenizer.type = tokenizer_types[i].type;
	p->m->tokenizer.vocab_size = d->vocab_size;
	return d->file ? manifest_name_file(p, &file, json_member(v, "file"), &p->m->tokenizer.file)
		       : 0;
}

static int take_tokenizer(struct parser *p, const struct root_members *d)
{
	const struct spot at = { &manifest_root, "tokenizer", 0 };
	struct tokenizer_spec *t = &p->m->tokenizer;
	struct tokenizer_members m = { .file = NULL };
	int err;

	if (!d->tokenizer)
		return 0;
	err = manifest_read_object(&at, d->tokenizer, tokenizer_rows, ARRAY_SIZE(tokenizer_rows),
		&m, p->f);
	if (!err)
		err = take_tokenizer_type(p, &at, d->tokenizer, &m);
	if (!err)
		err = take_ids(p, &at, "prefix", m.prefix, &t->prefix, &t->n_prefix);
	if (!err)
		err = take_ids(p, &at, "suffix", m.suffix, &t->suffix, &t->n_suffix);
	if (!err)
		err = take_ids(p, &at, "stop", m.stop, &t->stop, &t->n_stop);
	return err;
}

/* --- the rest --------------------------------------------------------------------------------- */

static const struct member_row default_rows[] = {
	{ .name = "max_new_tokens",
		.kind = MEMBER_COUNT,
		.optional = true,
		.offset = offsetof(struct manifest, default_max_new_tokens),
		.low = 1,
		.high = MANIFEST_MAX_CONTEXT },
	{ .name = "temperature",
		.kind = MEMBER_REAL,
		.optional = true,
		.offset = offsetof(struct manifest, default_temperature),
		.high = MANIFEST_MAX_TEMPERATURE },
};

static int take_defaults(struct parser *p, const struct root_members *d)
{
	const struct spot at = { &manifest_root, "defaults", 0 },
			  most = { &at, "max_new_tokens", 0 };
	int err;

	if (!d->defaults)
		return 0;
	err = manifest_read_object(&at, d->defaults, default_rows, ARRAY_SIZE(default_rows), p->m,
		p->f);
	if (!err && p->m->default_max_new_tokens > p->m->context_limit)
		return manifest_refuse(&most, d->defaults, p->f,
			"give a number below the context_limit",
			"is more than the context_limit, %u", p->m->context_limit);
	return err;
}

static int take_files(struct parser *p, const struct root_members *d)
{
	/* The tokenizer's, and two of each golden run. */
	return manifest_take_files(p, d->files, 1 + (d->golden ? 2 * json_count(d->golden) : 0));
}

static int take_programs(struct parser *p, const struct root_members *d)
{
	return manifest_take_programs(p, d->programs);
}

static int take_golden(struct parser *p, const struct root_members *d)
{
	return manifest_take_golden(p, d->golden);
}

static int take_example(struct parser *p, const struct root_members *d)
{
	struct buf text = BUF_INIT;

	if (json_render(d->example, true, &text) < 0) {
		buf_done(&text);
		return manifest_no_memory(p->f);
	}
	p->m->example = text.data;
	return 0;
}

static int (*const steps[])(struct parser *p, const struct root_members *d) = {
	take_head,
	take_versions,
	take_files,
	take_tokenizer,
	take_defaults,
	take_programs,
	take_golden,
	take_example,
};

static int take_root(struct parser *p, const struct json_value *root)
{
	struct root_members d = { .context_limit = 0 };
	int err = check_schema(p, root);

	if (!err)
		err = manifest_read_object(&manifest_root, root, root_rows, ARRAY_SIZE(root_rows),
			&d, p->f);
	for (size_t i = 0; !err && i < ARRAY_SIZE(steps); i++)
		err = steps[i](p, &d);
	return err;
}

int manifest_parse(const char *text, size_t len, bool need_files, struct manifest **ret,
	struct fault *f)
{
	struct parser p = { NULL, need_files, f };
	struct fault syntax = FAULT_NONE;
	struct json_value *root;
	int err;

	if (len > MANIFEST_MAX_BYTES)
		return fault_set(f, -EINVAL, "list fewer files",
			"the manifest has %zu bytes; %d is the most", len, MANIFEST_MAX_BYTES);
	err = json_parse(text, len, &root, &syntax);
	if (err)
		return fault_at(f, err, NULL, syntax.offset, syntax.action,
			"the manifest is no proper JSON: %s", syntax.reason);
	p.m = calloc(1, sizeof *p.m);
	err = p.m ? take_root(&p, root) : manifest_no_memory(f);
	json_free(root);
	if (err) {
		manifest_free(p.m);
		return err;
	}
	*ret = p.m;
	return 0;
}
