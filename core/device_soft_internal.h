/* The handles of software devices: shared by device_soft.c (device, calbin), device_soft_buf.c
 * (buffers, inference), device_soft_engine.c (the two engines) and device_soft_llm.c (KV). */
#ifndef NPUFS_CORE_DEVICE_SOFT_INTERNAL_H
#define NPUFS_CORE_DEVICE_SOFT_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/base/lock.h"
#include "core/device_soft.h"

#define SOFT_MAX_PROGRAMS 64

/* Submitted and not yet run, oldest first. */
struct soft_queue {
	struct outbuf *first, **end;
};

/* By the set's lock. */
struct soft_engine {
	struct soft_engines *set;
	pthread_t thread;
	struct lock_cond work; /* something to run came, or it is to stop */
	struct soft_queue queue;
	unsigned load; /* queued and running */
	bool stopping;
};

struct soft_engines {
	struct lock lock;
	struct lock_cond finished; /* an inference did */
	struct soft_engine engine[DEVICE_ENGINES];
};

struct vdevice {
	const struct soft_backend *backend;
	struct device_params params;
	struct calbin *configured;
	struct soft_queue queue;       /* while there is one engine, which is the caller of Wait */
	struct soft_engines *engines;  /* NULL: parallel mode is off */
	bool no_engines;               /* it was asked for, and could not be had */
	struct memory_soft *callables; /* NULL: nobody asked for it yet */
	uint8_t *memory;               /* SOFT_MEMORY_BYTES; NULL: all zero */
	uint32_t scratch, submits;     /* registers */
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
	struct soft_seq *applied; /* for the next inference, on whichever engine; or NULL */
	struct soft_seq *current[DEVICE_ENGINES]; /* of each engine's last one; or NULL */
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

enum out_state { OUT_IDLE, OUT_QUEUED, OUT_RUNNING, OUT_FINISHED };

/* All but the state belongs to an engine's thread while it is queued or running there. */
struct outbuf {
	struct model *model;
	_Atomic enum out_state state;
	enum npu_error result;    /* once finished */
	struct outbuf *next;      /* in the queue */
	void **inputs, **outputs; /* the device's own memory of every tensor */
	uint32_t csrs[SOFT_CSRS];
	struct soft_seq *seq;
	uint64_t seq_birth;
	struct soft_slice slices[];
};

static inline bool out_in_flight(const struct outbuf *b)
{
	return b->state == OUT_QUEUED || b->state == OUT_RUNNING;
}

/* --- device_soft_buf.c ------------------------------------------------------------------------ */
void soft_queue_init(struct soft_queue *q);
void soft_queue_put(struct soft_queue *q, struct outbuf *out);
void soft_queue_take(struct soft_queue *q, struct outbuf *out);
/* Compute and deliver; everything but leaving it finished. */
void soft_run(struct outbuf *out);

/* --- device_soft_memory.c --------------------------------------------------------------------- */
void soft_memory_clear(struct vdevice *d);

/* --- device_soft_engine.c; all but the first two only in parallel mode ------------------------ */
bool soft_engines_busy(const struct vdevice *d); /* an inference is queued or runs */
void soft_engines_stop(struct vdevice *d);       /* runs what is queued; nothing when off */
/* The engine that is to run it: -1 when its sequence is in flight on the other one. */
int soft_engine_choose(struct vdevice *d, enum device_task task, const struct kvman *kv);
void soft_engine_submit(struct vdevice *d, int engine, struct outbuf *out);
void soft_engine_wait(struct vdevice *d, struct outbuf *out); /* until it is finished */
void soft_engines_drain(struct vdevice *d);                   /* until nothing is in flight */

#endif
