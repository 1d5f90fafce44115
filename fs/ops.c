/* FUSE's requests, handed to the area that the inode number names, and answered. Each handler
 * answers exactly once; only a read of a job's result may answer later (fs/park.c). */
#include "fs/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/poll.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/base/lock.h"
#include "core/engine/metrics.h"
#include "fs/announce.h"
#include "fs/area.h"

#define DOT_PLACES 2 /* "." and ".." come before an area's own places */
#define BLOCK_SIZE 4096

const struct area_ops *const areas[AREA_COUNT] = {
	[AREA_ROOT] = &area_fixed,
	[AREA_MODELS] = &area_fixed,
	[AREA_MANIFESTS] = &area_fixed,
	[AREA_JOBS] = &area_jobs,
	[AREA_SESSIONS] = &area_sessions,
	[AREA_CALLABLES] = &area_callables,
	[AREA_CONTROL] = &area_control,
};

int area_refusal(enum area area)
{
	int err = area < AREA_COUNT ? areas[area]->refusal : 0;

	return err ? err : -EPERM;
}

/* --- who asks --------------------------------------------------------------------------------- */

/* Asked only when group membership decides: the kernel's answer comes from /proc. */
static bool in_group(const struct cred *c, uint32_t gid)
{
	gid_t some[64], *all = some;
	int n = fuse_req_getgroups(c->context, 64, some);
	bool found = false;

	if (n > 64) {
		all = calloc((size_t)n, sizeof *all);
		n = all ? fuse_req_getgroups(c->context, n, all) : 0;
	}
	for (int i = 0; i < n; i++)
		found = found || all[i] == gid;
	if (all != some)
		free(all);
	return found;
}

struct cred fs_cred(fuse_req_t req)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);

	return (struct cred){ .uid = ctx->uid,
		.gid = ctx->gid,
		.pid = ctx->pid,
		.in_group = in_group,
		.context = req };
}

struct cred fs_cred_kept(struct npufs *fs, const struct cred *who)
{
	return (struct cred){ .uid = who->uid,
		.gid = who->gid,
		.pid = who->pid,
		.roles = roles_of(&fs->roles, who) };
}

/* What every handler begins with. */
struct call {
	struct npufs *fs;
	struct cred cred;
	struct at at;
	const struct area_ops *area;
};

static struct call call_of(fuse_req_t req, fuse_ino_t ino)
{
	struct call c = { .fs = fs_of(req), .cred = fs_cred(req), .at = at_of(ino) };

	metrics_add(METRIC_FUSE_REQUESTS, 1);
	if (c.at.area >= AREA_COUNT)
		c.at = (struct at){ AREA_ROOT, UINT64_MAX >> 16, 0 }; /* names nothing: ESTALE */
	c.area = areas[c.at.area];
	return c;
}

static int refuse(const struct call *c, const char *what)
{
	return c->area->refuse ? c->area->refuse(c->fs, &c->cred, c->at, what)
			       : area_refusal(c->at.area);
}

static void reply_err(fuse_req_t req, int err)
{
	lock_assert_none();
	fuse_reply_err(req, -err);
}

static void reply_entry(fuse_req_t req, int err, const struct fuse_entry_param *e)
{
	if (err)
		reply_err(req, err);
	else
		fuse_reply_entry(req, e);
}

static void reply_attr(fuse_req_t req, int err, const struct stat *st, double seconds)
{
	if (err)
		reply_err(req, err);
	else
		fuse_reply_attr(req, st, seconds);
}

/* --- names and attributes --------------------------------------------------------------------- */

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct call c = call_of(req, parent);
	struct fuse_entry_param e = { .generation = c.fs->generation };
	int err = 0;

	if (announce_is_self(c.fs->announcer, &c.cred))
		err = announce_lookup(c.fs->announcer, c.at, name);
	if (!err)
		err = c.area->lookup(c.fs, &c.cred, c.at, name, &e);
	if (err == -ENOENT && strlen(name) > JOBNAME_MAX)
		err = -ENAMETOOLONG; /* the kernel's own limit is above what statfs says */
	reply_entry(req, err, &e);
}

static void forget_one(struct npufs *fs, fuse_ino_t ino, uint64_t n)
{
	struct at at = at_of(ino);

	if (at.area < AREA_COUNT && areas[at.area]->forget)
		areas[at.area]->forget(fs, at, n);
}

static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n)
{
	forget_one(fs_of(req), ino, n);
	fuse_reply_none(req);
}

static void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		forget_one(fs_of(req), forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(req);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct call c = call_of(req, ino);
	struct stat st;
	double seconds = 0;
	int err = c.area->getattr(c.fs, &c.cred, c.at, &st, &seconds);

	(void)fi;
	reply_attr(req, err, &st, seconds);
}

static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *values, int set,
	struct fuse_file_info *fi)
{
	struct call c = call_of(req, ino);
	struct stat st;

	reply_attr(req,
		c.area->setattr(c.fs, &c.cred, c.at, fi ? handle_of(fi) : NULL, values, set, &st),
		&st, 0);
}

static void op_access(fuse_req_t req, fuse_ino_t ino, int mask)
{
	struct call c = call_of(req, ino);

	reply_err(req, c.area->access(c.fs, &c.cred, c.at, mask));
}

static void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct call c = call_of(req, parent);
	struct fuse_entry_param e = { .generation = c.fs->generation };

	reply_entry(req,
		c.area->mkdir ? c.area->mkdir(c.fs, &c.cred, c.at, name, mode, &e)
			      : refuse(&c, "mkdir"),
		&e);
}

static void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct call c = call_of(req, parent);

	if (c.area->unlink_later) {
		c.area->unlink_later(c.fs, req, c.at, name);
		return;
	}
	reply_err(req,
		c.area->unlink ? c.area->unlink(c.fs, &c.cred, c.at, name) : refuse(&c, "unlink"));
}

static void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct call c = call_of(req, parent);

	reply_err(req,
		c.area->rmdir ? c.area->rmdir(c.fs, &c.cred, c.at, name) : refuse(&c, "rmdir"));
}

static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
	const char *new_name, unsigned int flags)
{
	struct call c = call_of(req, parent), to = call_of(req, new_parent);
	uint64_t sync = 0;
	int err;

	if (to.area->refuse) /* it is told of, whatever comes from where */
		err = refuse(&to, "rename");
	else if (!c.area->rename)
		err = refuse(&c, "rename");
	else if (flags & ~(unsigned)RENAME_NOREPLACE)
		err = -EINVAL;
	else
		err = c.area->rename(c.fs, &c.cred, c.at, name, at_of(new_parent), new_name,
			flags & RENAME_NOREPLACE, &sync);
	if (!err && sync)
		file_sync(c.fs, req, sync);
	else
		reply_err(req, err);
}

/* Links and device files do not exist here. */
static void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t dev)
{
	const struct call c = call_of(req, parent);

	(void)name, (void)mode, (void)dev;
	reply_err(req, refuse(&c, "mknod"));
}

static void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	const struct call c = call_of(req, parent);

	(void)target, (void)name;
	reply_err(req, refuse(&c, "symlink"));
}

static void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent, const char *new_name)
{
	const struct call from = call_of(req, ino), to = call_of(req, new_parent);

	(void)new_name;
	reply_err(req, refuse(from.area->refuse ? &from : &to, "link"));
}

/* There are no attributes to set, and an area may want to know of it. */
static void refuse_attribute(fuse_req_t req, fuse_ino_t ino, const char *what)
{
	const struct call c = call_of(req, ino);
	int err = c.area->refuse ? refuse(&c, what) : -EOPNOTSUPP;

	reply_err(req, err == -EPERM ? -EOPNOTSUPP : err);
}

static void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
	size_t size, int flags)
{
	(void)name, (void)value, (void)size, (void)flags;
	refuse_attribute(req, ino, "setxattr");
}

static void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	(void)name;
	refuse_attribute(req, ino, "removexattr");
}

/* --- open files ------------------------------------------------------------------------------- */

static void keep(struct npufs *fs, struct handle *h)
{
	h->next = fs->open;
	if (h->next)
		h->next->link = &h->next;
	h->link = &fs->open;
	fs->open = h;
	fs->n_open++;
}

static void release(struct npufs *fs, struct handle *h)
{
	*h->link = h->next;
	if (h->next)
		h->next->link = h->link;
	h->ops->release(fs, h);
	fs->n_open--;
}

void fs_close_all(struct npufs *fs)
{
	while (fs->open)
		release(fs, fs->open);
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct call c = call_of(req, ino);
	struct handle *h = NULL;
	int err = c.area->open(c.fs, &c.cred, c.at, fi, &h);

	fi->fh = (uintptr_t)h;
	if (err) {
		reply_err(req, err);
		return;
	}
	fi->noflush = !h->ops->flush; /* closing is one request less, then */
	keep(c.fs, h);
	if (fuse_reply_open(req, fi) == -ENOENT) /* the open was interrupted: no release comes */
		release(c.fs, h);
}

static void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
	struct fuse_file_info *fi)
{
	struct call c = call_of(req, parent);
	struct fuse_entry_param e = { .generation = c.fs->generation };
	struct handle *h = NULL;
	int err;

	if (announce_is_self(c.fs->announcer, &c.cred))
		err = announce_create(c.fs, &c.cred, c.at, name, fi, &e, &h);
	else if (c.area->create)
		err = c.area->create(c.fs, &c.cred, c.at, name, mode, fi, &e, &h);
	else
		err = refuse(&c, "create");
	fi->fh = (uintptr_t)h;
	if (err) {
		reply_err(req, err);
		return;
	}
	keep(c.fs, h);
	if (fuse_reply_create(req, &e, fi) == -ENOENT) { /* as with open; the request is gone too */
		release(c.fs, h);
		forget_one(c.fs, e.ino, 1);
	}
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
	struct fuse_file_info *fi)
{
	struct handle *h = handle_of(fi);

	(void)ino;
	metrics_add(METRIC_FUSE_REQUESTS, 1);
	if (h->ops->read)
		h->ops->read(fs_of(req), req, h, size, off, fi->flags);
	else
		reply_err(req, -EBADF);
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *bytes, size_t size, off_t off,
	struct fuse_file_info *fi)
{
	struct handle *h = handle_of(fi);

	(void)ino;
	metrics_add(METRIC_FUSE_REQUESTS, 1);
	if (h->ops->write)
		h->ops->write(fs_of(req), req, h, bytes, size, off);
	else
		reply_err(req, -EBADF);
}

static void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct handle *h = handle_of(fi);

	(void)ino;
	metrics_add(METRIC_FUSE_REQUESTS, 1);
	if (h->ops->flush)
		h->ops->flush(fs_of(req), req, h);
	else
		reply_err(req, 0);
}

static void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct handle *h = handle_of(fi);

	(void)ino;
	metrics_add(METRIC_FUSE_REQUESTS, 1);
	release(fs_of(req), h);
	reply_err(req, 0);
}

static void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct handle *h = handle_of(fi);

	(void)ino, (void)datasync;
	if (h->ops->fsync)
		h->ops->fsync(fs_of(req), req, h);
	else
		reply_err(req, 0);
}

static void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	(void)datasync, (void)fi;
	if (at_of(ino).area == AREA_JOBS)
		file_sync(fs_of(req), req, 0);
	else
		reply_err(req, 0);
}

static void op_poll(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi,
	struct fuse_pollhandle *ph)
{
	struct handle *h = handle_of(fi);

	(void)ino;
	if (h->ops->poll) {
		h->ops->poll(fs_of(req), req, h, ph);
		return;
	}
	if (ph)
		fuse_pollhandle_destroy(ph);
	fuse_reply_poll(req, POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM);
}

/* --- listing ---------------------------------------------------------------------------------- */

static void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct call c = call_of(req, ino);
	int err = c.area->may_list(c.fs, &c.cred, c.at);

	if (err)
		reply_err(req, err);
	else
		fuse_reply_open(req, fi);
}

struct dir_buffer {
	struct listing base;
	fuse_req_t req;
	char *bytes;
	size_t len, size;
};

static bool dir_add(struct listing *l, const char *name, struct at at, bool dir, uint64_t next)
{
	struct dir_buffer *b = (struct dir_buffer *)l;
	const struct stat st = { .st_ino = at_ino(at), .st_mode = dir ? S_IFDIR : S_IFREG };
	size_t need = fuse_add_direntry(b->req, b->bytes + b->len, b->size - b->len, name, &st,
		(off_t)(next + DOT_PLACES));

	if (need > b->size - b->len)
		return false;
	b->len += need;
	return true;
}

/* The first two places; places of the area are counted from 0 behind them. */
static bool add_dots(struct dir_buffer *b, fuse_ino_t ino, off_t off)
{
	static const char *const dots[DOT_PLACES] = { ".", ".." };

	for (off_t i = off; i < DOT_PLACES; i++)
		if (!dir_add(&b->base, dots[i], i ? at_of(FUSE_ROOT_ID) : at_of(ino), true,
			    (uint64_t)i + 1 - DOT_PLACES))
			return false;
	return true;
}

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
	struct fuse_file_info *fi)
{
	struct call c = call_of(req, ino);
	struct dir_buffer b = { .base.add = dir_add,
		.req = req,
		.bytes = malloc(size),
		.size = size };
	int err = b.bytes ? 0 : -ENOMEM;

	(void)fi;
	if (!err && add_dots(&b, ino, off))
		err = c.area->list(c.fs, c.at, off > DOT_PLACES ? (uint64_t)off - DOT_PLACES : 0,
			&b.base);
	if (err)
		reply_err(req, err);
	else
		fuse_reply_buf(req, b.bytes, b.len);
	free(b.bytes);
}

static void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino, (void)fi;
	reply_err(req, 0);
}

/* --- the file system itself ------------------------------------------------------------------- */

static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct npufs *fs = fs_of(req);
	struct jobdir_usage usage;
	struct statvfs st = { .f_bsize = BLOCK_SIZE,
		.f_frsize = BLOCK_SIZE,
		.f_namemax = JOBNAME_MAX };

	(void)ino;
	jobdir_usage(fs->jobs, &usage);
	st.f_blocks = (usage.bytes + usage.free_bytes) / BLOCK_SIZE;
	st.f_bfree = st.f_bavail = usage.free_bytes / BLOCK_SIZE;
	st.f_files = usage.files + usage.free_files;
	st.f_ffree = st.f_favail = usage.free_files;
	fuse_reply_statfs(req, &st);
}

/* Left as libfuse has it: O_TRUNC comes with open, data caches follow size and mtime. Switched off:
 * splicing, which costs more than it saves for texts; no write-back cache, no export, no permission
 * checks by the kernel. */
static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	(void)userdata;
	conn->want &= ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE |
		FUSE_CAP_SPLICE_MOVE | FUSE_CAP_WRITEBACK_CACHE | FUSE_CAP_EXPORT_SUPPORT |
		FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO);
}

const struct fuse_lowlevel_ops fs_ops = {
	.init = op_init,
	.lookup = op_lookup,
	.forget = op_forget,
	.forget_multi = op_forget_multi,
	.getattr = op_getattr,
	.setattr = op_setattr,
	.access = op_access,
	.mkdir = op_mkdir,
	.mknod = op_mknod,
	.symlink = op_symlink,
	.link = op_link,
	.setxattr = op_setxattr,
	.removexattr = op_removexattr,
	.unlink = op_unlink,
	.rmdir = op_rmdir,
	.rename = op_rename,
	.open = op_open,
	.create = op_create,
	.read = op_read,
	.write = op_write,
	.flush = op_flush,
	.release = op_release,
	.fsync = op_fsync,
	.fsyncdir = op_fsyncdir,
	.poll = op_poll,
	.opendir = op_opendir,
	.readdir = op_readdir,
	.releasedir = op_releasedir,
	.statfs = op_statfs,
};
