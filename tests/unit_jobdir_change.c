/* Renaming, removing, limits, permissions and listing in jobs/. */
#include "tests/jobdir_rig.h"

/* --- renaming --------------------------------------------------------------------------------- */

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
	assert_int_equal(rename_as(&alice, "none", "b"), -ENOENT);
	assert_int_equal(rename_as(&bob, "tmp", "b"), -EPERM); /* sticky */
	assert_int_equal(jobdir_rename(d, &alice, ROOT, "tmp", ROOT, "a.txt", true, &synced),
		-EEXIST);
	assert_int_equal(jobdir_mkdir(d, &alice, ROOT, "dir", 0755, &a), 0);
	assert_int_equal(rename_as(&alice, "dir", "dir.txt"), -EPERM);
	assert_int_equal(rename_as(&alice, "tmp", "dir"), -EISDIR);
	assert_int_equal(rename_as(&alice, "dir", "tmp"), -ENOTDIR);
	assert_int_equal(jobdir_rename(d, &alice, ROOT, "dir", a.ref.id, "sub", false, &synced),
		-EINVAL);
	assert_int_equal(rename_as(&alice, "a.txt", "a.json"),
		0); /* the same stem, the same file */
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
	assert_int_equal(flush(f, true), 0);
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
	assert_int_equal(flush(f, true), 0);
	jobdir_release(d, f);
	assert_false(there("b.out"));
	assert_int_equal(fake_count("infer"), 0);
}

/* --- removing --------------------------------------------------------------------------------- */

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
	flush(f, true);
	jobdir_release(d, f);
	jobdir_release(d, g);
	assert_int_equal(size_of("a.json"), 0);
	check_usage(1, 0);
	assert_int_equal(fake_count("infer"), 0);
}

/* --- limits ----------------------------------------------------------------------------------- */

static void limits__files_bytes_depth__refused_and_given_back(void **state)
{
	struct jobdir_attr a, b, c;
	struct jobdir_file *f, *g;

	prepare(state);
	limits = (struct jobdir_limits){ .files = 3,
		.bytes = 100,
		.user_files = 3,
		.user_bytes = 100,
		.request_bytes = 60,
		.batch_bytes = 60,
		.depth = 2 };
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
	assert_int_equal(jobdir_mkdir(d, &alice, b.ref.id, "x", 0755, &c),
		-ENOENT); /* a removed folder */
	assert_int_equal(jobdir_rmdir(d, &alice, ROOT, "dir"), 0);
	jobdir_forget(d, a.ref.id, 1);
	jobdir_forget(d, b.ref.id, 1);
}

static void repeat(char *to, size_t n)
{
	memset(to, ' ', n);
	memcpy(to, D, strlen(D));
	to[n] = '\0';
}

/* A file that is no request may be larger; that it gets a request's name changes nothing. */
static void limits__large_file_renamed_to_a_request__efbig_and_never_runs(void **state)
{
	struct jobdir_file *f;
	char text[66];

	(void)state;
	stop();
	limits.request_bytes = 64;
	start();
	repeat(text, 65);
	assert_int_equal(echo(&alice, "tmp", text), 0);
	assert_int_equal(rename_as(&alice, "tmp", "a.json"), 0);
	check_out_error("a.out", -EFBIG);
	assert_true(has_line("a.status", "reason: the request has 65 bytes; at most 64 are taken"));
	assert_int_equal(open_as(&alice, "a.json", O_WRONLY, &f), 0);
	assert_int_equal(write_text(f, 0, D), 0);
	assert_int_equal(flush(f, true), -EFBIG);
	jobdir_release(d, f);
	check_out_error("a.out", -EFBIG);
	assert_int_equal(fake_count("infer:prefill"), 0);
	repeat(text, 64);
	assert_int_equal(echo(&alice, "tmp", text), 0);
	assert_int_equal(rename_as(&alice, "tmp", "a.json"), 0);
	check_out("a.out", "d\n");
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

/* --- who may ---------------------------------------------------------------------------------- */

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
	assert_int_equal(jobdir_create(d, &alice, dir.ref.id, "x", 0666, O_WRONLY | O_CREAT, &a,
				 &f),
		0);
	jobdir_release(d, f);
	assert_int_equal(jobdir_lookup(d, &bob, dir.ref.id, "x", &a), -EACCES);
	assert_int_equal(jobdir_open(d, &bob, a.ref.id, O_RDONLY, &f), -EACCES);
	assert_int_equal(jobdir_getattr(d, &bob, a.ref, &a), -EACCES);
	assert_int_equal(jobdir_may_list(d, &bob, dir.ref.id), -EACCES);
	assert_int_equal(jobdir_may_list(d, &alice, dir.ref.id), 0);
	assert_int_equal(jobdir_create(d, &bob, dir.ref.id, "y", 0600, O_WRONLY | O_CREAT, &a, &f),
		-EACCES);
	jobdir_forget(d, a.ref.id, 1);
	jobdir_forget(d, dir.ref.id, 1);
}

static void permission__setgid_folder__group_is_inherited(void **state)
{
	const struct jobdir_change setgid = { .set = JOBDIR_SET_MODE | JOBDIR_SET_GID,
		.mode = 02777,
		.gid = 50 };
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

/* --- listing ---------------------------------------------------------------------------------- */

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
		char name[24];

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

/* --- everything at once ----------------------------------------------------------------------- */

/* One thread calls the folder, as the file system does; the engine's threads work beside it. */
static void user(unsigned seed)
{
	static const char *const names[] = { "a.json", "b.json", "a.txt", "tmp", "x", "c.json" };
	const struct cred c = { .uid = 1000, .gid = 1000, .pid = 2 };

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
			if (jobdir_lookup(d, &c, ROOT, rand_r(&seed) % 2 ? "a.out" : "b.status",
				    &a))
				break;
			if (jobdir_open_result(d, &c, a.ref, O_RDONLY, &j) == 0) {
				jobdir_status(d, j, &text);
				job_put(j);
			}
			jobdir_forget(d, a.ref.id, 1);
		}
		if (i % 16 == 0)
			jobdir_tidy(d);
	}
}

static void everything__in_any_order__nothing_left(void **state)
{
	static const char *const names[] = { "a.json", "b.json", "a.txt", "tmp", "x", "c.json" };

	(void)state;
	for (unsigned seed = 1; seed <= 4; seed++)
		user(seed);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		rm(&alice, names[i]);
	check_usage(0, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
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
		TEST(limits__large_file_renamed_to_a_request__efbig_and_never_runs),
		cmocka_unit_test_teardown(limits__queue__create_says_so, down),
		cmocka_unit_test_setup_teardown(limits__draining__erofs, up, NULL),
		TEST(permission__private_by_default__others_see_names_only),
		TEST(permission__folder_closed__nothing_below_is_reached),
		TEST(permission__setgid_folder__group_is_inherited),
		TEST(list__entry_by_entry_while_removing__complete),
		TEST(everything__in_any_order__nothing_left),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
