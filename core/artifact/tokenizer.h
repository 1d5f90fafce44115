/* Text to tokens and back, on the host. */
#ifndef NPUFS_CORE_ARTIFACT_TOKENIZER_H
#define NPUFS_CORE_ARTIFACT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/artifact/manifest.h"
#include "core/base/fault.h"

struct tokenizer; /* immutable once made; any thread may use it */

/* `file` holds the bytes of spec->file (llama2.c tokenizer format); NULL for TOKENIZER_BYTES. */
int tokenizer_new(const struct tokenizer_spec *spec, const void *file, size_t len,
	struct tokenizer **ret, struct fault *f);
void tokenizer_free(struct tokenizer *t); /* NULL is fine */

uint32_t tokenizer_vocab(const struct tokenizer *t);

/* No text of `len` bytes has fewer tokens: what cannot fit is refused without encoding it. */
size_t tokenizer_least(const struct tokenizer *t, size_t len);

/* So many tokens tokenizer_encode() puts in front: what goes on with earlier tokens leaves them out. */
size_t tokenizer_prefix_len(const struct tokenizer *t);

/* prefix + tokens of the text + suffix. The caller frees *ret. -ENOMEM. The work is
 * O(n log n) in the text's length. */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, int32_t **ret,
	size_t *ret_n);

/* The bytes that `token` prints when it follows `prev` (-1 at the start); may be empty, and need
 * not be whole characters. Borrowed from the tokenizer. Tokens that only control (stops, BOS,
 * EOS) or are none of the vocabulary print nothing. */
const char *tokenizer_piece(const struct tokenizer *t, int32_t prev, int32_t token,
	size_t *ret_len);

bool tokenizer_is_stop(const struct tokenizer *t, int32_t token);

#endif
