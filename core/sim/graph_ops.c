/* The operators: a row each in the table at the end. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/mem.h"
#include "core/sim/graph_internal.h"

static size_t elements(const struct graph_node *n)
{
	return n->rows * n->cols;
}

/* --- linear ----------------------------------------------------------------------------------- */

/* The weight says how many outputs there are. */
static enum npu_error check_linear(struct graph_node *n, const struct sim_node *desc,
	const struct safetensors *weights)
{
	const struct safetensors_view *v = safetensors_find(weights, desc->weight);
	struct tensor_spec *out = &n->output->shape;
	enum npu_error code;

	if (!v)
		return NPU_INVALID_CALBIN;
	if (v->rank != 2 || v->dims[0] < 1 || v->dims[0] > INT32_MAX || n->cols > INT32_MAX)
		return NPU_INVALID_DATA_SHAPE;
	code = matrix_load(weights, desc->weight, (uint32_t)v->dims[0], (uint32_t)n->cols,
		&n->weight);
	if (code == NPU_SUCCESS && desc->bias)
		code = matrix_load_vector(weights, desc->bias, n->weight.rows, &n->bias);
	out->dims[out->rank - 1] = n->weight.rows;
	return code;
}

static void run_linear(const struct graph_node *n, const struct kernels *k,
	const struct graph_lane *lane)
{
	const struct matrix *m = &n->weight;
	struct rows x = { graph_data(n->input, lane), n->cols };
	struct rows y = { graph_data(n->output, lane), m->rows };

	for (size_t r = 0; r < n->rows; r++)
		for (size_t i = 0; i < m->rows; i++)
			y.at[r * m->rows + i] = n->bias ? n->bias[i] : 0;
	k->matmul(m, x, y, (uint32_t)n->rows, 0, matrix_blocks(m), true);
}

/* --- two operands ----------------------------------------------------------------------------- */

static bool view_has_shape(const struct safetensors_view *v, const struct tensor_spec *t)
{
	return v->rank == t->rank && memcmp(v->dims, t->dims, t->rank * sizeof(t->dims[0])) == 0;
}

/* `other` was looked for among the values already. */
static enum npu_error check_binary(struct graph_node *n, const struct sim_node *desc,
	const struct safetensors *weights)
{
	const struct safetensors_view *v;

	if (n->other && !tensor_same_shape(&n->other->shape, &n->input->shape))
		return NPU_INVALID_DATA_SHAPE;
	if (n->other)
		return NPU_SUCCESS;
	v = safetensors_find(weights, desc->other);
	if (!v)
		return NPU_INVALID_CALBIN;
	if (v->dtype != DTYPE_FLOAT32)
		return NPU_INVALID_DATA_TYPE;
	if (!view_has_shape(v, &n->input->shape) &&
		!(v->rank == 1 && (size_t)v->dims[0] == n->cols))
		return NPU_INVALID_DATA_SHAPE;
	n->vector_length = v->bytes / sizeof(float);
	n->vector = matrix_floats(n->vector_length);
	if (!n->vector)
		return NPU_MEMORY_ALLOCATION;
	memcpy(n->vector, v->data, v->bytes);
	return NPU_SUCCESS;
}

static float operand(const struct graph_node *n, const struct graph_lane *lane, size_t i)
{
	return n->other ? graph_data(n->other, lane)[i] : n->vector[i % n->vector_length];
}

static void run_add(const struct graph_node *n, const struct kernels *k,
	const struct graph_lane *lane)
{
	const float *x = graph_data(n->input, lane);
	float *y = graph_data(n->output, lane);

	(void)k;
	for (size_t i = 0; i < elements(n); i++)
		y[i] = x[i] + operand(n, lane, i);
}

static void run_mul(const struct graph_node *n, const struct kernels *k,
	const struct graph_lane *lane)
{
	const float *x = graph_data(n->input, lane);
	float *y = graph_data(n->output, lane);

	(void)k;
	for (size_t i = 0; i < elements(n); i++)
		y[i] = x[i] * operand(n, lane, i);
}

/* --- each element ----------------------------------------------------------------------------- */

static enum npu_error check_shapeless(struct graph_node *n, const struct sim_node *desc,
	const struct safetensors *weights)
{
	(void)n;
	(void)desc;
	(void)weights;
	return NPU_SUCCESS;
}

static void each(const struct graph_node *n, const struct graph_lane *lane, float (*f)(float))
{
	const float *x = graph_data(n->input, lane);
	float *y = graph_data(n->output, lane);

	for (size_t i = 0; i < elements(n); i++)
		y[i] = f(x[i]);
}

/* Written so that NaN stays NaN. */
static float relu(float x)
{
	return x < 0 ? 0 : x;
}

static float gelu(float x)
{
	return 0.5f * x * (1.0f + erff(x * 0.70710678f));
}

static float sigmoid(float x)
{
	return 1.0f / (1.0f + expf(-x));
}

static void run_relu(const struct graph_node *n, const struct kernels *k,
	const struct graph_lane *lane)
{
	(void)k;
	each(n, lane, relu);
}

static void run_gelu(const struct graph_node *n, const struct kernels *k,
	const struct graph_lane *lane)
{
	(void)k;
	each(n, lane, gelu);
}

static void run_sigmoid(const struct graph_node *n, const struct kernels *k,
	const struct graph_lane *lane)
{
	(void)k;
	each(n, lane, sigmoid);
}

static void run_tanh(const struct graph_node *n, const struct kernels *k,
	const struct graph_lane *lane)
{
	(void)k;
	each(n, lane, tanhf);
}

/* --- along the last axis ---------------------------------------------------------------------- */

static void run_softmax(const struct graph_node *n, const struct kernels *k,
	const struct graph_lane *lane)
{
	const float *x = graph_data(n->input, lane);
	float *y = graph_data(n->output, lane);
	size_t bytes = n->cols * sizeof(float);

	/* The kernel wants a padded row. */
	memset(lane->row, 0, matrix_pad(n->cols) * sizeof(float));
	for (size_t r = 0; r < n->rows; r++) {
		memcpy(lane->row, x + r * n->cols, bytes);
		k->softmax(lane->row, n->cols);
		memcpy(y + r * n->cols, lane->row, bytes);
	}
}

static enum npu_error check_layernorm(struct graph_node *n, const struct sim_node *desc,
	const struct safetensors *weights)
{
	enum npu_error code;

	if (n->cols > INT32_MAX || desc->eps < 0)
		return NPU_INVALID_CALBIN;
	n->eps = (float)desc->eps;
	code = matrix_load_vector(weights, desc->weight, (uint32_t)n->cols, &n->vector);
	if (code == NPU_SUCCESS)
		code = matrix_load_vector(weights, desc->bias, (uint32_t)n->cols, &n->bias);
	return code;
}

static void run_layernorm(const struct graph_node *n, const struct kernels *k,
	const struct graph_lane *lane)
{
	(void)k;
	for (size_t r = 0; r < n->rows; r++) {
		const float *x = graph_data(n->input, lane) + r * n->cols;
		float *y = graph_data(n->output, lane) + r * n->cols;
		double mean = 0, variance = 0;
		float scale;

		for (size_t i = 0; i < n->cols; i++)
			mean += x[i];
		mean /= (double)n->cols;
		for (size_t i = 0; i < n->cols; i++)
			variance += (x[i] - mean) * (x[i] - mean);
		scale = (float)(1 / sqrt(variance / (double)n->cols + n->eps));
		for (size_t i = 0; i < n->cols; i++)
			y[i] = (x[i] - (float)mean) * scale * n->vector[i] + n->bias[i];
	}
}

static const struct graph_op ops[] = {
	{ "linear", .weight = true, .bias = true, .bias_optional = true, .check = check_linear,
		.run = run_linear },
	{ "add", .other = true, .check = check_binary, .run = run_add },
	{ "mul", .other = true, .check = check_binary, .run = run_mul },
	{ "relu", .check = check_shapeless, .run = run_relu },
	{ "gelu", .check = check_shapeless, .run = run_gelu },
	{ "sigmoid", .check = check_shapeless, .run = run_sigmoid },
	{ "tanh", .check = check_shapeless, .run = run_tanh },
	{ "softmax", .check = check_shapeless, .run = run_softmax },
	{ "layernorm", .weight = true, .bias = true, .eps = true, .check = check_layernorm,
		.run = run_layernorm },
};

const struct graph_op *graph_op(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++)
		if (strcmp(ops[i].name, name) == 0)
			return &ops[i];
	return NULL;
}
