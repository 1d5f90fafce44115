/* A control: each write(2) is one command in exact words, and its answer is write's. What reading
 * gives was rendered at open. Where in the file is written does not matter. */
#include "fs/handle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "fs/area.h"

#define COMMAND_MAX 4096

struct command_handle {
	struct handle base;
	const struct node_row *row;
	uint64_t object;
	struct buf text;
};

static void command_read(struct npufs *fs, fuse_req_t req, struct handle *h, size_t size, off_t off,
	int flags)
{
	const struct buf *text = &((struct command_handle *)h)->text;
	size_t at = (size_t)off < text->len ? (size_t)off : text->len;

	(void)fs, (void)flags;
	fuse_reply_buf(req, buf_text(text) + at, size < text->len - at ? size : text->len - at);
}

/* The words without their line end. */
static int words_of(const char *bytes, size_t size, char **ret)
{
	if (size && bytes[size - 1] == '\n')
		size--;
	if (!size || size > COMMAND_MAX || memchr(bytes, '\0', size))
		return -EINVAL;
	*ret = strndup(bytes, size);
	return *ret ? 0 : -ENOMEM;
}

static void command_write(struct npufs *fs, fuse_req_t req, struct handle *h, const char *bytes,
	size_t size, off_t off)
{
	const struct command_handle *c = (const struct command_handle *)h;
	const struct cred cred = fs_cred(req);
	AUTO_FREE char *words = NULL;
	int err = words_of(bytes, size, &words);

	(void)off;
	if (!err)
		err = c->row->command(fs, &cred, c->object, words);
	if (err)
		fuse_reply_err(req, -err);
	else
		fuse_reply_write(req, size);
}

static void command_release(struct npufs *fs, struct handle *h)
{
	(void)fs;
	buf_done(&((struct command_handle *)h)->text);
	free(h);
}

static const struct handle_ops command_ops = {
	.read = command_read,
	.write = command_write,
	.release = command_release,
};

struct handle *command_handle_new(const struct node_row *row, uint64_t object, struct buf *text)
{
	struct command_handle *h = calloc(1, sizeof *h);

	if (!h)
		return NULL;
	h->base.ops = &command_ops;
	h->row = row;
	h->object = object;
	h->text = *text;
	*text = (struct buf)BUF_INIT;
	return &h->base;
}
