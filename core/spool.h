/* Where the bytes of files in jobs/ are kept. This interface is all that the folder knows of it; in
 * memory here (core/spool_mem.c). One thread at a time uses one file. */
#ifndef NPUFS_CORE_SPOOL_H
#define NPUFS_CORE_SPOOL_H

#include <stdint.h>
#include <sys/types.h>

#include "core/blob.h"

struct spool_file;

struct spool_file *spool_file_new(void);    /* NULL: no memory */
void spool_file_free(struct spool_file *f); /* NULL is fine */

uint64_t spool_file_size(const struct spool_file *f);
ssize_t spool_file_read(struct spool_file *f, uint64_t offset, char *ret, size_t size);
/* A hole before `offset` reads as zero bytes. 0, -ENOMEM (or the disk's error). */
int spool_file_write(struct spool_file *f, uint64_t offset, const char *bytes, size_t size);
int spool_file_truncate(struct spool_file *f, uint64_t size); /* never fails to 0 */
/* The present bytes, unchanged by later writes; the caller's count. NULL: no memory. */
struct blob *spool_file_freeze(struct spool_file *f);

#endif
