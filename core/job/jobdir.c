#include "core/job/jobdir.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/engine/metrics.h"
#include "core/job/jobdir_impl.h"
#include "core/job/jobstatus.h"

#define ROOT_MODE (S_ISVTX | 0777)

int jobdir_new(const struct jobdir_limits *limits, struct spool *spool, struct engine *engine,
	struct models *models, uint64_t root_id, struct jobdir **ret)
{
	const struct owner root = { .uid = (uint32_t)geteuid(),
		.gid = (uint32_t)getegid(),
		.mode = ROOT_MODE,
		.dir = true };
	struct jobdir *d = calloc(1, sizeof *d);
	int err;

	if (!d)
		return -ENOMEM;
	d->limits = *limits;
	d->spool = spool;
	d->engine = engine;
	d->models = models;
	d->tree = tree_new(root_id, &root);
	err = d->tree ? 0 : -ENOMEM;
	if (err) {
		jobdir_free(d);
		return err;
	}
	*ret = d;
	return 0;
}

/* Every file is taken out as rm would do it, so that its job is let go. */
static void empty(struct jobdir *d, struct tree_node *dir)
{
	struct tree_node *n;

	for (uint64_t from = 0; (n = tree_entry_from(dir, from));) {
		from = n->entry + 1; /* each hole is passed once */
		if (n->dir)
			empty(d, n);
		job_put(jobdir_take_job(n));
		verdict_free(n->verdict);
		n->verdict = NULL;
		n->lookups = n->opens = n->writers = 0;
		tree_unlink(d->tree, n);
	}
}

void jobdir_free(struct jobdir *d)
{
	if (!d)
		return;
	if (d->tree) {
		empty(d, tree_root(d->tree));
		tree_free(d->tree);
	}
	usage_done(&d->usage);
	free(d->recent.ids);
	free(d);
}

/* --- permissions ------------------------------------------------------------------------------ */

int jobdir_search(const struct cred *c, const struct tree_node *dir)
{
	int err = 0;

	for (; !err && dir; dir = dir->parent)
		err = access_check(c, &dir->owner, X_OK);
	return err;
}

int jobdir_dir(struct jobdir *d, const struct cred *c, uint64_t id, int want,
	struct tree_node **ret)
{
	struct tree_node *n = tree_by_id(d->tree, id);
	int err;

	if (!n)
		return -ESTALE;
	if (!n->dir)
		return -ENOTDIR;
	if (!n->parent && n != tree_root(d->tree))
		return -ENOENT;
	err = jobdir_search(c, n);
	if (!err && want)
		err = access_check(c, &n->owner, want);
	if (!err)
		*ret = n;
	return err;
}

struct owner jobdir_result_owner(const struct tree_node *n)
{
	struct owner o = n->owner;

	o.mode &= 0444;
	return o;
}

int jobdir_idle(const struct tree_node *n)
{
	return n->job && n->handed && !job_ended(n->job) ? -EBUSY : 0;
}

int jobdir_new_name(const char *name, struct jobname *ret)
{
	int err = jobname_parse(name, ret);

	if (err)
		return err;
	return ret->class == NAME_RESULT ? -EPERM : 0;
}

/* --- attributes ------------------------------------------------------------------------------- */

static enum job_state state_of(const struct tree_node *n)
{
	return n->job ? job_state(n->job) : (enum job_state)n->ended;
}

bool jobdir_has_run(const struct tree_node *n)
{
	return n->job || n->ended;
}

bool jobdir_has_row(const struct tree_node *n, enum job_row row)
{
	if (!jobdir_has_run(n) || row == ROW_REQUEST || (n->removed & 1u << row))
		return false;
	return row != ROW_ERR || state_of(n) != JOB_DONE; /* `test -e STEM.err` */
}

struct jobdir_ref jobdir_ref(const struct tree_node *n, enum job_row row)
{
	return (struct jobdir_ref){ n->id, row, row == ROW_REQUEST ? 0 : n->runs % JOBDIR_RUNS };
}

bool jobdir_shows(const struct tree_node *n, struct jobdir_ref ref)
{
	if (ref.row == ROW_REQUEST)
		return true;
	return jobdir_has_row(n, ref.row) && ref.run == jobdir_ref(n, ref.row).run;
}

/* A result is listed when reading it needs no waiting; the status always. */
static bool row_listed(const struct tree_node *n, enum job_row row)
{
	enum job_state s;

	if (!jobdir_has_row(n, row))
		return false;
	s = state_of(n);
	switch (row) {
	case ROW_STATUS:
		return true;
	case ROW_OUT:
		return s == JOB_DONE;
	case ROW_ERR:
		return job_state_ended(s) && s != JOB_DONE;
	case ROW_STREAM:
		return (s == JOB_DONE || s == JOB_RUNNING) &&
			(n->job ? job_order(n->job)->stream : n->has_stream);
	default:
		return false;
	}
}

uint64_t jobdir_result_size(struct jobdir *d, struct job *j, enum job_row row,
	const struct job_view *v)
{
	AUTO_BUF struct buf text = BUF_INIT;

	switch (row) {
	case ROW_STATUS:
		jobdir_status(d, j, &text);
		return text.len;
	case ROW_OUT:
		return v->state == JOB_DONE ? v->out_size : 0;
	case ROW_STREAM:
		return v->state == JOB_DONE ? v->stream_size : 0;
	case ROW_ERR:
		job_render_error(v, &text);
		return text.len;
	default:
		return 0;
	}
}

static int64_t last_change(const struct job_view *v)
{
	if (v->ended)
		return v->ended;
	if (v->started)
		return v->started;
	return v->queued ? v->queued : v->made;
}

/* A run that is in the spool only is looked up there. */
static int result_attr(struct jobdir *d, struct tree_node *n, enum job_row row,
	struct jobdir_attr *ret)
{
	struct job *j = n->job ? job_get(n->job) : NULL;
	struct job_view v;
	int err = j ? 0 : job_revive(d->spool, n->id, false, &j);

	if (err)
		return err;
	job_look(j, &v);
	ret->owner = jobdir_result_owner(n);
	ret->size = jobdir_result_size(d, j, row, &v);
	ret->final = job_state_ended(v.state);
	ret->atime = ret->mtime = ret->ctime = last_change(&v);
	job_put(j);
	return 0;
}

static bool is_public(const struct tree_node *dir)
{
	for (; dir; dir = dir->parent)
		if (!(dir->owner.mode & S_IXOTH))
			return false;
	return true;
}

int jobdir_attr(struct jobdir *d, struct tree_node *n, enum job_row row, struct jobdir_attr *ret)
{
	*ret = (struct jobdir_attr){
		.ref = jobdir_ref(n, row),
		.owner = n->owner,
		.size = n->size,
		.links = n->dir     ? 2 + tree_dir_subdirs(n)
			: n->parent ? 1
				    : 0,
		.atime = n->atime,
		.mtime = n->mtime,
		.ctime = n->ctime,
		.public = is_public(n->parent),
	};
	return row == ROW_REQUEST ? 0 : result_attr(d, n, row, ret);
}

/* A node the kernel may still name though it is gone: ESTALE makes the kernel look the name up
 * again. */
static int find_ref(struct jobdir *d, const struct cred *c, struct jobdir_ref ref,
	struct tree_node **ret)
{
	struct tree_node *n = tree_by_id(d->tree, ref.id);
	int err;

	if (!n || !jobdir_shows(n, ref))
		return -ESTALE;
	if (!n->parent && !n->dir && !n->opens)
		return -ESTALE; /* removed, not by who asks: a name that the kernel keeps leads here */
	err = jobdir_search(c, n->parent);
	if (!err)
		*ret = n;
	return err;
}

int jobdir_getattr(struct jobdir *d, const struct cred *c, struct jobdir_ref ref,
	struct jobdir_attr *ret)
{
	struct tree_node *n;
	int err;

	err = find_ref(d, c, ref, &n);
	return err ? err : jobdir_attr(d, n, ref.row, ret);
}

int jobdir_access(struct jobdir *d, const struct cred *c, struct jobdir_ref ref, int want)
{
	struct tree_node *n;
	struct owner o;
	int err;

	err = find_ref(d, c, ref, &n);
	if (!err) {
		o = ref.row ? jobdir_result_owner(n) : n->owner;
		err = ref.row && (want & W_OK) ? -EACCES : access_check(c, &o, want);
	}
	return err;
}

int jobdir_lookup(struct jobdir *d, const struct cred *c, uint64_t dir, const char *name,
	struct jobdir_attr *ret)
{
	struct jobname what = jobname_class(name);
	struct tree_node *parent, *n;
	int err;

	if (strlen(name) > JOBNAME_MAX)
		return -ENAMETOOLONG;
	err = jobdir_dir(d, c, dir, 0, &parent);
	if (!err) {
		n = what.class == NAME_RESULT ? tree_find_stem(parent, name, what.stem_len)
					      : tree_find(parent, name);
		if (n && what.class == NAME_RESULT && !jobdir_has_row(n, what.row))
			n = NULL;
		err = n ? 0 : -ENOENT;
	}
	if (!err)
		err = jobdir_attr(d, n, what.row, ret);
	if (!err)
		jobdir_tell(n);
	return err;
}

void jobdir_tell(struct tree_node *n)
{
	if (n->lookups++ == 0)
		metrics_add(METRIC_INODES, 1);
}

void jobdir_forget(struct jobdir *d, uint64_t id, uint64_t n)
{
	struct tree_node *node;

	node = tree_by_id(d->tree, id);
	if (node) {
		if (node->lookups && node->lookups <= n)
			metrics_add(METRIC_INODES, -1);
		node->lookups = node->lookups > n ? node->lookups - n : 0;
		tree_release(d->tree, node);
	}
}

/* --- listing ---------------------------------------------------------------------------------- */

/* The request comes last: who removes what is listed one by one finds everything still there. */
static const enum job_row listed[ROW_COUNT] = { ROW_STATUS, ROW_OUT, ROW_ERR, ROW_STREAM,
	ROW_REQUEST };

/* A place: the entry's number and the step in `listed`. */
static uint64_t place(uint64_t entry, unsigned step)
{
	return entry * ROW_COUNT + step;
}

static bool list_row(struct tree_node *n, unsigned step,
	bool (*each)(void *context, const struct jobdir_entry *entry), void *context)
{
	char name[JOBNAME_MAX + 1];
	enum job_row row = listed[step];
	struct jobdir_entry e = {
		.name = n->name,
		.ref = jobdir_ref(n, row),
		.dir = n->dir != NULL,
		.next = place(n->entry, step) + 1,
	};

	if (row != ROW_REQUEST) {
		memcpy(name, n->name, n->what.stem_len);
		strcpy(name + n->what.stem_len, job_row_suffix(row));
		e.name = name;
	}
	return each(context, &e);
}

static bool list_node(struct tree_node *n, unsigned first,
	bool (*each)(void *context, const struct jobdir_entry *entry), void *context)
{
	for (unsigned step = first; step < ROW_COUNT; step++)
		if ((listed[step] == ROW_REQUEST || row_listed(n, listed[step])) &&
			!list_row(n, step, each, context))
			return false;
	return true;
}

int jobdir_list(struct jobdir *d, uint64_t dir, uint64_t from,
	bool (*each)(void *context, const struct jobdir_entry *entry), void *context)
{
	struct tree_node *parent, *n;
	uint64_t entry = from / ROW_COUNT;
	int err;

	parent = tree_by_id(d->tree, dir);
	err = parent && parent->dir ? 0 : -ENOENT;
	while (!err && (n = tree_entry_from(parent, entry))) {
		if (!list_node(n, n->entry == entry ? (unsigned)(from % ROW_COUNT) : 0, each,
			    context))
			break;
		entry = n->entry + 1;
		from = place(entry, 0);
	}
	return err;
}

int jobdir_may_list(struct jobdir *d, const struct cred *c, uint64_t dir)
{
	struct tree_node *n;
	int err;

	n = tree_by_id(d->tree, dir);
	err = n ? jobdir_search(c, n->parent) : -ESTALE;
	if (!err)
		err = access_check(c, &n->owner, R_OK);
	return err;
}

/* --- ends ------------------------------------------------------------------------------------- */

void jobdir_on_end(struct jobdir *d, void (*ended)(void *context, uint64_t id), void *context)
{
	d->ended = ended;
	d->ended_context = context;
}

static void put_folder(const struct tree_node *dir, struct buf *out)
{
	if (!dir->parent)
		return; /* the root has no name here */
	put_folder(dir->parent, out);
	buf_printf(out, "%s/", dir->name);
}

int jobdir_end_path(struct jobdir *d, uint64_t id, struct buf *out)
{
	struct tree_node *n;
	enum job_row row = ROW_REQUEST;

	n = tree_by_id(d->tree, id);
	if (n && n->parent && jobdir_has_run(n) && job_state_ended(state_of(n)))
		row = state_of(n) == JOB_DONE ? ROW_OUT : ROW_ERR;
	if (row && jobdir_has_row(n, row)) {
		put_folder(n->parent, out);
		buf_put(out, n->name, n->what.stem_len);
		buf_puts(out, job_row_suffix(row));
	} else {
		row = ROW_REQUEST;
	}
	return row ? buf_error(out) : -ENOENT;
}

/* --- status and figures ----------------------------------------------------------------------- */

void jobdir_status(struct jobdir *d, struct job *j, struct buf *out)
{
	struct job_view v;

	job_look(j, &v);
	jobstatus_render(&v, engine_position(d->engine, j), out);
}

static uint64_t left(uint64_t limit, uint64_t used)
{
	return limit > used ? limit - used : 0;
}

void jobdir_usage(struct jobdir *d, struct jobdir_usage *ret)
{
	struct spool_room room;

	spool_room(d->spool, &room);
	*ret = (struct jobdir_usage){ .files = tree_count(d->tree), .bytes = d->usage.bytes };
	ret->free_files = left(d->limits.files, ret->files);
	ret->free_bytes = left(d->limits.bytes, ret->bytes);
	if (ret->free_files > room.free_files)
		ret->free_files = room.free_files;
	if (ret->free_bytes > room.free_bytes)
		ret->free_bytes = room.free_bytes;
}
