/* The folder as a file system would use it, on an engine with the recording backend: after L tokens
 * comes the letter 'a' + L % 26, so "abc" in STEM.json with two new tokens gives "de". */
#include "tests/jobdir_rig.h"

/* --- a job's life ----------------------------------------------------------------------------- */

static void write__request__runs_and_results_are_listed_when_whole(void **state)
{
	struct jobdir_file *f;

	(void)state;
	assert_int_equal(open_as(&alice, "a.json", O_WRONLY | O_CREAT, &f), 0);
	assert_true(there("a.out") && there("a.status") && there("a.err") && there("a.stream"));
	assert_true(listed("a.status"));
	assert_false(listed("a.out"));
	assert_true(has_line("a.status", "state: writing\n"));
	fake_hold();
	assert_int_equal(write_text(f, 0, DE), 0);
	assert_int_equal(flush(f, true), 0);
	jobdir_release(d, f);
	fake_await_held();
	assert_true(has_line("a.status", "state: running\n"));
	assert_false(listed("a.out") || listed("a.err"));
	assert_int_equal(size_of("a.out"), 0);
	fake_let_go();
	check_out("a.out", "de\n");
	assert_true(listed("a.out") && listed("a.status"));
	assert_false(listed("a.err"));
	assert_int_equal(size_of("a.out"), 3);
	assert_int_equal(size_of("a.json"), strlen(DE));
	assert_true(size_of("a.status") > 20);
	assert_true(has_line("a.status", "state: done\n"));
	assert_true(has_line("a.status", "finish_reason: length\n"));
	check_usage(1, strlen(DE));
}

static void write__text__prompt(void **state)
{
	(void)state;
	fake.stop_len = 5;
	assert_int_equal(echo(&alice, "a.txt", "abc\n"), 0);
	check_out("a.out", "de\n");
}

static void write__stream_asked_for__listed(void **state)
{
	(void)state;
	assert_int_equal(echo(&alice, "a.json",
				 "{\"prompt\":\"abc\",\"max_new_tokens\":1,\"stream\":true}"),
		0);
	check_out("a.out", "d\n");
	assert_true(listed("a.stream"));
	assert_int_equal(size_of("a.stream"), 2);
}

static void write__bad_requests__the_shell_sees_it_and_err_tells(void **state)
{
	char text[512] = "";
	struct job *j;

	(void)state;
	assert_int_equal(echo(&alice, "a.json", "{\"promt\":\"abc\"}"), -EINVAL);
	check_out_error("a.out", -EINVAL);
	assert_true(listed("a.err"));
	assert_false(listed("a.out"));
	j = result("a.err");
	assert_true(job_read(j, JOB_ERR, 0, text, sizeof text - 1) > 0);
	assert_non_null(strstr(text, "prompt"));
	job_put(j);
	assert_int_equal(size_of("a.err"), strlen(text));
	assert_int_equal(echo(&alice, "b.json", "{\"prompt\":\"abc\"]"), -EINVAL);
	assert_int_equal(echo(&alice, "c.json", "{\"prompt\":\"\xff\"}"), -EILSEQ);
	assert_int_equal(echo(&alice, "d.txt", "ab\xff"), -EILSEQ);
	assert_int_equal(echo(&alice, "e.json", "{\"prompt\":\"abc\",\"model\":\"x\"}"), -ENOENT);
	assert_int_equal(echo(&alice, "f.json", "{\"prompt\":\"abc\""), -EINVAL); /* by close */
	check_out_error("f.out", -EINVAL);
	assert_int_equal(echo(&alice, "a.json", DE), 0); /* and it can be put right */
	check_out("a.out", "de\n");
	assert_false(listed("a.err"));
}

static void flush__unfinished__only_its_opener_is_told(void **state)
{
	struct jobdir_file *f;

	(void)state;
	assert_int_equal(open_as(&alice, "a.json", O_WRONLY | O_CREAT, &f), 0);
	assert_int_equal(flush(f, true), 0); /* nothing was written */
	assert_int_equal(write_text(f, 0, "{\"prompt\":"), 0);
	assert_int_equal(flush(f, false), 0);
	assert_int_equal(flush(f, true), -EINVAL);
	assert_int_equal(write_text(f, 10, "\"abc\",\"max_new_tokens\":1}"), 0);
	assert_int_equal(flush(f, true), 0);
	jobdir_release(d, f);
	check_out("a.out", "d\n");
}

static void release__empty_or_unwritten__runs_nothing(void **state)
{
	struct jobdir_file *f;

	(void)state;
	assert_int_equal(open_as(&alice, "a.json", O_WRONLY | O_CREAT, &f), 0);
	jobdir_release(d, f);
	assert_true(has_line("a.status", "state: writing\n"));
	assert_int_equal(echo(&alice, "a.json", D), 0);
	check_out("a.out", "d\n");
	fake_log_clear();
	assert_int_equal(open_as(&alice, "a.json", O_RDWR, &f), 0);
	jobdir_release(d, f);
	check_out("a.out", "d\n"); /* still there */
	assert_int_equal(fake_count("infer"), 0);
}

static void write__in_pieces_and_out_of_order__whole_is_judged_at_the_end(void **state)
{
	struct jobdir_file *f;

	(void)state;
	assert_int_equal(open_as(&alice, "a.json", O_RDWR | O_CREAT, &f), 0);
	for (size_t i = 0; i < strlen(D); i++)
		assert_int_equal(jobdir_write(d, f, i, &D[i], 1), 0);
	assert_int_equal(write_text(f, 11, "xyz"), 0); /* the prompt, by pwrite */
	jobdir_release(d, f);
	check_out("a.out", "d\n");
	assert_int_equal(open_as(&alice, "b.json", O_RDWR | O_CREAT, &f), 0);
	assert_int_equal(write_text(f, 20, "}"), 0); /* a hole of zero bytes */
	assert_int_equal(flush(f, true), -EINVAL);
	jobdir_release(d, f);
	check_out_error("b.out", -EINVAL);
}

static void write__finished_request__runs_anew_old_results_gone(void **state)
{
	struct jobdir_file *f;
	struct job *old;
	char text[8];

	(void)state;
	assert_int_equal(echo(&alice, "a.json", DE), 0);
	check_out("a.out", "de\n");
	old = result("a.out");
	assert_int_equal(open_as(&alice, "a.json", O_WRONLY | O_TRUNC, &f), 0);
	assert_false(listed("a.out"));
	assert_int_equal(size_of("a.json"), 0);
	assert_int_equal(job_read(old, JOB_OUT, 0, text, sizeof text),
		3); /* who has it open keeps it */
	job_put(old);
	assert_int_equal(write_text(f, 0, D), 0);
	jobdir_release(d, f);
	check_out("a.out", "d\n");
}

static void open__for_writing_while_queued_or_running__ebusy(void **state)
{
	static const int flags[] = { O_WRONLY, O_RDWR, O_WRONLY | O_TRUNC, O_WRONLY | O_APPEND,
		O_RDONLY | O_TRUNC };
	const struct jobdir_change cut = { .set = JOBDIR_SET_SIZE, .size = 0 };
	struct jobdir_file *f;
	struct jobdir_attr a;

	(void)state;
	fake_hold();
	for (int i = 0; i < 4; i++) { /* two run, two wait */
		char name[8] = "0.json";

		name[0] = (char)('0' + i);
		assert_int_equal(echo(&alice, name, D), 0);
	}
	fake_await_held();
	for (int i = 0; i < 4; i += 3)
		for (size_t k = 0; k < ARRAY_SIZE(flags); k++)
			assert_int_equal(open_as(&alice, i ? "3.json" : "0.json", flags[k], &f),
				-EBUSY);
	assert_int_equal(look(&alice, "3.json", &a), 0);
	assert_int_equal(jobdir_setattr(d, &alice, a.ref, NULL, &cut, &a), -EBUSY);
	assert_int_equal(open_as(&alice, "3.json", O_RDONLY, &f), 0);
	jobdir_release(d, f);
	fake_let_go();
	check_out("3.out", "d\n");
	assert_int_equal(size_of("3.json"), strlen(D));
}

static void open__second_writer_of_a_request__ebusy(void **state)
{
	struct jobdir_file *a, *b;

	(void)state;
	assert_int_equal(open_as(&alice, "a.json", O_WRONLY | O_CREAT, &a), 0);
	assert_int_equal(open_as(&alice, "a.json", O_WRONLY, &b), -EBUSY);
	jobdir_release(d, a);
	assert_int_equal(open_as(&alice, "a", O_WRONLY | O_CREAT, &a), 0);
	assert_int_equal(open_as(&alice, "a", O_WRONLY, &b),
		0); /* inert files are like any other */
	jobdir_release(d, a);
	jobdir_release(d, b);
}

static void open__read_only_with_trunc__emptied_and_nothing_left_behind(void **state)
{
	struct jobdir_file *f;

	(void)state;
	assert_int_equal(echo(&alice, "a.json", D), 0);
	check_out("a.out", "d\n");
	assert_int_equal(open_as(&alice, "a.json", O_RDONLY | O_TRUNC, &f), 0);
	assert_int_equal(size_of("a.json"), 0);
	jobdir_release(d, f);
	check_usage(1, 0);
	assert_int_equal(rm(&alice, "a.json"), 0);
	check_usage(0, 0);
}

/* --- names ------------------------------------------------------------------------------------ */

static void create__names_that_are_taken_or_not_for_users(void **state)
{
	struct jobdir_file *f;
	struct jobdir_attr a;

	(void)state;
	assert_int_equal(echo(&alice, "a.txt", "x"), 0);
	assert_int_equal(open_as(&alice, "a.json", O_WRONLY | O_CREAT, &f), -EEXIST);
	assert_int_equal(jobdir_create(d, &alice, ROOT, "a.txt", 0600, O_WRONLY | O_EXCL, &a, &f),
		-EEXIST);
	assert_int_equal(open_as(&alice, "b.out", O_WRONLY | O_CREAT, &f), -EPERM);
	assert_int_equal(open_as(&alice, "b\n", O_WRONLY | O_CREAT, &f), -EINVAL);
	assert_int_equal(jobdir_mkdir(d, &alice, ROOT, "b.txt", 0755, &a), -EPERM);
	assert_int_equal(jobdir_mkdir(d, &alice, ROOT, "b.out", 0755, &a), -EPERM);
	assert_false(there("b.out") || there("b.txt"));
}

static void inert__any_name__an_ordinary_file(void **state)
{
	struct jobdir_file *f;
	char text[16];

	(void)state;
	assert_int_equal(echo(&alice, ".a.json.swp", "not json"), 0);
	assert_int_equal(echo(&alice, "4913", ""), 0);
	assert_int_equal(open_as(&alice, ".a.json.swp", O_RDWR | O_APPEND, &f), 0);
	assert_int_equal(write_text(f, 0, "!"), 0); /* appended, whatever the offset */
	assert_int_equal(jobdir_read(d, f, 4, text, sizeof text), 5);
	assert_memory_equal(text, "json!", 5);
	assert_int_equal(write_text(f, 0, "?"), 0);
	jobdir_release(d, f);
	assert_int_equal(size_of(".a.json.swp"), 10);
	assert_false(there("4913.out"));
	assert_int_equal(fake_count("infer"), 0);
}

static void setattr__truncate__as_a_file(void **state)
{
	struct jobdir_change ch = { .set = JOBDIR_SET_SIZE, .size = 6 };
	struct jobdir_file *f;
	struct jobdir_attr a;
	char text[16];

	(void)state;
	assert_int_equal(open_as(&alice, "x", O_RDWR | O_CREAT, &f), 0);
	assert_int_equal(write_text(f, 0, "abc"), 0);
	assert_int_equal(look(&alice, "x", &a), 0);
	assert_int_equal(jobdir_setattr(d, &alice, a.ref, f, &ch, &a), 0);
	assert_int_equal(a.size, 6);
	assert_int_equal(jobdir_read(d, f, 0, text, sizeof text), 6);
	assert_memory_equal(text, "abc\0\0\0", 6);
	check_usage(1, 6);
	ch.size = 1;
	assert_int_equal(jobdir_setattr(d, &alice, a.ref, NULL, &ch, &a), 0);
	check_usage(1, 1);
	ch.size = 4097;
	assert_int_equal(jobdir_setattr(d, &alice, a.ref, NULL, &ch, &a), -EFBIG);
	ch.size = 0;
	assert_int_equal(jobdir_setattr(d, &bob, a.ref, NULL, &ch, &a), -EACCES);
	jobdir_release(d, f);
}

static void setattr__truncated_while_written__judged_anew(void **state)
{
	const struct jobdir_change cut = { .set = JOBDIR_SET_SIZE, .size = 0 };
	struct jobdir_file *f;
	struct jobdir_attr a;

	(void)state;
	assert_int_equal(open_as(&alice, "a.json", O_WRONLY | O_CREAT, &f), 0);
	assert_int_equal(write_text(f, 0, "nonsense"), -EINVAL);
	assert_int_equal(look(&alice, "a.json", &a), 0);
	assert_int_equal(jobdir_setattr(d, &alice, a.ref, f, &cut, &a), 0);
	assert_int_equal(write_text(f, 0, D), 0);
	assert_int_equal(flush(f, true), 0);
	jobdir_release(d, f);
	check_out("a.out", "d\n");
}

/* --- ends ------------------------------------------------------------------------------------- */

static _Atomic unsigned n_ended;
static _Atomic uint64_t last_ended;

static void note_end(void *context, uint64_t id)
{
	(void)context;
	last_ended = id;
	n_ended++;
}

static void check_end(const char *want)
{
	AUTO_BUF struct buf path = BUF_INIT;

	for (int ms = 0; n_ended == 0 && ms < 10000; ms++)
		usleep(1000);
	assert_int_equal(n_ended, 1);
	n_ended = 0;
	assert_int_equal(jobdir_end_path(d, last_ended, &path), want ? 0 : -ENOENT);
	assert_string_equal(buf_text(&path), want ? want : "");
}

static void on_end__every_way_to_end__told_once_with_the_path(void **state)
{
	AUTO_BUF struct buf path = BUF_INIT;
	struct jobdir_file *f;
	struct jobdir_attr dir, a;

	(void)state;
	n_ended = 0;
	jobdir_on_end(d, note_end, NULL);
	assert_int_equal(echo(&alice, "a.json", DE), 0);
	check_end("a.out");
	assert_int_equal(echo(&alice, "b.json", "nonsense"), -EINVAL);
	check_end("b.err");
	assert_int_equal(jobdir_mkdir(d, &alice, ROOT, "sub", 0700, &dir), 0);
	assert_int_equal(jobdir_create(d, &alice, dir.ref.id, "c.json", 0600, O_WRONLY | O_CREAT,
				 &a, &f),
		0);
	fake_hold();
	assert_int_equal(write_text(f, 0, DE), 0);
	jobdir_release(d, f);
	fake_await_held();
	assert_int_equal(jobdir_end_path(d, a.ref.id, &path), -ENOENT);
	assert_int_equal(n_ended, 0);
	fake_let_go();
	check_end("sub/c.out");
	assert_int_equal(rename_as(&alice, "sub", "other"), 0);
	assert_int_equal(jobdir_end_path(d, a.ref.id, &path), 0);
	assert_string_equal(buf_text(&path), "other/c.out");
}

static void on_end__removed__told_and_no_path(void **state)
{
	(void)state;
	n_ended = 0;
	jobdir_on_end(d, note_end, NULL);
	fake_hold();
	assert_int_equal(echo(&alice, "a.json", DE), 0);
	fake_await_held();
	assert_int_equal(rm(&alice, "a.json"), 0);
	check_end(NULL);
	fake_let_go();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(write__request__runs_and_results_are_listed_when_whole),
		TEST(write__text__prompt),
		TEST(write__stream_asked_for__listed),
		TEST(write__bad_requests__the_shell_sees_it_and_err_tells),
		TEST(flush__unfinished__only_its_opener_is_told),
		TEST(release__empty_or_unwritten__runs_nothing),
		TEST(write__in_pieces_and_out_of_order__whole_is_judged_at_the_end),
		TEST(write__finished_request__runs_anew_old_results_gone),
		TEST(open__for_writing_while_queued_or_running__ebusy),
		TEST(open__second_writer_of_a_request__ebusy),
		TEST(open__read_only_with_trunc__emptied_and_nothing_left_behind),
		TEST(create__names_that_are_taken_or_not_for_users),
		TEST(inert__any_name__an_ordinary_file),
		TEST(setattr__truncate__as_a_file),
		TEST(setattr__truncated_while_written__judged_anew),
		TEST(on_end__every_way_to_end__told_once_with_the_path),
		TEST(on_end__removed__told_and_no_path),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
