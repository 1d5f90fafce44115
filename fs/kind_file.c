#include "fs/handle.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/base/lock.h"
#include "core/base/mem.h"

struct open_file {
	struct handle base;
	struct jobdir_file *file;
	pid_t opener;
};

static void file_read(struct npufs *fs, fuse_req_t req, struct handle *h, size_t size, off_t off,
	int flags)
{
	AUTO_FREE char *bytes = malloc(size ? size : 1);
	ssize_t n = -ENOMEM;

	(void)flags;
	if (bytes)
		n = jobdir_read(fs->jobs, ((struct open_file *)h)->file, (uint64_t)off, bytes,
			size);
	if (n < 0)
		fuse_reply_err(req, (int)-n);
	else
		fuse_reply_buf(req, bytes, (size_t)n);
}

static void file_write(struct npufs *fs, fuse_req_t req, struct handle *h, const char *bytes,
	size_t size, off_t off)
{
	int err = jobdir_write(fs->jobs, ((struct open_file *)h)->file, (uint64_t)off, bytes, size);

	if (err)
		fuse_reply_err(req, -err);
	else
		fuse_reply_write(req, size);
}

/* The spool's thread answers. */
static void on_synced(void *context, int err)
{
	lock_assert_none();
	fuse_reply_err(context, -err);
}

void file_sync(struct npufs *fs, fuse_req_t req, uint64_t id)
{
	int err = jobdir_sync(fs->jobs, id, on_synced, req);

	if (err)
		fuse_reply_err(req, -err);
}

/* By the opener's process: many programs open in one thread and close in another. */
static bool is_openers(pid_t opener, pid_t closer)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/%ld/task/%ld", (long)closer, (long)opener);
	return closer == opener || access(path, F_OK) == 0;
}

static void file_flush(struct npufs *fs, fuse_req_t req, struct handle *h)
{
	struct open_file *f = (struct open_file *)h;
	bool sync;
	int err = jobdir_flush(fs->jobs, f->file, is_openers(f->opener, fuse_req_ctx(req)->pid),
		&sync);

	if (sync)
		file_sync(fs, req, jobdir_file_id(f->file));
	else
		fuse_reply_err(req, -err);
}

static void file_fsync(struct npufs *fs, fuse_req_t req, struct handle *h)
{
	file_sync(fs, req, jobdir_file_id(((struct open_file *)h)->file));
}

static void file_release(struct npufs *fs, struct handle *h)
{
	jobdir_release(fs->jobs, ((struct open_file *)h)->file);
	free(h);
}

static const struct handle_ops file_ops = {
	.read = file_read,
	.write = file_write,
	.flush = file_flush,
	.fsync = file_fsync,
	.release = file_release,
};

struct handle *file_handle_new(struct jobdir_file *f, pid_t opener)
{
	struct open_file *h = calloc(1, sizeof *h);

	if (!h)
		return NULL;
	h->base.ops = &file_ops;
	h->file = f;
	h->opener = opener;
	return &h->base;
}

struct jobdir_file *file_handle_file(struct handle *h)
{
	return h && h->ops == &file_ops ? ((struct open_file *)h)->file : NULL;
}
