/* A text that takes time or the disk. A thread of control renders it at the first read, which is parked
 * meanwhile; later reads have the text. The kernel keeps the file open until its reads are answered. */
#include "fs/handle.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/control.h"

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
	size_t size, off;
};

static void reply_part(fuse_req_t req, const struct buf *text, size_t size, size_t off)
{
	size_t at = off < text->len ? off : text->len;

	fuse_reply_buf(req, buf_text(text) + at, size < text->len - at ? size : text->len - at);
}

/* Who reads may close before the reply has returned, and the text goes with the handle. */
static void reply_copy(fuse_req_t req, const struct buf *text, size_t size, size_t off)
{
	size_t at = off < text->len ? off : text->len;
	size_t n = size < text->len - at ? size : text->len - at;
	char *part = malloc(n + 1);

	if (part) {
		memcpy(part, buf_text(text) + at, n);
		fuse_reply_buf(req, part, n);
	} else {
		fuse_reply_err(req, ENOMEM);
	}
	free(part);
}

/* On the one thread that carries out: two reads do not come here at once. */
static void rendered(struct control_order *base, int err)
{
	struct parked_read *r = (struct parked_read *)base;

	if (!err && !atomic_load(&r->h->rendered)) {
		r->h->text = base->text;
		base->text = (struct buf)BUF_INIT;
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
		reply_part(req, &h->text, size, (size_t)off);
		return;
	}
	r = calloc(1, sizeof *r);
	if (r)
		*r = (struct parked_read){
			.base = { .what = CONTROL_RENDER, .render = h->render, .done = rendered },
			.req = req,
			.h = h,
			.size = size,
			.off = (size_t)off
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
