/* Capacity doubles, so appending n bytes costs O(n) over all. One byte beyond `len` is always ours,
 * for the NUL. A failed buffer keeps what it had: its text stays readable, though incomplete. */
#include "core/base/buf.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_CAP 64

void buf_done(struct buf *b)
{
	free(b->data);
	*b = (struct buf)BUF_INIT;
}

void buf_reset(struct buf *b)
{
	b->len = 0;
	b->failed = false;
	if (b->data)
		b->data[0] = '\0';
}

static size_t grown_cap(size_t cap, size_t need)
{
	if (cap < FIRST_CAP)
		cap = FIRST_CAP;
	while (cap < need)
		cap = cap > SIZE_MAX / 2 ? need : cap * 2;
	return cap;
}

char *buf_room(struct buf *b, size_t n)
{
	size_t need, cap;
	char *data;

	if (b->failed)
		return NULL;
	if (__builtin_add_overflow(b->len, n, &need) || ++need == 0) {
		b->failed = true;
		return NULL;
	}
	if (need > b->cap) {
		cap = grown_cap(b->cap, need);
		data = realloc(b->data, cap);
		if (!data) {
			b->failed = true;
			return NULL;
		}
		b->data = data;
		b->cap = cap;
	}
	b->data[b->len + n] = '\0';
	return b->data + b->len;
}

void buf_put(struct buf *b, const void *bytes, size_t n)
{
	char *to = buf_room(b, n);

	if (!to || n == 0)
		return;
	memcpy(to, bytes, n);
	b->len += n;
}

void buf_puts(struct buf *b, const char *text)
{
	buf_put(b, text, strlen(text));
}

/* The first print goes straight into the spare room and, when that is too small, only tells the
 * size. */
void buf_vprintf(struct buf *b, const char *fmt, va_list ap)
{
	size_t spare = b->cap > b->len ? b->cap - b->len : 0;
	va_list again;
	char *to;
	int n;

	if (b->failed)
		return;
	va_copy(again, ap);
	n = vsnprintf(spare ? b->data + b->len : NULL, spare, fmt, ap);
	if (n < 0) {
		b->failed = true;
	} else if ((size_t)n >= spare) {
		to = buf_room(b, (size_t)n);
		if (to)
			vsnprintf(to, (size_t)n + 1, fmt, again);
	}
	va_end(again);
	if (!b->failed)
		b->len += (size_t)n;
	else if (spare)
		b->data[b->len] = '\0';
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(b, fmt, ap);
	va_end(ap);
}

int buf_error(const struct buf *b)
{
	return b->failed ? -ENOMEM : 0;
}

const char *buf_text(const struct buf *b)
{
	return b->data ? b->data : "";
}
