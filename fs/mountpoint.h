/* What is at the mountpoint before mounting: a folder, a dead mount of this program (left by a
 * crash), or a live one. */
#ifndef NPUFS_FS_MOUNTPOINT_H
#define NPUFS_FS_MOUNTPOINT_H

#include "core/fault.h"

/* The absolute path; a dead npufs mount there is taken away first. -EBUSY for a live one. The
 * caller frees. */
int mountpoint_prepare(const char *path, char **ret, struct fault *f);

#endif
