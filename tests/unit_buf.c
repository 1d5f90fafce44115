#include "core/base/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>

static void buf_text__nothing_appended__is_empty_string(void **state)
{
	struct buf b = BUF_INIT;

	(void)state;
	assert_string_equal(buf_text(&b), "");
	assert_int_equal(buf_error(&b), 0);
	buf_done(&b);
}

static void buf_put__pieces__are_joined_and_ended(void **state)
{
	AUTO_BUF struct buf b = BUF_INIT;

	(void)state;
	buf_put(&b, "abc", 3);
	buf_put(&b, "", 0);
	buf_put(&b, "\0d", 2);
	buf_puts(&b, "ef");
	assert_int_equal(b.len, 7);
	assert_memory_equal(b.data, "abc\0def", 8);
}

static void buf_put__byte_by_byte__keeps_all(void **state)
{
	AUTO_BUF struct buf b = BUF_INIT;

	(void)state;
	for (int i = 0; i < 100000; i++)
		buf_put(&b, &"0123456789"[i % 10], 1);
	assert_int_equal(b.len, 100000);
	assert_int_equal(strlen(buf_text(&b)), 100000);
	assert_int_equal(buf_text(&b)[99999], '9');
	assert_int_equal(buf_text(&b)[54321], '1');
}

static void buf_printf__longer_than_room__is_whole(void **state)
{
	AUTO_BUF struct buf b = BUF_INIT;

	(void)state;
	buf_printf(&b, "%d,", 7);
	buf_printf(&b, "%s|%0200d|%s", "x", 5, "y");
	assert_int_equal(b.len, 2 + 1 + 1 + 200 + 1 + 1);
	assert_memory_equal(buf_text(&b), "7,x|000", 7);
	assert_string_equal(buf_text(&b) + b.len - 4, "05|y");
}

/* 63 characters and the NUL just fit the first 64 bytes; 64 do not. */
static void buf_printf__at_edge_of_room__is_whole(void **state)
{
	(void)state;
	for (int width = 60; width <= 66; width++) {
		AUTO_BUF struct buf b = BUF_INIT;

		buf_puts(&b, "");
		buf_printf(&b, "%0*d", width, 1);
		assert_int_equal(b.len, width);
		assert_int_equal(strlen(buf_text(&b)), width);
		assert_int_equal(buf_text(&b)[width - 1], '1');
	}
}

static void buf_room__filled_by_caller__is_appended(void **state)
{
	AUTO_BUF struct buf b = BUF_INIT;
	char *to;

	(void)state;
	buf_puts(&b, "a");
	to = buf_room(&b, 1000);
	assert_non_null(to);
	memset(to, 'z', 1000);
	b.len += 1000;
	assert_int_equal(strlen(buf_text(&b)), 1001);
}

static void buf_reset__after_text__is_empty_and_reusable(void **state)
{
	AUTO_BUF struct buf b = BUF_INIT;
	char *storage;

	(void)state;
	buf_puts(&b, "hello");
	storage = b.data;
	buf_reset(&b);
	assert_string_equal(buf_text(&b), "");
	assert_int_equal(b.len, 0);
	buf_puts(&b, "hi");
	assert_string_equal(buf_text(&b), "hi");
	assert_ptr_equal(b.data, storage);
}

static void buf_room__impossible_size__fails_and_stays_failed(void **state)
{
	AUTO_BUF struct buf b = BUF_INIT;

	(void)state;
	buf_puts(&b, "kept");
	assert_null(buf_room(&b, SIZE_MAX));
	assert_int_equal(buf_error(&b), -ENOMEM);
	buf_puts(&b, "lost");
	buf_printf(&b, "%d", 1);
	assert_string_equal(buf_text(&b), "kept");
	assert_int_equal(b.len, 4);
	buf_reset(&b);
	assert_int_equal(buf_error(&b), 0);
	buf_puts(&b, "again");
	assert_string_equal(buf_text(&b), "again");
}

static void buf_room__size_that_wraps_with_len__fails(void **state)
{
	AUTO_BUF struct buf b = BUF_INIT;

	(void)state;
	buf_puts(&b, "ab");
	assert_null(buf_room(&b, SIZE_MAX - 2));
	assert_int_equal(buf_error(&b), -ENOMEM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(buf_text__nothing_appended__is_empty_string),
		cmocka_unit_test(buf_put__pieces__are_joined_and_ended),
		cmocka_unit_test(buf_put__byte_by_byte__keeps_all),
		cmocka_unit_test(buf_printf__longer_than_room__is_whole),
		cmocka_unit_test(buf_printf__at_edge_of_room__is_whole),
		cmocka_unit_test(buf_room__filled_by_caller__is_appended),
		cmocka_unit_test(buf_reset__after_text__is_empty_and_reusable),
		cmocka_unit_test(buf_room__impossible_size__fails_and_stays_failed),
		cmocka_unit_test(buf_room__size_that_wraps_with_len__fails),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
