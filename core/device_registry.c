/* The backends. A new one is its file and its line here. */
#include <string.h>

#include "core/device.h"
#include "core/device_null.h"
#include "core/device_sim.h"
#include "core/mem.h"

static const struct device_ops *const backends[] = {
	&device_sim_ops,
	&device_null_ops,
};

const struct device_ops *device_backend(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(backends); i++)
		if (strcmp(backends[i]->name, name) == 0)
			return backends[i];
	return NULL;
}

const char *device_backend_name(size_t i)
{
	return i < ARRAY_SIZE(backends) ? backends[i]->name : NULL;
}
