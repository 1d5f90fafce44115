#include "core/job/verdict.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/base/mem.h"
#include "core/base/utf8.h"
#include "core/job/batch.h"

struct verdict {
	enum job_format format;
	bool in_order; /* every byte so far came after the one before */
	uint64_t seen; /* bytes taken in order */
	struct json_scanner scanner;
	char tail[4]; /* of a text: the beginning of an unfinished character */
	size_t tail_len;
	struct fault fault;
};

struct verdict *verdict_new(enum job_format format)
{
	struct verdict *v = calloc(1, sizeof *v);

	if (v) {
		v->format = format;
		verdict_reset(v);
		v->in_order = true;
	}
	return v;
}

void verdict_free(struct verdict *v)
{
	free(v);
}

/* Nothing is known until the content starts anew at its first byte. */
void verdict_reset(struct verdict *v)
{
	v->in_order = false;
	v->seen = 0;
	v->tail_len = 0;
	json_scanner_init(&v->scanner);
	v->fault = (struct fault)FAULT_NONE;
}

static void refuse_text(struct verdict *v, int err, uint64_t offset, const char *reason)
{
	if (!v->fault.err)
		fault_at(&v->fault, err, NULL, (long)offset, "write the prompt as UTF-8 text", "%s",
			reason);
}

/* A character may be cut by the end of a write: its beginning is kept for the next one. */
static size_t finish_tail(struct verdict *v, const char *bytes, size_t n)
{
	uint64_t start = v->seen - v->tail_len;
	size_t used = 0;

	while (v->tail_len && used < n) {
		v->tail[v->tail_len++] = bytes[used++];
		if (utf8_valid_prefix(v->tail, v->tail_len) == v->tail_len)
			v->tail_len = 0;
		else if (utf8_unfinished_tail(v->tail, v->tail_len) != v->tail_len) {
			refuse_text(v, -EILSEQ, start, "the text is not UTF-8");
			v->tail_len = 0;
		}
	}
	return used;
}

static void scan_text(struct verdict *v, const char *bytes, size_t n)
{
	const char *nul = memchr(bytes, 0, n);
	size_t used = finish_tail(v, bytes, n);
	size_t rest = n - used, good = utf8_valid_prefix(bytes + used, rest);

	if (nul)
		refuse_text(v, -EINVAL, v->seen + (uint64_t)(nul - bytes),
			"the text has a NUL byte");
	if (good < rest && utf8_unfinished_tail(bytes + used, rest) == rest - good) {
		v->tail_len = rest - good;
		memcpy(v->tail, bytes + used + good, v->tail_len);
	} else if (good < rest) {
		refuse_text(v, -EILSEQ, v->seen + used + good, "the text is not UTF-8");
	}
}

/* Said of the first bytes only: those of another encoding would else be called broken UTF-8. */
static bool refuse_encoding(struct verdict *v, const char *bytes, size_t n)
{
	const char *encoding = v->seen ? NULL : utf8_other_encoding(bytes, n);

	if (encoding)
		fault_at(&v->fault, -EILSEQ, NULL, 0, "write UTF-8", "the text looks like %s",
			encoding);
	return encoding != NULL;
}

static bool scan_json(struct verdict *v, const char *bytes, size_t n)
{
	enum json_verdict before = v->scanner.verdict;
	enum json_verdict now = json_scan(&v->scanner, bytes, n);

	if (now == JSON_HOPELESS && !v->fault.err)
		fault_at(&v->fault, v->scanner.err, NULL, (long)v->scanner.offset,
			"correct the JSON there", "%s", v->scanner.reason);
	return now == JSON_COMPLETE && before != JSON_COMPLETE;
}

bool verdict_write(struct verdict *v, uint64_t offset, const char *bytes, size_t n)
{
	bool whole = false;

	if (offset == 0 && v->seen == 0) {
		verdict_reset(v);
		v->in_order = true;
	}
	if (!v->in_order || offset != v->seen) {
		verdict_reset(v);
		return false;
	}
	if (refuse_encoding(v, bytes, n))
		whole = false;
	else if (v->format == JOB_FORMAT_TEXT)
		scan_text(v, bytes, n);
	else if (v->format == JOB_FORMAT_JSON)
		whole = scan_json(v, bytes, n);
	v->seen += n;
	return whole;
}

int verdict_parse(enum job_format format, const struct blob *content, struct request **ret,
	struct fault *f)
{
	if (format == JOB_FORMAT_TEXT)
		return request_from_text(blob_bytes(content), blob_len(content), ret, f);
	return request_from_json(blob_bytes(content), blob_len(content), ret, f);
}

/* Its model is that of its first good line; without one, lines are answered by what is wrong. */
static int judge_batch(const struct blob *content, const struct verdict_checker *c,
	struct job_order *ret_order, struct fault *f)
{
	AUTO_FREE char *name = NULL;
	int err = batch_first_model(blob_bytes(content), blob_len(content), &name), model;
	const struct request first = { .model = name };

	if (err == -ENOMEM)
		return fault_set(f, err, "send it again later", "no memory for the request");
	model = c->check(c->context, &first, f);
	if (model >= 0)
		*ret_order = (struct job_order){ .model = model };
	return model < 0 ? model : 0;
}

int verdict_judge(enum job_format format, const struct blob *content,
	const struct verdict_checker *c, struct job_order *ret_order, struct fault *f)
{
	struct request *req = NULL;
	int model, err;

	*f = (struct fault)FAULT_NONE;
	if (format == JOB_FORMAT_BATCH)
		return judge_batch(content, c, ret_order, f);
	err = verdict_parse(format, content, &req, f);
	if (err)
		return f->err
			? err
			: fault_set(f, err, "send it again later", "no memory for the request");
	ret_order->shape = req->shape; /* a refusal is told in it, too */
	model = c->check(c->context, req, f);
	if (model < 0) {
		request_free(req);
		return model;
	}
	*ret_order = (struct job_order){
		.model = model,
		.priority = req->priority,
		.deadline_ms = req->deadline_ms,
		.stream = req->stream,
		.shape = req->shape,
	};
	if (req->session)
		strcpy(ret_order->session, req->session);
	request_free(req);
	return 0;
}

void verdict_refuse(struct verdict *v, const struct fault *f)
{
	v->fault = *f;
}

const struct fault *verdict_fault(const struct verdict *v)
{
	return &v->fault;
}

bool verdict_unfinished(const struct verdict *v)
{
	return v->format == JOB_FORMAT_JSON && v->in_order && v->seen &&
		v->scanner.verdict == JSON_INCOMPLETE;
}
