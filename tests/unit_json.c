#include "core/base/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct bytes {
	const char *text;
	size_t len;
};

#define B(text) \
	{ \
		text, sizeof(text) - 1 \
	}

static struct json_value *parsed(const char *text)
{
	struct json_value *v = NULL;
	struct fault f = FAULT_NONE;

	if (json_parse(text, strlen(text), &v, &f))
		fail_msg("%s: %s at %ld", text, f.reason, f.offset);
	return v;
}

/* The scanner's verdict on all of it, fed in pieces of one size. */
static enum json_verdict scanned(const char *text, size_t len, size_t piece, struct json_scanner *s)
{
	json_scanner_init(s);
	for (size_t at = 0; at < len; at += piece)
		json_scan(s, text + at, len - at < piece ? len - at : piece);
	return s->verdict;
}

/* --- well-formedness -------------------------------------------------------------------------- */

static const struct bytes accepted[] = {
	B("null"), B("true"), B("false"), B("0"), B("-0"), B("-0.0"), B("12"), B("1e3"), B("1E+3"),
	B("1e-3"), B("-1.25e+10"), B("\"\""), B("[]"), B("{}"), B(" \t\r\n [ 1 , 2 ] \r\n "),
	B("{\"a\":1,\"b\":[true,false,null,{\"c\":\"d\"}]}"),
	B("\xef\xbb\xbf{\"model\":\"m\",\r\n\"prompt\":\"x\"}\r\n"),
	B("\xef\xbb\xbf"
	  "1"),
	B("\"\\\"\\\\\\/"
	  "\\b\\f\\n\\r\\t\\u00e9\\uD83D\\uDE00\\u0001\\u0100\\uDBFF\\uDFFF\\ud7ff\\uE000\""),
	B("\"\x7f\xc2\x80\xe0\xa0\x80\xed\x9f\xbf\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\""),
	B("123456789012345678901234567890123456789012345678901234567890123"), /* 63 digits */
};

static const struct {
	struct bytes text;
	long offset;
	int err;
} refused[] = {
	{ B("tru3"), 3, -EINVAL },
	{ B("True"), 0, -EINVAL },
	{ B("nul "), 3, -EINVAL },
	{ B("NaN"), 0, -EINVAL },
	{ B("nan"), 1, -EINVAL },
	{ B("Infinity"), 0, -EINVAL },
	{ B("-Infinity"), 1, -EINVAL },
	{ B("01"), 1, -EINVAL },
	{ B("-01"), 2, -EINVAL },
	{ B(".5"), 0, -EINVAL },
	{ B("5.]"), 2, -EINVAL },
	{ B("[5.]"), 3, -EINVAL },
	{ B("0x10"), 1, -EINVAL },
	{ B("+1"), 0, -EINVAL },
	{ B("1e}"), 2, -EINVAL },
	{ B("1..2"), 2, -EINVAL },
	{ B("1e+e"), 3, -EINVAL },
	{ B("1 2"), 2, -EINVAL },
	{ B("{} {}"), 3, -EINVAL },
	{ B("[1,]"), 3, -EINVAL },
	{ B("[,1]"), 1, -EINVAL },
	{ B("{\"a\":1,}"), 7, -EINVAL },
	{ B("{\"a\"}"), 4, -EINVAL },
	{ B("{\"a\":}"), 5, -EINVAL },
	{ B("{a:1}"), 1, -EINVAL },
	{ B("{'a':1}"), 1, -EINVAL },
	{ B("['a']"), 1, -EINVAL },
	{ B("{\"a\" 1}"), 5, -EINVAL },
	{ B("{1:2}"), 1, -EINVAL },
	{ B("[1 2]"), 3, -EINVAL },
	{ B("[1}"), 2, -EINVAL },
	{ B("{\"a\":1]"), 6, -EINVAL },
	{ B("]"), 0, -EINVAL },
	{ B("1]"), 1, -EINVAL },
	{ B("1,"), 1, -EINVAL },
	{ B("// c\n1"), 0, -EINVAL },
	{ B("1 /* c */"), 2, -EINVAL },
	{ B("\"a\nb\""), 2, -EINVAL },
	{ B("\"a\tb\""), 2, -EINVAL },
	{ B("\"\x1f\""), 1, -EINVAL },
	{ B("\"\\x41\""), 2, -EINVAL },
	{ B("\"\\u12g4\""), 5, -EINVAL },
	{ B("\"\\u123\""), 6, -EINVAL },
	{ B("\"\\u0000\""), 6, -EINVAL },
	{ B("\"a\0b\""), 2, -EINVAL },
	{ B("[1]\0"), 3, -EINVAL },
	{ B("\"\\ud800\""), 7, -EINVAL },
	{ B("\"\\udc00\""), 4, -EINVAL },
	{ B("\"\\ud800\\u0041\""), 9, -EINVAL },
	{ B("\"\\ud800\\ud800\""), 10, -EINVAL },
	{ B("\"\\ud800x\""), 7, -EINVAL },
	{ B("\"\\uDFFF\""), 4, -EINVAL },
	{ B("\"a\xff\""), 2, -EILSEQ },
	{ B("\"\xc3(\""), 2, -EILSEQ },
	{ B("\"\xc0\xaf\""), 1, -EILSEQ },
	{ B("\"\xe0\x80\x80\""), 2, -EILSEQ },
	{ B("\"\xed\xa0\x80\""), 2, -EILSEQ },
	{ B("\"\xf0\x8f\xbf\xbf\""), 2, -EILSEQ },
	{ B("\"\xf4\x90\x80\x80\""), 2, -EILSEQ },
	{ B("\"\xc3\""), 2, -EILSEQ },
	{ B("\"\x80\""), 1, -EILSEQ },
	{ B("{\"a\xff\":1}"), 3, -EILSEQ },
	{ B("[\xff]"), 1, -EILSEQ },
	{ B("{\"model\":\"m\",\"prompt\":\"a\xff\xc3"
	    "b\"}"),
		24, -EILSEQ },
	{ B("\xef\xbb"
	    "1"),
		2, -EINVAL },
	{ B("\xef\xbb\xbf\xef\xbb\xbf"
	    "1"),
		3, -EINVAL },
	{ B("1\xef\xbb\xbf"), 1, -EINVAL },
	{ B("[1234567890123456789012345678901234567890123456789012345678901234]"), 1, -EINVAL },
};

static const struct bytes cut[] = {
	B(""),
	B("  "),
	B("\xef\xbb\xbf"),
	B("\xef\xbb"),
	B("{"),
	B("["),
	B("[1"),
	B("[1,"),
	B("{\"a"),
	B("{\"a\""),
	B("{\"a\":"),
	B("{\"a\":1"),
	B("{\"a\":1,"),
	B("\"abc"),
	B("\"abc\\"),
	B("\"\\u12"),
	B("\"\\ud83d"),
	B("\"\\ud83d\\"),
	B("tr"),
	B("nul"),
	B("-"),
	B("1."),
	B("1e"),
	B("1e+"),
	B("\"\xc3"),
	B("\"\xf0\x9f\x98"),
	B("[[[[]]]"),
};

static void json_scan__every_piece_size__same_verdict(void **state)
{
	struct json_scanner s;

	(void)state;
	for (size_t piece = 1; piece < 20; piece++) {
		for (size_t i = 0; i < sizeof accepted / sizeof accepted[0]; i++)
			if (scanned(accepted[i].text, accepted[i].len, piece, &s) != JSON_COMPLETE)
				fail_msg("%s in pieces of %zu: %s", accepted[i].text, piece,
					s.reason);
		for (size_t i = 0; i < sizeof cut / sizeof cut[0]; i++)
			if (scanned(cut[i].text, cut[i].len, piece, &s) != JSON_INCOMPLETE ||
				!s.reason)
				fail_msg("%s in pieces of %zu: %d", cut[i].text, piece, s.verdict);
		for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
			if (scanned(refused[i].text.text, refused[i].text.len, piece, &s) !=
					JSON_HOPELESS ||
				(long)s.offset != refused[i].offset || s.err != refused[i].err ||
				!s.reason)
				fail_msg("%s in pieces of %zu: verdict %d, err %d at %llu",
					refused[i].text.text, piece, s.verdict, s.err,
					(unsigned long long)s.offset);
	}
}

static void json_parse__well_formed__parsed(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof accepted / sizeof accepted[0]; i++) {
		struct json_value *v = NULL;
		struct fault f = FAULT_NONE;

		if (json_parse(accepted[i].text, accepted[i].len, &v, &f))
			fail_msg("%s: %s", accepted[i].text, f.reason);
		json_free(v);
	}
}

static void json_parse__ill_formed__refused_with_place(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
		struct json_value *v = NULL;
		struct fault f = FAULT_NONE;
		int err = json_parse(refused[i].text.text, refused[i].text.len, &v, &f);

		if (err != refused[i].err || f.err != err || f.offset != refused[i].offset ||
			!f.reason[0] || v)
			fail_msg("%s: err %d at %ld: %s", refused[i].text.text, err, f.offset,
				f.reason);
	}
}

static void json_parse__cut_anywhere__refused_as_not_whole(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof cut / sizeof cut[0]; i++) {
		struct json_value *v = NULL;
		struct fault f = FAULT_NONE;

		assert_int_equal(json_parse(cut[i].text, cut[i].len, &v, &f), -EINVAL);
		assert_int_equal(f.offset, cut[i].len);
		assert_non_null(strstr(f.reason, "not whole"));
	}
}

static void json_scan__hopeless__stays_so(void **state)
{
	struct json_scanner s;

	(void)state;
	json_scanner_init(&s);
	assert_int_equal(json_scan(&s, "[1,]", 4), JSON_HOPELESS);
	assert_int_equal(json_scan(&s, " 1]", 3), JSON_HOPELESS);
	assert_int_equal(s.offset, 3);
	assert_string_equal(s.reason, "a comma before the closing bracket");
	json_scanner_init(&s);
	assert_int_equal(json_scan(&s, "\xff", 1), JSON_HOPELESS);
	assert_int_equal(json_scan(&s, "{}", 2), JSON_HOPELESS);
	assert_int_equal(s.offset, 0);
}

static void json_scan__number_at_top__complete_yet_may_go_on(void **state)
{
	struct json_scanner s;

	(void)state;
	json_scanner_init(&s);
	assert_int_equal(json_scan(&s, "12", 2), JSON_COMPLETE);
	assert_null(s.reason);
	assert_int_equal(json_scan(&s, ".", 1), JSON_INCOMPLETE);
	assert_int_equal(json_scan(&s, "5", 1), JSON_COMPLETE);
	assert_int_equal(json_scan(&s, "\n", 1), JSON_COMPLETE);
	assert_int_equal(json_scan(&s, "5", 1), JSON_HOPELESS);
	assert_int_equal(s.offset, 5);
}

static void json_parse__other_encodings__named(void **state)
{
	static const struct {
		struct bytes text;
		const char *name;
	} rows[] = {
		{ B("\xff\xfe{\0"), "UTF-16" },
		{ B("\xfe\xff\0{"), "UTF-16" },
		{ B("{\0}\0"), "UTF-16" },
		{ B("\0{\0}"), "UTF-16" },
		{ B("\xff\xfe\0\0{\0\0\0"), "UTF-32" },
		{ B("{\0\0\0}\0\0\0"), "UTF-32" },
		{ B("\0\0\0{"), "UTF-32" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct json_value *v = NULL;
		struct fault f = FAULT_NONE;
		char want[64];

		snprintf(want, sizeof want, "the text looks like %s", rows[i].name);
		assert_int_equal(json_parse(rows[i].text.text, rows[i].text.len, &v, &f), -EILSEQ);
		assert_string_equal(f.reason, want);
	}
}

/* --- depth and size --------------------------------------------------------------------------- */

static void json_parse__depth_64__parsed_and_65_refused(void **state)
{
	char text[2 * 65 + 1];
	struct json_value *v = NULL;
	struct fault f = FAULT_NONE;

	(void)state;
	memset(text, '[', 65);
	memset(text + 65, ']', 65);
	assert_int_equal(json_parse(text + 1, 128, &v, &f), 0);
	json_free(v);
	v = NULL;
	assert_int_equal(json_parse(text, 130, &v, &f), -EINVAL);
	assert_int_equal(f.offset, 64);
	assert_non_null(strstr(f.reason, "nesting deeper than 64"));
}

static void json_parse__nesting_bombs__refused_early(void **state)
{
	size_t n = 2000000;
	char *text = malloc(n);
	struct json_value *v = NULL;
	struct fault f = FAULT_NONE;

	(void)state;
	assert_non_null(text);
	memset(text, '[', n);
	assert_int_equal(json_parse(text, n, &v, &f), -EINVAL);
	assert_int_equal(f.offset, 64);
	for (size_t i = 0; i + 5 <= n; i += 5)
		memcpy(text + i, "{\"a\":", 5);
	assert_int_equal(json_parse(text, n, &v, &f), -EINVAL);
	assert_int_equal(f.offset, 64 * 5);
	free(text);
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Generous limits: a quadratic walk over these takes minutes. */
static void json_parse__huge_array_and_object__in_linear_time(void **state)
{
	AUTO_BUF struct buf b = BUF_INIT;
	struct json_value *v = NULL;
	struct fault f = FAULT_NONE;
	double start = seconds();

	(void)state;
	buf_puts(&b, "{\"n\":[0");
	for (int i = 1; i < 300000; i++)
		buf_printf(&b, ",%d", i);
	buf_puts(&b, "],\"o\":{\"k0\":0");
	for (int i = 1; i < 200000; i++)
		buf_printf(&b, ",\"k%d\":%d", i, i);
	buf_puts(&b, "}}");
	assert_int_equal(json_parse(buf_text(&b), b.len, &v, &f), 0);
	assert_int_equal(json_count(json_member(v, "n")), 300000);
	assert_int_equal(json_count(json_member(v, "o")), 200000);
	json_free(v);
	assert_true(seconds() - start < 10);
}

/* --- keys ------------------------------------------------------------------------------------- */

static void json_parse__repeated_key__refused_with_both_places(void **state)
{
	struct json_value *v = NULL;
	struct fault f = FAULT_NONE;
	const char *text = "{\"z\":1, \"seed\":1, \"a\":{\"seed\":2}, \"seed\":3, \"z\":4}";
	const char *escaped = "[{\"a\":1,\"\\u0061\":2}]";

	(void)state;
	assert_int_equal(json_parse(text, strlen(text), &v, &f), -EINVAL);
	assert_string_equal(f.field, "seed");
	assert_int_equal(f.offset, 34);
	assert_string_equal(f.reason, "the key \"seed\" is given twice, at bytes 8 and 34");
	assert_int_equal(json_parse(escaped, strlen(escaped), &v, &f), -EINVAL);
	assert_string_equal(f.reason, "the key \"a\" is given twice, at bytes 2 and 8");
}

static void json_parse__same_key_in_other_objects_or_case__accepted(void **state)
{
	struct json_value *v =
		parsed("{\"a\":{\"a\":{\"a\":1}},\"A\":[{\"a\":1},{\"a\":2}],\"\":0}");

	(void)state;
	assert_int_equal(json_count(v), 3);
	json_free(v);
}

/* --- numbers ---------------------------------------------------------------------------------- */

static void json_uint64__exact_or_refused(void **state)
{
	static const struct {
		const char *text;
		int err;
		uint64_t value;
	} rows[] = {
		{ "0", 0, 0 },
		{ "-0", 0, 0 },
		{ "-0.0", 0, 0 },
		{ "1.0", 0, 1 },
		{ "1e3", 0, 1000 },
		{ "999999999999999", 0, 999999999999999ULL },
		{ "1000000000000000", 0, 1000000000000000ULL },
		{ "9007199254740991", 0, 9007199254740991ULL },
		{ "9007199254740993", 0, 9007199254740993ULL },
		{ "9223372036854775808", 0, 9223372036854775808ULL },
		{ "18446744073709551615", 0, UINT64_MAX },
		{ "18446744073709551616", -ERANGE, 0 },
		{ "-1", -ERANGE, 0 },
		{ "-18446744073709551616", -ERANGE, 0 },
		{ "1e300", -ERANGE, 0 },
		{ "0.5", -EINVAL, 0 },
		{ "1.00000000000000000000001", -EINVAL, 0 },
		{ "0.99999999999999999999999", -EINVAL, 0 },
		{ "1e-400", -EINVAL, 0 },
		{ "9007199254740993.5", -EINVAL, 0 },
		{ "\"1\"", -EINVAL, 0 },
		{ "true", -EINVAL, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct json_value *v = parsed(rows[i].text);
		uint64_t n = 0;

		if (json_uint64(v, &n) != rows[i].err || n != rows[i].value)
			fail_msg("%s: %llu", rows[i].text, (unsigned long long)n);
		json_free(v);
	}
}

static void json_int64__exact_or_refused(void **state)
{
	static const struct {
		const char *text;
		int err;
		int64_t value;
	} rows[] = {
		{ "-1", 0, -1 },
		{ "-9223372036854775808", 0, INT64_MIN },
		{ "9223372036854775807", 0, INT64_MAX },
		{ "9223372036854775808", -ERANGE, 0 },
		{ "-9223372036854775809", -ERANGE, 0 },
		{ "-9007199254740993", 0, -9007199254740993LL },
		{ "-0", 0, 0 },
		{ "-1.5", -EINVAL, 0 },
		{ "-2.50e1", 0, -25 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct json_value *v = parsed(rows[i].text);
		int64_t n = 0;

		if (json_int64(v, &n) != rows[i].err || n != rows[i].value)
			fail_msg("%s: %lld", rows[i].text, (long long)n);
		json_free(v);
	}
}

static void json_parse__number_overflow__refused(void **state)
{
	static const char *const texts[] = { "1e400", "-1e400", "1e999999999999999999999",
		"[1,{\"a\":1e309}]" };
	struct json_value *v = NULL;
	struct fault f = FAULT_NONE;

	(void)state;
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		assert_int_equal(json_parse(texts[i], strlen(texts[i]), &v, &f), -EINVAL);
		assert_non_null(strstr(f.reason, "too large"));
	}
	assert_int_equal(f.offset, 8);
}

static void json_double__known_numbers__correctly_rounded(void **state)
{
	struct json_value *v = parsed(
		"[0.1,-0,1e-400,1.7976931348623157e308,2.2250738585072011e-308,9007199254740993]");
	const struct json_value *n = json_first(v);

	(void)state;
	assert_true(json_double(n) == 0.1);
	n = json_next(n);
	assert_true(json_double(n) == 0 && signbit(json_double(n)));
	n = json_next(n);
	assert_true(json_double(n) == 0);
	n = json_next(n);
	assert_true(json_double(n) == 0x1.fffffffffffffp+1023);
	n = json_next(n);
	assert_true(json_double(n) == 0x0.fffffffffffffp-1022);
	n = json_next(n);
	assert_true(json_double(n) == 9007199254740992.0);
	assert_null(json_next(n));
	json_free(v);
}

/* --- looking ---------------------------------------------------------------------------------- */

static void json_offset__every_node__its_first_byte(void **state)
{
	const char *text = "\xef\xbb\xbf { \"a\\\"\" : [ 12.5 , \"\\\\\" ,true] "
			   ",\"b\":{\"c\":null, \"d\":-1 } }";
	struct json_value *v = parsed(text);
	const struct json_value *a = json_first(v), *b = json_next(a), *n = json_first(a);

	(void)state;
	assert_int_equal(json_offset(v), 4);
	assert_string_equal(json_key(a), "a\"");
	assert_int_equal(text[json_offset(a)], '[');
	assert_int_equal(json_offset(a), 14);
	assert_int_equal(json_offset(n), 16);
	n = json_next(n);
	assert_int_equal(json_offset(n), 23);
	assert_string_equal(json_string(n), "\\");
	n = json_next(n);
	assert_int_equal(json_offset(n), 29);
	assert_int_equal(text[json_offset(b)], '{');
	assert_int_equal(json_offset(b), strchr(text + 5, '{') - text);
	n = json_first(b);
	assert_int_equal(text[json_offset(n)], 'n');
	n = json_next(n);
	assert_int_equal(text[json_offset(n)], '-');
	json_free(v);
}

static void json_member__names_in_any_order__exact_match_only(void **state)
{
	struct json_value *v = parsed("{\"Seed\":1,\"seed\":2,\"\":3,\"s\":\"x\"}");
	int64_t n = 0;

	(void)state;
	assert_int_equal(json_type(v), JSON_OBJECT);
	assert_int_equal(json_int64(json_member(v, "seed"), &n), 0);
	assert_int_equal(n, 2);
	assert_int_equal(json_int64(json_member(v, ""), &n), 0);
	assert_int_equal(n, 3);
	assert_null(json_member(v, "SEED"));
	assert_string_equal(json_string(json_member(v, "s")), "x");
	assert_null(json_string(json_member(v, "seed")));
	assert_null(json_key(v));
	json_free(v);
}

static void json_type__each__with_its_name(void **state)
{
	struct json_value *v = parsed("[null,false,1,\"s\",[],{}]");
	static const char *const names[] = { "null", "true or false", "a number", "a string",
		"an array", "an object" };
	enum json_type want = JSON_NULL;

	(void)state;
	for (const struct json_value *n = json_first(v); n; n = json_next(n), want++) {
		assert_int_equal(json_type(n), want);
		assert_string_equal(json_type_name(want), names[want]);
	}
	assert_int_equal(want, 6);
	assert_false(json_bool(json_next(json_first(v))));
	json_free(v);
}

static void json_string__escapes__decoded(void **state)
{
	struct json_value *v = parsed("\"\\u00e9\\ud83d\\ude00\\n\\/\\u0041\"");

	(void)state;
	assert_string_equal(json_string(v), "\xc3\xa9\xf0\x9f\x98\x80\n/A");
	json_free(v);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(json_scan__every_piece_size__same_verdict),
		cmocka_unit_test(json_parse__well_formed__parsed),
		cmocka_unit_test(json_parse__ill_formed__refused_with_place),
		cmocka_unit_test(json_parse__cut_anywhere__refused_as_not_whole),
		cmocka_unit_test(json_scan__hopeless__stays_so),
		cmocka_unit_test(json_scan__number_at_top__complete_yet_may_go_on),
		cmocka_unit_test(json_parse__other_encodings__named),
		cmocka_unit_test(json_parse__depth_64__parsed_and_65_refused),
		cmocka_unit_test(json_parse__nesting_bombs__refused_early),
		cmocka_unit_test(json_parse__huge_array_and_object__in_linear_time),
		cmocka_unit_test(json_parse__repeated_key__refused_with_both_places),
		cmocka_unit_test(json_parse__same_key_in_other_objects_or_case__accepted),
		cmocka_unit_test(json_uint64__exact_or_refused),
		cmocka_unit_test(json_int64__exact_or_refused),
		cmocka_unit_test(json_parse__number_overflow__refused),
		cmocka_unit_test(json_double__known_numbers__correctly_rounded),
		cmocka_unit_test(json_offset__every_node__its_first_byte),
		cmocka_unit_test(json_member__names_in_any_order__exact_match_only),
		cmocka_unit_test(json_type__each__with_its_name),
		cmocka_unit_test(json_string__escapes__decoded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
