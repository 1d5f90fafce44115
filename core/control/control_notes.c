/* The queue is bounded, and of refused attempts, which are anybody's, only so many a second get into it:
 * what does not is counted, as is what the disk did not take, and the next record tells how many. At the
 * end that is one of the daemon's own. */
#include "core/control/control_notes.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/rate.h"

/* Refused looks recorded one by one: so many at once, then one in so long. */
#define NOTES_BURST  100
#define NOTES_REFILL (NS_PER_SEC / 2)
/* Recorded with one sync: those that wait at the end hold it up. */
#define NOTES_TOGETHER 64

struct note {
	uint32_t uid, gid;
	int32_t pid;
	int64_t login;
	char comm[AUDIT_COMM_SIZE];
	const char *what, *node, *why;
};

struct control_notes {
	struct audit *audit;   /* fixed */
	struct health *health; /* fixed */
	pthread_t scribe;
	struct lock lock;
	struct lock_cond some;
	/* by lock */
	bool stopping;
	struct note notes[CONTROL_NOTES];
	size_t first, n;
	uint64_t lost; /* that have no record of their own */
	struct rate rate;
};

void control_notes_add(struct control_notes *q, const struct cred *who, const char *what,
	const char *node, const char *why)
{
	struct note n = { .uid = who->uid,
		.gid = who->gid,
		.pid = who->pid,
		.login = audit_login(who->pid),
		.what = what,
		.node = node,
		.why = why };

	audit_comm(who->pid, n.comm);
	lock_take(&q->lock);
	if (q->n == CONTROL_NOTES ||
		(why && !rate_take(&q->rate, NOTES_BURST, NOTES_REFILL, clock_mono()))) {
		q->lost++;
	} else {
		q->notes[(q->first + q->n++) % CONTROL_NOTES] = n;
		lock_cond_signal(&q->some);
	}
	lock_drop(&q->lock);
}

/* What was decided alike; 0: the end. */
static size_t take_notes(struct control_notes *q, struct note ret[NOTES_TOGETHER],
	uint64_t *ret_lost)
{
	size_t n = 0;

	lock_take(&q->lock);
	while (!q->n && !q->stopping)
		lock_cond_wait(&q->some, &q->lock);
	while (n < NOTES_TOGETHER && q->n) {
		const struct note *first = &q->notes[q->first];

		if (n && !first->why != !ret[0].why)
			break;
		ret[n++] = *first;
		q->first = (q->first + 1) % CONTROL_NOTES;
		q->n--;
	}
	*ret_lost = q->lost;
	if (n)
		q->lost = 0;
	lock_drop(&q->lock);
	return n;
}

/* What the disk did not take; the first record was to tell what was lost before. */
static void keep_count(struct control_notes *q, size_t n_unwritten, uint64_t untold)
{
	lock_take(&q->lock);
	q->lost += n_unwritten + untold;
	lock_drop(&q->lock);
}

static void write_notes(struct control_notes *q, const struct note *notes, size_t n, uint64_t lost)
{
	struct cred who[NOTES_TOGETHER];
	struct audit_record r[NOTES_TOGETHER];
	char message[96] = "";
	size_t n_written;
	int err;

	for (size_t i = 0; i < n; i++) {
		who[i] = (struct cred){ .uid = notes[i].uid,
			.gid = notes[i].gid,
			.pid = notes[i].pid };
		r[i] = (struct audit_record){ .who = &who[i],
			.login = notes[i].login,
			.comm = notes[i].comm,
			.command = notes[i].what,
			.node = notes[i].node,
			.decision = notes[i].why ? AUDIT_REFUSED : AUDIT_DONE,
			.why = notes[i].why,
			.message = i ? "" : message,
			.look = true };
	}
	if (lost)
		snprintf(message, sizeof message, "%llu more came before and were not recorded",
			(unsigned long long)lost);
	err = audit_write_all(q->audit, r, n, &n_written);
	health_set_unaudited(q->health, audit_fails(q->audit));
	if (!err)
		return;
	keep_count(q, n - n_written, n_written ? 0 : lost);
	log_error("%zu attempts could not be audited: %s", n - n_written, strerror(-err));
}

/* No note comes any more that could tell it. */
static void write_last(struct control_notes *q, uint64_t lost)
{
	struct note n = { .uid = geteuid(),
		.gid = getegid(),
		.pid = getpid(),
		.what = "end",
		.node = "control" };

	n.login = audit_login(n.pid);
	audit_comm(n.pid, n.comm);
	if (lost)
		write_notes(q, &n, 1, lost);
}

static void *scribe_main(void *notes)
{
	struct control_notes *q = notes;
	struct note some[NOTES_TOGETHER];
	uint64_t lost;
	size_t n;

	while ((n = take_notes(q, some, &lost)))
		write_notes(q, some, n, lost);
	write_last(q, lost);
	return NULL;
}

static void release(struct control_notes *q)
{
	lock_cond_done(&q->some);
	lock_done(&q->lock);
	free(q);
}

int control_notes_new(struct audit *audit, struct health *health, struct control_notes **ret)
{
	struct control_notes *q = calloc(1, sizeof *q);

	if (!q)
		return -ENOMEM;
	q->audit = audit;
	q->health = health;
	lock_init(&q->lock, RANK_CONTROL, "control notes");
	lock_cond_init(&q->some);
	if (pthread_create(&q->scribe, NULL, scribe_main, q)) {
		release(q);
		return -EAGAIN;
	}
	*ret = q;
	return 0;
}

void control_notes_free(struct control_notes *q)
{
	if (!q)
		return;
	lock_take(&q->lock);
	q->stopping = true;
	lock_cond_signal(&q->some);
	lock_drop(&q->lock);
	pthread_join(q->scribe, NULL);
	release(q);
}
