/* The folders of the mount. An area is a part of the tree with one way of working: most are tables
 * of rows (fs/dir_fixed.c), jobs/, sessions/, callables/ and control/ are not (fs/dir_*.c).
 * Functions give 0 or a negative errno; one that is NULL is refused as `refuse` says, or without that
 * with area_refusal(). */
#ifndef NPUFS_FS_AREA_H
#define NPUFS_FS_AREA_H

#include "fs/fs.h"
#include "fs/handle.h"

/* Takes one entry of a listing; false: no room for more. `next` is the place after it. */
struct listing {
	bool (*add)(struct listing *l, const char *name, struct at at, bool dir, uint64_t next);
};

struct area_ops {
	int (*lookup)(struct npufs *fs, const struct cred *c, struct at dir, const char *name,
		struct fuse_entry_param *ret);
	void (*forget)(struct npufs *fs, struct at at, uint64_t n);
	/* `ret_seconds`: for how long the kernel may believe it; set to 0 by the caller. */
	int (*getattr)(struct npufs *fs, const struct cred *c, struct at at, struct stat *ret,
		double *ret_seconds);
	int (*setattr)(struct npufs *fs, const struct cred *c, struct at at, struct handle *open,
		const struct stat *values, int set, struct stat *ret);
	int (*access)(struct npufs *fs, const struct cred *c, struct at at, int want);
	int (*open)(struct npufs *fs, const struct cred *c, struct at at, struct fuse_file_info *fi,
		struct handle **ret);
	int (*create)(struct npufs *fs, const struct cred *c, struct at dir, const char *name,
		mode_t mode, struct fuse_file_info *fi, struct fuse_entry_param *ret_entry,
		struct handle **ret);
	int (*mkdir)(struct npufs *fs, const struct cred *c, struct at dir, const char *name,
		mode_t mode, struct fuse_entry_param *ret);
	int (*unlink)(struct npufs *fs, const struct cred *c, struct at dir, const char *name);
	/* In its place, where that waits for the disk: answers `req` itself, now or later. */
	void (*unlink_later)(struct npufs *fs, fuse_req_t req, struct at dir, const char *name);
	int (*rmdir)(struct npufs *fs, const struct cred *c, struct at dir, const char *name);
	/* `*ret_sync`: what is to be on the disk before the answer (file_sync), or 0. */
	int (*rename)(struct npufs *fs, const struct cred *c, struct at from_dir, const char *from,
		struct at to_dir, const char *to, bool no_replace, uint64_t *ret_sync);
	int (*may_list)(struct npufs *fs, const struct cred *c, struct at dir);
	/* Entries from place `from` on, "." and ".." not among them. */
	int (*list)(struct npufs *fs, struct at dir, uint64_t from, struct listing *l);
	/* Tell of an attempt, at a folder or a file, and how it is refused. */
	int (*refuse)(struct npufs *fs, const struct cred *c, struct at at, const char *what);
	int refusal; /* what is refused at all, links too, is refused with; 0: as by -EPERM */
};

extern const struct area_ops area_fixed, area_jobs, area_sessions, area_callables, area_control;
extern const struct area_ops *const areas[AREA_COUNT]; /* fs/ops.c */
/* -EPERM as on a folder that cannot be changed, unless the area has another. */
int area_refusal(enum area area);

/* --- tables of rows --------------------------------------------------------------------------- */

struct node_row {
	const char *name; /* NULL ends a table */
	mode_t mode;      /* permission bits */
	/* A text: rendered once per open. `object` is the model's index + 1, a session's id, 0 in
	 * the root. */
	int (*show)(struct npufs *fs, uint64_t object, struct buf *out);
	/* A control: takes words as they were written, without their line end. */
	int (*command)(struct npufs *fs, const struct cred *c, uint64_t object, const char *words);
	/* Would it take them now? NULL: each write(2) is a command; else those without a line end
	 * wait for the rest, or the close, when this gives 0. */
	int (*check)(struct npufs *fs, const struct cred *c, uint64_t object, const char *words);
	bool live; /* the text changes by itself: it has no size, and is never cached */
	bool (*exists)(struct npufs *fs); /* NULL: always */
	enum area area;  /* a folder: the area that hangs here; AREA_ROOT for texts */
	const char *doc; /* one line for the mount's README */
};

#define TEXT(name_, show_, doc_) \
	{ \
		.name = name_, .mode = 0444, .show = show_, .doc = doc_ \
	}
#define LIVE(name_, show_, doc_) \
	{ \
		.name = name_, .mode = 0444, .show = show_, .live = true, .doc = doc_ \
	}
#define CONTROL(name_, mode_, show_, command_, check_, doc_) \
	{ \
		.name = name_, .mode = mode_, .show = show_, .command = command_, .check = check_, \
		.doc = doc_ \
	}
#define AREA(name_, area_, mode_, doc_) \
	{ \
		.name = name_, .mode = mode_, .area = area_, .doc = doc_ \
	}
#define ROWS_END \
	{ \
		.name = NULL \
	}

/* An area of tables: its own rows, or one object a model with `object_rows` in a folder of the
 * model's name, or, with `object_suffix`, as one file each. */
struct fixed_area {
	const struct node_row *rows;
	const struct node_row *object_rows;
	const char *object_suffix;
};
extern const struct fixed_area fixed_root, fixed_models, fixed_manifests;
const struct fixed_area *fixed_of(enum area area); /* NULL for what is no area of tables */
extern const struct node_row session_rows[], callable_rows[], callable_object_rows[];
/* Each row of control/, for the mount's README. */
void control_put_docs(void (*put)(struct buf *out, const char *folder, const struct node_row *row),
	struct buf *out);

#endif
