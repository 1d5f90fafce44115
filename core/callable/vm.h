/* The machine that children and orchestrations of callables are written for: scalars and vectors of
 * 32-bit lanes, float32 or int32 as the instruction says; never native code.
 *
 *   s0..s31   scalars; zero at the start, but a called child starts with its caller's
 *   v0..v15   vectors of VM_LANES lanes, of which the first `vl` count; vl is VM_LANES at the start
 *
 * An instruction is 16 bytes, little endian (struct vm_instr). As text it is one line: the name,
 * then operands between commas. In the table below d is a register that is written; a, b, c are
 * registers that are read: scalars where d is one, else vectors or scalars, whose value then stands
 * in every lane. s is a scalar, v a vector, T a tensor of the signature and K a scalar argument (by
 * name), i a number: with a point or an exponent it is float32, else int32.
 *
 *   mov d,a    fneg fabs fexp fsqrt d,a    i2f f2i d,a (towards zero, saturating, NaN gives 0)
 *   fadd fsub fmul fdiv fmin fmax d,a,b    iadd isub imul imin imax d,a,b (modulo 2^32)
 *   fma d,a,b,c  is a * b + c, rounded once
 *   flt fle feq ilt ile ieq d,a,b          all bits set where it holds, else 0
 *   select d,a,b,c  is b where a is not 0, else c
 *   fredsum fredmin fredmax iredsum iredmin iredmax s,v   over the first vl lanes, in order
 *   const s,i    arg s,K    len s,T (elements)    vl s (0..VM_LANES)
 *   ld d,T,s     st a,T,s   from element s on: vl elements of a vector, one of a scalar
 *   ldc d,s      likewise, of the child's own constants
 *   loop s,N,i ... end      s = 0, i, 2i, ... while below N: a number, or a scalar argument with a
 *                           declared maximum; so the number of rounds is known before the first
 *   call F       only in an orchestration: the child runs to its end
 *
 * vm_verify() bounds the steps of the worst case, and every access is checked when it is made: a
 * verified program ends, and touches nothing but its arguments. */
#ifndef NPUFS_CORE_CALLABLE_VM_H
#define NPUFS_CORE_CALLABLE_VM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/fault.h"
#include "core/callable/limits.h"

#define VM_LANES     64
#define VM_SCALARS   32
#define VM_VECTORS   16
#define VM_REGISTERS (VM_SCALARS + VM_VECTORS) /* as numbered in an instruction: scalars first */
#define VM_CODE_MAX  4096                      /* instructions of one program */
#define VM_DEPTH_MAX 8                         /* loops within each other */
#define VM_STEPS_MAX (1ull << 28)              /* of one launch, all calls included */

struct vm_instr {
	uint8_t op, d, a, b, c, zero;
	uint16_t jump; /* of a loop: how many instructions further its end is */
	uint32_t imm, imm2;
};

enum vm_access { VM_IN = 1, VM_OUT = 2, VM_INOUT = 3 };
enum vm_type { VM_FLOAT32 = 1, VM_INT32 = 2 };

/* What programs may count on, and are verified against. */
struct vm_signature {
	uint32_t n_tensors, n_scalars;
	uint8_t access[CALLABLE_TENSORS_MAX]; /* enum vm_access */
	uint32_t scalar_max
		[CALLABLE_SCALARS_MAX]; /* of int32: 0..max; 0: any value, no loop's limit */
};

/* A program, at any alignment; borrowed. */
struct vm_code {
	const uint8_t *code;
	uint32_t n;               /* instructions */
	const uint8_t *constants; /* 4 bytes each */
	uint64_t n_constants;
};

/* The functions of an image: steps and presence by id. What is 0 is not there, for a program that
 * has nothing to do takes one step. */
struct vm_functions {
	uint64_t steps[CALLABLE_FUNCTION_IDS];
};

/* Steps of the worst case, at most VM_STEPS_MAX. `functions` is NULL for a child, which may not
 * call. -EINVAL: `f` says which instruction and, as offset, its byte from the program's start. */
int vm_verify(const struct vm_code *p, const struct vm_signature *sig,
	const struct vm_functions *functions, uint64_t *ret_steps, struct fault *f);

/* --- running ---------------------------------------------------------------------------------- */

enum vm_result { VM_DONE, VM_OUT_OF_BOUNDS, VM_OUT_OF_STEPS, VM_NO_FUNCTION };

struct vm_tensor {
	uint8_t *data;
	uint64_t elements; /* of 4 bytes */
};

struct vm_arguments {
	struct vm_tensor tensors[CALLABLE_TENSORS_MAX];
	uint32_t scalars[CALLABLE_SCALARS_MAX]; /* bits */
};

struct vm_frame {
	uint32_t s[VM_SCALARS];
	uint32_t v[VM_VECTORS][VM_LANES];
	uint32_t vl;
};

/* All that a launch needs, so that it allocates nothing: frames of the orchestration and of the
 * child that it called, and the functions of this invocation. */
struct vm {
	struct vm_frame frames[2];
	struct vm_code functions[CALLABLE_FUNCTION_IDS]; /* n 0: no such function */
	const struct vm_arguments *args;
	uint64_t steps; /* left */
};

/* Run a verified orchestration. vm->functions and vm->args are set. */
enum vm_result vm_run(struct vm *vm, const struct vm_code *orchestration);

/* --- text ------------------------------------------------------------------------------------- */

/* Names for the operands of text; indices are those of the instruction. */
struct vm_names {
	const char *tensors[CALLABLE_TENSORS_MAX], *scalars[CALLABLE_SCALARS_MAX];
	uint32_t n_tensors, n_scalars;
	struct vm_function_name {
		const char *name;
		uint32_t id;
	} functions[CALLABLE_CHILDREN_MAX];
	uint32_t n_functions;
};

/* One line to one instruction; "#" starts a comment. 1: an instruction, 0: nothing on the line,
 * -EINVAL with `f`. The jump of a loop is left open for vm_link(). */
int vm_assemble(const char *line, const struct vm_names *names, struct vm_instr *ret,
	struct fault *f);
/* Set the jumps of loops; one that never ends is left as it is, for vm_verify() to refuse. */
void vm_link(struct vm_instr *code, uint32_t n);
/* The line of an instruction that passed vm_verify(), without a newline. */
void vm_disassemble(const struct vm_instr *in, const struct vm_names *names, struct buf *out);

#endif
