/* Verification, from the outside in: folders, manifest and signature, then each file. Nothing of the artifact is
 * used before what vouches for it was checked, and what is read later is checked again. */
#include "core/artifact.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/files.h"
#include "core/mem.h"

#define REPAIR     "install the artifact again and sign it"
#define MAX_PEM    65536
#define OWN_FILES  2 /* manifest.json and manifest.sig */

static int broken(struct fault *f, int err, enum npu_error device, const char *action,
	const char *reason)
{
	fault_set(f, err, action, "%s", reason);
	if (f)
		f->device = device;
	return err;
}

/* What a failed open or check of something means. */
static int describe(struct fault *f, int err, const char *what)
{
	static const struct {
		int err;
		enum npu_error device;
		const char *action, *reason;
	} kinds[] = {
		{ -ENOENT, NPU_FILE_NOT_FOUND, REPAIR, "is missing" },
		{ -EPERM, NPU_BROKEN_FILE, "chown it to root and chmod go-w",
			"has a wrong owner or can be written by others" },
		{ -ELOOP, NPU_BROKEN_FILE, "put a plain file there", "is a link or no plain file" },
		{ -ENOTDIR, NPU_BROKEN_FILE, "put a plain folder there", "is no folder" },
		{ -EFBIG, NPU_BROKEN_FILE, REPAIR, "has another size than the manifest says" },
		{ -EBADMSG, NPU_BROKEN_FILE, REPAIR, "has other content than was signed" },
	};
	char reason[200];

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (kinds[i].err == err) {
			snprintf(reason, sizeof reason, "%s %s", what, kinds[i].reason);
			return broken(f, err, kinds[i].device, kinds[i].action, reason);
		}
	snprintf(reason, sizeof reason, "%s cannot be read: %s", what, strerror(-err));
	return broken(f, err, NPU_BROKEN_FILE, "look at the store", reason);
}

/* --- who signed ----------------------------------------------------------------------------------------- */

struct signature {
	struct buf manifest, sig;
	char signer[KEY_ID_SIZE];
};

/* 0 when this key signed it. */
static int try_key(int trust, const char *name, struct signature *s)
{
	AUTO_BUF struct buf pem = BUF_INIT;
	struct key *key = NULL;
	int err = files_read(trust, name, MAX_PEM, &pem);

	if (!err)
		err = key_from_public_pem(buf_text(&pem), pem.len, &key);
	if (!err)
		err = key_verify(key, s->manifest.data, s->manifest.len, (unsigned char *)s->sig.data,
			s->sig.len);
	if (!err)
		key_id(key, s->signer);
	key_free(key);
	return err;
}

static bool is_pem(const char *name)
{
	size_t n = strlen(name);

	return n > 4 && strcmp(name + n - 4, ".pem") == 0;
}

static int find_signer(int store, struct signature *s, struct fault *f)
{
	AUTO_CLOSE int trust = -1;
	char **names = NULL;
	int found = -EKEYREJECTED;
	int err = files_open_dir(store, "trust", &trust);

	if (err)
		return describe(f, err, "the trust folder");
	if (s->sig.len != ED25519_SIG_SIZE)
		return broken(f, -EBADMSG, NPU_BROKEN_FILE, "sign it: npufs-admin artifact sign",
			"the signature is not one");
	err = files_list(trust, &names);
	for (char **n = names; !err && found && *n; n++) {
		int tried = is_pem(*n) ? try_key(trust, *n, s) : -EBADMSG;

		if (tried == -EPERM || tried == -ELOOP)
			err = describe(f, tried, "a key of the trust folder");
		found = tried ? found : 0;
	}
	files_list_free(names);
	if (err || !found)
		return err;
	return broken(f, found, NPU_BROKEN_FILE,
		"trust its signer: npufs-admin store trust; or sign it with a trusted key",
		"no trusted key made this signature over this manifest");
}

static int read_signature(int dir, struct signature *s, struct fault *f)
{
	int err = files_read(dir, "manifest.json", MANIFEST_MAX_BYTES, &s->manifest);

	if (err)
		return describe(f, err, "the manifest");
	err = files_read(dir, "manifest.sig", 4096, &s->sig);
	return err ? describe(f, err, "the signature") : 0;
}

/* --- files ------------------------------------------------------------------------------------------------ */

static int verify_file(int dir, const struct file_spec *file)
{
	AUTO_CLOSE int fd = -1;
	char hex[SHA256_HEX_SIZE];
	uint64_t size;
	int err = files_open(dir, file->path, &fd, &size);

	if (!err && size != file->size)
		err = -EFBIG;
	if (!err)
		err = files_digest(fd, hex);
	if (!err && strcmp(hex, file->sha256) != 0)
		err = -EBADMSG;
	return err;
}

/* Others see the reason: it says which file by its number; the field has the name for an administrator. */
static int blame_file(struct fault *f, int err, size_t i, const struct file_spec *file)
{
	char what[64];

	snprintf(what, sizeof what, "file %zu of the artifact", i + 1);
	describe(f, err, what);
	if (f)
		snprintf(f->field, sizeof f->field, "%.47s", file->path);
	return err;
}

static int verify_files(int dir, const struct manifest *m, struct fault *f)
{
	size_t have = 0;
	int err;

	for (size_t i = 0; i < m->n_files; i++) {
		err = verify_file(dir, &m->files[i]);
		if (err)
			return blame_file(f, err, i, &m->files[i]);
	}
	err = files_count(dir, &have);
	if (err)
		return describe(f, err, "something in the artifact");
	if (have == m->n_files + OWN_FILES)
		return 0;
	fault_set(f, -EINVAL, "remove what does not belong there, or sign a manifest that lists it",
		"the artifact has %zu files that the manifest does not list", have - m->n_files - OWN_FILES);
	if (f)
		f->device = NPU_BROKEN_FILE;
	return -EINVAL;
}

/* --- the whole ---------------------------------------------------------------------------------------------- */

static int open_artifact(const char *store, const char *alias, int *ret_store, int *ret_dir,
	struct fault *f)
{
	AUTO_CLOSE int models = -1;
	int err;

	if (!alias_valid(alias))
		return broken(f, -EINVAL, NPU_INVALID_VALUE, "use letters, digits, dot, dash, underscore",
			"the alias is not valid");
	err = files_open_dir(AT_FDCWD, store, ret_store);
	if (err)
		return describe(f, err, "the store");
	err = files_open_dir(*ret_store, "models", &models);
	if (err)
		return describe(f, err, "the models folder");
	err = files_open_dir(models, alias, ret_dir);
	return err ? describe(f, err, "the artifact's folder") : 0;
}

static int fill(struct artifact *a, const char *store, const char *alias, struct fault *f)
{
	struct signature s = { .manifest = BUF_INIT, .sig = BUF_INIT };
	AUTO_CLOSE int root = -1;
	AUTO_CLOSE int dir = -1;
	int err = open_artifact(store, alias, &root, &dir, f);

	if (!err)
		err = read_signature(dir, &s, f);
	if (!err)
		err = find_signer(root, &s, f);
	if (!err)
		err = manifest_parse(s.manifest.data, s.manifest.len, true, &a->manifest, f);
	if (!err)
		err = verify_files(dir, a->manifest, f);
	if (!err) {
		sha256_hex(s.manifest.data, s.manifest.len, a->sha256);
		memcpy(a->signer, s.signer, sizeof a->signer);
		strcpy(a->alias, alias);
		if (asprintf(&a->dir, "%s/models/%s", store, alias) < 0) {
			a->dir = NULL;
			err = -ENOMEM;
		}
	}
	buf_done(&s.manifest);
	buf_done(&s.sig);
	return err;
}

int artifact_verify(const char *store, const char *alias, struct artifact **ret, struct fault *f)
{
	struct artifact *a = calloc(1, sizeof *a);
	int err = a ? fill(a, store, alias, f) : -ENOMEM;

	if (err) {
		artifact_free(a);
		return err;
	}
	*ret = a;
	return 0;
}

void artifact_free(struct artifact *a)
{
	if (!a)
		return;
	manifest_free(a->manifest);
	free(a->dir);
	free(a);
}

int artifact_read(const struct artifact *a, const struct file_spec *file, void **ret, size_t *ret_len,
	struct fault *f)
{
	AUTO_BUF struct buf bytes = BUF_INIT;
	AUTO_CLOSE int dir = -1;
	char hex[SHA256_HEX_SIZE];
	int err = files_open_dir(AT_FDCWD, a->dir, &dir);

	if (!err)
		err = files_read(dir, file->path, file->size, &bytes);
	if (!err && bytes.len != file->size)
		err = -EFBIG;
	if (!err) {
		sha256_hex(buf_text(&bytes), bytes.len, hex);
		err = strcmp(hex, file->sha256) == 0 ? 0 : -EBADMSG;
	}
	if (err)
		return blame_file(f, err, (size_t)(file - a->manifest->files), file);
	*ret_len = bytes.len;
	*ret = bytes.data ? take_ptr(bytes.data) : calloc(1, 1);
	return *ret ? 0 : -ENOMEM;
}

int artifact_list(const char *store, char ***ret, struct fault *f)
{
	AUTO_CLOSE int root = -1;
	AUTO_CLOSE int models = -1;
	char **names = NULL;
	size_t kept = 0;
	int err = files_open_dir(AT_FDCWD, store, &root);

	if (err)
		return describe(f, err, "the store");
	err = files_open_dir(root, "models", &models);
	if (err)
		return describe(f, err, "the store's models folder");
	err = files_list(models, &names);
	for (size_t i = 0; !err && names[i]; i++) {
		if (alias_valid(names[i]))
			names[kept++] = names[i];
		else
			free(names[i]);
	}
	if (err)
		return err;
	names[kept] = NULL;
	*ret = names;
	return 0;
}

void artifact_list_free(char **aliases)
{
	files_list_free(aliases);
}
