/* Any text as a plan of faults: refused with a place in it, or rules within the limits. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/utf8.h"
#include "core/fault_plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition) \
	do { \
		if (!(condition)) \
			abort(); \
	} while (0)

static void check_rule(const struct plan_rule *r)
{
	CHECK((unsigned)r->call < PLAN_CALLS);
	CHECK(r->effect > PLAN_NOTHING && r->effect < PLAN_EFFECTS);
	CHECK((unsigned)r->code < NPU_ERROR_COUNT && r->ms <= FAULT_PLAN_MAX_DELAY);
	CHECK(r->from >= 1 && r->from <= r->to);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fault f = FAULT_NONE;
	char *spec = malloc(size + 1);
	struct fault_plan plan = { .n = 0 };
	int err;

	CHECK(spec);
	if (size)
		memcpy(spec, data, size);
	spec[size] = '\0';
	err = fault_plan_parse(spec, &plan, &f);
	CHECK(err == f.err);
	if (err) {
		CHECK(f.reason[0] && f.action[0] && f.offset >= 0 && (size_t)f.offset <= size);
		CHECK(utf8_valid_prefix(f.reason, strlen(f.reason)) == strlen(f.reason));
		CHECK(plan.n == 0);
	}
	CHECK(plan.n <= FAULT_PLAN_MAX_RULES);
	for (size_t i = 0; i < plan.n; i++)
		check_rule(&plan.rules[i]);
	free(spec);
	return 0;
}
