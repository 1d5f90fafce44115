/* One sequence of tokens with its KV on the device. Its committed length only grows by an inference
 * that passed every check; after any failure the KV is brought back to the committed length and
 * verified, or the sequence is freed and marked lost (device contract 8). */
#ifndef NPUFS_CORE_ENGINE_SEQUENCE_H
#define NPUFS_CORE_ENGINE_SEQUENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/engine/generation.h"

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

/* What one sequence is to be fed with. */
struct sequence_feed {
	struct sequence *seq;
	const int32_t *tokens;
	uint32_t n; /* 1 <= n <= g->ubatch */
};

/* Feed n <= g->n_lanes different sequences, all in flight together, and point ret_logits[i] to
 * g->vocab floats for what follows the last token of the i-th, valid until the next run on this
 * generation. Each ends as if it had been alone (but see infer_checked_many()). */
void sequence_feed_many(struct generation *g, const struct sequence_feed *feeds, size_t n,
	struct infer_result *ret, const float **ret_logits);

/* The golden run's: `p` (prefill or decode) on the `cur` tokens already in its input 0, then kv_update, then
 * commit. */
struct infer_result sequence_run(struct generation *g, struct sequence *s, struct program *p,
	uint32_t cur);

/* The same of one alone. */
struct infer_result sequence_feed(struct generation *g, struct sequence *s, const int32_t *tokens,
	uint32_t n, const float **ret_logits);

#endif
