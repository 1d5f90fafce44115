/* Words for the service manager (sd_notify's protocol): datagrams to $NOTIFY_SOCKET. Without that
 * variable nothing here does anything.
 *
 *   READY=1      once the mount answers
 *   STATUS=WORD  the state of health, when it changes
 *   WATCHDOG=1   every half of $WATCHDOG_USEC, each time after the mount has answered; none while
 *                the loop is stuck
 *   STOPPING=1   with the time that a stop may take */
#ifndef NPUFS_FS_NOTIFY_H
#define NPUFS_FS_NOTIFY_H

#include "fs/fs.h"

/* Take what the manager gave out of the environment; before the program becomes a daemon. */
void notify_open(void);
/* Is there a manager that waits for words? */
bool notify_wanted(void);
/* From now on a thread of its own says how it goes; the session is mounted. 0 or -ENOMEM. */
int notify_start(struct npufs *fs);
/* A stop has begun that takes at most `ms`. Watching goes on. Any thread. */
void notify_stopping(uint64_t ms);
/* End the thread. The loop must still serve, or the connection be gone: the thread may be inside an
 * operation. Does nothing when it has ended. */
void notify_stop(void);

#endif
