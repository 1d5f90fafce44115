/* Between audit.c (writing), audit_chain.c (what a sound trail is) and audit_read.c (verify, show). */
#ifndef NPUFS_CORE_CONTROL_AUDIT_IMPL_H
#define NPUFS_CORE_CONTROL_AUDIT_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/control/audit.h"
#include "core/control/audit_line.h"
#include "core/control/audit_seal.h"

/* What the trails differ in. */
struct audit_kind {
	const char *folder; /* in the store */
	size_t files_max;
	bool oldest_goes;          /* when there would be more; else -ENOSPC */
	uint64_t checkpoint_every; /* so many records at most without one */
};
extern const struct audit_kind audit_kinds[AUDIT_TRAIL_COUNT];

/* A trail was found wrong for the reason `err`: say which. Returns err. */
int audit_tell(enum audit_trail trail, int err, struct fault *f);

/* --- the folder ------------------------------------------------------------------------------- */

#define AUDIT_FILE_NAME "%08" PRIu32 ".jsonl"
#define AUDIT_FILE_SIZE 24 /* of a name's buffer */

struct audit_files {
	uint32_t *numbers; /* rising */
	size_t n;
};

int audit_folder_open(const char *store, enum audit_trail trail, bool make, int *ret_dir,
	struct fault *f);
/* What else is in the folder is not looked at. */
int audit_files_list(int dir, struct audit_files *ret);
void audit_files_done(struct audit_files *files);
/* One file, whole; never more than a file of the trail can have. */
int audit_file_load(int dir, uint32_t number, struct buf *out);
/* A file could not be read, for the reason `err`. Returns err. */
int audit_file_fault(struct fault *f, int err, uint32_t number);

/* --- the chain -------------------------------------------------------------------------------- */

/* A walk over the files, oldest first. */
struct audit_chain {
	enum audit_trail trail;
	bool whole;           /* begins at the oldest file; else with what is given as sound */
	uint64_t first, last; /* records seen; 0: none so far */
	char hash[SHA256_HEX_SIZE]; /* the last one's */
	struct buf torn;            /* ends without newline since then */
	/* Set before the walk where the trail is sealed. */
	const struct key *key;  /* borrowed: the daemon's, either half */
	struct audit_head mark; /* what the head says; seq 0: nothing */
	uint64_t checkpoint;    /* the last one's seq; 0: none so far */
	/* Of the line that was looked at last. */
	uint64_t line;
	size_t offset;
	const char *wrong; /* NULL while all is sound */
};

void audit_chain_init(struct audit_chain *c, enum audit_trail trail, bool whole);
void audit_chain_done(struct audit_chain *c);
/* The bytes of the next file. -EBADMSG: the chain is broken; it then stays so. */
int audit_chain_add(struct audit_chain *c, const char *bytes, size_t n);
/* The digest of what is torn, "" where nothing is. */
void audit_chain_torn(const struct audit_chain *c, char ret[SHA256_HEX_SIZE]);
/* After the last file, `number` (0: there is none): are all there that the head says? */
int audit_chain_end(struct audit_chain *c, uint32_t number, struct fault *f);
/* The next file of the folder; the break, or why it could not be read, is told. */
int audit_chain_file(struct audit_chain *c, int dir, uint32_t number, struct fault *f);

#endif
