/* The order of verification: folders by owner and mode, then the signature over the manifest's
 * bytes, and only then is the manifest parsed and the files it lists are looked at. So whatever is
 * parsed was signed. */
#include "core/artifact/artifact_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/files.h"
#include "core/base/mem.h"

#define EXTRAS_NAMED_MAX    20 /* in the detail */
#define SIGNATURE_MAX_BYTES 4096

/* --- refusals --------------------------------------------------------------------------------- */

#define IMPORT_AGAIN "import the artifact again and sign it"

static const struct cause {
	int err;
	enum npu_error device;
	const char *is, *action;
} causes[] = {
	{ -ENOENT, NPU_FILE_NOT_FOUND, "is missing", "restore it, or " IMPORT_AGAIN },
	{ -ELOOP, NPU_INVALID_CALBIN, "is a link", "replace the link by what it points to" },
	{ -EPERM, NPU_INVALID_CALBIN, "can be changed by others",
		"chown it to root or the daemon's user and chmod go-w" },
	{ -EINVAL, NPU_INVALID_CALBIN, "is not a plain file or folder where there must be one",
		"remove it, or " IMPORT_AGAIN },
	{ -ENAMETOOLONG, NPU_INVALID_CALBIN, "is nested too deep", "remove it" },
	{ -EFBIG, NPU_BROKEN_FILE, "is larger than allowed", IMPORT_AGAIN },
	{ -EBADMSG, NPU_BROKEN_FILE, "has other bytes than the manifest says", IMPORT_AGAIN },
	{ -EEXIST, NPU_INVALID_CALBIN, "is not listed", "remove it, or " IMPORT_AGAIN },
	{ -EKEYREJECTED, NPU_INVALID_CALBIN, "is not trusted",
		"add the signer's public key to the store" },
	{ -ENOMEM, NPU_MEMORY_ALLOCATION, "did not fit in memory", "free memory, then try again" },
};

static const struct cause *cause_of(int err)
{
	static const struct cause other = { 0, NPU_BROKEN_FILE, NULL,
		"look at the disk and at the file" };

	for (size_t i = 0; i < ARRAY_SIZE(causes); i++)
		if (causes[i].err == err)
			return &causes[i];
	return &other;
}

int artifact_code(const struct findings *to, int err)
{
	if (to->f)
		to->f->device = cause_of(err)->device;
	return err;
}

int artifact_refuse(const struct findings *to, int err, const char *what, const char *name)
{
	const struct cause *c = cause_of(err);

	if (c->is)
		fault_set(to->f, err, c->action, "%s %s", what, c->is);
	else
		fault_set(to->f, err, c->action, "%s could not be read: %s", what,
			fault_errno_name(err));
	if (to->detail && name)
		buf_printf(to->detail, "%s\n", name);
	return artifact_code(to, err);
}

int artifact_refuse_missing(const struct findings *to, int err, const char *what,
	const char *if_missing)
{
	artifact_refuse(to, err, what, NULL);
	if (err == -ENOENT && to->f)
		snprintf(to->f->action, sizeof to->f->action, "%s", if_missing);
	return err;
}

/* --- content ---------------------------------------------------------------------------------- */

struct content {
	const struct manifest *m;
	struct findings to;
	size_t extras;
};

#define WHAT_SIZE 64

static const char *what_is(const struct manifest *m, const struct file_spec *file,
	char ret[WHAT_SIZE])
{
	if (file)
		snprintf(ret, WHAT_SIZE, "file number %zu of the manifest",
			(size_t)(file - m->files) + 1);
	else
		snprintf(ret, WHAT_SIZE, "something in the artifact's folder");
	return ret;
}

static int refuse_file(const struct content *c, int err, const char *path)
{
	const struct file_spec *file = manifest_file(c->m, path);
	char what[WHAT_SIZE];

	artifact_refuse(&c->to, err, what_is(c->m, file, what), path);
	if (file && c->to.f)
		snprintf(c->to.f->field, sizeof c->to.f->field, "files[%zu]",
			(size_t)(file - c->m->files));
	return err;
}

static int count_extra(void *context, const char *path)
{
	struct content *c = context;

	if (strcmp(path, MANIFEST_FILE) == 0 || strcmp(path, SIGNATURE_FILE) == 0 ||
		manifest_file(c->m, path))
		return 0;
	if (c->to.detail && c->extras < EXTRAS_NAMED_MAX)
		buf_printf(c->to.detail, "%s\n", path);
	c->extras++;
	return 0;
}

static int check_extras(struct content *c)
{
	if (c->extras == 0)
		return 0;
	fault_set(c->to.f, -EEXIST, cause_of(-EEXIST)->action,
		"the artifact has %zu file%s that the manifest does not list", c->extras,
		c->extras == 1 ? "" : "s");
	return artifact_code(&c->to, -EEXIST);
}

static int wrong_size(const struct content *c, const struct file_spec *file, uint64_t size)
{
	char what[WHAT_SIZE];

	refuse_file(c, -EFBIG, file->path);
	if (c->to.f)
		snprintf(c->to.f->reason, sizeof c->to.f->reason,
			"%s has %" PRIu64 " bytes, %" PRIu64 " are listed",
			what_is(c->m, file, what), size, file->size);
	return -EFBIG;
}

static int check_file(const struct content *c, int dir, const struct file_spec *file)
{
	AUTO_CLOSE int fd = -1;
	char hex[SHA256_HEX_SIZE];
	uint64_t size;
	int err = files_open(dir, file->path, FILES_OWN, &fd, &size);

	if (err)
		return refuse_file(c, err, file->path);
	if (size == file->size)
		err = files_digest(fd, file->size, &size, hex);
	if (err && err != -EFBIG)
		return refuse_file(c, err, file->path);
	if (err || size != file->size)
		return wrong_size(c, file, size);
	return strcmp(hex, file->sha256) == 0 ? 0 : refuse_file(c, -EBADMSG, file->path);
}

int artifact_check_content(int dir, const struct manifest *m, const struct findings *to)
{
	struct content c = { m, *to, 0 };
	char where[FILES_PATH_MAX];
	int err = files_walk(dir, FILES_OWN, count_extra, &c, where);

	if (err)
		return refuse_file(&c, err, where);
	err = check_extras(&c);
	for (size_t i = 0; !err && i < m->n_files; i++)
		err = check_file(&c, dir, &m->files[i]);
	return err;
}

/* --- verification ----------------------------------------------------------------------------- */

static int open_artifact(const char *store, const char *alias, int *ret_store, int *ret_dir,
	const struct findings *to)
{
	AUTO_CLOSE int models = -1;
	int err;

	if (!alias_valid(alias)) {
		fault_set(to->f, -EINVAL,
			"use letters, digits and . _ -, the first a letter or digit",
			"the alias is not well-formed");
		return artifact_code(to, -EINVAL);
	}
	err = files_open_root(store, FILES_OWN, ret_store);
	if (err)
		return artifact_refuse_missing(to, err, "the store's folder", MAKE_STORE);
	err = files_open_folder(*ret_store, MODELS_FOLDER, FILES_OWN, &models);
	if (err)
		return artifact_refuse_missing(to, err, "the store's models folder", MAKE_STORE);
	err = files_open_folder(models, alias, FILES_OWN, ret_dir);
	return err ? artifact_refuse_missing(to, err, "the artifact's folder",
			     "use an alias that the store's models folder has")
		   : 0;
}

static int load_part(int dir, const char *name, uint64_t most, const char *what, struct buf *ret,
	const struct findings *to)
{
	int err = files_load(dir, name, FILES_OWN, most, ret);

	return err ? artifact_refuse(to, err, what, name) : 0;
}

static int load_signature(int dir, struct buf *ret, const struct findings *to)
{
	int err = load_part(dir, SIGNATURE_FILE, SIGNATURE_MAX_BYTES, "the manifest's signature",
		ret, to);

	if (err == -ENOENT)
		return artifact_refuse_missing(to, err, "the manifest's signature",
			"sign it with npufs-admin artifact sign");
	return err;
}

static int parse_manifest(const struct buf *text, struct manifest **ret, const struct findings *to)
{
	int err = manifest_parse(buf_text(text), text->len, true, ret, to->f);

	return err ? artifact_code(to, err == -ENOMEM ? err : -EINVAL) : 0;
}

static int verify(struct artifact *a, int store, int dir, const struct findings *to)
{
	AUTO_BUF struct buf text = BUF_INIT, sig = BUF_INIT;
	int err = load_part(dir, MANIFEST_FILE, MANIFEST_MAX_BYTES, "the manifest", &text, to);

	if (!err)
		err = load_signature(dir, &sig, to);
	if (!err)
		err = artifact_check_signature(store, &text, &sig, a->signer, to);
	if (!err)
		err = parse_manifest(&text, &a->manifest, to);
	if (!err)
		err = artifact_check_content(dir, a->manifest, to);
	if (!err)
		sha256_hex(text.data, text.len, a->sha256);
	return err;
}

static int name_dir(struct artifact *a, const char *store, const char *alias)
{
	AUTO_FREE char *root = realpath(store, NULL);

	if (!root)
		return -errno;
	strcpy(a->alias, alias);
	return asprintf(&a->dir, "%s/" MODELS_FOLDER "/%s", root, alias) < 0 ? -ENOMEM : 0;
}

int artifact_inspect(const char *store, const char *alias, struct artifact **ret, struct fault *f,
	struct buf *detail)
{
	const struct findings to = { f, detail };
	AUTO_CLOSE int store_fd = -1, dir = -1;
	struct artifact *a;
	int err = open_artifact(store, alias, &store_fd, &dir, &to);

	if (err)
		return err;
	a = calloc(1, sizeof *a);
	if (a)
		a->fd = -1;
	err = a ? name_dir(a, store, alias) : -ENOMEM;
	err = err ? artifact_refuse(&to, err, "the store's folder", NULL)
		  : verify(a, store_fd, dir, &to);
	if (err) {
		artifact_free(a);
		return err;
	}
	a->fd = dir;
	dir = -1;
	*ret = a;
	return 0;
}

int artifact_verify(const char *store, const char *alias, struct artifact **ret, struct fault *f)
{
	return artifact_inspect(store, alias, ret, f, NULL);
}

void artifact_free(struct artifact *a)
{
	if (!a)
		return;
	manifest_free(a->manifest);
	files_close(&a->fd);
	free(a->dir);
	free(a);
}

void artifact_move(struct artifact *a, struct artifact *to)
{
	char *dir = a->dir;
	int fd = a->fd;

	a->dir = to->dir;
	a->fd = to->fd;
	to->dir = dir;
	to->fd = fd;
}

/* Other programs than this one can follow the plain path only, so it is used while it is true. */
const char *artifact_folder(const struct artifact *a, char ret[ARTIFACT_FOLDER_SIZE])
{
	struct stat own, named;

	if (fstat(a->fd, &own) < 0 || own.st_nlink == 0)
		return a->dir;
	if (stat(a->dir, &named) == 0 && named.st_dev == own.st_dev && named.st_ino == own.st_ino)
		return a->dir;
	snprintf(ret, ARTIFACT_FOLDER_SIZE, "/proc/self/fd/%d/.", a->fd);
	return ret;
}

struct stamp {
	int dir;
	struct sha256 *digest;
};

static int stamp_file(void *context, const char *path)
{
	const struct stamp *s = context;
	struct stat st;

	if (fstatat(s->dir, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	sha256_update(s->digest, path, strlen(path) + 1);
	sha256_update(s->digest, &st.st_ino, sizeof st.st_ino);
	sha256_update(s->digest, &st.st_size, sizeof st.st_size);
	sha256_update(s->digest, &st.st_ctim, sizeof st.st_ctim);
	return 0;
}

void artifact_stamp(const char *store, const char *alias, char ret_hex[SHA256_HEX_SIZE])
{
	const struct findings to = { NULL, NULL };
	AUTO_CLOSE int store_fd = -1, dir = -1;
	struct stamp s;
	int err;

	ret_hex[0] = '\0';
	if (open_artifact(store, alias, &store_fd, &dir, &to))
		return;
	s = (struct stamp){ dir, sha256_new() };
	err = s.digest ? files_walk(dir, FILES_ANY, stamp_file, &s, NULL) : -ENOMEM;
	sha256_finish(s.digest, ret_hex);
	if (err)
		ret_hex[0] = '\0';
}

/* --- reading ---------------------------------------------------------------------------------- */

static int read_file(const struct content *c, const char *dir, const struct file_spec *file,
	struct buf *ret)
{
	AUTO_CLOSE int folder = -1;
	char hex[SHA256_HEX_SIZE];
	int err = files_open_folder(AT_FDCWD, dir, FILES_OWN, &folder);

	if (err)
		return artifact_refuse(&c->to, err, "the artifact's folder", NULL);
	err = file->size > ARTIFACT_MAX_READ_BYTES ? -EFBIG : 0;
	if (!err)
		err = files_load(folder, file->path, FILES_OWN, file->size, ret);
	if (err)
		return refuse_file(c, err, file->path);
	if (ret->len != file->size)
		return wrong_size(c, file, ret->len);
	sha256_hex(ret->data, ret->len, hex);
	return strcmp(hex, file->sha256) == 0 ? 0 : refuse_file(c, -EBADMSG, file->path);
}

int artifact_read(const struct artifact *a, const struct file_spec *file, void **ret,
	size_t *ret_len, struct fault *f)
{
	const struct content c = { a->manifest, { f, NULL }, 0 };
	AUTO_BUF struct buf bytes = BUF_INIT;
	char at[ARTIFACT_FOLDER_SIZE];
	int err = read_file(&c, artifact_folder(a, at), file, &bytes);

	if (err)
		return err;
	*ret_len = bytes.len;
	*ret = take_ptr(bytes.data);
	return 0;
}

int artifact_unchanged(const struct artifact *a, struct fault *f)
{
	const struct findings to = { f, NULL };
	AUTO_CLOSE int dir = -1;
	char at[ARTIFACT_FOLDER_SIZE];
	int err = files_open_folder(AT_FDCWD, artifact_folder(a, at), FILES_OWN, &dir);

	return err ? artifact_refuse(&to, err, "the artifact's folder", NULL)
		   : artifact_check_content(dir, a->manifest, &to);
}

/* --- listing ---------------------------------------------------------------------------------- */

/* A link is listed, though verification will refuse it: so its owner learns why. */
static bool is_artifact(int models, const char *name)
{
	struct stat st;

	if (!alias_valid(name) || fstatat(models, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return false;
	return S_ISDIR(st.st_mode) || S_ISLNK(st.st_mode);
}

static int add_alias(char ***list, size_t *n, const char *name)
{
	char **more = realloc(*list, (*n + 2) * sizeof *more);

	if (!more)
		return -ENOMEM;
	*list = more;
	more[*n] = strdup(name);
	if (!more[*n])
		return -ENOMEM;
	more[++*n] = NULL;
	return 0;
}

static int compare_aliases(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Takes over `models`. */
static int list_folder(int models, char ***list)
{
	DIR *dir = fdopendir(models);
	const struct dirent *entry;
	size_t n = 0;
	int err = 0;

	if (!dir) {
		files_close(&models);
		return -ENOMEM;
	}
	while (!err && (errno = 0, entry = readdir(dir)))
		if (is_artifact(models, entry->d_name))
			err = add_alias(list, &n, entry->d_name);
	if (!err)
		err = -errno;
	closedir(dir);
	if (!err && n)
		qsort(*list, n, sizeof **list, compare_aliases);
	return err;
}

int artifact_list(const char *store, char ***ret, struct fault *f)
{
	const struct findings to = { f, NULL };
	AUTO_CLOSE int root = -1;
	char **list = calloc(1, sizeof *list);
	int models, err = list ? files_open_root(store, FILES_OWN, &root) : -ENOMEM;

	if (!err)
		err = files_open_folder(root, MODELS_FOLDER, FILES_OWN, &models);
	if (!err)
		err = list_folder(models, &list);
	if (err) {
		artifact_list_free(list);
		artifact_refuse_missing(&to, err,
			root < 0 ? "the store's folder" : "the store's models folder", MAKE_STORE);
		return err;
	}
	*ret = list;
	return 0;
}

void artifact_list_free(char **aliases)
{
	for (char **a = aliases; a && *a; a++)
		free(*a);
	free(aliases);
}
