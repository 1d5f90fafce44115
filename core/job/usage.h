/* What each user has in jobs/: files and bytes, results included. Not locked: its owner is. */
#ifndef NPUFS_CORE_JOB_USAGE_H
#define NPUFS_CORE_JOB_USAGE_H

#include <stddef.h>
#include <stdint.h>

struct usage_row {
	uint32_t uid;
	uint64_t files, bytes;
};

/* Zero-initialised: nobody has anything. */
struct usage {
	struct usage_row *rows; /* by rising uid */
	size_t len, cap;
	uint64_t bytes; /* of all */
};

void usage_done(struct usage *u);
/* Add to, or with negative numbers take from, a user's share. Without memory for a new user the
 * share is only counted in the sum. */
void usage_add(struct usage *u, uint32_t uid, int64_t files, int64_t bytes);
struct usage_row usage_of(const struct usage *u, uint32_t uid);

#endif
