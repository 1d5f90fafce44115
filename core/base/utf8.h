/* UTF-8, by the table of well-formed sequences of the Unicode standard (D92): no overlong forms, no
 * surrogates, nothing above U+10FFFF. */
#ifndef NPUFS_CORE_BASE_UTF8_H
#define NPUFS_CORE_BASE_UTF8_H

#include <stddef.h>

/* The length of the longest well-formed prefix; equals len when all is well-formed. */
size_t utf8_valid_prefix(const char *text, size_t len);

/* How many bytes at the end are an unfinished but so far well-formed character (0..3). */
size_t utf8_unfinished_tail(const char *text, size_t len);

/* "UTF-16" or "UTF-32" when the text begins as one of them would, with a byte order mark or by the
 * zero bytes of its ASCII characters; NULL otherwise. */
const char *utf8_other_encoding(const char *text, size_t len);

#endif
