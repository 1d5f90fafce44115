/* Requests that launch resident callables: what is taken, and what is refused by which field. */
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

#define X "{\"name\":\"x\",\"shape\":[2],\"datatype\":\"FP32\",\"data\":[1,2]}"

static void request_from_json__one_launch__taken(void **state)
{
	struct request *r =
		accepted("{\"scalars\":[4,-1.5,1e3],\"callable\":\"add.v1\",\"inputs\":[" X "],"
			 "\"outputs\":[{\"name\":\"z\",\"shape\":[2,3]},{\"name\":\"x\"}]}");

	(void)state;
	assert_int_equal(r->n_launches, 1);
	assert_false(r->graph);
	assert_int_equal(r->repeat, 1);
	assert_string_equal(r->launches[0].callable, "add.v1");
	assert_null(r->launches[0].tensors);
	assert_int_equal(r->launches[0].n_scalars, 3);
	assert_true(r->launches[0].scalars[0].integer);
	assert_int_equal(r->launches[0].scalars[0].whole, 4);
	assert_false(r->launches[0].scalars[1].integer);
	assert_true(r->launches[0].scalars[1].real == -1.5);
	assert_true(r->launches[0].scalars[2].real == 1000);
	assert_int_equal(r->output_shapes[0].rank, 2);
	assert_int_equal(r->output_shapes[0].dims[1], 3);
	assert_true(r->output_shapes[1].rank == REQUEST_NO_SHAPE);
	assert_true(r->output == REQUEST_JSON && r->shape == ANSWER_OWN);
	request_free(r);
}

static void request_from_json__by_id__the_ends_of_the_range(void **state)
{
	struct request *r = accepted("{\"callable\":0}");

	(void)state;
	assert_null(r->launches[0].callable);
	assert_int_equal(r->launches[0].id, 0);
	request_free(r);
	r = accepted("{\"callable\":8191,\"output\":\"raw\"}");
	assert_int_equal(r->launches[0].id, 8191);
	assert_true(r->output == REQUEST_RAW);
	request_free(r);
}

static void request_from_json__graph__in_order(void **state)
{
	struct request *r =
		accepted("{\"graph\":[{\"callable\":\"a\",\"tensors\":[\"x\",\"x\"]},"
			 "{\"scalars\":[1],\"callable\":7,\"tensors\":null}],\"repeat\":1000000}");

	(void)state;
	assert_true(r->graph);
	assert_int_equal(r->n_launches, 2);
	assert_int_equal(r->repeat, 1000000);
	assert_string_equal(r->launches[0].tensors[1], "x");
	assert_null(r->launches[0].tensors[2]);
	assert_null(r->launches[1].callable);
	assert_int_equal(r->launches[1].id, 7);
	assert_int_equal(r->launches[1].n_scalars, 1);
	request_free(r);
}

static void request_from_json__launches__wrong_ones_refused(void **state)
{
	(void)state;
	refused(B("{\"callable\":8192}"), -ERANGE, "callable", "is 8192, must be");
	refused(B("{\"callable\":-1}"), -ERANGE, "callable", "is -1, must be");
	refused(B("{\"callable\":1.5}"), -EINVAL, "callable", "is 1.5, must be");
	refused(B("{\"callable\":\"\"}"), -EINVAL, "callable", "must be");
	refused(B("{\"callable\":\".x\"}"), -EINVAL, "callable", "must be");
	refused(B("{\"callable\":\"a/b\"}"), -EINVAL, "callable", "must be");
	refused(B("{\"callable\":[]}"), -EINVAL, "callable", "is an array");
	refused(B("{\"callable\":\"a\",\"scalars\":[true]}"), -EINVAL, "scalars[0]",
		"must be a number");
	refused(B("{\"callable\":\"a\",\"scalars\":1}"), -EINVAL, "scalars", "must be an array");
	refused(B("{\"callable\":\"a\",\"graph\":[{\"callable\":\"b\"}]}"), -EINVAL, "graph",
		"both given");
	refused(B("{\"graph\":[{\"callable\":\"b\"}],\"callable\":\"a\"}"), -EINVAL, "graph",
		"both given");
	refused(B("{\"graph\":[]}"), -EINVAL, "graph", "1..64 objects");
	refused(B("{\"graph\":{}}"), -EINVAL, "graph", "is an object");
	refused(B("{\"graph\":[1]}"), -EINVAL, "graph", "is 1");
	refused(B("{\"graph\":[{}]}"), -EINVAL, "graph[0].callable", "is missing");
	refused(B("{\"graph\":[{\"callable\":\"a\"},{\"callable\":null}]}"), -EINVAL,
		"graph[1].callable", "is missing");
	refused(B("{\"graph\":[{\"callable\":\"a\",\"scalar\":[]}]}"), -EINVAL, "graph[0].scalar",
		"did you mean \"scalars\"?");
	refused(B("{\"graph\":[{\"callable\":\"a\",\"tensors\":[1]}]}"), -EINVAL,
		"graph[0].tensors", "names");
	refused(B("{\"graph\":[{\"callable\":\"a\"}],\"scalars\":[1]}"), -EINVAL, "scalars",
		"of one launch");
	refused(B("{\"callable\":\"a\",\"repeat\":1000001}"), -ERANGE, "repeat", "1..1000000");
	refused(B("{\"callable\":\"a\",\"repeat\":0}"), -ERANGE, "repeat", "1..1000000");
}

static void request_from_json__launches_and_models__not_mixed(void **state)
{
	(void)state;
	refused(B("{\"prompt\":\"x\",\"scalars\":[1]}"), -EINVAL, "scalars", "a callable's");
	refused(B("{\"prompt\":\"x\",\"repeat\":2}"), -EINVAL, "repeat", "callables");
	refused(B("{\"callable\":\"a\",\"prompt\":\"x\"}"), -EINVAL, "callable", "both given");
	refused(B("{\"callable\":\"a\",\"model\":\"m\"}"), -EINVAL, "model", "without a model");
	refused(B("{\"callable\":\"a\",\"model_alias\":\"m\"}"), -EINVAL, "model_alias",
		"without a model");
	refused(B("{\"model\":null,\"graph\":[{\"callable\":1}],\"model_alias\":\"m\"}"), -EINVAL,
		"model_alias", "without a model");
	refused(B("{\"callable\":\"a\",\"session\":\"s\"}"), -EINVAL, "session", "no sessions");
	refused(B("{\"callable\":\"a\",\"output\":\"text\"}"), -EINVAL, "output", "no form");
	refused(B("{\"inputs\":[" X "],\"outputs\":[{\"name\":\"y\",\"shape\":[1]}]}"), -EINVAL,
		"outputs", "shapes of models/ALIAS/schema");
	refused(B("{\"callable\":\"a\",\"outputs\":[{\"name\":\"y\",\"shape\":[-1]}]}"), -ERANGE,
		"outputs[0].shape", "must be an integer of 0 or more");
	refused(B("{\"callable\":\"a\",\"outputs\":[{\"name\":\"y\",\"shape\":[9223372036854775807,"
		  "2]}]}"),
		-ERANGE, "outputs[0].shape", "more values than 64 bits");
}

static void request_from_json__most_of_everything__taken_and_one_more_refused(void **state)
{
	char json[8192];
	size_t at = 0;

	(void)state;
	for (int n = 64; n <= 65; n++) {
		at = (size_t)snprintf(json, sizeof json, "{\"graph\":[");
		for (int i = 0; i < n; i++)
			at += (size_t)snprintf(json + at, sizeof json - at, "%s{\"callable\":%d}",
				i ? "," : "", i);
		snprintf(json + at, sizeof json - at, "]}");
		if (n == 64)
			request_free(accepted(json));
		else
			refused(json, strlen(json), -EINVAL, "graph", "1..64");
	}
	for (int n = 32; n <= 33; n++) {
		at = (size_t)snprintf(json, sizeof json, "{\"callable\":\"a\",\"scalars\":[1");
		for (int i = 1; i < n; i++)
			at += (size_t)snprintf(json + at, sizeof json - at, ",%d", i);
		snprintf(json + at, sizeof json - at, "]}");
		if (n == 32)
			request_free(accepted(json));
		else
			refused(json, strlen(json), -EINVAL, "scalars", "at most 32");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(request_from_json__one_launch__taken),
		cmocka_unit_test(request_from_json__by_id__the_ends_of_the_range),
		cmocka_unit_test(request_from_json__graph__in_order),
		cmocka_unit_test(request_from_json__launches__wrong_ones_refused),
		cmocka_unit_test(request_from_json__launches_and_models__not_mixed),
		cmocka_unit_test(request_from_json__most_of_everything__taken_and_one_more_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
