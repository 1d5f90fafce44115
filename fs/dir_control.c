/* control/: the privileged plane as files. Each row is for the roles that it names (core/control/roles.h), a
 * command's for those of its own row in the gate, which asks again; what has no role is root's and the
 * daemon's user's alone. Modes tell it as far as modes can: a group that may is the group of the node.
 * They cannot tell that a tracer, too, may search control/ itself: for trace/, and for no other name.
 *
 * Numbers: an object is one of the folders, its row ROW_SELF the folder itself; of a folder of rows
 * ROW_FIRST + k is the k-th row of the table (fs/control_rows.c), of operations/ and approvals/ ROW_FIRST +
 * the number of what is asked about. Nothing of it is cached by the kernel, every look at it is decided
 * here, and noted for the audit trail whatever was decided. */
#include "fs/control_rows.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/control/control.h"
#include "core/control/roles.h"

#define ID_NAME_SIZE 24

/* --- places ----------------------------------------------------------------------------------- */

struct spot {
	const struct control_row *row;   /* NULL: a folder, an operation or an approval */
	struct control_operation op;     /* id 0: none */
	char approval[APPROVAL_ID_SIZE]; /* "": none */
	bool dir;
	const char *node;          /* for the audit trail */
	unsigned roles, searchers; /* whose it is; who else may look names up in it */
};

static bool row_exists(struct npufs *fs, const struct control_row *r)
{
	return !r->row.exists || r->row.exists(fs);
}

/* By its id, or where that is NULL by its number. */
static bool find_approval(struct npufs *fs, uint64_t number, const char *id,
	struct approvals_item *ret)
{
	struct approvals *a = control_approvals(fs->control);
	struct approvals_item all[APPROVALS_PENDING_MAX];
	size_t n = a ? approvals_list(a, all) : 0;

	for (size_t i = 0; i < n; i++)
		if (id ? strcmp(all[i].id, id) == 0 : all[i].number == number) {
			*ret = all[i];
			return true;
		}
	return false;
}

static int find_row(struct npufs *fs, struct at at, struct spot *ret)
{
	unsigned k = at.row - ROW_FIRST;

	if (k >= control_n_rows || control_rows[k].in != at.object ||
		!row_exists(fs, &control_rows[k]))
		return -ESTALE;
	ret->row = &control_rows[k];
	ret->node = ret->row->node ? ret->row->node : privileged_row(ret->row->command)->node;
	ret->roles = control_row_roles(ret->row);
	return 0;
}

static int find_spot(struct npufs *fs, struct at at, struct spot *ret)
{
	struct approvals_item item;

	*ret = (struct spot){ .dir = at.row == ROW_SELF };
	if (at.object >= FOLDER_COUNT || at.row < ROW_SELF)
		return -ESTALE;
	ret->node = control_folders[at.object].node;
	ret->roles = control_folders[at.object].roles;
	ret->searchers = ret->dir ? control_folders[at.object].searchers : 0;
	if (ret->dir)
		return 0;
	if (at.object == OPERATIONS)
		return control_look(fs->control, at.row - ROW_FIRST, &ret->op) ? 0 : -ESTALE;
	if (at.object != APPROVALS)
		return find_row(fs, at, ret);
	if (!find_approval(fs, at.row - ROW_FIRST, NULL, &item))
		return -ESTALE;
	memcpy(ret->approval, item.id, sizeof ret->approval);
	return 0;
}

static bool takes_orders(const struct spot *p)
{
	return p->approval[0] || (p->row && p->row->command < PRIVILEGED_COUNT);
}

static unsigned own_mode(const struct spot *p)
{
	if (p->dir)
		return 0700;
	return p->row ? p->row->row.mode : p->approval[0] ? 0600 : 0400;
}

/* The group of a node is the one whose role it is for; that group may what the owner may, but nobody
 * makes or removes what a folder has. */
static struct owner owner_of(struct npufs *fs, const struct spot *p)
{
	const unsigned mode = own_mode(p), shared = p->dir ? mode & ~0222u : mode;
	const struct {
		unsigned role;
		uint32_t group;
	} groups[] = { { ROLE_OPERATOR, fs->roles.operators }, { ROLE_TRACE, fs->roles.tracers } };
	struct owner o = { .uid = fs->uid, .gid = fs->gid, .mode = mode, .dir = p->dir };

	for (size_t i = 0; i < ARRAY_SIZE(groups); i++)
		if (p->roles & groups[i].role && groups[i].group != ROLES_NO_GROUP) {
			o.gid = groups[i].group;
			o.mode |= shared >> 3;
		}
	return o;
}

/* By whatever way it was reached, and whatever the kernel has of it. Also root may not write what takes
 * nothing. */
static int check(struct npufs *fs, const struct cred *c, const struct spot *p, int want)
{
	const unsigned mine = roles_of(&fs->roles, c), mode = own_mode(p);
	unsigned bits = 0;

	if (roles_allow(mine, ROLE_ROOT))
		bits = mode >> 6;
	else if (roles_allow(mine, p->roles))
		bits = (p->dir ? mode & ~0222u : mode) >> 6;
	else if (roles_allow(mine, p->searchers))
		bits = X_OK;
	return (unsigned)want & ~bits ? -EACCES : 0;
}

/* For the audit trail, whatever was decided. Returns err. */
static int noted(struct npufs *fs, const struct cred *c, const struct spot *p, const char *what,
	int err)
{
	control_note(fs->control, c, what, p->node,
		err == -EACCES     ? "unauthorised"
			: err != 0 ? "unchangeable"
				   : NULL);
	return err;
}

static int decide(struct npufs *fs, const struct cred *c, const struct spot *p, int want,
	const char *what)
{
	return noted(fs, c, p, what, check(fs, c, p, want));
}

static int render(struct npufs *fs, const struct spot *p, struct buf *out)
{
	struct fault f = FAULT_NONE;
	int err = 0;

	if (p->row && p->row->row.show)
		err = p->row->row.show(fs, (uint64_t)p->row->command, out);
	else if (p->approval[0])
		err = approvals_text(control_approvals(fs->control), p->approval, out, &f);
	else if (p->op.id)
		control_render(&p->op, out);
	return err ? err : buf_error(out);
}

static struct handle *handle_for(const struct spot *p, struct buf *text)
{
	struct control_order form = { .what = CONTROL_COMMAND };

	if (p->row && p->row->writes)
		return raw_handle_new(p->row->command, p->row->writes);
	if (p->row && p->row->render)
		return later_handle_new(p->row->render);
	if (!takes_orders(p))
		return text_handle_new(text);
	if (p->row)
		form.command = p->row->command;
	else
		form.what = CONTROL_APPROVE;
	memcpy(form.approval, p->approval, sizeof form.approval);
	return order_handle_new(&form, text);
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

/* The shell's > asks for length 0 before it writes. Nothing else is anybody's to set. */
#define SET_BY_WRITERS \
	(FUSE_SET_ATTR_SIZE | FUSE_SET_ATTR_CTIME | FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_MTIME_NOW)

static int control_setattr(struct npufs *fs, const struct cred *c, struct at at,
	struct handle *open, const struct stat *values, int set, struct stat *ret)
{
	struct spot p;
	int err = find_spot(fs, at, &p);

	(void)open;
	if (err)
		return err;
	err = check(fs, c, &p, W_OK);
	if (!err && set & ~SET_BY_WRITERS)
		err = -EPERM;
	if (!err && set & FUSE_SET_ATTR_SIZE && values->st_size)
		err = -EINVAL;
	if (!err)
		fill_stat(fs, at, &p, ret);
	return noted(fs, c, &p, "setattr", err);
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
	*ret = handle_for(&p, &text);
	return *ret ? 0 : -ENOMEM;
}

/* --- names ------------------------------------------------------------------------------------ */

static int find_operation(struct npufs *fs, const char *name, struct at *ret)
{
	struct control_operation op;
	char same[ID_NAME_SIZE];
	unsigned id = 0;

	for (const char *p = name; *p >= '0' && *p <= '9' && p - name < 9; p++)
		id = id * 10 + (unsigned)(*p - '0');
	*ret = (struct at){ AREA_CONTROL, OPERATIONS, ROW_FIRST + id };
	snprintf(same, sizeof same, "%u", id);
	return strcmp(same, name) == 0 && control_look(fs->control, id, &op) ? 0 : -ENOENT;
}

static struct at row_place(const struct control_row *r)
{
	return r->opens
		? (struct at){ AREA_CONTROL, r->opens, ROW_SELF }
		: (struct at){ AREA_CONTROL, r->in, ROW_FIRST + (unsigned)(r - control_rows) };
}

static struct at approval_place(const struct approvals_item *i)
{
	return (struct at){ AREA_CONTROL, APPROVALS, ROW_FIRST + (unsigned)i->number };
}

static int find_name(struct npufs *fs, struct at dir, const char *name, struct at *ret)
{
	struct approvals_item item;

	if (dir.object == OPERATIONS)
		return find_operation(fs, name, ret);
	if (dir.object == APPROVALS && find_approval(fs, 0, name, &item)) {
		*ret = approval_place(&item);
		return 0;
	}
	for (size_t k = 0; k < control_n_rows; k++) {
		const struct control_row *r = &control_rows[k];

		if (r->in != dir.object || strcmp(r->row.name, name) != 0 || !row_exists(fs, r))
			continue;
		*ret = row_place(r);
		return 0;
	}
	return -ENOENT;
}

/* Who may only search the folder finds what is for its own roles, and is not told whether there is more. */
static bool may_find(struct npufs *fs, const struct cred *c, const struct spot *dir,
	const struct at *found)
{
	struct spot p;

	if (!check(fs, c, dir, R_OK))
		return true;
	return found && !check(fs, c, dir, X_OK) && !find_spot(fs, *found, &p) &&
		roles_allow(roles_of(&fs->roles, c), p.roles);
}

/* Only a look that is refused is noted: what comes after an allowed one is. */
static int control_lookup(struct npufs *fs, const struct cred *c, struct at dir, const char *name,
	struct fuse_entry_param *ret)
{
	struct spot p;
	struct at found;
	int err = find_spot(fs, dir, &p);
	bool there;

	if (err)
		return err;
	there = !find_name(fs, dir, name, &found);
	if (!may_find(fs, c, &p, there ? &found : NULL))
		return noted(fs, c, &p, "lookup", -EACCES);
	if (!there)
		return -ENOENT;
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

static int list_approvals(struct npufs *fs, uint64_t from, struct listing *l)
{
	struct approvals *a = control_approvals(fs->control);
	struct approvals_item all[APPROVALS_PENDING_MAX];
	size_t n = a ? approvals_list(a, all) : 0;

	for (size_t i = 0; i < n; i++)
		if (all[i].number > from &&
			!l->add(l, all[i].id, approval_place(&all[i]), false, all[i].number))
			break;
	return 0;
}

static int list_rows(struct npufs *fs, struct at dir, uint64_t from, struct listing *l)
{
	for (size_t k = from; k < control_n_rows; k++) {
		const struct control_row *r = &control_rows[k];

		if (r->in == dir.object && row_exists(fs, r) &&
			!l->add(l, r->row.name, row_place(r), r->opens != CONTROL, k + 1))
			break;
	}
	return 0;
}

static int control_list(struct npufs *fs, struct at dir, uint64_t from, struct listing *l)
{
	if (dir.object == OPERATIONS)
		return list_operations(fs, from, l);
	return dir.object == APPROVALS ? list_approvals(fs, from, l) : list_rows(fs, dir, from, l);
}

/* Everything that would change a folder, or a node beyond writing to it, is an attempt too. */
static int control_refuse(struct npufs *fs, const struct cred *c, struct at at, const char *what)
{
	struct spot p;
	int err = find_spot(fs, at, &p);

	return err ? err : noted(fs, c, &p, what, check(fs, c, &p, R_OK) ? -EACCES : -EPERM);
}

/* Removing what waits for approval withdraws it. */
static void control_unlink(struct npufs *fs, fuse_req_t req, struct at dir, const char *name)
{
	struct control_order order = { .what = CONTROL_WITHDRAW };
	const struct cred c = fs_cred(req);
	struct approvals_item item;
	struct spot p;

	if (dir.object != APPROVALS || find_spot(fs, dir, &p) || check(fs, &c, &p, X_OK) ||
		!find_approval(fs, 0, name, &item)) {
		fuse_reply_err(req, -control_refuse(fs, &c, dir, "unlink"));
		return;
	}
	memcpy(order.approval, item.id, sizeof order.approval);
	order_park(fs, req, &order);
}

const struct area_ops area_control = {
	.lookup = control_lookup,
	.getattr = control_getattr,
	.setattr = control_setattr,
	.access = control_access,
	.open = control_open,
	.refuse = control_refuse,
	.unlink_later = control_unlink,
	.may_list = control_may_list,
	.list = control_list,
};
