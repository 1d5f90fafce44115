/* The daemon is killed at every step by which it changes the disk. A child lives through a few jobs
 * and tells by a pipe what it was told; at step N it kills itself. The folder is then opened again
 * on what is left, and must keep what the child was told, whatever N was. */
#include "tests/jobdir_rig.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "core/spool/disk.h"
#include "core/spool/spool_impl.h"

/* What the child has been told, in this order. */
enum told {
	NOTHING,
	A_CLOSED,  /* a.json was closed: its job is accepted */
	A_READ,    /* a.out was read: "de" */
	T_RENAMED, /* a file was renamed to t.json */
	T_READ,    /* t.out: "d" */
	A_AGAIN,   /* a.json was written anew and closed */
	A_READ2,   /* a.out: "d" */
	MOVED,     /* a.json became sub/b.json */
	T_REMOVED, /* t.json was removed */
	SHARED,    /* sub/b.json is 0644 */
};

static _Atomic long steps_left;

/* The spool's thread makes entries ahead whenever it likes: its steps are not counted. */
static int kill_at(enum disk_call call, int fd, const char *name)
{
	char thread[16];

	(void)call, (void)fd, (void)name;
	pthread_getname_np(pthread_self(), thread, sizeof thread);
	if (strcmp(thread, SPOOL_THREAD) == 0)
		return 0;
	if (atomic_fetch_sub(&steps_left, 1) == 1)
		raise(SIGKILL);
	return 0;
}

static int child_pipe;

static void tell(enum told what)
{
	char c = (char)what;

	if (write(child_pipe, &c, 1) != 1)
		_exit(2);
}

static void live(void)
{
	struct jobdir_attr dir, a;
	const struct jobdir_change mode = { .set = JOBDIR_SET_MODE, .mode = 0644 };

	assert_int_equal(echo(&alice, "a.json", DE), 0);
	tell(A_CLOSED);
	check_out("a.out", "de\n");
	tell(A_READ);
	assert_int_equal(echo(&alice, "tmp", D), 0);
	assert_int_equal(rename_as(&alice, "tmp", "t.json"), 0);
	tell(T_RENAMED);
	check_out("t.out", "d\n");
	tell(T_READ);
	assert_int_equal(echo(&alice, "a.json", D), 0);
	tell(A_AGAIN);
	check_out("a.out", "d\n");
	tell(A_READ2);
	assert_int_equal(jobdir_mkdir(d, &alice, ROOT, "sub", 0755, &dir), 0);
	assert_int_equal(jobdir_rename(d, &alice, ROOT, "a.json", dir.ref.id, "b.json", false,
				 &synced),
		0);
	tell(MOVED);
	assert_int_equal(rm(&alice, "t.json"), 0);
	tell(T_REMOVED);
	assert_int_equal(jobdir_lookup(d, &alice, dir.ref.id, "b.json", &a), 0);
	assert_int_equal(jobdir_setattr(d, &alice, a.ref, NULL, &mode, &a), 0);
	tell(SHARED);
}

/* How far it came; true when it ended by itself. */
static bool run_child(long step, enum told *ret)
{
	int fds[2], status;
	char c;
	pid_t pid;

	*ret = NOTHING;
	assert_int_equal(pipe(fds), 0);
	pid = fork();
	if (pid == 0) {
		child_pipe = fds[1];
		atomic_store(&steps_left, step);
		disk_watch = kill_at;
		start();
		live();
		_exit(0);
	}
	close(fds[1]);
	while (read(fds[0], &c, 1) == 1)
		*ret = (enum told)c;
	close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status))
		assert_int_equal(WEXITSTATUS(status), 0);
	return WIFEXITED(status);
}

/* --- afterwards ------------------------------------------------------------------------------- */

static bool find(const char *folder, const char *name, struct jobdir_attr *ret)
{
	uint64_t dir = ROOT;

	if (folder) {
		if (look(&root, folder, ret))
			return false;
		dir = ret->ref.id;
	}
	if (jobdir_lookup(d, &root, dir, name, ret))
		return false;
	jobdir_forget(d, ret->ref.id, 1);
	return true;
}

/* "done: TEXT", "failed: ERRNO", or the state. */
static void outcome(const char *folder, const char *result, char ret[64])
{
	struct jobdir_attr a;
	struct job *j;
	char got[32];
	ssize_t n;
	int ms = 0;

	assert_true(find(folder, result, &a));
	assert_int_equal(jobdir_open_result(d, &root, a.ref, O_RDONLY, &j), 0);
	while (!job_ended(j) && job_state(j) != JOB_WRITING && ms++ < 20000)
		usleep(1000);
	n = job_ended(j) ? job_read(j, JOB_OUT, 0, got, sizeof got - 1) : 0;
	got[n > 0 ? n : 0] = '\0';
	snprintf(ret, 64, "%s: %s", job_state_name(job_state(j)),
		n < 0 ? fault_errno_name((int)n) : got);
	job_put(j);
}

/* The results that are allowed for a.json, and it is in exactly one place. */
static void check_a(enum told told)
{
	struct jobdir_attr a;
	bool here = find(NULL, "a.json", &a), there_now = find("sub", "b.json", &a);
	char got[64];

	if (told < A_CLOSED && !here)
		return;
	assert_int_equal(here + there_now, 1);
	assert_true(told < MOVED || there_now);
	outcome(here ? NULL : "sub", here ? "a.out" : "b.out", got);
	if (told >= A_AGAIN)
		assert_string_equal(got, "done: d\n");
	else if (told == T_READ) /* while it was written anew */
		assert_true(strcmp(got, "done: de\n") == 0 || strcmp(got, "done: d\n") == 0 ||
			strcmp(got, "failed: ECONNABORTED") == 0 || strcmp(got, "writing: ") == 0);
	else if (told >= A_CLOSED)
		assert_string_equal(got, "done: de\n");
	else /* it was being written */
		assert_true(strcmp(got, "done: de\n") == 0 ||
			strcmp(got, "failed: ECONNABORTED") == 0 || strcmp(got, "writing: ") == 0);
	if (told == SHARED)
		assert_int_equal(a.owner.mode, 0644);
	assert_int_equal(a.owner.uid, 1000);
}

static void check_t(enum told told)
{
	struct jobdir_attr a;
	bool here = find(NULL, "t.json", &a);
	char got[64];

	assert_false(told >= T_REMOVED && here);
	assert_true(told < T_RENAMED || told >= MOVED || here);
	if (!here)
		return;
	assert_false(find(NULL, "tmp", &a));
	outcome(NULL, "t.out", got);
	if (told >= T_RENAMED)
		assert_string_equal(got, "done: d\n");
	else
		assert_true(
			strcmp(got, "done: d\n") == 0 || strcmp(got, "failed: ECONNABORTED") == 0);
}

/* What was read before is not computed again. */
static void check_not_again(enum told told)
{
	if (told == A_READ2 || told >= MOVED)
		assert_int_equal(fake_count("infer"), 0);
}

static void names(struct buf *ret)
{
	buf_reset(ret);
	assert_int_equal(jobdir_list(d, ROOT, 0, collect, ret), 0);
}

static void kill__at_every_step__what_was_told_holds(void **state)
{
	AUTO_BUF struct buf before = BUF_INIT, after = BUF_INIT;
	bool ended = false;
	enum told told;

	for (long step = 1; !ended; step++) {
		prepare(state);
		ended = run_child(step, &told);
		start();
		check_a(told);
		check_t(told);
		check_not_again(told);
		names(&before);
		assert_null(strstr(buf_text(&before), "damaged"));
		stop();
		start();
		names(&after);
		assert_string_equal(buf_text(&before), buf_text(&after));
		down(state);
		if (ended)
			assert_int_equal(told, SHARED);
		assert_true(step < 500);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kill__at_every_step__what_was_told_holds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
