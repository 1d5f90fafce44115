/* Text: encode, prefill in micro-batches, then decode token by token until a stop token, a stop
 * string or a limit.
 *
 *   fed < n_tokens   the next micro-batch of what is not on the device yet
 *   fed == n_tokens  the last logits choose the next token, which joins `tokens`
 *
 * so prefill and decode are one loop: each step feeds what is missing and, when nothing of the
 * prompt is left, picks. The picked token is fed by the next step; the last one never is.
 *
 * `tokens` begins with those of the session, if there is one. What of them is not on the device (any
 * more) is missing like the rest, so the text does not depend on it. */
#include "core/engine/run.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/json.h"
#include "core/base/mem.h"
#include "core/base/prng.h"
#include "core/engine/textout.h"

struct run_text {
	struct run base;
	struct sequence seq;
	struct sampler *sampler;
	struct textout text;
	struct sampling sampling;
	struct session *session;   /* NULL: none */
	int32_t *tokens;           /* the session's, prompt, then picked; room for all */
	size_t n_before, n_prompt; /* the session's; this request's own */
	size_t n_tokens, fed, max_new;
	const char *finish_reason;
	struct buf document_text; /* kept for a document */
	size_t out_bytes;
};

/* --- making one ------------------------------------------------------------------------------- */

static size_t n_output(const struct run_text *t)
{
	return t->n_tokens - t->n_before - t->n_prompt;
}

/* A prompt that goes on has no beginning of its own. */
static int encode_prompt(const struct run *base, bool goes_on, int32_t **ret, size_t *ret_n,
	struct fault *f)
{
	const struct request *req = base->request;
	const struct tokenizer *tokenizer = base->model->tokenizer;
	size_t prefix = goes_on ? tokenizer_prefix_len(tokenizer) : 0;
	size_t least = tokenizer_least(tokenizer, req->prompt_len) - prefix;

	if (least > base->generation->context)
		return fault_at(f, -E2BIG, "prompt", -1, "shorten it",
			"the prompt has at least %zu tokens; the model's context has %u", least,
			base->generation->context);
	if (tokenizer_encode(tokenizer, req->prompt, req->prompt_len, ret, ret_n))
		return fault_set(f, -ENOMEM, "send it again later", "no memory for the prompt");
	*ret_n -= prefix;
	memmove(*ret, *ret + prefix, *ret_n * sizeof **ret);
	return 0;
}

static int encode(const struct run *base, bool goes_on, int32_t **ret, size_t *ret_n,
	struct fault *f)
{
	const struct request *req = base->request;

	if (req->prompt)
		return encode_prompt(base, goes_on, ret, ret_n, f);
	for (size_t i = 0; i < req->n_tokens; i++)
		if ((uint32_t)req->tokens[i] >= base->generation->vocab)
			return fault_at(f, -EINVAL, "tokens", -1,
				"use ids below the vocabulary's size",
				"token %zu is %d; the vocabulary has %u", i, req->tokens[i],
				base->generation->vocab);
	*ret = malloc(req->n_tokens * sizeof **ret);
	if (!*ret)
		return fault_set(f, -ENOMEM, "send it again later", "no memory for the tokens");
	memcpy(*ret, req->tokens, req->n_tokens * sizeof **ret);
	*ret_n = req->n_tokens;
	return 0;
}

static int past_session(const struct run_text *t, const char *field, struct fault *f)
{
	return fault_at(f, -E2BIG, field, -1, "trim the session, begin another, or ask for less",
		"the session's %zu tokens, the prompt's %zu and the new ones exceed the context of "
		"%u",
		t->n_before, t->n_prompt, t->base.generation->context);
}

static int bound_lengths(struct run_text *t, struct fault *f)
{
	const struct request *req = t->base.request;
	size_t context = t->base.generation->context;
	const char *field = req->prompt ? "prompt" : "tokens";
	size_t room;

	if (t->n_prompt == 0)
		return fault_at(f, -EINVAL, field, -1, "write some text",
			"the prompt has no tokens");
	if (t->n_before && t->n_prompt >= context - t->n_before)
		return past_session(t, field, f);
	if (t->n_prompt > context)
		return fault_at(f, -E2BIG, field, -1, "shorten it",
			"the prompt has %zu tokens; the model's context has %zu", t->n_prompt,
			context);
	room = context - t->n_before - t->n_prompt;
	if (room == 0)
		return fault_at(f, -E2BIG, field, -1, "shorten it by at least one token",
			"the prompt's %zu tokens leave no room in a context of %zu", t->n_prompt,
			context);
	if (t->n_before && req->max_new_tokens > (int64_t)room)
		return past_session(t, "max_new_tokens", f);
	if (req->max_new_tokens > (int64_t)room)
		return fault_at(f, -E2BIG, "max_new_tokens", -1,
			"ask for fewer, or shorten the prompt",
			"%zu prompt tokens and %lld new ones exceed the context of %zu",
			t->n_prompt, (long long)req->max_new_tokens, context);
	t->max_new = room;
	if (req->max_new_tokens >= 0)
		t->max_new = (size_t)req->max_new_tokens;
	else if (t->base.model->manifest->default_max_new_tokens &&
		t->base.model->manifest->default_max_new_tokens < room)
		t->max_new = t->base.model->manifest->default_max_new_tokens;
	return 0;
}

/* A seed for a request that gives none: no secret, but never the same twice. Only the engine's
 * thread asks. */
static int fresh_seed(uint64_t *ret)
{
	static uint64_t state;
	static bool started;

	if (!started && random_bytes(&state, sizeof state))
		return -EIO;
	started = true;
	*ret = prng_splitmix(&state);
	return 0;
}

static int set_sampling(struct run_text *t, struct fault *f)
{
	const struct request *req = t->base.request;

	t->sampling = req->sampling;
	if (!req->temperature_given)
		t->sampling.temperature = t->base.model->manifest->default_temperature;
	if (!req->seed_given && fresh_seed(&t->sampling.seed))
		return fault_set(f, -EIO, "give a seed", "no random bytes for a seed");
	if (sampler_new(&t->sampling, t->base.generation->vocab, &t->sampler))
		return fault_set(f, -ENOMEM, "send it again later", "no memory for the sampler");
	for (size_t i = 0; i < t->n_tokens; i++)
		sampler_accept(t->sampler, t->tokens[i]);
	return 0;
}

static int join_tokens(struct run_text *t, const int32_t *before, struct fault *f)
{
	size_t n = t->n_before + t->n_prompt + t->max_new;
	int32_t *all = realloc(t->tokens, n * sizeof *all);

	if (!all)
		return fault_set(f, -ENOMEM, "send it again later", "no memory for the tokens");
	memmove(all + t->n_before, all, t->n_prompt * sizeof *all);
	if (t->n_before)
		memcpy(all, before, t->n_before * sizeof *all);
	t->tokens = all;
	t->n_tokens = t->n_before + t->n_prompt;
	return 0;
}

/* The session's tokens are `*ret` until the run ends. */
static int begin_session(struct run_text *t, const int32_t **ret, struct fault *f)
{
	const struct run *base = &t->base;
	uint32_t n = 0;
	int err = sessions_begin(base->limits.sessions, base->request->session, base->limits.job,
		base->model->sha256, &t->session, ret, &n, f);

	t->n_before = n;
	return err;
}

static int reserve(struct run_text *t, struct fault *f)
{
	struct generation *g = t->base.generation;
	struct sessions *sessions = t->base.limits.sessions;
	enum npu_error code;

	if (t->session && sessions_take_kv(sessions, t->session, g, &t->seq)) {
		t->fed = t->seq.committed;
		return 0;
	}
	if (sessions)
		sessions_make_room(sessions, g);
	code = sequence_open(g, &t->seq);
	if (code == NPU_MEMORY_ALLOCATION)
		return fault_set(f, -EAGAIN, "", "the device has no room for another sequence");
	return code ? fault_from_device(f, code, "reserving KV") : 0;
}

static void free_host(struct run_text *t)
{
	textout_done(&t->text);
	buf_done(&t->document_text);
	sampler_free(t->sampler);
	free(t->tokens);
	free(t);
}

static const struct run_ops run_text_ops;

int run_text_new(const struct run *base, struct run **ret, struct fault *f)
{
	struct run_text *t = calloc(1, sizeof *t);
	const int32_t *before = NULL;
	int err = 0;

	if (!t)
		return fault_set(f, -ENOMEM, "send it again later", "no memory for the job");
	t->base = *base;
	t->base.ops = &run_text_ops;
	t->finish_reason = "length";
	textout_init(&t->text, (const char *const *)base->request->stops);
	if (base->request->session)
		err = begin_session(t, &before, f);
	if (!err)
		err = encode(base, t->n_before > 0, &t->tokens, &t->n_prompt, f);
	if (!err)
		err = bound_lengths(t, f);
	if (!err)
		err = join_tokens(t, before, f);
	if (!err)
		err = set_sampling(t, f);
	if (!err)
		err = reserve(t, f);
	if (err && t->session)
		sessions_end(base->limits.sessions, t->session, base->generation, NULL);
	if (err) {
		free_host(t);
		return err;
	}
	*ret = &t->base;
	return 0;
}

static enum npu_error text_free(struct run *r)
{
	struct run_text *t = (struct run_text *)r;
	enum npu_error code = t->session
		? sessions_end(r->limits.sessions, t->session, r->generation, &t->seq)
		: sequence_close(r->generation, &t->seq);

	request_free(r->request);
	free_host(t);
	return code;
}

/* --- stepping --------------------------------------------------------------------------------- */

static void echo_prompt(struct run_text *t, struct buf *piece)
{
	struct textout whole; /* stop strings are looked for in what is generated only */
	int32_t prev = t->n_before ? t->tokens[t->n_before - 1] : -1;

	if (!t->base.request->echo || n_output(t))
		return;
	textout_init(&whole, NULL);
	for (size_t i = t->n_before; i < t->n_tokens; i++) {
		size_t len;
		const char *p = tokenizer_piece(t->base.model->tokenizer, prev, t->tokens[i], &len);

		prev = t->tokens[i];
		textout_put(&whole, p, len, piece);
	}
	textout_finish(&whole, piece);
	textout_done(&whole);
}

/* Takes a picked token; true when it ended the text. */
static bool take_token(struct run_text *t, int32_t token, struct buf *piece)
{
	int32_t prev = t->n_tokens ? t->tokens[t->n_tokens - 1] : -1;
	const char *p;
	size_t len;

	if (tokenizer_is_stop(t->base.model->tokenizer, token)) {
		t->finish_reason = "stop";
		return true;
	}
	t->tokens[t->n_tokens++] = token;
	p = tokenizer_piece(t->base.model->tokenizer, prev, token, &len);
	if (textout_put(&t->text, p, len, piece)) {
		t->finish_reason = "stop";
		return true;
	}
	return n_output(t) >= t->max_new;
}

static enum step finish_text(struct run_text *t, struct buf *piece)
{
	textout_finish(&t->text, piece);
	if (t->text.stopped)
		t->finish_reason = "stop";
	if (t->base.request->output != REQUEST_JSON)
		buf_puts(piece, "\n");
	return STEP_ENDED;
}

/* What JSON could write of a NUL few of its readers take, and here it would be the text's end. */
static void keep_text(struct buf *to, const char *text, size_t n)
{
	const char *nul;

	while (n && (nul = memchr(text, '\0', n))) {
		buf_put(to, text, (size_t)(nul - text));
		buf_puts(to, TEXTOUT_REPLACEMENT);
		n -= (size_t)(nul + 1 - text);
		text = nul + 1;
	}
	buf_put(to, text, n);
}

static enum step keep_piece(struct run_text *t, enum step s, const struct buf *piece, size_t before,
	struct step_fault *f)
{
	size_t n = piece->len - before;

	t->out_bytes += n;
	if (t->out_bytes > t->base.limits.output_bytes) {
		fault_set(&f->fault, -EFBIG, "ask for fewer tokens, or raise output_size=",
			"the output passes %zu bytes", t->base.limits.output_bytes);
		return STEP_FAILED;
	}
	if (t->base.request->output == REQUEST_JSON)
		keep_text(&t->document_text, piece->data ? piece->data + before : "", n);
	if (buf_error(piece) || buf_error(&t->document_text)) {
		fault_set(&f->fault, -ENOMEM, "send it again later", "no memory for the output");
		return STEP_FAILED;
	}
	return s;
}

static bool text_plan(struct run *r, struct sequence_feed *ret)
{
	struct run_text *t = (struct run_text *)r;
	size_t n = t->n_tokens - t->fed;

	if (n > r->generation->ubatch)
		n = r->generation->ubatch;
	*ret = (struct sequence_feed){ &t->seq, t->tokens + t->fed, (uint32_t)n };
	return true;
}

static enum step text_absorb(struct run *r, const struct infer_result *got, const float *logits,
	struct buf *piece, struct step_fault *f)
{
	struct run_text *t = (struct run_text *)r;
	size_t before = piece->len;
	struct sequence_feed fed;
	enum step s = STEP_MORE;

	if (got->stage != INFER_DONE)
		return run_refuse(got, !t->seq.lost, f);
	text_plan(r, &fed);
	t->fed += fed.n;
	if (t->fed < t->n_tokens)
		return STEP_MORE;
	echo_prompt(t, piece);
	if (t->max_new == 0 || take_token(t, sampler_pick(t->sampler, logits, NULL), piece))
		s = finish_text(t, piece);
	return keep_piece(t, s, piece, before, f);
}

static enum step text_step(struct run *r, struct buf *piece, struct step_fault *f)
{
	const float *logits = NULL;
	struct sequence_feed feed;
	struct infer_result got;

	text_plan(r, &feed);
	got = sequence_feed(r->generation, feed.seq, feed.tokens, feed.n, &logits);
	return text_absorb(r, &got, logits, piece, f);
}

/* --- the outcome ------------------------------------------------------------------------------ */

/* OpenAI's text_completion. Its id is the request's own where it has one. */
static int render_completion(const struct run_text *t, struct buf *out)
{
	const char *own_id = t->base.request->request_id;
	struct json_value *doc, *choice, *usage;
	char id[sizeof "cmpl-" + REQUEST_ID_MAX];
	uint64_t fresh;
	int err = own_id[0] ? 0 : fresh_seed(&fresh);

	if (err)
		return err;
	if (own_id[0])
		snprintf(id, sizeof id, "cmpl-%s", own_id);
	else
		snprintf(id, sizeof id, "cmpl-%016" PRIx64, fresh);
	doc = json_new_object();
	json_add_string(doc, "id", id);
	json_add_string(doc, "object", "text_completion");
	json_add_int(doc, "created", clock_wall() / NS_PER_SEC);
	json_add_string(doc, "model", t->base.model->alias);
	choice = json_add_object(json_add_array(doc, "choices"), NULL);
	json_add_string(choice, "text", buf_text(&t->document_text));
	json_add_int(choice, "index", 0);
	json_add_null(choice, "logprobs");
	json_add_string(choice, "finish_reason", t->finish_reason);
	usage = json_add_object(doc, "usage");
	json_add_uint(usage, "prompt_tokens", t->n_prompt);
	json_add_uint(usage, "completion_tokens", n_output(t));
	json_add_uint(usage, "total_tokens", t->n_prompt + n_output(t));
	err = json_render(doc, true, out);
	json_free(doc);
	return err;
}

static int render_document(const struct run_text *t, struct buf *out)
{
	struct json_value *doc = json_new_object();
	struct json_value *tokens, *usage;
	int err;

	json_add_string(doc, "model", t->base.model->alias);
	json_add_string(doc, "text", buf_text(&t->document_text));
	tokens = json_add_array(doc, "tokens");
	for (size_t i = t->n_before + t->n_prompt; i < t->n_tokens; i++)
		json_add_int(tokens, NULL, t->tokens[i]);
	json_add_string(doc, "finish_reason", t->finish_reason);
	json_add_uint(doc, "seed", t->sampling.seed);
	usage = json_add_object(doc, "usage");
	json_add_uint(usage, "prompt_tokens", t->n_prompt);
	json_add_uint(usage, "output_tokens", n_output(t));
	if (t->base.request->request_id[0])
		json_add_string(doc, "request_id", t->base.request->request_id);
	err = json_render(doc, true, out);
	json_free(doc);
	return err;
}

static int text_finish(struct run *r, struct buf *out, struct job_outcome *ret)
{
	struct run_text *t = (struct run_text *)r;
	int err = t->session
		? sessions_offer(r->limits.sessions, t->session, r->limits.job, t->tokens,
			  (uint32_t)t->n_tokens, r->generation->context, r->model->sha256)
		: 0;

	if (err)
		return err;
	*ret = (struct job_outcome){
		.prompt_tokens = t->n_prompt,
		.output_tokens = n_output(t),
		.finish_reason = t->finish_reason,
		.seed_known = true,
		.seed = t->sampling.seed,
	};
	if (r->request->output != REQUEST_JSON)
		return 0;
	return r->request->shape == ANSWER_OPENAI ? render_completion(t, out)
						  : render_document(t, out);
}

static const struct run_ops run_text_ops = {
	.step = text_step,
	.plan = text_plan,
	.absorb = text_absorb,
	.finish = text_finish,
	.free = text_free,
};
