/* The heap against a sorted array: adds, removals from anywhere and pops in random order. */
#include "core/engine/deadlines.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdlib.h>

#define N 500

static void next__empty__never(void **state)
{
	struct deadlines d = { 0 };
	struct deadline x = { .at = 5 };

	(void)state;
	assert_true(deadlines_next(&d) == INT64_MAX);
	assert_null(deadlines_pop(&d));
	deadlines_remove(&d, &x); /* is not in: nothing happens */
	deadlines_done(&d);
}

static void pop__any_order_of_adding__by_time(void **state)
{
	static const int64_t in[] = { 30, -5, 30, 7, INT64_MAX - 1, 0 };
	static const int64_t out[] = { -5, 0, 7, 30, 30, INT64_MAX - 1 };
	struct deadline x[6];
	struct deadlines d = { 0 };

	(void)state;
	for (int i = 0; i < 6; i++) {
		x[i] = (struct deadline){ .at = in[i] };
		assert_int_equal(deadlines_add(&d, &x[i]), 0);
	}
	for (int i = 0; i < 6; i++) {
		struct deadline *got;

		assert_true(deadlines_next(&d) == out[i]);
		got = deadlines_pop(&d);
		assert_true(got->at == out[i]);
		assert_int_equal(got->place, 0);
	}
	deadlines_done(&d);
}

static void remove__twice__second_does_nothing(void **state)
{
	struct deadline a = { .at = 1 }, b = { .at = 2 };
	struct deadlines d = { 0 };

	(void)state;
	deadlines_add(&d, &a);
	deadlines_add(&d, &b);
	deadlines_remove(&d, &a);
	deadlines_remove(&d, &a);
	assert_ptr_equal(deadlines_pop(&d), &b);
	assert_int_equal(d.len, 0);
	deadlines_done(&d);
}

static int64_t least(const struct deadline *x, const bool *in)
{
	int64_t at = INT64_MAX;

	for (int i = 0; i < N; i++)
		if (in[i] && x[i].at < at)
			at = x[i].at;
	return at;
}

static void mixed__against_an_array__always_the_earliest(void **state)
{
	static struct deadline x[N];
	static bool in[N];
	struct deadlines d = { 0 };
	size_t alive = 0;

	(void)state;
	srand(11);
	for (int step = 0; step < 20000; step++) {
		int i = rand() % N;

		if (step % 5 == 4 && alive) {
			struct deadline *got = deadlines_pop(&d);

			assert_true(in[got - x]);
			in[got - x] = false;
			alive--;
			assert_true(got->at <= least(x, in));
		} else if (in[i]) {
			deadlines_remove(&d, &x[i]);
			in[i] = false;
			alive--;
		} else {
			x[i] = (struct deadline){ .at = rand() % 1000 };
			assert_int_equal(deadlines_add(&d, &x[i]), 0);
			in[i] = true;
			alive++;
		}
		assert_int_equal(d.len, alive);
		assert_true(deadlines_next(&d) == least(x, in));
	}
	deadlines_done(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(next__empty__never),
		cmocka_unit_test(pop__any_order_of_adding__by_time),
		cmocka_unit_test(remove__twice__second_does_nothing),
		cmocka_unit_test(mixed__against_an_array__always_the_earliest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
