/* The renderer of cJSON is not used: it prints doubles within a tolerance, and knows nothing of
 * numbers that are kept as text. Pretty: two blanks a level, and an array that holds no container
 * in one line. */
#include "core/base/json.h"

#include <errno.h>
#include <string.h>

#include "core/base/mem.h"

static int render(const struct json_value *v, bool pretty, unsigned level, struct buf *out);

/* The letter after the backslash, 0 for none: `u` for those without a short form. */
static char escape_of(unsigned char c)
{
	static const char letters[] = "uuuuuuuubtnufruuuuuuuuuuuuuuuuuu";

	if (c < 0x20)
		return letters[c];
	return c == '"' || c == '\\' ? (char)c : '\0';
}

static void render_string(const char *text, struct buf *out)
{
	const char *run = text;

	buf_put(out, "\"", 1);
	for (; *text; text++) {
		char escape = escape_of((unsigned char)*text);

		if (!escape)
			continue;
		buf_put(out, run, (size_t)(text - run));
		if (escape == 'u')
			buf_printf(out, "\\u%04x", (unsigned)(unsigned char)*text);
		else
			buf_put(out, (char[]){ '\\', escape }, 2);
		run = text + 1;
	}
	buf_put(out, run, (size_t)(text - run));
	buf_put(out, "\"", 1);
}

static bool is_container(const struct json_value *v)
{
	return json_type(v) == JSON_ARRAY || json_type(v) == JSON_OBJECT;
}

/* Whether the members of `v` get a line each. */
static bool spreads(const struct json_value *v)
{
	const struct json_value *child = json_first(v);

	if (json_type(v) == JSON_OBJECT)
		return child != NULL;
	while (child && !is_container(child))
		child = json_next(child);
	return child != NULL;
}

static void new_line(unsigned level, struct buf *out)
{
	buf_put(out, "\n", 1);
	while (level-- > 0)
		buf_put(out, "  ", 2);
}

static int render_container(const struct json_value *v, bool pretty, unsigned level,
	struct buf *out)
{
	bool object = json_type(v) == JSON_OBJECT, lines = pretty && spreads(v);
	const struct json_value *child;

	if (json_broken(v))
		return -ENOMEM;
	buf_put(out, object ? "{" : "[", 1);
	for (child = json_first(v); child; child = json_next(child)) {
		int err;

		if (lines)
			new_line(level + 1, out);
		if (object) {
			render_string(json_key(child), out);
			buf_put(out, ": ", pretty ? 2 : 1);
		}
		err = render(child, pretty, level + 1, out);
		if (err)
			return err;
		if (json_next(child))
			buf_put(out, ", ", pretty && !lines ? 2 : 1);
	}
	if (lines)
		new_line(level, out);
	buf_put(out, object ? "}" : "]", 1);
	return 0;
}

static int render(const struct json_value *v, bool pretty, unsigned level, struct buf *out)
{
	char number[JSON_MAX_NUMBER + 1];

	switch (json_type(v)) {
	case JSON_NULL:
		buf_puts(out, "null");
		return 0;
	case JSON_BOOL:
		buf_puts(out, json_bool(v) ? "true" : "false");
		return 0;
	case JSON_NUMBER:
		buf_puts(out, json_number_text(v, number));
		return 0;
	case JSON_STRING:
		render_string(json_string(v), out);
		return 0;
	case JSON_TEXT:
		buf_puts(out, json_text(v));
		return 0;
	default:
		return render_container(v, pretty, level, out);
	}
}

int json_render(const struct json_value *v, bool pretty, struct buf *out)
{
	int err = v ? render(v, pretty, 0, out) : -ENOMEM;

	if (err)
		return err;
	if (pretty)
		buf_put(out, "\n", 1);
	return buf_error(out);
}
