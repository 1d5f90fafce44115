/* The weights file's format: what is taken, and that anything else is refused as broken. */
#include "core/sim/safetensors.h"

#include "sim_files.h"

static enum npu_error parse(const char *header, size_t data_size, struct safetensors **ret)
{
	static struct buf bytes; /* must outlive the object */
	char data[64] = { 0 };

	buf_reset(&bytes);
	put_file(&bytes, header, strlen(header), data, data_size);
	return safetensors_parse(bytes.data, bytes.len, ret);
}

static void safetensors_parse__two_tensors__found_by_name(void **state)
{
	static const char header[] =
		"{\"__metadata__\":{\"format\":\"pt\"},"
		"\"b\":{\"dtype\":\"I8\",\"shape\":[3],\"data_offsets\":[16,19]},"
		"\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}     ";
	const struct safetensors_view *v;
	struct safetensors *s;

	(void)state;
	assert_int_equal(parse(header, 19, &s), NPU_SUCCESS);
	assert_int_equal(safetensors_count(s), 2);
	v = safetensors_find(s, "a");
	assert_non_null(v);
	assert_int_equal(v->dtype, DTYPE_FLOAT32);
	assert_int_equal(v->rank, 2);
	assert_int_equal(v->dims[1], 2);
	assert_int_equal(v->bytes, 16);
	assert_ptr_equal(safetensors_find(s, "b")->data, (const char *)v->data + 16);
	assert_null(safetensors_find(s, "__metadata__"));
	assert_null(safetensors_find(s, "c"));
	safetensors_close(s);
}

static void safetensors_parse__no_tensors_scalars_and_empty_ones__fine(void **state)
{
	struct safetensors *s;

	(void)state;
	assert_int_equal(parse("{}", 0, &s), NPU_SUCCESS);
	safetensors_close(s);
	assert_int_equal(parse("{\"e\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[0,0]},"
			       "\"s\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[0,2]}}",
				 2, &s),
		NPU_SUCCESS);
	assert_int_equal(safetensors_find(s, "s")->dtype, DTYPE_INVALID);
	assert_int_equal(safetensors_find(s, "e")->bytes, 0);
	safetensors_close(s);
}

#define ONE(rest) "{\"a\":{" rest "}}"

static void safetensors_parse__malformed__broken_file(void **state)
{
	static const struct {
		const char *header;
		size_t data;
	} bad[] = {
		{ "", 0 },
		{ "[]", 0 },
		{ "{", 0 },
		{ "{}", 1 },
		{ "{\"a\":7}", 0 },
		{ ONE("\"dtype\":\"F32\",\"shape\":[1]"), 4 },
		{ ONE("\"dtype\":\"Q4\",\"shape\":[1],\"data_offsets\":[0,4]"), 4 },
		{ ONE("\"dtype\":4,\"shape\":[1],\"data_offsets\":[0,4]"), 4 },
		{ ONE("\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]"), 4 },
		{ ONE("\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]"), 4 },
		{ ONE("\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]"), 4 },
		{ ONE("\"dtype\":\"F32\",\"shape\":[\"1\"],\"data_offsets\":[0,4]"), 4 },
		{ ONE("\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]"),
			4 },
		{ ONE("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]"), 4 },
		{ ONE("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]"), 4 },
		{ ONE("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]"), 4 },
		{ ONE("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]"), 4 },
		{ ONE("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1"), 4 },
		/* more data than the shape, and less */
		{ ONE("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,8]"), 8 },
		{ ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]"), 4 },
		/* past the end, wherever overflow might hide it */
		{ ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]"), 4 },
		{ ONE("\"dtype\":\"F32\",\"shape\":[4611686018427387905],\"data_offsets\":[0,4]"),
			4 },
		{ ONE("\"dtype\":\"I8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]"),
			0 },
		{ ONE("\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[18446744073709551612,0]"),
			4 },
		/* a hole before, after, between; an overlap; the same name twice */
		{ ONE("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]"), 8 },
		{ ONE("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]"), 8 },
		{ "{\"a\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]},"
		  "\"b\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[2,3]}}",
			3 },
		{ "{\"a\":{\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":[0,2]},"
		  "\"b\":{\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
			3 },
		{ "{\"a\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]},"
		  "\"a\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
			2 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct safetensors *s = NULL;

		if (parse(bad[i].header, bad[i].data, &s) != NPU_BROKEN_FILE)
			fail_msg("row %zu was taken: %s", i, bad[i].header);
	}
}

static void safetensors_parse__header_length_lies__broken_file(void **state)
{
	unsigned char bytes[16] = { 2, 0, 0, 0, 0, 0, 0, 0, '{', '}' };
	struct safetensors *s;

	(void)state;
	assert_int_equal(safetensors_parse(bytes, 10, &s), NPU_SUCCESS);
	safetensors_close(s);
	for (size_t n = 0; n < 10; n++)
		assert_int_equal(safetensors_parse(bytes, n, &s), NPU_BROKEN_FILE);
	memset(bytes, 0xff, 8);
	assert_int_equal(safetensors_parse(bytes, 10, &s), NPU_BROKEN_FILE);
	bytes[7] = 0x7f;
	assert_int_equal(safetensors_parse(bytes, 10, &s), NPU_BROKEN_FILE);
}

static void safetensors_open__missing_empty_folder__own_errors(void **state)
{
	struct safetensors *s;
	struct folder f;
	char path[128];

	(void)state;
	folder_make(&f);
	snprintf(path, sizeof(path), "%s/weights.safetensors", f.path);
	assert_int_equal(safetensors_open(path, &s), NPU_FILE_NOT_FOUND);
	folder_write_text(&f, "weights.safetensors", "");
	assert_int_equal(safetensors_open(path, &s), NPU_BROKEN_FILE);
	assert_int_equal(safetensors_open(f.path, &s), NPU_BROKEN_FILE);
	folder_write(&f, "weights.safetensors", "\2\0\0\0\0\0\0\0{}", 10);
	assert_int_equal(safetensors_open(path, &s), NPU_SUCCESS);
	safetensors_close(s);
	folder_remove(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(safetensors_parse__two_tensors__found_by_name),
		cmocka_unit_test(safetensors_parse__no_tensors_scalars_and_empty_ones__fine),
		cmocka_unit_test(safetensors_parse__malformed__broken_file),
		cmocka_unit_test(safetensors_parse__header_length_lies__broken_file),
		cmocka_unit_test(safetensors_open__missing_empty_folder__own_errors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
