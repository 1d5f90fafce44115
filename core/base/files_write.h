/* Writing below an open folder, durably: what a function has reported as done survives a loss of
 * power. Links are never followed. Files and folders get the modes given whatever the umask.
 * Negative errnos. */
#ifndef NPUFS_CORE_BASE_FILES_WRITE_H
#define NPUFS_CORE_BASE_FILES_WRITE_H

#include <stddef.h>
#include <sys/types.h>

/* A new file at a relative path; folders on the way are made (0755). -EEXIST when it is there. */
int files_write(int at, const char *path, mode_t mode, const void *bytes, size_t n);
/* The same with what can be read from `from`. */
int files_copy(int from, int at, const char *path, mode_t mode);
/* What a crash leaves of files_replace(): the name with these around it. */
#define FILES_HALF_PREFIX "."
#define FILES_HALF_SUFFIX ".new"
/* Put the file in the place of an older one, if there is one: readers see the one or the other.
 * `name` is one component. */
int files_replace(int at, const char *name, mode_t mode, const void *bytes, size_t n);
/* A folder of this mode in the folder `at`. One that is there loses the permissions that `mode`
 * does not have, and gets none. */
int files_make_folder(int at, const char *name, mode_t mode);
/* Remove a folder and all below it. */
int files_remove_tree(int at, const char *name);

#endif
