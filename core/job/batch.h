/* One line of a batch: what it asks, and how it is answered. A line is a request in this project's
 * fields, with an optional "custom_id", or a line of OpenAI's batches:
 *     {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": ...}}
 * and its answer is one line of the same kind:
 *     {"custom_id":"a","line":1,"response":{...},"error":null}
 *     {"id":"batch_req_...","custom_id":"a","response":{"status_code":200,"request_id":"req_...",
 *      "body":{...}},"error":null}
 * A line that failed has null as its response, and as its error {errno, name, field, offset, reason,
 * action} or, of OpenAI's kind, {code, message}. */
#ifndef NPUFS_CORE_JOB_BATCH_H
#define NPUFS_CORE_JOB_BATCH_H

#include "core/job/batch_ids.h"
#include "core/job/batch_lines.h"

#define BATCH_LINES_MAX 1000000 /* lines of one batch, blank ones counted */

/* What is known of a line. Zeroed (with the openai flag of the line before) before batch_parse(),
 * which fills it in as far as the line can be understood: an error is answered from it too. */
struct batch_entry {
	uint64_t number;
	char *custom_id; /* NULL: none */
	bool openai;
	struct request *request; /* NULL after an error */
};

/* Parse a line that is not blank. `model` is the one that the batch is for: a line may name it or
 * none; NULL takes every name. The id is remembered in `ids` (NULL: it is not), also of a line that
 * is refused; an earlier line with the same id is an error. Errors are those of
 * request_from_json(); offsets are in the line. */
int batch_parse(const struct batch_line *line, const char *model, struct batch_ids *ids,
	struct batch_entry *e, struct fault *f);
void batch_entry_done(struct batch_entry *e);

/* Only remember the id of a line that was answered earlier, and set the openai flag that the next line
 * begins with. 0 or -ENOMEM. */
int batch_pass(const struct batch_line *line, struct batch_ids *ids, bool *openai);

/* Append the line's answer: `document` is the JSON text that the request gave. 0, -ENOMEM, or -EIO
 * for a document that is not JSON, with nothing appended. */
int batch_answer(const struct batch_entry *e, const struct buf *document, struct buf *out);
int batch_answer_error(const struct batch_entry *e, const struct fault *why, struct buf *out);

/* Of a line that those two appended: was it answered well? */
bool batch_is_answer(const char *line, size_t len);

/* Put "line N: " in front of the reason. */
void batch_name_line(uint64_t number, struct fault *f);

/* The model that the first good line of the bytes names, to be freed; NULL: the default one.
 * -ENOENT when no whole line of them is good, -ENOMEM. */
int batch_first_model(const char *bytes, size_t len, char **ret);

#endif
