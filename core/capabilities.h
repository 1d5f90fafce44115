/* What of the device's runtime is used, at which level of proof, and under which policy; and what
 * the vendor has not said, with the conservative answer in force. A table; /capabilities shows it
 * (device contract 7, 8, 12). */
#ifndef NPUFS_CORE_CAPABILITIES_H
#define NPUFS_CORE_CAPABILITIES_H

#include "core/buf.h"

void capabilities_render(struct buf *out);

#endif
