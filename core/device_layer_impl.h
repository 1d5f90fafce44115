/* What the files of the layer share; nobody else includes it.
 *   device_layer.c           plans, counts, what hangs, the tables
 *   device_layer_template.h  the faults of a side, included once for each
 *   device_layer_watch.c     the table between the sides, which tells the watch */
#ifndef NPUFS_CORE_DEVICE_LAYER_IMPL_H
#define NPUFS_CORE_DEVICE_LAYER_IMPL_H

#include "core/base/lock.h"
#include "core/device_layer.h"
#include "core/device_watch.h"

/* What a call is to do. Hanging and waiting are over by then. */
struct strike {
	enum plan_effect effect;
	enum npu_error code; /* of PLAN_ERROR; NPU_SUCCESS else */
};

/* Count a call and say what is planted on it; may block. */
struct strike layer_strike(enum layer_side side, enum plan_call call);
/* Change what an output buffer was given: PLAN_CORRUPT, PLAN_NAN or PLAN_SWAP. */
void layer_spoil_output(enum plan_effect effect, struct outbuf *out);
void layer_spoil_bytes(struct buf *b);
/* What was planted to be leaked stays reachable: a leak checker tells of the other leaks only. */
void layer_keep(void *handle);

/* The book, and its lock: layer_watch() takes it. */
struct device_watch *layer_watch(void);
void layer_watch_done(void);

/* Fill `t`, a copy of the table below it, with the functions that go between. */
void layer_watch_table(struct device_ops *t, const struct device_ops *below,
	const struct device_ops *backend);

#endif
