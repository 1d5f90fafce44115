#include "core/job/jobname.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "core/base/mem.h"

static void parse__table__as_the_design_says(void **state)
{
	static const struct {
		const char *name;
		enum name_class class;
		enum job_row row;
		size_t stem_len;
	} rows[] = {
		{ "a.txt", NAME_TEXT, ROW_REQUEST, 1 },
		{ "a.json", NAME_JSON, ROW_REQUEST, 1 },
		{ "a.jsonl", NAME_BATCH, ROW_REQUEST, 1 },
		{ "a.b.txt", NAME_TEXT, ROW_REQUEST, 3 },
		{ "a .txt", NAME_TEXT, ROW_REQUEST, 2 },
		{ "\xc3\xa4.txt", NAME_TEXT, ROW_REQUEST, 2 },
		{ "a.txt.json", NAME_JSON, ROW_REQUEST, 5 },
		{ "a.status", NAME_RESULT, ROW_STATUS, 1 },
		{ "a.out", NAME_RESULT, ROW_OUT, 1 },
		{ "a.err", NAME_RESULT, ROW_ERR, 1 },
		{ "a.stream", NAME_RESULT, ROW_STREAM, 1 },
		{ "a.txt.out", NAME_RESULT, ROW_OUT, 5 },
		{ ".txt", NAME_INERT, ROW_REQUEST, 0 },
		{ ".a.txt", NAME_INERT, ROW_REQUEST, 0 },
		{ ".a.txt.swp", NAME_INERT, ROW_REQUEST, 0 },
		{ ".out", NAME_INERT, ROW_REQUEST, 0 },
		{ "a.txt~", NAME_INERT, ROW_REQUEST, 0 },
		{ "a.TXT", NAME_INERT, ROW_REQUEST, 0 },
		{ "a.txt.tmp", NAME_INERT, ROW_REQUEST, 0 },
		{ "4913", NAME_INERT, ROW_REQUEST, 0 },
		{ "sedAbCdEf", NAME_INERT, ROW_REQUEST, 0 },
		{ "a.npy", NAME_INERT, ROW_REQUEST, 0 },
		{ "a.", NAME_INERT, ROW_REQUEST, 0 },
		{ "txt", NAME_INERT, ROW_REQUEST, 0 },
		{ "a.outer", NAME_INERT, ROW_REQUEST, 0 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct jobname n;

		assert_int_equal(jobname_parse(rows[i].name, &n), 0);
		assert_int_equal(n.class, rows[i].class);
		assert_int_equal(n.row, rows[i].row);
		assert_int_equal(n.stem_len, rows[i].stem_len);
	}
}

static int parse_long(size_t stem, const char *suffix)
{
	char name[400];
	struct jobname n;

	memset(name, 'x', stem);
	strcpy(name + stem, suffix);
	return jobname_parse(name, &n);
}

/* "STEM.status" and "STEM.stream" must fit into 255 bytes: a stem has 248 at most. */
static void parse__long_names__judged_with_their_results(void **state)
{
	(void)state;
	assert_int_equal(parse_long(248, ".txt"), 0);
	assert_int_equal(parse_long(249, ".txt"), -ENAMETOOLONG);
	assert_int_equal(parse_long(248, ".json"), 0);
	assert_int_equal(parse_long(249, ".json"), -ENAMETOOLONG);
	assert_int_equal(parse_long(255, ""), 0);
	assert_int_equal(parse_long(256, ""), -ENAMETOOLONG);
}

static void parse__bytes_that_are_no_name__refused(void **state)
{
	struct jobname n;

	(void)state;
	assert_int_equal(jobname_parse("a\xff.txt", &n), -EILSEQ);
	assert_int_equal(jobname_parse("\xc0\xaf", &n), -EILSEQ);
	assert_int_equal(jobname_parse("a\n.txt", &n), -EINVAL);
	assert_int_equal(jobname_parse("\x7f", &n), -EINVAL);
	assert_int_equal(jobname_parse("\x1b[2J.txt", &n), -EINVAL);
}

static void row_suffix__each_row__round_trip(void **state)
{
	(void)state;
	assert_string_equal(job_row_suffix(ROW_REQUEST), "");
	assert_string_equal(job_row_suffix(ROW_STATUS), ".status");
	assert_string_equal(job_row_suffix(ROW_OUT), ".out");
	assert_string_equal(job_row_suffix(ROW_ERR), ".err");
	assert_string_equal(job_row_suffix(ROW_STREAM), ".stream");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parse__table__as_the_design_says),
		cmocka_unit_test(parse__long_names__judged_with_their_results),
		cmocka_unit_test(parse__bytes_that_are_no_name__refused),
		cmocka_unit_test(row_suffix__each_row__round_trip),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
