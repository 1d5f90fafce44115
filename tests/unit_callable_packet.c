/* The device's entry: each check by itself, their order, and who consumes. This program defines a
 * packet_consume() of its own, so the weak one and its replacement are in one link. */
#include "core/callable/packet.h"

#include "callable_rig.h"

#define KIND_OWN 7 /* of the strong consumer below; of other kinds it knows nothing */

static struct packet_prefix seen;
static int consumed, registered;

enum packet_answer packet_consume(void *device, const struct packet_prefix *prefix,
	const uint8_t *payload, uint64_t bytes)
{
	struct packet_payload head;

	(void)device;
	memcpy(&head, payload, sizeof head);
	if (bytes < sizeof head || head.kind != KIND_OWN)
		return packet_consume_none(device, prefix, payload, bytes);
	seen = *prefix;
	consumed++;
	return PACKET_OK;
}

static enum packet_answer count_registered(void *device, const struct packet_prefix *prefix,
	const uint8_t *payload, uint64_t bytes)
{
	(void)device;
	(void)prefix;
	(void)payload;
	(void)bytes;
	registered++;
	return PACKET_OK;
}

/* --- the entry -------------------------------------------------------------------------------- */

static const struct packet_dispatch linked; /* with no consumer registered */
static struct packet good;

static void make_good(void)
{
	struct callable_args args = { .kind = KIND_OWN };

	packet_make(&good, PACKET_LAUNCH, 5, 1 << 20, 4096, &args);
}

static enum packet_answer enter(const struct packet *p, uint64_t bytes)
{
	struct packet_space space = { p->data, 1 << 16, sizeof p->data };

	return packet_enter(&linked, &space, space.address, bytes);
}

static void packet_enter__good_packet__reaches_the_consumer(void **state)
{
	(void)state;
	make_good();
	consumed = 0;
	assert_int_equal(enter(&good, good.bytes), PACKET_OK);
	assert_int_equal(consumed, 1);
	assert_int_equal(seen.id, 5);
	assert_int_equal(seen.address, 1 << 20);
	assert_int_equal(seen.bytes, 4096);
}

static void packet_enter__truncated__refused(void **state)
{
	(void)state;
	make_good();
	for (uint64_t n = 0; n < PACKET_PREFIX_BYTES; n++)
		assert_int_equal(enter(&good, n), PACKET_TRUNCATED);
	/* The prefix alone has no kind that anybody consumes. */
	for (uint64_t n = PACKET_PREFIX_BYTES; n < good.bytes; n++)
		assert_int_equal(enter(&good, n), PACKET_UNSUPPORTED_PAYLOAD);
}

static void packet_enter__beyond_its_space_or_wrapping__refused(void **state)
{
	/* The space ends where the address space does: every sum past it wraps. */
	const struct packet_space top = { good.data, UINT64_MAX - 127, 128 };
	const struct packet_space low = { good.data, 4096, 128 };

	(void)state;
	make_good();
	assert_int_equal(packet_enter(&linked, &top, top.address, good.bytes), PACKET_OK);
	assert_int_equal(packet_enter(&linked, &top, top.address, 129), PACKET_OUT_OF_SPACE);
	assert_int_equal(packet_enter(&linked, &top, top.address + 64, 72), PACKET_OUT_OF_SPACE);
	assert_int_equal(packet_enter(&linked, &top, top.address + 64, UINT64_MAX),
		PACKET_OUT_OF_SPACE);
	assert_int_equal(packet_enter(&linked, &top, 0, 72), PACKET_OUT_OF_SPACE);
	assert_int_equal(packet_enter(&linked, &top, UINT64_MAX, 72), PACKET_OUT_OF_SPACE);
	assert_int_equal(packet_enter(&linked, &low, 4095, 72), PACKET_OUT_OF_SPACE);
	assert_int_equal(packet_enter(&linked, &low, 4224, 64), PACKET_OUT_OF_SPACE);
	assert_int_equal(packet_enter(&linked, &low, 4225, 63), PACKET_TRUNCATED);
	assert_int_equal(packet_enter(&linked, &low, 4096, UINT64_MAX), PACKET_OUT_OF_SPACE);
	assert_int_equal(packet_enter(&linked, &low, 4152, 73), PACKET_OUT_OF_SPACE);
}

#define PLACE(field) \
	offsetof(struct packet_prefix, field), sizeof(((struct packet_prefix *)0)->field)

/* In the order of the checks. */
static const struct {
	size_t at, size;
	uint64_t value;
	enum packet_answer answer;
} wrongs[] = {
	{ PLACE(version), 0, PACKET_BAD_VERSION },
	{ PLACE(version), 2, PACKET_BAD_VERSION },
	{ PLACE(mode), 0, PACKET_BAD_MODE },
	{ PLACE(mode), 3, PACKET_BAD_MODE },
	{ PLACE(id), 8192, PACKET_BAD_ID },
	{ PLACE(id), 0xffffffff, PACKET_BAD_ID },
	{ PLACE(id), 0x80000000, PACKET_BAD_ID },
	{ PLACE(n_tensors), CALLABLE_TENSORS_MAX + 1, PACKET_BAD_COUNTS },
	{ PLACE(n_scalars), CALLABLE_SCALARS_MAX + 1, PACKET_BAD_COUNTS },
	{ PLACE(n_scalars), UINT32_MAX, PACKET_BAD_COUNTS },
	{ PLACE(reserved), 1, PACKET_BAD_RESERVED },
	{ 40, 4, 1, PACKET_BAD_RESERVED },
	{ 60, 4, 0x80000000, PACKET_BAD_RESERVED },
	{ PLACE(address), 0, PACKET_BAD_CALLABLE },
	{ PLACE(address), (1 << 20) + 32, PACKET_BAD_CALLABLE },
	{ PLACE(address), (1 << 20) + 1, PACKET_BAD_CALLABLE },
	{ PLACE(bytes), 0, PACKET_BAD_CALLABLE },
	{ PLACE(bytes), 63, PACKET_BAD_CALLABLE },
	{ PLACE(bytes), UINT64_MAX - (1 << 20) + 1, PACKET_BAD_CALLABLE }, /* wraps to 0 */
	{ PLACE(bytes), UINT64_MAX, PACKET_BAD_CALLABLE },
};

static void packet_enter__one_field_wrong__its_answer(void **state)
{
	(void)state;
	make_good();
	consumed = 0;
	for (size_t i = 0; i < ARRAY_SIZE(wrongs); i++) {
		struct packet p = good;

		memcpy(p.data + wrongs[i].at, &wrongs[i].value, wrongs[i].size);
		if (enter(&p, p.bytes) != wrongs[i].answer)
			fail_msg("row %zu: %s", i, packet_answer_name(enter(&p, p.bytes)));
	}
	assert_int_equal(consumed, 0);
}

static void packet_enter__any_reserved_bit__refused(void **state)
{
	static const struct {
		size_t at, size;
	} reserved[] = { { PLACE(reserved) }, { PLACE(reserved2) } };

	(void)state;
	make_good();
	consumed = 0;
	for (size_t i = 0; i < ARRAY_SIZE(reserved); i++)
		for (size_t bit = 0; bit < reserved[i].size * 8; bit++) {
			struct packet p = good;

			p.data[reserved[i].at + bit / 8] |= (uint8_t)(1u << bit % 8);
			assert_int_equal(enter(&p, p.bytes), PACKET_BAD_RESERVED);
		}
	assert_int_equal(consumed, 0);
}

static void packet_enter__two_fields_wrong__the_first_in_order(void **state)
{
	(void)state;
	make_good();
	for (size_t i = 0; i < ARRAY_SIZE(wrongs); i++)
		for (size_t j = i + 1; j < ARRAY_SIZE(wrongs); j++) {
			struct packet p = good;

			if (wrongs[i].at == wrongs[j].at)
				continue;
			memcpy(p.data + wrongs[i].at, &wrongs[i].value, wrongs[i].size);
			memcpy(p.data + wrongs[j].at, &wrongs[j].value, wrongs[j].size);
			assert_int_equal(enter(&p, p.bytes), wrongs[i].answer);
		}
}

static void packet_enter__last_ids_and_lengths__taken(void **state)
{
	struct callable_args args = { .kind = KIND_OWN };
	struct packet p;

	(void)state;
	packet_make(&p, PACKET_REPLAY, 8191, UINT64_MAX - 63, 63, &args);
	assert_int_equal(enter(&p, p.bytes), PACKET_BAD_CALLABLE); /* less than a header */
	packet_make(&p, PACKET_REPLAY, 8191, UINT64_MAX - 127, 127, &args);
	assert_int_equal(enter(&p, p.bytes), PACKET_OK);
	packet_make(&p, PACKET_REPLAY, 8191, UINT64_MAX - 127, 128, &args);
	assert_int_equal(enter(&p, p.bytes), PACKET_BAD_CALLABLE);
}

/* --- consumers -------------------------------------------------------------------------------- */

static void packet_consume__default_and_strong_in_one_link__each_answers(void **state)
{
	struct packet p;
	struct callable_args args = { .kind = 6 };

	(void)state;
	make_good();
	consumed = 0;
	assert_int_equal(enter(&good, good.bytes), PACKET_OK);
	packet_make(&p, PACKET_LAUNCH, 5, 1 << 20, 4096, &args);
	assert_int_equal(enter(&p, p.bytes), PACKET_UNSUPPORTED_PAYLOAD);
	args.kind = UINT32_MAX; /* beyond the table */
	packet_make(&p, PACKET_LAUNCH, 5, 1 << 20, 4096, &args);
	assert_int_equal(enter(&p, p.bytes), PACKET_UNSUPPORTED_PAYLOAD);
	assert_int_equal(consumed, 1);
	assert_string_equal(packet_answer_name(PACKET_UNSUPPORTED_PAYLOAD), "UnsupportedPayload");
	assert_int_equal(packet_answer_error(PACKET_UNSUPPORTED_PAYLOAD), NPU_DEVICE_UNSUPPORT);
}

static void packet_consume__registered__before_the_linked_one(void **state)
{
	struct packet_dispatch d = { .consumers = { [KIND_OWN] = count_registered } };
	struct packet_space space = { good.data, 64, sizeof good.data };

	(void)state;
	make_good();
	consumed = registered = 0;
	assert_int_equal(packet_enter(&d, &space, 64, good.bytes), PACKET_OK);
	assert_int_equal(registered, 1);
	assert_int_equal(consumed, 0);
}

static void launch__payload_of_no_kind__unsupported_and_not_poisoned(void **state)
{
	AUTO_BUF struct buf image = BUF_INIT;
	struct packet_tensor t;
	struct callable_args args = { 6, 1, 0, &t, NULL };
	static struct rig r;
	float *x;

	(void)state;
	rig_open(&r, true);
	t = rig_tensor(&r, 1, &x);
	rig_scale(2, &image);
	rig_prepare(&r, &image);
	assert_int_equal(callable_launch(r.c, 0, &args, &r.f), -EOPNOTSUPP);
	assert_int_equal(memory_soft_answer(r.soft), PACKET_UNSUPPORTED_PAYLOAD);
	args.kind = KIND_OWN;
	assert_int_equal(callable_launch(r.c, 0, &args, &r.f), 0);
	memory_soft_set_consumer(r.soft, KIND_OWN, count_registered);
	registered = 0;
	assert_int_equal(callable_launch(r.c, 0, &args, &r.f), 0);
	assert_int_equal(registered, 1);
	rig_close(&r);
}

/* --- the machine's consumer ------------------------------------------------------------------- */

static void consume__a_b_a__each_with_its_own_functions(void **state)
{
	static const int32_t order[] = { 0, 1, 0, 2, 1, 2, 0 };
	static const float by[] = { 3, 5, 0.5f };
	static struct rig r;
	struct packet_tensor t;
	struct callable_args args = { PACKET_VM, 1, 0, &t, NULL };
	float *x, expected = 1;

	(void)state;
	rig_open(&r, true);
	t = rig_tensor(&r, 1, &x);
	for (size_t i = 0; i < ARRAY_SIZE(by); i++) {
		AUTO_BUF struct buf image = BUF_INIT;

		rig_scale(by[i], &image);
		rig_prepare(&r, &image);
	}
	x[0] = 1;
	for (size_t i = 0; i < ARRAY_SIZE(order); i++) {
		assert_int_equal(callable_launch(r.c, order[i], &args, &r.f), 0);
		expected *= by[order[i]];
		assert_true(x[0] == expected);
	}
	rig_close(&r);
}

/* Launch the prepared image 0 with one tensor, and say what the device answered. */
static enum packet_answer answer_to(struct rig *r, struct packet_tensor t)
{
	struct callable_args args = { PACKET_VM, 1, 0, &t, NULL };

	callable_launch(r->c, 0, &args, &r->f);
	return memory_soft_answer(r->soft);
}

static void consume__arguments_that_are_not_its_memory__refused(void **state)
{
	AUTO_BUF struct buf image = BUF_INIT;
	static struct rig r;
	struct packet_tensor t;
	float *x;

	(void)state;
	rig_open(&r, true);
	t = rig_tensor(&r, 4, &x);
	rig_scale(2, &image);
	rig_prepare(&r, &image);
	assert_int_equal(answer_to(&r, t), PACKET_OK);
	t.bytes = 17;
	assert_int_equal(answer_to(&r, t), PACKET_BAD_ARGUMENT);
	t.bytes = 20; /* past its end */
	assert_int_equal(answer_to(&r, t), PACKET_BAD_ARGUMENT);
	t.bytes = UINT64_MAX - 3;
	assert_int_equal(answer_to(&r, t), PACKET_BAD_ARGUMENT);
	t.bytes = 0;
	assert_int_equal(answer_to(&r, t), PACKET_BAD_ARGUMENT);
	assert_int_equal(answer_to(&r, (struct packet_tensor){ 0, 4 }), PACKET_BAD_ARGUMENT);
	assert_false(callable_figures(r.c).poisoned);
	rig_close(&r);
}

static void consume__output_over_its_own_image__refused(void **state)
{
	AUTO_BUF struct buf image = BUF_INIT;
	static struct rig r;
	struct packet_tensor t = { .bytes = 4 };
	uint64_t begin;

	(void)state;
	rig_open(&r, true);
	rig_scale(2, &image);
	begin = rig_address(&r, rig_prepare(&r, &image));
	t.address = begin + image.len; /* behind it is nobody's */
	assert_int_equal(answer_to(&r, t), PACKET_OK);
	t.address = begin + image.len - 4;
	assert_int_equal(answer_to(&r, t), PACKET_BAD_ARGUMENT);
	t.address = begin;
	assert_int_equal(answer_to(&r, t), PACKET_BAD_ARGUMENT);
	t.bytes = 2 << 20;
	assert_int_equal(answer_to(&r, t), PACKET_BAD_ARGUMENT);
	assert_memory_equal(memory_soft_at(r.soft, begin, image.len), image.data, image.len);
	assert_false(callable_figures(r.c).poisoned);
	rig_close(&r);
}

static void consume__scalar_over_its_maximum__refused(void **state)
{
	AUTO_BUF struct buf image = BUF_INIT;
	static struct rig r;
	struct packet_tensor t[3];
	uint32_t n = 1048577;
	struct callable_args args = { PACKET_VM, 3, 1, t, &n };
	float *x;

	(void)state;
	rig_open(&r, true);
	for (int i = 0; i < 3; i++)
		t[i] = rig_tensor(&r, 4, &x);
	rig_example("add", &image);
	rig_prepare(&r, &image);
	assert_int_equal(callable_launch(r.c, 0, &args, &r.f), -EINVAL);
	assert_int_equal(memory_soft_answer(r.soft), PACKET_BAD_ARGUMENT);
	n = (uint32_t)-1;
	assert_int_equal(callable_launch(r.c, 0, &args, &r.f), -EINVAL);
	n = 5; /* one more than there are */
	assert_int_equal(callable_launch(r.c, 0, &args, &r.f), -ERANGE);
	n = 4;
	assert_int_equal(callable_launch(r.c, 0, &args, &r.f), 0);
	rig_close(&r);
}

/* What was right when it was uploaded: every part of it is looked at again. */
static void consume__image_changed_on_the_device__refused_and_poisoned(void **state)
{
	static const struct {
		bool of_child;
		size_t at; /* in the header, or the first child's row */
	} parts[] = {
		{ true, offsetof(struct image_child, offset) },
		{ true, offsetof(struct image_child, id) + 2 },
		{ true, offsetof(struct image_child, n_code) },
		{ false, offsetof(struct image_header, n_tensors) },
		{ false, offsetof(struct image_header, total_bytes) },
		{ false, IMAGE_HEADER + offsetof(struct image_row, type) },
		{ false, IMAGE_HEADER + offsetof(struct image_row, access) },
	};
	AUTO_BUF struct buf image = BUF_INIT;
	static struct rig r;
	struct packet_tensor t;
	struct image_header h;
	uint8_t *bytes;
	float *x;

	(void)state;
	rig_scale(2, &image);
	memcpy(&h, image.data, sizeof h);
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		rig_open(&r, true);
		t = rig_tensor(&r, 1, &x);
		rig_prepare(&r, &image);
		assert_int_equal(answer_to(&r, t), PACKET_OK);
		bytes = memory_soft_at(r.soft, rig_address(&r, 0), image.len);
		bytes[parts[i].at + (parts[i].of_child ? h.children_offset : 0)] ^= 0x1c;
		assert_int_equal(answer_to(&r, t), PACKET_BAD_IMAGE);
		assert_true(callable_figures(r.c).poisoned);
		rig_close(&r);
	}
}

static void consume__payload_that_is_not_as_long_as_it_says__refused(void **state)
{
	AUTO_BUF struct buf image = BUF_INIT;
	static struct rig r;
	struct packet_tensor t;
	struct callable_args args = { PACKET_VM, 1, 0, &t, NULL };
	struct packet p;
	float *x;

	(void)state;
	rig_open(&r, true);
	t = rig_tensor(&r, 1, &x);
	rig_scale(2, &image);
	rig_prepare(&r, &image);
	packet_make(&p, PACKET_LAUNCH, 0, rig_address(&r, 0), image.len, &args);
	assert_int_equal(memory_soft_ops.launch(r.soft, p.data, p.bytes), NPU_SUCCESS);
	assert_int_equal(memory_soft_ops.launch(r.soft, p.data, p.bytes - 1), NPU_INVALID_VALUE);
	assert_int_equal(memory_soft_answer(r.soft), PACKET_BAD_PAYLOAD);
	assert_int_equal(memory_soft_ops.launch(r.soft, p.data, p.bytes + 1), NPU_INVALID_VALUE);
	assert_int_equal(memory_soft_ops.launch(r.soft, p.data, 1 << 20), NPU_INVALID_VALUE);
	assert_int_equal(memory_soft_answer(r.soft), PACKET_OUT_OF_SPACE);
	args.n_tensors = 0; /* which the image does not say */
	packet_make(&p, PACKET_LAUNCH, 0, rig_address(&r, 0), image.len, &args);
	assert_int_equal(memory_soft_ops.launch(r.soft, p.data, p.bytes), NPU_INVALID_VALUE);
	assert_int_equal(memory_soft_answer(r.soft), PACKET_BAD_COUNTS);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(packet_enter__good_packet__reaches_the_consumer),
		cmocka_unit_test(packet_enter__truncated__refused),
		cmocka_unit_test(packet_enter__beyond_its_space_or_wrapping__refused),
		cmocka_unit_test(packet_enter__one_field_wrong__its_answer),
		cmocka_unit_test(packet_enter__any_reserved_bit__refused),
		cmocka_unit_test(packet_enter__two_fields_wrong__the_first_in_order),
		cmocka_unit_test(packet_enter__last_ids_and_lengths__taken),
		cmocka_unit_test(packet_consume__default_and_strong_in_one_link__each_answers),
		cmocka_unit_test(packet_consume__registered__before_the_linked_one),
		cmocka_unit_test(launch__payload_of_no_kind__unsupported_and_not_poisoned),
		cmocka_unit_test(consume__a_b_a__each_with_its_own_functions),
		cmocka_unit_test(consume__arguments_that_are_not_its_memory__refused),
		cmocka_unit_test(consume__output_over_its_own_image__refused),
		cmocka_unit_test(consume__scalar_over_its_maximum__refused),
		cmocka_unit_test(consume__image_changed_on_the_device__refused_and_poisoned),
		cmocka_unit_test(consume__payload_that_is_not_as_long_as_it_says__refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
