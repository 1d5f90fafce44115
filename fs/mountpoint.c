#include "fs/mountpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <mntent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/mem.h"

#define OWN_TYPE  "fuse.npufs"
#define ANSWER_MS 2000 /* a live mount answers within this */
#define STACK_MAX 32   /* mounts on each other that are cleared */

/* The absolute path without links. A descriptor of this kind asks the mount nothing, so it works
 * on one that is dead or hangs, with or without a slash at the end. */
static int resolve(const char *path, char **ret)
{
	char link[40], whole[PATH_MAX];
	int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	n = readlink(link, whole, sizeof whole - 1);
	close(fd);
	if (n <= 0)
		return -ENOENT;
	whole[n] = '\0';
	*ret = strdup(whole);
	return *ret ? 0 : -ENOMEM;
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

enum answer { ANSWER_LIVE, ANSWER_DEAD, ANSWER_NONE };

static int ask(const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0 && (errno == ENOTCONN || errno == ECONNABORTED))
		return ANSWER_DEAD;
	return ANSWER_LIVE;
}

/* A daemon that hangs lets nobody go who asks, so a child asks; one that is held is left behind. */
static enum answer answer_of(const char *path)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0)
		_exit(ask(path));
	for (int ms = 0; pid > 0 && ms < ANSWER_MS; ms++) {
		if (waitpid(pid, &status, WNOHANG) == pid)
			return WIFEXITED(status) ? (enum answer)WEXITSTATUS(status) : ANSWER_NONE;
		usleep(1000);
	}
	if (pid > 0)
		kill(pid, SIGKILL);
	return ANSWER_NONE;
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

static int detach(const char *path)
{
	return umount2(path, MNT_DETACH) == 0 ? 0 : run_fusermount(path);
}

int mountpoint_leave(const char *path)
{
	return own_mount(path) ? detach(path) : 0;
}

static int take_away(const char *path, struct fault *f)
{
	int err = detach(path);

	if (err)
		return fault_set(f, err, "unmount it: umount -l MOUNTPOINT",
			"a dead npufs mount is there and cannot be taken away");
	return 0;
}

/* Several may lie on each other, dead ones on a live one too. */
static int clear(const char *path, struct fault *f)
{
	int err = 0;

	for (int i = 0; !err && i < STACK_MAX && own_mount(path); i++)
		switch (answer_of(path)) {
		case ANSWER_DEAD:
			err = take_away(path, f);
			break;
		case ANSWER_LIVE:
			return fault_set(f, -EBUSY, "use the one that runs, or unmount it first",
				"an npufs is mounted there already");
		case ANSWER_NONE:
			return fault_set(f, -EBUSY,
				"end that process; the next start clears its mount",
				"an npufs is mounted there already, and does not answer");
		}
	return err;
}

int mountpoint_prepare(const char *path, char **ret, struct fault *f)
{
	AUTO_FREE char *whole = NULL;
	struct stat st;
	int err = resolve(path, &whole);

	if (err == -ENOTDIR)
		return fault_set(f, err, "name a folder that is there",
			"the mountpoint %s is no folder", path);
	if (err)
		return fault_set(f, err, "make it, or name a folder that is there",
			"no mountpoint at %s: %s", path, strerror(-err));
	err = clear(whole, f);
	if (err)
		return err;
	if (stat(whole, &st) < 0)
		return fault_set(f, -errno, "unmount what is there: umount -l MOUNTPOINT",
			"the mountpoint %s cannot be used: %s", path, strerror(errno));
	*ret = take_ptr(whole);
	return 0;
}
