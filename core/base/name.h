/* The names that users give to what the daemon makes for them: sessions, callables. */
#ifndef NPUFS_CORE_BASE_NAME_H
#define NPUFS_CORE_BASE_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* 1 to `most` letters, digits and . _ -, not beginning with a dot. */
static inline bool name_is_plain(const char *name, size_t most)
{
	size_t len =
		strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");

	return len && len <= most && !name[len] && name[0] != '.';
}

#endif
