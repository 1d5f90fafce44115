/* What loading (llama_load.c) and computing (llama.c) of a model share. */
#ifndef NPUFS_CORE_SIM_LLAMA_INTERNAL_H
#define NPUFS_CORE_SIM_LLAMA_INTERNAL_H

#include "core/sim/lanes.h"
#include "core/sim/llama.h"
#include "core/sim/pool.h"

struct llama_layer {
	float *input_norm, *post_norm;
	struct matrix q, k, v, o, gate, up, down;
};

/* Activations of up to `ubatch` tokens; every row is padded. */
struct llama_scratch {
	struct rows x;              /* the residual stream */
	struct rows q, k, v, mixed; /* of one layer's attention */
	struct rows gate, up;       /* of one layer's MLP */
	struct rows norm[POOL_MAX]; /* each member's own copy of the normalised stream */
	float *scores[POOL_MAX];    /* each member's own, for max_seq_len positions */
};

/* What one inference computes with. */
struct llama_lane {
	struct lane link;
	struct pool *pool;
	struct llama_scratch s;
};

struct llama {
	struct llama_config c;
	uint32_t head_dim;
	unsigned threads;
	const struct kernels *kernels;
	struct lanes lanes;
	struct llama_layer *layers;
	struct matrix embed, head; /* head is empty when tied */
	float *norm;
	float *turns; /* for each position head_dim / 2 cosines, then head_dim / 2 sines */
};

struct llama_lane *llama_lane_new(const struct llama *l); /* NULL: no memory, or no threads */

#endif
