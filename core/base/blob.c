#include "core/base/blob.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct blob {
	_Atomic unsigned refs;
	size_t len;
	char bytes[]; /* and a NUL */
};

struct blob *blob_new(const void *bytes, size_t len)
{
	struct blob *b = malloc(sizeof *b + len + 1);

	if (!b)
		return NULL;
	atomic_init(&b->refs, 1);
	b->len = len;
	if (len)
		memcpy(b->bytes, bytes, len);
	b->bytes[len] = '\0';
	return b;
}

struct blob *blob_get(struct blob *b)
{
	if (b)
		atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
	return b;
}

void blob_put(struct blob *b)
{
	if (b && atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) == 1)
		free(b);
}

const char *blob_bytes(const struct blob *b)
{
	return b ? b->bytes : "";
}

size_t blob_len(const struct blob *b)
{
	return b ? b->len : 0;
}
