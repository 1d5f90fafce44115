#include "core/job/request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/mem.h"
#include "core/base/utf8.h"
#include "core/job/request_read.h"

void request_free_texts(char **texts)
{
	for (char **text = texts; text && *text; text++)
		free(*text);
	free(texts);
}

void request_free(struct request *r)
{
	if (!r)
		return;
	free(r->model);
	free(r->prompt);
	free(r->tokens);
	for (size_t i = 0; i < r->n_inputs; i++) {
		free(r->inputs[i].file);
		free(r->inputs[i].data);
	}
	free(r->inputs);
	request_free_texts(r->outputs);
	free(r->output_shapes);
	request_free_launches(r);
	request_free_texts(r->stops);
	free(r->request_id);
	free(r->session);
	free(r);
}

static struct request *request_new(void)
{
	struct request *r = calloc(1, sizeof *r);

	if (!r)
		return NULL;
	r->max_new_tokens = -1;
	r->repeat = 1;
	r->sampling = (struct sampling){ .temperature = 1, .top_p = 1, .repeat_penalty = 1 };
	r->request_id = strdup("");
	if (!r->request_id) {
		request_free(r);
		return NULL;
	}
	return r;
}

/* --- text ------------------------------------------------------------------------------------- */

static int check_text(const char *text, size_t len, struct fault *f)
{
	const char *encoding = utf8_other_encoding(text, len);
	const char *nul = len ? memchr(text, '\0', len) : NULL;
	size_t good = utf8_valid_prefix(text, len);

	if (encoding)
		return fault_at(f, -EILSEQ, "prompt", 0, "write UTF-8", "the text looks like %s",
			encoding);
	if (good < len)
		return fault_at(f, -EILSEQ, "prompt", (long)good, "write UTF-8",
			"the prompt is not UTF-8");
	if (nul)
		return fault_at(f, -EINVAL, "prompt", (long)(nul - text), "write text",
			"the prompt has a NUL byte");
	return 0;
}

/* What remains without a byte order mark and one line end. */
static const char *trimmed(const char *text, size_t *len)
{
	if (*len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
		text += 3;
		*len -= 3;
	}
	if (*len && text[*len - 1] == '\n') {
		(*len)--;
		if (*len && text[*len - 1] == '\r')
			(*len)--;
	}
	return text;
}

int request_from_text(const char *text, size_t len, struct request **ret, struct fault *f)
{
	struct request *r;
	int err = check_text(text, len, f);

	if (err)
		return err;
	text = trimmed(text, &len);
	if (len == 0)
		return fault_at(f, -EINVAL, "prompt", 0, "write a prompt", "the prompt is empty");
	r = request_new();
	if (!r)
		return request_no_memory(f);
	r->prompt = strndup(text, len);
	r->prompt_len = len;
	if (!r->prompt) {
		request_free(r);
		return request_no_memory(f);
	}
	*ret = r;
	return 0;
}

/* --- JSON ------------------------------------------------------------------------------------- */

int request_from_value(const struct json_value *object, struct request **ret, struct fault *f)
{
	struct request_read r = { .f = f };
	int err;

	if (json_type(object) != JSON_OBJECT)
		return fault_at(f, -EINVAL, NULL, (long)json_offset(object),
			"write {\"prompt\": \"...\"}", "the request is %s, must be an object",
			json_type_name(json_type(object)));
	r.request = request_new();
	if (!r.request)
		return request_no_memory(f);
	err = request_read_fields(&r, object);
	if (!err)
		err = request_settle(&r, object);
	if (err) {
		request_free(r.request);
		return err;
	}
	*ret = r.request;
	return 0;
}

int request_from_json(const char *text, size_t len, struct request **ret, struct fault *f)
{
	struct json_value *root;
	int err = json_parse(text, len, &root, f);

	if (err)
		return err;
	err = request_from_value(root, ret, f);
	json_free(root);
	return err;
}
