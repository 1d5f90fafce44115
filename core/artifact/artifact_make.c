/* Stores, packages and signing, for npufs-admin. */
#include "core/artifact/artifact_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/artifact/artifact_build.h"
#include "core/artifact/keyring.h"
#include "core/base/files.h"
#include "core/base/files_write.h"
#include "core/base/mem.h"

#define TEMPLATE_FILE "artifact.json"
#define FOLDER_MODE   0755

/* --- a store ---------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	mode_t mode;
} store_folders[] = {
	{ MODELS_FOLDER, 0755 },
	{ TRUST_FOLDER, 0755 },
	{ APPROVERS_FOLDER, 0755 },
	{ "evidence", 0700 },
	{ "jobs", 0700 },
	{ "audit", 0700 },
};

static int cannot_make(struct fault *f, int err, const char *name)
{
	return fault_set(f, err, "see who owns it and the folder around it", "cannot make %s: %s",
		name, strerror(-err));
}

int store_init(const char *store, struct fault *f)
{
	const struct findings to = { f, NULL };
	AUTO_CLOSE int root = -1;
	int err = files_make_folder(AT_FDCWD, store, FOLDER_MODE);

	if (err)
		return cannot_make(f, err, "the store's folder");
	err = files_open_root(store, FILES_OWN, &root);
	if (err)
		return artifact_refuse(&to, err, "the store's folder", NULL);
	for (size_t i = 0; !err && i < ARRAY_SIZE(store_folders); i++) {
		err = files_make_folder(root, store_folders[i].name, store_folders[i].mode);
		if (err)
			cannot_make(f, err, store_folders[i].name);
	}
	return err;
}

/* A folder of public keys. */
struct key_folder {
	const char *name, *what;
};

static int open_keys(const char *store, const struct key_folder *k, int *ret_fd, struct fault *f)
{
	const struct findings to = { f, NULL };
	AUTO_CLOSE int root = -1;
	int err = files_open_root(store, FILES_OWN, &root);

	if (err)
		return artifact_refuse_missing(&to, err, "the store's folder", MAKE_STORE);
	err = files_open_folder(root, k->name, FILES_OWN, ret_fd);
	return err ? artifact_refuse_missing(&to, err, k->what, MAKE_STORE) : 0;
}

/* Replaced, not made: a half of one, left by a crash, would have all keys of the folder refused, and so
 * would one that the daemon reads while it is written. */
static int write_public_key(int folder, const struct key *k, const char *what, struct fault *f)
{
	AUTO_BUF struct buf pem = BUF_INIT;
	char id[KEY_ID_SIZE], name[KEY_ID_SIZE + 4];
	int err = key_public_pem(k, &pem);

	key_id(k, id);
	snprintf(name, sizeof name, "%s.pem", id);
	if (!err)
		err = files_replace(folder, name, 0644, pem.data, pem.len);
	return err ? cannot_make(f, err, what) : 0;
}

static int add_key(const char *store, const struct key_folder *to, const char *key_path,
	char ret_id[KEY_ID_SIZE], struct fault *f)
{
	AUTO_CLOSE int folder = -1;
	struct key *k;
	int err = keyring_read_public(key_path, &k, f);

	if (err)
		return err;
	err = open_keys(store, to, &folder, f);
	if (!err)
		err = write_public_key(folder, k, to->what, f);
	if (!err)
		key_id(k, ret_id);
	key_free(k);
	return err;
}

int store_trust(const char *store, const char *key_path, char ret_id[KEY_ID_SIZE], struct fault *f)
{
	static const struct key_folder trust = { TRUST_FOLDER, "the trust folder" };

	return add_key(store, &trust, key_path, ret_id, f);
}

int store_approver(const char *store, const char *key_path, char ret_id[KEY_ID_SIZE],
	struct fault *f)
{
	static const struct key_folder approvers = { APPROVERS_FOLDER, "the approvers folder" };

	return add_key(store, &approvers, key_path, ret_id, f);
}

/* --- from a package --------------------------------------------------------------------------- */

/* What else a package folder holds (a README, the script that made it) does not belong to the
 * artifact. */
static const char *const package_folders[] = { "calbin", "tokenizer", "golden" };

struct copy {
	struct artifact_build *build;
	const char *name; /* of the folder that is copied */
	int folder;
	struct fault *f;
};

static int cannot_read(struct fault *f, int err, const char *folder, const char *path)
{
	const char *slash = path[0] ? "/" : "";

	if (err == -ELOOP)
		return fault_set(f, err, "put the file itself there", "%s%s%s is a link", folder,
			slash, path);
	if (err == -EINVAL)
		return fault_set(f, err, "remove it", "%s%s%s is not a plain file or folder",
			folder, slash, path);
	return fault_set(f, err, "see that the package is complete and readable",
		"cannot read %s%s%s: %s", folder, slash, path, strerror(-err));
}

static int copy_file(void *context, const char *path)
{
	const struct copy *c = context;
	AUTO_CLOSE int fd = -1;
	char to[FILES_PATH_MAX];
	uint64_t size;
	int err = files_open(c->folder, path, FILES_ANY, &fd, &size);

	if (err)
		return cannot_read(c->f, err, c->name, path);
	if (snprintf(to, sizeof to, "%s/%s", c->name, path) >= (int)sizeof to)
		return cannot_read(c->f, -ENAMETOOLONG, c->name, path);
	return artifact_build_copy(c->build, to, fd, c->f);
}

static int copy_folder(struct artifact_build *b, int package, const char *name, struct fault *f)
{
	AUTO_CLOSE int folder = -1;
	struct copy c = { b, name, -1, f };
	struct fault mine = FAULT_NONE;
	char where[FILES_PATH_MAX];
	int err = files_open_folder(package, name, FILES_ANY, &folder);

	if (err)
		return cannot_read(f, err, name, "");
	c.folder = folder;
	c.f = &mine;
	err = files_walk(folder, FILES_ANY, copy_file, &c, where);
	if (err && !mine.err)
		return cannot_read(f, err, name, where);
	if (err && f)
		*f = mine;
	return err;
}

static int copy_package(struct artifact_build *b, int package, struct fault *f)
{
	int err = 0;

	for (size_t i = 0; !err && i < ARRAY_SIZE(package_folders); i++) {
		struct stat st;

		if (i > 0 && fstatat(package, package_folders[i], &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		err = copy_folder(b, package, package_folders[i], f);
	}
	return err;
}

int artifact_import_package(const char *package, const char *dest, struct fault *f)
{
	AUTO_BUF struct buf template = BUF_INIT;
	AUTO_CLOSE int from = -1;
	struct artifact_build b;
	int err = files_open_root(package, FILES_ANY, &from);

	if (err)
		return cannot_read(f, err, "the package", "");
	err = files_load(from, TEMPLATE_FILE, FILES_ANY, MANIFEST_MAX_BYTES, &template);
	if (err)
		return cannot_read(f, err, TEMPLATE_FILE, "");
	err = artifact_build_begin(&b, dest, f);
	if (err)
		return err;
	err = copy_package(&b, from, f);
	if (!err)
		err = artifact_build_manifest(&b, buf_text(&template), template.len, f);
	return artifact_build_end(&b, err, f);
}

/* --- signing ---------------------------------------------------------------------------------- */

/* Only what is there as the manifest says gets signed. */
static int load_manifest(int dir, struct buf *text, const struct findings *to)
{
	struct manifest *m;
	int err = files_load(dir, MANIFEST_FILE, FILES_OWN, MANIFEST_MAX_BYTES, text);

	if (err)
		return artifact_refuse(to, err, "the manifest", MANIFEST_FILE);
	err = manifest_parse(buf_text(text), text->len, true, &m, to->f);
	if (err)
		return err;
	err = artifact_check_content(dir, m, to);
	manifest_free(m);
	return err;
}

static int write_signature(int dir, const struct key *k, const struct findings *to)
{
	AUTO_BUF struct buf text = BUF_INIT, sig = BUF_INIT;
	int err;

	/* A crash may have left it; then it would be a file that the manifest does not list. */
	unlinkat(dir, FILES_HALF_PREFIX SIGNATURE_FILE FILES_HALF_SUFFIX, 0);
	err = load_manifest(dir, &text, to);
	if (err)
		return err;
	err = artifact_make_signature(k, &text, &sig);
	if (!err)
		err = files_replace(dir, SIGNATURE_FILE, 0644, sig.data, sig.len);
	return err ? fault_set(to->f, err, "see that there is room and permission, then try again",
			     "cannot write the signature: %s", strerror(-err))
		   : 0;
}

int artifact_sign(const char *dir, const char *key_path, struct fault *f, struct buf *detail)
{
	const struct findings to = { f, detail };
	AUTO_CLOSE int fd = -1;
	struct key *k;
	int err = files_open_root(dir, FILES_OWN, &fd);

	if (err)
		return artifact_refuse_missing(&to, err, "the artifact's folder",
			"name STORE/models/ALIAS");
	err = keyring_read_private(key_path, &k, f);
	if (err)
		return err;
	err = write_signature(fd, k, &to);
	key_free(k);
	return err;
}
