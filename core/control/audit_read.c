/* Reading the trail, of a daemon that may be writing it: files only grow, or lose an end that was
 * never part of it, so what was listed can be read one after the other. */
#include "core/control/audit_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/files.h"
#include "core/base/files_write.h"
#include "core/base/mem.h"

#define FOLDER_MODE 0700

const struct audit_kind audit_kinds[AUDIT_TRAIL_COUNT] = {
	[AUDIT_COMMANDS] = { "audit", AUDIT_FILES_MAX, false, AUDIT_CHECKPOINT_EVERY },
	[AUDIT_JOBS] = { "audit-jobs", AUDIT_JOBS_FILES_MAX, true, AUDIT_JOBS_CHECKPOINT_EVERY },
};

int audit_tell(enum audit_trail trail, int err, struct fault *f)
{
	char reason[sizeof f->reason];

	if (!err || !f || trail == AUDIT_COMMANDS)
		return err;
	snprintf(reason, sizeof reason, "%.*s", (int)sizeof reason - 1, f->reason);
	snprintf(f->reason, sizeof f->reason, "%s: %.*s", audit_kinds[trail].folder,
		(int)(sizeof f->reason - strlen(audit_kinds[trail].folder) - sizeof ": "), reason);
	return err;
}

/* --- the folder ------------------------------------------------------------------------------- */

static int folder_fault(struct fault *f, int err)
{
	return fault_set(f, err,
		err == -ENOENT ? "name the folder that npufs-admin store init made"
			       : "it must be a folder of root or this user, closed to others",
		"the audit folder cannot be used: %s", strerror(-err));
}

int audit_folder_open(const char *store, enum audit_trail trail, bool make, int *ret_dir,
	struct fault *f)
{
	const char *folder = audit_kinds[trail].folder;
	AUTO_CLOSE int root = -1;
	int err = files_open_root(store, FILES_OWN, &root);

	if (!err && make)
		err = files_make_folder(root, folder, FOLDER_MODE);
	if (!err)
		err = files_open_folder(root, folder, FILES_OWN, ret_dir);
	return err ? folder_fault(f, err) : 0;
}

bool audit_is_there(const char *store, enum audit_trail trail)
{
	AUTO_CLOSE int dir = -1;

	return audit_folder_open(store, trail, false, &dir, NULL) != -ENOENT;
}

static bool is_file_name(const char *name, uint32_t *ret)
{
	char again[AUDIT_FILE_SIZE];

	*ret = (uint32_t)strtoul(name, NULL, 10);
	snprintf(again, sizeof again, AUDIT_FILE_NAME, *ret);
	return strlen(name) == strlen("00000000.jsonl") && strcmp(name, again) == 0;
}

static int add_number(struct buf *to, uint32_t number)
{
	buf_put(to, &number, sizeof number);
	return buf_error(to);
}

static int compare_numbers(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

int audit_files_list(int dir, struct audit_files *ret)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), err = 0;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct buf found = BUF_INIT;
	const struct dirent *entry;
	uint32_t number;

	if (!d) {
		err = -errno;
		files_close(&fd);
		return err;
	}
	while (!err && (errno = 0, entry = readdir(d)))
		if (is_file_name(entry->d_name, &number))
			err = add_number(&found, number);
	if (!err)
		err = -errno;
	closedir(d);
	if (err) {
		buf_done(&found);
		return err;
	}
	ret->n = found.len / sizeof *ret->numbers;
	ret->numbers = (uint32_t *)(void *)take_buf(&found).data;
	if (ret->n)
		qsort(ret->numbers, ret->n, sizeof *ret->numbers, compare_numbers);
	return 0;
}

void audit_files_done(struct audit_files *files)
{
	free(files->numbers);
}

int audit_file_load(int dir, uint32_t number, struct buf *out)
{
	char name[AUDIT_FILE_SIZE];

	snprintf(name, sizeof name, AUDIT_FILE_NAME, number);
	return files_load(dir, name, FILES_OWN, AUDIT_FILE_BYTES, out);
}

int audit_file_fault(struct fault *f, int err, uint32_t number)
{
	return fault_set(f, err,
		"it must be a plain file of root or this user, closed to others, as npufs wrote it",
		"the audit trail's file " AUDIT_FILE_NAME " cannot be used: %s", number,
		strerror(-err));
}

static int list_files(int dir, struct audit_files *ret, struct fault *f)
{
	int err = audit_files_list(dir, ret);

	return err ? folder_fault(f, err) : 0;
}

/* --- verifying -------------------------------------------------------------------------------- */

static void report(const struct audit_chain *c, size_t n_files, struct buf *out)
{
	if (c->last)
		buf_printf(out, "records %" PRIu64 " to %" PRIu64 " in %zu files\nlast hash: %s\n",
			c->first, c->last, n_files, c->hash);
	else
		buf_puts(out, "no records\n");
	if (c->first > 1)
		buf_printf(out, "record %" PRIu64 " and those before it are not here\n",
			c->first - 1);
	if (c->key)
		buf_printf(out, "signed up to record %" PRIu64 "\n", c->mark.seq);
	else
		buf_puts(out, "nothing is signed\n");
	if (c->torn.len)
		buf_printf(out,
			"%zu bytes at the end are of a record that is being written, or that a "
			"crash tore\n",
			c->torn.len);
}

static int verify_files(struct audit_chain *c, int dir, const struct audit_files *files,
	struct fault *f)
{
	int err = 0;

	for (size_t i = 0; !err && i < files->n; i++)
		err = audit_chain_file(c, dir, files->numbers[i], f);
	return err ? err : audit_chain_end(c, files->n ? files->numbers[files->n - 1] : 0, f);
}

/* The head is read first: a daemon that writes meanwhile only gets further than it says. */
int audit_verify(const char *store, enum audit_trail trail, struct buf *out, struct fault *f)
{
	AUTO_CLEANUP(audit_files_done) struct audit_files files = { NULL, 0 };
	AUTO_CLEANUP(audit_chain_done) struct audit_chain c;
	AUTO_CLOSE int dir = -1;
	struct key *key = NULL;
	int err;

	audit_chain_init(&c, trail, true);
	err = audit_folder_open(store, trail, false, &dir, f);
	if (!err)
		err = audit_seal_load(dir, &key, &c.mark, f);
	c.key = key;
	if (!err)
		err = list_files(dir, &files, f);
	if (!err)
		err = verify_files(&c, dir, &files, f);
	if (!err)
		report(&c, files.n, out);
	key_free(key);
	return err ? audit_tell(trail, err, f) : buf_error(out);
}

/* --- showing ---------------------------------------------------------------------------------- */

/* Whole ones. */
static uint64_t count_lines(const struct buf *b)
{
	uint64_t n = 0;

	for (size_t i = 0; i < b->len; i++)
		n += b->data[i] == '\n';
	return n;
}

static int count_file(int dir, uint32_t number, uint64_t *ret, struct fault *f)
{
	AUTO_BUF struct buf bytes = BUF_INIT;
	int err = audit_file_load(dir, number, &bytes);

	if (err)
		return audit_file_fault(f, err, number);
	*ret = count_lines(&bytes);
	return 0;
}

/* Where the last `most` lines begin: a file, and how many of its lines come before. */
static int find_start(int dir, const struct audit_files *files, uint64_t most, size_t *ret_file,
	uint64_t *ret_skip, struct fault *f)
{
	uint64_t lines = 0, total = 0;
	size_t i = files->n;
	int err = 0;

	while (!err && i > 0 && total < most) {
		err = count_file(dir, files->numbers[--i], &lines, f);
		total += err ? 0 : lines;
	}
	*ret_file = i;
	*ret_skip = total > most ? total - most : 0;
	return err;
}

static int show_line(const char *line, size_t len, audit_visitor *visit, void *context)
{
	char text[AUDIT_LINE_MAX + 1], clean[AUDIT_LINE_MAX + 1];

	len = len < AUDIT_LINE_MAX ? len : AUDIT_LINE_MAX;
	for (size_t i = 0; i < len; i++)
		text[i] = line[i] ? line[i] : '?';
	text[len] = '\0';
	fault_clean(clean, sizeof clean, text);
	return visit(context, clean);
}

/* What is being written has no newline yet, or only some of its bytes: that is no record. */
static int show_file(const struct buf *bytes, uint64_t skip, audit_visitor *visit, void *context)
{
	const char *line = buf_text(bytes), *end = line + bytes->len, *stop;
	int err = 0;

	for (; !err && (stop = memchr(line, '\n', (size_t)(end - line))); line = stop + 1) {
		if (skip)
			skip--;
		else
			err = show_line(line, (size_t)(stop - line), visit, context);
	}
	return err;
}

static int show_files(int dir, const struct audit_files *files, uint64_t most, audit_visitor *visit,
	void *context, struct fault *f)
{
	AUTO_BUF struct buf bytes = BUF_INIT;
	uint64_t skip = 0;
	size_t i = 0;
	int err = find_start(dir, files, most, &i, &skip, f);

	for (; !err && i < files->n; i++, skip = 0) {
		buf_reset(&bytes);
		err = audit_file_load(dir, files->numbers[i], &bytes);
		if (err)
			return audit_file_fault(f, err, files->numbers[i]);
		err = show_file(&bytes, skip, visit, context);
	}
	return err;
}

int audit_show(const char *store, enum audit_trail trail, uint64_t most, audit_visitor *visit,
	void *context, struct fault *f)
{
	AUTO_CLEANUP(audit_files_done) struct audit_files files = { NULL, 0 };
	AUTO_CLOSE int dir = -1;
	int err = audit_folder_open(store, trail, false, &dir, f);

	if (!err)
		err = list_files(dir, &files, f);
	if (!err)
		err = show_files(dir, &files, most, visit, context, f);
	return audit_tell(trail, err, f);
}
