#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/job/jobdir_impl.h"

static int want_of(int flags)
{
	switch (flags & O_ACCMODE) {
	case O_RDONLY:
		return R_OK | (flags & O_TRUNC ? W_OK : 0);
	case O_WRONLY:
		return W_OK;
	default:
		return R_OK | W_OK;
	}
}

/* --- opening ---------------------------------------------------------------------------------- */

/* A request has one writer at a time, and none while it is queued or running. */
static int may_write(struct jobdir *d, const struct tree_node *n)
{
	int err;

	if (!name_is_request(n->what.class))
		return 0;
	if (n->writers)
		return -EBUSY;
	err = jobdir_idle(n);
	return err ? err : engine_admit(d->engine, n->owner.uid, NULL);
}

/* What was learned of the content holds no more. */
static void forget_judgement(struct jobdir_file *f)
{
	blob_put(take_ptr(f->order.request));
	blob_put(take_ptr(f->order.files));
	f->judged = false;
}

static int empty_it(struct jobdir *d, struct tree_node *n)
{
	int err = jobdir_fresh_run(d, n);

	if (!err && n->size)
		err = spool_truncate(n->file, 0);
	if (err)
		return err;
	jobdir_set_size(d, n, 0);
	n->cut = 0;
	n->mtime = n->ctime = clock_wall();
	return 0;
}

static int begin_writing(struct jobdir *d, struct tree_node *n, int flags)
{
	bool judged = name_is_request(n->what.class) && (flags & O_ACCMODE) != O_RDONLY;
	int err = may_write(d, n);

	if (!err && (flags & O_TRUNC))
		err = empty_it(d, n);
	if (!err && judged) {
		n->verdict = verdict_new(jobdir_format(n));
		err = n->verdict ? 0 : -ENOMEM;
	}
	return err;
}

/* Takes the count of `file`, which may be NULL: then it is opened. */
static int open_node(struct jobdir *d, struct tree_node *n, int flags, struct spool_file *file,
	struct jobdir_file **ret)
{
	struct jobdir_file *f = calloc(1, sizeof *f);
	int err = f ? 0 : -ENOMEM;

	if (!err && !n->file && !file)
		err = spool_get(d->spool, n->id, &n->file);
	else if (!err && !n->file)
		n->file = take_ptr(file);
	if (!err) {
		f->node = n;
		f->flags = flags;
		f->writes = (flags & O_ACCMODE) != O_RDONLY;
		if (f->writes || (flags & O_TRUNC))
			err = begin_writing(d, n, flags);
	}
	spool_file_put(file);
	if (err) {
		if (!n->opens)
			spool_file_put(take_ptr(n->file));
		free(f);
		return err;
	}
	n->opens++;
	n->writers += f->writes;
	*ret = f;
	return 0;
}

/* Linked, reachable and allowed. ESTALE: the kernel looks the name up again. */
static int may_open(const struct cred *c, const struct tree_node *n, int flags)
{
	int err;

	if (!n || !n->parent)
		return -ESTALE;
	if (n->dir)
		return -EISDIR;
	err = jobdir_search(c, n->parent);
	return err ? err : access_check(c, &n->owner, want_of(flags));
}

int jobdir_open(struct jobdir *d, const struct cred *c, uint64_t id, int flags,
	struct jobdir_file **ret_file)
{
	struct tree_node *n;
	int err;

	n = tree_by_id(d->tree, id);
	err = may_open(c, n, flags);
	if (!err)
		err = open_node(d, n, flags, NULL, ret_file);
	return err;
}

/* The run is in memory again, so that a change of the file knows who reads. What it left goes on
 * counting. */
static int revive(struct jobdir *d, struct tree_node *n)
{
	int err = job_revive(d->spool, n->id, true, &n->job);

	if (err)
		return err;
	n->handed = true;
	jobdir_remember(d, n);
	return 0;
}

int jobdir_open_result(struct jobdir *d, const struct cred *c, struct jobdir_ref ref, int flags,
	struct job **ret)
{
	struct tree_node *n;
	struct owner o;
	int err;

	n = tree_by_id(d->tree, ref.id);
	err = n && n->parent && jobdir_shows(n, ref) ? 0 : -ESTALE;
	if (!err)
		err = jobdir_search(c, n->parent);
	if (!err) {
		o = jobdir_result_owner(n);
		err = want_of(flags) & W_OK ? -EACCES : access_check(c, &o, R_OK);
	}
	if (err)
		return err;
	if (!n->job)
		err = revive(d, n);
	if (err)
		return err;
	*ret = job_get(n->job); /* before any is let go, which could be this one */
	jobdir_forget_ended(d, 2, JOBDIR_RECENT);
	return 0;
}

/* --- creating --------------------------------------------------------------------------------- */

static int may_create(struct jobdir *d, const struct cred *c, struct tree_node *dir,
	const struct jobname *what, const char *name)
{
	int err = jobdir_file_room(d, c->uid);

	if (name_is_request(what->class) && tree_find_stem(dir, name, what->stem_len))
		return -EEXIST;
	if (!err && name_is_request(what->class))
		err = engine_admit(d->engine, c->uid, NULL);
	return err;
}

/* Take back what make_file() did. */
static void unmake_file(struct jobdir *d, struct tree_node *n)
{
	jobdir_account(d, n, -1);
	job_put(jobdir_take_job(n));
	spool_remove(d->spool, n->id);
	tree_unlink(d->tree, n);
}

static int link_file(struct jobdir *d, struct tree_node *dir, struct tree_node *n, const char *name)
{
	int err = tree_link(d->tree, dir, n, name);

	if (err) {
		spool_remove(d->spool, n->id);
		tree_release(d->tree, n);
		return err;
	}
	jobdir_account(d, n, 1);
	if (name_is_request(n->what.class))
		err = jobdir_new_run(d, n);
	if (!err)
		err = jobdir_keep(d, n);
	if (err)
		unmake_file(d, n);
	return err;
}

static int make_file(struct jobdir *d, const struct cred *c, struct tree_node *dir,
	const char *name, uint32_t mode, struct tree_node **ret)
{
	const struct owner o = {
		.uid = c->uid,
		.gid = dir->owner.mode & S_ISGID ? dir->owner.gid : c->gid,
		.mode = mode & 0777 & ~d->limits.umask,
	};
	struct spool_file *file;
	struct tree_node *n;
	int err = spool_create(d->spool, &file);

	if (err)
		return err;
	n = tree_node_new(d->tree, spool_file_id(file), &o);
	if (!n) {
		spool_remove(d->spool, spool_file_id(file));
		spool_file_put(file);
		return -ENOMEM;
	}
	n->file = file;
	err = link_file(d, dir, n, name);
	if (!err)
		*ret = n;
	return err;
}

static int create(struct jobdir *d, const struct cred *c, uint64_t dir_id, const char *name,
	uint32_t mode, int flags, struct jobdir_file **ret)
{
	struct tree_node *dir, *n;
	struct jobname what;
	int err = jobdir_dir(d, c, dir_id, 0, &dir);

	if (err)
		return err;
	n = tree_find(dir, name);
	if (n && (flags & O_EXCL))
		return -EEXIST;
	if (n) {
		err = may_open(c, n, flags);
		return err ? err : open_node(d, n, flags, NULL, ret);
	}
	err = access_check(c, &dir->owner, W_OK | X_OK);
	if (!err)
		err = jobdir_new_name(name, &what);
	if (!err)
		err = may_create(d, c, dir, &what, name);
	if (!err)
		err = make_file(d, c, dir, name, mode, &n);
	if (err)
		return err;
	err = open_node(d, n, flags & ~O_TRUNC, NULL, ret);
	if (err)
		unmake_file(d, n);
	return err;
}

int jobdir_create(struct jobdir *d, const struct cred *c, uint64_t dir, const char *name,
	uint32_t mode, int flags, struct jobdir_attr *ret, struct jobdir_file **ret_file)
{
	int err = create(d, c, dir, name, mode, flags, ret_file);

	if (err)
		return err;
	jobdir_tell((*ret_file)->node);
	return jobdir_attr(d, (*ret_file)->node, ROW_REQUEST, ret);
}

/* --- reading and writing ---------------------------------------------------------------------- */

ssize_t jobdir_read(struct jobdir *d, struct jobdir_file *f, uint64_t offset, char *ret,
	size_t size)
{
	const struct tree_node *n = f->node;

	(void)d;
	if (offset >= n->size)
		return 0;
	/* Behind the file's bytes there may be results. */
	return spool_read(n->file, offset, ret, size < n->size - offset ? size : n->size - offset);
}

/* A hole in front of what is written reads as zero bytes, whatever the spool file held there. */
static int write_bytes(struct jobdir *d, struct tree_node *n, uint64_t offset, const char *bytes,
	size_t size)
{
	int err = offset > UINT64_MAX - size ? -EFBIG : jobdir_room(d, n, offset + size);

	if (!err)
		err = jobdir_fresh_run(d, n);
	if (!err && offset > n->size)
		err = spool_truncate(n->file, n->size);
	if (!err)
		err = spool_write(n->file, offset, bytes, size);
	if (!err && offset + size > n->size)
		jobdir_set_size(d, n, offset + size);
	return err;
}

static int write_node(struct jobdir *d, struct jobdir_file *f, uint64_t offset, const char *bytes,
	size_t size, bool *ret_whole)
{
	struct tree_node *n = f->node;
	uint64_t now = n->size;
	int err = write_bytes(d, n, offset, bytes, size);

	n->dirty = true;
	forget_judgement(f);
	if (err) {
		n->cut = err;
		return err;
	}
	n->mtime = n->ctime = clock_wall();
	if (n->verdict && offset == now)
		*ret_whole = verdict_write(n->verdict, offset, bytes, size);
	else if (n->verdict) /* old bytes are behind it: only the close tells what it becomes */
		verdict_reset(n->verdict);
	return 0;
}

static int judge(struct jobdir *d, struct jobdir_file *f)
{
	struct fault fault = FAULT_NONE;
	int err;

	forget_judgement(f);
	err = jobdir_fits(d, f->node, &fault);
	if (!err)
		err = jobdir_judge(d, f->node, &f->order, &fault);
	if (f->node->verdict)
		verdict_refuse(f->node->verdict, &fault);
	f->judged = !err;
	return err;
}

int jobdir_write(struct jobdir *d, struct jobdir_file *f, uint64_t offset, const char *bytes,
	size_t size)
{
	bool whole = false;
	int err;

	if (f->flags & O_APPEND)
		offset = f->node->size;
	err = write_node(d, f, offset, bytes, size, &whole);
	if (!err && f->node->verdict)
		err = verdict_fault(f->node->verdict)->err;
	if (err || !whole || !f->node->parent) /* what was removed runs no more */
		return err;
	return judge(d, f); /* what is wrong can be said now */
}

/* --- closing ---------------------------------------------------------------------------------- */

/* What close(2) confirms is in the spool: the request as queued. */
static int confirm(struct jobdir *d, struct jobdir_file *f)
{
	struct tree_node *n = f->node;
	int err;

	if (!n->parent || !n->job || !n->size || n->cut || n->taken)
		return n->cut;
	err = f->judged && n->verdict ? 0 : judge(d, f); /* a rename takes the verdict */
	if (err)
		return err;
	err = jobdir_take(d, n, &f->order);
	if (err)
		n->cut = err;
	return err;
}

int jobdir_flush(struct jobdir *d, struct jobdir_file *f, bool opener, bool *ret_sync)
{
	struct tree_node *n = f->node;
	int err;

	*ret_sync = false;
	if (!f->writes || !name_is_request(n->what.class))
		return 0;
	err = n->verdict ? verdict_fault(n->verdict)->err : 0;
	if (err || !opener || !n->dirty)
		return err;
	if (n->verdict && verdict_unfinished(n->verdict))
		return -EINVAL;
	if (n->writers > 1) /* it was no request when they opened it: the last one confirms */
		return 0;
	err = confirm(d, f);
	*ret_sync = !err && n->taken && d->limits.durable;
	return err;
}

void jobdir_release(struct jobdir *d, struct jobdir_file *f)
{
	struct tree_node *n = f->node;
	bool last_writer = f->writes && n->writers == 1;

	n->writers -= f->writes;
	if (last_writer && n->dirty && name_is_request(n->what.class))
		jobdir_submit(d, n, f);
	else if (last_writer && n->dirty && jobdir_keep(d, n) == 0)
		n->dirty = false;
	if (last_writer) {
		verdict_free(n->verdict);
		n->verdict = NULL;
	}
	forget_judgement(f);
	free(f);
	if (--n->opens)
		return;
	spool_file_put(take_ptr(n->file));
	if (!n->parent)
		jobdir_account(d, n, -1);
	tree_release(d->tree, n);
}

/* --- syncing ---------------------------------------------------------------------------------- */

/* One request of the file system: the file, and before it the folders that lead to it. */
struct sync {
	struct spool_sync base;
	void (*done)(void *context, int err); /* NULL: of a folder */
	void *context;
};

static void on_synced(struct spool_sync *base, int err)
{
	struct sync *s = (struct sync *)base;

	if (s->done)
		s->done(s->context, err);
	free(s);
}

/* No node: all of them. */
static int sync_node(struct jobdir *d, const struct tree_node *n,
	void (*done)(void *context, int err), void *context)
{
	struct sync *s = calloc(1, sizeof *s);
	int err = !s ? -ENOMEM : n ? jobdir_spool_file(d, n, &s->base.file) : 0;

	if (err) {
		free(s);
		return err;
	}
	s->base.done = on_synced;
	s->done = done;
	s->context = context;
	spool_sync(d->spool, &s->base);
	return 0;
}

static int sync_folders(struct jobdir *d, const struct tree_node *dir)
{
	int err;

	if (!dir || !dir->parent) /* jobs/ itself has no file */
		return 0;
	err = sync_folders(d, dir->parent);
	return err ? err : sync_node(d, dir, NULL, NULL);
}

int jobdir_sync(struct jobdir *d, uint64_t id, void (*done)(void *context, int err), void *context)
{
	const struct tree_node *n = id ? tree_by_id(d->tree, id) : NULL;
	int err;

	if (id && !n)
		return -ESTALE;
	err = n ? sync_folders(d, n->parent) : 0;
	return err ? err : sync_node(d, n, done, context);
}

uint64_t jobdir_file_id(const struct jobdir_file *f)
{
	return f->node->id;
}
