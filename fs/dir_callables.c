/* callables/: the rows below, and the files of each name. Numbers: object 0 is the folder (row
 * ROW_SELF) with its own rows (ROW_FIRST + k), an object is the number of a name, whose k-th file is
 * ROW_FIRST + k. Everybody may look; what changes anything is for root, the daemon's user and the operators,
 * and is audited, also when it is refused. */
#include "fs/area.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/job/answer.h"

#define NODE      "callables/"
#define FILE_SIZE (CALLABLES_NAME_MAX + 8)

static struct callables *table(struct npufs *fs)
{
	return engine_callables(fs->engine);
}

/* --- what the files show ---------------------------------------------------------------------- */

static int usage_show(struct npufs *fs, uint64_t number, struct buf *out)
{
	(void)number;
	callables_render(table(fs), out);
	return 0;
}

static int close_show(struct npufs *fs, uint64_t number, struct buf *out)
{
	(void)fs, (void)number;
	control_usage(PRIVILEGED_CLOSE_CALLABLES, out);
	return 0;
}

static int id_show(struct npufs *fs, uint64_t number, struct buf *out)
{
	struct callables_view v;

	if (!callables_look(table(fs), number, &v))
		return -ESTALE;
	buf_printf(out, "%d\n", v.id);
	return 0;
}

static int err_show(struct npufs *fs, uint64_t number, struct buf *out)
{
	struct callables_view v;

	if (!callables_look(table(fs), number, &v))
		return -ESTALE;
	answer_render_error(ANSWER_OWN, &v.fault, out);
	return 0;
}

const struct node_row callable_rows[] = {
	LIVE("usage", usage_show, "the context: its state, registrations, bytes, launches"),
	{ .name = "close",
		.mode = 0600,
		.show = close_show,
		.doc = "write now [force]: REASON to release all of them" },
	ROWS_END
};

/* The files of a name, by what it is; their names are suffixes here. */
const struct node_row callable_object_rows[] = {
	{ .name = ".img", .mode = 0440, .doc = "copy an image here: it is registered" },
	TEXT(".id", id_show, "its id in this context; -1: it was refused"),
	TEXT(".err", err_show, "why it was refused"), ROWS_END
};
#define N_ROWS  (sizeof callable_rows / sizeof *callable_rows - 1)
#define N_FILES (sizeof callable_object_rows / sizeof *callable_object_rows - 1)
#define IMAGE   0
#define CLOSE   1

/* Bit k: the k-th file is there. */
static const unsigned files_of[] = {
	[CALLABLES_WRITING] = 1,
	[CALLABLES_WAITING] = 1,
	[CALLABLES_RESIDENT] = 1 | 2,
	[CALLABLES_REFUSED] = 2 | 4,
};

/* --- places ----------------------------------------------------------------------------------- */

struct spot {
	struct callables_view v;    /* number 0: the folder, or a row of its own */
	const struct node_row *row; /* NULL: the folder */
};

static int find_spot(struct npufs *fs, struct at at, struct spot *ret)
{
	unsigned k = at.row - ROW_FIRST;

	*ret = (struct spot){ .row = NULL };
	if (at.object == 0 && at.row == ROW_SELF)
		return 0;
	if (at.row < ROW_FIRST || k >= (at.object ? N_FILES : N_ROWS))
		return -ESTALE;
	ret->row = at.object ? &callable_object_rows[k] : &callable_rows[k];
	if (at.object &&
		(!callables_look(table(fs), at.object, &ret->v) ||
			!(files_of[ret->v.state] & 1u << k)))
		return -ESTALE;
	return 0;
}

static bool is_image(const struct spot *p)
{
	return p->row == &callable_object_rows[IMAGE];
}

static bool is_close(const struct spot *p)
{
	return p->row == &callable_rows[CLOSE];
}

/* The operators' group may what root may. */
static struct owner owner_of(struct npufs *fs, const struct spot *p)
{
	const bool shared = fs->roles.operators != ROLES_NO_GROUP;
	const unsigned mode = p->row ? p->row->mode : 0755;

	return (struct owner){ .uid = fs->uid,
		.gid = shared ? fs->roles.operators : fs->gid,
		.mode = mode | (shared ? mode >> 3 & 0070 : 0),
		.dir = !p->row };
}

/* Refused attempts at what changes something are in the audit trail; what is allowed leaves its own
 * records when it is done. Returns err. */
static int noted(struct npufs *fs, const struct cred *c, const char *what, int err)
{
	if (err)
		control_note(fs->control, c, what, NODE,
			err == -EACCES ? "unauthorised" : "unchangeable");
	return err;
}

static int decide(struct npufs *fs, const struct cred *c, const struct spot *p, int want,
	const char *what)
{
	const struct owner o = owner_of(fs, p);
	int err = access_check(c, &o, want);

	if (!err && want & W_OK && p->row && !is_image(p) && !is_close(p))
		err = -EACCES; /* also root's: nothing takes it */
	return want & W_OK || is_image(p) || is_close(p) ? noted(fs, c, what, err) : err;
}

static int may_change(struct npufs *fs, const struct cred *c, const char *what)
{
	const struct spot folder = { .row = NULL };

	return decide(fs, c, &folder, W_OK | X_OK, what);
}

static int callables_getattr(struct npufs *fs, const struct cred *c, struct at at, struct stat *ret,
	double *ret_seconds)
{
	AUTO_BUF struct buf text = BUF_INIT;
	struct owner o;
	struct spot p;
	int err = find_spot(fs, at, &p);

	(void)c, (void)ret_seconds; /* the folder may be searched by all */
	if (!err && p.row && p.row->show && !p.row->live)
		err = p.row->show(fs, p.v.number, &text);
	if (err)
		return err;
	o = owner_of(fs, &p);
	*ret = (struct stat){ .st_ino = at_ino(at),
		.st_mode = (o.dir ? S_IFDIR : S_IFREG) | o.mode,
		.st_nlink = o.dir ? 2 : 1,
		.st_uid = o.uid,
		.st_gid = o.gid,
		.st_mtim = clock_timespec(p.v.number ? p.v.changed : fs->started) };
	ret->st_ctim = ret->st_atim = ret->st_mtim;
	fs_stat_size(ret, is_image(&p) ? p.v.bytes : text.len);
	return 0;
}

/* What is written has the length that was written, and nothing is taken back. */
static int check_size(const struct spot *p, off_t size)
{
	if (!is_image(p))
		return size ? -EINVAL : 0;
	if (p->v.state != CALLABLES_WRITING)
		return -EBUSY;
	return (uint64_t)size == p->v.bytes ? 0 : -EINVAL;
}

#define SET_BY_COPIES \
	(FUSE_SET_ATTR_SIZE | FUSE_SET_ATTR_CTIME | FUSE_SET_ATTR_ATIME | \
		FUSE_SET_ATTR_ATIME_NOW | FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_MTIME_NOW)

/* Who copies also sets what the file had elsewhere. An image takes it and stays as it is, but is nobody
 * else's: `cp -p`, mv, install and tar do not fail. */
static int check_values(struct npufs *fs, const struct spot *p, const struct stat *values, int set)
{
	const struct owner o = owner_of(fs, p);
	const int of_images = FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID;

	if (!p->row || set & ~(SET_BY_COPIES | (is_image(p) ? of_images : 0)))
		return -EPERM;
	if (set & FUSE_SET_ATTR_UID && values->st_uid != o.uid)
		return -EPERM;
	if (set & FUSE_SET_ATTR_GID && values->st_gid != o.gid && values->st_gid != fs->gid)
		return -EPERM;
	return set & FUSE_SET_ATTR_SIZE ? check_size(p, values->st_size) : 0;
}

static int callables_setattr(struct npufs *fs, const struct cred *c, struct at at,
	struct handle *open, const struct stat *values, int set, struct stat *ret)
{
	struct spot p;
	double seconds;
	int err = find_spot(fs, at, &p);

	(void)open;
	if (!err)
		err = is_image(&p) ? may_change(fs, c, "setattr")
				   : decide(fs, c, &p, W_OK, "setattr");
	if (err)
		return err;
	err = check_values(fs, &p, values, set);
	return err ? noted(fs, c, "setattr", err) : callables_getattr(fs, c, at, ret, &seconds);
}

static int callables_access(struct npufs *fs, const struct cred *c, struct at at, int want)
{
	struct spot p;
	int err = find_spot(fs, at, &p);

	return err ? err : decide(fs, c, &p, want, "access");
}

/* --- opening ---------------------------------------------------------------------------------- */

static int open_image(struct npufs *fs, const struct spot *p, int mode, struct handle **ret)
{
	int fd = -1, err;

	if (mode != O_RDONLY || p->v.state != CALLABLES_RESIDENT)
		return -EBUSY; /* resident until the context closes, or still being written */
	err = callables_open(table(fs), p->v.name, &fd);
	if (err)
		return err;
	*ret = stored_handle_new(fd);
	if (!*ret)
		close(fd);
	return *ret ? 0 : -ENOMEM;
}

static struct handle *handle_for(const struct spot *p, struct buf *text)
{
	const struct control_order form = { .what = CONTROL_COMMAND,
		.command = PRIVILEGED_CLOSE_CALLABLES };

	return is_close(p) ? order_handle_new(&form, text) : text_handle_new(text);
}

static int callables_file_open(struct npufs *fs, const struct cred *c, struct at at,
	struct fuse_file_info *fi, struct handle **ret)
{
	static const int wants[] = { [O_RDONLY] = R_OK, [O_WRONLY] = W_OK, [O_RDWR] = R_OK | W_OK };
	AUTO_BUF struct buf text = BUF_INIT;
	struct spot p;
	int err = find_spot(fs, at, &p), mode = fi->flags & O_ACCMODE;

	if (!err && !p.row)
		err = -EISDIR;
	if (!err && mode == O_ACCMODE)
		err = -EINVAL;
	if (!err)
		err = decide(fs, c, &p, wants[mode], "open");
	if (!err && is_image(&p)) {
		err = open_image(fs, &p, mode, ret);
		return err == -EBUSY ? noted(fs, c, "open", err) : err;
	}
	if (err)
		return err;
	err = p.row->show(fs, p.v.number, &text);
	if (err)
		return err;
	fi->direct_io = true;
	*ret = handle_for(&p, &text);
	return *ret ? 0 : -ENOMEM;
}

/* --- names ------------------------------------------------------------------------------------ */

/* NAME of NAME.SUFFIX, and which file of it that is; -1: it has no such form. */
static int split(const char *file, char ret[CALLABLES_NAME_MAX + 1])
{
	for (size_t k = 0; k < N_FILES; k++)
		if (callables_name_of(file, callable_object_rows[k].name, ret))
			return (int)k;
	return -1;
}

static int find_name(struct npufs *fs, const char *file, struct at *ret)
{
	char name[CALLABLES_NAME_MAX + 1];
	struct callables_view v;
	int k = split(file, name);

	for (unsigned i = 0; i < N_ROWS; i++)
		if (strcmp(callable_rows[i].name, file) == 0) {
			*ret = (struct at){ AREA_CALLABLES, 0, ROW_FIRST + i };
			return 0;
		}
	if (k < 0 || !callables_find(table(fs), name, &v) || !(files_of[v.state] & 1u << k))
		return -ENOENT;
	*ret = (struct at){ AREA_CALLABLES, v.number, ROW_FIRST + (unsigned)k };
	return 0;
}

static int callables_lookup(struct npufs *fs, const struct cred *c, struct at dir, const char *name,
	struct fuse_entry_param *ret)
{
	struct at found;
	int err = dir.object || dir.row != ROW_SELF ? -ENOTDIR : find_name(fs, name, &found);

	if (err)
		return err;
	ret->ino = at_ino(found);
	return callables_getattr(fs, c, found, &ret->attr, &ret->attr_timeout);
}

static int callables_file_create(struct npufs *fs, const struct cred *c, struct at dir,
	const char *file, mode_t mode, struct fuse_file_info *fi,
	struct fuse_entry_param *ret_entry, struct handle **ret)
{
	const struct fault none = FAULT_NONE;
	char name[CALLABLES_NAME_MAX + 1];
	struct cred kept;
	uint64_t number;
	int err = may_change(fs, c, "create");

	(void)mode; /* it is as the row says */
	if (err)
		return err;
	if (dir.object || split(file, name) != IMAGE)
		err = -EINVAL;
	else
		err = callables_create(table(fs), name, &number);
	if (err)
		return noted(fs, c, "create", err);
	kept = fs_cred_kept(fs, c);
	*ret = image_handle_new(number, name, &kept);
	if (!*ret) {
		callables_refuse(table(fs), number, &none);
		return -ENOMEM;
	}
	fi->direct_io = true;
	return callables_lookup(fs, c, dir, file, ret_entry);
}

static int forget_refusal(struct npufs *fs, const char *file)
{
	struct at found = { .row = 0 };
	struct spot p = { .row = NULL };
	int err = find_name(fs, file, &found);

	if (!err)
		err = find_spot(fs, found, &p);
	if (!err && !p.v.number)
		err = -EPERM;
	if (!err)
		err = callables_remove(table(fs), p.v.number);
	if (!err)
		callables_unkeep(table(fs), p.v.name);
	return err;
}

/* A refusal goes with either of its files; nothing else does. */
static int callables_unlink(struct npufs *fs, const struct cred *c, struct at dir, const char *file)
{
	int err = may_change(fs, c, "unlink");

	(void)dir;
	if (err)
		return err;
	err = forget_refusal(fs, file);
	control_note(fs->control, c, "unlink", NODE, err ? "unchangeable" : NULL);
	return err;
}

/* Links, folders, other names: nobody makes them. */
static int callables_attempt(struct npufs *fs, const struct cred *c, struct at at, const char *what)
{
	(void)at;
	return may_change(fs, c, what) ? -EACCES : noted(fs, c, what, -EPERM);
}

static int callables_may_list(struct npufs *fs, const struct cred *c, struct at dir)
{
	return callables_access(fs, c, dir, R_OK);
}

static bool list_files(const struct callables_view *v, uint64_t from, struct listing *l)
{
	char file[FILE_SIZE];

	for (unsigned k = 0; k < N_FILES; k++) {
		uint64_t place = v->number * N_FILES + k + N_ROWS + 1;

		if (place <= from || !(files_of[v->state] & 1u << k))
			continue;
		snprintf(file, sizeof file, "%s%s", v->name, callable_object_rows[k].name);
		if (!l->add(l, file, (struct at){ AREA_CALLABLES, v->number, ROW_FIRST + k }, false,
			    place))
			return false;
	}
	return true;
}

/* Places: the rows, then so many for each number, so that they stay right when names go. */
static int callables_list(struct npufs *fs, struct at dir, uint64_t from, struct listing *l)
{
	struct callables_view v = { .number = 0 };

	(void)dir;
	for (unsigned k = (unsigned)from; k < N_ROWS; k++)
		if (!l->add(l, callable_rows[k].name,
			    (struct at){ AREA_CALLABLES, 0, ROW_FIRST + k }, false, k + 1))
			return 0;
	if (from > N_ROWS)
		v.number = (from - N_ROWS - 1) / N_FILES - 1;
	while (callables_next(table(fs), v.number, &v) && list_files(&v, from, l))
		;
	return 0;
}

const struct area_ops area_callables = {
	.lookup = callables_lookup,
	.getattr = callables_getattr,
	.setattr = callables_setattr,
	.access = callables_access,
	.open = callables_file_open,
	.create = callables_file_create,
	.unlink = callables_unlink,
	.may_list = callables_may_list,
	.list = callables_list,
	.refuse = callables_attempt,
};
