/* One request as written into jobs/: parsed and checked, independent of any file.
 * Fields are a table in request.def, which the README's table and the unknown-field message come
 * from (design 2). */
#ifndef NPUFS_CORE_REQUEST_H
#define NPUFS_CORE_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/fault.h"
#include "core/json.h"
#include "core/sampler.h"
#include "core/tensor.h"

#define REQUEST_MAX_STOPS       16
#define REQUEST_MAX_STOP_BYTES  256
#define REQUEST_MAX_INPUTS      64
#define REQUEST_ID_MAX          128
#define REQUEST_MAX_NEW_TOKENS  (1 << 20)
#define REQUEST_MAX_DEADLINE_MS (7LL * 24 * 3600 * 1000)

enum request_output { REQUEST_TEXT, REQUEST_JSON };

struct request_tensor {
	struct tensor_spec spec;
	void *data; /* little-endian, C order, tensor_bytes(&spec) of them */
};

struct request {
	char *model;  /* alias; NULL = the default model */
	char *prompt; /* UTF-8; NULL when tokens or inputs are given */
	size_t prompt_len;
	int32_t *tokens;
	size_t n_tokens;
	struct request_tensor *inputs;
	size_t n_inputs;
	int64_t max_new_tokens; /* -1: the model's default */
	struct sampling sampling;
	bool seed_given, temperature_given; /* otherwise random, the model's default */
	char **stops;                       /* NULL-ended, or NULL */
	int64_t deadline_ms;                /* 0: none */
	int32_t priority;                   /* -100..100, larger first; 0 */
	bool stream;                        /* list STEM.stream */
	bool echo;                          /* the prompt's text in front of the output */
	bool output_given;
	enum request_output output;
	char *request_id; /* "" when not given */
};

/* One field of a structured request, for the documents. */
struct request_field {
	const char *name;
	const char *type; /* "string", "integer 1..1048576", ... */
	const char *doc;  /* one line */
};
const struct request_field *request_fields(size_t *ret_n);

/* STEM.txt: the bytes are the prompt, UTF-8 without NUL; a byte order mark at the start and exactly
 * one final line end (LF or CRLF) are dropped, nothing else. An empty prompt is -EINVAL. */
int request_from_text(const char *text, size_t len, struct request **ret, struct fault *f);

/* STEM.json: an object of the fields of request.def. -EINVAL, -EILSEQ for bytes that are not UTF-8,
 * -ERANGE for a number outside its range, -EOPNOTSUPP for what is known but not offered (`session`,
 * float16 data), -ENOMEM; each with field, offset of the value, reason and action. */
int request_from_json(const char *text, size_t len, struct request **ret, struct fault *f);
int request_from_value(const struct json_value *object, struct request **ret, struct fault *f);

void request_free(struct request *r); /* NULL is fine */

#endif
