/* What one job does on the device, cut into steps that the engine interleaves: a step is one
 * checked inference and what belongs to it on the host. Four kinds: text (core/engine/run_text.c), tensors
 * (core/engine/run_tensor.c), a batch (core/engine/run_batch.c), which runs each of its lines as one of those, and
 * launches of resident callables (core/engine/run_launch.c), whose steps are launches. */
#ifndef NPUFS_CORE_ENGINE_RUN_H
#define NPUFS_CORE_ENGINE_RUN_H

#include "core/engine/callables.h"
#include "core/engine/generation.h"
#include "core/engine/infer.h"
#include "core/engine/models.h"
#include "core/engine/sequence.h"
#include "core/engine/sessions.h"
#include "core/job/job.h"
#include "core/job/request.h"

enum step {
	STEP_MORE,
	STEP_YIELD, /* more, but others may go first: it holds nothing on the device now */
	STEP_ENDED,
	STEP_FAILED
};

/* Filled by a step that failed. */
struct step_fault {
	struct fault fault;
	bool again; /* nothing has changed: the same step may be tried again */
};

struct run_limits {
	size_t output_bytes;
	struct sessions *sessions; /* whose KV may have to give way; NULL: nobody's */
	uint64_t job;              /* that has claimed the request's session */
	struct callables *callables;
	uint64_t context; /* of callables, which the request's ids are of; 0: it has none */
};

struct run;

struct run_ops {
	/* One step; new text for the stream, each piece whole characters and already checked, goes
	 * to `piece`. */
	enum step (*step)(struct run *r, struct buf *piece, struct step_fault *f);
	/* The two halves of a step that is one feed of tokens, so that the feeds of two runs can be
	 * in flight together: step = plan, sequence_feed(), absorb. plan() is false when the next
	 * step is something else; it changes nothing, and what it gives is valid until absorb(),
	 * which takes what came back (`logits` only where `got` is done). Both NULL: whole steps
	 * only. */
	bool (*plan)(struct run *r, struct sequence_feed *ret);
	enum step (*absorb)(struct run *r, const struct infer_result *got, const float *logits,
		struct buf *piece, struct step_fault *f);
	/* After STEP_ENDED. A document for .out goes to `out`; left empty: the stream is the
	 * output. */
	int (*finish)(struct run *r, struct buf *out, struct job_outcome *ret);
	enum npu_error (*free)(struct run *r); /* gives back what it holds on the device */
};

struct run {
	const struct run_ops *ops;
	struct generation *generation; /* of a batch: set anew after each STEP_YIELD */
	struct run_lines lines;
	const struct model_view *model; /* as of the generation; the engine's */
	struct request *request;        /* owned */
	struct run_limits limits;
};

/* Check a parsed request against the configured model and reserve what it needs. Takes the request
 * when it succeeds. -EAGAIN: the device has no room for another sequence now. */
int run_new(struct generation *g, const struct model_view *model, struct request *req,
	const struct run_limits *limits, struct run **ret, struct fault *f);

/* A batch's content, read piece by piece as it goes: it may be larger than memory. */
struct run_source {
	/* The bytes at `offset`: their count, 0 at the end, or a negative errno. */
	ssize_t (*read)(void *context, uint64_t offset, char *ret, size_t size);
	void *context;
	struct run_lines before; /* lines answered by an earlier start of the daemon */
};

/* A batch: every line is answered by one line of the stream, in order; a bad line by its error. All
 * lines are for the one model. The context of `source` must outlive it. */
int run_batch_new(struct generation *g, const struct model_view *model,
	const struct run_source *source, const struct run_limits *limits, struct run **ret,
	struct fault *f);

/* A step's failure from its inference. An output that is not finite is the job's own matter: who
 * sends such inputs must not take the device from others (the golden run watches over that). */
enum step run_refuse(const struct infer_result *r, bool again, struct step_fault *f);
enum step run_refuse_infinite(struct step_fault *f);

/* One tensor as the whole answer: REQUEST_NPY or REQUEST_RAW. */
int run_put_tensor(enum request_output form, const struct tensor_spec *t, const void *data,
	struct buf *out);

/* Launches of resident callables, which need no generation; takes the request when it succeeds.
 * -ESTALE: its ids are of a context that has ended. Else as callables_plan(). */
int run_launch_new(struct request *req, const struct run_limits *limits, struct run **ret,
	struct fault *f);

/* The two kinds' constructors, for run_new(). */
int run_text_new(const struct run *base, struct run **ret, struct fault *f);
int run_tensor_new(const struct run *base, struct run **ret, struct fault *f);

#endif
