/* A book of the contract's rules of use (device contract 2, 4-8), kept by the layer over a backend: it is
 * told of every call and notes what the caller does against the rules. It never changes a call. Pure
 * bookkeeping; the caller locks.
 *
 *   live handles of each kind; none in the end
 *   tear-down: buffers and KV, then ResetConfiguration, then the calbin, then Shutdown
 *   nothing is destroyed, remapped or reset while in flight
 *   Wait only after a submit that was taken, once; the status is read after it
 *   every tensor is mapped for this run, none is still mapped for an earlier one
 *   both lengths are set before a submit, within the bounds
 *   no more in flight than allowed; no privileged reset unless allowed */
#ifndef NPUFS_CORE_DEVICE_WATCH_H
#define NPUFS_CORE_DEVICE_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/device.h"

#define WATCH_MAX_HANDLES 1024 /* more are not watched */
#define WATCH_MAX_MODELS  64
#define WATCH_MAX_TENSORS 64 /* of a buffer */
#define WATCH_TEXT_SIZE   160

enum watch_kind {
	WATCH_DEVICE,
	WATCH_CALBIN,
	WATCH_INPUT,
	WATCH_OUTPUT,
	WATCH_KV,
	WATCH_SEQUENCE,
	WATCH_KINDS
};

struct watch_handle {
	enum watch_kind kind;
	uintptr_t handle;              /* of a sequence its id */
	const struct model_info *info; /* of buffers */
	uint64_t mapped, stale;        /* a bit a tensor: for this run, for an earlier one */
	void *host;                    /* of an output buffer's first tensor, while mapped */
	uint64_t size;
	bool in_flight, unread; /* of an output: submitted; waited for and its status not read */
	uintptr_t input;        /* of an output in flight */
};

struct watch_model {
	const void *model;
	uint32_t cur, total;
	bool cur_set, total_set;
};

struct device_watch {
	struct watch_handle handles[WATCH_MAX_HANDLES];
	size_t n;
	struct watch_model models[WATCH_MAX_MODELS];
	size_t n_models;
	unsigned live[WATCH_KINDS];
	unsigned in_flight;
	uint32_t max_seq_len; /* of the calbin; 0 none */
	bool configured, parallel, resets_allowed;
	unsigned breaches;
	char first[WATCH_TEXT_SIZE];
};

void watch_init(struct device_watch *w);
void watch_clear(struct device_watch *w); /* forget the breaches, nothing else */

/* `info` of buffers, NULL else. */
void watch_made(struct device_watch *w, enum watch_kind kind, const void *handle,
	const struct model_info *info);
/* Before the call. False: nothing of that kind is known by that handle, and the call must not reach a
 * backend. */
bool watch_gone(struct device_watch *w, enum watch_kind kind, const void *handle);
void watch_sequence(struct device_watch *w, int32_t id, bool there);
void watch_sequences_cleared(struct device_watch *w);

void watch_loaded(struct device_watch *w, const struct llm_info *llm);
void watch_configured(struct device_watch *w);               /* after it succeeded */
void watch_reset_configuration(struct device_watch *w);      /* before the call */
void watch_reset(struct device_watch *w, const char *level); /* before ResetCCU or Reset */
void watch_parallel(struct device_watch *w, bool on);        /* before the call */

/* Before the call; `host` of outputs only. */
void watch_sliced(struct device_watch *w, enum watch_kind kind, const void *buffer,
	const char *tensor, void *host, uint64_t size);
void watch_tensors_reset(struct device_watch *w, enum watch_kind kind, const void *buffer);
void watch_csr(struct device_watch *w, const void *model, const char *name, uint32_t value);

/* Before the call, and after one that was taken. */
void watch_submitting(struct device_watch *w, const void *model, const void *in, const void *out);
void watch_submitted(struct device_watch *w, const void *model, const void *in, const void *out);
void watch_waiting(struct device_watch *w, const void *out); /* before the call */
void watch_waited(struct device_watch *w, const void *out, enum npu_error code);
void watch_status(struct device_watch *w, const void *out);

/* The memory that an output buffer's first tensor is mapped to, and another output's that is mapped
 * too and not in flight; NULL without one. */
const struct watch_handle *watch_output(const struct device_watch *w, const void *out);
const struct watch_handle *watch_other_output(const struct device_watch *w, const void *out);

#endif
