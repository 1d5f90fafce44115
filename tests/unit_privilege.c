#include "core/control/privilege.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void takes(const char *names, uint64_t want)
{
	struct fault f = FAULT_NONE;
	uint64_t set = ~0ULL;
	int err = privilege_parse(names, &set, &f);

	if (err)
		fail_msg("%s: %s", names, f.reason);
	assert_int_equal(set, want);
}

static void refuses(const char *names, const char *said)
{
	struct fault f = FAULT_NONE;
	uint64_t set = 7;

	assert_int_equal(privilege_parse(names, &set, &f), -EINVAL);
	assert_string_equal(f.field, "keep_caps");
	if (!strstr(f.reason, said) || !f.action[0])
		fail_msg("%s: %s", names, f.reason);
	assert_int_equal(set, 7);
}

static void parse__names__their_numbers(void **state)
{
	(void)state;
	takes("", 0);
	takes("chown", PRIVILEGE(CAP_CHOWN));
	takes("ipc_lock+sys_rawio", PRIVILEGE(CAP_IPC_LOCK) | PRIVILEGE(CAP_SYS_RAWIO));
	takes("sys_nice+sys_nice+checkpoint_restore",
		PRIVILEGE(CAP_SYS_NICE) | PRIVILEGE(CAP_CHECKPOINT_RESTORE));
}

static void parse__no_names__refused_with_the_nearest(void **state)
{
	(void)state;
	refuses("ipc_lok", "did you mean ipc_lock?");
	refuses("cap_sys_nice", "did you mean sys_nice?");
	refuses("sys_rawio+", "no capability \"\"");
	refuses("+sys_rawio", "no capability \"\"");
	refuses("sys_rawio++ipc_lock", "no capability \"\"");
	refuses("IPC_LOCK", "no capability");
	refuses("a name that is longer than any capability has", "no capability \"a name that");
}

/* In a child: what is given up does not come back. */
static void drop__in_a_process__nothing_is_left(void **state)
{
	int status = 0;
	pid_t pid = fork();

	(void)state;
	if (pid == 0) {
		int err = privilege_drop(0, NULL);

		_exit(err || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1 ||
			prctl(PR_CAPBSET_DROP, CAP_CHOWN, 0, 0, 0) == 0 ||
			privilege_drop(PRIVILEGE(CAP_CHOWN), NULL) != -EPERM);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parse__names__their_numbers),
		cmocka_unit_test(parse__no_names__refused_with_the_nearest),
		cmocka_unit_test(drop__in_a_process__nothing_is_left),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
