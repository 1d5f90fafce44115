/* `held` is looked through from its start. Where a stop string matches, the text ends; where one
 * could still match if more bytes came, holding begins; whatever is before is let out. Positions
 * are decided in order, so a match that begins later waits for an earlier one that may yet come
 * true, and the outcome does not depend on how the text was cut into pieces.
 *
 * A stop string is well-formed UTF-8, so none begins within a character: what is held for a stop
 * string never completes a character begun before it. Bytes that are no character become U+FFFD,
 * one for each longest beginning of a character (Unicode standard, 3.9), which again does not
 * depend on the cutting. */
#include "core/engine/textout.h"

#include <string.h>

#include "core/base/utf8.h"

enum match { MATCH_NOT, MATCH_BEGUN, MATCH_WHOLE };

void textout_init(struct textout *t, const char *const *stops)
{
	*t = (struct textout){ .held = BUF_INIT, .stops = stops };
}

void textout_done(struct textout *t)
{
	buf_done(&t->held);
}

static enum match match_one(const char *text, size_t len, const char *stop)
{
	size_t n = strlen(stop), common = n < len ? n : len;

	if (n == 0 || memcmp(text, stop, common) != 0)
		return MATCH_NOT;
	return n <= len ? MATCH_WHOLE : MATCH_BEGUN;
}

static enum match match_any(const struct textout *t, size_t at)
{
	enum match best = MATCH_NOT;

	for (const char *const *stop = t->stops; stop && *stop; stop++) {
		enum match m = match_one(t->held.data + at, t->held.len - at, *stop);

		best = m > best ? m : best;
	}
	return best;
}

/* Up to where the text is decided; sets t->stopped when a stop string is there. */
static size_t decided(struct textout *t, bool ended)
{
	size_t at;

	for (at = 0; at < t->held.len; at++) {
		enum match m = match_any(t, at);

		t->stopped = m == MATCH_WHOLE;
		if (t->stopped || (m == MATCH_BEGUN && !ended))
			break;
	}
	return at;
}

/* The length of the longest beginning of a character at text, which is no whole one; at least 1. */
static size_t broken_len(const char *text, size_t len)
{
	size_t n = len < 3 ? len : 3;

	while (n > 1 && utf8_unfinished_tail(text, n) != n)
		n--;
	return n;
}

/* Let out n bytes of text as UTF-8. `more` tells that the bytes after them are not known yet:
 * then a character begun at the end stays. How many bytes are done with. */
static size_t let_out(const char *text, size_t n, bool more, struct buf *out)
{
	size_t done = 0;

	for (;;) {
		size_t good = utf8_valid_prefix(text + done, n - done);

		buf_put(out, text + done, good);
		done += good;
		if (done == n)
			return done;
		if (more && utf8_unfinished_tail(text + done, n - done) == n - done)
			return done;
		buf_puts(out, TEXTOUT_REPLACEMENT);
		done += broken_len(text + done, n - done);
	}
}

static void advance(struct textout *t, bool ended, struct buf *out)
{
	size_t cut = decided(t, ended);
	size_t done = 0;

	if (cut)
		done = let_out(t->held.data, cut, !ended && cut == t->held.len, out);
	if (t->stopped)
		done = t->held.len;
	if (!done)
		return;
	t->held.len -= done;
	memmove(t->held.data, t->held.data + done, t->held.len + 1);
}

bool textout_put(struct textout *t, const char *piece, size_t len, struct buf *out)
{
	if (t->stopped)
		return true;
	buf_put(&t->held, piece, len);
	if (buf_error(&t->held))
		out->failed = true;
	advance(t, false, out);
	return t->stopped;
}

void textout_finish(struct textout *t, struct buf *out)
{
	if (!t->stopped)
		advance(t, true, out);
}
