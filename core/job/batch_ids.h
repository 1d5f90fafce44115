/* The custom_ids of a batch's lines, each with the line that had it first. What is kept of an id is
 * a digest of fixed size: 100,000 of them take less than 4 MiB, however long they are. */
#ifndef NPUFS_CORE_JOB_BATCH_IDS_H
#define NPUFS_CORE_JOB_BATCH_IDS_H

#include <stddef.h>
#include <stdint.h>

#define BATCH_ID_MAX 512 /* bytes of a custom_id */

struct batch_ids {
	/* private */
	struct batch_id *slots;
	size_t cap, n;
	unsigned char key[16];
};

int batch_ids_init(struct batch_ids *s); /* 0, or -EIO: no random bytes */
void batch_ids_done(struct batch_ids *s);

/* Remember an id of at most BATCH_ID_MAX bytes for `line` (from 1). *ret_earlier is the line that
 * has it already, which stays, or 0. -ENOMEM. */
int batch_ids_add(struct batch_ids *s, const char *id, uint32_t line, uint32_t *ret_earlier);

size_t batch_ids_bytes(const struct batch_ids *s); /* of memory */

#endif
