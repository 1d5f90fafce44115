/* Programs with their tensors, and the golden runs, whose files must be as long as the tensors are.
 */
#include "core/artifact/manifest_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/mem.h"

/* --- tensors ---------------------------------------------------------------------------------- */

struct tensor_members {
	const char *name, *dtype;
	const struct json_value *shape;
};

static bool dtype_known(const char *text)
{
	return dtype_from_name(text) != DTYPE_INVALID;
}

static const struct member_row tensor_rows[] = {
	{ .name = "name",
		.kind = MEMBER_TEXT,
		.offset = offsetof(struct tensor_members, name),
		.low = 1,
		.high = TENSOR_NAME_MAX,
		.valid = manifest_printable,
		.form = "printable ASCII without blanks" },
	{ .name = "dtype",
		.kind = MEMBER_TEXT,
		.offset = offsetof(struct tensor_members, dtype),
		.low = 1,
		.high = 16,
		.valid = dtype_known,
		.form = "an element type, as float32" },
	{ .name = "shape",
		.kind = MEMBER_ARRAY,
		.offset = offsetof(struct tensor_members, shape),
		.low = 0,
		.high = TENSOR_MAX_RANK },
};

static int take_shape(struct parser *p, const struct spot *at, const struct json_value *list,
	struct tensor_spec *t)
{
	const struct spot shape = { at, "shape", 0 };
	int64_t bytes;

	for (const struct json_value *v = json_first(list); v; v = json_next(v)) {
		const struct spot dim = { &shape, NULL, t->rank };

		if (json_type(v) != JSON_NUMBER || json_int64(v, &t->dims[t->rank]) < 0 ||
			t->dims[t->rank] < 1)
			return manifest_refuse(&dim, v, p->f, "give the size of the dimension",
				"must be an integer from 1");
		t->rank++;
	}
	bytes = tensor_bytes(t);
	if (bytes < 0 || bytes > MANIFEST_MAX_TENSOR_BYTES)
		return manifest_refuse(&shape, list, p->f, "give the tensor's true shape",
			"is more than %" PRId64 " bytes", MANIFEST_MAX_TENSOR_BYTES);
	return 0;
}

static int take_tensor(struct parser *p, const struct spot *at, const struct json_value *v,
	struct tensor_spec *t)
{
	struct tensor_members m;
	int err = manifest_read_object(at, v, tensor_rows, ARRAY_SIZE(tensor_rows), &m, p->f);

	if (err)
		return err;
	strcpy(t->name, m.name);
	t->dtype = dtype_from_name(m.dtype);
	return take_shape(p, at, m.shape, t);
}

/* `n` counts those taken so far. */
static int take_tensors(struct parser *p, const struct spot *at, const struct json_value *list,
	struct tensor_spec **tensors, size_t *n)
{
	*tensors = calloc(json_count(list) + 1, sizeof **tensors);
	if (!*tensors)
		return manifest_no_memory(p->f);
	for (const struct json_value *v = json_first(list); v; v = json_next(v)) {
		struct tensor_spec *t = &(*tensors)[*n];
		const struct spot item = { at, NULL, *n };
		int err = take_tensor(p, &item, v, t);

		if (err)
			return err;
		for (size_t i = 0; i < *n; i++)
			if (strcmp((*tensors)[i].name, t->name) == 0)
				return manifest_refuse(&item, v, p->f,
					"give each tensor its own name",
					"has the name of an earlier one");
		++*n;
	}
	return 0;
}

/* --- programs --------------------------------------------------------------------------------- */

struct program_members {
	const char *name;
	const struct json_value *inputs, *outputs, *csrs;
};

#define TENSORS(member, least) \
	{ \
		.name = #member, .kind = MEMBER_ARRAY, .low = (least), \
		.high = MANIFEST_MAX_TENSORS, .offset = offsetof(struct program_members, member) \
	}

static const struct member_row program_rows[] = {
	{ .name = "name",
		.kind = MEMBER_TEXT,
		.offset = offsetof(struct program_members, name),
		.low = 1,
		.high = TENSOR_NAME_MAX,
		.valid = manifest_printable,
		.form = "printable ASCII without blanks" },
	TENSORS(inputs, 0),
	TENSORS(outputs, 1),
	{ .name = "csrs",
		.kind = MEMBER_ARRAY,
		.optional = true,
		.offset = offsetof(struct program_members, csrs),
		.high = MANIFEST_MAX_CSRS },
};

static int take_csrs(struct parser *p, const struct spot *at, const struct json_value *list,
	struct program_spec *s)
{
	if (!list)
		return 0;
	if (p->m->kind != MANIFEST_LLM && json_count(list))
		return manifest_refuse(at, list, p->f, "remove them",
			"only programs of an llm have CSRs");
	s->csrs = calloc(json_count(list) + 1, sizeof *s->csrs);
	if (!s->csrs)
		return manifest_no_memory(p->f);
	for (const struct json_value *v = json_first(list); v; v = json_next(v)) {
		const struct spot item = { at, NULL, s->n_csrs };
		const char *name = json_string(v);

		if (!name || !name[0] || strlen(name) > TENSOR_NAME_MAX ||
			!manifest_printable(name))
			return manifest_refuse(&item, v, p->f, "give the CSR's name",
				"must be 1 to %d bytes of printable ASCII without blanks",
				TENSOR_NAME_MAX);
		strcpy(s->csrs[s->n_csrs++], name);
	}
	return 0;
}

static int take_program(struct parser *p, const struct spot *at, const struct json_value *v,
	struct program_spec *s)
{
	const struct spot inputs = { at, "inputs", 0 }, outputs = { at, "outputs", 0 },
			  csrs = { at, "csrs", 0 };
	struct program_members m = { .csrs = NULL };
	int err = manifest_read_object(at, v, program_rows, ARRAY_SIZE(program_rows), &m, p->f);

	if (err)
		return err;
	if (manifest_program(p->m, m.name))
		return manifest_refuse(at, v, p->f, "give each program its own name",
			"has the name of an earlier one");
	strcpy(s->name, m.name);
	err = take_tensors(p, &inputs, m.inputs, &s->inputs, &s->n_inputs);
	if (!err)
		err = take_tensors(p, &outputs, m.outputs, &s->outputs, &s->n_outputs);
	return err ? err : take_csrs(p, &csrs, m.csrs, s);
}

int manifest_take_programs(struct parser *p, const struct json_value *list)
{
	const struct spot at = { &manifest_root, "programs", 0 };
	struct manifest *m = p->m;
	size_t n = 0;
	int err = 0;

	m->programs = calloc(json_count(list), sizeof *m->programs);
	if (!m->programs)
		return manifest_no_memory(p->f);
	for (const struct json_value *v = json_first(list); !err && v; v = json_next(v)) {
		const struct spot item = { &at, NULL, n };

		err = take_program(p, &item, v, &m->programs[n]);
		m->n_programs = ++n;
	}
	return err;
}

/* --- golden runs ------------------------------------------------------------------------------ */

struct golden_members {
	const char *program, *input, *output;
	uint32_t valid;
	double tolerance;
};

/* What a file's name must be is said where the file is listed. */
static const struct member_row golden_rows[] = {
	{ .name = "program",
		.kind = MEMBER_TEXT,
		.offset = offsetof(struct golden_members, program),
		.low = 1,
		.high = TENSOR_NAME_MAX },
	{ .name = "input",
		.kind = MEMBER_TEXT,
		.offset = offsetof(struct golden_members, input),
		.low = 1,
		.high = MANIFEST_PATH_MAX },
	{ .name = "output",
		.kind = MEMBER_TEXT,
		.offset = offsetof(struct golden_members, output),
		.low = 1,
		.high = MANIFEST_PATH_MAX },
	{ .name = "valid",
		.kind = MEMBER_COUNT,
		.optional = true,
		.offset = offsetof(struct golden_members, valid),
		.high = MANIFEST_MAX_CONTEXT },
	{ .name = "tolerance",
		.kind = MEMBER_REAL,
		.optional = true,
		.offset = offsetof(struct golden_members, tolerance),
		.high = MANIFEST_MAX_TOLERANCE },
};

static int64_t all_bytes(const struct tensor_spec *t, size_t n)
{
	int64_t bytes = 0;

	for (size_t i = 0; i < n; i++)
		bytes += tensor_bytes(&t[i]); /* 64 tensors of at most 1 GiB each */
	return bytes;
}

static int take_golden_file(struct parser *p, const struct spot *run, const struct json_value *v,
	const char *member, const struct tensor_spec *tensors, size_t n,
	const struct file_spec **ret)
{
	const struct spot at = { run, member, 0 };
	int64_t want = all_bytes(tensors, n);
	int err = manifest_name_file(p, &at, json_member(v, member), ret);

	if (err || !p->need_files || (*ret)->size == (uint64_t)want)
		return err;
	return manifest_refuse(&at, v, p->f,
		"put the bytes of all the program's tensors into the file",
		"the file has %" PRIu64 " bytes and the program's tensors have %" PRId64,
		(*ret)->size, want);
}

/* The tokens of a run are among its input's and fit the context. */
static uint32_t most_valid(const struct manifest *m, const struct program_spec *s)
{
	int64_t width = s->n_inputs ? tensor_elements(&s->inputs[0]) : m->context_limit;

	if (s->n_csrs == 0)
		return 0;
	return width < m->context_limit ? (uint32_t)width : m->context_limit;
}

static int check_valid(struct parser *p, const struct spot *run, const struct json_value *v,
	const struct golden_spec *g)
{
	const struct spot at = { run, "valid", 0 };
	uint32_t least = g->program->n_csrs ? 1 : 0, most = most_valid(p->m, g->program);

	if (g->valid >= least && g->valid <= most)
		return 0;
	return manifest_refuse(&at, v, p->f, "give the number of tokens of the run",
		"must be from %u to %u", least, most);
}

static int take_run(struct parser *p, const struct spot *at, const struct json_value *v,
	struct golden_spec *g)
{
	struct golden_members m = { .valid = 0 };
	const struct program_spec *s;
	int err = manifest_read_object(at, v, golden_rows, ARRAY_SIZE(golden_rows), &m, p->f);

	if (err)
		return err;
	s = manifest_program(p->m, m.program);
	if (!s)
		return manifest_refuse(at, v, p->f, "name one of the manifest's programs",
			"is for a program that the manifest does not have");
	*g = (struct golden_spec){ .program = s, .valid = m.valid, .tolerance = m.tolerance };
	err = check_valid(p, at, v, g);
	if (!err)
		err = take_golden_file(p, at, v, "input", s->inputs, s->n_inputs, &g->input);
	if (!err)
		err = take_golden_file(p, at, v, "output", s->outputs, s->n_outputs, &g->output);
	return err;
}

int manifest_take_golden(struct parser *p, const struct json_value *list)
{
	const struct spot at = { &manifest_root, "golden", 0 };
	struct manifest *m = p->m;
	int err = 0;

	if (!list)
		return 0;
	m->golden = calloc(json_count(list) + 1, sizeof *m->golden);
	if (!m->golden)
		return manifest_no_memory(p->f);
	for (const struct json_value *v = json_first(list); !err && v; v = json_next(v)) {
		const struct spot item = { &at, NULL, m->n_golden };

		err = take_run(p, &item, v, &m->golden[m->n_golden]);
		m->n_golden++;
	}
	return err;
}
