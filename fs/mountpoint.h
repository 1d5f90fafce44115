/* What is at the mountpoint before mounting: a folder, dead mounts of this program (left by
 * crashes), or a live one. */
#ifndef NPUFS_FS_MOUNTPOINT_H
#define NPUFS_FS_MOUNTPOINT_H

#include "core/base/fault.h"

/* The absolute path, links followed; dead npufs mounts there are taken away first, others never.
 * -EBUSY for a live one, or one that hangs. While there is one thread. The caller frees. */
int mountpoint_prepare(const char *path, char **ret, struct fault *f);

/* Take the mount at the path that mountpoint_prepare() gave away, though files of it are open. 0 too
 * when the topmost one there is none of this program. */
int mountpoint_leave(const char *path);

#endif
