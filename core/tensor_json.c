#include "core/tensor_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "core/base/buf.h"
#include "core/base/decimal.h"

static const char *integer(int64_t n, char ret[DECIMAL_TEXT_SIZE])
{
	snprintf(ret, DECIMAL_TEXT_SIZE, "%" PRId64, n);
	return ret;
}

static const char *element(enum dtype t, const void *data, size_t i, char ret[DECIMAL_TEXT_SIZE])
{
	switch (t) {
	case DTYPE_BOOL:
		return ((const uint8_t *)data)[i] ? "true" : "false";
	case DTYPE_INT8:
		return integer(((const int8_t *)data)[i], ret);
	case DTYPE_UINT8:
		return integer(((const uint8_t *)data)[i], ret);
	case DTYPE_INT16:
		return integer(((const int16_t *)data)[i], ret);
	case DTYPE_UINT16:
	case DTYPE_FLOAT16: /* its bits: JSON has no half */
		return integer(((const uint16_t *)data)[i], ret);
	case DTYPE_INT32:
		return integer(((const int32_t *)data)[i], ret);
	case DTYPE_UINT32:
		return integer(((const uint32_t *)data)[i], ret);
	case DTYPE_INT64:
		return integer(((const int64_t *)data)[i], ret);
	case DTYPE_UINT64:
		snprintf(ret, DECIMAL_TEXT_SIZE, "%" PRIu64, ((const uint64_t *)data)[i]);
		return ret;
	case DTYPE_FLOAT32:
		return isfinite(((const float *)data)[i])
			? decimal_from_float(((const float *)data)[i], ret)
			: "null";
	case DTYPE_FLOAT64:
		return isfinite(((const double *)data)[i])
			? decimal_from_double(((const double *)data)[i], ret)
			: "null";
	case DTYPE_INVALID:
	case DTYPE_COUNT:
		break;
	}
	return "null";
}

void tensor_json_describe(struct json_value *object, const struct tensor_spec *t)
{
	struct json_value *shape;

	json_add_string(object, "name", t->name);
	json_add_string(object, "datatype", dtype_kserve(t->dtype));
	shape = json_add_array(object, "shape");
	for (uint32_t d = 0; d < t->rank; d++)
		json_add_int(shape, NULL, t->dims[d]);
}

void tensor_json_list(struct json_value *object, const char *key, const struct tensor_spec *t,
	size_t n)
{
	struct json_value *list = json_add_array(object, key);

	for (size_t i = 0; i < n; i++)
		tensor_json_describe(json_add_object(list, NULL), &t[i]);
}

/* As text: a tree would take some hundred bytes for each. */
void tensor_json_data(struct json_value *object, const struct tensor_spec *t, const void *data)
{
	AUTO_BUF struct buf values = BUF_INIT;
	size_t n = (size_t)tensor_elements(t);
	char text[DECIMAL_TEXT_SIZE];

	buf_puts(&values, "[");
	for (size_t i = 0; i < n; i++) {
		buf_puts(&values, i ? ", " : "");
		buf_puts(&values, element(t->dtype, data, i, text));
	}
	buf_puts(&values, "]");
	json_add_text(object, "data", buf_error(&values) ? NULL : buf_text(&values));
}

void tensor_json_add(struct json_value *array, const struct tensor_spec *t, const void *data)
{
	struct json_value *object = json_add_object(array, NULL);

	tensor_json_describe(object, t);
	tensor_json_data(object, t, data);
}
