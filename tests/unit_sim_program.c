/* Calbin folders of the software device: programs and weights that are not right, each with an
 * error of its own, and operator graphs, run through the device's table. */
#include "core/sim/program.h"

#include "core/device_sim.h"
#include "sim_files.h"

#define OPS (&device_sim_ops)

static const struct device_params params = { .threads = 1, .kv_sequences = 1 };

static struct vdevice *open_device(void)
{
	struct vdevice *d = NULL;

	assert_int_equal(OPS->create_vdevice(&params, &d), NPU_SUCCESS);
	return d;
}

/* --- folders that are not right --------------------------------------------------------------- */

static enum npu_error load_folder(const struct folder *f)
{
	struct vdevice *d = open_device();
	struct calbin *c = NULL;
	enum npu_error code = OPS->create_calbin(d, f->path, &c);

	if (code == NPU_SUCCESS)
		OPS->destroy_calbin(c);
	else
		assert_null(c);
	OPS->shutdown(d);
	return code;
}

/* The right program with `from` replaced by `to`. */
static void write_changed(const struct folder *f, const char *from, const char *to)
{
	AUTO_BUF struct buf b = BUF_INIT;
	const char *at = strstr(ODD_LLAMA_JSON, from);

	assert_non_null(at);
	buf_put(&b, ODD_LLAMA_JSON, (size_t)(at - ODD_LLAMA_JSON));
	buf_puts(&b, to);
	buf_puts(&b, at + strlen(from));
	folder_write(f, "program.json", b.data, b.len);
}

static void create_calbin__files_missing_or_wrong__each_its_own_error(void **state)
{
	static const struct {
		const char *from, *to;
		enum npu_error code;
	} changes[] = {
		{ "\"0.7.6\"", "\"0.7.9\"", NPU_SUCCESS },
		{ "\"0.7.6\"", "\"0.8.0\"", NPU_REQUIRE_NEWER_RT },
		{ "\"0.7.6\"", "\"1.0.0\"", NPU_REQUIRE_NEWER_RT },
		{ "\"0.7.6\"", "\"0.6.9\"", NPU_INVALID_CALBIN },
		{ "\"0.7.6\"", "\"0.7\"", NPU_INVALID_CALBIN },
		{ "\"0.7.6\"", "\"0.7.6 \"", NPU_INVALID_CALBIN },
		{ "\"0.7.6\"", "7", NPU_INVALID_CALBIN },
		{ "npufs-sim-program", "npufs-sim", NPU_INVALID_CALBIN },
		{ "\"llama\",", "\"mamba\",", NPU_INVALID_CALBIN },
		{ "\"dim\":36", "\"dim\":\"36\"", NPU_INVALID_CALBIN },
		{ "\"dim\":36", "\"dim\":36.5", NPU_INVALID_CALBIN },
		{ "\"dim\":36", "\"dim\":-36", NPU_INVALID_CALBIN },
		{ "\"dim\":36,", "", NPU_INVALID_CALBIN },
		{ "\"dim\":36", "\"dim\":36,\"dam\":1", NPU_INVALID_CALBIN },
		{ "\"n_heads\":6", "\"n_heads\":5", NPU_INVALID_CALBIN },
		{ "\"hidden_dim\":53", "\"hidden_dim\":54", NPU_INVALID_DATA_SHAPE },
		{ "\"n_layers\":2", "\"n_layers\":3", NPU_INVALID_CALBIN },
		{ "}}", "}", NPU_INVALID_CALBIN },
	};
	struct folder f;

	(void)state;
	folder_make(&f);
	assert_int_equal(load_folder(&f), NPU_FILE_NOT_FOUND);
	folder_write_text(&f, "program.json", ODD_LLAMA_JSON);
	assert_int_equal(load_folder(&f), NPU_FILE_NOT_FOUND);
	folder_write_text(&f, "weights.safetensors", "not weights at all");
	assert_int_equal(load_folder(&f), NPU_BROKEN_FILE);
	folder_write_llama(&f);
	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		write_changed(&f, changes[i].from, changes[i].to);
		if (load_folder(&f) != changes[i].code)
			fail_msg("%s: not %d", changes[i].to, changes[i].code);
	}
	folder_remove(&f);
}

/* --- graphs ----------------------------------------------------------------------------------- */

#define X2 "{\"name\":\"x\",\"dtype\":\"float32\",\"shape\":[4,2]}"
#define Y1 "{\"name\":\"y\",\"dtype\":\"float32\",\"shape\":[4,1]}"
#define GRAPH(inputs, outputs, nodes) \
	"{\"format\":\"npufs-sim-program\",\"version\":\"0.7.6\",\"architecture\":\"graph\"," \
	"\"graphs\":[{\"name\":\"mlp\",\"inputs\":[" inputs "],\"outputs\":[" outputs "]," \
	"\"nodes\":[" nodes "]}]}"
#define FC1  "{\"op\":\"linear\",\"input\":\"x\",\"weight\":\"w1\",\"bias\":\"b1\",\"output\":\"h\"}"
#define RELU "{\"op\":\"relu\",\"input\":\"h\",\"output\":\"a\"}"
#define FC2  "{\"op\":\"linear\",\"input\":\"a\",\"weight\":\"w2\",\"output\":\"y\"}"
#define XOR  GRAPH(X2, Y1, FC1 "," RELU "," FC2)

/* a = relu([x0 + x1, x0 + x1 - 1]); y = a0 - 2 a1: x0 XOR x1. */
static void write_xor_weights(const struct folder *f, bool int8)
{
	static const float w1[] = { 1, 1, 1, 1 }, b1[] = { 0, -1 }, w2[] = { 1, -2 };
	struct weights all = { .n = 0 };
	struct weight *w;

	w = weights_add(&all, "w1", 2, 2, 2, w1);
	if (int8) {
		w->q = calloc(2, 2);
		w->scale = calloc(2, sizeof(float));
		memset(w->q, 4, 4);
		w->scale[0] = w->scale[1] = 0.25f;
	}
	weights_add(&all, "b1", 1, 2, 1, b1);
	weights_add(&all, "w2", 2, 1, 2, w2);
	folder_write_weights(f, &all);
	weights_free(&all);
}

/* Load the folder's one graph, run it, free all. */
static void run_graph(const struct folder *f, const char *in_name, const float *x, size_t x_bytes,
	const char *out_name, float *y, size_t y_bytes)
{
	struct vdevice *d = open_device();
	struct calbin *c;
	struct llm_info llm;
	struct model *m;
	struct kvman *kv;
	struct inbuf *in;
	struct outbuf *out;

	assert_int_equal(OPS->create_calbin(d, f->path, &c), NPU_SUCCESS);
	assert_int_equal(OPS->configure(d, c, false), NPU_SUCCESS);
	OPS->get_llm_info(c, &llm);
	assert_int_equal(llm.max_batch_size, 0);
	assert_int_equal(OPS->create_kv(d, c, &kv), NPU_DEVICE_UNSUPPORT);
	assert_int_equal(OPS->model_count(c), 1);
	m = OPS->model_at(c, 0);
	assert_string_equal(OPS->model_info(m)->type, "graph");
	assert_int_equal(OPS->model_info(m)->n_csrs, 0);
	assert_int_equal(OPS->set_csr(m, CSR_CUR_LEN, 1), NPU_INVALID_VALUE);
	assert_int_equal(OPS->create_input_buf(m, &in), NPU_SUCCESS);
	assert_int_equal(OPS->create_output_buf(m, &out), NPU_SUCCESS);
	assert_int_equal(OPS->slice_input(in, in_name, x, 0, x_bytes), NPU_SUCCESS);
	assert_int_equal(OPS->slice_output(out, out_name, y, 0, y_bytes), NPU_SUCCESS);
	assert_int_equal(OPS->infer(d, m, in, out, DEVICE_AUTO), NPU_SUCCESS);
	assert_int_equal(OPS->wait(out), NPU_SUCCESS);
	assert_int_equal(OPS->run_status(out), RUN_DONE);
	OPS->destroy_input_buf(in);
	OPS->destroy_output_buf(out);
	OPS->reset_configuration(d);
	OPS->destroy_calbin(c);
	OPS->shutdown(d);
}

static void graph__xor__exact_truth_table(void **state)
{
	static const float x[] = { 0, 0, 0, 1, 1, 0, 1, 1 };
	struct folder f;

	(void)state;
	folder_make(&f);
	folder_write_text(&f, "program.json", XOR);
	for (int int8 = 0; int8 <= 1; int8++) {
		float y[4] = { 9, 9, 9, 9 };

		write_xor_weights(&f, int8);
		run_graph(&f, "x", x, sizeof(x), "y", y, sizeof(y));
		assert_true(y[0] == 0 && y[1] == 1 && y[2] == 1 && y[3] == 0);
	}
	folder_remove(&f);
}

#define V3(name)       "{\"name\":\"" name "\",\"dtype\":\"float32\",\"shape\":[3]}"
#define NODE(op, rest) "{\"op\":\"" op "\",\"input\":\"x\"" rest ",\"output\":\"y\"}"

static void graph__each_operator__known_values(void **state)
{
	static const float v[] = { 1, 2, 3 };
	static const struct {
		const char *program;
		float want[3];
	} rows[] = {
		/* of x = { -1, 0, 2 } */
		{ GRAPH(V3("x"), V3("y"), NODE("relu", "")), { 0, 0, 2 } },
		{ GRAPH(V3("x"), V3("y"), NODE("gelu", "")), { -0.158655254f, 0, 1.954499736f } },
		{ GRAPH(V3("x"), V3("y"), NODE("sigmoid", "")),
			{ 0.268941421f, 0.5f, 0.880797078f } },
		{ GRAPH(V3("x"), V3("y"), NODE("tanh", "")), { -0.761594156f, 0, 0.964027580f } },
		{ GRAPH(V3("x"), V3("y"), NODE("softmax", "")),
			{ 0.042010066f, 0.114195199f, 0.843794735f } },
		{ GRAPH(V3("x"), V3("y"), NODE("add", ",\"other\":\"v\"")), { 0, 2, 5 } },
		{ GRAPH(V3("x"), V3("y"), NODE("mul", ",\"other\":\"v\"")), { -1, 0, 6 } },
		{ GRAPH(V3("x"), V3("y"), NODE("mul", ",\"other\":\"x\"")), { 1, 0, 4 } },
		/* mean 1/3, variance 14/9 */
		{ GRAPH(V3("x"), V3("y"),
			  NODE("layernorm", ",\"weight\":\"v\",\"bias\":\"v\",\"eps\":0")),
			{ -0.069044968f, 1.465477516f, 7.008918f } },
	};
	static const float x[] = { -1, 0, 2 };
	struct weights all = { .n = 0 };
	struct folder f;

	(void)state;
	folder_make(&f);
	weights_add(&all, "v", 1, 3, 1, v);
	folder_write_weights(&f, &all);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		float y[3];

		folder_write_text(&f, "program.json", rows[i].program);
		run_graph(&f, "x", x, sizeof(x), "y", y, sizeof(y));
		for (int k = 0; k < 3; k++)
			assert_float_equal(y[k], rows[i].want[k], 2e-6);
	}
	weights_free(&all);
	folder_remove(&f);
}

static void create_calbin__graph_wrong__each_its_own_error(void **state)
{
	static const struct {
		const char *program;
		enum npu_error code;
	} rows[] = {
		{ XOR, NPU_SUCCESS },
		{ GRAPH(X2, Y1, FC1 "," FC2), NPU_INVALID_CALBIN },  /* reads what is not there */
		{ GRAPH(X2, Y1, FC1 "," RELU), NPU_INVALID_CALBIN }, /* no y */
		{ GRAPH(X2, Y1, FC1 "," FC1 "," RELU "," FC2), NPU_INVALID_CALBIN }, /* h twice */
		{ GRAPH(X2, Y1, NODE("conv", "")), NPU_INVALID_CALBIN },
		{ GRAPH(X2, Y1, NODE("relu", ",\"weight\":\"w2\"")), NPU_INVALID_CALBIN },
		{ GRAPH(X2, Y1, NODE("linear", "")), NPU_INVALID_CALBIN },
		{ GRAPH(X2, Y1, NODE("linear", ",\"weight\":\"nothing\"")), NPU_INVALID_CALBIN },
		{ GRAPH(X2, Y1, NODE("linear", ",\"weight\":\"b1\"")), NPU_INVALID_DATA_SHAPE },
		{ GRAPH(X2, Y1, NODE("linear", ",\"weight\":\"w1\"")), NPU_INVALID_DATA_SHAPE },
		{ GRAPH(X2, X2, ""), NPU_INVALID_CALBIN },
		{ GRAPH("", Y1, FC1), NPU_INVALID_CALBIN },
		{ GRAPH("{\"name\":\"x\",\"dtype\":\"int32\",\"shape\":[4,2]}", Y1, FC1),
			NPU_INVALID_DATA_TYPE },
		{ GRAPH("{\"name\":\"x\",\"dtype\":\"float32\",\"shape\":[0]}", Y1, FC1),
			NPU_INVALID_DATA_SHAPE },
		{ GRAPH("{\"name\":\"x\",\"dtype\":\"float32\",\"shape\":[]}", Y1, FC1),
			NPU_INVALID_DATA_SHAPE },
		{ GRAPH("{\"name\":\"x\",\"dtype\":\"float32\",\"shape\":[4,3]}", Y1, FC1),
			NPU_INVALID_DATA_SHAPE },
	};
	struct folder f;

	(void)state;
	folder_make(&f);
	write_xor_weights(&f, false);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		folder_write_text(&f, "program.json", rows[i].program);
		if (load_folder(&f) != rows[i].code)
			fail_msg("row %zu: not %d", i, rows[i].code);
	}
	folder_remove(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(create_calbin__files_missing_or_wrong__each_its_own_error),
		cmocka_unit_test(graph__xor__exact_truth_table),
		cmocka_unit_test(graph__each_operator__known_values),
		cmocka_unit_test(create_calbin__graph_wrong__each_its_own_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
