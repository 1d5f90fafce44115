/* The software device held to the contract's rules one by one, through its table and nothing else.
 */
#include "core/device_sim.h"

#include <sys/stat.h>
#include <time.h>

#include "core/base/mem.h"
#include "core/device_soft.h"
#include "sim_files.h"

#define OPS    (&device_sim_ops)
#define VOCAB  41 /* of odd_llama */
#define UBATCH 19
#define SEQ    7

struct rig {
	struct folder folder;
	struct vdevice *d;
	struct calbin *c;
	struct kvman *kv;
	struct model *prefill, *decode, *update;
	struct inbuf *in, *in1, *in_update;
	struct outbuf *out, *out1, *out_update;
	int32_t tokens[UBATCH], token, length;
	float logits[VOCAB];
};

static const struct device_params params = { .threads = 1, .kv_sequences = 2 };

static struct vdevice *open_device(const struct device_params *p)
{
	struct vdevice *d = NULL;

	assert_int_equal(OPS->create_vdevice(p, &d), NPU_SUCCESS);
	assert_non_null(d);
	return d;
}

static void make_buffers(struct rig *r)
{
	assert_int_equal(OPS->create_input_buf(r->prefill, &r->in), NPU_SUCCESS);
	assert_int_equal(OPS->create_input_buf(r->decode, &r->in1), NPU_SUCCESS);
	assert_int_equal(OPS->create_input_buf(r->update, &r->in_update), NPU_SUCCESS);
	assert_int_equal(OPS->create_output_buf(r->prefill, &r->out), NPU_SUCCESS);
	assert_int_equal(OPS->create_output_buf(r->decode, &r->out1), NPU_SUCCESS);
	assert_int_equal(OPS->create_output_buf(r->update, &r->out_update), NPU_SUCCESS);
	assert_int_equal(OPS->slice_input(r->in, "tokens", r->tokens, 0, sizeof(r->tokens)), 0);
	assert_int_equal(OPS->slice_input(r->in1, "tokens", &r->token, 0, sizeof(r->token)), 0);
	assert_int_equal(OPS->slice_output(r->out, "logits", r->logits, 0, sizeof(r->logits)), 0);
	assert_int_equal(OPS->slice_output(r->out1, "logits", r->logits, 0, sizeof(r->logits)), 0);
	assert_int_equal(OPS->slice_output(r->out_update, "kv_length", &r->length, 0,
				 sizeof(r->length)),
		0);
}

/* A configured random llama with a KV manager, all buffers sliced, and sequence SEQ. */
static int rig_up(void **state)
{
	struct rig *r = calloc(1, sizeof(*r));

	folder_make(&r->folder);
	folder_write_llama(&r->folder);
	r->d = open_device(&params);
	assert_int_equal(OPS->create_calbin(r->d, r->folder.path, &r->c), NPU_SUCCESS);
	assert_int_equal(OPS->configure(r->d, r->c, false), NPU_SUCCESS);
	assert_int_equal(OPS->create_kv(r->d, r->c, &r->kv), NPU_SUCCESS);
	r->prefill = OPS->get_model_by_name(r->c, "prefill");
	r->decode = OPS->get_model_by_name(r->c, "decode");
	r->update = OPS->get_model_by_name(r->c, "kv_update");
	make_buffers(r);
	OPS->kv_allocate(r->kv, &(struct kv_seq_info){ SEQ, 0 });
	*state = r;
	return 0;
}

static int rig_down(void **state)
{
	struct rig *r = *state;

	OPS->destroy_input_buf(r->in);
	OPS->destroy_input_buf(r->in1);
	OPS->destroy_input_buf(r->in_update);
	OPS->destroy_output_buf(r->out);
	OPS->destroy_output_buf(r->out1);
	OPS->destroy_output_buf(r->out_update);
	OPS->destroy_kv(r->kv);
	assert_int_equal(OPS->reset_configuration(r->d), NPU_SUCCESS);
	OPS->destroy_calbin(r->c);
	OPS->shutdown(r->d);
	folder_remove(&r->folder);
	free(r);
	return 0;
}

static bool apply(struct rig *r, int32_t seq, int32_t n)
{
	return OPS->kv_apply(r->kv, &(struct kv_seq_info){ seq, n });
}

static void set_lengths(struct model *m, uint32_t cur, uint32_t total)
{
	assert_int_equal(OPS->set_csr(m, CSR_CUR_LEN, cur), NPU_SUCCESS);
	assert_int_equal(OPS->set_csr(m, CSR_PAST_LEN, total), NPU_SUCCESS);
}

static enum npu_error prefill(struct rig *r, uint32_t cur, uint32_t total)
{
	set_lengths(r->prefill, cur, total);
	assert_int_equal(OPS->infer(r->d, r->prefill, r->in, r->out, DEVICE_AUTO), NPU_SUCCESS);
	return OPS->wait(r->out);
}

static enum npu_error decode(struct rig *r, int32_t token, uint32_t total)
{
	r->token = token;
	set_lengths(r->decode, 1, total);
	assert_int_equal(OPS->infer(r->d, r->decode, r->in1, r->out1, DEVICE_AUTO), NPU_SUCCESS);
	return OPS->wait(r->out1);
}

static enum npu_error update(struct rig *r, uint32_t cur, uint32_t total)
{
	set_lengths(r->update, cur, total);
	assert_int_equal(OPS->infer(r->d, r->update, r->in_update, r->out_update, DEVICE_AUTO),
		NPU_SUCCESS);
	return OPS->wait(r->out_update);
}

/* --- what a calbin tells ---------------------------------------------------------------------- */

static void model_info__llama__programs_as_the_contract_names_them(void **state)
{
	struct rig *r = *state;
	const struct model_info *i = OPS->model_info(r->prefill);
	struct llm_info llm;

	assert_int_equal(OPS->model_count(r->c), 3);
	assert_null(OPS->model_at(r->c, 3));
	assert_null(OPS->get_model_by_name(r->c, "Prefill"));
	assert_string_equal(i->name, "prefill");
	assert_int_equal(i->n_inputs, 1);
	assert_string_equal(i->inputs[0].name, "tokens");
	assert_int_equal(i->inputs[0].dtype, DTYPE_INT32);
	assert_int_equal(i->inputs[0].dims[0], UBATCH);
	assert_string_equal(i->outputs[0].name, "logits");
	assert_int_equal(i->outputs[0].dims[0], VOCAB);
	assert_int_equal(i->n_csrs, 2);
	assert_string_equal(i->csrs[0], CSR_CUR_LEN);
	assert_string_equal(i->csrs[1], CSR_PAST_LEN);
	assert_int_equal(OPS->model_info(r->decode)->inputs[0].dims[0], 1);
	assert_string_equal(OPS->model_info(r->decode)->type,
		"prefill"); /* misleading on purpose */
	assert_int_equal(OPS->model_info(r->update)->n_inputs, 0);
	assert_string_equal(OPS->model_info(r->update)->outputs[0].name, "kv_length");
	OPS->get_llm_info(r->c, &llm);
	assert_int_equal(llm.max_batch_size, 1);
	assert_int_equal(llm.max_seq_len, 43);
	assert_string_equal(OPS->version(r->c), "0.7.6");
}

static void get_device_info__always__the_versions(void **state)
{
	struct rig *r = *state;
	struct device_info i;

	assert_int_equal(OPS->get_device_info(r->d, &i), NPU_SUCCESS);
	assert_string_equal(i.runtime, "0.7.6");
	assert_string_equal(i.driver, "sim-1");
	assert_string_equal(i.firmware, "sim-1");
	assert_string_equal(i.name, "npufs software device");
	assert_int_equal(OPS->status(r->d), NPU_SUCCESS);
}

static void get_golden__absent_then_there__empty_then_the_bytes(void **state)
{
	struct rig *r = *state;
	AUTO_BUF struct buf b = BUF_INIT;
	char path[128];

	buf_puts(&b, "old");
	OPS->get_golden_input(r->c, "prefill", &b);
	assert_int_equal(b.len, 0);
	snprintf(path, sizeof(path), "%s/golden", r->folder.path);
	assert_int_equal(mkdir(path, 0700), 0);
	folder_write(&r->folder, "golden/prefill.in", "in\0put", 6);
	folder_write(&r->folder, "golden/prefill.out", "output", 6);
	OPS->get_golden_input(r->c, "prefill", &b);
	assert_int_equal(b.len, 6);
	assert_memory_equal(b.data, "in\0put", 6);
	OPS->get_golden_output(r->c, "prefill", &b);
	assert_string_equal(b.data, "output");
	OPS->get_golden_output(r->c, "decode", &b);
	assert_int_equal(b.len, 0);
	OPS->get_golden_output(r->c, "../golden/prefill", &b);
	assert_int_equal(b.len, 0);
}

/* --- configuration ---------------------------------------------------------------------------- */

static void configure__while_another_is__already_configured(void **state)
{
	struct rig *r = *state;
	struct calbin *second;
	struct kvman *kv;

	assert_int_equal(OPS->create_calbin(r->d, r->folder.path, &second), NPU_SUCCESS);
	assert_int_equal(OPS->configure(r->d, second, false), NPU_ALREADY_CONFIGURED);
	assert_int_equal(OPS->configure(r->d, r->c, false), NPU_ALREADY_CONFIGURED);
	assert_int_equal(OPS->create_kv(r->d, second, &kv), NPU_MISS_CONFIGURATION);
	assert_int_equal(OPS->create_kv(r->d, r->c, &kv), NPU_ALREADY_CONFIGURED);
	OPS->destroy_calbin(second);
}

static void infer__after_reset_configuration__miss_configuration(void **state)
{
	struct rig *r = *state;

	assert_true(apply(r, SEQ, 1));
	set_lengths(r->decode, 1, 1);
	assert_int_equal(OPS->reset_configuration(r->d), NPU_SUCCESS);
	assert_int_equal(OPS->infer(r->d, r->decode, r->in1, r->out1, DEVICE_AUTO),
		NPU_MISS_CONFIGURATION);
	assert_int_equal(OPS->configure(r->d, r->c, false), NPU_SUCCESS);
	assert_int_equal(decode(r, 3, 1), NPU_SUCCESS);
}

static void reset_configuration__in_flight__device_busy(void **state)
{
	struct rig *r = *state;

	assert_true(apply(r, SEQ, 1));
	set_lengths(r->decode, 1, 1);
	assert_int_equal(OPS->infer(r->d, r->decode, r->in1, r->out1, DEVICE_AUTO), NPU_SUCCESS);
	assert_int_equal(OPS->reset_configuration(r->d), NPU_DEVICE_BUSY);
	assert_int_equal(OPS->wait(r->out1), NPU_SUCCESS);
}

/* --- slices and CSRs -------------------------------------------------------------------------- */

static void slice__bad_arguments__refused(void **state)
{
	struct rig *r = *state;
	const uint64_t all = sizeof(r->tokens);

	assert_int_equal(OPS->slice_input(r->in, "token", r->tokens, 0, 4), NPU_INVALID_VALUE);
	assert_int_equal(OPS->slice_input(r->in, "tokens", NULL, 0, 4), NPU_INVALID_VALUE);
	assert_int_equal(OPS->slice_input(r->in, "tokens", r->tokens, 0, 0), NPU_INVALID_VALUE);
	assert_int_equal(OPS->slice_input(r->in, "tokens", r->tokens, 2, 4), NPU_INVALID_VALUE);
	assert_int_equal(OPS->slice_input(r->in, "tokens", r->tokens, 0, 6), NPU_INVALID_VALUE);
	assert_int_equal(OPS->slice_input(r->in, "tokens", r->tokens, 0, all + 4),
		NPU_OUT_OF_RANGE);
	assert_int_equal(OPS->slice_input(r->in, "tokens", r->tokens, all, 4), NPU_OUT_OF_RANGE);
	assert_int_equal(OPS->slice_input(r->in, "tokens", r->tokens, 4, UINT64_MAX - 3),
		NPU_OUT_OF_RANGE);
	assert_int_equal(OPS->slice_output(r->out, "logits", r->logits, UINT64_MAX - 3, 8),
		NPU_OUT_OF_RANGE);
	assert_int_equal(OPS->slice_output(r->out, "tokens", r->logits, 0, 4), NPU_INVALID_VALUE);
	assert_int_equal(OPS->slice_output(r->out, "logits", r->logits + 1, 4,
				 sizeof(r->logits) - 4),
		NPU_SUCCESS);
}

static void set_csr__unknown_or_out_of_bounds__refused_and_unchanged(void **state)
{
	struct rig *r = *state;

	assert_int_equal(OPS->get_csr(r->prefill, CSR_CUR_LEN), 0);
	assert_int_equal(OPS->set_csr(r->prefill, CSR_CUR_LEN, 5), NPU_SUCCESS);
	assert_int_equal(OPS->set_csr(r->prefill, CSR_CUR_LEN, 0), NPU_OUT_OF_RANGE);
	assert_int_equal(OPS->set_csr(r->prefill, CSR_CUR_LEN, 44), NPU_OUT_OF_RANGE);
	assert_int_equal(OPS->set_csr(r->prefill, CSR_PAST_LEN, UINT32_MAX), NPU_OUT_OF_RANGE);
	assert_int_equal(OPS->set_csr(r->prefill, "cur_seq_len[1]", 1), NPU_INVALID_VALUE);
	assert_int_equal(OPS->get_csr(r->prefill, CSR_CUR_LEN), 5);
	assert_int_equal(OPS->get_csr(r->decode, CSR_CUR_LEN), 0);
	assert_int_equal(OPS->get_csr(r->prefill, "nothing"), 0);
}

static void infer__a_tensor_not_sliced_enough__invalid_value(void **state)
{
	struct rig *r = *state;

	assert_true(apply(r, SEQ, 3));
	set_lengths(r->prefill, 3, 3);
	OPS->reset_input(r->in);
	assert_int_equal(OPS->infer(r->d, r->prefill, r->in, r->out, DEVICE_AUTO),
		NPU_INVALID_VALUE);
	assert_int_equal(OPS->slice_input(r->in, "tokens", r->tokens, 0, 8), NPU_SUCCESS);
	assert_int_equal(OPS->infer(r->d, r->prefill, r->in, r->out, DEVICE_AUTO),
		NPU_INVALID_VALUE);
	assert_int_equal(OPS->slice_input(r->in, "tokens", r->tokens, 0, 12), NPU_SUCCESS);
	OPS->reset_output(r->out);
	assert_int_equal(OPS->infer(r->d, r->prefill, r->in, r->out, DEVICE_AUTO),
		NPU_INVALID_VALUE);
	assert_int_equal(OPS->run_status(r->out), RUN_DEFAULT);
	assert_int_equal(OPS->slice_output(r->out, "logits", r->logits, 0, 4), NPU_SUCCESS);
	r->logits[1] = 77;
	assert_int_equal(OPS->infer(r->d, r->prefill, r->in, r->out, DEVICE_AUTO), NPU_SUCCESS);
	assert_int_equal(OPS->wait(r->out), NPU_SUCCESS);
	assert_true(r->logits[0] != 0 && r->logits[1] == 77); /* nothing outside the slice */
}

static void infer__buffers_of_another_program_or_task_unknown__invalid_value(void **state)
{
	struct rig *r = *state;

	assert_true(apply(r, SEQ, 1));
	set_lengths(r->decode, 1, 1);
	assert_int_equal(OPS->infer(r->d, r->decode, r->in, r->out1, DEVICE_AUTO),
		NPU_INVALID_VALUE);
	assert_int_equal(OPS->infer(r->d, r->decode, r->in1, r->out, DEVICE_AUTO),
		NPU_INVALID_VALUE);
	assert_int_equal(OPS->infer(r->d, r->decode, r->in1, r->out1, (enum device_task)2),
		NPU_INVALID_VALUE);
	/* more valid tokens than the tensor holds */
	set_lengths(r->decode, 2, 2);
	assert_int_equal(OPS->infer(r->d, r->decode, r->in1, r->out1, DEVICE_AUTO),
		NPU_INVALID_VALUE);
}

/* --- an inference's states -------------------------------------------------------------------- */

static void infer__until_wait__pending_and_nothing_computed(void **state)
{
	struct rig *r = *state;
	float first[VOCAB];

	assert_int_equal(OPS->run_status(r->out1), RUN_DEFAULT);
	assert_int_equal(OPS->wait(r->out1), NPU_NOT_EXPECTED); /* nothing was submitted */
	assert_true(apply(r, SEQ, 1));
	set_lengths(r->decode, 1, 1);
	r->token = 5;
	r->logits[0] = 77;
	assert_int_equal(OPS->infer(r->d, r->decode, r->in1, r->out1, DEVICE_PING), NPU_SUCCESS);
	assert_int_equal(OPS->run_status(r->out1), RUN_PENDING);
	assert_true(r->logits[0] == 77);
	assert_int_equal(OPS->infer(r->d, r->decode, r->in1, r->out1, DEVICE_AUTO),
		NPU_DEVICE_BUSY);
	assert_int_equal(OPS->slice_output(r->out1, "logits", r->logits, 0, 4), NPU_DEVICE_BUSY);
	OPS->reset_output(r->out1); /* refused as well, silently */
	r->token = 6;               /* inputs were read at submit */
	assert_int_equal(OPS->wait(r->out1), NPU_SUCCESS);
	assert_int_equal(OPS->run_status(r->out1), RUN_DONE);
	assert_int_equal(OPS->wait(r->out1), NPU_SUCCESS);
	memcpy(first, r->logits, sizeof(first));
	assert_int_equal(decode(r, 5, 1), NPU_SUCCESS);
	assert_memory_equal(first, r->logits, sizeof(first));
	assert_int_equal(decode(r, 6, 1), NPU_SUCCESS);
	assert_memory_not_equal(first, r->logits, sizeof(first));
}

/* kv_update was submitted after the inference it commits, and is waited for first. */
static void wait__a_later_submit_first__still_in_order_of_submits(void **state)
{
	struct rig *r = *state;

	assert_true(apply(r, SEQ, 1));
	set_lengths(r->decode, 1, 1);
	set_lengths(r->update, 1, 1);
	assert_int_equal(OPS->infer(r->d, r->decode, r->in1, r->out1, DEVICE_PING), NPU_SUCCESS);
	assert_int_equal(OPS->infer(r->d, r->update, r->in_update, r->out_update, DEVICE_PONG),
		NPU_SUCCESS);
	assert_int_equal(OPS->wait(r->out_update), NPU_SUCCESS);
	assert_int_equal(r->length, 1);
	assert_int_equal(OPS->run_status(r->out1), RUN_DONE);
	assert_int_equal(OPS->wait(r->out1), NPU_SUCCESS);
}

static void wait__with_a_step_delay__takes_as_long(void **state)
{
	struct device_params slow = { .threads = 1, .kv_sequences = 1, .step_delay_us = 30000 };
	struct rig *r = *state, s = { .d = open_device(&slow) };
	struct timespec before, after;

	assert_int_equal(OPS->create_calbin(s.d, r->folder.path, &s.c), NPU_SUCCESS);
	assert_int_equal(OPS->configure(s.d, s.c, false), NPU_SUCCESS);
	assert_int_equal(OPS->create_kv(s.d, s.c, &s.kv), NPU_SUCCESS);
	s.prefill = s.decode = s.update = OPS->get_model_by_name(s.c, "kv_update");
	assert_int_equal(OPS->create_input_buf(s.update, &s.in_update), NPU_SUCCESS);
	assert_int_equal(OPS->create_output_buf(s.update, &s.out_update), NPU_SUCCESS);
	assert_int_equal(OPS->slice_output(s.out_update, "kv_length", &s.length, 0, 4),
		NPU_SUCCESS);
	clock_gettime(CLOCK_MONOTONIC, &before);
	assert_int_equal(update(&s, 1, 1), NPU_NOT_EXPECTED); /* no sequence */
	clock_gettime(CLOCK_MONOTONIC, &after);
	assert_true((after.tv_sec - before.tv_sec) * 1000000000L + after.tv_nsec - before.tv_nsec >=
		30000000L);
	OPS->destroy_input_buf(s.in_update);
	OPS->destroy_output_buf(s.out_update);
	OPS->destroy_kv(s.kv);
	OPS->destroy_calbin(s.c);
	OPS->shutdown(s.d);
}

/* --- KV --------------------------------------------------------------------------------------- */

static void kv_allocate__over_capacity_twice_or_negative__nothing_happens(void **state)
{
	struct rig *r = *state;

	assert_true(OPS->kv_can_allocate(r->kv, 1));
	assert_false(OPS->kv_can_allocate(r->kv, 2));
	OPS->kv_allocate(r->kv, &(struct kv_seq_info){ -1, 0 });
	OPS->kv_allocate(r->kv, &(struct kv_seq_info){ SEQ, 0 });
	assert_true(OPS->kv_can_allocate(r->kv, 1));
	OPS->kv_allocate(r->kv, &(struct kv_seq_info){ 8, 0 });
	OPS->kv_allocate(r->kv, &(struct kv_seq_info){ 9, 0 });
	assert_true(OPS->kv_exists(r->kv, 8));
	assert_false(OPS->kv_exists(r->kv, 9));
	assert_false(OPS->kv_can_allocate(r->kv, 1));
	assert_int_equal(OPS->kv_seq_len(r->kv, 8), 0);
	assert_int_equal(OPS->kv_seq_len(r->kv, 9), -1);
	OPS->kv_free(r->kv, 9);
	OPS->kv_free(r->kv, 8);
	OPS->kv_free(r->kv, 8);
	assert_true(OPS->kv_can_allocate(r->kv, 1));
	OPS->kv_clear(r->kv);
	assert_false(OPS->kv_exists(r->kv, SEQ));
	assert_true(OPS->kv_can_allocate(r->kv, 2));
}

static void kv_apply__bounds__only_a_bool(void **state)
{
	struct rig *r = *state;

	assert_false(apply(r, 8, 1));
	assert_false(apply(r, SEQ, 0));
	assert_false(apply(r, SEQ, -1));
	assert_false(apply(r, SEQ, 44));
	assert_true(apply(r, SEQ, 43));
	assert_false(apply(r, SEQ, 1));
	assert_false(apply(r, SEQ, INT32_MAX));
	assert_int_equal(OPS->kv_seq_len(r->kv, SEQ), 43);
	OPS->kv_remove_tokens_at_end(r->kv, SEQ, 44); /* more than there are: nothing */
	OPS->kv_remove_tokens_at_end(r->kv, 8, 1);
	assert_int_equal(OPS->kv_seq_len(r->kv, SEQ), 43);
	OPS->kv_remove_tokens_at_end(r->kv, SEQ, 43);
	assert_int_equal(OPS->kv_seq_len(r->kv, SEQ), 0);
}

static void wait__lengths_not_the_sequences__invalid_value(void **state)
{
	struct rig *r = *state;

	assert_int_equal(decode(r, 1, 1), NPU_NOT_EXPECTED); /* no sequence was applied */
	assert_true(apply(r, SEQ, 2));
	assert_int_equal(prefill(r, 2, 3), NPU_INVALID_VALUE);
	assert_int_equal(OPS->run_status(r->out), RUN_DEFAULT);
	assert_int_equal(OPS->wait(r->out), NPU_INVALID_VALUE);
	assert_int_equal(prefill(r, 3, 2), NPU_INVALID_VALUE);
	assert_int_equal(prefill(r, 2, 2), NPU_SUCCESS);
	r->tokens[1] = VOCAB;
	assert_int_equal(prefill(r, 2, 2), NPU_INVALID_VALUE);
	assert_int_equal(update(r, 2, 2), NPU_NOT_EXPECTED); /* the failure left nothing staged */
}

static void kv_update__left_out__later_positions_refused(void **state)
{
	struct rig *r = *state;

	assert_true(apply(r, SEQ, 2));
	assert_int_equal(update(r, 2, 2), NPU_NOT_EXPECTED); /* nothing computed yet */
	assert_int_equal(prefill(r, 2, 2), NPU_SUCCESS);
	assert_true(apply(r, SEQ, 1));
	assert_int_equal(decode(r, 1, 3), NPU_NOT_EXPECTED);
	OPS->kv_remove_tokens_at_end(r->kv, SEQ, 1);
	assert_int_equal(update(r, 2, 2), NPU_NOT_EXPECTED); /* what was staged is gone */
	assert_int_equal(prefill(r, 2, 2), NPU_SUCCESS);
	assert_int_equal(update(r, 1, 2), NPU_NOT_EXPECTED); /* not what was staged */
	assert_int_equal(update(r, 2, 2), NPU_SUCCESS);
	assert_int_equal(r->length, 2);
	assert_int_equal(update(r, 2, 2), NPU_NOT_EXPECTED);
	assert_int_equal(prefill(r, 2, 2), NPU_NOT_EXPECTED); /* these are written already */
	assert_true(apply(r, SEQ, 1));
	assert_int_equal(decode(r, 1, 3), NPU_SUCCESS);
}

static void decode__after_removing_the_tail__as_if_it_never_was(void **state)
{
	struct rig *r = *state;
	float want[VOCAB];

	for (int i = 0; i < UBATCH; i++)
		r->tokens[i] = i * 5 % VOCAB;
	assert_true(apply(r, SEQ, 18));
	assert_int_equal(prefill(r, 18, 18), NPU_SUCCESS);
	assert_int_equal(update(r, 18, 18), NPU_SUCCESS);
	assert_true(apply(r, SEQ, 1));
	assert_int_equal(decode(r, 9, 19), NPU_SUCCESS);
	memcpy(want, r->logits, sizeof(want));
	assert_int_equal(update(r, 1, 19), NPU_SUCCESS);
	OPS->kv_remove_tokens_at_end(r->kv, SEQ, 1);
	for (int i = 0; i < 3; i++) {
		assert_true(apply(r, SEQ, 1));
		assert_int_equal(decode(r, 20 + i, 19 + (uint32_t)i), NPU_SUCCESS);
		assert_int_equal(update(r, 1, 19 + (uint32_t)i), NPU_SUCCESS);
	}
	OPS->kv_remove_tokens_at_end(r->kv, SEQ, 3);
	assert_true(apply(r, SEQ, 1));
	assert_int_equal(decode(r, 9, 19), NPU_SUCCESS);
	assert_memory_equal(want, r->logits, sizeof(want));
}

static void wait__sequence_freed_since_submit__not_expected(void **state)
{
	struct rig *r = *state;

	assert_true(apply(r, SEQ, 1));
	set_lengths(r->decode, 1, 1);
	assert_int_equal(OPS->infer(r->d, r->decode, r->in1, r->out1, DEVICE_AUTO), NPU_SUCCESS);
	OPS->kv_free(r->kv, SEQ);
	OPS->kv_allocate(r->kv, &(struct kv_seq_info){ SEQ, 0 });
	assert_int_equal(OPS->wait(r->out1), NPU_NOT_EXPECTED);
}

/* --- memory and registers --------------------------------------------------------------------- */

static void memory__edges__all_of_it_or_nothing(void **state)
{
	static const struct {
		uint64_t address;
		size_t size;
		enum npu_error code;
	} rows[] = {
		{ SOFT_MEMORY_BASE, 4, NPU_SUCCESS },
		{ SOFT_MEMORY_BASE, SOFT_MEMORY_BYTES, NPU_SUCCESS },
		{ SOFT_MEMORY_BASE + SOFT_MEMORY_BYTES - 1, 1, NPU_SUCCESS },
		{ SOFT_MEMORY_BASE + SOFT_MEMORY_BYTES, 1, NPU_OUT_OF_RANGE },
		{ SOFT_MEMORY_BASE + SOFT_MEMORY_BYTES - 1, 2, NPU_OUT_OF_RANGE },
		{ SOFT_MEMORY_BASE, SOFT_MEMORY_BYTES + 1, NPU_OUT_OF_RANGE },
		{ SOFT_MEMORY_BASE - 1, 2, NPU_OUT_OF_RANGE },
		{ 0, 1, NPU_OUT_OF_RANGE },
		{ UINT64_MAX, 4, NPU_OUT_OF_RANGE },
		{ SOFT_MEMORY_BASE, SIZE_MAX, NPU_OUT_OF_RANGE },
	};
	struct vdevice *d = open_device(&params);
	AUTO_FREE uint8_t *bytes = calloc(1, SOFT_MEMORY_BYTES);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_int_equal(OPS->read_mem(d, rows[i].address, bytes, rows[i].size),
			rows[i].code);
		assert_int_equal(OPS->write_mem(d, rows[i].address, bytes, rows[i].size),
			rows[i].code);
	}
	OPS->shutdown(d);
}

static void memory__written__read_again_until_a_reset(void **state)
{
	struct vdevice *d = open_device(&params);
	char got[8];

	(void)state;
	assert_int_equal(OPS->read_mem(d, SOFT_MEMORY_BASE + 5, got, 8), 0);
	assert_memory_equal(got, "\0\0\0\0\0\0\0\0", 8);
	assert_int_equal(OPS->write_mem(d, SOFT_MEMORY_BASE + 5, "stamped", 8), 0);
	assert_int_equal(OPS->reset_ccu(d), 0);
	assert_int_equal(OPS->read_mem(d, SOFT_MEMORY_BASE + 6, got, 7), 0);
	assert_string_equal(got, "tamped");
	assert_int_equal(OPS->reset(d), 0);
	assert_int_equal(OPS->read_mem(d, SOFT_MEMORY_BASE + 5, got, 8), 0);
	assert_memory_equal(got, "\0\0\0\0\0\0\0\0", 8);
	OPS->shutdown(d);
}

static uint32_t read_register(struct vdevice *d, uint64_t address)
{
	uint32_t value = 0;

	assert_int_equal(OPS->read_reg(d, address, &value), NPU_SUCCESS);
	return value;
}

static void registers__configured_device__what_it_is_and_did(void **state)
{
	struct rig *r = *state;
	uint32_t before = read_register(r->d, SOFT_REG_SUBMITS), value;

	assert_int_equal(read_register(r->d, SOFT_REG_ID), SOFT_ID);
	assert_int_equal(read_register(r->d, SOFT_REG_STATUS), SOFT_STATUS_CONFIGURED);
	assert_true(apply(r, SEQ, 1));
	assert_int_equal(prefill(r, 1, 1), NPU_SUCCESS);
	assert_int_equal(read_register(r->d, SOFT_REG_SUBMITS), before + 1);
	assert_int_equal(OPS->write_reg(r->d, SOFT_REG_SCRATCH, 0xdeadbeef), NPU_SUCCESS);
	assert_int_equal(read_register(r->d, SOFT_REG_SCRATCH), 0xdeadbeef);
	assert_int_equal(OPS->write_reg(r->d, SOFT_REG_ID, 1), NPU_INVALID_VALUE);
	assert_int_equal(read_register(r->d, SOFT_REG_ID), SOFT_ID);
	assert_int_equal(OPS->read_reg(r->d, 2, &value), NPU_INVALID_VALUE);
	assert_int_equal(OPS->read_reg(r->d, 0x10, &value), NPU_OUT_OF_RANGE);
	assert_int_equal(OPS->write_reg(r->d, UINT64_MAX - 3, 1), NPU_OUT_OF_RANGE);
}

#define RIGGED(test) cmocka_unit_test_setup_teardown(test, rig_up, rig_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIGGED(model_info__llama__programs_as_the_contract_names_them),
		RIGGED(get_device_info__always__the_versions),
		RIGGED(get_golden__absent_then_there__empty_then_the_bytes),
		RIGGED(configure__while_another_is__already_configured),
		RIGGED(infer__after_reset_configuration__miss_configuration),
		RIGGED(reset_configuration__in_flight__device_busy),
		RIGGED(slice__bad_arguments__refused),
		RIGGED(set_csr__unknown_or_out_of_bounds__refused_and_unchanged),
		RIGGED(infer__a_tensor_not_sliced_enough__invalid_value),
		RIGGED(infer__buffers_of_another_program_or_task_unknown__invalid_value),
		RIGGED(infer__until_wait__pending_and_nothing_computed),
		RIGGED(wait__a_later_submit_first__still_in_order_of_submits),
		RIGGED(wait__with_a_step_delay__takes_as_long),
		RIGGED(kv_allocate__over_capacity_twice_or_negative__nothing_happens),
		RIGGED(kv_apply__bounds__only_a_bool),
		RIGGED(wait__lengths_not_the_sequences__invalid_value),
		RIGGED(kv_update__left_out__later_positions_refused),
		RIGGED(decode__after_removing_the_tail__as_if_it_never_was),
		RIGGED(wait__sequence_freed_since_submit__not_expected),
		cmocka_unit_test(memory__edges__all_of_it_or_nothing),
		cmocka_unit_test(memory__written__read_again_until_a_reset),
		RIGGED(registers__configured_device__what_it_is_and_did),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
