/* What the process may do beyond its user: capabilities (capabilities(7)), programs that raise
 * privileges, core files. Each thread has its own, and gives them to those that it makes: call these
 * while there is one. */
#ifndef NPUFS_CORE_CONTROL_PRIVILEGE_H
#define NPUFS_CORE_CONTROL_PRIVILEGE_H

#include <stdint.h>

#include "core/base/fault.h"

/* A set of capabilities: bit N is the one that linux/capability.h numbers N. */
#define PRIVILEGE(cap) ((uint64_t)1 << (cap))

/* Their names in lower case, without cap_, joined by '+'; "" is the empty set. -EINVAL: one is
 * unknown, and `f` has the nearest. */
int privilege_parse(const char *names, uint64_t *ret, struct fault *f);

/* No core file, and nobody else of the same user reads this process's memory. Also of children. */
void privilege_no_core(void);

/* Only what is in `keep`, and was there before, remains: effective and permitted; nothing is
 * inheritable or ambient; the bounding set shrinks alike where CAP_SETPCAP allows it. 0 or -errno. */
int privilege_limit(uint64_t keep);

/* The same, and no program that is started raises privileges any more (no_new_privs). -EPERM: the
 * process does not have all of `keep`, or could not give up the rest. */
int privilege_drop(uint64_t keep, struct fault *f);

#endif
