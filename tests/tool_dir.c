/* Reads folders the way libraries do, for tests: with a small buffer, and with changes in between.
 *
 *   tool_dir inodes DIR     each d_ino is stat's st_ino, not 0, not all ones, and there once
 *   tool_dir unlink DIR     remove every entry the moment it is listed, in one pass
 *   tool_dir seek DIR NEW   seekdir() gives the same rest; rewinddir() shows NEW, made meanwhile
 *
 * Status 0 and a figure, or 1 and what is wrong. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SMALL_BUFFER 1024
#define MANY         200000

struct entry {
	uint64_t ino;
	int64_t off;
	uint16_t len;
	uint8_t type;
	char name[];
};

static void fail(const char *what, const char *name)
{
	fprintf(stderr, "tool_dir: %s: %s\n", name, what);
	exit(1);
}

static int open_dir(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY);

	if (fd < 0)
		fail(strerror(errno), path);
	return fd;
}

static bool is_dot(const char *name)
{
	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Call `each` for every entry but the dots, with as few as possible read ahead. */
static size_t for_each(int fd, void (*each)(int fd, const struct entry *e))
{
	char buf[SMALL_BUFFER] __attribute__((aligned(8)));
	size_t count = 0;
	long n;

	while ((n = syscall(SYS_getdents64, fd, buf, sizeof buf)) > 0)
		for (long at = 0; at < n; at += ((const struct entry *)(buf + at))->len) {
			const struct entry *e = (const struct entry *)(buf + at);

			if (is_dot(e->name))
				continue;
			count++;
			each(fd, e);
		}
	if (n < 0)
		fail(strerror(errno), "getdents64");
	return count;
}

/* --- inodes ----------------------------------------------------------------------------------- */

static uint64_t inodes[MANY];
static size_t n_inodes;

static void check_inode(int fd, const struct entry *e)
{
	struct stat st;

	if (e->ino == 0 || e->ino == UINT32_MAX || e->ino == UINT64_MAX || e->ino == 1)
		fail("reserved inode number", e->name);
	if (fstatat(fd, e->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		fail(strerror(errno), e->name);
	if (st.st_ino != e->ino)
		fail("d_ino is not st_ino", e->name);
	if (n_inodes < MANY)
		inodes[n_inodes++] = e->ino;
}

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static size_t check_inodes(const char *path)
{
	size_t count = for_each(open_dir(path), check_inode);

	qsort(inodes, n_inodes, sizeof *inodes, by_number);
	for (size_t i = 1; i < n_inodes; i++)
		if (inodes[i] == inodes[i - 1])
			fail("an inode number is there twice", path);
	return count;
}

/* --- removing while listing ------------------------------------------------------------------- */

/* Results go with their request, so they may be gone already. */
static void remove_entry(int fd, const struct entry *e)
{
	if (unlinkat(fd, e->name, 0) < 0 && errno != ENOENT)
		fail(strerror(errno), e->name);
}

static void count_entry(int fd, const struct entry *e)
{
	(void)fd, (void)e;
}

static size_t remove_all(const char *path)
{
	for_each(open_dir(path), remove_entry);
	return for_each(open_dir(path), count_entry);
}

/* --- seeking ---------------------------------------------------------------------------------- */

static size_t read_rest(DIR *d, char **ret_names)
{
	size_t count = 0, size;
	struct dirent *e;
	FILE *names = open_memstream(ret_names, &size);

	if (!names)
		fail(strerror(errno), "open_memstream");
	for (; (e = readdir(d)); count++)
		fprintf(names, "%s\n", e->d_name);
	fclose(names);
	return count;
}

static size_t seek_and_rewind(const char *path, const char *new_name)
{
	DIR *d = opendir(path);
	char *first, *again, *all;
	size_t count;
	long place;
	int fd;

	if (!d)
		fail(strerror(errno), path);
	for (int i = 0; i < 10; i++)
		if (!readdir(d))
			fail("fewer than 10 entries", path);
	place = telldir(d);
	count = read_rest(d, &first);
	seekdir(d, place);
	if (read_rest(d, &again) != count || strcmp(first, again) != 0)
		fail("seekdir gives another rest", path);
	fd = openat(dirfd(d), new_name, O_WRONLY | O_CREAT | O_EXCL, 0600);
	if (fd < 0 || close(fd) < 0)
		fail(strerror(errno), new_name);
	rewinddir(d);
	read_rest(d, &all);
	if (!strstr(all, new_name))
		fail("rewinddir does not show the new file", path);
	free(first);
	free(again);
	free(all);
	closedir(d);
	return count;
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[1] : "";

	if (strcmp(what, "inodes") == 0)
		printf("entries %zu\n", check_inodes(argv[2]));
	else if (strcmp(what, "unlink") == 0)
		printf("left %zu\n", remove_all(argv[2]));
	else if (strcmp(what, "seek") == 0 && argc > 3)
		printf("rest %zu\n", seek_and_rewind(argv[2], argv[3]));
	else
		fail("inodes DIR | unlink DIR | seek DIR NEW", "usage");
	return 0;
}
