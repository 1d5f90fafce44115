/* A store with an audit trail, and looking at the trail from outside. */
#ifndef NPUFS_TESTS_AUDIT_RIG_H
#define NPUFS_TESTS_AUDIT_RIG_H

#include "artifact_files.h"

#include <errno.h>

#include "core/artifact/artifact.h"
#include "core/base/fault.h"
#include "core/base/mem.h"
#include "core/control/audit.h"
#include "core/spool/disk.h"

struct audit_rig {
	struct work w;
	char store[WORK_PATH_SIZE];
	struct audit *audit;
};

static inline void rig_open(struct audit_rig *x)
{
	struct fault f = FAULT_NONE;

	if (audit_open(x->store, AUDIT_COMMANDS, &x->audit, &f))
		fail_msg("audit_open: %s", f.reason);
}

static inline void rig_close(struct audit_rig *x)
{
	audit_close(x->audit);
	x->audit = NULL;
}

static inline int rig_no_disk(enum disk_call call, int fd, const char *name)
{
	(void)call, (void)fd, (void)name;
	return -EIO;
}

/* As if it were killed: nothing is written at the end. */
static inline void rig_kill(struct audit_rig *x)
{
	disk_watch = rig_no_disk;
	rig_close(x);
	disk_watch = NULL;
}

static inline int rig_set_up(void **state)
{
	struct audit_rig *x = calloc(1, sizeof *x);
	struct fault f;

	work_make(&x->w);
	strcpy(x->store, work_path(&x->w, "store"));
	assert_int_equal(store_init(x->store, &f), 0);
	rig_open(x);
	*state = x;
	return 0;
}

static inline int rig_tear_down(void **state)
{
	struct audit_rig *x = *state;

	disk_watch = NULL;
	rig_close(x);
	work_remove(&x->w);
	free(x);
	return 0;
}

static inline int add_shown(void *all, const char *line)
{
	buf_puts(all, line);
	buf_puts(all, "\n");
	return 0;
}

/* The last `most` lines; each ends in a newline. */
static inline void rig_show(struct audit_rig *x, uint64_t most, struct buf *ret)
{
	struct fault f = FAULT_NONE;

	buf_reset(ret);
	if (audit_show(x->store, AUDIT_COMMANDS, most, add_shown, ret, &f))
		fail_msg("audit_show: %s", f.reason);
}

static inline size_t rig_count(struct audit_rig *x)
{
	AUTO_BUF struct buf all = BUF_INIT;
	size_t n = 0;

	rig_show(x, UINT64_MAX, &all);
	for (size_t i = 0; i < all.len; i++)
		n += all.data[i] == '\n';
	return n;
}

/* Verified; what was found. */
static inline void rig_sound(struct audit_rig *x, const char *found)
{
	AUTO_BUF struct buf out = BUF_INIT;
	struct fault f = FAULT_NONE;

	if (audit_verify(x->store, AUDIT_COMMANDS, &out, &f))
		fail_msg("audit_verify: %s", f.reason);
	if (!strstr(buf_text(&out), found))
		fail_msg("found \"%s\", not \"%s\"", buf_text(&out), found);
}

#define HEAD  "store/audit/head"
#define FIRST "store/audit/00000001.jsonl"
#define NEXT  "store/audit/00000002.jsonl"

static const struct cred operator_cred = { .uid = 0, .gid = 5, .pid = 77 };

static const struct audit_record sample = { .who = &operator_cred,
	.login = 1000,
	.comm = "sh",
	.command = "reset_ccu",
	.node = "control/reset_ccu",
	.args = "abc",
	.decision = AUDIT_INTENT,
	.why = "",
	.message = "stuck since noon" };

static inline void write_some(struct audit_rig *x, int n)
{
	for (int i = 0; i < n; i++)
		assert_int_equal(audit_write(x->audit, &sample), 0);
}

static inline void read_file(struct audit_rig *x, const char *name, struct buf *ret)
{
	buf_reset(ret);
	work_read(&x->w, name, ret);
}

/* Where line `i` begins, the first being 0. */
static inline size_t line_at(const struct buf *b, int i)
{
	const char *at = b->data;

	while (i-- > 0)
		at = strchr(at, '\n') + 1;
	return (size_t)(at - b->data);
}

static inline void put_file(struct audit_rig *x, const char *name, const char *bytes, size_t n)
{
	work_write(&x->w, name, bytes, n);
	assert_int_equal(chmod(work_path(&x->w, name), 0600), 0);
}

static inline void add_bytes(struct audit_rig *x, const char *name, const char *text)
{
	AUTO_BUF struct buf b = BUF_INIT;

	read_file(x, name, &b);
	buf_puts(&b, text);
	put_file(x, name, b.data, b.len);
}

/* Broken, at line `line` of `file` (from 1), which begins at byte `offset`. */
static inline void expect_broken(struct audit_rig *x, const char *file, int line, size_t offset)
{
	AUTO_BUF struct buf out = BUF_INIT;
	struct fault f = FAULT_NONE;
	char where[64];

	snprintf(where, sizeof where, "broken in %s, line %d: ", file, line);
	assert_int_equal(audit_verify(x->store, AUDIT_COMMANDS, &out, &f), -EBADMSG);
	assert_int_equal(f.err, -EBADMSG);
	if (!strstr(f.reason, where))
		fail_msg("\"%s\", not \"%s\"", f.reason, where);
	assert_int_equal(f.offset, offset);
}

/* All that is there is sound, but records `from` to `to` are missing after line `line` of `file`. */
static inline void expect_cut(struct audit_rig *x, const char *file, int line, int from, int to)
{
	AUTO_BUF struct buf out = BUF_INIT;
	struct fault f = FAULT_NONE;
	char where[128];

	snprintf(where, sizeof where,
		"broken after %s, line %d: records %d to %d are missing at its end", file, line,
		from, to);
	assert_int_equal(audit_verify(x->store, AUDIT_COMMANDS, &out, &f), -EBADMSG);
	if (!strstr(f.reason, where))
		fail_msg("\"%s\", not \"%s\"", f.reason, where);
}

#endif
