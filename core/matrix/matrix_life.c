/* Life cycle: what is opened closes, in order, as often as one likes; what fails on the way up leaves
 * nothing behind. */
#include "core/matrix/matrix_impl.h"

#include <stdio.h>

#include "core/base/mem.h"

/* The folder of the model in hand; "" for a backend's own. */
static const char *calbin_path(const struct matrix *m, char ret[4096])
{
	if (!m->artifact || snprintf(ret, 4096, "%s/calbin", m->artifact->dir) >= 4096)
		return NULL;
	return ret;
}

static enum npu_error one_cycle(struct matrix *m, const char *path)
{
	enum npu_error code = device_load(m->device, path), end;
	struct slot *slot = NULL;

	if (code)
		return code;
	code = device_configure(m->device);
	if (!code)
		code = device_slot_new(m->device,
			device_model(m->device, m->manifest->programs[0].name), &slot);
	if (!code && m->manifest->kind == MANIFEST_LLM)
		code = device_kv_open(m->device);
	device_slot_free(slot);
	end = device_unload(m->device);
	return code ? code : end;
}

static void cycles(struct matrix *m, int arg)
{
	unsigned n = m->config->cycles ? m->config->cycles : MATRIX_CYCLES, i = 0;
	enum npu_error code = NPU_SUCCESS;
	char buffer[4096];
	const char *path = calbin_path(m, buffer);

	(void)arg;
	while (!code && i < n) {
		code = one_cycle(m, path);
		i += !code;
	}
	matrix_judge(m, !code, "%u of %u times: %s", i, n, code ? matrix_error(code) : "no error");
	matrix_judge(m, code || device_layer_live() == 1, "%u times, no error, nothing left", n);
}

static void generations(struct matrix *m, int arg)
{
	enum npu_error code = NPU_SUCCESS;
	int i = 0;

	(void)arg;
	while (!code && i < 3) {
		code = matrix_open_generation(m);
		if (!code)
			code = matrix_close_generation(m);
		i += !code;
	}
	matrix_judge(m, !code, "%d times, golden runs included: %s", i,
		code ? matrix_error(code) : "no error");
}

static void second_refused(struct matrix *m, int arg)
{
	char buffer[4096];
	enum npu_error load = device_load(m->device, calbin_path(m, buffer));
	enum npu_error configure = device_configure(m->device);
	bool reached = matrix_calls(m, CALL_CREATE_CALBIN) || matrix_calls(m, CALL_CONFIGURE);

	(void)arg;
	matrix_judge(m,
		load == NPU_ALREADY_CONFIGURED && configure == NPU_ALREADY_CONFIGURED && !reached,
		"load %s, configure %s, %s", matrix_error(load), matrix_error(configure),
		reached ? "and the device was asked" : "the device was not asked");
}

/* A way up that fails at one step, by the device's own doing, and the error that must come out. */
static const struct failure {
	const char *fault;
	bool opening; /* of the device; else of the generation */
	enum npu_error want;
} failures[] = {
	{ "CreateVDevice@1:null", true, NPU_NO_DEVICE },
	{ "Status@1:DeviceUnavailable", true, NPU_DEVICE_UNAVAILABLE },
	{ "CreateCalbin@1:null", false, NPU_INVALID_CALBIN },
	{ "configure@1:InvalidConfiguration", false, NPU_INVALID_CONFIGURATION },
	{ "Status@1:DeviceUnavailable", false, NPU_DEVICE_UNAVAILABLE },
};

enum { NULL_DEVICE, STATUS_AT_START, NULL_CALBIN, CONFIGURE, STATUS_AFTER };

/* The error comes out, nothing is submitted, nothing stays; and then the way up is free again. */
static void fails(struct matrix *m, int arg)
{
	const struct failure *f = &failures[arg];
	enum npu_error code = f->opening ? NPU_SUCCESS : matrix_open_device(m), again;
	bool submitted;

	if (f->opening)
		matrix_plant(f->fault);
	if (f->opening)
		code = matrix_open_device(m);
	if (!f->opening)
		matrix_plant(f->fault);
	if (!f->opening && !code)
		code = matrix_open_generation(m);
	submitted = matrix_calls(m, CALL_INFER) > 0;
	matrix_plant(NULL);
	again = m->device ? NPU_SUCCESS : matrix_open_device(m);
	matrix_close_generation(m);
	if (!again)
		again = matrix_open_generation(m);
	matrix_judge(m, code == f->want && !submitted && !again, "%s%s, then opened again: %s",
		matrix_error(code),
		submitted ? ", though something was submitted" : ", nothing submitted",
		matrix_error(again));
}

static void reset_fails(struct matrix *m, int arg)
{
	enum npu_error code, again;

	(void)arg;
	matrix_plant("ResetConfiguration@1:FailedSoftReset");
	code = matrix_close_generation(m);
	matrix_plant(NULL);
	matrix_close(m);
	again = matrix_open_device(m);
	if (!again)
		again = matrix_open_generation(m);
	matrix_judge(m, code == NPU_FAILED_SOFT_RESET && !again,
		"%s is told, a device opened anew: %s", matrix_error(code), matrix_error(again));
}

static const struct matrix_case cases[] = {
	{ "load, configure and release", FOR_ANY, NEEDS_DEVICE, cycles, 0 },
	{ "whole generations", FOR_ANY, NEEDS_DEVICE, generations, 0 },
	{ "a second configuration", FOR_ANY, NEEDS_GENERATION, second_refused, 0 },
	{ "a device that is NULL", FOR_ANY, NEEDS_NOTHING, fails, NULL_DEVICE },
	{ "a device whose status is bad", FOR_ANY, NEEDS_NOTHING, fails, STATUS_AT_START },
	{ "a calbin that is NULL", FOR_ANY, NEEDS_NOTHING, fails, NULL_CALBIN },
	{ "a configure that fails", FOR_ANY, NEEDS_NOTHING, fails, CONFIGURE },
	{ "a bad status after configure", FOR_ANY, NEEDS_NOTHING, fails, STATUS_AFTER },
	{ "a release that fails", FOR_ANY, NEEDS_GENERATION, reset_fails, 0 },
};

const struct matrix_group matrix_life = { "life cycle", cases, ARRAY_SIZE(cases) };
