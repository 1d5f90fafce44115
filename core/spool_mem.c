/* Files in memory. A file is either being written (bytes in `buf`) or at rest (bytes in `blob`,
 * shared with whoever froze it); the first write after a freeze copies back. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/buf.h"
#include "core/mem.h"
#include "core/spool.h"

struct spool_file {
	struct buf buf; /* when blob is NULL */
	struct blob *blob;
};

struct spool_file *spool_file_new(void)
{
	return calloc(1, sizeof(struct spool_file));
}

void spool_file_free(struct spool_file *f)
{
	if (!f)
		return;
	buf_done(&f->buf);
	blob_put(f->blob);
	free(f);
}

uint64_t spool_file_size(const struct spool_file *f)
{
	return f->blob ? blob_len(f->blob) : f->buf.len;
}

ssize_t spool_file_read(struct spool_file *f, uint64_t offset, char *ret, size_t size)
{
	const char *bytes = f->blob ? blob_bytes(f->blob) : f->buf.data;
	uint64_t len = spool_file_size(f);

	if (offset >= len)
		return 0;
	if (size > len - offset)
		size = (size_t)(len - offset);
	memcpy(ret, bytes + offset, size);
	return (ssize_t)size;
}

static int thaw(struct spool_file *f)
{
	if (!f->blob)
		return 0;
	buf_reset(&f->buf);
	buf_put(&f->buf, blob_bytes(f->blob), blob_len(f->blob));
	if (buf_error(&f->buf))
		return -ENOMEM;
	blob_put(f->blob);
	f->blob = NULL;
	return 0;
}

int spool_file_truncate(struct spool_file *f, uint64_t size)
{
	size_t grow;
	char *room;

	if (size == 0) {
		blob_put(take_ptr(f->blob));
		buf_done(&f->buf);
		return 0;
	}
	if (thaw(f))
		return -ENOMEM;
	if (size > f->buf.len) {
		grow = (size_t)(size - f->buf.len);
		room = buf_room(&f->buf, grow);
		if (!room) {
			f->buf.failed = false;
			return -ENOMEM;
		}
		memset(room, 0, grow);
		f->buf.len += grow;
	}
	f->buf.len = (size_t)size;
	if (f->buf.data)
		f->buf.data[size] = '\0';
	return 0;
}

int spool_file_write(struct spool_file *f, uint64_t offset, const char *bytes, size_t size)
{
	uint64_t end = offset + size;
	int err = thaw(f);

	if (!err && end > f->buf.len)
		err = spool_file_truncate(f, end);
	if (!err && size)
		memcpy(f->buf.data + offset, bytes, size);
	return err;
}

struct blob *spool_file_freeze(struct spool_file *f)
{
	if (!f->blob) {
		f->blob = blob_new(buf_text(&f->buf), f->buf.len);
		if (!f->blob)
			return NULL;
		buf_done(&f->buf);
	}
	return blob_get(f->blob);
}
