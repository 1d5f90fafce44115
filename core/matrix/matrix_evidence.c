/* Evidence that two inferences may be in flight (device contract 6): two inputs one after the other by
 * the runtime's choice, on Ping and on Pong, and then at once in each order, all of it several times. It is
 * written only when no case of the whole matrix failed for the model and nothing was planted;
 * core/engine/evidence.h judges it once more. */
#include "core/matrix/matrix_parallel.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/mem.h"

#define ROUNDS 10

/* What an order of the evidence is here: its inputs, and the engine of those that are alone. */
static const struct {
	enum matrix_work works[2];
	bool together;
	enum device_task alone;
} orders[EVIDENCE_ORDERS] = {
	[EVIDENCE_AUTO] = { { WORK_P, WORK_Q }, false, DEVICE_AUTO },
	[EVIDENCE_PING] = { { WORK_P, WORK_Q }, false, DEVICE_PING },
	[EVIDENCE_PONG] = { { WORK_P, WORK_Q }, false, DEVICE_PONG },
	[EVIDENCE_PP] = { { WORK_P, WORK_P }, true, DEVICE_AUTO },
	[EVIDENCE_QQ] = { { WORK_Q, WORK_Q }, true, DEVICE_AUTO },
	[EVIDENCE_PQ] = { { WORK_P, WORK_Q }, true, DEVICE_AUTO },
	[EVIDENCE_QP] = { { WORK_Q, WORK_P }, true, DEVICE_AUTO },
};

static uint32_t kv_of(const struct parallel_task *t)
{
	return t->kv_length < 0 ? 0 : (uint32_t)t->kv_length;
}

/* The first round's result is the order's; false when a later one is another. */
static bool add_round(struct evidence_result *r, const struct parallel_task tasks[2])
{
	for (int i = 0; i < 2; i++) {
		if (!r->rounds)
			memcpy(r->sha256[i], tasks[i].hash, sizeof r->sha256[i]);
		if (!r->rounds)
			r->kv[i] = kv_of(&tasks[i]);
		if (strcmp(r->sha256[i], tasks[i].hash) != 0 || r->kv[i] != kv_of(&tasks[i]))
			return false;
	}
	r->rounds++;
	return true;
}

static bool run_order(struct matrix *m, enum evidence_order o, struct evidence *e)
{
	static const enum device_task engines[2] = { DEVICE_PING, DEVICE_PONG };
	bool good = true;

	for (int i = 0; good && i < ROUNDS; i++) {
		struct parallel_seen s =
			matrix_parallel_run(m, orders[o].works, engines, orders[o].alone, i % 2);

		e->submitted += s.submits;
		e->waited += s.waits;
		good = !s.code && s.agrees && s.peak == 2 &&
			add_round(&e->orders[o], orders[o].together ? s.together : s.alone);
		matrix_judge(m, good, "%s: another result in round %d", evidence_order_name(o),
			i + 1);
	}
	return good;
}

void matrix_evidence(struct matrix *m, int arg)
{
	struct evidence *e = &m->evidence;
	bool good = true;

	(void)arg;
	*e = (struct evidence){ .submitted = 0 };
	if (!m->ops->enable_parallel) {
		matrix_skip(m, "the backend has one engine");
		return;
	}
	for (int o = 0; good && o < EVIDENCE_ORDERS; o++)
		good = run_order(m, (enum evidence_order)o, e);
	device_versions(m->device, &e->device);
	m->seen_parallel = good;
	if (good)
		matrix_judge(m, true, "%d orders, %d rounds each, every result the same",
			EVIDENCE_ORDERS, ROUNDS);
}

_Static_assert(sizeof "matrix-" - 1 + ALIAS_MAX <= EVIDENCE_NAME_MAX, "a file for each alias");

void matrix_record(struct matrix *m)
{
	struct evidence *e = &m->evidence;
	int err;

	snprintf(e->name, sizeof e->name, "matrix-%s", m->alias);
	snprintf(e->npufs, sizeof e->npufs, "%s", m->config->evidence);
	strcpy(e->artifact, m->artifact->sha256);
	err = evidence_write(m->config->store, e);
	fprintf(m->out, "# evidence %s%s\n", err ? "could not be written: " : "recorded",
		err ? fault_errno_name(err) : "");
	m->failed += err != 0;
}
