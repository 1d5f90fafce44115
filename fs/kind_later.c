/* A text that takes time or the disk. A thread of control renders it at the first read, which is parked
 * meanwhile; later reads have the text. The kernel keeps the file open until its reads are answered.
 * A file may be opened again and again: who reads what the last one has, shares it, and all texts together
 * have a limit. */
#include "fs/handle.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/lock.h"
#include "core/base/mem.h"
#include "core/control/control.h"
#include "core/engine/trace.h"

#define TEXTS_BYTES_MAX (4 * TRACE_MAX_BYTES)

struct shared_text {
	unsigned holders;
	struct buf text; /* fixed */
};

static struct lock lock = LOCK_INIT(RANK_LATER, "later texts");
static struct shared_text *newest; /* NULL: none is held; no holder itself */
static uint64_t texts_bytes;

struct later_handle {
	struct handle base;
	int (*render)(struct control *c, struct buf *out);
	struct shared_text *_Atomic text; /* NULL: not yet; then for good */
};

struct parked_read {
	struct control_order base;
	fuse_req_t req;
	struct later_handle *h;
	size_t size;
	off_t off;
};

/* --- texts ------------------------------------------------------------------------------------ */

static struct shared_text *hold_newest(void)
{
	struct shared_text *t;

	lock_take(&lock);
	t = newest;
	if (t)
		t->holders++;
	lock_drop(&lock);
	return t;
}

static void let_go(struct shared_text *t)
{
	bool last;

	if (!t)
		return;
	lock_take(&lock);
	last = --t->holders == 0;
	if (last) {
		texts_bytes -= t->text.len;
		newest = newest == t ? NULL : newest;
	}
	lock_drop(&lock);
	if (!last)
		return;
	buf_done(&t->text);
	free(t);
}

/* Takes `text`. NULL: no memory, or more than all texts may have. */
static struct shared_text *hold_new(struct buf *text)
{
	struct shared_text *t = calloc(1, sizeof *t);

	if (!t)
		return NULL;
	lock_take(&lock);
	if (text->len <= TEXTS_BYTES_MAX - texts_bytes) {
		*t = (struct shared_text){ 1, take_buf(text) };
		texts_bytes += t->text.len;
		newest = t;
	}
	lock_drop(&lock);
	if (!t->holders)
		free(take_ptr(t));
	return t;
}

static struct shared_text *hold(struct buf *text)
{
	struct shared_text *t = hold_newest();

	if (t && t->text.len == text->len &&
		memcmp(buf_text(&t->text), buf_text(text), text->len) == 0)
		return t;
	let_go(t);
	return hold_new(text);
}

/* --- reading ---------------------------------------------------------------------------------- */

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
	struct shared_text *text = atomic_load(&r->h->text);

	if (!err && !text) {
		text = hold(&base->text);
		atomic_store(&r->h->text, text);
		err = text ? 0 : -ENOMEM;
	}
	if (err)
		fuse_reply_err(r->req, -err);
	else
		reply_copy(r->req, &text->text, r->size, r->off);
	buf_done(&base->text);
	free(r);
}

static void later_read(struct npufs *fs, fuse_req_t req, struct handle *base, size_t size,
	off_t off, int flags)
{
	struct later_handle *h = (struct later_handle *)base;
	const struct shared_text *text = atomic_load(&h->text);
	struct parked_read *r;
	int err;

	(void)flags;
	if (text) {
		text_reply(req, &text->text, size, off);
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
	let_go(atomic_load(&((struct later_handle *)h)->text));
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
