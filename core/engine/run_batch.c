/* A batch: its lines one after another, each as a run of its own whose answer is one line of the
 * stream.
 *
 *   COUNT  the lines are counted, so that .status can say how many there are
 *   PASS   those answered by an earlier start are passed over; their ids are kept
 *   READ   lines up to a good one; bad ones are answered on the way
 *   BEGIN  a good line waits for its place on the device
 *   RUN    it runs
 *
 * COUNT -> PASS -> READ -> BEGIN -> RUN -> READ ... Outside RUN nothing is held on the device and
 * nothing is kept of the generation, which may be another one at the next BEGIN. The host's part of
 * a step is bounded by the bytes it reads and the lines it answers. A failed line is answered by its
 * error. Where the device's error reaches beyond it the step fails as well: the engine recovers the
 * device, and a new run of the batch goes on behind that answer. */
#include "core/engine/run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/engine/metrics.h"
#include "core/job/batch.h"

#define COUNT_BYTES  (1u << 20)   /* read in one step while counting */
#define STEP_BYTES   (256u << 10) /* in any other step */
#define STEP_ANSWERS 64           /* bad lines answered in one step */
#define STEP_TRIES   8            /* of a step that found the device busy; not above the engine's */

enum phase { PHASE_COUNT, PHASE_PASS, PHASE_READ, PHASE_BEGIN, PHASE_RUN };

struct run_batch {
	struct run base;
	enum phase phase;
	struct run_source source;
	struct batch_lines lines;
	struct batch_ids ids;
	uint64_t counted, to_pass;
	struct batch_entry entry; /* the line that waits or runs, or the last one */
	struct run *sub;          /* in RUN */
	unsigned tries;           /* of its next step */
	uint64_t prompt_tokens, output_tokens;
	enum npu_error freed; /* the first error of giving back */
};

static struct run_batch *batch_of(struct run *r)
{
	return (struct run_batch *)r;
}

/* --- making one ------------------------------------------------------------------------------- */

static const struct run_ops run_batch_ops;

int run_batch_new(struct generation *g, const struct model_view *model,
	const struct run_source *source, const struct run_limits *limits, struct run **ret,
	struct fault *f)
{
	struct run_batch *b = calloc(1, sizeof *b);

	if (!b)
		return fault_set(f, -ENOMEM, "send it again later", "no memory for the job");
	if (batch_ids_init(&b->ids)) {
		free(b);
		return fault_set(f, -EIO, "send it again later", "no random bytes for the batch");
	}
	b->base = (struct run){ .ops = &run_batch_ops,
		.generation = g,
		.model = model,
		.limits = *limits };
	b->base.lines.done = source->before.done;
	b->base.lines.failed = source->before.failed;
	b->to_pass = source->before.done + source->before.failed;
	b->source = *source;
	batch_lines_init(&b->lines, source);
	*ret = &b->base;
	return 0;
}

static void free_sub(struct run_batch *b)
{
	enum npu_error code = b->sub ? b->sub->ops->free(b->sub) : NPU_SUCCESS;

	if (!b->freed)
		b->freed = code;
	b->sub = NULL;
}

static enum npu_error batch_free(struct run *r)
{
	struct run_batch *b = batch_of(r);
	enum npu_error code;

	free_sub(b);
	code = b->freed;
	batch_entry_done(&b->entry);
	batch_ids_done(&b->ids);
	batch_lines_done(&b->lines);
	free(b);
	return code;
}

/* --- reading ---------------------------------------------------------------------------------- */

static enum step fail(struct step_fault *f, int err, const char *action, const char *reason)
{
	fault_set(&f->fault, err, action, "%s", reason);
	return STEP_FAILED;
}

static enum step no_memory(struct step_fault *f)
{
	return fail(f, -ENOMEM, "send it again later", "no memory for the batch");
}

static enum batch_got next_line(struct run_batch *b, size_t *budget, struct batch_line *ret)
{
	enum batch_got got;

	do
		got = batch_lines_next(&b->lines, budget, ret);
	while (got == BATCH_LINE && ret->blank);
	return got;
}

static enum step broken(const struct run_batch *b, struct step_fault *f)
{
	if (b->lines.err == -ENOMEM)
		return no_memory(f);
	return fail(f, b->lines.err, "write the file again", "the batch's file could not be read");
}

static enum step count_lines(struct run_batch *b, struct buf *piece, struct step_fault *f)
{
	size_t budget = COUNT_BYTES;
	struct batch_line line;
	enum batch_got got;

	(void)piece;
	while ((got = next_line(b, &budget, &line)) == BATCH_LINE)
		b->counted++;
	if (b->lines.number > BATCH_LINES_MAX) {
		fault_set(&f->fault, -E2BIG, "split it into several files",
			"the batch has more than %d lines", BATCH_LINES_MAX);
		return STEP_FAILED;
	}
	if (got == BATCH_BROKEN)
		return broken(b, f);
	if (got == BATCH_PAUSED)
		return STEP_MORE;
	b->base.lines.total = b->counted;
	batch_lines_done(&b->lines);
	batch_lines_init(&b->lines, &b->source);
	b->phase = PHASE_PASS;
	return STEP_MORE;
}

static enum step pass_lines(struct run_batch *b, struct buf *piece, struct step_fault *f)
{
	size_t budget = STEP_BYTES;
	struct batch_line line;

	(void)piece;
	while (b->to_pass) {
		enum batch_got got = next_line(b, &budget, &line);

		if (got == BATCH_BROKEN)
			return broken(b, f);
		if (got == BATCH_PAUSED)
			return STEP_MORE;
		if (got == BATCH_END)
			break;
		if (batch_pass(&line, &b->ids, &b->entry.openai))
			return no_memory(f);
		b->to_pass--;
	}
	b->phase = PHASE_READ;
	return STEP_MORE;
}

/* --- answering -------------------------------------------------------------------------------- */

static int give_error(struct run_batch *b, const struct fault *why, struct buf *piece)
{
	b->base.lines.failed++;
	return batch_answer_error(&b->entry, why, piece);
}

/* Documents are what can be put into a line. */
static void batch_line_shape(struct request *req, bool openai)
{
	if (openai)
		request_set_shape(req, ANSWER_OPENAI);
	else
		req->output = REQUEST_JSON;
	req->output_given = true;
}

static enum step read_lines(struct run_batch *b, struct buf *piece, struct step_fault *f)
{
	size_t budget = STEP_BYTES;
	struct batch_line line;

	for (int answers = 0; answers < STEP_ANSWERS; answers++) {
		enum batch_got got = next_line(b, &budget, &line);
		struct fault why = FAULT_NONE;

		if (got == BATCH_BROKEN)
			return broken(b, f);
		if (got != BATCH_LINE)
			return got == BATCH_END ? STEP_ENDED : STEP_MORE;
		batch_entry_done(&b->entry);
		if (!batch_parse(&line, b->base.model->alias, &b->ids, &b->entry, &why)) {
			batch_line_shape(b->entry.request, b->entry.openai);
			b->phase = PHASE_BEGIN;
			return STEP_MORE;
		}
		if (give_error(b, &why, piece))
			return no_memory(f);
	}
	return STEP_YIELD;
}

/* --- running a line --------------------------------------------------------------------------- */

/* The same rule as for a job by itself. */
static bool reaches_further(const struct fault *why)
{
	return npu_error_reaches_further(why->device);
}

static enum step end_line(struct run_batch *b)
{
	free_sub(b);
	batch_entry_done(&b->entry);
	b->phase = PHASE_READ;
	return STEP_YIELD;
}

static enum step line_failed(struct run_batch *b, const struct fault *why, struct buf *piece,
	struct step_fault *f)
{
	if (give_error(b, why, piece))
		return no_memory(f);
	if (reaches_further(why)) {
		f->fault = *why;
		batch_name_line(b->entry.number, &f->fault);
		return STEP_FAILED;
	}
	if (why->device)
		metrics_device_error(why->device);
	return end_line(b);
}

/* Without room on the device it waits: nothing is held meanwhile. */
static enum step begin_line(struct run_batch *b, struct buf *piece, struct step_fault *f)
{
	struct fault why = FAULT_NONE;
	int err = run_new(b->base.generation, b->base.model, b->entry.request, &b->base.limits,
		&b->sub, &why);

	if (err == -EAGAIN)
		return STEP_YIELD;
	if (err)
		return line_failed(b, &why, piece, f);
	b->entry.request = NULL;
	b->tries = 0;
	b->phase = PHASE_RUN;
	return STEP_MORE;
}

static enum step deliver(struct run_batch *b, struct buf *piece, struct step_fault *f)
{
	AUTO_BUF struct buf document = BUF_INIT;
	struct job_outcome outcome = { 0 };
	struct fault why = FAULT_NONE;
	int err = b->sub->ops->finish(b->sub, &document, &outcome);

	if (!err && document.len > b->base.limits.output_bytes)
		err = -EFBIG;
	if (!err)
		err = batch_answer(&b->entry, &document, piece);
	if (buf_error(piece))
		return no_memory(f);
	if (err) {
		fault_set(&why, err, "ask for less output", "the output could not be kept");
		return line_failed(b, &why, piece, f);
	}
	b->base.lines.done++;
	b->prompt_tokens += outcome.prompt_tokens;
	b->output_tokens += outcome.output_tokens;
	return end_line(b);
}

/* Busy is worth another try; what else left everything as it was would only fail again. */
static bool try_again(struct run_batch *b, const struct step_fault *got)
{
	return got->again && npu_error_row(got->fault.device)->retry == NPU_RETRY_BOUNDED &&
		b->tries++ < STEP_TRIES;
}

/* What a step of the line's run has come to. */
static enum step line_step(struct run_batch *b, enum step s, const struct step_fault *got,
	struct buf *piece, struct step_fault *f)
{
	switch (s) {
	case STEP_ENDED:
		return deliver(b, piece, f);
	case STEP_FAILED:
		if (!try_again(b, got))
			return line_failed(b, &got->fault, piece, f);
		*f = *got;
		return STEP_FAILED;
	default:
		b->tries = 0;
		return STEP_MORE;
	}
}

static enum step run_line(struct run_batch *b, struct buf *piece, struct step_fault *f)
{
	AUTO_BUF struct buf text = BUF_INIT; /* it is in the document too */
	struct step_fault got = { .fault = FAULT_NONE };
	enum step s = b->sub->ops->step(b->sub, &text, &got);

	return line_step(b, s, &got, piece, f);
}

static bool batch_plan(struct run *r, struct sequence_feed *ret)
{
	struct run_batch *b = batch_of(r);

	return b->phase == PHASE_RUN && b->sub->ops->plan && b->sub->ops->plan(b->sub, ret);
}

static enum step batch_absorb(struct run *r, const struct infer_result *got, const float *logits,
	struct buf *piece, struct step_fault *f)
{
	struct run_batch *b = batch_of(r);
	AUTO_BUF struct buf text = BUF_INIT;
	struct step_fault line = { .fault = FAULT_NONE };
	enum step s = b->sub->ops->absorb(b->sub, got, logits, &text, &line);

	f->again = false;
	return line_step(b, s, &line, piece, f);
}

/* --- the run ---------------------------------------------------------------------------------- */

static enum step batch_step(struct run *r, struct buf *piece, struct step_fault *f)
{
	static enum step (*const phases[])(struct run_batch *, struct buf *,
		struct step_fault *) = {
		[PHASE_COUNT] = count_lines,
		[PHASE_PASS] = pass_lines,
		[PHASE_READ] = read_lines,
		[PHASE_BEGIN] = begin_line,
		[PHASE_RUN] = run_line,
	};
	struct run_batch *b = batch_of(r);

	f->again = false;
	return phases[b->phase](b, piece, f);
}

static int batch_finish(struct run *r, struct buf *out, struct job_outcome *ret)
{
	struct run_batch *b = batch_of(r);

	(void)out;
	*ret = (struct job_outcome){
		.prompt_tokens = b->prompt_tokens,
		.output_tokens = b->output_tokens,
		.finish_reason = "stop",
	};
	return 0;
}

static const struct run_ops run_batch_ops = {
	.step = batch_step,
	.plan = batch_plan,
	.absorb = batch_absorb,
	.finish = batch_finish,
	.free = batch_free,
};
