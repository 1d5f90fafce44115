/* A sequence of launches, captured once and replayed: it keeps the packets as they would have been
 * launched. Room for them is made when the capture begins, so launching allocates nothing then
 * either; callables may be prepared meanwhile. Replaying hands the packets over again, in order, and
 * does nothing else. */
#ifndef NPUFS_CORE_CALLABLE_GRAPH_H
#define NPUFS_CORE_CALLABLE_GRAPH_H

#include <stdint.h>

#include "core/callable/cache.h"

#define CALLABLE_GRAPH_MAX 4096 /* launches of one graph */

struct callable_graph;

/* Launches until callable_graph_end() go into a graph of at most `most`; one more is -ENOSPC. `mode`
 * is CAPTURE_GLOBAL or CAPTURE_THREAD_LOCAL. */
int callable_graph_begin(struct callable_cache *c, enum capture_mode mode, uint32_t most,
	struct fault *f);
/* When the device cannot end the capture, it is still on: try again, or close. */
int callable_graph_end(struct callable_cache *c, struct callable_graph **ret, struct fault *f);
/* Whoever began a capture, if one is on, leaves it: nothing is kept of it. When the device cannot end it
 * the context is poisoned, or it would take the launches of others. */
void callable_graph_abandon(struct callable_cache *c);

/* Stops at the first launch that fails. -EBADFD during a capture, and once the context is closed. */
int callable_graph_replay(struct callable_graph *g, struct fault *f);
uint32_t callable_graph_launches(const struct callable_graph *g);

/* Closing a context destroys its graphs but leaves the handles, so that each is freed once, before or
 * after; NULL is fine. */
void callable_graph_free(struct callable_graph *g);

#endif
