/* The vocabulary and the merges of a llama2.c tokenizer file; for tokenizer.c. */
#ifndef NPUFS_CORE_ARTIFACT_TOKENIZER_LLAMA2C_H
#define NPUFS_CORE_ARTIFACT_TOKENIZER_LLAMA2C_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/fault.h"

#define LLAMA2C_UNK     0
#define LLAMA2C_BOS     1
#define LLAMA2C_EOS     2
#define LLAMA2C_BYTE(b) (3 + (int32_t)(b)) /* the token of a byte that no piece covers */

struct llama2c; /* immutable once made */

/* -EINVAL when the file is not exactly `vocab` well-formed pieces; the bytes are copied. */
int llama2c_new(const void *file, size_t len, uint32_t vocab, struct llama2c **ret,
	struct fault *f);
void llama2c_free(struct llama2c *l); /* NULL is fine */

/* The most bytes that one token stands for. */
size_t llama2c_longest(const struct llama2c *l);

/* The text's tokens, without BOS: at most len + 1 of them, for which `out` has room. -ENOMEM. */
int llama2c_encode(const struct llama2c *l, const char *text, size_t len, int32_t *out,
	size_t *ret_n);

/* What `token`, which is one of the vocabulary, prints after `prev`. Borrowed. */
const char *llama2c_piece(const struct llama2c *l, int32_t prev, int32_t token, size_t *ret_len);

#endif
