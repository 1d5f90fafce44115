/* Tensors: one checked inference of the artifact's only program. Inputs are matched by name, and
 * type and shape must be the manifest's; the output is a KServe-like document. */
#include "core/run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/tensor_json.h"

struct run_tensor {
	struct run base;
	struct program *program;
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
	fault_from_device(&f->fault, got.code, got.what);
	f->again = got.stage == INFER_NOT_SUBMITTED;
	return STEP_FAILED;
}

static int tensor_finish(struct run *r, struct buf *out, struct job_outcome *ret)
{
	struct run_tensor *t = (struct run_tensor *)r;
	const struct program_spec *spec = program_spec_of(t->program);
	struct json_value *doc = json_new_object();
	struct json_value *outputs;
	int err;

	json_add_string(doc, "model_name", r->model->alias);
	if (r->request->request_id[0])
		json_add_string(doc, "id", r->request->request_id);
	outputs = json_add_array(doc, "outputs");
	for (size_t i = 0; i < spec->n_outputs; i++) {
		struct json_value *o = json_add_object(outputs, NULL);

		tensor_json_describe(o, &spec->outputs[i]);
		tensor_json_data(o, &spec->outputs[i], program_output(t->program, i));
	}
	err = json_render(doc, true, out);
	json_free(doc);
	*ret = (struct job_outcome){ .finish_reason = "stop" };
	return err;
}

static const struct run_ops run_tensor_ops = {
	.step = tensor_step,
	.finish = tensor_finish,
	.free = tensor_free,
};
