/* Preloaded into a daemon: while the file that ANSWERS_SLOW names is there, another thread than the first takes
 * its time over a read's answer, as one that the machine does not let run: until the first one has told a
 * reader that the daemon stops, or until long after that. */
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#define FUSE_USE_VERSION 34
#include <fuse3/fuse_lowlevel.h>

#define PATIENCE 10 /* seconds: longer than a stop takes */

static atomic_bool told;

static int is_first(void)
{
	return gettid() == getpid();
}

int fuse_reply_err(fuse_req_t req, int err)
{
	static int (*real)(fuse_req_t, int);
	int got;

	if (!real)
		real = (int (*)(fuse_req_t, int))dlsym(RTLD_NEXT, "fuse_reply_err");
	got = real(req, err);
	if (err == ESHUTDOWN && is_first()) {
		told = 1;
		sleep(1);
	}
	return got;
}

int fuse_reply_buf(fuse_req_t req, const char *buf, size_t size)
{
	static int (*real)(fuse_req_t, const char *, size_t);
	const char *path = getenv("ANSWERS_SLOW");
	int slow = path && !is_first() && access(path, F_OK) == 0;

	if (!real)
		real = (int (*)(fuse_req_t, const char *, size_t))dlsym(RTLD_NEXT,
			"fuse_reply_buf");
	for (int i = 0; slow && !told && i < PATIENCE * 100; i++)
		usleep(10000);
	return real(req, buf, size);
}
