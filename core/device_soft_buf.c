/* Buffers and inference.
 *
 * An output buffer is also the record of its inference, which is in one of four states:
 *
 *   state     status shown                 entered by
 *   IDLE      DEFAULT                      creation
 *   QUEUED    PENDING                      infer: inputs and CSRs are copied, nothing is computed
 *   RUNNING   RUNNING                      its engine's thread; never seen without parallel mode
 *   FINISHED  DONE, DEFAULT after an error Wait of it, or of one submitted later; the engine
 *
 * Without parallel mode Wait computes on the calling thread, oldest first up to its own, so that the
 * order of effects is the order of submits whatever the order of waits. In parallel mode the engines
 * compute (device_soft_engine.c). */
#include "core/device_soft.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/device_soft_internal.h"

#define ALIGNMENT 64

struct inbuf {
	struct model *model;
	struct soft_slice slices[];
};

/* --- making ----------------------------------------------------------------------------------- */

enum npu_error soft_create_input_buf(struct model *m, struct inbuf **ret)
{
	struct inbuf *b = calloc(1, sizeof(*b) + m->program.info.n_inputs * sizeof(b->slices[0]));

	if (!b)
		return NPU_MEMORY_ALLOCATION;
	b->model = m;
	*ret = b;
	return NPU_SUCCESS;
}

void soft_destroy_input_buf(struct inbuf *b)
{
	free(b);
}

static void free_tensors(void **tensors, size_t n)
{
	for (size_t i = 0; tensors && i < n; i++)
		free(tensors[i]);
	free(tensors);
}

/* Zeroed memory for each of the tensors; NULL: no memory. */
static void **make_tensors(const struct tensor_spec *specs, size_t n)
{
	void **tensors = calloc(n + 1, sizeof(*tensors));

	for (size_t i = 0; tensors && i < n; i++) {
		size_t bytes = (size_t)tensor_bytes(&specs[i]) + ALIGNMENT;

		bytes -= bytes % ALIGNMENT;
		tensors[i] = aligned_alloc(ALIGNMENT, bytes);
		if (!tensors[i]) {
			free_tensors(tensors, i);
			return NULL;
		}
		memset(tensors[i], 0, bytes);
	}
	return tensors;
}

enum npu_error soft_create_output_buf(struct model *m, struct outbuf **ret)
{
	const struct model_info *info = &m->program.info;
	struct outbuf *b = calloc(1, sizeof(*b) + info->n_outputs * sizeof(b->slices[0]));

	if (!b)
		return NPU_MEMORY_ALLOCATION;
	b->model = m;
	b->inputs = make_tensors(info->inputs, info->n_inputs);
	b->outputs = make_tensors(info->outputs, info->n_outputs);
	if (!b->inputs || !b->outputs) {
		soft_destroy_output_buf(b);
		return NPU_MEMORY_ALLOCATION;
	}
	*ret = b;
	return NPU_SUCCESS;
}

void soft_queue_init(struct soft_queue *q)
{
	q->first = NULL;
	q->end = &q->first;
}

void soft_queue_put(struct soft_queue *q, struct outbuf *out)
{
	out->next = NULL;
	*q->end = out;
	q->end = &out->next;
}

void soft_queue_take(struct soft_queue *q, struct outbuf *out)
{
	struct outbuf **at = &q->first;

	while (*at != out)
		at = &(*at)->next;
	*at = out->next;
	if (q->end == &out->next)
		q->end = at;
}

void soft_destroy_output_buf(struct outbuf *b)
{
	struct vdevice *d;

	if (!b)
		return;
	d = b->model->calbin->device;
	if (out_in_flight(b) && d->engines)
		soft_engine_wait(d, b);
	else if (out_in_flight(b))
		soft_queue_take(&d->queue, b);
	free_tensors(b->inputs, b->model->program.info.n_inputs);
	free_tensors(b->outputs, b->model->program.info.n_outputs);
	free(b);
}

/* --- slices ----------------------------------------------------------------------------------- */

static enum npu_error find_slice(const struct tensor_spec *specs, size_t n, const char *tensor,
	uint64_t offset, uint64_t size, size_t *ret)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t bytes = (uint64_t)tensor_bytes(&specs[i]);

		if (strcmp(specs[i].name, tensor) != 0)
			continue;
		if (size == 0 || offset % DEVICE_SLICE_ALIGN != 0 || size % DEVICE_SLICE_ALIGN != 0)
			return NPU_INVALID_VALUE;
		if (offset > bytes || size > bytes - offset)
			return NPU_OUT_OF_RANGE;
		*ret = i;
		return NPU_SUCCESS;
	}
	return NPU_INVALID_VALUE;
}

enum npu_error soft_slice_input(struct inbuf *b, const char *tensor, const void *host,
	uint64_t offset, uint64_t size)
{
	const struct model_info *info = &b->model->program.info;
	enum npu_error code;
	size_t i;

	if (!host)
		return NPU_INVALID_VALUE;
	code = find_slice(info->inputs, info->n_inputs, tensor, offset, size, &i);
	if (code == NPU_SUCCESS)
		b->slices[i] = (struct soft_slice){ { .from = host }, offset, size };
	return code;
}

enum npu_error soft_slice_output(struct outbuf *b, const char *tensor, void *host, uint64_t offset,
	uint64_t size)
{
	const struct model_info *info = &b->model->program.info;
	enum npu_error code;
	size_t i;

	if (out_in_flight(b))
		return NPU_DEVICE_BUSY;
	if (!host)
		return NPU_INVALID_VALUE;
	code = find_slice(info->outputs, info->n_outputs, tensor, offset, size, &i);
	if (code == NPU_SUCCESS)
		b->slices[i] = (struct soft_slice){ { .to = host }, offset, size };
	return code;
}

void soft_reset_input(struct inbuf *b)
{
	memset(b->slices, 0, b->model->program.info.n_inputs * sizeof(b->slices[0]));
}

/* While an inference is pending this does nothing, silently. */
void soft_reset_output(struct outbuf *b)
{
	if (!out_in_flight(b))
		memset(b->slices, 0, b->model->program.info.n_outputs * sizeof(b->slices[0]));
}

/* --- CSRs ------------------------------------------------------------------------------------- */

/* The program's register of that name, or -1. */
static int find_csr(const struct model *m, const char *name)
{
	for (size_t i = 0; i < m->program.info.n_csrs; i++)
		if (strcmp(m->program.info.csrs[i], name) == 0)
			return (int)i;
	return -1;
}

enum npu_error soft_set_csr(struct model *m, const char *name, uint32_t value)
{
	int i = find_csr(m, name);

	if (i < 0)
		return NPU_INVALID_VALUE;
	if (value < 1 || value > m->calbin->llm.max_seq_len)
		return NPU_OUT_OF_RANGE;
	m->csrs[i] = value;
	return NPU_SUCCESS;
}

uint32_t soft_get_csr(struct model *m, const char *name)
{
	int i = find_csr(m, name);

	return i < 0 ? 0 : m->csrs[i];
}

/* --- submit ----------------------------------------------------------------------------------- */

/* Copy the inputs, whose slices must hold all that the program will read. */
static enum npu_error copy_inputs(const struct inbuf *in, struct outbuf *out)
{
	const struct soft_program *p = &in->model->program;

	for (size_t i = 0; i < p->info.n_inputs; i++) {
		const struct soft_slice *s = &in->slices[i];
		size_t bytes = (size_t)tensor_bytes(&p->info.inputs[i]);
		size_t need = p->needs ? p->needs(in->model->csrs[SOFT_CUR_LEN]) : bytes;

		if (need == 0 || need > bytes || s->offset != 0 || s->size < need)
			return NPU_INVALID_VALUE;
		memcpy(out->inputs[i], s->host.from, need);
	}
	return NPU_SUCCESS;
}

static bool outputs_sliced(const struct outbuf *out)
{
	for (size_t i = 0; i < out->model->program.info.n_outputs; i++)
		if (out->slices[i].size == 0)
			return false;
	return true;
}

/* A sequence that was applied is the engine's from its next inference on. */
static struct soft_seq *take_sequence(struct kvman *kv, int engine)
{
	if (kv && kv->applied)
		kv->current[engine] = kv->applied;
	if (!kv)
		return NULL;
	kv->applied = NULL;
	return kv->current[engine];
}

static enum npu_error enqueue(struct vdevice *d, struct outbuf *out, enum device_task task)
{
	struct kvman *kv = out->model->calbin->kv;
	int engine = d->engines ? soft_engine_choose(d, task, kv) : 0;

	if (engine < 0)
		return NPU_DEVICE_BUSY;
	memcpy(out->csrs, out->model->csrs, sizeof(out->csrs));
	out->seq = take_sequence(kv, engine);
	out->seq_birth = out->seq ? out->seq->birth : 0;
	out->state = OUT_QUEUED;
	if (d->engines)
		soft_engine_submit(d, engine, out);
	else
		soft_queue_put(&d->queue, out);
	return NPU_SUCCESS;
}

enum npu_error soft_infer(struct vdevice *d, struct model *m, struct inbuf *in, struct outbuf *out,
	enum device_task task)
{
	enum npu_error code;

	if (m->calbin != d->configured)
		return NPU_MISS_CONFIGURATION;
	if (in->model != m || out->model != m || task < DEVICE_AUTO || task > DEVICE_PONG)
		return NPU_INVALID_VALUE;
	if (out_in_flight(out))
		return NPU_DEVICE_BUSY;
	if (!outputs_sliced(out))
		return NPU_INVALID_VALUE;
	code = copy_inputs(in, out);
	if (code == NPU_SUCCESS)
		code = enqueue(d, out, task);
	d->submits += code == NPU_SUCCESS;
	return code;
}

/* Whoever waits for what was not submitted is told. */
void soft_submit_void(struct vdevice *d, struct model *m, struct inbuf *in, struct outbuf *out,
	enum device_task task)
{
	(void)soft_infer(d, m, in, out, task);
}

/* --- wait ------------------------------------------------------------------------------------- */

static void delay(unsigned microseconds)
{
	struct timespec left = { microseconds / 1000000, microseconds % 1000000 * 1000L };

	while (microseconds > 0 && nanosleep(&left, &left) < 0 && errno == EINTR)
		continue;
}

static void deliver(const struct outbuf *out)
{
	for (size_t i = 0; i < out->model->program.info.n_outputs; i++) {
		const struct soft_slice *s = &out->slices[i];

		memcpy(s->host.to, (const char *)out->outputs[i] + s->offset, s->size);
	}
}

void soft_run(struct outbuf *out)
{
	struct soft_run run = {
		.model = out->model,
		.inputs = (const void *const *)out->inputs,
		.outputs = out->outputs,
	};

	memcpy(run.csrs, out->csrs, sizeof(run.csrs));
	if (out->seq && out->seq->used && out->seq->birth == out->seq_birth)
		run.seq = out->seq;
	delay(out->model->calbin->device->params.step_delay_us);
	out->result = out->model->program.run(&run);
	if (out->result == NPU_SUCCESS)
		deliver(out);
}

static void run_oldest(struct vdevice *d)
{
	struct outbuf *out = d->queue.first;

	soft_queue_take(&d->queue, out);
	soft_run(out);
	out->state = OUT_FINISHED;
}

enum npu_error soft_wait(struct outbuf *out)
{
	struct vdevice *d = out->model->calbin->device;

	if (out->state == OUT_IDLE)
		return NPU_NOT_EXPECTED;
	if (d->engines)
		soft_engine_wait(d, out);
	while (out_in_flight(out))
		run_oldest(d);
	return out->result;
}

enum device_run soft_run_status(struct outbuf *out)
{
	static const enum device_run shown[] = { RUN_DEFAULT, RUN_PENDING, RUN_RUNNING, RUN_DONE };
	enum out_state state = out->state;

	return state == OUT_FINISHED && out->result != NPU_SUCCESS ? RUN_DEFAULT : shown[state];
}
