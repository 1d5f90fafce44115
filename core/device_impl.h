/* What the files of the checked caller share; nobody else includes it.
 *   device.c       the device and its calbin
 *   device_slot.c  buffers and inference
 *   device_kv.c    the KV manager */
#ifndef NPUFS_CORE_DEVICE_IMPL_H
#define NPUFS_CORE_DEVICE_IMPL_H

#include "core/device.h"

struct device {
	const struct device_ops *ops;
	struct vdevice *vdev;
	struct calbin *calbin;
	struct kvman *kv;
	bool configured;
	struct llm_info llm;
	struct device_info info;
	bool dump_ini, parallel;
	unsigned slots, in_flight; /* slots alive; inferences submitted and not yet waited for */
	bool engine_busy[DEVICE_ENGINES];
};

void device_count(enum device_call call);

#endif
