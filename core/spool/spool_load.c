/* Reading the spool at the start: folder by folder, the files of one by several threads, then they are
 * given away in order by one. Nothing found in it is fatal: what cannot be an entry is moved to
 * aside/, where it disturbs nobody and nothing of it is lost; links are not followed. Only what the
 * spool itself left is removed: entries made ahead and never used. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/files.h"
#include "core/base/mem.h"
#include "core/spool/disk.h"
#include "core/spool/spool_impl.h"

#define READERS_MAX 4
/* Fewer files than this for each: a thread is not worth it. */
#define READER_FILES 64
#define PAGE_BYTES   4096

/* What a file was found to be. */
struct found {
	struct spool_entry entry;
	bool spare;
};

struct load {
	struct spool *s;
	int (*each)(void *context, const struct spool_entry *e);
	void *context;
	uint64_t strange, last_id, last_job;
	/* of one folder */
	int folder;
	uint64_t *ids;
	struct found *found;
	size_t n_ids;
	unsigned cores;
};

/* Reads the files [from, to) of the folder. */
struct reader {
	pthread_t thread;
	const struct load *l;
	size_t from, to;
};

/* Decimal, as it is written here; false for any other name, and where no numbers would be left. */
static bool read_number(const char *name, uint64_t *ret)
{
	char again[24];
	unsigned long long n;

	if (sscanf(name, "%20llu", &n) != 1)
		return false;
	snprintf(again, sizeof again, "%llu", n);
	if (strcmp(again, name) != 0 || n > SPOOL_LAST_NUMBER)
		return false;
	*ret = n;
	return true;
}

/* Under a name that does not exist there yet. */
static void set_strange_aside(struct load *l, int at, const char *name)
{
	char to[NAME_MAX + 32];
	uint64_t n = l->strange++;

	if (l->s->readonly)
		return;
	disk_mkdir(l->s->dir, "aside");
	do
		snprintf(to, sizeof to, "aside/%.200s.%" PRIu64, name, ++n);
	while (faccessat(l->s->dir, to, F_OK, AT_SYMLINK_NOFOLLOW) == 0);
	disk_rename(at, name, l->s->dir, to);
}

/* --- one entry -------------------------------------------------------------------------------- */

static bool is_spare(const char *head, ssize_t n)
{
	return n >= (ssize_t)sizeof SPOOL_SPARE_MARK - 1 &&
		memcmp(head, SPOOL_SPARE_MARK, sizeof SPOOL_SPARE_MARK - 1) == 0;
}

/* A file that ends within a page has told its size by that. */
static int size_of(int fd, ssize_t n, uint64_t *ret)
{
	struct stat st;

	if (n < PAGE_BYTES) {
		*ret = (uint64_t)n;
		return 0;
	}
	if (fstat(fd, &st) < 0)
		return -errno;
	*ret = (uint64_t)st.st_size;
	return 0;
}

static void read_entry(int fd, struct spool_entry *e, bool *ret_spare)
{
	char page[PAGE_BYTES];
	ssize_t n = disk_read(fd, page, sizeof page, 0);
	uint64_t size = 0;

	if (n >= 0 && n < RECORD_SIZE)
		memset(page + n, 0, (size_t)(RECORD_SIZE - n));
	*ret_spare = is_spare(page, n);
	e->damaged = n < 0 || size_of(fd, n, &size) || !record_get_node(page, &e->node) ||
		e->node.id != e->id;
	if (e->damaged)
		return;
	e->has_run = record_get_run(page + RECORD_NODE_SIZE, &e->run);
	e->size = size > RECORD_SIZE ? size - RECORD_SIZE : 0;
}

static void note_numbers(struct load *l, const struct spool_entry *e)
{
	if (e->id > l->last_id)
		l->last_id = e->id;
	if (e->node.job > l->last_job)
		l->last_job = e->node.job;
}

/* The end came while it was made: its owner may not even read it then. */
static bool is_unfinished(int folder, const char *name)
{
	struct stat st;

	return fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
		(st.st_mode & 07777) == SPOOL_MODE_NEW;
}

static void find_entry(int folder, uint64_t id, struct found *ret)
{
	char name[24];
	int fd;

	ret->entry = (struct spool_entry){ .id = id };
	ret->spare = false;
	snprintf(name, sizeof name, "%" PRIu64, id);
	fd = disk_open(folder, name, O_RDONLY);
	ret->entry.damaged = fd < 0; /* it was listed as a file just now */
	if (fd >= 0)
		read_entry(fd, &ret->entry, &ret->spare);
	if (ret->entry.damaged && !ret->spare)
		ret->spare = is_unfinished(folder, name);
	files_close(&fd);
}

static int give_entry(struct load *l, const struct found *found)
{
	const struct spool_entry *e = &found->entry;

	note_numbers(l, e);
	if (found->spare) {
		spool_remove(l->s, e->id);
		return 0;
	}
	if (e->damaged)
		spool_set_aside(l->s, e->id);
	return l->each(l->context, e);
}

/* --- the readers ------------------------------------------------------------------------------ */

static void *read_share(void *reader)
{
	const struct reader *r = reader;

	for (size_t i = r->from; i < r->to; i++)
		find_entry(r->l->folder, r->l->ids[i], &r->l->found[i]);
	return NULL;
}

/* The first share is read here; so is that of a thread that cannot be had. */
static void find_all(const struct load *l)
{
	struct reader readers[READERS_MAX];
	bool started[READERS_MAX] = { false };
	size_t n = 1 + l->n_ids / READER_FILES;

	if (n > l->cores)
		n = l->cores;
	for (size_t i = n; i-- > 0;) {
		readers[i] = (struct reader){ .l = l,
			.from = l->n_ids * i / n,
			.to = l->n_ids * (i + 1) / n };
		started[i] =
			i > 0 && !pthread_create(&readers[i].thread, NULL, read_share, &readers[i]);
		if (!started[i])
			read_share(&readers[i]);
	}
	for (size_t i = 1; i < n; i++)
		if (started[i])
			pthread_join(readers[i].thread, NULL);
}

/* --- one folder ------------------------------------------------------------------------------- */

static int compare_ids(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static bool is_file(int at, const struct dirent *d)
{
	struct stat st;

	if (d->d_type != DT_UNKNOWN)
		return d->d_type == DT_REG;
	return fstatat(at, d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

static void list_folder(struct load *l, DIR *dir, uint64_t number)
{
	const struct dirent *d;
	uint64_t id;

	l->n_ids = 0;
	while ((d = readdir(dir))) {
		if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
			continue;
		if (l->n_ids < SPOOL_FOLDER_FILES && is_file(dirfd(dir), d) &&
			read_number(d->d_name, &id) && id / SPOOL_FOLDER_FILES == number)
			l->ids[l->n_ids++] = id;
		else
			set_strange_aside(l, dirfd(dir), d->d_name);
	}
	qsort(l->ids, l->n_ids, sizeof *l->ids, compare_ids);
}

static int load_folder(struct load *l, uint64_t number)
{
	char name[24];
	DIR *dir;
	int fd, err = 0;

	snprintf(name, sizeof name, "%" PRIu64, number);
	fd = disk_open(l->s->dir, name, O_RDONLY | O_DIRECTORY);
	if (fd == -ENOTDIR || fd == -ELOOP) {
		set_strange_aside(l, l->s->dir, name);
		return 0;
	}
	if (fd < 0)
		return fd; /* it is there, and can be read another time */
	dir = fdopendir(fd);
	if (!dir) {
		files_close(&fd);
		return -ENOMEM;
	}
	list_folder(l, dir, number);
	l->folder = fd;
	find_all(l);
	for (size_t i = 0; !err && i < l->n_ids; i++)
		err = give_entry(l, &l->found[i]);
	closedir(dir);
	if (!l->n_ids && !l->s->readonly)
		unlinkat(l->s->dir, name, AT_REMOVEDIR);
	return err;
}

/* --- all of them ------------------------------------------------------------------------------ */

static bool is_own(const char *name)
{
	static const char *const own[] = { ".", "..", "lock", "numbers", "numbers.new", "aside" };

	for (size_t i = 0; i < ARRAY_SIZE(own); i++)
		if (strcmp(name, own[i]) == 0)
			return true;
	return false;
}

static int list_folders(struct load *l, uint64_t **ret, size_t *ret_n)
{
	int fd = disk_open(l->s->dir, ".", O_RDONLY | O_DIRECTORY);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *d;
	size_t cap = 0;
	uint64_t number, *more;

	if (!dir) {
		files_close(&fd);
		return -errno;
	}
	while ((d = readdir(dir))) {
		if (is_own(d->d_name))
			continue;
		if (!read_number(d->d_name, &number)) {
			set_strange_aside(l, l->s->dir, d->d_name);
			continue;
		}
		more = mem_grow(*ret, *ret_n, &cap, 256, sizeof *more);
		if (!more) {
			closedir(dir);
			return -ENOMEM;
		}
		*ret = more;
		more[(*ret_n)++] = number;
	}
	closedir(dir);
	if (*ret_n)
		qsort(*ret, *ret_n, sizeof **ret, compare_ids);
	return 0;
}

static void raise_to(_Atomic uint64_t *number, uint64_t last)
{
	if (atomic_load(number) <= last)
		atomic_store(number, last + 1);
}

int spool_look(struct spool *s, uint64_t id, struct spool_entry *ret)
{
	struct spool_file *f;
	bool spare;
	int err = spool_get(s, id, &f);

	if (err)
		return err;
	*ret = (struct spool_entry){ .id = id };
	read_entry(f->fd, ret, &spare);
	spool_file_put(f);
	return ret->damaged ? -EIO : 0;
}

static unsigned reader_count(void)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);

	return cores < 1 ? 1 : cores > READERS_MAX ? READERS_MAX : (unsigned)cores;
}

int spool_load(struct spool *s, int (*each)(void *context, const struct spool_entry *e),
	void *context, uint64_t *ret_strange)
{
	struct load l = { .s = s, .each = each, .context = context, .cores = reader_count() };
	AUTO_FREE uint64_t *folders = NULL, *ids = NULL;
	AUTO_FREE struct found *found = NULL;
	size_t n = 0;
	int err;

	ids = l.ids = malloc(SPOOL_FOLDER_FILES * sizeof *ids);
	found = l.found = malloc(SPOOL_FOLDER_FILES * sizeof *found);
	err = ids && found ? list_folders(&l, &folders, &n) : -ENOMEM;
	for (size_t i = 0; !err && i < n; i++)
		err = load_folder(&l, folders[i]);
	raise_to(&s->next_id, l.last_id);
	raise_to(&s->next_job, l.last_job);
	*ret_strange = l.strange;
	spool_raise_numbers(s); /* who asks for one need not wait for the thread */
	if (err || s->looks)
		return err;
	if (pthread_create(&s->thread, NULL, spool_main, s))
		err = -EAGAIN;
	s->started = !err;
	return err;
}
