/* One writer at a time, which a flag says and not a lock: nothing is held while the disk works.
 *
 *   state      fd, size        what the next write does first
 *   none       -1              make the first file
 *   sound      >= 0, whole     nothing; or make the next file, when this one is full
 *   torn       -1, torn[0]     make the next file: the last one keeps its torn end
 *   unsure     any             examine the end of the chain again, as at open
 *
 * A file that is no longer the one in the folder makes it unsure; a folder that is no longer the one in
 * the store takes nothing until it is put back.
 *
 * Before the record that would be one too many since the last checkpoint comes the next. After a
 * record the head follows it. When that fails the record stands, since it is on the disk and chained,
 * and the head with it once a later one can be written: it never says more than there is.
 *
 * A record that could not be written whole and synced is taken back by cutting the file to what it
 * was, and the state stays; unsure is where that failed too. An empty file that a failure left is
 * the next file, made already. */
#include "core/control/audit_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/files.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/spool/disk.h"

#define FILE_MODE 0600

struct audit {
	enum audit_trail trail; /* fixed */
	int store, dir;         /* fixed after open; the latter locked against other writers */
	struct lock lock;
	struct lock_cond idle;
	bool writing;      /* by lock */
	struct key *key;   /* fixed after open */
	bool open;         /* fixed after open */
	atomic_bool fails; /* the last command's record did not get in */
	/* The writer's. */
	bool unsure;
	bool entry_unsynced; /* the file is not yet known to be in the folder after a crash */
	int fd;
	uint32_t number; /* of the newest file; 0: none */
	uint64_t size;   /* of it, all whole records */
	size_t n_files;
	bool sealed;            /* there is a head, and it holds */
	uint64_t since;         /* records since the last checkpoint, or checkpoint_every */
	struct audit_line last; /* seq and hash of the last record; torn: what is torn after it */
};

void (*audit_mirror)(const char *line) = log_auth;

/* --- the end of the chain --------------------------------------------------------------------- */

static void forget_file(struct audit *a)
{
	files_close(&a->fd);
	a->fd = -1;
	a->number = 0;
	a->size = 0;
}

static int has_line(int dir, uint32_t number, bool *ret)
{
	AUTO_BUF struct buf bytes = BUF_INIT;
	int err = audit_file_load(dir, number, &bytes);

	if (!err)
		*ret = bytes.len && memchr(bytes.data, '\n', bytes.len);
	return err;
}

/* The newest file that has a record, or the oldest where none has. */
static int find_start(int dir, const struct audit_files *files, size_t *ret, struct fault *f)
{
	bool has = false;
	size_t i = files->n;
	int err = 0;

	while (!err && !has && i > 0)
		err = has_line(dir, files->numbers[--i], &has);
	*ret = i;
	return err ? audit_file_fault(f, err, files->numbers[i]) : 0;
}

/* The newest file, to be written on unless its end is torn. */
static int take_file(struct audit *a, uint32_t number)
{
	char name[AUDIT_FILE_SIZE], last = '\n';
	struct stat st;
	int err = 0;

	a->number = number;
	snprintf(name, sizeof name, AUDIT_FILE_NAME, number);
	a->fd = disk_open(a->dir, name, O_RDWR);
	if (a->fd < 0)
		return a->fd;
	if (fstat(a->fd, &st) < 0)
		return -errno;
	if (st.st_mode & (S_IRWXG | S_IRWXO))
		err = disk_chmod(a->fd, FILE_MODE);
	if (!err && st.st_size && disk_read(a->fd, &last, 1, (uint64_t)st.st_size - 1) != 1)
		err = -EIO;
	a->size = (uint64_t)st.st_size;
	if (err || last == '\n')
		return err;
	files_close(&a->fd);
	a->fd = -1;
	return 0;
}

/* Where no checkpoint is seen, and the walk began late, one is due. */
static uint64_t since_checkpoint(const struct audit_chain *c)
{
	uint64_t since = c->last - c->checkpoint, most = audit_kinds[c->trail].checkpoint_every;

	return (c->checkpoint || c->whole) && since < most ? since : most;
}

static int walk_files(struct audit *a, struct audit_chain *c, const struct audit_files *files,
	struct fault *f)
{
	size_t start = 0;
	int err = find_start(a->dir, files, &start, f);

	c->whole = start == 0;
	for (size_t i = start; !err && i < files->n; i++)
		err = audit_chain_file(c, a->dir, files->numbers[i], f);
	return err ? err : audit_chain_end(c, files->n ? files->numbers[files->n - 1] : 0, f);
}

static int walk_end(struct audit *a, const struct audit_files *files, struct fault *f)
{
	AUTO_CLEANUP(audit_chain_done) struct audit_chain c;
	int err;

	audit_chain_init(&c, a->trail, true);
	c.key = a->key;
	err = audit_head_read(a->dir, a->key, a->sealed, &c.mark, f);
	if (!err)
		err = walk_files(a, &c, files, f);
	if (!err && !a->sealed && c.checkpoint)
		err = audit_seal_broken(f,
			"it has checkpoints, and the daemon's public key is missing");
	if (err)
		return err;
	a->since = since_checkpoint(&c);
	a->last.seq = c.last;
	memcpy(a->last.hash, c.hash, sizeof a->last.hash);
	audit_chain_torn(&c, a->last.torn);
	return 0;
}

static int examine(struct audit *a, struct fault *f)
{
	AUTO_CLEANUP(audit_files_done) struct audit_files files = { NULL, 0 };
	uint32_t newest;
	int err = audit_files_list(a->dir, &files);

	forget_file(a);
	a->unsure = true;
	a->entry_unsynced = true;
	if (err)
		return fault_set(f, err, "look at the audit folder of the store",
			"the audit folder cannot be read: %s", strerror(-err));
	err = walk_end(a, &files, f);
	if (err)
		return err;
	a->n_files = files.n;
	newest = files.n ? files.numbers[files.n - 1] : 0;
	err = newest ? take_file(a, newest) : 0;
	if (err)
		return audit_file_fault(f, err, newest);
	a->unsure = false;
	return 0;
}

static int write_head(struct audit *a)
{
	struct audit_head head = { .seq = a->last.seq };

	memcpy(head.hash, a->last.hash, sizeof head.hash);
	return audit_head_write(a->dir, a->key, &head);
}

/* The first time: a trail that has no head gets one, and is then sealed. */
static int seal(struct audit *a, struct fault *f)
{
	int err = a->sealed ? 0 : write_head(a);

	if (!err && !a->sealed)
		err = audit_seal_finish(a->dir, a->key);
	if (err)
		return fault_set(f, err, "see the store's disk", "cannot sign the audit trail: %s",
			strerror(-err));
	a->sealed = true;
	return 0;
}

static int take_trail(struct audit *a, const char *store, struct fault *f)
{
	int err = audit_folder_open(store, a->trail, true, &a->dir, f);

	if (!err && files_open_root(store, FILES_OWN, &a->store))
		err = fault_set(f, -EIO, "look at the store", "the store cannot be opened");
	if (err)
		return err;
	if (flock(a->dir, LOCK_EX | LOCK_NB) < 0)
		return fault_set(f, -EBUSY, "stop that one first, or use another store",
			"another npufs writes this audit trail");
	err = audit_seal_open(a->dir, &a->key, &a->sealed, f);
	if (!err)
		err = examine(a, f);
	return err ? err : seal(a, f);
}

/* --- writing ---------------------------------------------------------------------------------- */

/* Files may have been moved away since they were counted. */
static int count_files(struct audit *a)
{
	AUTO_CLEANUP(audit_files_done) struct audit_files files = { NULL, 0 };
	int err = audit_files_list(a->dir, &files);

	if (!err)
		a->n_files = files.n;
	return err;
}

static int begin_file(struct audit *a)
{
	char name[AUDIT_FILE_SIZE];
	int fd;

	snprintf(name, sizeof name, AUDIT_FILE_NAME, a->number + 1);
	fd = disk_create(a->dir, name, FILE_MODE);
	if (fd < 0)
		return fd;
	files_close(&a->fd);
	a->fd = fd;
	a->number++;
	a->size = 0;
	a->n_files++;
	a->entry_unsynced = true;
	return 0;
}

static int remove_oldest(struct audit *a, size_t n)
{
	AUTO_CLEANUP(audit_files_done) struct audit_files files = { NULL, 0 };
	char name[AUDIT_FILE_SIZE];
	int err = audit_files_list(a->dir, &files);

	for (size_t i = 0; !err && i < n && i + 1 < files.n; i++) {
		snprintf(name, sizeof name, AUDIT_FILE_NAME, files.numbers[i]);
		err = disk_unlink(a->dir, name);
		a->n_files -= !err;
	}
	return err;
}

static int make_room(struct audit *a, size_t most, size_t len)
{
	bool next = a->fd < 0 || a->size + len > AUDIT_FILE_BYTES;
	int err = 0;

	if (a->n_files + next > most)
		err = count_files(a);
	if (!err && a->n_files + next > most)
		err = audit_kinds[a->trail].oldest_goes ? remove_oldest(a, a->n_files + next - most)
							: -ENOSPC;
	return err || !next ? err : begin_file(a);
}

static int put_lines(struct audit *a, const struct buf *lines)
{
	int err = disk_write(a->fd, lines->data, lines->len, a->size);

	if (!err)
		err = disk_fsync(a->fd);
	if (!err && a->entry_unsynced)
		err = disk_fsync(a->dir);
	if (!err) {
		a->entry_unsynced = false;
		a->size += lines->len;
	} else if (disk_truncate(a->fd, a->size)) {
		a->unsure = true;
	}
	return err;
}

static void mirror(const struct buf *texts)
{
	for (size_t at = 0; !buf_error(texts) && at < texts->len;
		at += strlen(texts->data + at) + 1)
		audit_mirror(texts->data + at);
}

/* Lines that are to be written together: to one file, with one sync. */
struct draft {
	size_t most; /* files there may be */
	struct buf lines;
	struct buf mirrored;                    /* texts for audit_mirror, each ended by a NUL */
	struct audit_line last;                 /* the audit's when they are written, as is since */
	uint64_t since, n_records, n_committed; /* in it; in those before it */
};

static struct draft draft_begin(const struct audit *a, size_t most)
{
	return (struct draft){ .most = most, .last = a->last, .since = a->since };
}

static void draft_done(struct draft *d)
{
	buf_done(&d->lines);
	buf_done(&d->mirrored);
}

static int commit(struct audit *a, struct draft *d)
{
	int err = buf_error(&d->lines);

	if (!err && d->lines.len)
		err = make_room(a, d->most, d->lines.len);
	if (!err && d->lines.len)
		err = put_lines(a, &d->lines);
	if (err)
		return err;
	a->last = d->last;
	a->since = d->since;
	d->n_committed += d->n_records;
	d->n_records = 0;
	mirror(&d->mirrored);
	buf_reset(&d->lines);
	buf_reset(&d->mirrored);
	return 0;
}

static struct audit_line next_line(const struct draft *d)
{
	struct audit_line l = { .seq = d->last.seq + 1 };

	memcpy(l.torn, d->last.torn, sizeof l.torn);
	memcpy(l.prev, d->last.hash, sizeof l.prev);
	return l;
}

/* What would not fit behind the others goes to the next file. */
static int add_line(struct audit *a, struct draft *d, const struct audit_line *l,
	const struct buf *line)
{
	size_t room = AUDIT_FILE_BYTES - (a->fd < 0 ? 0 : a->size);
	int err = d->lines.len && d->lines.len + line->len > room ? commit(a, d) : 0;

	if (err)
		return err;
	buf_put(&d->lines, line->data, line->len);
	d->last = *l;
	d->last.torn[0] = '\0';
	d->since++;
	return 0;
}

/* `line` ends with a newline, or has none. */
static void mirror_later(struct draft *d, const struct buf *line)
{
	size_t len = line->len && line->data[line->len - 1] == '\n' ? line->len - 1 : line->len;

	buf_put(&d->mirrored, line->data, len);
	buf_put(&d->mirrored, "", 1);
}

/* What is signed is what others may keep: its hash stands for all before it. */
static int add_checkpoint(struct audit *a, struct draft *d)
{
	struct audit_line l = next_line(d);
	AUTO_BUF struct buf line = BUF_INIT;
	int err = audit_line_checkpoint(a->key, clock_wall(), &l, &line);

	if (!err)
		err = add_line(a, d, &l, &line);
	if (err)
		return err;
	d->since = 0;
	mirror_later(d, &line);
	return 0;
}

static int add_record(struct audit *a, struct draft *d, const void *record, int64_t wall_ns)
{
	bool due = d->since >= audit_kinds[a->trail].checkpoint_every;
	int err = due ? add_checkpoint(a, d) : 0;
	AUTO_BUF struct buf line = BUF_INIT;
	struct audit_line l;

	if (err)
		return err;
	l = next_line(d);
	err = audit_line_put(a->trail, record, wall_ns, &l, &line);
	if (!err)
		err = add_line(a, d, &l, &line);
	d->n_records += !err;
	return err;
}

static int add_command(struct audit *a, struct draft *d, const struct audit_record *r)
{
	const int64_t wall = clock_wall();
	AUTO_BUF struct buf line = BUF_INIT;
	int err = add_record(a, d, r, wall);

	if (!err && audit_line_plain(r, wall, d->last.seq, &line) == 0)
		mirror_later(d, &line);
	return err;
}

static size_t most_files(const struct audit_record *r)
{
	return r->decision == AUDIT_REFUSED || r->look ? AUDIT_FILES_REFUSED : AUDIT_FILES_MAX;
}

/* It says nothing of a command: that may have another file where this may not. */
static bool had_its_share(const struct audit *a, const struct audit_record *r, int err)
{
	return err == -ENOSPC && a->n_files >= most_files(r) && a->n_files < AUDIT_FILES_MAX;
}

static int write_commands(struct audit *a, const struct audit_record *r, size_t n,
	size_t *ret_written)
{
	AUTO_CLEANUP(draft_done) struct draft d = draft_begin(a, most_files(r));
	int err = 0;

	for (size_t i = 0; !err && i < n; i++)
		err = add_command(a, &d, &r[i]);
	if (!err)
		err = commit(a, &d);
	*ret_written = d.n_committed;
	if (d.n_committed)
		write_head(a); /* best effort */
	return err;
}

static int write_jobs(struct audit *a, const struct audit_job *jobs, size_t n, size_t *ret_written)
{
	AUTO_CLEANUP(draft_done)
	struct draft d = draft_begin(a, audit_kinds[a->trail].files_max);
	int err = 0;

	for (size_t i = 0; !err && i < n; i++)
		err = add_record(a, &d, &jobs[i], jobs[i].ended);
	if (!err)
		err = commit(a, &d);
	*ret_written = d.n_committed;
	if (d.n_committed)
		write_head(a); /* best effort */
	return err;
}

static void begin_writing(struct audit *a)
{
	lock_assert_none();
	lock_take(&a->lock);
	while (a->writing)
		lock_cond_wait(&a->idle, &a->lock);
	a->writing = true;
	lock_drop(&a->lock);
}

static void end_writing(struct audit *a)
{
	lock_take(&a->lock);
	a->writing = false;
	lock_drop(&a->lock);
	lock_cond_signal(&a->idle);
}

/* A record behind an end that others took away would be read by nobody. */
static bool is_cut(const struct audit *a)
{
	struct stat st;

	return fstat(a->fd, &st) < 0 || (uint64_t)st.st_size < a->size;
}

/* What others have put in the place of the folder, or of the file, does not get the record, nor does what
 * was there before: nobody would find it. */
static int find_end(struct audit *a)
{
	char name[AUDIT_FILE_SIZE];

	if (!files_is_at(a->dir, a->store, audit_kinds[a->trail].folder))
		return -ESTALE;
	snprintf(name, sizeof name, AUDIT_FILE_NAME, a->number);
	if (a->fd >= 0 && (!files_is_at(a->fd, a->dir, name) || is_cut(a)))
		a->unsure = true;
	return a->unsure ? examine(a, NULL) : 0;
}

int audit_write_all(struct audit *a, const struct audit_record *r, size_t n, size_t *ret_written)
{
	int err;

	*ret_written = 0;
	if (!a)
		return -EIO;
	begin_writing(a);
	err = find_end(a);
	if (!err)
		err = write_commands(a, r, n, ret_written);
	if (!had_its_share(a, r, err))
		atomic_store(&a->fails, err != 0);
	end_writing(a);
	return err;
}

bool audit_fails(const struct audit *a)
{
	return !a || atomic_load(&a->fails);
}

int audit_write(struct audit *a, const struct audit_record *r)
{
	size_t n_written;

	return audit_write_all(a, r, 1, &n_written);
}

int audit_write_jobs(struct audit *a, const struct audit_job *jobs, size_t n, size_t *ret_written)
{
	int err;

	*ret_written = 0;
	begin_writing(a);
	err = find_end(a);
	if (!err)
		err = write_jobs(a, jobs, n, ret_written);
	end_writing(a);
	return err;
}

/* --- opening and closing --------------------------------------------------------------------- */

int audit_open(const char *store, enum audit_trail trail, struct audit **ret, struct fault *f)
{
	struct audit *a = calloc(1, sizeof *a);
	int err;

	if (!a)
		return fault_set(f, -ENOMEM, "", "no memory for the audit trail");
	a->trail = trail;
	a->store = a->dir = a->fd = -1;
	lock_init(&a->lock, RANK_AUDIT, "audit");
	lock_cond_init(&a->idle);
	err = take_trail(a, store, f);
	if (err) {
		audit_close(a);
		return audit_tell(trail, err, f);
	}
	a->open = true;
	*ret = a;
	return 0;
}

/* As far as the disk lets: what is missing is missing after a crash too. */
static void write_end(struct audit *a)
{
	AUTO_CLEANUP(draft_done)
	struct draft d = draft_begin(a, audit_kinds[a->trail].files_max);

	if (a->open && !a->unsure && a->since && !add_checkpoint(a, &d) && !commit(a, &d))
		write_head(a);
}

void audit_close(struct audit *a)
{
	if (!a)
		return;
	write_end(a);
	key_free(a->key);
	files_close(&a->fd);
	files_close(&a->dir);
	files_close(&a->store);
	lock_cond_done(&a->idle);
	lock_done(&a->lock);
	free(a);
}
