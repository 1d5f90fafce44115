/* Tensors and lengths: what is out of bounds is refused by the checked caller and does not reach the
 * device; what the device itself is asked, past the checked caller, it refuses too. */
#include "core/matrix/matrix_impl.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/mem.h"
#include "core/device_probe.h"

/* --- tensors ---------------------------------------------------------------------------------- */

static struct model *first_model(const struct matrix *m, const struct model_info **ret)
{
	struct model *model = device_model(m->device, m->manifest->programs[0].name);

	*ret = device_model_info(m->device, model);
	return model;
}

static void names(struct matrix *m, int arg)
{
	const struct model_info *info;
	struct model *model = first_model(m, &info);
	uint32_t word[4] = { 0 };
	enum npu_error in, out;

	(void)arg;
	matrix_judge(m, !device_model(m->device, "no such program"),
		"a program there is not was found");
	in = device_probe_slice_in(m->device, model, "no such tensor", word, 0, 4);
	out = device_probe_slice_out(m->device, model, "no such tensor", word, 0, 4);
	matrix_judge(m, in && out, "no program; input %s, output %s", matrix_error(in),
		matrix_error(out));
}

enum change { CHANGE_DTYPE, CHANGE_RANK, CHANGE_SHAPE, CHANGE_NAME };

static void change(struct tensor_spec *t, enum change change)
{
	if (change == CHANGE_DTYPE)
		t->dtype = t->dtype == DTYPE_FLOAT32 ? DTYPE_INT32 : DTYPE_FLOAT32;
	if (change == CHANGE_RANK) {
		t->dims[t->rank] = 1;
		t->rank++;
	}
	if (change == CHANGE_SHAPE)
		t->dims[t->rank - 1] += 4;
	if (change == CHANGE_NAME)
		t->name[0] = t->name[0] == 'z' ? 'y' : 'z';
}

/* The manifest's first program with one tensor changed: the calbin must be found not to fit. */
static void misfit(struct matrix *m, int arg)
{
	static const enum npu_error want[] = { NPU_INVALID_DATA_TYPE, NPU_INVALID_DATA_SHAPE,
		NPU_INVALID_DATA_SHAPE, NPU_INVALID_CALBIN };
	const struct manifest *real = m->manifest;
	AUTO_FREE struct program_spec *programs = calloc(real->n_programs, sizeof *programs);
	struct tensor_spec output = real->programs[0].outputs[0];
	struct manifest other = *real;
	enum npu_error code;

	if (!programs || output.rank == TENSOR_MAX_RANK || real->programs[0].n_outputs != 1) {
		matrix_skip(m, "the first program's outputs do not lend themselves to it");
		return;
	}
	memcpy(programs, real->programs, real->n_programs * sizeof *programs);
	change(&output, (enum change)arg);
	programs[0].outputs = &output;
	other.programs = programs;
	m->manifest = &other;
	code = matrix_open_generation(m);
	m->manifest = real;
	matrix_judge(m, code == want[arg] && !matrix_calls(m, CALL_INFER), "%s, %s",
		matrix_error(code),
		matrix_calls(m, CALL_INFER) ? "after traffic" : "nothing submitted");
	if (!code)
		matrix_close_generation(m);
}

static const struct slice {
	const char *what;
	uint64_t offset, size; /* added to the tensor's bytes where they are `past` */
	bool past_offset, past_size;
	uint64_t short_by; /* of host memory */
} slices[] = {
	{ "zero size", 0, 0, false, false, 0 },
	{ "zero size at the end", 0, 0, true, false, 0 },
	{ "larger than the tensor", 0, 4, false, true, 0 },
	{ "offset past the end", 4, 4, true, false, 0 },
	{ "from the end on", 0, 4, true, false, 0 },
	{ "offset that wraps around", UINT64_MAX - 3, 8, false, false, 0 },
	{ "size that wraps around", 4, UINT64_MAX - 3, false, false, 0 },
};

static void slice_bounds(struct matrix *m, int arg)
{
	struct matrix_set s;
	enum npu_error code = matrix_set_new(m, &s), got = NPU_SUCCESS;
	uint64_t bytes = (uint64_t)tensor_bytes(&s.spec->outputs[0]);
	void *host = s.host[s.spec->n_inputs];
	const char *what = "";

	(void)arg;
	matrix_mark(m);
	for (size_t i = 0; !code && i < ARRAY_SIZE(slices); i++) {
		const struct slice *c = &slices[i];

		what = c->what;
		got = device_slot_out(s.slot, 0, host, SIZE_MAX,
			c->offset + (c->past_offset ? bytes : 0),
			c->size + (c->past_size ? bytes : 0));
		if (got != NPU_OUT_OF_RANGE)
			break;
	}
	matrix_judge(m, !code && got == NPU_OUT_OF_RANGE, "%s: %s", what, matrix_error(got));
	got = code ? code : device_slot_out(s.slot, 0, host, bytes - 1, 0, bytes);
	matrix_judge(m, got == NPU_OUT_OF_RANGE, "host memory too small: %s", matrix_error(got));
	matrix_judge(m, !matrix_calls(m, CALL_SLICE), "%zu ways: OutOfRange, the device %s asked",
		ARRAY_SIZE(slices) + 1, matrix_calls(m, CALL_SLICE) ? "was" : "was not");
	matrix_set_free(m, &s);
}

static void unaligned(struct matrix *m, int arg)
{
	struct matrix_set s;
	enum npu_error code = matrix_set_new(m, &s), a = code, b = code, c = code;
	void *host = s.host[s.spec->n_inputs];

	(void)arg;
	if (!code) {
		a = device_slot_out(s.slot, 0, host, 4, 0, 3);
		b = device_slot_out(s.slot, 0, host, 4, 1, 2);
		c = device_slot_out(s.slot, s.spec->n_outputs, host, 4, 0, 4);
	}
	matrix_judge(m, a == NPU_INVALID_VALUE && c == NPU_INVALID_VALUE && b,
		"size %s, offset %s, a tensor there is not %s", matrix_error(a), matrix_error(b),
		matrix_error(c));
	matrix_set_free(m, &s);
}

/* What the device says by itself. */
static void device_bounds(struct matrix *m, int arg)
{
	const struct model_info *info;
	struct model *model = first_model(m, &info);
	const struct tensor_spec *t = &info->outputs[0];
	uint64_t bytes = (uint64_t)tensor_bytes(t);
	AUTO_FREE void *host = calloc(1, bytes + 8);
	enum npu_error zero, past, wide;

	(void)arg;
	zero = device_probe_slice_out(m->device, model, t->name, host, 0, 0);
	past = device_probe_slice_out(m->device, model, t->name, host, bytes + 4, 4);
	wide = device_probe_slice_out(m->device, model, t->name, host, 0, bytes + 4);
	matrix_judge(m, host && zero && past && wide, "zero size %s, past the end %s, too wide %s",
		matrix_error(zero), matrix_error(past), matrix_error(wide));
}

static void judge_not_submitted(struct matrix *m, struct infer_result r, enum npu_error want)
{
	bool submitted = matrix_calls(m, CALL_INFER) > 0;

	matrix_judge(m, r.stage == INFER_NOT_SUBMITTED && r.code == want && !submitted, "%s, %s",
		matrix_error(r.code), submitted ? "but submitted" : "nothing submitted");
}

static void slice_refused(struct matrix *m, int arg)
{
	char hash[SHA256_HEX_SIZE];

	(void)arg;
	matrix_plant("SliceTensorByName@1:OutOfRange");
	judge_not_submitted(m, matrix_infer(m, WORK_P, hash), NPU_OUT_OF_RANGE);
}

static void stale(struct matrix *m, int arg)
{
	struct matrix_set s;
	enum npu_error code = matrix_set_new(m, &s), again = NPU_SUCCESS;

	(void)arg;
	if (!code)
		code = matrix_set_bind(m, &s, WORK_P);
	if (!code)
		code = device_slot_submit(s.slot, DEVICE_AUTO);
	if (!code)
		code = device_slot_wait(s.slot);
	if (!code) {
		device_slot_reset(s.slot);
		matrix_mark(m);
		again = device_slot_submit(s.slot, DEVICE_AUTO);
	}
	matrix_judge(m, !code && again == NPU_INVALID_VALUE && !matrix_calls(m, CALL_INFER),
		"after a good run (%s), nothing mapped anew: %s", matrix_error(code),
		matrix_error(again));
	if (!again && !code)
		device_slot_wait(s.slot);
	matrix_set_free(m, &s);
}

static void null_buffer(struct matrix *m, int arg)
{
	const struct model_info *info;
	struct model *model = first_model(m, &info);
	struct slot *in = NULL, *out = NULL;
	enum npu_error a, b;

	(void)arg;
	matrix_plant("createInputBuf@1:null");
	a = device_slot_new(m->device, model, &in);
	matrix_plant("createOutputBuf@1:null");
	b = device_slot_new(m->device, model, &out);
	matrix_judge(m, a == NPU_MEMORY_ALLOCATION && b == NPU_MEMORY_ALLOCATION,
		"input %s, output %s", matrix_error(a), matrix_error(b));
	device_slot_free(in);
	device_slot_free(out);
}

static const struct matrix_case tensor_cases[] = {
	{ "missing names", FOR_ANY, NEEDS_GENERATION, names, 0 },
	{ "missing tensor", FOR_ANY, NEEDS_DEVICE, misfit, CHANGE_NAME },
	{ "wrong dtype", FOR_ANY, NEEDS_DEVICE, misfit, CHANGE_DTYPE },
	{ "wrong rank", FOR_ANY, NEEDS_DEVICE, misfit, CHANGE_RANK },
	{ "wrong shape", FOR_ANY, NEEDS_DEVICE, misfit, CHANGE_SHAPE },
	{ "zero size and slice out of range", FOR_ANY, NEEDS_GENERATION, slice_bounds, 0 },
	{ "unaligned slice", FOR_ANY, NEEDS_GENERATION, unaligned, 0 },
	{ "the device's own bounds", FOR_ANY, NEEDS_GENERATION, device_bounds, 0 },
	{ "a slice that the device refuses", FOR_ANY, NEEDS_GENERATION, slice_refused, 0 },
	{ "a mapping of an earlier run", FOR_ANY, NEEDS_GENERATION, stale, 0 },
	{ "a buffer that is NULL", FOR_ANY, NEEDS_GENERATION, null_buffer, 0 },
};

const struct matrix_group matrix_tensor = { "tensor", tensor_cases, ARRAY_SIZE(tensor_cases) };

/* --- lengths ---------------------------------------------------------------------------------- */

/* Lengths that are refused before the setter is asked. */
static void lengths(struct matrix *m, const uint32_t (*pairs)[2], size_t n)
{
	struct matrix_set s;
	enum npu_error code = matrix_set_new(m, &s);
	size_t i = 0;

	matrix_mark(m);
	while (i < n && !code) {
		code = device_slot_lengths(s.slot, pairs[i][0], pairs[i][1]);
		code = code == NPU_OUT_OF_RANGE ? NPU_SUCCESS : code ? code : NPU_UNKNOWN;
		i += !code;
	}
	matrix_judge(m, i == n && !matrix_calls(m, CALL_CSR),
		"%zu of %zu: OutOfRange, the setter %s asked, nothing submitted", i, n,
		matrix_calls(m, CALL_CSR) ? "was" : "was not");
	matrix_set_free(m, &s);
}

static void csr_bounds(struct matrix *m, int arg)
{
	const uint32_t max = m->manifest->context_limit;
	const uint32_t pairs[][2] = { { 0, 0 }, { 5, 0 }, { 0, max + 1 }, { 0, UINT32_MAX } };

	(void)arg;
	lengths(m, pairs, ARRAY_SIZE(pairs));
}

static void csr_overflow(struct matrix *m, int arg)
{
	const uint32_t max = m->manifest->context_limit;
	const uint32_t pairs[][2] = { { max, 1 }, { max - 1, 2 }, { UINT32_MAX, 1 },
		{ UINT32_MAX - 1, 3 }, { 1, max } };

	(void)arg;
	lengths(m, pairs, ARRAY_SIZE(pairs));
}

static void csr_unknown(struct matrix *m, int arg)
{
	const struct model_info *info;
	struct model *model = first_model(m, &info);
	enum npu_error code = device_probe_csr(m->device, model, "no_such_csr[0]", 1);

	(void)arg;
	matrix_judge(m, code, "the setter: %s", code ? matrix_error(code) : "took it");
}

static void csr_setter(struct matrix *m, int arg)
{
	const struct model_info *info;
	struct model *model = first_model(m, &info);
	uint32_t max = m->manifest->context_limit;
	enum npu_error zero = device_probe_csr(m->device, model, CSR_CUR_LEN, 0);
	enum npu_error over = device_probe_csr(m->device, model, CSR_PAST_LEN, max + 1);

	(void)arg;
	matrix_judge(m, zero && over, "the setter: 0 %s, the limit and 1 %s", matrix_error(zero),
		matrix_error(over));
}

static void csr_refused(struct matrix *m, int arg)
{
	char hash[SHA256_HEX_SIZE];

	(void)arg;
	matrix_plant("SetCsrByName@2:OutOfRange");
	judge_not_submitted(m, matrix_infer(m, WORK_P, hash), NPU_OUT_OF_RANGE);
}

static void csr_read_back(struct matrix *m, int arg)
{
	const struct model_info *info;
	struct model *model = first_model(m, &info);
	uint32_t cur, total;
	struct matrix_set s;
	enum npu_error code = matrix_set_new(m, &s);

	(void)arg;
	if (!code)
		code = device_slot_lengths(s.slot, 4, 3);
	cur = device_probe_read_csr(m->device, model, CSR_CUR_LEN);
	total = device_probe_read_csr(m->device, model, CSR_PAST_LEN);
	matrix_judge(m, !code && cur == 3 && total == 7, "3 after 4 reads back as %u and %u (%s)",
		cur, total, matrix_error(code));
	matrix_set_free(m, &s);
}

static void csr_none(struct matrix *m, int arg)
{
	struct matrix_set s;
	enum npu_error code = matrix_set_new(m, &s);

	(void)arg;
	if (!code)
		code = device_slot_lengths(s.slot, 0, 1);
	matrix_judge(m, code == NPU_OUT_OF_RANGE && !matrix_calls(m, CALL_CSR),
		"a program without lengths: %s", matrix_error(code));
	matrix_set_free(m, &s);
}

static const struct matrix_case csr_cases[] = {
	{ "bounds", FOR_LLM, NEEDS_GENERATION, csr_bounds, 0 },
	{ "total length overflow", FOR_LLM, NEEDS_GENERATION, csr_overflow, 0 },
	{ "unknown name", FOR_ANY, NEEDS_GENERATION, csr_unknown, 0 },
	{ "the setter's own bounds", FOR_LLM, NEEDS_GENERATION, csr_setter, 0 },
	{ "a setter's error", FOR_LLM, NEEDS_GENERATION, csr_refused, 0 },
	{ "read back", FOR_LLM, NEEDS_GENERATION, csr_read_back, 0 },
	{ "a program without lengths", FOR_TENSOR, NEEDS_GENERATION, csr_none, 0 },
};

const struct matrix_group matrix_csr = { "csr", csr_cases, ARRAY_SIZE(csr_cases) };
