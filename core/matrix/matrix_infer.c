/* One inference and its status: what fails before the submit is never waited for, what fails after it
 * is never delivered, and the class of the error says whether the buffers are used again and when the
 * generation must be opened anew (device contract 5, 9). */
#include "core/matrix/matrix_impl.h"

#include <stdio.h>
#include <string.h>

#include "core/base/mem.h"

static const char *const stages[] = { "not submitted", "submitted", "output refused", "not finite",
	"done" };

/* After a failure that reached beyond its job: the generation anew, golden run included, gives what it
 * gave before. */
static enum npu_error recover(struct matrix *m, const char *want_hash)
{
	char hash[SHA256_HEX_SIZE];
	enum npu_error code;
	struct infer_result r;

	matrix_plant(NULL);
	matrix_close_generation(m);
	code = matrix_open_generation(m);
	if (code)
		return code;
	r = matrix_infer(m, WORK_P, hash);
	return r.code || strcmp(hash, want_hash) == 0 ? r.code : NPU_NOT_EXPECTED;
}

static void normal(struct matrix *m, int arg)
{
	char p[SHA256_HEX_SIZE], q[SHA256_HEX_SIZE], again[SHA256_HEX_SIZE];
	struct infer_result a = matrix_infer(m, WORK_P, p), b = matrix_infer(m, WORK_Q, q);
	struct infer_result c = matrix_infer(m, WORK_P, again);

	(void)arg;
	matrix_judge(m, !a.code && !b.code && !c.code, "%s, %s, %s", matrix_error(a.code),
		matrix_error(b.code), matrix_error(c.code));
	matrix_judge(m, strcmp(p, again) == 0 && strcmp(p, q) != 0,
		"three runs, the same input gives the %s output, another one %s",
		strcmp(p, again) == 0 ? "same" : "another", strcmp(p, q) ? "another" : "the same");
}

static void golden(struct matrix *m, int arg)
{
	struct fault f = FAULT_NONE;
	int err;

	(void)arg;
	if (!m->artifact || !m->manifest->n_golden) {
		matrix_skip(m, "the artifact has no golden run");
		return;
	}
	err = generation_golden(m->generation, m->artifact, &f);
	matrix_judge(m, !err, "%zu golden runs: %s", m->manifest->n_golden,
		err ? f.reason : "they agree");
}

/* A device failure planted into the next inference. */
static const struct failure {
	const char *fault;
	enum infer_stage stage;
	enum npu_error code;
	bool spoils; /* nothing more is taken until the generation is opened anew */
} failures[] = {
	{ "infer@1:DeviceBusy", INFER_NOT_SUBMITTED, NPU_DEVICE_BUSY, false },
	{ "infer@1:DeviceUnavailable", INFER_NOT_SUBMITTED, NPU_DEVICE_UNAVAILABLE, true },
	{ "infer@1:Unknown", INFER_NOT_SUBMITTED, NPU_UNKNOWN, true },
	{ "Wait@1:Timeout", INFER_SUBMITTED, NPU_TIMEOUT, true },
	{ "Wait@1:DeviceCrash", INFER_SUBMITTED, NPU_DEVICE_CRASH, true },
	{ "Wait@1:InvalidValue", INFER_SUBMITTED, NPU_INVALID_VALUE, false },
	{ "GetStatus@1:ccu", INFER_SUBMITTED, NPU_DEVICE_CRASH, true },
	{ "Wait@1:nan", INFER_NOT_FINITE, NPU_NOT_EXPECTED, false },
};

enum { BUSY, UNAVAILABLE, UNKNOWN, WAIT_TIMEOUT, WAIT_CRASH, WAIT_REFUSED, CCU, NAN_OUT };

static void judge_afterwards(struct matrix *m, const struct failure *f, const char *want)
{
	char hash[SHA256_HEX_SIZE];
	struct infer_result r = matrix_infer(m, WORK_P, hash);
	enum npu_error code;

	if (!f->spoils) {
		matrix_judge(m, !r.code && strcmp(hash, want) == 0,
			"%s, buffers kept, the next run: %s", matrix_error(f->code),
			matrix_error(r.code));
		return;
	}
	matrix_judge(m, r.stage == INFER_NOT_SUBMITTED && r.code == NPU_NOT_EXPECTED,
		"its buffers were used again: %s", stages[r.stage]);
	code = recover(m, want);
	matrix_judge(m, !code, "%s, buffers spoiled, recovered: %s", matrix_error(f->code),
		matrix_error(code));
}

static void failing(struct matrix *m, int arg)
{
	const struct failure *f = &failures[arg];
	char want[SHA256_HEX_SIZE], hash[SHA256_HEX_SIZE];
	struct infer_result r = matrix_infer(m, WORK_P, want);
	uint64_t waits;

	if (r.code) {
		matrix_judge(m, false, "the run before: %s", matrix_error(r.code));
		return;
	}
	matrix_mark(m);
	matrix_plant(f->fault);
	r = matrix_infer(m, WORK_P, hash);
	matrix_plant(NULL);
	waits = matrix_calls(m, CALL_WAIT);
	matrix_judge(m, r.stage == f->stage && r.code == f->code, "%s, %s", stages[r.stage],
		matrix_error(r.code));
	matrix_judge(m, (r.stage == INFER_NOT_SUBMITTED) == (waits == 0), "%s, %s, %s",
		stages[r.stage], matrix_error(r.code), waits ? "waited for" : "not waited for");
	if (m->verdict == CASE_OK)
		judge_afterwards(m, f, want);
}

static void not_finite(struct matrix *m, int arg)
{
	enum dtype t = m->manifest->programs[0].outputs[0].dtype;

	if (t == DTYPE_FLOAT16 || t == DTYPE_FLOAT32 || t == DTYPE_FLOAT64)
		failing(m, arg);
	else
		matrix_skip(m, "the output has no floating point numbers");
}

/* Two sets of buffers, one in flight at a time, both still mapped: no output is the other's. */
static enum npu_error run_set(struct matrix *m, struct matrix_set *s, enum matrix_work work)
{
	enum npu_error code = matrix_set_bind(m, s, work);

	if (!code)
		code = device_slot_submit(s->slot, DEVICE_AUTO);
	return code ? code : device_slot_wait(s->slot);
}

static void two_sets(struct matrix *m, int arg)
{
	char p[SHA256_HEX_SIZE], q[SHA256_HEX_SIZE], got_p[SHA256_HEX_SIZE], got_q[SHA256_HEX_SIZE];
	struct infer_result a = matrix_infer(m, WORK_P, p), b = matrix_infer(m, WORK_Q, q);
	struct matrix_set s, t;
	enum npu_error code = a.code ? a.code : b.code;
	enum npu_error first = matrix_set_new(m, &s), second = matrix_set_new(m, &t);

	(void)arg;
	code = code ? code : first ? first : second;
	if (!code)
		code = run_set(m, &s, WORK_P);
	if (!code)
		code = run_set(m, &t, WORK_Q);
	if (!code) {
		matrix_set_hash(&s, got_p);
		matrix_set_hash(&t, got_q);
	}
	matrix_judge(m, !code, "%s", matrix_error(code));
	matrix_judge(m, !code && strcmp(p, got_p) == 0 && strcmp(q, got_q) == 0,
		"each output is %s",
		code || strcmp(p, got_p) || strcmp(q, got_q) ? "not its own" : "its own");
	matrix_set_free(m, &s);
	matrix_set_free(m, &t);
}

/* One in flight: a second submit is refused here and does not reach the device. */
static void one_in_flight(struct matrix *m, int arg)
{
	struct matrix_set s, t;
	enum npu_error first = matrix_set_new(m, &s), second = matrix_set_new(m, &t), code, busy;

	(void)arg;
	code = first ? first : second;
	if (!code)
		code = matrix_set_bind(m, &s, WORK_P);
	if (!code)
		code = device_slot_submit(s.slot, DEVICE_AUTO);
	busy = code ? code : matrix_set_bind(m, &t, WORK_Q);
	if (!busy)
		busy = device_slot_submit(t.slot, DEVICE_AUTO);
	matrix_judge(m, busy == NPU_DEVICE_BUSY && matrix_calls(m, CALL_INFER) == 1,
		"the second submit: %s, %llu reached the device", matrix_error(busy),
		(unsigned long long)matrix_calls(m, CALL_INFER));
	if (!code)
		code = device_slot_wait(s.slot);
	if (!busy)
		device_slot_wait(t.slot);
	if (code)
		matrix_judge(m, false, "the first: %s", matrix_error(code));
	matrix_set_free(m, &s);
	matrix_set_free(m, &t);
}

/* The compatibility run: a submit that tells nothing is believed only after Wait, the status of the
 * buffer and that of the device, and a run that did not take place is seen there. */
static void tells_nothing(struct matrix *m, int happens)
{
	char want[SHA256_HEX_SIZE], got[SHA256_HEX_SIZE] = "";
	struct infer_result r = matrix_infer(m, WORK_P, want);
	enum npu_error asked, code, healthy;
	struct matrix_set s;

	asked = matrix_set_new(m, &s);
	if (!asked)
		asked = matrix_set_bind(m, &s, WORK_P);
	if (!happens)
		matrix_plant("SubmitJob@1:silent");
	if (!asked)
		asked = device_slot_submit_void(s.slot, DEVICE_AUTO);
	if (asked == NPU_DEVICE_UNSUPPORT) {
		matrix_skip(m, "the backend has no such submit");
		matrix_set_free(m, &s);
		return;
	}
	code = asked ? asked : device_slot_wait(s.slot);
	healthy = device_status(m->device);
	if (!code && device_slot_status(s.slot) == RUN_DONE)
		matrix_set_hash(&s, got);
	matrix_judge(m, !r.code && !healthy, "serial %s, status %s", matrix_error(r.code),
		matrix_error(healthy));
	if (happens)
		matrix_judge(m, !code && strcmp(got, want) == 0, "%s, the output is %s",
			matrix_error(code), strcmp(got, want) ? "another" : "that of infer()");
	else
		matrix_judge(m, code, "a submit that did nothing: Wait says %s",
			matrix_error(code));
	matrix_set_free(m, &s);
}

static const struct matrix_case infer_cases[] = {
	{ "normal", FOR_ANY, NEEDS_GENERATION, normal, 0 },
	{ "golden runs", FOR_ANY, NEEDS_GENERATION, golden, 0 },
	{ "submit busy", FOR_ANY, NEEDS_GENERATION, failing, BUSY },
	{ "submit unavailable", FOR_ANY, NEEDS_GENERATION, failing, UNAVAILABLE },
	{ "submit unknown", FOR_ANY, NEEDS_GENERATION, failing, UNKNOWN },
	{ "Wait timeout", FOR_ANY, NEEDS_GENERATION, failing, WAIT_TIMEOUT },
	{ "Wait crash", FOR_ANY, NEEDS_GENERATION, failing, WAIT_CRASH },
	{ "Wait refuses a value", FOR_ANY, NEEDS_GENERATION, failing, WAIT_REFUSED },
	{ "output that is no number", FOR_ANY, NEEDS_GENERATION, not_finite, NAN_OUT },
	{ "two sets of buffers", FOR_ANY, NEEDS_GENERATION, two_sets, 0 },
	{ "one in flight", FOR_ANY, NEEDS_GENERATION, one_in_flight, 0 },
	{ "a submit that tells nothing", FOR_ANY, NEEDS_GENERATION, tells_nothing, true },
	{ "a submit that tells nothing and does nothing", FOR_ANY, NEEDS_GENERATION, tells_nothing,
		false },
};

const struct matrix_group matrix_infer_group = { "infer", infer_cases, ARRAY_SIZE(infer_cases) };

/* --- status ----------------------------------------------------------------------------------- */

/* Submit one, look at its status so often, wait, look again. */
static enum npu_error watch_status_of(struct matrix *m, const char *fault, enum device_run *seen,
	size_t n_before)
{
	struct matrix_set s;
	enum npu_error code = matrix_set_new(m, &s);

	if (!code)
		code = matrix_set_bind(m, &s, WORK_P);
	matrix_plant(fault);
	if (!code)
		code = device_slot_submit(s.slot, DEVICE_AUTO);
	for (size_t i = 0; !code && i < n_before; i++)
		seen[i] = device_slot_status(s.slot);
	if (!code) {
		code = device_slot_wait(s.slot);
		seen[n_before] = device_slot_status(s.slot);
	}
	matrix_plant(NULL);
	matrix_set_free(m, &s);
	return code;
}

static void fast_done(struct matrix *m, int arg)
{
	enum device_run seen[1] = { RUN_DEFAULT };
	enum npu_error code = watch_status_of(m, NULL, seen, 0);

	(void)arg;
	matrix_judge(m, !code && seen[0] == RUN_DONE, "%s, then %s", matrix_error(code),
		seen[0] == RUN_DONE ? "DONE" : "not DONE");
}

static void slow_done(struct matrix *m, int arg)
{
	enum device_run seen[3] = { RUN_DEFAULT };
	enum npu_error code =
		watch_status_of(m, "GetStatus@1:pending/GetStatus@2:running", seen, 2);

	(void)arg;
	matrix_judge(m, seen[0] == RUN_PENDING && seen[1] == RUN_RUNNING,
		"the states between were %d and %d", seen[0], seen[1]);
	matrix_judge(m, !code && seen[2] == RUN_DONE, "PENDING, RUNNING, %s (%s)",
		seen[2] == RUN_DONE ? "DONE" : "not DONE", matrix_error(code));
}

/* Wait has said that it is over: a status that lags behind is no failure. */
static void late(struct matrix *m, int arg)
{
	static const char *const faults[] = { "GetStatus@*:pending", "GetStatus@*:running" };
	char want[SHA256_HEX_SIZE] = "", hash[SHA256_HEX_SIZE] = "";
	struct infer_result r = matrix_infer(m, WORK_P, want);

	matrix_plant(faults[arg]);
	if (!r.code)
		r = matrix_infer(m, WORK_P, hash);
	matrix_plant(NULL);
	matrix_judge(m, !r.code && strcmp(want, hash) == 0, "delivered all the same: %s",
		matrix_error(r.code));
}

static const struct matrix_case status_cases[] = {
	{ "fast DONE", FOR_ANY, NEEDS_GENERATION, fast_done, 0 },
	{ "PENDING, RUNNING, DONE", FOR_ANY, NEEDS_GENERATION, slow_done, 0 },
	{ "PENDING after Wait", FOR_ANY, NEEDS_GENERATION, late, 0 },
	{ "RUNNING after Wait", FOR_ANY, NEEDS_GENERATION, late, 1 },
	{ "CCU exception", FOR_ANY, NEEDS_GENERATION, failing, CCU },
};

const struct matrix_group matrix_status = { "status", status_cases, ARRAY_SIZE(status_cases) };
