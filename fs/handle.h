/* What is behind an open file: one kind of file is one fs/kind_*.c. A handle is owned by the
 * kernel's open file, from open to release. */
#ifndef NPUFS_FS_HANDLE_H
#define NPUFS_FS_HANDLE_H

#include "fs/fs.h"

struct handle;

struct handle_ops {
	/* Each answers `req` exactly once, now or later. NULL: EBADF. */
	void (*read)(struct npufs *fs, fuse_req_t req, struct handle *h, size_t size, off_t off,
		int flags);
	void (*write)(struct npufs *fs, fuse_req_t req, struct handle *h, const char *bytes,
		size_t size, off_t off);
	/* NULL: 0. */
	void (*flush)(struct npufs *fs, fuse_req_t req, struct handle *h);
	void (*fsync)(struct npufs *fs, fuse_req_t req, struct handle *h);
	/* NULL: always ready. */
	void (*poll)(struct npufs *fs, fuse_req_t req, struct handle *h,
		struct fuse_pollhandle *ph);
	void (*release)(struct npufs *fs, struct handle *h);
};

struct handle {
	const struct handle_ops *ops;
	struct handle *next, **link; /* fs->open, by fs/ops.c */
};

static inline struct handle *handle_of(const struct fuse_file_info *fi)
{
	return (struct handle *)(uintptr_t)fi->fh;
}

/* fs/kind_text.c: the part of a text that a read asks for, as far as there is one: *size becomes its
 * length. */
const char *text_part(const struct buf *text, size_t *size, off_t off);
void text_reply(fuse_req_t req, const struct buf *text, size_t size, off_t off);

/* fs/kind_text.c: a text rendered at open; `text` is taken. NULL: no memory. */
struct handle *text_handle_new(struct buf *text);

/* What an open file shows of something that changes. It is rendered anew when a read begins at its
 * start, or comes again after its end was told (`tail -f`): a program that reads it piece by piece
 * sees one text. */
struct fresh_text {
	struct buf text;
	bool ended; /* a reader was told so */
};
bool fresh_text_is_due(const struct fresh_text *t, off_t off);
/* Give the bytes at `off`, or ENOMEM. */
void fresh_text_reply(struct fresh_text *t, fuse_req_t req, size_t size, off_t off);

/* fs/kind_command.c: that row of an object, a control when it has a command; `text` is what it
 * shows first, and is taken. NULL: no memory. The row must stay. */
struct node_row;
struct handle *command_handle_new(const struct node_row *row, uint64_t object, struct buf *text);

/* fs/kind_order.c: a privileged command, or a signature for one, as `form` says; answered when it was
 * carried out. `text` is taken. NULL: no memory. */
struct handle *order_handle_new(const struct control_order *form, struct buf *text);
/* Carry out that order, of whose `text` nothing is taken, and answer `req` (NULL: nobody waits) then. Not
 * 0: it is not on its way, and `req` is still the caller's. */
int order_send(struct npufs *fs, fuse_req_t req, const struct control_order *form);
/* Likewise for an order that is not written. */
void order_park(struct npufs *fs, fuse_req_t req, const struct control_order *form);
/* Likewise for a raw access: what was read is the answer. The bytes are copied. */
void order_park_raw(struct npufs *fs, fuse_req_t req, const struct control_raw *raw);

/* fs/kind_raw.c: the device's memory or registers, as these commands. NULL: no memory. */
struct handle *raw_handle_new(enum privileged_command read, enum privileged_command write);

/* fs/kind_later.c: a text that a thread of control renders at the first read. NULL: no memory. */
struct handle *later_handle_new(int (*render)(struct control *c, struct buf *out));

/* fs/kind_image.c: that name of callables/, to be written by `who`, of fs_cred_kept(); and an image of the store, to be read,
 * whose descriptor is taken. NULL: no memory. */
struct handle *image_handle_new(uint64_t number, const char *name, const struct cred *who);
struct handle *stored_handle_new(int fd);

/* fs/kind_event.c: accepts nothing. NULL: no memory. */
struct handle *event_handle_new(void);

/* fs/kind_file.c: an inert file or a request. */
struct handle *file_handle_new(struct jobdir_file *f, pid_t opener); /* takes f when not NULL */
/* Answers `req` when that file or folder is on the disk; 0: all of jobs/. */
void file_sync(struct npufs *fs, fuse_req_t req, uint64_t id);
struct jobdir_file *file_handle_file(struct handle *h); /* NULL when it is of another kind */

/* fs/kind_result.c: a result of a run; takes the count of `j` when not NULL. `ino` is the number it
 * was opened by. */
struct handle *result_handle_new(struct job *j, enum job_row row, fuse_ino_t ino);
/* What fstat(2) says of a result that is open but that no name shows any more. -ESTALE: it is not
 * open either. */
int result_handle_attr(struct npufs *fs, fuse_ino_t ino, struct stat *ret);

#endif
