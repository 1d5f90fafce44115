/* control/: the privileged plane as files, root's alone. Numbers: object 0 row ROW_SELF is the folder
 * itself, row ROW_FIRST + k the k-th row below; object 1 is operations/, in which row ROW_FIRST + id is
 * the operation of that id. Nothing of it is cached by the kernel, every look at it is decided here,
 * and noted for the audit trail whatever was decided. */
#include "fs/area.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/audit.h"
#include "core/clock.h"
#include "core/control.h"
#include "core/device_layer.h"
#include "core/mem.h"

#define OPERATIONS   1
#define AUDIT_SHOWN  1000 /* records that reading control/audit gives */
#define ID_NAME_SIZE 24

/* --- what the files show ---------------------------------------------------------------------- */

static int usage_show(struct npufs *fs, uint64_t command, struct buf *out)
{
	(void)fs;
	control_usage((enum privileged_command)command, out);
	return 0;
}

static int add_line(void *out, const char *line)
{
	buf_printf(out, "%s\n", line);
	return 0;
}

static int audit_trail_show(struct npufs *fs, uint64_t object, struct buf *out)
{
	struct fault f = FAULT_NONE;

	(void)object;
	return audit_show(fs->store, AUDIT_SHOWN, add_line, out, &f);
}

static int last_error_show(struct npufs *fs, uint64_t object, struct buf *out)
{
	struct control_operation o;

	(void)object;
	if (control_last_error(fs->control, &o))
		control_render(&o, out);
	return 0;
}

static bool faults_exist(struct npufs *fs)
{
	(void)fs;
	return device_layer_is_there();
}

/* A row of a command; the others only show something. */
struct control_row {
	struct node_row row;
	enum privileged_command command; /* of rows that take one */
};

#define ORDER(name_, command_, doc_) \
	{ \
		{ .name = name_, .mode = 0600, .show = usage_show, .doc = doc_ }, command_ \
	}
#define SHOWN(name_, show_, doc_) \
	{ \
		{ .name = name_, .mode = 0400, .show = show_, .doc = doc_ }, PRIVILEGED_COUNT \
	}
static const struct control_row control_rows[] = {
	ORDER("load", PRIVILEGED_LOAD, "write ALIAS [force]: REASON to have that model served"),
	ORDER("unload", PRIVILEGED_UNLOAD, "take the model off the device; jobs wait"),
	ORDER("configure", PRIVILEGED_CONFIGURE, "bring the model up anew; ends unload and drain"),
	ORDER("drain", PRIVILEGED_DRAIN, "let what runs end, refuse new jobs"),
	ORDER("reset_ccu", PRIVILEGED_RESET_CCU, "clear a compute-unit fault"),
	ORDER("reset_config", PRIVILEGED_RESET_CONFIG, "forget the configuration, configure again"),
	ORDER("reset_device", PRIVILEGED_RESET_DEVICE, "reset the device: the last resort"),
	ORDER("parallel", PRIVILEGED_PARALLEL, "two inferences in flight, where proven: on or off"),
	{ { .name = "faults",
		  .mode = 0600,
		  .show = usage_show,
		  .exists = faults_exist,
		  .doc = "with -o fault: plant other faults, or none" },
		PRIVILEGED_FAULTS },
	SHOWN("audit", audit_trail_show, "the last records of the audit trail"),
	SHOWN("last_error", last_error_show, "the last command that did not go well, and why"),
	{ { .name = "operations",
		  .mode = 0700,
		  .area = AREA_CONTROL,
		  .doc = "a file for each of the last commands: what became of it" },
		PRIVILEGED_COUNT },
};

#define N_ROWS (sizeof control_rows / sizeof *control_rows)

const struct node_row *control_node_row(size_t i)
{
	return i < N_ROWS ? &control_rows[i].row : NULL;
}

/* --- places ----------------------------------------------------------------------------------- */

struct spot {
	bool dir;
	const struct control_row *row; /* of control/; NULL for operations and the folder itself */
	struct control_operation op;   /* id 0: none */
	const char *node;              /* for the audit trail */
};

static const char *node_of(const struct control_row *r)
{
	static const char *const names[] = { "control/audit", "control/last_error",
		"control/operations" };

	if (r->command < PRIVILEGED_COUNT)
		return privileged_row(r->command)->node;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strcmp(strchr(names[i], '/') + 1, r->row.name) == 0)
			return names[i];
	return "control";
}

static bool row_exists(struct npufs *fs, const struct control_row *r)
{
	return !r->row.exists || r->row.exists(fs);
}

static int find_spot(struct npufs *fs, struct at at, struct spot *ret)
{
	*ret = (struct spot){ .dir = true, .node = "control" };
	if (at.object > OPERATIONS || (at.object == 0 && at.row >= ROW_FIRST + N_ROWS))
		return -ESTALE;
	if (at.object == OPERATIONS)
		ret->node = "control/operations";
	if (at.row == ROW_SELF)
		return 0;
	ret->dir = false;
	if (at.object == OPERATIONS)
		return control_look(fs->control, at.row - ROW_FIRST, &ret->op) ? 0 : -ESTALE;
	ret->row = &control_rows[at.row - ROW_FIRST];
	ret->node = node_of(ret->row);
	return row_exists(fs, ret->row) ? 0 : -ESTALE;
}

static struct owner owner_of(struct npufs *fs, const struct spot *p)
{
	return (struct owner){ .uid = fs->uid,
		.gid = fs->gid,
		.mode = p->dir   ? 0700
			: p->row ? p->row->row.mode
				 : 0400,
		.dir = p->dir };
}

/* Root's and the daemon's user's alone, by whatever way it was reached. */
static int check(struct npufs *fs, const struct cred *c, const struct spot *p, int want)
{
	const struct owner folder = { .uid = fs->uid, .gid = fs->gid, .mode = 0700, .dir = true };
	const struct owner own = owner_of(fs, p);
	int err = access_check(c, &folder, X_OK);

	if (!err && want & W_OK && !p->dir && (!p->row || p->row->command == PRIVILEGED_COUNT))
		return -EACCES; /* also root's: nothing takes it */
	return err ? err : access_check(c, &own, want);
}

static int decide(struct npufs *fs, const struct cred *c, const struct spot *p, int want,
	const char *what)
{
	int err = check(fs, c, p, want);

	control_note(fs->control, c, what, p->node, !err);
	return err;
}

static int render(struct npufs *fs, const struct spot *p, struct buf *out)
{
	int err = 0;

	if (p->row)
		err = p->row->row.show(fs, (uint64_t)p->row->command, out);
	else
		control_render(&p->op, out);
	return err ? err : buf_error(out);
}

/* --- attributes and opening ------------------------------------------------------------------- */

static void fill_stat(struct npufs *fs, struct at at, const struct spot *p, struct stat *ret)
{
	const struct owner o = owner_of(fs, p);

	*ret = (struct stat){ .st_ino = at_ino(at),
		.st_mode = (p->dir ? S_IFDIR : S_IFREG) | o.mode,
		.st_nlink = p->dir ? 2 : 1,
		.st_uid = o.uid,
		.st_gid = o.gid,
		.st_blksize = 4096,
		.st_mtim = clock_timespec(p->op.id ? p->op.asked : fs->started) };
	ret->st_ctim = ret->st_atim = ret->st_mtim;
}

static int control_getattr(struct npufs *fs, const struct cred *c, struct at at, struct stat *ret,
	double *ret_seconds)
{
	struct spot p;
	int err = find_spot(fs, at, &p);

	(void)c, (void)ret_seconds; /* finding the name was what needed permission; not cached */
	if (!err)
		fill_stat(fs, at, &p, ret);
	return err;
}

/* The shell's > asks for length 0 before it writes. */
static int control_setattr(struct npufs *fs, const struct cred *c, struct at at,
	struct handle *open, const struct stat *values, int set, struct stat *ret)
{
	struct spot p;
	int err = find_spot(fs, at, &p);

	(void)open;
	if (!err)
		err = decide(fs, c, &p, W_OK, "setattr");
	if (!err &&
		(set &
			~(FUSE_SET_ATTR_SIZE | FUSE_SET_ATTR_CTIME | FUSE_SET_ATTR_MTIME |
				FUSE_SET_ATTR_MTIME_NOW)))
		err = -EPERM;
	if (!err && set & FUSE_SET_ATTR_SIZE && values->st_size)
		err = -EINVAL;
	if (!err)
		fill_stat(fs, at, &p, ret);
	return err;
}

static int control_access(struct npufs *fs, const struct cred *c, struct at at, int want)
{
	struct spot p;
	int err = find_spot(fs, at, &p);

	return err ? err : decide(fs, c, &p, want, "access");
}

static int control_open(struct npufs *fs, const struct cred *c, struct at at,
	struct fuse_file_info *fi, struct handle **ret)
{
	static const int wants[] = { [O_RDONLY] = R_OK, [O_WRONLY] = W_OK, [O_RDWR] = R_OK | W_OK };
	AUTO_BUF struct buf text = BUF_INIT;
	struct spot p;
	int err = find_spot(fs, at, &p);

	if (!err && (fi->flags & O_ACCMODE) == O_ACCMODE)
		err = -EINVAL;
	if (!err)
		err = decide(fs, c, &p, wants[fi->flags & O_ACCMODE], "open");
	if (!err && p.dir)
		err = -EISDIR;
	if (!err)
		err = render(fs, &p, &text);
	if (err)
		return err;
	fi->direct_io = true;
	*ret = p.row && p.row->command < PRIVILEGED_COUNT ? order_handle_new(p.row->command, &text)
							  : text_handle_new(&text);
	return *ret ? 0 : -ENOMEM;
}

/* --- names ------------------------------------------------------------------------------------ */

static int find_name(struct npufs *fs, struct at dir, const char *name, struct at *ret)
{
	struct control_operation op;
	uint64_t id = 0;

	if (dir.object == OPERATIONS) {
		for (const char *p = name; *p >= '0' && *p <= '9' && p - name < 9; p++)
			id = id * 10 + (uint64_t)(*p - '0');
		*ret = (struct at){ AREA_CONTROL, OPERATIONS, ROW_FIRST + (unsigned)id };
		char same[ID_NAME_SIZE];

		snprintf(same, sizeof same, "%llu", (unsigned long long)id);
		return strcmp(same, name) == 0 && control_look(fs->control, id, &op) ? 0 : -ENOENT;
	}
	for (unsigned k = 0; k < N_ROWS; k++) {
		const struct control_row *r = &control_rows[k];

		if (strcmp(r->row.name, name) != 0 || !row_exists(fs, r))
			continue;
		*ret = r->row.area == AREA_CONTROL
			? (struct at){ AREA_CONTROL, OPERATIONS, ROW_SELF }
			: (struct at){ AREA_CONTROL, 0, ROW_FIRST + k };
		return 0;
	}
	return -ENOENT;
}

/* Only a look that is refused is noted: what comes after an allowed one is. */
static int control_lookup(struct npufs *fs, const struct cred *c, struct at dir, const char *name,
	struct fuse_entry_param *ret)
{
	struct spot p;
	struct at found;
	int err = find_spot(fs, dir, &p);

	if (!err && check(fs, c, &p, X_OK))
		err = decide(fs, c, &p, X_OK, "lookup");
	if (!err)
		err = find_name(fs, dir, name, &found);
	if (err)
		return err;
	ret->ino = at_ino(found);
	return control_getattr(fs, c, found, &ret->attr, &ret->attr_timeout);
}

static int control_may_list(struct npufs *fs, const struct cred *c, struct at dir)
{
	struct spot p;
	int err = find_spot(fs, dir, &p);

	return err ? err : decide(fs, c, &p, R_OK, "list");
}

static int list_operations(struct npufs *fs, uint64_t from, struct listing *l)
{
	struct control_operation op = { .id = from };
	char name[ID_NAME_SIZE];

	while (control_next(fs->control, op.id, &op)) {
		snprintf(name, sizeof name, "%llu", (unsigned long long)op.id);
		if (!l->add(l, name,
			    (struct at){ AREA_CONTROL, OPERATIONS, ROW_FIRST + (unsigned)op.id },
			    false, op.id))
			break;
	}
	return 0;
}

static int control_list(struct npufs *fs, struct at dir, uint64_t from, struct listing *l)
{
	if (dir.object == OPERATIONS)
		return list_operations(fs, from, l);
	for (unsigned k = (unsigned)from; k < N_ROWS; k++) {
		const struct node_row *r = &control_rows[k].row;
		bool folder = r->area == AREA_CONTROL;
		struct at at = { AREA_CONTROL, folder ? OPERATIONS : 0,
			folder ? ROW_SELF : ROW_FIRST + k };

		if (row_exists(fs, &control_rows[k]) && !l->add(l, r->name, at, folder, k + 1))
			break;
	}
	return 0;
}

/* Everything that would change the folder is an attempt too. */
static int refuse(struct npufs *fs, const struct cred *c, struct at dir, const char *what)
{
	struct spot p;
	int err = find_spot(fs, dir, &p);

	if (err)
		return err;
	control_note(fs->control, c, what, p.node, false);
	return check(fs, c, &p, X_OK) ? -EACCES : -EPERM;
}

static int control_unlink(struct npufs *fs, const struct cred *c, struct at dir, const char *name)
{
	(void)name;
	return refuse(fs, c, dir, "unlink");
}

static int control_rmdir(struct npufs *fs, const struct cred *c, struct at dir, const char *name)
{
	(void)name;
	return refuse(fs, c, dir, "rmdir");
}

static int control_mkdir(struct npufs *fs, const struct cred *c, struct at dir, const char *name,
	mode_t mode, struct fuse_entry_param *ret)
{
	(void)name, (void)mode, (void)ret;
	return refuse(fs, c, dir, "mkdir");
}

static int control_create(struct npufs *fs, const struct cred *c, struct at dir, const char *name,
	mode_t mode, struct fuse_file_info *fi, struct fuse_entry_param *ret_entry,
	struct handle **ret)
{
	(void)name, (void)mode, (void)fi, (void)ret_entry, (void)ret;
	return refuse(fs, c, dir, "create");
}

static int control_rename(struct npufs *fs, const struct cred *c, struct at from_dir,
	const char *from, struct at to_dir, const char *to, bool no_replace, uint64_t *ret_sync)
{
	(void)from, (void)to_dir, (void)to, (void)no_replace, (void)ret_sync;
	return refuse(fs, c, from_dir, "rename");
}

const struct area_ops area_control = {
	.lookup = control_lookup,
	.getattr = control_getattr,
	.setattr = control_setattr,
	.access = control_access,
	.open = control_open,
	.create = control_create,
	.mkdir = control_mkdir,
	.unlink = control_unlink,
	.rmdir = control_rmdir,
	.rename = control_rename,
	.may_list = control_may_list,
	.list = control_list,
};
