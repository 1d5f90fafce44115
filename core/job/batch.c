/* A line is first understood as an envelope, whose custom_id is noted whatever the rest is worth:
 * the line gets an answer with that id, so no later line may have it. Then it is a request. What is
 * a matter of the whole file (its deadline, its place in the queue, its stream) cannot be asked by
 * one of its lines. */
#include "core/job/batch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/crypto.h"
#include "core/base/json.h"
#include "core/base/mem.h"
#include "core/job/answer.h"

#define COMPLETIONS_URL "/v1/completions"
#define ID_BYTES        12

static int no_memory(struct fault *f)
{
	return fault_set(f, -ENOMEM, "send it again later", "no memory for the line");
}

void batch_entry_done(struct batch_entry *e)
{
	free(e->custom_id);
	request_free(e->request);
	e->custom_id = NULL;
	e->request = NULL;
}

void batch_name_line(uint64_t number, struct fault *f)
{
	const struct fault was = *f;

	fault_at(f, was.err, was.field, was.offset, was.action, "line %llu: %s",
		(unsigned long long)number, was.reason);
	f->device = was.device;
}

/* --- the envelope ----------------------------------------------------------------------------- */

static bool is_openai(const struct json_value *line)
{
	return json_member(line, "method") || json_member(line, "url") || json_member(line, "body");
}

static int note_id(struct batch_ids *ids, const struct json_value *v, uint64_t number,
	const char *id, struct fault *f)
{
	uint32_t earlier = 0;
	int err = ids ? batch_ids_add(ids, id, (uint32_t)number, &earlier) : 0;

	if (err)
		return no_memory(f);
	if (!earlier)
		return 0;
	return fault_at(f, -EINVAL, "custom_id", (long)json_offset(v),
		"give each line a custom_id of its own", "the custom_id is already that of line %u",
		earlier);
}

/* Keeps the id in `e` before anything else is looked at; null is as good as none. */
static int read_id(const struct json_value *line, struct batch_ids *ids, struct batch_entry *e,
	struct fault *f)
{
	const struct json_value *v = json_member(line, "custom_id");
	const char *id = v ? json_string(v) : NULL;
	size_t len = id ? strlen(id) : 0;

	if (!v || json_type(v) == JSON_NULL)
		return 0;
	if (len == 0 || len > BATCH_ID_MAX)
		return fault_at(f, -EINVAL, "custom_id", (long)json_offset(v), "correct the value",
			"\"custom_id\" must be a string of 1..%d bytes", BATCH_ID_MAX);
	e->custom_id = strdup(id);
	if (!e->custom_id)
		return no_memory(f);
	return note_id(ids, v, e->number, id, f);
}

/* A member that may be left out but says nothing else. */
static int check_word(const struct json_value *line, const char *key, const char *word,
	const char *action, struct fault *f)
{
	const struct json_value *v = json_member(line, key);
	const char *given = v ? json_string(v) : NULL;

	if (!v || json_type(v) == JSON_NULL || (given && strcmp(given, word) == 0))
		return 0;
	return fault_at(f, given ? -EOPNOTSUPP : -EINVAL, key, (long)json_offset(v), action,
		"\"%s\" must be \"%s\"", key, word);
}

static int check_members(const struct json_value *line, struct fault *f)
{
	static const char *const names[] = { "custom_id", "method", "url", "body", NULL };

	for (const struct json_value *v = json_first(line); v; v = json_next(v)) {
		size_t i = 0;

		while (names[i] && strcmp(names[i], json_key(v)) != 0)
			i++;
		if (!names[i])
			return fault_at(f, -EINVAL, json_key(v), (long)json_offset(v),
				"put the request's fields into \"body\"",
				"unknown field \"%.60s\" beside \"body\"", json_key(v));
	}
	return 0;
}

static int open_envelope(const struct json_value *line, const struct json_value **ret_body,
	struct fault *f)
{
	const struct json_value *body = json_member(line, "body");
	int err = check_members(line, f);

	if (!err)
		err = check_word(line, "method", "POST", "write \"POST\"", f);
	if (!err)
		err = check_word(line, "url", COMPLETIONS_URL,
			"only completions are offered; write the prompt as text", f);
	if (err)
		return err;
	if (!body || json_type(body) != JSON_OBJECT)
		return fault_at(f, -EINVAL, "body", (long)json_offset(body ? body : line),
			"write {\"prompt\": \"...\"} there", "\"body\" is %s, must be an object",
			body ? json_type_name(json_type(body)) : "missing");
	*ret_body = body;
	return 0;
}

/* --- the request ------------------------------------------------------------------------------ */

static int check_is_for_model(const struct request *req, const struct json_value *object,
	struct fault *f)
{
	const char *field = req->graph ? "graph" : "callable";

	return req->launches
		? fault_at(f, -EOPNOTSUPP, field, (long)json_offset(json_member(object, field)),
			  "write the request as a STEM.json of its own",
			  "a line of a batch launches no callables")
		: 0;
}

static int check_own_to_line(const struct request *req, const struct json_value *object,
	struct fault *f)
{
	const char *field = req->deadline_ms ? "deadline_ms"
		: req->priority              ? "priority"
		: req->stream                ? "stream"
		: req->session               ? "session"
					     : NULL;

	if (!field)
		return 0;
	if (req->session)
		return fault_at(f, -EOPNOTSUPP, field,
			(long)json_offset(json_member(object, field)),
			"write the request as a STEM.json of its own",
			"a line of a batch has no session");
	return fault_at(f, -EINVAL, field, (long)json_offset(json_member(object, field)),
		"leave it out of the line", "\"%s\" is a matter of the whole batch, not of a line",
		field);
}

/* They would have to stay as they are until the line's turn comes. */
static int check_no_files(const struct request *req, const struct json_value *object,
	struct fault *f)
{
	for (size_t i = 0; i < req->n_inputs; i++)
		if (req->inputs[i].file)
			return fault_at(f, -EINVAL, "inputs",
				(long)json_offset(json_member(object, "inputs")),
				"give \"data\" instead", "a line of a batch cannot name a file");
	return 0;
}

static int check_model(const struct request *req, const char *model,
	const struct json_value *object, struct fault *f)
{
	const char *field = json_member(object, "model") ? "model" : "model_alias";

	if (!model || !req->model || strcmp(req->model, model) == 0)
		return 0;
	return fault_at(f, -EINVAL, field, (long)json_offset(json_member(object, field)),
		"put the lines of each model into a batch of their own",
		"the model is \"%.60s\"; this batch is for \"%.60s\"", req->model, model);
}

static int read_request(const struct json_value *object, const char *model, struct request **ret,
	struct fault *f)
{
	struct request *req = NULL;
	int err = request_from_value(object, &req, f);

	if (!err)
		err = check_is_for_model(req, object, f);
	if (!err)
		err = check_own_to_line(req, object, f);
	if (!err)
		err = check_no_files(req, object, f);
	if (!err)
		err = check_model(req, model, object, f);
	if (err)
		request_free(req);
	else
		*ret = req;
	return err;
}

static int read_line(struct json_value *line, const char *model, struct batch_ids *ids,
	struct batch_entry *e, struct fault *f)
{
	const struct json_value *object = line;
	int err;

	if (json_type(line) == JSON_OBJECT) {
		e->openai = is_openai(line);
		err = read_id(line, ids, e, f);
		if (!err && e->openai)
			err = open_envelope(line, &object, f);
		if (err)
			return err;
		json_remove(line, "custom_id");
	}
	return read_request(object, model, &e->request, f);
}

int batch_parse(const struct batch_line *line, const char *model, struct batch_ids *ids,
	struct batch_entry *e, struct fault *f)
{
	struct json_value *root;
	int err;

	e->number = line->number;
	if (line->too_long)
		return fault_set(f, -E2BIG, "send it as a request of its own",
			"the line is longer than %u bytes", BATCH_LINE_MAX);
	err = json_parse(line->text, line->len, &root, f);
	if (err)
		return err;
	err = read_line(root, model, ids, e, f);
	json_free(root);
	return err;
}

int batch_pass(const struct batch_line *line, struct batch_ids *ids, bool *openai)
{
	struct batch_entry e = { .number = line->number };
	struct json_value *root = NULL;
	int err = line->too_long ? 0 : json_parse(line->text, line->len, &root, NULL);

	if (!err && root && json_type(root) == JSON_OBJECT) {
		*openai = is_openai(root);
		err = read_id(root, ids, &e, NULL);
	}
	json_free(root);
	batch_entry_done(&e);
	return err == -ENOMEM ? err : 0;
}

/* --- the answer ------------------------------------------------------------------------------- */

static void add_custom_id(struct json_value *to, const struct batch_entry *e)
{
	if (e->custom_id)
		json_add_string(to, "custom_id", e->custom_id);
	else
		json_add_null(to, "custom_id");
}

/* PREFIX and random digits, the same ones for both ids of an answer. */
struct answer_ids {
	char line[40], request[40];
};

static int make_ids(struct answer_ids *ret)
{
	unsigned char bytes[ID_BYTES];
	char hex[2 * ID_BYTES + 1];

	if (random_bytes(bytes, sizeof bytes))
		return -EIO;
	for (size_t i = 0; i < sizeof bytes; i++)
		snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
	snprintf(ret->line, sizeof ret->line, "batch_req_%s", hex);
	snprintf(ret->request, sizeof ret->request, "req_%s", hex);
	return 0;
}

static void fill_openai(struct json_value *to, const struct batch_entry *e,
	const struct answer_ids *ids, const char *body, const struct fault *why)
{
	json_add_string(to, "id", ids->line);
	add_custom_id(to, e);
	if (why) {
		struct json_value *error;
		char message[sizeof why->reason + sizeof why->action + 2];

		snprintf(message, sizeof message, "%s; %s", why->reason, why->action);
		json_add_null(to, "response");
		error = json_add_object(to, "error");
		json_add_string(error, "code", fault_errno_name(why->err));
		json_add_string(error, "message", message);
	} else {
		struct json_value *response = json_add_object(to, "response");

		json_add_int(response, "status_code", 200);
		json_add_string(response, "request_id", ids->request);
		json_add_text(response, "body", body);
		json_add_null(to, "error");
	}
}

static void fill_own(struct json_value *to, const struct batch_entry *e, const char *body,
	const struct json_value *error)
{
	add_custom_id(to, e);
	json_add_uint(to, "line", e->number);
	if (error) {
		json_add_null(to, "response");
		json_add_copy(to, "error", error);
	} else {
		json_add_text(to, "response", body);
		json_add_null(to, "error");
	}
}

/* The error is the last member of both kinds. */
bool batch_is_answer(const char *line, size_t len)
{
	static const char none[] = ",\"error\":null}";
	size_t tail = sizeof none - 1;

	return len >= tail && memcmp(line + len - tail, none, tail) == 0;
}

static int put_line(const struct json_value *line, struct buf *out)
{
	int err = json_render(line, false, out);

	buf_puts(out, "\n");
	return err ? err : buf_error(out);
}

static int answer(const struct batch_entry *e, const char *body, const struct fault *why,
	struct buf *out)
{
	struct json_value *line = NULL, *error = NULL;
	struct answer_ids ids;
	int err = e->openai ? make_ids(&ids) : 0;

	if (!err && why && !e->openai) {
		error = answer_error(ANSWER_OWN, why);
		err = error ? 0 : -ENOMEM;
	}
	if (err)
		return err;
	line = json_new_object();
	if (e->openai)
		fill_openai(line, e, &ids, body, why);
	else
		fill_own(line, e, body, error ? json_member(error, "error") : NULL);
	err = put_line(line, out);
	json_free(line);
	json_free(error);
	return err;
}

int batch_answer(const struct batch_entry *e, const struct buf *document, struct buf *out)
{
	AUTO_BUF struct buf body = BUF_INIT;
	int err = json_compact(buf_text(document), document->len, &body);

	if (err)
		return err == -ENOMEM ? err : -EIO;
	return answer(e, buf_text(&body), NULL, out);
}

int batch_answer_error(const struct batch_entry *e, const struct fault *why, struct buf *out)
{
	struct fault named = *why;

	batch_name_line(e->number, &named);
	return answer(e, NULL, &named, out);
}

/* --- before the batch runs -------------------------------------------------------------------- */

struct bytes {
	const char *text;
	size_t len;
};

static ssize_t read_bytes(void *context, uint64_t offset, char *ret, size_t size)
{
	const struct bytes *b = context;
	size_t n = offset < b->len ? b->len - (size_t)offset : 0;

	if (n > size)
		n = size;
	memcpy(ret, b->text + offset, n);
	return (ssize_t)n;
}

static int model_of(const struct batch_line *line, char **ret)
{
	struct batch_entry e = { .number = line->number };
	int err = line->blank ? -EINVAL : batch_parse(line, NULL, NULL, &e, NULL);

	if (!err)
		*ret = take_ptr(e.request->model);
	batch_entry_done(&e);
	return err;
}

int batch_first_model(const char *bytes, size_t len, char **ret)
{
	struct bytes all = { bytes, len };
	const struct run_source source = { .read = read_bytes, .context = &all };
	struct batch_lines lines;
	struct batch_line line;
	size_t budget = len;
	int err = -ENOENT;

	batch_lines_init(&lines, &source);
	while (err && err != -ENOMEM && batch_lines_next(&lines, &budget, &line) == BATCH_LINE)
		err = model_of(&line, ret);
	if (lines.err == -ENOMEM)
		err = -ENOMEM;
	batch_lines_done(&lines);
	return err && err != -ENOMEM ? -ENOENT : err;
}
