#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/jobdir_impl.h"
#include "core/metrics.h"

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

int jobdir_room(struct jobdir *d, const struct tree_node *n, uint64_t size)
{
	uint64_t now = spool_file_size(n->data);
	uint64_t left = d->limits.bytes > d->bytes ? d->limits.bytes - d->bytes : 0;

	lock_assert_held(&d->lock);
	if (size <= now)
		return 0;
	if (size > d->limits.request_bytes)
		return -EFBIG;
	return size - now > left ? -ENOSPC : 0;
}

void jobdir_account(struct jobdir *d, const struct tree_node *n, uint64_t size_before)
{
	lock_assert_held(&d->lock);
	d->bytes = d->bytes - size_before + spool_file_size(n->data);
}

/* Until then a removed file counts: its bytes are still there. */
void jobdir_drop_content(struct jobdir *d, struct tree_node *n)
{
	uint64_t before = spool_file_size(n->data);

	spool_file_truncate(n->data, 0);
	jobdir_account(d, n, before);
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

static int empty_it(struct jobdir *d, struct tree_node *n)
{
	int err = jobdir_fresh_run(n);

	if (!err)
		jobdir_drop_content(d, n);
	n->cut = 0;
	n->mtime = n->ctime = clock_wall();
	return err;
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

static int open_locked(struct jobdir *d, struct tree_node *n, int flags, struct jobdir_file **ret)
{
	struct jobdir_file *f = calloc(1, sizeof *f);
	int err = f ? 0 : -ENOMEM;

	if (!err) {
		f->node = n;
		f->flags = flags;
		f->writes = (flags & O_ACCMODE) != O_RDONLY;
		if (f->writes || (flags & O_TRUNC))
			err = begin_writing(d, n, flags);
	}
	if (err) {
		free(f);
		return err;
	}
	n->opens++;
	n->writers += f->writes;
	*ret = f;
	return 0;
}

/* Linked, reachable and allowed. ESTALE: the kernel looks the name up again. */
static int may_open(struct jobdir *d, const struct cred *c, struct tree_node *n, int flags)
{
	int err;

	lock_assert_held(&d->lock);
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

	lock_take(&d->lock);
	n = tree_by_id(d->tree, id);
	err = may_open(d, c, n, flags);
	if (!err)
		err = open_locked(d, n, flags, ret_file);
	lock_drop(&d->lock);
	return err;
}

int jobdir_open_result(struct jobdir *d, const struct cred *c, struct jobdir_ref ref, int flags,
	struct job **ret)
{
	struct tree_node *n;
	struct owner o;
	int err;

	lock_take(&d->lock);
	n = tree_by_id(d->tree, ref.id);
	err = n && n->parent && jobdir_shows(n, ref) ? 0 : -ESTALE;
	if (!err)
		err = jobdir_search(c, n->parent);
	if (!err) {
		o = jobdir_result_owner(n);
		err = want_of(flags) & W_OK ? -EACCES : access_check(c, &o, R_OK);
	}
	if (!err)
		*ret = job_get(n->job);
	lock_drop(&d->lock);
	return err;
}

/* --- creating --------------------------------------------------------------------------------- */

static int may_create(struct jobdir *d, const struct cred *c, struct tree_node *dir,
	const struct jobname *what, const char *name)
{
	if (name_is_request(what->class) && tree_find_stem(dir, name, what->stem_len))
		return -EEXIST;
	if (tree_count(d->tree) >= d->limits.files)
		return -ENOSPC;
	return name_is_request(what->class) ? engine_admit(d->engine, c->uid, NULL) : 0;
}

static int make_file(struct jobdir *d, const struct cred *c, struct tree_node *dir,
	const char *name, uint32_t mode, struct tree_node **ret)
{
	const struct owner o = {
		.uid = c->uid,
		.gid = dir->owner.mode & S_ISGID ? dir->owner.gid : c->gid,
		.mode = mode & 0777 & ~d->limits.umask,
	};
	struct tree_node *n = tree_node_new(d->tree, &o);
	int err = n ? tree_link(d->tree, dir, n, name) : -ENOMEM;

	if (!err && jobdir_fresh_run(n)) {
		tree_unlink(d->tree, n);
		return -ENOMEM;
	}
	if (err && n)
		tree_release(d->tree, n);
	if (!err)
		*ret = n;
	return err;
}

static int create_locked(struct jobdir *d, const struct cred *c, uint64_t dir_id, const char *name,
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
		err = may_open(d, c, n, flags);
		return err ? err : open_locked(d, n, flags, ret);
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
	err = open_locked(d, n, flags & ~O_TRUNC, ret);
	if (err) {
		job_put(jobdir_take_job(n));
		tree_unlink(d->tree, n);
	}
	return err;
}

int jobdir_create(struct jobdir *d, const struct cred *c, uint64_t dir, const char *name,
	uint32_t mode, int flags, struct jobdir_attr *ret, struct jobdir_file **ret_file)
{
	int err;

	lock_take(&d->lock);
	err = create_locked(d, c, dir, name, mode, flags, ret_file);
	if (!err) {
		jobdir_tell((*ret_file)->node);
		jobdir_attr(d, (*ret_file)->node, ROW_REQUEST, ret);
	}
	lock_drop(&d->lock);
	return err;
}

/* --- reading and writing ---------------------------------------------------------------------- */

ssize_t jobdir_read(struct jobdir *d, struct jobdir_file *f, uint64_t offset, char *ret,
	size_t size)
{
	ssize_t n;

	lock_take(&d->lock);
	n = spool_file_read(f->node->data, offset, ret, size);
	lock_drop(&d->lock);
	return n;
}

static int write_locked(struct jobdir *d, struct jobdir_file *f, uint64_t offset, const char *bytes,
	size_t size, bool *ret_whole)
{
	struct tree_node *n = f->node;
	uint64_t now = spool_file_size(n->data);
	int err = offset > UINT64_MAX - size ? -EFBIG : jobdir_room(d, n, offset + size);

	if (!err)
		err = jobdir_fresh_run(n);
	if (!err)
		err = spool_file_write(n->data, offset, bytes, size);
	jobdir_account(d, n, now);
	n->dirty = true;
	f->judged = false;
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

/* Keep a judgement, unless the content it was about has been changed meanwhile. */
static void keep_judgement(struct jobdir_file *f, const struct blob *content,
	const struct job_order *order, const struct fault *fault)
{
	struct blob *now = spool_file_freeze(f->node->data);

	if (now == content && f->node->verdict) {
		verdict_refuse(f->node->verdict, fault);
		f->judged = !fault->err;
		f->order = *order;
	}
	blob_put(now);
}

/* The document is whole: what is wrong with it can be said now. */
static int judge_now(struct jobdir *d, struct jobdir_file *f)
{
	struct verdict_checker checker = jobdir_checker(d);
	struct job_order order = { 0 };
	struct fault fault;
	struct blob *content;
	int err;

	lock_take(&d->lock);
	content = spool_file_freeze(f->node->data);
	lock_drop(&d->lock);
	if (!content)
		return -ENOMEM;
	err = verdict_judge(JOB_FORMAT_JSON, content, &checker, &order,
		&fault); /* text is never whole */
	lock_take(&d->lock);
	keep_judgement(f, content, &order, &fault);
	lock_drop(&d->lock);
	blob_put(content);
	return err;
}

int jobdir_write(struct jobdir *d, struct jobdir_file *f, uint64_t offset, const char *bytes,
	size_t size)
{
	bool whole = false;
	int err;

	lock_take(&d->lock);
	if (f->flags & O_APPEND)
		offset = spool_file_size(f->node->data);
	err = write_locked(d, f, offset, bytes, size, &whole);
	if (!err && f->node->verdict)
		err = verdict_fault(f->node->verdict)->err;
	lock_drop(&d->lock);
	return !err && whole ? judge_now(d, f) : err;
}

int jobdir_flush(struct jobdir *d, struct jobdir_file *f, bool opener)
{
	int err = 0;

	lock_take(&d->lock);
	if (f->writes && f->node->verdict) {
		err = verdict_fault(f->node->verdict)->err;
		if (!err && opener && f->node->dirty && verdict_unfinished(f->node->verdict))
			err = -EINVAL;
	}
	lock_drop(&d->lock);
	return err;
}

/* --- closing ---------------------------------------------------------------------------------- */

void jobdir_release(struct jobdir *d, struct jobdir_file *f)
{
	struct submission s = { 0 };
	struct tree_node *n = f->node;

	lock_take(&d->lock);
	n->opens--;
	n->writers -= f->writes;
	if (f->writes && n->writers == 0) {
		if (n->dirty)
			s = jobdir_prepare(n, f);
		verdict_free(n->verdict);
		n->verdict = NULL;
	}
	if (!n->parent && !n->opens)
		jobdir_drop_content(d, n);
	tree_release(d->tree, n);
	lock_drop(&d->lock);
	free(f);
	jobdir_submit(d, &s);
}
