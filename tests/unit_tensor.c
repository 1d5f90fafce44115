#include "core/tensor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

static void dtype_from_name__both_spellings__same_type(void **state)
{
	static const struct {
		const char *name, *kserve;
		enum dtype type;
		size_t size;
	} rows[] = {
		{ "bool", "BOOL", DTYPE_BOOL, 1 },
		{ "int8", "INT8", DTYPE_INT8, 1 },
		{ "uint8", "UINT8", DTYPE_UINT8, 1 },
		{ "int16", "INT16", DTYPE_INT16, 2 },
		{ "uint16", "UINT16", DTYPE_UINT16, 2 },
		{ "int32", "INT32", DTYPE_INT32, 4 },
		{ "uint32", "UINT32", DTYPE_UINT32, 4 },
		{ "int64", "INT64", DTYPE_INT64, 8 },
		{ "uint64", "UINT64", DTYPE_UINT64, 8 },
		{ "float16", "FP16", DTYPE_FLOAT16, 2 },
		{ "float32", "FP32", DTYPE_FLOAT32, 4 },
		{ "float64", "FP64", DTYPE_FLOAT64, 8 },
	};

	(void)state;
	assert_int_equal(sizeof rows / sizeof rows[0], DTYPE_COUNT - 1);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		assert_int_equal(dtype_from_name(rows[i].name), rows[i].type);
		assert_int_equal(dtype_from_name(rows[i].kserve), rows[i].type);
		assert_string_equal(dtype_name(rows[i].type), rows[i].name);
		assert_string_equal(dtype_kserve(rows[i].type), rows[i].kserve);
		assert_int_equal(dtype_size(rows[i].type), rows[i].size);
	}
}

static void dtype_from_name__unknown__is_invalid(void **state)
{
	static const char *const names[] = { "", "FP8", "float", "Float32", "fp32", "invalid",
		"INVALID", "BYTES", "float32 " };

	(void)state;
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		assert_int_equal(dtype_from_name(names[i]), DTYPE_INVALID);
	assert_int_equal(dtype_size(DTYPE_INVALID), 0);
	assert_int_equal(dtype_size(DTYPE_COUNT), 0);
	assert_int_equal(dtype_size((enum dtype)200), 0);
}

static void tensor_elements__shapes__product(void **state)
{
	struct tensor_spec scalar = { .dtype = DTYPE_INT64, .rank = 0 };
	struct tensor_spec t = { .dtype = DTYPE_FLOAT32, .rank = 3, .dims = { 2, 3, 5 } };
	struct tensor_spec empty = { .dtype = DTYPE_UINT8, .rank = 2, .dims = { 7, 0 } };

	(void)state;
	assert_int_equal(tensor_elements(&scalar), 1);
	assert_int_equal(tensor_bytes(&scalar), 8);
	assert_int_equal(tensor_elements(&t), 30);
	assert_int_equal(tensor_bytes(&t), 120);
	assert_int_equal(tensor_elements(&empty), 0);
	assert_int_equal(tensor_bytes(&empty), 0);
}

static void tensor_elements__overflow_or_negative__refused(void **state)
{
	struct tensor_spec negative = { .dtype = DTYPE_INT8, .rank = 2, .dims = { 2, -1 } };
	struct tensor_spec wide = { .dtype = DTYPE_INT8,
		.rank = 2,
		.dims = { 1LL << 32, 1LL << 31 } };
	struct tensor_spec bytes = { .dtype = DTYPE_INT16,
		.rank = 2,
		.dims = { 1LL << 31, 1LL << 31 } };
	struct tensor_spec hidden = { .dtype = DTYPE_INT8, .rank = 3, .dims = { INT64_MAX, 2, 0 } };
	struct tensor_spec deep = { .dtype = DTYPE_INT8, .rank = TENSOR_MAX_RANK + 1 };

	(void)state;
	assert_int_equal(tensor_elements(&negative), -1);
	assert_int_equal(tensor_bytes(&negative), -1);
	assert_int_equal(tensor_elements(&wide), -1);
	assert_true(tensor_elements(&bytes) == 1LL << 62);
	assert_int_equal(tensor_bytes(&bytes), -1);
	assert_int_equal(tensor_elements(&hidden), -1);
	assert_int_equal(tensor_elements(&deep), -1);
}

static void tensor_same_shape__rank_and_dims__compared(void **state)
{
	struct tensor_spec a = { .dtype = DTYPE_INT8, .rank = 2, .dims = { 2, 3, 9 } };
	struct tensor_spec b = { .dtype = DTYPE_FLOAT32, .rank = 2, .dims = { 2, 3, 4 } };
	struct tensor_spec c = { .dtype = DTYPE_INT8, .rank = 2, .dims = { 3, 2 } };
	struct tensor_spec d = { .dtype = DTYPE_INT8, .rank = 3, .dims = { 2, 3, 1 } };

	(void)state;
	assert_true(tensor_same_shape(&a, &b)); /* beyond the rank nothing counts,
		nor does the type */
	assert_false(tensor_same_shape(&a, &c));
	assert_false(tensor_same_shape(&a, &d));
}

static void tensor_text__any__type_and_dims(void **state)
{
	struct tensor_spec t = { .dtype = DTYPE_FLOAT32, .rank = 2, .dims = { 2, 3 } };
	struct tensor_spec scalar = { .dtype = DTYPE_BOOL };
	struct tensor_spec wide = { .dtype = DTYPE_FLOAT64, .rank = TENSOR_MAX_RANK };
	char text[TENSOR_TEXT_SIZE];

	(void)state;
	assert_string_equal(tensor_text(&t, text), "float32[2,3]");
	assert_string_equal(tensor_text(&scalar, text), "bool[]");
	for (int i = 0; i < TENSOR_MAX_RANK; i++)
		wide.dims[i] = INT64_MIN;
	assert_int_equal(strlen(tensor_text(&wide, text)), strlen("float64[]") + 8 * 20 + 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(dtype_from_name__both_spellings__same_type),
		cmocka_unit_test(dtype_from_name__unknown__is_invalid),
		cmocka_unit_test(tensor_elements__shapes__product),
		cmocka_unit_test(tensor_elements__overflow_or_negative__refused),
		cmocka_unit_test(tensor_same_shape__rank_and_dims__compared),
		cmocka_unit_test(tensor_text__any__type_and_dims),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
