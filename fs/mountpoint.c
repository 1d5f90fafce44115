#include "fs/mountpoint.h"

#include <errno.h>
#include <limits.h>
#include <mntent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/mem.h"

#define OWN_TYPE "fuse.npufs"

/* realpath() of a dead mount fails at its last component: the folder above is resolved instead. */
static char *absolute(const char *path)
{
	AUTO_FREE char *copy = strdup(path);
	AUTO_FREE char *parent = NULL;
	char *slash, *whole = realpath(path, NULL);

	if (whole || !copy)
		return whole;
	for (size_t n = strlen(copy); n > 1 && copy[n - 1] == '/'; n--)
		copy[n - 1] = '\0';
	slash = strrchr(copy, '/');
	if (slash)
		*slash = '\0';
	parent = realpath(slash ? (slash == copy ? "/" : copy) : ".", NULL);
	if (!parent ||
		asprintf(&whole, "%s/%s", strcmp(parent, "/") ? parent : "",
			slash ? slash + 1 : copy) < 0)
		return NULL;
	return whole;
}

/* Is the topmost mount at that place ours? */
static bool own_mount(const char *path)
{
	FILE *mounts = setmntent("/proc/self/mounts", "r");
	struct mntent *m;
	bool own = false;

	while (mounts && (m = getmntent(mounts)))
		if (strcmp(m->mnt_dir, path) == 0)
			own = strcmp(m->mnt_type, OWN_TYPE) == 0;
	if (mounts)
		endmntent(mounts);
	return own;
}

static int run_fusermount(const char *path)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		execlp("fusermount3", "fusermount3", "-uzq", "--", path, (char *)NULL);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -EIO;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EPERM;
}

static int take_away(const char *path, struct fault *f)
{
	int err = umount2(path, MNT_DETACH) == 0 ? 0 : run_fusermount(path);

	if (err)
		return fault_set(f, err, "unmount it: umount -l MOUNTPOINT",
			"a dead npufs mount is there and cannot be taken away");
	return 0;
}

int mountpoint_prepare(const char *path, char **ret, struct fault *f)
{
	AUTO_FREE char *whole = absolute(path);
	struct stat st;
	bool dead;

	if (!whole)
		return fault_set(f, -errno, "make it, or name a folder that is there",
			"no mountpoint at %s: %s", path, strerror(errno));
	dead = stat(whole, &st) < 0 && (errno == ENOTCONN || errno == ECONNABORTED);
	if (own_mount(whole) && !dead)
		return fault_set(f, -EBUSY, "use the one that runs, or unmount it first",
			"an npufs is mounted there already");
	if (dead && own_mount(whole)) {
		int err = take_away(whole, f);

		if (err)
			return err;
	}
	if (stat(whole, &st) < 0)
		return fault_set(f, -errno, "make it: mkdir MOUNTPOINT", "no mountpoint at %s: %s",
			path, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return fault_set(f, -ENOTDIR, "name a folder that is there",
			"the mountpoint %s is no folder", path);
	*ret = take_ptr(whole);
	return 0;
}
