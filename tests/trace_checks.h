/* A trace's JSON, read back and held to the format: every event has its fields, times rise, and what
 * is on one line nests. */
#ifndef NPUFS_TESTS_TRACE_CHECKS_H
#define NPUFS_TESTS_TRACE_CHECKS_H

#include "core/engine/trace.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/json.h"

#define TRACE_DOC_MAX 1024

struct trace_row {
	char name[24], engine[8], error[32];
	int64_t begin, end, pid, model;
	uint64_t tid, job, tokens, thread;
};

struct trace_doc {
	struct buf text;
	struct trace_row rows[TRACE_DOC_MAX];
	size_t n, n_names;
	uint64_t events, dropped;
	char ended_by[8];
};

static inline const struct json_value *trace_field(const struct json_value *o, const char *key,
	enum json_type type)
{
	const struct json_value *v = json_member(o, key);

	if (!v || json_type(v) != type)
		fail_msg("%s is missing, or of the wrong type", key);
	return v;
}

static inline uint64_t trace_uint(const struct json_value *o, const char *key)
{
	uint64_t n = 0;

	assert_int_equal(json_uint64(trace_field(o, key, JSON_NUMBER), &n), 0);
	return n;
}

static inline int64_t trace_int(const struct json_value *o, const char *key)
{
	int64_t n = 0;

	assert_int_equal(json_int64(trace_field(o, key, JSON_NUMBER), &n), 0);
	return n;
}

static inline int64_t trace_ns(const struct json_value *o, const char *key)
{
	return llround(json_double(trace_field(o, key, JSON_NUMBER)) * 1000);
}

static inline void trace_text(const struct json_value *o, const char *key, char *ret, size_t size)
{
	const char *text = json_string(trace_field(o, key, JSON_STRING));

	assert_true(strlen(text) < size);
	strcpy(ret, text);
}

static inline void trace_read_event(const struct json_value *e, struct trace_row *ret)
{
	const struct json_value *args = trace_field(e, "args", JSON_OBJECT);

	assert_string_equal(json_string(trace_field(e, "cat", JSON_STRING)), "npufs");
	trace_text(e, "name", ret->name, sizeof ret->name);
	ret->begin = trace_ns(e, "ts");
	ret->end = ret->begin + trace_ns(e, "dur");
	ret->pid = trace_int(e, "pid");
	ret->tid = trace_uint(e, "tid");
	ret->job = trace_uint(args, "job");
	ret->model = trace_int(args, "model");
	ret->tokens = trace_uint(args, "tokens");
	ret->thread = trace_uint(args, "thread");
	trace_text(args, "engine", ret->engine, sizeof ret->engine);
	trace_text(args, "error", ret->error, sizeof ret->error);
}

static inline void trace_read_name(const struct json_value *e)
{
	const char *name = json_string(trace_field(e, "name", JSON_STRING));

	assert_true(strcmp(name, "process_name") == 0 || strcmp(name, "thread_name") == 0);
	trace_ns(e, "ts");
	trace_int(e, "pid");
	trace_uint(e, "tid");
	trace_field(trace_field(e, "args", JSON_OBJECT), "name", JSON_STRING);
}

static inline void trace_read_all(struct trace_doc *d, const struct json_value *root)
{
	const struct json_value *e = json_first(trace_field(root, "traceEvents", JSON_ARRAY));
	const struct json_value *meta = trace_field(root, "metadata", JSON_OBJECT);

	for (; e; e = json_next(e)) {
		const char *ph = json_string(trace_field(e, "ph", JSON_STRING));

		if (strcmp(ph, "M") == 0) {
			trace_read_name(e);
			d->n_names++;
			continue;
		}
		assert_string_equal(ph, "X");
		assert_true(d->n < TRACE_DOC_MAX);
		trace_read_event(e, &d->rows[d->n++]);
	}
	d->events = trace_uint(meta, "events");
	d->dropped = trace_uint(meta, "dropped");
	trace_text(meta, "ended_by", d->ended_by, sizeof d->ended_by);
	assert_string_equal(json_string(trace_field(meta, "clock", JSON_STRING)),
		"CLOCK_MONOTONIC");
}

/* Two of one line: the later one begins behind the other's end, or ends before it. */
static inline void trace_check_nesting(const struct trace_doc *d)
{
	for (size_t i = 0; i < d->n; i++) {
		const struct trace_row *a = &d->rows[i];

		assert_true(a->end >= a->begin);
		assert_true(i == 0 || a->begin >= d->rows[i - 1].begin);
		for (size_t k = i + 1; k < d->n; k++) {
			const struct trace_row *b = &d->rows[k];

			if (a->pid != b->pid || a->tid != b->tid)
				continue;
			if (b->begin < a->end && b->end > a->end)
				fail_msg("%s and %s overlap", a->name, b->name);
		}
	}
}

/* Render the last trace and check it whole. */
static inline void trace_read(struct trace_doc *d)
{
	struct json_value *root = NULL;
	struct fault f = FAULT_NONE;

	memset(d, 0, sizeof *d);
	assert_int_equal(trace_render(&d->text), 0);
	if (json_parse(buf_text(&d->text), d->text.len, &root, &f))
		fail_msg("%s", f.reason);
	trace_read_all(d, root);
	json_free(root);
	assert_int_equal(d->events, d->n);
	assert_true(d->n_names >= 6); /* three processes, three engines */
}

static inline void trace_doc_done(struct trace_doc *d)
{
	buf_done(&d->text);
}

/* The first of that name from `from` on; fails without one. */
static inline size_t trace_find(const struct trace_doc *d, size_t from, const char *name)
{
	for (size_t i = from; i < d->n; i++)
		if (strcmp(d->rows[i].name, name) == 0)
			return i;
	fail_msg("no %s", name);
	return 0;
}

#endif
