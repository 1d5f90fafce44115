/* The first byte: how much one read gives and one call may take. The lines are compared with those
 * that a plain search for line ends finds; each is parsed, and answered by one line that is JSON. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/base/utf8.h"
#include "core/job/batch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition) \
	do { \
		if (!(condition)) \
			abort(); \
	} while (0)

struct bytes {
	const char *text;
	size_t len, most;
};

static ssize_t read_some(void *context, uint64_t offset, char *ret, size_t size)
{
	const struct bytes *b = context;
	size_t n = b->len - (size_t)offset;

	n = n < size ? n : size;
	n = n < b->most ? n : b->most;
	memcpy(ret, b->text + offset, n);
	return (ssize_t)n;
}

/* --- lines ------------------------------------------------------------------------------------ */

/* The next line of `rest`, by itself. */
static bool cut_line(struct bytes *rest, const char **ret, size_t *ret_len)
{
	const char *lf = rest->len ? memchr(rest->text, '\n', rest->len) : NULL;
	size_t n = lf ? (size_t)(lf - rest->text) : rest->len;

	if (rest->len == 0)
		return false;
	*ret = rest->text;
	*ret_len = n && rest->text[n - 1] == '\r' ? n - 1 : n;
	rest->text += n + (lf != NULL);
	rest->len -= n + (lf != NULL);
	return true;
}

static void check_line(struct bytes *rest, const struct batch_line *line)
{
	const char *text;
	size_t len, i = 0;

	CHECK(cut_line(rest, &text, &len));
	CHECK(line->len == len && memcmp(line->text, text, len) == 0);
	while (i < len && text[i] && strchr(" \t\r\v\f", text[i]))
		i++;
	CHECK(line->blank == (i == len) && !line->too_long);
}

/* --- requests and answers --------------------------------------------------------------------- */

static void check_fault(int err, const struct fault *f, size_t len)
{
	CHECK(err == f->err && err != -ENOMEM);
	CHECK(f->reason[0] && f->action[0]);
	CHECK(utf8_valid_prefix(f->reason, strlen(f->reason)) == strlen(f->reason));
	CHECK(f->offset >= -1 && f->offset <= (long)len);
}

static void check_answer(const struct batch_entry *e, const struct buf *out)
{
	struct json_value *v;
	const struct json_value *id;

	CHECK(out->len && memchr(out->data, '\n', out->len) == out->data + out->len - 1);
	CHECK(json_parse(out->data, out->len, &v, NULL) == 0);
	id = json_member(v, "custom_id");
	CHECK(id &&
		(e->custom_id ? strcmp(json_string(id), e->custom_id) == 0
			      : json_type(id) == JSON_NULL));
	CHECK(json_member(v, "response") && json_member(v, "error"));
	CHECK((json_member(v, "line") != NULL) == !e->openai);
	json_free(v);
}

static void check_request(const struct batch_entry *e)
{
	const struct request *req = e->request;

	CHECK(req && !req->deadline_ms && !req->priority && !req->stream);
	CHECK(!req->model || strcmp(req->model, "m") == 0);
	CHECK(!e->custom_id || (strlen(e->custom_id) >= 1 && strlen(e->custom_id) <= BATCH_ID_MAX));
}

/* A line that was taken is refused when it comes again with its id. */
static void check_again(const struct batch_line *line, struct batch_ids *ids)
{
	struct batch_entry e = { .number = 0 };
	struct fault f = FAULT_NONE;

	CHECK(batch_parse(line, "m", ids, &e, &f) == -EINVAL);
	CHECK(strcmp(f.field, "custom_id") == 0);
	batch_entry_done(&e);
}

static bool use_line(const struct batch_line *line, struct batch_ids *ids, bool openai)
{
	AUTO_BUF struct buf out = BUF_INIT, document = BUF_INIT;
	struct batch_entry e = { .openai = openai };
	struct fault f = FAULT_NONE;
	int err = batch_parse(line, "m", ids, &e, &f);

	if (err) {
		check_fault(err, &f, line->len);
		CHECK(!e.request);
		CHECK(batch_answer_error(&e, &f, &out) == 0);
	} else {
		check_request(&e);
		buf_put(&document, line->text, line->len);
		CHECK(batch_answer(&e, &document, &out) == 0);
		if (e.custom_id)
			check_again(line, ids);
	}
	check_answer(&e, &out);
	openai = e.openai;
	batch_entry_done(&e);
	CHECK(batch_pass(line, ids, &openai) == 0 && openai == e.openai);
	return openai;
}

/* --- the whole -------------------------------------------------------------------------------- */

static void run(struct bytes *all, size_t budget_each, struct batch_ids *ids)
{
	const struct run_source source = { .read = read_some, .context = all };
	bool bom = all->len >= 3 && memcmp(all->text, "\xef\xbb\xbf", 3) == 0, openai = false;
	struct bytes rest = { all->text + 3 * bom, all->len - 3 * bom, 0 };
	struct batch_lines l;
	struct batch_line line;
	uint64_t number = 0;
	enum batch_got got;

	batch_lines_init(&l, &source);
	do {
		size_t budget = budget_each;

		got = batch_lines_next(&l, &budget, &line);
		CHECK(got != BATCH_BROKEN && budget <= budget_each);
		if (got != BATCH_LINE)
			continue;
		CHECK(line.number == ++number);
		check_line(&rest, &line);
		if (!line.blank)
			openai = use_line(&line, ids, openai);
	} while (got != BATCH_END);
	CHECK(rest.len == 0);
	batch_lines_done(&l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bytes all;
	struct batch_ids ids;
	char *text, *model = NULL; /* the text is a block of its own: a byte too far is seen */

	if (size == 0)
		return 0;
	text = malloc(size - 1 + (size == 1));
	CHECK(text && batch_ids_init(&ids) == 0);
	memcpy(text, data + 1, size - 1);
	all = (struct bytes){ text, size - 1, (data[0] & 15) + 1 };
	run(&all, (size_t)(data[0] >> 4) + 1, &ids);
	CHECK(batch_first_model(text, size - 1, &model) != -ENOMEM);
	free(model);
	batch_ids_done(&ids);
	free(text);
	return 0;
}
