/* Immutable bytes shared by count: a request's text is held by its file and by the job that runs
 * it. */
#ifndef NPUFS_CORE_BASE_BLOB_H
#define NPUFS_CORE_BASE_BLOB_H

#include <stddef.h>

struct blob;

struct blob *blob_new(const void *bytes, size_t len); /* copies; NULL: no memory */
struct blob *blob_get(struct blob *b);                /* one more holder; returns b; NULL is fine */
void blob_put(struct blob *b);                        /* the last one frees it; NULL is fine */
const char *blob_bytes(const struct blob *b);         /* "" for NULL */
size_t blob_len(const struct blob *b);                /* 0 for NULL */

#endif
