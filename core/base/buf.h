/* A growing byte buffer. It always ends in a NUL byte that `len` does not count, so text in it is a
 * C string. A failed growth is remembered: later appends do nothing and buf_error() says -ENOMEM,
 * so a renderer checks once, at its end. Zero-initialised (or BUF_INIT) is empty. */
#ifndef NPUFS_CORE_BASE_BUF_H
#define NPUFS_CORE_BASE_BUF_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

struct buf {
	char *data; /* NULL while nothing was appended */
	size_t len;
	size_t cap;
	bool failed;
};

#define BUF_INIT \
	{ \
		NULL, 0, 0, false \
	}
#define AUTO_BUF __attribute__((cleanup(buf_done)))

void buf_done(struct buf *b);
/* What is in it, the caller's now; it is empty after that. */
static inline struct buf take_buf(struct buf *b)
{
	struct buf taken = *b;

	*b = (struct buf)BUF_INIT;
	return taken;
}
void buf_reset(struct buf *b); /* empty, storage kept */

void buf_put(struct buf *b, const void *bytes, size_t n);
void buf_puts(struct buf *b, const char *text);
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_vprintf(struct buf *b, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));

/* Make room for n more bytes and return where they go; the caller then adds to len. NULL: no
 * memory. */
char *buf_room(struct buf *b, size_t n);

/* 0, or -ENOMEM when an append failed since the last reset. */
int buf_error(const struct buf *b);

/* The text, "" while empty; valid until the next append. */
const char *buf_text(const struct buf *b);

#endif
