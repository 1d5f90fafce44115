#include "core/spool.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static void check(struct spool_file *f, const char *want, size_t n)
{
	char got[64];

	assert_int_equal(spool_file_size(f), n);
	assert_int_equal(spool_file_read(f, 0, got, sizeof got), n);
	assert_memory_equal(got, want, n);
}

static int up(void **state)
{
	*state = spool_file_new();
	return *state ? 0 : -1;
}

static int down(void **state)
{
	spool_file_free(*state);
	return 0;
}

static void read__empty__nothing(void **state)
{
	char c;

	assert_int_equal(spool_file_size(*state), 0);
	assert_int_equal(spool_file_read(*state, 0, &c, 1), 0);
	assert_int_equal(spool_file_read(*state, UINT64_MAX, &c, 1), 0);
	spool_file_free(NULL);
}

static void write__append_overwrite_hole__as_a_file(void **state)
{
	assert_int_equal(spool_file_write(*state, 0, "hello", 5), 0);
	check(*state, "hello", 5);
	assert_int_equal(spool_file_write(*state, 1, "EL", 2), 0);
	check(*state, "hELlo", 5);
	assert_int_equal(spool_file_write(*state, 3, "XYZ", 3), 0);
	check(*state, "hELXYZ", 6);
	assert_int_equal(spool_file_write(*state, 8, "!", 1), 0);
	check(*state, "hELXYZ\0\0!", 9);
}

static void truncate__shorter_and_longer__zeros_not_old_bytes(void **state)
{
	spool_file_write(*state, 0, "secret", 6);
	assert_int_equal(spool_file_truncate(*state, 2), 0);
	check(*state, "se", 2);
	assert_int_equal(spool_file_truncate(*state, 6), 0);
	check(*state, "se\0\0\0\0", 6);
	assert_int_equal(spool_file_truncate(*state, 0), 0);
	check(*state, "", 0);
	assert_int_equal(spool_file_write(*state, 2, "x", 1), 0);
	check(*state, "\0\0x", 3);
}

static void read__part__only_that(void **state)
{
	char got[3] = "...";

	spool_file_write(*state, 0, "abcdef", 6);
	assert_int_equal(spool_file_read(*state, 4, got, 3), 2);
	assert_memory_equal(got, "ef.", 3);
}

static void freeze__later_writes__blob_unchanged(void **state)
{
	struct blob *a, *b, *c;

	spool_file_write(*state, 0, "one", 3);
	a = spool_file_freeze(*state);
	b = spool_file_freeze(*state);
	assert_ptr_equal(a, b); /* shared while nothing is written */
	check(*state, "one", 3);
	spool_file_write(*state, 0, "T", 1);
	spool_file_write(*state, 3, "!", 1);
	check(*state, "Tne!", 4);
	c = spool_file_freeze(*state);
	spool_file_truncate(*state, 0);
	check(*state, "", 0);
	assert_int_equal(blob_len(a), 3);
	assert_string_equal(blob_bytes(a), "one");
	assert_string_equal(blob_bytes(c), "Tne!");
	blob_put(a);
	blob_put(b);
	blob_put(c);
}

static void freeze__empty__empty_blob(void **state)
{
	struct blob *a = spool_file_freeze(*state);

	assert_non_null(a);
	assert_int_equal(blob_len(a), 0);
	assert_string_equal(blob_bytes(a), "");
	blob_put(a);
	assert_int_equal(blob_len(NULL), 0);
	assert_string_equal(blob_bytes(NULL), "");
	blob_put(NULL);
	assert_null(blob_get(NULL));
}

static void write__random__same_as_an_array(void **state)
{
	static char model[5000], bytes[100], got[5000];
	size_t size = 0;

	srand(3);
	for (int step = 0; step < 3000; step++) {
		size_t at = (size_t)(rand() % 4900), n = (size_t)(rand() % 100);

		for (size_t i = 0; i < n; i++)
			bytes[i] = (char)rand();
		if (step % 10 == 9) {
			spool_file_truncate(*state, at);
			if (at > size)
				memset(model + size, 0, at - size);
			size = at;
		} else if (step % 10 == 5) {
			blob_put(spool_file_freeze(*state));
		} else if (n) {
			assert_int_equal(spool_file_write(*state, at, bytes, n), 0);
			if (at > size)
				memset(model + size, 0, at - size);
			memcpy(model + at, bytes, n);
			size = at + n > size ? at + n : size;
		}
		assert_int_equal(spool_file_size(*state), size);
		assert_int_equal(spool_file_read(*state, 0, got, sizeof got), size);
		assert_memory_equal(got, model, size);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(read__empty__nothing, up, down),
		cmocka_unit_test_setup_teardown(write__append_overwrite_hole__as_a_file, up, down),
		cmocka_unit_test_setup_teardown(truncate__shorter_and_longer__zeros_not_old_bytes,
			up, down),
		cmocka_unit_test_setup_teardown(read__part__only_that, up, down),
		cmocka_unit_test_setup_teardown(freeze__later_writes__blob_unchanged, up, down),
		cmocka_unit_test_setup_teardown(freeze__empty__empty_blob, up, down),
		cmocka_unit_test_setup_teardown(write__random__same_as_an_array, up, down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
