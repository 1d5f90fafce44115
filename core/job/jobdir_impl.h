/* What the folder's files share; nobody else includes it.
 *   jobdir.c         names, attributes, listing
 *   jobdir_change.c  mkdir, unlink, rmdir, rename, setattr
 *   jobdir_file.c    open files: create, read, write, close
 *   jobdir_submit.c  from a written file to a queued job
 *   jobdir_keep.c    what the spool and the accounts know of a node
 *   jobdir_load.c    the folder as an earlier start left it
 *
 * Of a request's run and its file:
 *   run is writing    the file may be written; a close after a write, or a rename, hands it over
 *   run is taken      the spool has it as queued: close(2) has said so; a write takes that back
 *   run is handed over, queued or running   writing is EBUSY; removing cancels
 *   run has ended     the first change of the content drops it, and a new run (writing) begins
 *   run is idle       it ended a while ago and is in the spool only: `job` is NULL, `ended` says how */
#ifndef NPUFS_CORE_JOB_JOBDIR_IMPL_H
#define NPUFS_CORE_JOB_JOBDIR_IMPL_H

#include "core/job/jobdir.h"
#include "core/job/tree.h"
#include "core/job/usage.h"
#include "core/job/verdict.h"

/* So many runs stay in memory when they have ended, for those who read them at once. */
#define JOBDIR_RECENT 256
/* A request up to this size stays in memory while not many wait. */
#define JOBDIR_REQUEST_IN_MEMORY (64 << 10)
#define JOBDIR_FEW_QUEUED        1000

/* The numbers of nodes whose runs are in memory, in the order of their submission. */
struct jobdir_fifo {
	uint64_t *ids; /* a ring */
	size_t first, len, cap;
};

struct jobdir {
	struct jobdir_limits limits; /* fixed, as are spool, engine and models */
	struct spool *spool;
	struct engine *engine;
	struct models *models;
	void (*ended)(void *context, uint64_t id); /* NULL: nobody wants to know */
	void *ended_context;
	struct tree *tree;
	struct usage usage;
	struct jobdir_fifo recent;
	uint64_t tidy_next; /* where the search for old results goes on */
};

struct jobdir_file {
	struct tree_node *node;
	int flags;
	bool writes;
	bool judged; /* the content as it is was found good: `order` is right */
	struct job_order order;
};

/* --- jobdir.c --------------------------------------------------------------------------------- */

/* Search permission on the folder and all above it. -ENOENT when it was removed. */
int jobdir_search(const struct cred *c, const struct tree_node *dir);
/* The folder with that id, searchable and with `want` on it. -ESTALE, -ENOTDIR. */
int jobdir_dir(struct jobdir *d, const struct cred *c, uint64_t id, int want,
	struct tree_node **ret);
/* The owner as results show it. */
struct owner jobdir_result_owner(const struct tree_node *n);
int jobdir_attr(struct jobdir *d, struct tree_node *n, enum job_row row, struct jobdir_attr *ret);
bool jobdir_has_run(const struct tree_node *n);
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

/* --- jobdir_keep.c ---------------------------------------------------------------------------- */

void jobdir_record(const struct tree_node *n, struct record_node *ret);
/* Write the node's part of its spool file. The folder jobs/ itself has none. */
int jobdir_keep(struct jobdir *d, struct tree_node *n);
/* The node's file: open already, or for this once. The caller's count. */
int jobdir_spool_file(struct jobdir *d, const struct tree_node *n, struct spool_file **ret);

/* May this user have one more file? -ENOSPC, -EDQUOT. */
int jobdir_file_room(struct jobdir *d, uint32_t uid);
/* Is the content too large for its name, which a rename may have given it? -EFBIG. */
int jobdir_fits(const struct jobdir *d, const struct tree_node *n, struct fault *f);
/* May the file become so large? -EFBIG, -ENOSPC, -EDQUOT. */
int jobdir_room(struct jobdir *d, const struct tree_node *n, uint64_t size);
/* The file has so many bytes now. */
void jobdir_set_size(struct jobdir *d, struct tree_node *n, uint64_t size);
/* A new node counts; one that is removed and no longer open does not. */
void jobdir_account(struct jobdir *d, const struct tree_node *n, int sign);

/* The bytes of what an ended run left, as they stand in its file. */
uint64_t jobdir_results_size(const struct job_view *v);
/* What the node itself knows of an ended run that is only in the spool. */
void jobdir_set_idle(struct tree_node *n, const struct job_view *v);

/* The run is in memory from now on until it has ended and others came. */
void jobdir_remember(struct jobdir *d, const struct tree_node *n);
/* Look at `most` of them, as long as there are more than `keep`, and let go what ended and is in the
 * spool. */
void jobdir_forget_ended(struct jobdir *d, size_t most, size_t keep);

/* --- jobdir_submit.c -------------------------------------------------------------------------- */

/* Make the run fit for new content: a run that has ended is dropped, and one that was taken is so no
 * more. The spool knows it before the content changes. */
int jobdir_fresh_run(struct jobdir *d, struct tree_node *n);
/* A run for a node that has none. -ENOMEM. */
int jobdir_new_run(struct jobdir *d, struct tree_node *n);
/* Take the run off the node; the caller cancels and puts it. NULL: it is idle, or there is none. */
struct job *jobdir_take_job(struct tree_node *n);
void jobdir_drop_job(struct jobdir *d, struct job *j); /* cancel and put; NULL is fine */

/* The order for the present content, judged: 0, or why it is refused. */
int jobdir_judge(struct jobdir *d, struct tree_node *n, struct job_order *ret_order,
	struct fault *f);
/* The spool is to have the run as queued: an end of the daemon does not lose it from now on. */
int jobdir_take(struct jobdir *d, struct tree_node *n, const struct job_order *order);
/* Hand the present content over, unless it is empty. `f`: the file that was closed, or NULL. */
void jobdir_submit(struct jobdir *d, struct tree_node *n, const struct jobdir_file *f);
/* The folder's owner is told when the run ends (jobdir_on_end). */
void jobdir_watch_end(struct jobdir *d, const struct tree_node *n);
/* End a run that was not queued. */
void jobdir_refuse(struct tree_node *n, enum answer_shape shape, const struct fault *why);

#endif
