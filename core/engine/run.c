#include "core/engine/run.h"

#include <errno.h>
#include <stdio.h>

#include "core/npy.h"

static int wrong_input(const struct model_view *model, struct fault *f)
{
	if (model->manifest->kind == MANIFEST_TENSOR)
		return fault_at(f, -EINVAL, "inputs", -1,
			"give \"inputs\"; models/ALIAS/schema shows them",
			"model \"%s\" takes tensors, not text", model->alias);
	return fault_at(f, -EINVAL, "inputs", -1, "give a \"prompt\" or \"tokens\"",
		"model \"%s\" takes text, not tensors", model->alias);
}

static int check_attached(const struct request *req, struct fault *f)
{
	char field[48];

	for (size_t i = 0; i < req->n_inputs; i++) {
		if (req->inputs[i].data)
			continue;
		snprintf(field, sizeof field, "inputs[%zu].file", i);
		return fault_at(f, -EINVAL, field, -1, "give \"data\" instead",
			"the file \"%.60s\" was not attached", req->inputs[i].file);
	}
	return 0;
}

enum step run_refuse(const struct infer_result *r, bool again, struct step_fault *f)
{
	if (r->stage == INFER_NOT_FINITE)
		return run_refuse_infinite(f);
	f->again = again && r->stage == INFER_NOT_SUBMITTED;
	fault_from_device(&f->fault, r->code, r->what);
	return STEP_FAILED;
}

enum step run_refuse_infinite(struct step_fault *f)
{
	f->again = false;
	fault_set(&f->fault, -EIO, "change the inputs: the result leaves the numbers' range",
		"the output has infinities or what is no number");
	return STEP_FAILED;
}

int run_put_tensor(enum request_output form, const struct tensor_spec *t, const void *data,
	struct buf *out)
{
	if (form == REQUEST_NPY)
		npy_write(t, data, out);
	else
		buf_put(out, data, (size_t)tensor_bytes(t));
	return buf_error(out);
}

int run_new(struct generation *g, const struct model_view *model, struct request *req,
	const struct run_limits *limits, struct run **ret, struct fault *f)
{
	const struct run base = { .generation = g,
		.model = model,
		.request = req,
		.limits = *limits };
	bool tensors = req->n_inputs > 0;
	int err = check_attached(req, f);

	if (err)
		return err;
	if (tensors != (model->manifest->kind == MANIFEST_TENSOR))
		return wrong_input(model, f);
	return tensors ? run_tensor_new(&base, ret, f) : run_text_new(&base, ret, f);
}
