/* -o inotify: makes results seen by inotify and those built on it. The kernel sends events only for
 * what is done through the mount, so for each job that ends a thread of the daemon creates and
 * closes STEM.out (or .err) in its own mount. That file is there already: to this thread, and to
 * nobody else, the loop says at LOOKUP that it is not, and answers CREATE with what is there and a
 * handle that takes nothing. A watcher sees CREATE, OPEN and CLOSE_WRITE.
 *
 * At most ANNOUNCE_MAX ends wait; further ones are counted (npufs_inotify_dropped_total) and not
 * announced. Nothing here makes the loop or the engine wait. */
#ifndef NPUFS_FS_ANNOUNCE_H
#define NPUFS_FS_ANNOUNCE_H

#include "fs/area.h"

#define ANNOUNCE_MAX 65536

struct announcer;

/* Starts the thread; `fs->jobs` and `fs->mountpoint` are there. Jobs that end from now on are
 * announced. */
int announce_start(struct npufs *fs, struct announcer **ret);
/* Announces what still waits, for at most `ms`, and ends the thread. The loop must still serve, or
 * the connection be gone: the thread may be inside an operation. Does nothing when it has ended. */
void announce_stop(struct announcer *a, int ms);
void announce_free(struct announcer *a); /* stopped, and no job ends any more; NULL is fine */

/* For the loop: does this request come from the thread? Always false of NULL. */
bool announce_is_self(const struct announcer *a, const struct cred *c);
/* Its LOOKUP: 0 goes on as for everybody, an error is the answer. */
int announce_lookup(struct announcer *a, struct at dir, const char *name);
/* Its CREATE. */
int announce_create(struct npufs *fs, const struct cred *c, struct at dir, const char *name,
	struct fuse_file_info *fi, struct fuse_entry_param *ret_entry, struct handle **ret);

#endif
