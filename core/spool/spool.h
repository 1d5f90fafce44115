/* The spool: STORE/jobs, where the files of jobs/ are kept, one plain file each:
 *
 *   lock             held by the daemon that uses it
 *   numbers          the next numbers of files and jobs, which are never used again
 *   N/ID             files and folders, 4096 in a folder N = ID / 4096: a head (core/spool/record.h)
 *                    of RECORD_SIZE bytes; then the bytes of the file; then its results, .out and,
 *                    where it differs, .stream
 *   aside/ID         files that were found damaged at a start
 *
 * One file is one entry with all that belongs to it, so a kill at any moment leaves each entry as it
 * was before or after the step; what a power failure may take is what was not synced. Entries are
 * made ahead by the spool's own thread, so that taking a new one costs a write.
 *
 * Functions may be called from any thread and take no lock over disk I/O. What concerns one file is
 * called by one thread at a time: the folder's while it is written, then the one that ends its job.
 * Errors are what the disk says: -ENOSPC, -EIO, -EROFS, -EDQUOT, -EMFILE... */
#ifndef NPUFS_CORE_SPOOL_SPOOL_H
#define NPUFS_CORE_SPOOL_SPOOL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/base/blob.h"
#include "core/base/fault.h"
#include "core/spool/record.h"

struct spool;
struct spool_file; /* an open file of it, counted */

/* To look only: nothing is made, moved or locked, and a daemon may use it meanwhile. */
enum spool_use { SPOOL_USE, SPOOL_LOOK };

/* Opens or makes the folder jobs/ of the store. -EBUSY: another daemon uses
 * it. On a disk that cannot be written it opens for reading; everything that changes it then says
 * why. */
int spool_open(const char *store, enum spool_use use, struct spool **ret, struct fault *f);
void spool_close(struct spool *s); /* every file was put; NULL is fine */

uint64_t spool_next_job(struct spool *s); /* a number never given before */

/* --- files ------------------------------------------------------------------------------------ */

/* A new entry, which is none until its node part is written. */
int spool_create(struct spool *s, struct spool_file **ret);
int spool_get(struct spool *s, uint64_t id, struct spool_file **ret);
struct spool_file *spool_file_get(struct spool_file *f);
void spool_file_put(struct spool_file *f); /* NULL is fine */
uint64_t spool_file_id(const struct spool_file *f);
/* Files open at this moment: who need not keep one open lets it go when they are many. */
bool spool_is_crowded(const struct spool *s);

int spool_put_node(struct spool_file *f, const struct record_node *n);
int spool_put_run(struct spool_file *f, const struct record_run *r);
int spool_put_both(struct spool_file *f, const struct record_node *n, const struct record_run *r);
int spool_read_run(struct spool_file *f, struct record_run *ret); /* -EIO: damaged */

/* The bytes after the head. */
ssize_t spool_read(struct spool_file *f, uint64_t offset, void *ret, size_t size);
/* The first `size` of them; -EIO when there are fewer. */
int spool_read_blob(struct spool_file *f, uint64_t size, struct blob **ret);
int spool_write(struct spool_file *f, uint64_t offset, const void *bytes, size_t size);
int spool_truncate(struct spool_file *f, uint64_t size);
int spool_size(struct spool_file *f, uint64_t *ret);

/* Gone for good, also when the disk is full. -ENOENT is success. */
int spool_remove(struct spool *s, uint64_t id);

/* --- on the disk for good --------------------------------------------------------------------- */

/* Sync the file and its entry; then `done` is called once, by the spool's thread, without any lock.
 * Requests that come together share the work. Never waits. */
struct spool_sync {
	struct spool_file
		*file; /* the caller's count, kept until it is done; NULL: the whole disk */
	void (*done)(struct spool_sync *sync, int err);
	struct spool_sync *next; /* private */
};
void spool_sync(struct spool *s, struct spool_sync *sync);

/* --- room ------------------------------------------------------------------------------------- */

struct spool_room {
	uint64_t free_bytes, free_files; /* of the disk */
};
void spool_room(struct spool *s, struct spool_room *ret);

/* --- at the start ----------------------------------------------------------------------------- */

struct spool_entry {
	uint64_t id;
	bool damaged;  /* no node part to be read: it was moved to aside/ */
	bool has_run;  /* the run part is whole */
	uint64_t size; /* bytes after the head */
	struct record_node node;
	struct record_run run;
};

/* Once, before anything else is done with it: calls `each` for every entry, by rising id. What is no
 * entry at all (a link, a folder, a name that is no number) is moved to aside/ too, and counted.
 * Stops when `each` gives an error. After it the spool's thread runs (not of one that is only looked
 * at, which may be loaded again). */
int spool_load(struct spool *s, int (*each)(void *context, const struct spool_entry *e),
	void *context, uint64_t *ret_strange);
/* One entry again, as spool_load() gave it. */
int spool_look(struct spool *s, uint64_t id, struct spool_entry *ret);
/* Put an entry aside that cannot be used. */
int spool_set_aside(struct spool *s, uint64_t id);

#endif
