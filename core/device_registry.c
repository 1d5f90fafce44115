/* The backends. A new one is its file and its line here. Most are tables of this program; one that is
 * loaded when it is asked for has a function in place of its table. */
#include <errno.h>
#include <string.h>

#include "core/base/mem.h"
#include "core/device.h"
#include "core/device_calrt.h"
#include "core/device_null.h"
#include "core/device_sim.h"

struct backend {
	const char *name;
	const struct device_ops *ops; /* NULL: `load` gives it */
	const struct device_ops *(*load)(struct fault *f);
};

static const struct backend backends[] = {
	{ "sim", &device_sim_ops, NULL },
	{ "null", &device_null_ops, NULL },
	{ DEVICE_CALRT_NAME, NULL, device_calrt_load },
};

static const struct device_ops *table_of(const struct backend *b, struct fault *f)
{
	return b->ops ? b->ops : b->load(f);
}

static const struct backend *find(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(backends); i++)
		if (strcmp(backends[i].name, name) == 0)
			return &backends[i];
	return NULL;
}

const struct device_ops *device_backend(const char *name)
{
	const struct backend *b = find(name);

	return b ? table_of(b, NULL) : NULL;
}

const char *device_backend_name(size_t i)
{
	return i < ARRAY_SIZE(backends) ? backends[i].name : NULL;
}

static int unknown(const char *name, struct fault *f)
{
	const char *names[ARRAY_SIZE(backends) + 1] = { NULL };
	const char *near;

	for (size_t i = 0; i < ARRAY_SIZE(backends); i++)
		names[i] = backends[i].name;
	near = fault_nearest(name, names);
	return fault_set(f, -EINVAL, "device=sim is the software device",
		"there is no device \"%s\"%s%s%s", name, near ? "; did you mean " : "",
		near ? near : "", near ? "?" : "");
}

int device_find(const char *name, const struct device_ops **ret, struct fault *f)
{
	const struct backend *b = find(name);
	const struct device_ops *ops = b ? table_of(b, f) : NULL;

	if (!b)
		return unknown(name, f);
	if (!ops)
		return f->err;
	*ret = ops;
	return 0;
}
