/* What the spool's files share; nobody else includes it.
 *   spool.c       open, close, entries and their bytes
 *   spool_io.c    the thread: entries made ahead, numbers, syncing
 *   spool_load.c  reading all of it at the start */
#ifndef NPUFS_CORE_SPOOL_SPOOL_IMPL_H
#define NPUFS_CORE_SPOOL_SPOOL_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/base/lock.h"
#include "core/spool/spool.h"

#define SPOOL_THREAD       "npufs-spool"    /* its name, for who looks at the threads */
#define SPOOL_FOLDER_FILES 4096             /* entries in a folder N */
#define SPOOL_SPARES       64               /* entries made ahead */
#define SPOOL_NUMBERS      4096             /* numbers taken from the file at a time */
#define SPOOL_LAST_NUMBER  (UINT64_MAX / 2) /* larger ones are nobody's */
#define SPOOL_CROWD        512 /* files open; more are let go where they can be opened again */
/* Syncing so many files or more at once: the whole disk is synced instead. */
#define SPOOL_SYNC_ALL 32

/* An entry made ahead holds the mark; until it does its mode tells it from one that was emptied. */
#define SPOOL_SPARE_MARK "npufs-spare\n"
#define SPOOL_MODE       0600
#define SPOOL_MODE_NEW   0200

struct spool_file {
	struct spool *spool;
	uint64_t id;
	int fd;
	_Atomic unsigned refs;
};

struct spool {
	int dir, lock_fd; /* fixed */
	int readonly;     /* why it cannot be written, 0 when it can; fixed */
	pthread_t thread;
	bool looks;   /* nothing else; fixed */
	bool started; /* its thread was */
	_Atomic unsigned n_open;
	_Atomic uint64_t next_id, next_job;

	struct lock lock;
	struct lock_cond work;
	/* by lock */
	struct spool_file *spares[SPOOL_SPARES]; /* a ring */
	unsigned first_spare, n_spares;
	int spare_err;    /* why there are none */
	bool low_numbers; /* the kept ones are nearly used up */
	struct spool_sync *syncs, **last_sync;
	bool stopping;

	/* the thread's own, others' before and after it */
	uint64_t kept_id, kept_job; /* what the file of numbers says */
};

/* "N/ID" */
#define SPOOL_PATH_SIZE 48
void spool_path(uint64_t id, char ret[SPOOL_PATH_SIZE]);
/* Take the count of an open descriptor, which is closed on failure. */
int spool_file_new(struct spool *s, uint64_t id, int fd, struct spool_file **ret);
/* A new entry on the disk, its folder made if need be. */
int spool_make(struct spool *s, struct spool_file **ret);
int spool_keep_numbers(struct spool *s, uint64_t id, uint64_t job);
/* Keep them ahead of what is used. */
void spool_raise_numbers(struct spool *s);
void *spool_main(void *spool);

#endif
