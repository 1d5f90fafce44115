#include "core/job/jobstatus.h"

#include "core/base/clock.h"

static void put_text(struct buf *out, const char *key, const char *value)
{
	if (value && value[0])
		buf_printf(out, "%s: %s\n", key, value);
}

static void put_seconds(struct buf *out, const char *key, int64_t ns)
{
	buf_printf(out, "%s: %.6f\n", key, (double)ns / (double)NS_PER_SEC);
}

static void put_model(struct buf *out, const struct job_view *v)
{
	put_text(out, "model", v->model_alias);
	if (v->generation)
		buf_printf(out, "generation: %llu\n", (unsigned long long)v->generation);
}

static void put_lines(struct buf *out, const struct job_view *v)
{
	if (v->format != JOB_FORMAT_BATCH)
		return;
	buf_printf(out, "lines: %llu\n", (unsigned long long)v->lines.total);
	buf_printf(out, "lines_done: %llu\n", (unsigned long long)v->lines.done);
	buf_printf(out, "lines_failed: %llu\n", (unsigned long long)v->lines.failed);
}

static void put_durations(struct buf *out, const struct job_view *v)
{
	if (v->queued)
		put_seconds(out, "queue_seconds", v->queue_ns);
	if (v->started)
		put_seconds(out, "run_seconds", v->run_ns);
}

static void put_outcome(struct buf *out, const struct job_view *v)
{
	if (v->state != JOB_DONE)
		return;
	buf_printf(out, "prompt_tokens: %llu\n", (unsigned long long)v->prompt_tokens);
	buf_printf(out, "output_tokens: %llu\n", (unsigned long long)v->output_tokens);
	put_text(out, "finish_reason", v->finish_reason);
	if (v->seed_known)
		buf_printf(out, "seed: %llu\n", (unsigned long long)v->seed);
}

void jobstatus_render(const struct job_view *v, size_t position, struct buf *out)
{
	buf_printf(out, "state: %s\n", job_state_name(v->state));
	if (v->state != JOB_DONE && job_state_ended(v->state))
		answer_render_error(ANSWER_OWN, &v->fault, out);
	if (v->state == JOB_WRITING)
		buf_puts(out, "note: it runs when something is written and the file is closed\n");
	if (position)
		buf_printf(out, "position: %zu%s\n", position,
			position > QUEUE_POSITION_MAX ? " or later" : "");
	buf_printf(out, "job: %llu\n", (unsigned long long)v->id);
	buf_printf(out, "uid: %u\n", v->uid);
	put_text(out, "request_id", v->request_id);
	put_model(out, v);
	put_lines(out, v);
	clock_put(out, "created", v->made);
	clock_put(out, "queued", v->queued);
	clock_put(out, "started", v->started);
	clock_put(out, "ended", v->ended);
	put_durations(out, v);
	put_outcome(out, v);
	put_text(out, "request_sha256", v->request_sha256);
	put_text(out, "output_sha256", v->output_sha256);
	put_text(out, "model_sha256", v->model_sha256);
}
