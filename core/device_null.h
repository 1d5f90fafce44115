/* A backend for measuring everything but the device: it answers a prompt with the prompt, at once.
 */
#ifndef NPUFS_CORE_DEVICE_NULL_H
#define NPUFS_CORE_DEVICE_NULL_H

#include "core/device.h"

extern const struct device_ops device_null_ops;

#endif
