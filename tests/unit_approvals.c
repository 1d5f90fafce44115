/* Operations that wait for approval: who may sign, what was signed, and when it is over. */
#include "core/control/approvals.h"

#include "approval_rig.h"

#include <pthread.h>

#include "core/spool/disk.h"

static int set_up(void **state)
{
	struct approval_rig *x = calloc(1, sizeof *x);

	approval_rig_make(x);
	*state = x;
	return 0;
}

static int tear_down(void **state)
{
	struct approval_rig *x = *state;

	disk_watch = NULL;
	approval_rig_remove(x);
	free(x);
	return 0;
}

static void submit(struct approval_rig *x, char ret_id[APPROVAL_ID_SIZE])
{
	struct fault f = FAULT_NONE;

	if (approvals_submit(x->a, &reset, ret_id, &f))
		fail_msg("approvals_submit: %s", f.reason);
}

static int sign_line(struct approval_rig *x, const char *id, const struct buf *line, bool *complete)
{
	struct fault f = FAULT_NONE;
	struct approval what;
	int err = approvals_sign(x->a, id, buf_text(line), line->len, NULL, NULL, &what, &f);

	assert_true(!err == !f.err && f.err == err);
	assert_true(!err || (f.reason[0] && f.action[0] && !what.complete));
	if (complete)
		*complete = what.complete;
	return err;
}

/* Key `i` signs what is shown. */
static int sign(struct approval_rig *x, const char *id, int i, bool *complete)
{
	AUTO_BUF struct buf line = BUF_INIT;

	approval_line(x, id, i, &line);
	return sign_line(x, id, &line, complete);
}

static void text_of(struct approval_rig *x, const char *id, struct buf *ret)
{
	buf_reset(ret);
	assert_int_equal(approvals_text(x->a, id, ret, NULL), 0);
}

/* --- the text --------------------------------------------------------------------------------- */

static void text__submitted__says_all_of_it(void **state)
{
	struct approval_rig *x = *state;
	AUTO_BUF struct buf text = BUF_INIT;
	char id[APPROVAL_ID_SIZE], store[40], daemon[40], operation[40], asked[40], expires[40];
	char again[1024];

	submit(x, id);
	text_of(x, id, &text);
	assert_int_equal(sscanf(text.data,
				 "npufs-approval-request-1\nstore: %39s\ndaemon: %39s\n"
				 "generation: 7\noperation: %39s\ncommand: reset_device force\n"
				 "effect: reset it; jobs that run then fail\nreason: stuck since "
				 "noon\nasked by: uid 0 gid "
				 "5 pid 77 loginuid "
				 "1000\nasked at: %39s\nexpires: %39s\n",
				 store, daemon, operation, asked, expires),
		5);
	snprintf(again, sizeof again,
		"npufs-approval-request-1\nstore: %s\ndaemon: %s\ngeneration: 7\noperation: %s\n"
		"command: reset_device force\neffect: reset it; jobs that run then fail\nreason: "
		"stuck since noon\n"
		"asked by: uid 0 gid 5 pid 77 loginuid 1000\nasked at: %s\nexpires: %s\n"
		"approvers: 2\nend of what is signed\n",
		store, daemon, id, asked, expires);
	assert_string_equal(text.data, again);
	assert_true(approval_is_id(store, strlen(store)) && approval_is_id(daemon, strlen(daemon)));
	assert_string_not_equal(store, daemon);
	assert_string_not_equal(asked, expires);
	assert_int_equal(sign(x, id, 1, NULL), 0);
	text_of(x, id, &text);
	snprintf(again + strlen(again), 64, "signed by %s\n", x->ids[1]);
	assert_string_equal(text.data, again);
}

static void submit__what_could_not_be_shown__refused(void **state)
{
	static const char *const bad[] = { "load a\nreason: fine", "load \x1b[2J", "load \xc3\xa9",
		"load a\tb", "" };
	struct approval_rig *x = *state;
	struct approvals_order order = reset;
	char id[APPROVAL_ID_SIZE], big[APPROVAL_TEXT_MAX + 10];

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		order.command = bad[i];
		assert_int_equal(approvals_submit(x->a, &order, id, NULL), -EINVAL);
	}
	order.command = "unload";
	order.reason = "a\nb";
	assert_int_equal(approvals_submit(x->a, &order, id, NULL), -EINVAL);
	order.reason = "";
	assert_int_equal(approvals_submit(x->a, &order, id, NULL), -EINVAL);
	memset(big, 'x', sizeof big);
	for (size_t n = APPROVAL_TEXT_MAX - 400; n < sizeof big; n += 100) {
		AUTO_BUF struct buf text = BUF_INIT;
		struct fault f = FAULT_NONE;
		int err;

		big[n] = '\0';
		order.command = big;
		order.reason = "r";
		err = approvals_submit(x->a, &order, id, &f);
		assert_true(err == 0 || (err == -E2BIG && f.err == -E2BIG));
		assert_true(n < APPROVAL_TEXT_MAX || err);
		if (!err) {
			text_of(x, id, &text);
			assert_true(text.len <= APPROVAL_TEXT_MAX && strstr(text.data, big));
			assert_int_equal(sign(x, id, 0, NULL), 0);
		}
		big[n] = 'x';
	}
}

static void text_get__any_change__refused_or_another_text(void **state)
{
	struct approval_rig *x = *state;
	AUTO_BUF struct buf text = BUF_INIT;
	char id[APPROVAL_ID_SIZE], got[APPROVAL_ID_SIZE];
	size_t n;

	submit(x, id);
	text_of(x, id, &text);
	for (size_t i = 0; i < text.len; i++) {
		assert_non_null(approval_text_get(text.data, i, got, &n)); /* cut */
		for (int bit = 0; bit < 8; bit++) {
			text.data[i] ^= (char)(1 << bit);
			if (!approval_text_get(text.data, text.len, got, &n))
				assert_int_equal(n, text.len);
			text.data[i] ^= (char)(1 << bit);
		}
	}
	text.data[strlen("npufs-approval-request-1\nstore: 0123")] = '\0';
	assert_non_null(approval_text_get(text.data, text.len, got, &n));
}

/* --- signing ---------------------------------------------------------------------------------- */

static void sign__two_different__second_completes(void **state)
{
	struct approval_rig *x = *state;
	AUTO_BUF struct buf line = BUF_INIT;
	char id[APPROVAL_ID_SIZE];
	struct approval what;
	bool complete = true;

	submit(x, id);
	assert_int_equal(sign(x, id, 0, &complete), 0);
	assert_false(complete);
	assert_int_equal(sign(x, id, 0, &complete), -EEXIST);
	assert_int_equal(sign(x, id, 3, &complete), -EKEYREJECTED);
	approval_line(x, id, 2, &line);
	line.len--; /* the newline is no part of it */
	assert_int_equal(approvals_sign(x->a, id, line.data, line.len, NULL, NULL, &what, NULL), 0);
	assert_true(what.complete);
	assert_string_equal(what.key, x->ids[2]);
	assert_string_equal(what.command, "reset_device force");
	assert_string_equal(what.reason, "stuck since noon");
	assert_int_equal(what.who.pid, 77);
	assert_int_equal(what.generation, 7);
	assert_int_equal(sign_line(x, id, &line, NULL), -EALREADY);
	assert_int_equal(approvals_text(x->a, id, &line, NULL), -EALREADY);
}

static void sign__any_byte_flipped__refused(void **state)
{
	struct approval_rig *x = *state;
	AUTO_BUF struct buf line = BUF_INIT;
	char id[APPROVAL_ID_SIZE];

	submit(x, id);
	approval_line(x, id, 0, &line);
	for (size_t i = 0; i < line.len; i++)
		for (int bit = 0; bit < 8; bit++) {
			int err;

			line.data[i] ^= (char)(1 << bit);
			err = sign_line(x, id, &line, NULL);
			if (err != -EINVAL && err != -EBADMSG && err != -EKEYREJECTED)
				fail_msg("byte %zu bit %d: %d", i, bit, err);
			line.data[i] ^= (char)(1 << bit);
		}
	for (size_t n = 0; n + 1 < line.len; n++) {
		struct buf cut = { line.data, n, n, false };
		struct approval what;

		assert_int_equal(approvals_sign(x->a, id, cut.data, n, NULL, NULL, &what, NULL),
			-EINVAL);
	}
	assert_int_equal(sign_line(x, id, &line, NULL), 0); /* nothing of it counted */
}

/* A signature of `line` over another text never counts. */
static void sign__replayed__refused(void **state)
{
	struct approval_rig *x = *state;
	AUTO_BUF struct buf one = BUF_INIT, text = BUF_INIT, manifest = BUF_INIT;
	char first[APPROVAL_ID_SIZE], second[APPROVAL_ID_SIZE];
	struct approval_rig other = { .a = NULL };

	submit(x, first);
	approval_line(x, first, 0, &one);
	submit(x, second);
	assert_string_not_equal(first, second);
	assert_int_equal(sign_line(x, second, &one, NULL), -EBADMSG); /* of an earlier one */
	text_of(x, second, &text); /* edited: another command under the same id */
	memcpy(strstr(text.data, "reset_device"), "reset_devicf", 12);
	assert_int_equal(signature_put(APPROVAL_WORD, x->keys[0], text.data, text.len, &manifest),
		0);
	assert_int_equal(sign_line(x, second, &manifest, NULL), -EBADMSG);
	approvals_again(x); /* after a restart */
	assert_int_equal(sign_line(x, first, &one, NULL), -ENOENT);
	submit(x, second);
	assert_int_equal(sign_line(x, second, &one, NULL), -EBADMSG);
	approval_rig_make(&other); /* in another store, with the same approvers */
	for (int i = 0; i < 3; i++) {
		key_free(other.keys[i]);
		other.keys[i] = x->keys[i];
		approval_add_key(&other, i);
	}
	submit(&other, second);
	assert_int_equal(sign_line(&other, second, &one, NULL), -EBADMSG);
	assert_int_equal(sign(&other, second, 0, NULL), 0);
	for (int i = 0; i < 3; i++)
		other.keys[i] = NULL;
	approval_rig_remove(&other);
}

static void open__again__same_store_other_daemon(void **state)
{
	struct approval_rig *x = *state;
	AUTO_BUF struct buf one = BUF_INIT, two = BUF_INIT;
	const size_t store = strlen("npufs-approval-request-1\nstore: "), daemon = store + 32 + 9;
	char id[APPROVAL_ID_SIZE];

	submit(x, id);
	text_of(x, id, &one);
	approvals_again(x);
	submit(x, id);
	text_of(x, id, &two);
	assert_memory_equal(one.data + store, two.data + store, 32);
	assert_memory_not_equal(one.data + daemon, two.data + daemon, 32);
	assert_int_equal(work_mode(&x->w, "store/id"), 0644);
}

static void open__store_id_spoiled__refused(void **state)
{
	static const char *const bad[] = { "", "short\n", "0123456789abcdef0123456789abcdeX\n",
		"0123456789abcdef0123456789abcdef", "0123456789abcdef0123456789abcdef\n\n" };
	struct approval_rig *x = *state;
	struct approvals *a = NULL;
	struct fault f;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		work_write_text(&x->w, "store/id", bad[i]);
		assert_int_equal(approvals_open(x->store, &x->owner, &a, &f), -EBADMSG);
	}
	work_write_text(&x->w, "store/id", "0123456789abcdef0123456789abcdef\n");
	assert_int_equal(chmod(work_path(&x->w, "store/id"), 0666), 0);
	assert_int_equal(approvals_open(x->store, &x->owner, &a, &f), -EPERM);
	assert_int_equal(unlink(work_path(&x->w, "store/id")), 0);
	assert_int_equal(symlink("trust/id", work_path(&x->w, "store/id")), 0);
	assert_int_equal(approvals_open(x->store, &x->owner, &a, &f), -ELOOP);
	assert_int_equal(approvals_open(work_path(&x->w, "nothing"), &x->owner, &a, &f), -ENOENT);
	assert_null(a);
}

/* --- the folder ------------------------------------------------------------------------------- */

static void sign__folder_not_to_be_trusted__refused(void **state)
{
	struct approval_rig *x = *state;
	AUTO_BUF struct buf line = BUF_INIT;
	const char *folder = "store/approvers";
	char id[APPROVAL_ID_SIZE];

	submit(x, id);
	approval_line(x, id, 0, &line);
	assert_int_equal(rename(work_path(&x->w, folder), work_path(&x->w, "store/real")), 0);
	assert_int_equal(sign_line(x, id, &line, NULL), -ENOENT);
	assert_int_equal(symlink("real", work_path(&x->w, folder)), 0);
	assert_int_equal(sign_line(x, id, &line, NULL), -ELOOP);
	assert_int_equal(unlink(work_path(&x->w, folder)), 0);
	assert_int_equal(rename(work_path(&x->w, "store/real"), work_path(&x->w, folder)), 0);
	assert_int_equal(chmod(work_path(&x->w, folder), 0777), 0);
	assert_int_equal(sign_line(x, id, &line, NULL), -EPERM);
	assert_int_equal(chmod(work_path(&x->w, folder), 0755), 0);
	work_write_text(&x->w, "store/approvers/z.pem", "no key");
	assert_int_equal(sign_line(x, id, &line, NULL), -EINVAL);
	assert_int_equal(unlink(work_path(&x->w, "store/approvers/z.pem")), 0);
	assert_int_equal(symlink("a.pem", work_path(&x->w, "store/approvers/z.pem")), 0);
	assert_int_equal(sign_line(x, id, &line, NULL), -ELOOP);
	assert_int_equal(unlink(work_path(&x->w, "store/approvers/z.pem")), 0);
	assert_int_equal(sign_line(x, id, &line, NULL), 0);
}

/* Who can sign leaves the private half elsewhere; here it is none. */
static void sign__private_key_among_the_approvers__refused(void **state)
{
	struct approval_rig *x = *state;
	AUTO_BUF struct buf line = BUF_INIT, pem = BUF_INIT;
	char id[APPROVAL_ID_SIZE];

	submit(x, id);
	approval_line(x, id, 0, &line);
	assert_int_equal(key_private_pem(x->keys[1], &pem), 0);
	work_write(&x->w, "store/approvers/b.pem", pem.data, pem.len);
	assert_int_equal(sign_line(x, id, &line, NULL), -EINVAL);
}

/* Two files of one key are one approver; who has left is none. */
static void sign__folder_changes__read_each_time(void **state)
{
	struct approval_rig *x = *state;
	AUTO_BUF struct buf pem = BUF_INIT;
	char id[APPROVAL_ID_SIZE];
	bool complete;

	work_read(&x->w, "store/approvers/a.pem", &pem);
	work_write(&x->w, "store/approvers/a2.pem", pem.data, pem.len);
	submit(x, id);
	assert_int_equal(sign(x, id, 0, NULL), 0);
	assert_int_equal(sign(x, id, 0, NULL), -EEXIST);
	assert_int_equal(unlink(work_path(&x->w, "store/approvers/a2.pem")), 0);
	assert_int_equal(unlink(work_path(&x->w, "store/approvers/a.pem")), 0);
	assert_int_equal(sign(x, id, 1, &complete), 0);
	assert_false(complete); /* the first has left */
	approval_add_key(x, 3);
	assert_int_equal(sign(x, id, 3, &complete), 0);
	assert_true(complete);
}

/* --- when it is over -------------------------------------------------------------------------- */

static void sign__expired__refused(void **state)
{
	struct approval_rig *x = *state;
	AUTO_BUF struct buf line = BUF_INIT;
	char id[APPROVAL_ID_SIZE];
	struct approvals_item ids[APPROVALS_PENDING_MAX];

	submit(x, id);
	approval_line(x, id, 1, &line);
	assert_int_equal(sign(x, id, 0, NULL), 0);
	x->now += 15 * 60 * NS_PER_SEC - 1;
	assert_int_equal(approvals_list(x->a, ids), 1);
	x->now += 1;
	assert_int_equal(sign_line(x, id, &line, NULL), -ETIME);
	assert_int_equal(approvals_list(x->a, ids), 0);
	x->now -= NS_PER_SEC; /* over is over */
	assert_int_equal(sign_line(x, id, &line, NULL), -ETIME);
	x->owner.expiry_ns = 10;
	approvals_again(x);
	submit(x, id);
	x->now += 9;
	assert_int_equal(sign(x, id, 0, NULL), 0);
	x->now += 1;
	assert_int_equal(sign_line(x, id, &line, NULL), -ETIME);
}

static void sign__another_generation__void_for_good(void **state)
{
	struct approval_rig *x = *state;
	AUTO_BUF struct buf line = BUF_INIT;
	char id[APPROVAL_ID_SIZE];

	submit(x, id);
	approval_line(x, id, 0, &line);
	x->generation++;
	assert_int_equal(sign_line(x, id, &line, NULL), -ESTALE);
	x->generation--;
	assert_int_equal(sign_line(x, id, &line, NULL), -ESTALE);
	assert_int_equal(approvals_withdraw(x->a, id), -ENOENT);
}

static void sign__withdrawn__refused(void **state)
{
	struct approval_rig *x = *state;
	AUTO_BUF struct buf line = BUF_INIT;
	char id[APPROVAL_ID_SIZE];

	submit(x, id);
	approval_line(x, id, 0, &line);
	assert_int_equal(approvals_withdraw(x->a, id), 0);
	assert_int_equal(sign_line(x, id, &line, NULL), -ECANCELED);
	assert_int_equal(approvals_withdraw(x->a, id), -ENOENT);
	assert_int_equal(approvals_withdraw(x->a, "none"), -ENOENT);
	assert_int_equal(sign_line(x, "none", &line, NULL), -ENOENT);
	assert_int_equal(sign_line(x, "", &line, NULL), -ENOENT);
}

static int refuses(void *context, const struct approval *what)
{
	assert_false(what->complete);
	return *(int *)context;
}

static void sign__witness_fails__does_not_count(void **state)
{
	struct approval_rig *x = *state;
	AUTO_BUF struct buf line = BUF_INIT;
	char id[APPROVAL_ID_SIZE];
	struct approval what;
	int err = -ENOSPC;

	submit(x, id);
	approval_line(x, id, 0, &line);
	assert_int_equal(approvals_sign(x->a, id, line.data, line.len, refuses, &err, &what, NULL),
		-ENOSPC);
	err = 0;
	assert_int_equal(approvals_sign(x->a, id, line.data, line.len, refuses, &err, &what, NULL),
		0);
}

static void reopen__complete__needs_that_key_again(void **state)
{
	struct approval_rig *x = *state;
	char id[APPROVAL_ID_SIZE];
	bool complete;

	submit(x, id);
	assert_int_equal(sign(x, id, 0, NULL), 0);
	approvals_reopen(x->a, id, x->ids[0]); /* not complete: nothing */
	assert_int_equal(sign(x, id, 1, &complete), 0);
	assert_true(complete);
	approvals_reopen(x->a, id, x->ids[1]);
	assert_int_equal(sign(x, id, 0, &complete), -EEXIST);
	assert_int_equal(sign(x, id, 1, &complete), 0);
	assert_true(complete);
}

static void submit__too_many__refused_and_oldest_forgotten(void **state)
{
	struct approval_rig *x = *state;
	struct approvals_item ids[APPROVALS_PENDING_MAX];
	char all[200][APPROVAL_ID_SIZE], id[40];
	AUTO_BUF struct buf line = BUF_INIT;

	for (int i = 0; i < APPROVALS_PENDING_MAX; i++)
		submit(x, all[i]);
	assert_int_equal(approvals_submit(x->a, &reset, id, NULL), -EAGAIN);
	assert_int_equal(approvals_list(x->a, ids), APPROVALS_PENDING_MAX);
	for (int i = 0; i < APPROVALS_PENDING_MAX; i++)
		assert_string_equal(ids[i].id, all[i]);
	approval_line(x, all[0], 0, &line);
	for (int i = 0; i < 70; i++) {
		assert_int_equal(approvals_withdraw(x->a, all[i]), 0);
		submit(x, all[APPROVALS_PENDING_MAX + i]);
	}
	assert_int_equal(sign_line(x, all[0], &line, NULL), -ENOENT); /* long ago */
	assert_int_equal(sign_line(x, all[69], &line, NULL), -ECANCELED);
	x->now += APPROVALS_EXPIRY_NS;
	submit(x, id);
	assert_int_equal(approvals_list(x->a, ids), 1);
}

/* --- threads ---------------------------------------------------------------------------------- */

#define ROUNDS 60

struct racer {
	struct approval_rig *x;
	char id[APPROVAL_ID_SIZE];
	struct buf line;
	int64_t expires_at; /* time is put there before signing; 0: not */
	int err;
	bool complete;
};

static void *race(void *context)
{
	struct racer *r = context;
	struct approval what;

	if (r->expires_at)
		atomic_store(&r->x->now, r->expires_at);
	r->err = approvals_sign(r->x->a, r->id, r->line.data, r->line.len, NULL, NULL, &what, NULL);
	r->complete = what.complete;
	return NULL;
}

/* b and c sign at once while a has, and one of them turns the clock: one outcome. */
static void sign__threads_while_it_expires__exactly_one_outcome(void **state)
{
	struct approval_rig *x = *state;
	int completed = 0;

	for (int round = 0; round < ROUNDS; round++) {
		const int64_t start = x->now, expiry = start + APPROVALS_EXPIRY_NS;
		struct racer r[2] = { { .x = x }, { .x = x } };
		pthread_t threads[2];
		bool some;

		submit(x, r[0].id);
		strcpy(r[1].id, r[0].id);
		assert_int_equal(sign(x, r[0].id, 0, NULL), 0);
		for (int i = 0; i < 2; i++)
			approval_line(x, r[i].id, 1 + i, &r[i].line);
		r[round % 2].expires_at = round % 3 ? expiry : 0;
		for (int i = 0; i < 2; i++)
			assert_int_equal(pthread_create(&threads[i], NULL, race, &r[i]), 0);
		for (int i = 0; i < 2; i++)
			assert_int_equal(pthread_join(threads[i], NULL), 0);
		assert_false(r[0].complete && r[1].complete);
		some = r[0].complete || r[1].complete;
		completed += some;
		for (int i = 0; i < 2; i++) {
			int other = some ? -EALREADY : -ETIME;

			assert_int_equal(r[i].err, r[i].complete ? 0 : other);
			buf_done(&r[i].line);
		}
		assert_true(some || round % 3);
		assert_int_equal(approvals_text(x->a, r[0].id, &r[0].line, NULL),
			some ? -EALREADY : -ETIME);
	}
	assert_true(completed >= ROUNDS / 3);
}

/* --- the disk --------------------------------------------------------------------------------- */

static int step_that_fails, steps;

static int fail_one(enum disk_call call, int fd, const char *name)
{
	(void)fd, (void)name;
	if (call == DISK_UNLINK)
		return 0;
	return steps++ == step_that_fails ? -ENOSPC : 0;
}

static void open__disk_full_at_each_step__whole_id_or_none(void **state)
{
	struct approval_rig *x = *state;
	struct approvals *a = NULL;
	AUTO_BUF struct buf b = BUF_INIT;
	struct fault f;
	int err = -1;

	for (step_that_fails = 0; err; step_that_fails++) {
		assert_true(step_that_fails < 20);
		unlink(work_path(&x->w, "store/id"));
		steps = 0;
		disk_watch = fail_one;
		err = approvals_open(x->store, &x->owner, &a, &f);
		disk_watch = NULL;
		if (work_has(&x->w, "store/id")) {
			buf_reset(&b);
			work_read(&x->w, "store/id", &b);
			assert_int_equal(b.len, APPROVAL_ID_SIZE);
		}
		assert_true(!err || (err == -ENOSPC && f.err == err));
	}
	assert_true(step_that_fails >= 5);
	approvals_close(a);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(text__submitted__says_all_of_it),
		TEST(submit__what_could_not_be_shown__refused),
		TEST(text_get__any_change__refused_or_another_text),
		TEST(sign__two_different__second_completes),
		TEST(sign__any_byte_flipped__refused),
		TEST(sign__replayed__refused),
		TEST(open__again__same_store_other_daemon),
		TEST(open__store_id_spoiled__refused),
		TEST(sign__folder_not_to_be_trusted__refused),
		TEST(sign__private_key_among_the_approvers__refused),
		TEST(sign__folder_changes__read_each_time),
		TEST(sign__expired__refused),
		TEST(sign__another_generation__void_for_good),
		TEST(sign__withdrawn__refused),
		TEST(sign__witness_fails__does_not_count),
		TEST(reopen__complete__needs_that_key_again),
		TEST(submit__too_many__refused_and_oldest_forgotten),
		TEST(sign__threads_while_it_expires__exactly_one_outcome),
		TEST(open__disk_full_at_each_step__whole_id_or_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
