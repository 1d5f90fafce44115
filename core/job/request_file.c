/* Tensors from files beside the request. What the file says must be what the request says, where
 * the request says anything; whether the model takes it is asked later, as of inline data. Numbers
 * that JSON cannot write are refused here too, so that a result that is not finite is never the
 * request's doing. */
#include "core/job/request_read.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/mem.h"
#include "core/job/jobname.h"
#include "core/npy.h"

const char *request_file_refusal(const char *name)
{
	struct jobname n;

	if (name[0] == '\0')
		return "is empty";
	if (strchr(name, '/'))
		return "has a \"/\"; only files of the request's own folder can be named";
	if (name[0] == '.')
		return "begins with a dot";
	switch (jobname_parse(name, &n)) {
	case 0:
		return n.class == NAME_INERT ? NULL : "is a name of requests or results";
	case -ENAMETOOLONG:
		return "has more than 255 bytes";
	default:
		return "has control characters";
	}
}

bool request_file_is_npy(const char *name)
{
	const char *dot = strrchr(name, '.');

	return dot && strcmp(dot, ".npy") == 0;
}

/* --- the values ------------------------------------------------------------------------------- */

static bool real_is_finite(enum dtype t, const unsigned char *p)
{
	float f;
	double d;

	if (t == DTYPE_FLOAT16)
		return (p[1] & 0x7c) != 0x7c;
	if (t == DTYPE_FLOAT32) {
		memcpy(&f, p, sizeof f);
		return isfinite(f);
	}
	memcpy(&d, p, sizeof d);
	return isfinite(d);
}

/* The index of the first element that JSON could not have given, or -1. */
static int64_t first_bad(const struct tensor_spec *spec, const unsigned char *p)
{
	int64_t n = tensor_elements(spec);
	size_t size = dtype_size(spec->dtype);

	for (int64_t i = 0; i < n; i++, p += size) {
		switch (spec->dtype) {
		case DTYPE_BOOL:
			if (*p > 1)
				return i;
			break;
		case DTYPE_FLOAT16:
		case DTYPE_FLOAT32:
		case DTYPE_FLOAT64:
			if (!real_is_finite(spec->dtype, p))
				return i;
			break;
		default:
			return -1;
		}
	}
	return -1;
}

/* --- attaching -------------------------------------------------------------------------------- */

struct attachment {
	struct request_tensor *tensor;
	char field[48];
	struct tensor_spec spec; /* the file's */
	const unsigned char *data;
	struct fault *f;
};

/* A fault of the file's, whose offset is not one of the request. */
static int in_file(const struct attachment *a, const struct fault *inner)
{
	return fault_at(a->f, inner->err, a->field, -1, inner->action, "\"%.60s\", byte %ld: %s",
		a->tensor->file, inner->offset, inner->reason);
}

static int open_npy(struct attachment *a, const void *bytes, size_t len)
{
	const struct tensor_spec *said = &a->tensor->spec;
	struct tensor_spec found;
	char have[TENSOR_TEXT_SIZE], want[TENSOR_TEXT_SIZE];
	struct fault inner = FAULT_NONE;
	size_t start;

	if (npy_parse(bytes, len, &found, &start, &inner))
		return in_file(a, &inner);
	a->spec = found;
	memcpy(a->spec.name, said->name, sizeof a->spec.name);
	a->data = (const unsigned char *)bytes + start;
	if (said->dtype != DTYPE_INVALID && said->dtype != found.dtype)
		return fault_at(a->f, -EINVAL, a->field, -1, "make them agree, or leave it out",
			"\"%.60s\" holds %s; the request's \"datatype\" is %s", a->tensor->file,
			tensor_text(&found, have), dtype_kserve(said->dtype));
	if (!a->tensor->shape_given || tensor_same_shape(said, &found))
		return 0;
	a->spec = *said;
	a->spec.dtype = found.dtype;
	return fault_at(a->f, -EINVAL, a->field, -1, "make them agree, or leave it out",
		"\"%.60s\" holds %s; the request's \"shape\" makes it %s", a->tensor->file,
		tensor_text(&found, have), tensor_text(&a->spec, want));
}

static int open_raw(struct attachment *a, const void *bytes, size_t len)
{
	char text[TENSOR_TEXT_SIZE];
	int64_t want = tensor_bytes(&a->tensor->spec);

	a->spec = a->tensor->spec;
	a->data = bytes;
	if (want >= 0 && (uint64_t)want == len)
		return 0;
	if (want < 0)
		return fault_at(a->f, -ERANGE, a->field, -1, "give the shape of the file",
			"%s has more bytes than 64 bits can count", tensor_text(&a->spec, text));
	return fault_at(a->f, -EINVAL, a->field, -1, "make file, shape and datatype agree",
		"\"%.60s\" has %zu bytes; %s takes %" PRId64, a->tensor->file, len,
		tensor_text(&a->spec, text), want);
}

static int check_values(const struct attachment *a)
{
	int64_t bad = first_bad(&a->spec, a->data);

	if (bad < 0)
		return 0;
	return fault_at(a->f, -EINVAL, a->field, -1, "correct the file",
		"\"%.60s\": element %" PRId64 " is %s", a->tensor->file, bad,
		a->spec.dtype == DTYPE_BOOL ? "neither 0 nor 1" : "no finite number");
}

int request_attach(struct request *r, size_t input, const void *bytes, size_t len, struct fault *f)
{
	struct attachment a = { .tensor = &r->inputs[input], .f = f };
	size_t size;
	void *copy;
	int err;

	snprintf(a.field, sizeof a.field, "inputs[%zu].file", input);
	err = request_file_is_npy(a.tensor->file) ? open_npy(&a, bytes, len)
						  : open_raw(&a, bytes, len);
	if (!err)
		err = check_values(&a);
	if (err)
		return err;
	size = (size_t)tensor_bytes(&a.spec);
	copy = malloc(size + 1);
	if (!copy)
		return request_no_memory(f);
	memcpy(copy, a.data, size);
	free(a.tensor->data);
	a.tensor->data = copy;
	a.tensor->spec = a.spec;
	a.tensor->shape_given = true;
	return 0;
}
