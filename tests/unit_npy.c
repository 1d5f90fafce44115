/* Files written by hand after the description of the format in NumPy's documentation. */
#include "core/npy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define B(text) text, sizeof(text) - 1

/* What numpy.save() writes of array([[1, -2]], float32), byte for byte. */
static const char float32_1x2[] =
	"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }"
	"                                                          \n"
	"\x00\x00\x80\x3f\x00\x00\x00\xc0";

/* A file of this version, dictionary and data. */
static void make(struct buf *out, unsigned version, const char *dict, const char *data, size_t len)
{
	size_t n = strlen(dict);
	unsigned char size[4] = { (unsigned char)n, (unsigned char)(n >> 8), 0, 0 };

	buf_reset(out);
	buf_printf(out, "\x93NUMPY%c", (int)version);
	buf_put(out, "", 1);
	buf_put(out, size, version == 1 ? 2 : 4);
	buf_puts(out, dict);
	buf_put(out, data, len);
}

#define D(descr, fortran, shape) \
	"{'descr': " descr ", 'fortran_order': " fortran ", 'shape': " shape ", }\n"

static void npy_parse__as_numpy_saves__tensor(void **state)
{
	struct tensor_spec t;
	struct fault f = FAULT_NONE;
	size_t data;

	(void)state;
	assert_int_equal(npy_parse(B(float32_1x2), &t, &data, &f), 0);
	assert_int_equal(t.dtype, DTYPE_FLOAT32);
	assert_int_equal(t.rank, 2);
	assert_int_equal(t.dims[0], 1);
	assert_int_equal(t.dims[1], 2);
	assert_string_equal(t.name, "");
	assert_int_equal(data, 128);
}

static void npy_parse__each_type__mapped(void **state)
{
	static const struct {
		const char *descr;
		enum dtype dtype;
		size_t size;
	} rows[] = {
		{ "|b1", DTYPE_BOOL, 1 },
		{ "|i1", DTYPE_INT8, 1 },
		{ "|u1", DTYPE_UINT8, 1 },
		{ "<i2", DTYPE_INT16, 2 },
		{ "<u2", DTYPE_UINT16, 2 },
		{ "<i4", DTYPE_INT32, 4 },
		{ "<u4", DTYPE_UINT32, 4 },
		{ "<i8", DTYPE_INT64, 8 },
		{ "<u8", DTYPE_UINT64, 8 },
		{ "<f2", DTYPE_FLOAT16, 2 },
		{ "<f4", DTYPE_FLOAT32, 4 },
		{ "<f8", DTYPE_FLOAT64, 8 },
		{ "<u1", DTYPE_UINT8, 1 },
		{ ">i1", DTYPE_INT8, 1 },
	};
	AUTO_BUF struct buf file = BUF_INIT;

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct tensor_spec t;
		struct fault f = FAULT_NONE;
		char dict[100];
		size_t data;

		snprintf(dict, sizeof dict,
			"{'descr': '%s', 'fortran_order': False, 'shape': (3,), }", rows[i].descr);
		make(&file, 1, dict, "abcdefghijklmnopqrstuvwx", 3 * rows[i].size);
		if (npy_parse(file.data, file.len, &t, &data, &f))
			fail_msg("%s: %s", rows[i].descr, f.reason);
		assert_int_equal(t.dtype, rows[i].dtype);
		assert_int_equal(t.rank, 1);
		assert_int_equal(t.dims[0], 3);
		assert_int_equal(data, 10 + strlen(dict));
	}
}

static void npy_parse__forms_of_header__taken(void **state)
{
	static const struct {
		unsigned version;
		const char *dict, *want;
	} rows[] = {
		{ 1, D("'|u1'", "False", "()"), "uint8[]" },
		{ 2, D("'|u1'", "False", "(1, 1)"), "uint8[1,1]" },
		{ 3, D("'|u1'", "False", "(1,)"), "uint8[1]" },
		{ 1, D("'|u1'", "True", "(1,)"), "uint8[1]" },
		{ 1, D("'|u1'", "False", "(1L, 1L)"), "uint8[1,1]" },
		{ 1, D("'|u1'", "False", "(1, 1, 1, 1, 1, 1, 1, 1)"), "uint8[1,1,1,1,1,1,1,1]" },
		{ 1, "{\"shape\":(1,),\"descr\":\"|u1\",\"fortran_order\":False}", "uint8[1]" },
		{ 1, "{'shape': (1 , 1,), 'fortran_order': False, 'descr': '|u1'}   \t\n",
			"uint8[1,1]" },
	};
	AUTO_BUF struct buf file = BUF_INIT;

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		char text[TENSOR_TEXT_SIZE];
		struct tensor_spec t;
		struct fault f = FAULT_NONE;
		size_t data;

		make(&file, rows[i].version, rows[i].dict, "z", 1);
		if (npy_parse(file.data, file.len, &t, &data, &f))
			fail_msg("%s: %s at %ld", rows[i].dict, f.reason, f.offset);
		assert_string_equal(tensor_text(&t, text), rows[i].want);
		assert_int_equal(data, file.len - 1);
	}
}

static void check_refused(const char *bytes, size_t len, int err, long offset, const char *part)
{
	struct tensor_spec t;
	struct fault f = FAULT_NONE;
	size_t data;
	int got = npy_parse(bytes, len, &t, &data, &f);

	if (got != err || f.err != err || f.offset != offset || !strstr(f.reason, part) ||
		!f.action[0])
		fail_msg("%s: %d at %ld: %s (%s)", part, got, f.offset, f.reason, f.action);
	assert_int_equal(npy_parse(bytes, len, &t, &data, NULL), err);
}

static void npy_parse__outside_the_header__refused(void **state)
{
	(void)state;
	check_refused(B(""), -EINVAL, 0, "no .npy file");
	check_refused(B("PK\x03\x04"), -EINVAL, 0, "no .npy file");
	check_refused(B("\x93NUMPX\x01\x00\x00\x00"), -EINVAL, 0, "no .npy file");
	check_refused(B("\x93NUM"), -EINVAL, 4, "ends within its header");
	check_refused(B("\x93NUMPY\x01\x00\x76"), -EINVAL, 9, "ends within its header");
	check_refused(B("\x93NUMPY\x02\x00\x01\x00\x00"), -EINVAL, 11, "ends within its header");
	check_refused(B("\x93NUMPY\x01\x00\x05\x00{}"), -EINVAL, 12, "ends within its header");
	check_refused(B("\x93NUMPY\x02\x00\xff\xff\xff\xff{}"), -EINVAL, 14, "within its header");
	check_refused(B("\x93NUMPY\x00\x00\x00\x00"), -EOPNOTSUPP, 6, "version 0.0");
	check_refused(B("\x93NUMPY\x04\x00\x00\x00"), -EOPNOTSUPP, 6, "version 4.0");
	check_refused(B("\x93NUMPY\x01\x01\x00\x00"), -EOPNOTSUPP, 6, "version 1.1");
	check_refused(float32_1x2, sizeof float32_1x2 - 2, -EINVAL, 135,
		"7 bytes of data where float32[1,2] takes 8");
	check_refused(float32_1x2, sizeof float32_1x2, -EINVAL, 136,
		"9 bytes of data where float32[1,2] takes 8");
	check_refused(float32_1x2, 128, -EINVAL, 128, "0 bytes of data");
}

static void npy_parse__headers_not_taken__refused_where_it_is(void **state)
{
	static const struct {
		const char *dict;
		int err;
		long offset;
		const char *part;
	} rows[] = {
		{ "", -EINVAL, 10, "no dictionary here" },
		{ "[]", -EINVAL, 10, "no dictionary here" },
		{ "{", -EINVAL, 11, "no string here" },
		{ "{}", -EINVAL, 12, "no key \"descr\"" },
		{ "{'descr': '|u1', 'shape': (1,)}", -EINVAL, 41, "no key \"fortran_order\"" },
		{ "{'descr': '|u1', 'descr': '|u1'}", -EINVAL, 27, "\"descr\" twice" },
		{ "{'color': 1}", -EINVAL, 11, "unknown key \"color\"" },
		{ "{'descr' '|u1'}", -EINVAL, 19, "no colon here" },
		{ "{'descr': '|u1' 'shape': ()}", -EINVAL, 26, "no comma or end" },
		{ "{'descr': '|u1}", -EINVAL, 25, "no end of a string" },
		{ "{'descr': 5}", -EINVAL, 20, "no string here" },
		{ D("'|u1'", "False", "()") "x", -EINVAL, 66, "no end here" },
		{ D("'|u1'", "Maybe", "()"), -EINVAL, 44, "no True or False here" },
		{ D("'|u1'", "False", "[1]"), -EINVAL, 60, "no tuple here" },
		{ D("'|u1'", "False", "1"), -EINVAL, 60, "no tuple here" },
		{ D("'|u1'", "False", "(1)"), -EINVAL, 62, "no comma after a dimension" },
		{ D("'|u1'", "False", "(,)"), -EINVAL, 61, "no dimension here" },
		{ D("'|u1'", "False", "(-1,)"), -EINVAL, 61, "no dimension here" },
		{ D("'|u1'", "False", "(1 2)"), -EINVAL, 63, "no comma after a dimension" },
		{ D("'|u1'", "False", "(1, 2 3)"), -EINVAL, 66, "no comma or end of the tuple" },
		{ D("'|u1'", "False", "(9223372036854775808,)"), -ERANGE, 61, "exceeds 64 bits" },
		{ D("'<f4'", "False", "(4294967296, 4294967296)"), -ERANGE, 60,
			"more bytes than 64 bits" },
		{ D("'<f8'", "False", "(2305843009213693952,)"), -ERANGE, 60,
			"more bytes than 64 bits" },
		{ D("'|u1'", "False", "(1, 1, 1, 1, 1, 1, 1, 1, 1)"), -EOPNOTSUPP, 85,
			"more than 8 dimensions" },
		{ D("'|u1'", "True", "(1, 1)"), -EOPNOTSUPP, 44, "Fortran order" },
		{ D("'>f4'", "False", "(1,)"), -EOPNOTSUPP, 20, "big-endian" },
		{ D("'|O'", "False", "(1,)"), -EOPNOTSUPP, 20, "arrays of objects" },
		{ D("[('a', '<f4')]", "False", "(1,)"), -EOPNOTSUPP, 20, "structured" },
		{ D("'<c8'", "False", "(1,)"), -EOPNOTSUPP, 20, "type \"<c8\" is not taken" },
		{ D("'>c8'", "False", "(1,)"), -EOPNOTSUPP, 20, "type \">c8\" is not taken" },
		{ D("'<U4'", "False", "(1,)"), -EOPNOTSUPP, 20, "type \"<U4\"" },
		{ D("'|f4'", "False", "(1,)"), -EOPNOTSUPP, 20, "type \"|f4\"" },
		{ D("'f4'", "False", "(1,)"), -EOPNOTSUPP, 20, "type \"f4\"" },
		{ D("''", "False", "(1,)"), -EOPNOTSUPP, 20, "type \"\"" },
	};
	AUTO_BUF struct buf file = BUF_INIT;

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		make(&file, 1, rows[i].dict, "z", 1);
		check_refused(file.data, file.len, rows[i].err, rows[i].offset, rows[i].part);
	}
}

static void npy_write__as_numpy_saves__same_bytes(void **state)
{
	static const struct tensor_spec t = { "y", DTYPE_FLOAT32, 2, { 1, 2 } };
	static const float data[] = { 1, -2 };
	AUTO_BUF struct buf out = BUF_INIT;

	(void)state;
	npy_write(&t, data, &out);
	assert_int_equal(buf_error(&out), 0);
	assert_int_equal(out.len, sizeof float32_1x2 - 1);
	assert_memory_equal(out.data, float32_1x2, out.len);
}

static void npy_write__any_shape__aligned_and_read_back(void **state)
{
	static const struct tensor_spec specs[] = {
		{ "", DTYPE_BOOL, 0, { 0 } },
		{ "", DTYPE_INT8, 1, { 5 } },
		{ "", DTYPE_FLOAT64, 3, { 2, 0, 9 } },
		{ "", DTYPE_UINT16, 8, { 1, 1, 1, 1, 1, 1, 1, 3 } },
	};

	(void)state;
	for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
		AUTO_BUF struct buf out = BUF_INIT;
		struct tensor_spec t;
		struct fault f = FAULT_NONE;
		size_t data;

		npy_write(&specs[i], "\1\2\3\4\5\6", &out);
		if (npy_parse(out.data, out.len, &t, &data, &f))
			fail_msg("%zu: %s", i, f.reason);
		assert_int_equal(t.dtype, specs[i].dtype);
		assert_true(tensor_same_shape(&t, &specs[i]));
		assert_int_equal(data % 64, 0);
		assert_int_equal(out.data[data - 1], '\n');
		assert_int_equal(out.len - data, tensor_bytes(&t));
		assert_memory_equal(out.data + data, "\1\2\3\4\5\6", out.len - data);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(npy_parse__as_numpy_saves__tensor),
		cmocka_unit_test(npy_parse__each_type__mapped),
		cmocka_unit_test(npy_parse__forms_of_header__taken),
		cmocka_unit_test(npy_parse__outside_the_header__refused),
		cmocka_unit_test(npy_parse__headers_not_taken__refused_where_it_is),
		cmocka_unit_test(npy_write__as_numpy_saves__same_bytes),
		cmocka_unit_test(npy_write__any_shape__aligned_and_read_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
