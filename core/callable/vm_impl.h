/* The table of instructions: text, verification and the machine agree because all three read it. */
#ifndef NPUFS_CORE_CALLABLE_VM_IMPL_H
#define NPUFS_CORE_CALLABLE_VM_IMPL_H

#include <assert.h>
#include <string.h>

#include "core/callable/vm.h"

enum vm_op {
	VM_NONE,
#define OP(id, name, operands) VM_##id,
#include "core/callable/vm_ops.def"
#undef OP
	VM_OPS
};

/* What an operand is, and the field of the instruction that holds it:
 *
 *   d  d: register, written     D  d: scalar, written      q  d: register, read
 *   a b c  register, read       v  a: vector, read         s  b: scalar, read
 *   t  a: tensor                k  imm: scalar argument    i  imm: number
 *   n  imm: limit, a number     m  imm: limit, a scalar argument
 *   p  imm2: step               x  imm: function */
struct vm_op_row {
	const char *name, *operands;
};

extern const struct vm_op_row vm_ops[VM_OPS];

static_assert(sizeof(struct vm_instr) == 16, "the layout of an instruction");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "images are little endian, as this host");

static inline struct vm_instr vm_fetch(const struct vm_code *p, uint32_t at)
{
	struct vm_instr in;

	memcpy(&in, p->code + (size_t)at * sizeof in, sizeof in);
	return in;
}

static inline bool vm_is_vector(uint8_t reg)
{
	return reg >= VM_SCALARS;
}

static inline bool vm_is_loop(uint8_t op)
{
	return op == VM_LOOP || op == VM_LOOPA;
}

#endif
