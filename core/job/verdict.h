/* The verdict on a request while it is being written, so that a shell's `echo` sees a refusal:
 * bytes that come in order are looked at once as they come; a document that is whole is parsed and
 * checked; one that can never become valid is refused at once. Bytes that come in another order are
 * judged at the end, on the whole. */
#ifndef NPUFS_CORE_JOB_VERDICT_H
#define NPUFS_CORE_JOB_VERDICT_H

#include "core/base/blob.h"
#include "core/base/fault.h"
#include "core/job/job.h"
#include "core/job/request.h"

/* Checks a parsed request against what the daemon can run: the index of its model, or a negative
 * errno with `f`. */
struct verdict_checker {
	int (*check)(void *context, const struct request *req, struct fault *f);
	void *context;
};

/* Of a batch only the beginning is judged: its first good line says which model it is for. */
#define VERDICT_BATCH_BYTES (1 << 20)

struct verdict;

struct verdict *verdict_new(enum job_format format); /* NULL: no memory */
void verdict_free(struct verdict *v);                /* NULL is fine */

/* `n` bytes were written at `offset`. True when the whole is worth a verdict_judge() now: the
 * document is complete. A hopeless document is in verdict_fault() at once. */
bool verdict_write(struct verdict *v, uint64_t offset, const char *bytes, size_t n);
/* The content changed in another way. */
void verdict_reset(struct verdict *v);

/* The content as a request; errors as of request_from_text() and request_from_json(). */
int verdict_parse(enum job_format format, const struct blob *content, struct request **ret,
	struct fault *f);

/* Parse and check a whole content. On success *ret_order has model, priority, deadline, stream,
 * session and shape (the blob is not taken); else `f` says why not. The shape alone is also set when what
 * could be parsed is then refused. */
int verdict_judge(enum job_format format, const struct blob *content,
	const struct verdict_checker *c, struct job_order *ret_order, struct fault *f);
/* Remember a judgement. */
void verdict_refuse(struct verdict *v, const struct fault *f);

/* The fault found so far; its err is 0 when none was. */
const struct fault *verdict_fault(const struct verdict *v);

/* The bytes so far are the beginning of a document that is not whole. */
bool verdict_unfinished(const struct verdict *v);

#endif
