/* The echo. From the last position of a prompt on, each position answers the prompt's next token
 * and at last the end token, whatever token is fed:
 *
 *   position  start ... start + n - 1   last        last + 1   ...   last + n
 *   fed       the n tokens              end token   (first)          (n-th)
 *   answered  (of no interest)          first       second     ...   end token
 *
 * It is not told where a prompt ends, so it goes by what it sees: the end token ends a prompt. A
 * prompt of bare tokens has none; then it has ended when what is fed, alone, is the answer just
 * given. A new one begins with several tokens at once, with a token after the whole answer, or with
 * a position that was there before (the sequence was cut or is another). */
#include "core/device_null.h"

#include <stdlib.h>
#include <string.h>

#include "core/device_soft.h"

#define CONTEXT   4096
#define UBATCH    64
#define END_TOKEN 256
#define VOCAB     257
#define CERTAIN   100.0f /* a logit that leaves no chance to the others, which are 0 */

struct echo {
	uint32_t start, n; /* of the prompt, without its end token */
	int64_t last;      /* position of the prompt's last token; -1 before any */
	bool open;         /* the prompt may go on */
	int32_t tokens[CONTEXT];
};

static int32_t answer(const struct echo *e, uint32_t at)
{
	int64_t i = at - e->last;

	return i < e->n ? e->tokens[e->start + i] : END_TOKEN;
}

static bool begins(const struct echo *e, uint32_t at, uint32_t n)
{
	if (at <= e->last)
		return true;
	return !e->open && (n > 1 || at > e->last + e->n);
}

static void take_prompt(struct echo *e, const int32_t *tokens, uint32_t n, uint32_t at)
{
	for (uint32_t i = 0; i < n; i++) {
		e->tokens[at + i] = tokens[i];
		e->open = tokens[i] != END_TOKEN;
	}
	e->last = (int64_t)at + n - 1;
	e->n = (uint32_t)(e->last + e->open - e->start);
}

static enum npu_error forward(void *impl, void *state, const int32_t *tokens, uint32_t n,
	uint32_t past, float *logits)
{
	struct echo *e = state;

	(void)impl;
	for (uint32_t i = 0; i < n; i++)
		if (tokens[i] < 0 || tokens[i] >= VOCAB)
			return NPU_INVALID_VALUE;
	if (begins(e, past, n)) {
		e->start = past;
		e->n = 0;
		e->open = true;
	}
	if (e->open && n == 1 && e->n > 0 && tokens[0] == e->tokens[e->start])
		e->open = false;
	else if (e->open)
		take_prompt(e, tokens, n, past);
	memset(logits, 0, VOCAB * sizeof(*logits));
	logits[answer(e, past + n - 1)] = CERTAIN;
	return NPU_SUCCESS;
}

static void *state_new(void *impl)
{
	struct echo *e = calloc(1, sizeof(*e));

	(void)impl;
	if (e) {
		e->last = -1;
		e->open = true;
	}
	return e;
}

static const struct soft_llm llm = {
	.ubatch = UBATCH,
	.vocab_size = VOCAB,
	.max_seq_len = CONTEXT,
	.forward = forward,
	.state_new = state_new,
	.state_free = free,
};

static enum npu_error load(struct calbin *c, const char *path)
{
	if (path)
		return NPU_INVALID_CALBIN;
	soft_set_version(c, "0.7.6");
	return soft_add_llm(c, &llm);
}

/* There is nothing to unload: load sets no impl. */
static const struct soft_backend backend = {
	.info = { .runtime = "0.7.6",
		.driver = "null-1",
		.firmware = "null-1",
		.name = "npufs measuring device" },
	.load = load,
};

static enum npu_error create_vdevice(const struct device_params *p, struct vdevice **ret)
{
	return soft_create_vdevice(&backend, p, ret);
}

#define TEXT_OF(number)  TEXT_OF_(number)
#define TEXT_OF_(number) #number

#define CSRS "\"csrs\":[\"" CSR_CUR_LEN "\",\"" CSR_PAST_LEN "\"]"
#define TENSOR(name, dtype, n) \
	"{\"name\":\"" name "\",\"dtype\":\"" dtype "\",\"shape\":[" TEXT_OF(n) "]}"
#define LOGITS TENSOR("logits", "float32", VOCAB)

/* clang-format off */
static const char manifest[] =
	"{\"schema\":\"npufs-manifest-1\",\"kind\":\"llm\","
	"\"description\":\"answers every request with its own prompt; for measuring only\","
	"\"calbin_version\":\"0.7.6\",\"compatible\":{\"runtime\":[\"0.7.6\"]},"
	"\"batch\":1,\"context_limit\":" TEXT_OF(CONTEXT) ","
	"\"tokenizer\":{\"type\":\"bytes\",\"vocab_size\":" TEXT_OF(VOCAB) ",\"prefix\":[],"
	"\"suffix\":[" TEXT_OF(END_TOKEN) "],\"stop\":[" TEXT_OF(END_TOKEN) "]},"
	"\"defaults\":{\"temperature\":0},\"example\":{\"prompt\":\"hello\"},"
	"\"programs\":["
	"{\"name\":\"prefill\",\"inputs\":[" TENSOR("tokens", "int32", UBATCH) "],"
	"\"outputs\":[" LOGITS "]," CSRS "},"
	"{\"name\":\"decode\",\"inputs\":[" TENSOR("tokens", "int32", 1) "],"
	"\"outputs\":[" LOGITS "]," CSRS "},"
	"{\"name\":\"kv_update\",\"inputs\":[],\"outputs\":[" TENSOR("kv_length", "int32", 1) "],"
	CSRS "}],\"files\":[]}";
/* clang-format on */

const struct device_ops device_null_ops = {
	.name = "null",
	.summary = "answers every prompt with itself, at once: for measuring only",
	.measuring_only = true,
	.own_manifest = manifest,
	.create_vdevice = create_vdevice,
	SOFT_DEVICE_OPS,
};
