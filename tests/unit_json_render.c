/* Making documents and printing them. */
#include "core/base/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <string.h>

static struct json_value *parsed(const char *text)
{
	struct json_value *v = NULL;
	struct fault f = FAULT_NONE;

	if (json_parse(text, strlen(text), &v, &f))
		fail_msg("%s: %s at %ld", text, f.reason, f.offset);
	return v;
}

static void json_render__all_kinds__compact(void **state)
{
	AUTO_BUF struct buf b = BUF_INIT;
	struct json_value *v = json_new_object(), *a;

	(void)state;
	json_add_string(v, "s", "q\" b\\ \n\t\x01\x1f / \xc3\xa9");
	json_add_int(v, "min", INT64_MIN);
	json_add_uint(v, "max", UINT64_MAX);
	json_add_int(v, "odd", 9007199254740993LL);
	json_add_int(v, "small", -42);
	a = json_add_array(v, "a");
	json_add_double(a, NULL, 0.1);
	json_add_double(a, NULL, (double)NAN);
	json_add_double(a, NULL, (double)-INFINITY);
	json_add_bool(a, NULL, true);
	json_add_object(a, NULL);
	json_add_array(v, "e");
	assert_int_equal(json_render(v, false, &b), 0);
	assert_string_equal(buf_text(&b),
		"{\"s\":\"q\\\" b\\\\ \\n\\t\\u0001\\u001f / "
		"\xc3\xa9\",\"min\":-9223372036854775808,"
		"\"max\":18446744073709551615,\"odd\":9007199254740993,\"small\":-42,"
		"\"a\":[0.1,null,null,true,{}],\"e\":[]}");
	json_free(v);
}

static void json_render__pretty__lines_and_final_newline(void **state)
{
	AUTO_BUF struct buf b = BUF_INIT;
	struct json_value *v = json_new_object(), *list, *o;

	(void)state;
	list = json_add_array(v, "shape");
	json_add_int(list, NULL, 2);
	json_add_int(list, NULL, 3);
	list = json_add_array(v, "outputs");
	o = json_add_object(list, NULL);
	json_add_string(o, "name", "y");
	json_add_object(v, "none");
	assert_int_equal(json_render(v, true, &b), 0);
	assert_string_equal(buf_text(&b),
		"{\n  \"shape\": [2, 3],\n  \"outputs\": [\n    {\n      \"name\": \"y\"\n"
		"    }\n  ],\n  \"none\": {}\n}\n");
	json_free(v);
}

static void json_add_text__any_value__stands_as_it_is(void **state)
{
	AUTO_BUF struct buf b = BUF_INIT;
	struct json_value *v = json_new_object();

	(void)state;
	json_add_text(v, "data", "[1,  2]");
	json_add_text(json_add_array(v, "all"), NULL, "{\"a\":null}");
	assert_int_equal(json_type(json_member(v, "data")), JSON_TEXT);
	assert_int_equal(json_render(v, true, &b), 0);
	assert_string_equal(buf_text(&b),
		"{\n  \"data\": [1,  2],\n  \"all\": [{\"a\":null}]\n}\n");
	json_add_text(v, "none", NULL);
	assert_int_equal(json_render(v, true, &b), -ENOMEM);
	json_free(v);
}

static void json_compact__white_space__only_between_tokens(void **state)
{
	static const char text[] =
		"\xef\xbb\xbf {\n\t\"a b\" : [1, 2.50 ,\r\n \"\\\" \\\\\" ,\"\\\\\", null]\n}\n";
	AUTO_BUF struct buf b = BUF_INIT;

	(void)state;
	assert_int_equal(json_compact(text, sizeof text - 1, &b), 0);
	assert_string_equal(buf_text(&b), "{\"a b\":[1,2.50,\"\\\" \\\\\",\"\\\\\",null]}");
	assert_int_equal(json_compact("{\"a\": 1} x", 10, &b), -EINVAL);
	assert_int_equal(json_compact("{\"a\": ", 6, &b), -EINVAL);
	assert_int_equal(json_compact("", 0, &b), -EINVAL);
	assert_string_equal(buf_text(&b), "{\"a b\":[1,2.50,\"\\\" \\\\\",\"\\\\\",null]}");
}

static void json_render__made_numbers__read_back_through_the_getters(void **state)
{
	struct json_value *v = json_new_array();
	uint64_t u = 0;
	int64_t i = 0;

	(void)state;
	json_add_uint(v, NULL, UINT64_MAX);
	json_add_double(v, NULL, 1e300);
	assert_int_equal(json_uint64(json_first(v), &u), 0);
	assert_true(u == UINT64_MAX);
	assert_int_equal(json_int64(json_next(json_first(v)), &i), -ERANGE);
	assert_int_equal(json_offset(v), 0);
	json_free(v);
}

/* What is parsed comes out as the same values, exactly, also through a copy. */
static void json_add_copy__parsed_document__renders_the_same(void **state)
{
	const char *text =
		"{\"a\":[18446744073709551615,-9223372036854775808,0.30000000000000004,"
		"9007199254740993,-0,1,\"x\\ny\",null,true,{\"b\":{}}],\"c\":1.0000000000000002}";
	AUTO_BUF struct buf b = BUF_INIT;
	struct json_value *v = parsed(text), *copy = json_new_object();

	(void)state;
	json_add_copy(copy, "all", v);
	json_free(v);
	assert_int_equal(json_render(json_member(copy, "all"), false, &b), 0);
	assert_string_equal(buf_text(&b), text);
	json_free(copy);
}

static void json_remove__of_a_parsed_object__only_that_member(void **state)
{
	AUTO_BUF struct buf b = BUF_INIT;
	struct json_value *v = parsed("{\"a\":[1],\"A\":2,\"b\":{\"a\":3}}");

	(void)state;
	json_remove(v, "c");
	json_remove(v, "a");
	json_remove(v, "a");
	assert_int_equal(json_offset(json_member(v, "b")), 19);
	assert_int_equal(json_render(v, false, &b), 0);
	assert_string_equal(buf_text(&b), "{\"A\":2,\"b\":{\"a\":3}}");
	json_free(v);
}

static void json_add__to_nothing__render_fails(void **state)
{
	AUTO_BUF struct buf b = BUF_INIT;
	struct json_value *v = json_new_object(), *inner = json_add_object(v, "inner");

	(void)state;
	json_add_string(NULL, NULL, "dropped");
	assert_null(json_add_array(NULL, "k"));
	assert_int_equal(json_render(NULL, true, &b), -ENOMEM);
	json_add_copy(inner, "lost", NULL); /* as when memory ran out */
	assert_true(json_broken(inner));
	assert_false(json_broken(v));
	assert_int_equal(json_render(v, true, &b), -ENOMEM);
	json_free(v);
	json_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(json_render__all_kinds__compact),
		cmocka_unit_test(json_render__pretty__lines_and_final_newline),
		cmocka_unit_test(json_add_text__any_value__stands_as_it_is),
		cmocka_unit_test(json_compact__white_space__only_between_tokens),
		cmocka_unit_test(json_render__made_numbers__read_back_through_the_getters),
		cmocka_unit_test(json_add_copy__parsed_document__renders_the_same),
		cmocka_unit_test(json_remove__of_a_parsed_object__only_that_member),
		cmocka_unit_test(json_add__to_nothing__render_fails),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
