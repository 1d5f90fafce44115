/* The image is validated again because device memory is not the host's: what was uploaded may not be
 * what is there. After that the indices that the function table is filled by are within it, which the
 * assertion ties to the bound that validation used. */
#include "core/callable/consume.h"

#include <assert.h>
#include <string.h>

#include "core/base/mem.h"

static_assert(ARRAY_SIZE(((struct vm *)NULL)->functions) == CALLABLE_FUNCTION_IDS,
	"function ids are what the function table holds");

static enum packet_answer see_image(struct consume_vm *c, const struct packet_prefix *p)
{
	const uint8_t *bytes = c->visible(c->context, p->address, p->bytes);

	if (!bytes)
		return PACKET_NOT_VISIBLE;
	if (image_validate(bytes, p->bytes, &c->image, NULL) < 0)
		return PACKET_BAD_IMAGE;
	if (p->n_tensors != c->image.header.n_tensors || p->n_scalars != c->image.header.n_scalars)
		return PACKET_BAD_COUNTS;
	return PACKET_OK;
}

/* --- arguments -------------------------------------------------------------------------------- */

/* What was validated must stay so while it runs: a program does not write into its own image. Both are
 * visible, so no sum wraps. */
static bool overwrites(const struct consume_vm *c, const struct packet_prefix *p, uint32_t i,
	const struct packet_tensor *t)
{
	return (c->image.signature.access[i] & VM_OUT) && t->address < p->address + p->bytes &&
		p->address < t->address + t->bytes;
}

static enum packet_answer take_tensor(struct consume_vm *c, const struct packet_prefix *p,
	uint32_t i, const uint8_t *from)
{
	struct packet_tensor t;
	uint8_t *data;

	memcpy(&t, from, sizeof t);
	if (!t.bytes || t.bytes % 4)
		return PACKET_BAD_ARGUMENT;
	data = c->visible(c->context, t.address, t.bytes);
	if (!data || overwrites(c, p, i, &t))
		return PACKET_BAD_ARGUMENT;
	c->args.tensors[i] = (struct vm_tensor){ data, t.bytes / 4 };
	return PACKET_OK;
}

static enum packet_answer take_scalar(struct consume_vm *c, uint32_t i, const uint8_t *from)
{
	uint32_t max = c->image.signature.scalar_max[i];

	memcpy(&c->args.scalars[i], from, sizeof c->args.scalars[i]);
	return max && c->args.scalars[i] > max ? PACKET_BAD_ARGUMENT : PACKET_OK;
}

static enum packet_answer take_arguments(struct consume_vm *c, const struct packet_prefix *p,
	const uint8_t *payload, uint64_t bytes)
{
	enum packet_answer answer = PACKET_OK;
	struct packet_payload head;
	uint64_t tensors = p->n_tensors * sizeof(struct packet_tensor);

	memcpy(&head, payload, sizeof head);
	payload += sizeof head;
	if (bytes != sizeof head + (uint64_t)head.bytes || head.bytes != tensors + p->n_scalars * 4)
		return PACKET_BAD_PAYLOAD;
	for (uint32_t i = 0; answer == PACKET_OK && i < p->n_tensors; i++)
		answer = take_tensor(c, p, i, payload + i * sizeof(struct packet_tensor));
	for (uint32_t i = 0; answer == PACKET_OK && i < p->n_scalars; i++)
		answer = take_scalar(c, i, payload + tensors + i * 4);
	return answer;
}

/* --- running ---------------------------------------------------------------------------------- */

static void fill_functions(struct consume_vm *c)
{
	memset(c->vm.functions, 0, sizeof c->vm.functions);
	for (uint32_t i = 0; i < c->image.header.n_children; i++) {
		struct image_child child = image_child(&c->image, i);

		c->vm.functions[child.id] = image_child_code(&c->image, &child);
	}
}

enum packet_answer consume_vm(struct consume_vm *c, const struct packet_prefix *prefix,
	const uint8_t *payload, uint64_t bytes)
{
	enum packet_answer answer = see_image(c, prefix);

	if (answer == PACKET_OK)
		answer = take_arguments(c, prefix, payload, bytes);
	if (answer != PACKET_OK)
		return answer;
	fill_functions(c);
	c->vm.args = &c->args;
	return vm_run(&c->vm, &c->image.orchestration) == VM_DONE ? PACKET_OK
								  : PACKET_OUT_OF_BOUNDS;
}
