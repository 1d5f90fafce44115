/* Start and end of a generation: each mismatch of device contract 3 with its own error, nothing
 * configured by then; and the order of the tear-down, however far the start came. */
#include "core/engine/generation.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/mem.h"
#include "tests/fake_device.h"
#include "tests/fake_store.h"

static const struct device_params params = { .threads = 1 };
static struct device *device;
static struct manifest *manifest;
static char log_text[1 << 16];

static const char *calls(void)
{
	fake_log(log_text, sizeof log_text);
	fake_log_clear();
	return log_text;
}

static int up(void **state)
{
	struct fault f = FAULT_NONE;

	(void)state;
	fake_reset();
	if (manifest_parse(fake_manifest, strlen(fake_manifest), true, &manifest, &f) ||
		device_open(&fake_ops, &params, &device))
		return -1;
	fake_log_clear();
	return 0;
}

static int down(void **state)
{
	(void)state;
	device_close(device);
	manifest_free(manifest);
	return 0;
}

#define BUFFERS      "create_input_buf create_output_buf "
#define GONE_BUFFERS "destroy_input_buf destroy_output_buf "

static void open__all_fits__ready_and_torn_down_in_order(void **state)
{
	struct fault f = FAULT_NONE;
	struct generation *g;

	(void)state;
	assert_int_equal(generation_open(device, manifest, NULL, 7, &g, &f), 0);
	assert_string_equal(calls(),
		"create_calbin configure status " BUFFERS BUFFERS BUFFERS "create_kv ");
	assert_int_equal(g->number, 7);
	assert_int_equal(g->context, 16);
	assert_int_equal(g->vocab, 257);
	assert_int_equal(g->ubatch, 4);
	assert_string_equal(program_spec_of(g->lanes[0].prefill)->name, "prefill");
	assert_string_equal(program_spec_of(g->lanes[0].kv_update)->name, "kv_update");
	assert_int_equal(generation_close(g), NPU_SUCCESS);
	assert_string_equal(calls(),
		GONE_BUFFERS GONE_BUFFERS GONE_BUFFERS
		"destroy_kv reset_configuration destroy_calbin ");
	assert_int_equal(generation_close(NULL), NPU_SUCCESS);
}

static void close__reset_fails__told_and_all_gone(void **state)
{
	struct fault f = FAULT_NONE;
	struct generation *g;

	(void)state;
	assert_int_equal(generation_open(device, manifest, NULL, 1, &g, &f), 0);
	fake_fail("reset_configuration", 1, NPU_DEVICE_MAP_BROKEN);
	assert_int_equal(generation_close(g), NPU_DEVICE_MAP_BROKEN);
	assert_int_equal(fake_count("destroy_calbin"), 1);
}

static void open__each_step_fails__rolled_back_by_that_much(void **state)
{
	static const struct {
		const char *call;
		unsigned nth;
		const char *log;
	} rows[] = {
		{ "create_calbin", 1, "create_calbin " },
		{ "configure", 1, "create_calbin configure destroy_calbin " },
		{ "status", 1,
			"create_calbin configure status reset_configuration destroy_calbin " },
		{ "create_input_buf", 2,
			"create_calbin configure status " BUFFERS "create_input_buf " GONE_BUFFERS
			"reset_configuration destroy_calbin " },
		{ "create_kv", 1,
			"create_calbin configure status " BUFFERS BUFFERS BUFFERS
			"create_kv " GONE_BUFFERS GONE_BUFFERS GONE_BUFFERS
			"reset_configuration destroy_calbin " },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct fault f = FAULT_NONE;
		struct generation *g;

		fake_fail(rows[i].call, rows[i].nth, NPU_DEVICE_UNAVAILABLE);
		assert_int_equal(generation_open(device, manifest, NULL, 1, &g, &f), -ENXIO);
		assert_int_equal(f.device, NPU_DEVICE_UNAVAILABLE);
		assert_string_equal(calls(), rows[i].log);
	}
}

/* --- validation ------------------------------------------------------------------------------- */

static const struct tensor_spec other_name = { "ids", DTYPE_INT32, 1, { 4 } };
static const struct tensor_spec other_type = { "tokens", DTYPE_UINT32, 1, { 4 } };
static const struct tensor_spec other_shape = { "tokens", DTYPE_INT32, 1, { 8 } };
static const struct tensor_spec other_rank = { "tokens", DTYPE_INT32, 2, { 1, 4 } };

static void fewer_programs(void)
{
	fake.n_models = 2;
}

static void more_programs(void)
{
	static struct model_info all[4];

	memcpy(all, fake.models, 3 * sizeof *all);
	all[3] = all[1];
	all[3].name = "draft";
	fake.models = all;
	fake.n_models = 4;
}

static void program_renamed(void)
{
	fake.models[1].name = "Decode";
}

static void batch_differs(void)
{
	fake.llm.max_batch_size = 2;
}

static void context_differs(void)
{
	fake.llm.max_seq_len = 32;
}

static void input_renamed(void)
{
	fake.models[0].inputs = &other_name;
}

static void input_retyped(void)
{
	fake.models[0].inputs = &other_type;
}

static void input_reshaped(void)
{
	fake.models[0].inputs = &other_shape;
}

static void input_reranked(void)
{
	fake.models[0].inputs = &other_rank;
}

static void output_missing(void)
{
	fake.models[0].n_outputs = 0;
}

static void csr_missing(void)
{
	fake.models[2].n_csrs = 1;
}

static void calbin_version_differs(void)
{
	fake.version = "1.1";
}

static void runtime_differs(void)
{
	strcpy(fake.info.runtime, "0.7.7");
}

static void driver_differs(void)
{
	strcpy(fake.info.driver, "d2");
}

static void firmware_differs(void)
{
	strcpy(fake.info.firmware, "f2");
}

static void open__mismatches__own_error_each_and_never_configured(void **state)
{
	static const struct {
		void (*spoil)(void);
		enum npu_error code;
		const char *says;
	} rows[] = {
		{ fewer_programs, NPU_INVALID_CALBIN, "2 programs, the manifest 3" },
		{ more_programs, NPU_INVALID_CALBIN, "4 programs, the manifest 3" },
		{ program_renamed, NPU_INVALID_CALBIN, "lacks a program" },
		{ batch_differs, NPU_INVALID_CALBIN, "batch 2" },
		{ context_differs, NPU_INVALID_CALBIN, "context 32" },
		{ input_renamed, NPU_INVALID_CALBIN, "lacks a tensor" },
		{ input_retyped, NPU_INVALID_DATA_TYPE, "uint32[4]" },
		{ input_reshaped, NPU_INVALID_DATA_SHAPE, "int32[8]" },
		{ input_reranked, NPU_INVALID_DATA_SHAPE, "int32[1,4]" },
		{ output_missing, NPU_INVALID_CALBIN, "number of tensors" },
		{ csr_missing, NPU_INVALID_CALBIN, "lacks a CSR" },
		{ calbin_version_differs, NPU_INVALID_CALBIN, "version 1.1" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct fault f = FAULT_NONE;
		struct generation *g;

		fake_reset();
		rows[i].spoil();
		assert_true(generation_open(device, manifest, NULL, 1, &g, &f) < 0);
		assert_int_equal(f.device, rows[i].code);
		assert_non_null(strstr(f.reason, rows[i].says));
		assert_string_equal(calls(), "create_calbin destroy_calbin ");
	}
}

/* The versions are read when the device is opened. */
static void open__versions_not_listed__own_error_each(void **state)
{
	static const struct {
		void (*spoil)(void);
		enum npu_error code;
		const char *says;
	} rows[] = {
		{ runtime_differs, NPU_REQUIRE_NEWER_RT, "runtime" },
		{ driver_differs, NPU_INCOMPATIBLE_DRIVER, "driver" },
		{ firmware_differs, NPU_INCOMPATIBLE_DRIVER, "firmware" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct fault f = FAULT_NONE;
		struct generation *g;

		device_close(device);
		fake_reset();
		rows[i].spoil();
		assert_int_equal(device_open(&fake_ops, &params, &device), 0);
		assert_int_equal(generation_open(device, manifest, NULL, 1, &g, &f), -EOPNOTSUPP);
		assert_int_equal(f.device, rows[i].code);
		assert_non_null(strstr(f.reason, rows[i].says));
		assert_int_equal(fake_count("configure"), 0);
	}
}

/* Misleading types are no reason to refuse; misleading sizes are: the runtime slices by 4 bytes. */
static void open__type_metadata_wrong__taken(void **state)
{
	struct fault f = FAULT_NONE;
	struct generation *g;

	(void)state;
	fake.models[0].type = "decode";
	assert_int_equal(generation_open(device, manifest, NULL, 1, &g, &f), 0);
	generation_close(g);
}

/* --- golden runs: "double" of {1, 2} ---------------------------------------------------------- */

static const struct tensor_spec x = { "x", DTYPE_FLOAT32, 1, { 2 } },
				y = { "y", DTYPE_FLOAT32, 1, { 2 } };
static struct model_info doubling = { "double", "graph", &x, &y, 1, 1, { NULL }, 0 };

static int golden(const float want[2], struct fault *f)
{
	static const float in[2] = { 1, 2 };
	const struct fake_file files[] = { { "golden/in.bin", in, 8 },
		{ "golden/out.bin", want, 8 } };
	struct generation *g;
	struct artifact *a;
	char store[64];
	int err;

	fake.models = &doubling;
	fake.n_models = 1;
	fake_store_new(store);
	fake_store_add(store, "double", fake_tensor_template, files, 2);
	assert_int_equal(artifact_verify(store, "double", &a, f), 0);
	err = generation_open(device, a->manifest, a, 1, &g, f);
	if (!err)
		err = generation_golden(g, a, f); /* again, on a configured one */
	if (!err)
		generation_close(g);
	artifact_free(a);
	fake_store_remove(store);
	return err;
}

static void golden__output_within_the_tolerance__ready(void **state)
{
	static const float want[] = { 2.009f, 3.991f };
	struct fault f = FAULT_NONE;

	(void)state;
	assert_int_equal(golden(want, &f), 0);
	assert_int_equal(fake_count("infer:double"), 2);
}

static void golden__other_output__refused_and_torn_down(void **state)
{
	static const float want[] = { 2, 4.02f };
	struct fault f = FAULT_NONE;

	(void)state;
	assert_int_equal(golden(want, &f), -EBADMSG);
	assert_non_null(strstr(f.reason, "another output"));
	assert_int_equal(fake_count("destroy_calbin"), 1);
}

static void golden__signed_output_is_no_number__refused(void **state)
{
	static const float want[] = { 2, NAN };
	struct fault f = FAULT_NONE;

	(void)state;
	assert_int_equal(golden(want, &f), -EBADMSG);
	assert_non_null(strstr(f.reason, "another output"));
}

/* Whatever the logits are: the sequence that the run needed must be gone. */
static void golden__its_sequence_is_not_freed__not_expected(void **state)
{
	static const int32_t in[1] = { 'a' };
	static const float want[FAKE_VOCAB];
	const struct fake_file files[] = { { "golden/in.bin", in, sizeof in },
		{ "golden/out.bin", want, sizeof want } };
	struct fault f = FAULT_NONE;
	struct generation *g;
	struct artifact *a;
	char store[64], template[4096];

	(void)state;
	snprintf(template, sizeof template,
		"%.*s,\"golden\":[{\"program\":\"decode\",\"valid\":1,"
		"\"input\":\"golden/in.bin\",\"output\":\"golden/out.bin\",\"tolerance\":1000}]}",
		(int)strlen(fake_llm_template) - 1, fake_llm_template);
	fake_store_new(store);
	fake_store_add(store, "alpha", template, files, 2);
	assert_int_equal(artifact_verify(store, "alpha", &a, &f), 0);
	assert_int_equal(generation_open(device, a->manifest, a, 1, &g, &f), 0);
	assert_int_equal(fake_count("kv_free"), 1);
	fake.silent_free = true;
	assert_int_equal(generation_golden(g, a, &f), -EIO);
	assert_int_equal(f.device, NPU_NOT_EXPECTED);
	fake.silent_free = false;
	generation_close(g);
	artifact_free(a);
	fake_store_remove(store);
}

/* Between its verification and this a day may have gone by. */
static void open__artifact_changed_since_it_was_verified__the_device_never_sees_it(void **state)
{
	struct fault f = FAULT_NONE;
	struct generation *g;
	struct artifact *a;
	char store[64], path[128];
	FILE *file;

	(void)state;
	fake_store_new(store);
	fake_store_add(store, "alpha", fake_llm_template, NULL, 0);
	assert_int_equal(artifact_verify(store, "alpha", &a, &f), 0);
	snprintf(path, sizeof path, "%s/models/alpha/calbin/program.bin", store);
	file = fopen(path, "r+");
	assert_non_null(file);
	assert_true(fputs("Program", file) >= 0);
	fclose(file);
	fake_log_clear();
	assert_int_equal(generation_open(device, a->manifest, a, 1, &g, &f), -EBADMSG);
	assert_int_equal(f.device, NPU_BROKEN_FILE);
	assert_string_equal(calls(), "");
	artifact_free(a);
	fake_store_remove(store);
}

static void golden__inference_fails__its_error(void **state)
{
	static const float want[] = { 2, 4 };
	struct fault f = FAULT_NONE;

	(void)state;
	fake_fail("wait", 1, NPU_DEVICE_CRASH);
	assert_int_equal(golden(want, &f), -EIO);
	assert_int_equal(f.device, NPU_DEVICE_CRASH);
}

static void golden__runtime_brings_other_data__refused(void **state)
{
	static const float want[] = { 2, 4 };
	struct fault f = FAULT_NONE;

	(void)state;
	fake.golden_in = "not it";
	assert_int_equal(golden(want, &f), -EBADMSG);
	assert_non_null(strstr(f.reason, "golden input"));
	fake.golden_in = NULL;
	fake.golden_out = "not it";
	assert_int_equal(golden(want, &f), -EBADMSG);
	assert_non_null(strstr(f.reason, "golden output"));
	assert_int_equal(fake_count("infer"), 0);
}

static void open__size_not_aligned__refused_before_traffic(void **state)
{
	static const struct tensor_spec odd = { "x", DTYPE_INT8, 1, { 3 } };
	struct program_spec p = { .name = "double",
		.inputs = (struct tensor_spec *)&odd,
		.n_inputs = 1 };
	const struct manifest m = { .kind = MANIFEST_TENSOR,
		.calbin_version = (char[]){ "1.0" },
		.programs = &p,
		.n_programs = 1 };
	struct model_info info = { "double", "graph", &odd, NULL, 1, 0, { NULL }, 0 };
	struct fault f = FAULT_NONE;
	struct generation *g;

	(void)state;
	fake.models = &info;
	fake.n_models = 1;
	assert_int_equal(generation_open(device, &m, NULL, 1, &g, &f), -EINVAL);
	assert_int_equal(f.device, NPU_INVALID_DATA_SHAPE);
	assert_string_equal(calls(), "create_calbin destroy_calbin ");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(open__all_fits__ready_and_torn_down_in_order),
		TEST(close__reset_fails__told_and_all_gone),
		TEST(open__each_step_fails__rolled_back_by_that_much),
		TEST(open__mismatches__own_error_each_and_never_configured),
		TEST(open__versions_not_listed__own_error_each),
		TEST(open__type_metadata_wrong__taken),
		TEST(golden__output_within_the_tolerance__ready),
		TEST(golden__other_output__refused_and_torn_down),
		TEST(golden__signed_output_is_no_number__refused),
		TEST(golden__its_sequence_is_not_freed__not_expected),
		TEST(open__artifact_changed_since_it_was_verified__the_device_never_sees_it),
		TEST(golden__inference_fails__its_error),
		TEST(golden__runtime_brings_other_data__refused),
		TEST(open__size_not_aligned__refused_before_traffic),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
