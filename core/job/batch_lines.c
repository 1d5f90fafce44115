/* A chunk of the file and the line so far. A line is copied out of the chunk even when it lies in it
 * as a whole: that keeps one way for all lines. One byte more than the limit is kept, for it may be
 * the CR of the line's end. */
#include "core/job/batch_lines.h"

#include <errno.h>
#include <string.h>

#define BOM      "\xef\xbb\xbf"
#define BOM_SIZE 3

/* A buffer grown beyond this by a long line is given back at the next one. */
#define KEPT_CAP (64u << 10)

void batch_lines_init(struct batch_lines *l, const struct run_source *source)
{
	memset(l, 0, offsetof(struct batch_lines, chunk));
	l->source = *source;
}

void batch_lines_done(struct batch_lines *l)
{
	buf_done(&l->text);
}

/* The first fill goes on until a byte order mark would be whole. */
static int fill(struct batch_lines *l)
{
	ssize_t got;

	l->at = l->end = 0;
	do {
		got = l->source.read(l->source.context, l->offset, l->chunk + l->end,
			sizeof l->chunk - l->end);
		if (got < 0)
			return (int)got;
		l->offset += (uint64_t)got;
		l->end += (size_t)got;
	} while (got > 0 && l->offset < BOM_SIZE);
	l->at_end = got == 0;
	if (l->offset == l->end && l->end >= BOM_SIZE && memcmp(l->chunk, BOM, BOM_SIZE) == 0)
		l->at = BOM_SIZE;
	return 0;
}

static void begin(struct batch_lines *l)
{
	if (l->text.cap > KEPT_CAP)
		buf_done(&l->text);
	buf_reset(&l->text);
	l->open = l->blank = true;
	l->too_long = false;
	l->number++;
}

static bool is_white(const char *bytes, size_t n)
{
	size_t i = 0;

	while (i < n && bytes[i] && strchr(" \t\r\v\f", bytes[i]))
		i++;
	return i == n;
}

static void keep(struct batch_lines *l, const char *bytes, size_t n)
{
	l->blank = l->blank && is_white(bytes, n);
	l->too_long = l->too_long || l->text.len + n > BATCH_LINE_MAX + 1;
	if (l->too_long)
		buf_reset(&l->text);
	else
		buf_put(&l->text, bytes, n);
}

/* Take what the chunk has of the line, within the budget; true when that ended the line. */
static bool take(struct batch_lines *l, size_t *budget)
{
	size_t n = l->end - l->at;
	const char *bytes = l->chunk + l->at, *lf;

	if (!l->open)
		begin(l);
	if (n > *budget)
		n = *budget;
	lf = memchr(bytes, '\n', n);
	if (lf)
		n = (size_t)(lf - bytes) + 1;
	keep(l, bytes, n - (lf != NULL));
	l->at += n;
	*budget -= n;
	return lf != NULL;
}

static enum batch_got broken(struct batch_lines *l, int err)
{
	l->err = err;
	return BATCH_BROKEN;
}

static enum batch_got give(struct batch_lines *l, struct batch_line *ret)
{
	size_t len = l->text.len;

	if (buf_error(&l->text))
		return broken(l, -ENOMEM);
	if (len && l->text.data[len - 1] == '\r')
		l->text.data[--len] = '\0';
	l->open = false;
	l->too_long = l->too_long || len > BATCH_LINE_MAX;
	*ret = (struct batch_line){
		.number = l->number,
		.text = l->too_long ? "" : buf_text(&l->text),
		.len = l->too_long ? 0 : len,
		.blank = l->blank,
		.too_long = l->too_long,
	};
	return BATCH_LINE;
}

enum batch_got batch_lines_next(struct batch_lines *l, size_t *budget, struct batch_line *ret)
{
	bool whole = false;

	while (!whole) {
		int err = 0;

		while (!err && l->at == l->end && !l->at_end)
			err = fill(l);
		if (err)
			return broken(l, err);
		if (l->at == l->end)
			return l->open ? give(l, ret) : BATCH_END;
		if (*budget == 0)
			return BATCH_PAUSED;
		whole = take(l, budget);
	}
	return give(l, ret);
}
