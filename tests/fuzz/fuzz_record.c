/* Any bytes as the head of a spool file: refused, or values that are written again to a part which
 * reads as the same. The check over the lines would keep nearly all inputs out, so it is put right
 * where the input begins with a 'c', which is left off. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/spool/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition) \
	do { \
		if (!(condition)) \
			abort(); \
	} while (0)

/* The text up to its NUL or end, with the check that it should have. */
static void put_check_right(char *part, size_t room)
{
	uint64_t h = 14695981039346656037ULL;
	size_t n = strnlen(part, room);

	for (size_t i = 0; i < n; i++)
		h = (h ^ (unsigned char)part[i]) * 1099511628211ULL;
	snprintf(part + n, room - n, "check: %016llx\n", (unsigned long long)h);
}

/* A block of its own of exactly the part's size: a byte too far is seen. */
static char *part_of(const uint8_t *data, size_t size, size_t part_size)
{
	char *part = calloc(1, part_size);
	bool right = size && data[0] == 'c';

	CHECK(part);
	data += right;
	size -= right;
	memcpy(part, data, size < part_size - 32 ? size : part_size - 32);
	if (right)
		put_check_right(part, part_size);
	return part;
}

static void try_node(const uint8_t *data, size_t size)
{
	char *part = part_of(data, size, RECORD_NODE_SIZE), again[RECORD_NODE_SIZE] = "";
	char thrice[RECORD_NODE_SIZE] = "";
	struct record_node n, back;

	if (record_get_node(part, &n)) {
		CHECK(strnlen(n.name, sizeof n.name) < sizeof n.name);
		CHECK(record_put_node(&n, again) <= sizeof again);
		CHECK(record_get_node(again, &back));
		record_put_node(&back, thrice);
		CHECK(strcmp(again, thrice) == 0);
	}
	free(part);
}

static void try_run(const uint8_t *data, size_t size)
{
	char *part = part_of(data, size, RECORD_RUN_SIZE), again[RECORD_RUN_SIZE] = "";
	char thrice[RECORD_RUN_SIZE] = "";
	struct record_run r, back;

	if (record_get_run(part, &r)) {
		CHECK((unsigned)r.view.state < JOB_STATE_COUNT && r.view.finish_reason);
		CHECK(record_put_run(&r, again) <= sizeof again);
		CHECK(record_get_run(again, &back));
		record_put_run(&back, thrice);
		CHECK(strcmp(again, thrice) == 0);
	}
	free(part);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	try_node(data, size);
	try_run(data, size);
	return 0;
}
