/* One sequence of tokens with its KV on the device. Its committed length only grows by an inference
 * that passed every check; after any failure the KV is brought back to the committed length and
 * verified, or the sequence is freed and marked lost (device contract 8). */
#ifndef NPUFS_CORE_SEQUENCE_H
#define NPUFS_CORE_SEQUENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/generation.h"

struct sequence {
	int32_t id;         /* on the device, never used again */
	uint32_t committed; /* tokens whose KV is known to be right */
	bool lost;          /* its KV is gone: only sequence_close() is left */
};

/* NPU_MEMORY_ALLOCATION when the device has no room: the caller waits for another to close. */
enum npu_error sequence_open(struct generation *g, struct sequence *ret);
enum npu_error sequence_close(struct generation *g, struct sequence *s);
/* Back to `len` tokens, at most the committed ones; what cannot be verified is freed, and lost. */
void sequence_cut(struct generation *g, struct sequence *s, uint32_t len);

/* Run `p` (prefill or decode) on the `cur` tokens already in its input 0, then kv_update, then
 * commit. */
struct infer_result sequence_run(struct generation *g, struct sequence *s, struct program *p,
	uint32_t cur);

/* Feed `n` tokens, 1 <= n <= g->ubatch, and point *ret_logits to g->vocab floats for what follows
 * the last of them, valid until the next run on this generation. */
struct infer_result sequence_feed(struct generation *g, struct sequence *s, const int32_t *tokens,
	uint32_t n, const float **ret_logits);

#endif
