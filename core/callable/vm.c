/* A register is an array of lanes, and a scalar one of a single lane, so that one loop does an
 * operation for both: a scalar read by a vector operation is read again for each lane. Verification
 * has settled registers, tensors and nesting; what is checked here are offsets and lengths, which
 * are data, and the steps, a second time. */
#include "core/callable/vm_impl.h"

#include <math.h>

#include "core/base/mem.h"

/* --- lanes ------------------------------------------------------------------------------------ */

struct lanes {
	uint32_t *at;
	uint32_t next; /* 1, or 0 for a scalar: how far the next lane is */
};

static struct lanes lanes_of(struct vm_frame *fr, uint8_t reg)
{
	if (vm_is_vector(reg))
		return (struct lanes){ fr->v[reg - VM_SCALARS], 1 };
	return (struct lanes){ &fr->s[reg], 0 };
}

static uint32_t count_of(const struct vm_frame *fr, uint8_t reg)
{
	return vm_is_vector(reg) ? fr->vl : 1;
}

static float as_float(uint32_t bits)
{
	float f;

	memcpy(&f, &bits, sizeof f);
	return f;
}

static uint32_t from_float(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, sizeof bits);
	return bits;
}

static uint32_t float_to_int(float f)
{
	if (isnan(f))
		return 0;
	if (f >= 2147483648.0f)
		return INT32_MAX;
	return f < -2147483648.0f ? (uint32_t)INT32_MIN : (uint32_t)(int32_t)f;
}

#define MASK(holds) ((holds) ? UINT32_MAX : 0)
#define FA          as_float(a)
#define FB          as_float(b)
#define IA          ((int32_t)a)
#define IB          ((int32_t)b)

/* One lane of each operation; a case each, as small as it gets. */
static inline uint32_t lane(uint8_t op, uint32_t a, uint32_t b, uint32_t c)
{
	switch (op) {
	case VM_FNEG:
		return a ^ 0x80000000u;
	case VM_FABS:
		return a & 0x7fffffffu;
	case VM_FEXP:
		return from_float(expf(FA));
	case VM_FSQRT:
		return from_float(sqrtf(FA));
	case VM_I2F:
		return from_float((float)IA);
	case VM_F2I:
		return float_to_int(FA);
	case VM_FADD:
		return from_float(FA + FB);
	case VM_FSUB:
		return from_float(FA - FB);
	case VM_FMUL:
		return from_float(FA * FB);
	case VM_FDIV:
		return from_float(FA / FB);
	case VM_FMIN:
		return from_float(fminf(FA, FB));
	case VM_FMAX:
		return from_float(fmaxf(FA, FB));
	case VM_IADD:
		return a + b;
	case VM_ISUB:
		return a - b;
	case VM_IMUL:
		return a * b;
	case VM_IMIN:
		return IA < IB ? a : b;
	case VM_IMAX:
		return IA > IB ? a : b;
	case VM_FMA:
		return from_float(fmaf(FA, FB, as_float(c)));
	case VM_FLT:
		return MASK(FA < FB);
	case VM_FLE:
		return MASK(FA <= FB);
	case VM_FEQ:
		return MASK(FA == FB);
	case VM_ILT:
		return MASK(IA < IB);
	case VM_ILE:
		return MASK(IA <= IB);
	case VM_IEQ:
		return MASK(a == b);
	case VM_SELECT:
		return a ? b : c;
	default: /* VM_MOV */
		return a;
	}
}

/* A loop for each operation, which then does nothing but that: a launch of the most steps takes so much
 * less of wait_limit. */
static void each_lane(struct vm_frame *fr, const struct vm_instr *in)
{
	struct lanes d = lanes_of(fr, in->d), a = lanes_of(fr, in->a), b = lanes_of(fr, in->b),
		     c = lanes_of(fr, in->c);
	uint32_t n = count_of(fr, in->d);

	switch (in->op) {
#define OP(id, name, operands) \
	case VM_##id: \
		for (uint32_t i = 0; i < n; i++) \
			d.at[i] = lane(VM_##id, a.at[i * a.next], b.at[i * b.next], \
				c.at[i * c.next]); \
		return;
#include "core/callable/vm_ops.def"
#undef OP
	default:
		return;
	}
}

/* Which operation joins two lanes, and what no lanes at all come to. */
static const struct reduction {
	uint8_t op;
	uint32_t none;
} reductions[] = {
	[VM_FREDSUM - VM_FREDSUM] = { VM_FADD, 0 },
	[VM_FREDMIN - VM_FREDSUM] = { VM_FMIN, 0x7f800000 },
	[VM_FREDMAX - VM_FREDSUM] = { VM_FMAX, 0xff800000 },
	[VM_IREDSUM - VM_FREDSUM] = { VM_IADD, 0 },
	[VM_IREDMIN - VM_FREDSUM] = { VM_IMIN, INT32_MAX },
	[VM_IREDMAX - VM_FREDSUM] = { VM_IMAX, 0x80000000 },
};

static void reduce(struct vm_frame *fr, const struct vm_instr *in)
{
	const struct reduction *r = &reductions[in->op - VM_FREDSUM];
	struct lanes v = lanes_of(fr, in->a);
	uint32_t sum = r->none;

	for (uint32_t i = 0; i < fr->vl; i++)
		sum = lane(r->op, sum, v.at[i], 0);
	fr->s[in->d] = sum;
}

/* --- memory ----------------------------------------------------------------------------------- */

/* Whether n elements from the scalar's value on lie within `all`; the value is an int32. */
static bool in_bounds(const struct vm_frame *fr, uint8_t offset, uint32_t n, uint64_t all)
{
	int32_t from = (int32_t)fr->s[offset];

	return from >= 0 && n <= all && (uint64_t)from <= all - n;
}

static enum vm_result load(struct vm_frame *fr, const struct vm_instr *in, const uint8_t *data,
	uint64_t elements)
{
	uint32_t n = count_of(fr, in->d);

	if (!in_bounds(fr, in->b, n, elements))
		return VM_OUT_OF_BOUNDS;
	if (n)
		memcpy(lanes_of(fr, in->d).at, data + (size_t)fr->s[in->b] * 4, (size_t)n * 4);
	return VM_DONE;
}

static enum vm_result store(struct vm_frame *fr, const struct vm_instr *in,
	const struct vm_tensor *t)
{
	uint32_t n = count_of(fr, in->d);

	if (!in_bounds(fr, in->b, n, t->elements))
		return VM_OUT_OF_BOUNDS;
	if (n)
		memcpy(t->data + (size_t)fr->s[in->b] * 4, lanes_of(fr, in->d).at, (size_t)n * 4);
	return VM_DONE;
}

static enum vm_result set_length(struct vm_frame *fr, uint32_t vl)
{
	if (vl > VM_LANES)
		return VM_OUT_OF_BOUNDS;
	fr->vl = vl;
	return VM_DONE;
}

/* The length of a tensor does not have to fit; an offset does. */
static uint32_t length_of(const struct vm_tensor *t)
{
	return t->elements > INT32_MAX ? INT32_MAX : (uint32_t)t->elements;
}

/* --- control ---------------------------------------------------------------------------------- */

struct running {
	const struct vm_code *p;
	struct vm_frame *fr;
	uint32_t at;
	uint32_t depth;
	struct loop {
		uint32_t start; /* the loop's own instruction */
		uint32_t limit;
		uint64_t i;
	} loops[VM_DEPTH_MAX];
};

static void begin_loop(struct vm *vm, struct running *r, const struct vm_instr *in)
{
	uint32_t limit = in->op == VM_LOOP ? in->imm : vm->args->scalars[in->imm];

	r->fr->s[in->d] = 0;
	if (!limit)
		r->at += in->jump;
	else
		r->loops[r->depth++] = (struct loop){ r->at, limit, 0 };
}

static void end_round(struct running *r)
{
	struct loop *l = &r->loops[r->depth - 1];
	struct vm_instr in = vm_fetch(r->p, l->start);

	l->i += in.imm2;
	if (l->i >= l->limit) {
		r->depth--;
		return;
	}
	r->fr->s[in.d] = (uint32_t)l->i;
	r->at = l->start;
}

static enum vm_result run(struct vm *vm, const struct vm_code *p, struct vm_frame *fr);

static enum vm_result call(struct vm *vm, const struct vm_frame *from, uint32_t id)
{
	struct vm_frame *fr = &vm->frames[1];

	if (id >= ARRAY_SIZE(vm->functions) || !vm->functions[id].n)
		return VM_NO_FUNCTION;
	memset(fr->v, 0, sizeof fr->v);
	memcpy(fr->s, from->s, sizeof fr->s);
	fr->vl = VM_LANES;
	return run(vm, &vm->functions[id], fr);
}

static enum vm_result step(struct vm *vm, struct running *r)
{
	struct vm_instr in = vm_fetch(r->p, r->at);
	const struct vm_tensor *t = &vm->args->tensors[in.a % CALLABLE_TENSORS_MAX];

	switch (in.op) {
	case VM_CONST:
		r->fr->s[in.d] = in.imm;
		return VM_DONE;
	case VM_ARG:
		r->fr->s[in.d] = vm->args->scalars[in.imm];
		return VM_DONE;
	case VM_LEN:
		r->fr->s[in.d] = length_of(t);
		return VM_DONE;
	case VM_VL:
		return set_length(r->fr, r->fr->s[in.b]);
	case VM_LD:
		return load(r->fr, &in, t->data, t->elements);
	case VM_ST:
		return store(r->fr, &in, t);
	case VM_LDC:
		return load(r->fr, &in, r->p->constants, r->p->n_constants);
	case VM_LOOP:
	case VM_LOOPA:
		begin_loop(vm, r, &in);
		return VM_DONE;
	case VM_END:
		end_round(r);
		return VM_DONE;
	case VM_CALL:
		return call(vm, r->fr, in.imm);
	default:
		if (in.op >= VM_FREDSUM && in.op <= VM_IREDMAX)
			reduce(r->fr, &in);
		else
			each_lane(r->fr, &in);
		return VM_DONE;
	}
}

static enum vm_result run(struct vm *vm, const struct vm_code *p, struct vm_frame *fr)
{
	struct running r = { .p = p, .fr = fr };
	enum vm_result result = VM_DONE;

	for (; result == VM_DONE && r.at < p->n; r.at++) {
		if (!vm->steps--)
			return VM_OUT_OF_STEPS;
		result = step(vm, &r);
	}
	return result;
}

enum vm_result vm_run(struct vm *vm, const struct vm_code *orchestration)
{
	memset(vm->frames, 0, sizeof vm->frames);
	vm->frames[0].vl = VM_LANES;
	vm->steps = VM_STEPS_MAX;
	return run(vm, orchestration, &vm->frames[0]);
}
