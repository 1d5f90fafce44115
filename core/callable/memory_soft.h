/* A device in this process: its memory is the host's, its table of callables and its launch entry are
 * here, programs are run by the machine of vm.h. Registrations are enqueued; they are executed when
 * the queue is, or else at the first launch, from what the packet carries. One caller at a time. */
#ifndef NPUFS_CORE_CALLABLE_MEMORY_SOFT_H
#define NPUFS_CORE_CALLABLE_MEMORY_SOFT_H

#include <stddef.h>
#include <stdint.h>

#include "core/callable/memory.h"
#include "core/callable/packet.h"

extern const struct callable_memory_ops memory_soft_ops; /* context: struct memory_soft */

struct memory_soft;

struct memory_soft *memory_soft_new(void);    /* or NULL */
void memory_soft_free(struct memory_soft *s); /* with what is still allocated; NULL is fine */

/* The consumer of a kind of payload; NULL for the one of the link. Of PACKET_VM there is one from the
 * start. Consumers are given the device. */
void memory_soft_set_consumer(struct memory_soft *s, enum packet_kind kind,
	packet_consumer *consumer);

/* These bytes of its memory, or NULL where they are not all of one allocation. */
uint8_t *memory_soft_at(struct memory_soft *s, uint64_t address, uint64_t bytes);
uint64_t memory_soft_allocated(const struct memory_soft *s); /* bytes */
/* Why the last launch ended as it did. */
enum packet_answer memory_soft_answer(const struct memory_soft *s);
/* Execute what is enqueued, as a device does in its own time. */
void memory_soft_run_queue(struct memory_soft *s);
/* The calling thread's mode, and how many registrations wait. */
enum capture_mode memory_soft_mode(const struct memory_soft *s);
uint32_t memory_soft_queued(const struct memory_soft *s);

#endif
