#include "core/tensor_json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>

#include "core/base/mem.h"

static void data__each_type__numbers_that_read_back(void **state)
{
	static const uint8_t bools[] = { 0, 1, 2 }, bytes[] = { 0, 128, 255 };
	static const int8_t small[] = { INT8_MIN, 0, INT8_MAX };
	static const int16_t shorts[] = { INT16_MIN, 0, INT16_MAX };
	static const uint16_t words[] = { 0, 0x3c00, UINT16_MAX };
	static const int32_t ints[] = { INT32_MIN, -1, INT32_MAX };
	static const uint32_t uints[] = { 0, 1, UINT32_MAX };
	static const int64_t longs[] = { INT64_MIN, 9007199254740993, INT64_MAX };
	static const uint64_t ulongs[] = { 0, 9007199254740993, UINT64_MAX };
	static const float floats[] = { 0.1f, -0.0f, FLT_MAX };
	static const float wild[] = { NAN, -INFINITY, 16777215.0f };
	static const double doubles[] = { 0.1, (double)INFINITY, DBL_MAX };
	static const struct {
		enum dtype type;
		const void *data;
		const char *want;
	} rows[] = {
		{ DTYPE_BOOL, bools, "[false, true, true]" },
		{ DTYPE_INT8, small, "[-128, 0, 127]" },
		{ DTYPE_UINT8, bytes, "[0, 128, 255]" },
		{ DTYPE_INT16, shorts, "[-32768, 0, 32767]" },
		{ DTYPE_UINT16, words, "[0, 15360, 65535]" },
		{ DTYPE_FLOAT16, words, "[0, 15360, 65535]" },
		{ DTYPE_INT32, ints, "[-2147483648, -1, 2147483647]" },
		{ DTYPE_UINT32, uints, "[0, 1, 4294967295]" },
		{ DTYPE_INT64, longs,
			"[-9223372036854775808, 9007199254740993, 9223372036854775807]" },
		{ DTYPE_UINT64, ulongs, "[0, 9007199254740993, 18446744073709551615]" },
		{ DTYPE_FLOAT32, floats, "[0.1, -0, 3.4028235e+38]" },
		{ DTYPE_FLOAT32, wild, "[null, null, 16777215]" },
		{ DTYPE_FLOAT64, doubles, "[0.1, null, 1.7976931348623157e+308]" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct tensor_spec t = { .dtype = rows[i].type, .rank = 1, .dims = { 3 } };
		struct json_value *v = json_new_object();

		tensor_json_data(v, &t, rows[i].data);
		assert_string_equal(json_text(json_member(v, "data")), rows[i].want);
		json_free(v);
	}
}

static void add__whole_tensor__as_kserve_has_it(void **state)
{
	static const float data[] = { 1, 2.5f, -3, 4, 5, 6 };
	const struct tensor_spec t = { "y", DTYPE_FLOAT32, 2, { 2, 3 } };
	const struct tensor_spec none = { .name = "z",
		.dtype = DTYPE_INT8,
		.rank = 1,
		.dims = { 0 } };
	AUTO_BUF struct buf b = BUF_INIT;
	struct json_value *v = json_new_array();

	(void)state;
	tensor_json_add(v, &t, data);
	tensor_json_add(v, &none, data);
	assert_int_equal(json_render(v, false, &b), 0);
	assert_string_equal(buf_text(&b),
		"[{\"name\":\"y\",\"datatype\":\"FP32\",\"shape\":[2,3],"
		"\"data\":[1, 2.5, -3, 4, 5, 6]},"
		"{\"name\":\"z\",\"datatype\":\"INT8\",\"shape\":[0],\"data\":[]}]");
	json_free(v);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(data__each_type__numbers_that_read_back),
		cmocka_unit_test(add__whole_tensor__as_kserve_has_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
