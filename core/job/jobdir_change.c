#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/job/jobdir_impl.h"

/* --- folders ---------------------------------------------------------------------------------- */

static int link_folder(struct jobdir *d, struct tree_node *dir, const struct owner *o,
	const char *name, struct tree_node **ret)
{
	struct spool_file *file;
	struct tree_node *n = NULL;
	int err = spool_create(d->spool, &file);

	if (err)
		return err;
	n = tree_node_new(d->tree, spool_file_id(file), o);
	err = n ? tree_link(d->tree, dir, n, name) : -ENOMEM;
	if (!err)
		err = jobdir_keep(d, n);
	if (err)
		spool_remove(d->spool, spool_file_id(file));
	spool_file_put(file);
	if (err && n && n->parent)
		tree_unlink(d->tree, n);
	else if (err && n)
		tree_release(d->tree, n);
	if (err)
		return err;
	jobdir_account(d, n, 1);
	*ret = n;
	return 0;
}

static int make_folder(struct jobdir *d, const struct cred *c, uint64_t dir_id, const char *name,
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
	if (!err)
		err = jobdir_file_room(d, c->uid);
	if (err)
		return err;
	const struct owner o = {
		.uid = c->uid,
		.gid = dir->owner.mode & S_ISGID ? dir->owner.gid : c->gid,
		.mode = (mode & 01777) | (dir->owner.mode & S_ISGID),
		.dir = true,
	};
	return link_folder(d, dir, &o, name, ret);
}

int jobdir_mkdir(struct jobdir *d, const struct cred *c, uint64_t dir, const char *name,
	uint32_t mode, struct jobdir_attr *ret)
{
	struct tree_node *n;
	int err;

	err = make_folder(d, c, dir, name, mode, &n);
	if (err)
		return err;
	jobdir_tell(n);
	return jobdir_attr(d, n, ROW_REQUEST, ret);
}

int jobdir_rmdir(struct jobdir *d, const struct cred *c, uint64_t dir_id, const char *name)
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
	err = spool_remove(d->spool, n->id);
	if (err)
		return err;
	jobdir_account(d, n, -1);
	tree_unlink(d->tree, n);
	return 0;
}

/* --- removing --------------------------------------------------------------------------------- */

static int remove_result(struct jobdir *d, struct tree_node *n, enum job_row row)
{
	int err;

	if (!jobdir_has_row(n, row))
		return -ENOENT;
	n->removed |= (uint8_t)(1u << row);
	err = jobdir_keep(d, n);
	if (err)
		n->removed &= (uint8_t) ~(1u << row);
	return err;
}

/* Out of the tree, the spool does not have it any more. An open file counts until it is closed. */
static void remove_node(struct jobdir *d, struct tree_node *n)
{
	struct job *j;

	if (!n->opens)
		jobdir_account(d, n, -1);
	else
		usage_add(&d->usage, n->owner.uid, 0, -(int64_t)n->result_size);
	j = jobdir_take_job(n);
	tree_unlink(d->tree, n);
	jobdir_drop_job(d, j);
}

int jobdir_unlink(struct jobdir *d, const struct cred *c, uint64_t dir_id, const char *name)
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
		return remove_result(d, n, what.row);
	if (n->dir)
		return -EISDIR;
	err = spool_remove(d->spool, n->id);
	if (!err)
		remove_node(d, n);
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
 * request starts a run; one that ceases to be a request loses it. */
static int settle_run(struct jobdir *d, struct tree_node *n, struct job **ret_dropped)
{
	usage_add(&d->usage, n->owner.uid, 0, -(int64_t)n->result_size);
	*ret_dropped = jobdir_take_job(n);
	verdict_free(n->verdict);
	n->verdict = NULL;
	return name_is_request(n->what.class) ? jobdir_new_run(d, n) : 0;
}

/* A run of the replaced file that waits for its first bytes is taken over, so that its readers get
 * what they wait for. */
static struct job *take_waiting(const struct move *m)
{
	struct tree_node *t = m->target;
	struct job *j;

	if (!t || t->dir || t->what.class != m->what.class || !t->job ||
		m->node->what.class == m->what.class || t->owner.uid != m->node->owner.uid ||
		job_state(t->job) != JOB_WRITING)
		return NULL;
	j = t->job;
	t->job = NULL;
	return j;
}

static void take_over(struct tree_node *n, struct job *waiting)
{
	job_put(n->job);
	n->job = waiting;
	n->job_id = job_id(waiting);
	job_move_file(waiting, n->id);
}

/* What a run left behind the content is nobody's: not a part of it, nor of what the next run finds. */
static int cut_results(struct jobdir *d, const struct tree_node *n)
{
	struct spool_file *file;
	int err = jobdir_spool_file(d, n, &file);

	if (err)
		return err;
	err = spool_truncate(file, n->size);
	spool_file_put(file);
	return err;
}

/* The spool says the new name first; of two files with one name the later one counts at a start. */
static int keep_move(struct jobdir *d, const struct move *m)
{
	struct spool_file *file;
	struct record_node r;
	int err = jobdir_spool_file(d, m->node, &file);

	if (err)
		return err;
	jobdir_record(m->node, &r);
	r.folder = m->to_dir->id;
	strcpy(r.name, m->name);
	r.ctime = clock_wall();
	if (m->node->what.class != m->what.class)
		r.job = 0;
	err = spool_put_node(file, &r);
	spool_file_put(file);
	if (!err && m->target)
		err = spool_remove(d->spool, m->target->id);
	return err;
}

/* A file that becomes one of another kind: what its run stores would land in that. */
static int keep_move_alone(struct jobdir *d, const struct move *m)
{
	struct job *j = m->node->what.class != m->what.class ? m->node->job : NULL;
	int err = j ? job_stop_storing(j) : 0;

	if (err)
		return err;
	err = keep_move(d, m);
	if (err && j)
		job_go_on_storing(j);
	return err;
}

static int move(struct jobdir *d, const struct move *m, uint64_t *ret_sync)
{
	enum name_class was = m->node->what.class;
	char *name = tree_reserve(m->to_dir, m->name);
	struct job *dropped = NULL, *waiting;
	int err = name ? keep_move_alone(d, m) : -ENOMEM;

	if (err) {
		free(name);
		jobdir_keep(d, m->node); /* as it was */
		return err;
	}
	waiting = take_waiting(m);
	if (m->target)
		remove_node(d, m->target);
	tree_move(m->node, m->to_dir, name);
	if (m->node->what.class == was)
		return 0;
	err = settle_run(d, m->node, &dropped);
	jobdir_drop_job(d, dropped);
	if (waiting) {
		take_over(m->node, waiting);
		err = 0;
	}
	if (!err && name_is_request(was))
		err = cut_results(d, m->node);
	if (!err)
		err = jobdir_keep(d, m->node);
	m->node->dirty = true;
	if (!err && m->node->job && !m->node->writers)
		jobdir_submit(d, m->node, NULL);
	if (!err && d->limits.durable && m->node->taken)
		*ret_sync = m->node->id;
	return err;
}

int jobdir_rename(struct jobdir *d, const struct cred *c, uint64_t from_dir, const char *from,
	uint64_t to_dir, const char *to, bool no_replace, uint64_t *ret_sync)
{
	struct move m = { .name = to };
	int err = find_move(d, c, from_dir, from, to_dir, &m);

	if (!err)
		err = move_check(d, c, &m, no_replace);
	*ret_sync = 0;
	return err || m.node == m.target ? err : move(d, &m, ret_sync);
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

static int set_size(struct jobdir *d, struct tree_node *n, uint64_t size)
{
	struct spool_file *file;
	int err = jobdir_spool_file(d, n, &file);

	if (!err) {
		err = spool_truncate(file, size);
		spool_file_put(file);
	}
	if (!err)
		jobdir_set_size(d, n, size);
	return err;
}

static int change_size(struct jobdir *d, struct tree_node *n, struct jobdir_file *open,
	uint64_t size)
{
	bool own = open && open->writes;
	int err;

	if (n->dir)
		return -EISDIR;
	err = jobdir_idle(n);
	if (!err && !own && n->writers && name_is_request(n->what.class))
		err = -EBUSY;
	if (!err)
		err = jobdir_room(d, n, size);
	if (!err)
		err = jobdir_fresh_run(d, n);
	if (!err)
		err = set_size(d, n, size);
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

static void change_rest(struct tree_node *n, const struct cred *c, const struct jobdir_change *ch)
{
	int64_t now = clock_wall();

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
}

static int change_node(struct jobdir *d, const struct cred *c, struct tree_node *n,
	struct jobdir_file *open, const struct jobdir_change *ch)
{
	const struct tree_node before = *n;
	int err = ch->set & JOBDIR_SET_SIZE ? change_size(d, n, open, ch->size) : 0;

	if (err)
		return err;
	jobdir_account(d, n, -1);
	change_rest(n, c, ch);
	err = ch->set & ~JOBDIR_SET_SIZE ? jobdir_keep(d, n) : 0;
	if (err) {
		n->owner = before.owner;
		n->atime = before.atime;
		n->mtime = before.mtime;
		n->ctime = before.ctime;
	}
	jobdir_account(d, n, 1);
	if (!err && n->job && job_state(n->job) == JOB_WRITING) /* who has the file has its run */
		job_set_uid(n->job, n->owner.uid);
	return err;
}

int jobdir_setattr(struct jobdir *d, const struct cred *c, struct jobdir_ref ref,
	struct jobdir_file *open, const struct jobdir_change *change, struct jobdir_attr *ret)
{
	struct tree_node *n;
	int err;

	n = tree_by_id(d->tree, ref.id);
	err = n ? 0 : -ESTALE;
	if (!err && !open) /* by name; an open file is at hand wherever it lies */
		err = jobdir_search(c, n->parent);
	if (!err && ref.row != ROW_REQUEST)
		err = change->set & JOBDIR_SET_SIZE ? -EACCES : -EPERM;
	if (!err)
		err = may_change(n, c, open, change);
	if (!err)
		err = change_node(d, c, n, open, change);
	return err ? err : jobdir_attr(d, n, ref.row, ret);
}
