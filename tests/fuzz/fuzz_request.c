/* The first byte: its lowest bit chooses text or JSON, the others the size of the pieces that the
 * scanner is fed in. Beyond crashes it is checked that the scanner, the parser and the renderer
 * agree about the same bytes. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/base/utf8.h"
#include "core/engine/callables.h"
#include "core/engine/launch_plan.h"
#include "core/job/request.h"

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
	const bool tensors = r->inputs || r->launches;

	CHECK((r->prompt != NULL) + (r->tokens != NULL) + tensors == 1);
	CHECK(!r->launches == !r->n_launches);
	CHECK(!r->prompt || (r->prompt_len > 0 && strlen(r->prompt) == r->prompt_len));
	CHECK(r->sampling.temperature >= 0 && r->sampling.temperature <= 2);
	CHECK(r->sampling.top_p > 0 && r->sampling.top_p <= 1);
	CHECK(r->max_new_tokens == -1 ||
		(r->max_new_tokens >= 1 && r->max_new_tokens <= REQUEST_MAX_NEW_TOKENS));
	for (size_t i = 0; i < r->n_inputs; i++)
		check_input(&r->inputs[i]);
	CHECK(r->shape == ANSWER_OWN || r->output == REQUEST_JSON);
	CHECK((r->output != REQUEST_NPY && r->output != REQUEST_RAW) || tensors);
	CHECK(!r->outputs || tensors);
}

/* What every name is taken to be: x is read, y is written, n counts. */
static struct {
	struct launch_signature head;
	struct launch_parameter rows[3];
} signature = { { .n_tensors = 2, .n_scalars = 1, .steps = 1 << 20 },
	{ { "x", VM_FLOAT32, VM_IN, 0 }, { "y", VM_FLOAT32, VM_OUT, 0 },
		{ "n", VM_INT32, 0, 64 } } };

static int find(void *context, const struct request_launch *l, int32_t *ret_id,
	const struct launch_signature **ret, struct fault *f)
{
	(void)context, (void)f;
	CHECK(!l->callable == (l->id >= 0) && l->id < CALLABLE_IDS_MAX);
	CHECK(!l->callable || callables_name_valid(l->callable));
	*ret_id = l->callable ? 0 : l->id;
	*ret = &signature.head;
	return 0;
}

static void check_step(const struct launch_plan *p, const struct launch_step *s)
{
	CHECK(s->n_tensors == 2 && s->n_scalars == 1 && s->scalars[0] <= 64);
	CHECK(s->tensors[0] < p->n_tensors && s->tensors[1] < p->n_tensors);
	CHECK(p->tensors[s->tensors[1]].written);
}

/* A plan binds what is there, and no more than the limits let it. */
static void check_plan(const struct request *r, size_t len)
{
	const struct launch_lookup lookup = { find, NULL };
	struct launch_plan *p = NULL;
	struct fault f = FAULT_NONE;
	uint64_t bytes = 0;
	int err = launch_plan_new(r, &lookup, &p, &f);

	check_fault(err, &f, len);
	CHECK(!err == (p != NULL));
	if (err)
		return;
	CHECK(p->n_steps == r->n_launches && p->machine_steps <= VM_STEPS_MAX);
	for (size_t i = 0; i < p->n_steps; i++)
		check_step(p, &p->steps[i]);
	for (size_t i = 0; i < p->n_tensors; i++)
		bytes += p->tensors[i].bytes;
	CHECK(bytes <= LAUNCH_BYTES_MAX);
	for (size_t i = 0; i < p->n_outputs; i++)
		CHECK(p->outputs[i] < p->n_tensors && p->tensors[p->outputs[i]].written);
	free(p);
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
	if (r && r->launches)
		check_plan(r, len);
	request_free(r);
	free(text);
	return 0;
}
