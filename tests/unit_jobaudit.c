/* The audit trail of jobs: what a record holds, batches, losses, the oldest file. */
#include "core/control/jobaudit.h"

#include "audit_rig.h"

#include <stdatomic.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/control/audit_line.h"
#include "core/engine/metrics.h"

#define ONE "1111111111111111111111111111111111111111111111111111111111111111"
#define TWO "2222222222222222222222222222222222222222222222222222222222222222"

struct fixture {
	struct work w;
	char store[WORK_PATH_SIZE];
};

static struct audit_job job_of(uint64_t number)
{
	return (struct audit_job){ .ended = 1769860800 * NS_PER_SEC,
		.job = number,
		.uid = 1000,
		.gid = 100,
		.request = ONE,
		.model = TWO,
		.prompt_tokens = 12,
		.verdict = "cancelled",
		.error = "ECANCELED" };
}

static void start(struct fixture *x)
{
	assert_int_equal(jobaudit_start(x->store), 0);
}

static void end_some(uint64_t from, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		struct audit_job r = job_of(from + i);

		jobaudit_ended(&r);
	}
}

static void show(struct fixture *x, struct buf *ret)
{
	struct fault f = FAULT_NONE;

	buf_reset(ret);
	if (audit_show(x->store, AUDIT_JOBS, UINT64_MAX, add_shown, ret, &f))
		fail_msg("audit_show: %s", f.reason);
}

static void sound(struct fixture *x, const char *found)
{
	AUTO_BUF struct buf out = BUF_INIT;
	struct fault f = FAULT_NONE;

	if (audit_verify(x->store, AUDIT_JOBS, &out, &f))
		fail_msg("audit_verify: %s", f.reason);
	if (!strstr(buf_text(&out), found))
		fail_msg("found \"%s\", not \"%s\"", buf_text(&out), found);
}

/* The value after `key` in the line of that job. */
static uint64_t number_of(const struct buf *all, uint64_t job, const char *key)
{
	char text[64];
	const char *line, *at;

	snprintf(text, sizeof text, "\"job\":%llu,", (unsigned long long)job);
	line = strstr(buf_text(all), text);
	assert_non_null(line);
	at = strstr(line, key);
	assert_non_null(at);
	return strtoull(at + strlen(key), NULL, 10);
}

static uint64_t metric_lost(void)
{
	AUTO_BUF struct buf all = BUF_INIT;
	const char *at;

	metrics_render(&all);
	at = strstr(buf_text(&all), "\nnpufs_job_audit_lost_total ");
	assert_non_null(at);
	return strtoull(strchr(at, ' '), NULL, 10);
}

/* --- records ---------------------------------------------------------------------------------- */

static void ended__two_jobs__exactly_their_digests(void **state)
{
	struct fixture *x = *state;
	AUTO_BUF struct buf all = BUF_INIT;
	struct audit_job done = job_of(8), cancelled = job_of(9);
	static const char first[] =
		"{\"seq\":1,\"time\":\"2026-01-31T12:00:00.000Z\",\"job\":8,\"uid\":1000,\"gid\":"
		"100,"
		"\"request_sha256\":\"" ONE "\",\"model_sha256\":\"" TWO
		"\",\"output_sha256\":\"" ONE
		"\",\"prompt_tokens\":12,\"output_tokens\":5,\"verdict\":\"done\",\"error\":\"\","
		"\"lost\":0,\"prev\":\"" AUDIT_NO_HASH "\",\"hash\":\"";
	static const char second[] =
		"\"job\":9,\"uid\":1000,\"gid\":100,\"request_sha256\":null,\"model_sha256\":\"" TWO
		"\",\"output_sha256\":null,\"prompt_tokens\":12,\"output_tokens\":0,"
		"\"verdict\":\"cancelled\",\"error\":\"ECANCELED\",\"lost\":0,\"prev\":\"";

	strcpy(done.output, ONE);
	done.output_tokens = 5;
	done.verdict = "done";
	done.error = "";
	cancelled.request[0] = '\0';
	start(x);
	jobaudit_ended(&done);
	jobaudit_ended(&cancelled);
	jobaudit_stop();
	show(x, &all);
	assert_memory_equal(buf_text(&all), first, strlen(first));
	assert_non_null(strstr(buf_text(&all), second));
	sound(x, "records 1 to 3 in 1 files"); /* and the checkpoint at the end */
	sound(x, "signed up to record 3");
}

static void ended__not_running__nothing(void **state)
{
	struct fixture *x = *state;

	end_some(1, 1);
	assert_false(work_has(&x->w, "store/audit-jobs"));
	jobaudit_stop();
}

static void start__again__the_chain_goes_on(void **state)
{
	struct fixture *x = *state;

	for (int i = 0; i < 3; i++) {
		start(x);
		end_some((uint64_t)i * 2, 2);
		jobaudit_stop();
	}
	sound(x, "records 1 to 9 in 1 files");
	assert_int_equal(work_mode(&x->w, "store/audit-jobs"), 0700);
	assert_int_equal(work_mode(&x->w, "store/audit-jobs/00000001.jsonl"), 0600);
}

static void verify__changed_record__broken_and_which_trail(void **state)
{
	struct fixture *x = *state;
	AUTO_BUF struct buf b = BUF_INIT, out = BUF_INIT;
	struct fault f = FAULT_NONE;

	start(x);
	end_some(1, 3);
	jobaudit_stop();
	work_read(&x->w, "store/audit-jobs/00000001.jsonl", &b);
	memcpy(strstr(b.data, "\"uid\":1000"), "\"uid\":2000", 10);
	work_write(&x->w, "store/audit-jobs/00000001.jsonl", b.data, b.len);
	assert_int_equal(audit_verify(x->store, AUDIT_JOBS, &out, &f), -EBADMSG);
	assert_non_null(strstr(f.reason,
		"audit-jobs: the audit trail is broken in 00000001.jsonl, "
		"line 1: "));
	assert_int_equal(audit_verify(x->store, AUDIT_COMMANDS, &out, &f), 0);
}

/* A record of the one trail is none of the other. */
static void verify__record_of_commands_in_it__broken(void **state)
{
	struct fixture *x = *state;
	AUTO_BUF struct buf out = BUF_INIT;
	struct fault f = FAULT_NONE;
	struct audit *a;

	assert_int_equal(audit_open(x->store, AUDIT_COMMANDS, &a, &f), 0);
	assert_int_equal(audit_write(a, &sample), 0);
	audit_close(a);
	assert_int_equal(rename(work_path(&x->w, "store/audit"), work_path(&x->w, "store/away")),
		0);
	assert_int_equal(rename(work_path(&x->w, "store/away"),
				 work_path(&x->w, "store/audit-jobs")),
		0);
	assert_int_equal(audit_verify(x->store, AUDIT_JOBS, &out, &f), -EBADMSG);
	assert_non_null(strstr(f.reason, "line 1: it is not a record"));
}

/* --- batches ---------------------------------------------------------------------------------- */

static atomic_int n_writes, n_syncs;
static atomic_bool held, holds; /* the disk is to hold a write; it does */
static atomic_int disk_err;

static int watch(enum disk_call call, int fd, const char *name)
{
	(void)fd, (void)name;
	atomic_fetch_add(&n_syncs, call == DISK_FSYNC);
	if (call != DISK_WRITE)
		return 0;
	atomic_fetch_add(&n_writes, 1);
	while (atomic_load(&held)) {
		atomic_store(&holds, true);
		usleep(1000);
	}
	atomic_store(&holds, false);
	return atomic_load(&disk_err);
}

static void wait_until_held(void)
{
	while (!atomic_load(&holds))
		usleep(1000);
}

static void ended__many_at_once__one_sync_for_them_all(void **state)
{
	struct fixture *x = *state;

	start(x);
	jobaudit_stop(); /* the folder and its keys are there */
	atomic_store(&held, true);
	disk_watch = watch;
	start(x);
	end_some(0, 1);
	wait_until_held();
	end_some(1, 500);
	atomic_store(&held, false);
	jobaudit_stop();
	disk_watch = NULL;
	/* One record, the 500, the checkpoint at the end: each time what is written, then the head. */
	assert_int_equal(atomic_load(&n_writes), 3 * 2);
	assert_int_equal(atomic_load(&n_syncs), 3 * 3 + 1); /* the head's folder; once the file's */
	sound(x, "records 1 to 502 in 1 files");
}

static void ended__more_than_a_file__goes_on_in_the_next(void **state)
{
	struct fixture *x = *state;

	start(x);
	end_some(0, 4000);
	jobaudit_stop();
	sound(x, "in 2 files");
	sound(x, "records 1 to 4004 "); /* with four checkpoints */
}

/* --- losses ----------------------------------------------------------------------------------- */

static void ended__disk_holds_and_the_queue_is_full__counted_and_told(void **state)
{
	struct fixture *x = *state;
	AUTO_BUF struct buf all = BUF_INIT;
	uint64_t before = metric_lost();

	start(x);
	jobaudit_stop();
	atomic_store(&held, true);
	disk_watch = watch;
	start(x);
	end_some(0, 1);
	wait_until_held();
	end_some(1, JOBAUDIT_QUEUE + 7); /* nobody waits */
	assert_int_equal(metric_lost() - before, 7);
	atomic_store(&held, false);
	while (atomic_load(&n_writes) < 3) /* the one record, its head, the queue */
		usleep(1000);
	end_some(JOBAUDIT_QUEUE + 8, 2);
	jobaudit_stop();
	disk_watch = NULL;
	show(x, &all);
	assert_int_equal(number_of(&all, JOBAUDIT_QUEUE, "\"lost\":"), 0);
	assert_int_equal(number_of(&all, JOBAUDIT_QUEUE + 8, "\"lost\":"), 7);
	assert_int_equal(number_of(&all, JOBAUDIT_QUEUE + 9, "\"lost\":"), 0);
	sound(x, "records 1 to ");
}

static void ended__disk_full__counted_and_told_by_the_next(void **state)
{
	struct fixture *x = *state;
	AUTO_BUF struct buf all = BUF_INIT;
	uint64_t before = metric_lost();

	start(x);
	jobaudit_stop();
	atomic_store(&disk_err, -ENOSPC);
	disk_watch = watch;
	start(x);
	end_some(0, 5);
	for (int i = 0; i < 5000 && metric_lost() - before < 5; i++)
		usleep(1000);
	assert_int_equal(metric_lost() - before, 5);
	atomic_store(&disk_err, 0);
	end_some(5, 2);
	jobaudit_stop();
	disk_watch = NULL;
	show(x, &all);
	assert_int_equal(number_of(&all, 5, "\"lost\":"), 5);
	assert_int_equal(number_of(&all, 6, "\"lost\":"), 0);
	sound(x, "records 1 to 3 in 1 files");
}

static void start__trail_is_broken__all_counted_as_lost(void **state)
{
	struct fixture *x = *state;
	uint64_t before = metric_lost();

	start(x);
	end_some(0, 2);
	jobaudit_stop();
	work_write_text(&x->w, "store/audit-jobs/00000001.jsonl", "nothing of it\n");
	assert_int_equal(chmod(work_path(&x->w, "store/audit-jobs/00000001.jsonl"), 0600), 0);
	start(x);
	end_some(2, 3);
	jobaudit_stop();
	assert_int_equal(metric_lost() - before, 3);
}

/* --- the oldest file -------------------------------------------------------------------------- */

static void ended__as_many_files_as_there_may_be__the_oldest_goes(void **state)
{
	struct fixture *x = *state;
	char name[64];

	start(x);
	end_some(0, 1);
	jobaudit_stop();
	for (unsigned i = 2; i <= AUDIT_JOBS_FILES_MAX; i++) {
		snprintf(name, sizeof name, "store/audit-jobs/%08u.jsonl", i);
		work_write(&x->w, name, "", 0);
		assert_int_equal(chmod(work_path(&x->w, name), 0600), 0);
	}
	sound(x, "records 1 to 2 in 256 files");
	start(x);
	end_some(1, 2500); /* a file and a half */
	jobaudit_stop();
	assert_false(work_has(&x->w, "store/audit-jobs/00000001.jsonl"));
	assert_true(work_has(&x->w, "store/audit-jobs/00000002.jsonl"));
	assert_true(work_has(&x->w, "store/audit-jobs/00000257.jsonl"));
	sound(x, " in 256 files");
	sound(x, "record 2 and those before it are not here");
	start(x);
	end_some(2501, 1);
	jobaudit_stop();
	sound(x, " in 256 files");
}

/* --- the fixture ------------------------------------------------------------------------------ */

static int set_up(void **state)
{
	struct fixture *x = calloc(1, sizeof *x);
	struct fault f;

	work_make(&x->w);
	strcpy(x->store, work_path(&x->w, "store"));
	assert_int_equal(store_init(x->store, &f), 0);
	atomic_store(&disk_err, 0);
	atomic_store(&n_writes, 0);
	atomic_store(&n_syncs, 0);
	*state = x;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *x = *state;

	atomic_store(&held, false);
	jobaudit_stop();
	disk_watch = NULL;
	work_remove(&x->w);
	free(x);
	return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(ended__two_jobs__exactly_their_digests),
		TEST(ended__not_running__nothing),
		TEST(start__again__the_chain_goes_on),
		TEST(verify__changed_record__broken_and_which_trail),
		TEST(verify__record_of_commands_in_it__broken),
		TEST(ended__many_at_once__one_sync_for_them_all),
		TEST(ended__more_than_a_file__goes_on_in_the_next),
		TEST(ended__disk_holds_and_the_queue_is_full__counted_and_told),
		TEST(ended__disk_full__counted_and_told_by_the_next),
		TEST(start__trail_is_broken__all_counted_as_lost),
		TEST(ended__as_many_files_as_there_may_be__the_oldest_goes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
