/* A sound artifact in a store, and each kind of damage to it. */
#include "core/artifact/artifact.h"

#include "artifact_files.h"

#include <errno.h>

#include "core/base/json.h"

#define ALIAS "models/mlp"

struct fixture {
	struct work w;
	char store[64];
	char signer[KEY_ID_SIZE];
};

static int make_store(void **state)
{
	struct fixture *x = calloc(1, sizeof *x);
	struct fault f = FAULT_NONE;

	work_make(&x->w);
	snprintf(x->store, sizeof x->store, "%s", work_path(&x->w, "store"));
	work_key(&x->w, "signer", x->signer);
	work_package(&x->w, "package");
	if (store_init(x->store, &f) ||
		store_trust(x->store, work_path(&x->w, "signer.pub.pem"), x->signer, &f) ||
		artifact_import_package(work_path(&x->w, "package"),
			work_path(&x->w, "store/" ALIAS), &f) ||
		artifact_sign(work_path(&x->w, "store/" ALIAS), work_path(&x->w, "signer.pem"), &f,
			NULL))
		fail_msg("%s", f.reason);
	*state = x;
	return 0;
}

static int remove_store(void **state)
{
	struct fixture *x = *state;

	work_remove(&x->w);
	free(x);
	return 0;
}

static const char *in_store(struct fixture *x, const char *name)
{
	char path[128];

	snprintf(path, sizeof path, "store/%s", name);
	return work_path(&x->w, path);
}

static const char *in_artifact(struct fixture *x, const char *name)
{
	char path[128];

	snprintf(path, sizeof path, "store/" ALIAS "/%s", name);
	return work_path(&x->w, path);
}

/* Verification fails so, and the fault shows no path to users. `named`: what the detail for the
 * administrator has. */
static void expect(struct fixture *x, int err, enum npu_error device, const char *reason,
	const char *named)
{
	AUTO_BUF struct buf detail = BUF_INIT;
	struct fault f = FAULT_NONE;
	struct artifact *a = NULL;

	assert_int_equal(artifact_inspect(x->store, "mlp", &a, &f, &detail), err);
	assert_null(a);
	assert_int_equal(f.err, err);
	assert_int_equal(f.device, device);
	if (!strstr(f.reason, reason))
		fail_msg("\"%s\" does not say \"%s\"", f.reason, reason);
	assert_true(f.action[0]);
	assert_null(strchr(f.reason, '/'));
	assert_null(strchr(f.action, '/'));
	assert_null(strchr(f.field, '/'));
	assert_null(strstr(f.reason, "weights"));
	assert_string_equal(buf_text(&detail), named);
	assert_int_equal(artifact_verify(x->store, "mlp", &a, &f), err);
}

static void expect_sound(struct fixture *x)
{
	struct fault f = FAULT_NONE;
	struct artifact *a;

	if (artifact_verify(x->store, "mlp", &a, &f))
		fail_msg("%s", f.reason);
	artifact_free(a);
}

/* --- sound ------------------------------------------------------------------------------------ */

static void artifact_verify__sound__identity_and_signer(void **state)
{
	struct fixture *x = *state;
	AUTO_BUF struct buf text = BUF_INIT;
	struct fault f = FAULT_NONE;
	char hex[SHA256_HEX_SIZE];
	struct artifact *a;

	assert_int_equal(artifact_verify(x->store, "mlp", &a, &f), 0);
	assert_string_equal(a->alias, "mlp");
	assert_string_equal(a->dir, in_store(x, ALIAS));
	assert_string_equal(a->signer, x->signer);
	work_read(&x->w, "store/" ALIAS "/manifest.json", &text);
	sha256_hex(text.data, text.len, hex);
	assert_string_equal(a->sha256, hex);
	assert_int_equal(a->manifest->n_files, 4);
	artifact_free(a);
}

/* The digest of "weights" is what sha256sum prints. */
static void artifact_import_package__files__listed_in_order(void **state)
{
	static const char *const paths[] = { "calbin/parts/weights.bin", "calbin/program.json",
		"golden/mlp.in", "golden/mlp.out" };
	struct fixture *x = *state;
	struct fault f = FAULT_NONE;
	struct artifact *a;

	assert_int_equal(artifact_verify(x->store, "mlp", &a, &f), 0);
	for (size_t i = 0; i < 4; i++)
		assert_string_equal(a->manifest->files[i].path, paths[i]);
	assert_int_equal(a->manifest->files[0].size, 7);
	assert_string_equal(a->manifest->files[0].sha256,
		"9a129038d9a00aed0cf6a7ea059ca50a813449061ab87848cf1a13eafdf33b2c");
	assert_false(work_has(&x->w, "store/" ALIAS "/README.md"));
	assert_false(work_has(&x->w, "store/" ALIAS "/artifact.json"));
	artifact_free(a);
}

static void artifact_import_package__modes__as_documented(void **state)
{
	struct fixture *x = *state;

	assert_int_equal(work_mode(&x->w, "store/" ALIAS), 0755);
	assert_int_equal(work_mode(&x->w, "store/" ALIAS "/calbin"), 0755);
	assert_int_equal(work_mode(&x->w, "store/" ALIAS "/calbin/parts/weights.bin"), 0644);
	assert_int_equal(work_mode(&x->w, "store/" ALIAS "/manifest.json"), 0644);
	assert_int_equal(work_mode(&x->w, "store/" ALIAS "/manifest.sig"), 0644);
}

static void artifact_read__sound__the_bytes(void **state)
{
	struct fixture *x = *state;
	struct fault f = FAULT_NONE;
	struct artifact *a;
	void *bytes;
	size_t n;

	assert_int_equal(artifact_verify(x->store, "mlp", &a, &f), 0);
	assert_int_equal(artifact_read(a, &a->manifest->files[0], &bytes, &n, &f), 0);
	assert_int_equal(n, 7);
	assert_memory_equal(bytes, "weights", 7);
	free(bytes);
	artifact_free(a);
}

static void artifact_read__changed_after_verification__refused(void **state)
{
	struct fixture *x = *state;
	struct fault f = FAULT_NONE;
	struct artifact *a;
	void *bytes = NULL;
	size_t n;

	assert_int_equal(artifact_verify(x->store, "mlp", &a, &f), 0);
	work_write_text(&x->w, "store/" ALIAS "/calbin/parts/weights.bin", "weightZ");
	assert_int_equal(artifact_read(a, &a->manifest->files[0], &bytes, &n, &f), -EBADMSG);
	assert_string_equal(f.field, "files[0]");
	work_write_text(&x->w, "store/" ALIAS "/calbin/parts/weights.bin", "weight");
	assert_int_equal(artifact_read(a, &a->manifest->files[0], &bytes, &n, &f), -EFBIG);
	work_write_text(&x->w, "store/" ALIAS "/calbin/parts/weights.bin", "weights!");
	assert_int_equal(artifact_read(a, &a->manifest->files[0], &bytes, &n, &f), -EFBIG);
	assert_int_equal(unlink(in_artifact(x, "calbin/parts/weights.bin")), 0);
	assert_int_equal(artifact_read(a, &a->manifest->files[0], &bytes, &n, &f), -ENOENT);
	assert_null(bytes);
	artifact_free(a);
}

/* --- damaged files ---------------------------------------------------------------------------- */

#define WEIGHTS "calbin/parts/weights.bin"

static void artifact_verify__missing_file__enoent(void **state)
{
	struct fixture *x = *state;

	assert_int_equal(unlink(in_artifact(x, WEIGHTS)), 0);
	expect(x, -ENOENT, NPU_FILE_NOT_FOUND, "file number 1 of the manifest is missing",
		WEIGHTS "\n");
}

static void artifact_verify__missing_folder__enoent(void **state)
{
	struct fixture *x = *state;

	assert_int_equal(files_remove_tree(AT_FDCWD, in_artifact(x, "golden")), 0);
	expect(x, -ENOENT, NPU_FILE_NOT_FOUND, "file number 3 of the manifest is missing",
		"golden/mlp.in\n");
}

static void artifact_verify__flipped_bit__ebadmsg(void **state)
{
	struct fixture *x = *state;

	work_write_text(&x->w, "store/" ALIAS "/" WEIGHTS, "weighus");
	expect(x, -EBADMSG, NPU_BROKEN_FILE, "file number 1 of the manifest has other bytes",
		WEIGHTS "\n");
}

static void artifact_verify__truncated__efbig_with_both_sizes(void **state)
{
	struct fixture *x = *state;

	assert_int_equal(truncate(in_artifact(x, WEIGHTS), 6), 0);
	expect(x, -EFBIG, NPU_BROKEN_FILE, "number 1 of the manifest has 6 bytes, 7 are listed",
		WEIGHTS "\n");
}

static void artifact_verify__longer__efbig_with_both_sizes(void **state)
{
	struct fixture *x = *state;

	assert_int_equal(truncate(in_artifact(x, WEIGHTS), 8), 0);
	expect(x, -EFBIG, NPU_BROKEN_FILE, "has 8 bytes, 7 are listed", WEIGHTS "\n");
}

static void artifact_verify__unlisted_files__counted_not_named(void **state)
{
	struct fixture *x = *state;

	work_write_text(&x->w, "store/" ALIAS "/calbin/extra", "");
	expect(x, -EEXIST, NPU_INVALID_CALBIN, "has 1 file that the manifest does not list",
		"calbin/extra\n");
	work_write_text(&x->w, "store/" ALIAS "/calbin/extra2", "");
	assert_int_equal(unlink(in_artifact(x, "calbin/extra")), 0);
	work_write_text(&x->w, "store/" ALIAS "/calbin/parts/.hidden", "");
	assert_int_equal(unlink(in_artifact(x, "calbin/extra2")), 0);
	expect(x, -EEXIST, NPU_INVALID_CALBIN, "1 file", "calbin/parts/.hidden\n");
}

/* --- links, owners, modes --------------------------------------------------------------------- */

static void artifact_verify__link_for_a_file__eloop(void **state)
{
	struct fixture *x = *state;

	assert_int_equal(rename(in_artifact(x, WEIGHTS), work_path(&x->w, "elsewhere")), 0);
	assert_int_equal(symlink(work_path(&x->w, "elsewhere"), in_artifact(x, WEIGHTS)), 0);
	expect(x, -ELOOP, NPU_INVALID_CALBIN, "file number 1 of the manifest is a link",
		WEIGHTS "\n");
}

static void artifact_verify__links_for_folders__eloop(void **state)
{
	struct fixture *x = *state;

	assert_int_equal(rename(in_artifact(x, "calbin"), work_path(&x->w, "elsewhere")), 0);
	assert_int_equal(symlink(work_path(&x->w, "elsewhere"), in_artifact(x, "calbin")), 0);
	expect(x, -ELOOP, NPU_INVALID_CALBIN, "something in the artifact's folder is a link",
		"calbin\n");
	assert_int_equal(unlink(in_artifact(x, "calbin")), 0);
	assert_int_equal(rename(work_path(&x->w, "elsewhere"), in_artifact(x, "calbin")), 0);
	expect_sound(x);
	assert_int_equal(rename(in_store(x, ALIAS), work_path(&x->w, "elsewhere")), 0);
	assert_int_equal(symlink(work_path(&x->w, "elsewhere"), in_store(x, ALIAS)), 0);
	expect(x, -ELOOP, NPU_INVALID_CALBIN, "the artifact's folder is a link", "");
}

static void artifact_verify__link_for_trust__eloop(void **state)
{
	struct fixture *x = *state;

	assert_int_equal(rename(in_store(x, "trust"), work_path(&x->w, "elsewhere")), 0);
	assert_int_equal(symlink(work_path(&x->w, "elsewhere"), in_store(x, "trust")), 0);
	expect(x, -ELOOP, NPU_INVALID_CALBIN, "the trust folder is a link", "");
}

static void artifact_verify__fifo__einval_at_once(void **state)
{
	struct fixture *x = *state;

	assert_int_equal(mkfifo(in_artifact(x, "calbin/pipe"), 0600), 0);
	expect(x, -EINVAL, NPU_INVALID_CALBIN, "not a plain file", "calbin/pipe\n");
}

/* Each may be written by group or by others. */
static void artifact_verify__others_can_write__eperm(void **state)
{
	static const struct {
		const char *name, *reason, *named;
	} rows[] = {
		{ "", "the store's folder can be changed by others", "" },
		{ "models", "the store's models folder can", "" },
		{ "trust", "the trust folder can", "" },
		{ ALIAS, "the artifact's folder can", "" },
		{ ALIAS "/manifest.json", "the manifest can", "manifest.json\n" },
		{ ALIAS "/manifest.sig", "the manifest's signature can", "manifest.sig\n" },
		{ ALIAS "/calbin", "something in the artifact's folder can", "calbin\n" },
		{ ALIAS "/calbin/parts", "something in the artifact's folder can",
			"calbin/parts\n" },
		{ ALIAS "/" WEIGHTS, "file number 1 of the manifest can", WEIGHTS "\n" },
	};
	struct fixture *x = *state;

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		mode_t mode;
		char name[96];

		snprintf(name, sizeof name, "store/%s", rows[i].name);
		mode = work_mode(&x->w, name);
		for (mode_t bit = S_IWOTH; bit <= S_IWGRP; bit <<= 3) {
			assert_int_equal(chmod(work_path(&x->w, name), mode | bit), 0);
			expect(x, -EPERM, NPU_INVALID_CALBIN, rows[i].reason, rows[i].named);
		}
		assert_int_equal(chmod(work_path(&x->w, name), mode), 0);
		expect_sound(x);
	}
}

static void artifact_verify__key_others_can_write__eperm(void **state)
{
	struct fixture *x = *state;
	char name[64], detail[64];

	snprintf(name, sizeof name, "trust/%s.pem", x->signer);
	snprintf(detail, sizeof detail, "%s.pem\n", x->signer);
	assert_int_equal(chmod(in_store(x, name), 0664), 0);
	expect(x, -EPERM, NPU_INVALID_CALBIN, "a key file of the trust folder can be changed",
		detail);
}

static void artifact_verify__another_owner__eperm(void **state)
{
	struct fixture *x = *state;

	if (geteuid() != 0) {
		print_message("skipped: only root can give files away\n");
		skip();
	}
	assert_int_equal(chown(in_artifact(x, WEIGHTS), 12345, 12345), 0);
	expect(x, -EPERM, NPU_INVALID_CALBIN, "file number 1 of the manifest can be changed",
		WEIGHTS "\n");
	assert_int_equal(chown(in_artifact(x, WEIGHTS), 0, 12345), 0);
	expect_sound(x);
	assert_int_equal(chown(in_store(x, "trust"), 12345, 0), 0);
	expect(x, -EPERM, NPU_INVALID_CALBIN, "the trust folder can be changed", "");
}

/* --- signatures ------------------------------------------------------------------------------- */

static void artifact_verify__not_signed__enoent(void **state)
{
	struct fixture *x = *state;

	assert_int_equal(unlink(in_artifact(x, "manifest.sig")), 0);
	expect(x, -ENOENT, NPU_FILE_NOT_FOUND, "the manifest's signature is missing",
		"manifest.sig\n");
}

static void artifact_verify__changed_manifest__ebadmsg(void **state)
{
	AUTO_BUF struct buf text = BUF_INIT;
	struct fixture *x = *state;

	work_read(&x->w, "store/" ALIAS "/manifest.json", &text);
	*strstr(text.data, "a test") = 'A';
	work_write(&x->w, "store/" ALIAS "/manifest.json", text.data, text.len);
	expect(x, -EBADMSG, NPU_BROKEN_FILE, "the signature is not over this manifest", "");
}

/* A bit of each part of the line: the word, the key's id, the signature, the end. */
static void artifact_verify__damaged_signature__refused(void **state)
{
	struct fixture *x = *state;
	AUTO_BUF struct buf sig = BUF_INIT;
	const char *name = "store/" ALIAS "/manifest.sig";

	work_read(&x->w, name, &sig);
	assert_int_equal(sig.len, 164);
	sig.data[163] = ' ';
	work_write(&x->w, name, sig.data, sig.len);
	expect(x, -EBADMSG, NPU_BROKEN_FILE, "not in the form", "");
	work_write(&x->w, name, sig.data, 163);
	expect(x, -EBADMSG, NPU_BROKEN_FILE, "not in the form", "");
	work_write(&x->w, name, "", 0);
	expect(x, -EBADMSG, NPU_BROKEN_FILE, "not in the form", "");
	sig.data[163] = '\n';
	sig.data[0] = 'N';
	work_write(&x->w, name, sig.data, sig.len);
	expect(x, -EBADMSG, NPU_BROKEN_FILE, "not in the form", "");
	sig.data[0] = 'n';
	sig.data[60] = sig.data[60] == 'a' ? 'b' : 'a';
	work_write(&x->w, name, sig.data, sig.len);
	expect(x, -EBADMSG, NPU_BROKEN_FILE, "the signature is not over this manifest", "");
	sig.data[60] = 'G';
	work_write(&x->w, name, sig.data, sig.len);
	expect(x, -EBADMSG, NPU_BROKEN_FILE, "not in the form", "");
}

static void artifact_verify__stranger_signed__ekeyrejected(void **state)
{
	struct fixture *x = *state;
	struct fault f = FAULT_NONE;
	char id[KEY_ID_SIZE], detail[32];

	work_key(&x->w, "stranger", id);
	assert_int_equal(artifact_sign(in_store(x, ALIAS), work_path(&x->w, "stranger.pem"), &f,
				 NULL),
		0);
	snprintf(detail, sizeof detail, "%s\n", id);
	expect(x, -EKEYREJECTED, NPU_INVALID_CALBIN, "is not trusted", detail);
	assert_int_equal(store_trust(x->store, work_path(&x->w, "stranger.pub.pem"), id, &f), 0);
	expect_sound(x);
}

static void artifact_verify__empty_trust__ekeyrejected(void **state)
{
	struct fixture *x = *state;
	char name[64], detail[32];

	snprintf(name, sizeof name, "trust/%s.pem", x->signer);
	snprintf(detail, sizeof detail, "%s\n", x->signer);
	assert_int_equal(unlink(in_store(x, name)), 0);
	expect(x, -EKEYREJECTED, NPU_INVALID_CALBIN, "is not trusted", detail);
}

/* The stranger claims the trusted key's id. */
static void artifact_verify__forged_id__ebadmsg(void **state)
{
	struct fixture *x = *state;
	AUTO_BUF struct buf sig = BUF_INIT;
	struct fault f = FAULT_NONE;

	work_key(&x->w, "stranger", NULL);
	assert_int_equal(artifact_sign(in_store(x, ALIAS), work_path(&x->w, "stranger.pem"), &f,
				 NULL),
		0);
	work_read(&x->w, "store/" ALIAS "/manifest.sig", &sig);
	memcpy(sig.data + strlen("npufs-signature-1 "), x->signer, KEY_ID_SIZE - 1);
	work_write(&x->w, "store/" ALIAS "/manifest.sig", sig.data, sig.len);
	expect(x, -EBADMSG, NPU_BROKEN_FILE, "the signature is not over this manifest", "");
}

static void artifact_verify__unsound_key_file__refused(void **state)
{
	struct fixture *x = *state;

	work_write_text(&x->w, "store/trust/README", "who may sign");
	work_write_text(&x->w, "store/trust/.#x.pem", "an editor's");
	expect_sound(x);
	work_write_text(&x->w, "store/trust/bad.pem", "no key");
	expect(x, -EINVAL, NPU_INVALID_CALBIN, "no Ed25519 public key", "bad.pem\n");
	assert_int_equal(unlink(in_store(x, "trust/bad.pem")), 0);
	assert_int_equal(symlink("README", in_store(x, "trust/bad.pem")), 0);
	expect(x, -ELOOP, NPU_INVALID_CALBIN, "a key file of the trust folder is a link",
		"bad.pem\n");
}

static void artifact_verify__private_key_in_trust__refused(void **state)
{
	struct fixture *x = *state;
	AUTO_BUF struct buf pem = BUF_INIT;

	work_read(&x->w, "signer.pem", &pem);
	work_write(&x->w, "store/trust/signer.pem", pem.data, pem.len);
	expect(x, -EINVAL, NPU_INVALID_CALBIN, "no Ed25519 public key", "signer.pem\n");
}

static void artifact_verify__signed_nonsense__einval(void **state)
{
	struct fixture *x = *state;
	AUTO_BUF struct buf pem = BUF_INIT, line = BUF_INIT;
	unsigned char sig[ED25519_SIG_SIZE];
	struct key *k;

	work_read(&x->w, "signer.pem", &pem);
	assert_int_equal(key_from_private_pem(pem.data, pem.len, &k), 0);
	assert_int_equal(key_sign(k, "{}", 2, sig), 0);
	buf_printf(&line, "npufs-signature-1 %s ", x->signer);
	for (size_t i = 0; i < sizeof sig; i++)
		buf_printf(&line, "%02x", sig[i]);
	buf_puts(&line, "\n");
	work_write_text(&x->w, "store/" ALIAS "/manifest.json", "{}");
	work_write_text(&x->w, "store/" ALIAS "/manifest.sig", line.data);
	expect(x, -EINVAL, NPU_INVALID_CALBIN, "schema: is missing", "");
	key_free(k);
}

/* --- names and lists -------------------------------------------------------------------------- */

static void artifact_verify__bad_or_unknown_alias__refused(void **state)
{
	struct fixture *x = *state;
	struct fault f = FAULT_NONE;
	struct artifact *a;

	assert_int_equal(artifact_verify(x->store, "../models/mlp", &a, &f), -EINVAL);
	assert_int_equal(artifact_verify(x->store, "", &a, &f), -EINVAL);
	assert_int_equal(artifact_verify(x->store, "mpl", &a, &f), -ENOENT);
	assert_int_equal(f.device, NPU_FILE_NOT_FOUND);
	assert_int_equal(artifact_verify(work_path(&x->w, "nowhere"), "mlp", &a, &f), -ENOENT);
	assert_int_equal(artifact_verify(x->store, "mpl", &a, NULL), -ENOENT);
}

static void artifact_list__mixed_folder__aliases_sorted(void **state)
{
	struct fixture *x = *state;
	struct fault f = FAULT_NONE;
	char **list;

	work_mkdir(&x->w, "store/models/zeta");
	work_mkdir(&x->w, "store/models/Alpha");
	work_mkdir(&x->w, "store/models/.mlp.Ab12cd");
	work_write_text(&x->w, "store/models/README", "");
	assert_int_equal(symlink("zeta", in_store(x, "models/link")), 0);
	assert_int_equal(artifact_list(x->store, &list, &f), 0);
	assert_string_equal(list[0], "Alpha");
	assert_string_equal(list[1], "link");
	assert_string_equal(list[2], "mlp");
	assert_string_equal(list[3], "zeta");
	assert_null(list[4]);
	artifact_list_free(list);
	artifact_list_free(NULL);
}

static void artifact_list__no_models_folder__enoent(void **state)
{
	struct fixture *x = *state;
	struct fault f = FAULT_NONE;
	char **list = NULL;

	assert_int_equal(files_remove_tree(AT_FDCWD, in_store(x, "models")), 0);
	assert_int_equal(artifact_list(x->store, &list, &f), -ENOENT);
	assert_non_null(strstr(f.action, "store init"));
	assert_null(list);
	work_mkdir(&x->w, "store/models");
	assert_int_equal(artifact_list(x->store, &list, &f), 0);
	assert_null(list[0]);
	artifact_list_free(list);
}

/* --- making ----------------------------------------------------------------------------------- */

static void store_init__new_and_existing__modes_never_loosened(void **state)
{
	static const struct {
		const char *name;
		mode_t mode;
	} rows[] = { { "new", 0755 }, { "new/models", 0755 }, { "new/trust", 0755 },
		{ "new/jobs", 0700 }, { "new/audit", 0700 }, { "new/evidence", 0700 },
		{ "new/approvers", 0755 } };
	struct fixture *x = *state;
	struct fault f = FAULT_NONE;
	mode_t mask = umask(077);

	assert_int_equal(store_init(work_path(&x->w, "new"), &f), 0);
	umask(mask);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		assert_int_equal(work_mode(&x->w, rows[i].name), rows[i].mode);
	assert_int_equal(chmod(work_path(&x->w, "new/trust"), 0700), 0);
	assert_int_equal(chmod(work_path(&x->w, "new/jobs"), 0777), 0);
	assert_int_equal(rmdir(work_path(&x->w, "new/audit")), 0);
	assert_int_equal(store_init(work_path(&x->w, "new"), &f), 0);
	assert_int_equal(work_mode(&x->w, "new/trust"), 0700);
	assert_int_equal(work_mode(&x->w, "new/jobs"), 0700);
	assert_int_equal(work_mode(&x->w, "new/audit"), 0700);
}

static void store_init__link_or_file_in_the_way__refused(void **state)
{
	struct fixture *x = *state;
	struct fault f = FAULT_NONE;

	work_mkdir(&x->w, "odd");
	work_write_text(&x->w, "odd/trust", "");
	assert_int_not_equal(store_init(work_path(&x->w, "odd"), &f), 0);
	assert_int_equal(unlink(work_path(&x->w, "odd/trust")), 0);
	assert_int_equal(symlink("/", work_path(&x->w, "odd/trust")), 0);
	assert_int_not_equal(store_init(work_path(&x->w, "odd"), &f), 0);
	assert_non_null(strstr(f.reason, "trust"));
	assert_int_not_equal(store_init(work_path(&x->w, "no/such/folder"), &f), 0);
}

static void store_trust__twice_and_wrong_keys__one_file(void **state)
{
	struct fixture *x = *state;
	struct fault f = FAULT_NONE;
	char id[KEY_ID_SIZE] = "", name[64];

	assert_int_equal(store_trust(x->store, work_path(&x->w, "signer.pub.pem"), id, &f), 0);
	assert_string_equal(id, x->signer);
	snprintf(name, sizeof name, "store/trust/%s.pem", id);
	assert_int_equal(work_mode(&x->w, name), 0644);
	assert_int_equal(store_trust(x->store, work_path(&x->w, "signer.pem"), id, &f), -EINVAL);
	assert_int_equal(store_trust(x->store, work_path(&x->w, "nothing"), id, &f), -ENOENT);
	assert_int_equal(store_trust(work_path(&x->w, "package"),
				 work_path(&x->w, "signer.pub.pem"), id, &f),
		-ENOENT);
}

static void store_trust__half_a_key_from_a_crash__whole_again(void **state)
{
	struct fixture *x = *state;
	struct fault f = FAULT_NONE;
	char id[KEY_ID_SIZE] = "", name[64];
	struct artifact *a;

	snprintf(name, sizeof name, "store/trust/%s.pem", x->signer);
	assert_int_equal(truncate(work_path(&x->w, name), 0), 0);
	assert_int_equal(chmod(work_path(&x->w, name), 0600), 0);
	assert_int_not_equal(artifact_verify(x->store, "mlp", &a, &f), 0);
	assert_int_equal(store_trust(x->store, work_path(&x->w, "signer.pub.pem"), id, &f), 0);
	assert_int_equal(work_mode(&x->w, name), 0644);
	assert_int_equal(artifact_verify(x->store, "mlp", &a, &f), 0);
	artifact_free(a);
}

/* Nothing is left where the artifact would be, nor beside it. */
static void expect_nothing_made(struct fixture *x, const char *name)
{
	struct fault f = FAULT_NONE;
	char **list;

	assert_false(work_has(&x->w, name));
	assert_int_equal(artifact_list(x->store, &list, &f), 0);
	assert_string_equal(list[0], "mlp");
	assert_null(list[1]);
	artifact_list_free(list);
	assert_int_equal(files_remove_tree(AT_FDCWD, in_store(x, ALIAS)), 0);
	assert_int_equal(rmdir(in_store(x, "models")), 0);
}

static void import_fails(struct fixture *x, int err, const char *reason)
{
	struct fault f = FAULT_NONE;
	int have =
		artifact_import_package(work_path(&x->w, "package"), in_store(x, "models/new"), &f);

	assert_int_equal(have, err);
	if (!strstr(f.reason, reason))
		fail_msg("\"%s\" does not say \"%s\"", f.reason, reason);
	expect_nothing_made(x, "store/models/new");
}

static void artifact_import_package__golden_of_wrong_size__nothing_made(void **state)
{
	struct fixture *x = *state;

	work_write_text(&x->w, "package/golden/mlp.in", "short");
	import_fails(x, -EINVAL, "the file has 5 bytes and the program's tensors have 8");
}

static void artifact_import_package__missing_parts__nothing_made(void **state)
{
	struct fixture *x = *state;

	assert_int_equal(unlink(work_path(&x->w, "package/golden/mlp.out")), 0);
	import_fails(x, -EINVAL, "does not list");
}

static void artifact_import_package__no_calbin__nothing_made(void **state)
{
	struct fixture *x = *state;

	assert_int_equal(files_remove_tree(AT_FDCWD, work_path(&x->w, "package/calbin")), 0);
	import_fails(x, -ENOENT, "calbin");
}

static void artifact_import_package__link_inside__nothing_made(void **state)
{
	struct fixture *x = *state;

	assert_int_equal(symlink("/etc/passwd", work_path(&x->w, "package/calbin/parts/p")), 0);
	import_fails(x, -ELOOP, "calbin/parts/p is a link");
}

static void artifact_import_package__template_with_files__nothing_made(void **state)
{
	AUTO_BUF struct buf text = BUF_INIT;
	struct fixture *x = *state;

	work_read(&x->w, "package/artifact.json", &text);
	text.data[text.len - 1] = ',';
	buf_puts(&text, "\"files\":[]}");
	work_write(&x->w, "package/artifact.json", text.data, text.len);
	import_fails(x, -EINVAL, "a template has no such member");
}

static void artifact_import_package__dest_there_or_no_alias__refused(void **state)
{
	struct fixture *x = *state;
	struct fault f = FAULT_NONE;

	assert_int_equal(artifact_import_package(work_path(&x->w, "package"), in_store(x, ALIAS),
				 &f),
		-EEXIST);
	expect_sound(x);
	assert_int_equal(artifact_import_package(work_path(&x->w, "package"),
				 in_store(x, "models/.x"), &f),
		-EINVAL);
	assert_int_equal(artifact_import_package(work_path(&x->w, "package"), in_store(x, "no/x"),
				 &f),
		-ENOENT);
	assert_int_equal(artifact_import_package(work_path(&x->w, "nothing"),
				 in_store(x, "models/x"), &f),
		-ENOENT);
}

/* A checkout of another user can be imported: what counts is what is made of it. */
static void artifact_import_package__package_others_can_write__taken(void **state)
{
	struct fixture *x = *state;
	struct fault f = FAULT_NONE;

	assert_int_equal(chmod(work_path(&x->w, "package/calbin/program.json"), 0666), 0);
	assert_int_equal(chmod(work_path(&x->w, "package/calbin"), 0777), 0);
	assert_int_equal(artifact_import_package(work_path(&x->w, "package/"),
				 in_store(x, "models/new/"), &f),
		0);
	assert_int_equal(work_mode(&x->w, "store/models/new/calbin/program.json"), 0644);
	assert_int_equal(work_mode(&x->w, "store/models/new/calbin"), 0755);
}

static void artifact_sign__damaged_artifact__not_signed(void **state)
{
	struct fixture *x = *state;
	AUTO_BUF struct buf detail = BUF_INIT;
	struct fault f = FAULT_NONE;

	assert_int_equal(unlink(in_artifact(x, "manifest.sig")), 0);
	work_write_text(&x->w, "store/" ALIAS "/" WEIGHTS, "weighus");
	assert_int_equal(artifact_sign(in_store(x, ALIAS), work_path(&x->w, "signer.pem"), &f,
				 &detail),
		-EBADMSG);
	assert_string_equal(buf_text(&detail), WEIGHTS "\n");
	assert_false(work_has(&x->w, "store/" ALIAS "/manifest.sig"));
}

static void artifact_sign__wrong_key_files__refused(void **state)
{
	struct fixture *x = *state;
	struct fault f = FAULT_NONE;

	assert_int_equal(chmod(work_path(&x->w, "signer.pem"), 0640), 0);
	assert_int_equal(artifact_sign(in_store(x, ALIAS), work_path(&x->w, "signer.pem"), &f,
				 NULL),
		-EPERM);
	assert_int_equal(chmod(work_path(&x->w, "signer.pub.pem"), 0600), 0);
	assert_int_equal(artifact_sign(in_store(x, ALIAS), work_path(&x->w, "signer.pub.pem"), &f,
				 NULL),
		-EINVAL);
	assert_int_equal(artifact_sign(in_store(x, ALIAS), work_path(&x->w, "nothing"), &f, NULL),
		-ENOENT);
	assert_int_equal(artifact_sign(work_path(&x->w, "package"), work_path(&x->w, "signer.pem"),
				 &f, NULL),
		-EPERM);
	assert_int_equal(chmod(work_path(&x->w, "signer.pem"), 0600), 0);
	assert_int_equal(artifact_sign(work_path(&x->w, "package"), work_path(&x->w, "signer.pem"),
				 &f, NULL),
		-ENOENT);
}

/* Signing again leaves nothing but the one signature, also after a crash had left an unfinished
 * one. */
static void artifact_sign__after_a_crash__signed(void **state)
{
	struct fixture *x = *state;
	struct fault f = FAULT_NONE;
	struct artifact *a;

	work_write_text(&x->w, "store/" ALIAS "/.manifest.sig.new", "npufs-sign");
	assert_int_equal(artifact_verify(x->store, "mlp", &a, &f), -EEXIST);
	assert_int_equal(artifact_sign(in_store(x, ALIAS), work_path(&x->w, "signer.pem"), &f,
				 NULL),
		0);
	assert_int_equal(artifact_verify(x->store, "mlp", &a, &f), 0);
	artifact_free(a);
}

static void artifact_sign__again__replaced(void **state)
{
	struct fixture *x = *state;
	struct fault f = FAULT_NONE;

	work_write_text(&x->w, "store/" ALIAS "/manifest.sig", "old");
	assert_int_equal(artifact_sign(in_store(x, ALIAS), work_path(&x->w, "signer.pem"), &f,
				 NULL),
		0);
	expect_sound(x);
	assert_int_equal(artifact_sign(in_store(x, ALIAS), work_path(&x->w, "signer.pem"), &f,
				 NULL),
		0);
	expect_sound(x);
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, make_store, remove_store)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(artifact_verify__sound__identity_and_signer),
		TEST(artifact_import_package__files__listed_in_order),
		TEST(artifact_import_package__modes__as_documented),
		TEST(artifact_read__sound__the_bytes),
		TEST(artifact_read__changed_after_verification__refused),
		TEST(artifact_verify__missing_file__enoent),
		TEST(artifact_verify__missing_folder__enoent),
		TEST(artifact_verify__flipped_bit__ebadmsg),
		TEST(artifact_verify__truncated__efbig_with_both_sizes),
		TEST(artifact_verify__longer__efbig_with_both_sizes),
		TEST(artifact_verify__unlisted_files__counted_not_named),
		TEST(artifact_verify__link_for_a_file__eloop),
		TEST(artifact_verify__links_for_folders__eloop),
		TEST(artifact_verify__link_for_trust__eloop),
		TEST(artifact_verify__fifo__einval_at_once),
		TEST(artifact_verify__others_can_write__eperm),
		TEST(artifact_verify__key_others_can_write__eperm),
		TEST(artifact_verify__another_owner__eperm),
		TEST(artifact_verify__not_signed__enoent),
		TEST(artifact_verify__changed_manifest__ebadmsg),
		TEST(artifact_verify__damaged_signature__refused),
		TEST(artifact_verify__stranger_signed__ekeyrejected),
		TEST(artifact_verify__empty_trust__ekeyrejected),
		TEST(artifact_verify__forged_id__ebadmsg),
		TEST(artifact_verify__unsound_key_file__refused),
		TEST(artifact_verify__private_key_in_trust__refused),
		TEST(artifact_verify__signed_nonsense__einval),
		TEST(artifact_verify__bad_or_unknown_alias__refused),
		TEST(artifact_list__mixed_folder__aliases_sorted),
		TEST(artifact_list__no_models_folder__enoent),
		TEST(store_init__new_and_existing__modes_never_loosened),
		TEST(store_init__link_or_file_in_the_way__refused),
		TEST(store_trust__twice_and_wrong_keys__one_file),
		TEST(store_trust__half_a_key_from_a_crash__whole_again),
		TEST(artifact_import_package__golden_of_wrong_size__nothing_made),
		TEST(artifact_import_package__missing_parts__nothing_made),
		TEST(artifact_import_package__no_calbin__nothing_made),
		TEST(artifact_import_package__link_inside__nothing_made),
		TEST(artifact_import_package__template_with_files__nothing_made),
		TEST(artifact_import_package__dest_there_or_no_alias__refused),
		TEST(artifact_import_package__package_others_can_write__taken),
		TEST(artifact_sign__damaged_artifact__not_signed),
		TEST(artifact_sign__wrong_key_files__refused),
		TEST(artifact_sign__after_a_crash__signed),
		TEST(artifact_sign__again__replaced),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
