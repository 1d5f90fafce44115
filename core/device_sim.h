/* The software NPU as a backend: computes LLaMA-architecture programs and small operator graphs
 * from a calbin folder (core/sim/program.h), on the thread that waits. */
#ifndef NPUFS_CORE_DEVICE_SIM_H
#define NPUFS_CORE_DEVICE_SIM_H

#include "core/device.h"

extern const struct device_ops device_sim_ops;

#endif
