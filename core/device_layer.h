/* A layer over any backend's table, for tests: it plants faults and keeps watch.
 *
 *   checked caller -> CALLER faults -> watch (device_watch.h) -> DEVICE faults -> backend
 *
 * A fault on the device's side makes the device misbehave, as far as anyone above can tell. One on the
 * caller's side makes the checked caller misbehave, for the watch to notice; it is for planting in
 * the matrix only. Handles pass through unchanged. There is one layer a process. */
#ifndef NPUFS_CORE_DEVICE_LAYER_H
#define NPUFS_CORE_DEVICE_LAYER_H

#include "core/device.h"
#include "core/fault_plan.h"

/* What a planted "other" version is. */
#define LAYER_OTHER_VERSION "0.0.0"

enum layer_side { LAYER_DEVICE, LAYER_CALLER, LAYER_SIDES };

/* The table to use instead of `inner`, named "INNER+fault"; entries that it lacks are lacking here
 * too. Plans, counts and the watch's book are empty then. No device may be open. */
const struct device_ops *device_layer_over(const struct device_ops *inner);
bool device_layer_is_there(void); /* over some backend, in this process */

/* What is planted on a side from now on; NULL: nothing. The counts of that side begin anew. What hangs
 * by an earlier plan stays so. */
void device_layer_plan(enum layer_side side, const struct fault_plan *plan);
/* Planted beside the side's plan, with counts of its own, which it wins over. */
void device_layer_case(enum layer_side side, const struct fault_plan *plan);

/* What hangs goes on, and nothing hangs until the next plan. */
void device_layer_release(void);
bool device_layer_hangs(void); /* a call does at this moment */
/* Faults that have struck on that side since the layer was made. */
uint64_t device_layer_struck(enum layer_side side);

/* The watch: resets of the privileged levels are a breach unless they are allowed. */
void device_layer_allow_resets(bool allow);
/* The first breach since the last clear, or ""; how many there were. */
unsigned device_layer_breaches(char *ret_first, size_t size);
void device_layer_clear_breaches(void);
/* A new book: handles are forgotten too, as if none were. */
void device_layer_new_book(void);
/* Handles that live now, KV sequences included. */
unsigned device_layer_live(void);

#endif
