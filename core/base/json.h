/* Strict JSON over cJSON (json.c is the only file that includes it): UTF-8 without NUL, depth at
 * most JSON_MAX_DEPTH, no duplicate keys, no trailing bytes, numbers by the grammar of RFC 8259 and
 * finite, integers of 64 bits exact. A byte order mark at the start and CRLF are accepted; \u0000
 * and half a surrogate pair are not. Numbers are read and printed by strtod and printf: the C
 * locale is assumed. */
#ifndef NPUFS_CORE_BASE_JSON_H
#define NPUFS_CORE_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/fault.h"

#define JSON_MAX_DEPTH  64
#define JSON_MAX_NUMBER 63 /* bytes of one number; cJSON reads no further */

enum json_type {
	JSON_NULL,
	JSON_BOOL,
	JSON_NUMBER,
	JSON_STRING,
	JSON_ARRAY,
	JSON_OBJECT,
	JSON_TEXT, /* made by json_add_text(): it cannot be looked into */
};

struct json_value; /* borrowed from its document */

/* --- scanning bytes as they come -------------------------------------------------------------- */

enum json_verdict { JSON_INCOMPLETE, JSON_COMPLETE, JSON_HOPELESS };

/* A validator that can be fed in pieces of any size; fixed size, no allocation. Keys are not
 * compared here and numbers not converted (json_parse does that). COMPLETE: a whole value and at
 * most white space after it. Once HOPELESS it stays so. */
struct json_scanner {
	uint64_t offset; /* bytes taken so far; at the fault when hopeless */
	enum json_verdict verdict;
	int err;            /* when hopeless: -EILSEQ for bytes that are not UTF-8, else -EINVAL */
	const char *reason; /* static text: what is wrong when hopeless, open when incomplete */
	/* private */
	unsigned char state, depth;
	bool in_key;
	uint64_t in_object; /* bit d: the container at depth d + 1 is an object */
	uint64_t number_start;
};

void json_scanner_init(struct json_scanner *s);
enum json_verdict json_scan(struct json_scanner *s, const char *bytes, size_t n);

/* --- documents -------------------------------------------------------------------------------- */

/* Parse a whole document. On failure returns -EINVAL (-EILSEQ for bytes that are not UTF-8,
 * -ENOMEM) and fills `f` with offset and reason; UTF-16 and UTF-32 are named. Free the root with
 * json_free(). */
int json_parse(const char *text, size_t len, struct json_value **ret, struct fault *f);
void json_free(struct json_value *root); /* NULL is fine */

/* Append a whole document without the white space between its tokens; no tree is made. -ENOMEM, or
 * -EINVAL with nothing appended when it is none. */
int json_compact(const char *text, size_t len, struct buf *out);

enum json_type json_type(const struct json_value *v);
const char *json_type_name(enum json_type type);  /* "a string", "an object", ... */
size_t json_offset(const struct json_value *v);   /* of its first byte in the parsed text */
const char *json_key(const struct json_value *v); /* NULL outside objects */

const struct json_value *json_member(const struct json_value *object,
	const char *key); /* or NULL */
const struct json_value *json_first(const struct json_value *container);
const struct json_value *json_next(const struct json_value *v);
size_t json_count(const struct json_value *container);

const char *json_string(const struct json_value *v); /* NULL when not a string; never holds a NUL */
const char *json_text(const struct json_value *v);   /* of a JSON_TEXT */
bool json_bool(const struct json_value *v);
double json_double(const struct json_value *v); /* of a number */
/* As it was written when that is more than a double holds, else the shortest that reads back. */
const char *json_number_text(const struct json_value *v, char ret[JSON_MAX_NUMBER + 1]);
/* An integer, exact: "1.0" and "1e3" are 1 and 1000; -ERANGE outside the type, -EINVAL not
 * integral. */
int json_int64(const struct json_value *v, int64_t *ret);
int json_uint64(const struct json_value *v, uint64_t *ret);

/* --- making ----------------------------------------------------------------------------------- */

struct json_value *json_new_object(void);
struct json_value *json_new_array(void);
/* Append to an object (key) or an array (key NULL). A failed allocation makes json_render fail.
 * Strings must be UTF-8. A double that is not finite becomes null. */
struct json_value *json_add_object(struct json_value *to, const char *key);
struct json_value *json_add_array(struct json_value *to, const char *key);
void json_add_string(struct json_value *to, const char *key, const char *text);
void json_add_int(struct json_value *to, const char *key, int64_t n);
void json_add_uint(struct json_value *to, const char *key, uint64_t n);
void json_add_double(struct json_value *to, const char *key, double d);
void json_add_bool(struct json_value *to, const char *key, bool b);
void json_add_null(struct json_value *to, const char *key);
/* `text` is one JSON value, which is put out as it stands: many numbers need no tree of values. NULL is
 * a failed allocation. */
void json_add_text(struct json_value *to, const char *key, const char *text);
/* Drop the member `key` of an object, made or parsed; nothing when there is none. */
void json_remove(struct json_value *object, const char *key);
/* A deep copy of `v` under `key`. */
void json_add_copy(struct json_value *to, const char *key, const struct json_value *v);

/* Whether an addition to this very object or array failed. */
bool json_broken(const struct json_value *container);

/* Append the text of `v` and, when pretty, a final newline. 0 or -ENOMEM (also
 * when `v` is NULL or an addition to it failed). */
int json_render(const struct json_value *v, bool pretty, struct buf *out);

#endif
