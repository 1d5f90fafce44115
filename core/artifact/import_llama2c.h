/* llama2.c's version-0 weights, read from memory, and as the files of an artifact.
 *
 * The file: seven little-endian int32 (dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size,
 * negative when the classifier is separate, seq_len), then float32: token embedding; of all layers
 * together rms_att, wq, wk, wv, wo, rms_ffn, w1, w2, w3; final rms; two RoPE tables that are not
 * used; the classifier when separate. Source: the format's reference implementation. */
#ifndef NPUFS_CORE_ARTIFACT_IMPORT_LLAMA2C_H
#define NPUFS_CORE_ARTIFACT_IMPORT_LLAMA2C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/fault.h"

#define LLAMA2C_MAX_BYTES  ((uint64_t)8 << 30) /* of the file: it is read into memory */
#define LLAMA2C_MAX_DIM    65536
#define LLAMA2C_MAX_HIDDEN 262144
#define LLAMA2C_MAX_LAYERS 1024
#define LLAMA2C_UBATCH     16 /* tokens of a prefill at most */

#define LLAMA2C_ROPE_THETA 10000.0
#define LLAMA2C_NORM_EPS   1e-5

struct llama2c_weights {
	uint32_t dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, seq_len;
	bool tied;       /* the classifier is the embedding */
	uint32_t ubatch; /* tokens of a prefill: LLAMA2C_UBATCH, but at most seq_len */
	/* within the bytes given */
	const float *embedding, *rms_att, *wq, *wk, *wv, *wo, *rms_ffn, *w1, *w2, *w3, *rms_final,
		*classifier;
};

/* Read the header and find the parts. Every size is checked before anything is made of it, and that
 * all weights are finite. `bytes` must be aligned for float. -EINVAL. */
int import_llama2c_parse(const void *bytes, size_t len, struct llama2c_weights *ret,
	struct fault *f);

/* Append calbin/weights.safetensors, with Hugging Face's names and order of rows. 0 or -ENOMEM. */
int import_llama2c_safetensors(const struct llama2c_weights *w, struct buf *out);
/* Append calbin/program.json. */
int import_llama2c_program(const struct llama2c_weights *w, struct buf *out);
/* Append the template of the manifest, whose golden run has `valid` tokens. */
int import_llama2c_template(const struct llama2c_weights *w, uint32_t valid, struct buf *out);

#endif
