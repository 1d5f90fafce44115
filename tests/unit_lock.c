/* Ranks of locks: breaches abort. The checks are on here in every build. */
#undef NPUFS_DEBUG
#define NPUFS_DEBUG 1
#include "core/base/lock.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static struct lock engine = LOCK_INIT(RANK_ENGINE, "engine");
static struct lock job = LOCK_INIT(RANK_JOB, "job");
static struct lock other_job = LOCK_INIT(RANK_JOB, "other job");
static struct lock logging = LOCK_INIT(RANK_LOG, "log");

/* Whether `f` ends its process by SIGABRT. */
static bool aborts(void (*f)(void))
{
	int status = 0;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		const struct rlimit no_core = { 0, 0 };
		int null = open("/dev/null", O_WRONLY);

		setrlimit(RLIMIT_CORE, &no_core);
		dup2(null, STDERR_FILENO);
		signal(SIGABRT, SIG_DFL);
		f();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void take_rising(void)
{
	lock_take(&engine);
	lock_take(&job);
	lock_take(&logging);
	lock_assert_held(&engine);
	lock_assert_held(&job);
	lock_assert_held(&logging);
	lock_drop(&logging);
	lock_drop(&job);
	lock_drop(&engine);
	lock_assert_none();
}

static void take_and_drop_out_of_order(void)
{
	lock_take(&engine);
	lock_take(&job);
	lock_drop(&engine);
	lock_assert_held(&job);
	lock_take(&logging);
	lock_drop(&job);
	lock_drop(&logging);
	lock_assert_none();
	lock_take(&engine);
	lock_drop(&engine);
}

static void take_falling(void)
{
	lock_take(&job);
	lock_take(&engine);
}

static void take_equal_rank(void)
{
	lock_take(&job);
	lock_take(&other_job);
}

static void take_twice(void)
{
	lock_take(&job);
	lock_take(&job);
}

static void take_between_after_dropping_the_lower(void)
{
	lock_take(&engine);
	lock_take(&logging);
	lock_drop(&engine);
	lock_take(&job);
}

static void drop_not_held(void)
{
	lock_drop(&job);
}

static void assert_held_when_not(void)
{
	lock_take(&engine);
	lock_assert_held(&job);
}

static void assert_none_when_held(void)
{
	lock_take(&logging);
	lock_assert_none();
}

static void wait_with_two(void)
{
	struct lock_cond c;
	const struct timespec past = { 0, 0 };

	lock_cond_init(&c);
	lock_take(&engine);
	lock_take(&job);
	lock_cond_wait_until(&c, &job, &past);
}

static void wait_without_it(void)
{
	struct lock_cond c;
	const struct timespec past = { 0, 0 };

	lock_cond_init(&c);
	lock_cond_wait_until(&c, &job, &past);
}

static void lock_take__rising_rank__allowed(void **state)
{
	(void)state;
	assert_false(aborts(take_rising));
	assert_false(aborts(take_and_drop_out_of_order));
}

static void lock_take__rank_not_rising__aborts(void **state)
{
	(void)state;
	assert_true(aborts(take_falling));
	assert_true(aborts(take_equal_rank));
	assert_true(aborts(take_twice));
	assert_true(aborts(take_between_after_dropping_the_lower));
}

static void lock_drop__not_held__aborts(void **state)
{
	(void)state;
	assert_true(aborts(drop_not_held));
}

static void lock_assert__breach__aborts(void **state)
{
	(void)state;
	assert_true(aborts(assert_held_when_not));
	assert_true(aborts(assert_none_when_held));
}

static void lock_cond_wait__other_locks_held__aborts(void **state)
{
	(void)state;
	assert_true(aborts(wait_with_two));
	assert_true(aborts(wait_without_it));
}

static void *take_engine(void *unused)
{
	(void)unused;
	lock_assert_none();
	lock_take(&engine);
	lock_drop(&engine);
	return NULL;
}

static void lock_take__other_thread_holds_higher__allowed(void **state)
{
	pthread_t t;

	(void)state;
	lock_take(&logging);
	assert_int_equal(pthread_create(&t, NULL, take_engine, NULL), 0);
	assert_int_equal(pthread_join(t, NULL), 0);
	lock_drop(&logging);
}

static void lock_cond_wait_until__past__times_out_with_lock_held(void **state)
{
	struct lock l;
	struct lock_cond c;
	struct timespec now, then;

	(void)state;
	lock_init(&l, RANK_PARK, "park");
	lock_cond_init(&c);
	lock_take(&l);
	clock_gettime(CLOCK_MONOTONIC, &now);
	then = now;
	then.tv_nsec += 20 * 1000 * 1000;
	if (then.tv_nsec >= 1000000000) {
		then.tv_sec++;
		then.tv_nsec -= 1000000000;
	}
	while (!lock_cond_wait_until(&c, &l, &then))
		continue;
	lock_assert_held(&l);
	clock_gettime(CLOCK_MONOTONIC, &now);
	assert_true(now.tv_sec > then.tv_sec ||
		(now.tv_sec == then.tv_sec && now.tv_nsec >= then.tv_nsec));
	lock_drop(&l);
	lock_assert_none();
	lock_cond_done(&c);
	lock_done(&l);
}

struct meeting {
	struct lock l;
	struct lock_cond c;
	int turns; /* by l */
};

static void *take_turns(void *arg)
{
	struct meeting *m = arg;

	lock_take(&m->l);
	while (m->turns < 100) {
		while (m->turns % 2 == 0)
			lock_cond_wait(&m->c, &m->l);
		m->turns++;
		lock_cond_signal(&m->c);
	}
	lock_drop(&m->l);
	return NULL;
}

static void lock_cond_wait__signalled__continues(void **state)
{
	struct meeting m = { .turns = 0 };
	pthread_t t;

	(void)state;
	lock_init(&m.l, RANK_JOB, "job");
	lock_cond_init(&m.c);
	assert_int_equal(pthread_create(&t, NULL, take_turns, &m), 0);
	lock_take(&m.l);
	while (m.turns < 100) {
		while (m.turns % 2 == 1)
			lock_cond_wait(&m.c, &m.l);
		if (m.turns < 100)
			m.turns++;
		lock_cond_broadcast(&m.c);
	}
	lock_drop(&m.l);
	assert_int_equal(pthread_join(t, NULL), 0);
	assert_int_equal(m.turns, 100);
	lock_cond_done(&m.c);
	lock_done(&m.l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lock_take__rising_rank__allowed),
		cmocka_unit_test(lock_take__rank_not_rising__aborts),
		cmocka_unit_test(lock_drop__not_held__aborts),
		cmocka_unit_test(lock_assert__breach__aborts),
		cmocka_unit_test(lock_cond_wait__other_locks_held__aborts),
		cmocka_unit_test(lock_take__other_thread_holds_higher__allowed),
		cmocka_unit_test(lock_cond_wait_until__past__times_out_with_lock_held),
		cmocka_unit_test(lock_cond_wait__signalled__continues),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
