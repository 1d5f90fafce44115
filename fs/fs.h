/* The mounted file system: what its files share. One thread serves the kernel; it never waits for
 * the device. */
#ifndef NPUFS_FS_FS_H
#define NPUFS_FS_FS_H

#define FUSE_USE_VERSION 312

#include <fuse_lowlevel.h>

#include "core/access.h"
#include "core/control/control.h"
#include "core/control/roles.h"
#include "core/engine/engine.h"
#include "core/engine/health.h"
#include "core/engine/models.h"
#include "core/job/jobdir.h"
#include "core/spool/spool.h"
#include "core/version.h"
#include "mountopts/options.h"

struct announcer;
struct handle;

struct npufs {
	struct mount_options opts; /* fixed, like mountpoint, an absolute path */
	const char *mountpoint;
	uint32_t uid, gid;   /* the daemon's: owner of everything it makes itself */
	struct roles roles;  /* who may what beyond that; fixed */
	int64_t started;     /* wall ns */
	uint32_t generation; /* of inode numbers: another at each start, so that old file handles
				find nothing */
	struct handle *open; /* every open file, by the thread that serves the kernel */
	_Atomic unsigned n_open;
	struct health health;
	struct models *models;
	struct engine *engine;
	struct control *control;
	char *store; /* its path */
	struct spool *spool;
	struct jobdir *jobs;
	struct fuse_session *session;
	int keeper;                  /* to the process that unmounts */
	struct announcer *announcer; /* NULL without -o inotify */
};

/* What an inode number stands for: an object of an area and a row of its table. Numbers are never
 * pointers, and an object's id is never used again. */
enum area {
	AREA_ROOT,
	AREA_MODELS,
	AREA_MANIFESTS,
	AREA_JOBS,
	AREA_SESSIONS,
	AREA_CALLABLES,
	AREA_CONTROL,
	AREA_COUNT
};

struct at {
	enum area area;
	uint64_t object;
	unsigned row;
};

#define AT_ROW_BITS  20
#define AT_AREA_BIT  60
#define ROW_SELF     1 /* the folder itself, in areas made of tables; their rows follow */
#define ROW_FIRST    2
#define JOBS_ROOT_ID 1
#define JOBS_NAME    "jobs"

static inline fuse_ino_t at_ino(struct at at)
{
	return (fuse_ino_t)at.area << AT_AREA_BIT | at.object << AT_ROW_BITS | at.row;
}

static inline struct at at_of(fuse_ino_t ino)
{
	return (struct at){
		.area = (enum area)(ino >> AT_AREA_BIT),
		.object = (ino & ((1ULL << AT_AREA_BIT) - 1)) >> AT_ROW_BITS,
		.row = (unsigned)(ino & ((1U << AT_ROW_BITS) - 1)),
	};
}

/* The folder of an area, as it hangs in the root. */
static inline struct at at_area(enum area area)
{
	return area == AREA_JOBS ? (struct at){ area, JOBS_ROOT_ID, 0 }
				 : (struct at){ area, 0, ROW_SELF };
}

/* Size and blocks together: to programs that look for holes (tar -S), a text without blocks is one
 * hole. */
static inline void fs_stat_size(struct stat *st, uint64_t size)
{
	st->st_size = (off_t)size;
	st->st_blocks = (blkcnt_t)((size + 511) / 512);
	st->st_blksize = 4096;
}

/* Set by fs/ops.c before the loop starts. */
extern const struct fuse_lowlevel_ops fs_ops;

/* After the loop: let go what is still open. */
void fs_close_all(struct npufs *fs);

/* The caller of a request. */
struct cred fs_cred(fuse_req_t req);
/* The same as it can be kept, with its roles: asked while the caller waits. */
struct cred fs_cred_kept(struct npufs *fs, const struct cred *who);
static inline struct npufs *fs_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

#endif
