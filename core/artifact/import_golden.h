/* A golden run for an imported model: one prefill from position 0, computed on the host. */
#ifndef NPUFS_CORE_ARTIFACT_IMPORT_GOLDEN_H
#define NPUFS_CORE_ARTIFACT_IMPORT_GOLDEN_H

#include <stdint.h>

#include "core/artifact/import_llama2c.h"
#include "core/base/buf.h"

#define IMPORT_GOLDEN_MAX 16 /* tokens */

/* Append the tokens (int32, w->ubatch of them, zeros after the valid ones) and the logits (float32)
 * after the last valid one. -ENOMEM; -EDOM when the weights are such that a logit is not finite. */
int import_golden(const struct llama2c_weights *w, struct buf *in, struct buf *out,
	uint32_t *ret_valid);

#endif
