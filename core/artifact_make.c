/* Making artifacts. A folder is built beside its place under another name, synced and renamed: it is there whole or
 * not at all. */
#include "core/artifact.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/artifact_make.h"
#include "core/files.h"
#include "core/json.h"
#include "core/mem.h"

#define MAX_KEY    65536
#define COPY_PIECE 65536

static int failed(struct fault *f, int err, const char *what, const char *path)
{
	fault_set(f, err, "", "%s %s: %s", what, path, strerror(-err));
	return err;
}

/* --- a store ---------------------------------------------------------------------------------------------- */

int store_init(const char *store, struct fault *f)
{
	static const struct {
		const char *name;
		mode_t mode;
	} folders[] = {
		{ "", 0755 }, { "/models", 0755 }, { "/trust", 0755 }, { "/approvers", 0755 },
		{ "/evidence", 0755 }, { "/jobs", 0700 }, { "/audit", 0700 },
	};
	char path[4096];

	for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
		if ((size_t)snprintf(path, sizeof path, "%s%s", store, folders[i].name) >= sizeof path)
			return failed(f, -ENAMETOOLONG, "cannot make", store);
		if (mkdir(path, 0700) == 0 && chmod(path, folders[i].mode) == 0)
			continue;
		if (errno != EEXIST)
			return failed(f, -errno, "cannot make", path);
	}
	return 0;
}

/* --- building a folder beside its place --------------------------------------------------------------------- */

int build_begin(const char *dest, struct build *b, struct fault *f)
{
	const char *slash = strrchr(dest, '/');
	size_t folder = slash ? (size_t)(slash - dest) + 1 : 0;
	struct stat st;

	*b = (struct build){ .dest = dest, .dir = -1 };
	if (!alias_valid(dest + folder))
		return fault_set(f, -EINVAL, "use letters, digits, dot, dash, underscore; start with a "
			"letter or digit", "\"%s\" is no alias", dest + folder);
	if (lstat(dest, &st) == 0)
		return fault_set(f, -EEXIST, "remove it, or choose another alias", "%s is there already",
			dest);
	if (snprintf(b->path, sizeof b->path, "%.*s.%s.XXXXXX", (int)folder, dest, dest + folder) >=
		(int)sizeof b->path)
		return failed(f, -ENAMETOOLONG, "cannot make", dest);
	if (!mkdtemp(b->path))
		return fault_set(f, -errno, "make the store first: npufs-admin store init",
			"cannot make a folder for %s: %s", dest, strerror(errno));
	b->dir = open(b->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (b->dir < 0 || fchmod(b->dir, 0755) < 0)
		return failed(f, -errno, "cannot open", b->path);
	return 0;
}

static int make_folders(int dir, const char *path)
{
	char part[MANIFEST_PATH_MAX + 1];

	for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
		snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
		if (mkdirat(dir, part, 0755) < 0 && errno != EEXIST)
			return -errno;
		if (fchmodat(dir, part, 0755, 0) < 0)
			return -errno;
	}
	return 0;
}

int build_file(struct build *b, const char *path, const void *bytes, size_t len, struct fault *f)
{
	int err = make_folders(b->dir, path);

	if (!err)
		err = files_write_new(b->dir, path, 0644, bytes, len);
	return err ? failed(f, err, "cannot write", path) : 0;
}

int build_end(struct build *b, int err, struct fault *f)
{
	if (!err && fsync(b->dir) < 0)
		err = failed(f, -errno, "cannot sync", b->path);
	if (!err && rename(b->path, b->dest) < 0)
		err = failed(f, -errno, "cannot rename to", b->dest);
	if (err && b->path[0])
		files_remove_tree(AT_FDCWD, b->path);
	if (b->dir >= 0)
		close(b->dir);
	return err;
}

/* --- the manifest of what was built --------------------------------------------------------------------------- */

static int add_file(struct json_value *list, int dir, const char *path, struct fault *f)
{
	AUTO_CLOSE int fd = -1;
	char hex[SHA256_HEX_SIZE];
	struct json_value *o;
	uint64_t size;
	int err = files_open(dir, path, &fd, &size);

	if (!err)
		err = files_digest(fd, hex);
	if (err)
		return failed(f, err, "cannot read", path);
	o = json_add_object(list, NULL);
	json_add_string(o, "path", path);
	json_add_uint(o, "size", size);
	json_add_string(o, "sha256", hex);
	return 0;
}

/* Every file below the folder `at` (a path below dir; "" is dir itself), in order of names. */
static int add_files(struct json_value *list, int dir, const char *at, struct fault *f)
{
	AUTO_CLOSE int fd = -1;
	char **names = NULL;
	int err = files_open_dir(dir, at[0] ? at : ".", &fd);

	if (!err)
		err = files_list(fd, &names);
	if (err)
		return failed(f, err, "cannot read", at);
	for (char **n = names; !err && *n; n++) {
		char path[MANIFEST_PATH_MAX + 1];
		struct stat st;

		if ((size_t)snprintf(path, sizeof path, "%s%s%s", at, at[0] ? "/" : "", *n) >= sizeof path)
			err = failed(f, -ENAMETOOLONG, "cannot list", *n);
		else if (fstatat(fd, *n, &st, AT_SYMLINK_NOFOLLOW) < 0)
			err = failed(f, -errno, "cannot read", path);
		else
			err = S_ISDIR(st.st_mode) ? add_files(list, dir, path, f) : add_file(list, dir, path, f);
	}
	files_list_free(names);
	return err;
}

int build_manifest(struct build *b, const char *template, size_t len, struct fault *f)
{
	AUTO_BUF struct buf text = BUF_INIT;
	struct manifest *m = NULL;
	struct json_value *from = NULL, *doc;
	int err = manifest_parse(template, len, false, &m, f);

	manifest_free(m);
	m = NULL;
	if (!err)
		err = json_parse(template, len, &from, f);
	if (err)
		return err;
	doc = json_new_object();
	for (const struct json_value *v = json_first(from); v; v = json_next(v))
		json_add_copy(doc, json_key(v), v);
	json_free(from);
	err = add_files(json_add_array(doc, "files"), b->dir, "", f);
	if (!err)
		err = json_render(doc, true, &text);
	json_free(doc);
	if (!err)
		err = manifest_parse(buf_text(&text), text.len, true, &m, f);
	manifest_free(m);
	return err ? err : build_file(b, "manifest.json", text.data, text.len, f);
}

/* --- from a package -------------------------------------------------------------------------------------------- */

/* A package is somebody's folder, a checkout for one: who owns it does not matter, links are not followed. */
static int read_plain(int package, const char *path, struct buf *out, struct fault *f)
{
	AUTO_CLOSE int fd = openat(package, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	ssize_t n = 1;

	if (fd < 0)
		return failed(f, -errno, "cannot read", path);
	while (n > 0) {
		char *room = buf_room(out, COPY_PIECE);

		n = room ? read(fd, room, COPY_PIECE) : -1;
		if (n > 0)
			out->len += (size_t)n;
	}
	return n < 0 ? failed(f, -EIO, "cannot read", path) : 0;
}

static int copy_one(struct build *b, int package, const char *path, struct fault *f)
{
	AUTO_BUF struct buf bytes = BUF_INIT;
	int err = read_plain(package, path, &bytes, f);

	return err ? err : build_file(b, path, bytes.data, bytes.len, f);
}

static int copy_tree(struct build *b, int package, const char *at, struct fault *f)
{
	AUTO_CLOSE int fd = openat(package, at, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char **names = NULL;
	int err = fd < 0 ? -errno : files_list(fd, &names);

	if (err)
		return failed(f, err, "cannot read", at);
	for (char **n = names; !err && *n; n++) {
		char path[MANIFEST_PATH_MAX + 1];
		struct stat st;

		if ((size_t)snprintf(path, sizeof path, "%s/%s", at, *n) >= sizeof path)
			err = failed(f, -ENAMETOOLONG, "cannot copy", *n);
		else if (fstatat(fd, *n, &st, AT_SYMLINK_NOFOLLOW) < 0)
			err = failed(f, -errno, "cannot read", path);
		else
			err = S_ISDIR(st.st_mode) ? copy_tree(b, package, path, f) : copy_one(b, package, path, f);
	}
	files_list_free(names);
	return err;
}

static int copy_package(struct build *b, int package, struct fault *f)
{
	static const char *const folders[] = { "calbin", "golden", "tokenizer" };
	struct stat st;
	int err = 0;

	for (size_t i = 0; !err && i < ARRAY_SIZE(folders); i++)
		if (i == 0 || fstatat(package, folders[i], &st, AT_SYMLINK_NOFOLLOW) == 0)
			err = copy_tree(b, package, folders[i], f);
	return err;
}

int artifact_import_package(const char *package, const char *dest, struct fault *f)
{
	AUTO_BUF struct buf template = BUF_INIT;
	AUTO_CLOSE int from = open(package, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct build b;
	int err;

	if (from < 0)
		return failed(f, -errno, "no package", package);
	err = read_plain(from, "artifact.json", &template, f);
	if (err)
		return err;
	err = build_begin(dest, &b, f);
	if (!err)
		err = copy_package(&b, from, f);
	if (!err)
		err = build_manifest(&b, template.data, template.len, f);
	return build_end(&b, err, f);
}

/* --- signing ---------------------------------------------------------------------------------------------------- */

int artifact_sign(const char *dir, const char *key_path, struct fault *f)
{
	AUTO_BUF struct buf pem = BUF_INIT, text = BUF_INIT;
	AUTO_CLOSE int fd = -1;
	unsigned char sig[ED25519_SIG_SIZE];
	struct manifest *m = NULL;
	struct key *key = NULL;
	int err = files_read(AT_FDCWD, key_path, MAX_KEY, &pem);

	if (err)
		return failed(f, err, "cannot read the key", key_path);
	if (key_from_private_pem(buf_text(&pem), pem.len, &key))
		return fault_set(f, -EINVAL, "make one with npufs-admin key generate",
			"%s is no private Ed25519 key", key_path);
	err = files_open_dir(AT_FDCWD, dir, &fd);
	if (!err)
		err = files_read(fd, "manifest.json", MANIFEST_MAX_BYTES, &text);
	if (err) {
		failed(f, err, "cannot read the manifest of", dir);
	} else {
		err = manifest_parse(buf_text(&text), text.len, true, &m, f);
		manifest_free(m);
	}
	if (!err)
		err = key_sign(key, text.data, text.len, sig);
	if (!err && (err = files_replace(fd, "manifest.sig", 0644, sig, sizeof sig)))
		failed(f, err, "cannot write the signature in", dir);
	key_free(key);
	return err;
}
