/* Opening comes first and looking second, by fstat of what was opened: so what was looked at is
 * what will be read. O_NONBLOCK keeps a FIFO from holding up the open, and means nothing for files
 * and folders. */
#include "core/base/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OPEN_FLAGS  (O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
#define CHUNK_BYTES (1u << 16)

void files_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

/* --- opening ---------------------------------------------------------------------------------- */

static bool others_can_write(const struct stat *st)
{
	if (st->st_uid != 0 && st->st_uid != geteuid())
		return true;
	return (st->st_mode & (S_IWGRP | S_IWOTH)) != 0;
}

/* `type` is S_IFREG, S_IFDIR, or 0 for either. */
static int open_checked(int at, const char *name, int flags, mode_t type, enum files_trust trust,
	int *ret_fd, struct stat *ret_st)
{
	int fd = openat(at, name, OPEN_FLAGS | flags);
	int err = 0;

	if (fd < 0)
		return errno == ENXIO ? -EINVAL : -errno; /* ENXIO: a socket */
	if (fstat(fd, ret_st) < 0)
		err = -errno;
	else if (type ? (ret_st->st_mode & S_IFMT) != type
		      : !S_ISREG(ret_st->st_mode) && !S_ISDIR(ret_st->st_mode))
		err = -EINVAL;
	else if (trust == FILES_OWN && others_can_write(ret_st))
		err = -EPERM;
	if (err) {
		close(fd);
		return err;
	}
	*ret_fd = fd;
	return 0;
}

int files_open_root(const char *path, enum files_trust trust, int *ret_fd)
{
	struct stat st;

	return open_checked(AT_FDCWD, path, 0, S_IFDIR, trust, ret_fd, &st);
}

int files_open_input(const char *path, int *ret_fd)
{
	struct stat st;

	return open_checked(AT_FDCWD, path, 0, S_IFREG, FILES_ANY, ret_fd, &st);
}

int files_open_folder(int at, const char *name, enum files_trust trust, int *ret_fd)
{
	struct stat st;

	return open_checked(at, name, O_NOFOLLOW, S_IFDIR, trust, ret_fd, &st);
}

/* The components before the last one are folders to go through. */
int files_open(int at, const char *path, enum files_trust trust, int *ret_fd, uint64_t *ret_size)
{
	AUTO_CLOSE int folder = -1;
	char name[NAME_MAX + 1];
	const char *slash;
	struct stat st;
	int err;

	for (; (slash = strchr(path, '/')); path = slash + 1) {
		int next;

		if (snprintf(name, sizeof name, "%.*s", (int)(slash - path), path) >=
			(int)sizeof name)
			return -ENAMETOOLONG;
		err = files_open_folder(folder < 0 ? at : folder, name, trust, &next);
		if (err)
			return err;
		files_close(&folder);
		folder = next;
	}
	err = open_checked(folder < 0 ? at : folder, path, O_NOFOLLOW, S_IFREG, trust, ret_fd, &st);
	if (!err)
		*ret_size = (uint64_t)st.st_size;
	return err;
}

/* --- reading ---------------------------------------------------------------------------------- */

static ssize_t read_some(int fd, void *to, size_t n)
{
	ssize_t got;

	do
		got = read(fd, to, n);
	while (got < 0 && errno == EINTR);
	return got < 0 ? -errno : got;
}

bool files_is_at(int fd, int at, const char *name)
{
	struct stat own, there;

	return fstat(fd, &own) == 0 && fstatat(at, name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
		own.st_dev == there.st_dev && own.st_ino == there.st_ino;
}

int files_read(int fd, uint64_t most, struct buf *out)
{
	size_t start = out->len;
	ssize_t got;
	char *to;

	do {
		to = buf_room(out, CHUNK_BYTES);
		if (!to)
			return -ENOMEM;
		got = read_some(fd, to, CHUNK_BYTES);
		out->len += got > 0 ? (size_t)got : 0;
		out->data[out->len] = '\0';
		if (out->len - start > most)
			return -EFBIG;
	} while (got > 0);
	return (int)got;
}

int files_load(int at, const char *path, enum files_trust trust, uint64_t most, struct buf *out)
{
	AUTO_CLOSE int fd = -1;
	uint64_t size;
	int err = files_open(at, path, trust, &fd, &size);

	if (err)
		return err;
	return size > most ? -EFBIG : files_read(fd, most, out);
}

int files_digest(int fd, uint64_t most, uint64_t *ret_size, char ret_hex[SHA256_HEX_SIZE])
{
	AUTO_FREE char *chunk = malloc(CHUNK_BYTES);
	struct sha256 *h = chunk ? sha256_new() : NULL;
	char hex[SHA256_HEX_SIZE];
	uint64_t size = 0;
	ssize_t got;

	if (!h)
		return -ENOMEM;
	while ((got = read_some(fd, chunk, CHUNK_BYTES)) > 0) {
		sha256_update(h, chunk, (size_t)got);
		size += (uint64_t)got;
		if (size > most) {
			got = -EFBIG;
			break;
		}
	}
	sha256_finish(h, hex);
	if (got < 0)
		return (int)got;
	strcpy(ret_hex, hex);
	*ret_size = size;
	return 0;
}

/* --- walking ---------------------------------------------------------------------------------- */

struct walk {
	enum files_trust trust;
	files_visitor *visit;
	void *context;
	char path[FILES_PATH_MAX];
};

static int walk_folder(struct walk *w, int fd, size_t len, unsigned depth);

static int walk_entry(struct walk *w, int folder, const char *name, size_t len, unsigned depth)
{
	struct stat st;
	int err, fd;

	err = snprintf(w->path + len, sizeof w->path - len, "%s%s", len ? "/" : "", name);
	if ((size_t)err >= sizeof w->path - len)
		return -ENAMETOOLONG;
	err = open_checked(folder, name, O_NOFOLLOW, 0, w->trust, &fd, &st);
	if (err)
		return err;
	if (S_ISDIR(st.st_mode) && depth < FILES_DEPTH_MAX)
		return walk_folder(w, fd, strlen(w->path), depth + 1);
	close(fd);
	return S_ISDIR(st.st_mode) ? -ENAMETOOLONG : w->visit(w->context, w->path);
}

/* Takes over `fd`. */
static int walk_folder(struct walk *w, int fd, size_t len, unsigned depth)
{
	DIR *dir = fdopendir(fd);
	const struct dirent *entry;
	int err = 0;

	if (!dir) {
		err = -errno;
		close(fd);
		return err;
	}
	while (!err) {
		errno = 0;
		entry = readdir(dir);
		if (!entry) {
			err = -errno;
			break;
		}
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			err = walk_entry(w, fd, entry->d_name, len, depth);
	}
	closedir(dir);
	return err;
}

int files_walk(int at, enum files_trust trust, files_visitor *visit, void *context,
	char ret_where[FILES_PATH_MAX])
{
	struct walk w = { .trust = trust, .visit = visit, .context = context };
	int fd = openat(at, ".", OPEN_FLAGS | O_DIRECTORY);
	int err = fd < 0 ? -errno : walk_folder(&w, fd, 0, 0);

	if (err && ret_where)
		strcpy(ret_where, w.path);
	return err;
}
