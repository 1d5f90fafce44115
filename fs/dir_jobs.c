/* jobs/: from FUSE's words to core/job/jobdir.h's and back. */
#include "fs/area.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "core/base/clock.h"

/* A request's name is known to the kernel for so long without asking; every open, stat and change
 * still comes here, and one that went away answers ESTALE, which makes the kernel ask again. Not in
 * a folder that some may not search: the kernel would tell them by itself that the name is there. */
#define REQUEST_ENTRY_SECONDS 60.0
/* A result of a run that has ended does not change: its size is believed for so long while it is
 * read. */
#define RESULT_ATTR_SECONDS 1.0

#define ROW_BITS 3
_Static_assert(ROW_COUNT <= 1 << ROW_BITS && JOBDIR_RUNS <= 1 << (AT_ROW_BITS - ROW_BITS),
	"fit in a row");

static struct jobdir_ref ref_of(struct at at)
{
	return (struct jobdir_ref){ .id = at.object,
		.row = (enum job_row)(at.row % (1 << ROW_BITS)),
		.run = at.row >> ROW_BITS };
}

static struct at at_of_ref(struct jobdir_ref ref)
{
	return (struct at){ AREA_JOBS, ref.id, ref.run << ROW_BITS | ref.row };
}

static void fill_stat(const struct jobdir_attr *a, struct stat *ret)
{
	*ret = (struct stat){
		.st_ino = at_ino(at_of_ref(a->ref)),
		.st_mode = (a->owner.dir ? S_IFDIR : S_IFREG) | a->owner.mode,
		.st_nlink = a->links,
		.st_uid = a->owner.uid,
		.st_gid = a->owner.gid,
		.st_atim = clock_timespec(a->atime),
		.st_mtim = clock_timespec(a->mtime),
		.st_ctim = clock_timespec(a->ctime),
	};
	fs_stat_size(ret, a->size);
}

static double attr_seconds(const struct jobdir_attr *a)
{
	return a->final ? RESULT_ATTR_SECONDS : 0;
}

static void fill_entry(const struct jobdir_attr *a, struct fuse_entry_param *ret)
{
	fill_stat(a, &ret->attr);
	ret->ino = ret->attr.st_ino;
	ret->entry_timeout = a->ref.row == ROW_REQUEST && a->public ? REQUEST_ENTRY_SECONDS : 0;
	ret->attr_timeout = attr_seconds(a);
}

static int jobs_lookup(struct npufs *fs, const struct cred *c, struct at dir, const char *name,
	struct fuse_entry_param *ret)
{
	struct jobdir_attr a;
	int err = jobdir_lookup(fs->jobs, c, dir.object, name, &a);

	if (!err)
		fill_entry(&a, ret);
	return err;
}

static void jobs_forget(struct npufs *fs, struct at at, uint64_t n)
{
	jobdir_forget(fs->jobs, at.object, n);
}

static int jobs_getattr(struct npufs *fs, const struct cred *c, struct at at, struct stat *ret,
	double *ret_seconds)
{
	struct jobdir_attr a;
	int err = jobdir_getattr(fs->jobs, c, ref_of(at), &a);

	if (err == -ESTALE)
		return result_handle_attr(fs, at_ino(at), ret);
	if (err)
		return err;
	fill_stat(&a, ret);
	*ret_seconds = attr_seconds(&a);
	return 0;
}

static unsigned changes(int set)
{
	static const struct {
		int fuse;
		unsigned jobdir;
	} same[] = {
		{ FUSE_SET_ATTR_MODE, JOBDIR_SET_MODE },
		{ FUSE_SET_ATTR_UID, JOBDIR_SET_UID },
		{ FUSE_SET_ATTR_GID, JOBDIR_SET_GID },
		{ FUSE_SET_ATTR_SIZE, JOBDIR_SET_SIZE },
		{ FUSE_SET_ATTR_ATIME, JOBDIR_SET_ATIME },
		{ FUSE_SET_ATTR_MTIME, JOBDIR_SET_MTIME },
		{ FUSE_SET_ATTR_ATIME_NOW, JOBDIR_SET_ATIME_NOW },
		{ FUSE_SET_ATTR_MTIME_NOW, JOBDIR_SET_MTIME_NOW },
	};
	unsigned got = 0;

	for (size_t i = 0; i < sizeof same / sizeof *same; i++)
		got |= set & same[i].fuse ? same[i].jobdir : 0;
	return got;
}

static int jobs_setattr(struct npufs *fs, const struct cred *c, struct at at, struct handle *open,
	const struct stat *v, int set, struct stat *ret)
{
	const struct jobdir_change change = {
		.set = changes(set),
		.mode = v->st_mode & 07777,
		.uid = v->st_uid,
		.gid = v->st_gid,
		.size = (uint64_t)v->st_size,
		.atime = v->st_atim.tv_sec * NS_PER_SEC + v->st_atim.tv_nsec,
		.mtime = v->st_mtim.tv_sec * NS_PER_SEC + v->st_mtim.tv_nsec,
	};
	struct jobdir_attr a;
	int err = jobdir_setattr(fs->jobs, c, ref_of(at), file_handle_file(open), &change, &a);

	if (!err)
		fill_stat(&a, ret);
	return err;
}

static int jobs_access(struct npufs *fs, const struct cred *c, struct at at, int want)
{
	return jobdir_access(fs->jobs, c, ref_of(at), want);
}

/* --- opening ---------------------------------------------------------------------------------- */

/* A run that has ended is what it is: its results have a size and may be cached and mapped. One
 * that goes on is read past the cache. A failed run has no output: opening it says why. */
static int open_result(struct npufs *fs, const struct cred *c, struct at at,
	struct fuse_file_info *fi, struct handle **ret)
{
	enum job_row row = ref_of(at).row;
	struct job *j;
	struct job_view v;
	int err = jobdir_open_result(fs->jobs, c, ref_of(at), fi->flags, &j);

	if (err)
		return err;
	job_look(j, &v);
	fi->direct_io = !job_state_ended(v.state);
	if (v.fault.err && (row == ROW_OUT || row == ROW_STREAM))
		err = v.fault.err;
	else if (!(*ret = result_handle_new(j, row, at_ino(at))))
		err = -ENOMEM;
	if (err)
		job_put(j);
	return err;
}

static int wrap_file(struct npufs *fs, const struct cred *c, struct jobdir_file *f,
	struct fuse_file_info *fi, struct handle **ret)
{
	fi->direct_io = (fi->flags & O_ACCMODE) != O_RDONLY;
	*ret = file_handle_new(f, c->pid);
	if (*ret)
		return 0;
	jobdir_release(fs->jobs, f);
	return -ENOMEM;
}

static int jobs_open(struct npufs *fs, const struct cred *c, struct at at,
	struct fuse_file_info *fi, struct handle **ret)
{
	struct jobdir_file *f;
	int err;

	if (at.row != ROW_REQUEST)
		return open_result(fs, c, at, fi, ret);
	err = jobdir_open(fs->jobs, c, at.object, fi->flags, &f);
	return err ? err : wrap_file(fs, c, f, fi, ret);
}

static int jobs_create(struct npufs *fs, const struct cred *c, struct at dir, const char *name,
	mode_t mode, struct fuse_file_info *fi, struct fuse_entry_param *ret_entry,
	struct handle **ret)
{
	struct jobdir_attr a;
	struct jobdir_file *f;
	int err = jobdir_create(fs->jobs, c, dir.object, name, mode, fi->flags, &a, &f);

	if (err)
		return err;
	fill_entry(&a, ret_entry);
	err = wrap_file(fs, c, f, fi, ret);
	if (err)
		jobdir_forget(fs->jobs, a.ref.id, 1);
	return err;
}

/* --- names ------------------------------------------------------------------------------------ */

static int jobs_mkdir(struct npufs *fs, const struct cred *c, struct at dir, const char *name,
	mode_t mode, struct fuse_entry_param *ret)
{
	struct jobdir_attr a;
	int err = jobdir_mkdir(fs->jobs, c, dir.object, name, mode, &a);

	if (!err)
		fill_entry(&a, ret);
	return err;
}

static int jobs_unlink(struct npufs *fs, const struct cred *c, struct at dir, const char *name)
{
	return jobdir_unlink(fs->jobs, c, dir.object, name);
}

static int jobs_rmdir(struct npufs *fs, const struct cred *c, struct at dir, const char *name)
{
	return jobdir_rmdir(fs->jobs, c, dir.object, name);
}

static int jobs_rename(struct npufs *fs, const struct cred *c, struct at from_dir, const char *from,
	struct at to_dir, const char *to, bool no_replace, uint64_t *ret_sync)
{
	if (to_dir.area != AREA_JOBS)
		return area_refusal(to_dir.area);
	return jobdir_rename(fs->jobs, c, from_dir.object, from, to_dir.object, to, no_replace,
		ret_sync);
}

static int jobs_may_list(struct npufs *fs, const struct cred *c, struct at dir)
{
	return jobdir_may_list(fs->jobs, c, dir.object);
}

static bool pass_entry(void *context, const struct jobdir_entry *e)
{
	struct listing *l = context;

	return l->add(l, e->name, at_of_ref(e->ref), e->dir, e->next);
}

static int jobs_list(struct npufs *fs, struct at dir, uint64_t from, struct listing *l)
{
	return jobdir_list(fs->jobs, dir.object, from, pass_entry, l);
}

const struct area_ops area_jobs = {
	.lookup = jobs_lookup,
	.forget = jobs_forget,
	.getattr = jobs_getattr,
	.setattr = jobs_setattr,
	.access = jobs_access,
	.open = jobs_open,
	.create = jobs_create,
	.mkdir = jobs_mkdir,
	.unlink = jobs_unlink,
	.rmdir = jobs_rmdir,
	.rename = jobs_rename,
	.may_list = jobs_may_list,
	.list = jobs_list,
};
