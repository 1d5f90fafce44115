/* The three levels of reset: refused while anything is in flight, told when they fail, and ready again
 * only after a generation was opened anew with its golden run (device contract 7). */
#include "core/matrix/matrix_impl.h"

#include <string.h>

#include "core/base/mem.h"

enum level { LEVEL_CCU, LEVEL_CONFIGURATION, LEVEL_DEVICE };

/* The generation must be gone for ResetConfiguration is part of its end. */
static enum npu_error reset_at(struct matrix *m, enum level level)
{
	if (level == LEVEL_CCU)
		return device_reset_ccu(m->device);
	if (level == LEVEL_DEVICE)
		return device_reset(m->device);
	return NPU_SUCCESS;
}

static bool has_level(struct matrix *m, enum level level)
{
	bool has = level == LEVEL_CCU   ? m->ops->reset_ccu != NULL
		: level == LEVEL_DEVICE ? m->ops->reset != NULL
					: true;

	if (!has)
		matrix_skip(m, "the backend has no such reset");
	return has;
}

static void resets(struct matrix *m, int arg)
{
	char before[SHA256_HEX_SIZE] = "", after[SHA256_HEX_SIZE] = "";
	struct infer_result r;
	enum npu_error close, code, open;

	if (!has_level(m, (enum level)arg))
		return;
	device_layer_allow_resets(true);
	r = matrix_infer(m, WORK_P, before);
	close = matrix_close_generation(m);
	code = reset_at(m, (enum level)arg);
	if (!code)
		code = device_status(m->device);
	open = matrix_open_generation(m);
	matrix_judge(m, !r.code && !close && !code && !open,
		"closed %s, reset %s, opened with its golden run %s", matrix_error(close),
		matrix_error(code), matrix_error(open));
	if (!open)
		r = matrix_infer(m, WORK_P, after);
	matrix_judge(m, !r.code && strcmp(before, after) == 0,
		"reset %s, opened with its golden run %s, the output %s", matrix_error(code),
		matrix_error(open), r.code ? matrix_error(r.code) : "is the same");
}

static void in_flight(struct matrix *m, int arg)
{
	struct matrix_set s;
	enum npu_error code = matrix_set_new(m, &s), ccu, all, engines;

	(void)arg;
	if (!code)
		code = matrix_set_bind(m, &s, WORK_P);
	if (!code)
		code = device_slot_submit(s.slot, DEVICE_AUTO);
	ccu = device_reset_ccu(m->device);
	all = device_reset(m->device);
	engines = device_set_parallel(m->device, true);
	matrix_judge(m, !code, "%s", matrix_error(code));
	matrix_judge(m,
		ccu == (m->ops->reset_ccu ? NPU_DEVICE_BUSY : NPU_DEVICE_UNSUPPORT) &&
			all == (m->ops->reset ? NPU_DEVICE_BUSY : NPU_DEVICE_UNSUPPORT) && engines,
		"CCU %s, device %s, engines %s", matrix_error(ccu), matrix_error(all),
		matrix_error(engines));
	matrix_judge(m, !matrix_calls(m, CALL_RESET) && !matrix_calls(m, CALL_RESET_CCU),
		"refused with %s, the device was not asked", matrix_error(ccu));
	if (!code)
		device_slot_wait(s.slot);
	matrix_set_free(m, &s);
}

static void fails(struct matrix *m, int arg)
{
	static const char *const faults[] = { "ResetCCU@1:FailedSoftReset", "",
		"Reset@1:FailedSoftReset" };
	enum npu_error code;

	if (!has_level(m, (enum level)arg))
		return;
	device_layer_allow_resets(true);
	matrix_close_generation(m);
	matrix_plant(faults[arg]);
	code = reset_at(m, (enum level)arg);
	matrix_judge(m, code == NPU_FAILED_SOFT_RESET, "%s", matrix_error(code));
}

/* A device that computes wrongly after a reset is found out before it takes traffic. */
static void warm_up(struct matrix *m, int arg)
{
	enum npu_error code;

	(void)arg;
	if (!m->artifact || !m->manifest->n_golden) {
		matrix_skip(m, "the artifact has no golden run");
		return;
	}
	matrix_close_generation(m);
	matrix_plant("Wait@1:corrupt");
	code = matrix_open_generation(m);
	matrix_plant(NULL);
	matrix_judge(m, code == NPU_NOT_EXPECTED, "one bit wrong in the golden run: %s",
		code ? matrix_error(code) : "nobody noticed");
}

static const struct matrix_case cases[] = {
	{ "CCU level", FOR_ANY, NEEDS_GENERATION, resets, LEVEL_CCU },
	{ "configuration level", FOR_ANY, NEEDS_GENERATION, resets, LEVEL_CONFIGURATION },
	{ "device level", FOR_ANY, NEEDS_GENERATION, resets, LEVEL_DEVICE },
	{ "in flight", FOR_ANY, NEEDS_GENERATION, in_flight, 0 },
	{ "a CCU reset that fails", FOR_ANY, NEEDS_GENERATION, fails, LEVEL_CCU },
	{ "a device reset that fails", FOR_ANY, NEEDS_GENERATION, fails, LEVEL_DEVICE },
	{ "ready only after the golden run", FOR_ANY, NEEDS_GENERATION, warm_up, 0 },
};

const struct matrix_group matrix_reset = { "reset", cases, ARRAY_SIZE(cases) };
