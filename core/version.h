/* The version of npufs: of the daemon, its tool and what they record. */
#ifndef NPUFS_CORE_VERSION_H
#define NPUFS_CORE_VERSION_H

#define NPUFS_VERSION "0.1.0"

#endif
