/* From a written file to a queued job. What is decided under the folder's lock is only what there
 * is to hand over (jobdir_prepare); parsing, checking and queueing happen without it. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core/jobdir_impl.h"
#include "core/metrics.h"

static int check_request(void *context, const struct request *req, struct fault *f)
{
	struct jobdir *d = context;

	return engine_model(d->engine, req, f);
}

struct verdict_checker jobdir_checker(struct jobdir *d)
{
	return (struct verdict_checker){ .check = check_request, .context = d };
}

struct job *jobdir_take_job(struct tree_node *n)
{
	struct job *j = n->job;

	n->job = NULL;
	n->removed = 0;
	n->handed = false;
	n->runs++;
	return j;
}

void jobdir_drop_job(struct jobdir *d, struct job *j)
{
	if (!j)
		return;
	engine_cancel(d->engine, j);
	job_put(j);
}

enum job_format jobdir_format(const struct tree_node *n)
{
	return n->what.class == NAME_TEXT ? JOB_FORMAT_TEXT : JOB_FORMAT_JSON;
}

int jobdir_fresh_run(struct tree_node *n)
{
	struct job *fresh;

	if (!n->parent || !name_is_request(n->what.class) || (n->job && !job_ended(n->job)))
		return 0; /* what was removed and is still open runs no more */
	fresh = job_new(n->owner.uid, n->owner.gid, jobdir_format(n));
	if (!fresh)
		return -ENOMEM;
	job_put(jobdir_take_job(n)); /* it has ended: nobody waits for it */
	n->job = fresh;
	return 0;
}

struct submission jobdir_prepare(struct tree_node *n, const struct jobdir_file *f)
{
	struct submission s = { .fault = FAULT_NONE };

	if (!n->parent || !n->job || (spool_file_size(n->data) == 0 && !n->cut))
		return s;
	n->dirty = false;
	n->handed = true;
	s.job = job_get(n->job);
	s.id = n->id;
	s.content = spool_file_freeze(n->data);
	if (!s.content)
		fault_set(&s.fault, -ENOMEM, "send it again later", "no memory for the request");
	else if (n->cut)
		fault_set(&s.fault, n->cut, "write it again, and look at what write says",
			"only a part of the request could be written: %s", strerror(-n->cut));
	else if (n->verdict)
		s.fault = *verdict_fault(n->verdict);
	s.judged = f && f->judged && n->verdict && !s.fault.err; /* a rename takes the verdict */
	if (s.judged)
		s.order = f->order;
	return s;
}

/* A waiter for the end, of nobody's but its own. */
struct end_watch {
	struct job_waiter waiter;
	struct jobdir *dir;
	uint64_t id;
};

static void on_end(struct job_waiter *w)
{
	struct end_watch *e = (struct end_watch *)((char *)w - offsetof(struct end_watch, waiter));

	e->dir->ended(e->dir->ended_context, e->id);
	free(e);
}

/* Without memory for it nobody is told. */
static void watch_end(struct jobdir *d, struct job *j, uint64_t id)
{
	struct end_watch *e = d->ended ? calloc(1, sizeof *e) : NULL;

	if (!e)
		return;
	*e = (struct end_watch){ .waiter = { .what = JOB_ERR, .wake = on_end },
		.dir = d,
		.id = id };
	if (!job_wait(j, &e->waiter)) /* removed meanwhile */
		free(e);
}

void jobdir_submit(struct jobdir *d, struct submission *s)
{
	struct verdict_checker checker = jobdir_checker(d);
	int err;

	if (!s->job)
		return;
	watch_end(d, s->job, s->id);
	if (!s->fault.err && !s->judged)
		verdict_judge(job_format(s->job), s->content, &checker, &s->order, &s->fault);
	if (!s->fault.err) {
		s->order.request = s->content;
		err = engine_submit(d->engine, s->job, &s->order, &s->fault);
		if (err == -EALREADY) /* removed meanwhile */
			s->fault = (struct fault)FAULT_NONE;
	}
	if (s->fault.err && job_end(s->job, JOB_FAILED, NULL, &s->fault)) {
		metrics_add(METRIC_REQUESTS_REFUSED, 1);
		metrics_add_at(METRIC_JOBS_FINISHED, JOB_FAILED, 1);
	}
	blob_put(s->content);
	job_put(s->job);
}
