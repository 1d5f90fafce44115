/* Launches of resident callables, in steps that the engine interleaves with those of other jobs:
 *
 *   TAKE    device memory for the next tensor, and its data
 *   LAUNCH  the one launch; of several, or repeated, the graph that they were captured into
 *   WAIT    until what was launched has ended
 *   READ    the next tensor of the answer, which is looked through
 *
 * It waits for room for all its tensors before the first: with some of them it could wait for ever, for
 * a launch that waits for it.
 *
 * The context may end between two steps. What was taken from it is gone then, and so is the job. */
#include "core/engine/run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/json.h"
#include "core/base/mem.h"
#include "core/callable/buffer.h"
#include "core/callable/graph.h"
#include "core/engine/trace.h"
#include "core/tensor_json.h"

/* Replays go on in one step for so long. The machine's steps say too little of it: each launch also
 * validates its image, whose children may be many and not called. */
#define REPLAY_NS (20 * NS_PER_MS)

struct run_launch {
	struct run base;
	uint64_t context;
	struct launch_plan *plan;
	uint64_t addresses[LAUNCH_TENSORS_MAX]; /* 0: none yet */
	size_t n_taken, n_read; /* whole: what was too busy in the middle is done again */
	bool has_room;          /* of the buffers, the plan's bytes are this run's */
	bool waited;
	struct callable_graph *graph; /* NULL: not captured */
	int64_t launched;             /* rounds */
	void *results[LAUNCH_TENSORS_MAX];
};

static const struct run_ops run_launch_ops;

/* --- making one ------------------------------------------------------------------------------- */

static int check_context(const struct request *req, const struct run_limits *limits,
	struct fault *f)
{
	bool by_id = false;

	for (size_t i = 0; i < req->n_launches; i++)
		by_id |= !req->launches[i].callable;
	if (!by_id || limits->context == callables_number(limits->callables))
		return 0;
	return fault_at(f, -ESTALE, "callable", -1, "use the name, or the id of now",
		"the ids of the request are of a context that has ended");
}

/* A JSON document has at least a digit, a comma and a blank for each value: one that cannot be kept is
 * not begun. */
#define JSON_VALUE_BYTES 3

static uint64_t least_output(const struct launch_plan *plan, enum request_output form)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < plan->n_outputs; i++) {
		const struct launch_tensor *t = &plan->tensors[plan->outputs[i]];

		bytes += form == REQUEST_JSON
			? JSON_VALUE_BYTES * (uint64_t)tensor_elements(&t->spec)
			: t->bytes;
	}
	return bytes;
}

static int check_output(const struct request *req, const struct launch_plan *plan,
	const struct run_limits *limits, struct fault *f)
{
	uint64_t least = least_output(plan, req->output);

	if (least <= limits->output_bytes)
		return 0;
	return fault_at(f, -EFBIG, "outputs", -1,
		req->output == REQUEST_JSON ? "ask for less, or for \"npy\" or \"raw\""
					    : "ask for less, or raise output_size=",
		"the output would have at least %llu bytes; output_size is %zu",
		(unsigned long long)least, limits->output_bytes);
}

int run_launch_new(struct request *req, const struct run_limits *limits, struct run **ret,
	struct fault *f)
{
	AUTO_FREE struct launch_plan *plan = NULL;
	struct run_launch *r;
	int err = check_context(req, limits, f);

	if (!err)
		err = callables_plan(limits->callables, req, &plan, f);
	if (!err)
		err = check_output(req, plan, limits, f);
	if (err)
		return err;
	r = calloc(1, sizeof *r);
	if (!r)
		return fault_set(f, -ENOMEM, "send it again later", "no memory for the job");
	r->base = (struct run){ .ops = &run_launch_ops, .request = req, .limits = *limits };
	r->context = callables_number(limits->callables);
	r->plan = take_ptr(plan);
	*ret = &r->base;
	return 0;
}

static struct callable_cache *context_of(const struct run_launch *r)
{
	return callables_context(r->base.limits.callables, r->context);
}

static enum npu_error launch_free(struct run *run)
{
	struct run_launch *r = (struct run_launch *)run;
	struct callable_cache *c = context_of(r);
	struct fault f = FAULT_NONE;

	callable_graph_free(r->graph);
	for (size_t i = 0; c && i < r->plan->n_tensors; i++)
		if (r->addresses[i])
			callable_buffer_release(c, r->addresses[i], &f); /* or the close does it */
	if (r->has_room)
		callables_give_room(run->limits.callables, r->plan->bytes);
	if (c) /* before anybody learns of the job's end */
		callables_refresh(run->limits.callables);
	for (size_t i = 0; i < r->plan->n_outputs; i++)
		free(r->results[i]);
	request_free(run->request);
	free(r->plan);
	free(r);
	return f.device;
}

/* --- steps ------------------------------------------------------------------------------------ */

/* That there is no memory for a job is its own matter; nothing was touched. */
static enum step refuse(struct step_fault *f)
{
	f->again = f->fault.device == NPU_DEVICE_BUSY;
	if (f->fault.device == NPU_MEMORY_ALLOCATION)
		f->fault.device = NPU_SUCCESS;
	return STEP_FAILED;
}

static enum step take_tensor(struct run_launch *r, struct callable_cache *c, struct step_fault *f)
{
	const struct launch_tensor *t = &r->plan->tensors[r->n_taken];
	AUTO_FREE void *zeros = t->data ? NULL : calloc(1, t->bytes);
	const void *from = t->data ? t->data : zeros;
	uint64_t *address = &r->addresses[r->n_taken];

	if (!from) {
		fault_set(&f->fault, -ENOMEM, "send it again later", "no memory for a tensor");
		return STEP_FAILED;
	}
	if (!*address && callable_buffer_take(c, t->bytes, address, &f->fault))
		return refuse(f);
	if (callable_buffer_write(c, *address, from, t->bytes, &f->fault))
		return refuse(f);
	r->n_taken++;
	return STEP_MORE;
}

static int launch_one(const struct run_launch *r, struct callable_cache *c,
	const struct launch_step *s, struct fault *f)
{
	struct packet_tensor tensors[CALLABLE_TENSORS_MAX];
	const struct callable_args args = { .kind = PACKET_VM,
		.n_tensors = s->n_tensors,
		.n_scalars = s->n_scalars,
		.tensors = tensors,
		.scalars = s->scalars };

	for (uint32_t i = 0; i < s->n_tensors; i++)
		tensors[i] = (struct packet_tensor){ r->addresses[s->tensors[i]],
			r->plan->tensors[s->tensors[i]].bytes };
	return callable_launch(c, s->id, &args, f);
}

/* None is left on behind a step: it would take what the next job launches. */
static int capture(struct run_launch *r, struct callable_cache *c, struct fault *f)
{
	int err = callable_graph_begin(c, CAPTURE_THREAD_LOCAL, (uint32_t)r->plan->n_steps, f);

	if (err)
		return err;
	for (size_t i = 0; !err && i < r->plan->n_steps; i++)
		err = launch_one(r, c, &r->plan->steps[i], f);
	if (!err)
		err = callable_graph_end(c, &r->graph, f);
	if (err)
		callable_graph_abandon(c);
	return err;
}

static enum step replay(struct run_launch *r, struct callable_cache *c, struct step_fault *f)
{
	const int64_t until = clock_mono() + REPLAY_NS;

	if (!r->graph && capture(r, c, &f->fault))
		return refuse(f);
	do {
		if (callable_graph_replay(r->graph, &f->fault)) {
			refuse(f);
			f->again = false; /* a part of it may have been launched */
			return STEP_FAILED;
		}
		r->launched++;
	} while (r->launched < r->base.request->repeat && clock_mono() < until);
	return STEP_MORE;
}

static enum step launch(struct run_launch *r, struct callable_cache *c, struct step_fault *f)
{
	if (r->plan->n_steps > 1 || r->base.request->repeat > 1)
		return replay(r, c, f);
	if (launch_one(r, c, &r->plan->steps[0], &f->fault))
		return refuse(f);
	r->launched++;
	return STEP_MORE;
}

static enum step read_result(struct run_launch *r, struct callable_cache *c, struct step_fault *f)
{
	size_t at = r->plan->outputs[r->n_read];
	const struct launch_tensor *t = &r->plan->tensors[at];
	void **to = &r->results[r->n_read];

	if (!*to)
		*to = malloc(t->bytes);
	if (!*to) {
		fault_set(&f->fault, -ENOMEM, "send it again later", "no memory for the output");
		return STEP_FAILED;
	}
	if (callable_buffer_read(c, *to, r->addresses[at], t->bytes, &f->fault))
		return refuse(f);
	r->n_read++;
	if (!tensor_is_finite(&t->spec, *to)) /* as of every inference */
		return run_refuse_infinite(f);
	return r->n_read == r->plan->n_outputs ? STEP_ENDED : STEP_MORE;
}

static enum step wait_launched(struct run_launch *r, struct callable_cache *c, struct step_fault *f)
{
	if (callable_wait(c, &f->fault))
		return refuse(f);
	r->waited = true;
	return r->plan->n_outputs ? STEP_MORE : STEP_ENDED;
}

static const struct phase {
	enum step (*step)(struct run_launch *r, struct callable_cache *c, struct step_fault *f);
	enum trace_kind kind;
} phases[] = {
	{ take_tensor, TRACE_TRANSFER_IN },
	{ launch, TRACE_COMPUTE },
	{ wait_launched, TRACE_COMPUTE },
	{ read_result, TRACE_TRANSFER_OUT },
};

static const struct phase *phase_of(const struct run_launch *r)
{
	if (r->n_taken < r->plan->n_tensors)
		return &phases[0];
	if (r->launched < r->base.request->repeat)
		return &phases[1];
	return &phases[r->waited ? 3 : 2];
}

static enum step launch_step(struct run *run, struct buf *piece, struct step_fault *f)
{
	struct run_launch *r = (struct run_launch *)run;
	struct callable_cache *c = context_of(r);
	const struct phase *p = phase_of(r);
	int64_t begin = trace_begin();
	enum step s;

	(void)piece;
	if (!c) {
		fault_set(&f->fault, -ESTALE, "send it again",
			"the context of the callables ended while the job ran");
		return STEP_FAILED;
	}
	if (!r->has_room)
		r->has_room = callables_take_room(run->limits.callables, r->plan->bytes);
	if (!r->has_room)
		return STEP_MORE;
	s = p->step(r, c, f);
	trace_step(begin, p->kind, DEVICE_AUTO, 0,
		s == STEP_FAILED ? f->fault.device : NPU_SUCCESS);
	return s;
}

/* --- the answer ------------------------------------------------------------------------------- */

static void describe(const struct run_launch *r, struct json_value *doc)
{
	const struct request *req = r->base.request;

	if (req->request_id[0])
		json_add_string(doc, "id", req->request_id);
	if (req->graph)
		json_add_uint(doc, "launches", r->plan->n_steps * (uint64_t)req->repeat);
	else if (req->launches[0].callable)
		json_add_string(doc, "callable", req->launches[0].callable);
	else
		json_add_uint(doc, "callable", (uint64_t)req->launches[0].id);
}

static int render_document(const struct run_launch *r, struct buf *out)
{
	struct json_value *doc = json_new_object(), *outputs;
	int err;

	describe(r, doc);
	outputs = json_add_array(doc, "outputs");
	for (size_t i = 0; i < r->plan->n_outputs; i++)
		tensor_json_add(outputs, &r->plan->tensors[r->plan->outputs[i]].spec,
			r->results[i]);
	err = json_render(doc, true, out);
	json_free(doc);
	return err;
}

static int launch_finish(struct run *run, struct buf *out, struct job_outcome *ret)
{
	struct run_launch *r = (struct run_launch *)run;

	*ret = (struct job_outcome){ .finish_reason = "stop" };
	return run->request->output == REQUEST_JSON
		? render_document(r, out)
		: run_put_tensor(run->request->output, &r->plan->tensors[r->plan->outputs[0]].spec,
			  r->results[0], out);
}

static const struct run_ops run_launch_ops = {
	.step = launch_step,
	.finish = launch_finish,
	.free = launch_free,
};
