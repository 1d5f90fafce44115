/* Each run makes its two sets anew, so nothing of one run is left in the next. */
#include "core/matrix/matrix_parallel.h"

#include <string.h>

#include "core/base/mem.h"

static void first_error(enum npu_error *code, enum npu_error next)
{
	if (!*code)
		*code = next;
}

static enum npu_error submit(struct matrix *m, struct matrix_set *s, struct parallel_task *t,
	struct parallel_seen *seen)
{
	enum npu_error code = matrix_set_bind(m, s, t->work);

	if (!code)
		code = device_slot_submit(s->slot, t->engine);
	if (code)
		return code;
	seen->submits++;
	if (device_in_flight(m->device) > seen->peak)
		seen->peak = device_in_flight(m->device);
	return NPU_SUCCESS;
}

static enum npu_error finish(struct matrix *m, struct matrix_set *s, struct parallel_task *t,
	struct parallel_seen *seen)
{
	enum npu_error code = device_slot_wait(s->slot);

	seen->waits++;
	t->status = device_slot_status(s->slot);
	t->kv_length = s->open ? device_kv_len(m->device, s->sequence.id) : -1;
	return code;
}

/* One after the other, each waited for before the next. */
static enum npu_error run_alone(struct matrix *m, struct matrix_set *sets,
	struct parallel_seen *seen)
{
	struct parallel_seen ignored = { 0 };
	bool forced = seen->alone[0].engine != DEVICE_AUTO;
	enum npu_error code = forced ? device_set_parallel(m->device, true) : NPU_SUCCESS;

	for (int i = 0; !code && i < 2; i++) {
		code = submit(m, &sets[i], &seen->alone[i], &ignored);
		if (!code)
			code = finish(m, &sets[i], &seen->alone[i], &ignored);
		matrix_set_hash(&sets[i], seen->alone[i].hash);
		if (!code)
			device_slot_reset(sets[i].slot);
	}
	if (forced)
		first_error(&code, device_set_parallel(m->device, false));
	return code;
}

/* Both submitted, then both waited for, whatever became of the first. */
static enum npu_error run_together(struct matrix *m, struct matrix_set *sets,
	struct parallel_seen *seen)
{
	enum npu_error code = device_set_parallel(m->device, true);
	bool taken[2] = { false, false };

	for (int i = 0; !code && i < 2; i++) {
		code = submit(m, &sets[i], &seen->together[i], seen);
		taken[i] = !code;
	}
	for (int i = 0; i < 2; i++) {
		int at = seen->swapped_wait ? 1 - i : i;

		if (taken[at])
			first_error(&code, finish(m, &sets[at], &seen->together[at], seen));
	}
	for (int i = 0; i < 2; i++) /* what the second did to the first's is seen too */
		matrix_set_hash(&sets[i], seen->together[i].hash);
	first_error(&code, device_set_parallel(m->device, false));
	return code;
}

static enum npu_error with_sets(struct matrix *m, struct parallel_seen *seen,
	enum npu_error (*run)(struct matrix *, struct matrix_set *, struct parallel_seen *))
{
	struct matrix_set sets[2];
	enum npu_error code = NPU_SUCCESS;

	for (int i = 0; i < 2; i++)
		first_error(&code, matrix_set_new(m, &sets[i]));
	if (!code)
		code = run(m, sets, seen);
	for (int i = 0; i < 2; i++)
		matrix_set_free(m, &sets[i]);
	return code;
}

static bool same(const struct parallel_task *a, const struct parallel_task *b)
{
	return strcmp(a->hash, b->hash) == 0 && a->kv_length == b->kv_length &&
		a->status == b->status;
}

struct parallel_seen matrix_parallel_run(struct matrix *m, const enum matrix_work works[2],
	const enum device_task engines[2], enum device_task alone, bool swapped_wait)
{
	struct parallel_seen seen = { .swapped_wait = swapped_wait };

	for (int i = 0; i < 2; i++) {
		seen.together[i].work = seen.alone[i].work = works[i];
		seen.together[i].engine = engines[i];
		seen.alone[i].engine = alone;
	}
	seen.code = with_sets(m, &seen, run_alone);
	if (!seen.code)
		seen.code = with_sets(m, &seen, run_together);
	seen.agrees = !seen.code && same(&seen.together[0], &seen.alone[0]) &&
		same(&seen.together[1], &seen.alone[1]);
	return seen;
}

/* --- the cases -------------------------------------------------------------------------------- */

static const struct order {
	enum matrix_work works[2];
	enum device_task engines[2];
	bool swapped_wait;
} orders[] = {
#define ON(a, b, swapped) \
	{ { WORK_P, WORK_P }, { a, b }, swapped }, { { WORK_Q, WORK_Q }, { a, b }, swapped }, \
		{ { WORK_P, WORK_Q }, { a, b }, swapped }, \
	{ \
		{ WORK_Q, WORK_P }, { a, b }, swapped \
	}
	ON(DEVICE_AUTO, DEVICE_AUTO, false),
	ON(DEVICE_PING, DEVICE_PONG, false),
	ON(DEVICE_PONG, DEVICE_PING, true),
#undef ON
};

static void order(struct matrix *m, int arg)
{
	const struct order *o = &orders[arg];
	struct parallel_seen s;

	if (!m->ops->enable_parallel) {
		matrix_skip(m, "the backend has one engine");
		return;
	}
	s = matrix_parallel_run(m, o->works, o->engines, DEVICE_AUTO, o->swapped_wait);
	matrix_judge(m, !s.code, "%s", matrix_error(s.code));
	matrix_judge(m, s.submits == 2 && s.waits == 2 && s.peak == 2,
		"%u submits, %u waits, %u in flight at most", s.submits, s.waits, s.peak);
	matrix_judge(m, s.agrees, "2 in flight, output, KV and status %s those of the serial run",
		s.agrees ? "are" : "are not");
}

#define CASES(name, first) \
	{ name ": P-P", FOR_ANY, NEEDS_GENERATION, order, first }, \
		{ name ": Q-Q", FOR_ANY, NEEDS_GENERATION, order, first + 1 }, \
		{ name ": P-Q", FOR_ANY, NEEDS_GENERATION, order, first + 2 }, \
	{ \
		name ": Q-P", FOR_ANY, NEEDS_GENERATION, order, first + 3 \
	}

static const struct matrix_case cases[] = {
	CASES("Auto", 0),
	CASES("Ping and Pong", 4),
	CASES("Pong and Ping", 8),
	{ "evidence", FOR_ANY, NEEDS_GENERATION, matrix_evidence, 0 },
};

const struct matrix_group matrix_parallel = { "parallel", cases, ARRAY_SIZE(cases) };
