#include "core/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/mem.h"

#define PIECE 65536

void files_close(int fd)
{
	close(fd);
}

/* --- opening ------------------------------------------------------------------------------------------ */

static int check(int fd, mode_t type, struct stat *st)
{
	if (fstat(fd, st) < 0)
		return -errno;
	if ((st->st_mode & S_IFMT) != type)
		return type == S_IFDIR ? -ENOTDIR : -ELOOP;
	if ((st->st_uid != 0 && st->st_uid != geteuid()) || (st->st_mode & 022))
		return -EPERM;
	return 0;
}

static int open_checked(int base, const char *name, int flags, mode_t type, int *ret_fd,
	struct stat *st)
{
	int fd = openat(base, name, flags | O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	int err = fd < 0 ? -errno : check(fd, type, st);

	if (err && fd >= 0)
		close(fd);
	if (!err)
		*ret_fd = fd;
	return err;
}

int files_open_dir(int base, const char *path, int *ret_fd)
{
	struct stat st;
	char name[256];
	const char *rest = path;
	int fd, next, err;

	if (base == AT_FDCWD || !strchr(path, '/'))
		return open_checked(base, path, O_DIRECTORY, S_IFDIR, ret_fd, &st);
	fd = dup(base);
	err = fd < 0 ? -errno : 0;
	while (!err && *rest) {
		size_t n = strcspn(rest, "/");

		if (n >= sizeof name) {
			err = -ENAMETOOLONG;
			break;
		}
		memcpy(name, rest, n);
		name[n] = '\0';
		err = open_checked(fd, name, O_DIRECTORY, S_IFDIR, &next, &st);
		if (!err) {
			close(fd);
			fd = next;
			rest += n + (rest[n] == '/');
		}
	}
	if (!err)
		*ret_fd = fd;
	else if (fd >= 0)
		close(fd);
	return err;
}

int files_open(int base, const char *path, int *ret_fd, uint64_t *ret_size)
{
	const char *slash = strrchr(path, '/');
	AUTO_FREE char *folder = slash && base != AT_FDCWD ? strndup(path, (size_t)(slash - path)) : NULL;
	AUTO_CLOSE int dir = -1;
	struct stat st;
	int err = 0;

	if (folder)
		err = files_open_dir(base, folder, &dir);
	if (!err)
		err = open_checked(folder ? dir : base, folder ? slash + 1 : path, 0, S_IFREG, ret_fd, &st);
	if (!err)
		*ret_size = (uint64_t)st.st_size;
	return err;
}

/* --- reading ------------------------------------------------------------------------------------------ */

int files_read(int base, const char *path, uint64_t most, struct buf *out)
{
	AUTO_CLOSE int fd = -1;
	uint64_t size;
	ssize_t n = 1;
	int err = files_open(base, path, &fd, &size);

	if (!err && size > most)
		err = -EFBIG;
	while (!err && n > 0) {
		char *room = buf_room(out, PIECE);

		n = room ? read(fd, room, PIECE) : 0;
		if (n < 0)
			err = -errno;
		else
			out->len += (size_t)n;
		if (out->len > most)
			err = -EFBIG;
	}
	return err ? err : buf_error(out);
}

int files_digest(int fd, char ret_hex[SHA256_HEX_SIZE])
{
	AUTO_FREE char *piece = malloc(PIECE);
	struct sha256 *h = piece ? sha256_new() : NULL;
	ssize_t n = 1;

	if (!h)
		return -ENOMEM;
	while (n > 0) {
		n = read(fd, piece, PIECE);
		if (n > 0)
			sha256_update(h, piece, (size_t)n);
	}
	sha256_finish(h, ret_hex);
	return n < 0 ? -EIO : 0;
}

/* --- folders ------------------------------------------------------------------------------------------ */

static bool is_dots(const char *name)
{
	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static DIR *open_stream(int dir)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d && fd >= 0)
		close(fd);
	return d;
}

int files_count(int dir, size_t *ret_n)
{
	DIR *d = open_stream(dir);
	struct dirent *e;
	int err = d ? 0 : -errno;

	while (!err && (e = readdir(d))) {
		AUTO_CLOSE int fd = -1;
		struct stat st;

		if (is_dots(e->d_name))
			continue;
		err = open_checked(dir, e->d_name, O_DIRECTORY, S_IFDIR, &fd, &st);
		if (err == -ENOTDIR) {
			err = open_checked(dir, e->d_name, 0, S_IFREG, &fd, &st);
			*ret_n += !err;
		} else if (!err) {
			err = files_count(fd, ret_n);
		}
	}
	if (d)
		closedir(d);
	return err;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

int files_list(int dir, char ***ret)
{
	DIR *d = open_stream(dir);
	char **names = calloc(1, sizeof *names);
	size_t n = 0;
	struct dirent *e;

	while (d && names && (e = readdir(d))) {
		char **more = e->d_name[0] == '.' ? NULL : realloc(names, (n + 2) * sizeof *names);

		if (e->d_name[0] == '.')
			continue;
		if (more)
			names = more;
		if (!more || !(names[n] = strdup(e->d_name)))
			break;
		names[++n] = NULL;
	}
	if (d)
		closedir(d);
	if (!d || !names) {
		free(names);
		return -ENOMEM;
	}
	qsort(names, n, sizeof *names, by_name);
	*ret = names;
	return 0;
}

void files_list_free(char **names)
{
	for (char **n = names; n && *n; n++)
		free(*n);
	free(names);
}

int files_remove_tree(int base, const char *path)
{
	int fd = openat(base, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (!is_dots(e->d_name) && unlinkat(fd, e->d_name, 0) < 0)
			files_remove_tree(fd, e->d_name);
	if (d)
		closedir(d);
	else if (fd >= 0)
		close(fd);
	return unlinkat(base, path, AT_REMOVEDIR) < 0 ? -errno : 0;
}

/* --- writing ------------------------------------------------------------------------------------------ */

static int write_all(int fd, const char *bytes, size_t len)
{
	while (len) {
		ssize_t n = write(fd, bytes, len);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0) {
			bytes += n;
			len -= (size_t)n;
		}
	}
	return fsync(fd) < 0 ? -errno : 0;
}

int files_write_new(int base, const char *path, unsigned mode, const void *bytes, size_t len)
{
	int fd = openat(base, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
	int err = fd < 0 ? -errno : fchmod(fd, mode) < 0 ? -errno : write_all(fd, bytes, len);

	if (fd >= 0)
		close(fd);
	if (err && fd >= 0)
		unlinkat(base, path, 0);
	return err;
}

static int sync_folder(int base, const char *path)
{
	const char *slash = strrchr(path, '/');
	AUTO_FREE char *folder = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path))
				       : strdup(".");
	AUTO_CLOSE int fd = folder ? openat(base, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

	return fd >= 0 && fsync(fd) == 0 ? 0 : -EIO;
}

int files_replace(int base, const char *path, unsigned mode, const void *bytes, size_t len)
{
	char beside[4096];
	int err;

	if ((size_t)snprintf(beside, sizeof beside, "%s.new", path) >= sizeof beside)
		return -ENAMETOOLONG;
	unlinkat(base, beside, 0);
	err = files_write_new(base, beside, mode, bytes, len);
	if (!err && renameat(base, beside, base, path) < 0) {
		err = -errno;
		unlinkat(base, beside, 0);
	}
	return err ? err : sync_folder(base, path);
}
