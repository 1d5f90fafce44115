/* The head of a spool file: what is known of a file or folder of jobs/ beside its bytes, as text
 * that an administrator can read. Two parts at fixed places, each whole in itself:
 *
 *   node   name, folder, owner, mode, times, and the number of the present run
 *   run    that run: queued, or how it ended
 *
 * The run part counts only while its job is the one that the node part names: a new run begins by
 * naming another. Both parts end in a check over their lines, so that a damaged one is known. A part
 * is written by one pwrite(2) within one page. */
#ifndef NPUFS_CORE_SPOOL_RECORD_H
#define NPUFS_CORE_SPOOL_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "core/job/job.h"

#define RECORD_NODE_SIZE 768
#define RECORD_RUN_SIZE  1792
#define RECORD_SIZE      (RECORD_NODE_SIZE + RECORD_RUN_SIZE) /* the bytes of the file follow */

struct record_node {
	uint64_t id, folder; /* of a root's child: the root's id */
	char name[256];
	bool dir;
	uint32_t uid, gid, mode;
	int64_t atime, mtime, ctime; /* wall ns */
	uint64_t job;                /* its present run; 0 none */
	uint32_t removed;            /* bit r: result row r was removed */
};

struct record_run {
	struct job_view view; /* `model` is not kept: its alias is */
	int32_t priority;
	int64_t deadline_ms;
	bool names_files; /* its request names others */
	bool in_session;  /* it goes on with a session, which ends with the daemon */
};

/* Fills the beginning of the part, a NUL at its end; returns how many bytes that are. */
size_t record_put_node(const struct record_node *n, char ret[RECORD_NODE_SIZE]);
size_t record_put_run(const struct record_run *r, char ret[RECORD_RUN_SIZE]);

/* False: no such part, or a damaged one. */
bool record_get_node(const char part[RECORD_NODE_SIZE], struct record_node *ret);
bool record_get_run(const char part[RECORD_RUN_SIZE], struct record_run *ret);

#endif
