/* Fairness is checked by naming the order in which items must come, worked out by hand. */
#include "core/engine/queue.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>

static struct queue_item item(uint32_t uid, int32_t priority)
{
	return (struct queue_item){ .uid = uid, .priority = priority };
}

static void check_order(struct queue *q, struct queue_item *const *want, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(queue_position(q, want[i]), 0);
		for (size_t k = i; k < n; k++)
			assert_int_equal(queue_position(q, want[k]), k - i);
		assert_ptr_equal(queue_pop(q), want[i]);
		assert_false(queue_waits(want[i]));
	}
	assert_null(queue_pop(q));
	assert_int_equal(q->len, 0);
}

static void pop__empty__null(void **state)
{
	struct queue q = { 0 };

	(void)state;
	assert_null(queue_pop(&q));
	assert_int_equal(queue_user_len(&q, 5), 0);
}

static void pop__one_user__first_come_first_served(void **state)
{
	struct queue_item a = item(1, 0), b = item(1, 0), c = item(1, 0);
	struct queue_item *const order[] = { &a, &b, &c };
	struct queue q = { 0 };

	(void)state;
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(queue_push(&q, order[i]), 0);
	assert_int_equal(queue_user_len(&q, 1), 3);
	check_order(&q, order, 3);
}

static void pop__priorities__larger_first_equal_ones_in_order(void **state)
{
	struct queue_item a = item(1, 0), b = item(1, 5), c = item(1, -100), d = item(1, 5),
			  e = item(1, 100);
	struct queue_item *const order[] = { &e, &b, &d, &a, &c };
	struct queue q = { 0 };

	(void)state;
	queue_push(&q, &a);
	queue_push(&q, &b);
	queue_push(&q, &c);
	queue_push(&q, &d);
	queue_push(&q, &e);
	check_order(&q, order, 5);
}

static void pop__priority_of_one_user__gains_nothing_over_another(void **state)
{
	struct queue_item a = item(1, 100), b = item(1, 100), c = item(2, -100);
	struct queue_item *const order[] = { &a, &c, &b };
	struct queue q = { 0 };

	(void)state;
	queue_push(&q, &a);
	queue_push(&q, &b);
	queue_push(&q, &c);
	check_order(&q, order, 3);
}

static void pop__three_users__turns(void **state)
{
	struct queue_item a1 = item(1, 0), a2 = item(1, 0), a3 = item(1, 0), b1 = item(2, 0),
			  c1 = item(3, 0), c2 = item(3, 0);
	struct queue_item *const order[] = { &a1, &b1, &c1, &a2, &c2, &a3 };
	struct queue q = { 0 };

	(void)state;
	queue_push(&q, &a1);
	queue_push(&q, &a2);
	queue_push(&q, &a3);
	queue_push(&q, &b1);
	queue_push(&q, &c1);
	queue_push(&q, &c2);
	check_order(&q, order, 6);
}

static void pop__ten_thousand_jobs_of_another__first_job_waits_for_one(void **state)
{
	struct queue_item *many = calloc(10000, sizeof *many), one = item(2, 0);
	struct queue q = { 0 };

	(void)state;
	for (int i = 0; i < 10000; i++) {
		many[i] = item(1, 0);
		assert_int_equal(queue_push(&q, &many[i]), 0);
	}
	assert_int_equal(queue_position(&q, &many[9999]), QUEUE_POSITION_MAX);
	assert_int_equal(queue_push(&q, &one), 0);
	assert_int_equal(queue_position(&q, &one), 1);
	assert_ptr_equal(queue_pop(&q), &many[0]);
	assert_ptr_equal(queue_pop(&q), &one);
	assert_int_equal(q.len, 9999);
	while (queue_pop(&q))
		;
	free(many);
}

static void pop__user_comes_back__turn_is_last(void **state)
{
	struct queue_item a1 = item(1, 0), a2 = item(1, 0), b1 = item(2, 0), b2 = item(2, 0),
			  c1 = item(3, 0);
	struct queue q = { 0 };

	(void)state;
	queue_push(&q, &a1);
	queue_push(&q, &b1);
	queue_push(&q, &b2);
	queue_push(&q, &c1);
	assert_ptr_equal(queue_pop(&q), &a1); /* user 1 has left */
	queue_push(&q, &a2);
	assert_ptr_equal(queue_pop(&q), &b1);
	assert_ptr_equal(queue_pop(&q), &c1);
	assert_ptr_equal(queue_pop(&q), &a2);
	assert_ptr_equal(queue_pop(&q), &b2);
}

static void remove__first_middle_last__rest_in_order(void **state)
{
	struct queue_item x[5];
	struct queue_item *const order[] = { &x[1], &x[3] };
	struct queue q = { 0 };

	(void)state;
	for (int i = 0; i < 5; i++) {
		x[i] = item(1, 0);
		queue_push(&q, &x[i]);
	}
	assert_true(queue_remove(&q, &x[0]));
	assert_true(queue_remove(&q, &x[4]));
	assert_true(queue_remove(&q, &x[2]));
	assert_false(queue_remove(&q, &x[2]));
	assert_int_equal(queue_user_len(&q, 1), 2);
	check_order(&q, order, 2);
}

static void remove__user_whose_turn_it_is__turn_passes_on(void **state)
{
	struct queue_item a = item(1, 0), b = item(2, 0), c = item(3, 0);
	struct queue_item *const order[] = { &b, &c };
	struct queue q = { 0 };

	(void)state;
	queue_push(&q, &a);
	queue_push(&q, &b);
	queue_push(&q, &c);
	assert_true(queue_remove(&q, &a));
	check_order(&q, order, 2);
	assert_null(q.turn);
}

/* Whatever is pushed and removed, the position says in how many pops an item comes. */
static void position__random_mix__tells_the_pop(void **state)
{
	struct queue_item x[200];
	size_t said[200];
	struct queue q = { 0 };

	(void)state;
	srand(7);
	for (int round = 0; round < 50; round++) {
		size_t pops = 0;
		struct queue_item *i;

		for (int k = 0; k < 200; k++) {
			x[k] = item((uint32_t)(rand() % 7), rand() % 3);
			queue_push(&q, &x[k]);
		}
		for (int k = 0; k < 30; k++)
			queue_pop(&q);
		for (int k = 0; k < 200; k += 9)
			queue_remove(&q, &x[k]);
		for (int k = 0; k < 200; k++)
			said[k] = queue_waits(&x[k]) ? queue_position(&q, &x[k]) : 0;
		while ((i = queue_pop(&q)))
			assert_int_equal(said[i - x], pops++);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pop__empty__null),
		cmocka_unit_test(pop__one_user__first_come_first_served),
		cmocka_unit_test(pop__priorities__larger_first_equal_ones_in_order),
		cmocka_unit_test(pop__priority_of_one_user__gains_nothing_over_another),
		cmocka_unit_test(pop__three_users__turns),
		cmocka_unit_test(pop__ten_thousand_jobs_of_another__first_job_waits_for_one),
		cmocka_unit_test(pop__user_comes_back__turn_is_last),
		cmocka_unit_test(remove__first_middle_last__rest_in_order),
		cmocka_unit_test(remove__user_whose_turn_it_is__turn_passes_on),
		cmocka_unit_test(position__random_mix__tells_the_pop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
