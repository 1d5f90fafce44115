/* The backends. A new one is its file and its line here. */
#include <errno.h>
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

int device_choose(const char *name, const struct device_ops **ret, struct fault *f)
{
	const char *names[ARRAY_SIZE(backends) + 1], *near;

	*ret = device_backend(name);
	if (*ret)
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(backends); i++)
		names[i] = backends[i]->name;
	names[ARRAY_SIZE(backends)] = NULL;
	near = fault_nearest(name, names);
	return fault_set(f, -EINVAL, "device=sim is the software device",
		"there is no device \"%s\"%s%s%s", name, near ? "; did you mean " : "",
		near ? near : "", near ? "?" : "");
}
