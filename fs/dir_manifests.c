/* manifests/ALIAS.json: what an auditor compares: hashes, shapes, versions. Nothing of where things
 * are: files are named by their digests, and an LLM's programs are not named at all (the device contract
 * 10). */
#include "fs/area.h"

#include "core/tensor_json.h"

static void add_versions(struct json_value *doc, const char *key, char *const *v, size_t n)
{
	struct json_value *list = json_add_array(doc, key);

	for (size_t i = 0; i < n; i++)
		json_add_string(list, NULL, v[i]);
}

static void add_compatible(struct json_value *doc, const struct manifest *m)
{
	struct json_value *c = json_add_object(doc, "compatible");

	add_versions(c, "runtime", m->runtimes, m->n_runtimes);
	add_versions(c, "driver", m->drivers, m->n_drivers);
	add_versions(c, "firmware", m->firmwares, m->n_firmwares);
}

static void add_files(struct json_value *doc, const struct manifest *m)
{
	struct json_value *list = json_add_array(doc, "files");

	for (size_t i = 0; i < m->n_files; i++) {
		struct json_value *o = json_add_object(list, NULL);

		json_add_uint(o, "size", m->files[i].size);
		json_add_string(o, "sha256", m->files[i].sha256);
	}
}

static void add_manifest(struct json_value *doc, const struct model_view *v)
{
	const struct manifest *m = v->manifest;
	const struct program_spec *p = &m->programs[0];

	json_add_string(doc, "kind", m->kind == MANIFEST_LLM ? "llm" : "tensor");
	json_add_string(doc, "description", m->description);
	json_add_string(doc, "sha256", v->sha256);
	if (v->artifact)
		json_add_string(doc, "signed_by", v->artifact->signer);
	json_add_string(doc, "calbin_version", m->calbin_version);
	add_compatible(doc, m);
	json_add_uint(doc, "batch", m->batch);
	if (m->kind == MANIFEST_LLM) {
		json_add_uint(doc, "context_limit", m->context_limit);
		json_add_uint(doc, "vocab_size", m->tokenizer.vocab_size);
	}
	tensor_json_list(doc, "inputs", p->inputs, p->n_inputs);
	tensor_json_list(doc, "outputs", p->outputs, p->n_outputs);
	json_add_uint(doc, "golden_runs", m->n_golden);
	add_files(doc, m);
}

static int manifest_show(struct npufs *fs, uint64_t object, struct buf *out)
{
	struct model_view v;
	struct json_value *doc = json_new_object();
	int err;

	models_get(fs->models, (int)object - 1, &v);
	json_add_string(doc, "alias", v.alias);
	json_add_string(doc, "state", model_state_name(v.state));
	json_add_uint(doc, "generation", v.generation);
	if (v.manifest)
		add_manifest(doc, &v);
	err = json_render(doc, true, out);
	json_free(doc);
	return err;
}

static const struct node_row manifest_rows[] = {
	TEXT("ALIAS.json", manifest_show, "one file a model"), ROWS_END
};

const struct fixed_area fixed_manifests = { .object_rows = manifest_rows,
	.object_suffix = ".json" };
