#include "fs/handle.h"

#include <errno.h>
#include <stdlib.h>

/* --- what changes ----------------------------------------------------------------------------- */

bool fresh_text_is_due(const struct fresh_text *t, off_t off)
{
	return off == 0 || (t->ended && (size_t)off >= t->text.len);
}

void fresh_text_reply(struct fresh_text *t, fuse_req_t req, size_t size, off_t off)
{
	size_t at = (size_t)off < t->text.len ? (size_t)off : t->text.len;

	t->ended = at == t->text.len;
	if (buf_error(&t->text))
		fuse_reply_err(req, ENOMEM);
	else
		fuse_reply_buf(req, buf_text(&t->text) + at,
			size < t->text.len - at ? size : t->text.len - at);
}

/* --- what does not ---------------------------------------------------------------------------- */

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
