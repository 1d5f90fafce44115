#include "core/admin/admin.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "core/artifact/artifact.h"
#include "core/base/files.h"

/* --- import, sign, verify --------------------------------------------------------------------- */

static int imported(const struct admin_call *c, int err, const char *dest, const struct fault *f)
{
	if (err)
		return admin_failed(c, f, NULL);
	fprintf(c->out, "ok: %s, not signed yet\n", dest);
	return ADMIN_OK;
}

int admin_artifact_import_llama2c(const struct admin_call *c)
{
	struct fault f = FAULT_NONE;
	int err = artifact_import_llama2c(c->args[0], c->args[1], c->args[2], &f);

	return imported(c, err, c->args[2], &f);
}

int admin_artifact_import_package(const struct admin_call *c)
{
	struct fault f = FAULT_NONE;
	int err = artifact_import_package(c->args[0], c->args[1], &f);

	return imported(c, err, c->args[1], &f);
}

int admin_artifact_sign(const struct admin_call *c)
{
	AUTO_BUF struct buf detail = BUF_INIT;
	struct fault f = FAULT_NONE;

	if (artifact_sign(c->args[0], c->args[1], &f, &detail))
		return admin_failed(c, &f, &detail);
	fprintf(c->out, "ok: %s is signed\n", c->args[0]);
	return ADMIN_OK;
}

int admin_artifact_verify(const struct admin_call *c)
{
	AUTO_BUF struct buf detail = BUF_INIT;
	struct fault f = FAULT_NONE;
	struct artifact *a;

	if (artifact_inspect(c->args[0], c->args[1], &a, &f, &detail))
		return admin_failed(c, &f, &detail);
	fprintf(c->out, "ok: %s, %zu files, signed by %s\n", a->alias, a->manifest->n_files,
		a->signer);
	artifact_free(a);
	return ADMIN_OK;
}

/* --- show ------------------------------------------------------------------------------------- */

static int load_manifest(const char *path, struct buf *text, struct manifest **ret, struct fault *f)
{
	AUTO_CLOSE int dir = -1;
	int err = files_open_root(path, FILES_ANY, &dir);

	if (!err)
		err = files_load(dir, "manifest.json", FILES_ANY, MANIFEST_MAX_BYTES, text);
	if (err)
		return fault_set(f, err, "name the folder of an artifact, STORE/models/ALIAS",
			"cannot read the manifest: %s", strerror(-err));
	return manifest_parse(buf_text(text), text->len, true, ret, f);
}

static void put_versions(FILE *out, const char *what, char *const *versions, size_t n)
{
	fprintf(out, "%s:", what);
	for (size_t i = 0; i < n; i++)
		fprintf(out, " %s", versions[i]);
	fprintf(out, "%s\n", n ? "" : " any");
}

static void put_head(FILE *out, const struct manifest *m, const struct buf *text)
{
	char hex[SHA256_HEX_SIZE];

	sha256_hex(text->data, text->len, hex);
	fprintf(out, "description: %s\n", m->description);
	fprintf(out, "sha256: %s\n", hex);
	fprintf(out, "kind: %s\n", m->kind == MANIFEST_LLM ? "llm" : "tensor");
	fprintf(out, "calbin_version: %s\n", m->calbin_version);
	put_versions(out, "runtime", m->runtimes, m->n_runtimes);
	put_versions(out, "driver", m->drivers, m->n_drivers);
	put_versions(out, "firmware", m->firmwares, m->n_firmwares);
	fprintf(out, "batch: %" PRIu32 "\n", m->batch);
	if (m->kind == MANIFEST_LLM)
		fprintf(out, "context_limit: %" PRIu32 "\nvocab_size: %" PRIu32 "\n",
			m->context_limit, m->tokenizer.vocab_size);
	fprintf(out, "golden_runs: %zu\n", m->n_golden);
}

static void put_tensors(FILE *out, const char *what, const struct tensor_spec *t, size_t n)
{
	char text[TENSOR_TEXT_SIZE];

	for (size_t i = 0; i < n; i++)
		fprintf(out, "  %s %s %s\n", what, t[i].name, tensor_text(&t[i], text));
}

static void put_manifest(FILE *out, const struct manifest *m, const struct buf *text)
{
	put_head(out, m, text);
	for (size_t i = 0; i < m->n_programs; i++) {
		const struct program_spec *p = &m->programs[i];

		fprintf(out, "program: %s\n", p->name);
		put_tensors(out, "input", p->inputs, p->n_inputs);
		put_tensors(out, "output", p->outputs, p->n_outputs);
	}
	for (size_t i = 0; i < m->n_files; i++)
		fprintf(out, "file %zu: %s %" PRIu64 " bytes %s\n", i + 1, m->files[i].path,
			m->files[i].size, m->files[i].sha256);
}

int admin_artifact_show(const struct admin_call *c)
{
	AUTO_BUF struct buf text = BUF_INIT;
	struct fault f = FAULT_NONE;
	struct manifest *m;

	if (load_manifest(c->args[0], &text, &m, &f))
		return admin_failed(c, &f, NULL);
	put_manifest(c->out, m, &text);
	manifest_free(m);
	return ADMIN_OK;
}
