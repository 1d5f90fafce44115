/* A whole life of some requests in a child that kills itself in front of step N on the disk, for
 * every N; then a start on what it left. What the child was told by the folder it tells by a pipe,
 * one letter each, so that the parent knows what must be there. */
#include "tests/jobdir_rig.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "core/spool/disk.h"

static int told; /* the child's end of the pipe */
static unsigned deadly_step;
static _Atomic unsigned steps;
static _Thread_local bool is_main, is_spool;

/* The spool's thread works ahead at times of its own: its steps do not count. It is the one that
 * does more than write and is not the folder's. */
static int watch(enum disk_call call, int fd, const char *name)
{
	(void)fd, (void)name;
	if (!is_main && call != DISK_WRITE)
		is_spool = true;
	if (!is_spool && atomic_fetch_add(&steps, 1) + 1 == deadly_step)
		kill(getpid(), SIGKILL);
	return 0;
}

/* --- the child -------------------------------------------------------------------------------- */

static void tell(char what)
{
	if (write(told, &what, 1) != 1)
		_exit(2);
}

static void must(bool right, int line)
{
	if (right)
		return;
	fprintf(stderr, "child: line %d\n", line);
	_exit(3);
}

#define MUST(right) must(right, __LINE__)

/* Write and close: `closed` is told when close(2) would have returned 0. */
static void submit(const char *name, const char *text, char closed)
{
	struct jobdir_file *f;

	MUST(open_as(&alice, name, O_WRONLY | O_CREAT | O_TRUNC, &f) == 0);
	MUST(write_text(f, 0, text) == 0);
	MUST(flush(f, true) == 0);
	tell(closed);
	jobdir_release(d, f);
}

static void await(const char *name, const char *want, char seen)
{
	char got[256];

	MUST(cat_job(result(name), got) >= 0);
	MUST(strcmp(got, want) == 0);
	tell(seen);
}

static void live(void)
{
	struct jobdir_attr a;

	submit("a.json", DE, 'a');
	await("a.out", "de\n", 'A');
	MUST(jobdir_mkdir(d, &alice, ROOT, "dir", 0700, &a) == 0);
	jobdir_forget(d, a.ref.id, 1);
	tell('m');
	MUST(rename_as(&alice, "dir", "folder") == 0);
	tell('M');
	submit("b.json", D, 'b');
	await("b.out", "d\n", 'B');
	tell('r');
	submit("b.json", DE, 'c');
	await("b.out", "de\n", 'C');
	tell('x');
	MUST(rm(&alice, "a.json") == 0);
	tell('X');
	MUST(echo(&alice, "t.part", "abc") == 0);
	tell('t');
	MUST(rename_as(&alice, "t.part", "t.txt") == 0);
	tell('u');
	await("t.out", "def\n", 'U');
	submit("o.json", DE, 'o');
	await("o.out", "de\n", 'O');
	submit("p.json", D, 'p');
	await("p.out", "d\n", 'P');
	tell('q');
	MUST(rename_as(&alice, "p.json", "o.json") == 0);
	tell('Q');
}

static void child(void)
{
	is_main = true;
	disk_watch = watch;
	start();
	live();
	stop();
	_exit(0);
}

/* --- the parent ------------------------------------------------------------------------------- */

static char letters[64];

static bool heard(char what)
{
	return strchr(letters, what) != NULL;
}

/* False: it was not killed any more. */
static bool run_child(unsigned n)
{
	int ends[2], status;
	size_t len = 0;
	ssize_t got;
	pid_t pid;

	assert_int_equal(pipe(ends), 0);
	deadly_step = n;
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		close(ends[0]);
		told = ends[1];
		child();
	}
	close(ends[1]);
	while ((got = read(ends[0], letters + len, sizeof letters - 1 - len)) > 0)
		len += (size_t)got;
	letters[len] = '\0';
	close(ends[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
		return true;
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	return false;
}

static struct tree_node *node(const char *name)
{
	return tree_find(tree_root(d->tree), name);
}

/* Right after the load: its result was seen, so it is there and the run is not done again. */
static void check_is_done(const char *name)
{
	if (!node(name) || node(name)->ended != JOB_DONE)
		fail_msg("step %u, after \"%s\": %s is not done", deadly_step, letters, name);
}

/* The request is there and ends with one of the outputs; `may_fail`: or says that its writing was
 * interrupted, or is still empty. */
static void check_ends(const char *name, const char *result_name, const char *one,
	const char *other, bool may_fail)
{
	char got[256];
	ssize_t n;

	if (!node(name))
		fail_msg("step %u, after \"%s\": %s is lost", deadly_step, letters, name);
	if (may_fail && node(name)->size == 0)
		return;
	n = cat_job(result(result_name), got);
	if (may_fail && n == -EINTR)
		return;
	if (n < 0 || (strcmp(got, one) != 0 && strcmp(got, other) != 0))
		fail_msg("step %u, after \"%s\": %s is %zd \"%s\"", deadly_step, letters,
			result_name, n, got);
}

static void check_loaded(void)
{
	if (heard('A') && !heard('x'))
		check_is_done("a.json");
	if (heard('B') && !heard('r'))
		check_is_done("b.json");
	if (heard('C'))
		check_is_done("b.json");
	if (heard('U'))
		check_is_done("t.txt");
	if (heard('O') && !heard('q'))
		check_is_done("o.json");
	if (heard('P') && !heard('q'))
		check_is_done("p.json");
	if (heard('Q'))
		check_is_done("o.json");
}

static void check_all_end(void)
{
	if (!heard('x') && (heard('a') || there("a.json")))
		check_ends("a.json", "a.out", "de\n", "de\n", !heard('a'));
	assert_true(!heard('X') || !there("a.json"));
	if (heard('M'))
		assert_true(there("folder") && !there("dir"));
	else if (heard('m'))
		assert_true(there("folder") != there("dir"));
	if (heard('c'))
		check_ends("b.json", "b.out", "de\n", "de\n", false);
	else if (heard('r'))
		check_ends("b.json", "b.out", "d\n", "de\n", true);
	else if (heard('b') || there("b.json"))
		check_ends("b.json", "b.out", "d\n", "d\n", !heard('b'));
	if (heard('u'))
		check_ends("t.txt", "t.out", "def\n", "def\n", false);
	else if (heard('t'))
		assert_true(there("t.txt") != there("t.part"));
	if (there("t.txt"))
		check_ends("t.txt", "t.out", "def\n", "def\n", !heard('u'));
	if (heard('Q'))
		check_ends("o.json", "o.out", "d\n", "d\n", false);
	else if (heard('o') || there("o.json"))
		check_ends("o.json", "o.out", "de\n", heard('q') ? "d\n" : "de\n", !heard('o'));
	if (!heard('q') && (heard('p') || there("p.json")))
		check_ends("p.json", "p.out", "d\n", "d\n", !heard('p'));
	assert_true(!heard('Q') || !there("p.json"));
}

/* --- twice the same --------------------------------------------------------------------------- */

static bool describe(void *context, const struct jobdir_entry *e)
{
	struct buf *out = context;

	buf_printf(out, "%s %llu %d\n", e->name, (unsigned long long)e->ref.id, e->ref.row);
	return true;
}

static void describe_run(const char *name, const char *result_name, struct buf *out)
{
	char text[256];
	struct job *j;

	if (!there(name) || node(name)->size == 0) /* a run that did not begin has a new number */
		return;
	j = result(result_name);
	jobdir_status(d, j, out);
	job_put(j);
	buf_printf(out, "%zd", cat_job(result(result_name), text));
	buf_printf(out, " %s\n", text);
}

static void describe_all(struct buf *out)
{
	assert_int_equal(jobdir_list(d, ROOT, 0, describe, out), 0);
	describe_run("a.json", "a.out", out);
	describe_run("b.json", "b.out", out);
	describe_run("t.txt", "t.out", out);
	describe_run("o.json", "o.out", out);
	describe_run("p.json", "p.out", out);
}

static void check_second_start(void)
{
	AUTO_BUF struct buf before = BUF_INIT, after = BUF_INIT;

	describe_all(&before);
	assert_null(strstr(buf_text(&before), "damaged"));
	stop();
	start();
	describe_all(&after);
	assert_string_equal(buf_text(&before), buf_text(&after));
}

static void kill__at_every_step__loses_nothing_confirmed(void **state)
{
	unsigned n = 1;
	bool killed = true;

	(void)state;
	for (; killed; n++) {
		fake_reset();
		fake.stop_len = 6;
		strcpy(store, "/tmp/npufs-unit-XXXXXX");
		assert_non_null(mkdtemp(store));
		killed = run_child(n);
		start();
		check_loaded();
		check_all_end();
		check_second_start();
		stop();
		assert_int_equal(nftw(store, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
	}
	assert_true(n > 30); /* there were so many steps */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(kill__at_every_step__loses_nothing_confirmed, prepare),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
