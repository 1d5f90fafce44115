/* jobs/ when the disk says no, or takes its time. */
#include "tests/jobdir_rig.h"

#include <pthread.h>
#include <stdatomic.h>

#include "core/spool/disk.h"
#include "core/spool/spool_impl.h"

static pid_t here;
static atomic_int refusal; /* what writes and creates give; 0: they are done */
static atomic_int held;    /* 1: the next write of the engine's thread waits; 2: it does */

static bool is_engines_thread(void)
{
	char name[16] = "";

	pthread_getname_np(pthread_self(), name, sizeof name);
	return gettid() != here && strcmp(name, SPOOL_THREAD) != 0;
}

static int watch_disk(enum disk_call call, int fd, const char *name)
{
	(void)fd, (void)name;
	if (refusal && (call == DISK_WRITE || call == DISK_CREATE))
		return refusal;
	if (call != DISK_WRITE || !is_engines_thread())
		return 0;
	if (held)
		held = 2;
	while (held)
		usleep(1000);
	return 0;
}

static int up_watched(void **state)
{
	refusal = held = 0;
	here = gettid();
	disk_watch = watch_disk; /* before the threads begin */
	return up(state);
}

static int down_watched(void **state)
{
	int err;

	refusal = held = 0;
	err = down(state);
	disk_watch = NULL;
	return err;
}

/* --- a full disk ------------------------------------------------------------------------------ */

static void full_disk__new_request__is_refused_and_later_taken(void **state)
{
	struct jobdir_file *f;

	(void)state;
	refusal = -ENOSPC;
	assert_int_equal(echo(&alice, "a.json", D), -ENOSPC);
	assert_false(there("a.json"));
	refusal = 0;
	assert_int_equal(open_as(&alice, "b.json", O_WRONLY | O_CREAT, &f), 0);
	refusal = -ENOSPC;
	assert_int_equal(write_text(f, 0, D), -ENOSPC);
	assert_int_equal(flush(f, true), -ENOSPC);
	jobdir_release(d, f);
	refusal = 0;
	check_out_error("b.out", -ENOSPC);
	assert_int_equal(echo(&alice, "b.json", D), 0);
	check_out("b.out", "d\n");
	check_usage(1, strlen(D));
}

static void full_disk__running_job__fails_and_the_next_works(void **state)
{
	(void)state;
	fake_hold();
	assert_int_equal(echo(&alice, "a.json", DE), 0);
	fake_await_held();
	refusal = -ENOSPC;
	fake_let_go();
	check_out_error("a.out", -ENOSPC);
	assert_true(has_line("a.status", "ENOSPC"));
	refusal = 0;
	assert_int_equal(echo(&alice, "b.json", D), 0);
	check_out("b.out", "d\n");
}

/* --- names of another kind -------------------------------------------------------------------- */

/* What comes late would land in the file that it is by then. */
static void rename__to_inert_while_the_end_is_stored__ebusy_and_then_taken(void **state)
{
	(void)state;
	held = 1;
	assert_int_equal(echo(&alice, "a.json", DE), 0);
	for (int ms = 0; held != 2 && ms < 10000; ms++)
		usleep(1000);
	assert_int_equal(held, 2);
	assert_int_equal(rename_as(&alice, "a.json", "kept"), -EBUSY);
	assert_true(there("a.json") && !there("kept"));
	assert_int_equal(rename_as(&alice, "a.json", "b.json"), 0); /* and it goes with its run */
	held = 0;
	check_out("b.out", "de\n");
	assert_int_equal(rename_as(&alice, "b.json", "kept"), 0);
	restart();
	assert_int_equal(size_of("kept"), strlen(DE));
}

static void rename__not_kept_by_the_disk__its_run_goes_on(void **state)
{
	(void)state;
	fake_hold();
	assert_int_equal(echo(&alice, "a.json", DE), 0);
	fake_await_held();
	refusal = -EIO;
	assert_int_equal(rename_as(&alice, "a.json", "kept"), -EIO);
	refusal = 0;
	fake_let_go();
	check_out("a.out", "de\n");
	restart();
	check_out("a.out", "de\n");
}

#define TEST_WATCHED(name) cmocka_unit_test_setup_teardown(name, up_watched, down_watched)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST_WATCHED(full_disk__new_request__is_refused_and_later_taken),
		TEST_WATCHED(full_disk__running_job__fails_and_the_next_works),
		TEST_WATCHED(rename__to_inert_while_the_end_is_stored__ebusy_and_then_taken),
		TEST_WATCHED(rename__not_kept_by_the_disk__its_run_goes_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
