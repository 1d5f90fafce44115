/* `inputs`: the tensors of a request, in the manner of KServe v2. */
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

static void check_tensor(const char *datatype, const char *data, enum dtype type, const void *bytes,
	size_t size)
{
	struct request *r;
	char json[400];

	snprintf(json, sizeof json,
		"{\"inputs\":[{\"name\":\"x\",\"shape\":[2],\"datatype\":\"%s\",\"data\":%s}]}",
		datatype, data);
	r = accepted(json);
	assert_int_equal(r->n_inputs, 1);
	assert_int_equal(r->inputs[0].spec.dtype, type);
	assert_int_equal(tensor_bytes(&r->inputs[0].spec), size);
	if (memcmp(r->inputs[0].data, bytes, size) != 0)
		fail_msg("%s %s", datatype, data);
	request_free(r);
}

static void request_from_json__tensor_of_each_type__little_endian_bytes(void **state)
{
	(void)state;
	check_tensor("BOOL", "[true,0]", DTYPE_BOOL, "\x01\x00", 2);
	check_tensor("bool", "[1,false]", DTYPE_BOOL, "\x01\x00", 2);
	check_tensor("INT8", "[-128,127]", DTYPE_INT8, "\x80\x7f", 2);
	check_tensor("uint8", "[0,255]", DTYPE_UINT8, "\x00\xff", 2);
	check_tensor("INT16", "[-32768,258]", DTYPE_INT16, "\x00\x80\x02\x01", 4);
	check_tensor("UINT16", "[65535,258]", DTYPE_UINT16, "\xff\xff\x02\x01", 4);
	check_tensor("int32", "[-2147483648,-1]", DTYPE_INT32, "\x00\x00\x00\x80\xff\xff\xff\xff",
		8);
	check_tensor("UINT32", "[4294967295,1.0]", DTYPE_UINT32, "\xff\xff\xff\xff\x01\x00\x00\x00",
		8);
	check_tensor("INT64", "[-9223372036854775808,9007199254740993]", DTYPE_INT64,
		"\0\0\0\0\0\0\0\x80\x01\0\0\0\0\0\x20\0", 16);
	check_tensor("UINT64", "[18446744073709551615,1e3]", DTYPE_UINT64,
		"\xff\xff\xff\xff\xff\xff\xff\xff\xe8\x03\0\0\0\0\0\0", 16);
	check_tensor("FP32", "[1,-0.1]", DTYPE_FLOAT32, "\0\0\x80\x3f\xcd\xcc\xcc\xbd", 8);
	check_tensor("float64", "[-2,0.1]", DTYPE_FLOAT64,
		"\0\0\0\0\0\0\0\xc0\x9a\x99\x99\x99\x99\x99\xb9\x3f", 16);
}

static void request_from_json__nested_and_flat_data__same_bytes(void **state)
{
	static const char *const data[] = { "[1,2,3,4,5,6]", "[[1,2,3],[4,5,6]]" };

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		char json[300];
		struct request *r;

		snprintf(json, sizeof json,
			"{\"inputs\":[{\"data\":%s,\"datatype\":\"INT8\",\"shape\":[2,3],\"name\":"
			"\"a/b\"}]}",
			data[i]);
		r = accepted(json);
		assert_string_equal(r->inputs[0].spec.name, "a/b");
		assert_int_equal(r->inputs[0].spec.rank, 2);
		assert_int_equal(r->inputs[0].spec.dims[0], 2);
		assert_int_equal(r->inputs[0].spec.dims[1], 3);
		assert_memory_equal(r->inputs[0].data, "\1\2\3\4\5\6", 6);
		request_free(r);
	}
}

static void request_from_json__scalar_empty_and_several_tensors__accepted(void **state)
{
	struct request *r =
		accepted("{\"id\":\"k1\",\"inputs\":["
			 "{\"name\":\"s\",\"shape\":[],\"datatype\":\"INT8\",\"data\":[5]},"
			 "{\"name\":\"e\",\"shape\":[0,4],\"datatype\":\"FP32\",\"data\":[]},"
			 "{\"name\":\"f\",\"shape\":[2,0],\"datatype\":\"FP32\",\"data\":[[],[]]},"
			 "{\"name\":\"d\",\"shape\":[1,1,1,1,1,1,1,1],\"datatype\":\"INT8\","
			 "\"data\":[[[[[[[[9]]]]]]]]}]}");

	(void)state;
	assert_string_equal(r->request_id, "k1");
	assert_int_equal(r->n_inputs, 4);
	assert_memory_equal(r->inputs[0].data, "\5", 1);
	assert_int_equal(tensor_elements(&r->inputs[1].spec), 0);
	assert_memory_equal(r->inputs[3].data, "\t", 1);
	request_free(r);
}

static void tensor_refused(const char *tensor, int err, const char *field, const char *part)
{
	char json[600];
	int n = snprintf(json, sizeof json, "{\"inputs\":[%s]}", tensor);

	refused(json, (size_t)n, err, field, part);
}

#define T(shape, datatype, data) \
	"{\"name\":\"x\",\"shape\":" shape ",\"datatype\":\"" datatype "\",\"data\":" data "}"

static void request_from_json__tensor_values_wrong__refused(void **state)
{
	(void)state;
	tensor_refused(T("[2,3]", "FP32", "[1,2,3,4,5]"), -EINVAL, "inputs[0].data",
		"\"inputs[0].data\" has 5 values where float32[2,3] takes 6");
	tensor_refused(T("[2,3]", "FP32", "[1,2,3,4,5,6,7]"), -EINVAL, "inputs[0].data",
		"has 7 values");
	tensor_refused(T("[2,3]", "FP32", "[[1,2,3],[4,5]]"), -EINVAL, "inputs[0].data",
		"has 2 values where float32[2,3] takes 3");
	tensor_refused(T("[2,3]", "FP32", "[[1,2,3]]"), -EINVAL, "inputs[0].data", "has 1 values");
	tensor_refused(T("[2,3]", "FP32", "[[1,2,3],4]"), -EINVAL, "inputs[0].data",
		"is 4, must be an array");
	tensor_refused(T("[2,3]", "FP32", "[[1,2,3],[1,2,[3]]]"), -EINVAL, "inputs[0].data[5]",
		"is an array, must be a number");
	tensor_refused(T("[1]", "FP32", "[[1]]"), -EINVAL, "inputs[0].data[0]",
		"is an array, must be a number");
	tensor_refused(T("[1]", "FP32", "5"), -EINVAL, "inputs[0].data", "is 5, must be an array");
	tensor_refused(T("[1]", "FP32", "[\"1\"]"), -EINVAL, "inputs[0].data[0]",
		"is a string, must be a number");
	tensor_refused(T("[1]", "FP32", "[null]"), -EINVAL, "inputs[0].data[0]",
		"is null, must be a number");
	tensor_refused(T("[1]", "FP32", "[3.5e38]"), -ERANGE, "inputs[0].data[0]",
		"must be a number within float32");
	tensor_refused(T("[1]", "INT8", "[128]"), -ERANGE, "inputs[0].data[0]",
		"is 128, must be an integer -128..127");
	tensor_refused(T("[1]", "INT8", "[-129]"), -ERANGE, "inputs[0].data[0]", "is -129");
	tensor_refused(T("[1]", "INT8", "[1.5]"), -EINVAL, "inputs[0].data[0]",
		"is 1.5, must be an integer");
	tensor_refused(T("[1]", "INT8", "[true]"), -EINVAL, "inputs[0].data[0]",
		"is true or false");
	tensor_refused(T("[2]", "UINT8", "[1,256]"), -ERANGE, "inputs[0].data[1]",
		"is 256, must be an integer 0..255");
	tensor_refused(T("[1]", "UINT16", "[-1]"), -ERANGE, "inputs[0].data[0]", "is -1");
	tensor_refused(T("[1]", "INT32", "[2147483648]"), -ERANGE, "inputs[0].data[0]",
		"is 2147483648");
	tensor_refused(T("[1]", "UINT32", "[4294967296]"), -ERANGE, "inputs[0].data[0]",
		"is 4294967296");
	tensor_refused(T("[1]", "INT64", "[9223372036854775808]"), -ERANGE, "inputs[0].data[0]",
		"is 9223372036854775808");
	tensor_refused(T("[1]", "UINT64", "[18446744073709551616]"), -ERANGE, "inputs[0].data[0]",
		"is 1844674407370955");
	tensor_refused(T("[1]", "BOOL", "[2]"), -ERANGE, "inputs[0].data[0]",
		"is 2, must be a bool");
	tensor_refused(T("[1]", "BOOL", "[\"true\"]"), -EINVAL, "inputs[0].data[0]",
		"is a string, must be a bool");
}

static void request_from_json__tensor_members_wrong__refused(void **state)
{
	(void)state;
	tensor_refused("5", -EINVAL, "inputs[0]", "is 5, must be an object");
	tensor_refused("", -EINVAL, "inputs", "must be an array of 1..64 objects");
	tensor_refused("{}", -EINVAL, "inputs[0].name", "\"inputs[0].name\" is missing");
	tensor_refused("{\"name\":\"x\",\"datatype\":\"INT8\",\"data\":[]}", -EINVAL,
		"inputs[0].shape", "\"inputs[0].shape\" is missing");
	tensor_refused("{\"name\":\"x\",\"shape\":[1],\"datatype\":\"INT8\",\"data\":[1],"
		       "\"shap\":1}",
		-EINVAL, "inputs[0].shap",
		"unknown field \"shap\" in \"inputs[0]\"; did you mean \"shape\"?");
	tensor_refused("{\"name\":5,\"shape\":[1],\"datatype\":\"INT8\",\"data\":[1]}", -EINVAL,
		"inputs[0].name", "is 5, must be a string");
	tensor_refused("{\"name\":\"\",\"shape\":[1],\"datatype\":\"INT8\",\"data\":[1]}", -EINVAL,
		"inputs[0].name", "1..63 bytes");
	tensor_refused("{\"name\":"
		       "\"1234567890123456789012345678901234567890123456789012345678901234\","
		       "\"shape\":[1],"
		       "\"datatype\":\"INT8\",\"data\":[1]}",
		-EINVAL, "inputs[0].name", "1..63 bytes");
	tensor_refused(T("5", "INT8", "[1]"), -EINVAL, "inputs[0].shape", "is 5, must be an array");
	tensor_refused(T("[-1]", "INT8", "[1]"), -ERANGE, "inputs[0].shape",
		"is -1, must be an integer of 0 or more");
	tensor_refused(T("[1.5]", "INT8", "[1]"), -EINVAL, "inputs[0].shape", "is 1.5");
	tensor_refused(T("[\"1\"]", "INT8", "[1]"), -EINVAL, "inputs[0].shape", "is a string");
	tensor_refused(T("[1,1,1,1,1,1,1,1,1]", "INT8", "[1]"), -EINVAL, "inputs[0].shape",
		"at most 8");
	tensor_refused(T("[4294967296,4294967296]", "INT8", "[1]"), -ERANGE, "inputs[0].shape",
		"more values than 64 bits");
	tensor_refused(T("[1000000000000]", "FP64", "[1]"), -EINVAL, "inputs[0].data",
		"has 1 values");
	tensor_refused(T("[1]", "FP3", "[1]"), -EINVAL, "inputs[0].datatype",
		"unknown datatype \"FP3\"; did you mean \"FP32\"?");
	tensor_refused(T("[1]", "BYTES", "[\"a\"]"), -EINVAL, "inputs[0].datatype",
		"unknown datatype \"BYTES\"");
	tensor_refused(T("[1]", "FP16", "[1]"), -EOPNOTSUPP, "inputs[0].datatype", "float16");
	tensor_refused(T("[1]", "INT8", "[1]") "," T("[1]", "INT8", "[1]"), -EINVAL,
		"inputs[1].name", "repeats the name \"x\" of \"inputs[0]\"");
	refused(B("{\"inputs\":{}}"), -EINVAL, "inputs", "is an object, must be an array");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(request_from_json__tensor_of_each_type__little_endian_bytes),
		cmocka_unit_test(request_from_json__nested_and_flat_data__same_bytes),
		cmocka_unit_test(request_from_json__scalar_empty_and_several_tensors__accepted),
		cmocka_unit_test(request_from_json__tensor_values_wrong__refused),
		cmocka_unit_test(request_from_json__tensor_members_wrong__refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
