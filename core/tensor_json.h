/* Tensor descriptions as JSON: the one spelling of name, type and shape in everything this project
 * writes. */
#ifndef NPUFS_CORE_TENSOR_JSON_H
#define NPUFS_CORE_TENSOR_JSON_H

#include "core/base/json.h"
#include "core/tensor.h"

/* Adds name, datatype (KServe v2's spelling) and shape to an object. */
void tensor_json_describe(struct json_value *object, const struct tensor_spec *t);
/* Adds an array of such objects. */
void tensor_json_list(struct json_value *object, const char *key, const struct tensor_spec *t,
	size_t n);
/* Adds "data": the elements in C order as a flat array; float16 as its 16 bits. */
void tensor_json_data(struct json_value *object, const struct tensor_spec *t, const void *data);

/* Adds an object with all of that to an array. */
void tensor_json_add(struct json_value *array, const struct tensor_spec *t, const void *data);

#endif
