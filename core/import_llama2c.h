/* llama2.c's version-0 weights and tokenizer, read from memory and laid out as a package of this project.
 *
 * Weights: seven little-endian int32 (dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, negative when
 * the classifier is separate, seq_len), then float32 in the order: token embedding; of all layers together
 * rms_att, wq, wk, wv, wo, rms_ffn, w1, w2, w3; final rms; two RoPE tables that are not used; the classifier
 * when separate. Source: the format's reference implementation. */
#ifndef NPUFS_CORE_IMPORT_LLAMA2C_H
#define NPUFS_CORE_IMPORT_LLAMA2C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/buf.h"
#include "core/fault.h"

#define LLAMA2C_MAX_BYTES ((uint64_t)8 << 30)

struct llama2c {
	int32_t dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, seq_len;
	bool tied;
	const float *embedding, *rms_att, *wq, *wk, *wv, *wo, *rms_ffn, *w1, *w2, *w3, *rms_final,
		*classifier; /* within the bytes given */
};

/* Read the header and find the parts; every size is checked, and that all weights are finite. `bytes` must be
 * aligned for float. -EINVAL. */
int llama2c_parse(const void *bytes, size_t len, struct llama2c *ret, struct fault *f);

/* The files of the package. */
int llama2c_program(const struct llama2c *w, struct buf *out);  /* calbin/program.json */
int llama2c_weights(const struct llama2c *w, struct buf *out);  /* calbin/weights.safetensors */
int llama2c_template(const struct llama2c *w, struct buf *out); /* artifact.json */
/* A golden prefill from position 0, in plain double arithmetic of its own: tokens (int32) and logits (float32). */
int llama2c_golden(const struct llama2c *w, struct buf *in, struct buf *out);

#endif
