#include "core/job/verdict.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "core/base/mem.h"

static int check_model(void *context, const struct request *req, struct fault *f)
{
	if (req->model && strcmp(req->model, "none") == 0)
		return fault_at(f, -ENOENT, "model", -1, "", "there is no such model");
	return *(int *)context;
}

static int model = 3;
static const struct verdict_checker checker = { check_model, &model };

static bool put(struct verdict *v, uint64_t at, const char *text)
{
	return verdict_write(v, at, text, strlen(text));
}

/* Whole documents, whatever the writes that bring them: they are whole at the end of their last
 * byte, once, and no fault is found on the way. */
static void write__whole_documents_cut_anywhere__whole_once_no_fault(void **state)
{
	static const char *const docs[] = {
		"{\"prompt\":\"h\xc3\xa4llo \xf0\x9f\x98\x80\"}",
		"\xef\xbb\xbf{ \"prompt\" : \"a\\u00e4\\\"\" , \"seed\" : 18446744073709551615 }",
		("{\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"FP32\",\"data\":[1.5e3]"
		 "}"
		 "]}"),
	};

	(void)state;
	for (size_t d = 0; d < ARRAY_SIZE(docs); d++) {
		size_t len = strlen(docs[d]);

		for (size_t cut = 1; cut < len; cut++) {
			struct verdict *v = verdict_new(JOB_FORMAT_JSON);

			assert_false(verdict_write(v, 0, docs[d], cut));
			assert_int_equal(verdict_fault(v)->err, 0);
			assert_true(verdict_unfinished(v));
			assert_true(verdict_write(v, cut, docs[d] + cut, len - cut));
			assert_false(verdict_unfinished(v));
			assert_false(put(v, len, "\r\n")); /* once */
			assert_int_equal(verdict_fault(v)->err, 0);
			verdict_free(v);
		}
	}
}

static const struct hopeless {
	enum job_format format;
	const char *bytes;
	size_t len;
	int err;
	long offset;
} hopeless[] = {
#define H(format, text, err, offset) \
	{ \
		format, text, sizeof(text) - 1, err, offset \
	}
	H(JOB_FORMAT_JSON, "{\"prompt\":tru}", -EINVAL, 13),
	H(JOB_FORMAT_JSON, "{\"a\":1}}", -EINVAL, 7),
	H(JOB_FORMAT_JSON, "hello", -EINVAL, 0),
	H(JOB_FORMAT_JSON, "{\"a\":01}", -EINVAL, 6),
	H(JOB_FORMAT_JSON, "{\"a\":\"\n\"}", -EINVAL, 6),
	H(JOB_FORMAT_TEXT,
		"ab\xff"
		"cd",
		-EILSEQ, 2),
	H(JOB_FORMAT_TEXT,
		"ab\xe2\x82"
		"cd",
		-EILSEQ, 2),
	H(JOB_FORMAT_TEXT,
		"\xf0\x9f\x98\x80\xf0\x9f\x98"
		"x",
		-EILSEQ, 4),
	H(JOB_FORMAT_TEXT, "\xed\xa0\x80", -EILSEQ, 0), /* half a surrogate pair */
	H(JOB_FORMAT_TEXT, "h\xc3\xa4\x80", -EILSEQ, 3),
	H(JOB_FORMAT_TEXT, "abc\0d", -EINVAL, 3),
};

/* The same place and errno are named wherever the bytes are cut, also into single ones. */
static void write__hopeless_cut_anywhere__same_place_named(void **state)
{
	(void)state;
	for (size_t h = 0; h < ARRAY_SIZE(hopeless); h++)
		for (size_t cut = 0; cut <= hopeless[h].len; cut++) {
			const struct hopeless *x = &hopeless[h];
			struct verdict *v = verdict_new(x->format);

			verdict_write(v, 0, x->bytes, cut);
			verdict_write(v, cut, x->bytes + cut, x->len - cut);
			assert_int_equal(verdict_fault(v)->err, x->err);
			assert_int_equal(verdict_fault(v)->offset, x->offset);
			verdict_free(v);
		}
}

static void write__hopeless_byte_by_byte__told_at_that_byte(void **state)
{
	(void)state;
	for (size_t h = 0; h < ARRAY_SIZE(hopeless); h++) {
		const struct hopeless *x = &hopeless[h];
		struct verdict *v = verdict_new(x->format);
		size_t i = 0;

		while (i < x->len && !verdict_fault(v)->err) {
			verdict_write(v, i, x->bytes + i, 1);
			i++;
		}
		assert_int_equal(verdict_fault(v)->err, x->err);
		assert_int_equal(verdict_fault(v)->offset, x->offset);
		verdict_free(v);
	}
}

static void write__characters_cut_into_bytes__good(void **state)
{
	static const char text[] = "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80z\xf4\x8f\xbf\xbf";
	struct verdict *v = verdict_new(JOB_FORMAT_TEXT);

	(void)state;
	for (size_t i = 0; i < sizeof text - 1; i++) {
		assert_false(verdict_write(v, i, text + i, 1));
		assert_int_equal(verdict_fault(v)->err, 0);
	}
	verdict_free(v);
}

static void write__bytes_not_utf8_in_json__eilseq(void **state)
{
	struct verdict *v = verdict_new(JOB_FORMAT_JSON);

	(void)state;
	put(v, 0, "{\"prompt\":\"\xff\"}");
	assert_int_equal(verdict_fault(v)->err, -EILSEQ);
	verdict_free(v);
}

static void write__utf16__named(void **state)
{
	struct verdict *v = verdict_new(JOB_FORMAT_TEXT);

	(void)state;
	verdict_write(v, 0, "\xff\xfeh\0i\0", 6);
	assert_int_equal(verdict_fault(v)->err, -EILSEQ);
	assert_int_equal(verdict_fault(v)->offset, 0);
	assert_non_null(strstr(verdict_fault(v)->reason, "UTF-16"));
	verdict_free(v);
}

static void write__out_of_order__nothing_said_until_it_starts_anew(void **state)
{
	struct verdict *v = verdict_new(JOB_FORMAT_JSON);

	(void)state;
	assert_false(put(v, 5, "xxx"));
	assert_int_equal(verdict_fault(v)->err, 0);
	assert_false(verdict_unfinished(v));
	assert_false(put(v, 8, "}"));
	assert_int_equal(verdict_fault(v)->err, 0);
	verdict_reset(v);
	assert_true(put(v, 0, "{}"));
	verdict_free(v);
}

static void write__after_a_reset__old_fault_forgotten(void **state)
{
	struct verdict *v = verdict_new(JOB_FORMAT_JSON);

	(void)state;
	put(v, 0, "nonsense");
	assert_int_equal(verdict_fault(v)->err, -EINVAL);
	put(v, 8, " more");
	assert_int_equal(verdict_fault(v)->err, -EINVAL);
	verdict_reset(v);
	assert_int_equal(verdict_fault(v)->err, 0);
	assert_true(put(v, 0, "{\"prompt\":\"x\"}"));
	assert_int_equal(verdict_fault(v)->err, 0);
	verdict_free(v);
}

static int judge(enum job_format format, const char *text, struct job_order *order, struct fault *f)
{
	struct blob *b = blob_new(text, strlen(text));
	int err = verdict_judge(format, b, &checker, order, f);

	blob_put(b);
	return err;
}

static void judge__good_request__order_filled(void **state)
{
	struct job_order o = { 0 };
	struct fault f;

	(void)state;
	assert_int_equal(judge(JOB_FORMAT_JSON,
				 "{\"prompt\":\"x\",\"priority\":-7,\"deadline_ms\":250,\"stream\":"
				 "true}",
				 &o, &f),
		0);
	assert_int_equal(o.model, 3);
	assert_int_equal(o.priority, -7);
	assert_int_equal(o.deadline_ms, 250);
	assert_true(o.stream);
	assert_int_equal(o.shape, ANSWER_OWN);
	assert_int_equal(f.err, 0);
	assert_int_equal(judge(JOB_FORMAT_JSON, "{\"prompt\":\"x\",\"n\":1}", &o, &f), 0);
	assert_int_equal(o.shape, ANSWER_OPENAI);
	assert_int_equal(judge(JOB_FORMAT_TEXT, "hello\n", &o, &f), 0);
	assert_int_equal(o.priority, 0);
	assert_int_equal(o.deadline_ms, 0);
	assert_false(o.stream);
}

static void judge__refused_by_the_model__its_shape_known(void **state)
{
	static const char json[] = "{\"prompt\":\"x\",\"n\":1,\"model\":\"none\"}";
	struct job_order o = { 0 };
	struct fault f;

	(void)state;
	assert_int_equal(judge(JOB_FORMAT_JSON, json, &o, &f), -ENOENT);
	assert_int_equal(o.shape, ANSWER_OPENAI);
	o.shape = ANSWER_OWN;
	assert_int_equal(judge(JOB_FORMAT_JSON, "{\"prompt\":\"x\",\"n\":2}", &o, &f), -EINVAL);
	assert_int_equal(o.shape, ANSWER_OWN);
}

static void judge__bad_requests__why_not(void **state)
{
	struct job_order o;
	struct fault f;

	(void)state;
	assert_int_equal(judge(JOB_FORMAT_JSON, "{\"prompt\":\"x\",\"sed\":1}", &o, &f), -EINVAL);
	assert_string_equal(f.field, "sed");
	assert_int_equal(judge(JOB_FORMAT_JSON, "{\"prompt\":\"x\",\"model\":\"none\"}", &o, &f),
		-ENOENT);
	assert_string_equal(f.field, "model");
	assert_int_equal(judge(JOB_FORMAT_JSON, "{\"prompt\":\"x\"", &o, &f), -EINVAL);
	assert_int_equal(judge(JOB_FORMAT_TEXT, "\n", &o, &f), -EINVAL);
	assert_int_equal(judge(JOB_FORMAT_TEXT, "a\xff", &o, &f), -EILSEQ);
	assert_int_equal(f.offset, 1);
}

static void refuse__a_judgement__remembered(void **state)
{
	struct verdict *v = verdict_new(JOB_FORMAT_JSON);
	struct fault f = FAULT_NONE;

	(void)state;
	fault_set(&f, -ERANGE, "", "too much");
	put(v, 0, "{\"prompt\":\"x\"}");
	verdict_refuse(v, &f);
	put(v, 14, "\n");
	assert_int_equal(verdict_fault(v)->err, -ERANGE);
	verdict_free(v);
	verdict_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(write__whole_documents_cut_anywhere__whole_once_no_fault),
		cmocka_unit_test(write__hopeless_cut_anywhere__same_place_named),
		cmocka_unit_test(write__hopeless_byte_by_byte__told_at_that_byte),
		cmocka_unit_test(write__characters_cut_into_bytes__good),
		cmocka_unit_test(write__bytes_not_utf8_in_json__eilseq),
		cmocka_unit_test(write__utf16__named),
		cmocka_unit_test(write__out_of_order__nothing_said_until_it_starts_anew),
		cmocka_unit_test(write__after_a_reset__old_fault_forgotten),
		cmocka_unit_test(judge__good_request__order_filled),
		cmocka_unit_test(judge__refused_by_the_model__its_shape_known),
		cmocka_unit_test(judge__bad_requests__why_not),
		cmocka_unit_test(refuse__a_judgement__remembered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
