/* Reading and writing below a trusted folder without being led astray: nothing is followed that is a link, and what is
 * read must be owned by root or the daemon's user and not be writable by others. Errors are negative errnos;
 * -ELOOP for a link, -EPERM for an owner or mode that is not as it must be. */
#ifndef NPUFS_CORE_FILES_H
#define NPUFS_CORE_FILES_H

#include <stddef.h>
#include <stdint.h>

#include "core/buf.h"
#include "core/crypto.h"

/* Open a folder, checking it; `base` AT_FDCWD or a folder's descriptor, `path` of plain components, each of
 * which below `base` is checked too. */
int files_open_dir(int base, const char *path, int *ret_fd);
/* Open a file for reading, checking it and the folders on the way. */
int files_open(int base, const char *path, int *ret_fd, uint64_t *ret_size);

int files_read(int base, const char *path, uint64_t most, struct buf *out); /* -EFBIG past `most` */
int files_digest(int fd, char ret_hex[SHA256_HEX_SIZE]);

/* How many files are below a folder, folders not counted; each is checked. -ELOOP for anything else. */
int files_count(int dir, size_t *ret_n);

/* Names in a folder, sorted, NULL-ended, without those that begin with a dot. Free with files_list_free(). */
int files_list(int dir, char ***ret);
void files_list_free(char **names);

/* Write a new file and sync it; -EEXIST when it is there. */
int files_write_new(int base, const char *path, unsigned mode, const void *bytes, size_t len);
/* Write a file anew: beside it, then renamed over it, all synced. */
int files_replace(int base, const char *path, unsigned mode, const void *bytes, size_t len);
/* Remove a folder and all below it. */
int files_remove_tree(int base, const char *path);

static inline void files_close_cleanup(int *fd);
#define AUTO_CLOSE __attribute__((cleanup(files_close_cleanup)))
void files_close(int fd);
static inline void files_close_cleanup(int *fd)
{
	if (*fd >= 0)
		files_close(*fd);
}

#endif
