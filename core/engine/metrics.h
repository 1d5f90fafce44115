/* The numbers of /metrics: one table (metrics.def), relaxed atomic cells, any thread. Labels come
 * from fixed sets only: no text that a user chose is ever shown. */
#ifndef NPUFS_CORE_ENGINE_METRICS_H
#define NPUFS_CORE_ENGINE_METRICS_H

#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/npu_error.h"

enum metric {
#define METRIC(id, name, type, unit, labels, help) METRIC_##id,
#include "core/engine/metrics.def"
#undef METRIC
	METRIC_COUNT
};

/* Before any other thread: all is 0, time counts from here. `version` is borrowed for ever. */
void metrics_start(const char *version);

/* METRIC_DEVICE_CALLS, _LOG_DROPPED and _UPTIME are counted elsewhere and not to be given here. */
void metrics_add(enum metric m, int64_t n);
void metrics_set(enum metric m, int64_t value);
void metrics_add_at(enum metric m, unsigned label, int64_t n); /* for the index see metrics.def */

/* Count an error of the device; a code that is none counts as Unknown, NPU_SUCCESS not at all. */
void metrics_device_error(enum npu_error code);

/* Prometheus' text format, ending in a newline. */
void metrics_render(struct buf *out);

#endif
