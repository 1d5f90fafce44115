/* The .npy format of NumPy (NEP 1): one tensor with its type and shape. Taken are versions 1.0, 2.0
 * and 3.0 with the types of core/tensor.h, little-endian, in C order; written is 1.0. */
#ifndef NPUFS_CORE_NPY_H
#define NPUFS_CORE_NPY_H

#include <stddef.h>

#include "core/base/buf.h"
#include "core/base/fault.h"
#include "core/tensor.h"

/* A whole file: the tensor (without a name), and where its tensor_bytes() begin, which end the
 * file. -EINVAL for what is no such file, -ERANGE for a shape that cannot be, -EOPNOTSUPP for one
 * that is not taken; the fault's offset is that in the file. */
int npy_parse(const void *bytes, size_t len, struct tensor_spec *ret, size_t *ret_data,
	struct fault *f);

/* Append a file. `t` is a valid tensor, `data` tensor_bytes(t) of it. */
void npy_write(const struct tensor_spec *t, const void *data, struct buf *out);

#endif
