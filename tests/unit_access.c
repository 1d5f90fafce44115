/* Decisions by hand, and the same decisions asked of Linux itself: a forked child takes the ids and
 * tries it on a real folder (as root only). */
#include "core/access.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/mem.h"

#define ME    1001
#define MINE  1001
#define TEAM  2000
#define OTHER 3000

static unsigned asked;

static bool in_team(const struct cred *c, uint32_t gid)
{
	(void)c;
	asked++;
	return gid == TEAM;
}

static const struct cred me = { .uid = ME, .gid = MINE, .in_group = in_team };
static const struct cred root = { .uid = 0, .gid = 0 };
static const struct cred loner = { .uid = ME, .gid = MINE };

static void check__by_hand__class_decides_alone(void **state)
{
	static const struct {
		uint32_t uid, gid, mode;
		int want, err;
	} rows[] = {
		{ ME, OTHER, 0600, R_OK | W_OK, 0 },
		{ ME, OTHER, 0400, W_OK, -EACCES },
		{ ME, MINE, 0077, R_OK,
			-EACCES }, /* the owner's bits, though the group's would do */
		{ 5, TEAM, 0640, R_OK, 0 },
		{ 5, TEAM, 0640, W_OK, -EACCES },
		{ 5, TEAM, 0604, R_OK, -EACCES }, /* a member is not one of the others */
		{ 5, MINE, 0060, R_OK | W_OK, 0 },
		{ 5, OTHER, 0660, R_OK, -EACCES },
		{ 5, OTHER, 0604, R_OK, 0 },
		{ 5, OTHER, 0604, R_OK | X_OK, -EACCES },
		{ 5, OTHER, 0, 0, 0 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct owner o = { rows[i].uid, rows[i].gid, rows[i].mode, false };

		assert_int_equal(access_check(&me, &o, rows[i].want), rows[i].err);
	}
}

static void check__root__all_but_execution_without_any_x(void **state)
{
	const struct owner file = { 5, 5, 0, false }, dir = { 5, 5, 0, true },
			   program = { 5, 5, 0001, false };

	(void)state;
	assert_int_equal(access_check(&root, &file, R_OK | W_OK), 0);
	assert_int_equal(access_check(&root, &file, X_OK), -EACCES);
	assert_int_equal(access_check(&root, &program, X_OK), 0);
	assert_int_equal(access_check(&root, &dir, R_OK | W_OK | X_OK), 0);
}

static void check__group_would_change_nothing__not_asked(void **state)
{
	const struct owner same = { 5, TEAM, 0644, false }, differs = { 5, TEAM, 0640, false };

	(void)state;
	asked = 0;
	assert_int_equal(access_check(&me, &same, R_OK), 0);
	assert_int_equal(access_check(&me, &same, W_OK), -EACCES);
	assert_int_equal(asked, 0);
	assert_int_equal(access_check(&me, &differs, R_OK), 0);
	assert_int_equal(asked, 1);
	assert_int_equal(access_check(&loner, &differs, R_OK), -EACCES);
}

static void remove__sticky__owner_of_entry_or_folder(void **state)
{
	const struct owner sticky = { 5, 5, 01777, true }, open = { 5, 5, 0777, true };
	const struct owner closed = { 5, 5, 01755, true }, own = { ME, 5, 01777, true };

	(void)state;
	assert_int_equal(access_remove(&me, &sticky, ME), 0);
	assert_int_equal(access_remove(&me, &sticky, 6), -EPERM);
	assert_int_equal(access_remove(&me, &open, 6), 0);
	assert_int_equal(access_remove(&me, &closed, ME), -EACCES);
	assert_int_equal(access_remove(&me, &own, 6), 0);
	assert_int_equal(access_remove(&root, &sticky, 6), 0);
}

static void chown__table__as_chown_2(void **state)
{
	const struct owner mine = { ME, MINE, 0600, false }, other = { 5, 5, 0666, false };

	(void)state;
	assert_int_equal(access_chown(&me, &mine, ME, MINE), 0);
	assert_int_equal(access_chown(&me, &mine, ME, TEAM), 0);
	assert_int_equal(access_chown(&me, &mine, ME, OTHER), -EPERM);
	assert_int_equal(access_chown(&me, &mine, ME, 0), -EPERM);
	assert_int_equal(access_chown(&me, &mine, 5, MINE), -EPERM);
	assert_int_equal(access_chown(&me, &other, 5, 5), -EPERM);
	assert_int_equal(access_chown(&me, &other, ME, 5), -EPERM);
	assert_int_equal(access_chown(&root, &other, ME, TEAM), 0);
	assert_int_equal(access_owner(&me, &mine), 0);
	assert_int_equal(access_owner(&me, &other), -EPERM);
	assert_int_equal(access_owner(&root, &other), 0);
}

/* --- against Linux ---------------------------------------------------------------------------- */

/* Run `act` in a child with the ids of `c` (TEAM being supplementary when it has groups); its
 * errno, negative. */
static int as(const struct cred *c, int (*act)(const char *path), const char *path)
{
	const gid_t team = TEAM;
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		if (setgroups(c->in_group ? 1 : 0, &team) || setresgid(c->gid, c->gid, c->gid) ||
			setresuid(c->uid, c->uid, c->uid))
			_exit(255);
		_exit(act(path) == 0 ? 0 : errno);
	}
	assert_true(pid > 0);
	waitpid(pid, &status, 0);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 255);
	return -WEXITSTATUS(status);
}

static int may_read(const char *path)
{
	return faccessat(AT_FDCWD, path, R_OK, AT_EACCESS);
}

static int may_write(const char *path)
{
	return faccessat(AT_FDCWD, path, W_OK, AT_EACCESS);
}

static int may_execute(const char *path)
{
	return faccessat(AT_FDCWD, path, X_OK, AT_EACCESS);
}

static const struct {
	int want;
	int (*act)(const char *path);
} asks[] = { { R_OK, may_read }, { W_OK, may_write }, { X_OK, may_execute } };

static const struct cred *const creds[] = { &me, &root, &loner };

static void compare(const char *path, const struct owner *o)
{
	assert_int_equal(chown(path, o->uid, o->gid), 0);
	assert_int_equal(chmod(path, o->mode), 0);
	for (size_t c = 0; c < ARRAY_SIZE(creds); c++)
		for (size_t a = 0; a < ARRAY_SIZE(asks); a++)
			assert_int_equal(access_check(creds[c], o, asks[a].want),
				as(creds[c], asks[a].act, path));
}

static bool usable(char *dir)
{
	if (geteuid() == 0 && mkdtemp(dir) && chmod(dir, 0755) == 0)
		return true;
	print_message("not root: what Linux does was not compared\n");
	return false;
}

static void check__modes_and_owners__as_linux(void **state)
{
	static const uint32_t modes[] = { 0, 0400, 0200, 0100, 0040, 0020, 0010, 0004, 0002, 0001,
		0750, 0057 };
	static const uint32_t owners[][2] = { { ME, MINE }, { 5, TEAM }, { 5, MINE }, { 5, OTHER },
		{ 0, 0 } };
	char dir[] = "/tmp/npufs-accessXXXXXX", file[64], sub[64];

	(void)state;
	if (!usable(dir))
		skip();
	snprintf(file, sizeof file, "%s/f", dir);
	snprintf(sub, sizeof sub, "%s/d", dir);
	close(open(file, O_CREAT | O_WRONLY, 0600));
	assert_int_equal(mkdir(sub, 0700), 0);
	for (size_t m = 0; m < ARRAY_SIZE(modes); m++)
		for (size_t o = 0; o < ARRAY_SIZE(owners); o++) {
			const struct owner f = { owners[o][0], owners[o][1], modes[m], false };
			const struct owner d = { owners[o][0], owners[o][1], modes[m], true };

			compare(file, &f);
			compare(sub, &d);
		}
	unlink(file);
	rmdir(sub);
	rmdir(dir);
}

static int remove_file(const char *path)
{
	return unlink(path);
}

static void remove__folders_and_owners__as_linux(void **state)
{
	static const uint32_t modes[] = { 01777, 0777, 01770, 0755, 01755, 0722, 0733, 01733 };
	static const uint32_t uids[] = { ME, 5 };
	char dir[] = "/tmp/npufs-accessXXXXXX", sub[64], file[80];

	(void)state;
	if (!usable(dir))
		skip();
	snprintf(sub, sizeof sub, "%s/d", dir);
	snprintf(file, sizeof file, "%s/f", sub);
	assert_int_equal(mkdir(sub, 0700), 0);
	for (size_t i = 0; i < ARRAY_SIZE(modes) * 4 * ARRAY_SIZE(creds); i++) {
		const struct cred *c = creds[i % ARRAY_SIZE(creds)];
		uint32_t entry = uids[i / ARRAY_SIZE(creds) % 2];
		const struct owner d = { uids[i / ARRAY_SIZE(creds) / 2 % 2], TEAM,
			modes[i / ARRAY_SIZE(creds) / 4], true };

		close(open(file, O_CREAT | O_WRONLY, 0600));
		assert_int_equal(chown(file, entry, 5), 0);
		assert_int_equal(chown(sub, d.uid, d.gid), 0);
		assert_int_equal(chmod(sub, d.mode), 0);
		assert_int_equal(access_remove(c, &d, entry), as(c, remove_file, file));
	}
	unlink(file);
	rmdir(sub);
	rmdir(dir);
}

static uint32_t new_uid, new_gid;

static int give(const char *path)
{
	return chown(path, new_uid, new_gid);
}

static void chown__owners_and_groups__as_linux(void **state)
{
	static const uint32_t ids[] = { ME, 5, TEAM, OTHER, MINE, 0 };
	char dir[] = "/tmp/npufs-accessXXXXXX", file[64];

	(void)state;
	if (!usable(dir))
		skip();
	snprintf(file, sizeof file, "%s/f", dir);
	close(open(file, O_CREAT | O_WRONLY, 0600));
	for (size_t i = 0; i < 12 * ARRAY_SIZE(ids); i++) {
		const struct cred *c = creds[i % ARRAY_SIZE(creds)];
		const struct owner o = { ids[i / 3 % 2], OTHER, 0600, false };

		new_uid = ids[i / 6 % 2];
		new_gid = ids[i / 12];
		assert_int_equal(chown(file, o.uid, o.gid), 0);
		assert_int_equal(access_chown(c, &o, new_uid, new_gid), as(c, give, file));
	}
	unlink(file);
	rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(check__by_hand__class_decides_alone),
		cmocka_unit_test(check__root__all_but_execution_without_any_x),
		cmocka_unit_test(check__group_would_change_nothing__not_asked),
		cmocka_unit_test(remove__sticky__owner_of_entry_or_folder),
		cmocka_unit_test(chown__table__as_chown_2),
		cmocka_unit_test(check__modes_and_owners__as_linux),
		cmocka_unit_test(remove__folders_and_owners__as_linux),
		cmocka_unit_test(chown__owners_and_groups__as_linux),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
