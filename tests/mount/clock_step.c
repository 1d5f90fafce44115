/* Preloaded into a daemon: its wall clock is off by as many seconds as the file named by CLOCK_STEP
 * says at that moment. All other clocks go on as they are. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long step(void)
{
	const char *path = getenv("CLOCK_STEP");
	char text[32] = "";
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

	if (fd < 0)
		return 0;
	if (read(fd, text, sizeof text - 1) < 0)
		text[0] = '\0';
	close(fd);
	return atol(text);
}

int clock_gettime(clockid_t id, struct timespec *ret)
{
	static int (*real)(clockid_t, struct timespec *);
	int err;

	if (!real)
		real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
	err = real(id, ret);
	if (!err && id == CLOCK_REALTIME)
		ret->tv_sec += step();
	return err;
}
