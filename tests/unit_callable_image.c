/* Validation: each field that can be wrong, with the byte that is told, and no allocation; building and
 * showing. */
#include "core/callable/image.h"

#include "callable_rig.h"

/* --- one field wrong -------------------------------------------------------------------------- */

/* Two children of unlike size, a tensor and a scalar with a maximum. */
#define SPEC_HEAD \
	"{\"format\":\"npufs-callable-1\",\"name\":\"two\",\"tensors\":[{\"name\":\"x\"," \
	"\"dtype\":\"float32\",\"access\":\"inout\"}],\"scalars\":[{\"name\":\"n\",\"dtype\":" \
	"\"int32\",\"max\":9}],"
#define SPEC_TAIL \
	"\"children\":[{\"id\":0,\"name\":\"a\",\"code\":[\"mov s0, s1\"]},{\"id\":1023," \
	"\"name\":\"b\",\"code\":[\"ldc s1, s0\"],\"dtype\":\"int32\",\"constants\":" \
	"[1,2,3,4,5,6,7,8,9,10,11,12,13]}]}"
#define SPEC_TWO SPEC_HEAD "\"orchestration\":[\"call a\",\"call b\"]," SPEC_TAIL

#define HEAD(field)   (long)offsetof(struct image_header, field)
#define ROW(i)        (64 + 16L * (i))
#define NAMES         (64 + 32L)
#define CHILDREN      (NAMES + 16) /* "two", "x", "n", "a", "b" take 12 bytes of names */
#define CHILD(i, fld) (CHILDREN + 40L * (i) + (long)offsetof(struct image_child, fld))
#define CODE          192L
#define FIRST         256L
#define SECOND        320L
#define TOTAL         448L

static void change(struct buf *image, long at, size_t size, uint64_t value)
{
	memcpy(image->data + at, &value, size);
}

static void build_two(struct buf *image)
{
	struct image_header h;
	struct image_child c;

	rig_build(SPEC_TWO, image);
	/* The offsets above are those of the documented layout. */
	memcpy(&h, image->data, sizeof h);
	memcpy(&c, image->data + CHILD(1, id), sizeof c);
	assert_int_equal(h.total_bytes, TOTAL);
	assert_int_equal(h.children_offset, CHILDREN);
	assert_int_equal(h.code_offset, CODE);
	assert_int_equal(c.id, 1023);
	assert_int_equal(c.offset, SECOND);
	assert_int_equal(c.bytes, 16 + 13 * 4);
}

static const struct wrong {
	long at;
	size_t size;
	uint64_t value;
	const char *field;
	long told; /* -1: as at */
} wrongs[] = {
	{ 0, 1, 'X', "magic", 0 },
	{ HEAD(version), 4, 2, "version", -1 },
	{ HEAD(header_bytes), 4, 63, "header_bytes", -1 },
	{ HEAD(header_bytes), 4, 128, "header_bytes", -1 },
	{ HEAD(total_bytes), 8, TOTAL - 64, "total_bytes", -1 },
	{ HEAD(total_bytes), 8, TOTAL + 64, "total_bytes", -1 },
	{ HEAD(total_bytes), 8, UINT64_MAX, "total_bytes", -1 },
	{ HEAD(n_tensors), 4, CALLABLE_TENSORS_MAX + 1, "n_tensors", -1 },
	{ HEAD(n_scalars), 4, CALLABLE_SCALARS_MAX + 1, "n_scalars", -1 },
	{ HEAD(n_scalars), 4, UINT32_MAX, "n_scalars", -1 },
	{ HEAD(n_children), 4, CALLABLE_CHILDREN_MAX + 1, "n_children", -1 },
	{ HEAD(names_bytes), 4, 0, "names_bytes", -1 },
	{ HEAD(names_bytes), 4, CALLABLE_NAMES_BYTES + 1, "names_bytes", -1 },
	{ HEAD(names_bytes), 4, CALLABLE_NAMES_BYTES, "children_offset", HEAD(children_offset) },
	{ HEAD(n_code), 4, 0, "n_code", -1 },
	{ HEAD(n_code), 4, VM_CODE_MAX + 1, "n_code", -1 },
	{ HEAD(n_code), 4, VM_CODE_MAX, "total_bytes", HEAD(total_bytes) },
	{ HEAD(children_offset), 4, CHILDREN + 8, "children_offset", -1 },
	{ HEAD(code_offset), 4, CODE + 64, "code_offset", -1 },
	{ HEAD(code_offset), 4, CODE - 8, "code_offset", -1 },
	{ HEAD(name), 4, 12, "name", -1 },
	{ HEAD(name), 4, UINT32_MAX, "name", -1 },
	{ HEAD(reserved) + 4, 4, 1, "reserved", HEAD(reserved) },
	{ NAMES + 11, 1, 'b', "names", -1 },   /* the last NUL */
	{ NAMES + 12, 1, 1, "padding", -1 },   /* behind the names */
	{ NAMES, 1, ' ', "name", HEAD(name) }, /* " wo" */
	{ NAMES, 1, 0, "name", HEAD(name) },   /* "" */
	{ NAMES, 1, 0xff, "name", HEAD(name) },
	{ ROW(0), 4, 12, "name", -1 },
	{ ROW(0) + 4, 1, 0, "type", -1 },
	{ ROW(0) + 4, 1, 3, "type", -1 },
	{ ROW(0) + 5, 1, 0, "access", -1 },
	{ ROW(0) + 5, 1, 4, "access", -1 },
	{ ROW(1) + 5, 1, 1, "access", -1 }, /* of a scalar */
	{ ROW(0) + 6, 2, 1, "reserved", -1 },
	{ ROW(1) + 12, 4, 1, "reserved", ROW(1) + 6 },
	{ ROW(0) + 8, 4, 1, "max", -1 }, /* of a tensor */
	{ ROW(1) + 8, 4, 1u << 31, "max", -1 },
	{ ROW(1) + 4, 1, VM_FLOAT32, "max", ROW(1) + 8 },
	{ CHILD(0, id), 4, 1024, "id", -1 },
	{ CHILD(0, id), 4, UINT32_MAX, "id", -1 },
	{ CHILD(1, id), 4, 0, "id", -1 }, /* twice */
	{ CHILD(1, name), 4, 12, "name", -1 },
	{ CHILD(1, reserved), 4, 1, "reserved", -1 },
	{ CHILD(0, offset), 8, FIRST + 4, "offset", -1 },
	{ CHILD(0, offset), 8, 0, "offset", -1 },
	{ CHILD(0, offset), 8, CODE, "offset", -1 }, /* the orchestration */
	{ CHILD(0, offset), 8, TOTAL, "offset", -1 },
	{ CHILD(0, offset), 8, 0xffffffffffffffc0, "offset", -1 },
	{ CHILD(1, offset), 8, FIRST, "offset", -1 },           /* both at the same place */
	{ CHILD(0, bytes), 8, 68, "offset", CHILD(1, offset) }, /* into the next */
	{ CHILD(0, bytes), 8, 0, "bytes", -1 },
	{ CHILD(0, bytes), 8, 18, "bytes", -1 },
	{ CHILD(1, bytes), 8, TOTAL - SECOND + 4, "bytes", -1 },
	{ CHILD(1, bytes), 8, UINT64_MAX - 3, "bytes", -1 },
	{ CHILD(1, bytes), 8, 64, "total_bytes", HEAD(total_bytes) },
	{ CHILD(0, n_code), 4, 0, "n_code", -1 },
	{ CHILD(0, n_code), 4, 2, "n_code", -1 },
	{ CHILD(0, n_code), 4, 1u << 28, "n_code", -1 }, /* whose bytes wrap 32 bits */
	{ FIRST + 16, 1, 1, "padding", -1 },
	{ CODE + 63, 1, 1, "padding", -1 },
	{ CODE, 1, 255, "code", -1 },
	{ CODE + 8, 4, 5, "code", CODE }, /* calls what is not there */
	{ SECOND, 1, 255, "code", -1 },
};

static void image_validate__one_field_wrong__named_with_its_byte(void **state)
{
	AUTO_BUF struct buf good = BUF_INIT;

	(void)state;
	build_two(&good);
	assert_int_equal(image_validate(good.data, good.len, NULL, NULL), 0);
	for (size_t i = 0; i < ARRAY_SIZE(wrongs); i++) {
		const struct wrong *w = &wrongs[i];
		AUTO_BUF struct buf image = BUF_INIT;
		struct fault f = FAULT_NONE;
		int err;

		buf_put(&image, good.data, good.len);
		change(&image, w->at, w->size, w->value);
		err = image_validate(image.data, image.len, NULL, &f);
		if (err != -EINVAL || strcmp(f.field, w->field) != 0 ||
			f.offset != (w->told < 0 ? w->at : w->told))
			fail_msg("row %zu: %d, %s at %ld: %s", i, err, f.field, f.offset, f.reason);
	}
}

/* Not by what happens to stand behind the table that notes them. */
static void image_validate__function_id__below_the_tables_end(void **state)
{
	static const uint64_t ids[] = { 1024, UINT32_MAX };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
		AUTO_BUF struct buf image = BUF_INIT;
		struct fault f = FAULT_NONE;

		build_two(&image);
		change(&image, CHILD(0, id), 4, ids[i]);
		assert_int_equal(image_validate(image.data, image.len, NULL, &f), -EINVAL);
		assert_non_null(strstr(f.reason, "is not in 0..1023"));
	}
}

static void image_validate__cut_or_longer__refused(void **state)
{
	AUTO_BUF struct buf image = BUF_INIT;

	(void)state;
	build_two(&image);
	for (size_t len = 0; len < TOTAL; len++) {
		/* In memory of that size, for the sanitizer. */
		AUTO_FREE char *copy = malloc(len ? len : 1);

		memcpy(copy, image.data, len);
		assert_int_equal(image_validate(copy, len, NULL, NULL), -EINVAL);
		if (len >= IMAGE_HEADER) {
			uint64_t total = len;

			memcpy(copy + HEAD(total_bytes), &total, sizeof total);
			assert_int_equal(image_validate(copy, len, NULL, NULL), -EINVAL);
		}
	}
	buf_put(&image, "\0", 1);
	assert_int_equal(image_validate(image.data, image.len, NULL, NULL), -EINVAL);
	assert_int_equal(image_validate(NULL, 0, NULL, NULL), -EINVAL);
}

static void image_validate__children_in_any_order__taken(void **state)
{
	AUTO_BUF struct buf image = BUF_INIT;
	char rows[2][40];

	(void)state;
	build_two(&image);
	memcpy(rows, image.data + CHILDREN, sizeof rows);
	memcpy(image.data + CHILDREN, rows[1], 40);
	memcpy(image.data + CHILDREN + 40, rows[0], 40);
	assert_int_equal(image_validate(image.data, image.len, NULL, NULL), 0);
}

/* The sum would be right with the last child alone. */
static void image_validate__a_gap_between_children__refused(void **state)
{
	AUTO_BUF struct buf image = BUF_INIT;
	struct fault f = FAULT_NONE;

	(void)state;
	build_two(&image);
	assert_non_null(buf_room(&image, 64));
	memmove(image.data + SECOND + 64, image.data + SECOND, TOTAL - SECOND);
	memset(image.data + SECOND, 0, 64);
	image.len += 64;
	change(&image, HEAD(total_bytes), 8, TOTAL + 64);
	change(&image, CHILD(1, offset), 8, SECOND + 64);
	assert_int_equal(image_validate(image.data, image.len, NULL, &f), -EINVAL);
	assert_string_equal(f.field, "offset");
	assert_int_equal(f.offset, CHILD(1, offset));
}

static void image_validate__good_one__no_allocation_at_any_alignment(void **state)
{
	AUTO_BUF struct buf image = BUF_INIT;
	struct image found;
	size_t before;
	char *odd;

	(void)state;
	build_two(&image);
	odd = malloc(image.len + 1);
	memcpy(odd + 1, image.data, image.len);
	before = host_calls;
	assert_int_equal(image_validate(odd + 1, image.len, &found, NULL), 0);
	assert_int_equal(host_calls, before);
	assert_string_equal(image_name(&found, found.header.name), "two");
	assert_int_equal(found.steps, 4);
	free(odd);
}

static void image_validate__every_child_that_there_can_be__taken(void **state)
{
	AUTO_BUF struct buf spec = BUF_INIT;
	AUTO_BUF struct buf image = BUF_INIT;
	struct image found;

	(void)state;
	buf_puts(&spec, SPEC_HEAD "\"orchestration\":[\"call c1023\"],\"children\":[");
	for (int i = 0; i < CALLABLE_CHILDREN_MAX; i++)
		buf_printf(&spec, "%s{\"id\":%d,\"name\":\"c%d\",\"code\":[\"mov s0, s1\"]}",
			i ? "," : "", i, i);
	buf_puts(&spec, "]}");
	rig_build(buf_text(&spec), &image);
	assert_int_equal(image_validate(image.data, image.len, &found, NULL), 0);
	assert_int_equal(found.header.n_children, 1024);
}

/* --- building --------------------------------------------------------------------------------- */

static void image_build__wrong_specification__said_where(void **state)
{
	static const struct {
		const char *spec, *said;
	} rows[] = {
		{ "[]", "object" },
		{ "{}", "format" },
		{ SPEC_HEAD "\"orchestration\":[\"call c\"]," SPEC_TAIL, "no such child" },
		{ SPEC_HEAD "\"orchestration\":[]," SPEC_TAIL, "orchestration" },
		{ SPEC_HEAD "\"orchestration\":[\"# nothing\"]," SPEC_TAIL, "0 instructions" },
		{ SPEC_HEAD "\"orchestration\":[7]," SPEC_TAIL, "must be a text" },
		{ SPEC_HEAD "\"orchestration\":[\"mov s0, s1\"],\"children\":[{\"id\":1024,"
			    "\"name\":\"a\",\"code\":[\"mov s0, s1\"]}]}",
			"1023" },
		{ SPEC_HEAD "\"orchestration\":[\"mov s0, s1\"],\"children\":[{\"id\":1,"
			    "\"name\":\"a b\",\"code\":[\"mov s0, s1\"]}]}",
			"printable" },
		{ SPEC_HEAD "\"orchestration\":[\"mov s0, s1\"],\"children\":[{\"id\":1,"
			    "\"name\":\"a\",\"code\":[\"mov s0, s1\"],\"constants\":[1]}]}",
			"one of" },
		{ SPEC_HEAD "\"orchestration\":[\"mov s0, s1\"],\"children\":[{\"id\":1,"
			    "\"name\":\"a\",\"code\":[\"mov s0, s1\"],\"constants\":[1.5],"
			    "\"dtype\":\"int32\"}]}",
			"int32" },
		{ SPEC_HEAD "\"orchestration\":[\"mov s0, s1\"],\"children\":[{\"id\":1,"
			    "\"name\":\"a\",\"code\":[\"mov s0, s1\"]},{\"id\":1,\"name\":\"b\","
			    "\"code\":[\"mov s0, s1\"]}]}",
			"twice" },
		{ SPEC_HEAD "\"orchestration\":[\"call a\"],\"children\":[{\"id\":1,"
			    "\"name\":\"a\",\"code\":[\"mov s0, s1\"]},{\"id\":2,\"name\":\"a\","
			    "\"code\":[\"mov s0, s1\"]}]}",
			"\"a\" is there twice" },
		{ SPEC_HEAD "\"orchestration\":[\"mov s0, s1\"],\"children\":[{\"id\":1,"
			    "\"name\":\"a\",\"code\":[\"loop s0, n, 1\"]}]}",
			"a, instruction" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		AUTO_BUF struct buf image = BUF_INIT;
		struct fault f = FAULT_NONE;
		int err = image_build(rows[i].spec, strlen(rows[i].spec), &image, &f);

		if (err != -EINVAL || !strstr(f.reason, rows[i].said) || image.len)
			fail_msg("row %zu: %d, %s", i, err, f.reason);
	}
}

static void image_build__no_memory_anywhere__refused_and_nothing_leaks(void **state)
{
	size_t calls;

	(void)state;
	for (calls = 1;; calls++) {
		AUTO_BUF struct buf image = BUF_INIT;
		struct fault f = FAULT_NONE;
		int err;

		host_fails_at = calls;
		err = image_build(SPEC_TWO, strlen(SPEC_TWO), &image, &f);
		if (host_fails_at) {
			host_fails_at = 0;
			assert_int_equal(err, 0);
			break;
		}
		if (err == 0) /* what failed was the text of no fault */
			continue;
		assert_int_equal(err, -ENOMEM);
		assert_int_equal(image.len, 0);
	}
	assert_true(calls > 5);
}

static void image_show__built_image__its_lines(void **state)
{
	AUTO_BUF struct buf image = BUF_INIT;
	AUTO_BUF struct buf text = BUF_INIT;
	struct image found;

	(void)state;
	build_two(&image);
	assert_int_equal(image_validate(image.data, image.len, &found, NULL), 0);
	assert_int_equal(image_show(&found, &text), 0);
	assert_string_equal(buf_text(&text),
		"callable: two\nbytes: 448\nsteps: at most 4\n"
		"tensor: inout float32 x\n"
		"scalar: int32 n, at most 9\n"
		"orchestration:\n  call a\n  call b\n"
		"child 0: a, 16 bytes at 256\n  mov s0, s1\n"
		"child 1023: b, 68 bytes at 320\n  ldc s1, s0\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(image_validate__one_field_wrong__named_with_its_byte),
		cmocka_unit_test(image_validate__function_id__below_the_tables_end),
		cmocka_unit_test(image_validate__cut_or_longer__refused),
		cmocka_unit_test(image_validate__children_in_any_order__taken),
		cmocka_unit_test(image_validate__a_gap_between_children__refused),
		cmocka_unit_test(image_validate__good_one__no_allocation_at_any_alignment),
		cmocka_unit_test(image_validate__every_child_that_there_can_be__taken),
		cmocka_unit_test(image_build__wrong_specification__said_where),
		cmocka_unit_test(image_build__no_memory_anywhere__refused_and_nothing_leaks),
		cmocka_unit_test(image_show__built_image__its_lines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
