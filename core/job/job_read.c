/* What a job shows: a view of all of it, and the bytes of its results, from memory or, where they are
 * only there, from the spool. */
#include <errno.h>
#include <string.h>

#include "core/job/job_impl.h"

static struct fault fault_of(const struct job *j)
{
	struct fault f = FAULT_NONE;

	if (j->fault)
		return *j->fault;
	if (job_state_ended(j->state) && j->state != JOB_DONE)
		fault_set(&f, -ENOMEM, "send it again later", "no memory for the reason");
	return f;
}

static size_t copy_part(const struct buf *from, size_t offset, char *ret, size_t size)
{
	size_t n = offset < from->len ? from->len - offset : 0;

	if (n > size)
		n = size;
	if (n)
		memcpy(ret, from->data + offset, n);
	return n;
}

static ssize_t read_error(struct job *j, size_t offset, char *ret, size_t size)
{
	AUTO_BUF struct buf text = BUF_INIT;
	struct job_view v;

	job_look(j, &v);
	job_render_error(&v, &text);
	return buf_error(&text) ? -ENOMEM : (ssize_t)copy_part(&text, offset, ret, size);
}

/* Where a result is: in memory, or in the spool at `at`. */
struct place {
	const struct buf *memory; /* NULL: in the spool */
	uint64_t at, size;
};

static struct place place_of(const struct job *j, enum job_result what)
{
	bool stream = what == JOB_STREAM || j->out_is_stream;
	const struct buf *memory = stream ? &j->stream : &j->out;
	uint64_t size = stream ? j->stream_size : j->out_size;

	return (struct place){
		.memory = memory->len == size ? memory : NULL,
		.at = j->request_size + (stream && !j->out_is_stream ? j->out_size : 0),
		.size = size,
	};
}

ssize_t job_read(struct job *j, enum job_result what, size_t offset, char *ret, size_t size)
{
	struct place p;
	ssize_t n = 0;

	if (what == JOB_ERR)
		return read_error(j, offset, ret, size);
	lock_take(&j->lock);
	p = place_of(j, what);
	if (job_state_ended(j->state) && j->state != JOB_DONE)
		n = fault_of(j).err;
	else if (p.memory)
		n = (ssize_t)copy_part(p.memory, offset, ret, size);
	lock_drop(&j->lock);
	if (n < 0 || p.memory || offset >= p.size)
		return n;
	if (size > p.size - offset)
		size = (size_t)(p.size - offset);
	return job_store_read(j, p.at + offset, ret, size);
}

static void look_locked(const struct job *j, struct job_view *v)
{
	int64_t now = clock_mono();
	int64_t queue_end = j->started_mono ? j->started_mono : j->ended_mono ? j->ended_mono : now;
	int64_t run_end = j->ended_mono ? j->ended_mono : now;

	v->state = j->state;
	v->generation = j->generation;
	v->made = j->made;
	v->queued = j->queued;
	v->started = j->started;
	v->ended = j->ended;
	v->queue_ns = j->queued ? queue_end - j->queued_mono : 0;
	v->run_ns = j->started ? run_end - j->started_mono : 0;
	v->prompt_tokens = j->outcome.prompt_tokens;
	v->output_tokens = j->outcome.output_tokens;
	v->finish_reason = j->outcome.finish_reason ? j->outcome.finish_reason : "";
	v->seed_known = j->outcome.seed_known;
	v->seed = j->outcome.seed;
	v->stream_size = j->stream_size;
	v->out_size = j->out_size;
	v->stream_apart = j->state == JOB_DONE && !j->out_is_stream && j->stream_size;
	v->model = j->order.model;
	v->stream = j->order.stream;
	v->stored = j->stored;
	v->shape = j->order.shape;
	v->lines = j->lines;
	memcpy(v->model_alias, j->model_alias, sizeof v->model_alias);
	memcpy(v->model_sha256, j->model_sha256, sizeof v->model_sha256);
	v->request_size = j->request_size;
	memcpy(v->request_sha256, j->request_sha256, sizeof v->request_sha256);
	memcpy(v->output_sha256, j->output_sha256, sizeof v->output_sha256);
	if (j->request_id)
		strncpy(v->request_id, j->request_id, sizeof v->request_id - 1);
	v->fault = fault_of(j);
}

void job_look(struct job *j, struct job_view *ret)
{
	*ret = (struct job_view){ .id = j->id, .uid = j->uid, .format = j->format };
	lock_take(&j->lock);
	look_locked(j, ret);
	lock_drop(&j->lock);
}

void job_render_error(const struct job_view *v, struct buf *out)
{
	if (v->state != JOB_DONE && job_state_ended(v->state))
		answer_render_error(v->shape, &v->fault, out);
}
