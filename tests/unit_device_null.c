/* The measuring device: it answers a prompt with the prompt, through the same calls as any device.
 */
#include "core/device_null.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#include "core/base/json.h"

#define OPS (&device_null_ops)
#define END 256

struct rig {
	struct vdevice *d;
	struct calbin *c;
	struct kvman *kv;
	struct model *prefill, *decode, *update;
	struct inbuf *in, *in1, *in_update;
	struct outbuf *out, *out1, *out_update;
	int32_t tokens[64], token, length;
	float logits[257];
};

static struct rig rig;

static int rig_up(void **state)
{
	const struct device_params p = { .threads = 1, .kv_sequences = 3 };
	struct rig *r = &rig;

	*state = r;
	assert_int_equal(OPS->create_vdevice(&p, &r->d), NPU_SUCCESS);
	assert_int_equal(OPS->create_calbin(r->d, NULL, &r->c), NPU_SUCCESS);
	assert_int_equal(OPS->configure(r->d, r->c, false), NPU_SUCCESS);
	assert_int_equal(OPS->create_kv(r->d, r->c, &r->kv), NPU_SUCCESS);
	r->prefill = OPS->get_model_by_name(r->c, "prefill");
	r->decode = OPS->get_model_by_name(r->c, "decode");
	r->update = OPS->get_model_by_name(r->c, "kv_update");
	OPS->create_input_buf(r->prefill, &r->in);
	OPS->create_input_buf(r->decode, &r->in1);
	OPS->create_input_buf(r->update, &r->in_update);
	OPS->create_output_buf(r->prefill, &r->out);
	OPS->create_output_buf(r->decode, &r->out1);
	OPS->create_output_buf(r->update, &r->out_update);
	OPS->slice_input(r->in, "tokens", r->tokens, 0, sizeof(r->tokens));
	OPS->slice_input(r->in1, "tokens", &r->token, 0, sizeof(r->token));
	OPS->slice_output(r->out, "logits", r->logits, 0, sizeof(r->logits));
	OPS->slice_output(r->out1, "logits", r->logits, 0, sizeof(r->logits));
	OPS->slice_output(r->out_update, "kv_length", &r->length, 0, sizeof(r->length));
	for (int32_t id = 0; id < 3; id++)
		OPS->kv_allocate(r->kv, &(struct kv_seq_info){ id, 0 });
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
	OPS->reset_configuration(r->d);
	OPS->destroy_calbin(r->c);
	OPS->shutdown(r->d);
	return 0;
}

static void run(struct rig *r, struct model *m, struct inbuf *in, struct outbuf *out, uint32_t cur,
	uint32_t total)
{
	assert_int_equal(OPS->set_csr(m, CSR_CUR_LEN, cur), NPU_SUCCESS);
	assert_int_equal(OPS->set_csr(m, CSR_PAST_LEN, total), NPU_SUCCESS);
	assert_int_equal(OPS->infer(r->d, m, in, out, DEVICE_AUTO), NPU_SUCCESS);
	assert_int_equal(OPS->wait(out), NPU_SUCCESS);
}

/* Feed tokens to a sequence, `prefill` or one by one, and give what is most likely next. */
static int32_t feed(struct rig *r, int32_t id, const int32_t *tokens, int32_t n)
{
	int32_t best = 0;
	uint32_t total;

	assert_true(OPS->kv_apply(r->kv, &(struct kv_seq_info){ id, n }));
	total = (uint32_t)OPS->kv_seq_len(r->kv, id);
	memcpy(n > 1 ? r->tokens : &r->token, tokens, (size_t)n * sizeof(*tokens));
	if (n > 1)
		run(r, r->prefill, r->in, r->out, (uint32_t)n, total);
	else
		run(r, r->decode, r->in1, r->out1, 1, total);
	run(r, r->update, r->in_update, r->out_update, (uint32_t)n, total);
	assert_int_equal(r->length, total);
	for (int32_t i = 1; i < 257; i++)
		if (r->logits[i] > r->logits[best])
			best = i;
	return best;
}

/* Greedy decoding from the first answer on must give `want`, then the end. */
static void check_echo(struct rig *r, int32_t id, int32_t first, const int32_t *want, int32_t n)
{
	for (int32_t i = 0; i < n; i++) {
		assert_int_equal(first, want[i]);
		first = feed(r, id, &first, 1);
	}
	assert_int_equal(first, END);
}

static void forward__prompt_with_its_end__echoed_then_end(void **state)
{
	static const int32_t prompt[] = { 'h', 'e', 'l', 'l', 'o', END };
	struct rig *r = *state;

	check_echo(r, 0, feed(r, 0, prompt, 6), prompt, 5);
}

static void forward__prompt_in_micro_batches_last_one_alone__echoed(void **state)
{
	struct rig *r = *state;
	int32_t prompt[129];

	for (int i = 0; i < 128; i++)
		prompt[i] = (i * 7 + 1) % 256;
	prompt[128] = END;
	feed(r, 0, prompt, 64);
	feed(r, 0, prompt + 64, 64);
	check_echo(r, 0, feed(r, 0, prompt + 128, 1), prompt, 128);
}

static void forward__bare_tokens_or_only_the_end__echoed(void **state)
{
	static const int32_t bare[] = { 'a', 'b', 'a' }, end[] = { END };
	struct rig *r = *state;

	check_echo(r, 0, feed(r, 0, bare, 3), bare, 3);
	check_echo(r, 1, feed(r, 1, bare + 1, 1), bare + 1, 1);
	assert_int_equal(feed(r, 2, end, 1), END);
}

static void forward__sequences_interleaved__each_its_own(void **state)
{
	static const int32_t a[] = { 'a', 'b', END }, b[] = { 'x', 'y', END };
	struct rig *r = *state;
	int32_t next_a = feed(r, 0, a, 3), next_b = feed(r, 1, b, 3);

	for (int i = 0; i < 2; i++) {
		assert_int_equal(next_a, a[i]);
		assert_int_equal(next_b, b[i]);
		next_a = feed(r, 0, &next_a, 1);
		next_b = feed(r, 1, &next_b, 1);
	}
	assert_int_equal(next_a, END);
	assert_int_equal(next_b, END);
}

static void forward__second_prompt_or_sequence_used_again__echoes_the_new(void **state)
{
	static const int32_t a[] = { 'a', 'b', 'c', END }, b[] = { 'x', 'y', END };
	struct rig *r = *state;
	int32_t first = feed(r, 0, a, 4);

	feed(r, 0, &first, 1); /* an answer cut short */
	check_echo(r, 0, feed(r, 0, b, 3), b, 2);
	check_echo(r, 0, feed(r, 0, a, 4), a, 3);
	OPS->kv_free(r->kv, 0);
	OPS->kv_allocate(r->kv, &(struct kv_seq_info){ 0, 0 });
	check_echo(r, 0, feed(r, 0, b, 3), b, 2);
	OPS->kv_remove_tokens_at_end(r->kv, 0, (size_t)OPS->kv_seq_len(r->kv, 0) - 1);
	check_echo(r, 0, feed(r, 0, a, 4), a, 3);
}

static void forward__token_outside_the_vocabulary__invalid_value(void **state)
{
	struct rig *r = *state;

	r->token = 257;
	assert_true(OPS->kv_apply(r->kv, &(struct kv_seq_info){ 0, 1 }));
	OPS->set_csr(r->decode, CSR_CUR_LEN, 1);
	OPS->set_csr(r->decode, CSR_PAST_LEN, 1);
	assert_int_equal(OPS->infer(r->d, r->decode, r->in1, r->out1, DEVICE_AUTO), NPU_SUCCESS);
	assert_int_equal(OPS->wait(r->out1), NPU_INVALID_VALUE);
}

static void own_manifest__as_json__describes_the_programs(void **state)
{
	struct rig *r = *state;
	const struct json_value *programs, *shape;
	struct json_value *root;
	size_t i = 0;

	assert_true(OPS->measuring_only);
	assert_int_equal(json_parse(OPS->own_manifest, strlen(OPS->own_manifest), &root, NULL), 0);
	assert_string_equal(json_string(json_member(root, "schema")), "npufs-manifest-1");
	programs = json_member(root, "programs");
	assert_int_equal(json_count(programs), OPS->model_count(r->c));
	for (const struct json_value *p = json_first(programs); p; p = json_next(p), i++) {
		const struct model_info *info = OPS->model_info(OPS->model_at(r->c, i));
		const struct json_value *in = json_member(p, "inputs");

		assert_string_equal(json_string(json_member(p, "name")), info->name);
		assert_int_equal(json_count(in), info->n_inputs);
		if (info->n_inputs == 0)
			continue;
		shape = json_member(json_first(in), "shape");
		assert_int_equal(json_double(json_first(shape)), info->inputs[0].dims[0]);
	}
	json_free(root);
	assert_int_equal(OPS->create_calbin(r->d, "/tmp", &(struct calbin *){ NULL }),
		NPU_INVALID_CALBIN);
}

static void device_backend__names__found_in_order(void **state)
{
	(void)state;
	assert_string_equal(device_backend_name(0), "sim");
	assert_ptr_equal(device_backend("null"), OPS);
	assert_null(device_backend("nul"));
	for (size_t i = 0; device_backend_name(i); i++) {
		const struct device_ops *ops = device_backend(device_backend_name(i));

		if (ops) /* else it is loaded, and not installed here */
			assert_string_equal(ops->name, device_backend_name(i));
	}
}

#define RIGGED(test) cmocka_unit_test_setup_teardown(test, rig_up, rig_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIGGED(forward__prompt_with_its_end__echoed_then_end),
		RIGGED(forward__prompt_in_micro_batches_last_one_alone__echoed),
		RIGGED(forward__bare_tokens_or_only_the_end__echoed),
		RIGGED(forward__sequences_interleaved__each_its_own),
		RIGGED(forward__second_prompt_or_sequence_used_again__echoes_the_new),
		RIGGED(forward__token_outside_the_vocabulary__invalid_value),
		RIGGED(own_manifest__as_json__describes_the_programs),
		cmocka_unit_test(device_backend__names__found_in_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
