/* Reading the spool at the start. Nothing found in it is fatal: what cannot be an entry is moved to
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

#include "core/files.h"
#include "core/mem.h"
#include "core/spool/disk.h"
#include "core/spool/spool_impl.h"

struct load {
	struct spool *s;
	int (*each)(void *context, const struct spool_entry *e);
	void *context;
	uint64_t strange, last_id, last_job;
	uint64_t *ids; /* of one folder */
	size_t n_ids;
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

static void read_entry(int fd, struct spool_entry *e, bool *ret_spare)
{
	char head[RECORD_SIZE] = "";
	ssize_t n = disk_read(fd, head, sizeof head, 0);
	struct stat st;

	*ret_spare = is_spare(head, n);
	e->damaged = n < 0 || fstat(fd, &st) < 0 || !record_get_node(head, &e->node) ||
		e->node.id != e->id;
	if (e->damaged)
		return;
	e->has_run = record_get_run(head + RECORD_NODE_SIZE, &e->run);
	e->size = st.st_size > RECORD_SIZE ? (uint64_t)st.st_size - RECORD_SIZE : 0;
}

static void note_numbers(struct load *l, const struct spool_entry *e)
{
	if (e->id > l->last_id)
		l->last_id = e->id;
	if (e->node.job > l->last_job)
		l->last_job = e->node.job;
}

static int load_entry(struct load *l, int folder, uint64_t id)
{
	struct spool_entry e = { .id = id };
	char name[24];
	bool spare;
	int fd;

	snprintf(name, sizeof name, "%" PRIu64, id);
	fd = disk_open(folder, name, O_RDONLY);
	note_numbers(l, &e);
	if (fd < 0) { /* it was listed as a file just now */
		e.damaged = true;
		return l->each(l->context, &e);
	}
	read_entry(fd, &e, &spare);
	close(fd);
	note_numbers(l, &e);
	if (spare) {
		spool_remove(l->s, id);
		return 0;
	}
	if (e.damaged)
		spool_set_aside(l->s, id);
	return l->each(l->context, &e);
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

/* An entry that was being made ahead: "ID.new". */
static bool is_unmarked(const char *name)
{
	const char *dot = strchr(name, '.');
	char id[24];
	uint64_t n;

	if (!dot || strcmp(dot, SPOOL_UNMARKED) != 0 || (size_t)(dot - name) >= sizeof id)
		return false;
	memcpy(id, name, (size_t)(dot - name));
	id[dot - name] = '\0';
	return read_number(id, &n);
}

static void remove_unmarked(struct load *l, int at, const char *name)
{
	if (!l->s->readonly)
		disk_unlink(at, name);
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
		else if (is_unmarked(d->d_name) && is_file(dirfd(dir), d))
			remove_unmarked(l, dirfd(dir), d->d_name);
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
	dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		files_close(&fd);
		set_strange_aside(l, l->s->dir, name);
		return 0;
	}
	list_folder(l, dir, number);
	for (size_t i = 0; !err && i < l->n_ids; i++)
		err = load_entry(l, fd, l->ids[i]);
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
	uint64_t number;

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
		if (*ret_n == cap) {
			uint64_t *more;

			cap = cap ? cap * 2 : 256;
			more = realloc(*ret, cap * sizeof *more);
			if (!more) {
				closedir(dir);
				return -ENOMEM;
			}
			*ret = more;
		}
		(*ret)[(*ret_n)++] = number;
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

int spool_load(struct spool *s, int (*each)(void *context, const struct spool_entry *e),
	void *context, uint64_t *ret_strange)
{
	struct load l = { .s = s, .each = each, .context = context };
	AUTO_FREE uint64_t *folders = NULL, *ids = NULL;
	size_t n = 0;
	int err;

	ids = l.ids = malloc(SPOOL_FOLDER_FILES * sizeof *ids);
	err = ids ? list_folders(&l, &folders, &n) : -ENOMEM;
	for (size_t i = 0; !err && i < n; i++)
		err = load_folder(&l, folders[i]);
	raise_to(&s->next_id, l.last_id);
	raise_to(&s->next_job, l.last_job);
	*ret_strange = l.strange;
	spool_raise_numbers(s); /* who asks for one need not wait for the thread */
	if (!err && pthread_create(&s->thread, NULL, spool_main, s))
		err = -EAGAIN;
	s->started = !err;
	return err;
}
