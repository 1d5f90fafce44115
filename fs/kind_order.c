/* A privileged command: each write(2) is one, and is answered when it has been carried out. The request
 * is parked meanwhile: the thread that serves the kernel waits for nothing. What reading gives, how
 * the command is written, was rendered at open.
 *
 * A signal ends the wait, whatever the device does: an order that has not begun is taken back (EINTR). One
 * that has goes on, and is answered with EINPROGRESS, which no library takes for an invitation to write it
 * again. Who takes the request out of the parked order answers it; there is one thread that serves
 * the kernel, so no signal is told before the order is on its way. */
#include "fs/handle.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/mem.h"
#include "core/control/control.h"

struct order_handle {
	struct handle base;
	struct control_order form; /* of what each write is: a command, or a signature */
	struct buf text;
};

struct parked_order {
	struct control_order base;
	_Atomic(fuse_req_t) req; /* NULL: nobody waits, any more */
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

/* The request, to be answered. Taking the function off waits for one that is running. */
static fuse_req_t take_req(struct parked_order *o)
{
	fuse_req_t req = atomic_exchange(&o->req, NULL);

	if (req)
		fuse_req_interrupt_func(req, NULL, NULL);
	return req;
}

static void answer_write(struct control_order *base, int err)
{
	struct parked_order *o = (struct parked_order *)base;
	fuse_req_t req = take_req(o);

	if (req && err)
		fuse_reply_err(req, -err);
	else if (req)
		fuse_reply_write(req, o->size);
	free_order(o);
}

static void answer(struct control_order *base, int err)
{
	struct parked_order *o = (struct parked_order *)base;
	fuse_req_t req = take_req(o);

	if (req)
		fuse_reply_err(req, -err);
	free_order(o);
}

/* --- on its way ------------------------------------------------------------------------------- */

/* An image that is not registered has to be refused by name: it is not taken back. Once the request
 * is out of the order, that may be gone. */
static void on_interrupt(fuse_req_t req, void *parked)
{
	struct parked_order *o = parked;
	struct npufs *fs = fs_of(req);
	fuse_req_t mine;

	if (o->base.what != CONTROL_PREPARE && control_take_back(fs->control, &o->base)) {
		free_order(o);
		fuse_reply_err(req, EINTR);
		return;
	}
	mine = atomic_exchange(&o->req, NULL);
	if (mine)
		fuse_reply_err(mine, EINPROGRESS);
}

/* 0, or why `o` and `req` are still the caller's. */
static int send(struct npufs *fs, fuse_req_t req, struct parked_order *o)
{
	int err;

	if (req && fuse_req_interrupted(req))
		return -EINTR;
	atomic_init(&o->req, req);
	if (req)
		fuse_req_interrupt_func(req, on_interrupt, o);
	err = control_submit(fs->control, &o->base);
	if (err)
		take_req(o);
	return err;
}

/* Who asks, and its roles, are the caller's of this very request, whoever opened the file. */
static void submit(struct npufs *fs, fuse_req_t req, struct parked_order *o)
{
	const struct cred who = fs_cred(req);
	int err;

	o->base.who = fs_cred_kept(fs, &who);
	err = send(fs, req, o);
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
	o->base = *form;
	o->base.done = done;
	return o;
}

int order_send(struct npufs *fs, fuse_req_t req, const struct control_order *form)
{
	struct parked_order *o = order_like(form, answer);
	int err = o ? send(fs, req, o) : -ENOMEM;

	if (err)
		free_order(o);
	return err;
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
	fuse_req_t req = take_req(o);

	if (req && err)
		fuse_reply_err(req, -err);
	else if (req && base->raw.bytes)
		fuse_reply_write(req, base->raw.size);
	else if (req)
		fuse_reply_buf(req, buf_text(&base->text), base->text.len);
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
