/* Lines of a batch: ends, byte order mark, blanks, lengths, budgets and short reads. */
#include "core/job/batch_lines.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/mem.h"

struct text {
	const char *bytes;
	size_t len, most; /* at most so many in one read */
	int err;          /* instead of the end */
};

static ssize_t read_text(void *context, uint64_t offset, char *ret, size_t size)
{
	const struct text *t = context;
	size_t n = t->len - (size_t)offset;

	if (n == 0 && t->err)
		return t->err;
	if (n > size)
		n = size;
	if (n > t->most)
		n = t->most;
	memcpy(ret, t->bytes + offset, n);
	return (ssize_t)n;
}

/* "NUMBER<TEXT>" for each line, "NUMBER-" for a blank one. */
static void list(const char *bytes, size_t len, size_t most, size_t budget_each, struct buf *out)
{
	struct text t = { bytes, len, most, 0 };
	const struct run_source source = { .read = read_text, .context = &t };
	struct batch_lines l;
	struct batch_line line;
	enum batch_got got;

	batch_lines_init(&l, &source);
	do {
		size_t budget = budget_each;

		got = batch_lines_next(&l, &budget, &line);
		if (got != BATCH_LINE)
			continue;
		assert_int_equal(strlen(line.text), line.len);
		if (line.blank)
			buf_printf(out, "%u-", (unsigned)line.number);
		else
			buf_printf(out, "%u<%s>", (unsigned)line.number, line.text);
	} while (got == BATCH_LINE || got == BATCH_PAUSED);
	assert_int_equal(got, BATCH_END);
	batch_lines_done(&l);
}

static void next__ends_and_blanks__told_by_number(void **state)
{
	static const struct {
		const char *text, *want;
	} rows[] = {
		{ "", "" },
		{ "a", "1<a>" },
		{ "a\n", "1<a>" },
		{ "a\n\n", "1<a>2-" },
		{ "a\nb", "1<a>2<b>" },
		{ "a\r\nb\r\n", "1<a>2<b>" },
		{ "a\r", "1<a>" },
		{ "a\r\r\n", "1<a\r>" },
		{ "a\rb\n", "1<a\rb>" },
		{ "\n\r\n \t\r\n\v\f\nx\n", "1-2-3-4-5<x>" },
		{ " x \n", "1< x >" },
		{ "\xef\xbb\xbf"
		  "a\n",
			"1<a>" },
		{ "\xef\xbb\xbf", "" },
		{ "\xef\xbb\xbf\n", "1-" },
		{ "\xef\xbb", "1<\xef\xbb>" },
		{ "a\n\xef\xbb\xbf"
		  "b",
			"1<a>2<\xef\xbb\xbf"
			"b>" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		for (size_t most = 1; most < 20; most += 9)
			for (size_t budget = 1; budget < 20; budget += 9) {
				AUTO_BUF struct buf out = BUF_INIT;

				list(rows[i].text, strlen(rows[i].text), most, budget, &out);
				assert_string_equal(buf_text(&out), rows[i].want);
			}
}

static void next__no_budget__paused_and_goes_on_in_the_line(void **state)
{
	struct text t = { "abcdef\ngh\n", 10, 100, 0 };
	const struct run_source source = { .read = read_text, .context = &t };
	struct batch_lines l;
	struct batch_line line;
	size_t budget = 4;

	(void)state;
	batch_lines_init(&l, &source);
	assert_int_equal(batch_lines_next(&l, &budget, &line), BATCH_PAUSED);
	assert_int_equal(budget, 0);
	assert_int_equal(batch_lines_next(&l, &budget, &line), BATCH_PAUSED);
	budget = 100;
	assert_int_equal(batch_lines_next(&l, &budget, &line), BATCH_LINE);
	assert_string_equal(line.text, "abcdef");
	assert_int_equal(budget, 97);
	assert_int_equal(batch_lines_next(&l, &budget, &line), BATCH_LINE);
	assert_int_equal(budget, 94);
	assert_int_equal(line.number, 2);
	batch_lines_done(&l);
}

static void next__read_fails__its_error(void **state)
{
	struct text t = { "a\nb", 3, 100, -EIO };
	const struct run_source source = { .read = read_text, .context = &t };
	struct batch_lines l;
	struct batch_line line;
	size_t budget = 100;

	(void)state;
	batch_lines_init(&l, &source);
	assert_int_equal(batch_lines_next(&l, &budget, &line), BATCH_LINE);
	assert_int_equal(batch_lines_next(&l, &budget, &line), BATCH_BROKEN);
	assert_int_equal(l.err, -EIO);
	batch_lines_done(&l);
}

static void next__around_the_limit__kept_and_dropped(void **state)
{
	static const struct {
		size_t len;
		const char *end;
		char fill;
		bool too_long, blank;
	} rows[] = {
		{ BATCH_LINE_MAX, "\n", 'x', false, false },
		{ BATCH_LINE_MAX, "\r\n", 'x', false, false },
		{ BATCH_LINE_MAX, "", 'x', false, false },
		{ BATCH_LINE_MAX + 1, "\n", 'x', true, false },
		{ BATCH_LINE_MAX + 1, "\r\n", 'x', true, false },
		{ 3 * (size_t)BATCH_LINE_MAX, "\n", 'x', true, false },
		{ 2 * (size_t)BATCH_LINE_MAX, "\n", ' ', true, true },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		AUTO_BUF struct buf bytes = BUF_INIT;
		struct text t = { .most = SIZE_MAX };
		const struct run_source source = { .read = read_text, .context = &t };
		size_t budget = SIZE_MAX;
		struct batch_lines l;
		struct batch_line line;

		memset(buf_room(&bytes, rows[i].len), rows[i].fill, rows[i].len);
		bytes.len = rows[i].len;
		buf_puts(&bytes, rows[i].end);
		if (rows[i].end[0])
			buf_puts(&bytes, "next");
		t.bytes = bytes.data;
		t.len = bytes.len;
		batch_lines_init(&l, &source);
		assert_int_equal(batch_lines_next(&l, &budget, &line), BATCH_LINE);
		assert_int_equal(line.too_long, rows[i].too_long);
		assert_int_equal(line.blank, rows[i].blank);
		assert_int_equal(line.len, rows[i].too_long ? 0 : rows[i].len);
		assert_true(l.text.cap <= 2 * (size_t)BATCH_LINE_MAX);
		if (rows[i].end[0]) {
			assert_int_equal(batch_lines_next(&l, &budget, &line), BATCH_LINE);
			assert_string_equal(line.text, "next");
			assert_int_equal(line.number, 2);
			assert_false(line.too_long || line.blank);
			assert_true(l.text.cap < 100000);
		}
		assert_int_equal(batch_lines_next(&l, &budget, &line), BATCH_END);
		assert_int_equal(batch_lines_next(&l, &budget, &line), BATCH_END);
		batch_lines_done(&l);
	}
}

static void next__nul_byte__kept(void **state)
{
	struct text t = { "a\0b\n\0\n", 6, 100, 0 };
	const struct run_source source = { .read = read_text, .context = &t };
	struct batch_lines l;
	struct batch_line line;
	size_t budget = 100;

	(void)state;
	batch_lines_init(&l, &source);
	assert_int_equal(batch_lines_next(&l, &budget, &line), BATCH_LINE);
	assert_int_equal(line.len, 3);
	assert_memory_equal(line.text, "a\0b", 3);
	assert_int_equal(batch_lines_next(&l, &budget, &line), BATCH_LINE);
	assert_false(line.blank);
	batch_lines_done(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(next__ends_and_blanks__told_by_number),
		cmocka_unit_test(next__no_budget__paused_and_goes_on_in_the_line),
		cmocka_unit_test(next__read_fails__its_error),
		cmocka_unit_test(next__around_the_limit__kept_and_dropped),
		cmocka_unit_test(next__nul_byte__kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
