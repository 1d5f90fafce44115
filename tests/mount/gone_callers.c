/* Preloaded into a daemon: while the file that CALLERS_GONE names is there, whoever creates a file, or opens
 * one to write it, has gone before it is told, as when the kernel aborts the connection between a request
 * and its answer. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define FUSE_USE_VERSION 34
#include <fuse3/fuse_lowlevel.h>

static int are_gone(void)
{
	const char *path = getenv("CALLERS_GONE");

	return path && access(path, F_OK) == 0;
}

static int lose(fuse_req_t req)
{
	fuse_reply_err(req, EIO);
	return -ENOENT;
}

int fuse_reply_create(fuse_req_t req, const struct fuse_entry_param *e,
	const struct fuse_file_info *fi)
{
	static int (
		*real)(fuse_req_t, const struct fuse_entry_param *, const struct fuse_file_info *);

	if (!real)
		real = (int (*)(fuse_req_t, const struct fuse_entry_param *,
			const struct fuse_file_info *))dlsym(RTLD_NEXT, "fuse_reply_create");
	return are_gone() ? lose(req) : real(req, e, fi);
}

int fuse_reply_open(fuse_req_t req, const struct fuse_file_info *fi)
{
	static int (*real)(fuse_req_t, const struct fuse_file_info *);

	if (!real)
		real = (int (*)(fuse_req_t, const struct fuse_file_info *))dlsym(RTLD_NEXT,
			"fuse_reply_open");
	return are_gone() && (fi->flags & O_ACCMODE) != O_RDONLY ? lose(req) : real(req, fi);
}
