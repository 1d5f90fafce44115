/* Reading below a trusted folder. Nothing is believed that others could have changed: each folder
 * on the way and the file itself is opened by one plain name, never through a link, and must be
 * owned by root or this process's user and be writable by nobody else. Errors of all these
 * functions:
 *
 *   -ENOENT missing   -ELOOP a link   -EPERM owner or mode   -EINVAL neither file nor folder, or
 * the other -EFBIG larger than allowed        -ENAMETOOLONG nested too deep    and what the system
 * says */
#ifndef NPUFS_CORE_BASE_FILES_H
#define NPUFS_CORE_BASE_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/crypto.h"
#include "core/base/mem.h"

#define FILES_DEPTH_MAX 16   /* folders below the first */
#define FILES_PATH_MAX  4096 /* bytes of a path below the first folder, with its NUL */

#define AUTO_CLOSE AUTO_CLEANUP(files_close)
void files_close(int *fd); /* -1 is fine */

/* Whether to look at owners and modes. What an administrator imports may be anyone's: it is copied
 * and then signed. */
enum files_trust { FILES_OWN, FILES_ANY };

/* The folder or file itself, at a path that the administrator gave; links on the way are followed.
 */
int files_open_root(const char *path, enum files_trust trust, int *ret_fd);
int files_open_input(const char *path, int *ret_fd);

/* One folder in the folder `at`. */
int files_open_folder(int at, const char *name, enum files_trust trust, int *ret_fd);
/* A file at a relative path of plain components below `at`. */
int files_open(int at, const char *path, enum files_trust trust, int *ret_fd, uint64_t *ret_size);

/* Is what is open as `fd` still what the folder `at` has by that name? A link there is not followed. */
bool files_is_at(int fd, int at, const char *name);

/* The whole of a file, which must not be larger than `most`, appended to `out`. */
int files_read(int fd, uint64_t most, struct buf *out);
/* Open, read, close. */
int files_load(int at, const char *path, enum files_trust trust, uint64_t most, struct buf *out);
/* Digest from the present offset to the end; -EFBIG as soon as there are more than `most` bytes. */
int files_digest(int fd, uint64_t most, uint64_t *ret_size, char ret_hex[SHA256_HEX_SIZE]);

/* Visit every file below the open folder `at`, folders sorted in no order. `path` is relative to
 * it. What is neither file nor folder is an error, as is what the visitor returns; then `path` of
 * the culprit is in ret_where ("" where it is the folder itself), which may be NULL. */
typedef int files_visitor(void *context, const char *path);
int files_walk(int at, enum files_trust trust, files_visitor *visit, void *context,
	char ret_where[FILES_PATH_MAX]);

#endif
