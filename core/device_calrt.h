/* The real accelerator, CalRT 0.7.6, as a backend. Its SDK is C++ and not everywhere, so what speaks
 * to it (core/device_calrt/device_calrt.cc) is a shared object of its own, made by
 * `make CALRT_SDK=DIR` and loaded when device=calrt is asked for. */
#ifndef NPUFS_CORE_DEVICE_CALRT_H
#define NPUFS_CORE_DEVICE_CALRT_H

#include "core/base/fault.h"
#include "core/device.h"

#define DEVICE_CALRT_NAME   "calrt"
#define DEVICE_CALRT_FILE   "npufs-calrt.so"
#define DEVICE_CALRT_SYMBOL "npufs_calrt_ops"

/* The table, loaded with the first call that succeeds and there until the process ends. NULL: it is
 * not installed, not to be trusted, or does not load; `f`, which may be NULL, says which and what to
 * do. It is for the terminal of who mounts: it may name files of the host.
 *
 * It comes from the folder that the daemon was built for (NPUFS_LIBDIR), or from the file in the
 * environment variable NPUFS_CALRT_SO unless the process has more rights than its caller. The file
 * and its folder must be root's or this user's and nobody else's to write. */
const struct device_ops *device_calrt_load(struct fault *f);

/* What the shared object offers under DEVICE_CALRT_SYMBOL. `bytes` is the size of the caller's struct
 * device_ops; NULL when it was built for another. */
const struct device_ops *npufs_calrt_ops(size_t bytes);

#endif
