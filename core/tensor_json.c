#include "core/tensor_json.h"

static void add_element(struct json_value *to, enum dtype t, const void *data, size_t i)
{
	switch (t) {
	case DTYPE_BOOL:
		json_add_bool(to, NULL, ((const uint8_t *)data)[i] != 0);
		break;
	case DTYPE_INT8:
		json_add_int(to, NULL, ((const int8_t *)data)[i]);
		break;
	case DTYPE_UINT8:
		json_add_uint(to, NULL, ((const uint8_t *)data)[i]);
		break;
	case DTYPE_INT16:
		json_add_int(to, NULL, ((const int16_t *)data)[i]);
		break;
	case DTYPE_UINT16:
	case DTYPE_FLOAT16: /* its bits: JSON has no half */
		json_add_uint(to, NULL, ((const uint16_t *)data)[i]);
		break;
	case DTYPE_INT32:
		json_add_int(to, NULL, ((const int32_t *)data)[i]);
		break;
	case DTYPE_UINT32:
		json_add_uint(to, NULL, ((const uint32_t *)data)[i]);
		break;
	case DTYPE_INT64:
		json_add_int(to, NULL, ((const int64_t *)data)[i]);
		break;
	case DTYPE_UINT64:
		json_add_uint(to, NULL, ((const uint64_t *)data)[i]);
		break;
	case DTYPE_FLOAT32:
		json_add_float(to, NULL, ((const float *)data)[i]);
		break;
	case DTYPE_FLOAT64:
		json_add_double(to, NULL, ((const double *)data)[i]);
		break;
	case DTYPE_INVALID:
	case DTYPE_COUNT:
		break;
	}
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

void tensor_json_data(struct json_value *object, const struct tensor_spec *t, const void *data)
{
	struct json_value *values = json_add_array(object, "data");
	size_t n = (size_t)tensor_elements(t);

	for (size_t i = 0; i < n; i++)
		add_element(values, t->dtype, data, i);
}

void tensor_json_add(struct json_value *array, const struct tensor_spec *t, const void *data)
{
	struct json_value *object = json_add_object(array, NULL);

	tensor_json_describe(object, t);
	tensor_json_data(object, t, data);
}
