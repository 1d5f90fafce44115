/* The bounds of resident callables, each named once.
 *
 * Errors of everything in core/callable/ that returns an int, in the order in which they are found
 * (what is malformed stays so whatever the state of the context):
 *
 *   -EINVAL           InvalidArgument: the image, the id or the arguments themselves are wrong
 *   -EBADFD           invalid state: closed, capturing or not, or an operation that does not exist
 *   -ENOTRECOVERABLE  the context is poisoned: the state of the device is unknown until it is closed
 *   -ENOENT           no callable with this id is resident
 *   -ENOSPC           a limit; fault.field names which: "registrations", "allocated_bytes",
 *                     "launches" of a graph, "buffer_bytes"
 *   -ENOMEM           no memory of the host
 *   fault.device set  the device's own code, with the errno that belongs to it */
#ifndef NPUFS_CORE_CALLABLE_LIMITS_H
#define NPUFS_CORE_CALLABLE_LIMITS_H

/* Registrations of one context: host cache, resolve, device table and dispatch guard. A limit, not
 * a preallocation. */
#define CALLABLE_IDS_MAX 8192

#define CALLABLE_ALIGN       64u
#define CALLABLE_BLOCK_BYTES (2ull << 20) /* a shared block; a larger image is alone in its own */
#define CALLABLE_BYTES_MAX   (2ull << 30) /* over all blocks, padding and unused tails included */

/* Of all buffers that launches work on; beside the blocks. */
#define CALLABLE_BUFFER_BYTES_MAX (1ull << 30)

/* Function ids are below this: the size of the function table that a launch fills. */
#define CALLABLE_FUNCTION_IDS 1024
/* Children of one image; of the same value, and of another origin. */
#define CALLABLE_CHILDREN_MAX 1024

#define CALLABLE_TENSORS_MAX 32
#define CALLABLE_SCALARS_MAX 32
#define CALLABLE_NAME_MAX    63
#define CALLABLE_NAMES_BYTES (128u << 10)

#define CALLABLE_ALIGN_UP(n, to) (((n) + ((to)-1)) / (to) * (to))

#endif
