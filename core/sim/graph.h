/* A small operator graph over float32 tensors, from its description in program.json (program.h).
 *
 *   op         reads
 *   linear     input, weight [out, in] (F32, or I8 with "<weight>_scale"), bias [out] if named
 *                               [..., in] gives [..., out]
 *   add, mul   input, other     other is a value or F32 weight of input's shape, or a weight
 *                               [last axis]
 *   relu, gelu, sigmoid, tanh   each element; gelu is the exact one, by erf
 *   softmax    input            along the last axis
 *   layernorm  input, weight, bias [last axis], eps
 *
 * Shapes are checked and all memory is made at load; running allocates
 * nothing and cannot fail, except that it makes memory when more run at once than ever before. */
#ifndef NPUFS_CORE_SIM_GRAPH_H
#define NPUFS_CORE_SIM_GRAPH_H

#include "core/sim/kernels.h"
#include "core/sim/program.h"

struct sim_graph;

/* `desc` is not needed afterwards. NPU_INVALID_CALBIN for an unknown operator, a value or weight
 * that does not exist or a member that the operator does not take; NPU_INVALID_DATA_TYPE,
 * NPU_INVALID_DATA_SHAPE. */
enum npu_error sim_graph_new(const struct sim_graph_desc *desc, const struct safetensors *weights,
	const struct kernels *kernels, struct sim_graph **ret);
void sim_graph_free(struct sim_graph *g); /* NULL is fine */

/* inputs[i], outputs[i]: whole tensors in the description's order, aligned for float. Several
 * threads may run a graph. */
enum npu_error sim_graph_run(struct sim_graph *g, const void *const *inputs, void *const *outputs);

#endif
