#include "core/job/answer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/mem.h"

/* --- the kind of an error --------------------------------------------------------------------- */

#define BAD_REQUEST  400
#define NOT_FOUND    404
#define TIMED_OUT    408
#define TOO_LARGE    413
#define TOO_MANY     429
#define SERVER_ERROR 500
#define UNAVAILABLE  503
#define NO_STORAGE   507

static const struct status {
	int err, http;
	const char *code; /* OpenAI's, where it has one */
} statuses[] = {
	{ EINVAL, BAD_REQUEST, NULL },
	{ ERANGE, BAD_REQUEST, NULL },
	{ EILSEQ, BAD_REQUEST, NULL },
	{ EOPNOTSUPP, BAD_REQUEST, NULL },
	{ E2BIG, BAD_REQUEST, "context_length_exceeded" },
	{ EACCES, BAD_REQUEST, NULL },
	{ EPERM, BAD_REQUEST, NULL },
	{ EISDIR, BAD_REQUEST, NULL },
	{ ENAMETOOLONG, BAD_REQUEST, NULL },
	{ ENOENT, NOT_FOUND, NULL },
	{ ETIMEDOUT, TIMED_OUT, NULL },
	{ EFBIG, TOO_LARGE, NULL },
	{ EAGAIN, TOO_MANY, "rate_limit_exceeded" },
	{ EDQUOT, TOO_MANY, "rate_limit_exceeded" },
	{ EBUSY, UNAVAILABLE, NULL },
	{ ECANCELED, UNAVAILABLE, NULL },
	{ ENODEV, UNAVAILABLE, NULL },
	{ ENOMEM, UNAVAILABLE, NULL },
	{ EROFS, UNAVAILABLE, NULL },
	{ ESHUTDOWN, UNAVAILABLE, NULL },
	{ ENOSPC, NO_STORAGE, NULL },
};

static const struct status *status_of(int err)
{
	static const struct status other = { 0, SERVER_ERROR, NULL };

	for (size_t i = 0; i < ARRAY_SIZE(statuses); i++)
		if (statuses[i].err == (err < 0 ? -err : err))
			return &statuses[i];
	return &other;
}

int answer_http_status(int err)
{
	return status_of(err)->http;
}

/* --- the objects ------------------------------------------------------------------------------ */

static void add_text(struct json_value *to, const char *key, const char *text)
{
	if (text && text[0])
		json_add_string(to, key, text);
	else
		json_add_null(to, key);
}

static void add_own(struct json_value *doc, const struct fault *f)
{
	struct json_value *e = json_add_object(doc, "error");

	json_add_int(e, "errno", -f->err);
	json_add_string(e, "name", fault_errno_name(f->err));
	add_text(e, "field", f->field);
	if (f->offset >= 0)
		json_add_int(e, "offset", f->offset);
	else
		json_add_null(e, "offset");
	json_add_string(e, "reason", f->reason);
	json_add_string(e, "action", f->action);
}

/* Others have one text for both: the action is of use to their readers too. */
#define MESSAGE_SIZE (sizeof((struct fault *)0)->reason + sizeof((struct fault *)0)->action + 4)

static const char *message(const struct fault *f, char ret[MESSAGE_SIZE])
{
	bool more = f->action[0];

	snprintf(ret, MESSAGE_SIZE, "%s%s%s%s", f->reason, more ? " (" : "", f->action,
		more ? ")" : "");
	return ret;
}

static const char *openai_type(int http)
{
	if (http == TOO_MANY)
		return "rate_limit_error";
	return http == BAD_REQUEST || http == NOT_FOUND || http == TOO_LARGE
		? "invalid_request_error"
		: "server_error";
}

static const char *openai_code(const struct fault *f)
{
	return f->err == -ENOENT && strcmp(f->field, "model") == 0 ? "model_not_found"
								   : status_of(f->err)->code;
}

static void add_openai(struct json_value *doc, const struct fault *f)
{
	struct json_value *e = json_add_object(doc, "error");
	char text[MESSAGE_SIZE];

	json_add_string(e, "message", message(f, text));
	json_add_string(e, "type", openai_type(answer_http_status(f->err)));
	add_text(e, "param", f->field);
	add_text(e, "code", openai_code(f));
}

static void add_kserve(struct json_value *doc, const struct fault *f)
{
	char text[MESSAGE_SIZE];

	json_add_string(doc, "error", message(f, text));
}

static void (*const add_object[])(struct json_value *doc, const struct fault *f) = {
	[ANSWER_OWN] = add_own,
	[ANSWER_OPENAI] = add_openai,
	[ANSWER_KSERVE] = add_kserve,
};

struct json_value *answer_error(enum answer_shape shape, const struct fault *f)
{
	struct json_value *doc = json_new_object();

	if (doc)
		add_object[shape](doc, f);
	return doc;
}

/* --- .err ------------------------------------------------------------------------------------- */

static void render_lines(const struct fault *f, struct buf *out)
{
	buf_printf(out, "error: %d %s\n", -f->err, fault_errno_name(f->err));
	if (f->field[0])
		buf_printf(out, "field: %s\n", f->field);
	if (f->offset >= 0)
		buf_printf(out, "offset: %ld\n", f->offset);
	buf_printf(out, "reason: %s\n", f->reason);
	if (f->action[0])
		buf_printf(out, "action: %s\n", f->action);
}

void answer_render_error(enum answer_shape shape, const struct fault *f, struct buf *out)
{
	struct json_value *doc;

	if (shape == ANSWER_OWN) {
		render_lines(f, out);
		return;
	}
	doc = answer_error(shape, f);
	if (json_render(doc, true, out))
		out->failed = true;
	json_free(doc);
}
