/* The form in which a request is answered: .out when it is done, and the error object when it is
 * not. Who sends the body of an OpenAI completion or a KServe v2 infer request gets the answer that
 * clients of those expect. */
#ifndef NPUFS_CORE_JOB_ANSWER_H
#define NPUFS_CORE_JOB_ANSWER_H

#include "core/base/buf.h"
#include "core/base/fault.h"
#include "core/base/json.h"

enum answer_shape {
	ANSWER_OWN,    /* .out is text, or a document of this project; .err is "key: value" lines */
	ANSWER_OPENAI, /* {"object": "text_completion", "choices": [...]}; {"error": {...}} */
	ANSWER_KSERVE  /* {"model_name": ..., "outputs": [...]}; {"error": "..."} */
};

/* The error object of a shape, as a value of its own; ANSWER_OWN: {"error": {errno, name, field,
 * offset, reason, action}}, for a batch's line. NULL: no memory. */
struct json_value *answer_error(enum answer_shape shape, const struct fault *f);

/* Append the text of .err: that object as a document, or of ANSWER_OWN the "key: value" lines. */
void answer_render_error(enum answer_shape shape, const struct fault *f, struct buf *out);

/* The HTTP status that says the same as an errno: 400, 404, 408, 413, 429, 500, 503, 507. */
int answer_http_status(int err);

#endif
