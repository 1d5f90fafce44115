/* From a written file to a queued job, in three steps: the content is judged; the spool takes the
 * run as queued, which close(2) waits for; the engine gets it when the last writer has closed. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/engine/metrics.h"
#include "core/job/jobdir_impl.h"

/* --- what a request names --------------------------------------------------------------------- */

struct judging {
	struct jobdir *d;
	const struct tree_node *n;
	struct blob *files; /* found */
};

/* A file beside the request, as its owner could read it: not who closes it, nor who runs it. */
static int find_file(const struct judging *x, const char *name, uint64_t *ret, struct fault *f)
{
	const struct owner *o = &x->n->owner;
	const struct cred owner = { .uid = o->uid, .gid = o->gid };
	const struct tree_node *file = tree_find(x->n->parent, name);
	int err = jobdir_search(&owner, x->n->parent);

	if (!err && !file)
		err = -ENOENT;
	if (!err && file->dir)
		err = -EISDIR;
	if (!err)
		err = access_check(&owner, &file->owner, R_OK);
	if (err)
		return fault_at(f, err, "inputs", -1, "put it beside the request, readable for you",
			"the file \"%s\" cannot be used: %s", name, strerror(-err));
	*ret = file->id;
	return 0;
}

static int find_files(struct judging *x, const struct request *req, struct fault *f)
{
	uint64_t ids[REQUEST_MAX_INPUTS];
	size_t n = 0;
	int err = 0;

	for (size_t i = 0; !err && i < req->n_inputs; i++)
		if (req->inputs[i].file)
			err = find_file(x, req->inputs[i].file, &ids[n++], f);
	if (err || !n)
		return err;
	x->files = blob_new(ids, n * sizeof *ids);
	return x->files ? 0
			: fault_set(f, -ENOMEM, "send it again later", "no memory for the request");
}

static int check_request(void *context, const struct request *req, struct fault *f)
{
	struct judging *x = context;
	int model = engine_session(x->d->engine, x->n->owner.uid, req, f);
	int err = model < 0 ? model : find_files(x, req, f);

	return err ? err : model;
}

/* --- runs ------------------------------------------------------------------------------------- */

struct job *jobdir_take_job(struct tree_node *n)
{
	struct job *j = n->job;

	n->job = NULL;
	n->ended = 0;
	n->job_id = 0;
	n->result_size = 0;
	n->removed = 0;
	n->has_stream = n->handed = n->taken = false;
	n->runs++;
	return j;
}

/* Its file goes, or is another run's: nothing of it is kept any more. */
void jobdir_drop_job(struct jobdir *d, struct job *j)
{
	if (!j)
		return;
	job_forget_file(j);
	engine_cancel(d->engine, j);
	job_put(j);
}

enum job_format jobdir_format(const struct tree_node *n)
{
	switch (n->what.class) {
	case NAME_TEXT:
		return JOB_FORMAT_TEXT;
	case NAME_BATCH:
		return JOB_FORMAT_BATCH;
	default:
		return JOB_FORMAT_JSON;
	}
}

int jobdir_new_run(struct jobdir *d, struct tree_node *n)
{
	n->job = job_new(n->owner.uid, jobdir_format(n), d->spool, n->id);
	if (!n->job)
		return -ENOMEM;
	n->job_id = job_id(n->job);
	return 0;
}

/* The spool's run part is made to say that the run is being written. */
static int untake(struct jobdir *d, struct tree_node *n)
{
	struct spool_file *file;
	struct record_run r;
	int err = jobdir_spool_file(d, n, &file);

	if (err)
		return err;
	job_record(n->job, &r);
	err = spool_put_run(file, &r);
	spool_file_put(file);
	if (!err)
		n->taken = false;
	return err;
}

/* The node part names the new run first: with that the old one's results are nobody's. */
static int replace_run(struct jobdir *d, struct tree_node *n)
{
	struct spool_file *file;
	struct job *old;
	int err;

	usage_add(&d->usage, n->owner.uid, 0, -(int64_t)n->result_size);
	old = jobdir_take_job(n);
	if (old)
		job_forget_file(old);
	job_put(old); /* it has ended: nobody waits for it */
	err = jobdir_new_run(d, n);
	if (!err)
		err = jobdir_keep(d, n);
	if (!err)
		err = jobdir_spool_file(d, n, &file);
	if (err)
		return err;
	err = spool_truncate(file, n->size);
	spool_file_put(file);
	return err;
}

int jobdir_fresh_run(struct jobdir *d, struct tree_node *n)
{
	if (!n->parent || !name_is_request(n->what.class))
		return 0; /* what was removed and is still open runs no more */
	if (n->job && !job_ended(n->job))
		return n->taken ? untake(d, n) : 0;
	return replace_run(d, n);
}

/* --- judging ---------------------------------------------------------------------------------- */

static int content(struct jobdir *d, const struct tree_node *n, uint64_t most, struct blob **ret)
{
	struct spool_file *file;
	int err = jobdir_spool_file(d, n, &file);

	if (err)
		return err;
	err = spool_read_blob(file, n->size < most ? n->size : most, ret);
	spool_file_put(file);
	return err;
}

/* While few wait, the request stays in memory. */
static bool stays_in_memory(struct jobdir *d, const struct blob *b)
{
	uint64_t queued, running;

	engine_counts(d->engine, &queued, &running);
	return blob_len(b) <= JOBDIR_REQUEST_IN_MEMORY && queued < JOBDIR_FEW_QUEUED;
}

int jobdir_judge(struct jobdir *d, struct tree_node *n, struct job_order *ret_order,
	struct fault *f)
{
	struct judging x = { .d = d, .n = n };
	const struct verdict_checker checker = { .check = check_request, .context = &x };
	enum job_format format = jobdir_format(n);
	struct blob *b = NULL;
	uint64_t context;
	int err = content(d, n, format == JOB_FORMAT_BATCH ? VERDICT_BATCH_BYTES : UINT64_MAX, &b);

	if (err)
		return fault_set(f, err, "write it again", "the request could not be read: %s",
			strerror(-err));
	/* Before its ids are looked up: a context that begins meanwhile has others. */
	context = callables_number(engine_callables(d->engine));
	err = verdict_judge(format, b, &checker, ret_order, f);
	if (err)
		blob_put(x.files);
	else
		ret_order->files = x.files;
	ret_order->request_size = n->size;
	ret_order->gid = n->owner.gid;
	ret_order->context = context;
	if (!err && format != JOB_FORMAT_BATCH && stays_in_memory(d, b))
		ret_order->request = b;
	else
		blob_put(b);
	return err;
}

/* --- handing over ----------------------------------------------------------------------------- */

int jobdir_take(struct jobdir *d, struct tree_node *n, const struct job_order *order)
{
	struct spool_file *file;
	struct record_node node;
	struct record_run run;
	int err = jobdir_spool_file(d, n, &file);

	if (err)
		return err;
	job_set_model(n->job, engine_alias(d->engine, order->model), "");
	jobdir_record(n, &node);
	job_record(n->job, &run);
	run.view.state = JOB_QUEUED;
	run.view.queued = clock_wall();
	run.view.request_size = n->size;
	run.view.stream = order->stream;
	run.view.shape = order->shape;
	run.priority = order->priority;
	run.deadline_ms = order->deadline_ms;
	run.names_files = order->files != NULL;
	run.in_session = order->session[0] != '\0';
	err = spool_put_both(file, &node, &run);
	spool_file_put(file);
	n->taken = !err;
	return err;
}

void jobdir_refuse(struct tree_node *n, enum answer_shape shape, const struct fault *why)
{
	job_set_refused(n->job, shape, n->size, n->owner.gid);
	if (!job_end(n->job, JOB_FAILED, NULL, why))
		return;
	metrics_add(METRIC_REQUESTS_REFUSED, 1);
	metrics_add_at(METRIC_JOBS_FINISHED, JOB_FAILED, 1);
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
void jobdir_watch_end(struct jobdir *d, const struct tree_node *n)
{
	struct end_watch *e = d->ended ? calloc(1, sizeof *e) : NULL;

	if (!e)
		return;
	*e = (struct end_watch){ .waiter = { .what = JOB_ERR, .wake = on_end },
		.dir = d,
		.id = n->id };
	if (!job_wait(n->job, &e->waiter)) /* it has ended */
		free(e);
}

/* Why the content cannot run, or 0 with an order for it. */
static int order_of(struct jobdir *d, struct tree_node *n, const struct jobdir_file *f,
	struct job_order *ret, struct fault *why)
{
	if (n->cut)
		return fault_set(why, n->cut, "write it again, and look at what write says",
			"only a part of the request could be written: %s", strerror(-n->cut));
	if (n->verdict && verdict_fault(n->verdict)->err) {
		*why = *verdict_fault(n->verdict);
		return why->err;
	}
	if (f && f->judged && n->verdict) { /* a rename takes the verdict */
		*ret = f->order;
		blob_get(ret->request);
		blob_get(ret->files);
		return 0;
	}
	return jobdir_fits(d, n, why) ? why->err : jobdir_judge(d, n, ret, why);
}

static void hand_over(struct jobdir *d, struct tree_node *n, struct job_order *order,
	struct fault *why)
{
	int err = n->taken ? 0 : jobdir_take(d, n, order);

	if (!err && n->file && !spool_is_crowded(d->spool))
		job_use_file(n->job, n->file);
	if (err)
		fault_set(why, err, "make room in the store, then write it again",
			"the request could not be kept: %s", strerror(-err));
	else
		err = engine_submit(d->engine, n->job, order, why);
	if (err == -EROFS && n->taken) /* the daemon stops: it runs after the next start */
		job_leave(n->job, why);
	else if (err)
		jobdir_refuse(n, order->shape, why);
}

void jobdir_submit(struct jobdir *d, struct tree_node *n, const struct jobdir_file *f)
{
	struct job_order order = { 0 };
	struct fault why = FAULT_NONE;

	if (!n->parent || !n->job || (n->size == 0 && !n->cut))
		return;
	n->dirty = false;
	n->handed = true;
	jobdir_watch_end(d, n);
	if (order_of(d, n, f, &order, &why))
		jobdir_refuse(n, order.shape, &why);
	else
		hand_over(d, n, &order, &why);
	if (!n->taken) /* the times of its last writing */
		jobdir_keep(d, n);
	blob_put(order.request);
	blob_put(order.files);
	jobdir_remember(d, n);
	jobdir_forget_ended(d, 2, JOBDIR_RECENT);
}
