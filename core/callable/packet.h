/* Launch packets: an immutable prefix that the device's entry checks, and a payload that only a
 * consumer understands. Little endian.
 *
 *    0  struct packet_prefix   64 bytes
 *   64  uint32 kind, uint32 bytes of what follows
 *   72  of PACKET_VM: struct packet_tensor [n_tensors], uint32 [n_scalars] (their bits)
 *
 * packet_enter() is the device's side. It checks the prefix in this order: the packet has a whole
 * prefix and lies in the space that is left above its start, then version, mode, id, argument counts,
 * reserved fields, and of the callable: address not null, aligned, at least a header long, not
 * wrapping. Then the consumer of the payload's kind sees it: one that was registered with the
 * dispatch, else packet_consume(), a weak symbol that answers PACKET_UNSUPPORTED_PAYLOAD and that a
 * program may define for itself. */
#ifndef NPUFS_CORE_CALLABLE_PACKET_H
#define NPUFS_CORE_CALLABLE_PACKET_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/npu_error.h"
#include "core/callable/limits.h"

#define PACKET_VERSION 1u

enum packet_mode { PACKET_LAUNCH = 1, PACKET_REPLAY = 2 };
enum packet_kind { PACKET_VM = 1, PACKET_KINDS_MAX = 8 };

struct packet_prefix {
	uint32_t version;
	uint32_t mode;
	int32_t id;
	uint32_t n_tensors, n_scalars;
	uint32_t reserved;       /* 0 */
	uint64_t address, bytes; /* of the callable's image, on the device */
	uint32_t reserved2[6];   /* 0 */
};

struct packet_payload {
	uint32_t kind;
	uint32_t bytes;
};

struct packet_tensor {
	uint64_t address; /* on the device */
	uint64_t bytes;   /* a multiple of 4 */
};

#define PACKET_PREFIX_BYTES 64u
#define PACKET_ARGS_BYTES \
	(CALLABLE_TENSORS_MAX * sizeof(struct packet_tensor) + CALLABLE_SCALARS_MAX * 4)
#define PACKET_BYTES_MAX (PACKET_PREFIX_BYTES + sizeof(struct packet_payload) + PACKET_ARGS_BYTES)

struct packet {
	uint32_t bytes; /* used */
	_Alignas(8) uint8_t data[PACKET_BYTES_MAX];
};

/* --- the host's side -------------------------------------------------------------------------- */

struct callable_args {
	uint32_t kind; /* enum packet_kind; another is for a consumer of the caller's own */
	uint32_t n_tensors, n_scalars;
	const struct packet_tensor *tensors;
	const uint32_t *scalars; /* bits of int32 or float32 */
};

/* Counts are within their limits. */
void packet_make(struct packet *p, enum packet_mode mode, int32_t id, uint64_t address,
	uint64_t bytes, const struct callable_args *args);

/* --- the device's side ------------------------------------------------------------------------ */

enum packet_answer {
	PACKET_OK,
	PACKET_TRUNCATED,
	PACKET_OUT_OF_SPACE, /* it does not lie in the space that is left above its start */
	PACKET_BAD_VERSION,
	PACKET_BAD_MODE,
	PACKET_BAD_ID,
	PACKET_BAD_COUNTS,
	PACKET_BAD_RESERVED,
	PACKET_BAD_CALLABLE,
	PACKET_UNSUPPORTED_PAYLOAD,
	/* From a consumer: */
	PACKET_BAD_PAYLOAD,
	PACKET_NOT_VISIBLE, /* the callable's address is not the device's memory */
	PACKET_BAD_IMAGE,
	PACKET_BAD_ARGUMENT,
	PACKET_OUT_OF_BOUNDS,  /* the program left its arguments */
	PACKET_NOT_REGISTERED, /* the registration was executed late, and failed */
	PACKET_ANSWERS
};

const char *packet_answer_name(enum packet_answer a); /* "UnsupportedPayload" */
enum npu_error packet_answer_error(enum packet_answer a);

/* Part of the device's address space: `bytes` from `address` on are at `host`. */
struct packet_space {
	const uint8_t *host;
	uint64_t address, bytes;
};

/* `payload` is what follows the prefix, of `bytes` bytes, at least its own head. */
typedef enum packet_answer packet_consumer(void *device, const struct packet_prefix *prefix,
	const uint8_t *payload, uint64_t bytes);

struct packet_dispatch {
	void *device;                                 /* given to consumers */
	packet_consumer *consumers[PACKET_KINDS_MAX]; /* by kind; NULL: packet_consume() */
};

enum packet_answer packet_enter(const struct packet_dispatch *d, const struct packet_space *space,
	uint64_t start, uint64_t bytes);

/* Weak: a definition elsewhere takes its place, and may leave to packet_consume_none(), which is what
 * this one does, the kinds that it does not know. */
packet_consumer packet_consume, packet_consume_none;

#endif
