/* The files and folders under jobs/: names, owners, modes, times; no rules about who may do what
 * (core/job/jobdir.c has them). Names are unique by what they stand for: a request by its stem, so that
 * `a.txt` and `a.json` cannot both be there; everything else by its whole name. Not locked: its
 * owner is.
 *
 * A node is found by its id, which is its file's in the spool, for as long as it is linked or open,
 * and of a folder, which may be where somebody stands, as long as the kernel knows it. The kernel goes
 * on knowing removed files by the names of their results until it needs the memory; a number that is
 * not found tells it that there is nothing any more. Ids are never used again. */
#ifndef NPUFS_CORE_JOB_TREE_H
#define NPUFS_CORE_JOB_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/access.h"
#include "core/job/job.h"
#include "core/job/jobname.h"
#include "core/spool/spool.h"

struct tree_dir; /* a folder's entries */
struct verdict;

struct tree_node {
	uint64_t id; /* fixed */
	struct owner owner;
	int64_t atime, mtime, ctime; /* wall ns */
	struct tree_node *parent;    /* NULL for the root and for what was removed */
	char *name;
	struct jobname what;
	uint64_t entry;   /* its place in the parent's listing; larger than every earlier one's */
	uint64_t lookups; /* the kernel's count */
	uint32_t opens, writers;
	struct tree_dir *dir;    /* folders */
	struct spool_file *file; /* files, while they are open; counted */
	uint64_t size;           /* files: bytes */
	uint64_t result_size;    /* of an ended run, once it was not in memory any more */
	uint64_t job_id;         /* requests: the present run's number; 0 none */
	struct job *job;         /* the present run while it is in memory, counted */
	struct verdict *verdict; /* while it is open for writing */
	int cut;         /* errno of a write that failed: the content is not what was meant */
	uint32_t runs;   /* how many came before the present one */
	uint8_t removed; /* bit r: the user removed result row r of the present run */
	uint8_t ended;   /* enum job_state: how a run that is not in memory ended; 0 */
	bool has_stream; /* that run's .stream is listed */
	bool dirty;      /* written since the last run */
	bool taken;      /* the spool has the present run as queued */
	bool handed;     /* the present run was handed to the engine */
	/* private */
	struct tree_node *next_by_id, *next_by_name;
};

struct tree;

/* The root folder gets `root_id` and the owner given. NULL: no memory. */
struct tree *tree_new(uint64_t root_id, const struct owner *root);
void tree_free(struct tree *t);
struct tree_node *tree_root(struct tree *t);
struct tree_node *tree_by_id(struct tree *t, uint64_t id); /* or NULL */
uint64_t tree_count(const struct tree *t);                 /* linked nodes, the root not counted */

/* A new node that is not linked yet, with a number never used before. NULL: no memory. */
struct tree_node *tree_node_new(struct tree *t, uint64_t id, const struct owner *o);
/* Link under `dir`. The name must have been judged and be free. 0 or -ENOMEM. */
int tree_link(struct tree *t, struct tree_node *dir, struct tree_node *n, const char *name);
/* Unlink; frees it when nobody holds it. The job and verdict must have been taken out. */
void tree_unlink(struct tree *t, struct tree_node *n);
/* Move to another name or folder, in two steps so that nothing can fail between them: the room for
 * it, a copy of the name (NULL: no memory), and the move, which takes the copy. The name must be free
 * by then. */
char *tree_reserve(struct tree_node *dir, const char *name);
void tree_move(struct tree_node *n, struct tree_node *dir, char *reserved);
/* After lookups, opens or writers went down. */
void tree_release(struct tree *t, struct tree_node *n);

/* The entry of exactly that name; for requests the suffix too. */
struct tree_node *tree_find(struct tree_node *dir, const char *name);
/* The request with that stem, whatever its suffix. */
struct tree_node *tree_find_stem(struct tree_node *dir, const char *stem, size_t len);

/* Node by node through the whole tree, in no order: the next linked file or folder, and at the end
 * NULL, after which it begins anew. What comes or goes between two calls may be missed once. */
struct tree_node *tree_next(struct tree *t, uint64_t *cursor);

size_t tree_dir_count(const struct tree_node *dir);
unsigned tree_dir_subdirs(const struct tree_node *dir);
/* The first entry whose `entry` is at least `from`, or NULL. Stable while entries come and go. */
struct tree_node *tree_entry_from(struct tree_node *dir, uint64_t from);

bool tree_is_under(const struct tree_node *n, const struct tree_node *dir); /* or is it */
unsigned tree_depth(const struct tree_node *dir);                           /* 0 for the root */
unsigned tree_height(const struct tree_node *dir); /* folders below it, longest way */

#endif
