/* Folders made of tables of rows: the root, models/ and manifests/. Numbers: object 0 row ROW_SELF
 * is the area's own folder, object i + 1 is model i, and row ROW_FIRST + k is the k-th row of a
 * table. */
#include "fs/area.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"

#define ENTRY_NAME_SIZE 256
/* Folders of tables never go away; what is in them is asked about each time. */
#define FIXED_ENTRY_SECONDS 3600.0

/* What a number means here: a folder (row NULL) or a text. */
struct place {
	bool dir;
	const struct node_row *row;      /* of a text, or of a folder that is another area's */
	const struct node_row *children; /* of a folder of rows; NULL for one of objects */
};

static size_t object_count(struct npufs *fs, const struct fixed_area *a)
{
	return a->object_rows ? models_count(fs->models) : 0;
}

static const struct node_row *row_at(const struct node_row *rows, unsigned k)
{
	while (rows->name && k--)
		rows++;
	return rows->name ? rows : NULL;
}

static bool row_exists(struct npufs *fs, const struct node_row *row)
{
	return !row->exists || row->exists(fs);
}

static int text_place(struct npufs *fs, const struct node_row *rows, unsigned row,
	struct place *ret)
{
	const struct node_row *r = row < ROW_FIRST ? NULL : row_at(rows, row - ROW_FIRST);

	if (!r || !row_exists(fs, r))
		return -ESTALE;
	*ret = (struct place){ .row = r };
	return 0;
}

static int find_place(struct npufs *fs, struct at at, struct place *ret)
{
	const struct fixed_area *a = fixed_of(at.area);

	if (at.object > object_count(fs, a))
		return -ESTALE;
	if (at.object == 0 && at.row == ROW_SELF) {
		*ret = (struct place){ .dir = true, .children = a->rows };
		return 0;
	}
	if (at.object == 0)
		return a->rows ? text_place(fs, a->rows, at.row, ret) : -ESTALE;
	if (a->object_suffix || at.row != ROW_SELF)
		return text_place(fs, a->object_rows, at.row, ret);
	*ret = (struct place){ .dir = true, .children = a->object_rows };
	return 0;
}

/* --- attributes ------------------------------------------------------------------------------- */

static struct owner owner_of(struct npufs *fs, const struct place *p)
{
	return (struct owner){
		.uid = fs->uid,
		.gid = fs->gid,
		.mode = p->dir ? 0555 : p->row->mode,
		.dir = p->dir,
	};
}

static int render(struct npufs *fs, const struct node_row *row, uint64_t object, struct buf *out)
{
	int err = row->show(fs, object, out);

	return err ? err : buf_error(out);
}

static int size_of(struct npufs *fs, struct at at, const struct node_row *row, uint64_t *ret)
{
	AUTO_BUF struct buf text = BUF_INIT;
	int err = row->live ? 0 : render(fs, row, at.object, &text);

	*ret = text.len;
	return err;
}

static int fixed_getattr(struct npufs *fs, const struct cred *c, struct at at, struct stat *ret,
	double *ret_seconds)
{
	struct place p;
	struct owner o;
	uint64_t size = 0;
	int err = find_place(fs, at, &p);

	(void)ret_seconds;
	(void)c; /* every folder here may be searched by all */
	if (!err && !p.dir)
		err = size_of(fs, at, p.row, &size);
	if (err)
		return err;
	o = owner_of(fs, &p);
	*ret = (struct stat){
		.st_ino = at_ino(at),
		.st_mode = (p.dir ? S_IFDIR : S_IFREG) | o.mode,
		.st_nlink = p.dir ? 2 : 1,
		.st_uid = o.uid,
		.st_gid = o.gid,
	};
	ret->st_ctim = ret->st_atim =
		clock_timespec(fs->started); /* archivers complain when it moves */
	ret->st_mtim = !p.dir && p.row->live ? clock_timespec(clock_wall()) : ret->st_ctim;
	fs_stat_size(ret, size);
	return 0;
}

static int fixed_access(struct npufs *fs, const struct cred *c, struct at at, int want)
{
	struct place p;
	struct owner o;
	int err = find_place(fs, at, &p);

	if (err)
		return err;
	o = owner_of(fs, &p);
	return want & W_OK ? -EACCES : access_check(c, &o, want);
}

/* Mode bits alone would let root write: nothing here can be written. */
static int fixed_setattr(struct npufs *fs, const struct cred *c, struct at at, struct handle *open,
	const struct stat *values, int set, struct stat *ret)
{
	(void)fs, (void)c, (void)at, (void)open, (void)values, (void)ret;
	return set & FUSE_SET_ATTR_SIZE ? -EACCES : -EPERM;
}

/* --- names ------------------------------------------------------------------------------------ */

static void object_name(struct npufs *fs, const struct fixed_area *a, size_t i,
	char ret[ENTRY_NAME_SIZE])
{
	struct model_view v;

	models_get(fs->models, (int)i, &v);
	snprintf(ret, ENTRY_NAME_SIZE, "%s%s", v.alias, a->object_suffix ? a->object_suffix : "");
}

static struct at object_at(enum area area, const struct fixed_area *a, size_t i)
{
	return (struct at){ area, i + 1, a->object_suffix ? ROW_FIRST : ROW_SELF };
}

static struct at child_at(struct at dir, const struct node_row *row, unsigned k)
{
	if (row->area != AREA_ROOT)
		return at_area(row->area);
	return (struct at){ dir.area, dir.object, ROW_FIRST + k };
}

static int list_rows(struct npufs *fs, struct at dir, const struct node_row *rows, uint64_t from,
	struct listing *l)
{
	for (unsigned k = 0; rows[k].name; k++)
		if (k >= from && row_exists(fs, &rows[k]) &&
			!l->add(l, rows[k].name, child_at(dir, &rows[k], k),
				rows[k].area != AREA_ROOT, k + 1))
			break;
	return 0;
}

static int list_objects(struct npufs *fs, struct at dir, uint64_t from, struct listing *l)
{
	const struct fixed_area *a = fixed_of(dir.area);
	char name[ENTRY_NAME_SIZE];

	for (size_t i = from; i < object_count(fs, a); i++) {
		object_name(fs, a, i, name);
		if (!l->add(l, name, object_at(dir.area, a, i), !a->object_suffix, i + 1))
			break;
	}
	return 0;
}

static int fixed_list(struct npufs *fs, struct at dir, uint64_t from, struct listing *l)
{
	struct place p;
	int err = find_place(fs, dir, &p);

	if (err)
		return err;
	return p.children ? list_rows(fs, dir, p.children, from, l)
			  : list_objects(fs, dir, from, l);
}

struct search {
	struct listing base;
	const char *name;
	struct at found;
	bool ok, lasting;
};

static bool search_add(struct listing *l, const char *name, struct at at, bool dir, uint64_t next)
{
	struct search *s = (struct search *)l;

	(void)next;
	s->ok = strcmp(name, s->name) == 0;
	s->lasting = dir;
	s->found = at;
	return !s->ok;
}

static int fixed_lookup(struct npufs *fs, const struct cred *c, struct at dir, const char *name,
	struct fuse_entry_param *ret)
{
	struct search s = { .base.add = search_add, .name = name };
	int err = fixed_list(fs, dir, 0, &s.base);

	if (err || !s.ok)
		return err ? err : -ENOENT;
	ret->ino = at_ino(s.found);
	ret->entry_timeout = s.lasting ? FIXED_ENTRY_SECONDS : 0;
	return areas[s.found.area]->getattr(fs, c, s.found, &ret->attr, &ret->attr_timeout);
}

static int fixed_may_list(struct npufs *fs, const struct cred *c, struct at dir)
{
	return fixed_access(fs, c, dir, R_OK);
}

/* --- opening ---------------------------------------------------------------------------------- */

static int fixed_open(struct npufs *fs, const struct cred *c, struct at at,
	struct fuse_file_info *fi, struct handle **ret)
{
	AUTO_BUF struct buf text = BUF_INIT;
	struct place p;
	int err = find_place(fs, at, &p);

	if (!err && p.dir)
		err = -EISDIR;
	if (!err)
		err = fixed_access(fs, c, at, (fi->flags & O_ACCMODE) == O_RDONLY ? R_OK : W_OK);
	if (!err)
		err = render(fs, p.row, at.object, &text);
	if (err)
		return err;
	fi->direct_io = p.row->live;
	*ret = text_handle_new(&text);
	return *ret ? 0 : -ENOMEM;
}

const struct area_ops area_fixed = {
	.lookup = fixed_lookup,
	.getattr = fixed_getattr,
	.setattr = fixed_setattr,
	.access = fixed_access,
	.open = fixed_open,
	.may_list = fixed_may_list,
	.list = fixed_list,
};
