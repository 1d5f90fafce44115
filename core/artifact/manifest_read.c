#include "core/artifact/manifest_read.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/base/mem.h"

#define SPOT_TEXT_MAX 256

static void put_spot(const struct spot *at, char *to, size_t size)
{
	size_t len;

	if (!at->up)
		return;
	put_spot(at->up, to, size);
	len = strlen(to);
	if (at->name)
		snprintf(to + len, size - len, "%s%s", len ? "." : "", at->name);
	else
		snprintf(to + len, size - len, "[%zu]", at->index);
}

int manifest_refuse(const struct spot *at, const struct json_value *v, struct fault *f,
	const char *action, const char *reason_fmt, ...)
{
	char field[SPOT_TEXT_MAX] = "", reason[512];
	const struct spot *root = at;
	va_list ap;

	while (root->up)
		root = root->up;
	put_spot(at, field, sizeof field);
	va_start(ap, reason_fmt);
	vsnprintf(reason, sizeof reason, reason_fmt, ap);
	va_end(ap);
	return fault_at(f, -EINVAL, field, v ? (long)json_offset(v) : -1, action, "%s%s%s: %s",
		root->name, field[0] ? ", " : "", field, reason);
}

/* --- one member ------------------------------------------------------------------------------- */

static int take_text(const struct spot *at, const struct json_value *v,
	const struct member_row *row, void *ret, struct fault *f)
{
	const char *text = json_string(v);
	size_t len = strlen(text);

	if (len < row->low || len > row->high)
		return manifest_refuse(at, v, f, "give a text of the right length",
			"has %zu bytes; must have %" PRIu64 " to %" PRIu64, len, row->low,
			row->high);
	if (row->valid && !row->valid(text))
		return manifest_refuse(at, v, f, "write it in the form that the reason names",
			"must be %s", row->form);
	*(const char **)ret = text;
	return 0;
}

static int take_integer(const struct spot *at, const struct json_value *v,
	const struct member_row *row, void *ret, struct fault *f)
{
	uint64_t n;

	if (json_uint64(v, &n) < 0 || n < row->low || n > row->high)
		return manifest_refuse(at, v, f, "give a number in this range",
			"must be an integer from %" PRIu64 " to %" PRIu64, row->low, row->high);
	if (row->kind == MEMBER_SIZE)
		*(uint64_t *)ret = n;
	else
		*(uint32_t *)ret = (uint32_t)n;
	return 0;
}

static int take_real(const struct spot *at, const struct json_value *v,
	const struct member_row *row, void *ret, struct fault *f)
{
	double d = json_double(v);

	if (!(d >= (double)row->low && d <= (double)row->high))
		return manifest_refuse(at, v, f, "give a number in this range",
			"must be a number from %" PRIu64 " to %" PRIu64, row->low, row->high);
	*(double *)ret = fabs(d); /* not -0 */
	return 0;
}

static int take_array(const struct spot *at, const struct json_value *v,
	const struct member_row *row, void *ret, struct fault *f)
{
	size_t n = json_count(v);

	if (n < row->low || n > row->high)
		return manifest_refuse(at, v, f, "give as many as this",
			"has %zu items; must have %" PRIu64 " to %" PRIu64, n, row->low, row->high);
	*(const struct json_value **)ret = v;
	return 0;
}

static int take_object(const struct spot *at, const struct json_value *v,
	const struct member_row *row, void *ret, struct fault *f)
{
	(void)at;
	(void)row;
	(void)f;
	*(const struct json_value **)ret = v;
	return 0;
}

static const struct {
	enum json_type type;
	int (*take)(const struct spot *at, const struct json_value *v, const struct member_row *row,
		void *ret, struct fault *f);
} kinds[] = {
	[MEMBER_TEXT] = { JSON_STRING, take_text },
	[MEMBER_COUNT] = { JSON_NUMBER, take_integer },
	[MEMBER_SIZE] = { JSON_NUMBER, take_integer },
	[MEMBER_REAL] = { JSON_NUMBER, take_real },
	[MEMBER_ARRAY] = { JSON_ARRAY, take_array },
	[MEMBER_OBJECT] = { JSON_OBJECT, take_object },
};

static int wrong_type(const struct spot *at, const struct json_value *v, enum json_type want,
	struct fault *f)
{
	return manifest_refuse(at, v, f, "give a value of this type", "must be %s, not %s",
		json_type_name(want), json_type_name(json_type(v)));
}

static int take_member(const struct spot *up, const struct json_value *object,
	const struct member_row *row, void *ret, struct fault *f)
{
	const struct json_value *v = json_member(object, row->name);
	const struct spot at = { up, row->name, 0 };

	if (!v && row->optional)
		return 0;
	if (!v)
		return manifest_refuse(&at, object, f, "add it", "is missing");
	if (json_type(v) != kinds[row->kind].type)
		return wrong_type(&at, v, kinds[row->kind].type, f);
	return kinds[row->kind].take(&at, v, row, (char *)ret + row->offset, f);
}

/* --- the object ------------------------------------------------------------------------------- */

static int refuse_unknown(const struct spot *up, const struct json_value *object,
	const struct member_row *rows, size_t n, struct fault *f)
{
	const char *names[MEMBER_ROWS_MAX + 1] = { NULL };

	for (size_t i = 0; i < n; i++)
		names[i] = rows[i].name;
	for (const struct json_value *v = json_first(object); v; v = json_next(v)) {
		const struct spot at = { up, json_key(v), 0 };
		const char *near;
		size_t i = 0;

		while (i < n && strcmp(names[i], json_key(v)) != 0)
			i++;
		if (i < n)
			continue;
		near = fault_nearest(json_key(v), names);
		return manifest_refuse(&at, v, f, "remove it, or write its right name",
			near ? "no such member; did you mean \"%s\"?" : "no such member", near);
	}
	return 0;
}

int manifest_read_object(const struct spot *at, const struct json_value *v,
	const struct member_row *rows, size_t n, void *ret, struct fault *f)
{
	int err;

	if (json_type(v) != JSON_OBJECT)
		return wrong_type(at, v, JSON_OBJECT, f);
	err = refuse_unknown(at, v, rows, n, f);
	for (size_t i = 0; !err && i < n; i++)
		err = take_member(at, v, &rows[i], ret, f);
	return err;
}
