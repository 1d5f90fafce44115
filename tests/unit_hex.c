/* Hexadecimal digits, both ways. */
#include "core/base/hex.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#include "core/base/mem.h"

static void put__every_byte__two_digits_and_back(void **state)
{
	char text[3];
	uint8_t byte, back;

	(void)state;
	for (int i = 0; i < 256; i++) {
		byte = (uint8_t)i;
		hex_put(&byte, 1, text);
		assert_int_equal(strlen(text), 2);
		assert_true(hex_get(text, &back, 1));
		assert_int_equal(back, i);
	}
	hex_put((const uint8_t[]){ 0x00, 0x9a, 0xff }, 1, text);
	assert_string_equal(text, "00");
}

static void get__not_such_digits__false(void **state)
{
	static const char *const bad[] = { "", "0", "0g", "g0", "0A", "A0", " 0", "0 ", "0x" };
	uint8_t byte;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (hex_get(bad[i], &byte, 1))
			fail_msg("\"%s\" is taken", bad[i]);
	assert_true(hex_get("a0 and more", &byte, 1));
	assert_int_equal(byte, 0xa0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(put__every_byte__two_digits_and_back),
		cmocka_unit_test(get__not_such_digits__false),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
