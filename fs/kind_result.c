/* STEM.out, .err and .stream wait for their job; STEM.status shows it as it is. */
#include "fs/handle.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/poll.h>
#include <sys/stat.h>

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "fs/park.h"

struct open_result {
	struct handle base;
	struct job *job; /* counted */
	enum job_row row;
	fuse_ino_t ino;
};

/* --- out, err, stream ------------------------------------------------------------------------- */

struct result_handle {
	struct open_result open;
	enum job_result what;
	_Atomic off_t
		next; /* where the last read ended, as far as it is known: what poll asks about */
	struct park_poll *poll;
};

static void result_read(struct npufs *fs, fuse_req_t req, struct handle *h, size_t size, off_t off,
	int flags)
{
	struct result_handle *r = (struct result_handle *)h;

	(void)fs;
	r->next = off;
	if ((flags & O_NONBLOCK) && !job_ripe(r->open.job, r->what, (size_t)off))
		fuse_reply_err(req, EAGAIN);
	else
		park_read(req, r->open.job, r->what, size, (size_t)off, &r->next);
}

static void result_poll(struct npufs *fs, fuse_req_t req, struct handle *h,
	struct fuse_pollhandle *ph)
{
	struct result_handle *r = (struct result_handle *)h;
	bool ripe = job_ripe(r->open.job, r->what, (size_t)r->next);

	(void)fs;
	if (ph && ripe)
		fuse_pollhandle_destroy(ph);
	else if (ph)
		r->poll = park_poll_arm(r->poll, r->open.job, r->what, (size_t)r->next, ph);
	fuse_reply_poll(req, ripe ? POLLIN | POLLRDNORM : 0);
}

static void result_release(struct npufs *fs, struct handle *h)
{
	struct result_handle *r = (struct result_handle *)h;

	(void)fs;
	park_poll_drop(r->poll);
	job_put(r->open.job);
	free(r);
}

static const struct handle_ops result_ops = {
	.read = result_read,
	.poll = result_poll,
	.release = result_release,
};

/* --- status ----------------------------------------------------------------------------------- */

struct status_handle {
	struct open_result open;
	struct fresh_text shown;
	enum job_state state; /* as it is shown */
};

static void status_read(struct npufs *fs, fuse_req_t req, struct handle *h, size_t size, off_t off,
	int flags)
{
	struct status_handle *s = (struct status_handle *)h;

	(void)flags;
	if (off == 0 || (fresh_text_is_due(&s->shown, off) && job_state(s->open.job) != s->state)) {
		s->state = job_state(s->open.job);
		buf_reset(&s->shown.text);
		jobdir_status(fs->jobs, s->open.job, &s->shown.text);
	}
	fresh_text_reply(&s->shown, req, size, off);
}

static void status_release(struct npufs *fs, struct handle *h)
{
	struct status_handle *s = (struct status_handle *)h;

	(void)fs;
	buf_done(&s->shown.text);
	job_put(s->open.job);
	free(s);
}

static const struct handle_ops status_ops = { .read = status_read, .release = status_release };

static struct handle *status_handle_new(struct job *j, fuse_ino_t ino)
{
	struct status_handle *s = calloc(1, sizeof *s);

	if (!s)
		return NULL;
	s->open = (struct open_result){ .base.ops = &status_ops,
		.job = j,
		.row = ROW_STATUS,
		.ino = ino };
	return &s->open.base;
}

struct handle *result_handle_new(struct job *j, enum job_row row, fuse_ino_t ino)
{
	static const enum job_result shows[ROW_COUNT] = { [ROW_OUT] = JOB_OUT,
		[ROW_ERR] = JOB_ERR,
		[ROW_STREAM] = JOB_STREAM };
	struct result_handle *r;

	if (row == ROW_STATUS)
		return status_handle_new(j, ino);
	r = calloc(1, sizeof *r);
	if (!r)
		return NULL;
	r->open = (struct open_result){ .base.ops = &result_ops, .job = j, .row = row, .ino = ino };
	r->what = shows[row];
	return &r->open.base;
}

/* --- what fstat(2) says: it comes with a number, not with the open file ----------------------- */

static const struct open_result *find_open(struct npufs *fs, fuse_ino_t ino)
{
	for (struct handle *h = fs->open; h; h = h->next) {
		const struct open_result *o = (const struct open_result *)h;

		if ((h->ops == &result_ops || h->ops == &status_ops) && o->ino == ino)
			return o;
	}
	return NULL;
}

int result_handle_attr(struct npufs *fs, fuse_ino_t ino, struct stat *ret)
{
	const struct open_result *o = find_open(fs, ino);
	struct job_view v;

	if (!o)
		return -ESTALE;
	job_look(o->job, &v);
	*ret = (struct stat){
		.st_ino = ino,
		.st_mode = S_IFREG | 0400,
		.st_uid = v.uid,
		.st_mtim = clock_timespec(v.ended),
		.st_ctim = clock_timespec(v.ended),
		.st_atim = clock_timespec(v.ended),
	};
	fs_stat_size(ret, jobdir_result_size(fs->jobs, o->job, o->row, &v));
	return 0;
}
