/* Two sequences in flight through the checked inference on the software device, held to one after the
 * other by the hash of all outputs; and devices that mix them up, which the hash must tell. */
#include "core/engine/infer.h"

#include "core/base/crypto.h"
#include "core/base/mem.h"
#include "core/device_sim.h"
#include "core/engine/evidence.h"
#include "sim_files.h"

#define STEPS 8
#define VOCAB 41 /* of odd_llama */

/* P and Q: other tokens, other lengths. */
static const int32_t prompts[2][7] = { { 5, 9, 1, 30 }, { 17, 2, 40, 8, 8, 21, 3 } };
static const uint32_t prompt_len[2] = { 4, 7 };

struct result {
	char sha256[2][SHA256_HEX_SIZE];
	int32_t kv[2];
};

struct rig {
	struct folder folder;
	struct device *d;
	struct program_spec spec[3];
	struct program *prefill[2], *decode[2], *update[2];
	struct sha256 *hash[2];
};

static struct program *make_program(struct rig *r, int which, const char *name)
{
	struct model *m = device_model(r->d, name);
	const struct model_info *info = device_model_info(r->d, m);
	struct program *p = NULL;

	r->spec[which] = (struct program_spec){ .inputs = (struct tensor_spec *)info->inputs,
		.outputs = (struct tensor_spec *)info->outputs,
		.n_inputs = info->n_inputs,
		.n_outputs = info->n_outputs };
	strcpy(r->spec[which].name, name);
	assert_int_equal(program_new(r->d, &r->spec[which], &p), 0);
	return p;
}

static void rig_open(struct rig *r, const struct device_ops *ops, bool parallel)
{
	const struct device_params params = { .threads = 1, .kv_sequences = 2 };

	memset(r, 0, sizeof *r);
	folder_make(&r->folder);
	folder_write_llama(&r->folder);
	assert_int_equal(device_open(ops, &params, &r->d), 0);
	assert_int_equal(device_load(r->d, r->folder.path), 0);
	assert_int_equal(device_configure(r->d), 0);
	assert_int_equal(device_kv_open(r->d), 0);
	assert_int_equal(device_set_parallel(r->d, parallel), 0);
	for (int i = 0; i < 2; i++) {
		r->prefill[i] = make_program(r, 0, "prefill");
		r->decode[i] = make_program(r, 1, "decode");
		r->update[i] = make_program(r, 2, "kv_update");
		r->hash[i] = sha256_new();
		assert_int_equal(device_kv_allocate(r->d, i), 0);
	}
}

static void rig_close(struct rig *r, struct result *ret)
{
	for (int i = 0; i < 2; i++) {
		sha256_finish(r->hash[i], ret->sha256[i]);
		ret->kv[i] = device_kv_len(r->d, i);
		program_free(r->prefill[i]);
		program_free(r->decode[i]);
		program_free(r->update[i]);
	}
	assert_int_equal(device_unload(r->d), 0);
	device_close(r->d);
	folder_remove(&r->folder);
}

/* All at once, or each alone. */
static void infer(const struct infer_order *orders, size_t n, bool together)
{
	struct infer_result got[2];

	for (size_t i = 0; i < n; i += together ? n : 1) {
		infer_checked_many(orders + i, together ? n : 1, got);
		for (size_t k = 0; k < (together ? n : 1); k++)
			assert_int_equal(got[k].stage, INFER_DONE);
	}
}

static void run_step(struct rig *r, const int which[2], uint32_t step, bool together)
{
	static const enum device_task tasks[] = { DEVICE_PING, DEVICE_PONG };
	static const int32_t ids[] = { 0, 1 };

	for (int from = 0; from < 2; from += together ? 2 : 1) {
		struct infer_order feed[2], commit[2];
		size_t n = together ? 2 : 1;

		for (size_t k = 0; k < n; k++) {
			int i = from + (int)k;
			uint32_t len = prompt_len[which[i]], past = step ? len + step - 1 : 0;
			struct program *p = step ? r->decode[i] : r->prefill[i];
			const int32_t token = (int32_t)(7 * step) % VOCAB;

			memcpy(program_input(p, 0), step ? &token : prompts[which[i]],
				step ? 4 : len * 4);
			feed[k] = (struct infer_order){ p, past, step ? 1 : len, &ids[i],
				together ? tasks[i] : DEVICE_AUTO };
			commit[k] = feed[k];
			commit[k].program = r->update[i];
			commit[k].apply = NULL;
		}
		infer(feed, n, together);
		infer(commit, n, together);
		for (size_t k = 0; k < n; k++)
			sha256_update(r->hash[from + (int)k], program_output(feed[k].program, 0),
				VOCAB * sizeof(float));
	}
}

static struct result run(const struct device_ops *ops, int first, int second, bool together)
{
	const int which[] = { first, second };
	struct result got;
	struct rig r;

	rig_open(&r, ops, together);
	for (uint32_t step = 0; step < STEPS; step++)
		run_step(&r, which, step, together);
	rig_close(&r, &got);
	return got;
}

static void pair__software_device__every_order_as_one_after_the_other(void **state)
{
	static const int orders[][2] = { { 0, 0 }, { 1, 1 }, { 0, 1 }, { 1, 0 } };
	struct result serial = run(&device_sim_ops, 0, 1, false);

	(void)state;
	assert_string_not_equal(serial.sha256[0], serial.sha256[1]);
	for (size_t i = 0; i < ARRAY_SIZE(orders); i++) {
		struct result got = run(&device_sim_ops, orders[i][0], orders[i][1], true);

		for (int k = 0; k < 2; k++) {
			assert_string_equal(got.sha256[k], serial.sha256[orders[i][k]]);
			assert_int_equal(got.kv[k], serial.kv[orders[i][k]]);
			assert_int_equal(got.kv[k], prompt_len[orders[i][k]] + STEPS - 1);
		}
	}
}

/* --- devices that mix them up ----------------------------------------------------------------- */

static unsigned in_flight;
static struct inbuf *other_in;    /* of the one in flight */
static float *outputs[2];         /* host memory of the logits in flight */
static const struct model *other; /* its program */

/* The second is computed from what the first was given. */
static enum npu_error infer_with_the_others_input(struct vdevice *d, struct model *m,
	struct inbuf *in, struct outbuf *out, enum device_task task)
{
	if (in_flight == 1 && m == other)
		in = other_in;
	other_in = in;
	other = m;
	in_flight++;
	return device_sim_ops.infer(d, m, in, out, task);
}

static enum npu_error counted_wait(struct outbuf *out)
{
	in_flight--;
	return device_sim_ops.wait(out);
}

static enum npu_error counted_infer(struct vdevice *d, struct model *m, struct inbuf *in,
	struct outbuf *out, enum device_task task)
{
	in_flight++;
	return device_sim_ops.infer(d, m, in, out, task);
}

static enum npu_error noted_slice_output(struct outbuf *b, const char *tensor, void *host,
	uint64_t offset, uint64_t size)
{
	if (strcmp(tensor, "logits") == 0 && in_flight < 2)
		outputs[in_flight] = host;
	return device_sim_ops.slice_output(b, tensor, host, offset, size);
}

/* A single value of the second one's output gets into the first one's. */
static enum npu_error wait_and_smear(struct outbuf *out)
{
	bool both = in_flight == 2;
	enum npu_error code;

	in_flight--;
	code = device_sim_ops.wait(out);
	if (both && outputs[0] && outputs[1])
		outputs[0][VOCAB - 1] += 1;
	outputs[0] = outputs[1] = NULL;
	return code;
}

/* The evidence that a runner would write of these. */
static int write_evidence(const struct result *serial, const struct result *pair)
{
	char store[] = "/tmp/npufs-unit-XXXXXX", command[64];
	struct evidence e = { .name = "x", .submitted = 1, .waited = 1 };
	static const int inputs[][2] = { { 0, 1 }, { 0, 1 }, { 0, 1 }, { 0, 0 }, { 1, 1 }, { 0, 1 },
		{ 1, 0 } };
	int err;

	sha256_hex("", 0, e.artifact);
	for (size_t i = 0; i < EVIDENCE_ORDERS; i++)
		for (int k = 0; k < 2; k++) {
			const struct result *from = i == EVIDENCE_PQ ? pair : serial;

			e.orders[i].rounds = 1;
			strcpy(e.orders[i].sha256[k], from->sha256[inputs[i][k]]);
			e.orders[i].kv[k] = (uint32_t)from->kv[inputs[i][k]];
		}
	assert_non_null(mkdtemp(store));
	err = evidence_write(store, &e);
	snprintf(command, sizeof command, "rm -rf %s", store);
	assert_int_equal(system(command), 0);
	return err;
}

static void check_told(const struct device_ops *ops)
{
	struct result serial = run(&device_sim_ops, 0, 1, false), alone, pair;

	in_flight = 0;
	alone = run(ops, 0, 1, false); /* such a device is sound with one in flight */
	assert_memory_equal(&alone, &serial, sizeof serial);
	assert_int_equal(write_evidence(&serial, &serial), 0);
	pair = run(ops, 0, 1, true);
	assert_true(strcmp(pair.sha256[0], serial.sha256[0]) ||
		strcmp(pair.sha256[1], serial.sha256[1]));
	assert_true(write_evidence(&serial, &pair) < 0); /* and nobody can record it as proven */
}

static void pair__input_of_the_other__told_by_the_hash(void **state)
{
	struct device_ops ops = device_sim_ops;

	(void)state;
	ops.infer = infer_with_the_others_input;
	ops.wait = counted_wait;
	check_told(&ops);
}

static void pair__one_value_of_the_others_output__told_by_the_hash(void **state)
{
	struct device_ops ops = device_sim_ops;

	(void)state;
	ops.infer = counted_infer;
	ops.wait = wait_and_smear;
	ops.slice_output = noted_slice_output;
	check_told(&ops);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pair__software_device__every_order_as_one_after_the_other),
		cmocka_unit_test(pair__input_of_the_other__told_by_the_hash),
		cmocka_unit_test(pair__one_value_of_the_others_output__told_by_the_hash),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
