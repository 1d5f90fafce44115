/* Sections are made apart, with offsets from the start of their own; once all are there, it is known
 * where each begins, and they are put together. The result is validated like any image, so that the
 * rules stand in one place; only what the layout cannot say is checked here. */
#include "core/callable/image.h"

#include <assert.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "core/artifact/manifest_read.h"
#include "core/base/mem.h"

#define FORMAT "npufs-callable-1"

struct builder {
	struct head {
		const char *format, *name;
		const struct json_value *tensors, *scalars, *orchestration, *children;
	} head;
	struct vm_names operands;
	struct buf names, rows, table, code, body;
	struct fault *f;
};

static const struct spot root = { NULL, "callable", 0 };

/* --- members ---------------------------------------------------------------------------------- */

static const char *const types[] = { [VM_FLOAT32] = "float32", [VM_INT32] = "int32" };
static const char *const accesses[] = { [VM_IN] = "in", [VM_OUT] = "out", [VM_INOUT] = "inout" };

static uint8_t index_of(const char *const *names, size_t n, const char *text)
{
	for (size_t i = 1; i < n; i++)
		if (strcmp(names[i], text) == 0)
			return (uint8_t)i;
	return 0;
}

static bool is_format(const char *text)
{
	return strcmp(text, FORMAT) == 0;
}

static bool is_type(const char *text)
{
	return index_of(types, ARRAY_SIZE(types), text) != 0;
}

static bool is_access(const char *text)
{
	return index_of(accesses, ARRAY_SIZE(accesses), text) != 0;
}

#define NAME_FORM "printable, without space, comma, hash, quote and backslash"
#define NAME_ROW(type) \
	{ \
		"name", MEMBER_TEXT, false, offsetof(type, name), 1, CALLABLE_NAME_MAX, \
			image_name_valid, NAME_FORM \
	}
#define TYPE_ROW(type, optional) \
	{ \
		"dtype", MEMBER_TEXT, optional, offsetof(type, dtype), 1, CALLABLE_NAME_MAX, \
			is_type, "float32 or int32" \
	}
#define ARRAY_ROW(type, member, text, optional, low, high) \
	{ \
		text, MEMBER_ARRAY, optional, offsetof(type, member), low, high, NULL, NULL \
	}

static const struct member_row head_rows[] = {
	{ "format", MEMBER_TEXT, false, offsetof(struct head, format), 1, CALLABLE_NAME_MAX,
		is_format, FORMAT },
	NAME_ROW(struct head),
	ARRAY_ROW(struct head, tensors, "tensors", false, 0, CALLABLE_TENSORS_MAX),
	ARRAY_ROW(struct head, scalars, "scalars", false, 0, CALLABLE_SCALARS_MAX),
	ARRAY_ROW(struct head, orchestration, "orchestration", false, 1, 2 * VM_CODE_MAX),
	ARRAY_ROW(struct head, children, "children", false, 0, CALLABLE_CHILDREN_MAX),
};

struct argument {
	const char *name, *dtype, *access;
	uint32_t max;
};

static const struct member_row tensor_rows[] = {
	NAME_ROW(struct argument),
	TYPE_ROW(struct argument, false),
	{ "access", MEMBER_TEXT, false, offsetof(struct argument, access), 1, CALLABLE_NAME_MAX,
		is_access, "in, out or inout" },
};

static const struct member_row scalar_rows[] = {
	NAME_ROW(struct argument),
	TYPE_ROW(struct argument, false),
	{ "max", MEMBER_COUNT, true, offsetof(struct argument, max), 0, INT32_MAX, NULL, NULL },
};

struct child {
	uint32_t id;
	const char *name, *dtype;
	const struct json_value *code, *constants;
};

static const struct member_row child_rows[] = {
	{ "id", MEMBER_COUNT, false, offsetof(struct child, id), 0, CALLABLE_FUNCTION_IDS - 1, NULL,
		NULL },
	NAME_ROW(struct child),
	ARRAY_ROW(struct child, code, "code", false, 1, 2 * VM_CODE_MAX),
	TYPE_ROW(struct child, true),
	ARRAY_ROW(struct child, constants, "constants", true, 1, CALLABLE_BYTES_MAX / 4),
};

/* --- arguments -------------------------------------------------------------------------------- */

static uint32_t put_name(struct builder *b, const char *name)
{
	uint32_t at = (uint32_t)b->names.len;

	buf_put(&b->names, name, strlen(name) + 1);
	return at;
}

/* Text knows arguments by their names, so a name is one tensor's or one scalar's. */
static int add_operand(struct builder *b, const struct spot *at, const struct json_value *v,
	const char *name, const char **names, uint32_t *n)
{
	for (uint32_t i = 0; i < *n; i++)
		if (strcmp(names[i], name) == 0)
			return manifest_refuse(at, v, b->f, "give each its own name",
				"\"%s\" is there twice", name);
	names[(*n)++] = name;
	return 0;
}

struct argument_kind {
	const char *member;
	const struct member_row *rows;
	size_t n_rows;
};

static const struct argument_kind tensor_kind = { "tensors", tensor_rows, ARRAY_SIZE(tensor_rows) };
static const struct argument_kind scalar_kind = { "scalars", scalar_rows, ARRAY_SIZE(scalar_rows) };

static int add_arguments(struct builder *b, const struct argument_kind *kind,
	const struct json_value *array, const char **names, uint32_t *n)
{
	struct spot all = { &root, kind->member, 0 }, at = { &all, NULL, 0 };
	const struct json_value *v = json_first(array);
	int err = 0;

	for (; !err && v; v = json_next(v), at.index++) {
		struct argument a = { 0 };
		struct image_row row = { 0 };

		err = manifest_read_object(&at, v, kind->rows, kind->n_rows, &a, b->f);
		if (!err)
			err = add_operand(b, &at, v, a.name, names, n);
		if (err)
			break;
		row.name = put_name(b, a.name);
		row.type = index_of(types, ARRAY_SIZE(types), a.dtype);
		row.access = a.access ? index_of(accesses, ARRAY_SIZE(accesses), a.access) : 0;
		row.max = a.max;
		buf_put(&b->rows, &row, sizeof row);
	}
	return err;
}

/* --- programs --------------------------------------------------------------------------------- */

static int add_line(struct builder *b, const struct spot *at, const struct json_value *v,
	struct buf *code)
{
	const char *line = json_string(v);
	struct fault inner = FAULT_NONE;
	struct vm_instr in;
	int got = line ? vm_assemble(line, &b->operands, &in, &inner) : -EINVAL;

	if (got < 0)
		return manifest_refuse(at, v, b->f, "write one instruction a line", "%s",
			line ? inner.reason : "must be a text");
	if (got)
		buf_put(code, &in, sizeof in);
	return 0;
}

/* Append the lines' instructions; *ret_n of them. */
static int add_code(struct builder *b, const struct spot *at, const struct json_value *lines,
	struct buf *out, uint32_t *ret_n)
{
	AUTO_BUF struct buf code = BUF_INIT;
	struct spot line = { at, NULL, 0 };
	int err = 0;

	for (const struct json_value *v = json_first(lines); !err && v; v = json_next(v)) {
		err = add_line(b, &line, v, &code);
		line.index++;
	}
	if (!err)
		err = buf_error(&code);
	if (err)
		return err;
	*ret_n = (uint32_t)(code.len / sizeof(struct vm_instr));
	if (!*ret_n || *ret_n > VM_CODE_MAX)
		return manifest_refuse(at, lines, b->f, "write 1 to 4096 instructions",
			"has %u instructions", *ret_n);
	vm_link((struct vm_instr *)(void *)code.data, *ret_n);
	buf_put(out, code.data, code.len);
	return 0;
}

static bool read_constant(const struct json_value *v, bool is_float, uint32_t *ret)
{
	double d = json_type(v) == JSON_NUMBER ? json_double(v) : NAN;
	float single = (float)d;
	int64_t n;

	if (isnan(d))
		return false;
	if (is_float) {
		memcpy(ret, &single, sizeof single);
		return isfinite(single);
	}
	if (json_int64(v, &n) < 0 || n < INT32_MIN || n > INT32_MAX)
		return false;
	*ret = (uint32_t)n;
	return true;
}

static int add_constants(struct builder *b, const struct spot *at, const struct json_value *self,
	const struct child *c)
{
	struct spot all = { at, "constants", 0 }, one = { &all, NULL, 0 };
	uint32_t bits;

	if (!c->constants != !c->dtype)
		return manifest_refuse(at, self, b->f, "give both or neither",
			"has one of constants and dtype");
	if (!c->constants)
		return 0;
	for (const struct json_value *v = json_first(c->constants); v; v = json_next(v)) {
		if (!read_constant(v, strcmp(c->dtype, types[VM_FLOAT32]) == 0, &bits))
			return manifest_refuse(&one, v, b->f, "give a number that fits",
				"must be a number of %s", c->dtype);
		buf_put(&b->body, &bits, sizeof bits);
		one.index++;
	}
	return 0;
}

static void pad(struct buf *b, size_t to)
{
	static const char zeros[CALLABLE_ALIGN];

	buf_put(b, zeros, CALLABLE_ALIGN_UP(b->len, to) - b->len);
}

/* Text calls children by their names, so the second of one could never be called. */
static int check_child_name(struct builder *b, const struct spot *at, const struct json_value *v,
	const char *name)
{
	for (uint32_t i = 0; i < b->operands.n_functions; i++)
		if (strcmp(b->operands.functions[i].name, name) == 0)
			return manifest_refuse(at, v, b->f, "give each its own name",
				"\"%s\" is there twice", name);
	return 0;
}

static int add_child(struct builder *b, const struct spot *at, const struct json_value *v)
{
	struct image_child row = { .offset = b->body.len };
	struct child c = { 0 };
	struct spot code = { at, "code", 0 };
	int err = manifest_read_object(at, v, child_rows, ARRAY_SIZE(child_rows), &c, b->f);

	if (!err)
		err = check_child_name(b, at, v, c.name);
	if (!err)
		err = add_code(b, &code, c.code, &b->body, &row.n_code);
	if (!err)
		err = add_constants(b, at, v, &c);
	if (err)
		return err;
	row.id = (int32_t)c.id;
	row.name = put_name(b, c.name);
	row.bytes = b->body.len - row.offset;
	buf_put(&b->table, &row, sizeof row);
	pad(&b->body, CALLABLE_ALIGN);
	b->operands.functions[b->operands.n_functions++] =
		(struct vm_function_name){ c.name, c.id };
	return 0;
}

/* Children are not callers, so that those before are all that a program needs to know of. */
static int add_programs(struct builder *b)
{
	struct spot all = { &root, "children", 0 }, at = { &all, NULL, 0 };
	struct spot orchestration = { &root, "orchestration", 0 };
	uint32_t n;
	int err = 0;

	for (const struct json_value *v = json_first(b->head.children); !err && v;
		v = json_next(v)) {
		err = add_child(b, &at, v);
		at.index++;
	}
	return err ? err : add_code(b, &orchestration, b->head.orchestration, &b->code, &n);
}

static int read_spec(struct builder *b, const struct json_value *spec)
{
	struct vm_names *names = &b->operands;
	int err =
		manifest_read_object(&root, spec, head_rows, ARRAY_SIZE(head_rows), &b->head, b->f);

	if (err)
		return err;
	put_name(b, b->head.name);
	err = add_arguments(b, &tensor_kind, b->head.tensors, names->tensors, &names->n_tensors);
	if (!err)
		err = add_arguments(b, &scalar_kind, b->head.scalars, names->scalars,
			&names->n_scalars);
	return err ? err : add_programs(b);
}

/* --- putting it together ---------------------------------------------------------------------- */

static struct image_header make_header(const struct builder *b)
{
	uint64_t names = IMAGE_HEADER + b->rows.len;
	uint64_t children = CALLABLE_ALIGN_UP(names + b->names.len, 8);
	uint64_t code = CALLABLE_ALIGN_UP(children + b->table.len, CALLABLE_ALIGN);
	uint64_t body = CALLABLE_ALIGN_UP(code + b->code.len, CALLABLE_ALIGN);

	struct image_header h = { .version = IMAGE_VERSION,
		.header_bytes = IMAGE_HEADER,
		.total_bytes = body + b->body.len,
		.n_tensors = b->operands.n_tensors,
		.n_scalars = b->operands.n_scalars,
		.n_children = b->operands.n_functions,
		.names_bytes = (uint32_t)b->names.len,
		.children_offset = (uint32_t)children,
		.code_offset = (uint32_t)code,
		.n_code = (uint32_t)(b->code.len / sizeof(struct vm_instr)) };

	memcpy(h.magic, IMAGE_MAGIC, sizeof h.magic);
	return h;
}

static void put_table(const struct builder *b, uint64_t body, struct buf *out)
{
	struct image_child row;

	for (size_t at = 0; at < b->table.len; at += sizeof row) {
		memcpy(&row, b->table.data + at, sizeof row);
		row.offset += body;
		buf_put(out, &row, sizeof row);
	}
}

static int put_image(struct builder *b, struct buf *out)
{
	struct image_header h = make_header(b);
	int err = buf_error(&b->names) | buf_error(&b->rows) | buf_error(&b->table) |
		buf_error(&b->code) | buf_error(&b->body);

	if (err)
		return fault_set(b->f, -ENOMEM, "try again later", "no memory for the image");
	buf_put(out, &h, sizeof h);
	buf_put(out, b->rows.data, b->rows.len);
	buf_put(out, b->names.data, b->names.len);
	pad(out, 8);
	put_table(b, h.total_bytes - b->body.len, out);
	pad(out, CALLABLE_ALIGN);
	buf_put(out, b->code.data, b->code.len);
	pad(out, CALLABLE_ALIGN);
	buf_put(out, b->body.data, b->body.len);
	err = buf_error(out);
	return err ? err : image_validate(out->data, out->len, NULL, b->f);
}

static void builder_free(struct builder *b)
{
	struct buf *all[] = { &b->names, &b->rows, &b->table, &b->code, &b->body };

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		buf_done(all[i]);
	free(b);
}

static int build(const struct json_value *spec, struct buf *out, struct fault *f)
{
	AUTO_BUF struct buf image = BUF_INIT;
	struct builder *b = calloc(1, sizeof *b);
	int err;

	if (!b)
		return fault_set(f, -ENOMEM, "try again later", "no memory for the image");
	b->f = f;
	err = read_spec(b, spec);
	if (!err)
		err = put_image(b, &image);
	builder_free(b);
	if (err)
		return err;
	buf_put(out, image.data, image.len);
	return buf_error(out);
}

int image_build(const char *spec, size_t len, struct buf *out, struct fault *f)
{
	struct json_value *v;
	int err = json_parse(spec, len, &v, f);

	if (err)
		return err;
	err = build(v, out, f);
	json_free(v);
	return err;
}
