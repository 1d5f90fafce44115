/* Buffers and inference.
 *
 * An output buffer is also the record of its inference, which is in one of three states:
 *
 *   state     status shown                 entered by
 *   IDLE      DEFAULT                      creation
 *   QUEUED    PENDING                      infer: inputs and CSRs are copied, nothing is computed
 *   FINISHED  DONE, DEFAULT after an error Wait of it, or of one submitted later
 *
 * Wait computes on the calling thread, oldest first up to its own, so that the order of effects is
 * the order of submits whatever the order of waits. RUNNING is never seen. */
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

enum out_state { IDLE, QUEUED, FINISHED };

struct outbuf {
	struct model *model;
	enum out_state state;
	enum npu_error result;    /* once FINISHED */
	struct outbuf *next;      /* in the device's queue */
	void **inputs, **outputs; /* the device's own memory of every tensor */
	uint32_t csrs[SOFT_CSRS];
	struct soft_seq *seq;
	uint64_t seq_birth;
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

static void take_from_queue(struct vdevice *d, struct outbuf *b)
{
	struct outbuf **at = &d->queue;

	while (*at != b)
		at = &(*at)->next;
	*at = b->next;
	if (d->queue_end == &b->next)
		d->queue_end = at;
}

void soft_destroy_output_buf(struct outbuf *b)
{
	if (!b)
		return;
	if (b->state == QUEUED)
		take_from_queue(b->model->calbin->device, b);
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

	if (b->state == QUEUED)
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
	if (b->state != QUEUED)
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

static void enqueue(struct vdevice *d, struct outbuf *out)
{
	struct kvman *kv = out->model->calbin->kv;

	memcpy(out->csrs, out->model->csrs, sizeof(out->csrs));
	out->seq = kv ? kv->current : NULL;
	out->seq_birth = out->seq ? out->seq->birth : 0;
	out->state = QUEUED;
	out->next = NULL;
	*d->queue_end = out;
	d->queue_end = &out->next;
}

enum npu_error soft_infer(struct vdevice *d, struct model *m, struct inbuf *in, struct outbuf *out,
	enum device_task task)
{
	enum npu_error code;

	if (m->calbin != d->configured)
		return NPU_MISS_CONFIGURATION;
	if (in->model != m || out->model != m || task < DEVICE_AUTO || task > DEVICE_PONG)
		return NPU_INVALID_VALUE;
	if (out->state == QUEUED)
		return NPU_DEVICE_BUSY;
	if (!outputs_sliced(out))
		return NPU_INVALID_VALUE;
	code = copy_inputs(in, out);
	if (code == NPU_SUCCESS)
		enqueue(d, out);
	return code;
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

static void run_oldest(struct vdevice *d)
{
	struct outbuf *out = d->queue;
	struct soft_run run = {
		.model = out->model,
		.inputs = (const void *const *)out->inputs,
		.outputs = out->outputs,
	};

	take_from_queue(d, out);
	memcpy(run.csrs, out->csrs, sizeof(run.csrs));
	if (out->seq && out->seq->used && out->seq->birth == out->seq_birth)
		run.seq = out->seq;
	delay(d->params.step_delay_us);
	out->result = out->model->program.run(&run);
	if (out->result == NPU_SUCCESS)
		deliver(out);
	out->state = FINISHED;
}

enum npu_error soft_wait(struct outbuf *out)
{
	if (out->state == IDLE)
		return NPU_NOT_EXPECTED;
	while (out->state == QUEUED)
		run_oldest(out->model->calbin->device);
	return out->result;
}

enum device_run soft_run_status(struct outbuf *out)
{
	if (out->state == QUEUED)
		return RUN_PENDING;
	return out->state == FINISHED && out->result == NPU_SUCCESS ? RUN_DONE : RUN_DEFAULT;
}
