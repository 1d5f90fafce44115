/* Inputs in files beside the request: which names are taken, and what the files must hold. */
#include "core/job/request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/request_checks.h"

#define INPUT(members) "{\"inputs\":[{\"name\":\"x\"," members "}]}"
#define INPUT_ONE(name, shape, datatype, file) \
	"{\"name\":\"" name "\",\"shape\":" shape ",\"datatype\":\"" datatype \
	"\",\"file\":\"" file "\"}"
#define TYPED "\"shape\":[1,2],\"datatype\":\"FP32\","

/* array([[1, -2]], float32), as numpy.save() writes it. */
static const char npy[] =
	"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }"
	"                                                          \n"
	"\x00\x00\x80\x3f\x00\x00\x00\xc0";

static void request_from_json__file__name_kept(void **state)
{
	struct request *r = accepted(INPUT("\"file\":\"a b.npy\""));

	(void)state;
	assert_string_equal(r->inputs[0].file, "a b.npy");
	assert_null(r->inputs[0].data);
	assert_int_equal(r->inputs[0].spec.dtype, DTYPE_INVALID);
	assert_false(r->inputs[0].shape_given);
	assert_int_equal(r->shape, ANSWER_KSERVE);
	request_free(r);
	r = accepted(INPUT(TYPED "\"file\":\"x.bin\""));
	assert_string_equal(r->inputs[0].file, "x.bin");
	assert_null(r->inputs[0].data);
	assert_true(r->inputs[0].shape_given);
	assert_int_equal(r->inputs[0].spec.rank, 2);
	request_free(r);
	request_free(accepted(INPUT("\"shape\":[1],\"datatype\":\"FP16\",\"file\":\"x.bin\"")));
}

static void request_from_json__file_names_not_taken__refused(void **state)
{
	static const struct {
		const char *name, *part;
	} rows[] = {
		{ "", "is empty" },
		{ "..", "begins with a dot" },
		{ ".", "begins with a dot" },
		{ ".x.npy", "begins with a dot" },
		{ "../x.npy", "has a \"/\"" },
		{ "/etc/passwd", "has a \"/\"" },
		{ "a/x.npy", "has a \"/\"" },
		{ "x/", "has a \"/\"" },
		{ "a.json", "of requests or results" },
		{ "a.txt", "of requests or results" },
		{ "a.jsonl", "of requests or results" },
		{ "a.out", "of requests or results" },
		{ "a.err", "of requests or results" },
		{ "a.status", "of requests or results" },
		{ "a.stream", "of requests or results" },
		{ "a\\u0007.npy", "control characters" },
		{ "a\\n.npy", "control characters" },
	};
	char json[300];

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		int n = snprintf(json, sizeof json, INPUT(TYPED "\"file\":\"%s\""), rows[i].name);

		refused(json, (size_t)n, -EINVAL, "inputs[0].file", rows[i].part);
	}
}

static void request_from_json__file_name_length__at_most_255(void **state)
{
	char json[500];
	int n = snprintf(json, sizeof json, INPUT(TYPED "\"file\":\"%0255d\""), 0);

	(void)state;
	request_free(accepted(json));
	n = snprintf(json, sizeof json, INPUT(TYPED "\"file\":\"%0256d\""), 0);
	refused(json, (size_t)n, -EINVAL, "inputs[0].file", "more than 255 bytes");
}

static void request_from_json__file_members__complete_and_alone(void **state)
{
	(void)state;
	refused(B(INPUT("\"file\":5")), -EINVAL, "inputs[0].shape", "is missing");
	refused(B(INPUT(TYPED "\"file\":5")), -EINVAL, "inputs[0].file", "is 5, must be a string");
	refused(B(INPUT("\"file\":\"x.bin\"")), -EINVAL, "inputs[0].shape", "is missing");
	refused(B(INPUT("\"shape\":[1],\"file\":\"x.bin\"")), -EINVAL, "inputs[0].datatype",
		"is missing");
	refused(B(INPUT(TYPED "\"file\":\"x.npy\",\"data\":[1,2]")), -EINVAL, "inputs[0].file",
		"\"data\" and \"file\" are both given");
	refused(B(INPUT(TYPED "\"name2\":1")), -EINVAL, "inputs[0].data", "is missing");
	refused(B(INPUT("\"fil\":\"x.npy\"," TYPED "\"data\":[1,2]")), -EINVAL, "inputs[0].fil",
		"did you mean \"file\"?");
}

/* --- attaching -------------------------------------------------------------------------------- */

static void request_attach__npy__tensor_of_the_file(void **state)
{
	static const char *const members[] = { "", "\"shape\":[1,2],", "\"datatype\":\"FP32\",",
		TYPED };
	char json[200];

	(void)state;
	for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
		struct fault f = FAULT_NONE;
		struct request *r;

		snprintf(json, sizeof json, INPUT("%s\"file\":\"x.npy\""), members[i]);
		r = accepted(json);
		assert_int_equal(request_attach(r, 0, B(npy), &f), 0);
		assert_string_equal(r->inputs[0].spec.name, "x");
		assert_int_equal(r->inputs[0].spec.dtype, DTYPE_FLOAT32);
		assert_int_equal(r->inputs[0].spec.rank, 2);
		assert_int_equal(r->inputs[0].spec.dims[1], 2);
		assert_memory_equal(r->inputs[0].data, "\x00\x00\x80\x3f\x00\x00\x00\xc0", 8);
		request_free(r);
	}
}

static void request_attach__raw__exact_bytes(void **state)
{
	struct request *r =
		accepted("{\"inputs\":[" INPUT_ONE("a", "[2]", "INT16", "a.bin") "," INPUT_ONE("b",
			"[0,3]", "FP64", "b.bin") "," INPUT_ONE("c", "[]", "FP16", "c.raw") "]}");
	struct fault f = FAULT_NONE;

	(void)state;
	assert_int_equal(request_attach(r, 0, "\1\0\2\0", 4, &f), 0);
	assert_memory_equal(r->inputs[0].data, "\1\0\2\0", 4);
	assert_int_equal(request_attach(r, 1, "", 0, &f), 0);
	assert_non_null(r->inputs[1].data);
	assert_int_equal(request_attach(r, 2, "\0\x3c", 2, &f), 0);
	assert_int_equal(request_attach(r, 0, "\3\0\4\0", 4, &f), 0);
	assert_memory_equal(r->inputs[0].data, "\3\0\4\0", 4);
	request_free(r);
}

static void check_unattached(const char *json, const char *bytes, size_t len, int err,
	const char *reason)
{
	struct request *r = accepted(json);
	struct fault f = FAULT_NONE;

	if (request_attach(r, 0, bytes, len, &f) != err || f.err != err ||
		strcmp(f.reason, reason) != 0)
		fail_msg("%s: %d: %s", json, f.err, f.reason);
	assert_string_equal(f.field, "inputs[0].file");
	assert_true(f.action[0] && f.offset == -1);
	assert_null(r->inputs[0].data);
	assert_int_equal(request_attach(r, 0, bytes, len, NULL), err);
	request_free(r);
}

static void request_attach__file_against_request__both_told(void **state)
{
	(void)state;
	check_unattached(INPUT("\"datatype\":\"FP64\",\"file\":\"x.npy\""), B(npy), -EINVAL,
		"\"x.npy\" holds float32[1,2]; the request's \"datatype\" is FP64");
	check_unattached(INPUT("\"shape\":[2],\"file\":\"x.npy\""), B(npy), -EINVAL,
		"\"x.npy\" holds float32[1,2]; the request's \"shape\" makes it float32[2]");
	check_unattached(INPUT("\"shape\":[],\"file\":\"x.npy\""), B(npy), -EINVAL,
		"\"x.npy\" holds float32[1,2]; the request's \"shape\" makes it float32[]");
	check_unattached(INPUT(TYPED "\"file\":\"x.bin\""), "1234567", 7, -EINVAL,
		"\"x.bin\" has 7 bytes; float32[1,2] takes 8");
	check_unattached(INPUT(TYPED "\"file\":\"x.bin\""), "123456789", 9, -EINVAL,
		"\"x.bin\" has 9 bytes; float32[1,2] takes 8");
	check_unattached(INPUT("\"shape\":[9223372036854775807],\"datatype\":\"FP32\","
			       "\"file\":\"x.bin\""),
		"", 0, -ERANGE,
		"float32[9223372036854775807] has more bytes than 64 bits can count");
}

static void request_attach__broken_npy__place_in_the_file(void **state)
{
	(void)state;
	check_unattached(INPUT("\"file\":\"x.npy\""), B("hello"), -EINVAL,
		"\"x.npy\", byte 0: this is no .npy file");
	check_unattached(INPUT("\"file\":\"x.npy\""), npy, sizeof npy - 2, -EINVAL,
		"\"x.npy\", byte 135: 7 bytes of data where float32[1,2] takes 8");
}

static void request_attach__values_that_json_has_not__refused(void **state)
{
	(void)state;
	check_unattached(INPUT(TYPED "\"file\":\"x.bin\""), "\0\0\x80\x3f\0\0\x80\x7f", 8, -EINVAL,
		"\"x.bin\": element 1 is no finite number");
	check_unattached(INPUT("\"shape\":[1],\"datatype\":\"FP64\",\"file\":\"x.bin\""),
		"\0\0\0\0\0\0\xf8\x7f", 8, -EINVAL, "\"x.bin\": element 0 is no finite number");
	check_unattached(INPUT("\"shape\":[2],\"datatype\":\"FP16\",\"file\":\"x.bin\""),
		"\xff\x7b\x00\xfc", 4, -EINVAL, "\"x.bin\": element 1 is no finite number");
	check_unattached(INPUT("\"shape\":[3],\"datatype\":\"BOOL\",\"file\":\"x.bin\""), "\0\1\2",
		3, -EINVAL, "\"x.bin\": element 2 is neither 0 nor 1");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(request_from_json__file__name_kept),
		cmocka_unit_test(request_from_json__file_names_not_taken__refused),
		cmocka_unit_test(request_from_json__file_name_length__at_most_255),
		cmocka_unit_test(request_from_json__file_members__complete_and_alone),
		cmocka_unit_test(request_attach__npy__tensor_of_the_file),
		cmocka_unit_test(request_attach__raw__exact_bytes),
		cmocka_unit_test(request_attach__file_against_request__both_told),
		cmocka_unit_test(request_attach__broken_npy__place_in_the_file),
		cmocka_unit_test(request_attach__values_that_json_has_not__refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
