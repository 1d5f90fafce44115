/* Raw accesses: the device's memory and registers as bytes at an address. Each is a command of the gate
 * like any other (core/control/privileged.h), so its intent is in the trail before it is made. Who reads or
 * writes bytes gives no words, so its reason says what it is instead: "raw access", how much, where, and
 * the SHA-256 of what is to be written; of what was read it is in the record of the result.
 *
 * The gate's arguments are 0xADDRESS and, to read, a length in bytes, to write, the bytes as
 * hexadecimal digits: all that an approver must see. What does not fit an approval's text cannot be
 * approved. Registers are read and written DEVICE_REGISTER_BYTES at a time, low byte first. */
#ifndef NPUFS_CORE_CONTROL_CONTROL_RAW_H
#define NPUFS_CORE_CONTROL_CONTROL_RAW_H

#include "core/base/buf.h"
#include "core/control/privileged.h"
#include "core/engine/engine.h"

#define CONTROL_RAW_MAX 65536 /* bytes of one access */

/* An access to be. */
struct control_raw {
	enum privileged_command command; /* one of memory and registers */
	uint64_t address;
	size_t size;
	const void *bytes; /* `size`, to be written; NULL to read */
};

/* Ask the gate for it: what privileged_run() returns. */
int control_raw_run(struct privileged *gate, const struct cred *who, const struct control_raw *raw,
	struct fault *f);

/* Make one that the gate has allowed, on the device's thread: `o` is that command's order. What is read is
 * appended to `out`. -EINVAL: no such arguments; and the errors of engine_operate(). */
int control_raw_act(struct engine *e, enum privileged_command command,
	const struct privileged_order *o, struct buf *out, struct fault *f);

#endif
