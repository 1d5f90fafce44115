/* The handles of software devices: shared by device_soft.c (device, calbin), device_soft_buf.c
 * (buffers, inference) and device_soft_llm.c (KV). */
#ifndef NPUFS_CORE_DEVICE_SOFT_INTERNAL_H
#define NPUFS_CORE_DEVICE_SOFT_INTERNAL_H

#include "core/device_soft.h"

#define SOFT_MAX_PROGRAMS 64

struct vdevice {
	const struct soft_backend *backend;
	struct device_params params;
	struct calbin *configured;
	struct outbuf *queue, **queue_end; /* submitted and not yet run, oldest first */
};

struct model {
	struct calbin *calbin;
	struct soft_program program;
	uint32_t csrs[SOFT_CSRS];
};

struct calbin {
	struct vdevice *device;
	void *impl;
	char *folder;
	char version[16];
	struct model *models[SOFT_MAX_PROGRAMS];
	size_t n_models;
	struct soft_llm llm; /* zero when this is none */
	struct tensor_spec prefill_tokens, decode_tokens, logits, kv_length;
	struct kvman *kv; /* NULL while there is none */
};

struct kvman {
	struct calbin *calbin;
	uint64_t births;
	struct soft_seq *current; /* for the next inference, or NULL */
	size_t capacity, used;
	struct soft_seq seqs[];
};

/* Part of a tensor that is mapped to host memory: size 0 while none is. */
struct soft_slice {
	union {
		const void *from;
		void *to;
	} host;
	uint64_t offset, size;
};

#endif
