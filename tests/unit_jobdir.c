/* The folder as a file system would use it, on an engine with the recording backend: after L tokens comes the letter
 * 'a' + L % 26, so "abc" in STEM.json with two new tokens gives "de". */
#include "core/jobdir.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/jobdir_impl.h"
#include "core/mem.h"
#include "tests/fake_device.h"

#define ROOT 1
#define DE   "{\"prompt\":\"abc\",\"max_new_tokens\":2}"
#define D    "{\"prompt\":\"abc\",\"max_new_tokens\":1}"

static const struct cred root = { 0, 0, 1, NULL, NULL }, alice = { 1000, 1000, 2, NULL, NULL },
			 bob = { 1001, 1001, 3, NULL, NULL };

static struct health health;
static struct models *models;
static struct engine *engine;
static struct jobdir *d;
static struct engine_config config;
static struct jobdir_limits limits;

static void start(void)
{
	struct fault f = FAULT_NONE;
	int ms = 0;

	health_init(&health, &fake_ops);
	assert_int_equal(models_new("", &fake_ops, &models, &f), 0);
	assert_int_equal(engine_new(&config, models, &health, &engine), 0);
	assert_int_equal(jobdir_new(&limits, engine, models, ROOT, &d), 0);
	while (!health_is_ready(&health) && ms++ < 10000)
		usleep(1000);
}

static int prepare(void **state)
{
	(void)state;
	fake_reset();
	config = (struct engine_config){ .ops = &fake_ops, .device = { .threads = 1 }, .max_active = 2,
		.queue_limit = 1000, .user_limit = 1000, .output_bytes = 1 << 20 };
	limits = (struct jobdir_limits){ .files = 10000, .bytes = 1 << 20, .request_bytes = 4096, .depth = 3 };
	return 0;
}

static int up(void **state)
{
	prepare(state);
	start();
	return 0;
}

static int down(void **state)
{
	(void)state;
	fake_let_go();
	engine_stop(engine, 10000);
	jobdir_free(d);
	engine_free(engine);
	models_free(models);
	health_done(&health);
	return 0;
}

/* --- what a file system does ------------------------------------------------------------------------------------ */

static int look(const struct cred *c, const char *name, struct jobdir_attr *a)
{
	int err = jobdir_lookup(d, c, ROOT, name, a);

	if (!err)
		jobdir_forget(d, a->ref.id, 1);
	return err;
}

static bool there(const char *name)
{
	struct jobdir_attr a;

	return look(&root, name, &a) == 0;
}

static int open_as(const struct cred *c, const char *name, int flags, struct jobdir_file **ret)
{
	struct jobdir_attr a;
	int err = look(c, name, &a);

	if (!err)
		return jobdir_open(d, c, a.ref.id, flags, ret);
	if (err != -ENOENT || !(flags & O_CREAT))
		return err;
	err = jobdir_create(d, c, ROOT, name, 0600, flags, &a, ret);
	if (!err)
		jobdir_forget(d, a.ref.id, 1);
	return err;
}

static int write_text(struct jobdir_file *f, uint64_t at, const char *text)
{
	return jobdir_write(d, f, at, text, strlen(text));
}

/* echo TEXT > NAME: the first error that a shell sees. */
static int echo(const struct cred *c, const char *name, const char *text)
{
	struct jobdir_file *f;
	int err = open_as(c, name, O_WRONLY | O_CREAT | O_TRUNC, &f);

	if (err)
		return err;
	jobdir_flush(d, f, false);
	err = write_text(f, 0, text);
	if (!err)
		err = jobdir_flush(d, f, true);
	jobdir_release(d, f);
	return err;
}

static int rename_as(const struct cred *c, const char *from, const char *to)
{
	return jobdir_rename(d, c, ROOT, from, ROOT, to, false);
}

static int rm(const struct cred *c, const char *name)
{
	return jobdir_unlink(d, c, ROOT, name);
}

static struct job *result(const char *name)
{
	struct jobdir_attr a;
	struct job *j;

	assert_int_equal(look(&root, name, &a), 0);
	assert_int_equal(jobdir_open_result(d, &root, a.ref, O_RDONLY, &j), 0);
	return j;
}

static ssize_t cat_job(struct job *j, char ret[256])
{
	ssize_t n;
	int ms = 0;

	while (!job_ended(j) && ms++ < 20000)
		usleep(1000);
	n = job_read(j, JOB_OUT, 0, ret, 255);
	ret[n < 0 ? 0 : n] = '\0';
	job_put(j);
	return n;
}

static void check_out(const char *name, const char *want)
{
	char got[256];

	assert_true(cat_job(result(name), got) >= 0);
	assert_string_equal(got, want);
}

static void check_out_error(const char *name, int err)
{
	char got[256];

	assert_int_equal(cat_job(result(name), got), err);
}

static bool has_line(const char *name, const char *line)
{
	AUTO_BUF struct buf text = BUF_INIT;
	struct job *j = result(name);
	bool has;

	jobdir_status(d, j, &text);
	has = strstr(buf_text(&text), line) != NULL;
	job_put(j);
	return has;
}

/* Names are collected as " a.txt b.json " so that each is found with its blanks. */
static bool collect(void *context, const struct jobdir_entry *e)
{
	buf_printf(context, "%s ", e->name);
	return true;
}

static bool listed(const char *name)
{
	AUTO_BUF struct buf all = BUF_INIT;
	char blank[300];

	buf_puts(&all, " ");
	assert_int_equal(jobdir_list(d, ROOT, 0, collect, &all), 0);
	snprintf(blank, sizeof blank, " %s ", name);
	return strstr(buf_text(&all), blank) != NULL;
}

static void check_usage(uint64_t files, uint64_t bytes)
{
	uint64_t f, b;

	jobdir_usage(d, &f, &b);
	assert_int_equal(f, files);
	assert_int_equal(b, bytes);
}

static size_t size_of(const char *name)
{
	struct jobdir_attr a;

	assert_int_equal(look(&root, name, &a), 0);
	return a.size;
}

/* --- a job's life ------------------------------------------------------------------------------------------------- */

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
	assert_int_equal(jobdir_flush(d, f, true), 0);
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
	assert_int_equal(echo(&alice, "a.json", "{\"prompt\":\"abc\",\"max_new_tokens\":1,\"stream\":true}"), 0);
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
	assert_int_equal(jobdir_flush(d, f, true), 0); /* nothing was written */
	assert_int_equal(write_text(f, 0, "{\"prompt\":"), 0);
	assert_int_equal(jobdir_flush(d, f, false), 0);
	assert_int_equal(jobdir_flush(d, f, true), -EINVAL);
	assert_int_equal(write_text(f, 10, "\"abc\",\"max_new_tokens\":1}"), 0);
	assert_int_equal(jobdir_flush(d, f, true), 0);
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
	assert_int_equal(jobdir_flush(d, f, true), 0);
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
	assert_int_equal(job_read(old, JOB_OUT, 0, text, sizeof text), 3); /* who has it open keeps it */
	job_put(old);
	assert_int_equal(write_text(f, 0, D), 0);
	jobdir_release(d, f);
	check_out("a.out", "d\n");
}

static void open__for_writing_while_queued_or_running__ebusy(void **state)
{
	static const int flags[] = { O_WRONLY, O_RDWR, O_WRONLY | O_TRUNC, O_WRONLY | O_APPEND, O_RDONLY | O_TRUNC };
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
			assert_int_equal(open_as(&alice, i ? "3.json" : "0.json", flags[k], &f), -EBUSY);
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
	assert_int_equal(open_as(&alice, "a", O_WRONLY, &b), 0); /* inert files are like any other */
	jobdir_release(d, a);
	jobdir_release(d, b);
}

/* From the last close until the engine has it: the same as queued. */
static void open__handed_over_and_not_yet_queued__ebusy(void **state)
{
	struct submission s;
	struct jobdir_file *f, *g;
	struct tree_node *n;

	(void)state;
	assert_int_equal(open_as(&alice, "a.json", O_WRONLY | O_CREAT, &f), 0);
	assert_int_equal(write_text(f, 0, D), 0);
	n = f->node;
	lock_take(&d->lock);
	n->opens--;
	n->writers--;
	s = jobdir_prepare(n, f);
	verdict_free(take_ptr(n->verdict));
	lock_drop(&d->lock);
	free(f);
	assert_int_equal(open_as(&alice, "a.json", O_WRONLY, &g), -EBUSY);
	jobdir_submit(d, &s);
	check_out("a.out", "d\n");
	assert_int_equal(open_as(&alice, "a.json", O_WRONLY, &g), 0);
	jobdir_release(d, g);
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

/* --- names ---------------------------------------------------------------------------------------------------------- */

static void create__names_that_are_taken_or_not_for_users(void **state)
{
	struct jobdir_file *f;
	struct jobdir_attr a;

	(void)state;
	assert_int_equal(echo(&alice, "a.txt", "x"), 0);
	assert_int_equal(open_as(&alice, "a.json", O_WRONLY | O_CREAT, &f), -EEXIST);
	assert_int_equal(jobdir_create(d, &alice, ROOT, "a.txt", 0600, O_WRONLY | O_EXCL, &a, &f), -EEXIST);
	assert_int_equal(open_as(&alice, "b.out", O_WRONLY | O_CREAT, &f), -EPERM);
	assert_int_equal(open_as(&alice, "b.jsonl", O_WRONLY | O_CREAT, &f), -EOPNOTSUPP);
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
	assert_int_equal(jobdir_flush(d, f, true), 0);
	jobdir_release(d, f);
	check_out("a.out", "d\n");
}

/* --- renaming -------------------------------------------------------------------------------------------------------- */

static void rename__inert_to_request__runs_once(void **state)
{
	(void)state;
	assert_int_equal(echo(&alice, "tmp", D), 0);
	assert_int_equal(rename_as(&alice, "tmp", "a.json"), 0);
	check_out("a.out", "d\n");
	assert_int_equal(fake_count("infer:prefill"), 1);
	assert_int_equal(rename_as(&alice, "a.json", "a.json"), 0);
	check_out("a.out", "d\n");
	assert_int_equal(fake_count("infer:prefill"), 1);
	assert_false(there("tmp"));
}

static void rename__request_to_request__keeps_its_run(void **state)
{
	(void)state;
	fake_hold();
	assert_int_equal(echo(&alice, "a.json", DE), 0);
	fake_await_held();
	assert_int_equal(rename_as(&alice, "a.json", "b.json"), 0);
	assert_false(there("a.out") || there("a.json"));
	assert_true(has_line("b.status", "state: running"));
	fake_let_go();
	check_out("b.out", "de\n");
	assert_int_equal(rename_as(&alice, "b.json", "c.json"), 0);
	check_out("c.out", "de\n");
	assert_int_equal(fake_count("infer:prefill"), 1);
}

static void rename__request_to_inert__cancels(void **state)
{
	struct job *j;
	char text[256];

	(void)state;
	fake_hold();
	assert_int_equal(echo(&alice, "a.json", DE), 0);
	j = result("a.out");
	assert_int_equal(rename_as(&alice, "a.json", "a.json.bak"), 0);
	assert_int_equal(cat_job(j, text), -ECANCELED);
	assert_false(there("a.out") || there("a.status"));
	fake_let_go();
	assert_int_equal(rename_as(&alice, "a.json.bak", "a.json"), 0);
	check_out("a.out", "de\n");
}

static void rename__over_a_finished_request__runs_anew(void **state)
{
	(void)state;
	assert_int_equal(echo(&alice, "a.json", DE), 0);
	check_out("a.out", "de\n");
	assert_int_equal(echo(&alice, "sedXXXXXX", D), 0);
	assert_int_equal(rename_as(&alice, "sedXXXXXX", "a.json"), 0);
	check_out("a.out", "d\n");
	check_usage(1, strlen(D));
}

static void rename__over_a_running_request__ebusy_and_nothing_changed(void **state)
{
	(void)state;
	assert_int_equal(echo(&alice, "tmp", D), 0);
	fake_hold();
	assert_int_equal(echo(&alice, "a.json", DE), 0);
	fake_await_held();
	assert_int_equal(rename_as(&alice, "tmp", "a.json"), -EBUSY);
	assert_true(there("tmp"));
	fake_let_go();
	check_out("a.out", "de\n");
}

/* A reader that came first, on a request that has no bytes yet, gets what the rename brings. */
static void rename__over_an_empty_request__its_readers_are_served(void **state)
{
	struct jobdir_file *f;
	char text[256];
	struct job *j;

	(void)state;
	assert_int_equal(open_as(&alice, "a.json", O_WRONLY | O_CREAT, &f), 0);
	jobdir_release(d, f);
	j = result("a.out");
	assert_int_equal(echo(&alice, "tmp", D), 0);
	assert_int_equal(rename_as(&alice, "tmp", "a.json"), 0);
	assert_int_equal(cat_job(j, text), 2);
	check_usage(1, strlen(D));
}

static void rename__refused(void **state)
{
	struct jobdir_attr a;

	(void)state;
	assert_int_equal(echo(&alice, "a.txt", "abc"), 0);
	assert_int_equal(echo(&alice, "tmp", D), 0);
	assert_int_equal(rename_as(&alice, "tmp", "a.json"), -EEXIST);
	assert_int_equal(rename_as(&alice, "tmp", "b.out"), -EPERM);
	assert_int_equal(rename_as(&alice, "a.out", "b"), -EPERM);
	assert_int_equal(rename_as(&alice, "tmp", "b.jsonl"), -EOPNOTSUPP);
	assert_int_equal(rename_as(&alice, "none", "b"), -ENOENT);
	assert_int_equal(rename_as(&bob, "tmp", "b"), -EPERM); /* sticky */
	assert_int_equal(jobdir_rename(d, &alice, ROOT, "tmp", ROOT, "a.txt", true), -EEXIST);
	assert_int_equal(jobdir_mkdir(d, &alice, ROOT, "dir", 0755, &a), 0);
	assert_int_equal(rename_as(&alice, "dir", "dir.txt"), -EPERM);
	assert_int_equal(rename_as(&alice, "tmp", "dir"), -EISDIR);
	assert_int_equal(rename_as(&alice, "dir", "tmp"), -ENOTDIR);
	assert_int_equal(jobdir_rename(d, &alice, ROOT, "dir", a.ref.id, "sub", false), -EINVAL);
	assert_int_equal(rename_as(&alice, "a.txt", "a.json"), 0); /* the same stem, the same file */
	jobdir_forget(d, a.ref.id, 1);
}

static void rename__open_inert_to_request__runs_at_the_last_close(void **state)
{
	struct jobdir_file *f, *g;

	(void)state;
	assert_int_equal(open_as(&alice, "tmp", O_WRONLY | O_CREAT, &f), 0);
	assert_int_equal(open_as(&alice, "tmp", O_WRONLY, &g), 0);
	assert_int_equal(write_text(f, 0, "{\"prompt\":"), 0);
	assert_int_equal(rename_as(&alice, "tmp", "a.json"), 0);
	assert_true(has_line("a.status", "state: writing\n"));
	jobdir_release(d, g);
	assert_true(has_line("a.status", "state: writing\n"));
	assert_int_equal(write_text(f, 10, "\"abc\",\"max_new_tokens\":1}"), 0);
	assert_int_equal(jobdir_flush(d, f, true), 0);
	jobdir_release(d, f);
	check_out("a.out", "d\n");
}

static void rename__open_request_to_inert__no_run(void **state)
{
	struct jobdir_file *f;

	(void)state;
	assert_int_equal(open_as(&alice, "a.json", O_WRONLY | O_CREAT, &f), 0);
	assert_int_equal(write_text(f, 0, "{\"prompt\":"), 0);
	assert_int_equal(rename_as(&alice, "a.json", "b"), 0);
	assert_int_equal(write_text(f, 10, "rubbish"), 0);
	assert_int_equal(jobdir_flush(d, f, true), 0);
	jobdir_release(d, f);
	assert_false(there("b.out"));
	assert_int_equal(fake_count("infer"), 0);
}

/* --- removing -------------------------------------------------------------------------------------------------------- */

static void unlink__running_request__cancelled_and_gone(void **state)
{
	char text[256];
	struct job *j;

	(void)state;
	fake_hold();
	assert_int_equal(echo(&alice, "a.json", DE), 0);
	fake_await_held();
	j = result("a.out");
	assert_int_equal(rm(&alice, "a.json"), 0);
	assert_int_equal(cat_job(j, text), -ECANCELED);
	assert_false(there("a.json") || there("a.out") || there("a.status"));
	check_usage(0, 0);
	fake_let_go();
	assert_int_equal(echo(&alice, "a.json", D), 0);
	check_out("a.out", "d\n");
}

static void unlink__results__gone_until_the_next_run(void **state)
{
	(void)state;
	assert_int_equal(echo(&alice, "a.json", D), 0);
	check_out("a.out", "d\n");
	assert_int_equal(rm(&bob, "a.out"), -EPERM);
	assert_int_equal(rm(&alice, "a.out"), 0);
	assert_int_equal(rm(&alice, "a.out"), -ENOENT);
	assert_int_equal(rm(&alice, "a.status"), 0);
	assert_false(listed("a.out") || there("a.out") || listed("a.status"));
	assert_true(listed("a.json"));
	assert_int_equal(echo(&alice, "a.json", DE), 0);
	check_out("a.out", "de\n");
	assert_true(listed("a.status"));
}

static void unlink__open_for_writing__written_on_and_closed(void **state)
{
	struct jobdir_file *f, *g;
	char text[8];

	(void)state;
	assert_int_equal(open_as(&alice, "a.json", O_RDWR | O_CREAT, &f), 0);
	assert_int_equal(write_text(f, 0, "{\"prompt\""), 0);
	assert_int_equal(rm(&alice, "a.json"), 0);
	assert_int_equal(write_text(f, 9, ":\"abc\"}"), 0);
	assert_int_equal(jobdir_read(d, f, 0, text, 3), 3);
	assert_int_equal(open_as(&alice, "a.json", O_WRONLY | O_CREAT, &g), 0); /* another one */
	jobdir_flush(d, f, true);
	jobdir_release(d, f);
	jobdir_release(d, g);
	assert_int_equal(size_of("a.json"), 0);
	check_usage(1, 0);
	assert_int_equal(fake_count("infer"), 0);
}

/* --- limits ---------------------------------------------------------------------------------------------------------- */

static void limits__files_bytes_depth__refused_and_given_back(void **state)
{
	struct jobdir_attr a, b, c;
	struct jobdir_file *f, *g;

	prepare(state);
	limits = (struct jobdir_limits){ .files = 3, .bytes = 100, .request_bytes = 60, .depth = 2 };
	start();
	assert_int_equal(echo(&alice, "one", "0123456789"), 0);
	assert_int_equal(open_as(&alice, "two", O_RDWR | O_CREAT, &f), 0);
	assert_int_equal(write_text(f, 60, "x"), -EFBIG);
	assert_int_equal(jobdir_write(d, f, UINT64_MAX - 1, "xyz", 3), -EFBIG);
	assert_int_equal(jobdir_write(d, f, UINT64_MAX, "x", 1), -EFBIG);
	assert_int_equal(write_text(f, 59, "x"), 0); /* a hole counts */
	check_usage(2, 70);
	assert_int_equal(open_as(&alice, "three", O_RDWR | O_CREAT, &g), 0);
	assert_int_equal(write_text(g, 30, "x"), -ENOSPC);
	assert_int_equal(write_text(g, 29, "x"), 0);
	assert_int_equal(write_text(g, 0, "x"), 0); /* not larger: always */
	check_usage(3, 100);
	assert_int_equal(echo(&alice, "four", "x"), -ENOSPC);
	assert_int_equal(jobdir_mkdir(d, &alice, ROOT, "dir", 0755, &a), -ENOSPC);
	assert_int_equal(rm(&alice, "two"), 0);
	check_usage(2, 100); /* removed and still open: its bytes are there */
	assert_int_equal(write_text(g, 30, "x"), -ENOSPC);
	jobdir_release(d, f);
	check_usage(2, 40);
	assert_int_equal(rm(&alice, "three"), 0);
	jobdir_release(d, g);
	assert_int_equal(rm(&alice, "one"), 0);
	check_usage(0, 0);
	assert_int_equal(jobdir_mkdir(d, &alice, ROOT, "dir", 0755, &a), 0);
	assert_int_equal(jobdir_mkdir(d, &alice, a.ref.id, "sub", 0755, &b), 0);
	assert_int_equal(jobdir_mkdir(d, &alice, b.ref.id, "subsub", 0755, &c), -EMLINK);
	assert_int_equal(jobdir_rmdir(d, &alice, ROOT, "dir"), -ENOTEMPTY);
	assert_int_equal(jobdir_unlink(d, &alice, ROOT, "dir"), -EISDIR);
	assert_int_equal(jobdir_rmdir(d, &alice, a.ref.id, "sub"), 0);
	assert_int_equal(jobdir_mkdir(d, &alice, b.ref.id, "x", 0755, &c), -ENOENT); /* a removed folder */
	assert_int_equal(jobdir_rmdir(d, &alice, ROOT, "dir"), 0);
	jobdir_forget(d, a.ref.id, 1);
	jobdir_forget(d, b.ref.id, 1);
}

static void limits__queue__create_says_so(void **state)
{
	struct jobdir_file *f;

	prepare(state);
	config.max_active = 1;
	config.queue_limit = 2;
	config.user_limit = 1;
	start();
	fake_hold();
	assert_int_equal(echo(&alice, "a.json", D), 0);
	fake_await_held();
	assert_int_equal(echo(&alice, "b.json", D), 0);
	assert_int_equal(open_as(&alice, "c.json", O_WRONLY | O_CREAT, &f), -EDQUOT);
	assert_int_equal(echo(&alice, "tmp", D), 0);
	assert_int_equal(rename_as(&alice, "tmp", "c.json"), -EDQUOT);
	assert_int_equal(echo(&bob, "d.json", D), 0);
	assert_int_equal(open_as(&root, "e.json", O_WRONLY | O_CREAT, &f), -EAGAIN);
	assert_int_equal(echo(&alice, "c", D), 0); /* inert files need no queue */
	fake_let_go();
	check_out("d.out", "d\n");
}

static void limits__draining__erofs(void **state)
{
	struct jobdir_file *f, *g;

	(void)state;
	assert_int_equal(open_as(&alice, "a.json", O_WRONLY | O_CREAT, &f), 0);
	assert_int_equal(write_text(f, 0, D), 0);
	engine_stop(engine, 1000);
	jobdir_release(d, f);
	check_out_error("a.out", -EROFS); /* answered all the same */
	assert_int_equal(open_as(&alice, "b.json", O_WRONLY | O_CREAT, &g), -EROFS);
	jobdir_free(d);
	engine_free(engine);
	models_free(models);
	health_done(&health);
}

/* --- who may ---------------------------------------------------------------------------------------------------------- */

static void permission__private_by_default__others_see_names_only(void **state)
{
	const struct jobdir_change open_up = { .set = JOBDIR_SET_MODE, .mode = 0644 };
	struct jobdir_file *f;
	struct jobdir_attr a;
	struct job *j;

	(void)state;
	assert_int_equal(echo(&alice, "a.json", D), 0);
	check_out("a.out", "d\n");
	assert_int_equal(open_as(&bob, "a.json", O_RDONLY, &f), -EACCES);
	assert_int_equal(open_as(&bob, "a.json", O_WRONLY, &f), -EACCES);
	assert_int_equal(rm(&bob, "a.json"), -EPERM);
	assert_int_equal(look(&bob, "a.out", &a), 0);
	assert_int_equal(a.owner.mode & 0777, 0400);
	assert_int_equal(a.owner.uid, 1000);
	assert_int_equal(jobdir_open_result(d, &bob, a.ref, O_RDONLY, &j), -EACCES);
	assert_int_equal(jobdir_open_result(d, &alice, a.ref, O_RDWR, &j), -EACCES);
	assert_int_equal(look(&bob, "a.json", &a), 0);
	assert_int_equal(jobdir_setattr(d, &bob, a.ref, NULL, &open_up, &a), -EPERM);
	assert_int_equal(jobdir_setattr(d, &alice, a.ref, NULL, &open_up, &a), 0);
	assert_int_equal(look(&bob, "a.out", &a), 0);
	assert_int_equal(jobdir_open_result(d, &bob, a.ref, O_RDONLY, &j), 0);
	job_put(j);
}

static void permission__folder_closed__nothing_below_is_reached(void **state)
{
	struct jobdir_file *f;
	struct jobdir_attr dir, a;

	(void)state;
	assert_int_equal(jobdir_mkdir(d, &alice, ROOT, "dir", 0700, &dir), 0);
	assert_int_equal(jobdir_create(d, &alice, dir.ref.id, "x", 0666, O_WRONLY | O_CREAT, &a, &f), 0);
	jobdir_release(d, f);
	assert_int_equal(jobdir_lookup(d, &bob, dir.ref.id, "x", &a), -EACCES);
	assert_int_equal(jobdir_open(d, &bob, a.ref.id, O_RDONLY, &f), -EACCES);
	assert_int_equal(jobdir_getattr(d, &bob, a.ref, &a), -EACCES);
	assert_int_equal(jobdir_may_list(d, &bob, dir.ref.id), -EACCES);
	assert_int_equal(jobdir_may_list(d, &alice, dir.ref.id), 0);
	assert_int_equal(jobdir_create(d, &bob, dir.ref.id, "y", 0600, O_WRONLY | O_CREAT, &a, &f), -EACCES);
	jobdir_forget(d, a.ref.id, 1);
	jobdir_forget(d, dir.ref.id, 1);
}

static void permission__setgid_folder__group_is_inherited(void **state)
{
	const struct jobdir_change setgid = { .set = JOBDIR_SET_MODE | JOBDIR_SET_GID, .mode = 02777, .gid = 50 };
	struct jobdir_attr dir, sub;

	(void)state;
	assert_int_equal(jobdir_mkdir(d, &root, ROOT, "dir", 0777, &dir), 0);
	assert_int_equal(jobdir_setattr(d, &root, dir.ref, NULL, &setgid, &dir), 0);
	assert_int_equal(jobdir_mkdir(d, &alice, dir.ref.id, "sub", 0700, &sub), 0);
	assert_int_equal(sub.owner.gid, 50);
	assert_int_equal(sub.owner.mode & 07777, 02700);
	jobdir_forget(d, sub.ref.id, 1);
	jobdir_forget(d, dir.ref.id, 1);
}

/* --- listing ------------------------------------------------------------------------------------------------------------ */

struct one {
	char name[256];
	uint64_t next;
	bool got;
};

static bool take_one(void *context, const struct jobdir_entry *e)
{
	struct one *o = context;

	if (o->got)
		return false;
	snprintf(o->name, sizeof o->name, "%s", e->name);
	o->next = e->next;
	o->got = true;
	return true;
}

/* rm -r: each name is removed as soon as it is read; nothing is left out, nothing comes twice. */
static void list__entry_by_entry_while_removing__complete(void **state)
{
	unsigned requests = 0;
	uint64_t from = 0;

	(void)state;
	for (int i = 0; i < 100; i++) {
		char name[16];

		snprintf(name, sizeof name, "%d.json", i);
		assert_int_equal(echo(&alice, name, D), 0);
	}
	for (;;) {
		struct one o = { .got = false };

		assert_int_equal(jobdir_list(d, ROOT, from, take_one, &o), 0);
		if (!o.got)
			break;
		assert_true(o.next > from);
		from = o.next;
		if (strstr(o.name, ".json")) {
			requests++;
			assert_int_equal(rm(&alice, o.name), 0);
		}
	}
	assert_int_equal(requests, 100);
	check_usage(0, 0);
}

/* --- everything at once --------------------------------------------------------------------------------------------------- */

static void *user(void *arg)
{
	static const char *const names[] = { "a.json", "b.json", "a.txt", "tmp", "x", "c.json" };
	unsigned seed = (unsigned)(uintptr_t)arg;
	const struct cred c = { 1000, 1000, 2, NULL, NULL };

	for (int i = 0; i < 400; i++) {
		const char *name = names[rand_r(&seed) % ARRAY_SIZE(names)];
		AUTO_BUF struct buf text = BUF_INIT;
		struct jobdir_attr a;
		struct job *j;

		switch (rand_r(&seed) % 6) {
		case 0:
		case 1:
			echo(&c, name, rand_r(&seed) % 4 ? D : "{\"prompt\":");
			break;
		case 2:
			rename_as(&c, name, names[rand_r(&seed) % ARRAY_SIZE(names)]);
			break;
		case 3:
			rm(&c, name);
			break;
		case 4:
			jobdir_list(d, ROOT, 0, collect, &text);
			break;
		default:
			if (jobdir_lookup(d, &c, ROOT, rand_r(&seed) % 2 ? "a.out" : "b.status", &a))
				break;
			if (jobdir_open_result(d, &c, a.ref, O_RDONLY, &j) == 0) {
				jobdir_status(d, j, &text);
				job_put(j);
			}
			jobdir_forget(d, a.ref.id, 1);
		}
	}
	return NULL;
}

static void everything__at_once__nothing_left(void **state)
{
	static const char *const names[] = { "a.json", "b.json", "a.txt", "tmp", "x", "c.json" };
	pthread_t t[4];

	(void)state;
	for (uintptr_t i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, user, (void *)(i + 1));
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		rm(&alice, names[i]);
	check_usage(0, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, up, down)

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
		TEST(open__handed_over_and_not_yet_queued__ebusy),
		TEST(open__read_only_with_trunc__emptied_and_nothing_left_behind),
		TEST(create__names_that_are_taken_or_not_for_users),
		TEST(inert__any_name__an_ordinary_file),
		TEST(setattr__truncate__as_a_file),
		TEST(setattr__truncated_while_written__judged_anew),
		TEST(rename__inert_to_request__runs_once),
		TEST(rename__request_to_request__keeps_its_run),
		TEST(rename__request_to_inert__cancels),
		TEST(rename__over_a_finished_request__runs_anew),
		TEST(rename__over_a_running_request__ebusy_and_nothing_changed),
		TEST(rename__over_an_empty_request__its_readers_are_served),
		TEST(rename__refused),
		TEST(rename__open_inert_to_request__runs_at_the_last_close),
		TEST(rename__open_request_to_inert__no_run),
		TEST(unlink__running_request__cancelled_and_gone),
		TEST(unlink__results__gone_until_the_next_run),
		TEST(unlink__open_for_writing__written_on_and_closed),
		cmocka_unit_test_teardown(limits__files_bytes_depth__refused_and_given_back, down),
		cmocka_unit_test_teardown(limits__queue__create_says_so, down),
		cmocka_unit_test_setup_teardown(limits__draining__erofs, up, NULL),
		TEST(permission__private_by_default__others_see_names_only),
		TEST(permission__folder_closed__nothing_below_is_reached),
		TEST(permission__setgid_folder__group_is_inherited),
		TEST(list__entry_by_entry_while_removing__complete),
		TEST(everything__at_once__nothing_left),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
