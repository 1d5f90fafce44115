#include "fs/handle.h"

#include <stdlib.h>

struct text_handle {
	struct handle base;
	struct buf text;
};

static void text_read(struct npufs *fs, fuse_req_t req, struct handle *h, size_t size, off_t off,
	int flags)
{
	const struct buf *text = &((struct text_handle *)h)->text;
	size_t at = (size_t)off < text->len ? (size_t)off : text->len;

	(void)fs;
	(void)flags;
	fuse_reply_buf(req, buf_text(text) + at, size < text->len - at ? size : text->len - at);
}

static void text_release(struct npufs *fs, struct handle *h)
{
	(void)fs;
	buf_done(&((struct text_handle *)h)->text);
	free(h);
}

static const struct handle_ops text_ops = { .read = text_read, .release = text_release };

struct handle *text_handle_new(struct buf *text)
{
	struct text_handle *h = calloc(1, sizeof *h);

	if (!h)
		return NULL;
	h->base.ops = &text_ops;
	h->text = *text;
	*text = (struct buf)BUF_INIT;
	return &h->base;
}
