/* What the tests of requests share. Include it after cmocka.h. */
#ifndef NPUFS_TESTS_REQUEST_CHECKS_H
#define NPUFS_TESTS_REQUEST_CHECKS_H

#include <string.h>

#include "core/base/utf8.h"
#include "core/job/request.h"

/* The text of a literal, which may hold NUL bytes, and its length. */
#define B(text) text, sizeof(text) - 1

static inline struct request *accepted(const char *json)
{
	struct request *r = NULL;
	struct fault f = FAULT_NONE;

	if (request_from_json(json, strlen(json), &r, &f))
		fail_msg("%s: %s (%s)", json, f.reason, f.field);
	return r;
}

/* Refuses with this errno, names this field, and says `part` in its reason; without a fault it says
 * the same. */
static inline void refused(const char *json, size_t len, int err, const char *field,
	const char *part)
{
	struct request *r = NULL;
	struct fault f = FAULT_NONE;
	int got = request_from_json(json, len, &r, &f);

	if (got != err || f.err != err || strcmp(f.field, field) != 0 || !strstr(f.reason, part) ||
		r)
		fail_msg("%s: %d, field \"%s\": %s", json, got, f.field, f.reason);
	if (utf8_valid_prefix(f.reason, strlen(f.reason)) != strlen(f.reason) || !f.action[0])
		fail_msg("%s: reason or action: %s|%s", json, f.reason, f.action);
	if (f.offset < 0 || (size_t)f.offset > len)
		fail_msg("%s: offset %ld", json, f.offset);
	assert_int_equal(request_from_json(json, len, &r, NULL), err);
}

#endif
