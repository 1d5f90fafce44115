/* Pieces of generated text on their way to a reader: nothing is let out that could still become
 * part of a stop string or is half a UTF-8 character. */
#ifndef NPUFS_CORE_ENGINE_TEXTOUT_H
#define NPUFS_CORE_ENGINE_TEXTOUT_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/buf.h"

#define TEXTOUT_REPLACEMENT "\xef\xbf\xbd" /* U+FFFD, for what is no character */

struct textout {
	struct buf held;          /* not let out yet */
	const char *const *stops; /* borrowed; NULL-ended, may be NULL */
	bool stopped;
};

void textout_init(struct textout *t, const char *const *stops);
void textout_done(struct textout *t);

/* Add a piece; what became safe is appended to `out`. True when a stop string was met: it and all
 * after it are dropped, and later pieces are ignored. The match that begins earliest wins, so one
 * that began later is not told while an earlier one may still come true. Without memory, `out` is
 * marked as failed. */
bool textout_put(struct textout *t, const char *piece, size_t len, struct buf *out);

/* The end of the text: lets out what was held, up to a stop string in it (then t->stopped); bytes
 * that are not UTF-8 become U+FFFD (as they do in textout_put once they can no longer become a
 * character). */
void textout_finish(struct textout *t, struct buf *out);

#endif
