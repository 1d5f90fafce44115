/* A parked read goes through these states, each change an atomic exchange, so that no lock is held
 * while the kernel is answered:
 *
 *   SETUP     park_read() is still arming it
 *   PARKED    armed: who gets it (job's end, interrupt, stop) answers and frees it
 *   WOKEN     the job ended while it was being armed: park_read() answers itself
 *
 * Whoever takes the waiter off the job (the job itself, or job_unwait()) owns the answer. Taking
 * the interrupt function off the request waits for one that is running, so nothing is freed under
 * it. */
#include "fs/park.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/poll.h>

#include "core/base/lock.h"
#include "core/base/mem.h"
#include "core/engine/metrics.h"

enum { SETUP, PARKED, WOKEN, INTERRUPTED };

struct parked {
	struct job_waiter waiter;
	_Atomic int state;
	fuse_req_t req;
	struct job *job; /* counted */
	size_t size;
	_Atomic off_t *ret_next;     /* the handle's */
	struct parked *next, **link; /* by list_lock */
};

static struct lock list_lock = LOCK_INIT(RANK_PARK, "parked requests");
static struct parked *list;

static void list_add(struct parked *p)
{
	lock_take(&list_lock);
	p->next = list;
	if (p->next)
		p->next->link = &p->next;
	p->link = &list;
	list = p;
	lock_drop(&list_lock);
	metrics_add(METRIC_PARKED_REQUESTS, 1);
}

static void list_remove(struct parked *p)
{
	lock_take(&list_lock);
	*p->link = p->next;
	if (p->next)
		p->next->link = p->link;
	lock_drop(&list_lock);
	metrics_add(METRIC_PARKED_REQUESTS, -1);
}

/* `next` is told before the answer: until then the kernel holds the file open. */
static void reply_result(fuse_req_t req, struct job *j, enum job_result what, size_t size,
	size_t offset, _Atomic off_t *next)
{
	AUTO_FREE char *bytes = malloc(size ? size : 1);
	ssize_t n = bytes ? job_read(j, what, offset, bytes, size) : -ENOMEM;

	lock_assert_none();
	if (n >= 0)
		*next = (off_t)(offset + (size_t)n);
	if (n < 0)
		fuse_reply_err(req, (int)-n);
	else
		fuse_reply_buf(req, bytes, (size_t)n);
}

static void parked_free(struct parked *p)
{
	list_remove(p);
	job_put(p->job);
	free(p);
}

static void answer(struct parked *p, int err)
{
	fuse_req_interrupt_func(p->req, NULL, NULL);
	if (err)
		fuse_reply_err(p->req, err);
	else
		reply_result(p->req, p->job, p->waiter.what, p->size, p->waiter.offset,
			p->ret_next);
	parked_free(p);
}

static void on_wake(struct job_waiter *w)
{
	struct parked *p = (struct parked *)((char *)w - offsetof(struct parked, waiter));
	int setup = SETUP;

	if (!atomic_compare_exchange_strong(&p->state, &setup, WOKEN))
		answer(p, 0);
}

static void on_interrupt(fuse_req_t req, void *data)
{
	struct parked *p = data;
	int setup = SETUP;

	(void)req;
	if (!job_unwait(p->job, &p->waiter))
		return;
	if (atomic_compare_exchange_strong(&p->state, &setup, INTERRUPTED))
		return;
	/* The request's own lock is held here by libfuse: the function is not taken off, nobody
	 * else runs it. */
	fuse_reply_err(p->req, EINTR);
	parked_free(p);
}

static void arm(struct parked *p)
{
	int setup = SETUP;

	list_add(p);
	if (!job_wait(p->job, &p->waiter)) {
		answer(p, 0);
		return;
	}
	fuse_req_interrupt_func(p->req, on_interrupt, p);
	if (!atomic_compare_exchange_strong(&p->state, &setup, PARKED))
		answer(p, setup == INTERRUPTED ? EINTR : 0);
}

void park_read(fuse_req_t req, struct job *j, enum job_result what, size_t size, size_t offset,
	_Atomic off_t *next)
{
	struct parked *p;

	if (job_ripe(j, what, offset)) {
		reply_result(req, j, what, size, offset, next);
		return;
	}
	p = calloc(1, sizeof *p);
	if (!p) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	p->waiter = (struct job_waiter){ .what = what, .offset = offset, .wake = on_wake };
	p->req = req;
	p->job = job_get(j);
	p->size = size;
	p->ret_next = next;
	arm(p);
}

/* One that nobody else has taken off its job: a device that hung may come back at this moment, and its
 * thread answers those that it has. What is in the list is not freed. */
static struct parked *take_one(void)
{
	struct parked *p;

	lock_take(&list_lock);
	p = list;
	while (p && !job_unwait(p->job, &p->waiter))
		p = p->next;
	lock_drop(&list_lock);
	return p;
}

void park_abort_all(void)
{
	struct parked *p;

	while ((p = take_one()))
		answer(p, ESHUTDOWN);
}

/* --- poll ------------------------------------------------------------------------------------- */

struct park_poll {
	struct job_waiter waiter;
	_Atomic int refs; /* the handle's and the wait's */
	struct job *job;  /* counted */
	struct fuse_pollhandle *ph;
};

static void poll_put(struct park_poll *p)
{
	if (atomic_fetch_sub(&p->refs, 1) != 1)
		return;
	job_put(p->job);
	fuse_pollhandle_destroy(p->ph);
	free(p);
}

static void on_poll_wake(struct job_waiter *w)
{
	struct park_poll *p = (struct park_poll *)((char *)w - offsetof(struct park_poll, waiter));

	lock_assert_none();
	fuse_lowlevel_notify_poll(p->ph);
	poll_put(p);
}

void park_poll_drop(struct park_poll *p)
{
	if (!p)
		return;
	if (job_unwait(p->job, &p->waiter))
		poll_put(p);
	poll_put(p);
}

struct park_poll *park_poll_arm(struct park_poll *old, struct job *j, enum job_result what,
	size_t offset, struct fuse_pollhandle *ph)
{
	struct park_poll *p = calloc(1, sizeof *p);

	park_poll_drop(old);
	if (!p) {
		fuse_pollhandle_destroy(ph);
		return NULL;
	}
	p->waiter = (struct job_waiter){ .what = what, .offset = offset, .wake = on_poll_wake };
	p->job = job_get(j);
	p->ph = ph;
	atomic_init(&p->refs, 2);
	if (!job_wait(j, &p->waiter)) /* ready after all */
		on_poll_wake(&p->waiter);
	return p;
}
