#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/jobdir_impl.h"

/* --- folders ---------------------------------------------------------------------------------- */

static int mkdir_locked(struct jobdir *d, const struct cred *c, uint64_t dir_id, const char *name,
	uint32_t mode, struct tree_node **ret)
{
	struct tree_node *dir;
	struct jobname what;
	int err = jobdir_dir(d, c, dir_id, 0, &dir);

	if (!err && tree_find(dir, name))
		err = -EEXIST;
	if (!err)
		err = access_check(c, &dir->owner, W_OK | X_OK);
	if (!err)
		err = jobdir_new_name(name, &what);
	if (!err && name_is_request(what.class))
		err = -EPERM;
	if (!err && tree_depth(dir) >= d->limits.depth)
		err = -EMLINK;
	if (!err && tree_count(d->tree) >= d->limits.files)
		err = -ENOSPC;
	if (err)
		return err;
	const struct owner o = {
		.uid = c->uid,
		.gid = dir->owner.mode & S_ISGID ? dir->owner.gid : c->gid,
		.mode = (mode & 01777) | (dir->owner.mode & S_ISGID),
		.dir = true,
	};
	*ret = tree_node_new(d->tree, &o);
	if (!*ret)
		return -ENOMEM;
	err = tree_link(d->tree, dir, *ret, name);
	if (err)
		tree_release(d->tree, *ret);
	return err;
}

int jobdir_mkdir(struct jobdir *d, const struct cred *c, uint64_t dir, const char *name,
	uint32_t mode, struct jobdir_attr *ret)
{
	struct tree_node *n;
	int err;

	lock_take(&d->lock);
	err = mkdir_locked(d, c, dir, name, mode, &n);
	if (!err) {
		jobdir_tell(n);
		jobdir_attr(d, n, ROW_REQUEST, ret);
	}
	lock_drop(&d->lock);
	return err;
}

static int rmdir_locked(struct jobdir *d, const struct cred *c, uint64_t dir_id, const char *name)
{
	struct tree_node *dir, *n;
	int err = jobdir_dir(d, c, dir_id, 0, &dir);

	if (err)
		return err;
	n = tree_find(dir, name);
	if (!n)
		return -ENOENT;
	err = access_remove(c, &dir->owner, n->owner.uid);
	if (err)
		return err;
	if (!n->dir)
		return -ENOTDIR;
	if (tree_dir_count(n))
		return -ENOTEMPTY;
	tree_unlink(d->tree, n);
	return 0;
}

int jobdir_rmdir(struct jobdir *d, const struct cred *c, uint64_t dir, const char *name)
{
	int err;

	lock_take(&d->lock);
	err = rmdir_locked(d, c, dir, name);
	lock_drop(&d->lock);
	return err;
}

/* --- removing --------------------------------------------------------------------------------- */

static int remove_result(struct tree_node *n, enum job_row row)
{
	if (!jobdir_has_row(n, row))
		return -ENOENT;
	n->removed |= 1u << row;
	return 0;
}

/* The caller lets the job go without the lock. */
static struct job *remove_file(struct jobdir *d, struct tree_node *n)
{
	struct job *j = jobdir_take_job(n);

	if (!n->opens)
		jobdir_drop_content(d, n);
	tree_unlink(d->tree, n);
	return j;
}

static int unlink_locked(struct jobdir *d, const struct cred *c, uint64_t dir_id, const char *name,
	struct job **ret_dropped)
{
	struct jobname what = jobname_class(name);
	struct tree_node *dir, *n;
	int err = jobdir_dir(d, c, dir_id, 0, &dir);

	if (err)
		return err;
	n = what.class == NAME_RESULT ? tree_find_stem(dir, name, what.stem_len)
				      : tree_find(dir, name);
	if (!n)
		return -ENOENT;
	err = access_remove(c, &dir->owner, n->owner.uid);
	if (err)
		return err;
	if (what.class == NAME_RESULT)
		return remove_result(n, what.row);
	if (n->dir)
		return -EISDIR;
	*ret_dropped = remove_file(d, n);
	return 0;
}

int jobdir_unlink(struct jobdir *d, const struct cred *c, uint64_t dir, const char *name)
{
	struct job *dropped = NULL;
	int err;

	lock_take(&d->lock);
	err = unlink_locked(d, c, dir, name, &dropped);
	lock_drop(&d->lock);
	jobdir_drop_job(d, dropped);
	return err;
}

/* --- renaming --------------------------------------------------------------------------------- */

struct move {
	struct tree_node *from_dir, *to_dir, *node, *target;
	const char *name; /* the new one */
	struct jobname what;
};

static int move_folder_check(struct jobdir *d, const struct cred *c, const struct move *m)
{
	if (name_is_request(m->what.class))
		return -EPERM;
	if (tree_is_under(m->to_dir, m->node))
		return -EINVAL;
	if (tree_depth(m->to_dir) + 1 + tree_height(m->node) > d->limits.depth)
		return -EMLINK;
	if (m->from_dir != m->to_dir)
		return access_check(c, &m->node->owner, W_OK);
	return 0;
}

static int replace_check(const struct cred *c, const struct move *m)
{
	int err = access_remove(c, &m->to_dir->owner, m->target->owner.uid);

	if (err)
		return err;
	if (m->node->dir && !m->target->dir)
		return -ENOTDIR;
	if (!m->node->dir && m->target->dir)
		return -EISDIR;
	if (m->target->dir)
		return tree_dir_count(m->target) ? -ENOTEMPTY : 0;
	if (name_is_request(m->what.class) && m->target->writers)
		return -EBUSY;
	return jobdir_idle(m->target);
}

static int stem_check(struct jobdir *d, const struct move *m)
{
	struct tree_node *same;

	if (!name_is_request(m->what.class))
		return 0;
	same = tree_find_stem(m->to_dir, m->name, m->what.stem_len);
	if (same && same != m->node && same != m->target)
		return -EEXIST;
	if (name_is_request(m->node->what.class))
		return 0;
	return engine_admit(d->engine, m->node->owner.uid, NULL);
}

static int find_move(struct jobdir *d, const struct cred *c, uint64_t from_dir, const char *from,
	uint64_t to_dir, struct move *m)
{
	int err = jobdir_dir(d, c, from_dir, 0, &m->from_dir);

	if (!err)
		err = jobdir_dir(d, c, to_dir, 0, &m->to_dir);
	if (err)
		return err;
	if (jobname_class(from).class == NAME_RESULT)
		return -EPERM;
	m->node = tree_find(m->from_dir, from);
	if (!m->node)
		return -ENOENT;
	m->target = tree_find(m->to_dir, m->name);
	return jobdir_new_name(m->name, &m->what);
}

static int move_check(struct jobdir *d, const struct cred *c, const struct move *m, bool no_replace)
{
	int err = access_remove(c, &m->from_dir->owner, m->node->owner.uid);

	if (!err)
		err = access_check(c, &m->to_dir->owner, W_OK | X_OK);
	if (!err && m->target && no_replace)
		err = -EEXIST;
	if (!err && m->node->dir)
		err = move_folder_check(d, c, m);
	if (!err && m->target)
		err = replace_check(c, m);
	return err ? err : stem_check(d, m);
}

/* A request that keeps its kind keeps its run, wherever it goes. Any other file that becomes a
 * request starts a run; one that ceases to be a request loses it. A run that waits for its first
 * bytes under the new name is taken over, so that its readers get what they wait for. */
static int settle_run(struct tree_node *n, enum name_class was, struct job *waiting,
	struct job **ret_dropped)
{
	if (n->what.class == was)
		return 0;
	*ret_dropped = jobdir_take_job(n);
	if (waiting && job_uid(waiting) == n->owner.uid)
		n->job = job_get(waiting);
	verdict_free(n->verdict);
	n->verdict = NULL;
	return jobdir_fresh_run(n);
}

static int move_locked(struct jobdir *d, const struct move *m, struct job *ret_dropped[2],
	struct submission *ret_submit)
{
	enum name_class was = m->node->what.class;
	struct job *waiting = NULL;
	int err;

	if (m->target && m->target->dir) {
		tree_unlink(d->tree, m->target);
	} else if (m->target) {
		bool same = m->target->what.class == m->what.class;

		ret_dropped[0] = remove_file(d, m->target);
		if (same && ret_dropped[0] && job_state(ret_dropped[0]) == JOB_WRITING)
			waiting = ret_dropped[0];
	}
	err = tree_move(d->tree, m->node, m->to_dir, m->name);
	if (!err)
		err = settle_run(m->node, was, waiting, &ret_dropped[1]);
	if (waiting && m->node->job == waiting) {
		job_put(waiting);
		ret_dropped[0] = NULL;
	}
	if (err || m->node->what.class == was)
		return err;
	m->node->dirty = true;
	if (m->node->job && !m->node->writers)
		*ret_submit = jobdir_prepare(m->node, NULL);
	return 0;
}

int jobdir_rename(struct jobdir *d, const struct cred *c, uint64_t from_dir, const char *from,
	uint64_t to_dir, const char *to, bool no_replace)
{
	struct job *dropped[2] = { NULL, NULL };
	struct submission s = { 0 };
	struct move m = { .name = to };
	int err;

	lock_take(&d->lock);
	err = find_move(d, c, from_dir, from, to_dir, &m);
	if (!err)
		err = move_check(d, c, &m, no_replace);
	if (!err && m.node != m.target)
		err = move_locked(d, &m, dropped, &s);
	lock_drop(&d->lock);
	jobdir_drop_job(d, dropped[0]);
	jobdir_drop_job(d, dropped[1]);
	jobdir_submit(d, &s);
	return err;
}

/* --- attributes ------------------------------------------------------------------------------- */

/* Who may write may set both times to now; any other time is the owner's to give. */
static bool times_are_now(const struct jobdir_change *ch)
{
	unsigned now = JOBDIR_SET_ATIME_NOW | JOBDIR_SET_MTIME_NOW;

	return (ch->set & now) == now;
}

static int may_change(struct tree_node *n, const struct cred *c, const struct jobdir_file *open,
	const struct jobdir_change *ch)
{
	unsigned times = ch->set & (JOBDIR_SET_ATIME | JOBDIR_SET_MTIME);
	uint32_t uid = ch->set & JOBDIR_SET_UID ? ch->uid : n->owner.uid;
	uint32_t gid = ch->set & JOBDIR_SET_GID ? ch->gid : n->owner.gid;
	unsigned of_owner = JOBDIR_SET_MODE | JOBDIR_SET_UID | JOBDIR_SET_GID;
	int err =
		!n->parent && n->dir && (ch->set & of_owner) ? -EPERM : 0; /* jobs/ itself stays */

	if (!err && (ch->set & JOBDIR_SET_MODE))
		err = access_owner(c, &n->owner);
	if (!err && (ch->set & (JOBDIR_SET_UID | JOBDIR_SET_GID)))
		err = access_chown(c, &n->owner, uid, gid);
	if (!err && times && access_owner(c, &n->owner))
		err = times_are_now(ch) ? access_check(c, &n->owner, W_OK) : -EPERM;
	if (!err && (ch->set & JOBDIR_SET_SIZE) && !(open && open->writes))
		err = access_check(c, &n->owner, W_OK);
	return err;
}

static int change_size(struct jobdir *d, struct tree_node *n, struct jobdir_file *open,
	uint64_t size)
{
	bool own = open && open->writes;
	uint64_t before;
	int err;

	if (n->dir)
		return -EISDIR;
	before = spool_file_size(n->data);
	err = jobdir_idle(n);
	if (!err && !own && n->writers && name_is_request(n->what.class))
		err = -EBUSY;
	if (!err)
		err = jobdir_room(d, n, size);
	if (!err)
		err = jobdir_fresh_run(n);
	if (!err)
		err = spool_file_truncate(n->data, size);
	jobdir_account(d, n, before);
	if (err)
		return err;
	if (n->verdict)
		verdict_reset(n->verdict);
	if (size == 0)
		n->cut = 0;
	if (own) {
		open->judged = false;
		n->dirty = true;
	}
	n->mtime = clock_wall();
	return 0;
}

/* Files keep permission bits only. Whoever is not in a folder's group cannot have it inherited. */
static uint32_t mode_kept(const struct cred *c, const struct owner *o, uint32_t mode)
{
	if (!o->dir)
		return mode & 0777;
	if ((mode & S_ISGID) && c->uid != 0 && !cred_in_group(c, o->gid))
		mode &= ~(uint32_t)S_ISGID;
	return mode & 03777;
}

static int setattr_locked(struct jobdir *d, const struct cred *c, struct tree_node *n,
	struct jobdir_file *open, const struct jobdir_change *ch)
{
	int64_t now = clock_wall();
	int err = ch->set & JOBDIR_SET_SIZE ? change_size(d, n, open, ch->size) : 0;

	if (err)
		return err;
	if (ch->set & JOBDIR_SET_MODE)
		n->owner.mode = mode_kept(c, &n->owner, ch->mode);
	if (ch->set & JOBDIR_SET_UID)
		n->owner.uid = ch->uid;
	if (ch->set & JOBDIR_SET_GID)
		n->owner.gid = ch->gid;
	if (ch->set & JOBDIR_SET_ATIME)
		n->atime = ch->set & JOBDIR_SET_ATIME_NOW ? now : ch->atime;
	if (ch->set & JOBDIR_SET_MTIME)
		n->mtime = ch->set & JOBDIR_SET_MTIME_NOW ? now : ch->mtime;
	n->ctime = now;
	return 0;
}

int jobdir_setattr(struct jobdir *d, const struct cred *c, struct jobdir_ref ref,
	struct jobdir_file *open, const struct jobdir_change *change, struct jobdir_attr *ret)
{
	struct tree_node *n;
	int err;

	lock_take(&d->lock);
	n = tree_by_id(d->tree, ref.id);
	err = n ? 0 : -ESTALE;
	if (!err && !open) /* by name; an open file is at hand wherever it lies */
		err = jobdir_search(c, n->parent);
	if (!err && ref.row != ROW_REQUEST)
		err = change->set & JOBDIR_SET_SIZE ? -EACCES : -EPERM;
	if (!err)
		err = may_change(n, c, open, change);
	if (!err)
		err = setattr_locked(d, c, n, open, change);
	if (!err)
		jobdir_attr(d, n, ref.row, ret);
	lock_drop(&d->lock);
	return err;
}
