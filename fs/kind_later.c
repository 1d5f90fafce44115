/* A text that takes time or the disk. A thread of control renders it at the first read, which is parked
 * meanwhile; later reads have the text. The kernel keeps the file open until its reads are answered. */
#include "fs/handle.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "core/control/control.h"

struct later_handle {
	struct handle base;
	int (*render)(struct control *c, struct buf *out);
	_Atomic bool rendered; /* text is there, for good */
	struct buf text;
};

struct parked_read {
	struct control_order base;
	fuse_req_t req;
	struct later_handle *h;
	size_t size;
	off_t off;
};

/* Who reads may close before the reply has returned, and the text goes with the handle. */
static void reply_copy(fuse_req_t req, const struct buf *text, size_t size, off_t off)
{
	const char *part = text_part(text, &size, off);
	AUTO_BUF struct buf copy = BUF_INIT;

	buf_put(&copy, part, size);
	if (buf_error(&copy))
		fuse_reply_err(req, ENOMEM);
	else
		fuse_reply_buf(req, buf_text(&copy), size);
}

/* On the one thread that renders: two reads do not come here at once. */
static void rendered(struct control_order *base, int err)
{
	struct parked_read *r = (struct parked_read *)base;

	if (!err && !atomic_load(&r->h->rendered)) {
		r->h->text = take_buf(&base->text);
		atomic_store(&r->h->rendered, true);
	}
	if (err)
		fuse_reply_err(r->req, -err);
	else
		reply_copy(r->req, &r->h->text, r->size, r->off);
	buf_done(&base->text);
	free(r);
}

static void later_read(struct npufs *fs, fuse_req_t req, struct handle *base, size_t size,
	off_t off, int flags)
{
	struct later_handle *h = (struct later_handle *)base;
	struct parked_read *r;
	int err;

	(void)flags;
	if (atomic_load(&h->rendered)) {
		text_reply(req, &h->text, size, off);
		return;
	}
	r = calloc(1, sizeof *r);
	if (r)
		*r = (struct parked_read){
			.base = { .what = CONTROL_RENDER, .render = h->render, .done = rendered },
			.req = req,
			.h = h,
			.size = size,
			.off = off
		};
	err = r ? control_submit(fs->control, &r->base) : -ENOMEM;
	if (!err)
		return;
	free(r);
	fuse_reply_err(req, -err);
}

static void later_release(struct npufs *fs, struct handle *h)
{
	(void)fs;
	buf_done(&((struct later_handle *)h)->text);
	free(h);
}

static const struct handle_ops later_ops = { .read = later_read, .release = later_release };

struct handle *later_handle_new(int (*render)(struct control *c, struct buf *out))
{
	struct later_handle *h = calloc(1, sizeof *h);

	if (!h)
		return NULL;
	h->base.ops = &later_ops;
	h->render = render;
	return &h->base;
}
