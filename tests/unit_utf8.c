/* The sequences are those of Unicode's table 3-7 and of Kuhn's list of malformed ones. */
#include "core/base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

struct sample {
	const char *text;
	size_t len, valid, unfinished;
};

static void check(const struct sample *s, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (utf8_valid_prefix(s[i].text, s[i].len) != s[i].valid ||
			utf8_unfinished_tail(s[i].text, s[i].len) != s[i].unfinished)
			fail_msg("sample %zu: valid %zu, unfinished %zu", i,
				utf8_valid_prefix(s[i].text, s[i].len),
				utf8_unfinished_tail(s[i].text, s[i].len));
	}
}

#define S(text, valid, unfinished) \
	{ \
		text, sizeof(text) - 1, valid, unfinished \
	}

static void utf8_valid_prefix__well_formed__is_whole(void **state)
{
	static const struct sample samples[] = {
		S("", 0, 0),
		S("plain ASCII of more than sixteen bytes\n", 39, 0),
		S("a\0b", 3, 0),
		S("\x7f", 1, 0),
		S("\xc2\x80", 2, 0),         /* U+0080 */
		S("\xdf\xbf", 2, 0),         /* U+07FF */
		S("\xe0\xa0\x80", 3, 0),     /* U+0800 */
		S("\xed\x9f\xbf", 3, 0),     /* U+D7FF */
		S("\xee\x80\x80", 3, 0),     /* U+E000 */
		S("\xef\xbf\xbf", 3, 0),     /* U+FFFF */
		S("\xf0\x90\x80\x80", 4, 0), /* U+10000 */
		S("\xf4\x8f\xbf\xbf", 4, 0), /* U+10FFFF */
		S("12345678\xc3\xa9"
		  "12345678\xe2\x82\xac",
			21, 0),
	};

	(void)state;
	check(samples, sizeof samples / sizeof samples[0]);
}

static void utf8_valid_prefix__ill_formed__ends_before_it(void **state)
{
	static const struct sample samples[] = {
		S("a\x80", 1, 0), /* a lone continuation */
		S("ab\xff", 2, 0),
		S("\xfe\xfe", 0, 0),
		S("\xc0\xaf", 0, 0), /* '/' overlong */
		S("\xc1\xbf", 0, 0),
		S("\xe0\x80\xaf", 0, 0),
		S("\xe0\x9f\xbf", 0, 0),
		S("\xf0\x80\x80\xaf", 0, 0),
		S("\xf0\x8f\xbf\xbf", 0, 0),
		S("\xed\xa0\x80", 0, 0),     /* U+D800 */
		S("\xed\xbf\xbf", 0, 0),     /* U+DFFF */
		S("\xf4\x90\x80\x80", 0, 0), /* U+110000 */
		S("\xf5\x80\x80\x80", 0, 0),
		S("\xf8\x88\x80\x80\x80", 0, 0), /* five bytes */
		S("x\xc3(", 1, 0),
		S("x\xe2\x82(", 1, 0),
		S("x\xf0\x9f\x98(", 1, 0),
		S("12345678abc\xc3", 11, 1),
	};

	(void)state;
	check(samples, sizeof samples / sizeof samples[0]);
}

static void utf8_unfinished_tail__cut_character__is_counted(void **state)
{
	static const struct sample samples[] = {
		S("\xc3", 0, 1), S("\xe2", 0, 1), S("a\xe2\x82", 1, 2), S("a\xf0\x9f", 1, 2),
		S("a\xf0\x9f\x98", 1, 3), S("\xf4\x8f\xbf", 0, 3), S("\xe0\xa0", 0, 2),
		S("\xe0\x80", 0, 0), /* can never become a character */
		S("\xed\xa0", 0, 0), S("\xf4\x90", 0, 0), S("\xf0\x8f", 0, 0),
		S("\x80\x80\x80", 0, 0), S("\xc3\xa9\xc3", 2, 1),
		S("\xff\xc3", 0, 1), /* only the end is looked at */
	};

	(void)state;
	check(samples, sizeof samples / sizeof samples[0]);
}

/* Every code point, encoded here by the definition, is accepted; surrogates are not. */
static void utf8_valid_prefix__every_code_point__accepted_but_surrogates(void **state)
{
	(void)state;
	for (uint32_t c = 0x800; c <= 0x10ffff; c++) {
		char four[4] = { (char)(0xf0 | c >> 18), (char)(0x80 | (c >> 12 & 63)),
			(char)(0x80 | (c >> 6 & 63)), (char)(0x80 | (c & 63)) };
		char three[3] = { (char)(0xe0 | c >> 12), (char)(0x80 | (c >> 6 & 63)),
			(char)(0x80 | (c & 63)) };
		size_t len = c < 0x10000 ? 3 : 4;
		size_t want = c >= 0xd800 && c <= 0xdfff ? 0 : len;

		if (utf8_valid_prefix(c < 0x10000 ? three : four, len) != want)
			fail_msg("U+%04X", c);
	}
}

static void utf8_other_encoding__marks_and_zero_bytes__named(void **state)
{
	(void)state;
	assert_string_equal(utf8_other_encoding("\xff\xfe{\0", 4), "UTF-16");
	assert_string_equal(utf8_other_encoding("\xfe\xff\0{", 4), "UTF-16");
	assert_string_equal(utf8_other_encoding("\xff\xfe\0\0", 4), "UTF-32");
	assert_string_equal(utf8_other_encoding("\0\0\xfe\xff", 4), "UTF-32");
	assert_string_equal(utf8_other_encoding("{\0\"\0", 4), "UTF-16");
	assert_string_equal(utf8_other_encoding("\0{\0\"", 4), "UTF-16");
	assert_string_equal(utf8_other_encoding("{\0\0\0", 4), "UTF-32");
	assert_string_equal(utf8_other_encoding("\0\0\0{", 4), "UTF-32");
	assert_null(utf8_other_encoding("", 0));
	assert_null(utf8_other_encoding("{", 1));
	assert_null(utf8_other_encoding("\xef\xbb\xbf{", 4));
	assert_null(utf8_other_encoding("ab\0c", 4));
	assert_null(utf8_other_encoding("xyz", 3));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(utf8_valid_prefix__well_formed__is_whole),
		cmocka_unit_test(utf8_valid_prefix__ill_formed__ends_before_it),
		cmocka_unit_test(utf8_unfinished_tail__cut_character__is_counted),
		cmocka_unit_test(utf8_valid_prefix__every_code_point__accepted_but_surrogates),
		cmocka_unit_test(utf8_other_encoding__marks_and_zero_bytes__named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
