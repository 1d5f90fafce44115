/* The folder as an earlier start left it: every entry of the spool becomes a node in its folder.
 * Three things are settled here:
 *
 *   a run that was queued (or on the device) is queued again, in the order of acceptance
 *   a request that was being written when the daemon ended fails and says so: nobody knows whether
 *     it is whole
 *   an entry that is damaged, or whose results are, becomes a failed job that says so
 *
 * Folders may come after what is in them: such entries wait until their folder is there. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/job/jobdir_impl.h"

/* So many damaged entries get a name in jobs/; the others are in aside/ only. */
#define DAMAGED_SHOWN 1000

struct queued {
	uint64_t id, job;
};

struct load {
	struct jobdir *d;
	uint64_t *waiting; /* entries whose folder is not there yet */
	size_t n_waiting, cap_waiting;
	struct queued *queued;
	size_t n_queued, cap_queued;
	uint64_t *damaged;
	size_t n_damaged, cap_damaged;
};

#define FIRST_ROWS 64

/* --- runs ------------------------------------------------------------------------------------- */

/* It ends here and now, and the spool learns of it. */
static int end_run(struct jobdir *d, struct tree_node *n, const struct record_run *r,
	const struct fault *why)
{
	n->job = r ? job_again(d->spool, n->id, r)
		   : job_new(n->owner.uid, jobdir_format(n), d->spool, n->id);
	if (!n->job)
		return -ENOMEM;
	n->job_id = job_id(n->job);
	n->handed = true;
	job_set_refused(n->job, r ? r->view.shape : ANSWER_OWN, n->size, n->owner.gid);
	job_end(n->job, JOB_FAILED, NULL, why);
	jobdir_remember(d, n);
	jobdir_keep(d, n); /* a disk that cannot be written is no reason not to start */
	return 0;
}

static int fail_run(struct jobdir *d, struct tree_node *n, const struct record_run *r, int err,
	const char *reason, const char *action)
{
	struct fault f = FAULT_NONE;

	fault_set(&f, err, action, "%s", reason);
	return end_run(d, n, r, &f);
}

static int queue_later(struct load *l, const struct tree_node *n)
{
	struct queued *more =
		mem_grow(l->queued, l->n_queued, &l->cap_queued, FIRST_ROWS, sizeof *more);

	if (!more)
		return -ENOMEM;
	l->queued = more;
	l->queued[l->n_queued++] = (struct queued){ n->id, n->job_id };
	return 0;
}

static int settle_ended(struct load *l, struct tree_node *n, const struct spool_entry *e)
{
	const struct job_view *v = &e->run.view;

	n->size = v->request_size < e->size ? v->request_size : e->size;
	if (e->size < v->request_size + jobdir_results_size(v))
		return fail_run(l->d, n, &e->run, -EIO, "what the spool has of it is damaged",
			"write the request again");
	jobdir_set_idle(n, v);
	return 0;
}

/* What the run part says counts only for the run that the node names. */
static int settle_request(struct load *l, struct tree_node *n, const struct spool_entry *e)
{
	const struct job_view *v = &e->run.view;
	bool known = e->has_run && v->id == e->node.job;

	n->job_id = e->node.job;
	n->size = e->size;
	if (known && job_state_ended(v->state))
		return settle_ended(l, n, e);
	if (known && v->state == JOB_QUEUED && e->size < v->request_size)
		return fail_run(l->d, n, &e->run, -EIO, "what the spool has of it is damaged",
			"write the request again");
	if (known && v->state == JOB_QUEUED) {
		n->size = v->request_size;
		return queue_later(l, n);
	}
	if (e->size == 0)
		return jobdir_new_run(l->d, n);
	/* Not EINTR: who opens its output would ask for ever. */
	return fail_run(l->d, n, NULL, -ECONNABORTED,
		"the daemon ended while the request was being written", "write it again");
}

/* --- nodes ------------------------------------------------------------------------------------ */

/* Two entries with one name: one replaced the other, or a copy was put back. The later one counts. */
static bool give_way(struct load *l, struct tree_node *dir, const struct tree_node *n,
	const char *name)
{
	struct jobname what = jobname_class(name);
	struct tree_node *there = name_is_request(what.class)
		? tree_find_stem(dir, name, what.stem_len)
		: tree_find(dir, name);

	if (!there)
		return false;
	if (there->dir || there->ctime >= n->ctime)
		return true;
	spool_set_aside(l->d->spool, there->id);
	jobdir_account(l->d, there, -1);
	job_put(jobdir_take_job(there));
	tree_unlink(l->d->tree, there);
	return false;
}

/* Linking changes times, which are to be as they were. */
static int link_node(struct load *l, struct tree_node *dir, struct tree_node *n, const char *name)
{
	const int64_t ctime = n->ctime, dir_mtime = dir->mtime, dir_ctime = dir->ctime;
	struct jobname what;

	if (jobname_parse(name, &what) || what.class == NAME_RESULT || give_way(l, dir, n, name)) {
		spool_set_aside(l->d->spool, n->id);
		tree_release(l->d->tree, n);
		return -EEXIST;
	}
	if (tree_link(l->d->tree, dir, n, name))
		return -ENOMEM;
	n->ctime = ctime;
	dir->mtime = dir_mtime;
	dir->ctime = dir_ctime;
	return 0;
}

static int settle(struct load *l, struct tree_node *n, const struct spool_entry *e)
{
	int err = 0;

	if (!n->dir && name_is_request(n->what.class))
		err = settle_request(l, n, e);
	else if (!n->dir)
		n->size = e->size;
	jobdir_account(l->d, n, 1);
	return err;
}

static int add_id(uint64_t **ids, size_t *n, size_t *cap, uint64_t id)
{
	uint64_t *more = mem_grow(*ids, *n, cap, FIRST_ROWS, sizeof *more);

	if (!more)
		return -ENOMEM;
	*ids = more;
	more[(*n)++] = id;
	return 0;
}

static struct tree_node *new_node(struct jobdir *d, const struct spool_entry *e)
{
	const struct record_node *r = &e->node;
	const struct owner o = {
		.uid = r->uid,
		.gid = r->gid,
		.mode = r->mode & (r->dir ? 03777 : 0777),
		.dir = r->dir,
	};
	struct tree_node *n = tree_node_new(d->tree, e->id, &o);

	if (!n)
		return NULL;
	n->atime = r->atime;
	n->mtime = r->mtime;
	n->ctime = r->ctime;
	n->removed = (uint8_t)r->removed;
	return n;
}

static int add_node(struct load *l, struct tree_node *dir, const struct spool_entry *e)
{
	struct tree_node *n = new_node(l->d, e);
	int err;

	if (!n)
		return -ENOMEM;
	err = link_node(l, dir, n, e->node.name);
	if (err)
		return err == -EEXIST ? 0 : err;
	return settle(l, n, e);
}

static struct tree_node *folder_of(struct load *l, const struct spool_entry *e)
{
	struct tree_node *dir = tree_by_id(l->d->tree, e->node.folder);

	return dir && dir->dir ? dir : NULL;
}

static int take_entry(void *context, const struct spool_entry *e)
{
	struct load *l = context;
	/* Larger than any file may be: somebody else made it so. */
	bool swollen = !e->damaged && !e->has_run && e->size > l->d->limits.batch_bytes;
	struct tree_node *dir;

	if (swollen)
		spool_set_aside(l->d->spool, e->id);
	if (swollen || e->damaged)
		return l->n_damaged < DAMAGED_SHOWN
			? add_id(&l->damaged, &l->n_damaged, &l->cap_damaged, e->id)
			: 0;
	dir = folder_of(l, e);
	if (!dir)
		return add_id(&l->waiting, &l->n_waiting, &l->cap_waiting, e->id);
	return add_node(l, dir, e);
}

/* --- what came before its folder -------------------------------------------------------------- */

/* `last`: folders that are not there now never will be; what was in them is put into jobs/ itself,
 * where its owner finds it. */
static int take_waiting(struct load *l, bool last, bool *ret_progress)
{
	size_t n = l->n_waiting;
	int err = 0;

	*ret_progress = false;
	l->n_waiting = 0;
	for (size_t i = 0; !err && i < n; i++) {
		struct spool_entry e;
		struct tree_node *dir;

		if (spool_look(l->d->spool, l->waiting[i], &e))
			continue;
		dir = folder_of(l, &e);
		if (!dir && last)
			dir = tree_root(l->d->tree);
		if (!dir)
			l->waiting[l->n_waiting++] = e.id;
		else
			err = add_node(l, dir, &e);
		*ret_progress |= dir != NULL;
	}
	return err;
}

static int take_all_waiting(struct load *l)
{
	bool progress = true;
	int err = 0;

	while (!err && l->n_waiting && progress)
		err = take_waiting(l, false, &progress);
	return err || !l->n_waiting ? err : take_waiting(l, true, &progress);
}

/* --- afterwards ------------------------------------------------------------------------------- */

static void show_damaged(struct jobdir *d, uint64_t id)
{
	const struct owner o = { .uid = (uint32_t)geteuid(),
		.gid = (uint32_t)getegid(),
		.mode = 0600 };
	char name[64], reason[128];
	struct spool_file *file;
	struct tree_node *n;
	int err = spool_create(d->spool, &file);

	if (err)
		return;
	n = tree_node_new(d->tree, spool_file_id(file), &o);
	snprintf(name, sizeof name, "damaged-%llu.txt", (unsigned long long)id);
	snprintf(reason, sizeof reason, "file %llu of the spool was damaged and was set aside",
		(unsigned long long)id);
	err = n ? tree_link(d->tree, tree_root(d->tree), n, name) : -ENOMEM;
	if (!err) {
		jobdir_account(d, n, 1);
		n->file = spool_file_get(file);
		err = jobdir_keep(d, n);
	}
	if (!err)
		err = fail_run(d, n, NULL, -EIO, reason,
			"look at it in the folder jobs/aside of the store, then remove this");
	if (n)
		spool_file_put(take_ptr(n->file));
	spool_file_put(file);
}

static int compare_queued(const void *a, const void *b)
{
	const struct queued *x = a, *y = b;

	return x->job < y->job ? -1 : x->job > y->job;
}

/* The time it has been waiting counts for its deadline. */
static struct job_order order_again(struct jobdir *d, const struct tree_node *n,
	const struct record_run *r)
{
	const struct job_view *v = &r->view;

	return (struct job_order){
		.request_size = v->request_size,
		.queued = v->queued,
		.gid = n->owner.gid,
		.model = engine_find(d->engine, v->model_alias),
		.priority = r->priority,
		.deadline_ms = r->deadline_ms,
		.stream = v->stream,
		.shape = v->shape,
	};
}

/* The files that its request names may have other numbers now, or be gone. */
static int find_files_again(struct jobdir *d, struct tree_node *n, struct job_order *order,
	struct fault *f)
{
	struct job_order judged = { 0 };
	int err = jobdir_judge(d, n, &judged, f);

	blob_put(judged.request);
	order->files = judged.files;
	return err;
}

/* Beside its model. */
static int what_it_needs(struct jobdir *d, struct tree_node *n, const struct record_run *r,
	struct job_order *order, struct fault *f)
{
	if (r->in_session) /* in an empty one it would be another request */
		return fault_at(f, -ESTALE, "session", -1,
			"begin the conversation anew, in another session",
			"its session and the KV of it ended with the daemon");
	return r->names_files ? find_files_again(d, n, order, f) : 0;
}

static int queue_again(struct jobdir *d, const struct queued *q)
{
	struct tree_node *n = tree_by_id(d->tree, q->id);
	struct fault f = FAULT_NONE;
	struct job_order order;
	struct spool_entry e;

	if (!n || spool_look(d->spool, q->id, &e)) /* it gave way to another */
		return 0;
	n->job = job_again(d->spool, n->id, &e.run);
	if (!n->job)
		return -ENOMEM;
	order = order_again(d, n, &e.run);
	n->handed = true;
	if (what_it_needs(d, n, &e.run, &order, &f)) {
		jobdir_refuse(n, order.shape, &f);
		jobdir_remember(d, n);
		return 0;
	}
	n->taken = true;
	jobdir_watch_end(d, n);
	if (order.model < 0)
		fault_set(&f, -ENOENT, "put it back, or write the request for another",
			"the model \"%s\" is not there any more", e.run.view.model_alias);
	if (order.model < 0 || engine_submit(d->engine, n->job, &order, &f))
		jobdir_refuse(n, order.shape, &f);
	blob_put(order.files);
	jobdir_remember(d, n);
	return 0;
}

static int finish(struct load *l)
{
	int err = take_all_waiting(l);

	if (l->n_queued)
		qsort(l->queued, l->n_queued, sizeof *l->queued, compare_queued);
	for (size_t i = 0; !err && i < l->n_queued; i++)
		err = queue_again(l->d, &l->queued[i]);
	for (size_t i = 0; !err && i < l->n_damaged; i++)
		show_damaged(l->d, l->damaged[i]);
	return err;
}

int jobdir_load(struct jobdir *d)
{
	struct load l = { .d = d };
	uint64_t strange = 0;
	int err = spool_load(d->spool, take_entry, &l, &strange);

	if (!err)
		err = finish(&l);
	if (l.n_damaged || strange)
		log_warning("the spool: %zu damaged entries and %llu strange files were set aside",
			l.n_damaged, (unsigned long long)strange);
	if (!err && l.n_queued)
		log_info("%zu jobs of before are queued again", l.n_queued);
	free(l.waiting);
	free(l.queued);
	free(l.damaged);
	return err;
}
