/* The folder is ".ALIAS.XXXXXX" until it is finished: the dot keeps it from being taken for an
 * artifact, also when a crash leaves it behind. */
#include "core/artifact/artifact_build.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/artifact/artifact_impl.h"
#include "core/base/files.h"
#include "core/base/files_write.h"
#include "core/base/json.h"
#include "core/base/mem.h"

#define FILE_MODE   0644
#define FOLDER_MODE 0755

static int failed(struct fault *f, int err, const char *doing, const char *name)
{
	return fault_set(f, err, "see that there is room and permission, then try again",
		"cannot %s %s: %s", doing, name, strerror(-err));
}

/* --- begin ------------------------------------------------------------------------------------ */

/* Split `dest`, slashes at its end aside. */
static int name_folder(struct artifact_build *b, const char *dest, struct fault *f)
{
	size_t len = strlen(dest);
	const char *slash;

	while (len > 1 && dest[len - 1] == '/')
		len--;
	slash = memrchr(dest, '/', len);
	b->alias =
		strndup(slash ? slash + 1 : dest, slash ? (size_t)(dest + len - slash - 1) : len);
	if (!b->alias)
		return failed(f, -ENOMEM, "name", "the folder");
	if (!alias_valid(b->alias))
		return fault_set(f, -EINVAL,
			"use letters, digits and . _ -, the first a letter or digit",
			"\"%s\" is no alias", b->alias);
	if (asprintf(&b->path, "%.*s.%s.XXXXXX", slash ? (int)(slash + 1 - dest) : 0, dest,
		    b->alias) < 0) {
		b->path = NULL;
		return failed(f, -ENOMEM, "name", "the folder");
	}
	b->name = b->path + (slash ? slash + 1 - dest : 0);
	return 0;
}

static int there_already(const struct artifact_build *b, struct fault *f)
{
	return fault_set(f, -EEXIST, "remove it, or choose another alias",
		"\"%s\" is there already", b->alias);
}

/* Whoever could change the parent folder could put another folder in the place of this one. */
static int open_parent(struct artifact_build *b, struct fault *f)
{
	size_t len = (size_t)(b->name - b->path);
	AUTO_FREE char *parent = len ? strndup(b->path, len) : strdup(".");
	const struct findings to = { f, NULL };
	struct stat st;
	int err = parent ? files_open_root(parent, FILES_OWN, &b->parent) : -ENOMEM;

	if (err == -ENOENT)
		return fault_set(f, err, "make the store first: npufs-admin store init STORE",
			"the folder for the artifact is missing");
	if (err)
		return artifact_refuse(&to, err, "the folder for the artifact", NULL);
	return fstatat(b->parent, b->alias, &st, AT_SYMLINK_NOFOLLOW) == 0 ? there_already(b, f)
									   : 0;
}

static void release(struct artifact_build *b)
{
	files_close(&b->dir);
	files_close(&b->parent);
	free(b->path);
	free((char *)b->alias);
}

int artifact_build_begin(struct artifact_build *b, const char *dest, struct fault *f)
{
	int err;

	*b = (struct artifact_build){ .parent = -1, .dir = -1 };
	err = name_folder(b, dest, f);
	if (!err)
		err = open_parent(b, f);
	if (!err && !mkdtemp(b->path))
		err = failed(f, -errno, "make a folder for", b->alias);
	if (err) {
		release(b);
		return err;
	}
	err = files_open_folder(b->parent, b->name, FILES_OWN, &b->dir);
	return err ? artifact_build_end(b, failed(f, err, "open the folder for", b->alias), f) : 0;
}

/* --- files ------------------------------------------------------------------------------------ */

int artifact_build_file(struct artifact_build *b, const char *path, const void *bytes, size_t n,
	struct fault *f)
{
	int err = files_write(b->dir, path, FILE_MODE, bytes, n);

	return err ? failed(f, err, "write", path) : 0;
}

int artifact_build_copy(struct artifact_build *b, const char *path, int from, struct fault *f)
{
	int err = files_copy(from, b->dir, path, FILE_MODE);

	return err ? failed(f, err, "copy", path) : 0;
}

/* --- the manifest ----------------------------------------------------------------------------- */

struct paths {
	char *list[MANIFEST_MAX_FILES];
	size_t n;
};

static int add_path(void *context, const char *path)
{
	struct paths *p = context;

	if (p->n == MANIFEST_MAX_FILES)
		return -E2BIG;
	p->list[p->n] = strdup(path);
	return p->list[p->n++] ? 0 : -ENOMEM;
}

static int compare_paths(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int add_file(struct json_value *list, int dir, const char *path, struct fault *f)
{
	AUTO_CLOSE int fd = -1;
	char hex[SHA256_HEX_SIZE];
	struct json_value *o;
	uint64_t size;
	int err = files_open(dir, path, FILES_OWN, &fd, &size);

	if (!err)
		err = files_digest(fd, MANIFEST_MAX_FILE_BYTES, &size, hex);
	if (err)
		return failed(f, err, "read", path);
	o = json_add_object(list, NULL);
	json_add_string(o, "path", path);
	json_add_uint(o, "size", size);
	json_add_string(o, "sha256", hex);
	return 0;
}

/* In order of their names: the same package gives the same manifest. */
static int add_files(struct json_value *list, int dir, struct fault *f)
{
	AUTO_FREE struct paths *p = calloc(1, sizeof *p);
	int err = p ? files_walk(dir, FILES_OWN, add_path, p, NULL) : -ENOMEM;

	if (err)
		failed(f, err, "list", "the files");
	else
		qsort(p->list, p->n, sizeof p->list[0], compare_paths);
	for (size_t i = 0; !err && i < p->n; i++)
		err = add_file(list, dir, p->list[i], f);
	for (size_t i = 0; p && i < p->n; i++)
		free(p->list[i]);
	return err;
}

static int complete(int dir, const char *template, size_t len, struct buf *ret, struct fault *f)
{
	struct json_value *from, *doc;
	int err = json_parse(template, len, &from, f);

	if (err)
		return err;
	doc = json_new_object();
	for (const struct json_value *v = json_first(from); v; v = json_next(v))
		json_add_copy(doc, json_key(v), v);
	json_free(from);
	err = add_files(json_add_array(doc, "files"), dir, f);
	if (!err && json_render(doc, true, ret) < 0)
		err = failed(f, -ENOMEM, "make", "the manifest");
	json_free(doc);
	return err;
}

static int check(const struct buf *text, bool need_files, struct fault *f)
{
	struct manifest *m;
	int err = manifest_parse(buf_text(text), text->len, need_files, &m, f);

	if (!err)
		manifest_free(m);
	return err;
}

/* The template is checked before anything is done with it, the manifest as its readers will. */
int artifact_build_manifest(struct artifact_build *b, const char *template, size_t len,
	struct fault *f)
{
	AUTO_BUF struct buf given = BUF_INIT, text = BUF_INIT;
	int err;

	buf_put(&given, template, len);
	err = buf_error(&given) ? failed(f, -ENOMEM, "read", "the template")
				: check(&given, false, f);
	if (!err)
		err = complete(b->dir, template, len, &text, f);
	if (!err)
		err = check(&text, true, f);
	return err ? err : artifact_build_file(b, MANIFEST_FILE, text.data, text.len, f);
}

/* --- end -------------------------------------------------------------------------------------- */

/* Not every file system knows RENAME_NOREPLACE; there the check at the beginning must do. */
static int give_name(struct artifact_build *b)
{
	if (fchmod(b->dir, FOLDER_MODE) < 0 || fsync(b->dir) < 0)
		return -errno;
	if (renameat2(b->parent, b->name, b->parent, b->alias, RENAME_NOREPLACE) < 0 &&
		(errno != EINVAL || renameat(b->parent, b->name, b->parent, b->alias) < 0))
		return -errno;
	return 0;
}

int artifact_build_end(struct artifact_build *b, int err, struct fault *f)
{
	if (!err) {
		err = give_name(b);
		if (err == -EEXIST)
			there_already(b, f);
		else if (err)
			failed(f, err, "name the folder", b->alias);
	}
	if (err)
		files_remove_tree(b->parent, b->name);
	else if (fsync(b->parent) < 0)
		err = failed(f, -errno, "sync", "the folder of the artifact");
	release(b);
	return err;
}
