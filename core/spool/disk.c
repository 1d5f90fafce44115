#include "core/spool/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER_MODE 0700

int (*disk_watch)(enum disk_call call, int fd, const char *name);

static int step(enum disk_call call, int fd, const char *name)
{
	return disk_watch ? disk_watch(call, fd, name) : 0;
}

int disk_mkdir(int at, const char *name)
{
	int err = step(DISK_MKDIR, at, name);

	return err ? err : mkdirat(at, name, FOLDER_MODE) < 0 ? -errno : 0;
}

int disk_create(int at, const char *name, mode_t mode)
{
	int err = step(DISK_CREATE, at, name);
	int fd;

	if (err)
		return err;
	fd = openat(at, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
	return fd < 0 ? -errno : fd;
}

int disk_write(int fd, const void *bytes, size_t n, uint64_t offset)
{
	const char *from = bytes;
	int err = step(DISK_WRITE, fd, "");
	size_t done = 0;

	while (!err && done < n) {
		ssize_t wrote = pwrite(fd, from + done, n - done, (off_t)(offset + done));

		if (wrote < 0 && errno != EINTR)
			err = -errno;
		else if (wrote == 0)
			err = -ENOSPC;
		else if (wrote > 0)
			done += (size_t)wrote;
	}
	return err;
}

int disk_chmod(int fd, mode_t mode)
{
	int err = step(DISK_CHMOD, fd, "");

	return err ? err : fchmod(fd, mode) < 0 ? -errno : 0;
}

int disk_truncate(int fd, uint64_t size)
{
	int err = step(DISK_TRUNCATE, fd, "");

	return err ? err : ftruncate(fd, (off_t)size) < 0 ? -errno : 0;
}

int disk_rename(int from_at, const char *from, int to_at, const char *to)
{
	int err = step(DISK_RENAME, to_at, to);

	return err ? err : renameat(from_at, from, to_at, to) < 0 ? -errno : 0;
}

int disk_unlink(int at, const char *name)
{
	int err = step(DISK_UNLINK, at, name);

	return err ? err : unlinkat(at, name, 0) < 0 ? -errno : 0;
}

int disk_fsync(int fd)
{
	int err = step(DISK_FSYNC, fd, "");

	return err ? err : fsync(fd) < 0 ? -errno : 0;
}

int disk_open(int at, const char *name, int flags)
{
	int fd = openat(at, name, flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	return fd < 0 ? -errno : fd;
}

ssize_t disk_read(int fd, void *ret, size_t n, uint64_t offset)
{
	char *to = ret;
	size_t done = 0;

	while (done < n) {
		ssize_t got = pread(fd, to + done, n - done, (off_t)(offset + done));

		if (got < 0 && errno != EINTR)
			return -errno;
		if (got == 0)
			break;
		if (got > 0)
			done += (size_t)got;
	}
	return (ssize_t)done;
}
