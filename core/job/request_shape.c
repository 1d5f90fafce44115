/* Which answer a request asks for. `output` says it in a word, which fits text, tensors or both;
 * without the word the body itself tells whose client wrote it. */
#include "core/job/request_read.h"

#include <errno.h>
#include <string.h>

#include "core/base/mem.h"

static const struct word {
	const char *word;
	enum request_output output;
	enum answer_shape shape;
	bool text, tensors; /* what it can be the form of */
} words[] = {
	{ "text", REQUEST_TEXT, ANSWER_OWN, true, false },
	{ "json", REQUEST_JSON, ANSWER_OWN, true, true },
	{ "openai", REQUEST_JSON, ANSWER_OPENAI, true, false },
	{ "npy", REQUEST_NPY, ANSWER_OWN, false, true },
	{ "raw", REQUEST_RAW, ANSWER_OWN, false, true },
};

static const struct word *find_word(const char *word)
{
	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (strcmp(words[i].word, word) == 0)
			return &words[i];
	return NULL;
}

bool request_take_output(struct request_read *r, const char *word)
{
	const struct word *w = find_word(word);

	if (!w)
		return false;
	r->output = w->word;
	r->request->output = w->output;
	r->request->shape = w->shape;
	r->request->output_given = true;
	return true;
}

void request_set_shape(struct request *r, enum answer_shape shape)
{
	r->shape = shape;
	if (shape != ANSWER_OWN)
		r->output = REQUEST_JSON;
}

/* --- what does not go together ---------------------------------------------------------------- */

static int misfit(const struct request_read *r, const struct json_value *object, const char *field,
	const char *action, const char *reason)
{
	const struct json_value *v = request_member(object, field);

	return fault_at(r->f, -EINVAL, json_key(v), (long)json_offset(v), action, "%s", reason);
}

static int check_text(const struct request_read *r, const struct json_value *object)
{
	if (request_given(r, "outputs"))
		return misfit(r, object, "outputs", "leave it out, or give \"inputs\"",
			"\"outputs\" chooses tensors; this request is for text");
	if (request_given(r, "parameters"))
		return misfit(r, object, "parameters", "give each as a field of the request",
			"\"parameters\" belong to \"inputs\"; this request is for text");
	if (r->output && !find_word(r->output)->text)
		return misfit(r, object, "output", "use \"text\", \"json\" or \"openai\"",
			"text has no form \"npy\" or \"raw\"; tensors have");
	return 0;
}

static int check_tensors(const struct request_read *r, const struct json_value *object)
{
	char **outputs = r->request->outputs;
	enum request_output output = r->request->output;

	if (r->output && !find_word(r->output)->tensors)
		return misfit(r, object, "output", "use \"json\", \"npy\" or \"raw\"",
			"tensors have no form \"text\" or \"openai\"");
	if (outputs && outputs[1] && (output == REQUEST_NPY || output == REQUEST_RAW))
		return misfit(r, object, "outputs", "name one, or use \"output\": \"json\"",
			"\"npy\" and \"raw\" hold one tensor; \"outputs\" names several");
	return 0;
}

/* Fields that only say something beside others. */
static const struct {
	const char *field;
	bool callables; /* it is of callables; else of models */
	const char *action, *reason;
} belongings[] = {
	{ "scalars", true, "give \"callable\" too", "\"scalars\" are a callable's" },
	{ "repeat", true, "leave it out", "\"repeat\" is for callables" },
	{ "model", false, "leave it out", "a callable runs without a model" },
	{ "session", false, "leave it out", "callables have no sessions" },
	{ "parameters", false, "leave it out", "\"parameters\" are a model's" },
};

static int check_belongings(const struct request_read *r, const struct json_value *object)
{
	bool callables = request_given(r, "callable") || request_given(r, "graph");

	for (size_t i = 0; i < ARRAY_SIZE(belongings); i++)
		if (request_given(r, belongings[i].field) && belongings[i].callables != callables)
			return misfit(r, object, belongings[i].field, belongings[i].action,
				belongings[i].reason);
	if (request_given(r, "graph") && request_given(r, "scalars"))
		return misfit(r, object, "scalars", "give them to each launch of the graph",
			"\"scalars\" are of one launch; this is a graph");
	return 0;
}

static int check_sessions(const struct request_read *r, const struct json_value *object)
{
	if (!r->request->session || !r->request->inputs)
		return 0;
	return fault_at(r->f, -EOPNOTSUPP, "session",
		(long)json_offset(json_member(object, "session")), "leave it out",
		"tensors have no sessions");
}

/* Only callables leave it to the request how large an output is. */
static int check_shapes(const struct request_read *r, const struct json_value *object)
{
	const struct request *q = r->request;

	for (size_t i = 0; q->outputs && q->outputs[i] && !q->launches; i++)
		if (q->output_shapes[i].rank != REQUEST_NO_SHAPE)
			return misfit(r, object, "outputs", "give the name alone",
				"a model's outputs have the shapes of models/ALIAS/schema");
	return 0;
}

int request_settle(struct request_read *r, const struct json_value *object)
{
	bool callables = r->request->n_launches != 0;
	bool tensors = r->request->inputs != NULL || callables;
	int err = check_belongings(r, object);

	if (!err)
		err = check_sessions(r, object);
	if (!err)
		err = check_shapes(r, object);
	if (!err)
		err = tensors ? check_tensors(r, object) : check_text(r, object);
	if (!err && !r->output && callables)
		r->request->output = REQUEST_JSON;
	else if (!err && !r->output && tensors)
		request_set_shape(r->request, ANSWER_KSERVE);
	else if (!err && !r->output && r->openai)
		request_set_shape(r->request, ANSWER_OPENAI);
	return err;
}
