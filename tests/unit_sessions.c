/* The table of sessions without a device: who may have which, what a job's end leaves, limits,
 * trimming. A run is played by sessions_begin() and sessions_end() with no KV. */
#include "core/engine/sessions.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ALICE 1001
#define BOB   1002

static struct sessions *t;
static uint64_t next_job;

static int up_with(uint32_t all, uint32_t user, int64_t idle_ns)
{
	const struct sessions_limits limits = { all, user, idle_ns };

	next_job = 1;
	return sessions_new(&limits, &t);
}

static int up(void **state)
{
	(void)state;
	return up_with(8, 4, 0);
}

static int down(void **state)
{
	(void)state;
	sessions_free(t);
	return 0;
}

static int claim(uint32_t uid, const char *name, int model, uint64_t *ret_job)
{
	struct job_order order = { .model = model, .gid = uid + 1 };
	struct fault f = FAULT_NONE;
	int err;

	strcpy(order.session, name);
	*ret_job = next_job++;
	err = sessions_claim(t, uid, *ret_job, &order, &f);
	assert_int_equal(err, f.err);
	return err;
}

static struct session_view look(const char *name)
{
	struct session_view v;

	if (!sessions_find(t, name, &v))
		fail_msg("no session %s", name);
	return v;
}

static bool there(const char *name)
{
	struct session_view v;

	return sessions_find(t, name, &v);
}

/* A job of that session that ends well with these tokens as the session's. */
static void turn(uint32_t uid, const char *name, const int32_t *tokens, uint32_t n)
{
	struct fault f = FAULT_NONE;
	struct session *s;
	const int32_t *before;
	uint32_t n_before;
	uint64_t job;

	assert_int_equal(claim(uid, name, 3, &job), 0);
	assert_int_equal(sessions_begin(t, name, job, "sha", &s, &before, &n_before, &f), 0);
	assert_int_equal(sessions_offer(t, s, job, tokens, n, 16, "sha"), 0);
	sessions_end(t, s, NULL, NULL);
	sessions_settle(t, name, job, true);
}

static const int32_t some[] = { 5, 6, 7, 8, 9 };

/* --- names ------------------------------------------------------------------------------------ */

static void name_valid__table__as_said(void **state)
{
	static const char *const good[] = { "a", "A.b_c-9", "-", "_",
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" };
	static const char *const bad[] = { "", ".", "..", ".a", "a/b", "a b", "a\n", "\xc3\xa9",
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" };

	(void)state;
	for (size_t i = 0; i < sizeof good / sizeof *good; i++)
		assert_true(session_name_valid(good[i]));
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		if (session_name_valid(bad[i]))
			fail_msg("\"%s\" is taken", bad[i]);
}

/* --- claims ----------------------------------------------------------------------------------- */

static void claim__new__made_for_its_user_and_in_use(void **state)
{
	struct session_view v;
	uint64_t job;

	(void)state;
	assert_int_equal(claim(ALICE, "chat", 3, &job), 0);
	v = look("chat");
	assert_int_equal(v.uid, ALICE);
	assert_int_equal(v.gid, ALICE + 1);
	assert_int_equal(v.length, 0);
	assert_int_equal(v.model, -1);
	assert_true(v.in_use);
	sessions_settle(t, "chat", job, false);
}

static void claim__second_job__busy_until_settled(void **state)
{
	uint64_t first, second;
	int model;

	(void)state;
	turn(ALICE, "chat", some, 3);
	assert_int_equal(claim(ALICE, "chat", 3, &first), 0);
	assert_int_equal(claim(ALICE, "chat", 3, &second), -EBUSY);
	assert_int_equal(sessions_check(t, ALICE, "chat", &model, NULL), -EBUSY);
	sessions_settle(t, "chat", second, true); /* it has no claim */
	assert_true(look("chat").in_use);
	sessions_settle(t, "chat", first, false);
	assert_int_equal(claim(ALICE, "chat", 3, &second), 0);
	sessions_settle(t, "chat", second, false);
}

static void claim__of_another_user__refused_but_root(void **state)
{
	uint64_t job;
	int model = -2;

	(void)state;
	turn(ALICE, "chat", some, 3);
	assert_int_equal(claim(BOB, "chat", 3, &job), -EACCES);
	assert_int_equal(sessions_check(t, BOB, "chat", &model, NULL), -EACCES);
	assert_int_equal(sessions_check(t, ALICE, "chat", &model, NULL), 0);
	assert_int_equal(model, 3);
	assert_int_equal(claim(0, "chat", 3, &job), 0);
	sessions_settle(t, "chat", job, false);
	assert_int_equal(look("chat").uid, ALICE);
}

static void claim__another_model__only_while_it_is_empty(void **state)
{
	uint64_t job;

	(void)state;
	assert_int_equal(sessions_make(t, ALICE, 1, "chat"), 0);
	assert_int_equal(claim(ALICE, "chat", 5, &job), 0);
	sessions_settle(t, "chat", job, false);
	turn(ALICE, "chat", some, 3);
	assert_int_equal(look("chat").model, 3);
	assert_int_equal(claim(ALICE, "chat", 5, &job), -EINVAL);
	assert_int_equal(sessions_trim(t, look("chat").id, 0), 0);
	assert_int_equal(look("chat").model, -1);
	assert_int_equal(claim(ALICE, "chat", 5, &job), 0);
	sessions_settle(t, "chat", job, false);
}

/* --- ends ------------------------------------------------------------------------------------- */

static void settle__done__the_offer_is_the_session(void **state)
{
	struct fault f = FAULT_NONE;
	struct session *s;
	const int32_t *before;
	uint32_t n;
	uint64_t job;

	(void)state;
	turn(ALICE, "chat", some, 3);
	turn(ALICE, "chat", some, 5);
	assert_int_equal(look("chat").length, 5);
	assert_int_equal(look("chat").limit, 16);
	assert_int_equal(claim(ALICE, "chat", 3, &job), 0);
	assert_int_equal(sessions_begin(t, "chat", job, "sha", &s, &before, &n, &f), 0);
	assert_int_equal(n, 5);
	assert_memory_equal(before, some, sizeof some);
	sessions_end(t, s, NULL, NULL);
	sessions_settle(t, "chat", job, false);
}

/* Settled while the run is still on the device, before or after it offered, and after it left. */
static void settle__not_done__as_before(void **state)
{
	struct fault f = FAULT_NONE;
	struct session *s;
	const int32_t *before;
	uint64_t job, next;
	uint32_t n;

	(void)state;
	turn(ALICE, "chat", some, 2);
	for (int when = 0; when < 3; when++) {
		assert_int_equal(claim(ALICE, "chat", 3, &job), 0);
		assert_int_equal(sessions_begin(t, "chat", job, "sha", &s, &before, &n, &f), 0);
		if (when == 0)
			sessions_settle(t, "chat", job, false);
		assert_int_equal(sessions_offer(t, s, job, some, 5, 16, "sha"), 0);
		if (when == 1)
			sessions_settle(t, "chat", job, false);
		assert_int_equal(claim(ALICE, "chat", 3, &next), -EBUSY);
		assert_int_equal(sessions_remove(t, look("chat").id), -EBUSY);
		assert_int_equal(sessions_check_trim(t, look("chat").id, 1), -EBUSY);
		assert_int_equal(sessions_trim(t, look("chat").id, 1), -EBUSY);
		sessions_end(t, s, NULL, NULL);
		if (when == 2)
			sessions_settle(t, "chat", job, false);
		assert_int_equal(look("chat").length, 2);
		assert_false(look("chat").in_use);
	}
}

static void settle__not_done_of_the_first_job__what_it_made_is_gone(void **state)
{
	struct fault f = FAULT_NONE;
	struct session *s;
	const int32_t *before;
	uint64_t job;
	uint32_t n;

	(void)state;
	assert_int_equal(claim(ALICE, "waited", 3, &job), 0);
	sessions_settle(t, "waited", job, false);
	assert_false(there("waited"));
	assert_int_equal(claim(ALICE, "ran", 3, &job), 0);
	assert_int_equal(sessions_begin(t, "ran", job, "sha", &s, &before, &n, &f), 0);
	sessions_settle(t, "ran", job, false);
	assert_true(there("ran")); /* the run still has it */
	sessions_end(t, s, NULL, NULL);
	assert_false(there("ran"));
	assert_int_equal(sessions_make(t, ALICE, 1, "made"), 0);
	assert_int_equal(claim(ALICE, "made", 3, &job), 0);
	sessions_settle(t, "made", job, false);
	assert_true(there("made"));
	assert_int_equal(sessions_count(t), 1);
}

static void begin__job_without_a_claim__cancelled(void **state)
{
	struct fault f = FAULT_NONE;
	struct session *s;
	const int32_t *before;
	uint64_t job, next;
	uint32_t n;

	(void)state;
	turn(ALICE, "chat", some, 2);
	assert_int_equal(claim(ALICE, "chat", 3, &job), 0);
	sessions_settle(t, "chat", job, false); /* cancelled on its way to the device */
	assert_int_equal(claim(ALICE, "chat", 3, &next), 0);
	assert_int_equal(sessions_begin(t, "chat", job, "sha", &s, &before, &n, &f), -ECANCELED);
	assert_int_equal(sessions_begin(t, "gone", job, "sha", &s, &before, &n, &f), -ECANCELED);
	sessions_settle(t, "chat", next, false);
}

static void begin__another_artifact__stale(void **state)
{
	struct fault f = FAULT_NONE;
	struct session *s;
	const int32_t *before;
	uint64_t job;
	uint32_t n;

	(void)state;
	turn(ALICE, "chat", some, 2);
	assert_int_equal(claim(ALICE, "chat", 3, &job), 0);
	assert_int_equal(sessions_begin(t, "chat", job, "other", &s, &before, &n, &f), -ESTALE);
	assert_string_equal(f.action, "rmdir the session and begin anew");
	sessions_settle(t, "chat", job, false);
	assert_false(look("chat").in_use);
}

/* --- limits ----------------------------------------------------------------------------------- */

static void make__limits_and_names__refused(void **state)
{
	char name[8];
	uint64_t job;
	int model;

	(void)state;
	assert_int_equal(sessions_make(t, ALICE, 1, ".a"), -EINVAL);
	for (int i = 0; i < 4; i++) {
		snprintf(name, sizeof name, "a%d", i);
		assert_int_equal(sessions_make(t, ALICE, 1, name), 0);
	}
	assert_int_equal(sessions_make(t, ALICE, 1, "a0"), -EEXIST);
	assert_int_equal(sessions_make(t, ALICE, 1, "more"), -EDQUOT);
	assert_int_equal(claim(ALICE, "more", 3, &job), -EDQUOT);
	assert_int_equal(sessions_check(t, ALICE, "a0", &model, NULL), 0);
	for (int i = 0; i < 4; i++) {
		snprintf(name, sizeof name, "b%d", i);
		assert_int_equal(sessions_make(t, BOB, 1, name), 0);
	}
	assert_int_equal(sessions_make(t, 1003, 1, "more"), -ENOSPC);
	assert_int_equal(sessions_check(t, 1003, "more", &model, NULL), -ENOSPC);
	assert_int_equal(sessions_remove(t, look("b0").id), 0);
	assert_int_equal(sessions_make(t, 1003, 1, "more"), 0);
}

static void trim__table(void **state)
{
	static const struct {
		uint64_t to;
		int err;
	} rows[] = { { 17, -EINVAL }, { 1ULL << 32, -EINVAL }, { 16, -EOPNOTSUPP },
		{ 6, -EOPNOTSUPP }, { 5, 0 }, { 4, 0 }, { 5, -EOPNOTSUPP }, { 1, 0 }, { 0, 0 },
		{ 0, 0 }, { 1, -EOPNOTSUPP } };
	uint32_t length = 5;
	uint64_t id;

	(void)state;
	turn(ALICE, "chat", some, 5);
	id = look("chat").id;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		assert_int_equal(sessions_check_trim(t, id, rows[i].to), rows[i].err);
		assert_int_equal(look("chat").length, length);
		assert_int_equal(sessions_trim(t, id, rows[i].to), rows[i].err);
		length = rows[i].err ? length : (uint32_t)rows[i].to;
		assert_int_equal(look("chat").length, length);
	}
	assert_int_equal(sessions_remove(t, id), 0);
	assert_int_equal(sessions_check_trim(t, id, 0), -ESTALE);
	assert_int_equal(sessions_trim(t, id, 0), -ESTALE);
	assert_int_equal(sessions_remove(t, id), -ENOENT);
}

static void next__some_removed_meanwhile__the_others_in_order(void **state)
{
	struct session_view v = { .id = 0 };

	(void)state;
	assert_int_equal(sessions_make(t, ALICE, 1, "one"), 0);
	assert_int_equal(sessions_make(t, ALICE, 1, "two"), 0);
	assert_int_equal(sessions_make(t, ALICE, 1, "three"), 0);
	assert_true(sessions_next(t, v.id, &v));
	assert_string_equal(v.name, "one");
	assert_int_equal(sessions_remove(t, look("one").id), 0);
	assert_int_equal(sessions_remove(t, look("three").id), 0);
	assert_int_equal(sessions_make(t, ALICE, 1, "one"), 0);
	assert_true(sessions_next(t, v.id, &v));
	assert_string_equal(v.name, "two");
	assert_true(sessions_next(t, v.id, &v));
	assert_string_equal(v.name, "one"); /* another one: ids are not used again */
	assert_int_equal(v.id, 4);
	assert_false(sessions_next(t, v.id, &v));
}

static void tidy__idle_too_long__removed_but_not_in_use(void **state)
{
	uint64_t job;

	sessions_free(t);
	up_with(8, 4, 20 * 1000 * 1000);
	(void)state;
	turn(ALICE, "old", some, 2);
	assert_int_equal(claim(ALICE, "busy", 3, &job), 0);
	assert_int_equal(sessions_tidy(t), 0);
	usleep(40000);
	turn(ALICE, "new", some, 2);
	assert_int_equal(sessions_tidy(t), 1);
	assert_false(there("old"));
	assert_true(there("new"));
	assert_true(there("busy"));
	sessions_settle(t, "busy", job, false);
}

/* The job has ended, by its deadline perhaps; what is on the device has the session still. */
static void tidy__run_not_back_from_the_device__stays(void **state)
{
	struct fault f = FAULT_NONE;
	struct session *s;
	const int32_t *before;
	uint32_t n;
	uint64_t job;

	(void)state;
	sessions_free(t);
	up_with(8, 4, 1);
	turn(ALICE, "chat", some, 3);
	assert_int_equal(claim(ALICE, "chat", 3, &job), 0);
	assert_int_equal(sessions_begin(t, "chat", job, "sha", &s, &before, &n, &f), 0);
	sessions_settle(t, "chat", job, false);
	usleep(1000);
	assert_int_equal(sessions_tidy(t), 0);
	sessions_end(t, s, NULL, NULL);
	usleep(1000);
	assert_int_equal(sessions_tidy(t), 1);
}

static void tidy__cut_meanwhile__was_used(void **state)
{
	(void)state;
	sessions_free(t);
	up_with(8, 4, 200 * 1000 * 1000);
	turn(ALICE, "cut", some, 3);
	turn(ALICE, "old", some, 3);
	usleep(250000);
	assert_int_equal(sessions_trim(t, look("cut").id, 2), 0);
	assert_int_equal(sessions_tidy(t), 1);
	assert_true(there("cut"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(name_valid__table__as_said),
		TEST(claim__new__made_for_its_user_and_in_use),
		TEST(claim__second_job__busy_until_settled),
		TEST(claim__of_another_user__refused_but_root),
		TEST(claim__another_model__only_while_it_is_empty),
		TEST(settle__done__the_offer_is_the_session),
		TEST(settle__not_done__as_before),
		TEST(settle__not_done_of_the_first_job__what_it_made_is_gone),
		TEST(begin__job_without_a_claim__cancelled),
		TEST(begin__another_artifact__stale),
		TEST(make__limits_and_names__refused),
		TEST(trim__table),
		TEST(next__some_removed_meanwhile__the_others_in_order),
		TEST(tidy__idle_too_long__removed_but_not_in_use),
		TEST(tidy__run_not_back_from_the_device__stays),
		TEST(tidy__cut_meanwhile__was_used),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
