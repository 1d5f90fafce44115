/* What of the device's runtime is used, at which level of proof, and under which policy; and what
 * the vendor has not said, with the conservative answer in force. A table; /capabilities shows it
 * (device contract 7, 8, 12). */
#ifndef NPUFS_CORE_ENGINE_CAPABILITIES_H
#define NPUFS_CORE_ENGINE_CAPABILITIES_H

#include <stdbool.h>

#include "core/base/buf.h"
#include "core/engine/health.h"

/* What was seen of the device as it is configured now. */
struct capabilities_seen {
	enum health_golden golden;
	bool matrix; /* the store has evidence for exactly this device and artifact */
};

void capabilities_render(const struct capabilities_seen *seen, struct buf *out);

#endif
