#include "core/base/files_write.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/files.h"
#include "core/spool/disk.h"

#define FOLDER_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
#define FOLDER_MODE  0755
#define CHUNK_BYTES  (1u << 16)

/* --- folders ---------------------------------------------------------------------------------- */

static int open_folder(int at, const char *name, int *ret_fd)
{
	int fd = openat(at, name, FOLDER_FLAGS);

	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

static int sync_parent(int fd)
{
	AUTO_CLOSE int parent = openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return parent < 0 || fsync(parent) < 0 ? -errno : 0;
}

/* In two steps, since mkdir's mode is subject to the umask. */
int files_make_folder(int at, const char *name, mode_t mode)
{
	AUTO_CLOSE int fd = -1;
	bool made = mkdirat(at, name, mode & S_IRWXU) == 0;
	struct stat st;
	int err;

	if (!made && errno != EEXIST)
		return -errno;
	err = open_folder(at, name, &fd);
	if (err)
		return err;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!made)
		mode &= st.st_mode & 07777;
	if ((st.st_mode & 07777) != mode && fchmod(fd, mode) < 0)
		return -errno;
	return made ? sync_parent(fd) : 0;
}

/* Open the folder that the last component of `path` is in, made if need be. */
static int open_parent(int at, const char *path, int *ret_fd, const char **ret_name)
{
	AUTO_CLOSE int folder = -1;
	char name[NAME_MAX + 1];
	const char *slash;
	int err = open_folder(at, ".", &folder);

	for (; !err && (slash = strchr(path, '/')); path = slash + 1) {
		int next = -1;

		if (snprintf(name, sizeof name, "%.*s", (int)(slash - path), path) >=
			(int)sizeof name)
			return -ENAMETOOLONG;
		err = files_make_folder(folder, name, FOLDER_MODE);
		if (!err)
			err = open_folder(folder, name, &next);
		files_close(&folder);
		folder = next;
	}
	if (err)
		return err;
	*ret_fd = folder;
	*ret_name = path;
	folder = -1;
	return 0;
}

/* --- files ------------------------------------------------------------------------------------ */

static int copy_all(int from, int fd)
{
	AUTO_FREE char *chunk = malloc(CHUNK_BYTES);
	int err = chunk ? 0 : -ENOMEM;
	uint64_t at = 0;
	ssize_t got = -1;

	while (!err && got != 0) {
		got = read(from, chunk, CHUNK_BYTES);
		if (got > 0)
			err = disk_write(fd, chunk, (size_t)got, at);
		else if (got < 0 && errno != EINTR)
			err = -errno;
		at += got > 0 ? (uint64_t)got : 0;
	}
	return err;
}

/* From `from` when it is not -1. A file that could not be written whole is removed again. */
static int write_new(int folder, const char *name, mode_t mode, int from, const void *bytes,
	size_t n)
{
	int fd = disk_create(folder, name, 0600), err;

	if (fd < 0)
		return fd;
	err = from >= 0 ? copy_all(from, fd) : disk_write(fd, bytes, n, 0);
	if (!err)
		err = disk_chmod(fd, mode);
	if (!err)
		err = disk_fsync(fd);
	if (close(fd) < 0 && !err)
		err = -errno;
	if (err)
		unlinkat(folder, name, 0);
	return err;
}

static int write_at(int at, const char *path, mode_t mode, int from, const void *bytes, size_t n)
{
	AUTO_CLOSE int folder = -1;
	const char *name;
	int err = open_parent(at, path, &folder, &name);

	if (!err)
		err = write_new(folder, name, mode, from, bytes, n);
	return err ? err : disk_fsync(folder);
}

int files_write(int at, const char *path, mode_t mode, const void *bytes, size_t n)
{
	return write_at(at, path, mode, -1, bytes, n);
}

int files_copy(int from, int at, const char *path, mode_t mode)
{
	return write_at(at, path, mode, from, NULL, 0);
}

/* A new one left by a crash is of no use to anyone. */
int files_replace(int at, const char *name, mode_t mode, const void *bytes, size_t n)
{
	char new[NAME_MAX + 1];
	int err;

	if (snprintf(new, sizeof new, FILES_HALF_PREFIX "%s" FILES_HALF_SUFFIX, name) >=
		(int)sizeof new)
		return -ENAMETOOLONG;
	err = disk_unlink(at, new);
	if (err && err != -ENOENT)
		return err;
	err = write_new(at, new, mode, -1, bytes, n);
	if (err)
		return err;
	err = disk_rename(at, new, at, name);
	if (err) {
		unlinkat(at, new, 0);
		return err;
	}
	return disk_fsync(at);
}

/* --- removing --------------------------------------------------------------------------------- */

static int remove_entries(DIR *dir)
{
	const struct dirent *entry;
	int err = 0;

	while (!err && (errno = 0, entry = readdir(dir))) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		if (unlinkat(dirfd(dir), entry->d_name, 0) == 0)
			continue;
		err = errno == EISDIR || errno == EPERM
			? files_remove_tree(dirfd(dir), entry->d_name)
			: -errno;
	}
	return err ? err : -errno;
}

int files_remove_tree(int at, const char *name)
{
	DIR *dir;
	int fd = -1, err = open_folder(at, name, &fd);

	if (err)
		return err;
	dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return -ENOMEM;
	}
	err = remove_entries(dir);
	closedir(dir);
	if (!err && unlinkat(at, name, AT_REMOVEDIR) < 0)
		err = -errno;
	return err;
}
