/* A generation: one artifact loaded, validated, configured and warmed up on the device; immutable
 * from then on. One exists at a time. The engine's thread owns it (device contract 2, 3). */
#ifndef NPUFS_CORE_ENGINE_GENERATION_H
#define NPUFS_CORE_ENGINE_GENERATION_H

#include "core/artifact/artifact.h"
#include "core/engine/infer.h"

/* An LLM's programs, with the host memory for one sequence at a time. */
struct llm_lane {
	struct program *prefill, *decode, *kv_update;
};

struct generation {
	uint64_t number; /* counts every generation of this process, from 1 */
	struct device *device;
	const struct manifest *manifest; /* borrowed from the model's entry */
	struct program **programs;       /* one each of manifest->programs, same order */
	/* of an LLM; NULL and 0 otherwise */
	struct llm_lane lanes[DEVICE_ENGINES];
	unsigned n_lanes; /* so many sequences at once: two only after generation_set_parallel() */
	uint32_t context, vocab, ubatch;
	int32_t next_sequence;
};

/* load, validate, configure, status, buffers, KV, golden warm-up. `artifact` NULL: the backend's
 * own manifest. On failure everything is undone and `f` says which step failed and why, with
 * f->device set. */
int generation_open(struct device *d, const struct manifest *m, const struct artifact *artifact,
	uint64_t number, struct generation **ret, struct fault *f);

/* The same without the golden warm-up, for who watches it: nothing may serve before it has agreed. */
int generation_prepare(struct device *d, const struct manifest *m, const struct artifact *artifact,
	uint64_t number, struct generation **ret, struct fault *f);

/* Two in flight or one; nothing may be. Of an LLM, on a device with two engines: else
 * NPU_DEVICE_UNSUPPORT. After a failure it is one. The caller has evidence that two are sound. */
enum npu_error generation_set_parallel(struct generation *g, bool on);

/* Nothing may be in flight. Buffers, KV, configuration, calbin: in this order. NULL is fine.
 * Returns the error of the reset, if any; the generation is gone either way. */
enum npu_error generation_close(struct generation *g);

/* The golden runs, on a configured generation with nothing in flight. */
int generation_golden(struct generation *g, const struct artifact *artifact, struct fault *f);

#endif
