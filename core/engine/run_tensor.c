/* Tensors: one checked inference of the artifact's only program. Inputs are matched by name, and
 * type and shape must be the manifest's; the output is KServe's document, or one tensor as it is. */
#include "core/engine/run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/tensor_json.h"

struct run_tensor {
	struct run base;
	struct program *program;
	size_t chosen[MANIFEST_MAX_TENSORS]; /* outputs, in the order of the answer */
	size_t n_chosen;
};

static const struct run_ops run_tensor_ops;

static const struct request_tensor *input_named(const struct request *req, const char *name)
{
	for (size_t i = 0; i < req->n_inputs; i++)
		if (strcmp(req->inputs[i].spec.name, name) == 0)
			return &req->inputs[i];
	return NULL;
}

static int check_input(const struct tensor_spec *want, const struct request *req, struct fault *f)
{
	const struct request_tensor *have = input_named(req, want->name);
	char a[TENSOR_TEXT_SIZE], b[TENSOR_TEXT_SIZE];

	if (!have)
		return fault_at(f, -EINVAL, "inputs", -1, "give every input of models/ALIAS/schema",
			"the input \"%s\" is missing", want->name);
	if (have->spec.dtype == want->dtype && tensor_same_shape(&have->spec, want))
		return 0;
	return fault_at(f, -EINVAL, "inputs", -1, "give the type and shape of models/ALIAS/schema",
		"the input \"%s\" is %s; the model takes %s", want->name,
		tensor_text(&have->spec, a), tensor_text(want, b));
}

static int check_inputs(const struct program_spec *spec, const struct request *req, struct fault *f)
{
	int err = 0;

	for (size_t i = 0; !err && i < spec->n_inputs; i++)
		err = check_input(&spec->inputs[i], req, f);
	if (!err && req->n_inputs != spec->n_inputs)
		err = fault_at(f, -EINVAL, "inputs", -1,
			"give each input of models/ALIAS/schema once",
			"%zu inputs are given; the model takes %zu", req->n_inputs, spec->n_inputs);
	return err;
}

static int unknown_output(const struct program_spec *spec, const char *name, struct fault *f)
{
	const char *names[MANIFEST_MAX_TENSORS + 1] = { NULL }, *near;

	for (size_t i = 0; i < spec->n_outputs; i++)
		names[i] = spec->outputs[i].name;
	near = fault_nearest(name, names);
	return fault_at(f, -EINVAL, "outputs", -1, "name outputs of models/ALIAS/schema",
		"the model has no output \"%.60s\"%s%s%s", name, near ? "; did you mean \"" : "",
		near ? near : "", near ? "\"?" : "");
}

static int choose_output(struct run_tensor *t, const char *name, struct fault *f)
{
	const struct program_spec *spec = program_spec_of(t->program);

	for (size_t i = 0; i < spec->n_outputs; i++) {
		if (strcmp(spec->outputs[i].name, name) != 0)
			continue;
		t->chosen[t->n_chosen++] = i; /* the request names none twice */
		return 0;
	}
	return unknown_output(spec, name, f);
}

static int choose_outputs(struct run_tensor *t, struct fault *f)
{
	const struct request *req = t->base.request;
	char **name = req->outputs;
	int err = 0;

	for (; name && *name && !err; name++)
		err = choose_output(t, *name, f);
	for (size_t i = 0; !name && i < program_spec_of(t->program)->n_outputs; i++)
		t->chosen[t->n_chosen++] = i;
	if (err || req->output == REQUEST_JSON || t->n_chosen == 1)
		return err;
	return fault_at(f, -EINVAL, "output", -1, "name one in \"outputs\", or use \"json\"",
		"\"npy\" and \"raw\" hold one tensor; the model has %zu outputs", t->n_chosen);
}

int run_tensor_new(const struct run *base, struct run **ret, struct fault *f)
{
	struct program *program = base->generation->programs[0];
	struct run_tensor *t;
	int err = check_inputs(program_spec_of(program), base->request, f);

	if (err)
		return err;
	t = calloc(1, sizeof *t);
	if (!t)
		return fault_set(f, -ENOMEM, "send it again later", "no memory for the job");
	t->base = *base;
	t->base.ops = &run_tensor_ops;
	t->program = program;
	err = choose_outputs(t, f);
	if (err) {
		free(t);
		return err;
	}
	*ret = &t->base;
	return 0;
}

static enum npu_error tensor_free(struct run *r)
{
	request_free(r->request);
	free(r);
	return NPU_SUCCESS;
}

/* --- the run ---------------------------------------------------------------------------------- */

static enum step tensor_step(struct run *r, struct buf *piece, struct step_fault *f)
{
	struct run_tensor *t = (struct run_tensor *)r;
	const struct program_spec *spec = program_spec_of(t->program);
	struct infer_result got;

	(void)piece;
	for (size_t i = 0; i < spec->n_inputs; i++)
		memcpy(program_input(t->program, i),
			input_named(r->request, spec->inputs[i].name)->data,
			(size_t)tensor_bytes(&spec->inputs[i]));
	got = infer_checked(t->program, 0, 0);
	if (got.stage == INFER_DONE)
		return STEP_ENDED;
	return run_refuse(&got, true, f);
}

static int render_document(const struct run_tensor *t, struct buf *out)
{
	const struct program_spec *spec = program_spec_of(t->program);
	const struct request *req = t->base.request;
	struct json_value *doc = json_new_object(), *outputs;
	int err;

	json_add_string(doc, "model_name", t->base.model->alias);
	if (req->request_id[0])
		json_add_string(doc, "id", req->request_id);
	outputs = json_add_array(doc, "outputs");
	for (size_t i = 0; i < t->n_chosen; i++)
		tensor_json_add(outputs, &spec->outputs[t->chosen[i]],
			program_output(t->program, t->chosen[i]));
	err = json_render(doc, true, out);
	json_free(doc);
	return err;
}

static int tensor_finish(struct run *r, struct buf *out, struct job_outcome *ret)
{
	struct run_tensor *t = (struct run_tensor *)r;
	const struct tensor_spec *first = &program_spec_of(t->program)->outputs[t->chosen[0]];
	const void *data = program_output(t->program, t->chosen[0]);

	*ret = (struct job_outcome){ .finish_reason = "stop" };
	return r->request->output == REQUEST_JSON
		? render_document(t, out)
		: run_put_tensor(r->request->output, first, data, out);
}

static const struct run_ops run_tensor_ops = {
	.step = tensor_step,
	.finish = tensor_finish,
	.free = tensor_free,
};
