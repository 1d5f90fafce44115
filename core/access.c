#include "core/access.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

bool cred_in_group(const struct cred *c, uint32_t gid)
{
	return c->gid == gid || (c->in_group && c->in_group(c, gid));
}

static int root_check(const struct owner *o, int want)
{
	return (want & X_OK) && !o->dir && !(o->mode & 0111) ? -EACCES : 0;
}

int access_check(const struct cred *c, const struct owner *o, int want)
{
	unsigned bits;

	if (c->uid == 0)
		return root_check(o, want);
	if (c->uid == o->uid)
		bits = o->mode >> 6;
	else if (((o->mode >> 3 ^ o->mode) & (unsigned)want) && cred_in_group(c, o->gid))
		bits = o->mode >> 3;
	else
		bits = o->mode; /* the group's bits say the same, or it is no member */
	return (bits & (unsigned)want & 7) == ((unsigned)want & 7) ? 0 : -EACCES;
}

int access_remove(const struct cred *c, const struct owner *dir, uint32_t entry_uid)
{
	int err = access_check(c, dir, W_OK | X_OK);

	if (err)
		return err;
	if ((dir->mode & S_ISVTX) && c->uid != 0 && c->uid != entry_uid && c->uid != dir->uid)
		return -EPERM;
	return 0;
}

int access_owner(const struct cred *c, const struct owner *o)
{
	return c->uid == 0 || c->uid == o->uid ? 0 : -EPERM;
}

int access_chown(const struct cred *c, const struct owner *o, uint32_t uid, uint32_t gid)
{
	if (c->uid == 0)
		return 0;
	if (c->uid != o->uid || uid != o->uid)
		return -EPERM;
	return gid == o->gid || cred_in_group(c, gid) ? 0 : -EPERM;
}
