/* Who asks, as far as the kernel tells it while the process is there. */
#include "core/control/audit.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/files.h"
#include "core/spool/disk.h"

/* What the kernel says of a process, as text; false: nothing. */
static bool read_proc(pid_t pid, const char *what, char *ret, size_t size)
{
	AUTO_CLOSE int fd = -1;
	char path[64];
	ssize_t n;

	snprintf(path, sizeof path, "/proc/%ld/%s", (long)pid, what);
	fd = pid > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	n = fd < 0 ? -1 : disk_read(fd, ret, size - 1, 0);
	if (n <= 0)
		return false;
	ret[n] = '\0';
	return true;
}

void audit_comm(pid_t pid, char ret[AUDIT_COMM_SIZE])
{
	char text[AUDIT_COMM_SIZE + 1]; /* the line's end, too */

	if (!read_proc(pid, "comm", text, sizeof text))
		text[0] = '\0';
	text[strcspn(text, "\n")] = '\0';
	memcpy(ret, text, AUDIT_COMM_SIZE);
}

int64_t audit_login(pid_t pid)
{
	char text[32], *end;
	unsigned long uid;

	if (!read_proc(pid, "loginuid", text, sizeof text))
		return -1;
	uid = strtoul(text, &end, 10);
	return end == text || uid >= UINT32_MAX ? -1 : (int64_t)uid;
}
