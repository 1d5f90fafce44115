/* KV of one sequence, step by step: apply, infer, kv_update, commit. */
#include "core/sequence.h"

#include <assert.h>
#include <string.h>

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

static struct infer_result run_both(struct generation *g, struct sequence *s, struct program *p,
	uint32_t cur)
{
	enum npu_error code = device_kv_apply(g->device, s->id, (int32_t)cur);
	struct infer_result r;

	if (code)
		return (struct infer_result){ INFER_NOT_SUBMITTED, code, "reserving KV" };
	r = infer_checked(p, s->committed, cur);
	if (r.stage == INFER_DONE)
		r = infer_checked(g->kv_update, s->committed, cur);
	if (r.stage == INFER_DONE &&
		device_kv_len(g->device, s->id) != (int32_t)(s->committed + cur))
		r = (struct infer_result){ INFER_OUTPUT_REFUSED, NPU_NOT_EXPECTED,
			"committing KV" };
	return r;
}

struct infer_result sequence_run(struct generation *g, struct sequence *s, struct program *p,
	uint32_t cur)
{
	struct infer_result r;

	assert(!s->lost);
	r = run_both(g, s, p, cur);
	if (r.stage == INFER_DONE)
		s->committed += cur;
	else
		sequence_cut(g, s, s->committed); /* after a failure the KV is unknown */
	return r;
}

struct infer_result sequence_feed(struct generation *g, struct sequence *s, const int32_t *tokens,
	uint32_t n, const float **ret_logits)
{
	struct program *p = n == 1 ? g->decode : g->prefill;
	struct infer_result r;

	assert(n >= 1 && n <= g->ubatch);
	memcpy(program_input(p, 0), tokens, n * sizeof *tokens);
	if (p == g->prefill)
		memset((int32_t *)program_input(p, 0) + n, 0, (g->ubatch - n) * sizeof *tokens);
	r = sequence_run(g, s, p, n);
	if (r.stage == INFER_DONE)
		*ret_logits = program_output(p, 0);
	return r;
}
