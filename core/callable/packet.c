/* Nothing of a packet is read before its length is known to fit: lengths are compared with what is
 * left, never with a sum, which could wrap. The prefix is copied out once, so what was checked is
 * what a consumer gets. */
#include "core/callable/packet.h"

#include <assert.h>
#include <string.h>

#include "core/base/mem.h"
#include "core/callable/image.h"

static_assert(sizeof(struct packet_prefix) == PACKET_PREFIX_BYTES, "layout");
static_assert(sizeof(struct packet_tensor) == 16, "layout");

/* --- the host's side -------------------------------------------------------------------------- */

static void append(struct packet *p, const void *bytes, size_t n)
{
	if (n)
		memcpy(p->data + p->bytes, bytes, n);
	p->bytes += (uint32_t)n;
}

void packet_make(struct packet *p, enum packet_mode mode, int32_t id, uint64_t address,
	uint64_t bytes, const struct callable_args *args)
{
	struct packet_prefix prefix = { .version = PACKET_VERSION,
		.mode = mode,
		.id = id,
		.n_tensors = args->n_tensors,
		.n_scalars = args->n_scalars,
		.address = address,
		.bytes = bytes };
	size_t tensors = args->n_tensors * sizeof *args->tensors;
	size_t scalars = args->n_scalars * sizeof *args->scalars;
	struct packet_payload payload = { args->kind, (uint32_t)(tensors + scalars) };

	p->bytes = 0;
	append(p, &prefix, sizeof prefix);
	append(p, &payload, sizeof payload);
	append(p, args->tensors, tensors);
	append(p, args->scalars, scalars);
}

/* --- answers ---------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	enum npu_error code;
} answers[] = {
	[PACKET_OK] = { "Ok", NPU_SUCCESS },
	[PACKET_OUT_OF_SPACE] = { "OutOfSpace", NPU_INVALID_VALUE },
	[PACKET_TRUNCATED] = { "Truncated", NPU_INVALID_VALUE },
	[PACKET_BAD_VERSION] = { "BadVersion", NPU_INVALID_VALUE },
	[PACKET_BAD_MODE] = { "BadMode", NPU_INVALID_VALUE },
	[PACKET_BAD_ID] = { "BadId", NPU_INVALID_VALUE },
	[PACKET_BAD_COUNTS] = { "BadCounts", NPU_INVALID_VALUE },
	[PACKET_BAD_RESERVED] = { "BadReserved", NPU_INVALID_VALUE },
	[PACKET_BAD_CALLABLE] = { "BadCallable", NPU_INVALID_VALUE },
	[PACKET_UNSUPPORTED_PAYLOAD] = { "UnsupportedPayload", NPU_DEVICE_UNSUPPORT },
	[PACKET_BAD_PAYLOAD] = { "BadPayload", NPU_INVALID_VALUE },
	/* Memory that is gone or is not what was uploaded: nobody knows what else is. */
	[PACKET_NOT_VISIBLE] = { "NotVisible", NPU_DEVICE_MAP_BROKEN },
	[PACKET_BAD_IMAGE] = { "BadImage", NPU_DEVICE_MAP_BROKEN },
	[PACKET_BAD_ARGUMENT] = { "BadArgument", NPU_INVALID_VALUE },
	[PACKET_OUT_OF_BOUNDS] = { "OutOfBounds", NPU_OUT_OF_RANGE },
	[PACKET_NOT_REGISTERED] = { "NotRegistered", NPU_INVALID_VALUE },
};

static_assert(ARRAY_SIZE(answers) == PACKET_ANSWERS, "one row for each answer");

const char *packet_answer_name(enum packet_answer a)
{
	return (unsigned)a < PACKET_ANSWERS ? answers[a].name : "Unknown";
}

enum npu_error packet_answer_error(enum packet_answer a)
{
	return (unsigned)a < PACKET_ANSWERS ? answers[a].code : NPU_UNKNOWN;
}

/* --- the device's side ------------------------------------------------------------------------ */

enum packet_answer packet_consume_none(void *device, const struct packet_prefix *prefix,
	const uint8_t *payload, uint64_t bytes)
{
	(void)device;
	(void)prefix;
	(void)payload;
	(void)bytes;
	return PACKET_UNSUPPORTED_PAYLOAD;
}

__attribute__((weak)) enum packet_answer packet_consume(void *device,
	const struct packet_prefix *prefix, const uint8_t *payload, uint64_t bytes)
{
	return packet_consume_none(device, prefix, payload, bytes);
}

static enum packet_answer check_place(const struct packet_space *space, uint64_t start,
	uint64_t bytes)
{
	uint64_t from = start - space->address;

	if (bytes < PACKET_PREFIX_BYTES)
		return PACKET_TRUNCATED;
	if (start < space->address || from > space->bytes || bytes > space->bytes - from)
		return PACKET_OUT_OF_SPACE;
	return PACKET_OK;
}

static enum packet_answer check_callable(const struct packet_prefix *p)
{
	if (!p->address || p->address % CALLABLE_ALIGN || p->bytes < IMAGE_HEADER ||
		p->bytes > UINT64_MAX - p->address)
		return PACKET_BAD_CALLABLE;
	return PACKET_OK;
}

static enum packet_answer check_prefix(const struct packet_prefix *p)
{
	static const uint32_t zero[ARRAY_SIZE(p->reserved2)];

	if (p->version != PACKET_VERSION)
		return PACKET_BAD_VERSION;
	if (p->mode != PACKET_LAUNCH && p->mode != PACKET_REPLAY)
		return PACKET_BAD_MODE;
	if (p->id < 0 || p->id >= CALLABLE_IDS_MAX)
		return PACKET_BAD_ID;
	if (p->n_tensors > CALLABLE_TENSORS_MAX || p->n_scalars > CALLABLE_SCALARS_MAX)
		return PACKET_BAD_COUNTS;
	if (p->reserved || memcmp(p->reserved2, zero, sizeof zero) != 0)
		return PACKET_BAD_RESERVED;
	return check_callable(p);
}

/* A payload without a head is of no kind that anybody consumes. */
static packet_consumer *consumer_of(const struct packet_dispatch *d, const uint8_t *payload,
	uint64_t bytes)
{
	struct packet_payload head = { 0 };

	if (bytes >= sizeof head)
		memcpy(&head, payload, sizeof head);
	if (head.kind < PACKET_KINDS_MAX && d->consumers[head.kind])
		return d->consumers[head.kind];
	return packet_consume;
}

enum packet_answer packet_enter(const struct packet_dispatch *d, const struct packet_space *space,
	uint64_t start, uint64_t bytes)
{
	enum packet_answer answer = check_place(space, start, bytes);
	struct packet_prefix prefix;
	const uint8_t *at;

	if (answer != PACKET_OK)
		return answer;
	at = space->host + (start - space->address);
	memcpy(&prefix, at, sizeof prefix);
	answer = check_prefix(&prefix);
	if (answer != PACKET_OK)
		return answer;
	at += sizeof prefix;
	bytes -= sizeof prefix;
	if (bytes < sizeof(struct packet_payload))
		return PACKET_UNSUPPORTED_PAYLOAD;
	return consumer_of(d, at, bytes)(d->device, &prefix, at, bytes);
}
