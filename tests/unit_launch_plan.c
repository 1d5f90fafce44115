/* Plans of launches: which tensors there are, what is bound to what, and what is refused. */
#include "core/engine/launch_plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>

#include "core/base/mem.h"
#include "tests/request_checks.h"

/* "two": x is read, y is written, n up to 8, a is a float. "huge" may take nearly all steps. */
static struct {
	struct launch_signature head;
	struct launch_parameter rows[4];
} two = { { .n_tensors = 2, .n_scalars = 2, .steps = 10 },
	{ { "x", VM_FLOAT32, VM_IN, 0 }, { "y", VM_INT32, VM_OUT, 0 }, { "n", VM_INT32, 0, 8 },
		{ "a", VM_FLOAT32, 0, 0 } } },
  huge = { { .n_tensors = 0, .n_scalars = 0, .steps = VM_STEPS_MAX / 2 }, { { "", 0, 0, 0 } } };

static int find(void *context, const struct request_launch *l, int32_t *ret_id,
	const struct launch_signature **ret, struct fault *f)
{
	(void)context;
	if (l->callable && strcmp(l->callable, "huge") == 0) {
		*ret_id = 9;
		*ret = &huge.head;
		return 0;
	}
	if (!l->callable || strcmp(l->callable, "two") != 0)
		return fault_set(f, -ENOENT, "name another", "no such callable");
	*ret_id = 5;
	*ret = &two.head;
	return 0;
}

static const struct launch_lookup lookup = { find, NULL };

/* The plan borrows from the request, which stays until the test ends. */
static struct request *last;

static int plan(const char *json, struct launch_plan **ret, struct fault *f)
{
	request_free(last);
	last = accepted(json);
	*f = (struct fault)FAULT_NONE;
	return launch_plan_new(last, &lookup, ret, f);
}

static int forget(void **state)
{
	(void)state;
	request_free(last);
	last = NULL;
	return 0;
}

static void not_planned(const char *json, int err, const char *field, const char *part)
{
	struct launch_plan *p = NULL;
	struct fault f;
	int got = plan(json, &p, &f);

	if (got != err || f.err != err || strcmp(f.field, field) != 0 || !strstr(f.reason, part))
		fail_msg("%s: %d, field \"%s\": %s", json, got, f.field, f.reason);
	assert_true(f.action[0]);
	assert_null(p);
}

#define X      "{\"name\":\"x\",\"shape\":[2],\"datatype\":\"FP32\",\"data\":[1,2]}"
#define Y      "{\"name\":\"y\",\"shape\":[3]}"
#define TWO    "\"callable\":\"two\",\"scalars\":[8,0.5]"
#define IN(x)  "\"inputs\":[" x "]"
#define OUT(y) "\"outputs\":[" y "]"

static void new__by_the_signatures_names__bound_in_its_order(void **state)
{
	struct launch_plan *p = NULL;
	struct fault f;
	float a;

	(void)state;
	assert_int_equal(plan("{" TWO "," IN(X) "," OUT(Y) "}", &p, &f), 0);
	assert_int_equal(p->n_tensors, 2);
	assert_int_equal(p->n_steps, 1);
	assert_int_equal(p->steps[0].id, 5);
	assert_int_equal(p->steps[0].tensors[0], 0);
	assert_int_equal(p->steps[0].tensors[1], 1);
	assert_int_equal(p->steps[0].scalars[0], 8);
	memcpy(&a, &p->steps[0].scalars[1], sizeof a);
	assert_true(a == 0.5f);
	assert_int_equal(p->tensors[0].bytes, 8);
	assert_ptr_equal(p->tensors[0].data, last->inputs[0].data);
	assert_false(p->tensors[0].written);
	assert_int_equal(p->tensors[1].bytes, 12);
	assert_int_equal(p->tensors[1].spec.dtype, DTYPE_INT32);
	assert_null(p->tensors[1].data);
	assert_int_equal(p->n_outputs, 1);
	assert_int_equal(p->outputs[0], 1);
	assert_int_equal(p->machine_steps, 10);
	free(p);
}

static void new__names_of_its_own__bound_by_place(void **state)
{
	struct launch_plan *p = NULL;
	struct fault f;

	(void)state;
	assert_int_equal(plan("{\"graph\":["
			      "{\"callable\":\"two\",\"tensors\":[\"x\",\"p\"],\"scalars\":[0,1]},"
			      "{\"callable\":\"two\",\"tensors\":[\"x\",\"q\"],\"scalars\":[1,2]}]"
			      "," IN(X) ","
					"\"outputs\":[{\"name\":\"q\",\"shape\":[1]},{\"name\":"
					"\"p\",\"shape\":[]}]}",
				 &p, &f),
		0);
	assert_int_equal(p->steps[0].tensors[1], 2);
	assert_int_equal(p->steps[1].tensors[1], 1);
	assert_int_equal(p->outputs[0], 1);
	assert_int_equal(p->outputs[1], 2);
	assert_int_equal(p->tensors[2].bytes, 4); /* of no dimension: one element */
	assert_int_equal(p->machine_steps, 20);
	free(p);
}

static void new__outputs_not_named__all_that_are_written(void **state)
{
	struct launch_plan *p = NULL;
	struct fault f;

	(void)state;
	assert_int_equal(plan("{" TWO "," IN(X ",{\"name\":\"y\",\"shape\":[1],\"datatype\":"
					       "\"INT32\",\"data\":[7]}") "}",
				 &p, &f),
		0);
	assert_int_equal(p->n_outputs, 1);
	assert_int_equal(p->outputs[0], 1);
	free(p);
}

static void new__tensor_from_a_file__checked_when_it_is_there(void **state)
{
	static const char late[] =
		"{" TWO "," IN("{\"name\":\"x\",\"file\":\"x.npy\"}") "," OUT(Y) "}";
	struct launch_plan *p = NULL;
	struct fault f;

	(void)state;
	assert_int_equal(plan(late, &p, &f), 0);
	free(take_ptr(p));
	last->inputs[0].spec.dtype = DTYPE_INT8;
	last->inputs[0].spec.rank = 0;
	assert_int_equal(launch_plan_new(last, &lookup, &p, &f), -EINVAL);
	assert_non_null(strstr(f.reason, "\"x\" is INT8; the callable's \"x\" is FP32"));
}

static void new__what_does_not_fit__refused_by_field(void **state)
{
	(void)state;
	not_planned("{\"callable\":\"three\"}", -ENOENT, "", "no such");
	not_planned("{" TWO "," OUT(Y) "}", -EINVAL, "callable", "there is no tensor \"x\"");
	not_planned("{" TWO "," IN(X) "}", -EINVAL, "callable", "there is no tensor \"y\"");
	not_planned("{" TWO "," IN(X) "," OUT("{\"name\":\"y\"}") "}", -EINVAL, "outputs[0]",
		"the shape of \"y\" is missing");
	not_planned("{" TWO "," IN(X) "," OUT(Y ",{\"name\":\"w\",\"shape\":[1]}") "}", -EINVAL,
		"outputs", "no launch takes a tensor \"w\"");
	not_planned("{" TWO "," IN(X) "," OUT(Y ",{\"name\":\"x\"}") "}", -EINVAL, "outputs",
		"no launch writes \"x\"");
	not_planned("{" TWO "," IN(X) "," OUT(Y ",{\"name\":\"x\",\"shape\":[3]}") "}", -EINVAL,
		"outputs[1]", "another shape");
	not_planned("{\"callable\":\"two\",\"scalars\":[8]," IN(X) "," OUT(Y) "}", -EINVAL,
		"scalars", "1 scalars are given; the callable takes 2");
	not_planned("{\"callable\":\"two\",\"scalars\":[9,0]," IN(X) "," OUT(Y) "}", -EINVAL,
		"scalars", "scalar 0, \"n\", must be an integer of 32 bits 0..8");
	not_planned("{\"callable\":\"two\",\"scalars\":[-1,0]," IN(X) "," OUT(Y) "}", -EINVAL,
		"scalars", "scalar 0");
	not_planned("{\"callable\":\"two\",\"scalars\":[1.5,0]," IN(X) "," OUT(Y) "}", -EINVAL,
		"scalars", "scalar 0");
	not_planned("{\"callable\":\"two\",\"scalars\":[1,1e39]," IN(X) "," OUT(Y) "}", -EINVAL,
		"scalars", "scalar 1, \"a\", must be within float32");
	not_planned("{\"graph\":[{\"callable\":\"two\",\"tensors\":[\"x\"],\"scalars\":[1,1]}]," IN(
			    X) "}",
		-EINVAL, "graph[0].tensors", "1 tensors are given; the callable takes 2");
	not_planned("{\"graph\":[{\"callable\":\"huge\"},{\"callable\":\"huge\"},{\"callable\":"
		    "\"two\","
		    "\"scalars\":[1,1]}]," IN(X) "," OUT(Y) "}",
		-EINVAL, "graph[2].callable", "more steps than one request");
	not_planned("{" TWO "," IN(X) "," OUT("{\"name\":\"y\",\"shape\":[0]}") "}", -EINVAL,
		"outputs", "the tensor \"y\" is empty");
	not_planned("{" TWO "," IN(X) "," OUT("{\"name\":\"y\",\"shape\":[67108864]}") "}", -E2BIG,
		"outputs", "more than 268435456 bytes");
	not_planned(
		"{\"graph\":[{\"callable\":\"two\",\"tensors\":[\"x\",\"p\"],\"scalars\":[1,1]},"
		"{\"callable\":\"two\",\"tensors\":[\"x\",\"q\"],\"scalars\":[1,1]}],\"output\":"
		"\"raw\"," IN(
			X ",{\"name\":\"p\",\"shape\":[1],\"datatype\":\"INT32\",\"data\":[7]},"
			  "{\"name\":\"q\",\"shape\":[1],\"datatype\":\"INT32\",\"data\":[7]}") "}",
		-EINVAL, "output", "the answer has 2");
}

#define TEST(name) cmocka_unit_test_teardown(name, forget)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(new__by_the_signatures_names__bound_in_its_order),
		TEST(new__names_of_its_own__bound_by_place),
		TEST(new__outputs_not_named__all_that_are_written),
		TEST(new__tensor_from_a_file__checked_when_it_is_there),
		TEST(new__what_does_not_fit__refused_by_field),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
