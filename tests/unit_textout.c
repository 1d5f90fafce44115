/* Text on its way out: stop strings and characters that come in parts. */
#include "core/engine/textout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "core/base/utf8.h"

#define FFFD "\xef\xbf\xbd"

static const char *const stop_end[] = { "END", NULL };

static struct textout text;
static struct buf out;

static int begin(void **state)
{
	(void)state;
	textout_init(&text, NULL);
	out = (struct buf)BUF_INIT;
	return 0;
}

static int end(void **state)
{
	(void)state;
	textout_done(&text);
	buf_done(&out);
	return 0;
}

static bool put(const char *piece)
{
	return textout_put(&text, piece, strlen(piece), &out);
}

/* `out` so far. */
static void assert_out(const char *want)
{
	assert_string_equal(buf_text(&out), want);
	assert_int_equal(buf_error(&out), 0);
}

static void textout_put__no_stops__let_out_at_once(void **state)
{
	(void)state;
	assert_false(put("Once "));
	assert_out("Once ");
	assert_false(put(""));
	assert_false(put("upon"));
	assert_out("Once upon");
	assert_false(textout_put(&text, "\0x", 2, &out));
	assert_int_equal(out.len, 11);
	textout_finish(&text, &out);
	assert_int_equal(out.len, 11);
}

static void textout_put__stop_in_one_piece__cut_before_it(void **state)
{
	(void)state;
	text.stops = stop_end;
	assert_true(put("one END two"));
	assert_out("one ");
	assert_true(put("three"));
	textout_finish(&text, &out);
	assert_out("one ");
	assert_true(text.stopped);
}

static void textout_put__stop_across_pieces__nothing_of_it_let_out(void **state)
{
	(void)state;
	text.stops = stop_end;
	assert_false(put("one E"));
	assert_out("one ");
	assert_false(put("N"));
	assert_out("one ");
	assert_true(put("D two"));
	assert_out("one ");
}

static void textout_put__begun_stop_not_completed__released(void **state)
{
	(void)state;
	text.stops = stop_end;
	assert_false(put("EN"));
	assert_out("");
	assert_false(put("EN"));
	assert_out("EN");
	assert_false(put("E"));
	assert_out("ENEN");
	assert_false(put("x"));
	assert_out("ENENEx");
	assert_false(put("EN"));
	textout_finish(&text, &out);
	assert_out("ENENExEN");
	assert_false(text.stopped);
}

static void textout_put__stop_is_beginning_of_another__shorter_is_enough(void **state)
{
	static const char *const stops[] = { "abc", "ab", NULL };

	(void)state;
	text.stops = stops;
	assert_false(put("xa"));
	assert_true(put("b"));
	assert_out("x");
}

static void textout_put__later_stop_met_first__waits_for_the_earlier(void **state)
{
	static const char *const stops[] = { "abcd", "bc", NULL };

	(void)state;
	text.stops = stops;
	assert_false(put("xabc"));
	assert_out("x");
	assert_true(put("d"));
	assert_out("x");
}

static void textout_put__earlier_stop_fails__later_holds(void **state)
{
	static const char *const stops[] = { "abcd", "bc", NULL };

	(void)state;
	text.stops = stops;
	assert_false(put("xabc"));
	assert_true(put("x"));
	assert_out("xa");
}

static void textout_finish__later_stop_pending__cut_there(void **state)
{
	static const char *const stops[] = { "abcd", "bc", NULL };

	(void)state;
	text.stops = stops;
	assert_false(put("xabc"));
	textout_finish(&text, &out);
	assert_out("xa");
	assert_true(text.stopped);
}

static void textout_put__self_overlapping_stop__found(void **state)
{
	static const char *const stops[] = { "aab", NULL };

	(void)state;
	text.stops = stops;
	assert_false(put("a"));
	assert_false(put("a"));
	assert_false(put("a"));
	assert_out("a");
	assert_true(put("b"));
	assert_out("a");
}

static void textout_put__character_split_everywhere__whole_only(void **state)
{
	static const char whole[] = "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z";
	static const size_t let[] = { 0, 2, 2, 2, 5, 5, 5, 5, 9, 10 };

	(void)state;
	for (size_t i = 0; i < sizeof whole - 1; i++) {
		textout_put(&text, whole + i, 1, &out);
		assert_int_equal(out.len, let[i]);
	}
	assert_out(whole);
}

static void textout_put__bad_bytes__replaced(void **state)
{
	static const struct {
		const char *given, *want;
	} cases[] = {
		{ "a\xffz", "a" FFFD "z" },
		{ "\x80\x80", FFFD FFFD },
		{ "\xe2\x82z", FFFD "z" }, /* one for a begun character */
		{ "\xf0\x9f\x98z", FFFD "z" },
		{ "\xf0\x9f\x98\xc3\xa9", FFFD "\xc3\xa9" },
		{ "\xc0\xaf", FFFD FFFD },          /* overlong */
		{ "\xed\xa0\x80", FFFD FFFD FFFD }, /* surrogate */
		{ "\xf4\x90\x80\x80", FFFD FFFD FFFD FFFD },
		{ "\xe2\x82", FFFD }, /* at the end */
		{ "\xf0", FFFD },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		for (int bytewise = 0; bytewise < 2; bytewise++) {
			AUTO_BUF struct buf got = BUF_INIT;
			size_t n = strlen(cases[i].given), step = bytewise ? 1 : n;
			struct textout t;

			textout_init(&t, NULL);
			for (size_t at = 0; at < n; at += step)
				textout_put(&t, cases[i].given + at, step, &got);
			textout_finish(&t, &got);
			assert_string_equal(buf_text(&got), cases[i].want);
			textout_done(&t);
		}
}

static void textout_put__begun_character_before_stop__replaced(void **state)
{
	(void)state;
	text.stops = stop_end;
	assert_false(put("a\xe2\x82"));
	assert_out("a");
	assert_false(put("E"));
	assert_out("a" FFFD);
	assert_true(put("ND"));
	assert_out("a" FFFD);
}

static void textout_put__stop_of_several_bytes_a_character__whole_match_only(void **state)
{
	static const char *const stops[] = { "\xe2\x82\xac", NULL };

	(void)state;
	text.stops = stops;
	assert_false(put("1\xe2\x82"));
	assert_out("1");
	assert_false(put("\xad 2")); /* U+20AD */
	assert_out("1\xe2\x82\xad 2");
	assert_true(put("\xe2\x82\xac"));
	assert_out("1\xe2\x82\xad 2");
}

/* --- the cutting does not matter -------------------------------------------------------------- */

static uint32_t random_state = 7;

static uint32_t random_below(uint32_t n)
{
	random_state = random_state * 1664525 + 1013904223;
	return (random_state >> 8) % n;
}

static void run(const char *given, size_t len, bool pieces, const char *const *stops,
	struct buf *got)
{
	struct textout t;
	bool stopped = false;

	textout_init(&t, stops);
	for (size_t at = 0; at < len;) {
		size_t n = pieces ? 1 + random_below(4) : len;

		n = n > len - at ? len - at : n;
		stopped = textout_put(&t, given + at, n, got);
		at += n;
	}
	textout_finish(&t, got);
	assert_true(t.stopped || !stopped);
	textout_done(&t);
}

/* Where the first stop string begins, or len. */
static size_t first_stop(const char *given, size_t len, const char *const *stops)
{
	size_t first = len;

	for (; *stops; stops++) {
		const char *at = memmem(given, len, *stops, strlen(*stops));

		if (at && (size_t)(at - given) < first)
			first = (size_t)(at - given);
	}
	return first;
}

static void textout__random_text__same_however_cut(void **state)
{
	static const char *const stops[] = { "abca", "bcb", "b\xc3\xa9", "ccccc", NULL };
	static const char alphabet[] = "aabbcc\xc3\xa9\xe2\x82\xff";

	(void)state;
	for (int round = 0; round < 20000; round++) {
		AUTO_BUF struct buf once = BUF_INIT, cut = BUF_INIT, before = BUF_INIT;
		char given[30];
		size_t len = random_below(sizeof given + 1);

		for (size_t i = 0; i < len; i++)
			given[i] = alphabet[random_below(sizeof alphabet - 1)];
		run(given, len, false, stops, &once);
		run(given, len, true, stops, &cut);
		run(given, first_stop(given, len, stops), false, NULL, &before);
		assert_string_equal(buf_text(&once), buf_text(&before));
		assert_string_equal(buf_text(&cut), buf_text(&before));
		assert_int_equal(utf8_valid_prefix(buf_text(&cut), cut.len), cut.len);
	}
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(textout_put__no_stops__let_out_at_once),
		CASE(textout_put__stop_in_one_piece__cut_before_it),
		CASE(textout_put__stop_across_pieces__nothing_of_it_let_out),
		CASE(textout_put__begun_stop_not_completed__released),
		CASE(textout_put__stop_is_beginning_of_another__shorter_is_enough),
		CASE(textout_put__later_stop_met_first__waits_for_the_earlier),
		CASE(textout_put__earlier_stop_fails__later_holds),
		CASE(textout_finish__later_stop_pending__cut_there),
		CASE(textout_put__self_overlapping_stop__found),
		CASE(textout_put__character_split_everywhere__whole_only),
		CASE(textout_put__bad_bytes__replaced),
		CASE(textout_put__begun_character_before_stop__replaced),
		CASE(textout_put__stop_of_several_bytes_a_character__whole_match_only),
		cmocka_unit_test(textout__random_text__same_however_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
