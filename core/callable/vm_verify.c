/* One pass over the code, with a stack of the loops that are open. Each entry sums the steps of one
 * round; at its end the sum is multiplied by the rounds of the worst case and added one level down.
 * Sums stick at VM_STEPS_MAX + 1, which is then refused, so nothing wraps: a step count below
 * VM_STEPS_MAX times fewer than 2^32 rounds fits 64 bits. Offsets are left to the machine: they are
 * data. */
#include "core/callable/vm_impl.h"

#include <errno.h>

const struct vm_op_row vm_ops[VM_OPS] = {
#define OP(id, name, operands) [VM_##id] = { name, operands },
#include "core/callable/vm_ops.def"
#undef OP
};

struct verifier {
	const struct vm_code *p;
	const struct vm_signature *sig;
	const struct vm_functions *functions;
	struct fault *f;
	uint32_t at;
	uint32_t depth;
	uint64_t steps[VM_DEPTH_MAX + 1]; /* of one round, at each depth */
	uint64_t rounds[VM_DEPTH_MAX + 1];
	uint32_t end[VM_DEPTH_MAX + 1]; /* where the loop says that it ends */
};

static int refuse(const struct verifier *v, const char *what)
{
	return fault_at(v->f, -EINVAL, "code", (long)((size_t)v->at * sizeof(struct vm_instr)),
		"see the list of instructions", "instruction %u: %s", v->at, what);
}

/* --- operands --------------------------------------------------------------------------------- */

/* Where unused fields are zero, an instruction has one encoding, and room to grow. */
static struct vm_instr without(struct vm_instr in, char operand)
{
	switch (operand) {
	case 'd':
	case 'D':
	case 'q':
		in.d = 0;
		break;
	case 'a':
	case 'v':
	case 't':
		in.a = 0;
		break;
	case 'b':
	case 's':
		in.b = 0;
		break;
	case 'c':
		in.c = 0;
		break;
	case 'p':
		in.imm2 = 0;
		break;
	default:
		in.imm = 0;
	}
	return in;
}

static bool unused_are_zero(struct vm_instr in)
{
	static const struct vm_instr zero;

	for (const char *o = vm_ops[in.op].operands; *o; o++)
		in = without(in, *o);
	if (vm_is_loop(in.op))
		in.jump = 0;
	in.op = 0;
	return memcmp(&in, &zero, sizeof in) == 0;
}

/* A scalar that is written takes scalars; a vector takes both. */
static const char *check_source(const struct vm_instr *in, uint8_t reg)
{
	if (reg >= VM_REGISTERS)
		return "no such register";
	return vm_is_vector(reg) && !vm_is_vector(in->d) ? "a vector cannot go into a scalar"
							 : NULL;
}

static const char *check_scalar(uint8_t reg)
{
	return reg < VM_SCALARS ? NULL : "not a scalar register";
}

static const char *check_tensor(const struct verifier *v, const struct vm_instr *in)
{
	unsigned access;

	if (in->a >= v->sig->n_tensors)
		return "no such tensor";
	access = v->sig->access[in->a];
	if (in->op == VM_ST && !(access & VM_OUT))
		return "stores into an input";
	return in->op == VM_LD && !(access & VM_IN) ? "loads from an output" : NULL;
}

static const char *check_limit(const struct verifier *v, uint32_t k)
{
	if (k >= v->sig->n_scalars)
		return "no such scalar argument";
	return v->sig->scalar_max[k] ? NULL : "a loop's limit needs a declared maximum";
}

static const char *check_function(const struct verifier *v, uint32_t id)
{
	if (!v->functions)
		return "only an orchestration calls";
	return id < CALLABLE_FUNCTION_IDS && v->functions->steps[id] ? NULL
								     : "calls what is not there";
}

static const char *check_operand(const struct verifier *v, const struct vm_instr *in, char operand)
{
	switch (operand) {
	case 'd':
	case 'q':
		return in->d < VM_REGISTERS ? NULL : "no such register";
	case 'D':
		return check_scalar(in->d);
	case 'a':
		return check_source(in, in->a);
	case 'b':
		return check_source(in, in->b);
	case 'c':
		return check_source(in, in->c);
	case 'v':
		return in->a >= VM_SCALARS && in->a < VM_REGISTERS ? NULL : "not a vector register";
	case 's':
		return check_scalar(in->b);
	case 't':
		return check_tensor(v, in);
	case 'k':
		return in->imm < v->sig->n_scalars ? NULL : "no such scalar argument";
	case 'm':
		return check_limit(v, in->imm);
	case 'n':
		return in->imm <= INT32_MAX ? NULL : "the limit is over 2^31 - 1";
	case 'p':
		return in->imm2 - 1u < INT32_MAX ? NULL : "the step is not in 1..2^31 - 1";
	case 'x':
		return check_function(v, in->imm);
	default:
		return NULL;
	}
}

static int check_operands(const struct verifier *v, const struct vm_instr *in)
{
	if (in->op == VM_NONE || in->op >= VM_OPS)
		return refuse(v, "no such operation");
	for (const char *o = vm_ops[in->op].operands; *o; o++) {
		const char *wrong = check_operand(v, in, *o);

		if (wrong)
			return refuse(v, wrong);
	}
	return unused_are_zero(*in) ? 0 : refuse(v, "a field that it does not use is not zero");
}

/* --- steps ------------------------------------------------------------------------------------ */

static void add_steps(struct verifier *v, uint64_t steps)
{
	uint64_t *sum = &v->steps[v->depth];

	*sum += steps;
	if (*sum > VM_STEPS_MAX)
		*sum = VM_STEPS_MAX + 1;
}

static int open_loop(struct verifier *v, const struct vm_instr *in)
{
	uint64_t limit = in->op == VM_LOOP ? in->imm : v->sig->scalar_max[in->imm];

	if (v->depth == VM_DEPTH_MAX)
		return refuse(v, "too many loops within each other");
	v->depth++;
	v->steps[v->depth] = 0;
	v->rounds[v->depth] = (limit + in->imm2 - 1) / in->imm2;
	v->end[v->depth] = v->at + in->jump;
	return 0;
}

static int close_loop(struct verifier *v)
{
	uint64_t all;

	if (!v->depth)
		return refuse(v, "ends no loop");
	if (v->end[v->depth] != v->at)
		return refuse(v, "is not where its loop says that it ends");
	all = v->rounds[v->depth] * v->steps[v->depth];
	v->depth--;
	add_steps(v, all);
	return 0;
}

static int check_instr(struct verifier *v)
{
	struct vm_instr in = vm_fetch(v->p, v->at);
	int err = check_operands(v, &in);

	if (err)
		return err;
	add_steps(v, in.op == VM_CALL ? v->functions->steps[in.imm] + 1 : 1);
	if (vm_is_loop(in.op))
		return open_loop(v, &in);
	return in.op == VM_END ? close_loop(v) : 0;
}

int vm_verify(const struct vm_code *p, const struct vm_signature *sig,
	const struct vm_functions *functions, uint64_t *ret_steps, struct fault *f)
{
	struct verifier v = { .p = p, .sig = sig, .functions = functions, .f = f };
	int err = 0;

	if (!p->n || p->n > VM_CODE_MAX)
		return refuse(&v, "a program has 1 to 4096 of them");
	static_assert(VM_CODE_MAX == 4096, "as the text says");
	for (; !err && v.at < p->n; v.at++)
		err = check_instr(&v);
	if (err)
		return err;
	if (v.depth)
		return refuse(&v, "a loop has no end");
	if (v.steps[0] > VM_STEPS_MAX)
		return refuse(&v, "too many steps in the worst case; lower a declared maximum");
	*ret_steps = v.steps[0];
	return 0;
}
