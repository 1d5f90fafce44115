/* What a KServe v2 infer request has beside its inputs: which outputs are wanted, and parameters.
 * The protocol leaves parameters to each server; known here are those that clients send on their
 * own, each with the one value that asks nothing and with what else to do. */
#include "core/job/request_read.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/mem.h"

#define PLACE_SIZE 80

/* --- parameters ------------------------------------------------------------------------------- */

enum harmless { NOTHING, FALSE_ONLY, ZERO_ONLY, NUMBERS_ONLY };

static const char *const harmless_texts[] = {
	[NOTHING] = "null",
	[FALSE_ONLY] = "false",
	[ZERO_ONLY] = "0",
	[NUMBERS_ONLY] = "\"np\"",
};

#define ANYWHERE     (PARAMETER_OF_REQUEST | PARAMETER_OF_INPUT | PARAMETER_OF_OUTPUT)
#define OF_TENSORS   (PARAMETER_OF_INPUT | PARAMETER_OF_OUTPUT)
#define ASK_BYTES    "set \"output\" to \"raw\" or \"npy\""
#define GIVE_BYTES   "give \"data\", or name a \"file\" of the same folder"
#define NO_SEQUENCES "leave it out; each request is on its own"

static const struct parameter {
	const char *name;
	unsigned places;
	enum harmless harmless;
	const char *action;
} parameters[] = {
	{ "binary_data_output", PARAMETER_OF_REQUEST, FALSE_ONLY, ASK_BYTES },
	{ "binary_data", PARAMETER_OF_OUTPUT, FALSE_ONLY, ASK_BYTES },
	{ "binary_data_size", PARAMETER_OF_INPUT, NOTHING, GIVE_BYTES },
	{ "shared_memory_region", OF_TENSORS, NOTHING, GIVE_BYTES },
	{ "shared_memory_offset", OF_TENSORS, NOTHING, GIVE_BYTES },
	{ "shared_memory_byte_size", OF_TENSORS, NOTHING, GIVE_BYTES },
	{ "classification", PARAMETER_OF_OUTPUT, ZERO_ONLY, "leave it out, and sort \"data\"" },
	{ "sequence_id", PARAMETER_OF_REQUEST, ZERO_ONLY, NO_SEQUENCES },
	{ "sequence_start", PARAMETER_OF_REQUEST, FALSE_ONLY, NO_SEQUENCES },
	{ "sequence_end", PARAMETER_OF_REQUEST, FALSE_ONLY, NO_SEQUENCES },
	{ "priority", PARAMETER_OF_REQUEST, ZERO_ONLY, "use the field \"priority\"" },
	{ "timeout", PARAMETER_OF_REQUEST, ZERO_ONLY, "use the field \"deadline_ms\"" },
	{ "content_type", ANYWHERE, NUMBERS_ONLY, "leave it out; data are numbers" },
};

static bool asks_nothing(enum harmless kind, const struct json_value *v)
{
	switch (kind) {
	case FALSE_ONLY:
		return json_type(v) == JSON_BOOL && !json_bool(v);
	case ZERO_ONLY:
		return json_type(v) == JSON_NUMBER && json_double(v) == 0;
	case NUMBERS_ONLY:
		return json_type(v) == JSON_STRING && strcmp(json_string(v), "np") == 0;
	default:
		return false;
	}
}

static int check_parameter(struct fault *f, enum parameter_place place, const char *field,
	const struct json_value *v)
{
	const char *names[ARRAY_SIZE(parameters) + 1] = { NULL };
	char hint[REQUEST_HINT_SIZE];
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(parameters); i++) {
		if (!(parameters[i].places & place))
			continue;
		names[n++] = parameters[i].name;
		if (strcmp(parameters[i].name, json_key(v)) != 0)
			continue;
		if (asks_nothing(parameters[i].harmless, v))
			return 0;
		return request_can_only_be(f, field, v, harmless_texts[parameters[i].harmless],
			parameters[i].action);
	}
	return fault_at(f, -EINVAL, field, (long)json_offset(v), "leave it out",
		"unknown parameter \"%.60s\"%s", json_key(v),
		request_hint(json_key(v), names, hint));
}

int request_check_parameters(struct fault *f, enum parameter_place place, const char *field,
	const struct json_value *v)
{
	char member[PLACE_SIZE];
	int err = 0;

	if (json_type(v) == JSON_NULL)
		return 0;
	if (json_type(v) != JSON_OBJECT)
		return request_must_be(f, -EINVAL, field, v, "object");
	for (v = json_first(v); v && !err; v = json_next(v)) {
		snprintf(member, sizeof member, "%s.%.40s", field, json_key(v));
		if (json_type(v) != JSON_NULL)
			err = check_parameter(f, place, member, v);
	}
	return err;
}

/* --- outputs ---------------------------------------------------------------------------------- */

/* `ret` is where a shape goes. */
static int check_output_member(struct fault *f, size_t index, const struct json_value *v,
	struct tensor_spec *ret)
{
	static const char *const names[] = { "name", "parameters", "shape", NULL };
	char field[PLACE_SIZE], hint[REQUEST_HINT_SIZE];

	snprintf(field, sizeof field, "outputs[%zu].%.40s", index, json_key(v));
	if (strcmp(json_key(v), names[0]) == 0)
		return 0;
	if (strcmp(json_key(v), names[1]) == 0)
		return request_check_parameters(f, PARAMETER_OF_OUTPUT, field, v);
	if (strcmp(json_key(v), names[2]) == 0)
		return request_read_shape(f, field, v, ret);
	return fault_at(f, -EINVAL, field, (long)json_offset(v), "give the name alone",
		"unknown field \"%.60s\" in \"outputs[%zu]\"%s", json_key(v), index,
		request_hint(json_key(v), names, hint));
}

/* The name of one wanted output, not among those before it. */
static int read_output_name(struct fault *f, char **before, size_t index,
	const struct json_value *v, const char **ret)
{
	const struct json_value *name = json_member(v, "name");
	char field[PLACE_SIZE];

	snprintf(field, sizeof field, "outputs[%zu].name", index);
	if (!name)
		return fault_at(f, -EINVAL, field, (long)json_offset(v), "give the output's name",
			"\"%s\" is missing", field);
	if (!json_string(name))
		return request_must_be(f, -EINVAL, field, name, "string");
	for (size_t i = 0; i < index; i++)
		if (strcmp(before[i], json_string(name)) == 0)
			return fault_at(f, -EINVAL, field, (long)json_offset(name),
				"name each output once",
				"\"%s\" repeats the name \"%s\" of \"outputs[%zu]\"", field,
				before[i], i);
	*ret = json_string(name);
	return 0;
}

static int read_output(struct request_read *r, size_t index, const struct json_value *v)
{
	struct tensor_spec *shape = &r->request->output_shapes[index];
	char **outputs = r->request->outputs;
	const char *name = NULL;
	char field[PLACE_SIZE];
	int err = 0;

	shape->rank = REQUEST_NO_SHAPE;
	snprintf(field, sizeof field, "outputs[%zu]", index);
	if (json_type(v) != JSON_OBJECT)
		return request_must_be(r->f, -EINVAL, field, v, "object");
	for (const struct json_value *m = json_first(v); m && !err; m = json_next(m))
		err = check_output_member(r->f, index, m, shape);
	if (!err)
		err = read_output_name(r->f, outputs, index, v, &name);
	if (err)
		return err;
	outputs[index] = strdup(name);
	return outputs[index] ? 0 : request_no_memory(r->f);
}

/* An empty list asks for all, as the protocol's servers have it. */
int request_read_outputs(struct request_read *r, const char *field, const struct json_value *v)
{
	size_t n = json_type(v) == JSON_ARRAY ? json_count(v) : 0, i = 0;
	int err = 0;

	if (json_type(v) != JSON_ARRAY)
		return request_must_be(r->f, -EINVAL, field, v, "array of objects");
	if (n > REQUEST_MAX_OUTPUTS)
		return request_not_one_of(r->f, field, v, "array of at most 64 objects");
	if (n == 0)
		return 0;
	r->request->outputs = calloc(n + 1, sizeof *r->request->outputs);
	r->request->output_shapes = calloc(n, sizeof *r->request->output_shapes);
	if (!r->request->outputs || !r->request->output_shapes)
		return request_no_memory(r->f);
	for (v = json_first(v); v && !err; v = json_next(v))
		err = read_output(r, i++, v);
	return err;
}
