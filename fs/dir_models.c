#include "fs/area.h"

#include <errno.h>
#include <string.h>

#include "core/tensor_json.h"

/* The model's view; until it was verified there is no manifest, and most files are empty. */
static struct model_view view(struct npufs *fs, uint64_t object)
{
	struct model_view v;

	models_get(fs->models, (int)object - 1, &v);
	return v;
}

static int state_show(struct npufs *fs, uint64_t object, struct buf *out)
{
	struct model_view v = view(fs, object);

	buf_printf(out, "%s\n", model_state_name(v.state));
	if (v.state == MODEL_FAILED)
		buf_printf(out, "reason: %s\naction: %s\n", v.fault.reason, v.fault.action);
	return 0;
}

static int generation_show(struct npufs *fs, uint64_t object, struct buf *out)
{
	buf_printf(out, "%llu\n", (unsigned long long)view(fs, object).generation);
	return 0;
}

static int context_limit_show(struct npufs *fs, uint64_t object, struct buf *out)
{
	struct model_view v = view(fs, object);

	if (v.manifest)
		buf_printf(out, "%u\n", v.manifest->context_limit);
	return 0;
}

static int batch_show(struct npufs *fs, uint64_t object, struct buf *out)
{
	struct model_view v = view(fs, object);

	if (v.manifest)
		buf_printf(out, "%u\n", v.manifest->batch);
	return 0;
}

static int description_show(struct npufs *fs, uint64_t object, struct buf *out)
{
	struct model_view v = view(fs, object);

	if (v.manifest)
		buf_printf(out, "%s\n", v.manifest->description);
	return 0;
}

static int example_show(struct npufs *fs, uint64_t object, struct buf *out)
{
	struct model_view v = view(fs, object);
	struct json_value *given = NULL, *doc;
	int err = v.manifest
		? json_parse(v.manifest->example, strlen(v.manifest->example), &given, NULL)
		: 0;

	if (err || !given)
		return err;
	doc = json_new_object();
	json_add_string(doc, "model", v.alias); /* whatever the default is, it works as it is */
	for (const struct json_value *m = json_first(given); m; m = json_next(m))
		if (strcmp(json_key(m), "model") != 0)
			json_add_copy(doc, json_key(m), m);
	err = json_render(doc, true, out);
	json_free(doc);
	json_free(given);
	return err;
}

static void add_text_schema(struct json_value *doc)
{
	size_t n;
	const struct request_field *fields = request_fields(&n);
	struct json_value *list = json_add_object(doc, "fields");

	for (size_t i = 0; i < n; i++)
		json_add_string(list, fields[i].name, fields[i].type);
}

static int schema_show(struct npufs *fs, uint64_t object, struct buf *out)
{
	struct model_view v = view(fs, object);
	struct json_value *doc;
	int err;

	if (!v.manifest)
		return 0;
	doc = json_new_object();
	json_add_string(doc, "model", v.alias);
	if (v.manifest->kind == MANIFEST_TENSOR) {
		const struct program_spec *p = &v.manifest->programs[0];

		tensor_json_list(doc, "inputs", p->inputs, p->n_inputs);
		tensor_json_list(doc, "outputs", p->outputs, p->n_outputs);
	} else {
		add_text_schema(doc);
	}
	err = json_render(doc, true, out);
	json_free(doc);
	return err;
}

static int limits_show(struct npufs *fs, uint64_t object, struct buf *out)
{
	struct model_view v = view(fs, object);

	if (!v.manifest)
		return 0;
	if (v.manifest->kind == MANIFEST_LLM) {
		buf_printf(out, "context_tokens: %u\n", v.manifest->context_limit);
		buf_printf(out, "default_new_tokens: %u\n", v.manifest->default_max_new_tokens);
		buf_printf(out, "vocabulary: %u\n", v.manifest->tokenizer.vocab_size);
	}
	buf_printf(out, "request_bytes: %llu\n", (unsigned long long)fs->opts.request_size);
	buf_printf(out, "output_bytes: %llu\n", (unsigned long long)fs->opts.output_size);
	return 0;
}

static const struct node_row model_rows[] = {
	TEXT("state", state_show, "verifying, available, ready or failed, and why"),
	TEXT("generation", generation_show,
		"number of its last load on the device, 0 before the first"),
	TEXT("context_limit", context_limit_show, "tokens of prompt and output together"),
	TEXT("batch", batch_show, "sequences in one inference"),
	TEXT("description", description_show, "what it does"),
	TEXT("example.json", example_show, "a request that works"),
	TEXT("schema", schema_show, "the fields, or the tensors, a request may have"),
	TEXT("limits", limits_show, "what a request may not exceed"), ROWS_END
};

const struct fixed_area fixed_models = { .object_rows = model_rows };
