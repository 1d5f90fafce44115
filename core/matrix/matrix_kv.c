/* KV: lengths and room come back, what a void call did not do is seen, exhaustion is told at once, and
 * a failed step brings the committed length back (device contract 8). */
#include "core/matrix/matrix_impl.h"

#include <stdlib.h>

#include "core/base/mem.h"

#define SEQ_MAX 4096 /* asked for until the device is full */

static void lengths(struct matrix *m, int arg)
{
	struct device *d = m->device;
	enum npu_error a = device_kv_allocate(d, 11);
	int32_t empty = device_kv_len(d, 11), full, cut, gone;
	enum npu_error b = device_kv_apply(d, 11, 7), c, e;

	(void)arg;
	full = device_kv_len(d, 11);
	c = device_kv_truncate(d, 11, 2);
	cut = device_kv_len(d, 11);
	e = device_kv_free(d, 11);
	gone = device_kv_len(d, 11);
	matrix_judge(m, !a && !b && !c && !e, "allocate %s, apply %s, remove %s, free %s",
		matrix_error(a), matrix_error(b), matrix_error(c), matrix_error(e));
	matrix_judge(m, empty == 0 && full == 7 && cut == 2 && gone == -1, "lengths %d, %d, %d, %d",
		empty, full, cut, gone);
}

static void clear(struct matrix *m, int arg)
{
	struct device *d = m->device;
	enum npu_error a = device_kv_allocate(d, 1), b = device_kv_allocate(d, 2), c;

	(void)arg;
	c = device_kv_clear(d, 1);
	matrix_judge(m, !a && !b && !c && device_kv_len(d, 2) == -1, "%s, the other sequence %s",
		matrix_error(c), device_kv_len(d, 2) == -1 ? "is gone too" : "is still there");
}

/* As many as there is room for, from number 0. */
static int32_t fill(struct device *d, enum npu_error *ret_last)
{
	int32_t n = 0;

	do
		*ret_last = device_kv_allocate(d, n);
	while (!*ret_last && ++n < SEQ_MAX);
	return n;
}

static void exhaustion(struct matrix *m, int arg)
{
	struct device *d = m->device;
	enum npu_error last, more, back;
	int32_t n = fill(d, &last), again;
	uint64_t calls;

	(void)arg;
	matrix_mark(m);
	more = device_kv_allocate(d, n);
	calls = matrix_calls(m, CALL_KV);
	matrix_judge(m, n > 0 && n < SEQ_MAX && last == NPU_MEMORY_ALLOCATION,
		"%d sequences, then %s", n, matrix_error(last));
	matrix_judge(m, more == NPU_MEMORY_ALLOCATION && calls <= 2,
		"one more: %s after %llu calls", matrix_error(more), (unsigned long long)calls);
	back = device_kv_free(d, 0);
	if (!back)
		back = device_kv_allocate(d, n);
	matrix_judge(m, !back, "one freed, one allocated: %s", matrix_error(back));
	device_kv_clear(d, n);
	again = fill(d, &last);
	matrix_judge(m, again == n,
		"%d sequences, MemoryAllocation at once, %d again after a clear", n, again);
	device_kv_clear(d, 0);
}

static void ids(struct matrix *m, int arg)
{
	struct device *d = m->device;
	enum npu_error negative = device_kv_allocate(d, -1), one = device_kv_allocate(d, 5);
	enum npu_error twice = device_kv_allocate(d, 5);
	enum npu_error none = device_kv_apply(d, 6, 1), zero = device_kv_apply(d, 5, 0);

	(void)arg;
	matrix_judge(m,
		negative == NPU_INVALID_VALUE && !one && twice == NPU_INVALID_VALUE && none && zero,
		"negative %s, twice %s, apply to none %s, of nothing %s", matrix_error(negative),
		matrix_error(twice), matrix_error(none), matrix_error(zero));
	if (!one)
		device_kv_free(d, 5);
}

static void context_limit(struct matrix *m, int arg)
{
	struct device *d = m->device;
	int32_t max = (int32_t)m->manifest->context_limit;
	enum npu_error one = device_kv_allocate(d, 5), all, over, huge;

	(void)arg;
	over = device_kv_apply(d, 5, max + 1);
	huge = device_kv_apply(d, 5, INT32_MAX);
	all = device_kv_apply(d, 5, max);
	matrix_judge(m, !one && over == NPU_OUT_OF_RANGE && huge == NPU_OUT_OF_RANGE && !all,
		"one too many %s, all %s", matrix_error(over), matrix_error(all));
	over = device_kv_apply(d, 5, 1);
	matrix_judge(m, over == NPU_OUT_OF_RANGE, "one too many %s, all %s, one more %s",
		matrix_error(NPU_OUT_OF_RANGE), matrix_error(all), matrix_error(over));
	if (!one)
		device_kv_free(d, 5);
}

/* A void call that does nothing must be told. */
static const char *const silent[] = { "Allocate@1:silent", "Free@1:silent",
	"RemoveTokensAtEnd@1:silent", "Apply@1:true", "Apply@1:false", "Clear@1:silent",
	"Apply@1:grow" };

enum { ALLOCATE, FREE, REMOVE, APPLY, APPLY_NO, CLEAR, APPLY_MORE };

static void unseen(struct matrix *m, int arg)
{
	struct device *d = m->device;
	enum npu_error code = NPU_SUCCESS, before = NPU_SUCCESS;

	if (arg != ALLOCATE)
		before = device_kv_allocate(d, 3);
	if (!before && arg == REMOVE)
		before = device_kv_apply(d, 3, 4);
	matrix_plant(silent[arg]);
	if (before)
		code = before;
	else if (arg == ALLOCATE)
		code = device_kv_allocate(d, 3);
	else if (arg == FREE)
		code = device_kv_free(d, 3);
	else if (arg == REMOVE)
		code = device_kv_truncate(d, 3, 1);
	else if (arg == CLEAR)
		code = device_kv_clear(d, 3);
	else
		code = device_kv_apply(d, 3, 2);
	matrix_plant(NULL);
	matrix_judge(m, !before && code == NPU_NOT_EXPECTED, "%s",
		before         ? matrix_error(before)
			: code ? matrix_error(code)
			       : "nobody noticed");
	device_kv_free(d, 3);
}

static void positions(struct matrix *m, int arg)
{
	struct device *d = m->device;
	int32_t max = (int32_t)m->manifest->context_limit, p[3][2];
	enum npu_error code = device_kv_range(d, 9, &p[0][0], &p[0][1]);

	(void)arg;
	if (code == NPU_DEVICE_UNSUPPORT) {
		matrix_skip(m, "the backend does not tell positions");
		return;
	}
	code = code ? code : device_kv_allocate(d, 9);
	code = code ? code : device_kv_range(d, 9, &p[1][0], &p[1][1]);
	code = code ? code : device_kv_apply(d, 9, max);
	code = code ? code : device_kv_range(d, 9, &p[2][0], &p[2][1]);
	matrix_judge(m, !code, "%s", matrix_error(code));
	if (!code)
		matrix_judge(m,
			p[0][0] == -1 && p[0][1] == -1 && p[1][0] == -1 && p[1][1] == -1 &&
				p[2][0] == 0 && p[2][1] == max - 1,
			"missing %d..%d, empty %d..%d, full %d..%d", p[0][0], p[0][1], p[1][0],
			p[1][1], p[2][0], p[2][1]);
	device_kv_free(d, 9);
}

/* --- through a sequence ----------------------------------------------------------------------- */

static struct infer_result feed(struct matrix *m, struct sequence *s, uint32_t n)
{
	int32_t tokens[2] = { 1, 2 };
	const float *logits;

	return sequence_feed(m->generation, s, tokens, n, &logits);
}

static void commit(struct matrix *m, int arg)
{
	struct sequence s;
	enum npu_error code = sequence_open(m->generation, &s);
	struct infer_result a = { INFER_DONE, code, "" }, b = a;

	(void)arg;
	if (!code)
		a = feed(m, &s, 2);
	if (!code)
		b = feed(m, &s, 1);
	matrix_judge(m, !code && !a.code && !b.code, "%s, %s, %s", matrix_error(code),
		matrix_error(a.code), matrix_error(b.code));
	if (code)
		return;
	matrix_judge(m, s.committed == 3 && device_kv_len(m->device, s.id) == 3,
		"2 and 1 tokens: %u committed, %d on the device", s.committed,
		device_kv_len(m->device, s.id));
	code = sequence_close(m->generation, &s);
	if (code)
		matrix_judge(m, false, "closing it: %s", matrix_error(code));
}

/* A step fails: the KV is the committed length again; where even that fails, the sequence is lost. */
static void roll_back(struct matrix *m, int lost)
{
	struct sequence s;
	enum npu_error code = sequence_open(m->generation, &s);
	struct infer_result r = { INFER_NOT_SUBMITTED, code, "" };
	int32_t len = -1;

	if (!code)
		r = feed(m, &s, 2);
	code = r.code;
	matrix_plant(
		lost ? "Wait@1:InvalidValue/RemoveTokensAtEnd@1:silent" : "Wait@1:InvalidValue");
	if (!code)
		r = feed(m, &s, 1);
	matrix_plant(NULL);
	if (!code)
		len = device_kv_len(m->device, s.id);
	matrix_judge(m, !code && r.stage == INFER_SUBMITTED, "%s, then %s", matrix_error(code),
		matrix_error(r.code));
	if (code)
		return;
	matrix_judge(m, s.lost == lost && s.committed == 2 && len == (lost ? -1 : 2),
		"%s: %u committed, %d on the device%s", matrix_error(r.code), s.committed, len,
		s.lost ? ", given up" : "");
	code = sequence_close(m->generation, &s);
	if (code)
		matrix_judge(m, false, "closing it: %s", matrix_error(code));
}

static const struct matrix_case cases[] = {
	{ "allocate, apply, remove, free", FOR_LLM, NEEDS_GENERATION, lengths, 0 },
	{ "clear", FOR_LLM, NEEDS_GENERATION, clear, 0 },
	{ "exhaustion", FOR_LLM, NEEDS_GENERATION, exhaustion, 0 },
	{ "ids", FOR_LLM, NEEDS_GENERATION, ids, 0 },
	{ "context limit", FOR_LLM, NEEDS_GENERATION, context_limit, 0 },
	{ "an Allocate that does nothing", FOR_LLM, NEEDS_GENERATION, unseen, ALLOCATE },
	{ "a Free that does nothing", FOR_LLM, NEEDS_GENERATION, unseen, FREE },
	{ "a RemoveTokensAtEnd that does nothing", FOR_LLM, NEEDS_GENERATION, unseen, REMOVE },
	{ "an Apply that does nothing", FOR_LLM, NEEDS_GENERATION, unseen, APPLY },
	{ "an Apply that says no", FOR_LLM, NEEDS_GENERATION, unseen, APPLY_NO },
	{ "an Apply that does too much", FOR_LLM, NEEDS_GENERATION, unseen, APPLY_MORE },
	{ "a Clear that does nothing", FOR_LLM, NEEDS_GENERATION, unseen, CLEAR },
	{ "positions: missing, empty, full", FOR_LLM, NEEDS_GENERATION, positions, 0 },
	{ "committed lengths", FOR_LLM, NEEDS_GENERATION, commit, 0 },
	{ "rolled back after a failure", FOR_LLM, NEEDS_GENERATION, roll_back, 0 },
	{ "lost after a failure", FOR_LLM, NEEDS_GENERATION, roll_back, 1 },
};

const struct matrix_group matrix_kv = { "kv", cases, ARRAY_SIZE(cases) };
