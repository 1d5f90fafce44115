/* The folder jobs/: what users may do there and what it sets going (design 2). It knows users,
 * modes and names on one side and the engine on the other; it knows nothing of FUSE, and nothing
 * here waits.
 *
 * Every function takes the caller's credentials and checks them, search permission on every folder
 * above included. Errors are negative errnos as Linux gives them on a local file system, and beside
 * those:
 *
 *   EBUSY       writing a request that is queued or running, or that another writes
 *   EEXIST      a request with that stem is there under another suffix
 *   EPERM       a name of a result, a link, a device file; a folder with a request's name
 *   ENOSPC      a limit of the folder; EFBIG a file too large; EMLINK folders too deep
 *   EDQUOT      a limit of the user
 *   EAGAIN, EDQUOT, EROFS, ...  the engine does not take requests (engine_admit)
 *   ENOSPC, EIO, EROFS, ...     the disk under the spool
 *
 * One thread calls all of it, the file system's: there is no lock, so the spool may be written here
 * (to the page cache; nothing is synced). Only jobdir_status() and jobdir_result_size() may be
 * called by any. */
#ifndef NPUFS_CORE_JOB_JOBDIR_H
#define NPUFS_CORE_JOB_JOBDIR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/access.h"
#include "core/engine/engine.h"
#include "core/job/job.h"
#include "core/job/jobname.h"

struct jobdir_limits {
	uint64_t files, bytes;           /* of all users */
	uint64_t user_files, user_bytes; /* of one */
	uint64_t request_bytes, batch_bytes;
	int64_t keep_ns; /* results older than that are removed; 0: they are kept */
	uint32_t depth;
	uint32_t umask; /* bits taken from the mode of a new file */
	bool durable;   /* close(2) of a request waits until it is on the disk */
};

/* A file or folder, or one of a request's results (row > 0). A result belongs to one run: after
 * another run its ref is ESTALE, so that what the kernel keeps of it is never taken for the new
 * one's. */
#define JOBDIR_RUNS (1 << 17)
struct jobdir_ref {
	uint64_t id;
	enum job_row row;
	uint32_t run; /* which, counted modulo JOBDIR_RUNS; 0 of what is no result */
};

struct jobdir_attr {
	struct jobdir_ref ref;
	struct owner owner;
	uint64_t size;
	bool final;  /* a result of a run that has ended: it does not change any more */
	bool public; /* every user may search the folders that lead to it */
	uint32_t links;
	int64_t atime, mtime, ctime; /* wall ns */
};

/* What to change; the bits of `set` say which. */
enum {
	JOBDIR_SET_MODE = 1,
	JOBDIR_SET_UID = 2,
	JOBDIR_SET_GID = 4,
	JOBDIR_SET_SIZE = 8,
	JOBDIR_SET_ATIME = 16,
	JOBDIR_SET_MTIME = 32,
	JOBDIR_SET_ATIME_NOW = 64,
	JOBDIR_SET_MTIME_NOW = 128 /* times come from the clock */
};
struct jobdir_change {
	unsigned set;
	uint32_t mode, uid, gid;
	uint64_t size;
	int64_t atime, mtime;
};

struct jobdir;
struct jobdir_file; /* an open file */

/* An empty folder over a spool that was opened. */
int jobdir_new(const struct jobdir_limits *limits, struct spool *spool, struct engine *engine,
	struct models *models, uint64_t root_id, struct jobdir **ret);
void jobdir_free(struct jobdir *d); /* every job has ended and nothing is open */
/* To be called now and then: lets go what is not needed in memory, removes results past keep_ns. */
void jobdir_tidy(struct jobdir *d);

/* Tell of each run that was handed over and has ended: `ended` is called once, without any lock,
 * from the thread that ended it, and must not wait. Set before jobdir_load(). */
void jobdir_on_end(struct jobdir *d, void (*ended)(void *context, uint64_t id), void *context);
/* The path below jobs/ of the result that tells how that file's run ended: STEM.out, or STEM.err.
 * -ENOENT: it has none (any more). */
int jobdir_end_path(struct jobdir *d, uint64_t id, struct buf *out);

/* Once, before anything else: the folder becomes as the spool has it; what was queued or running is
 * queued again. */
int jobdir_load(struct jobdir *d);

/* Look a name up; the kernel's count of it goes up by one. */
int jobdir_lookup(struct jobdir *d, const struct cred *c, uint64_t dir, const char *name,
	struct jobdir_attr *ret);
void jobdir_forget(struct jobdir *d, uint64_t id, uint64_t n);
int jobdir_getattr(struct jobdir *d, const struct cred *c, struct jobdir_ref ref,
	struct jobdir_attr *ret);
int jobdir_setattr(struct jobdir *d, const struct cred *c, struct jobdir_ref ref,
	struct jobdir_file *open, const struct jobdir_change *change, struct jobdir_attr *ret);
int jobdir_access(struct jobdir *d, const struct cred *c, struct jobdir_ref ref, int want);

int jobdir_mkdir(struct jobdir *d, const struct cred *c, uint64_t dir, const char *name,
	uint32_t mode, struct jobdir_attr *ret);
int jobdir_unlink(struct jobdir *d, const struct cred *c, uint64_t dir, const char *name);
int jobdir_rmdir(struct jobdir *d, const struct cred *c, uint64_t dir, const char *name);
/* `*ret_sync`: the number of a request that this hands over and that is to be on the disk before
 * anybody is told (jobdir_sync), or 0. */
int jobdir_rename(struct jobdir *d, const struct cred *c, uint64_t from_dir, const char *from,
	uint64_t to_dir, const char *to, bool no_replace, uint64_t *ret_sync);

/* Every entry of a folder from place `from` on (0 at first), until `each` says false; `next` is the
 * place after it. `each` must only copy: it is called under the folder's lock. Who may list was
 * asked when the folder was opened (jobdir_may_list). */
struct jobdir_entry {
	const char *name;
	struct jobdir_ref ref;
	bool dir;
	uint64_t next;
};
int jobdir_list(struct jobdir *d, uint64_t dir, uint64_t from,
	bool (*each)(void *context, const struct jobdir_entry *entry), void *context);
int jobdir_may_list(struct jobdir *d, const struct cred *c, uint64_t dir);

/* Create and open; when another made it meanwhile and O_EXCL is not given, open. */
int jobdir_create(struct jobdir *d, const struct cred *c, uint64_t dir, const char *name,
	uint32_t mode, int flags, struct jobdir_attr *ret, struct jobdir_file **ret_file);
/* Open a file (row 0). `flags` as for open(2); O_TRUNC is honoured. */
int jobdir_open(struct jobdir *d, const struct cred *c, uint64_t id, int flags,
	struct jobdir_file **ret_file);
/* The run whose result `ref` shows, for reading: the caller's count. */
int jobdir_open_result(struct jobdir *d, const struct cred *c, struct jobdir_ref ref, int flags,
	struct job **ret);

ssize_t jobdir_read(struct jobdir *d, struct jobdir_file *f, uint64_t offset, char *ret,
	size_t size);
/* 0: all was written. A refused request is an error though its bytes are kept. */
int jobdir_write(struct jobdir *d, struct jobdir_file *f, uint64_t offset, const char *bytes,
	size_t size);
/* close(2) by one holder: repeats a refusal for those who look. To the opener itself (not to a
 * child that inherited the descriptor and closes it in the middle) an unfinished document is one
 * too. A good request is in the spool as queued when this returns 0; `*ret_sync`: close(2) is to
 * return only when jobdir_sync() is done. */
int jobdir_flush(struct jobdir *d, struct jobdir_file *f, bool opener, bool *ret_sync);
/* fsync(2): `done` is called once, by the spool's thread, when the file and the folders on its way
 * are on the disk, and never when an error is returned. `id` 0: of the whole folder. */
int jobdir_sync(struct jobdir *d, uint64_t id, void (*done)(void *context, int err), void *context);
uint64_t jobdir_file_id(const struct jobdir_file *f);
/* The last close: a request that was written is handed to the engine. */
void jobdir_release(struct jobdir *d, struct jobdir_file *f);

/* How many bytes a result of that run has now; 0 while it is not complete. `v` is the run as it is.
 */
uint64_t jobdir_result_size(struct jobdir *d, struct job *j, enum job_row row,
	const struct job_view *v);
/* The text of STEM.status of that run. */
void jobdir_status(struct jobdir *d, struct job *j, struct buf *out);

struct jobdir_usage {
	uint64_t files, bytes;           /* in jobs/, results included */
	uint64_t free_files, free_bytes; /* what the limits and the disk leave */
};
void jobdir_usage(struct jobdir *d, struct jobdir_usage *ret);

#endif
