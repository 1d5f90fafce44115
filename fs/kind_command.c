/* A row of an object that changes, and a control where it has a command: that takes exact words,
 * and its answer is write's. Words end at a line end. Without one they are taken at once too,
 * unless the row can check them: then they wait for the rest, which a program that writes byte by
 * byte brings (the 1 of 16 is a command as well), or for the close. Only where a write begins
 * tells whether it is the rest; otherwise the place in the file does not matter. */
#include "fs/handle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/mem.h"
#include "fs/area.h"

#define COMMAND_MAX 4096

struct command_handle {
	struct handle base;
	const struct node_row *row;
	uint64_t object;
	struct fresh_text shown;
	struct buf words; /* checked, and not taken yet */
	off_t next;       /* where their rest would be written */
};

/* What it showed last, when the object is gone. */
static void render(struct npufs *fs, struct command_handle *c)
{
	AUTO_BUF struct buf text = BUF_INIT;
	struct buf old = c->shown.text;

	if (c->row->show(fs, c->object, &text) || buf_error(&text))
		return;
	c->shown.text = text;
	text = old;
}

static void command_read(struct npufs *fs, fuse_req_t req, struct handle *h, size_t size, off_t off,
	int flags)
{
	struct command_handle *c = (struct command_handle *)h;

	(void)flags;
	if (fresh_text_is_due(&c->shown, off))
		render(fs, c);
	fresh_text_reply(&c->shown, req, size, off);
}

/* --- words ------------------------------------------------------------------------------------ */

static int run(struct npufs *fs, fuse_req_t req, struct command_handle *c)
{
	AUTO_BUF struct buf words = take_buf(&c->words);
	const struct cred cred = fs_cred(req);

	return c->row->command(fs, &cred, c->object, buf_text(&words));
}

/* May words wait, as they are now? */
static int check(struct npufs *fs, fuse_req_t req, struct command_handle *c)
{
	const struct cred cred = fs_cred(req);
	int err = c->row->check(fs, &cred, c->object, buf_text(&c->words));

	if (err)
		buf_reset(&c->words);
	return err;
}

/* Words that wait, unless these bytes are their rest. */
static int run_waiting(struct npufs *fs, fuse_req_t req, struct command_handle *c, off_t off)
{
	return c->words.len && off != c->next ? run(fs, req, c) : 0;
}

static int add_words(struct command_handle *c, const char *bytes, size_t size, bool ended)
{
	buf_put(&c->words, bytes, ended ? size - 1 : size);
	if (c->words.len && c->words.len <= COMMAND_MAX && !buf_error(&c->words) &&
		!memchr(bytes, '\0', size))
		return 0;
	buf_done(&c->words);
	return -EINVAL;
}

static void command_write(struct npufs *fs, fuse_req_t req, struct handle *h, const char *bytes,
	size_t size, off_t off)
{
	struct command_handle *c = (struct command_handle *)h;
	bool ended = size && bytes[size - 1] == '\n';
	int err = run_waiting(fs, req, c, off);

	if (!err)
		err = add_words(c, bytes, size, ended);
	if (!err)
		err = ended || !c->row->check ? run(fs, req, c) : check(fs, req, c);
	c->next = off + (off_t)size;
	if (err)
		fuse_reply_err(req, -err);
	else
		fuse_reply_write(req, size);
}

static void command_flush(struct npufs *fs, fuse_req_t req, struct handle *h)
{
	struct command_handle *c = (struct command_handle *)h;

	fuse_reply_err(req, c->words.len ? -run(fs, req, c) : 0);
}

static void command_release(struct npufs *fs, struct handle *h)
{
	struct command_handle *c = (struct command_handle *)h;

	(void)fs;
	buf_done(&c->shown.text);
	buf_done(&c->words);
	free(c);
}

static const struct handle_ops command_ops = {
	.read = command_read,
	.write = command_write,
	.flush = command_flush,
	.release = command_release,
};

struct handle *command_handle_new(const struct node_row *row, uint64_t object, struct buf *text)
{
	struct command_handle *c = calloc(1, sizeof *c);

	if (!c)
		return NULL;
	c->base.ops = &command_ops;
	c->row = row;
	c->object = object;
	c->shown.text = take_buf(text);
	return &c->base;
}
