/* Reading JSON objects by a table of their members; for the manifest and for evidence. A member that the table
 * does not have is refused with the nearest name, as is a missing one, a wrong type and a value out
 * of its range. */
#ifndef NPUFS_CORE_ARTIFACT_MANIFEST_READ_H
#define NPUFS_CORE_ARTIFACT_MANIFEST_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/fault.h"
#include "core/base/json.h"

/* Where in the document: a chain of members and indices from the inside out, on the callers'
 * stacks. */
struct spot {
	const struct spot *up; /* NULL at the root */
	const char *name; /* of a member; NULL of an array's item; at the root, of the document */
	size_t index;
};

enum member_kind {
	MEMBER_TEXT,  /* const char *, borrowed */
	MEMBER_COUNT, /* uint32_t */
	MEMBER_SIZE,  /* uint64_t */
	MEMBER_REAL,  /* double */
	MEMBER_ARRAY, /* const struct json_value *, borrowed */
	MEMBER_OBJECT /* likewise */
};

#define MEMBER_ROWS_MAX 16 /* of one object */

struct member_row {
	const char *name;
	enum member_kind kind;
	bool optional;                   /* the place keeps what it had */
	size_t offset;                   /* of the place, in the struct that is filled */
	uint64_t low, high;              /* of a number; of a text's bytes; of an array's items */
	bool (*valid)(const char *text); /* of a text; NULL: any */
	const char *form; /* of a valid text, for the message: "lower-case hex digits" */
};

/* Fill `ret` from the object `v` by its table. 0, -EINVAL or -ENOMEM. */
int manifest_read_object(const struct spot *at, const struct json_value *v,
	const struct member_row *rows, size_t n, void *ret, struct fault *f);

/* -EINVAL, with the spot as the fault's field. `v` may be NULL. */
int manifest_refuse(const struct spot *at, const struct json_value *v, struct fault *f,
	const char *action, const char *reason_fmt, ...) __attribute__((format(printf, 5, 6)));

#endif
