/* One request as written into jobs/: parsed and checked, independent of any file.
 * Fields are a table in request.def, which the README's table and the unknown-field message come
 * from (design 2). */
#ifndef NPUFS_CORE_JOB_REQUEST_H
#define NPUFS_CORE_JOB_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/fault.h"
#include "core/base/json.h"
#include "core/callable/limits.h"
#include "core/engine/sampler.h"
#include "core/job/answer.h"
#include "core/tensor.h"

#define REQUEST_MAX_STOPS       16
#define REQUEST_MAX_STOP_BYTES  256
#define REQUEST_MAX_INPUTS      64
#define REQUEST_MAX_OUTPUTS     64
#define REQUEST_ID_MAX          128
#define REQUEST_MAX_NEW_TOKENS  (1 << 20)
#define REQUEST_MAX_LAUNCHES    64
#define REQUEST_MAX_REPEAT      1000000
#define REQUEST_MAX_DEADLINE_MS (7LL * 24 * 3600 * 1000)

enum request_output {
	REQUEST_TEXT,
	REQUEST_JSON, /* a document of the shape; of tensors always KServe's */
	REQUEST_NPY,  /* one output tensor as a .npy file */
	REQUEST_RAW   /* its bytes alone */
};

struct request_tensor {
	struct tensor_spec spec;
	bool shape_given; /* else, and with no dtype, only the .npy file tells: request_attach() */
	char *file; /* the plain name of a file beside the request; NULL: the data was inline */
	void *data; /* little-endian, C order, tensor_bytes(&spec) of them; NULL: not attached */
};

/* A number as it was written; the callable's signature says what it becomes. */
struct request_scalar {
	bool integer; /* `whole` has it exactly */
	int64_t whole;
	double real;
};

/* One launch of a resident callable. */
struct request_launch {
	char *callable; /* its name; NULL: `id` */
	int32_t id;
	char **tensors; /* the request's, in the order of the signature, NULL-ended; NULL: by the
			 * signature's own names */
	struct request_scalar scalars[CALLABLE_SCALARS_MAX];
	uint32_t n_scalars;
};

#define REQUEST_NO_SHAPE UINT32_MAX /* the rank of an output whose shape was not given */

struct request {
	char *model;  /* alias; NULL = the default model */
	char *prompt; /* UTF-8; NULL when tokens or inputs are given */
	size_t prompt_len;
	int32_t *tokens;
	size_t n_tokens;
	struct request_tensor *inputs;
	size_t n_inputs;
	char **outputs; /* which output tensors, in this order; NULL-ended, or NULL for all */
	struct tensor_spec *output_shapes; /* of each; without name and dtype */
	struct request_launch *launches;   /* of callables; NULL: the request is for a model */
	size_t n_launches;
	bool graph;             /* they were given as one */
	int64_t repeat;         /* 1..REQUEST_MAX_REPEAT; how often the launches are made */
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
	enum answer_shape shape;
	char *request_id; /* "" when not given */
	char *session;    /* a valid name; NULL: none */
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

/* STEM.json: an object of the fields of request.def, or the body of an OpenAI completion or of a
 * KServe v2 infer request: its shape is what "output" says; without it ANSWER_OPENAI when there is a
 * field that only OpenAI has, ANSWER_KSERVE when there are inputs. -EINVAL, -EILSEQ for bytes that are not UTF-8,
 * -ERANGE for a number outside its range, -EOPNOTSUPP for what is known but not offered (float16
 * data, a session for tensors), -ENOMEM; each with field, offset of the value, reason and action. */
int request_from_json(const char *text, size_t len, struct request **ret, struct fault *f);
int request_from_value(const struct json_value *object, struct request **ret, struct fault *f);

/* For a body that has a shape by where it stands. ANSWER_OWN leaves the output as it was asked. */
void request_set_shape(struct request *r, enum answer_shape shape);

/* The content of r->inputs[input].file: a .npy file, or the bytes of the given shape and datatype.
 * -EINVAL, -ERANGE or -EOPNOTSUPP with the place in the file; what the request and the file say must
 * agree, and numbers be finite as in JSON. */
int request_attach(struct request *r, size_t input, const void *bytes, size_t len, struct fault *f);

void request_free(struct request *r); /* NULL is fine */

#endif
