/* Who may do what to a file, decided as Linux decides it on a local file system
 * (path_resolution(7), inode(7)). The daemon decides every access itself, so nothing depends on
 * what the kernel has cached. */
#ifndef NPUFS_CORE_ACCESS_H
#define NPUFS_CORE_ACCESS_H

#include <stdbool.h>
#include <stdint.h>

struct cred {
	uint32_t uid, gid;
	int32_t pid;
	/* Is `gid` among the supplementary groups? Asked only when the answer matters; NULL: none.
	 */
	bool (*in_group)(const struct cred *c, uint32_t gid);
	void *context; /* in_group's */
	/* What core/control/roles.h said of it while it waited; 0 where nobody asked. */
	unsigned roles;
};

struct owner {
	uint32_t uid, gid, mode; /* mode: permission bits with sticky and setgid */
	bool dir;
};

bool cred_in_group(const struct cred *c, uint32_t gid);

/* `want`: R_OK, W_OK, X_OK or'ed. 0 or -EACCES. Root may read and write everything, search every
 * folder, and execute what has an x bit. */
int access_check(const struct cred *c, const struct owner *o, int want);

/* May an entry owned by `entry_uid` be removed from `dir` or renamed, sticky bit included? 0,
 * -EACCES, -EPERM. */
int access_remove(const struct cred *c, const struct owner *dir, uint32_t entry_uid);

/* May it change mode or times set by hand? 0 or -EPERM. */
int access_owner(const struct cred *c, const struct owner *o);

/* May it give the file to that user and group (the present ones where unchanged)? 0 or -EPERM. */
int access_chown(const struct cred *c, const struct owner *o, uint32_t uid, uint32_t gid);

#endif
