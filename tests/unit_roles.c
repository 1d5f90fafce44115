/* Who is an operator. */
#include "core/control/roles.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <grp.h>
#include <string.h>

#include "core/base/mem.h"

#define DAEMON    990
#define OPERATORS 2000
#define TRACERS   3000

static bool in_operators(const struct cred *c, uint32_t gid)
{
	(void)c;
	return gid == OPERATORS;
}

static bool in_both(const struct cred *c, uint32_t gid)
{
	(void)c;
	return gid == OPERATORS || gid == TRACERS;
}

static bool in_any(const struct cred *c, uint32_t gid)
{
	(void)c, (void)gid;
	return true;
}

static const struct roles both = { DAEMON, OPERATORS, TRACERS };

static void of__each_kind_of_user__the_roles_of_its_groups(void **state)
{
	static const struct {
		struct cred who;
		unsigned roles;
	} rows[] = {
		{ { .uid = 0, .gid = 0 }, ROLE_ROOT },
		{ { .uid = DAEMON, .gid = 12 }, ROLE_ROOT },
		{ { .uid = 5, .gid = 0 }, 0 }, /* root's group is no role */
		{ { .uid = 5, .gid = 5 }, 0 },
		{ { .uid = 5, .gid = OPERATORS }, ROLE_OPERATOR },
		{ { .uid = 5, .gid = TRACERS }, ROLE_TRACE },
		{ { .uid = 5, .gid = 5, .in_group = in_operators }, ROLE_OPERATOR },
		{ { .uid = 5, .gid = TRACERS, .in_group = in_operators },
			ROLE_OPERATOR | ROLE_TRACE },
		{ { .uid = 5, .gid = 5, .in_group = in_both }, ROLE_OPERATOR | ROLE_TRACE },
		{ { .uid = 0, .gid = 0, .in_group = in_both },
			ROLE_ROOT | ROLE_OPERATOR | ROLE_TRACE },
		{ { .uid = OPERATORS, .gid = 5 }, 0 }, /* a user of that number */
		{ { .uid = UINT32_MAX, .gid = UINT32_MAX }, 0 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (roles_of(&both, &rows[i].who) != rows[i].roles)
			fail_msg("row %zu: %u", i, roles_of(&both, &rows[i].who));
}

static void of__no_groups__nobody_is_a_member(void **state)
{
	static const struct roles none = { DAEMON, ROLES_NO_GROUP, ROLES_NO_GROUP };
	static const struct cred unmapped = { .uid = 5, .gid = ROLES_NO_GROUP, .in_group = in_any };
	static const struct cred root = { .uid = 0, .gid = ROLES_NO_GROUP, .in_group = in_any };

	(void)state;
	assert_int_equal(roles_of(&none, &unmapped), 0);
	assert_int_equal(roles_of(&none, &root), ROLE_ROOT);
}

static void allow__every_pair__one_in_common_or_root(void **state)
{
	(void)state;
	for (unsigned mine = 0; mine < 8; mine++)
		for (unsigned wanted = 0; wanted < 8; wanted++)
			assert_int_equal(roles_allow(mine, wanted),
				(mine & ROLE_ROOT) != 0 || (mine & wanted) != 0);
}

static void set__names_and_numbers__the_group(void **state)
{
	const struct group *some = getgrgid(0);
	struct fault f = FAULT_NONE;
	struct roles r;

	(void)state;
	assert_int_equal(roles_set(&r, DAEMON, "", "", &f), 0);
	assert_int_equal(r.uid, DAEMON);
	assert_int_equal(r.operators, ROLES_NO_GROUP);
	assert_int_equal(r.tracers, ROLES_NO_GROUP);
	assert_int_equal(roles_set(&r, DAEMON, "2000", "0003000", &f), 0);
	assert_int_equal(r.operators, 2000);
	assert_int_equal(r.tracers, 3000);
	assert_int_equal(roles_set(&r, DAEMON, "0", "4294967294", &f), 0);
	assert_int_equal(r.operators, 0);
	assert_int_equal(r.tracers, 4294967294u);
	if (!some)
		return; /* a system without names */
	assert_int_equal(roles_set(&r, DAEMON, "", some->gr_name, &f), 0);
	assert_int_equal(r.tracers, 0);
}

static void set__no_such_group__refused_with_the_option_and_unchanged(void **state)
{
	static const char *const bad[] = { "no-such-group", "4294967295", "99999999999", "-1",
		"12x", " 12", "0x10" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct roles r = both;
		struct fault f = FAULT_NONE;

		assert_int_equal(roles_set(&r, 1, bad[i], "", &f), -EINVAL);
		assert_string_equal(f.field, "operator_group");
		assert_non_null(strstr(f.reason, bad[i]));
		assert_true(f.action[0]);
		assert_int_equal(roles_set(&r, 1, "7", bad[i], &f), -EINVAL);
		assert_string_equal(f.field, "trace_group");
		assert_memory_equal(&r, &both, sizeof r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(of__each_kind_of_user__the_roles_of_its_groups),
		cmocka_unit_test(of__no_groups__nobody_is_a_member),
		cmocka_unit_test(allow__every_pair__one_in_common_or_root),
		cmocka_unit_test(set__names_and_numbers__the_group),
		cmocka_unit_test(set__no_such_group__refused_with_the_option_and_unchanged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
