/* The system calls by which the spool, the audit trail and files_write.h change the disk. Each is one step that a test can make fail,
 * or end the process at, and whose order it can watch; nothing else does anything here. Results are
 * 0 (a descriptor, a count) or a negative errno; EINTR is tried again. */
#ifndef NPUFS_CORE_SPOOL_DISK_H
#define NPUFS_CORE_SPOOL_DISK_H

#include <stdint.h>
#include <sys/types.h>

enum disk_call {
	DISK_MKDIR,
	DISK_CREATE,
	DISK_WRITE,
	DISK_CHMOD,
	DISK_TRUNCATE,
	DISK_RENAME,
	DISK_UNLINK,
	DISK_FSYNC,
	DISK_CALL_COUNT
};

/* A test's: called before each step with its name ("" of what has none) and the descriptor that it
 * is about. Not 0: the step is not done and gives that. NULL, as always outside tests: nobody. */
extern int (*disk_watch)(enum disk_call call, int fd, const char *name);

int disk_mkdir(int at, const char *name);
/* Made anew (-EEXIST), for reading and writing by this descriptor; `mode` is for the others. */
int disk_create(int at, const char *name, mode_t mode);
int disk_chmod(int fd, mode_t mode);
/* All of it, or an error; a part may then have been written. */
int disk_write(int fd, const void *bytes, size_t n, uint64_t offset);
int disk_truncate(int fd, uint64_t size);
int disk_rename(int from_at, const char *from, int to_at, const char *to);
int disk_unlink(int at, const char *name);
int disk_fsync(int fd);

/* These change nothing and are no steps. -ELOOP for a link. */
int disk_open(int at, const char *name, int flags);
ssize_t disk_read(int fd, void *ret, size_t n, uint64_t offset);

#endif
