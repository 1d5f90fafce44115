/* Tensors are known by name all over a request. Its inputs come first in the plan, then those outputs
 * that are no inputs; a tensor that no launch takes, and an output that none writes, is a mistake of
 * the request's. */
#include "core/engine/launch_plan.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/mem.h"

#define FIELD_SIZE 48 /* as much as a fault keeps */

struct launch_signature *launch_signature_new(const struct image *image)
{
	uint32_t n = image->header.n_tensors + image->header.n_scalars;
	struct launch_signature *s = calloc(1, sizeof *s + n * sizeof *s->rows);

	if (!s)
		return NULL;
	s->n_tensors = image->header.n_tensors;
	s->n_scalars = image->header.n_scalars;
	s->steps = image->steps;
	for (uint32_t i = 0; i < n; i++) {
		const struct image_row row = image_row(image, i);

		s->rows[i].type = row.type;
		s->rows[i].access = row.access;
		s->rows[i].max = row.max;
		snprintf(s->rows[i].name, sizeof s->rows[i].name, "%s",
			image_name(image, row.name));
	}
	return s;
}

/* One launch while it is planned. */
struct planning {
	const struct request *req;
	struct launch_plan *plan;
	bool used[LAUNCH_TENSORS_MAX];
	struct fault *f;
};

static int refuse(struct planning *p, size_t launch, const char *member, const char *action,
	const char *reason)
{
	char field[FIELD_SIZE];

	if (p->req->graph)
		snprintf(field, sizeof field, "graph[%zu].%s", launch, member);
	else
		snprintf(field, sizeof field, "%s", member);
	return fault_at(p->f, -EINVAL, field, -1, action, "%s", reason);
}

/* --- the tensors ------------------------------------------------------------------------------ */

static bool find_tensor(const struct launch_plan *plan, const char *name, size_t *ret)
{
	for (size_t i = 0; i < plan->n_tensors; i++)
		if (strcmp(plan->tensors[i].spec.name, name) == 0) {
			*ret = i;
			return true;
		}
	return false;
}

/* Shape and type of one from a file may not be known yet. */
static bool is_known(const struct launch_tensor *t)
{
	return t->spec.dtype != DTYPE_INVALID;
}

static void add_inputs(struct planning *p)
{
	for (size_t i = 0; i < p->req->n_inputs; i++)
		p->plan->tensors[p->plan->n_tensors++] =
			(struct launch_tensor){ .spec = p->req->inputs[i].spec,
				.data = p->req->inputs[i].data };
}

static int add_output(struct planning *p, size_t i)
{
	const struct tensor_spec *shape = &p->req->output_shapes[i];
	const char *name = p->req->outputs[i];
	struct launch_tensor t = { .spec = *shape };
	char field[FIELD_SIZE];
	size_t at;

	snprintf(field, sizeof field, "outputs[%zu]", i);
	if (strlen(name) > TENSOR_NAME_MAX)
		return fault_at(p->f, -EINVAL, field, -1, "give a shorter name",
			"the name has more than %d bytes", TENSOR_NAME_MAX);
	if (find_tensor(p->plan, name, &at)) {
		p->plan->outputs[p->plan->n_outputs++] = at;
		if (shape->rank == REQUEST_NO_SHAPE || !p->plan->tensors[at].data ||
			tensor_same_shape(shape, &p->plan->tensors[at].spec))
			return 0;
		return fault_at(p->f, -EINVAL, field, -1, "leave the shape out",
			"\"%s\" has another shape in \"inputs\"", name);
	}
	if (shape->rank == REQUEST_NO_SHAPE)
		return fault_at(p->f, -EINVAL, field, -1, "give name and shape",
			"the shape of \"%s\" is missing, and it is no input", name);
	strcpy(t.spec.name, name);
	p->plan->outputs[p->plan->n_outputs++] = p->plan->n_tensors;
	p->plan->tensors[p->plan->n_tensors++] = t;
	return 0;
}

static int add_outputs(struct planning *p)
{
	int err = 0;

	for (size_t i = 0; !err && p->req->outputs && p->req->outputs[i]; i++)
		err = add_output(p, i);
	return err;
}

/* --- the launches ----------------------------------------------------------------------------- */

static enum dtype dtype_of(uint8_t type)
{
	return type == VM_INT32 ? DTYPE_INT32 : DTYPE_FLOAT32;
}

static int bind_tensor(struct planning *p, size_t launch, const struct launch_parameter *row,
	const char *name, uint32_t *ret)
{
	enum dtype want = dtype_of(row->type);
	struct launch_tensor *t;
	char reason[192];
	size_t at;

	if (!find_tensor(p->plan, name, &at)) {
		snprintf(reason, sizeof reason,
			"there is no tensor \"%.60s\", which the callable takes as its \"%s\"",
			name, row->name);
		return refuse(p, launch, p->req->launches[launch].tensors ? "tensors" : "callable",
			"give it in \"inputs\", or with a shape in \"outputs\"", reason);
	}
	t = &p->plan->tensors[at];
	if (!is_known(t) && at >= p->req->n_inputs)
		t->spec.dtype = want;
	if (is_known(t) && t->spec.dtype != want) {
		snprintf(reason, sizeof reason, "\"%s\" is %s; the callable's \"%s\" is %s",
			t->spec.name, dtype_kserve(t->spec.dtype), row->name, dtype_kserve(want));
		return refuse(p, launch, "tensors", "give the type of the callable's signature",
			reason);
	}
	t->written |= (row->access & VM_OUT) != 0;
	p->used[at] = true;
	*ret = (uint32_t)at;
	return 0;
}

static int wrong_count(struct planning *p, size_t launch, const char *member, uint32_t want,
	size_t have)
{
	char reason[96];

	snprintf(reason, sizeof reason, "%zu %s are given; the callable takes %" PRIu32, have,
		member, want);
	return refuse(p, launch, member, "give as many as the callable takes", reason);
}

static size_t count_texts(char **texts)
{
	size_t n = 0;

	while (texts[n])
		n++;
	return n;
}

static int bind_tensors(struct planning *p, size_t launch, const struct launch_signature *s,
	struct launch_step *step)
{
	char **names = p->req->launches[launch].tensors;
	int err = 0;

	if (names && count_texts(names) != s->n_tensors)
		return wrong_count(p, launch, "tensors", s->n_tensors, count_texts(names));
	step->n_tensors = s->n_tensors;
	for (uint32_t i = 0; !err && i < s->n_tensors; i++)
		err = bind_tensor(p, launch, &s->rows[i], names ? names[i] : s->rows[i].name,
			&step->tensors[i]);
	return err;
}

static bool scalar_bits(const struct launch_parameter *row, const struct request_scalar *v,
	uint32_t *ret)
{
	float real = (float)v->real;
	int32_t whole = (int32_t)v->whole;
	bool ok;

	if (row->type == VM_INT32) {
		ok = v->integer && v->whole >= (row->max ? 0 : INT32_MIN) &&
			v->whole <= (row->max ? (int64_t)row->max : INT32_MAX);
		memcpy(ret, &whole, sizeof *ret);
	} else {
		ok = isfinite(real);
		memcpy(ret, &real, sizeof *ret);
	}
	return ok;
}

static int bind_scalars(struct planning *p, size_t launch, const struct launch_signature *s,
	struct launch_step *step)
{
	const struct request_launch *l = &p->req->launches[launch];
	char reason[192], range[48] = "";

	if (l->n_scalars != s->n_scalars)
		return wrong_count(p, launch, "scalars", s->n_scalars, l->n_scalars);
	step->n_scalars = s->n_scalars;
	for (uint32_t i = 0; i < s->n_scalars; i++) {
		const struct launch_parameter *row = &s->rows[s->n_tensors + i];

		if (scalar_bits(row, &l->scalars[i], &step->scalars[i]))
			continue;
		if (row->max)
			snprintf(range, sizeof range, " 0..%" PRIu32, row->max);
		snprintf(reason, sizeof reason, "scalar %" PRIu32 ", \"%s\", must be %s%s", i,
			row->name,
			row->type == VM_INT32 ? "an integer of 32 bits" : "within float32", range);
		return refuse(p, launch, "scalars", "correct the value", reason);
	}
	return 0;
}

static int add_launch(struct planning *p, size_t i, const struct launch_lookup *lookup)
{
	struct launch_step *step = &p->plan->steps[p->plan->n_steps];
	const struct launch_signature *s;
	int err = lookup->find(lookup->context, &p->req->launches[i], &step->id, &s, p->f);

	if (!err)
		err = bind_tensors(p, i, s, step);
	if (!err)
		err = bind_scalars(p, i, s, step);
	if (err)
		return err;
	p->plan->n_steps++;
	p->plan->machine_steps += s->steps;
	if (p->plan->machine_steps <= VM_STEPS_MAX)
		return 0;
	return refuse(p, i, "callable", "launch less in one request",
		"the launches may take more steps than one request can have");
}

/* --- the whole -------------------------------------------------------------------------------- */

static int check_used(struct planning *p)
{
	for (size_t i = 0; i < p->plan->n_tensors; i++)
		if (!p->used[i])
			return fault_at(p->f, -EINVAL, i < p->req->n_inputs ? "inputs" : "outputs",
				-1, "leave it out, or correct its name",
				"no launch takes a tensor \"%s\"", p->plan->tensors[i].spec.name);
	for (size_t i = 0; i < p->plan->n_outputs; i++)
		if (!p->plan->tensors[p->plan->outputs[i]].written)
			return fault_at(p->f, -EINVAL, "outputs", -1, "name what a launch writes",
				"no launch writes \"%s\"",
				p->plan->tensors[p->plan->outputs[i]].spec.name);
	return 0;
}

static void choose_all_written(struct launch_plan *plan)
{
	for (size_t i = 0; i < plan->n_tensors; i++)
		if (plan->tensors[i].written)
			plan->outputs[plan->n_outputs++] = i;
}

static int check_output_form(struct planning *p)
{
	if (p->req->output == REQUEST_JSON || p->plan->n_outputs == 1)
		return 0;
	return fault_at(p->f, -EINVAL, "output", -1, "name one in \"outputs\", or use \"json\"",
		"\"npy\" and \"raw\" hold one tensor; the answer has %zu", p->plan->n_outputs);
}

static int measure(struct planning *p)
{
	uint64_t left = LAUNCH_BYTES_MAX;

	for (size_t i = 0; i < p->plan->n_tensors; i++) {
		struct launch_tensor *t = &p->plan->tensors[i];
		int64_t bytes = is_known(t) ? tensor_bytes(&t->spec) : 0;

		if (bytes < 0 || (uint64_t)bytes > left)
			return fault_at(p->f, -E2BIG, i < p->req->n_inputs ? "inputs" : "outputs",
				-1, "launch on less at once",
				"the tensors of one request have more than %llu bytes",
				LAUNCH_BYTES_MAX);
		if (!bytes && is_known(t))
			return fault_at(p->f, -EINVAL, i < p->req->n_inputs ? "inputs" : "outputs",
				-1, "give at least one value", "the tensor \"%s\" is empty",
				t->spec.name);
		t->bytes = (uint64_t)bytes;
		left -= t->bytes;
	}
	p->plan->bytes = LAUNCH_BYTES_MAX - left;
	return 0;
}

static int make(struct planning *p, const struct launch_lookup *lookup)
{
	int err;

	add_inputs(p);
	err = add_outputs(p);
	for (size_t i = 0; !err && i < p->req->n_launches; i++)
		err = add_launch(p, i, lookup);
	if (!err)
		err = check_used(p);
	if (!err && !p->req->outputs)
		choose_all_written(p->plan);
	if (!err)
		err = check_output_form(p);
	return err ? err : measure(p);
}

int launch_plan_new(const struct request *req, const struct launch_lookup *lookup,
	struct launch_plan **ret, struct fault *f)
{
	AUTO_FREE struct launch_plan *plan = calloc(1, sizeof *plan);
	struct planning p = { .req = req, .plan = plan, .f = f };
	int err;

	if (!plan)
		return fault_set(f, -ENOMEM, "send it again later", "no memory for the launches");
	err = make(&p, lookup);
	if (!err)
		*ret = take_ptr(plan);
	return err;
}
