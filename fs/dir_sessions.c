/* sessions/: a folder a session, in it the rows below. Numbers: object 0 row ROW_SELF is the folder
 * sessions/ itself, an object is a session's id, its folder is ROW_SELF and the k-th row is
 * ROW_FIRST + k. A session is its owner's alone; the files are made as they are opened. */
#include "fs/area.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/engine/sessions.h"

#define LENGTH_DIGITS 10

static struct sessions *table(struct npufs *fs)
{
	return engine_sessions(fs->engine);
}

/* --- what the files show ---------------------------------------------------------------------- */

static int length_show(struct npufs *fs, uint64_t id, struct buf *out)
{
	struct session_view s;

	if (!sessions_look(table(fs), id, &s))
		return -ESTALE;
	buf_printf(out, "%u\n", s.length);
	return 0;
}

/* One number; as many digits as a length can have. */
static int read_length(const char *words, uint64_t *ret)
{
	size_t n = strspn(words, "0123456789");

	if (n == 0 || n > LENGTH_DIGITS || words[n])
		return -EINVAL;
	*ret = strtoull(words, NULL, 10);
	return 0;
}

static int trim(struct npufs *fs, uint64_t id, const char *words,
	int (*how)(struct sessions *t, uint64_t id, uint64_t length))
{
	uint64_t length;
	int err = read_length(words, &length);

	if (!err)
		err = how(table(fs), id, length);
	if (err == -EOPNOTSUPP)
		log_info("a session cannot be made longer: its tail can be cut, nothing else");
	return err;
}

static int length_command(struct npufs *fs, const struct cred *c, uint64_t id, const char *words)
{
	(void)c; /* asked at open */
	return trim(fs, id, words, sessions_trim);
}

static int length_check(struct npufs *fs, const struct cred *c, uint64_t id, const char *words)
{
	(void)c;
	return trim(fs, id, words, sessions_check_trim);
}

/* Before the first answer the session is for any model, and most likely for the default one. */
static int limit_show(struct npufs *fs, uint64_t id, struct buf *out)
{
	int model = models_default(fs->models);
	struct session_view s;
	struct model_view v;

	if (!sessions_look(table(fs), id, &s))
		return -ESTALE;
	if (model >= 0)
		models_get(fs->models, model, &v);
	if (s.limit)
		buf_printf(out, "%u\n", s.limit);
	else if (model >= 0 && v.manifest && v.manifest->kind == MANIFEST_LLM)
		buf_printf(out, "%u\n", v.manifest->context_limit);
	return 0;
}

static int owner_show(struct npufs *fs, uint64_t id, struct buf *out)
{
	struct session_view s;

	if (!sessions_look(table(fs), id, &s))
		return -ESTALE;
	buf_printf(out, "uid: %u\ngid: %u\n", s.uid, s.gid);
	return 0;
}

static int model_show(struct npufs *fs, uint64_t id, struct buf *out)
{
	struct session_view s;

	if (!sessions_look(table(fs), id, &s))
		return -ESTALE;
	if (s.model >= 0)
		buf_printf(out, "%s\n", models_alias(fs->models, s.model));
	return 0;
}

/* The device has the KV of the generation that serves only. */
static bool is_kept(struct npufs *fs, const struct session_view *s)
{
	struct model_view v;

	if (!s->generation || s->model < 0)
		return false;
	models_get(fs->models, s->model, &v);
	return v.state == MODEL_READY && v.generation == s->generation;
}

static int state_show(struct npufs *fs, uint64_t id, struct buf *out)
{
	struct session_view s;

	if (!sessions_look(table(fs), id, &s))
		return -ESTALE;
	buf_printf(out, "%s\n", s.in_use ? "in use" : "idle");
	if (!s.in_use && s.length)
		buf_printf(out, "kv: %s\n", is_kept(fs, &s) ? "kept" : "evicted");
	return 0;
}

#define OWNERS(name_, show_, doc_) \
	{ \
		.name = name_, .mode = 0400, .show = show_, .doc = doc_ \
	}
const struct node_row session_rows[] = {
	CONTROL("length", 0600, length_show, length_command, length_check,
		"its tokens; a smaller number written here cuts the tail"),
	OWNERS("limit", limit_show, "tokens that it can have: the model's context"),
	OWNERS("owner", owner_show, "whose it is"),
	OWNERS("model", model_show, "the model; nothing before the first answer"),
	OWNERS("state", state_show, "idle or in use; is its KV kept on the device, or evicted"),
	ROWS_END
};

/* --- places ----------------------------------------------------------------------------------- */

/* What a number means: sessions/ itself (id 0), a session's folder (row NULL), or a file. */
struct spot {
	struct session_view s;
	const struct node_row *row;
};

#define ROW_COUNT_OF_SESSION (sizeof session_rows / sizeof *session_rows - 1)

static int find_spot(struct npufs *fs, struct at at, struct spot *ret)
{
	*ret = (struct spot){ .row = NULL };
	if (at.object == 0)
		return at.row == ROW_SELF ? 0 : -ESTALE;
	if (at.row < ROW_SELF || at.row >= ROW_FIRST + ROW_COUNT_OF_SESSION ||
		!sessions_look(table(fs), at.object, &ret->s))
		return -ESTALE;
	if (at.row != ROW_SELF)
		ret->row = &session_rows[at.row - ROW_FIRST];
	return 0;
}

static struct owner root_owner(struct npufs *fs)
{
	return (struct owner){ .uid = fs->uid, .gid = fs->gid, .mode = 01777, .dir = true };
}

static struct owner folder_owner(const struct session_view *s)
{
	return (struct owner){ .uid = s->uid, .gid = s->gid, .mode = 0700, .dir = true };
}

static struct owner owner_of(struct npufs *fs, const struct spot *p)
{
	if (!p->s.id)
		return root_owner(fs);
	if (!p->row)
		return folder_owner(&p->s);
	return (struct owner){ .uid = p->s.uid, .gid = p->s.gid, .mode = p->row->mode };
}

/* Search permission on the folder, and `want` on it or on what is in it. */
static int check_spot(struct npufs *fs, const struct cred *c, const struct spot *p, int want)
{
	const struct owner folder = folder_owner(&p->s), o = owner_of(fs, p);
	int err = p->row ? access_check(c, &folder, X_OK) : 0;

	if (!err && p->row && want & W_OK && !p->row->command)
		err = -EACCES; /* also root's: nothing takes it */
	return err ? err : access_check(c, &o, want);
}

static int render(struct npufs *fs, const struct spot *p, struct buf *out)
{
	int err = p->row->show(fs, p->s.id, out);

	return err ? err : buf_error(out);
}

static int sessions_getattr(struct npufs *fs, const struct cred *c, struct at at, struct stat *ret,
	double *ret_seconds)
{
	AUTO_BUF struct buf text = BUF_INIT;
	struct owner o;
	struct spot p;
	int err = find_spot(fs, at, &p);

	(void)c, (void)ret_seconds; /* finding the name was what needed permission */
	if (!err && p.row)
		err = render(fs, &p, &text);
	if (err)
		return err;
	o = owner_of(fs, &p);
	*ret = (struct stat){
		.st_ino = at_ino(at),
		.st_mode = (p.row ? S_IFREG : S_IFDIR) | o.mode,
		.st_nlink = p.row ? 1
			: p.s.id  ? 2
				  : 2 + sessions_count(table(fs)),
		.st_uid = o.uid,
		.st_gid = o.gid,
		.st_mtim = clock_timespec(p.s.id ? p.s.changed : fs->started),
	};
	ret->st_ctim = ret->st_atim = ret->st_mtim;
	fs_stat_size(ret, text.len);
	return 0;
}

/* The shell's > asks for length 0 before it writes. */
static int sessions_setattr(struct npufs *fs, const struct cred *c, struct at at,
	struct handle *open, const struct stat *values, int set, struct stat *ret)
{
	struct spot p;
	double seconds;
	int err = find_spot(fs, at, &p);

	(void)open;
	if (!err && !(set & FUSE_SET_ATTR_SIZE))
		err = -EPERM;
	if (!err)
		err = check_spot(fs, c, &p, W_OK);
	if (!err && values->st_size)
		err = -EINVAL;
	return err ? err : sessions_getattr(fs, c, at, ret, &seconds);
}

static int sessions_access(struct npufs *fs, const struct cred *c, struct at at, int want)
{
	struct spot p;
	int err = find_spot(fs, at, &p);

	return err ? err : check_spot(fs, c, &p, want);
}

static int sessions_open(struct npufs *fs, const struct cred *c, struct at at,
	struct fuse_file_info *fi, struct handle **ret)
{
	static const int wants[] = { [O_RDONLY] = R_OK, [O_WRONLY] = W_OK, [O_RDWR] = R_OK | W_OK };
	AUTO_BUF struct buf text = BUF_INIT;
	struct spot p;
	int err = find_spot(fs, at, &p);

	if (!err && !p.row)
		err = -EISDIR;
	if (!err && (fi->flags & O_ACCMODE) == O_ACCMODE)
		err = -EINVAL;
	if (!err)
		err = check_spot(fs, c, &p, wants[fi->flags & O_ACCMODE]);
	if (!err)
		err = render(fs, &p, &text);
	if (err)
		return err;
	fi->direct_io = true; /* it changes as the conversation goes on */
	*ret = command_handle_new(p.row, p.s.id, &text);
	return *ret ? 0 : -ENOMEM;
}

/* --- names ------------------------------------------------------------------------------------ */

static struct at session_at(const struct session_view *s)
{
	return (struct at){ AREA_SESSIONS, s->id, ROW_SELF };
}

static int find_row(struct at dir, const char *name, struct at *ret)
{
	unsigned k = 0;

	while (k < ROW_COUNT_OF_SESSION && strcmp(session_rows[k].name, name) != 0)
		k++;
	if (k == ROW_COUNT_OF_SESSION)
		return -ENOENT;
	*ret = (struct at){ AREA_SESSIONS, dir.object, ROW_FIRST + k };
	return 0;
}

static int sessions_lookup(struct npufs *fs, const struct cred *c, struct at dir, const char *name,
	struct fuse_entry_param *ret)
{
	struct session_view s;
	struct at found;
	int err = sessions_access(fs, c, dir, X_OK);

	if (err)
		return err;
	if (dir.object)
		err = find_row(dir, name, &found);
	else if (sessions_find(table(fs), name, &s))
		found = session_at(&s);
	else
		err = -ENOENT;
	if (err)
		return err;
	ret->ino = at_ino(found);
	return sessions_getattr(fs, c, found, &ret->attr, &ret->attr_timeout);
}

static int sessions_mkdir(struct npufs *fs, const struct cred *c, struct at dir, const char *name,
	mode_t mode, struct fuse_entry_param *ret)
{
	int err = dir.object ? -EOPNOTSUPP : sessions_make(table(fs), c->uid, c->gid, name);

	(void)mode; /* a session is its owner's alone */
	return err ? err : sessions_lookup(fs, c, dir, name, ret);
}

static int sessions_rmdir(struct npufs *fs, const struct cred *c, struct at dir, const char *name)
{
	const struct owner root = root_owner(fs);
	struct session_view s;
	int err;

	if (dir.object)
		return -ENOTDIR;
	if (!sessions_find(table(fs), name, &s))
		return -ENOENT;
	err = access_remove(c, &root, s.uid);
	if (!err)
		err = sessions_remove(table(fs), s.id);
	if (!err)
		engine_wake(fs->engine);
	return err;
}

/* The files go with their session only. */
static int sessions_unlink(struct npufs *fs, const struct cred *c, struct at dir, const char *name)
{
	(void)fs, (void)c, (void)dir, (void)name;
	return -EPERM;
}

static int sessions_may_list(struct npufs *fs, const struct cred *c, struct at dir)
{
	return sessions_access(fs, c, dir, R_OK);
}

static int list_rows(struct at dir, uint64_t from, struct listing *l)
{
	for (unsigned k = (unsigned)from; k < ROW_COUNT_OF_SESSION; k++)
		if (!l->add(l, session_rows[k].name,
			    (struct at){ AREA_SESSIONS, dir.object, ROW_FIRST + k }, false, k + 1))
			break;
	return 0;
}

/* A place in the listing is the id of the session before it: it stays right when others go. */
static int sessions_list(struct npufs *fs, struct at dir, uint64_t from, struct listing *l)
{
	struct session_view s = { .id = from };
	struct spot p;
	int err = find_spot(fs, dir, &p);

	if (err || p.s.id)
		return err ? err : list_rows(dir, from, l);
	while (sessions_next(table(fs), s.id, &s) && l->add(l, s.name, session_at(&s), true, s.id))
		;
	return 0;
}

const struct area_ops area_sessions = {
	.lookup = sessions_lookup,
	.getattr = sessions_getattr,
	.setattr = sessions_setattr,
	.access = sessions_access,
	.open = sessions_open,
	.mkdir = sessions_mkdir,
	.unlink = sessions_unlink,
	.rmdir = sessions_rmdir,
	.may_list = sessions_may_list,
	.list = sessions_list,
	.refusal = -EOPNOTSUPP, /* sessions are neither renamed nor copied; no file is made here */
};
