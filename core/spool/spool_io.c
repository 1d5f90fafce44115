/* The spool's thread. Each round: keep the numbers ahead of what is used, make entries ahead, sync
 * what was asked for. Everything asked for at the beginning of a round shares its syncs:
 *
 *   the files, then the folders N they are in, then the spool's own folder, then who waits is told
 *
 * so that what a file says is on the disk before the entry that leads to it. */
#include "core/spool/spool_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/files.h"
#include "core/spool/disk.h"

/* After a failure to make entries ahead: the disk may be full. */
#define RETRY_MS 1000

/* --- numbers ---------------------------------------------------------------------------------- */

int spool_keep_numbers(struct spool *s, uint64_t id, uint64_t job)
{
	char text[64];
	int n = snprintf(text, sizeof text, "file: %" PRIu64 "\njob: %" PRIu64 "\n", id, job);
	int err, fd;

	if (s->readonly)
		return s->readonly;
	disk_unlink(s->dir, "numbers.new");
	fd = disk_create(s->dir, "numbers.new", SPOOL_MODE);
	if (fd < 0)
		return fd;
	err = disk_write(fd, text, (size_t)n, 0);
	close(fd);
	if (!err)
		err = disk_rename(s->dir, "numbers.new", s->dir, "numbers");
	if (err)
		return err;
	s->kept_id = id;
	s->kept_job = job;
	return 0;
}

/* Half a block before the kept numbers are used up. */
void spool_raise_numbers(struct spool *s)
{
	uint64_t id = s->next_id, job = s->next_job;

	if (id + SPOOL_NUMBERS / 2 > s->kept_id || job + SPOOL_NUMBERS / 2 > s->kept_job)
		spool_keep_numbers(s, id + SPOOL_NUMBERS, job + SPOOL_NUMBERS);
}

/* --- entries ahead ---------------------------------------------------------------------------- */

static bool wants_spare_locked(const struct spool *s)
{
	return !s->stopping && !s->readonly && !s->spare_err && s->n_spares < SPOOL_SPARES;
}

static bool wants_spare(struct spool *s)
{
	bool wants;

	lock_take(&s->lock);
	wants = wants_spare_locked(s);
	lock_drop(&s->lock);
	return wants;
}

/* False when there is something else to do. */
static bool add_spare(struct spool *s)
{
	struct spool_file *f = NULL;
	int err = spool_make(s, &f);
	bool more;

	lock_take(&s->lock);
	if (!err)
		s->spares[(s->first_spare + s->n_spares++) % SPOOL_SPARES] = f;
	s->spare_err = err;
	more = wants_spare_locked(s) && !s->syncs;
	lock_drop(&s->lock);
	return more;
}

/* --- syncing ---------------------------------------------------------------------------------- */

static int sync_folder(struct spool *s, const char *name)
{
	int fd = disk_open(s->dir, name, O_RDONLY | O_DIRECTORY);
	int err = fd < 0 ? fd : disk_fsync(fd);

	files_close(&fd);
	return err;
}

/* The folders of a batch, each once: it is short. */
static bool seen_before(const struct spool_sync *first, const struct spool_sync *x)
{
	for (; first != x; first = first->next)
		if (first->file->id / SPOOL_FOLDER_FILES == x->file->id / SPOOL_FOLDER_FILES)
			return true;
	return false;
}

static int sync_few(struct spool *s, struct spool_sync *list)
{
	char name[SPOOL_PATH_SIZE];
	int err = 0;

	for (struct spool_sync *x = list; !err && x; x = x->next)
		err = disk_fsync(x->file->fd);
	for (struct spool_sync *x = list; !err && x; x = x->next) {
		if (seen_before(list, x))
			continue;
		snprintf(name, sizeof name, "%" PRIu64, x->file->id / SPOOL_FOLDER_FILES);
		err = sync_folder(s, name);
	}
	return err ? err : disk_fsync(s->dir);
}

static int sync_disk(struct spool *s)
{
	int err = disk_fsync(s->dir); /* for who watches the steps */

	return err ? err : syncfs(s->dir) < 0 ? -errno : 0;
}

static bool asks_for_all(const struct spool_sync *list)
{
	size_t n = 0;

	for (; list; list = list->next)
		if (!list->file || ++n == SPOOL_SYNC_ALL)
			return true;
	return false;
}

static void sync_all(struct spool *s, struct spool_sync *list)
{
	int err = asks_for_all(list) ? sync_disk(s) : sync_few(s, list);

	for (struct spool_sync *next; list; list = next) {
		next = list->next;
		spool_file_put(list->file);
		list->done(list, err);
	}
}

void spool_sync(struct spool *s, struct spool_sync *sync)
{
	sync->next = NULL;
	lock_take(&s->lock);
	*s->last_sync = sync;
	s->last_sync = &sync->next;
	lock_drop(&s->lock);
	lock_cond_signal(&s->work);
}

static struct spool_sync *take_syncs_locked(struct spool *s)
{
	struct spool_sync *list = s->syncs;

	s->syncs = NULL;
	s->last_sync = &s->syncs;
	return list;
}

/* --- the thread ------------------------------------------------------------------------------- */

/* Something to do, or a pause over after which a failure may have passed. False: stop. */
static bool wait_for_work(struct spool *s, struct spool_sync **ret_syncs)
{
	bool late = false, go_on;

	lock_take(&s->lock);
	while (!s->stopping && !s->syncs && !late && !s->low_numbers && !wants_spare_locked(s)) {
		if (s->spare_err) {
			struct timespec until = clock_timespec(clock_mono() + RETRY_MS * NS_PER_MS);

			late = lock_cond_wait_until(&s->work, &s->lock, &until);
		} else {
			lock_cond_wait(&s->work, &s->lock);
		}
	}
	if (late)
		s->spare_err = 0;
	s->low_numbers = false;
	*ret_syncs = take_syncs_locked(s);
	go_on = !s->stopping || *ret_syncs;
	lock_drop(&s->lock);
	return go_on;
}

void *spool_main(void *spool)
{
	struct spool *s = spool;
	struct spool_sync *syncs;

	pthread_setname_np(pthread_self(), SPOOL_THREAD);
	while (wait_for_work(s, &syncs)) {
		if (syncs) /* who waits comes first */
			sync_all(s, syncs);
		spool_raise_numbers(s);
		if (wants_spare(s))
			while (add_spare(s))
				;
	}
	return NULL;
}
