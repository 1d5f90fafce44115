/* The first byte: its lowest bit chooses text or JSON, the others the size of the pieces that the
 * scanner is fed in. Beyond crashes it is checked that the scanner, the parser and the renderer
 * agree about the same bytes. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "core/request.h"
#include "core/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition) \
	do { \
		if (!(condition)) \
			abort(); \
	} while (0)

static void check_fault(int err, const struct fault *f, size_t len)
{
	CHECK(f->err == err);
	if (!err)
		return;
	CHECK(err != -ENOMEM); /* cJSON refused what the scanner had passed */
	CHECK(f->reason[0] && f->action[0]);
	CHECK(utf8_valid_prefix(f->reason, sizeof f->reason) == sizeof f->reason);
	CHECK(utf8_valid_prefix(f->field, sizeof f->field) == sizeof f->field);
	CHECK(f->offset >= -1 && f->offset <= (long)len);
}

static void scan(struct json_scanner *s, const char *text, size_t len, size_t piece)
{
	json_scanner_init(s);
	for (size_t at = 0; at < len; at += piece)
		json_scan(s, text + at, len - at < piece ? len - at : piece);
}

/* What was rendered is JSON again and renders the same. */
static void check_rendering(const struct json_value *v, bool pretty)
{
	AUTO_BUF struct buf once = BUF_INIT, twice = BUF_INIT;
	struct json_value *again = NULL;

	CHECK(json_render(v, pretty, &once) == 0);
	CHECK(json_parse(buf_text(&once), once.len, &again, NULL) == 0);
	CHECK(json_render(again, pretty, &twice) == 0);
	CHECK(once.len == twice.len && memcmp(buf_text(&once), buf_text(&twice), once.len) == 0);
	json_free(again);
}

/* Offsets stay in order and inside the text, and what begins there fits the type. */
static void check_nodes(const struct json_value *v, const char *text, size_t len)
{
	char first = text[json_offset(v)];

	CHECK(json_offset(v) < len);
	switch (json_type(v)) {
	case JSON_STRING:
		CHECK(first == '"' &&
			utf8_valid_prefix(json_string(v), strlen(json_string(v))) ==
				strlen(json_string(v)));
		return;
	case JSON_NUMBER:
		CHECK(first == '-' || (first >= '0' && first <= '9'));
		return;
	case JSON_ARRAY:
	case JSON_OBJECT:
		CHECK(first == (json_type(v) == JSON_ARRAY ? '[' : '{'));
		for (const struct json_value *c = json_first(v); c; c = json_next(c)) {
			CHECK(json_offset(c) > json_offset(v));
			check_nodes(c, text, len);
		}
		return;
	default:
		CHECK(first == 't' || first == 'f' || first == 'n');
	}
}

static void check_json(const char *text, size_t len, size_t piece)
{
	struct json_scanner whole, pieces;
	struct json_value *v = NULL;
	struct fault f = FAULT_NONE;
	int err = json_parse(text, len, &v, &f);
	bool conversion = err && (strstr(f.reason, "given twice") || strstr(f.reason, "too large"));

	check_fault(err, &f, len);
	scan(&whole, text, len, len ? len : 1);
	scan(&pieces, text, len, piece);
	CHECK(whole.verdict == pieces.verdict && whole.offset == pieces.offset &&
		whole.err == pieces.err);
	CHECK(whole.reason == pieces.reason);
	CHECK((whole.verdict == JSON_COMPLETE) == (err == 0 || conversion));
	if (err)
		return;
	check_nodes(v, text, len);
	check_rendering(v, false);
	check_rendering(v, true);
	json_free(v);
}

/* Its bytes are there, or the plain name of where they are. */
static void check_input(const struct request_tensor *t)
{
	CHECK(!t->data == (t->file != NULL));
	CHECK(t->file || tensor_bytes(&t->spec) >= 0);
	CHECK(!t->file || (t->file[0] && t->file[0] != '.' && !strchr(t->file, '/')));
}

static void check_request(const struct request *r)
{
	CHECK((r->prompt != NULL) + (r->tokens != NULL) + (r->inputs != NULL) == 1);
	CHECK(!r->prompt || (r->prompt_len > 0 && strlen(r->prompt) == r->prompt_len));
	CHECK(r->sampling.temperature >= 0 && r->sampling.temperature <= 2);
	CHECK(r->sampling.top_p > 0 && r->sampling.top_p <= 1);
	CHECK(r->max_new_tokens == -1 ||
		(r->max_new_tokens >= 1 && r->max_new_tokens <= REQUEST_MAX_NEW_TOKENS));
	for (size_t i = 0; i < r->n_inputs; i++)
		check_input(&r->inputs[i]);
	CHECK(r->shape == ANSWER_OWN || r->output == REQUEST_JSON);
	CHECK((r->output != REQUEST_NPY && r->output != REQUEST_RAW) || r->inputs);
	CHECK(!r->outputs || r->inputs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct request *r = NULL;
	struct fault f = FAULT_NONE;
	size_t len = size - 1;
	char *text; /* a block of its own: a byte too far is seen */
	int err;

	if (size == 0)
		return 0;
	text = malloc(len + !len);
	CHECK(text);
	memcpy(text, data + 1, len);
	if (data[0] & 1) {
		err = request_from_text(text, len, &r, &f);
	} else {
		check_json(text, len, (size_t)(data[0] >> 1) + 1);
		err = request_from_json(text, len, &r, &f);
	}
	check_fault(err, &f, len);
	CHECK(!err == (r != NULL));
	if (r)
		check_request(r);
	request_free(r);
	free(text);
	return 0;
}
