/* Calbin: damaged copies of the artifact, in a store of its own in a temporary folder that a key made
 * for it may sign. Damage after the signature must be found by verification; what was signed so must
 * be found by the device, or by the comparison with the manifest. Either way before any traffic. */
#include "core/matrix/matrix_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/buf.h"
#include "core/base/files.h"
#include "core/base/files_write.h"
#include "core/base/json.h"
#include "core/base/mem.h"

#define COPY    "model"
#define PACKAGE "package"
#define CALBIN  "calbin/"

enum damage { INTACT, MISSING, GARBAGE, FLIPPED, VERSION, RUNTIME, GOLDEN };

struct bench {
	char root[sizeof MATRIX_WORK_TEMPLATE];
	char store[64], package[64], key[64], public_key[64], dest[96];
	int at; /* the folder, open */
};

static int bench_new(struct bench *b)
{
	strcpy(b->root, MATRIX_WORK_TEMPLATE);
	b->at = -1;
	if (!mkdtemp(b->root))
		return -errno;
	snprintf(b->store, sizeof b->store, "%s/store", b->root);
	snprintf(b->package, sizeof b->package, "%s/" PACKAGE, b->root);
	snprintf(b->key, sizeof b->key, "%s/key.pem", b->root);
	snprintf(b->public_key, sizeof b->public_key, "%s/key.pub.pem", b->root);
	snprintf(b->dest, sizeof b->dest, "%s/models/" COPY, b->store);
	b->at = open(b->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return b->at < 0 ? -errno : 0;
}

static void bench_free(struct bench *b)
{
	files_close(&b->at);
	files_remove_tree(AT_FDCWD, b->root);
}

/* --- making a copy ---------------------------------------------------------------------------- */

static int make_keys(struct bench *b, struct fault *f)
{
	AUTO_BUF struct buf private = BUF_INIT, public = BUF_INIT;
	char id[KEY_ID_SIZE];
	struct key *k;
	int err = key_generate(&k);

	if (err)
		return err;
	err = key_private_pem(k, &private);
	if (!err)
		err = key_public_pem(k, &public);
	if (!err)
		err = files_write(b->at, "key.pem", 0600, private.data, private.len);
	if (!err)
		err = files_write(b->at, "key.pub.pem", 0644, public.data, public.len);
	key_free(k);
	if (!err)
		err = store_init(b->store, f);
	return err ? err : store_trust(b->store, b->public_key, id, f);
}

static void change_manifest(struct json_value *root, enum damage damage)
{
	struct json_value *list;

	json_remove(root, "files");
	if (damage == VERSION) {
		json_remove(root, "calbin_version");
		json_add_string(root, "calbin_version", LAYER_OTHER_VERSION);
	}
	if (damage == RUNTIME) {
		json_remove(root, "compatible");
		list = json_add_array(json_add_object(root, "compatible"), "runtime");
		json_add_string(list, NULL, LAYER_OTHER_VERSION);
	}
}

/* The template that an import starts from is the manifest without its files. */
static int write_template(struct matrix *m, struct bench *b, enum damage damage)
{
	AUTO_BUF struct buf text = BUF_INIT, out = BUF_INIT;
	struct json_value *root;
	AUTO_CLOSE int dir = -1;
	int err = files_open_root(m->artifact->dir, FILES_OWN, &dir);

	if (!err)
		err = files_load(dir, "manifest.json", FILES_OWN, MANIFEST_MAX_BYTES, &text);
	if (!err)
		err = json_parse(text.data, text.len, &root, NULL);
	if (err)
		return err;
	change_manifest(root, damage);
	err = json_render(root, true, &out);
	json_free(root);
	return err ? err : files_write(b->at, PACKAGE "/artifact.json", 0644, out.data, out.len);
}

/* The calbin's first file stands for its program, the golden output for the golden data. */
static bool is_hit(const struct matrix *m, const struct file_spec *file, enum damage damage)
{
	const struct manifest *a = m->manifest;

	if (damage == GOLDEN)
		return a->n_golden && file == a->golden[0].output;
	for (size_t i = 0; i < a->n_files; i++)
		if (strncmp(a->files[i].path, CALBIN, sizeof CALBIN - 1) == 0)
			return file == &a->files[i];
	return false;
}

static int write_damaged(struct matrix *m, struct bench *b, const struct file_spec *file,
	const char *to, enum damage damage)
{
	AUTO_FREE void *bytes = NULL;
	struct fault f;
	size_t n;
	int err;

	if (damage == MISSING)
		return 0;
	if (damage == GARBAGE)
		return files_write(b->at, to, 0644, "not a program\n", 14);
	err = artifact_read(m->artifact, file, &bytes, &n, &f);
	if (err)
		return err;
	((unsigned char *)bytes)[n - 1] ^= 0x40;
	return files_write(b->at, to, 0644, bytes, n);
}

static int copy_files(struct matrix *m, struct bench *b, enum damage damage)
{
	bool hits = damage == MISSING || damage == GARBAGE || damage == GOLDEN;
	AUTO_CLOSE int dir = -1;
	int err = files_open_root(m->artifact->dir, FILES_OWN, &dir);

	for (size_t i = 0; !err && i < m->manifest->n_files; i++) {
		const struct file_spec *file = &m->manifest->files[i];
		char to[MANIFEST_PATH_MAX + sizeof PACKAGE + 1];
		AUTO_CLOSE int from = -1;
		uint64_t size;

		snprintf(to, sizeof to, PACKAGE "/%s", file->path);
		if (hits && is_hit(m, file, damage)) {
			err = write_damaged(m, b, file, to, damage);
			continue;
		}
		err = files_open(dir, file->path, FILES_OWN, &from, &size);
		if (!err)
			err = files_copy(from, b->at, to, 0644);
	}
	return err;
}

static int make_signed(struct matrix *m, struct bench *b, enum damage damage, struct fault *f)
{
	AUTO_BUF struct buf detail = BUF_INIT;
	int err = make_keys(b, f);

	if (!err)
		err = copy_files(m, b, damage);
	if (!err)
		err = write_template(m, b, damage);
	if (!err)
		err = artifact_import_package(b->package, b->dest, f);
	return err ? err : artifact_sign(b->dest, b->key, f, &detail);
}

/* --- what must come of it --------------------------------------------------------------------- */

static void made(struct matrix *m, int err, const struct fault *f)
{
	matrix_judge(m, err == 0, "making the copy: %s %s", fault_errno_name(err), f->reason);
}

/* Take the copy up; its verification, and then its generation. */
static enum npu_error try_copy(struct matrix *m, const struct bench *b, const char **ret_by)
{
	struct artifact *real = m->artifact;
	const struct manifest *manifest = m->manifest;
	struct fault f = FAULT_NONE;
	enum npu_error code;

	*ret_by = "verification";
	if (artifact_verify(b->store, COPY, &m->artifact, &f)) {
		m->artifact = real;
		return f.device ? f.device : NPU_UNKNOWN;
	}
	*ret_by = "the way up";
	m->manifest = m->artifact->manifest;
	code = matrix_open_generation(m);
	matrix_close_generation(m);
	artifact_free(m->artifact);
	m->artifact = real;
	m->manifest = manifest;
	return code;
}

static bool is_one_of(enum npu_error code, const enum npu_error *list)
{
	for (; *list; list++)
		if (*list == code)
			return true;
	return false;
}

static const struct expected {
	enum damage damage;
	bool after;       /* the signature */
	bool golden_runs; /* so something may be submitted */
	enum npu_error codes[4];
} expected[] = {
	{ INTACT, false, true, { NPU_SUCCESS } },
	{ MISSING, true, false, { NPU_FILE_NOT_FOUND } },
	{ FLIPPED, true, false, { NPU_BROKEN_FILE } },
	{ MISSING, false, false, { NPU_FILE_NOT_FOUND, NPU_INVALID_CALBIN } },
	{ GARBAGE, false, false, { NPU_INVALID_ELF, NPU_BROKEN_FILE, NPU_INVALID_CALBIN } },
	{ VERSION, false, false, { NPU_INVALID_CALBIN, NPU_REQUIRE_NEWER_RT } },
	{ RUNTIME, false, false, { NPU_REQUIRE_NEWER_RT } },
	{ GOLDEN, false, true, { NPU_NOT_EXPECTED } },
};

enum {
	COPY_INTACT,
	MISSING_AFTER,
	WRONG_HASH,
	MISSING_SIGNED,
	BAD_ELF,
	WRONG_VERSION,
	WRONG_RUNTIME,
	WRONG_GOLDEN
};

static int damage_signed(struct matrix *m, const struct bench *b, enum damage damage)
{
	char path[160 + MANIFEST_PATH_MAX];
	unsigned char byte;
	int fd, err = 0;

	for (size_t i = 0; i < m->manifest->n_files; i++)
		if (is_hit(m, &m->manifest->files[i], damage))
			snprintf(path, sizeof path, "%s/%s", b->dest, m->manifest->files[i].path);
	if (damage == MISSING)
		return unlink(path) ? -errno : 0;
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (pread(fd, &byte, 1, 0) != 1 || (byte ^= 1, pwrite(fd, &byte, 1, 0)) != 1)
		err = -EIO;
	close(fd);
	return err;
}

static void try_damaged(struct matrix *m, const struct bench *b, const struct expected *e)
{
	enum npu_error first = matrix_open_device(m), code;
	const char *by;

	if (!first)
		first = matrix_open_generation(m);
	matrix_close_generation(m);
	if (first) {
		matrix_judge(m, false, "the artifact itself: %s", matrix_error(first));
		return;
	}
	matrix_mark(m);
	code = try_copy(m, b, &by);
	matrix_judge(m, e->codes[0] ? is_one_of(code, e->codes) : code == NPU_SUCCESS, "%s by %s%s",
		matrix_error(code), by, code ? "" : ": it was taken");
	matrix_judge(m, e->golden_runs || !matrix_calls(m, CALL_INFER), "%s by %s, %s",
		matrix_error(code), by,
		matrix_calls(m, CALL_INFER) ? "after traffic" : "nothing submitted");
}

static void damaged(struct matrix *m, int arg)
{
	const struct expected *e = &expected[arg];
	struct fault f = FAULT_NONE;
	struct bench b;
	int err;

	if (!m->artifact) {
		matrix_skip(m, "the backend brings its own artifact");
		return;
	}
	if (e->damage == GOLDEN && !m->manifest->n_golden) {
		matrix_skip(m, "the artifact has no golden run");
		return;
	}
	err = bench_new(&b);
	if (!err)
		err = make_signed(m, &b, e->after ? INTACT : e->damage, &f);
	if (!err && e->after)
		err = damage_signed(m, &b, e->damage);
	made(m, err, &f);
	if (!err)
		try_damaged(m, &b, e);
	bench_free(&b);
}

static const struct matrix_case cases[] = {
	{ "an intact copy", FOR_ANY, NEEDS_NOTHING, damaged, COPY_INTACT },
	{ "missing file", FOR_ANY, NEEDS_NOTHING, damaged, MISSING_AFTER },
	{ "wrong hash", FOR_ANY, NEEDS_NOTHING, damaged, WRONG_HASH },
	{ "missing file, signed without it", FOR_ANY, NEEDS_NOTHING, damaged, MISSING_SIGNED },
	{ "bad ELF", FOR_ANY, NEEDS_NOTHING, damaged, BAD_ELF },
	{ "wrong version", FOR_ANY, NEEDS_NOTHING, damaged, WRONG_VERSION },
	{ "runtime not listed", FOR_ANY, NEEDS_NOTHING, damaged, WRONG_RUNTIME },
	{ "wrong golden output", FOR_ANY, NEEDS_NOTHING, damaged, WRONG_GOLDEN },
};

const struct matrix_group matrix_calbin = { "calbin", cases, ARRAY_SIZE(cases) };
