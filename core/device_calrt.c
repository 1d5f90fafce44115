/* The file is opened and looked at first, and loaded through its descriptor: so what was looked at is
 * what is loaded, whatever the path means by then. The object is never unloaded, since the table and
 * the SDK's threads live in it, and the descriptor stays open: the loader knows objects by name, and
 * that number must not come to mean another file. */
#include "core/device_calrt.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/files.h"

#ifndef NPUFS_LIBDIR
#define NPUFS_LIBDIR "/usr/local/lib/npufs"
#endif

#define ENVIRONMENT "NPUFS_CALRT_SO"
#define ACTION \
	"build and install it with make CALRT_SDK=DIR install, or name the file in " ENVIRONMENT \
	"; device=sim is the software device"

static int refuse(struct fault *f, int err, const char *why)
{
	return fault_set(f, err, ACTION, "the device " DEVICE_CALRT_NAME " cannot be used: %s",
		why);
}

static const char *why_not_opened(int err)
{
	switch (err) {
	case -ENOENT:
		return DEVICE_CALRT_FILE " is not installed";
	case -EPERM:
		return DEVICE_CALRT_FILE " or its folder is not root's, or others may write to it";
	default:
		return strerror(-err);
	}
}

/* secure_getenv: a caller must not choose what a set-uid daemon runs. */
static int open_trusted(struct fault *f, int *ret_fd)
{
	const char *path = secure_getenv(ENVIRONMENT);
	const char *slash = path ? strrchr(path, '/') : NULL;
	AUTO_FREE char *folder = NULL;
	AUTO_CLOSE int at = -1;
	uint64_t size;
	int err;

	if (path && path[0] != '/')
		return refuse(f, -EINVAL, ENVIRONMENT " is not an absolute path");
	folder = path ? strndup(path, (size_t)(slash - path + 1)) : strdup(NPUFS_LIBDIR);
	if (!folder)
		return refuse(f, -ENOMEM, strerror(ENOMEM));
	err = files_open_root(folder, FILES_OWN, &at);
	if (!err)
		err = files_open(at, path ? slash + 1 : DEVICE_CALRT_FILE, FILES_OWN, ret_fd,
			&size);
	return err ? refuse(f, err, why_not_opened(err)) : 0;
}

/* A function of the shared object, as POSIX has one made of what dlsym() gives. */
static const struct device_ops *ask_for_table(void *object)
{
	const struct device_ops *(*table)(size_t bytes) = NULL;

	*(void **)&table = dlsym(object, DEVICE_CALRT_SYMBOL);
	return table ? table(sizeof(struct device_ops)) : NULL;
}

const struct device_ops *device_calrt_load(struct fault *f)
{
	static const struct device_ops *loaded;
	AUTO_CLOSE int fd = -1;
	char path[64];
	void *object;

	if (loaded || open_trusted(f, &fd))
		return loaded;
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!object) {
		refuse(f, -ELIBACC, dlerror());
		return NULL;
	}
	fd = -1;
	loaded = ask_for_table(object);
	if (!loaded)
		refuse(f, -ELIBBAD, DEVICE_CALRT_FILE " was built for another npufs");
	return loaded;
}
