/* Requests of the kernel that wait for a job without a thread: the fuse_req_t is kept, and answered
 * by whoever ends the wait: the engine, an interrupt, or the stop of the daemon. Exactly one of
 * them does. */
#ifndef NPUFS_FS_PARK_H
#define NPUFS_FS_PARK_H

#include "fs/fs.h"

/* Answer a read of a result of `j` (borrowed) when there is something to answer: at once, or
 * parked. `next` gets where what was read ends, before the answer: it must stay as long as the
 * kernel waits for that. */
void park_read(fuse_req_t req, struct job *j, enum job_result what, size_t size, size_t offset,
	_Atomic off_t *next);

/* A poll(2) that waits for a result; one a handle, counted by it. */
struct park_poll;
/* Arm: `ph` is taken and notified once when the result has something past `offset`. `old` (may be
 * NULL) is replaced. NULL: no memory. */
struct park_poll *park_poll_arm(struct park_poll *old, struct job *j, enum job_result what,
	size_t offset, struct fuse_pollhandle *ph);
void park_poll_drop(struct park_poll *p); /* NULL is fine */

/* The loop has ended: answer all that is still parked, and that nobody is answering, with ESHUTDOWN. */
void park_abort_all(void);

#endif
