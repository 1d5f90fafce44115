/* Workloads: the first program of the model, with inputs that are made up and the same each time. */
#include "core/matrix/matrix_impl.h"

#include <stdlib.h>
#include <string.h>

#define LENGTH_P 3
#define LENGTH_Q 5

static struct program *first_program(const struct matrix *m)
{
	const struct generation *g = m->generation;

	return g->lanes[0].prefill ? g->lanes[0].prefill : g->programs[0];
}

uint32_t matrix_work_length(const struct matrix *m, enum matrix_work work)
{
	uint32_t n = work == WORK_P ? LENGTH_P : LENGTH_Q;

	if (!m->generation->n_lanes)
		return 0;
	return n < m->generation->ubatch ? n : m->generation->ubatch;
}

/* Small numbers that are no whole ones where floats are asked for; integers below `limit`. */
void matrix_fill(const struct tensor_spec *t, uint32_t limit, enum matrix_work work, void *ret)
{
	size_t n = (size_t)tensor_elements(t), element = dtype_size(t->dtype);

	memset(ret, 0, n * element);
	for (size_t i = 0; i < n; i++) {
		double d =
			work == WORK_P ? 0.125 * (double)(i % 16 + 1) : 1.0 / (double)(i % 7 + 1);
		float f = (float)d;
		uint32_t integer = (uint32_t)(i * 3 + (work == WORK_P ? 1 : 2)) % limit;
		char *at = (char *)ret + i * element;

		if (t->dtype == DTYPE_FLOAT32)
			memcpy(at, &f, sizeof f);
		else if (t->dtype == DTYPE_FLOAT64)
			memcpy(at, &d, sizeof d);
		else if (element >= sizeof integer)
			memcpy(at, &integer, sizeof integer);
		else
			*at = (char)(integer % 2);
	}
}

static uint32_t integer_limit(const struct matrix *m)
{
	return m->generation->vocab ? m->generation->vocab : 2;
}

static struct infer_result run_sequence(struct matrix *m, struct program *p, uint32_t n)
{
	struct sequence s;
	enum npu_error code = sequence_open(m->generation, &s);
	struct infer_result r;

	if (code)
		return (struct infer_result){ INFER_NOT_SUBMITTED, code, "opening a sequence" };
	r = sequence_run(m->generation, &s, p, n);
	code = sequence_close(m->generation, &s);
	if (code && r.stage == INFER_DONE)
		r = (struct infer_result){ INFER_OUTPUT_REFUSED, code, "closing a sequence" };
	return r;
}

struct infer_result matrix_infer(struct matrix *m, enum matrix_work work,
	char ret_hash[SHA256_HEX_SIZE])
{
	struct program *p = first_program(m);
	const struct program_spec *s = program_spec_of(p);
	uint32_t n = matrix_work_length(m, work);
	struct infer_result r;

	ret_hash[0] = '\0';
	for (size_t i = 0; i < s->n_inputs; i++)
		matrix_fill(&s->inputs[i], integer_limit(m), work, program_input(p, i));
	r = n ? run_sequence(m, p, n) : infer_checked(p, 0, 0);
	if (r.stage == INFER_DONE)
		sha256_hex(program_output(p, 0), (size_t)tensor_bytes(&s->outputs[0]), ret_hash);
	return r;
}

/* --- sets ------------------------------------------------------------------------------------- */

static const struct tensor_spec *tensor_at(const struct program_spec *s, size_t i)
{
	return i < s->n_inputs ? &s->inputs[i] : &s->outputs[i - s->n_inputs];
}

enum npu_error matrix_set_new(struct matrix *m, struct matrix_set *ret)
{
	const struct program_spec *s = program_spec_of(first_program(m));
	enum npu_error code;

	memset(ret, 0, sizeof *ret);
	ret->spec = s;
	for (size_t i = 0; i < s->n_inputs + s->n_outputs; i++) {
		ret->host[i] = calloc(1, (size_t)tensor_bytes(tensor_at(s, i)));
		if (!ret->host[i])
			return NPU_MEMORY_ALLOCATION;
	}
	code = device_slot_new(m->device, device_model(m->device, s->name), &ret->slot);
	if (code || !m->generation->n_lanes)
		return code;
	code = sequence_open(m->generation, &ret->sequence);
	ret->open = !code;
	return code;
}

enum npu_error matrix_set_bind(struct matrix *m, struct matrix_set *set, enum matrix_work work)
{
	const struct program_spec *s = set->spec;
	uint32_t n = matrix_work_length(m, work);
	enum npu_error code = NPU_SUCCESS;

	for (size_t i = 0; !code && i < s->n_inputs + s->n_outputs; i++) {
		size_t bytes = (size_t)tensor_bytes(tensor_at(s, i));

		if (i < s->n_inputs)
			matrix_fill(&s->inputs[i], integer_limit(m), work, set->host[i]);
		code = i < s->n_inputs ? device_slot_in(set->slot, i, set->host[i], bytes, 0, bytes)
				       : device_slot_out(set->slot, i - s->n_inputs, set->host[i],
						 bytes, 0, bytes);
	}
	if (!code && n)
		code = device_kv_apply(m->device, set->sequence.id, (int32_t)n);
	if (!code && n)
		code = device_slot_lengths(set->slot, 0, n);
	return code;
}

void matrix_set_hash(const struct matrix_set *s, char ret[SHA256_HEX_SIZE])
{
	const struct tensor_spec *t = &s->spec->outputs[0];

	sha256_hex(s->host[s->spec->n_inputs], (size_t)tensor_bytes(t), ret);
}

void matrix_set_free(struct matrix *m, struct matrix_set *s)
{
	enum npu_error code = s->open ? sequence_close(m->generation, &s->sequence) : NPU_SUCCESS;

	if (code)
		matrix_judge(m, false, "closing a sequence: %s", matrix_error(code));
	if (s->slot)
		device_slot_reset(s->slot);
	device_slot_free(s->slot);
	for (size_t i = 0; i < s->spec->n_inputs + s->spec->n_outputs; i++)
		free(s->host[i]);
}
