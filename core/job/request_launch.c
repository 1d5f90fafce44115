/* What a request says of resident callables: one launch, or a graph of them. How many tensors and
 * scalars each takes is known only where the callables are. */
#include "core/job/request_read.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/mem.h"
#include "core/callable/limits.h"
#include "core/engine/callables.h"

#define PLACE_SIZE 80

#define CALLABLE_TYPE "name of callables/, or the number of its .id file"
#define SCALARS_TYPE  "array of at most 32 numbers"
#define TENSORS_TYPE  "array of at most 32 names"
#define GRAPH_TYPE    "array of 1..64 objects"

/* One launch as it is read; `prefix` is what its fields are called by. */
struct launch_read {
	struct fault *f;
	struct request_launch *launch;
	char prefix[32];
};

static const char *place(const struct launch_read *l, const char *member, char ret[PLACE_SIZE])
{
	snprintf(ret, PLACE_SIZE, "%s%.40s", l->prefix, member);
	return ret;
}

/* --- members ---------------------------------------------------------------------------------- */

static int read_callable(struct launch_read *l, const struct json_value *v)
{
	const char *name = json_string(v);
	char field[PLACE_SIZE];
	int64_t id = -1;
	int err = name ? 0 : json_int64(v, &id);

	place(l, "callable", field);
	if (err || (!name && (id < 0 || id >= CALLABLE_IDS_MAX)))
		return request_must_be(l->f, err ? err : -ERANGE, field, v, CALLABLE_TYPE);
	if (name && !callables_name_valid(name))
		return request_not_one_of(l->f, field, v, CALLABLE_TYPE);
	l->launch->id = (int32_t)id;
	if (!name)
		return 0;
	l->launch->callable = strdup(name);
	return l->launch->callable ? 0 : request_no_memory(l->f);
}

static int read_scalar(struct launch_read *l, size_t i, const struct json_value *v)
{
	struct request_scalar *s = &l->launch->scalars[i];
	char field[PLACE_SIZE], member[24];

	snprintf(member, sizeof member, "scalars[%zu]", i);
	if (json_type(v) != JSON_NUMBER)
		return request_must_be(l->f, -EINVAL, place(l, member, field), v, "number");
	s->integer = json_int64(v, &s->whole) == 0;
	s->real = json_double(v);
	return 0;
}

static int read_scalars(struct launch_read *l, const struct json_value *v)
{
	size_t n = json_type(v) == JSON_ARRAY ? json_count(v) : 0, i = 0;
	char field[PLACE_SIZE];
	int err = 0;

	if (json_type(v) != JSON_ARRAY)
		return request_must_be(l->f, -EINVAL, place(l, "scalars", field), v, SCALARS_TYPE);
	if (n > CALLABLE_SCALARS_MAX)
		return request_not_one_of(l->f, place(l, "scalars", field), v, SCALARS_TYPE);
	for (v = json_first(v); v && !err; v = json_next(v))
		err = read_scalar(l, i++, v);
	l->launch->n_scalars = (uint32_t)n;
	return err;
}

/* The names of tensors of the request, in the order of the callable's own. */
static int read_tensors(struct launch_read *l, const struct json_value *v)
{
	size_t n = json_type(v) == JSON_ARRAY ? json_count(v) : 0, i = 0;
	char field[PLACE_SIZE];

	place(l, "tensors", field);
	if (json_type(v) != JSON_ARRAY)
		return request_must_be(l->f, -EINVAL, field, v, TENSORS_TYPE);
	if (n > CALLABLE_TENSORS_MAX)
		return request_not_one_of(l->f, field, v, TENSORS_TYPE);
	l->launch->tensors = calloc(n + 1, sizeof *l->launch->tensors);
	if (!l->launch->tensors)
		return request_no_memory(l->f);
	for (v = json_first(v); v; v = json_next(v)) {
		if (!json_string(v))
			return request_must_be(l->f, -EINVAL, field, v, TENSORS_TYPE);
		l->launch->tensors[i] = strdup(json_string(v));
		if (!l->launch->tensors[i++])
			return request_no_memory(l->f);
	}
	return 0;
}

static const struct member {
	const char *name;
	int (*read)(struct launch_read *l, const struct json_value *v);
} members[] = {
	{ "callable", read_callable },
	{ "tensors", read_tensors },
	{ "scalars", read_scalars },
};

static int read_member(struct launch_read *l, const struct json_value *v)
{
	const char *names[ARRAY_SIZE(members) + 1] = { NULL };
	char field[PLACE_SIZE], hint[REQUEST_HINT_SIZE];

	for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
		names[i] = members[i].name;
		if (strcmp(names[i], json_key(v)) == 0)
			return json_type(v) == JSON_NULL ? 0 : members[i].read(l, v);
	}
	return fault_at(l->f, -EINVAL, place(l, json_key(v), field), (long)json_offset(v),
		"give callable, tensors and scalars", "unknown field \"%.60s\" of a launch%s",
		json_key(v), request_hint(json_key(v), names, hint));
}

static int read_launch(struct launch_read *l, const struct json_value *v)
{
	const struct json_value *callable = json_member(v, "callable");
	char field[PLACE_SIZE];
	int err = 0;

	if (json_type(v) != JSON_OBJECT)
		return request_must_be(l->f, -EINVAL, "graph", v, GRAPH_TYPE);
	if (!callable || json_type(callable) == JSON_NULL)
		return fault_at(l->f, -EINVAL, place(l, "callable", field), (long)json_offset(v),
			"name a callable of callables/", "\"%s\" is missing", field);
	for (v = json_first(v); v && !err; v = json_next(v))
		err = read_member(l, v);
	return err;
}

/* --- fields of the request -------------------------------------------------------------------- */

/* `callable` and `scalars` of a request that is one launch itself. */
static int own_launch(struct request_read *r, struct launch_read *ret)
{
	if (!r->request->launches) {
		r->request->launches = calloc(1, sizeof *r->request->launches);
		if (!r->request->launches)
			return request_no_memory(r->f);
		r->request->n_launches = 1;
	}
	*ret = (struct launch_read){ .f = r->f, .launch = &r->request->launches[0] };
	return 0;
}

/* A graph has its launches, in whatever order the fields come: that only one of the two is given is
 * checked with all fields read. */
static int read_own(struct request_read *r, const struct json_value *v,
	int (*read)(struct launch_read *l, const struct json_value *v))
{
	struct launch_read l;
	int err;

	if (r->request->graph)
		return 0;
	err = own_launch(r, &l);
	return err ? err : read(&l, v);
}

int request_read_callable(struct request_read *r, const struct json_value *v)
{
	return read_own(r, v, read_callable);
}

int request_read_scalars(struct request_read *r, const struct json_value *v)
{
	return read_own(r, v, read_scalars);
}

int request_read_graph(struct request_read *r, const char *field, const struct json_value *v)
{
	size_t n = json_type(v) == JSON_ARRAY ? json_count(v) : 0, i = 0;
	struct launch_read l = { .f = r->f };
	int err = 0;

	if (json_type(v) != JSON_ARRAY)
		return request_must_be(r->f, -EINVAL, field, v, GRAPH_TYPE);
	if (n == 0 || n > REQUEST_MAX_LAUNCHES)
		return request_not_one_of(r->f, field, v, GRAPH_TYPE);
	request_free_launches(r->request);
	r->request->launches = calloc(n, sizeof *r->request->launches);
	if (!r->request->launches)
		return request_no_memory(r->f);
	r->request->n_launches = n;
	r->request->graph = true;
	for (v = json_first(v); v && !err; v = json_next(v), i++) {
		snprintf(l.prefix, sizeof l.prefix, "graph[%zu].", i);
		l.launch = &r->request->launches[i];
		err = read_launch(&l, v);
	}
	return err;
}

void request_free_launches(struct request *r)
{
	for (size_t i = 0; i < r->n_launches; i++) {
		free(r->launches[i].callable);
		request_free_texts(r->launches[i].tensors);
	}
	free(r->launches);
	r->launches = NULL;
	r->n_launches = 0;
}
