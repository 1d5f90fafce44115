/* The device's memory or registers: the file's offset is the address. Each read(2) or write(2) is one
 * privileged access, answered when it has been made, as fs/kind_order.c does; at most
 * CONTROL_RAW_MAX bytes of it, the rest is for the next. */
#include "fs/handle.h"

#include <errno.h>
#include <stdlib.h>

#include "core/control/control.h"

struct raw_handle {
	struct handle base;
	enum privileged_command read, write;
};

static size_t part_of(size_t size)
{
	return size < CONTROL_RAW_MAX ? size : CONTROL_RAW_MAX;
}

static void raw_read(struct npufs *fs, fuse_req_t req, struct handle *h, size_t size, off_t off,
	int flags)
{
	const struct control_raw raw = { .command = ((struct raw_handle *)h)->read,
		.address = (uint64_t)off,
		.size = part_of(size) };

	(void)flags;
	order_park_raw(fs, req, &raw);
}

static void raw_write(struct npufs *fs, fuse_req_t req, struct handle *h, const char *bytes,
	size_t size, off_t off)
{
	const struct control_raw raw = { .command = ((struct raw_handle *)h)->write,
		.address = (uint64_t)off,
		.size = part_of(size),
		.bytes = bytes };

	order_park_raw(fs, req, &raw);
}

static void raw_release(struct npufs *fs, struct handle *h)
{
	(void)fs;
	free(h);
}

static const struct handle_ops raw_ops = {
	.read = raw_read,
	.write = raw_write,
	.release = raw_release,
};

struct handle *raw_handle_new(enum privileged_command read, enum privileged_command write)
{
	struct raw_handle *h = calloc(1, sizeof *h);

	if (!h)
		return NULL;
	h->base.ops = &raw_ops;
	h->read = read;
	h->write = write;
	return &h->base;
}
