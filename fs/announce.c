/* One announcement, by the thread, on the mount's path:
 *
 *   open(mountpoint, O_PATH)       no request; may be another mount by now, so:
 *   stat(ASK_NAME)                 LOOKUP: if our loop gets it, it leaves the result's path here
 *   open(path, O_CREAT | O_EXCL)   LOOKUP (ENOENT), CREATE: the events
 *   close, close                   RELEASE; nothing of the mount is held any more
 *
 * So paths are found by the loop, at the moment they are used, and the thread never creates
 * anything in a file system that is not its own: without the loop's answer it has no path, and
 * openat2() does not leave the mount. Between two announcements the mount is not held, and umount
 * finds it busy for no longer than these few requests.
 *
 * The kernel tells the caller of a request by its thread's number; no other thread has it while
 * this one lives, and it is 0, which names nobody, before and after. */
#include "fs/announce.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/engine/metrics.h"

#define ASK_NAME ".npufs-announce"

struct announcer {
	struct npufs *fs; /* fixed */
	pthread_t thread;
	bool running; /* by who stops it */
	_Atomic pid_t tid;
	struct lock lock;
	struct lock_cond changed;
	/* by lock */
	uint64_t *ring; /* nodes whose job ended, oldest first */
	size_t first, count;
	int64_t stop_at; /* monotonic ns; 0: goes on */
	uint64_t asked;  /* the node being announced */
	struct buf path; /* the loop's answer; empty: none */
};

/* --- what waits ------------------------------------------------------------------------------- */

static void on_ended(void *context, uint64_t id)
{
	struct announcer *a = context;
	bool room;

	lock_take(&a->lock);
	room = a->count < ANNOUNCE_MAX;
	if (room)
		a->ring[(a->first + a->count++) % ANNOUNCE_MAX] = id;
	lock_cond_signal(&a->changed);
	lock_drop(&a->lock);
	if (!room)
		metrics_add(METRIC_INOTIFY_DROPPED, 1);
}

/* Wait for the next; false: end. */
static bool take_next(struct announcer *a)
{
	bool goes_on;

	lock_take(&a->lock);
	while (!a->count && !a->stop_at)
		lock_cond_wait(&a->changed, &a->lock);
	goes_on = a->count && (!a->stop_at || clock_mono() < a->stop_at);
	if (goes_on) {
		a->asked = a->ring[a->first];
		a->first = (a->first + 1) % ANNOUNCE_MAX;
		a->count--;
		buf_reset(&a->path);
	}
	lock_drop(&a->lock);
	return goes_on;
}

/* --- the thread ------------------------------------------------------------------------------- */

/* The path as the loop answers it, below the mount; the caller frees. NULL: nothing to announce. */
static char *ask(struct announcer *a, int root)
{
	struct stat st;
	char *path = NULL;

	fstatat(root, ASK_NAME, &st, AT_SYMLINK_NOFOLLOW);
	lock_take(&a->lock);
	if (a->path.len && !buf_error(&a->path))
		path = strdup(buf_text(&a->path));
	lock_drop(&a->lock);
	return path;
}

static void make_events(int root, const char *path)
{
	const struct open_how how = {
		.flags = O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS,
	};
	int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof how);

	if (fd < 0) { /* renamed or removed just now */
		log_debug("a result could not be announced: %s", strerror(errno));
		return;
	}
	metrics_add(METRIC_INOTIFY_ANNOUNCED, 1);
	close(fd);
}

static void announce_one(struct announcer *a)
{
	int root = open(a->fs->mountpoint, O_PATH | O_DIRECTORY | O_CLOEXEC);
	char *path;

	if (root < 0)
		return;
	path = ask(a, root);
	if (path)
		make_events(root, path);
	free(path);
	close(root);
}

static void *run(void *arg)
{
	struct announcer *a = arg;

	atomic_store(&a->tid, gettid());
	while (take_next(a))
		announce_one(a);
	atomic_store(&a->tid, 0);
	return NULL;
}

int announce_start(struct npufs *fs, struct announcer **ret)
{
	struct announcer *a = calloc(1, sizeof *a);

	if (!a)
		return -ENOMEM;
	a->fs = fs;
	a->ring = calloc(ANNOUNCE_MAX, sizeof *a->ring);
	lock_init(&a->lock, RANK_ANNOUNCE, "announcer");
	lock_cond_init(&a->changed);
	if (!a->ring || pthread_create(&a->thread, NULL, run, a)) {
		announce_free(a);
		return -ENOMEM;
	}
	a->running = true;
	jobdir_on_end(fs->jobs, on_ended, a);
	*ret = a;
	return 0;
}

void announce_stop(struct announcer *a, int ms)
{
	if (!a->running)
		return;
	lock_take(&a->lock);
	a->stop_at = clock_mono() + ms * NS_PER_MS;
	lock_cond_signal(&a->changed);
	lock_drop(&a->lock);
	pthread_join(a->thread, NULL);
	a->running = false;
}

void announce_free(struct announcer *a)
{
	if (!a)
		return;
	lock_cond_done(&a->changed);
	lock_done(&a->lock);
	buf_done(&a->path);
	free(a->ring);
	free(a);
}

/* --- the loop's side -------------------------------------------------------------------------- */

bool announce_is_self(const struct announcer *a, const struct cred *c)
{
	return a && c->pid && c->pid == atomic_load_explicit(&a->tid, memory_order_acquire);
}

static void answer(struct announcer *a)
{
	AUTO_BUF struct buf path = BUF_INIT;
	uint64_t id;

	lock_take(&a->lock);
	id = a->asked;
	lock_drop(&a->lock);
	buf_puts(&path, JOBS_NAME "/");
	if (jobdir_end_path(a->fs->jobs, id, &path))
		return;
	lock_take(&a->lock);
	buf_put(&a->path, buf_text(&path), path.len);
	lock_drop(&a->lock);
}

int announce_lookup(struct announcer *a, struct at dir, const char *name)
{
	if (dir.area == AREA_JOBS)
		return jobname_class(name).class == NAME_RESULT ? -ENOENT : 0;
	if (strcmp(name, ASK_NAME) != 0)
		return 0;
	answer(a);
	return -ENOENT;
}

int announce_create(struct npufs *fs, const struct cred *c, struct at dir, const char *name,
	struct fuse_file_info *fi, struct fuse_entry_param *ret_entry, struct handle **ret)
{
	int err;

	if (dir.area != AREA_JOBS || jobname_class(name).class != NAME_RESULT)
		return -EPERM;
	err = area_jobs.lookup(fs, c, dir, name, ret_entry);
	if (err)
		return err;
	*ret = event_handle_new();
	if (!*ret) {
		area_jobs.forget(fs, at_of(ret_entry->ino), 1);
		return -ENOMEM;
	}
	fi->keep_cache = true; /* others may have it open, and its content is what it was */
	fi->noflush = true;
	return 0;
}
