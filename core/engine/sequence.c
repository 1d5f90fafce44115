/* KV of one sequence, step by step: apply, infer, kv_update, commit. Two that are in flight together
 * take each step together: the one's apply is followed by its own submit before the other's comes,
 * and kv_update goes to the engine that its inference was on. */
#include "core/engine/sequence.h"

#include <assert.h>
#include <string.h>

#include "core/engine/trace.h"

enum npu_error sequence_open(struct generation *g, struct sequence *ret)
{
	int32_t id = g->next_sequence;
	enum npu_error code;

	if (!device_kv_can_allocate(g->device))
		return NPU_MEMORY_ALLOCATION;
	code = device_kv_allocate(g->device, id);
	if (code)
		return code;
	g->next_sequence = id == INT32_MAX ? 0 : id + 1;
	*ret = (struct sequence){ .id = id };
	return NPU_SUCCESS;
}

enum npu_error sequence_close(struct generation *g, struct sequence *s)
{
	return s->lost ? NPU_SUCCESS : device_kv_free(g->device, s->id);
}

void sequence_cut(struct generation *g, struct sequence *s, uint32_t len)
{
	assert(!s->lost && len <= s->committed);
	s->committed = len;
	if (device_kv_truncate(g->device, s->id, (int32_t)len) == NPU_SUCCESS)
		return;
	device_kv_free(g->device, s->id);
	s->lost = true;
}

/* --- in flight together ----------------------------------------------------------------------- */

/* One of them on its way through the steps: its inference, and then kv_update on the same engine. */
struct passage {
	struct sequence *seq;
	struct program *program, *kv_update;
	uint32_t cur;
	enum device_task task;
};

/* The inference of all, or kv_update of those whose inference went well. */
static void run_those(const struct passage *all, size_t n, bool commit, struct infer_result *ret)
{
	struct infer_order orders[DEVICE_ENGINES] = { 0 };
	struct infer_result got[DEVICE_ENGINES];
	size_t who[DEVICE_ENGINES], k = 0;
	int64_t begin;

	for (size_t i = 0; i < n; i++) {
		const struct passage *p = &all[i];

		if (commit && ret[i].stage != INFER_DONE)
			continue;
		orders[k] = (struct infer_order){ commit ? p->kv_update : p->program,
			p->seq->committed, p->cur, commit ? NULL : &p->seq->id, p->task };
		who[k++] = i;
	}
	begin = commit ? trace_begin() : 0;
	infer_checked_many(orders, k, got);
	for (size_t i = 0; i < k; i++) {
		ret[who[i]] = got[i];
		trace_step(begin, TRACE_KV_UPDATE, orders[i].task, orders[i].cur, got[i].code);
	}
}

static void settle(struct generation *g, const struct passage *p, struct infer_result *r)
{
	if (r->stage == INFER_DONE &&
		device_kv_len(g->device, p->seq->id) != (int32_t)(p->seq->committed + p->cur))
		*r = (struct infer_result){ INFER_OUTPUT_REFUSED, NPU_NOT_EXPECTED,
			"committing KV" };
	if (r->stage == INFER_DONE)
		p->seq->committed += p->cur;
	else
		sequence_cut(g, p->seq, p->seq->committed); /* the KV is unknown now */
}

static bool reaches_all(const struct infer_result *r, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (npu_error_reaches_further(r[i].code) && r[i].stage != INFER_NOT_FINITE)
			return true;
	return false;
}

/* What was computed beside a failure that reaches beyond its job is not trusted, and the device is
 * given nothing more: it could be done again. */
static void drop_good(struct infer_result *r, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (r[i].stage == INFER_DONE)
			r[i] = (struct infer_result){ INFER_NOT_SUBMITTED, NPU_DEVICE_BUSY,
				"committing KV" };
}

static void run_all(struct generation *g, const struct passage *all, size_t n,
	struct infer_result *ret)
{
	for (size_t i = 0; i < n; i++)
		assert(!all[i].seq->lost);
	run_those(all, n, false, ret);
	if (reaches_all(ret, n))
		drop_good(ret, n);
	run_those(all, n, true, ret);
	for (size_t i = 0; i < n; i++)
		settle(g, &all[i], &ret[i]);
}

struct infer_result sequence_run(struct generation *g, struct sequence *s, struct program *p,
	uint32_t cur)
{
	const struct passage alone = { s, p, g->lanes[0].kv_update, cur, DEVICE_AUTO };
	struct infer_result r;

	run_all(g, &alone, 1, &r);
	return r;
}

/* --- feeding ---------------------------------------------------------------------------------- */

static struct program *load_tokens(struct generation *g, const struct llm_lane *lane,
	const struct sequence_feed *feed)
{
	struct program *p = feed->n == 1 ? lane->decode : lane->prefill;
	int32_t *to = program_input(p, 0);

	assert(feed->n >= 1 && feed->n <= g->ubatch);
	memcpy(to, feed->tokens, feed->n * sizeof *to);
	if (p == lane->prefill)
		memset(to + feed->n, 0, (g->ubatch - feed->n) * sizeof *to);
	return p;
}

void sequence_feed_many(struct generation *g, const struct sequence_feed *feeds, size_t n,
	struct infer_result *ret, const float **ret_logits)
{
	static const enum device_task tasks[] = { DEVICE_PING, DEVICE_PONG };
	struct passage all[DEVICE_ENGINES] = { 0 };

	assert(n >= 1 && n <= g->n_lanes);
	for (size_t i = 0; i < n; i++)
		all[i] = (struct passage){ feeds[i].seq, load_tokens(g, &g->lanes[i], &feeds[i]),
			g->lanes[i].kv_update, feeds[i].n, n == 1 ? DEVICE_AUTO : tasks[i] };
	run_all(g, all, n, ret);
	for (size_t i = 0; i < n; i++)
		if (ret[i].stage == INFER_DONE)
			ret_logits[i] = program_output(all[i].program, 0);
}

struct infer_result sequence_feed(struct generation *g, struct sequence *s, const int32_t *tokens,
	uint32_t n, const float **ret_logits)
{
	const struct sequence_feed alone = { s, tokens, n };
	struct infer_result r;

	sequence_feed_many(g, &alone, 1, &r, ret_logits);
	return r;
}
