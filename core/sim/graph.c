/* Building: values are the graph's inputs and one output a node, in the order they come to be, so a
 * node can only read what exists before it. When all shapes are known, a lane can be made: one
 * arena with every value. Each inference has a lane of its own. */
#include "core/sim/graph.h"

#include <stdlib.h>
#include <string.h>

#include "core/sim/graph_internal.h"

struct sim_graph {
	const struct kernels *kernels;
	struct graph_value *values; /* inputs, then a node's output each */
	size_t n_values, n_inputs;
	struct graph_node *nodes;
	size_t n_nodes;
	struct graph_value **outputs;
	size_t n_outputs;
	size_t floats, row; /* of a lane */
	struct lanes lanes;
};

static struct graph_value *find_value(const struct sim_graph *g, const char *name)
{
	for (size_t i = 0; i < g->n_values; i++)
		if (strcmp(g->values[i].name, name) == 0)
			return &g->values[i];
	return NULL;
}

static enum npu_error add_value(struct sim_graph *g, const char *name,
	const struct tensor_spec *shape, struct graph_value **ret)
{
	struct graph_value *v = &g->values[g->n_values];

	if (name[0] == '\0' || strlen(name) > SIM_NAME_MAX || find_value(g, name))
		return NPU_INVALID_CALBIN;
	strcpy(v->name, name);
	v->shape = *shape;
	g->n_values++;
	if (ret)
		*ret = v;
	return NPU_SUCCESS;
}

static bool takes_members(const struct graph_op *op, const struct sim_node *d)
{
	bool bias = d->bias ? op->bias : !op->bias || op->bias_optional;

	return bias && !d->other == !op->other && !d->weight == !op->weight &&
		(op->eps || d->eps == 0);
}

static enum npu_error add_node(struct sim_graph *g, const struct sim_node *desc,
	const struct safetensors *weights)
{
	struct graph_node *n = &g->nodes[g->n_nodes++];
	enum npu_error code;

	n->op = graph_op(desc->op);
	n->input = find_value(g, desc->input);
	if (!n->op || !n->input || !takes_members(n->op, desc))
		return NPU_INVALID_CALBIN;
	n->other = desc->other ? find_value(g, desc->other) : NULL;
	n->cols = (size_t)n->input->shape.dims[n->input->shape.rank - 1];
	n->rows = (size_t)tensor_elements(&n->input->shape) / n->cols;
	if (n->rows > INT32_MAX)
		return NPU_INVALID_DATA_SHAPE;
	code = add_value(g, desc->output, &n->input->shape, &n->output);
	if (code == NPU_SUCCESS)
		code = n->op->check(n, desc, weights);
	if (code == NPU_SUCCESS && tensor_bytes(&n->output->shape) < 0)
		code = NPU_INVALID_DATA_SHAPE;
	return code;
}

static enum npu_error bind_outputs(struct sim_graph *g, const struct sim_graph_desc *desc)
{
	for (size_t i = 0; i < desc->n_outputs; i++) {
		struct graph_value *v = find_value(g, desc->outputs[i].name);

		if (!v)
			return NPU_INVALID_CALBIN;
		if (!tensor_same_shape(&v->shape, &desc->outputs[i]))
			return NPU_INVALID_DATA_SHAPE;
		g->outputs[g->n_outputs++] = v;
	}
	return NPU_SUCCESS;
}

/* --- lanes ------------------------------------------------------------------------------------ */

static void lane_free(struct graph_lane *lane)
{
	free(lane->arena);
	free(lane->row);
	free(lane);
}

static struct graph_lane *lane_new(const struct sim_graph *g)
{
	struct graph_lane *lane = calloc(1, sizeof(*lane));

	if (!lane)
		return NULL;
	lane->arena = matrix_floats(g->floats);
	lane->row = matrix_floats(g->row);
	if (lane->arena && lane->row)
		return lane;
	lane_free(lane);
	return NULL;
}

/* The first lane is made at load, so that one inference at a time needs no memory. */
static enum npu_error make_first_lane(struct sim_graph *g)
{
	struct graph_lane *lane;

	for (size_t i = 0; i < g->n_values; i++) {
		size_t n = matrix_pad((size_t)tensor_elements(&g->values[i].shape));

		g->values[i].at = g->floats;
		if (__builtin_add_overflow(g->floats, n, &g->floats))
			return NPU_MEMORY_ALLOCATION;
	}
	g->row = MATRIX_BLOCK;
	for (size_t i = 0; i < g->n_nodes; i++)
		if (matrix_pad(g->nodes[i].cols) > g->row)
			g->row = matrix_pad(g->nodes[i].cols);
	lane = lane_new(g);
	if (!lane)
		return NPU_MEMORY_ALLOCATION;
	lanes_give(&g->lanes, &lane->link);
	return NPU_SUCCESS;
}

static enum npu_error build(struct sim_graph *g, const struct sim_graph_desc *desc,
	const struct safetensors *weights)
{
	enum npu_error code = NPU_SUCCESS;

	g->values = calloc(desc->n_inputs + desc->n_nodes, sizeof(*g->values));
	g->nodes = calloc(desc->n_nodes, sizeof(*g->nodes));
	g->outputs = calloc(desc->n_outputs, sizeof(struct graph_value *));
	if (!g->values || !g->nodes || !g->outputs)
		return NPU_MEMORY_ALLOCATION;
	for (size_t i = 0; code == NPU_SUCCESS && i < desc->n_inputs; i++)
		code = add_value(g, desc->inputs[i].name, &desc->inputs[i], NULL);
	g->n_inputs = g->n_values;
	for (size_t i = 0; code == NPU_SUCCESS && i < desc->n_nodes; i++)
		code = add_node(g, &desc->nodes[i], weights);
	if (code == NPU_SUCCESS)
		code = bind_outputs(g, desc);
	return code == NPU_SUCCESS ? make_first_lane(g) : code;
}

enum npu_error sim_graph_new(const struct sim_graph_desc *desc, const struct safetensors *weights,
	const struct kernels *kernels, struct sim_graph **ret)
{
	struct sim_graph *g = calloc(1, sizeof(*g));
	enum npu_error code;

	if (!g)
		return NPU_MEMORY_ALLOCATION;
	g->kernels = kernels;
	lanes_init(&g->lanes);
	code = build(g, desc, weights);
	if (code != NPU_SUCCESS) {
		sim_graph_free(g);
		return code;
	}
	*ret = g;
	return NPU_SUCCESS;
}

void sim_graph_free(struct sim_graph *g)
{
	if (!g)
		return;
	for (size_t i = 0; i < g->n_nodes; i++) {
		matrix_done(&g->nodes[i].weight);
		free(g->nodes[i].vector);
		free(g->nodes[i].bias);
	}
	free(g->nodes);
	free(g->values);
	free(g->outputs);
	for (struct lane *lane; (lane = lanes_take(&g->lanes));)
		lane_free((struct graph_lane *)lane);
	lanes_done(&g->lanes);
	free(g);
}

static size_t value_bytes(const struct graph_value *v)
{
	return (size_t)tensor_bytes(&v->shape);
}

static void run_in(const struct sim_graph *g, const struct graph_lane *lane,
	const void *const *inputs, void *const *outputs)
{
	for (size_t i = 0; i < g->n_inputs; i++)
		memcpy(graph_data(&g->values[i], lane), inputs[i], value_bytes(&g->values[i]));
	for (size_t i = 0; i < g->n_nodes; i++)
		g->nodes[i].op->run(&g->nodes[i], g->kernels, lane);
	for (size_t i = 0; i < g->n_outputs; i++)
		memcpy(outputs[i], graph_data(g->outputs[i], lane), value_bytes(g->outputs[i]));
}

enum npu_error sim_graph_run(struct sim_graph *g, const void *const *inputs, void *const *outputs)
{
	struct graph_lane *lane = (struct graph_lane *)lanes_take(&g->lanes);

	if (!lane)
		lane = lane_new(g);
	if (!lane)
		return NPU_MEMORY_ALLOCATION;
	run_in(g, lane, inputs, outputs);
	lanes_give(&g->lanes, &lane->link);
	return NPU_SUCCESS;
}
