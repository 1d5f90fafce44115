/* The table of fields and a reader for each kind of value. A reader gets the row, so that ranges
 * and places are data; the messages take their words from the row's type. */
#include "core/job/request_read.h"

#include <assert.h>
#include <errno.h>
#include <float.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/artifact/manifest.h"
#include "core/base/mem.h"
#include "core/engine/sessions.h"

struct rule {
	const char *name;
	const char *field; /* what it is another name of; NULL for itself */
	const char *type;
	int (*read)(struct request_read *r, const struct rule *rule, const struct json_value *v);
	size_t place; /* in struct request */
	double low, high;
	const char *action;      /* for others' fields */
	enum answer_shape shape; /* whose it is; ANSWER_OWN: anybody's */
};

/* --- refusals --------------------------------------------------------------------------------- */

static const char *article(const char *type)
{
	if (strncmp(type, "null", 4) == 0 || strncmp(type, "true", 4) == 0)
		return "";
	return strchr("aeiou", type[0]) ? "an " : "a ";
}

int request_must_be(struct fault *f, int err, const char *field, const struct json_value *v,
	const char *type)
{
	char number[JSON_MAX_NUMBER + 1];
	bool is_number = json_type(v) == JSON_NUMBER;

	return fault_at(f, err, field, (long)json_offset(v), "correct the value",
		"\"%s\" is %s, must be %s%s", field,
		is_number ? json_number_text(v, number) : json_type_name(json_type(v)),
		article(type), type);
}

int request_not_one_of(struct fault *f, const char *field, const struct json_value *v,
	const char *type)
{
	return fault_at(f, -EINVAL, field, (long)json_offset(v), "correct the value",
		"\"%s\" must be %s%s", field, article(type), type);
}

int request_can_only_be(struct fault *f, const char *field, const struct json_value *v,
	const char *value, const char *action)
{
	return fault_at(f, -EINVAL, field, (long)json_offset(v), action,
		"\"%s\" can only be %s here", field, value);
}

int request_no_memory(struct fault *f)
{
	return fault_set(f, -ENOMEM, "send it again later", "no memory for the request");
}

static int wrong(struct request_read *r, int err, const struct rule *rule,
	const struct json_value *v)
{
	return request_must_be(r->f, err, rule->name, v, rule->type);
}

/* --- readers ---------------------------------------------------------------------------------- */

static void *place_of(struct request_read *r, const struct rule *rule)
{
	return (char *)r->request + rule->place;
}

static bool in_range(const struct rule *rule, double d)
{
	return d >= rule->low && d <= rule->high;
}

static int read_int64(struct request_read *r, const struct rule *rule, const struct json_value *v)
{
	int64_t n;
	int err = json_int64(v, &n);

	if (err || !in_range(rule, (double)n))
		return wrong(r, err ? err : -ERANGE, rule, v);
	*(int64_t *)place_of(r, rule) = n;
	return 0;
}

static int read_int32(struct request_read *r, const struct rule *rule, const struct json_value *v)
{
	int64_t n;
	int err = json_int64(v, &n);

	if (err || !in_range(rule, (double)n))
		return wrong(r, err ? err : -ERANGE, rule, v);
	*(int32_t *)place_of(r, rule) = (int32_t)n;
	return 0;
}

static int read_seed(struct request_read *r, const struct rule *rule, const struct json_value *v)
{
	int err = json_uint64(v, place_of(r, rule));

	if (err)
		return wrong(r, err, rule, v);
	r->request->seed_given = true;
	return 0;
}

static int read_real(struct request_read *r, const struct rule *rule, const struct json_value *v)
{
	if (json_type(v) != JSON_NUMBER)
		return wrong(r, -EINVAL, rule, v);
	if (!in_range(rule, json_double(v)))
		return wrong(r, -ERANGE, rule, v);
	*(double *)place_of(r, rule) = json_double(v);
	return 0;
}

static int read_temperature(struct request_read *r, const struct rule *rule,
	const struct json_value *v)
{
	int err = read_real(r, rule, v);

	r->request->temperature_given = !err;
	return err;
}

static int read_flag(struct request_read *r, const struct rule *rule, const struct json_value *v)
{
	if (json_type(v) != JSON_BOOL)
		return wrong(r, -EINVAL, rule, v);
	*(bool *)place_of(r, rule) = json_bool(v);
	return 0;
}

static int take_text(struct request_read *r, const struct rule *rule, const char *text)
{
	char **place = place_of(r, rule);
	char *copy = strdup(text);

	if (!copy)
		return request_no_memory(r->f);
	free(*place);
	*place = copy;
	return 0;
}

static int read_model(struct request_read *r, const struct rule *rule, const struct json_value *v)
{
	if (json_type(v) != JSON_STRING)
		return wrong(r, -EINVAL, rule, v);
	if (!alias_valid(json_string(v)))
		return request_not_one_of(r->f, rule->name, v, rule->type);
	return take_text(r, rule, json_string(v));
}

static int read_id(struct request_read *r, const struct rule *rule, const struct json_value *v)
{
	const char *id = json_string(v);
	size_t len;

	if (!id)
		return wrong(r, -EINVAL, rule, v);
	len = strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-");
	if (len == 0 || len > REQUEST_ID_MAX || id[len])
		return request_not_one_of(r->f, rule->name, v, rule->type);
	return take_text(r, rule, id);
}

static int read_output(struct request_read *r, const struct rule *rule, const struct json_value *v)
{
	const char *word = json_string(v);

	if (!word)
		return wrong(r, -EINVAL, rule, v);
	if (!request_take_output(r, word))
		return request_not_one_of(r->f, rule->name, v, rule->type);
	return 0;
}

static int read_tokens(struct request_read *r, const struct rule *rule, const struct json_value *v)
{
	size_t n = json_type(v) == JSON_ARRAY ? json_count(v) : 0, i = 0;
	AUTO_FREE int32_t *tokens = NULL;

	if (json_type(v) != JSON_ARRAY)
		return wrong(r, -EINVAL, rule, v);
	if (n == 0)
		return fault_at(r->f, -EINVAL, rule->name, (long)json_offset(v),
			"give one token at least", "\"%s\" is empty", rule->name);
	tokens = malloc(n * sizeof *tokens);
	if (!tokens)
		return request_no_memory(r->f);
	for (const struct json_value *t = json_first(v); t; t = json_next(t)) {
		char field[48];
		int64_t id;
		int err = json_int64(t, &id);

		if (!err && id >= 0 && id <= INT32_MAX) {
			tokens[i++] = (int32_t)id;
			continue;
		}
		snprintf(field, sizeof field, "%s[%zu]", rule->name, i);
		return request_must_be(r->f, err ? err : -ERANGE, field, t,
			"integer 0..2147483647");
	}
	free(r->request->tokens); /* an array as the prompt may have been before */
	r->request->tokens = take_ptr(tokens);
	r->request->n_tokens = n;
	return 0;
}

/* As in OpenAI's completions it may also be an array: of token ids, or of one string or one such
 * array. */
static int read_prompt(struct request_read *r, const struct rule *rule, const struct json_value *v)
{
	const struct json_value *first = json_type(v) == JSON_ARRAY ? json_first(v) : NULL;
	int err;

	if (first && json_type(first) != JSON_NUMBER && json_next(first))
		return fault_at(r->f, -EINVAL, rule->name, (long)json_offset(json_next(first)),
			"write one request for each prompt", "\"%s\" holds several prompts",
			rule->name);
	if (first && json_type(first) != JSON_NUMBER)
		v = first;
	if (first && json_type(v) == JSON_ARRAY)
		return read_tokens(r, rule, v);
	if (json_type(v) != JSON_STRING)
		return wrong(r, -EINVAL, rule, v);
	if (json_string(v)[0] == '\0')
		return fault_at(r->f, -EINVAL, rule->name, (long)json_offset(v), "write a prompt",
			"the prompt is empty");
	err = take_text(r, rule, json_string(v));
	if (!err)
		r->request->prompt_len = strlen(r->request->prompt);
	return err;
}

static int read_inputs(struct request_read *r, const struct rule *rule, const struct json_value *v)
{
	return request_read_inputs(r, rule->name, v);
}

static int read_outputs(struct request_read *r, const struct rule *rule, const struct json_value *v)
{
	return request_read_outputs(r, rule->name, v);
}

static int read_callable(struct request_read *r, const struct rule *rule,
	const struct json_value *v)
{
	(void)rule;
	return request_read_callable(r, v);
}

static int read_scalars(struct request_read *r, const struct rule *rule, const struct json_value *v)
{
	(void)rule;
	return request_read_scalars(r, v);
}

static int read_graph(struct request_read *r, const struct rule *rule, const struct json_value *v)
{
	return request_read_graph(r, rule->name, v);
}

static int read_parameters(struct request_read *r, const struct rule *rule,
	const struct json_value *v)
{
	return request_check_parameters(r->f, PARAMETER_OF_REQUEST, rule->name, v);
}

static int read_stop(struct request_read *r, const struct rule *rule, const struct json_value *v)
{
	bool array = json_type(v) == JSON_ARRAY;
	size_t n = array ? json_count(v) : 1, i = 0;
	char **stops;

	if (n > REQUEST_MAX_STOPS)
		return request_not_one_of(r->f, rule->name, v, rule->type);
	stops = calloc(n + 1, sizeof *stops);
	if (!stops)
		return request_no_memory(r->f);
	r->request->stops = stops;
	for (const struct json_value *s = array ? json_first(v) : v; i < n; s = json_next(s)) {
		const char *text = json_string(s);

		if (!text)
			return wrong(r, -EINVAL, rule, s);
		if (text[0] == '\0' || strlen(text) > REQUEST_MAX_STOP_BYTES)
			return request_not_one_of(r->f, rule->name, s, rule->type);
		stops[i] = strdup(text);
		if (!stops[i++])
			return request_no_memory(r->f);
	}
	return 0;
}

static int read_session(struct request_read *r, const struct rule *rule, const struct json_value *v)
{
	const char *name = json_string(v);

	if (!name)
		return wrong(r, -EINVAL, rule, v);
	if (!session_name_valid(name))
		return request_not_one_of(r->f, rule->name, v, rule->type);
	return take_text(r, rule, name);
}

static int read_unused_text(struct request_read *r, const struct rule *rule,
	const struct json_value *v)
{
	return json_type(v) == JSON_STRING ? 0 : wrong(r, -EINVAL, rule, v);
}

static int read_only(struct request_read *r, const struct rule *rule, const struct json_value *v)
{
	if (json_type(v) == JSON_NUMBER && in_range(rule, json_double(v)))
		return 0;
	return request_can_only_be(r->f, rule->name, v, rule->type, rule->action);
}

static int read_empty(struct request_read *r, const struct rule *rule, const struct json_value *v)
{
	if (json_type(v) == JSON_OBJECT && !json_first(v))
		return 0;
	return request_can_only_be(r->f, rule->name, v, rule->type, rule->action);
}

static int read_never(struct request_read *r, const struct rule *rule, const struct json_value *v)
{
	return request_can_only_be(r->f, rule->name, v, rule->type, rule->action);
}

/* They shape a stream of events; the usage is in STEM.out whatever they say. */
static int read_stream_options(struct request_read *r, const struct rule *rule,
	const struct json_value *v)
{
	static const char *const names[] = { "include_usage", "include_obfuscation", NULL };
	char hint[REQUEST_HINT_SIZE];

	if (json_type(v) != JSON_OBJECT)
		return wrong(r, -EINVAL, rule, v);
	for (const struct json_value *m = json_first(v); m; m = json_next(m)) {
		if (strcmp(json_key(m), names[0]) != 0 && strcmp(json_key(m), names[1]) != 0)
			return fault_at(r->f, -EINVAL, rule->name, (long)json_offset(m),
				"leave it out", "unknown field \"%.60s\" in \"%s\"%s", json_key(m),
				rule->name, request_hint(json_key(m), names, hint));
		if (json_type(m) != JSON_BOOL && json_type(m) != JSON_NULL)
			return wrong(r, -EINVAL, rule, m);
	}
	return 0;
}

/* --- the table -------------------------------------------------------------------------------- */

static const struct rule rules[] = {
#define FIELD(name, type, reader, member, low, high, doc) \
	{ #name, NULL, type, read_##reader, offsetof(struct request, member), low, high, "", \
		ANSWER_OWN },
#define ALIAS(shape, name, field) { #name, #field, "", NULL, 0, 0, 0, "", shape },
#define FOREIGN(shape, name, type, reader, low, high, action) \
	{ #name, NULL, type, read_##reader, 0, low, high, action, shape },
#include "core/job/request.def"
#undef FIELD
#undef ALIAS
#undef FOREIGN
};

static const struct request_field fields[] = {
#define FIELD(name, type, reader, member, low, high, doc) { #name, type, doc },
#define ALIAS(shape, name, field)
#define FOREIGN(shape, name, type, reader, low, high, action)
#include "core/job/request.def"
#undef FIELD
#undef ALIAS
#undef FOREIGN
};

static_assert(ARRAY_SIZE(rules) <= 64, "request_read.given has a bit for each");

const struct request_field *request_fields(size_t *ret_n)
{
	*ret_n = ARRAY_SIZE(fields);
	return fields;
}

static const struct rule *find_rule(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(rules); i++)
		if (strcmp(rules[i].name, name) == 0)
			return &rules[i];
	return NULL;
}

const char *request_hint(const char *given, const char *const *names, char ret[REQUEST_HINT_SIZE])
{
	const char *near = fault_nearest(given, names);

	ret[0] = '\0';
	if (near)
		snprintf(ret, REQUEST_HINT_SIZE, "; did you mean \"%s\"?", near);
	return ret;
}

static int unknown(struct request_read *r, const struct json_value *v)
{
	const char *names[ARRAY_SIZE(rules) + 1] = { NULL };
	char hint[REQUEST_HINT_SIZE];

	for (size_t i = 0; i < ARRAY_SIZE(rules); i++)
		names[i] = rules[i].name;
	return fault_at(r->f, -EINVAL, json_key(v), (long)json_offset(v),
		"use the fields that models/ALIAS/schema lists", "unknown field \"%.60s\"%s",
		json_key(v), request_hint(json_key(v), names, hint));
}

/* null is as good as leaving the field out: clients write it for what they do not set. */
static int read_member(struct request_read *r, const struct json_value *v)
{
	const struct rule *rule = find_rule(json_key(v)), *field = rule;
	struct rule under_its_name;
	uint64_t bit;

	if (!rule)
		return unknown(r, v);
	r->openai |= rule->shape == ANSWER_OPENAI;
	if (json_type(v) == JSON_NULL)
		return 0;
	if (rule->field)
		field = find_rule(rule->field);
	bit = 1ULL << (field - rules);
	if (r->given & bit)
		return fault_at(r->f, -EINVAL, rule->name, (long)json_offset(v), "give one of them",
			"\"%s\" is given twice, once under another name", field->name);
	r->given |= bit;
	under_its_name = *field;
	under_its_name.name = rule->name; /* messages show what was written */
	return field->read(r, &under_its_name, v);
}

bool request_given(const struct request_read *r, const char *name)
{
	return r->given >> (find_rule(name) - rules) & 1;
}

const struct json_value *request_member(const struct json_value *object, const char *name)
{
	for (const struct json_value *v = json_first(object); v; v = json_next(v)) {
		const struct rule *rule = find_rule(json_key(v));

		if (rule && json_type(v) != JSON_NULL &&
			strcmp(rule->field ? rule->field : rule->name, name) == 0)
			return v;
	}
	return NULL;
}

/* Exactly one of them says what to run; inputs are also what callables are launched on. */
static int check_subject(struct request_read *r, const struct json_value *object)
{
	static const char *const subjects[] = { "prompt", "tokens", "callable", "graph", "inputs" };
	const char *found = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(subjects); i++) {
		bool goes_with = r->request->launches && strcmp(subjects[i], "inputs") == 0;

		if (!request_given(r, subjects[i]) || (found && goes_with))
			continue;
		if (found)
			return fault_at(r->f, -EINVAL, subjects[i],
				(long)json_offset(json_member(object, subjects[i])),
				"give one of them", "\"%s\" and \"%s\" are both given", found,
				subjects[i]);
		found = subjects[i];
	}
	if (found)
		return 0;
	return fault_at(r->f, -EINVAL, "prompt", (long)json_offset(object), "give one of them",
		"none of \"prompt\", \"tokens\", \"inputs\", \"callable\" and \"graph\" is given");
}

int request_read_fields(struct request_read *r, const struct json_value *object)
{
	for (const struct json_value *v = json_first(object); v; v = json_next(v)) {
		int err = read_member(r, v);

		if (err)
			return err;
	}
	return check_subject(r, object);
}
