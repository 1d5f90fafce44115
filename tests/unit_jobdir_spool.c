/* What jobs/ is after another start on the same store. */
#include "tests/jobdir_rig.h"

#include <sys/wait.h>

#include "core/base/clock.h"

static struct tree_node *node(const char *name)
{
	return tree_find(tree_root(d->tree), name);
}

/* A daemon that ended like a killed one; `live` is what it did before. The next one is not started. */
static void after_killed_daemon(void (*live)(void))
{
	int status;
	pid_t pid;

	stop();
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		start();
		live();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void in_killed_daemon(void (*live)(void))
{
	after_killed_daemon(live);
	start();
}

static void must(bool right)
{
	if (!right)
		_exit(1);
}

static void path_of(const char *name, char ret[128])
{
	uint64_t id = node(name)->id;

	snprintf(ret, 128, "%s/jobs/%llu/%llu", store, (unsigned long long)id / 4096,
		(unsigned long long)id);
}

static uint64_t job_of(const char *name)
{
	struct job *j = result(name);
	uint64_t id = job_id(j);

	job_put(j);
	return id;
}

static void status_of(const char *name, struct buf *out)
{
	struct job *j = result(name);

	jobdir_status(d, j, out);
	job_put(j);
}

/* --- what stays ------------------------------------------------------------------------------- */

static void load__finished_jobs__are_as_they_were(void **state)
{
	AUTO_BUF struct buf before = BUF_INIT, after = BUF_INIT;
	struct jobdir_attr a, b;

	(void)state;
	assert_int_equal(echo(&alice, "a.json", DE), 0);
	check_out("a.out", "de\n");
	assert_int_equal(look(&root, "a.json", &a), 0);
	status_of("a.out", &before);
	restart();
	assert_int_equal(look(&root, "a.json", &b), 0);
	assert_int_equal(b.owner.uid, 1000);
	assert_int_equal(b.owner.gid, 1000);
	assert_int_equal(b.owner.mode, a.owner.mode);
	assert_int_equal(b.size, strlen(DE));
	assert_int_equal(b.atime, a.atime);
	assert_int_equal(b.mtime, a.mtime);
	assert_int_equal(b.ctime, a.ctime);
	assert_true(listed("a.out") && listed("a.status") && !listed("a.err"));
	status_of("a.out", &after);
	assert_string_equal(buf_text(&before), buf_text(&after));
	assert_int_equal(size_of("a.out"), 3);
	check_out("a.out", "de\n");
}

static void load__refused_request__keeps_bytes_and_reason(void **state)
{
	(void)state;
	assert_int_equal(echo(&alice, "a.json", "{\"prompt\":1}"), -EINVAL);
	for (int i = 0; i < 2; i++) {
		restart();
		assert_int_equal(size_of("a.json"), 12);
		check_out_error("a.out", -EINVAL);
		assert_true(listed("a.err"));
	}
}

static void load__removed_result__stays_removed(void **state)
{
	(void)state;
	assert_int_equal(echo(&alice, "a.json", D), 0);
	check_out("a.out", "d\n");
	assert_int_equal(rm(&alice, "a.out"), 0);
	restart();
	assert_false(there("a.out"));
	assert_true(there("a.status") && there("a.json"));
}

static void load__folders__hold_what_they_held(void **state)
{
	struct jobdir_attr dir, sub, a;
	struct jobdir_file *f;

	(void)state;
	assert_int_equal(jobdir_mkdir(d, &alice, ROOT, "late", 0750, &dir), 0);
	assert_int_equal(jobdir_mkdir(d, &alice, ROOT, "early", 0700, &sub), 0);
	assert_int_equal(jobdir_create(d, &alice, sub.ref.id, "x", 0640, O_WRONLY, &a, &f), 0);
	assert_int_equal(jobdir_write(d, f, 0, "xyz", 3), 0);
	jobdir_release(d, f);
	jobdir_forget(d, a.ref.id, 1);
	/* Now the folder of a lower number is in one of a higher. */
	assert_int_equal(jobdir_rename(d, &alice, ROOT, "late", sub.ref.id, "in", false, &synced),
		0);
	jobdir_forget(d, dir.ref.id, 1);
	jobdir_forget(d, sub.ref.id, 1);
	restart();
	assert_int_equal(look(&root, "early", &sub), 0);
	assert_int_equal(jobdir_lookup(d, &root, sub.ref.id, "in", &dir), 0);
	assert_int_equal(dir.owner.mode & 0777, 0750);
	assert_int_equal(jobdir_lookup(d, &root, sub.ref.id, "x", &a), 0);
	assert_int_equal(a.size, 3);
	assert_int_equal(a.owner.mode & 0777, 0640);
	jobdir_forget(d, dir.ref.id, 1);
	jobdir_forget(d, a.ref.id, 1);
	check_usage(3, 3);
}

/* --- what was on its way ---------------------------------------------------------------------- */

static void write_half(void)
{
	struct jobdir_file *f;

	must(open_as(&alice, "a.json", O_WRONLY | O_CREAT, &f) == 0);
	must(write_text(f, 0, "{\"prom") == 0);
}

static void load__interrupted_writing__fails_and_says_so(void **state)
{
	(void)state;
	in_killed_daemon(write_half);
	for (int i = 0; i < 2; i++) {
		check_out_error("a.out", -ECONNABORTED);
		assert_true(has_line("a.status", "reason: the daemon ended while the request"));
		assert_int_equal(size_of("a.json"), 6);
		restart();
	}
	assert_int_equal(echo(&alice, "a.json", D), 0);
	check_out("a.out", "d\n");
}

static void close_renamed(void)
{
	struct jobdir_file *f;

	must(open_as(&alice, "tmp", O_WRONLY | O_CREAT, &f) == 0);
	must(write_text(f, 0, D) == 0);
	must(rename_as(&alice, "tmp", "a.json") == 0);
	must(flush(f, true) == 0);
}

static void load__closed_after_a_rename__was_accepted(void **state)
{
	(void)state;
	in_killed_daemon(close_renamed);
	check_out("a.out", "d\n");
}

static void queue_three(void)
{
	fake_hold();
	must(echo(&alice, "a.json", DE) == 0);
	fake_await_held();
	must(echo(&alice, "b.json", D) == 0);
	must(echo(&bob, "c.json", DE) == 0);
}

static void load__queued_and_running__run_again_under_their_numbers(void **state)
{
	uint64_t a, b, c;

	(void)state;
	in_killed_daemon(queue_three);
	check_out("a.out", "de\n");
	check_out("b.out", "d\n");
	check_out("c.out", "de\n");
	a = job_of("a.out");
	b = job_of("b.out");
	c = job_of("c.out");
	assert_true(a < b && b < c);
	restart();
	assert_int_equal(node("a.json")->ended, JOB_DONE); /* not once more */
	assert_int_equal(node("b.json")->ended, JOB_DONE);
	assert_int_equal(job_of("a.out"), a);
	assert_int_equal(job_of("b.out"), b);
	assert_int_equal(job_of("c.out"), c);
	assert_true(has_line("c.status", "state: done"));
}

static void queue_the_second_first(void)
{
	char text[256];

	must(echo(&alice, "a.json", D) == 0 && cat_job(result("a.out"), text) == 2);
	must(echo(&alice, "b.json", D) == 0 && cat_job(result("b.out"), text) == 2);
	fake_hold();
	must(echo(&alice, "c.json", D) == 0);
	fake_await_held();
	must(echo(&alice, "b.json", DE) == 0);
	must(echo(&alice, "a.json", DE) == 0);
}

static int64_t started(const char *name)
{
	struct job *j = result(name);
	struct job_view v;

	job_look(j, &v);
	job_put(j);
	return v.started;
}

/* Not in that of their files, which are older. */
static void load__queued__in_the_order_of_acceptance(void **state)
{
	(void)state;
	after_killed_daemon(queue_the_second_first);
	config.max_active = 1;
	start();
	check_out("c.out", "d\n");
	check_out("b.out", "de\n");
	check_out("a.out", "de\n");
	assert_true(started("c.out") < started("b.out"));
	assert_true(started("b.out") < started("a.out"));
}

static void queue_what_has_wishes(void)
{
	fake_hold();
	must(echo(&alice, "a.json", D) == 0);
	fake_await_held();
	must(echo(&alice, "b.json", D) == 0);
	must(echo(&alice, "c.json",
		     "{\"prompt\":\"abc\",\"max_new_tokens\":1,\"priority\":1,\"stream\":true}") ==
		0);
}

static void load__queued__priority_and_stream_as_asked(void **state)
{
	struct job *j;

	(void)state;
	in_killed_daemon(queue_what_has_wishes);
	j = result("c.out");
	assert_int_equal(job_order(j)->priority, 1);
	job_put(j);
	check_out("b.out", "d\n");
	check_out("c.out", "d\n");
	assert_true(listed("c.stream") && !listed("b.stream"));
}

static void load__folder_of_a_group__has_all_its_bits(void **state)
{
	struct jobdir_change ch = { .set = JOBDIR_SET_MODE, .mode = 03770 };
	struct jobdir_attr dir;

	(void)state;
	assert_int_equal(jobdir_mkdir(d, &alice, ROOT, "team", 0700, &dir), 0);
	assert_int_equal(jobdir_setattr(d, &alice, dir.ref, NULL, &ch, &dir), 0);
	jobdir_forget(d, dir.ref.id, 1);
	restart();
	assert_int_equal(look(&root, "team", &dir), 0);
	assert_int_equal(dir.owner.mode, 03770);
}

/* They were accepted once. */
static void load__queued__run_whatever_the_limits_are_now(void **state)
{
	(void)state;
	after_killed_daemon(queue_three);
	config.queue_limit = config.user_limit = 0; /* nobody would get in */
	limits.request_bytes = 8;
	start();
	check_out("a.out", "de\n");
	check_out("b.out", "d\n");
	check_out("c.out", "de\n");
}

static void load__queued__is_still_its_owners_and_groups(void **state)
{
	struct job *j;

	(void)state;
	in_killed_daemon(queue_three);
	j = result("c.out");
	assert_int_equal(job_uid(j), 1001);
	assert_int_equal(job_order(j)->gid, 1001);
	job_put(j);
	check_out("c.out", "de\n");
}

static void queue_short_deadline(void)
{
	fake_hold();
	must(echo(&alice, "a.json", DE) == 0);
	fake_await_held();
	must(echo(&alice, "b.json",
		     "{\"prompt\":\"abc\",\"max_new_tokens\":1,\"deadline_ms\":300}") == 0);
}

static void load__deadline__counts_from_the_acceptance(void **state)
{
	(void)state;
	after_killed_daemon(queue_short_deadline);
	usleep(400000);
	start();
	check_out("a.out", "de\n");
	check_out_error("b.out", -ETIMEDOUT);
	assert_true(has_line("b.status", "state: expired"));
}

/* --- damage ----------------------------------------------------------------------------------- */

static bool cut_by_one(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && truncate(path, st.st_size - 1) == 0;
}

static void load__result_cut__is_no_result(void **state)
{
	char path[128];

	(void)state;
	assert_int_equal(echo(&alice, "a.json", DE), 0);
	check_out("a.out", "de\n");
	path_of("a.json", path);
	stop();
	assert_true(cut_by_one(path));
	start();
	assert_true(has_line("a.status", "state: failed"));
	assert_true(has_line("a.status", "reason: what the spool has of it is damaged"));
	check_out_error("a.out", -EIO);
}

static void queue_three_and_cut(void)
{
	char path[128];

	queue_three();
	path_of("b.json", path);
	must(cut_by_one(path));
}

static void load__queued_request_cut__does_not_run(void **state)
{
	(void)state;
	in_killed_daemon(queue_three_and_cut);
	check_out_error("b.out", -EIO);
	assert_true(has_line("b.status", "reason: what the spool has of it is damaged"));
	check_out("a.out", "de\n");
	check_out("c.out", "de\n");
}

static void load__damaged_entry__is_shown_as_failed(void **state)
{
	char path[128], txt[64], err[64], aside[128];

	(void)state;
	assert_int_equal(echo(&alice, "a.json", D), 0);
	check_out("a.out", "d\n");
	path_of("a.json", path);
	snprintf(txt, sizeof txt, "damaged-%llu.txt", (unsigned long long)node("a.json")->id);
	snprintf(err, sizeof err, "damaged-%llu.err", (unsigned long long)node("a.json")->id);
	snprintf(aside, sizeof aside, "%s/jobs/aside/%llu", store,
		(unsigned long long)node("a.json")->id);
	stop();
	assert_int_equal(truncate(path, 0), 0);
	start();
	assert_false(there("a.json"));
	assert_int_equal(access(aside, F_OK), 0);
	for (int i = 0; i < 2; i++) {
		assert_true(listed(txt) && listed(err));
		assert_true(has_line(err, "state: failed"));
		assert_true(has_line(err, "was damaged and was set aside"));
		restart();
	}
	assert_int_equal(rm(&alice, txt), -EPERM);
	assert_int_equal(rm(&root, txt), 0);
	check_usage(0, 0);
}

/* A request that ran twice stands twice among those whose runs are let go in turn: whoever opens its
 * idle result just then must still get it. */
static void open_result__ran_twice_and_let_go__is_read_back(void **state)
{
	char name[24];

	(void)state;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(echo(&alice, "a.json", DE), 0);
		check_out("a.out", "de\n");
	}
	for (int i = 0; i < JOBDIR_RECENT + 4; i++) {
		snprintf(name, sizeof name, "b%d.json", i);
		assert_int_equal(echo(&alice, name, D), 0);
		memcpy(strchr(name, '.'), ".out", sizeof ".out");
		check_out(name, "d\n");
		if (i >= JOBDIR_RECENT - 4 && !node("a.json")->job)
			check_out("a.out", "de\n");
	}
}

static void open_result__flipped_bit__is_eio(void **state)
{
	struct jobdir_attr a;
	struct job *j;
	char path[128];
	int fd;

	(void)state;
	assert_int_equal(echo(&alice, "a.json", D), 0);
	check_out("a.out", "d\n");
	path_of("a.json", path);
	stop();
	fd = open(path, O_WRONLY);
	assert_int_equal(pwrite(fd, "e", 1, RECORD_SIZE + (off_t)strlen(D)), 1);
	close(fd);
	start();
	assert_int_equal(look(&root, "a.out", &a), 0);
	assert_int_equal(jobdir_open_result(d, &root, a.ref, O_RDONLY, &j), -EIO);
}

/* --- limits and retention --------------------------------------------------------------------- */

/* The engine lets go of a job a moment after it has ended. */
static void tidy_until(uint64_t bytes)
{
	struct jobdir_usage u = { 0 };

	for (int ms = 0; u.bytes != bytes && ms < 5000; ms++) {
		usleep(1000);
		jobdir_tidy(d);
		jobdir_usage(d, &u);
	}
	check_usage(1, bytes);
}

/* As without memory: a large output that could not be fetched before the file is another run's. */
static void forget_file__output_not_fetched__estale_and_nothing_of_the_next_run(void **state)
{
	const struct job_order order = { .request_size = 4 };
	struct job_outcome outcome = { .finish_reason = "stop" };
	static char bytes[100000];
	struct buf out = BUF_INIT;
	struct spool_file *file;
	struct job *j;

	(void)state;
	assert_int_equal(spool_create(spool, &file), 0);
	j = job_new(1000, JOB_FORMAT_JSON, spool, spool_file_id(file));
	assert_int_equal(job_queue(j, &order), 0);
	assert_true(job_start(j, 1));
	buf_put(&out, bytes, sizeof bytes);
	outcome.out = &out;
	assert_true(job_end(j, JOB_DONE, &outcome, NULL));
	buf_done(&out);
	assert_int_equal(spool_truncate(file, 1000), 0);
	job_get(j); /* who reads */
	job_forget_file(j);
	assert_int_equal(spool_write(file, 4, bytes, sizeof bytes), 0);
	assert_int_equal(job_read(j, JOB_OUT, 0, bytes, 10), -ESTALE);
	job_put(j);
	job_put(j);
	assert_int_equal(spool_remove(spool, spool_file_id(file)), 0);
	spool_file_put(file);
}

static void rename__request_to_inert__its_content_alone_after_a_restart(void **state)
{
	(void)state;
	assert_int_equal(echo(&alice, "a.json", DE), 0);
	check_out("a.out", "de\n");
	assert_int_equal(rename_as(&alice, "a.json", "kept"), 0);
	restart();
	assert_int_equal(size_of("kept"), strlen(DE));
}

static void tidy__results__count_and_still_do_after_a_restart(void **state)
{
	(void)state;
	assert_int_equal(echo(&alice, "a.json", DE), 0);
	check_out("a.out", "de\n");
	tidy_until(strlen(DE) + 3);
	restart();
	check_usage(1, strlen(DE) + 3);
	check_out("a.out", "de\n");
	tidy_until(strlen(DE) + 3);
	assert_int_equal(rm(&alice, "a.json"), 0);
	check_usage(0, 0);
}

static void tidy__past_keep_ns__removes_the_request(void **state)
{
	(void)state;
	assert_int_equal(echo(&alice, "a.json", D), 0);
	check_out("a.out", "d\n");
	stop();
	limits.keep_ns = 3600000LL * NS_PER_MS;
	start();
	jobdir_tidy(d);
	assert_true(there("a.json"));
	stop();
	limits.keep_ns = 1;
	start();
	jobdir_tidy(d);
	jobdir_tidy(d);
	assert_false(there("a.json"));
	restart();
	assert_false(there("a.json"));
	check_usage(0, 0);
}

static void create__past_the_users_share__is_edquot_also_after_a_restart(void **state)
{
	(void)state;
	stop();
	limits.user_files = 2;
	limits.user_bytes = 100;
	start();
	assert_int_equal(echo(&alice, "a.json", DE), 0);
	check_out("a.out", "de\n");
	restart();
	assert_int_equal(echo(&alice, "b",
				 "0123456789012345678901234567890123456789"
				 "0123456789012345678901234567890123456789"),
		-EDQUOT);
	assert_int_equal(echo(&alice, "c", "x"), -EDQUOT);
	assert_int_equal(echo(&bob, "c", "x"), 0);
	assert_int_equal(rm(&alice, "b"), 0);
	assert_int_equal(echo(&alice, "e", "x"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(load__finished_jobs__are_as_they_were),
		TEST(load__refused_request__keeps_bytes_and_reason),
		TEST(load__removed_result__stays_removed),
		TEST(load__folders__hold_what_they_held),
		TEST(load__interrupted_writing__fails_and_says_so),
		TEST(load__closed_after_a_rename__was_accepted),
		TEST(load__queued_and_running__run_again_under_their_numbers),
		TEST(load__queued__in_the_order_of_acceptance),
		TEST(load__queued__priority_and_stream_as_asked),
		TEST(load__folder_of_a_group__has_all_its_bits),
		TEST(load__queued__run_whatever_the_limits_are_now),
		TEST(load__queued__is_still_its_owners_and_groups),
		TEST(load__deadline__counts_from_the_acceptance),
		TEST(load__result_cut__is_no_result),
		TEST(load__queued_request_cut__does_not_run),
		TEST(load__damaged_entry__is_shown_as_failed),
		TEST(open_result__flipped_bit__is_eio),
		TEST(open_result__ran_twice_and_let_go__is_read_back),
		TEST(forget_file__output_not_fetched__estale_and_nothing_of_the_next_run),
		TEST(rename__request_to_inert__its_content_alone_after_a_restart),
		TEST(tidy__results__count_and_still_do_after_a_restart),
		TEST(tidy__past_keep_ns__removes_the_request),
		TEST(create__past_the_users_share__is_edquot_also_after_a_restart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
