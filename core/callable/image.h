/* The image of a callable: one run of bytes, little endian, that is uploaded as it is. Sections in
 * this order, each of fixed-width fields, all padding zero:
 *
 *     0  struct image_header                        64 bytes
 *    64  struct image_row [n_tensors + n_scalars]   16 bytes each: the signature, tensors first
 *        names [names_bytes]                        NUL-terminated, the last byte is a NUL
 *        to 8  struct image_child [n_children]      40 bytes each
 *        to 64 the orchestration's code             16 bytes an instruction (vm.h)
 *        to 64 children, in any order               code, then constants of 4 bytes each
 *
 * Orchestration and each child begin at a multiple of 64 and are padded to one; so is the whole.
 * total_bytes is exactly the sum of these parts, so that children that are in range and do not
 * overlap leave no gap. A header that grows says so in header_bytes, and its version. */
#ifndef NPUFS_CORE_CALLABLE_IMAGE_H
#define NPUFS_CORE_CALLABLE_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/fault.h"
#include "core/base/json.h"
#include "core/callable/limits.h"
#include "core/callable/vm.h"

#define IMAGE_MAGIC   "NPUCALL1" /* 8 bytes, no NUL */
#define IMAGE_VERSION 1u
#define IMAGE_HEADER  64u /* the least there is of a header */

struct image_header {
	char magic[8];
	uint32_t version;
	uint32_t header_bytes;
	uint64_t total_bytes;
	uint32_t n_tensors, n_scalars, n_children;
	uint32_t names_bytes;
	uint32_t children_offset; /* of the table */
	uint32_t code_offset;     /* of the orchestration */
	uint32_t n_code;          /* its instructions */
	uint32_t name;            /* of the callable; an offset in the names, as all names are */
	uint32_t reserved[2];
};

struct image_row {
	uint32_t name;
	uint8_t type;      /* enum vm_type */
	uint8_t access;    /* enum vm_access; 0 of a scalar */
	uint16_t reserved; /* 0 */
	uint32_t max;      /* of an int32 scalar that can be a loop's limit; else 0 */
	uint32_t reserved2;
};

struct image_child {
	int32_t id; /* 0..CALLABLE_FUNCTION_IDS - 1, once in an image */
	uint32_t name;
	uint64_t offset;
	uint64_t bytes; /* code and constants, without the padding */
	uint32_t n_code;
	uint32_t reserved[3];
};

/* What validation found; it points into the bytes that were validated. */
struct image {
	const uint8_t *bytes;
	struct image_header header;
	struct vm_signature signature;
	struct vm_code orchestration;
	uint64_t steps; /* of the worst case */
};

/* Everything that can be wrong with an image, without allocating: sizes, counts, offsets, names,
 * ids, and every program. `ret` may be NULL. -EINVAL: `f` names field and byte. */
int image_validate(const void *bytes, uint64_t len, struct image *ret, struct fault *f);

/* What the first bytes of an image say: its size when they have it, else 0. -EINVAL: they are no
 * beginning of an image. */
int image_peek(const void *bytes, uint64_t len, uint64_t *ret_total, struct fault *f);

/* Of a validated image. */
struct image_row image_row(const struct image *image, uint32_t i);
struct image_child image_child(const struct image *image, uint32_t i);
struct vm_code image_child_code(const struct image *image, const struct image_child *c);
const char *image_name(const struct image *image, uint32_t name);

/* 1 to CALLABLE_NAME_MAX printable bytes of ASCII without space, comma, hash, quote and backslash. */
bool image_name_valid(const char *name);
/* The names of the operands of its programs; borrowed from the image. */
void image_names(const struct image *image, struct vm_names *ret);

/* Append the image that a specification describes, and which image_validate() takes:
 *
 *   { "format": "npufs-callable-1", "name": "scale",
 *     "tensors": [ { "name": "x", "dtype": "float32", "access": "inout" } ],    in, out or inout
 *     "scalars": [ { "name": "n", "dtype": "int32", "max": 65536 } ],           max: 0 without
 *     "orchestration": [ "call scale" ],
 *     "children": [ { "id": 0, "name": "scale", "code": [ "loop s0, n, 1", ... ],
 *                     "dtype": "float32", "constants": [ 0.5 ] } ] }            both or neither
 *
 * Lines are of the text that vm.h describes; an orchestration may do the work itself, and there may
 * be no children. -EINVAL or -ENOMEM; `f` names the member and where it stands in the text. */
int image_build(const char *spec, size_t len, struct buf *out, struct fault *f);

/* Append what a validated image holds, as lines for people. 0 or -ENOMEM. */
int image_show(const struct image *image, struct buf *out);

#endif
