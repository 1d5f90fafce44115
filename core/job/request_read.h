/* What the parts of the request parser share; for request*.c only. */
#ifndef NPUFS_CORE_JOB_REQUEST_READ_H
#define NPUFS_CORE_JOB_REQUEST_READ_H

#include <stdint.h>

#include "core/job/request.h"

struct request_read {
	struct request *request;
	struct fault *f;
	uint64_t given;     /* bit i: row i of the table, or another name of it */
	bool openai;        /* a field that only OpenAI has, be it null */
	const char *output; /* the word that was given */
};

/* Read every member of `object`, in the order of the text, and stop at the first that is wrong. */
int request_read_fields(struct request_read *r, const struct json_value *object);

/* A field of ours has a value. */
bool request_given(const struct request_read *r, const char *name);
/* The member with that value, be it under another name; NULL when none has it. */
const struct json_value *request_member(const struct json_value *object, const char *name);

/* With all fields read: the shape of the answer, and whether what is asked fits the subject. */
int request_settle(struct request_read *r, const struct json_value *object);
/* "output": false for a word that is none of its. */
bool request_take_output(struct request_read *r, const char *word);

/* "; did you mean \"NAME\"?" when one of `names` is near, else "". */
#define REQUEST_HINT_SIZE 80
const char *request_hint(const char *given, const char *const *names, char ret[REQUEST_HINT_SIZE]);

/* Refuse `v`: "FIELD" is V, must be a(n) TYPE. V is the number's text or the name of its type.
 * Returns err. */
int request_must_be(struct fault *f, int err, const char *field, const struct json_value *v,
	const char *type);
/* The same without V: for a value of the right type that is not one of those taken. -EINVAL. */
int request_not_one_of(struct fault *f, const char *field, const struct json_value *v,
	const char *type);

/* Refuse `v`, of which only a value that asks nothing is taken. -EINVAL. */
int request_can_only_be(struct fault *f, const char *field, const struct json_value *v,
	const char *value, const char *action);

int request_no_memory(struct fault *f);

/* `inputs`: an array of tensors. */
int request_read_inputs(struct request_read *r, const char *field, const struct json_value *v);

/* `outputs`: which tensors of the model are wanted. */
int request_read_outputs(struct request_read *r, const char *field, const struct json_value *v);

/* `shape` of a tensor, into rank and dims of `ret`. */
int request_read_shape(struct fault *f, const char *field, const struct json_value *v,
	struct tensor_spec *ret);

/* `callable` and `scalars` of a request that is one launch, and `graph`. */
int request_read_callable(struct request_read *r, const struct json_value *v);
int request_read_scalars(struct request_read *r, const struct json_value *v);
int request_read_graph(struct request_read *r, const char *field, const struct json_value *v);
void request_free_launches(struct request *r);
void request_free_texts(char **texts); /* NULL-ended; NULL is fine */

/* KServe's `parameters`, of a request or of one of its tensors: those that ask nothing are passed
 * over. `field` is their place. */
enum parameter_place { PARAMETER_OF_REQUEST = 1, PARAMETER_OF_INPUT = 2, PARAMETER_OF_OUTPUT = 4 };
int request_check_parameters(struct fault *f, enum parameter_place place, const char *field,
	const struct json_value *v);

/* Why a file of this name cannot be an input, or NULL when it can. */
const char *request_file_refusal(const char *name);
bool request_file_is_npy(const char *name);

#endif
