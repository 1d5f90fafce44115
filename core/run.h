/* What one job does on the device, cut into steps that the engine interleaves: a step is one
 * checked inference and what belongs to it on the host. Two kinds: text (core/run_text.c) and
 * tensors (core/run_tensor.c). */
#ifndef NPUFS_CORE_RUN_H
#define NPUFS_CORE_RUN_H

#include "core/generation.h"
#include "core/job.h"
#include "core/models.h"
#include "core/request.h"

enum step { STEP_MORE, STEP_ENDED, STEP_FAILED };

/* Filled by a step that failed. */
struct step_fault {
	struct fault fault;
	bool again; /* nothing has changed: the same step may be tried again */
};

struct run_limits {
	size_t output_bytes;
};

struct run;

struct run_ops {
	/* One step; new text for the stream, each piece whole characters and already checked, goes
	 * to `piece`. */
	enum step (*step)(struct run *r, struct buf *piece, struct step_fault *f);
	/* After STEP_ENDED. A document for .out goes to `out`; left empty: the stream is the
	 * output. */
	int (*finish)(struct run *r, struct buf *out, struct job_outcome *ret);
	enum npu_error (*free)(struct run *r); /* gives back what it holds on the device */
};

struct run {
	const struct run_ops *ops;
	struct generation *generation;
	const struct model_view *model; /* as of the generation; the engine's */
	struct request *request;        /* owned */
	struct run_limits limits;
};

/* Check a parsed request against the configured model and reserve what it needs. Takes the request
 * when it succeeds. -EAGAIN: the device has no room for another sequence now. */
int run_new(struct generation *g, const struct model_view *model, struct request *req,
	const struct run_limits *limits, struct run **ret, struct fault *f);

/* The two kinds' constructors, for run_new(). */
int run_text_new(const struct run *base, struct run **ret, struct fault *f);
int run_tensor_new(const struct run *base, struct run **ret, struct fault *f);

#endif
