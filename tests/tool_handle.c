/* File handles as an NFS server keeps them, for tests:
 *
 *   tool_handle save PATH FILE       name_to_handle_at(PATH), kept in FILE
 *   tool_handle open MOUNT FILE      open_by_handle_at(): prints the file's first bytes
 *
 * Prints the error's name and ends with status 1 when the call fails. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/fault.h"

#define ROOM (sizeof(struct file_handle) + MAX_HANDLE_SZ)

static int fail(void)
{
	printf("%s\n", fault_errno_name(errno));
	return 1;
}

static int save(const char *path, const char *file, struct file_handle *h)
{
	FILE *out;
	int mount_id;

	h->handle_bytes = MAX_HANDLE_SZ;
	if (name_to_handle_at(AT_FDCWD, path, h, &mount_id, 0) < 0)
		return fail();
	out = fopen(file, "w");
	if (!out || fwrite(h, ROOM, 1, out) != 1 || fclose(out) != 0)
		return fail();
	return 0;
}

static int open_saved(const char *mount, const char *file, struct file_handle *h)
{
	int fd, mount_fd = open(mount, O_RDONLY | O_DIRECTORY);
	FILE *in = fopen(file, "r");
	char bytes[64];
	ssize_t n;

	if (mount_fd < 0 || !in || fread(h, ROOM, 1, in) != 1)
		return fail();
	fclose(in);
	fd = open_by_handle_at(mount_fd, h, O_RDONLY);
	if (fd < 0)
		return fail();
	n = read(fd, bytes, sizeof bytes);
	if (n < 0)
		return fail();
	printf("%.*s\n", (int)n, bytes);
	return 0;
}

int main(int argc, char **argv)
{
	struct file_handle *h = calloc(1, ROOM);
	int status = 2;

	if (h && argc == 4 && strcmp(argv[1], "save") == 0)
		status = save(argv[2], argv[3], h);
	else if (h && argc == 4 && strcmp(argv[1], "open") == 0)
		status = open_saved(argv[2], argv[3], h);
	free(h);
	return status;
}
