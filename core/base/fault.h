/* What went wrong, told to a user: an errno, where, why and what to do. Every check that can refuse
 * something a user gave fills one; it is what .err, .status and health print. The texts are one
 * line of valid UTF-8 and never hold a path of the host, an address or a prompt. */
#ifndef NPUFS_CORE_BASE_FAULT_H
#define NPUFS_CORE_BASE_FAULT_H

#include <stddef.h>

#include "core/base/npu_error.h"

struct fault {
	int err;               /* negative errno; 0 while nothing is wrong */
	enum npu_error device; /* the device's own code; NPU_SUCCESS where it was not the device */
	long offset;           /* byte offset in the request, -1 where it has none */
	char field[48];        /* the request field or manifest member; "" where none */
	char reason[224];
	char action[160];
};

#define FAULT_NONE \
	{ \
		0, NPU_SUCCESS, -1, "", "", "" \
	}

/* Fill `f` (which may be NULL) and return `err`, so that a check is one line:
 *     return fault_set(f, -EINVAL, "give a number", "top_p is %g", p);
 * All texts are sanitised: control characters and bytes that are not UTF-8 become '?'; a text too
 * long for its place is cut between two characters. */
int fault_set(struct fault *f, int err, const char *action, const char *reason_fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* The same with the place: `field` may be NULL, `offset` -1. */
int fault_at(struct fault *f, int err, const char *field, long offset, const char *action,
	const char *reason_fmt, ...) __attribute__((format(printf, 6, 7)));

/* Copy `text` as these functions do: sanitised and cut to fit in `size` bytes with the NUL. */
void fault_clean(char *to, size_t size, const char *text);

/* From the device's code: errno, reason and action come from the table of errors, `what` says
 * during which step. Returns the errno. */
int fault_from_device(struct fault *f, enum npu_error code, const char *what);

/* The symbolic name of an errno ("EINVAL"); takes either sign; "E?" for one without a name. */
const char *fault_errno_name(int err);

/* The entry of `names` (NULL-ended) nearest to `given` by edit distance, or NULL when none is near
 * enough to be a likely slip. */
const char *fault_nearest(const char *given, const char *const *names);

#endif
