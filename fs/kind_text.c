#include "fs/handle.h"

#include <errno.h>
#include <stdlib.h>

const char *text_part(const struct buf *text, size_t *size, off_t off)
{
	size_t at = (size_t)off < text->len ? (size_t)off : text->len;

	if (*size > text->len - at)
		*size = text->len - at;
	return buf_text(text) + at;
}

void text_reply(fuse_req_t req, const struct buf *text, size_t size, off_t off)
{
	const char *part = text_part(text, &size, off);

	fuse_reply_buf(req, part, size);
}

/* --- what changes ----------------------------------------------------------------------------- */

bool fresh_text_is_due(const struct fresh_text *t, off_t off)
{
	return off == 0 || (t->ended && (size_t)off >= t->text.len);
}

void fresh_text_reply(struct fresh_text *t, fuse_req_t req, size_t size, off_t off)
{
	t->ended = (size_t)off >= t->text.len;
	if (buf_error(&t->text))
		fuse_reply_err(req, ENOMEM);
	else
		text_reply(req, &t->text, size, off);
}

/* --- what does not ---------------------------------------------------------------------------- */

struct text_handle {
	struct handle base;
	struct buf text;
};

static void text_read(struct npufs *fs, fuse_req_t req, struct handle *h, size_t size, off_t off,
	int flags)
{
	(void)fs;
	(void)flags;
	text_reply(req, &((struct text_handle *)h)->text, size, off);
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
	h->text = take_buf(text);
	return &h->base;
}
