#include "core/base/decimal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <float.h>
#include <stdlib.h>
#include <string.h>

static void check(const char *text, bool negative, uint64_t magnitude)
{
	struct decimal d = { 0 };
	int err = decimal_read(text, &d);

	if (err || d.negative != negative || d.magnitude != magnitude)
		fail_msg("%s: err %d, %c%llu", text, err, d.negative ? '-' : '+',
			(unsigned long long)d.magnitude);
}

static void decimal_read__integers_in_any_form__exact(void **state)
{
	(void)state;
	check("0", false, 0);
	check("-0", true, 0);
	check("7,", false, 7);
	check("-12]", true, 12);
	check("1.0", false, 1);
	check("1e3", false, 1000);
	check("1E+3", false, 1000);
	check("1.500e2", false, 150);
	check("100e-2", false, 1);
	check("0.001e3", false, 1);
	check("10.10e1", false, 101);
	check("1000000000000000000000000000000e-30", false, 1);
	check("0e999999999999999999999", false, 0);
	check("0.000e-999999999999999999999", false, 0);
	check("9007199254740993", false, 9007199254740993ULL);
	check("9007199254740993.000", false, 9007199254740993ULL);
	check("9.007199254740993e15", false, 9007199254740993ULL);
	check("18446744073709551615", false, UINT64_MAX);
	check("-18446744073709551615", true, UINT64_MAX);
	check("1844674407370955161500000e-5", false, UINT64_MAX);
}

static void decimal_read__fractions__refused(void **state)
{
	static const char *const texts[] = { "1.5", "0.1", "-0.5", "1e-1", "15e-1",
		"1.00000000000000000000000001", "123456789012345678901234567890.5",
		"1e-999999999999999999999", "100e-3", "1.23e1" };
	struct decimal d;

	(void)state;
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
		if (decimal_read(texts[i], &d) != -EINVAL)
			fail_msg("%s", texts[i]);
}

static void decimal_read__too_large__refused(void **state)
{
	static const char *const texts[] = { "18446744073709551616", "-18446744073709551616",
		"1e20", "99999999999999999999999999999999999999", "1e999999999999999999999",
		"1.8446744073709551616e19", "184467440737095516160e-1" };
	struct decimal d;

	(void)state;
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
		if (decimal_read(texts[i], &d) != -ERANGE)
			fail_msg("%s", texts[i]);
}

static void decimal_from_double__known_numbers__fewest_digits(void **state)
{
	char text[DECIMAL_TEXT_SIZE];

	(void)state;
	assert_string_equal(decimal_from_double(0, text), "0");
	assert_string_equal(decimal_from_double(-3, text), "-3");
	assert_string_equal(decimal_from_double(0.1, text), "0.1");
	assert_string_equal(decimal_from_double(1e15, text), "1000000000000000");
	assert_string_equal(decimal_from_double(9007199254740991.0, text), "9007199254740991");
	assert_string_equal(decimal_from_double(0.1 + 0.2, text), "0.30000000000000004");
	assert_string_equal(decimal_from_double(1.0 / 3, text), "0.3333333333333333");
	assert_string_equal(decimal_from_double(1e300, text), "1e+300");
	assert_string_equal(decimal_from_double(5e-324, text), "4.94065645841247e-324");
	assert_string_equal(decimal_from_double(-DBL_MAX, text), "-1.7976931348623157e+308");
}

static void decimal_from_float__known_numbers__fewest_digits(void **state)
{
	char text[DECIMAL_TEXT_SIZE];

	(void)state;
	assert_string_equal(decimal_from_float(0.1f, text), "0.1");
	assert_string_equal(decimal_from_float(-2.0f, text), "-2");
	assert_string_equal(decimal_from_float(1.0f / 3, text), "0.33333334");
	assert_string_equal(decimal_from_float(16777215.0f, text), "16777215");
	assert_string_equal(decimal_from_float(FLT_MAX, text), "3.4028235e+38");
}

static void decimal_from_both__random_bits__read_back(void **state)
{
	uint64_t x = 88172645463325252ULL;
	char text[DECIMAL_TEXT_SIZE];

	(void)state;
	for (int i = 0; i < 200000; i++) {
		uint32_t low;
		double d;
		float f;

		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		low = (uint32_t)x;
		memcpy(&d, &x, sizeof d);
		memcpy(&f, &low, sizeof f);
		if (d - d == 0 && strtod(decimal_from_double(d, text), NULL) != d)
			fail_msg("double %a: %s", d, text);
		if (f - f == 0 && strtof(decimal_from_float(f, text), NULL) != f)
			fail_msg("float %a: %s", (double)f, text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(decimal_read__integers_in_any_form__exact),
		cmocka_unit_test(decimal_read__fractions__refused),
		cmocka_unit_test(decimal_read__too_large__refused),
		cmocka_unit_test(decimal_from_double__known_numbers__fewest_digits),
		cmocka_unit_test(decimal_from_float__known_numbers__fewest_digits),
		cmocka_unit_test(decimal_from_both__random_bits__read_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
