/* A LLaMA-architecture decoder: grouped-query attention, rotary positions (pairs i and i + head_dim
 * / 2), RMSNorm, SwiGLU. Weights have the names that Hugging Face gives them, matrices are [out,
 * in], F32 or I8 with a scale a row:
 *
 *   model.embed_tokens.weight [vocab, dim]           model.norm.weight [dim]
 *   lm_head.weight [vocab, dim], unless the embeddings are tied
 *   model.layers.N.  input_layernorm.weight, post_attention_layernorm.weight [dim]
 *                    self_attn.{q,k,v,o}_proj.weight  mlp.{gate,up,down}_proj.weight
 *
 * Several threads may use a model at a time, each with a sequence of its own (and each may itself
 * use several to compute). */
#ifndef NPUFS_CORE_SIM_LLAMA_H
#define NPUFS_CORE_SIM_LLAMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/npu_error.h"
#include "core/sim/kernels.h"
#include "core/sim/safetensors.h"

struct llama_config {
	uint32_t dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, max_seq_len,
		max_batch_size;
	uint32_t ubatch; /* most tokens computed together */
	double rope_theta, norm_eps;
	bool tied_embeddings;
};

struct llama;
struct llama_kv; /* keys and values of one sequence, for max_seq_len positions */

/* NPU_INVALID_CALBIN when the sizes do not fit one another. */
enum npu_error llama_check(const struct llama_config *c);

/* `kernels` as from kernels_at(); `threads` at least 1. The file may be closed afterwards. */
enum npu_error llama_new(const struct llama_config *c, const struct safetensors *weights,
	const struct kernels *kernels, unsigned threads, struct llama **ret);
void llama_free(struct llama *l); /* NULL is fine */
const struct llama_config *llama_config(const struct llama *l);

struct llama_kv *llama_kv_new(const struct llama *l); /* NULL: no memory */
void llama_kv_free(struct llama_kv *kv);              /* NULL is fine */

/* NPU_MEMORY_ALLOCATION only when more compute at once than ever before.
 *
 * Compute the n tokens (1..ubatch) at positions past.. of the sequence, whose earlier positions
 * must have been computed; past + n <= max_seq_len. Their keys and values go into `kv`; `logits`
 * gets vocab_size floats for the last. NPU_INVALID_VALUE, and nothing changed, for a token outside
 * the vocabulary. */
enum npu_error llama_forward(struct llama *l, struct llama_kv *kv, const int32_t *tokens,
	uint32_t n, uint32_t past, float *logits);

#endif
