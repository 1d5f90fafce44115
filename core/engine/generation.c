/* Start and end of a generation.
 *
 *   loaded -> validated -> configured -> buffers + KV -> golden runs agree -> open
 *
 * A failure anywhere leaves by the one way out, generation_close(), which undoes what there is in
 * the contract's order. Validation compares what the runtime reports with the signed manifest and
 * nothing else: the runtime's own metadata (types, golden data) is known to mislead (device contract 2,
 * 3). */
#include "core/engine/generation.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/mem.h"
#include "core/engine/sequence.h"

#define REPAIR "sign and install an artifact whose manifest matches its calbin"

static int mismatch(struct fault *f, enum npu_error code, const char *reason)
{
	fault_set(f, npu_error_row(code)->err, REPAIR, "%s", reason);
	f->device = code;
	return f->err;
}

static int device_failed(struct fault *f, enum npu_error code, const char *what)
{
	return fault_from_device(f, code, what);
}

/* --- validation ------------------------------------------------------------------------------- */

static const struct tensor_spec *tensor_named(const struct tensor_spec *t, size_t n,
	const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(t[i].name, name) == 0)
			return &t[i];
	return NULL;
}

static int validate_tensors(const struct tensor_spec *want, size_t n_want,
	const struct tensor_spec *have, size_t n_have, struct fault *f)
{
	char a[TENSOR_TEXT_SIZE], b[TENSOR_TEXT_SIZE];

	if (n_want != n_have)
		return mismatch(f, NPU_INVALID_CALBIN, "a program has another number of tensors");
	for (size_t i = 0; i < n_want; i++) {
		const struct tensor_spec *t = tensor_named(have, n_have, want[i].name);
		bool type_ok = t && t->dtype == want[i].dtype;

		if (tensor_bytes(&want[i]) % DEVICE_SLICE_ALIGN)
			return mismatch(f, NPU_INVALID_DATA_SHAPE,
				"a tensor's size is not a multiple of the runtime's alignment");
		if (type_ok && tensor_same_shape(t, &want[i]))
			continue;
		if (!t)
			return mismatch(f, NPU_INVALID_CALBIN,
				"a program lacks a tensor of the manifest");
		fault_set(f, -EINVAL, REPAIR,
			"tensor %s is %s on the device and %s in the manifest", want[i].name,
			tensor_text(t, a), tensor_text(&want[i], b));
		f->device = type_ok ? NPU_INVALID_DATA_SHAPE : NPU_INVALID_DATA_TYPE;
		return f->err;
	}
	return 0;
}

static bool has_csr(const struct model_info *info, const char *name)
{
	for (size_t i = 0; i < info->n_csrs; i++)
		if (strcmp(info->csrs[i], name) == 0)
			return true;
	return false;
}

static int validate_program(struct device *d, const struct program_spec *p, struct fault *f)
{
	struct model *m = device_model(d, p->name);
	const struct model_info *info = m ? device_model_info(d, m) : NULL;
	int err;

	if (!info)
		return mismatch(f, NPU_INVALID_CALBIN,
			"the calbin lacks a program of the manifest");
	err = validate_tensors(p->inputs, p->n_inputs, info->inputs, info->n_inputs, f);
	if (!err)
		err = validate_tensors(p->outputs, p->n_outputs, info->outputs, info->n_outputs, f);
	for (size_t i = 0; !err && i < p->n_csrs; i++)
		if (!has_csr(info, p->csrs[i]))
			err = mismatch(f, NPU_INVALID_CALBIN,
				"a program lacks a CSR of the manifest");
	return err;
}

static bool version_listed(char *const *versions, size_t n, const char *version)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(versions[i], version) == 0)
			return true;
	return n == 0;
}

static int validate_versions(struct device *d, const struct manifest *m, struct fault *f)
{
	struct device_info info;
	const char *calbin = device_calbin_version(d);

	device_versions(d, &info);
	if (strcmp(calbin, m->calbin_version) != 0) {
		fault_set(f, -EINVAL, REPAIR, "the calbin is version %s, the manifest says %s",
			calbin, m->calbin_version);
		f->device = NPU_INVALID_CALBIN;
		return f->err;
	}
	if (!version_listed(m->runtimes, m->n_runtimes, info.runtime))
		return mismatch(f, NPU_REQUIRE_NEWER_RT, "the manifest does not list this runtime");
	if (!version_listed(m->drivers, m->n_drivers, info.driver))
		return mismatch(f, NPU_INCOMPATIBLE_DRIVER,
			"the manifest does not list this driver");
	if (!version_listed(m->firmwares, m->n_firmwares, info.firmware))
		return mismatch(f, NPU_INCOMPATIBLE_DRIVER,
			"the manifest does not list this firmware");
	return 0;
}

static int validate_llm(struct device *d, const struct manifest *m, struct fault *f)
{
	struct llm_info llm;

	device_llm_info(d, &llm);
	if (m->kind != MANIFEST_LLM)
		return 0;
	if (llm.max_batch_size != m->batch || llm.max_seq_len != m->context_limit) {
		fault_set(f, -EINVAL, REPAIR,
			"the calbin has batch %u and context %u, the manifest %u and %u",
			llm.max_batch_size, llm.max_seq_len, m->batch, m->context_limit);
		f->device = NPU_INVALID_CALBIN;
		return f->err;
	}
	return 0;
}

static int validate(struct device *d, const struct manifest *m, struct fault *f)
{
	size_t have = device_model_count(d);
	int err;

	if (have != m->n_programs) {
		fault_set(f, -EINVAL, REPAIR, "the calbin has %zu programs, the manifest %zu", have,
			m->n_programs);
		f->device = NPU_INVALID_CALBIN;
		return f->err;
	}
	err = validate_versions(d, m, f);
	if (!err)
		err = validate_llm(d, m, f);
	for (size_t i = 0; !err && i < m->n_programs; i++)
		err = validate_program(d, &m->programs[i], f);
	return err;
}

/* --- the shape an LLM's programs must have ---------------------------------------------------- */

static struct program *named(struct generation *g, const char *name)
{
	for (size_t i = 0; i < g->manifest->n_programs; i++)
		if (strcmp(g->manifest->programs[i].name, name) == 0)
			return g->programs[i];
	return NULL;
}

/* tokens int32 [n] -> logits float32 [vocab]; gives n, or 0 when it is not so. */
static uint32_t token_program_width(const struct program *p, uint32_t vocab)
{
	const struct program_spec *s = p ? program_spec_of(p) : NULL;

	if (!s || s->n_inputs != 1 || s->n_outputs != 1 || s->inputs[0].dtype != DTYPE_INT32 ||
		s->outputs[0].dtype != DTYPE_FLOAT32 || tensor_elements(&s->outputs[0]) != vocab)
		return 0;
	return (uint32_t)tensor_elements(&s->inputs[0]);
}

static int bind_llm(struct generation *g, struct fault *f)
{
	struct llm_lane *lane = &g->lanes[0];

	if (g->manifest->kind != MANIFEST_LLM)
		return 0;
	g->context = g->manifest->context_limit;
	g->vocab = g->manifest->tokenizer.vocab_size;
	g->n_lanes = 1;
	lane->prefill = named(g, "prefill");
	lane->decode = named(g, "decode");
	lane->kv_update = named(g, "kv_update");
	g->ubatch = token_program_width(lane->prefill, g->vocab);
	if (g->ubatch == 0 || token_program_width(lane->decode, g->vocab) != 1 || !lane->kv_update)
		return mismatch(f, NPU_INVALID_CALBIN,
			"an LLM needs prefill, decode and kv_update with tokens and logits");
	return 0;
}

static int make_programs(struct generation *g, struct fault *f)
{
	enum npu_error code = NPU_SUCCESS;

	g->programs = calloc(g->manifest->n_programs, sizeof *g->programs);
	if (!g->programs)
		return device_failed(f, NPU_MEMORY_ALLOCATION, "making buffers");
	for (size_t i = 0; !code && i < g->manifest->n_programs; i++)
		code = program_new(g->device, &g->manifest->programs[i], &g->programs[i]);
	if (code)
		return device_failed(f, code, "making buffers");
	if (g->manifest->kind == MANIFEST_LLM)
		code = device_kv_open(g->device);
	return code ? device_failed(f, code, "opening the KV manager") : bind_llm(g, f);
}

/* --- two lanes -------------------------------------------------------------------------------- */

static void free_second_lane(struct generation *g)
{
	struct llm_lane *lane = &g->lanes[1];

	program_free(lane->prefill);
	program_free(lane->decode);
	program_free(lane->kv_update);
	memset(lane, 0, sizeof *lane);
	g->n_lanes = g->n_lanes ? 1 : 0;
}

static enum npu_error make_second_lane(struct generation *g)
{
	const struct llm_lane *first = &g->lanes[0];
	struct llm_lane *lane = &g->lanes[1];
	enum npu_error code =
		program_new(g->device, program_spec_of(first->prefill), &lane->prefill);

	if (!code)
		code = program_new(g->device, program_spec_of(first->decode), &lane->decode);
	if (!code)
		code = program_new(g->device, program_spec_of(first->kv_update), &lane->kv_update);
	if (!code)
		g->n_lanes = 2;
	else
		free_second_lane(g);
	return code;
}

enum npu_error generation_set_parallel(struct generation *g, bool on)
{
	enum npu_error code;

	if (!g->n_lanes)
		return NPU_DEVICE_UNSUPPORT;
	if (on == (g->n_lanes == 2))
		return NPU_SUCCESS;
	free_second_lane(g);
	code = device_set_parallel(g->device, on);
	if (!code && on)
		code = make_second_lane(g);
	if (code && on && code != NPU_DEVICE_UNSUPPORT)
		device_set_parallel(g->device, false);
	return code;
}

/* --- golden runs ------------------------------------------------------------------------------ */

static int golden_differs(struct fault *f, const char *reason)
{
	fault_set(f, -EBADMSG,
		"do not use this artifact on this device; build it again or ask its maker", "%s",
		reason);
	f->device = NPU_NOT_EXPECTED;
	return f->err;
}

static bool tensor_agrees(const struct tensor_spec *t, const void *have, const void *want,
	double tol)
{
	size_t n = (size_t)tensor_elements(t);

	if (t->dtype != DTYPE_FLOAT32)
		return memcmp(have, want, (size_t)tensor_bytes(t)) == 0;
	for (size_t i = 0; i < n; i++)
		if (!(fabs((double)((const float *)have)[i] - (double)((const float *)want)[i]) <=
			    tol))
			return false;
	return true;
}

static void golden_load_inputs(struct program *p, const char *bytes)
{
	const struct program_spec *s = program_spec_of(p);

	for (size_t i = 0; i < s->n_inputs; i++) {
		size_t n = (size_t)tensor_bytes(&s->inputs[i]);
		memcpy(program_input(p, i), bytes, n);
		bytes += n;
	}
}

static bool golden_outputs_agree(struct program *p, const char *bytes, double tolerance)
{
	const struct program_spec *s = program_spec_of(p);

	for (size_t i = 0; i < s->n_outputs; i++) {
		if (!tensor_agrees(&s->outputs[i], program_output(p, i), bytes, tolerance))
			return false;
		bytes += tensor_bytes(&s->outputs[i]);
	}
	return true;
}

/* The runtime's own golden data, where it has some, must be what was signed. */
static int golden_same_as_runtime(struct generation *g, const struct golden_spec *spec,
	struct fault *f)
{
	AUTO_BUF struct buf in = BUF_INIT, out = BUF_INIT;
	char hex[SHA256_HEX_SIZE];

	device_golden(g->device, spec->program->name, &in, &out);
	if (in.len) {
		sha256_hex(in.data, in.len, hex);
		if (strcmp(hex, spec->input->sha256) != 0)
			return golden_differs(f, "the calbin's golden input is not the signed one");
	}
	if (out.len) {
		sha256_hex(out.data, out.len, hex);
		if (strcmp(hex, spec->output->sha256) != 0)
			return golden_differs(f,
				"the calbin's golden output is not the signed one");
	}
	return 0;
}

static int golden_infer(struct generation *g, struct program *p, uint32_t valid, struct fault *f)
{
	struct sequence seq;
	struct infer_result r;
	enum npu_error code;

	if (valid == 0) {
		r = infer_checked(p, 0, 0);
		return r.stage == INFER_DONE ? 0 : device_failed(f, r.code, "the golden run");
	}
	code = sequence_open(g, &seq);
	if (code)
		return device_failed(f, code, "the golden run's KV sequence");
	r = sequence_run(g, &seq, p, valid);
	code = sequence_close(g, &seq);
	if (r.stage != INFER_DONE)
		return device_failed(f, r.code, "the golden run");
	return code ? device_failed(f, code, "freeing the golden run's KV sequence") : 0;
}

static int golden_one(struct generation *g, const struct artifact *a,
	const struct golden_spec *spec, struct fault *f)
{
	AUTO_FREE void *in = NULL;
	AUTO_FREE void *out = NULL;
	struct program *p = g->programs[spec->program - g->manifest->programs];
	size_t n;
	int err = golden_same_as_runtime(g, spec, f);

	if (!err)
		err = artifact_read(a, spec->input, &in, &n, f);
	if (!err)
		err = artifact_read(a, spec->output, &out, &n, f);
	if (err)
		return err;
	golden_load_inputs(p, in);
	err = golden_infer(g, p, spec->valid, f);
	if (!err && !golden_outputs_agree(p, out, spec->tolerance))
		err = golden_differs(f, "the golden run gave another output than the signed one");
	return err;
}

int generation_golden(struct generation *g, const struct artifact *artifact, struct fault *f)
{
	int err = 0;

	for (size_t i = 0; artifact && !err && i < g->manifest->n_golden; i++)
		err = golden_one(g, artifact, &g->manifest->golden[i], f);
	return err;
}

/* --- open and close --------------------------------------------------------------------------- */

static int open_steps(struct generation *g, const struct artifact *a, struct fault *f)
{
	char path[4096], at[ARTIFACT_FOLDER_SIZE];
	enum npu_error code;
	int err;

	if (a &&
		(size_t)snprintf(path, sizeof path, "%s/calbin", artifact_folder(a, at)) >=
			sizeof path)
		return device_failed(f, NPU_FILE_NOT_FOUND, "naming the calbin");
	err = a ? artifact_unchanged(a, f) : 0; /* it may be long since it was verified */
	if (err)
		return err;
	code = device_load(g->device, a ? path : NULL);
	if (code)
		return device_failed(f, code, "loading the calbin");
	err = validate(g->device, g->manifest, f);
	if (err)
		return err;
	code = device_configure(g->device);
	if (code)
		return device_failed(f, code, "configuring the device");
	return make_programs(g, f);
}

int generation_prepare(struct device *d, const struct manifest *m, const struct artifact *artifact,
	uint64_t number, struct generation **ret, struct fault *f)
{
	struct generation *g = calloc(1, sizeof *g);
	int err;

	if (!g)
		return fault_from_device(f, NPU_MEMORY_ALLOCATION, "opening a generation");
	g->number = number;
	g->device = d;
	g->manifest = m;
	err = open_steps(g, artifact, f);
	if (err) {
		generation_close(g);
		return err;
	}
	*ret = g;
	return 0;
}

int generation_open(struct device *d, const struct manifest *m, const struct artifact *artifact,
	uint64_t number, struct generation **ret, struct fault *f)
{
	struct generation *g = NULL;
	int err = generation_prepare(d, m, artifact, number, &g, f);

	if (!err)
		err = generation_golden(g, artifact, f);
	if (err) {
		generation_close(g);
		return err;
	}
	*ret = g;
	return 0;
}

enum npu_error generation_close(struct generation *g)
{
	enum npu_error off, code;

	if (!g)
		return NPU_SUCCESS;
	off = g->n_lanes == 2 ? generation_set_parallel(g, false) : NPU_SUCCESS;
	for (size_t i = 0; g->programs && i < g->manifest->n_programs; i++)
		program_free(g->programs[i]);
	free(g->programs);
	code = device_unload(g->device);
	free(g);
	return code ? code : off;
}
