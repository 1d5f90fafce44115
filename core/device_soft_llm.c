/* KV sequences and the three programs of an LLM.
 *
 * A position of a sequence goes from applied (counted in `len`) through staged (computed by prefill
 * or decode) to written (by kv_update). Staged keys and values already lie at their place in the
 * backend's memory, so kv_update only moves a mark; until then nothing but the inference that
 * staged them may see them:
 *
 *   call               needs                                     then
 *   kv_apply(n)        len + n <= max_seq_len                    len += n, staged = 0
 *   prefill, decode    total == len, written == total - cur      staged = cur
 *   kv_update          total == len, staged == cur               written = len, staged = 0
 *   remove_at_end(n)   n <= len                                  written, len cut; staged = 0
 *
 * total is past_kv_cur_seq_len[0], cur is cur_seq_len[0].
 *
 * kv_apply makes a sequence that of the next inference, and the engine that this runs on keeps to it
 * until it gets another: so kv_update finds what prefill on the same engine was for. A sequence that
 * is in flight on an engine of parallel mode belongs to that: apply refuses it, and the void calls do
 * nothing, silently. */
#include "core/device_soft.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/mem.h"
#include "core/device_soft_internal.h"

#define SEQUENCES_MAX (1u << 20)

/* --- sequences -------------------------------------------------------------------------------- */

static struct soft_seq *find(struct kvman *k, int32_t id)
{
	if (k->applied && k->applied->id == id)
		return k->applied;
	if (k->current[0] && k->current[0]->id == id)
		return k->current[0];
	for (size_t i = 0; i < k->capacity; i++)
		if (k->seqs[i].used && k->seqs[i].id == id)
			return &k->seqs[i];
	return NULL;
}

/* The same for what would change it. */
static struct soft_seq *find_idle(struct kvman *k, int32_t id)
{
	struct soft_seq *s = find(k, id);

	return s && !s->in_flight ? s : NULL;
}

enum npu_error soft_create_kv(struct vdevice *d, struct calbin *c, struct kvman **ret)
{
	size_t capacity = d->params.kv_sequences;
	struct kvman *k;

	if (d->configured != c)
		return NPU_MISS_CONFIGURATION;
	if (!c->llm.forward)
		return NPU_DEVICE_UNSUPPORT;
	if (c->kv)
		return NPU_ALREADY_CONFIGURED;
	if (capacity < 1 || capacity > SEQUENCES_MAX)
		return NPU_INVALID_VALUE;
	k = calloc(1, sizeof(*k) + capacity * sizeof(k->seqs[0]));
	if (!k)
		return NPU_MEMORY_ALLOCATION;
	k->calbin = c;
	k->capacity = capacity;
	c->kv = k;
	*ret = k;
	return NPU_SUCCESS;
}

void soft_destroy_kv(struct kvman *k)
{
	struct vdevice *d;

	if (!k)
		return;
	d = k->calbin->device;
	if (d->engines)
		soft_engines_drain(d);
	for (size_t i = 0; i < k->capacity; i++)
		if (k->seqs[i].state)
			k->calbin->llm.state_free(k->seqs[i].state);
	k->calbin->kv = NULL;
	free(k);
}

bool soft_kv_can_allocate(struct kvman *k, size_t n_sequences)
{
	return n_sequences <= k->capacity - k->used;
}

/* A free place, one that already has memory if there is any; NULL: full. */
static struct soft_seq *free_place(struct kvman *k)
{
	struct soft_seq *bare = NULL;

	for (size_t i = 0; k->used < k->capacity && i < k->capacity; i++) {
		if (k->seqs[i].used)
			continue;
		if (k->seqs[i].state)
			return &k->seqs[i];
		if (!bare)
			bare = &k->seqs[i];
	}
	return bare;
}

/* Over capacity, without memory, for an id that exists: nothing happens, silently. */
void soft_kv_allocate(struct kvman *k, const struct kv_seq_info *seq)
{
	struct soft_seq *s;

	if (seq->seq_id < 0 || find(k, seq->seq_id))
		return;
	s = free_place(k);
	if (s && !s->state)
		s->state = k->calbin->llm.state_new(k->calbin->impl);
	if (!s || !s->state)
		return;
	*s = (struct soft_seq){ .used = true,
		.id = seq->seq_id,
		.birth = ++k->births,
		.state = s->state };
	k->used++;
}

static void release(struct kvman *k, struct soft_seq *s)
{
	s->used = false;
	k->used--;
	if (k->applied == s)
		k->applied = NULL;
	for (size_t i = 0; i < DEVICE_ENGINES; i++)
		if (k->current[i] == s)
			k->current[i] = NULL;
}

void soft_kv_free(struct kvman *k, int32_t seq_id)
{
	struct soft_seq *s = find_idle(k, seq_id);

	if (s)
		release(k, s);
}

void soft_kv_clear(struct kvman *k)
{
	for (size_t i = 0; i < k->capacity; i++)
		if (k->seqs[i].used && !k->seqs[i].in_flight)
			release(k, &k->seqs[i]);
}

void soft_kv_remove_tokens_at_end(struct kvman *k, int32_t seq_id, size_t n)
{
	struct soft_seq *s = find_idle(k, seq_id);

	if (!s || n > s->len)
		return;
	s->len -= (uint32_t)n;
	if (s->written > s->len)
		s->written = s->len;
	s->staged = 0;
}

bool soft_kv_exists(struct kvman *k, int32_t seq_id)
{
	return find(k, seq_id) != NULL;
}

bool soft_kv_apply(struct kvman *k, const struct kv_seq_info *seq)
{
	struct soft_seq *s = find_idle(k, seq->seq_id);

	if (!s || seq->n_tokens < 1 ||
		(uint32_t)seq->n_tokens > k->calbin->llm.max_seq_len - s->len)
		return false;
	s->len += (uint32_t)seq->n_tokens;
	s->staged = 0;
	k->applied = s;
	return true;
}

int32_t soft_kv_seq_len(struct kvman *k, int32_t seq_id)
{
	const struct soft_seq *s = find(k, seq_id);

	return s ? (int32_t)s->len : -1;
}

int32_t soft_kv_pos_min(struct kvman *k, int32_t seq_id)
{
	return soft_kv_seq_len(k, seq_id) > 0 ? 0 : -1;
}

int32_t soft_kv_pos_max(struct kvman *k, int32_t seq_id)
{
	int32_t len = soft_kv_seq_len(k, seq_id);

	return len > 0 ? len - 1 : -1;
}

/* --- programs --------------------------------------------------------------------------------- */

static size_t token_bytes(uint32_t cur)
{
	return cur * sizeof(int32_t);
}

/* Of the CSRs, against the sequence. */
static enum npu_error check_lengths(const struct soft_run *r)
{
	uint32_t cur = r->csrs[SOFT_CUR_LEN], total = r->csrs[SOFT_PAST_LEN];

	if (!r->seq)
		return NPU_NOT_EXPECTED;
	return cur >= 1 && cur <= total && total == r->seq->len ? NPU_SUCCESS : NPU_INVALID_VALUE;
}

static enum npu_error run_tokens(const struct soft_run *r)
{
	const struct calbin *c = r->model->calbin;
	enum npu_error code = check_lengths(r);
	uint32_t cur = r->csrs[SOFT_CUR_LEN], past = r->csrs[SOFT_PAST_LEN] - cur;
	struct soft_seq *s = r->seq;

	if (code != NPU_SUCCESS)
		return code;
	if (s->written != past)
		return NPU_NOT_EXPECTED;
	s->staged = 0;
	code = c->llm.forward(c->impl, s->state, r->inputs[0], cur, past, r->outputs[0]);
	if (code == NPU_SUCCESS)
		s->staged = cur;
	return code;
}

static enum npu_error run_kv_update(const struct soft_run *r)
{
	enum npu_error code = check_lengths(r);
	int32_t length;

	if (code != NPU_SUCCESS)
		return code;
	if (r->seq->staged != r->csrs[SOFT_CUR_LEN])
		return NPU_NOT_EXPECTED;
	r->seq->written = r->seq->len;
	r->seq->staged = 0;
	length = (int32_t)r->seq->len;
	memcpy(r->outputs[0], &length, sizeof(length));
	return NPU_SUCCESS;
}

static void describe(struct tensor_spec *t, const char *name, enum dtype dtype, uint32_t n)
{
	*t = (struct tensor_spec){ .dtype = dtype, .rank = 1, .dims = { n } };
	strcpy(t->name, name);
}

#define PROGRAM(name, type, input, n_inputs, output, run, needs) \
	{ \
		{ name, type, input, output, n_inputs, 1, { CSR_CUR_LEN, CSR_PAST_LEN }, \
			SOFT_CSRS }, \
			run, needs, NULL \
	}

/* The type of `decode` is wrong on purpose: real metadata is (device contract 2), and nobody may rely
 * on it. */
enum npu_error soft_add_llm(struct calbin *c, const struct soft_llm *llm)
{
	const struct soft_program programs[] = {
		PROGRAM("prefill", "prefill", &c->prefill_tokens, 1, &c->logits, run_tokens,
			token_bytes),
		PROGRAM("decode", "prefill", &c->decode_tokens, 1, &c->logits, run_tokens,
			token_bytes),
		PROGRAM("kv_update", "kv_update", NULL, 0, &c->kv_length, run_kv_update, NULL),
	};
	enum npu_error code = NPU_SUCCESS;

	c->llm = *llm;
	describe(&c->prefill_tokens, "tokens", DTYPE_INT32, llm->ubatch);
	describe(&c->decode_tokens, "tokens", DTYPE_INT32, 1);
	describe(&c->logits, "logits", DTYPE_FLOAT32, llm->vocab_size);
	describe(&c->kv_length, "kv_length", DTYPE_INT32, 1);
	for (size_t i = 0; code == NPU_SUCCESS && i < ARRAY_SIZE(programs); i++)
		code = soft_add_program(c, &programs[i]);
	return code;
}
