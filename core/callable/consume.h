/* The consumer of PACKET_VM: it makes the image visible, validates it again, fills the function table
 * and runs the orchestration. It keeps nothing from one packet to the next but its own room, so that
 * callables may follow each other in any order, and a packet is all that a first launch needs. */
#ifndef NPUFS_CORE_CALLABLE_CONSUME_H
#define NPUFS_CORE_CALLABLE_CONSUME_H

#include "core/callable/image.h"
#include "core/callable/packet.h"
#include "core/callable/vm.h"

/* What a consumer needs of its device, and its room: a launch allocates nothing. */
struct consume_vm {
	/* Where these bytes of device memory are for the processor that runs programs, and up to
	 * date; NULL when they are not all of one allocation. */
	uint8_t *(*visible)(void *context, uint64_t address, uint64_t bytes);
	void *context;
	struct image image;
	struct vm_arguments args;
	struct vm vm;
};

/* The arguments are those of packet_consumer(), with the struct instead of the device. */
enum packet_answer consume_vm(struct consume_vm *c, const struct packet_prefix *prefix,
	const uint8_t *payload, uint64_t bytes);

#endif
