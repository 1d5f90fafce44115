/* What the parts of the request parser share; for request*.c only. */
#ifndef NPUFS_CORE_REQUEST_READ_H
#define NPUFS_CORE_REQUEST_READ_H

#include <stdint.h>

#include "core/request.h"

struct request_read {
	struct request *request;
	struct fault *f;
	uint64_t given; /* bit i: row i of the table, or another name of it */
};

/* Read every member of `object`, in the order of the text, and stop at the first that is wrong. */
int request_read_fields(struct request_read *r, const struct json_value *object);

/* "; did you mean \"NAME\"?" when one of `names` is near, else "". */
#define REQUEST_HINT_SIZE 80
const char *request_hint(const char *given, const char *const *names, char ret[REQUEST_HINT_SIZE]);

/* Refuse `v`: "FIELD" is V, must be a(n) TYPE. V is the number's text or the name of its type.
 * Returns err. */
int request_must_be(struct fault *f, int err, const char *field, const struct json_value *v,
	const char *type);
/* The same without V: for a value of the right type that is not one of those taken. -EINVAL. */
int request_not_one_of(struct fault *f, const char *field, const struct json_value *v,
	const char *type);

int request_no_memory(struct fault *f);

/* `inputs`: an array of tensors. */
int request_read_inputs(struct request_read *r, const char *field, const struct json_value *v);

#endif
