#include "core/spool/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/base/files.h"
#include "core/base/mem.h"
#include "core/spool/disk.h"
#include "core/spool/spool_impl.h"

#define FIRST_ID 2 /* 1 is the folder jobs/ itself */

void spool_path(uint64_t id, char ret[SPOOL_PATH_SIZE])
{
	snprintf(ret, SPOOL_PATH_SIZE, "%" PRIu64 "/%" PRIu64, id / SPOOL_FOLDER_FILES, id);
}

/* --- counted files ---------------------------------------------------------------------------- */

int spool_file_new(struct spool *s, uint64_t id, int fd, struct spool_file **ret)
{
	struct spool_file *f = calloc(1, sizeof *f);

	if (!f) {
		close(fd);
		return -ENOMEM;
	}
	f->spool = s;
	f->id = id;
	f->fd = fd;
	atomic_init(&f->refs, 1);
	atomic_fetch_add_explicit(&s->n_open, 1, memory_order_relaxed);
	*ret = f;
	return 0;
}

struct spool_file *spool_file_get(struct spool_file *f)
{
	atomic_fetch_add_explicit(&f->refs, 1, memory_order_relaxed);
	return f;
}

void spool_file_put(struct spool_file *f)
{
	if (!f || atomic_fetch_sub_explicit(&f->refs, 1, memory_order_acq_rel) != 1)
		return;
	atomic_fetch_sub_explicit(&f->spool->n_open, 1, memory_order_relaxed);
	close(f->fd);
	free(f);
}

uint64_t spool_file_id(const struct spool_file *f)
{
	return f->id;
}

bool spool_is_crowded(const struct spool *s)
{
	return atomic_load_explicit(&s->n_open, memory_order_relaxed) > SPOOL_CROWD;
}

/* --- entries ---------------------------------------------------------------------------------- */

int spool_make(struct spool *s, struct spool_file **ret)
{
	uint64_t id = atomic_fetch_add(&s->next_id, 1);
	char path[SPOOL_PATH_SIZE], folder[SPOOL_PATH_SIZE];
	int fd = s->readonly, err;

	spool_path(id, path);
	if (!fd)
		fd = disk_create(s->dir, path, SPOOL_MODE_NEW);
	if (fd == -ENOENT) {
		snprintf(folder, sizeof folder, "%" PRIu64, id / SPOOL_FOLDER_FILES);
		err = disk_mkdir(s->dir, folder);
		fd = err && err != -EEXIST ? err : disk_create(s->dir, path, SPOOL_MODE_NEW);
	}
	if (fd < 0)
		return fd;
	err = disk_write(fd, SPOOL_SPARE_MARK, sizeof SPOOL_SPARE_MARK - 1, 0);
	if (!err)
		err = disk_chmod(fd, SPOOL_MODE);
	if (err) {
		close(fd);
		disk_unlink(s->dir, path);
		return err;
	}
	return spool_file_new(s, id, fd, ret);
}

int spool_create(struct spool *s, struct spool_file **ret)
{
	struct spool_file *spare = NULL;
	bool low;

	lock_take(&s->lock);
	if (s->n_spares) {
		spare = s->spares[s->first_spare];
		s->first_spare = (s->first_spare + 1) % SPOOL_SPARES;
		s->n_spares--;
	}
	low = s->n_spares < SPOOL_SPARES / 2;
	lock_drop(&s->lock);
	if (low)
		lock_cond_signal(&s->work);
	if (!spare)
		return spool_make(s, ret);
	*ret = spare;
	return 0;
}

int spool_get(struct spool *s, uint64_t id, struct spool_file **ret)
{
	char path[SPOOL_PATH_SIZE];
	int fd;

	spool_path(id, path);
	fd = disk_open(s->dir, path, s->readonly ? O_RDONLY : O_RDWR);
	return fd < 0 ? fd : spool_file_new(s, id, fd, ret);
}

int spool_remove(struct spool *s, uint64_t id)
{
	char path[SPOOL_PATH_SIZE];
	int err = s->readonly;

	spool_path(id, path);
	if (!err)
		err = disk_unlink(s->dir, path);
	return err == -ENOENT ? 0 : err;
}

int spool_set_aside(struct spool *s, uint64_t id)
{
	char path[SPOOL_PATH_SIZE], name[SPOOL_PATH_SIZE];
	int err = s->readonly ? s->readonly : disk_mkdir(s->dir, "aside");

	spool_path(id, path);
	snprintf(name, sizeof name, "aside/%" PRIu64, id);
	return err && err != -EEXIST ? err : disk_rename(s->dir, path, s->dir, name);
}

/* --- heads and bytes -------------------------------------------------------------------------- */

/* What a head needs beyond its first page is written with the bytes: one call writes a part whole. */
_Static_assert(RECORD_SIZE <= 4096, "a head lies in one page");

static int write_at(struct spool_file *f, const void *bytes, size_t len, uint64_t offset)
{
	return f->spool->readonly ? f->spool->readonly : disk_write(f->fd, bytes, len, offset);
}

int spool_put_node(struct spool_file *f, const struct record_node *n)
{
	char part[RECORD_NODE_SIZE];
	size_t len = record_put_node(n, part);

	return write_at(f, part, len, 0);
}

int spool_put_run(struct spool_file *f, const struct record_run *r)
{
	char part[RECORD_RUN_SIZE];
	size_t len = record_put_run(r, part);

	return write_at(f, part, len, RECORD_NODE_SIZE);
}

int spool_put_both(struct spool_file *f, const struct record_node *n, const struct record_run *r)
{
	char head[RECORD_SIZE];
	size_t len = record_put_node(n, head);

	memset(head + len, 0, RECORD_NODE_SIZE - len);
	len = RECORD_NODE_SIZE + record_put_run(r, head + RECORD_NODE_SIZE);
	return write_at(f, head, len, 0);
}

int spool_read_run(struct spool_file *f, struct record_run *ret)
{
	char part[RECORD_RUN_SIZE] = { 0 };
	ssize_t n = disk_read(f->fd, part, sizeof part, RECORD_NODE_SIZE);

	if (n < 0)
		return (int)n;
	return record_get_run(part, ret) ? 0 : -EIO;
}

ssize_t spool_read(struct spool_file *f, uint64_t offset, void *ret, size_t size)
{
	if (offset > INT64_MAX - RECORD_SIZE)
		return 0;
	return disk_read(f->fd, ret, size, RECORD_SIZE + offset);
}

int spool_read_blob(struct spool_file *f, uint64_t size, struct blob **ret)
{
	AUTO_FREE char *bytes = malloc(size + 1);
	ssize_t n = bytes ? spool_read(f, 0, bytes, size) : -ENOMEM;

	if (n < 0)
		return (int)n;
	if ((uint64_t)n < size)
		return -EIO;
	*ret = blob_new(bytes, size);
	return *ret ? 0 : -ENOMEM;
}

int spool_write(struct spool_file *f, uint64_t offset, const void *bytes, size_t size)
{
	if (offset > INT64_MAX - RECORD_SIZE - size)
		return -EFBIG;
	return write_at(f, bytes, size, RECORD_SIZE + offset);
}

int spool_truncate(struct spool_file *f, uint64_t size)
{
	if (size > INT64_MAX - RECORD_SIZE)
		return -EFBIG;
	return f->spool->readonly ? f->spool->readonly : disk_truncate(f->fd, RECORD_SIZE + size);
}

int spool_size(struct spool_file *f, uint64_t *ret)
{
	struct stat st;

	if (fstat(f->fd, &st) < 0)
		return -errno;
	*ret = st.st_size > RECORD_SIZE ? (uint64_t)st.st_size - RECORD_SIZE : 0;
	return 0;
}

void spool_room(struct spool *s, struct spool_room *ret)
{
	struct statvfs st;

	*ret = (struct spool_room){ 0 };
	if (fstatvfs(s->dir, &st) < 0)
		return;
	ret->free_bytes = (uint64_t)st.f_bavail * st.f_frsize;
	/* Some file systems do not count files. */
	ret->free_files = st.f_files ? st.f_favail : UINT64_MAX;
}

/* --- open and close --------------------------------------------------------------------------- */

uint64_t spool_next_job(struct spool *s)
{
	uint64_t job = atomic_fetch_add_explicit(&s->next_job, 1, memory_order_relaxed);

	if (job % (SPOOL_NUMBERS / 4) == 0) {
		lock_take(&s->lock);
		s->low_numbers = true;
		lock_drop(&s->lock);
		lock_cond_signal(&s->work);
	}
	return job;
}

/* The numbers go on where the file says, or after the largest that a load finds. */
static void read_numbers(struct spool *s)
{
	char text[64] = "";
	unsigned long long id = 0, job = 0;
	int fd = disk_open(s->dir, "numbers", O_RDONLY);

	if (fd >= 0 && disk_read(fd, text, sizeof text - 1, 0) > 0)
		sscanf(text, "file: %llu\njob: %llu\n", &id, &job);
	files_close(&fd);
	if (id > SPOOL_LAST_NUMBER || job > SPOOL_LAST_NUMBER)
		id = job = 0; /* damaged */
	s->kept_id = id;
	s->kept_job = job;
	atomic_init(&s->next_id, id > FIRST_ID ? id : FIRST_ID);
	atomic_init(&s->next_job, job > 1 ? job : 1);
}

static int take_lock(struct spool *s, struct fault *f)
{
	s->lock_fd = s->readonly
		? disk_open(s->dir, "lock", O_RDONLY)
		: openat(s->dir, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (s->lock_fd < 0 && s->readonly)
		return 0; /* never used by anybody */
	if (s->lock_fd < 0)
		return fault_set(f, -errno, "look at the folder jobs of the store",
			"the spool cannot be locked: %s", strerror(errno));
	if (flock(s->lock_fd, LOCK_EX | LOCK_NB) < 0)
		return fault_set(f, -EBUSY, "stop that one first, or use another store",
			"another npufs uses this store");
	return 0;
}

static int open_folder(struct spool *s, const char *store, enum spool_use use, struct fault *f)
{
	int root, err = files_open_root(store, FILES_OWN, &root);

	if (err)
		return fault_set(f, err,
			"it must belong to root or the daemon's user, who alone may write",
			"the store cannot be used for jobs: %s", strerror(-err));
	err = use == SPOOL_LOOK ? -EROFS : disk_mkdir(root, "jobs");
	s->readonly = err == -EEXIST ? 0 : err;
	err = files_open_folder(root, "jobs", FILES_OWN, &s->dir);
	files_close(&root);
	if (err)
		return fault_set(f, err,
			"it must belong to root or the daemon's user, who alone may write",
			"the folder jobs of the store cannot be used: %s", strerror(-err));
	if (!s->readonly && faccessat(s->dir, ".", W_OK, 0) < 0)
		s->readonly = -errno;
	return 0;
}

static void release(struct spool *s)
{
	files_close(&s->lock_fd);
	files_close(&s->dir);
	lock_cond_done(&s->work);
	lock_done(&s->lock);
	free(s);
}

int spool_open(const char *store, enum spool_use use, struct spool **ret, struct fault *f)
{
	struct spool *s = calloc(1, sizeof *s);
	int err;

	if (!s)
		return fault_set(f, -ENOMEM, "", "no memory for the spool");
	s->dir = s->lock_fd = -1;
	s->last_sync = &s->syncs;
	lock_init(&s->lock, RANK_SPOOL, "spool");
	lock_cond_init(&s->work);
	s->looks = use == SPOOL_LOOK;
	err = open_folder(s, store, use, f);
	if (!err && !s->looks)
		err = take_lock(s, f);
	if (!err)
		read_numbers(s);
	if (err) {
		release(s);
		return err;
	}
	*ret = s;
	return 0;
}

static void drop_spares(struct spool *s)
{
	for (; s->n_spares; s->n_spares--) {
		struct spool_file *spare = s->spares[s->first_spare];

		s->first_spare = (s->first_spare + 1) % SPOOL_SPARES;
		spool_remove(s, spare->id);
		spool_file_put(spare);
	}
}

void spool_close(struct spool *s)
{
	if (!s)
		return;
	lock_take(&s->lock);
	s->stopping = true;
	lock_drop(&s->lock);
	lock_cond_signal(&s->work);
	if (s->started)
		pthread_join(s->thread, NULL);
	drop_spares(s);
	spool_keep_numbers(s, s->next_id, s->next_job);
	release(s);
}
