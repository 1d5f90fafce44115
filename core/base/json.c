/* A document is a tree of cJSON. The scanner has passed the text before cJSON sees it, so cJSON can
 * only fail for want of memory. What cJSON does not keep is added by a second walk, over text and
 * tree in step:
 *   - valueint of every node: the offset of its value (cJSON's own use of it is not needed);
 *   - valuestring of a number: its text, where the double is an integer but does not tell the whole
 *     truth, being beyond 2^53 or rounded from a fraction. cJSON_Delete frees it.
 * A number without such a text is exactly its double. Made numbers follow the same rule; made nodes
 * have offset 0 or one of the marks below. Children are linked lists: nothing here indexes them. */
#include "core/base/json.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "core/base/decimal.h"
#include "core/base/utf8.h"

#define MARK_BROKEN (-1) /* a container that lost a child for want of memory */

#define EXACT_LIMIT 9007199254740992.0 /* 2^53: up to here every integer is a double of its own */

static const cJSON *node(const struct json_value *v)
{
	return (const cJSON *)v;
}

static struct json_value *value(cJSON *n)
{
	return (struct json_value *)n;
}

/* --- annotating ------------------------------------------------------------------------------- */

struct key_place {
	const char *key;
	size_t offset;
};

struct walk {
	const char *text, *end, *at;
	struct key_place *keys; /* of all objects now open, the outermost first */
	size_t n_keys, cap_keys;
	struct fault *f;
};

static int annotate(struct walk *w, cJSON *n);

static bool is_blank(char c)
{
	return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* Blanks and strings end before the text does: a bracket or a quote follows them. */
static void skip_blanks(struct walk *w)
{
	while (is_blank(*w->at))
		w->at++;
}

static void skip_string(struct walk *w)
{
	for (w->at++; *w->at != '"'; w->at++)
		if (*w->at == '\\')
			w->at++;
	w->at++;
}

static size_t number_length(const struct walk *w, bool *ret_plain)
{
	const char *p = w->at;

	*ret_plain = true;
	for (; p < w->end; p++) {
		if (*p >= '0' && *p <= '9')
			continue;
		if (*p == '.' || *p == 'e' || *p == 'E' || *p == '+')
			*ret_plain = false;
		else if (*p != '-')
			break;
	}
	return (size_t)(p - w->at);
}

static int annotate_number(struct walk *w, cJSON *n)
{
	char text[JSON_MAX_NUMBER + 1];
	struct decimal exact;
	bool plain;
	size_t len = number_length(w, &plain);
	long at = w->at - w->text;

	memcpy(text, w->at, len);
	text[len] = '\0';
	w->at += len;
	if (plain && len <= 15)
		return 0;
	if (isinf(n->valuedouble))
		return fault_at(w->f, -EINVAL, NULL, at, "write a number of at most 1.79e308",
			"the number %s is too large", text);
	if (floor(n->valuedouble) != n->valuedouble)
		return 0;
	if (fabs(n->valuedouble) < EXACT_LIMIT && decimal_read(text, &exact) == 0)
		return 0;
	n->valuestring = cJSON_malloc(len + 1);
	if (!n->valuestring)
		return -ENOMEM;
	memcpy(n->valuestring, text, len + 1);
	return 0;
}

static int push_key(struct walk *w, const char *key)
{
	if (w->n_keys == w->cap_keys) {
		size_t cap = w->cap_keys ? w->cap_keys * 2 : 32;
		struct key_place *more = realloc(w->keys, cap * sizeof *more);

		if (!more)
			return -ENOMEM;
		w->keys = more;
		w->cap_keys = cap;
	}
	w->keys[w->n_keys++] = (struct key_place){ key, (size_t)(w->at - w->text) };
	return 0;
}

static int compare_keys(const void *a, const void *b)
{
	const struct key_place *x = a, *y = b;
	int order = strcmp(x->key, y->key);

	return order ? order : (x->offset > y->offset) - (x->offset < y->offset);
}

/* The keys from `first` on are those of one object, which is closed now. Sorting puts equal ones
 * side by side; of all repetitions the first in the text is told. */
static int close_object(struct walk *w, size_t first)
{
	struct key_place *keys, *again = NULL;
	size_t n = w->n_keys - first;

	w->n_keys = first;
	if (n < 2)
		return 0;
	keys = w->keys + first;
	qsort(keys, n, sizeof *keys, compare_keys);
	for (size_t i = 1; i < n; i++)
		if (strcmp(keys[i - 1].key, keys[i].key) == 0 &&
			(!again || keys[i].offset < again->offset))
			again = &keys[i];
	if (!again)
		return 0;
	return fault_at(w->f, -EINVAL, again->key, (long)again->offset, "give each key once",
		"the key \"%.60s\" is given twice, at bytes %zu and %zu", again->key,
		again[-1].offset, again->offset);
}

static int annotate_children(struct walk *w, cJSON *n)
{
	bool object = cJSON_IsObject(n);
	size_t first_key = w->n_keys;
	int err = 0;

	w->at++;
	for (cJSON *child = n->child; child && !err; child = child->next) {
		skip_blanks(w);
		if (object) {
			err = push_key(w, child->string);
			skip_string(w);
			skip_blanks(w);
			w->at++;
		}
		if (!err)
			err = annotate(w, child);
		skip_blanks(w);
		if (child->next)
			w->at++;
	}
	if (err)
		return err;
	skip_blanks(w);
	w->at++;
	return object ? close_object(w, first_key) : 0;
}

/* The text is known to be valid and no deeper than JSON_MAX_DEPTH. */
static int annotate(struct walk *w, cJSON *n)
{
	size_t offset;

	skip_blanks(w);
	offset = (size_t)(w->at - w->text);
	n->valueint = offset < INT_MAX ? (int)offset : INT_MAX;
	switch (n->type) {
	case cJSON_Array:
	case cJSON_Object:
		return annotate_children(w, n);
	case cJSON_Number:
		return annotate_number(w, n);
	case cJSON_String:
		skip_string(w);
		return 0;
	default:
		w->at += n->type == cJSON_False ? strlen("false") : strlen("true");
		return 0;
	}
}

/* --- parsing ---------------------------------------------------------------------------------- */

static int no_memory(struct fault *f)
{
	return fault_set(f, -ENOMEM, "try again later", "no memory for a JSON document");
}

static int refuse(const struct json_scanner *s, const char *text, size_t len, struct fault *f)
{
	const char *encoding = s->offset < 4 ? utf8_other_encoding(text, len) : NULL;

	if (encoding)
		return fault_at(f, -EILSEQ, NULL, 0, "write UTF-8", "the text looks like %s",
			encoding);
	if (s->verdict == JSON_INCOMPLETE)
		return fault_at(f, -EINVAL, NULL, (long)len, "complete the JSON text",
			"not whole JSON: %s", s->reason);
	return fault_at(f, s->err, NULL, (long)s->offset,
		s->err == -EILSEQ ? "write UTF-8" : "write JSON as RFC 8259 has it", "not JSON: %s",
		s->reason);
}

/* Bytes of a byte order mark in front. */
static size_t mark_of(const char *text, size_t len)
{
	return len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

int json_parse(const char *text, size_t len, struct json_value **ret, struct fault *f)
{
	size_t mark = mark_of(text, len);
	struct walk w = { .text = text, .end = text + len, .at = text + mark, .f = f };
	struct json_scanner s;
	cJSON *root;
	int err;

	json_scanner_init(&s);
	if (json_scan(&s, text, len) != JSON_COMPLETE)
		return refuse(&s, text, len, f);
	root = cJSON_ParseWithLength(text + mark, len - mark);
	if (!root)
		return no_memory(f);
	err = annotate(&w, root);
	free(w.keys);
	if (err) {
		cJSON_Delete(root);
		return err == -ENOMEM ? no_memory(f) : err;
	}
	*ret = value(root);
	return 0;
}

void json_free(struct json_value *root)
{
	cJSON_Delete((cJSON *)root);
}

int json_compact(const char *text, size_t len, struct buf *out)
{
	size_t run = mark_of(text, len);
	bool quoted = false;
	struct json_scanner s;

	json_scanner_init(&s);
	if (json_scan(&s, text, len) != JSON_COMPLETE)
		return -EINVAL;
	for (size_t i = run; i < len; i++) {
		if (text[i] == '"')
			quoted = !quoted;
		else if (quoted && text[i] == '\\')
			i++;
		else if (!quoted && is_blank(text[i])) {
			buf_put(out, text + run, i - run);
			run = i + 1;
		}
	}
	buf_put(out, text + run, len - run);
	return buf_error(out);
}

/* --- looking ---------------------------------------------------------------------------------- */

enum json_type json_type(const struct json_value *v)
{
	switch (node(v)->type & 0xff) {
	case cJSON_True:
	case cJSON_False:
		return JSON_BOOL;
	case cJSON_Number:
		return JSON_NUMBER;
	case cJSON_String:
		return JSON_STRING;
	case cJSON_Array:
		return JSON_ARRAY;
	case cJSON_Object:
		return JSON_OBJECT;
	case cJSON_Raw:
		return JSON_TEXT;
	default:
		return JSON_NULL;
	}
}

const char *json_type_name(enum json_type type)
{
	static const char *const names[] = {
		[JSON_NULL] = "null",
		[JSON_BOOL] = "true or false",
		[JSON_NUMBER] = "a number",
		[JSON_STRING] = "a string",
		[JSON_ARRAY] = "an array",
		[JSON_OBJECT] = "an object",
		[JSON_TEXT] = "a text of JSON",
	};

	return names[type];
}

size_t json_offset(const struct json_value *v)
{
	return node(v)->valueint > 0 ? (size_t)node(v)->valueint : 0;
}

const char *json_key(const struct json_value *v)
{
	return node(v)->string;
}

const struct json_value *json_member(const struct json_value *object, const char *key)
{
	return value(cJSON_GetObjectItemCaseSensitive(node(object), key));
}

const struct json_value *json_first(const struct json_value *container)
{
	return value(node(container)->child);
}

const struct json_value *json_next(const struct json_value *v)
{
	return value(node(v)->next);
}

size_t json_count(const struct json_value *container)
{
	size_t n = 0;

	for (const cJSON *child = node(container)->child; child; child = child->next)
		n++;
	return n;
}

const char *json_string(const struct json_value *v)
{
	return cJSON_GetStringValue(node(v));
}

const char *json_text(const struct json_value *v)
{
	return node(v)->valuestring;
}

bool json_bool(const struct json_value *v)
{
	return cJSON_IsTrue(node(v));
}

double json_double(const struct json_value *v)
{
	return node(v)->valuedouble;
}

static int integer(const cJSON *n, struct decimal *ret)
{
	double d = n->valuedouble;

	if (!cJSON_IsNumber(n) || floor(d) != d)
		return -EINVAL;
	if (n->valuestring)
		return decimal_read(n->valuestring, ret);
	if (fabs(d) >= 18446744073709551616.0)
		return -ERANGE;
	*ret = (struct decimal){ d < 0, (uint64_t)fabs(d) };
	return 0;
}

int json_int64(const struct json_value *v, int64_t *ret)
{
	struct decimal d;
	int err = integer(node(v), &d);

	if (err)
		return err;
	if (d.magnitude > (uint64_t)INT64_MAX + (d.negative ? 1 : 0))
		return -ERANGE;
	*ret = d.negative ? (int64_t)(0 - d.magnitude) : (int64_t)d.magnitude;
	return 0;
}

int json_uint64(const struct json_value *v, uint64_t *ret)
{
	struct decimal d;
	int err = integer(node(v), &d);

	if (err)
		return err;
	if (d.negative && d.magnitude > 0)
		return -ERANGE;
	*ret = d.magnitude;
	return 0;
}

const char *json_number_text(const struct json_value *v, char ret[JSON_MAX_NUMBER + 1])
{
	const cJSON *n = node(v);

	if (n->valuestring)
		strcpy(ret, n->valuestring);
	else
		decimal_from_double(n->valuedouble, ret);
	return ret;
}

/* --- making ----------------------------------------------------------------------------------- */

/* cJSON fills in valueint on its own. */
static cJSON *marked(cJSON *n, int mark)
{
	if (n)
		n->valueint = mark;
	return n;
}

/* Takes `item`, which is NULL when there was no memory for it. */
static cJSON *attach(struct json_value *to, const char *key, cJSON *item)
{
	cJSON *parent = (cJSON *)to;
	bool added = false;

	assert(!parent || !key == !cJSON_IsObject(parent));
	if (parent && item)
		added = key ? cJSON_AddItemToObject(parent, key, item)
			    : cJSON_AddItemToArray(parent, item);
	if (added)
		return item;
	cJSON_Delete(item);
	marked(parent, MARK_BROKEN);
	return NULL;
}

bool json_broken(const struct json_value *container)
{
	return node(container)->valueint == MARK_BROKEN;
}

struct json_value *json_new_object(void)
{
	return value(cJSON_CreateObject());
}

struct json_value *json_new_array(void)
{
	return value(cJSON_CreateArray());
}

struct json_value *json_add_object(struct json_value *to, const char *key)
{
	return value(attach(to, key, cJSON_CreateObject()));
}

struct json_value *json_add_array(struct json_value *to, const char *key)
{
	return value(attach(to, key, cJSON_CreateArray()));
}

void json_add_string(struct json_value *to, const char *key, const char *text)
{
	attach(to, key, cJSON_CreateString(text));
}

static cJSON *make_integer(bool negative, uint64_t magnitude)
{
	cJSON *n = marked(cJSON_CreateNumber(negative ? -(double)magnitude : (double)magnitude), 0);

	if (!n || magnitude < (uint64_t)EXACT_LIMIT)
		return n;
	n->valuestring = cJSON_malloc(DECIMAL_TEXT_SIZE);
	if (!n->valuestring) {
		cJSON_Delete(n);
		return NULL;
	}
	snprintf(n->valuestring, DECIMAL_TEXT_SIZE, "%s%" PRIu64, negative ? "-" : "", magnitude);
	return n;
}

void json_add_int(struct json_value *to, const char *key, int64_t n)
{
	attach(to, key, make_integer(n < 0, n < 0 ? 0 - (uint64_t)n : (uint64_t)n));
}

void json_add_uint(struct json_value *to, const char *key, uint64_t n)
{
	attach(to, key, make_integer(false, n));
}

void json_add_double(struct json_value *to, const char *key, double d)
{
	attach(to, key, isfinite(d) ? marked(cJSON_CreateNumber(d), 0) : cJSON_CreateNull());
}

void json_add_bool(struct json_value *to, const char *key, bool b)
{
	attach(to, key, cJSON_CreateBool(b));
}

void json_add_null(struct json_value *to, const char *key)
{
	attach(to, key, cJSON_CreateNull());
}

void json_add_text(struct json_value *to, const char *key, const char *text)
{
	attach(to, key, text ? cJSON_CreateRaw(text) : NULL);
}

void json_remove(struct json_value *object, const char *key)
{
	cJSON_DeleteItemFromObjectCaseSensitive((cJSON *)object, key);
}

void json_add_copy(struct json_value *to, const char *key, const struct json_value *v)
{
	attach(to, key, cJSON_Duplicate(node(v), true));
}
