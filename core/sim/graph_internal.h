/* What a graph (graph.c) and its operators (graph_ops.c) share. */
#ifndef NPUFS_CORE_SIM_GRAPH_INTERNAL_H
#define NPUFS_CORE_SIM_GRAPH_INTERNAL_H

#include "core/sim/graph.h"
#include "core/sim/lanes.h"

struct graph_value {
	char name[SIM_NAME_MAX + 1];
	struct tensor_spec shape; /* its name is not used */
	size_t at;                /* in a lane's arena; set once all values are known */
};

struct graph_node {
	const struct graph_op *op;
	struct graph_value *input, *other, *output;
	size_t rows, cols; /* of the input: elements of the last axis, and how often */
	struct matrix weight;
	float *vector;        /* add, mul with a weight; layernorm's weight */
	size_t vector_length; /* it repeats */
	float *bias;
	float eps;
};

/* What one inference computes with. */
struct graph_lane {
	struct lane link;
	float *arena; /* every value */
	float *row;   /* a padded row of the widest input */
};

static inline float *graph_data(const struct graph_value *v, const struct graph_lane *lane)
{
	return lane->arena + v->at;
}

struct graph_op {
	const char *name;
	bool other, weight, bias, bias_optional, eps; /* the members it takes */
	/* Check shapes, load weights, set the output's shape (which starts as the input's). */
	enum npu_error (*check)(struct graph_node *n, const struct sim_node *desc,
		const struct safetensors *weights);
	void (*run)(const struct graph_node *n, const struct kernels *k,
		const struct graph_lane *lane);
};

const struct graph_op *graph_op(const char *name); /* NULL: unknown */

#endif
