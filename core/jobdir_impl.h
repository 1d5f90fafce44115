/* What the folder's files share; nobody else includes it.
 *   jobdir.c         names, attributes, listing
 *   jobdir_change.c  mkdir, unlink, rmdir, rename, setattr
 *   jobdir_file.c    open files: create, read, write, close
 *   jobdir_submit.c  from a written file to a queued job
 *
 * Of a request's run and its file:
 *   run is writing    the file may be written; a close after a write, or a rename, hands it over
 *   run is handed over, queued or running   writing is EBUSY; removing cancels
 *   run has ended     the first change of the content drops it, and a new run (writing) begins */
#ifndef NPUFS_CORE_JOBDIR_IMPL_H
#define NPUFS_CORE_JOBDIR_IMPL_H

#include "core/jobdir.h"
#include "core/lock.h"
#include "core/tree.h"
#include "core/verdict.h"

struct jobdir {
	struct jobdir_limits limits; /* fixed, as are engine and models */
	struct engine *engine;
	struct models *models;
	void (*ended)(void *context, uint64_t id); /* NULL: nobody wants to know */
	void *ended_context;
	struct lock lock;
	/* by lock */
	struct tree *tree;
	uint64_t bytes;
};

struct jobdir_file {
	struct tree_node *node;
	int flags;
	bool writes;
	bool judged; /* the content as it is was found good: `order` is right */
	struct job_order order;
};

/* Search permission on the folder and all above it. -ENOENT when it was removed. */
int jobdir_search(const struct cred *c, const struct tree_node *dir);
/* The folder with that id, searchable and with `want` on it. -ESTALE, -ENOTDIR. */
int jobdir_dir(struct jobdir *d, const struct cred *c, uint64_t id, int want,
	struct tree_node **ret);
/* The owner as results show it. */
struct owner jobdir_result_owner(const struct tree_node *n);
void jobdir_attr(struct jobdir *d, struct tree_node *n, enum job_row row, struct jobdir_attr *ret);
bool jobdir_has_row(const struct tree_node *n, enum job_row row);
struct jobdir_ref jobdir_ref(const struct tree_node *n, enum job_row row);
/* Is that what the node shows now? */
bool jobdir_shows(const struct tree_node *n, struct jobdir_ref ref);
/* The kernel learns of the node once more; jobdir_forget() takes that back. */
void jobdir_tell(struct tree_node *n);
/* May it be changed? -EBUSY from being handed over until it has ended. */
int jobdir_idle(const struct tree_node *n);
/* Of a request. */
enum job_format jobdir_format(const struct tree_node *n);
/* Judge a name for something new. */
int jobdir_new_name(const char *name, struct jobname *ret);

/* May the file become so large? -EFBIG, -ENOSPC. */
int jobdir_room(struct jobdir *d, const struct tree_node *n, uint64_t size);
/* Account for a change of size that was made, or failed half way. */
void jobdir_account(struct jobdir *d, const struct tree_node *n, uint64_t size_before);
/* Let the bytes go of a file that is removed and no more open. */
void jobdir_drop_content(struct jobdir *d, struct tree_node *n);
/* Make the run fit for new content: a run that has ended is dropped. -ENOMEM. */
int jobdir_fresh_run(struct tree_node *n);
/* Take the run off the node; the caller cancels and puts it without the lock. */
struct job *jobdir_take_job(struct tree_node *n);
void jobdir_drop_job(struct jobdir *d,
	struct job *j); /* cancel and put; NULL is fine; no lock held */

/* Hand the present content over, unless it is empty. Called without the lock, with a count of the
 * job. */
struct submission {
	struct job *job; /* counted; NULL: nothing to do. Handed over once: jobdir_idle() says
			    -EBUSY from then on */
	uint64_t id;
	struct blob *content;
	struct fault fault; /* found while it was written */
	bool judged;
	struct job_order order;
};
/* Under the lock: what there is to hand over. */
struct submission jobdir_prepare(struct tree_node *n, const struct jobdir_file *f);
void jobdir_submit(struct jobdir *d, struct submission *s);
struct verdict_checker jobdir_checker(struct jobdir *d);

#endif
