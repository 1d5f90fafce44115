/* Preloaded into a daemon: what another thread than the first writes that begins with "slow answer" takes a second,
 * as on a busy disk; the file that SLOW_RESULT names is there from then on. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MARK "slow answer"

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at)
{
	static ssize_t (*real)(int, const void *, size_t, off_t);
	const char *path = getenv("SLOW_RESULT");

	if (!real)
		real = (ssize_t(*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite");
	if (path && gettid() != getpid() && n >= strlen(MARK) &&
		memcmp(bytes, MARK, strlen(MARK)) == 0) {
		close(open(path, O_CREAT | O_WRONLY, 0600));
		sleep(1);
	}
	return real(fd, bytes, n, at);
}
