/* Tensors of a request, in the manner of KServe v2; of one in a file only the name is taken here. The shape of the data is checked in a pass of
 * its own, so that memory is asked for only when the text really holds as many values as the shape
 * says. */
#include "core/job/request_read.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/mem.h"

#define PLACE_SIZE 48 /* as much as a fault keeps */

/* --- one value -------------------------------------------------------------------------------- */

enum number_kind { NOT_TAKEN, SIGNED, UNSIGNED, REAL, LOGICAL };

static const struct conversion {
	enum number_kind kind;
	int64_t low;
	uint64_t high;
	const char *type; /* for messages */
} conversions[] = {
	[DTYPE_INVALID] = { NOT_TAKEN, 0, 0, "" },
	[DTYPE_BOOL] = { LOGICAL, 0, 1, "bool: true, false, 1 or 0" },
	[DTYPE_INT8] = { SIGNED, INT8_MIN, INT8_MAX, "integer -128..127" },
	[DTYPE_UINT8] = { UNSIGNED, 0, UINT8_MAX, "integer 0..255" },
	[DTYPE_INT16] = { SIGNED, INT16_MIN, INT16_MAX, "integer -32768..32767" },
	[DTYPE_UINT16] = { UNSIGNED, 0, UINT16_MAX, "integer 0..65535" },
	[DTYPE_INT32] = { SIGNED, INT32_MIN, INT32_MAX, "integer -2147483648..2147483647" },
	[DTYPE_UINT32] = { UNSIGNED, 0, UINT32_MAX, "integer 0..4294967295" },
	[DTYPE_INT64] = { SIGNED, INT64_MIN, INT64_MAX, "integer of 64 bits" },
	[DTYPE_UINT64] = { UNSIGNED, 0, UINT64_MAX, "integer 0..18446744073709551615" },
	[DTYPE_FLOAT16] = { NOT_TAKEN, 0, 0, "" },
	[DTYPE_FLOAT32] = { REAL, 0, 0, "number within float32" },
	[DTYPE_FLOAT64] = { REAL, 0, 0, "number" },
};

static int signed_bits(const struct conversion *c, const struct json_value *v, uint64_t *ret)
{
	int64_t n;
	int err = json_int64(v, &n);

	if (err)
		return err;
	if (n < c->low || (n > 0 && (uint64_t)n > c->high))
		return -ERANGE;
	*ret = (uint64_t)n;
	return 0;
}

static int unsigned_bits(const struct conversion *c, const struct json_value *v, uint64_t *ret)
{
	uint64_t n;
	int err = json_uint64(v, &n);

	if (err)
		return err;
	if (n > c->high)
		return -ERANGE;
	*ret = n;
	return 0;
}

static int real_bits(enum dtype t, const struct json_value *v, uint64_t *ret)
{
	double d = json_double(v);
	float f = (float)d;
	uint32_t bits32;

	if (json_type(v) != JSON_NUMBER)
		return -EINVAL;
	if (t == DTYPE_FLOAT64) {
		memcpy(ret, &d, sizeof d);
		return 0;
	}
	if (isinf(f))
		return -ERANGE;
	memcpy(&bits32, &f, sizeof f);
	*ret = bits32;
	return 0;
}

/* The value's bits, in the low bytes of *ret. */
static int value_bits(enum dtype t, const struct json_value *v, uint64_t *ret)
{
	const struct conversion *c = &conversions[t];

	switch (c->kind) {
	case SIGNED:
		return signed_bits(c, v, ret);
	case UNSIGNED:
		return unsigned_bits(c, v, ret);
	case REAL:
		return real_bits(t, v, ret);
	case LOGICAL:
		if (json_type(v) != JSON_BOOL)
			return unsigned_bits(c, v, ret);
		*ret = json_bool(v);
		return 0;
	default:
		return -EOPNOTSUPP;
	}
}

/* --- data ------------------------------------------------------------------------------------- */

struct tensor_read {
	struct request_tensor *tensor;
	size_t index; /* in `inputs` */
	struct fault *f;
	unsigned char *to; /* where the next value goes */
	size_t done;       /* values before it */
};

static const char *place(const struct tensor_read *t, const char *member, char ret[PLACE_SIZE])
{
	snprintf(ret, PLACE_SIZE, "inputs[%zu].%.20s", t->index, member);
	return ret;
}

static int wrong_count(const struct tensor_read *t, const struct json_value *v, size_t have,
	int64_t want)
{
	char field[PLACE_SIZE], shape[TENSOR_TEXT_SIZE];

	return fault_at(t->f, -EINVAL, place(t, "data", field), (long)json_offset(v),
		"make shape and data agree", "\"%s\" has %zu values where %s takes %" PRId64, field,
		have, tensor_text(&t->tensor->spec, shape), want);
}

/* Data in nested arrays: `level` is the dimension that the array `v` stands for. */
static int check_nested(const struct tensor_read *t, const struct json_value *v, uint32_t level)
{
	const struct tensor_spec *spec = &t->tensor->spec;
	char field[PLACE_SIZE];
	size_t n;
	int err = 0;

	if (json_type(v) != JSON_ARRAY)
		return request_must_be(t->f, -EINVAL, place(t, "data", field), v,
			"array here, as the shape says");
	n = json_count(v);
	if ((int64_t)n != spec->dims[level])
		return wrong_count(t, v, n, spec->dims[level]);
	if (level + 1 == spec->rank)
		return 0;
	for (const struct json_value *child = json_first(v); child && !err;
		child = json_next(child))
		err = check_nested(t, child, level + 1);
	return err;
}

static int check_flat(const struct tensor_read *t, const struct json_value *v)
{
	int64_t want = tensor_elements(&t->tensor->spec);
	size_t have = json_count(v);

	return (int64_t)have == want ? 0 : wrong_count(t, v, have, want);
}

/* `levels`: how many more arrays are in each other. */
static int convert(struct tensor_read *t, const struct json_value *v, uint32_t levels)
{
	enum dtype type = t->tensor->spec.dtype;
	char field[PLACE_SIZE], member[24];
	uint64_t bits;
	int err = 0;

	if (levels > 0) {
		for (v = json_first(v); v && !err; v = json_next(v))
			err = convert(t, v, levels - 1);
		return err;
	}
	err = value_bits(type, v, &bits);
	if (err) {
		snprintf(member, sizeof member, "data[%zu]", t->done);
		return request_must_be(t->f, err, place(t, member, field), v,
			conversions[type].type);
	}
	for (size_t i = 0; i < dtype_size(type); i++)
		*t->to++ = (unsigned char)(bits >> (8 * i));
	t->done++;
	return 0;
}

/* JSON has no half: the manifest's float16 can only come from a file. */
static int refuse_half(const struct tensor_read *t, const struct json_value *v)
{
	char field[PLACE_SIZE];

	return fault_at(t->f, -EOPNOTSUPP, place(t, "datatype", field), (long)json_offset(v),
		"name a \"file\" instead of \"data\"", "float16 data is not offered in JSON");
}

static int read_data(struct tensor_read *t, const struct json_value *v)
{
	const struct tensor_spec *spec = &t->tensor->spec;
	const struct json_value *first = json_type(v) == JSON_ARRAY ? json_first(v) : NULL;
	bool nested = first && spec->rank > 1 && json_type(first) == JSON_ARRAY;
	char field[PLACE_SIZE];
	int err;

	if (spec->dtype == DTYPE_FLOAT16)
		return refuse_half(t, v);
	if (json_type(v) != JSON_ARRAY)
		return request_must_be(t->f, -EINVAL, place(t, "data", field), v, "array");
	err = nested ? check_nested(t, v, 0) : check_flat(t, v);
	if (err)
		return err;
	t->tensor->data = malloc((size_t)tensor_bytes(spec) + 1);
	if (!t->tensor->data)
		return request_no_memory(t->f);
	t->to = t->tensor->data;
	return convert(t, v, nested ? spec->rank : 1);
}

/* --- the other members ------------------------------------------------------------------------ */

static int read_name(struct tensor_read *t, const struct json_value *v)
{
	const char *name = json_string(v);
	char field[PLACE_SIZE];

	place(t, "name", field);
	if (!name)
		return request_must_be(t->f, -EINVAL, field, v, "string");
	if (name[0] == '\0' || strlen(name) > TENSOR_NAME_MAX)
		return request_not_one_of(t->f, field, v, "string of 1..63 bytes");
	strcpy(t->tensor->spec.name, name);
	return 0;
}

int request_read_shape(struct fault *f, const char *field, const struct json_value *v,
	struct tensor_spec *ret)
{
	ret->rank = 0;
	if (json_type(v) != JSON_ARRAY)
		return request_must_be(f, -EINVAL, field, v, "array of at most 8 integers");
	for (const struct json_value *d = json_first(v); d; d = json_next(d)) {
		int64_t n;
		int err = json_int64(d, &n);

		if (err || n < 0)
			return request_must_be(f, err ? err : -ERANGE, field, d,
				"integer of 0 or more");
		if (ret->rank == TENSOR_MAX_RANK)
			return request_not_one_of(f, field, d, "array of at most 8 integers");
		ret->dims[ret->rank++] = n;
	}
	if (tensor_elements(ret) < 0)
		return fault_at(f, -ERANGE, field, (long)json_offset(v),
			"give the shape of the data",
			"\"%s\" stands for more values than 64 bits can count", field);
	return 0;
}

static int read_shape(struct tensor_read *t, const struct json_value *v)
{
	char field[PLACE_SIZE];

	t->tensor->shape_given = true;
	return request_read_shape(t->f, place(t, "shape", field), v, &t->tensor->spec);
}

static int read_datatype(struct tensor_read *t, const struct json_value *v)
{
	const char *names[2 * DTYPE_COUNT] = { NULL };
	char field[PLACE_SIZE], hint[REQUEST_HINT_SIZE];
	size_t n = 0;

	place(t, "datatype", field);
	if (!json_string(v))
		return request_must_be(t->f, -EINVAL, field, v, "string");
	t->tensor->spec.dtype = dtype_from_name(json_string(v));
	if (t->tensor->spec.dtype != DTYPE_INVALID)
		return 0;
	for (enum dtype d = DTYPE_INVALID + 1; d < DTYPE_COUNT; d++) {
		names[n++] = dtype_kserve(d);
		names[n++] = dtype_name(d);
	}
	return fault_at(t->f, -EINVAL, field, (long)json_offset(v),
		"write it as in the model's manifest, or FP32, INT8, UINT8, BOOL ...",
		"unknown datatype \"%.40s\"%s", json_string(v),
		request_hint(json_string(v), names, hint));
}

static int read_parameters(struct tensor_read *t, const struct json_value *v)
{
	char field[PLACE_SIZE];

	return request_check_parameters(t->f, PARAMETER_OF_INPUT, place(t, "parameters", field), v);
}

static int read_file(struct tensor_read *t, const struct json_value *v)
{
	const char *name = json_string(v), *why;
	char field[PLACE_SIZE];

	place(t, "file", field);
	if (!name)
		return request_must_be(t->f, -EINVAL, field, v, "string");
	why = request_file_refusal(name);
	if (why)
		return fault_at(t->f, -EINVAL, field, (long)json_offset(v),
			"name a .npy or other plain file beside the request", "\"%s\" %s", field,
			why);
	t->tensor->file = strdup(name);
	return t->tensor->file ? 0 : request_no_memory(t->f);
}

/* In the order in which they are read: data needs shape and datatype. */
static const struct member {
	const char *name;
	int (*read)(struct tensor_read *t, const struct json_value *v);
} members[] = {
	{ "name", read_name },
	{ "shape", read_shape },
	{ "datatype", read_datatype },
	{ "parameters", read_parameters },
	{ "file", read_file },
	{ "data", read_data },
};

#define WHAT_TO_GIVE "give name, shape, datatype and data or file"

/* Data come from the text or from a file, and a .npy file has its own shape and datatype. */
static bool needed(const struct json_value *tensor, const char *member)
{
	const struct json_value *file = json_member(tensor, "file");

	if (strcmp(member, "name") == 0)
		return true;
	if (strcmp(member, "data") == 0)
		return !file;
	if (strcmp(member, "shape") == 0 || strcmp(member, "datatype") == 0)
		return !file || !json_string(file) || !request_file_is_npy(json_string(file));
	return false;
}

static int check_complete(const struct tensor_read *t, const struct json_value *v)
{
	char field[PLACE_SIZE];

	for (size_t i = 0; i < ARRAY_SIZE(members); i++)
		if (needed(v, members[i].name) && !json_member(v, members[i].name))
			return fault_at(t->f, -EINVAL, place(t, members[i].name, field),
				(long)json_offset(v), WHAT_TO_GIVE, "\"%s\" is missing", field);
	if (json_member(v, "file") && json_member(v, "data"))
		return fault_at(t->f, -EINVAL, place(t, "file", field),
			(long)json_offset(json_member(v, "file")), "give one of them",
			"\"data\" and \"file\" are both given in \"inputs[%zu]\"", t->index);
	return 0;
}

static int check_members(const struct tensor_read *t, const struct json_value *v)
{
	const char *names[ARRAY_SIZE(members) + 1] = { NULL };
	char field[PLACE_SIZE], hint[REQUEST_HINT_SIZE];
	int err = check_complete(t, v);

	if (err)
		return err;
	for (size_t i = 0; i < ARRAY_SIZE(members); i++)
		names[i] = members[i].name;
	for (v = json_first(v); v; v = json_next(v)) {
		size_t i = 0;

		while (names[i] && strcmp(names[i], json_key(v)) != 0)
			i++;
		if (!names[i])
			return fault_at(t->f, -EINVAL, place(t, json_key(v), field),
				(long)json_offset(v), WHAT_TO_GIVE,
				"unknown field \"%.60s\" in \"inputs[%zu]\"%s", json_key(v),
				t->index, request_hint(json_key(v), names, hint));
	}
	return 0;
}

static int read_tensor(struct tensor_read *t, const struct json_value *v)
{
	char field[PLACE_SIZE];
	int err;

	if (json_type(v) != JSON_OBJECT) {
		snprintf(field, sizeof field, "inputs[%zu]", t->index);
		return request_must_be(t->f, -EINVAL, field, v, "object");
	}
	err = check_members(t, v);
	for (size_t i = 0; i < ARRAY_SIZE(members) && !err; i++) {
		const struct json_value *m = json_member(v, members[i].name);

		err = m ? members[i].read(t, m) : 0;
	}
	return err;
}

static int check_name_is_new(const struct request *r, const struct tensor_read *t,
	const struct json_value *v)
{
	const char *name = t->tensor->spec.name;
	char field[PLACE_SIZE];

	for (size_t i = 0; i < t->index; i++)
		if (strcmp(r->inputs[i].spec.name, name) == 0)
			return fault_at(t->f, -EINVAL, place(t, "name", field),
				(long)json_offset(json_member(v, "name")), "give each tensor once",
				"\"%s\" repeats the name \"%s\" of \"inputs[%zu]\"", field, name,
				i);
	return 0;
}

int request_read_inputs(struct request_read *r, const char *field, const struct json_value *v)
{
	size_t n = json_type(v) == JSON_ARRAY ? json_count(v) : 0;
	struct tensor_read t = { .f = r->f };

	if (json_type(v) != JSON_ARRAY)
		return request_must_be(r->f, -EINVAL, field, v, "array of objects");
	if (n == 0 || n > REQUEST_MAX_INPUTS)
		return request_not_one_of(r->f, field, v, "array of 1..64 objects");
	r->request->inputs = calloc(n, sizeof *r->request->inputs);
	if (!r->request->inputs)
		return request_no_memory(r->f);
	r->request->n_inputs = n;
	for (v = json_first(v); v; v = json_next(v), t.index++) {
		int err;

		t.tensor = &r->request->inputs[t.index];
		t.done = 0;
		err = read_tensor(&t, v);
		if (!err)
			err = check_name_is_new(r->request, &t, v);
		if (err)
			return err;
	}
	return 0;
}
