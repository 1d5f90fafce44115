/* Any bytes as an image, as a specification, and as a launch packet: refused with a place in it, or an
 * image that is loaded by a launch, which ends and stays within its arguments; of a packet, what a
 * consumer gets has passed every check of the entry. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/mem.h"
#include "core/callable/consume.h"
#include "core/callable/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition) \
	do { \
		if (!(condition)) \
			abort(); \
	} while (0)

#define TENSOR_BYTES 256
#define STEPS_MAX    (1 << 12) /* of programs that are run: a fuzzer has little time */
#define IMAGE_AT     4096
#define TENSOR_AT    64

static uint8_t *image_bytes, *tensor;
static size_t image_size;

static uint8_t *visible(void *context, uint64_t address, uint64_t bytes)
{
	(void)context;
	if (address == IMAGE_AT && bytes <= image_size)
		return image_bytes;
	return address == TENSOR_AT && bytes <= TENSOR_BYTES ? tensor : NULL;
}

static void launch(const struct image *image)
{
	static struct consume_vm c;
	struct packet_tensor tensors[CALLABLE_TENSORS_MAX];
	uint32_t scalars[CALLABLE_SCALARS_MAX];
	struct callable_args args = { PACKET_VM, image->header.n_tensors, image->header.n_scalars,
		tensors, scalars };
	struct packet_prefix prefix;
	struct packet p;
	enum packet_answer answer;

	for (uint32_t i = 0; i < args.n_tensors; i++)
		tensors[i] = (struct packet_tensor){ TENSOR_AT, TENSOR_BYTES };
	for (uint32_t i = 0; i < args.n_scalars; i++)
		scalars[i] = image->signature.scalar_max[i];
	c.visible = visible;
	packet_make(&p, PACKET_LAUNCH, 0, IMAGE_AT, image_size, &args);
	memcpy(&prefix, p.data, sizeof prefix);
	answer = consume_vm(&c, &prefix, p.data + sizeof prefix, p.bytes - sizeof prefix);
	CHECK(answer == PACKET_OK || answer == PACKET_OUT_OF_BOUNDS);
}

static void check_image(const void *bytes, size_t size)
{
	AUTO_BUF struct buf text = BUF_INIT;
	struct fault f = FAULT_NONE;
	struct image image;

	image_bytes = malloc(size + !size); /* a block of its own: a byte too far is seen */
	tensor = calloc(1, TENSOR_BYTES);
	image_size = size;
	CHECK(image_bytes && tensor);
	if (size)
		memcpy(image_bytes, bytes, size);
	if (image_validate(image_bytes, size, &image, &f) == 0) {
		CHECK(image_show(&image, &text) == 0);
		if (image.steps < STEPS_MAX)
			launch(&image);
	} else {
		CHECK(f.reason[0] && f.offset >= 0 && (uint64_t)f.offset <= size);
	}
	free(image_bytes);
	free(tensor);
}

static enum packet_answer see_packet(void *device, const struct packet_prefix *p,
	const uint8_t *payload, uint64_t bytes)
{
	struct packet_payload head;

	(void)device;
	CHECK(p->version == PACKET_VERSION &&
		(p->mode == PACKET_LAUNCH || p->mode == PACKET_REPLAY));
	CHECK(p->id >= 0 && p->id < CALLABLE_IDS_MAX);
	CHECK(p->n_tensors <= CALLABLE_TENSORS_MAX && p->n_scalars <= CALLABLE_SCALARS_MAX);
	CHECK(p->address && p->address % CALLABLE_ALIGN == 0 && p->bytes >= IMAGE_HEADER);
	CHECK(p->address + p->bytes > p->address && bytes >= sizeof head);
	memcpy(&head, payload + bytes - sizeof head, sizeof head); /* all of it is there */
	return PACKET_OK;
}

/* At the top of an address space: every sum past its end wraps. */
static void check_packet(const uint8_t *data, size_t size)
{
	const struct packet_dispatch d = { .consumers = { [PACKET_VM] = see_packet } };
	AUTO_FREE uint8_t *bytes = malloc(size + !size);
	const struct packet_space space = { bytes, UINT64_MAX - size, size };

	CHECK(bytes);
	if (size)
		memcpy(bytes, data, size);
	CHECK(packet_enter(&d, &space, space.address, size) < PACKET_ANSWERS);
	CHECK(packet_enter(&d, &space, space.address, size + 1) != PACKET_OK);
	CHECK(packet_enter(&d, &space, space.address + 1, size) != PACKET_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	AUTO_BUF struct buf image = BUF_INIT;
	struct fault f = FAULT_NONE;

	check_image(data, size);
	check_packet(data, size);
	if (image_build((const char *)data, size, &image, &f) == 0)
		check_image(image.data, image.len);
	else
		CHECK(f.reason[0] && image.len == 0);
	return 0;
}
