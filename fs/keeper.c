/* Who has which descriptor, and what follows when its last holder ends:
 *
 *   /dev/fuse          the daemon alone    every request is answered ENOTCONN: nobody hangs
 *   the socket's ends  daemon | keeper     the keeper reads an end of file, and ends
 *
 * libfuse would unmount by itself at the end. It does not where its descriptor polls as an error,
 * for that is a mount that has gone; so it is given one that does. */
#include "fs/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/files.h"
#include "core/base/log.h"
#include "core/control/privilege.h"
#include "fs/mountpoint.h"

#define NAME      "npufs-keeper"
#define SOCKET_FD 3    /* the keeper's end; what is below leads nowhere */
#define ANSWER_MS 2000 /* unmounting takes this long at most */

/* --- the keeper ------------------------------------------------------------------------------- */

/* Service managers and terminals signal whole groups, and this one is needed last. */
static void leave_company(void)
{
	static const int deaf_to[] = { SIGTERM, SIGINT, SIGHUP, SIGQUIT };

	for (size_t i = 0; i < ARRAY_SIZE(deaf_to); i++)
		signal(deaf_to[i], SIG_IGN);
	setsid();
	prctl(PR_SET_NAME, NAME);
}

/* The daemon may have been started without the first three: any number may be anything. */
static int close_all_but(int fd)
{
	int kept = fcntl(fd, F_DUPFD, SOCKET_FD + 1), nowhere = open("/dev/null", O_RDWR);

	if (kept < 0 || nowhere < 0 || chdir("/") < 0)
		return -1;
	for (int i = 0; i < SOCKET_FD; i++)
		if (dup2(nowhere, i) < 0)
			return -1;
	if (dup3(kept, SOCKET_FD, O_CLOEXEC) < 0)
		return -1;
	return close_range(SOCKET_FD + 1, ~0U, 0);
}

/* umount2(2), and the way to the mountpoint, whose folders may be closed to all but their owners.
 * Another user than root has neither, and fusermount3 does it, by its own set-uid bit. */
static int keep_two_capabilities(void)
{
	return privilege_limit(PRIVILEGE(CAP_SYS_ADMIN) | PRIVILEGE(CAP_DAC_READ_SEARCH));
}

static void keeper_main(int fd, const char *mountpoint)
{
	char byte = 0;
	ssize_t n;

	leave_company();
	if (close_all_but(fd) || keep_two_capabilities())
		_exit(1);
	if (send(SOCKET_FD, &byte, 1, MSG_NOSIGNAL) != 1)
		_exit(1);
	while ((n = read(SOCKET_FD, &byte, 1)) < 0 && errno == EINTR)
		;
	if (n == 1 && mountpoint_leave(mountpoint) == 0)
		send(SOCKET_FD, &byte, 1, MSG_NOSIGNAL);
	_exit(0);
}

/* --- the daemon ------------------------------------------------------------------------------- */

/* A byte of the keeper's; false: it ended, or takes too long. */
static bool hears(int keeper)
{
	struct pollfd p = { .fd = keeper, .events = POLLIN };
	char byte;

	return poll(&p, 1, ANSWER_MS) == 1 && read(keeper, &byte, 1) == 1;
}

int keeper_start(const char *mountpoint, int *ret_keeper, struct fault *f)
{
	int ends[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return fault_set(f, -errno, "try again", "no socket: %s", strerror(errno));
	pid = fork();
	if (pid == 0)
		keeper_main(ends[1], mountpoint);
	close(ends[1]);
	if (pid > 0 && hears(ends[0])) {
		*ret_keeper = ends[0];
		return 0;
	}
	close(ends[0]);
	return fault_set(f, -EAGAIN, "try again; are there too many processes?",
		"the process that unmounts at the end could not be started");
}

/* The kernel's side of it has gone: somebody has unmounted. */
static bool is_severed(int fd)
{
	struct pollfd p = { .fd = fd };

	return poll(&p, 1, 0) == 1 && (p.revents & POLLERR);
}

/* In the place of `fd`, which is closed by it: a pipe that nobody reads. */
static void sever(int fd)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0) {
		log_error("no pipe: %s", strerror(errno));
		return;
	}
	dup3(ends[1], fd, O_CLOEXEC);
	close(ends[0]);
	close(ends[1]);
}

void keeper_unmount(int keeper, struct fuse_session *session)
{
	bool there = !is_severed(fuse_session_fd(session));
	char byte = 0;

	if (keeper == KEEPER_NONE) {
		fuse_session_unmount(session);
		return;
	}
	sever(fuse_session_fd(session));
	fuse_session_unmount(session);
	if (there && (send(keeper, &byte, 1, MSG_NOSIGNAL) != 1 || !hears(keeper)))
		log_warning("the mount could not be taken away; the next start clears it");
	close(keeper);
}
