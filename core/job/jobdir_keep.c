/* What the spool and the accounts know of a node, and which runs stay in memory.
 *
 * A run that was submitted is in memory until it has ended, is in the spool, and others came after
 * it or jobdir_tidy() found it; then the node keeps only how it ended, and its results are read from the
 * spool. A run whose end could not be stored stays: memory is all there is of it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/job/jobdir_impl.h"

/* --- the spool -------------------------------------------------------------------------------- */

void jobdir_record(const struct tree_node *n, struct record_node *ret)
{
	*ret = (struct record_node){
		.id = n->id,
		.folder = n->parent->id,
		.dir = n->owner.dir,
		.uid = n->owner.uid,
		.gid = n->owner.gid,
		.mode = n->owner.mode,
		.atime = n->atime,
		.mtime = n->mtime,
		.ctime = n->ctime,
		.job = n->job_id,
		.removed = n->removed,
	};
	strcpy(ret->name, n->name);
}

int jobdir_spool_file(struct jobdir *d, const struct tree_node *n, struct spool_file **ret)
{
	if (!n->file)
		return spool_get(d->spool, n->id, ret);
	*ret = spool_file_get(n->file);
	return 0;
}

int jobdir_keep(struct jobdir *d, struct tree_node *n)
{
	struct spool_file *file;
	struct record_node r;
	int err;

	if (!n->parent) /* removed, or jobs/ itself */
		return 0;
	err = jobdir_spool_file(d, n, &file);
	if (err)
		return err;
	jobdir_record(n, &r);
	err = spool_put_node(file, &r);
	spool_file_put(file);
	return err;
}

/* --- accounts --------------------------------------------------------------------------------- */

int jobdir_file_room(struct jobdir *d, uint32_t uid)
{
	if (tree_count(d->tree) >= d->limits.files)
		return -ENOSPC;
	return usage_of(&d->usage, uid).files >= d->limits.user_files ? -EDQUOT : 0;
}

static uint64_t most_bytes(const struct jobdir *d, const struct tree_node *n)
{
	bool batch = n->what.class == NAME_BATCH || n->what.class == NAME_INERT;

	return batch ? d->limits.batch_bytes : d->limits.request_bytes;
}

int jobdir_fits(const struct jobdir *d, const struct tree_node *n, struct fault *f)
{
	if (n->size <= most_bytes(d, n))
		return 0;
	return fault_set(f, -EFBIG, "shorten it; models/ALIAS/limits says how long it may be",
		"the request has %llu bytes; at most %llu are taken", (unsigned long long)n->size,
		(unsigned long long)most_bytes(d, n));
}

int jobdir_room(struct jobdir *d, const struct tree_node *n, uint64_t size)
{
	uint64_t most = most_bytes(d, n), more;

	if (size <= n->size)
		return 0;
	more = size - n->size;
	if (size > most)
		return -EFBIG;
	if (d->usage.bytes > d->limits.bytes || more > d->limits.bytes - d->usage.bytes)
		return -ENOSPC;
	return usage_of(&d->usage, n->owner.uid).bytes + more > d->limits.user_bytes ? -EDQUOT : 0;
}

void jobdir_set_size(struct jobdir *d, struct tree_node *n, uint64_t size)
{
	usage_add(&d->usage, n->owner.uid, 0, (int64_t)(size - n->size));
	n->size = size;
}

void jobdir_account(struct jobdir *d, const struct tree_node *n, int sign)
{
	usage_add(&d->usage, n->owner.uid, sign, sign * (int64_t)(n->size + n->result_size));
}

/* --- runs in memory --------------------------------------------------------------------------- */

static int grow(struct jobdir_fifo *q)
{
	size_t cap = q->cap ? q->cap * 2 : 64;
	uint64_t *ids = malloc(cap * sizeof *ids);

	if (!ids)
		return -ENOMEM;
	for (size_t i = 0; i < q->len; i++)
		ids[i] = q->ids[(q->first + i) % q->cap];
	free(q->ids);
	*q = (struct jobdir_fifo){ .ids = ids, .len = q->len, .cap = cap };
	return 0;
}

/* Without memory for it the run stays in memory. */
static void push(struct jobdir_fifo *q, uint64_t id)
{
	if (q->len == q->cap && grow(q))
		return;
	q->ids[(q->first + q->len++) % q->cap] = id;
}

static uint64_t pop(struct jobdir_fifo *q)
{
	uint64_t id = q->ids[q->first];

	q->first = (q->first + 1) % q->cap;
	q->len--;
	return id;
}

void jobdir_remember(struct jobdir *d, const struct tree_node *n)
{
	push(&d->recent, n->id);
}

uint64_t jobdir_results_size(const struct job_view *v)
{
	return v->state == JOB_DONE ? v->out_size + (v->stream_apart ? v->stream_size : 0) : 0;
}

void jobdir_set_idle(struct tree_node *n, const struct job_view *v)
{
	n->ended = (uint8_t)v->state;
	n->has_stream = v->stream;
	n->result_size = jobdir_results_size(v);
}

/* True when the node's run need not be in memory any more. */
static bool let_go(struct jobdir *d, struct tree_node *n)
{
	uint64_t counted = n->result_size;
	struct job_view v;

	job_look(n->job, &v);
	if (!job_state_ended(v.state) || job_is_shared(n->job))
		return false;
	if (!v.stored)
		return true; /* it stays for good */
	jobdir_set_idle(n, &v);
	usage_add(&d->usage, n->owner.uid, 0, (int64_t)(n->result_size - counted));
	job_put(n->job);
	n->job = NULL;
	return true;
}

void jobdir_forget_ended(struct jobdir *d, size_t most, size_t keep)
{
	while (most-- && d->recent.len > keep) {
		uint64_t id = pop(&d->recent);
		struct tree_node *n = tree_by_id(d->tree, id);

		if (n && n->job && n->handed && !let_go(d, n))
			push(&d->recent, id);
	}
}

/* --- retention -------------------------------------------------------------------------------- */

/* So many nodes are looked at in one go. */
#define TIDY_NODES 2000

static int64_t ended_at(struct jobdir *d, const struct tree_node *n)
{
	struct job *j = n->job ? job_get(n->job) : NULL;
	struct job_view v = { 0 };

	if (!j && job_revive(d->spool, n->id, false, &j))
		return 0;
	job_look(j, &v);
	job_put(j);
	return job_state_ended(v.state) ? v.ended : 0;
}

static void remove_old(struct jobdir *d, struct tree_node *n, int64_t before)
{
	int64_t ended;

	if (n->opens || !jobdir_has_run(n) || n->ctime > before)
		return;
	ended = ended_at(d, n);
	if (!ended || ended > before || spool_remove(d->spool, n->id))
		return;
	jobdir_account(d, n, -1);
	jobdir_drop_job(d, jobdir_take_job(n));
	tree_unlink(d->tree, n);
}

void jobdir_tidy(struct jobdir *d)
{
	int64_t before = clock_wall() - d->limits.keep_ns;
	struct tree_node *n;

	jobdir_forget_ended(d, d->recent.len < TIDY_NODES ? d->recent.len : TIDY_NODES, 0);
	if (!d->limits.keep_ns)
		return;
	for (int i = 0; i < TIDY_NODES; i++) {
		n = tree_next(d->tree, &d->tidy_next);
		if (!n)
			return;
		remove_old(d, n, before);
	}
}
