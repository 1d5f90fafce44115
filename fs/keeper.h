/* The keeper: a small process that unmounts when the daemon, which has given up the privileges for
 * it, tells it to. It holds nothing of the daemon's but one end of a socket, and ends when the other
 * end closes: a daemon that was killed leaves a dead mount, which the next start clears. In lists of
 * processes it is npufs-keeper. */
#ifndef NPUFS_FS_KEEPER_H
#define NPUFS_FS_KEEPER_H

#include "fs/fs.h"

#define KEEPER_NONE -1

/* After mounting, while there is one thread and every privilege. ret_keeper is a descriptor. */
int keeper_start(const char *mountpoint, int *ret_keeper, struct fault *f);
/* Let go the session's descriptor, so that who waits for the mount is answered; then the keeper
 * takes the mount away, unless that has happened already. KEEPER_NONE: libfuse does. */
void keeper_unmount(int keeper, struct fuse_session *session);

#endif
