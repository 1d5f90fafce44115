/* Two arrays: one is filled by those who end jobs, the other is written by the thread; it takes what
 * was filled by changing the two. */
#include "core/control/jobaudit.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/engine/metrics.h"

static struct {
	atomic_bool running;
	pthread_t thread;
	char *store; /* fixed while it runs */
	struct lock lock;
	struct lock_cond changed;
	/* by lock */
	struct audit_job *filled;
	size_t n;
	uint64_t refused; /* for want of room, since the last one that was taken */
	bool stop;
	/* the thread's */
	struct audit_job *writing;
	uint64_t unwritten;  /* since the last one that was written */
	struct audit *audit; /* NULL: it could not be opened */
} trail = { .lock = LOCK_INIT(RANK_JOBAUDIT, "job audit") };

/* A device that hung may still end a job when all has been stopped. */
static bool add_locked(const struct audit_job *record)
{
	if (trail.stop || trail.n == JOBAUDIT_QUEUE) {
		trail.refused++;
		return false;
	}
	trail.filled[trail.n] = *record;
	trail.filled[trail.n++].lost = trail.refused;
	trail.refused = 0;
	return true;
}

void jobaudit_ended(const struct audit_job *record)
{
	bool added, wake;

	if (!atomic_load(&trail.running))
		return;
	lock_take(&trail.lock);
	added = add_locked(record);
	wake = trail.n == 1 || trail.n == JOBAUDIT_QUEUE / 2;
	lock_drop(&trail.lock);
	if (!added)
		metrics_add(METRIC_JOB_AUDIT_LOST, 1);
	if (added && wake)
		lock_cond_signal(&trail.changed);
}

/* --- the thread ------------------------------------------------------------------------------- */

/* Wait for a record, then for those that come soon. */
static void gather_locked(void)
{
	struct timespec until;

	while (!trail.n && !trail.stop)
		lock_cond_wait(&trail.changed, &trail.lock);
	until = clock_timespec(clock_mono() + JOBAUDIT_GATHER_MS * NS_PER_MS);
	while (trail.n < JOBAUDIT_QUEUE / 2 && !trail.stop)
		if (lock_cond_wait_until(&trail.changed, &trail.lock, &until))
			break;
}

/* How many are to be written; 0: the end. */
static size_t take_records(void)
{
	struct audit_job *taken;
	size_t n;

	lock_take(&trail.lock);
	gather_locked();
	taken = trail.filled;
	trail.filled = trail.writing;
	trail.writing = taken;
	n = trail.n;
	trail.n = 0;
	lock_drop(&trail.lock);
	return n;
}

/* What those would have told that are not written is still to be told. */
static void give_up(const struct audit_job *records, size_t n)
{
	for (size_t i = 0; i < n; i++)
		trail.unwritten += 1 + records[i].lost;
	metrics_add(METRIC_JOB_AUDIT_LOST, (int64_t)n);
}

static void write_records(size_t n)
{
	size_t n_written = 0;
	int err = -EIO;

	trail.writing[0].lost += trail.unwritten;
	trail.unwritten = 0;
	if (trail.audit)
		err = audit_write_jobs(trail.audit, trail.writing, n, &n_written);
	if (!err)
		return;
	give_up(trail.writing + n_written, n - n_written);
	if (trail.audit)
		log_error("%zu jobs could not be audited: %s", n - n_written, strerror(-err));
}

/* Opening verifies the end of the trail: a matter of the disk, so not of the start. */
static void *thread_main(void *unused)
{
	struct fault f = FAULT_NONE;
	size_t n;

	(void)unused;
	if (audit_open(trail.store, AUDIT_JOBS, &trail.audit, &f))
		log_error("jobs are not audited: %s; %s", f.reason, f.action);
	while ((n = take_records()))
		write_records(n);
	audit_close(trail.audit);
	trail.audit = NULL;
	return NULL;
}

/* --- starting and stopping -------------------------------------------------------------------- */

static void free_all(void)
{
	lock_cond_done(&trail.changed);
	free(take_ptr(trail.filled));
	free(take_ptr(trail.writing));
	free(take_ptr(trail.store));
}

int jobaudit_start(const char *store)
{
	lock_cond_init(&trail.changed);
	trail.n = 0;
	trail.refused = trail.unwritten = 0;
	trail.stop = false;
	trail.filled = calloc(JOBAUDIT_QUEUE, sizeof *trail.filled);
	trail.writing = calloc(JOBAUDIT_QUEUE, sizeof *trail.writing);
	trail.store = strdup(store);
	if (trail.filled && trail.writing && trail.store &&
		!pthread_create(&trail.thread, NULL, thread_main, NULL)) {
		atomic_store(&trail.running, true);
		return 0;
	}
	free_all();
	return -ENOMEM;
}

void jobaudit_stop(void)
{
	if (!atomic_exchange(&trail.running, false))
		return;
	lock_take(&trail.lock);
	trail.stop = true;
	lock_drop(&trail.lock);
	lock_cond_signal(&trail.changed);
	pthread_join(trail.thread, NULL);
	free_all();
}
