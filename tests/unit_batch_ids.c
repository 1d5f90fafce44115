/* The ids of a batch: each found again with its first line, in bounded memory. */
#include "core/job/batch_ids.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

static uint32_t add(struct batch_ids *s, const char *id, uint32_t line)
{
	uint32_t earlier = UINT32_MAX;

	assert_int_equal(batch_ids_add(s, id, line, &earlier), 0);
	return earlier;
}

static void add__again__the_first_line(void **state)
{
	struct batch_ids s;

	(void)state;
	assert_int_equal(batch_ids_init(&s), 0);
	assert_int_equal(batch_ids_bytes(&s), 0);
	assert_int_equal(add(&s, "a", 3), 0);
	assert_int_equal(add(&s, "A", 4), 0);
	assert_int_equal(add(&s, "a ", 5), 0);
	assert_int_equal(add(&s, "a", 6), 3);
	assert_int_equal(add(&s, "a", 7), 3);
	assert_int_equal(add(&s, "a ", 8), 5);
	batch_ids_done(&s);
}

static void add__longest_ids__told_apart_by_the_last_byte(void **state)
{
	char id[BATCH_ID_MAX + 1];
	struct batch_ids s;

	(void)state;
	memset(id, 'x', BATCH_ID_MAX);
	id[BATCH_ID_MAX] = '\0';
	assert_int_equal(batch_ids_init(&s), 0);
	assert_int_equal(add(&s, id, 1), 0);
	id[BATCH_ID_MAX - 1] = 'y';
	assert_int_equal(add(&s, id, 2), 0);
	id[BATCH_ID_MAX - 1] = 'x';
	assert_int_equal(add(&s, id, 3), 1);
	batch_ids_done(&s);
}

static void add__100000_ids__all_found_in_less_than_4_mib(void **state)
{
	struct batch_ids s;
	char id[32];

	(void)state;
	assert_int_equal(batch_ids_init(&s), 0);
	for (uint32_t i = 1; i <= 100000; i++) {
		snprintf(id, sizeof id, "request-%u", i);
		assert_int_equal(add(&s, id, i), 0);
	}
	assert_true(batch_ids_bytes(&s) < 4u << 20);
	for (uint32_t i = 1; i <= 100000; i++) {
		snprintf(id, sizeof id, "request-%u", i);
		assert_int_equal(add(&s, id, 200000), i);
	}
	batch_ids_done(&s);
	assert_int_equal(batch_ids_bytes(&s), 0);
}

static void init__twice__keys_differ(void **state)
{
	struct batch_ids a, b;

	(void)state;
	assert_int_equal(batch_ids_init(&a), 0);
	assert_int_equal(batch_ids_init(&b), 0);
	assert_memory_not_equal(a.key, b.key, sizeof a.key);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(add__again__the_first_line),
		cmocka_unit_test(add__longest_ids__told_apart_by_the_last_byte),
		cmocka_unit_test(add__100000_ids__all_found_in_less_than_4_mib),
		cmocka_unit_test(init__twice__keys_differ),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
