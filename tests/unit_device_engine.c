/* The two engines of a software device, through its table and nothing else. What they give is held
 * to what one engine gives. */
#include "core/device_sim.h"

#include <time.h>

#include "core/base/mem.h"
#include "sim_files.h"

#define OPS    (&device_sim_ops)
#define VOCAB  41 /* of odd_llama */
#define UBATCH 19
#define STEPS  12

/* Everything that one inference at a time needs. */
struct set {
	struct inbuf *in, *in1, *in_update;
	struct outbuf *out, *out1, *out_update;
	int32_t tokens[UBATCH], token, length;
	float logits[VOCAB];
};

struct rig {
	struct folder folder;
	struct vdevice *d;
	struct calbin *c;
	struct kvman *kv;
	struct model *prefill, *decode, *update;
	struct set set[DEVICE_ENGINES];
};

static void nap(void)
{
	usleep(500);
}

static void make_set(struct rig *r, struct set *s)
{
	assert_int_equal(OPS->create_input_buf(r->prefill, &s->in), 0);
	assert_int_equal(OPS->create_input_buf(r->decode, &s->in1), 0);
	assert_int_equal(OPS->create_input_buf(r->update, &s->in_update), 0);
	assert_int_equal(OPS->create_output_buf(r->prefill, &s->out), 0);
	assert_int_equal(OPS->create_output_buf(r->decode, &s->out1), 0);
	assert_int_equal(OPS->create_output_buf(r->update, &s->out_update), 0);
	assert_int_equal(OPS->slice_input(s->in, "tokens", s->tokens, 0, sizeof s->tokens), 0);
	assert_int_equal(OPS->slice_input(s->in1, "tokens", &s->token, 0, 4), 0);
	assert_int_equal(OPS->slice_output(s->out, "logits", s->logits, 0, sizeof s->logits), 0);
	assert_int_equal(OPS->slice_output(s->out1, "logits", s->logits, 0, sizeof s->logits), 0);
	assert_int_equal(OPS->slice_output(s->out_update, "kv_length", &s->length, 0, 4), 0);
}

static void free_set(struct set *s)
{
	OPS->destroy_input_buf(s->in);
	OPS->destroy_input_buf(s->in1);
	OPS->destroy_input_buf(s->in_update);
	OPS->destroy_output_buf(s->out);
	OPS->destroy_output_buf(s->out1);
	OPS->destroy_output_buf(s->out_update);
}

static void rig_open(struct rig *r, unsigned threads, unsigned delay_us)
{
	const struct device_params params = { .threads = threads,
		.kv_sequences = 4,
		.step_delay_us = delay_us };

	memset(r, 0, sizeof *r);
	folder_make(&r->folder);
	folder_write_llama(&r->folder);
	assert_int_equal(OPS->create_vdevice(&params, &r->d), 0);
	assert_int_equal(OPS->create_calbin(r->d, r->folder.path, &r->c), 0);
	assert_int_equal(OPS->configure(r->d, r->c, false), 0);
	assert_int_equal(OPS->create_kv(r->d, r->c, &r->kv), 0);
	r->prefill = OPS->get_model_by_name(r->c, "prefill");
	r->decode = OPS->get_model_by_name(r->c, "decode");
	r->update = OPS->get_model_by_name(r->c, "kv_update");
	for (int i = 0; i < DEVICE_ENGINES; i++) {
		make_set(r, &r->set[i]);
		OPS->kv_allocate(r->kv, &(struct kv_seq_info){ i, 0 });
	}
}

static void rig_close(struct rig *r)
{
	for (int i = 0; i < DEVICE_ENGINES; i++)
		free_set(&r->set[i]);
	OPS->destroy_kv(r->kv);
	assert_int_equal(OPS->reset_configuration(r->d), 0);
	OPS->destroy_calbin(r->c);
	OPS->shutdown(r->d);
	folder_remove(&r->folder);
}

static enum npu_error submit(struct rig *r, struct model *m, struct inbuf *in, struct outbuf *out,
	uint32_t cur, uint32_t total, enum device_task task)
{
	assert_int_equal(OPS->set_csr(m, CSR_CUR_LEN, cur), 0);
	assert_int_equal(OPS->set_csr(m, CSR_PAST_LEN, total), 0);
	return OPS->infer(r->d, m, in, out, task);
}

static bool apply(struct rig *r, int32_t seq, int32_t n)
{
	return OPS->kv_apply(r->kv, &(struct kv_seq_info){ seq, n });
}

static enum npu_error submit_prefill(struct rig *r, int i, uint32_t n, enum device_task task)
{
	struct set *s = &r->set[i];

	assert_true(apply(r, i, (int32_t)n));
	for (uint32_t k = 0; k < n; k++)
		s->tokens[k] = (int32_t)(3 + 7 * i + 5 * k) % VOCAB;
	return submit(r, r->prefill, s->in, s->out, n, n, task);
}

static enum npu_error submit_decode(struct rig *r, int i, uint32_t total, enum device_task task)
{
	struct set *s = &r->set[i];

	assert_true(apply(r, i, 1));
	s->token = (int32_t)(total * 11 + (uint32_t)i) % VOCAB;
	return submit(r, r->decode, s->in1, s->out1, 1, total, task);
}

static enum npu_error submit_update(struct rig *r, int i, uint32_t cur, uint32_t total,
	enum device_task task)
{
	struct set *s = &r->set[i];

	return submit(r, r->update, s->in_update, s->out_update, cur, total, task);
}

/* One of the two sequences, which differ in length and tokens. */
static uint32_t total_at(int i, uint32_t step)
{
	return (i ? 9 : 4) + step;
}

static struct outbuf *submit_step(struct rig *r, int i, uint32_t step, enum device_task task)
{
	uint32_t total = total_at(i, step);

	assert_int_equal(step ? submit_decode(r, i, total, task)
			      : submit_prefill(r, i, total, task),
		NPU_SUCCESS);
	return step ? r->set[i].out1 : r->set[i].out;
}

static struct outbuf *submit_commit(struct rig *r, int i, uint32_t step, enum device_task task)
{
	uint32_t total = total_at(i, step);

	assert_int_equal(submit_update(r, i, step ? 1 : total, total, task), NPU_SUCCESS);
	return r->set[i].out_update;
}

static void one_after_the_other(struct rig *r, uint32_t step)
{
	for (int i = 0; i < 2; i++) {
		assert_int_equal(OPS->wait(submit_step(r, i, step, DEVICE_AUTO)), 0);
		assert_int_equal(OPS->wait(submit_commit(r, i, step, DEVICE_AUTO)), 0);
	}
}

static void two_at_once(struct rig *r, uint32_t step, const enum device_task task[2])
{
	struct outbuf *out[2];

	for (int i = 0; i < 2; i++)
		out[i] = submit_step(r, i, step, task[i]);
	for (int i = 0; i < 2; i++)
		assert_int_equal(OPS->wait(out[i]), NPU_SUCCESS);
	for (int i = 0; i < 2; i++)
		out[i] = submit_commit(r, i, step, task[i]);
	for (int i = 0; i < 2; i++)
		assert_int_equal(OPS->wait(out[i]), NPU_SUCCESS);
}

/* All their logits, step by step. `task` NULL: one in flight. */
static void run_two(unsigned threads, bool parallel, const enum device_task *task,
	float ret[2][STEPS][VOCAB])
{
	struct rig r;

	rig_open(&r, threads, 0);
	OPS->enable_parallel(r.d, parallel);
	for (uint32_t step = 0; step < STEPS; step++) {
		if (task)
			two_at_once(&r, step, task);
		else
			one_after_the_other(&r, step);
		for (int i = 0; i < 2; i++) {
			memcpy(ret[i][step], r.set[i].logits, sizeof r.set[i].logits);
			assert_int_equal(r.set[i].length, total_at(i, step));
		}
	}
	rig_close(&r);
}

static void infer__two_at_once__bits_of_one_after_the_other(void **state)
{
	static const enum device_task to[] = { DEVICE_PING, DEVICE_PONG },
				      fro[] = { DEVICE_PONG, DEVICE_PING },
				      any[] = { DEVICE_AUTO, DEVICE_AUTO };
	static float serial[2][STEPS][VOCAB], parallel[2][STEPS][VOCAB];

	(void)state;
	for (unsigned threads = 1; threads <= 3; threads += 2) {
		run_two(threads, false, NULL, serial);
		assert_memory_not_equal(serial[0], serial[1], sizeof serial[0]);
		run_two(threads, true, NULL, parallel);
		assert_memory_equal(serial, parallel, sizeof serial);
		run_two(threads, true, to, parallel);
		assert_memory_equal(serial, parallel, sizeof serial);
		run_two(threads, true, fro, parallel);
		assert_memory_equal(serial, parallel, sizeof serial);
		run_two(threads, true, any, parallel);
		assert_memory_equal(serial, parallel, sizeof serial);
	}
}

static void await(struct outbuf *out, enum device_run status)
{
	for (int i = 0; OPS->run_status(out) != status && i < 20000; i++)
		nap();
	assert_int_equal(OPS->run_status(out), status);
}

/* Each waits so long that both are seen at it. */
static void infer__auto__the_idle_engine_and_both_run_at_once(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r, 1, 400000);
	OPS->enable_parallel(r.d, true);
	assert_int_equal(submit_prefill(&r, 0, 3, DEVICE_AUTO), NPU_SUCCESS);
	assert_int_equal(submit_prefill(&r, 1, 3, DEVICE_AUTO), NPU_SUCCESS);
	await(r.set[0].out, RUN_RUNNING);
	await(r.set[1].out, RUN_RUNNING);
	assert_int_equal(OPS->run_status(r.set[0].out), RUN_RUNNING);
	assert_int_equal(OPS->wait(r.set[1].out), NPU_SUCCESS);
	assert_int_equal(OPS->wait(r.set[0].out), NPU_SUCCESS);
	assert_int_equal(OPS->run_status(r.set[0].out), RUN_DONE);
	rig_close(&r);
}

/* Both come one after the other to idle engines, and their kv_update likewise. */
static void infer__auto_while_a_kv_update_is_awaited__the_other_engine(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r, 1, 0);
	OPS->enable_parallel(r.d, true);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(submit_prefill(&r, i, 3 + (uint32_t)i, DEVICE_AUTO), NPU_SUCCESS);
		assert_int_equal(OPS->wait(r.set[i].out), NPU_SUCCESS);
	}
	for (int i = 0; i < 2; i++) {
		assert_int_equal(submit_update(&r, i, 3 + (uint32_t)i, 3 + (uint32_t)i,
					 DEVICE_AUTO),
			NPU_SUCCESS);
		assert_int_equal(OPS->wait(r.set[i].out_update), NPU_SUCCESS);
		assert_int_equal(r.set[i].length, 3 + i);
	}
	rig_close(&r);
}

/* kv_update was submitted behind what it commits; the other engine is not concerned. */
static void infer__one_engine__in_the_order_of_submits(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r, 1, 20000);
	OPS->enable_parallel(r.d, true);
	assert_int_equal(submit_prefill(&r, 0, 3, DEVICE_PING), NPU_SUCCESS);
	assert_int_equal(submit_update(&r, 0, 3, 3, DEVICE_PING), NPU_SUCCESS);
	assert_int_equal(submit_prefill(&r, 1, 5, DEVICE_PONG), NPU_SUCCESS);
	assert_int_equal(OPS->wait(r.set[0].out_update), NPU_SUCCESS);
	assert_int_equal(r.set[0].length, 3);
	assert_int_equal(OPS->run_status(r.set[0].out), RUN_DONE);
	assert_int_equal(OPS->wait(r.set[0].out), NPU_SUCCESS);
	assert_int_equal(OPS->wait(r.set[1].out), NPU_SUCCESS);
	assert_int_equal(submit_update(&r, 1, 5, 5, DEVICE_PONG), NPU_SUCCESS);
	assert_int_equal(OPS->wait(r.set[1].out_update), NPU_SUCCESS);
	assert_int_equal(r.set[1].length, 5);
	rig_close(&r);
}

static void kv__sequence_in_flight__left_alone(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r, 1, 100000);
	OPS->enable_parallel(r.d, true);
	assert_int_equal(submit_prefill(&r, 0, 3, DEVICE_PING), NPU_SUCCESS);
	assert_false(apply(&r, 0, 1));
	OPS->kv_remove_tokens_at_end(r.kv, 0, 1);
	OPS->kv_free(r.kv, 0);
	OPS->kv_clear(r.kv);
	assert_int_equal(OPS->kv_seq_len(r.kv, 0), 3);
	assert_int_equal(OPS->kv_seq_len(r.kv, 1), -1); /* that one could be cleared */
	assert_int_equal(OPS->wait(r.set[0].out), NPU_SUCCESS);
	OPS->kv_remove_tokens_at_end(r.kv, 0, 1);
	assert_int_equal(OPS->kv_seq_len(r.kv, 0), 2);
	rig_close(&r);
}

/* The sequence moved to Pong; Ping's last one is in flight there. */
static void infer__one_sequence_on_both_engines__device_busy(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r, 1, 100000);
	OPS->enable_parallel(r.d, true);
	assert_int_equal(submit_prefill(&r, 0, 3, DEVICE_PING), NPU_SUCCESS);
	assert_int_equal(OPS->wait(r.set[0].out), NPU_SUCCESS);
	assert_int_equal(submit_update(&r, 0, 3, 3, DEVICE_PING), NPU_SUCCESS);
	assert_int_equal(OPS->wait(r.set[0].out_update), NPU_SUCCESS);
	assert_int_equal(submit_decode(&r, 0, 4, DEVICE_PONG), NPU_SUCCESS);
	assert_int_equal(submit_update(&r, 0, 1, 4, DEVICE_PING), NPU_DEVICE_BUSY);
	assert_int_equal(submit_update(&r, 0, 1, 4, DEVICE_AUTO), NPU_DEVICE_BUSY);
	assert_int_equal(submit_update(&r, 0, 1, 4, DEVICE_PONG), NPU_SUCCESS); /* behind it */
	assert_int_equal(OPS->wait(r.set[0].out_update), NPU_SUCCESS);
	assert_int_equal(r.set[0].length, 4);
	rig_close(&r);
}

static void enable_parallel__in_flight__nothing_happens(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r, 1, 100000);
	assert_int_equal(submit_prefill(&r, 0, 3, DEVICE_PING), NPU_SUCCESS);
	OPS->enable_parallel(r.d, true);
	assert_int_equal(OPS->run_status(r.set[0].out), RUN_PENDING);
	nap();
	assert_int_equal(OPS->run_status(r.set[0].out), RUN_PENDING); /* Wait computes, as ever */
	assert_int_equal(OPS->wait(r.set[0].out), NPU_SUCCESS);
	OPS->enable_parallel(r.d, true);
	assert_int_equal(OPS->status(r.d), NPU_SUCCESS);
	assert_int_equal(submit_update(&r, 0, 3, 3, DEVICE_PING), NPU_SUCCESS);
	OPS->enable_parallel(r.d, false);
	assert_int_equal(OPS->reset_configuration(r.d), NPU_DEVICE_BUSY);
	await(r.set[0].out_update, RUN_DONE); /* nobody waited */
	for (int i = 0; i < 20; i++) {
		OPS->enable_parallel(r.d, i % 2);
		OPS->enable_parallel(r.d, i % 2);
	}
	OPS->enable_parallel(r.d, false);
	assert_int_equal(submit_decode(&r, 0, 4, DEVICE_PONG), NPU_SUCCESS);
	assert_int_equal(OPS->run_status(r.set[0].out1), RUN_PENDING);
	assert_int_equal(OPS->wait(r.set[0].out1), NPU_SUCCESS);
	rig_close(&r);
}

/* Against the contract, but nothing may break. */
static void shutdown__in_flight__runs_first(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r, 1, 50000);
	OPS->enable_parallel(r.d, true);
	assert_int_equal(submit_prefill(&r, 0, 3, DEVICE_PING), NPU_SUCCESS);
	assert_int_equal(submit_update(&r, 0, 3, 3, DEVICE_PING), NPU_SUCCESS);
	assert_int_equal(submit_prefill(&r, 1, 3, DEVICE_PONG), NPU_SUCCESS);
	rig_close(&r); /* buffers go while their inferences are queued and running */
}

/* --- graphs ----------------------------------------------------------------------------------- */

#define GRAPH \
	"{\"format\":\"npufs-sim-program\",\"version\":\"0.7.6\",\"architecture\":\"graph\"," \
	"\"graphs\":[{\"name\":\"g\"," \
	"\"inputs\":[{\"name\":\"x\",\"dtype\":\"float32\",\"shape\":[64,64]}]," \
	"\"outputs\":[{\"name\":\"y\",\"dtype\":\"float32\",\"shape\":[64,64]}]," \
	"\"nodes\":[{\"op\":\"softmax\",\"input\":\"x\",\"output\":\"s\"}," \
	"{\"op\":\"add\",\"input\":\"s\",\"other\":\"x\",\"output\":\"y\"}]}]}"

static void infer__one_graph_twice_at_once__each_its_own_values(void **state)
{
	static float x[2][64 * 64], y[2][64 * 64], want[2][64 * 64];
	const struct device_params params = { .threads = 1 };
	const struct weights none = { .n = 0 };
	struct inbuf *in[2];
	struct outbuf *out[2];
	struct vdevice *d;
	struct calbin *c;
	struct model *m;
	struct folder f;

	(void)state;
	folder_make(&f);
	folder_write_weights(&f, &none);
	folder_write_text(&f, "program.json", GRAPH);
	assert_int_equal(OPS->create_vdevice(&params, &d), 0);
	assert_int_equal(OPS->create_calbin(d, f.path, &c), 0);
	assert_int_equal(OPS->configure(d, c, false), 0);
	m = OPS->get_model_by_name(c, "g");
	for (int i = 0; i < 2; i++) {
		for (int k = 0; k < 64 * 64; k++)
			x[i][k] = (float)((k * (i + 3)) % 17);
		assert_int_equal(OPS->create_input_buf(m, &in[i]), 0);
		assert_int_equal(OPS->create_output_buf(m, &out[i]), 0);
		assert_int_equal(OPS->slice_input(in[i], "x", x[i], 0, sizeof x[i]), 0);
		assert_int_equal(OPS->slice_output(out[i], "y", y[i], 0, sizeof y[i]), 0);
		assert_int_equal(OPS->infer(d, m, in[i], out[i], DEVICE_AUTO), 0);
		assert_int_equal(OPS->wait(out[i]), 0);
		memcpy(want[i], y[i], sizeof y[i]);
	}
	assert_memory_not_equal(want[0], want[1], sizeof want[0]);
	OPS->enable_parallel(d, true);
	for (int round = 0; round < 200; round++) {
		memset(y, 0, sizeof y);
		for (int i = 0; i < 2; i++)
			assert_int_equal(OPS->infer(d, m, in[i], out[i], DEVICE_AUTO), 0);
		for (int i = 0; i < 2; i++)
			assert_int_equal(OPS->wait(out[i]), 0);
		assert_memory_equal(y, want, sizeof y);
	}
	for (int i = 0; i < 2; i++) {
		OPS->destroy_input_buf(in[i]);
		OPS->destroy_output_buf(out[i]);
	}
	OPS->destroy_calbin(c);
	OPS->shutdown(d);
	folder_remove(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(infer__two_at_once__bits_of_one_after_the_other),
		cmocka_unit_test(infer__auto__the_idle_engine_and_both_run_at_once),
		cmocka_unit_test(infer__auto_while_a_kv_update_is_awaited__the_other_engine),
		cmocka_unit_test(infer__one_engine__in_the_order_of_submits),
		cmocka_unit_test(kv__sequence_in_flight__left_alone),
		cmocka_unit_test(infer__one_sequence_on_both_engines__device_busy),
		cmocka_unit_test(enable_parallel__in_flight__nothing_happens),
		cmocka_unit_test(shutdown__in_flight__runs_first),
		cmocka_unit_test(infer__one_graph_twice_at_once__each_its_own_values),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
