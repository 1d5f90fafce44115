/* A job's part of its spool file: the run part of the head, and behind the request's bytes what the
 * job left, .out first and then .stream where that differs. The head is written last: until it says
 * that the job is done, what stands behind the request is nothing. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/mem.h"
#include "core/job/batch.h"
#include "core/job/job_impl.h"

#define CHUNK (256 << 10)

/* The file kept open, or opened for this once; the caller's count. */
static int open_file(struct job *j, struct spool_file **ret)
{
	struct spool_file *file = NULL;
	bool gone;

	lock_take(&j->lock);
	gone = j->gone;
	if (j->file)
		file = spool_file_get(j->file);
	lock_drop(&j->lock);
	if (!file)
		return gone ? -ESTALE : spool_get(j->spool, j->file_id, ret);
	*ret = file;
	return 0;
}

/* It need not be opened again; a large result is read from it also when it has no name any more. */
void job_use_file(struct job *j, struct spool_file *file)
{
	lock_take(&j->lock);
	if (!j->file)
		j->file = spool_file_get(file);
	lock_drop(&j->lock);
}

/* --- the end ---------------------------------------------------------------------------------- */

static void record_end(struct job *j, const struct job_ending *end, struct record_run *ret)
{
	const struct job_outcome *o = end->outcome;
	struct job_view *v = &ret->view;

	job_record(j, ret);
	v->state = end->state;
	v->ended = end->ended;
	if (v->started)
		v->run_ns = end->ended_mono - j->started_mono;
	else if (v->queued)
		v->queue_ns = end->ended_mono - j->queued_mono;
	if (end->fault)
		v->fault = *end->fault;
	memcpy(v->output_sha256, end->output_sha256, sizeof v->output_sha256);
	if (!o) {
		v->stream_size = 0;
		return;
	}
	v->prompt_tokens = o->prompt_tokens;
	v->output_tokens = o->output_tokens;
	v->finish_reason = o->finish_reason;
	v->seed_known = o->seed_known;
	v->seed = o->seed;
	v->out_size = o->out ? o->out->len : j->stream_size;
	v->stream_apart = o->out && j->stream_size;
}

/* A batch's answers are there already. */
static int write_results(struct job *j, const struct job_ending *end, struct spool_file *file)
{
	const struct job_outcome *o = end->outcome;
	const struct buf *out = o && o->out ? o->out : &j->stream;
	uint64_t at = j->request_size;
	int err;

	if (!o || j->format == JOB_FORMAT_BATCH)
		return 0;
	err = out->len ? spool_write(file, at, out->data, out->len) : 0;
	if (!err && o->out && j->stream.len)
		err = spool_write(file, at + out->len, j->stream.data, j->stream.len);
	return err;
}

static int store_end_locked(struct job *j, const struct job_ending *end)
{
	struct spool_file *file = NULL;
	struct record_run r;
	int err;

	lock_assert_held(&j->file_lock);
	err = open_file(j, &file);
	if (err)
		return err == -ENOENT || err == -ESTALE ? 0 : err; /* removed meanwhile */
	err = write_results(j, end, file);
	record_end(j, end, &r);
	if (!err)
		err = spool_put_run(file, &r);
	if (!err && r.view.out_size > JOB_OUT_IN_MEMORY)
		job_use_file(j, file);
	spool_file_put(file);
	return err;
}

int job_store_end(struct job *j, const struct job_ending *end)
{
	int err;

	if (!j->spool)
		return 0;
	lock_take(&j->file_lock);
	err = store_end_locked(j, end);
	lock_drop(&j->file_lock);
	return err;
}

void job_record(struct job *j, struct record_run *ret)
{
	*ret = (struct record_run){ .priority = j->order.priority,
		.deadline_ms = j->order.deadline_ms,
		.names_files = j->order.files != NULL,
		.in_session = j->order.session[0] != '\0' };
	job_look(j, &ret->view);
}

/* --- the request ------------------------------------------------------------------------------ */

static int load(struct job *j, struct blob **ret)
{
	struct spool_file *file;
	int err = open_file(j, &file);

	if (err)
		return err;
	err = spool_read_blob(file, j->request_size, ret);
	spool_file_put(file);
	return err;
}

int job_content(struct job *j, struct blob **ret)
{
	char digest[SHA256_HEX_SIZE];
	int err = 0;

	lock_take(&j->lock);
	*ret = blob_get(j->order.request); /* its end may let it go at any moment */
	lock_drop(&j->lock);
	if (!*ret)
		err = j->spool ? load(j, ret) : -ECANCELED;
	if (err)
		return err;
	sha256_hex(blob_bytes(*ret), blob_len(*ret), digest);
	lock_take(&j->lock);
	memcpy(j->request_sha256, digest, sizeof digest);
	lock_drop(&j->lock);
	return 0;
}

int job_read_file(struct job *j, size_t n, uint64_t most, struct buf *ret)
{
	const uint64_t *ids = (const uint64_t *)blob_bytes(j->order.files);
	struct spool_file *file;
	uint64_t size;
	char *room;
	ssize_t got;
	int err;

	if (n >= blob_len(j->order.files) / sizeof *ids)
		return -EINVAL;
	err = spool_get(j->spool, ids[n], &file);
	if (err)
		return err;
	err = spool_size(file, &size);
	if (!err && size > most)
		err = -EFBIG;
	room = err ? NULL : buf_room(ret, size);
	if (!err && !room)
		err = -ENOMEM;
	got = err ? err : spool_read(file, 0, room, size);
	spool_file_put(file);
	if (got > 0)
		ret->len += (size_t)got;
	return got < 0 ? (int)got : 0;
}

/* A batch is read from its beginning to its end once before anything else: its digest comes by the
 * way. */
static void digest_request(struct job *j, uint64_t offset, const char *bytes, size_t n)
{
	char digest[SHA256_HEX_SIZE];

	if (!j->request_seen && !j->request_digest)
		j->request_digest = sha256_new();
	if (!j->request_digest || offset > j->request_seen || offset + n <= j->request_seen)
		return;
	bytes += j->request_seen - offset;
	n -= j->request_seen - offset;
	sha256_update(j->request_digest, bytes, n);
	j->request_seen += n;
	if (j->request_seen < j->request_size)
		return;
	sha256_finish(take_ptr(j->request_digest), digest);
	lock_take(&j->lock);
	memcpy(j->request_sha256, digest, sizeof digest);
	lock_drop(&j->lock);
}

ssize_t job_read_request(struct job *j, uint64_t offset, char *ret, size_t size)
{
	ssize_t n;

	if (offset >= j->request_size)
		return 0;
	if (size > j->request_size - offset)
		size = (size_t)(j->request_size - offset);
	n = job_store_read(j, offset, ret, size);
	if (n > 0)
		digest_request(j, offset, ret, (size_t)n);
	return n;
}

/* --- a batch's answers ------------------------------------------------------------------------ */

int job_store_append(struct job *j, uint64_t size, const char *text, size_t len)
{
	struct spool_file *file = NULL;
	int err;

	lock_take(&j->file_lock);
	err = open_file(j, &file);
	if (!err)
		err = spool_write(file, j->request_size + size, text, len);
	spool_file_put(file);
	lock_drop(&j->file_lock);
	return err;
}

static void count_answers(const char *bytes, size_t n, struct run_lines *lines, size_t *ret_whole)
{
	const char *end;

	*ret_whole = 0;
	for (const char *line = bytes; (end = memchr(line, '\n', n - (size_t)(line - bytes)));
		line = end + 1) {
		if (batch_is_answer(line, (size_t)(end - line)))
			lines->done++;
		else
			lines->failed++;
		*ret_whole = (size_t)(end + 1 - bytes);
	}
}

/* The answers found, and their digest, become the job's. */
static int scan_answers(struct job *j, struct sha256 *digest, uint64_t *ret_size,
	struct run_lines *lines)
{
	AUTO_BUF struct buf b = BUF_INIT;
	uint64_t size = 0;
	size_t whole;
	ssize_t n;

	for (;;) { /* a line longer than the buffer makes it grow */
		char *room = buf_room(&b, CHUNK);

		if (!room)
			return -ENOMEM;
		n = job_store_read(j, j->request_size + size + b.len, room, CHUNK);
		if (n <= 0)
			break;
		b.len += (size_t)n;
		count_answers(b.data, b.len, lines, &whole);
		sha256_update(digest, b.data, whole);
		size += whole;
		memmove(b.data, b.data + whole, b.len - whole);
		b.len -= whole;
	}
	*ret_size = size; /* what follows the last line end was not finished */
	return (int)n;
}

int job_resume(struct job *j, struct run_lines *ret)
{
	struct run_lines lines = { 0 };
	struct sha256 *digest = sha256_new();
	char unused[SHA256_HEX_SIZE];
	struct spool_file *file = NULL;
	uint64_t size = 0;
	int err = !digest ? -ENOMEM : j->spool ? open_file(j, &file) : -EOPNOTSUPP;

	if (!err)
		job_use_file(j, file);
	spool_file_put(file);
	if (!err)
		err = scan_answers(j, digest, &size, &lines);
	if (err) {
		sha256_finish(digest, unused);
		return err;
	}
	lock_take(&j->lock);
	sha256_finish(j->stream_digest, unused);
	j->stream_digest = digest;
	j->stream_size = size;
	j->lines = lines;
	lock_drop(&j->lock);
	*ret = lines;
	return 0;
}

/* --- results of before ------------------------------------------------------------------------ */

ssize_t job_store_read(struct job *j, uint64_t at, char *ret, size_t size)
{
	struct spool_file *file;
	ssize_t n;
	int err = open_file(j, &file);

	if (err)
		return err;
	n = spool_read(file, at, ret, size);
	spool_file_put(file);
	return n;
}

/* Into memory, for who still reads; without memory they get ESTALE. */
static void fetch(struct job *j, enum job_result what, uint64_t size, struct buf *ret)
{
	char *room = buf_room(ret, size);
	ssize_t n = room ? job_read(j, what, 0, room, size) : -ENOMEM;

	if (n == (ssize_t)size)
		ret->len = size;
	else
		buf_done(ret);
}

void job_forget_file(struct job *j)
{
	struct buf out = BUF_INIT, stream = BUF_INIT;
	struct spool_file *file = NULL;
	struct job_view v;

	job_look(j, &v);
	if (v.state == JOB_DONE && v.stored && job_is_shared(j)) {
		if (j->out_is_stream || v.stream_apart)
			fetch(j, JOB_STREAM, v.stream_size, &stream);
		if (!j->out_is_stream)
			fetch(j, JOB_OUT, v.out_size, &out);
	}
	lock_take(&j->file_lock); /* what is being written comes before, and nothing after */
	lock_take(&j->lock);
	j->gone = true;
	if (v.state == JOB_DONE && v.stored) /* it is not its own any more */
		file = take_ptr(j->file);
	if (out.len && !j->out.len)
		j->out = take_buf(&out);
	if (stream.len && !j->stream.len)
		j->stream = take_buf(&stream);
	lock_drop(&j->lock);
	lock_drop(&j->file_lock);
	spool_file_put(file);
	buf_done(&out);
	buf_done(&stream);
}

/* An output of a moderate size is looked at before it is given out. */
static int verify(struct job *j, struct spool_file *file)
{
	char digest[SHA256_HEX_SIZE];
	struct buf *out;
	char *room;
	ssize_t n;

	if (j->state != JOB_DONE || !j->out_size || j->out_size > JOB_OUT_VERIFIED)
		return 0;
	out = j->out_is_stream ? &j->stream : &j->out;
	room = buf_room(out, j->out_size);
	if (!room)
		return -ENOMEM;
	n = spool_read(file, j->request_size, room, j->out_size);
	if (n < 0)
		return (int)n;
	if ((uint64_t)n < j->out_size)
		return -EIO;
	out->len = j->out_size;
	sha256_hex(room, j->out_size, digest);
	if (strcmp(digest, j->output_sha256) != 0)
		return -EIO;
	if (j->out_size > JOB_OUT_IN_MEMORY) {
		buf_done(out);
		job_use_file(j, file);
	}
	return 0;
}

static void set_times(struct job *j, const struct job_view *v)
{
	j->made = v->made;
	j->queued = v->queued;
	j->started = v->started;
	j->ended = v->ended;
	j->queued_mono = 1; /* only differences are shown */
	j->ended_mono = 1 + v->queue_ns + v->run_ns;
	if (v->started)
		j->started_mono = 1 + v->queue_ns;
}

static int set_texts(struct job *j, const struct job_view *v)
{
	memcpy(j->request_sha256, v->request_sha256, sizeof j->request_sha256);
	memcpy(j->output_sha256, v->output_sha256, sizeof j->output_sha256);
	memcpy(j->model_alias, v->model_alias, sizeof j->model_alias);
	memcpy(j->model_sha256, v->model_sha256, sizeof j->model_sha256);
	job_set_request_id(j, v->request_id);
	if (v->state == JOB_DONE)
		return 0;
	j->fault = malloc(sizeof *j->fault);
	if (!j->fault)
		return -ENOMEM;
	*j->fault = v->fault;
	return 0;
}

static int fill(struct job *j, const struct record_run *r)
{
	const struct job_view *v = &r->view;

	j->id = v->id;
	j->state = v->state;
	j->stored = true;
	j->generation = v->generation;
	j->lines = v->lines;
	j->order.stream = v->stream;
	j->order.shape = v->shape;
	j->request_size = v->request_size;
	j->out_size = v->out_size;
	j->out_is_stream = v->state == JOB_DONE && !v->stream_apart;
	j->stream_size = j->out_is_stream ? v->out_size : v->stream_size;
	j->outcome = (struct job_outcome){
		.prompt_tokens = v->prompt_tokens,
		.output_tokens = v->output_tokens,
		.finish_reason = v->finish_reason,
		.seed_known = v->seed_known,
		.seed = v->seed,
	};
	set_times(j, v);
	return set_texts(j, v);
}

static int revive(struct spool *spool, struct spool_file *file, struct job **ret)
{
	struct record_run r;
	struct job *j;
	int err = spool_read_run(file, &r);

	if (!err && !job_state_ended(r.view.state))
		err = -EIO;
	if (err)
		return err;
	j = job_new(r.view.uid, r.view.format, NULL, spool_file_id(file));
	if (!j)
		return -ENOMEM;
	j->spool = spool;
	err = fill(j, &r);
	if (err)
		job_put(j);
	else
		*ret = j;
	return err;
}

int job_revive(struct spool *spool, uint64_t file_id, bool to_read, struct job **ret)
{
	struct spool_file *file;
	struct job *j = NULL;
	int err = spool_get(spool, file_id, &file);

	if (err)
		return err;
	err = revive(spool, file, &j);
	if (!err && to_read)
		err = verify(j, file);
	spool_file_put(file);
	if (err)
		job_put(j);
	else
		*ret = j;
	return err;
}

struct job *job_again(struct spool *spool, uint64_t file_id, const struct record_run *r)
{
	struct job *j = job_new(r->view.uid, r->view.format, NULL, file_id);

	if (!j)
		return NULL;
	j->id = r->view.id;
	j->spool = spool;
	j->made = r->view.made;
	job_set_model(j, r->view.model_alias, "");
	return j;
}
