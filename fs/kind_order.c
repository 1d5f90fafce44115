/* A privileged command: each write(2) is one, and is answered when it has been carried out. The request
 * is parked meanwhile: the thread that serves the kernel waits for nothing. What reading gives, how
 * the command is written, was rendered at open. */
#include "fs/handle.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/control.h"
#include "core/mem.h"

struct order_handle {
	struct handle base;
	struct control_order form; /* of what each write is: a command, or a signature */
	struct buf text;
};

struct parked_order {
	struct control_order base;
	fuse_req_t req;
	size_t size;
};

static void order_read(struct npufs *fs, fuse_req_t req, struct handle *h, size_t size, off_t off,
	int flags)
{
	(void)fs, (void)flags;
	text_reply(req, &((struct order_handle *)h)->text, size, off);
}

static void free_order(struct parked_order *o)
{
	if (o)
		buf_done(&o->base.text);
	free(o);
}

static void answer_write(struct control_order *base, int err)
{
	struct parked_order *o = (struct parked_order *)base;

	if (err)
		fuse_reply_err(o->req, -err);
	else
		fuse_reply_write(o->req, o->size);
	free_order(o);
}

static void answer(struct control_order *base, int err)
{
	struct parked_order *o = (struct parked_order *)base;

	fuse_reply_err(o->req, -err);
	free_order(o);
}

/* Who asks, and its roles, are the caller's of this very request, whoever opened the file. */
static void submit(struct npufs *fs, fuse_req_t req, struct parked_order *o)
{
	const struct cred who = fs_cred(req);
	int err;

	o->base.who = fs_cred_kept(fs, &who);
	o->req = req;
	err = control_submit(fs->control, &o->base);
	if (!err)
		return;
	free_order(o);
	fuse_reply_err(req, -err);
}

static struct parked_order *order_like(const struct control_order *form,
	void (*done)(struct control_order *o, int err))
{
	struct parked_order *o = calloc(1, sizeof *o);

	if (!o)
		return NULL;
	o->base.what = form->what;
	o->base.command = form->command;
	memcpy(o->base.approval, form->approval, sizeof o->base.approval);
	o->base.done = done;
	return o;
}

void order_park(struct npufs *fs, fuse_req_t req, const struct control_order *form)
{
	struct parked_order *o = order_like(form, answer);

	if (o)
		submit(fs, req, o);
	else
		fuse_reply_err(req, ENOMEM);
}

static void answer_raw(struct control_order *base, int err)
{
	struct parked_order *o = (struct parked_order *)base;

	if (err)
		fuse_reply_err(o->req, -err);
	else if (base->raw.bytes)
		fuse_reply_write(o->req, base->raw.size);
	else
		fuse_reply_buf(o->req, buf_text(&base->text), base->text.len);
	free_order(o);
}

void order_park_raw(struct npufs *fs, fuse_req_t req, const struct control_raw *raw)
{
	const struct control_order form = { .what = CONTROL_RAW, .command = raw->command };
	struct parked_order *o = order_like(&form, answer_raw);

	if (o && raw->bytes)
		buf_put(&o->base.text, raw->bytes, raw->size);
	if (!o || buf_error(&o->base.text)) {
		free_order(o);
		fuse_reply_err(req, ENOMEM);
		return;
	}
	snprintf(o->base.line, sizeof o->base.line, "%zu bytes at 0x%llx", raw->size,
		(unsigned long long)raw->address);
	o->base.raw = *raw;
	if (raw->bytes)
		o->base.raw.bytes = buf_text(&o->base.text);
	submit(fs, req, o);
}

/* What is not even a line is an attempt too, and is told of as an empty one. */
static void take_line(struct control_order *o, const char *bytes, size_t size)
{
	size_t n = size && bytes[size - 1] == '\n' ? size - 1 : size;

	if (n > CONTROL_LINE_MAX || memchr(bytes, '\0', n) || memchr(bytes, '\n', n))
		n = 0;
	memcpy(o->line, bytes, n);
	o->line[n] = '\0';
}

static void order_write(struct npufs *fs, fuse_req_t req, struct handle *h, const char *bytes,
	size_t size, off_t off)
{
	struct parked_order *o = order_like(&((struct order_handle *)h)->form, answer_write);

	(void)off;
	if (!o) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	take_line(&o->base, bytes, size);
	o->size = size;
	submit(fs, req, o);
}

static void order_release(struct npufs *fs, struct handle *h)
{
	(void)fs;
	buf_done(&((struct order_handle *)h)->text);
	free(h);
}

static const struct handle_ops order_ops = {
	.read = order_read,
	.write = order_write,
	.release = order_release,
};

struct handle *order_handle_new(const struct control_order *form, struct buf *text)
{
	struct order_handle *h = calloc(1, sizeof *h);

	if (!h)
		return NULL;
	h->base.ops = &order_ops;
	h->form = *form;
	h->text = take_buf(text);
	return &h->base;
}
