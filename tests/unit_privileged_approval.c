/* The privileged plane with approvals: what waits, what an approval does, and what the trail has of it. */
#include "core/control/privileged.h"

#include "approval_rig.h"

#include <pthread.h>

#include "core/control/audit.h"
#include "core/spool/disk.h"

static const struct cred root = { .uid = 0, .gid = 0, .pid = 1, .roles = ROLE_ROOT };
static const struct cred anna = { .uid = 1001, .gid = 7, .pid = 4, .roles = ROLE_OPERATOR };
static const struct cred ben = { .uid = 1002, .gid = 0, .pid = 5, .roles = ROLE_OPERATOR };
static const struct cred tracer = { .uid = 1001, .gid = 8, .pid = 6, .roles = ROLE_TRACE };
static const struct cred nobody = { .uid = 4000, .gid = 4000, .pid = 3 };

struct plane {
	struct approval_rig r;
	struct audit *audit;
	struct privileged_owner owner;
	struct privileged *p;
	bool busy;
	int result;
	_Atomic int acts;
	struct privileged_order last;
	char args[32];
};

static int act(void *context, const struct privileged_order *o, struct fault *f)
{
	struct plane *x = context;

	(void)f;
	if (atomic_fetch_add(&x->acts, 1) == 0) {
		x->last = *o;
		snprintf(x->args, sizeof x->args, "%s", o->args);
	}
	return x->result;
}

static bool busy(void *context)
{
	return ((struct plane *)context)->busy;
}

static int set_up(void **state)
{
	struct plane *x = calloc(1, sizeof *x);

	approval_rig_make(&x->r);
	assert_int_equal(audit_open(x->r.store, AUDIT_COMMANDS, &x->audit, NULL), 0);
	x->owner = (struct privileged_owner){ .busy = busy, .approvals = x->r.a, .context = x };
	for (int i = 0; i < PRIVILEGED_COUNT; i++)
		x->owner.act[i] = act;
	assert_int_equal(privileged_new(x->audit, &x->owner, &x->p), 0);
	*state = x;
	return 0;
}

static int tear_down(void **state)
{
	struct plane *x = *state;

	disk_watch = NULL;
	privileged_free(x->p);
	audit_close(x->audit);
	approval_rig_remove(&x->r);
	free(x);
	return 0;
}

static int add_shown(void *all, const char *line)
{
	buf_puts(all, line);
	buf_puts(all, "\n");
	return 0;
}

/* The last records are these, oldest first: command, decision and why of each; NULL-ended. */
struct expected {
	const char *command, *decision, *why;
};

static void expect_records(struct plane *x, size_t n, const struct expected *want)
{
	AUTO_BUF struct buf all = BUF_INIT;
	char member[200];
	const char *at;

	assert_int_equal(audit_show(x->r.store, AUDIT_COMMANDS, n, add_shown, &all, NULL), 0);
	at = buf_text(&all);
	for (size_t i = 0; i < n; i++) {
		const char *end = strchr(at, '\n');
		AUTO_FREE char *line = strndup(at, (size_t)(end - at));

		snprintf(member, sizeof member, "\"command\":\"%s\"", want[i].command);
		if (!strstr(line, member))
			fail_msg("no %s in %s", member, line);
		snprintf(member, sizeof member, "\"decision\":\"%s\",\"why\":\"%s\"",
			want[i].decision, want[i].why);
		if (!strstr(line, member))
			fail_msg("no %s in %s", member, line);
		at = end + 1;
	}
}

static uint64_t records(struct plane *x)
{
	AUTO_BUF struct buf all = BUF_INIT;

	assert_int_equal(audit_show(x->r.store, AUDIT_COMMANDS, 1, add_shown, &all, NULL), 0);
	return all.len ? strtoull(all.data + strlen("{\"seq\":"), NULL, 10) : 0;
}

static void ask_as(struct plane *x, const struct cred *who, const char *command,
	char ret_id[APPROVAL_ID_SIZE])
{
	struct fault f = FAULT_NONE;
	int acts = x->acts;

	assert_int_equal(privileged_run(x->p, who, command, "needed", &f), -EINPROGRESS);
	assert_int_equal(f.err, -EINPROGRESS);
	assert_int_equal(x->acts, acts);
	assert_int_equal(sscanf(f.reason, "not done yet: operation %32s waits", ret_id), 1);
	assert_true(approval_is_id(ret_id, strlen(ret_id)));
}

static void ask(struct plane *x, const char *command, char ret_id[APPROVAL_ID_SIZE])
{
	ask_as(x, &root, command, ret_id);
}

static int approve(struct plane *x, const char *id, int i, struct fault *f)
{
	AUTO_BUF struct buf line = BUF_INIT;

	approval_line(&x->r, id, i, &line);
	return privileged_approve(x->p, &root, id, line.data, f);
}

static void run__every_command__destructive_ones_wait(void **state)
{
	static const char *const commands[] = { "reset_ccu", "reset_config", "reset_device",
		"load tiny", "unload", "configure", "memory read 0 4", "memory write 0 ff",
		"register read 0 4", "register write 0 00000000", "trace start 1 2", "trace stop",
		"parallel on", "drain", "faults none", "unlock", "prepare add 00ff",
		"close callables" };
	struct plane *x = *state;

	for (int i = 0; i < PRIVILEGED_COUNT; i++) {
		const struct privileged_row *row = privileged_row((enum privileged_command)i);
		char id[APPROVAL_ID_SIZE];
		int acts = x->acts;

		if (row->destructive) {
			ask(x, commands[i], id);
			expect_records(x, 1, (struct expected[]){ { row->name, "pending", id } });
		} else {
			assert_int_equal(privileged_run(x->p, &root, commands[i], "r", NULL), 0);
			assert_int_equal(x->acts, acts + 1);
		}
	}
}

static void approve__two__runs_once_as_asked(void **state)
{
	struct plane *x = *state;
	char id[APPROVAL_ID_SIZE];
	AUTO_BUF struct buf line = BUF_INIT;
	struct fault f;

	ask(x, "memory write 0x10 00ff force", id);
	approval_line(&x->r, id, 2, &line);
	assert_int_equal(approve(x, id, 0, &f), 0);
	assert_int_equal(x->acts, 0);
	x->busy = true; /* forced */
	assert_int_equal(approve(x, id, 1, &f), 0);
	assert_int_equal(x->acts, 1);
	assert_string_equal(x->args, "0x10 00ff");
	assert_true(x->last.forced && x->last.approved);
	assert_int_equal(x->last.generation, 7);
	expect_records(x, 5,
		(struct expected[]){ { "memory write force", "pending", id },
			{ "memory write force", "approved", x->r.ids[0] },
			{ "memory write force", "approved", x->r.ids[1] },
			{ "memory write force", "intent", id },
			{ "memory write force", "done", "" } });
	assert_int_equal(privileged_approve(x->p, &root, id, line.data, &f), -EALREADY);
	expect_records(x, 1, (struct expected[]){ { "approve", "refused", "done" } });
	assert_int_equal(x->acts, 1);
}

static void approve__act_fails__told_and_audited(void **state)
{
	struct plane *x = *state;
	char id[APPROVAL_ID_SIZE];

	x->result = -ENODEV;
	ask(x, "unload", id);
	assert_int_equal(approve(x, id, 0, NULL), 0);
	assert_int_equal(approve(x, id, 1, NULL), -ENODEV);
	expect_records(x, 1, (struct expected[]){ { "unload", "failed", "ENODEV" } });
}

static void expect_refused(struct plane *x, const struct cred *who, const char *id,
	const char *line, int err, const char *why)
{
	struct fault f = FAULT_NONE;
	uint64_t before = records(x);
	int got = privileged_approve(x->p, who, id, line, &f);

	if (got != err)
		fail_msg("%s: %s, not %s", why, fault_errno_name(got), fault_errno_name(err));
	assert_int_equal(f.err, err);
	assert_true(f.reason[0] && f.action[0]);
	assert_int_equal(records(x), before + 1);
	expect_records(x, 1, (struct expected[]){ { "approve", "refused", why } });
	assert_int_equal(x->acts, 0);
}

/* Refused before it waits, by one record. */
static void expect_not_asked(struct plane *x, const char *command, int err, const char *why)
{
	uint64_t before = records(x);

	assert_int_equal(privileged_run(x->p, &root, command, "needed", NULL), err);
	assert_int_equal(records(x), before + 1);
	expect_records(x, 1, (struct expected[]){ { "memory write", "refused", why } });
}

static void approve__refused__by_one_record_each(void **state)
{
	struct plane *x = *state;
	AUTO_BUF struct buf a = BUF_INIT, b = BUF_INIT, stranger = BUF_INIT;
	char id[APPROVAL_ID_SIZE], other[APPROVAL_ID_SIZE];

	ask(x, "unload", other);
	ask(x, "unload", id);
	approval_line(&x->r, id, 0, &a);
	approval_line(&x->r, id, 1, &b);
	approval_line(&x->r, id, 3, &stranger);
	expect_refused(x, &nobody, id, a.data, -EACCES, "unauthorised");
	expect_refused(x, &root, id, "yes", -EINVAL, "line");
	expect_refused(x, &root, "../audit", a.data, -ENOENT, "unknown");
	expect_refused(x, &root, id, stranger.data, -EKEYREJECTED, "key");
	expect_refused(x, &root, other, a.data, -EBADMSG, "signature");
	assert_int_equal(privileged_approve(x->p, &root, id, a.data, NULL), 0);
	expect_refused(x, &root, id, a.data, -EEXIST, "twice");
	assert_int_equal(rename(work_path(&x->r.w, "store/approvers"),
				 work_path(&x->r.w, "store/elsewhere")),
		0);
	assert_int_equal(symlink("elsewhere", work_path(&x->r.w, "store/approvers")), 0);
	expect_refused(x, &root, id, b.data, -ELOOP, "approvers");
	assert_int_equal(unlink(work_path(&x->r.w, "store/approvers")), 0);
	expect_refused(x, &root, id, b.data, -ENOENT, "approvers");
	assert_int_equal(rename(work_path(&x->r.w, "store/elsewhere"),
				 work_path(&x->r.w, "store/approvers")),
		0);
	work_write_text(&x->r.w, "store/approvers/bad.pem", "no key");
	expect_refused(x, &root, id, b.data, -EINVAL, "approvers");
	expect_not_asked(x, "memory write 0x0 caf\xc3\xa9", -EINVAL, "text");
	x->r.generation++;
	expect_refused(x, &root, id, b.data, -ESTALE, "generation");
	x->r.now += APPROVALS_EXPIRY_NS;
	expect_refused(x, &root, id, b.data, -ESTALE, "generation");
	assert_int_equal(audit_verify(x->r.store, AUDIT_COMMANDS, &a, NULL), 0);
}

static void approve__nothing_needs_it__unsupported(void **state)
{
	struct plane *x = *state;

	privileged_free(x->p);
	x->owner.approvals = NULL;
	assert_int_equal(privileged_new(x->audit, &x->owner, &x->p), 0);
	expect_refused(x, &root, "id", "line", -EOPNOTSUPP, "unsupported");
	assert_int_equal(privileged_run(x->p, &root, "unload", "r", NULL), 0);
}

static void approve__jobs_run__last_one_can_sign_again(void **state)
{
	struct plane *x = *state;
	char id[APPROVAL_ID_SIZE];
	struct fault f;

	ask(x, "unload", id);
	assert_int_equal(approve(x, id, 0, NULL), 0);
	x->busy = true;
	assert_int_equal(approve(x, id, 1, &f), -EBUSY);
	expect_records(x, 2,
		(struct expected[]){ { "unload", "approved", x->r.ids[1] },
			{ "unload", "refused", "busy" } });
	assert_int_equal(x->acts, 0);
	x->busy = false;
	assert_int_equal(approve(x, id, 1, &f), 0);
	assert_int_equal(x->acts, 1);
}

static void run__too_often__asking_counts(void **state)
{
	struct plane *x = *state;
	char id[APPROVAL_ID_SIZE];

	for (int i = 0; i < PRIVILEGED_RESETS; i++)
		ask(x, "reset_ccu", id);
	assert_int_equal(privileged_run(x->p, &root, "reset_ccu", "r", NULL), -EAGAIN);
	expect_records(x, 1, (struct expected[]){ { "reset_ccu", "refused", "rate" } });
}

/* An operation runs with the roles of who asked for it, whoever brings the last signature. */
static void approve__by_an_operator__runs_as_it_was_asked(void **state)
{
	struct plane *x = *state;
	AUTO_BUF struct buf line = BUF_INIT;
	char id[APPROVAL_ID_SIZE];

	ask(x, "reset_device", id);
	assert_int_equal(approve(x, id, 0, NULL), 0);
	approval_line(&x->r, id, 1, &line);
	expect_refused(x, &tracer, id, line.data, -EACCES, "unauthorised");
	assert_int_equal(privileged_approve(x->p, &ben, id, line.data, NULL), 0);
	assert_int_equal(x->acts, 1);
	expect_records(x, 1, (struct expected[]){ { "reset_device", "done", "" } });
}

/* The clock comes to the end of the time between two signatures, to the nanosecond. */
static void approve__at_the_end_of_its_time__counts_before_and_not_then(void **state)
{
	struct plane *x = *state;
	AUTO_BUF struct buf line = BUF_INIT;
	char id[APPROVAL_ID_SIZE], late[APPROVAL_ID_SIZE];

	ask(x, "unload", late);
	ask(x, "unload", id);
	assert_int_equal(approve(x, late, 0, NULL), 0);
	assert_int_equal(approve(x, id, 0, NULL), 0);
	approval_line(&x->r, late, 1, &line);
	x->r.now += APPROVALS_EXPIRY_NS;
	expect_refused(x, &root, late, line.data, -ETIME, "expired");
	x->r.now -= 1; /* of the other, which nobody has looked at since */
	assert_int_equal(approve(x, id, 1, NULL), 0);
	assert_int_equal(x->acts, 1);
}

static void approve__resets_locked_meanwhile__can_be_signed_after_the_unlock(void **state)
{
	struct plane *x = *state;
	AUTO_BUF struct buf line = BUF_INIT;
	char id[APPROVAL_ID_SIZE];

	ask(x, "reset_ccu", id);
	assert_int_equal(approve(x, id, 0, NULL), 0);
	while (!privileged_locked(x->p))
		assert_true(privileged_run(x->p, &root, "reset_config", "r", NULL) < 0);
	assert_int_equal(approve(x, id, 1, NULL), -EPERM);
	expect_records(x, 1, (struct expected[]){ { "reset_ccu", "refused", "storm" } });
	assert_int_equal(x->acts, 0);
	privileged_unlock(x->p);
	assert_int_equal(approve(x, id, 1, NULL), 0);
	assert_int_equal(x->acts, 1);
}

/* --- withdrawing ------------------------------------------------------------------------------ */

static void expect_kept(struct plane *x, const struct cred *who, const char *id, int err,
	const char *why)
{
	struct fault f = FAULT_NONE;
	uint64_t before = records(x);

	assert_int_equal(privileged_withdraw(x->p, who, id, &f), err);
	assert_int_equal(f.err, err);
	assert_true(f.reason[0] && f.action[0]);
	assert_int_equal(records(x), before + 1);
	expect_records(x, 1, (struct expected[]){ { "withdraw", "refused", why } });
}

static void withdraw__by_who_asked_or_root__over_and_audited(void **state)
{
	struct plane *x = *state;
	char id[APPROVAL_ID_SIZE];

	for (int i = 0; i < 2; i++) {
		AUTO_BUF struct buf line = BUF_INIT;

		ask_as(x, &anna, "unload", id);
		assert_int_equal(approve(x, id, 0, NULL), 0);
		approval_line(&x->r, id, 1, &line);
		assert_int_equal(privileged_withdraw(x->p, i ? &root : &anna, id, NULL), 0);
		expect_records(x, 2,
			(struct expected[]){ { "withdraw", "intent", "" },
				{ "withdraw", "done", "withdrawn" } });
		assert_int_equal(privileged_approve(x->p, &root, id, line.data, NULL), -ECANCELED);
		expect_kept(x, &anna, id, -ECANCELED, "withdrawn");
	}
	assert_int_equal(x->acts, 0);
}

static void withdraw__by_others__kept(void **state)
{
	struct plane *x = *state;
	char id[APPROVAL_ID_SIZE];

	ask_as(x, &anna, "unload", id);
	expect_kept(x, &ben, id, -EPERM, "unauthorised");
	expect_kept(x, &nobody, id, -EACCES, "unauthorised");
	expect_kept(x, &tracer, id, -EACCES, "unauthorised"); /* who asked, without the role */
	expect_kept(x, &root, "../audit", -ENOENT, "unknown");
	assert_int_equal(approve(x, id, 0, NULL), 0);
	assert_int_equal(approve(x, id, 1, NULL), 0);
	assert_int_equal(x->acts, 1);
	expect_kept(x, &root, id, -EALREADY, "done");
}

static int no_disk(enum disk_call call, int fd, const char *name)
{
	(void)call, (void)fd, (void)name;
	return -EIO;
}

static void withdraw__not_audited__kept(void **state)
{
	struct plane *x = *state;
	char id[APPROVAL_ID_SIZE];

	ask(x, "unload", id);
	disk_watch = no_disk;
	assert_int_equal(privileged_withdraw(x->p, &root, id, NULL), -EIO);
	disk_watch = NULL;
	assert_int_equal(approve(x, id, 0, NULL), 0);
	assert_int_equal(approve(x, id, 1, NULL), 0);
	assert_int_equal(x->acts, 1);
}

/* --- the trail fails -------------------------------------------------------------------------- */

static int writes, last_good;

static int writes_fail(enum disk_call call, int fd, const char *name)
{
	(void)fd, (void)name;
	return call == DISK_WRITE && writes++ >= last_good ? -ENOSPC : 0;
}

/* The disk is full from write N on, for each N: what is not in the trail did not happen. */
static void approve__disk_full_at_each_write__never_done_unaudited(void **state)
{
	struct plane *x = *state;
	char id[APPROVAL_ID_SIZE];
	struct approvals_item ids[APPROVALS_PENDING_MAX];
	int err = -EIO;

	last_good = writes = 0;
	disk_watch = writes_fail;
	assert_int_equal(privileged_run(x->p, &root, "unload", "r", NULL), -EIO);
	disk_watch = NULL;
	assert_int_equal(approvals_list(x->r.a, ids), 0);
	ask(x, "unload", id);
	assert_int_equal(approve(x, id, 0, NULL), 0);
	for (last_good = 0; err == -EIO; last_good++) {
		struct fault f = FAULT_NONE;
		bool done;

		assert_true(last_good < 20);
		writes = 0;
		disk_watch = writes_fail;
		err = approve(x, id, 1, &f);
		disk_watch = NULL;
		done = err == 0 || strstr(f.reason, "WAS carried out");
		assert_int_equal(x->acts, done);
		if (done)
			break;
	}
	assert_true(last_good >= 2);
	assert_int_equal(x->acts, 1);
}

/* --- threads ---------------------------------------------------------------------------------- */

struct racer {
	struct plane *x;
	const char *id;
	struct buf line;
	int err;
};

static void *race(void *context)
{
	struct racer *r = context;

	r->err = privileged_approve(r->x->p, &root, r->id, r->line.data, NULL);
	return NULL;
}

static void approve__threads_at_once__done_once(void **state)
{
	struct plane *x = *state;
	char id[APPROVAL_ID_SIZE];

	for (int round = 0; round < 12; round++) {
		struct racer r[3];
		pthread_t threads[3];
		int good = 0;

		ask(x, "unload", id);
		for (int i = 0; i < 3; i++) {
			r[i] = (struct racer){ .x = x, .id = id };
			approval_line(&x->r, id, i, &r[i].line);
		}
		for (int i = 0; i < 3; i++)
			assert_int_equal(pthread_create(&threads[i], NULL, race, &r[i]), 0);
		for (int i = 0; i < 3; i++) {
			assert_int_equal(pthread_join(threads[i], NULL), 0);
			assert_true(r[i].err == 0 || r[i].err == -EALREADY);
			good += r[i].err == 0;
			buf_done(&r[i].line);
		}
		assert_int_equal(good, 2);
		assert_int_equal(x->acts, round + 1);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(run__every_command__destructive_ones_wait),
		TEST(approve__two__runs_once_as_asked),
		TEST(approve__act_fails__told_and_audited),
		TEST(approve__refused__by_one_record_each),
		TEST(approve__nothing_needs_it__unsupported),
		TEST(approve__jobs_run__last_one_can_sign_again),
		TEST(run__too_often__asking_counts),
		TEST(approve__by_an_operator__runs_as_it_was_asked),
		TEST(approve__at_the_end_of_its_time__counts_before_and_not_then),
		TEST(approve__resets_locked_meanwhile__can_be_signed_after_the_unlock),
		TEST(withdraw__by_who_asked_or_root__over_and_audited),
		TEST(withdraw__by_others__kept),
		TEST(withdraw__not_audited__kept),
		TEST(approve__disk_full_at_each_write__never_done_unaudited),
		TEST(approve__threads_at_once__done_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
