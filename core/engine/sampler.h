/* Choosing the next token from logits, on the host. The same parameters, seed and logits give the
 * same tokens on every machine with IEEE arithmetic, whatever else runs. */
#ifndef NPUFS_CORE_ENGINE_SAMPLER_H
#define NPUFS_CORE_ENGINE_SAMPLER_H

#include <stddef.h>
#include <stdint.h>

struct sampling {
	double temperature;    /* 0 = the most likely token (lowest id among equals); 0..2 */
	double top_p;          /* (0,1]; 1 = off */
	double min_p;          /* [0,1]; 0 = off */
	double repeat_penalty; /* (0,2]; 1 = off; of the last SAMPLER_WINDOW tokens, prompt too */
	int32_t top_k;         /* 0 = off */
	uint64_t seed;
};

#define SAMPLER_WINDOW 64

struct sampler; /* one sequence's */

int sampler_new(const struct sampling *p, uint32_t vocab, struct sampler **ret);
void sampler_free(struct sampler *s); /* NULL is fine */

/* Tell it a token of the prompt (picked tokens are taken by itself). */
void sampler_accept(struct sampler *s, int32_t token);

/* Pick from `vocab` finite logits. Order: repeat penalty, top_k, temperature, softmax, min_p,
 * top_p, draw. `ret_logprob` (may be NULL) is the natural logarithm of the picked token's share
 * before any of the filters. */
int32_t sampler_pick(struct sampler *s, const float *logits, float *ret_logprob);

#endif
