/* The image of a callable. While it is written its bytes are here; when it is whole, which its header
 * tells, the close(2) of the writer is parked until the device has taken it, so that `cp` says what is
 * wrong. One that ends too early is refused when its last descriptor is gone. */
#include "fs/handle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/files.h"
#include "core/base/mem.h"
#include "core/callable/image.h"
#include "core/control/control.h"

struct image_handle {
	struct handle base;
	uint64_t number;
	char name[CALLABLES_NAME_MAX + 1];
	struct cred who; /* makes it */
	struct buf bytes;
	uint64_t total; /* as the header has it; 0 while it is not there */
	bool committed;
	struct fault fault; /* of a write that was refused: the image is not to be taken */
};

/* --- registering ------------------------------------------------------------------------------ */

static int submit(struct npufs *fs, fuse_req_t req, struct image_handle *h)
{
	struct control_order o = { .what = CONTROL_PREPARE,
		.command = PRIVILEGED_PREPARE,
		.who = h->who,
		.callable = h->number };
	int err = callables_commit(engine_callables(fs->engine), h->number, &h->bytes);

	memcpy(o.line, h->name, sizeof h->name);
	return err ? err : order_send(fs, req, &o);
}

/* The answer to `req` comes with what it says, unless it cannot be asked. */
static void commit(struct npufs *fs, fuse_req_t req, struct image_handle *h)
{
	struct fault f = FAULT_NONE;
	int err;

	h->committed = true;
	err = submit(fs, req, h);
	if (!err)
		return;
	fault_set(&f, err, "write it again later", "it could not be registered: %s",
		strerror(-err));
	callables_refuse(engine_callables(fs->engine), h->number, &f);
	if (req)
		fuse_reply_err(req, -err);
}

/* --- writing ---------------------------------------------------------------------------------- */

/* For the audit trail: what comes to nothing before it is an order to register it. */
static void note(struct npufs *fs, const struct cred *who, const char *why)
{
	const struct privileged_row *row = privileged_row(PRIVILEGED_PREPARE);

	control_note(fs->control, who, row->name, row->node, why);
}

/* cp seeks over the holes of a sparse file: they are zeros here too. */
static int append(struct buf *to, uint64_t at, const char *bytes, size_t size)
{
	size_t hole = (size_t)(at - to->len);
	char *room = buf_room(to, hole);

	if (!room)
		return -ENOMEM;
	memset(room, 0, hole);
	to->len += hole;
	buf_put(to, bytes, size);
	return buf_error(to);
}

static int take_bytes(struct npufs *fs, struct image_handle *h, const char *bytes, size_t size,
	off_t off)
{
	const uint64_t end = (uint64_t)off + size;
	struct fault *f = &h->fault;
	int err;

	if (h->fault.err)
		return h->fault.err;
	if (h->committed)
		return -EBUSY;
	if ((uint64_t)off < h->bytes.len)
		return fault_set(f, -ESPIPE, "copy it with cp", "it was not written in order");
	if (end > fs->opts.callable_size)
		return fault_set(f, -EFBIG, "ask the operator for a larger callable_size",
			"the image has more than %llu bytes",
			(unsigned long long)fs->opts.callable_size);
	err = callables_grow(engine_callables(fs->engine), h->number, end);
	if (err)
		return fault_set(f, err, "write it again when others are registered",
			"too much is written into callables/ at once");
	if (append(&h->bytes, (uint64_t)off, bytes, size))
		return fault_set(f, -ENOMEM, "write it again later", "no memory for the image");
	return image_peek(h->bytes.data, h->bytes.len, &h->total, f);
}

static void image_write(struct npufs *fs, fuse_req_t req, struct handle *base, const char *bytes,
	size_t size, off_t off)
{
	struct image_handle *h = (struct image_handle *)base;
	const bool refused = h->fault.err;
	const struct cred who = fs_cred(req);
	int err = take_bytes(fs, h, bytes, size, off);

	if (err && !refused) /* of what is written on nothing new is told */
		note(fs, &who, "image");
	if (err)
		fuse_reply_err(req, -err);
	else
		fuse_reply_write(req, size);
}

/* Shells flush in the middle: only what is whole is taken. */
static void image_flush(struct npufs *fs, fuse_req_t req, struct handle *base)
{
	struct image_handle *h = (struct image_handle *)base;

	if (!h->committed && !h->fault.err && h->total && h->bytes.len >= h->total)
		commit(fs, req, h);
	else
		fuse_reply_err(req, -h->fault.err);
}

static void image_release(struct npufs *fs, struct handle *base)
{
	struct image_handle *h = (struct image_handle *)base;

	if (!h->committed && !h->fault.err && !h->bytes.len)
		note(fs, &h->who, "empty");
	if (!h->committed && (h->fault.err || !h->bytes.len))
		callables_refuse(engine_callables(fs->engine), h->number, &h->fault);
	else if (!h->committed)
		commit(fs, NULL, h);
	buf_done(&h->bytes);
	free(h);
}

static const struct handle_ops image_ops = {
	.write = image_write,
	.flush = image_flush,
	.release = image_release,
};

struct handle *image_handle_new(uint64_t number, const char *name, const struct cred *who)
{
	struct image_handle *h = calloc(1, sizeof *h);

	if (!h)
		return NULL;
	h->base.ops = &image_ops;
	h->number = number;
	h->fault = (struct fault)FAULT_NONE;
	h->who = *who;
	strncpy(h->name, name, sizeof h->name - 1);
	return &h->base;
}

/* --- reading ---------------------------------------------------------------------------------- */

struct stored_handle {
	struct handle base;
	int fd;
};

static void stored_read(struct npufs *fs, fuse_req_t req, struct handle *base, size_t size,
	off_t off, int flags)
{
	AUTO_FREE char *bytes = malloc(size ? size : 1);
	ssize_t n = bytes ? pread(((struct stored_handle *)base)->fd, bytes, size, off) : -1;

	(void)fs, (void)flags;
	if (n < 0)
		fuse_reply_err(req, bytes ? errno : ENOMEM);
	else
		fuse_reply_buf(req, bytes, (size_t)n);
}

static void stored_release(struct npufs *fs, struct handle *base)
{
	(void)fs;
	close(((struct stored_handle *)base)->fd);
	free(base);
}

static const struct handle_ops stored_ops = { .read = stored_read, .release = stored_release };

struct handle *stored_handle_new(int fd)
{
	struct stored_handle *h = calloc(1, sizeof *h);

	if (!h)
		return NULL;
	h->base.ops = &stored_ops;
	h->fd = fd;
	return &h->base;
}
