/* The machine: the examples against plain C over random shapes, each operation by known values, what
 * verification refuses, and what is stopped at run time. */
#include "core/callable/vm.h"

#include <float.h>
#include <math.h>

#include "callable_rig.h"

static uint32_t seed = 12345;

static uint32_t draw(uint32_t below)
{
	seed = seed * 1664525u + 1013904223u;
	return (seed >> 8) % below;
}

static float draw_float(void)
{
	return ((float)draw(2001) - 1000.0f) / 250.0f;
}

static void fill(float *to, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = draw_float();
}

static void near(float got, double expected, double tolerance)
{
	if (!(fabs(got - expected) <= tolerance * (1 + fabs(expected))))
		fail_msg("%.9g is not %.9g", (double)got, expected);
}

/* --- examples --------------------------------------------------------------------------------- */

static int32_t prepare_example(struct rig *r, const char *name)
{
	AUTO_BUF struct buf image = BUF_INIT;

	rig_open(r, true);
	rig_example(name, &image);
	return rig_prepare(r, &image);
}

static void launch(struct rig *r, int32_t id, const struct packet_tensor *t, uint32_t nt,
	const uint32_t *s, uint32_t ns)
{
	struct callable_args args = { PACKET_VM, nt, ns, t, s };

	if (callable_launch(r->c, id, &args, &r->f) < 0)
		fail_msg("%s (%s)", r->f.reason, packet_answer_name(memory_soft_answer(r->soft)));
}

static void add__random_lengths__as_plain_c(void **state)
{
	struct rig r;
	int32_t id = prepare_example(&r, "add");

	(void)state;
	for (int round = 0; round < 40; round++) {
		uint32_t n = round ? 1 + draw(500) : 64;
		float *x, *y, *z;
		struct packet_tensor t[3] = { rig_tensor(&r, n, &x), rig_tensor(&r, n, &y),
			rig_tensor(&r, n + 1, &z) };

		fill(x, n);
		fill(y, n);
		z[n] = 42;
		launch(&r, id, t, 3, &n, 1);
		for (uint32_t i = 0; i < n; i++)
			assert_true(z[i] == x[i] + y[i]);
		assert_true(z[n] == 42); /* not one element further */
	}
	rig_close(&r);
}

static void matmul__random_shapes__as_plain_c(void **state)
{
	struct rig r;
	int32_t id = prepare_example(&r, "matmul");

	(void)state;
	for (int round = 0; round < 20; round++) {
		uint32_t m = 1 + draw(20), k = 1 + draw(70), n = 1 + draw(150);
		uint32_t s[3] = { m, k, n };
		float *a, *b, *c;
		struct packet_tensor t[3] = { rig_tensor(&r, (size_t)m * k, &a),
			rig_tensor(&r, (size_t)k * n, &b), rig_tensor(&r, (size_t)m * n, &c) };

		fill(a, (size_t)m * k);
		fill(b, (size_t)k * n);
		launch(&r, id, t, 3, s, 3);
		for (uint32_t i = 0; i < m; i++)
			for (uint32_t j = 0; j < n; j++) {
				double sum = 0;

				for (uint32_t l = 0; l < k; l++)
					sum += (double)a[i * k + l] * (double)b[l * n + j];
				near(c[i * n + j], sum, 1e-4);
			}
	}
	rig_close(&r);
}

static void softmax__random_shapes__as_plain_c(void **state)
{
	struct rig r;
	int32_t id = prepare_example(&r, "softmax");

	(void)state;
	for (int round = 0; round < 20; round++) {
		uint32_t rows = 1 + draw(9), cols = 1 + draw(200);
		uint32_t s[2] = { rows, cols };
		float *x, *y;
		struct packet_tensor t[2] = { rig_tensor(&r, (size_t)rows * cols, &x),
			rig_tensor(&r, (size_t)rows * cols, &y) };

		fill(x, (size_t)rows * cols);
		x[0] = 500; /* whose exponential is no float */
		launch(&r, id, t, 2, s, 2);
		for (uint32_t i = 0; i < rows; i++) {
			double most = -1e30, sum = 0;

			for (uint32_t j = 0; j < cols; j++)
				most = fmax(most, (double)x[i * cols + j]);
			for (uint32_t j = 0; j < cols; j++)
				sum += exp((double)x[i * cols + j] - most);
			for (uint32_t j = 0; j < cols; j++)
				near(y[i * cols + j], exp((double)x[i * cols + j] - most) / sum,
					1e-5);
		}
	}
	rig_close(&r);
}

/* --- single programs -------------------------------------------------------------------------- */

#define CODE_MAX 64

/* A program of its own: tensor x of 8 elements in and out, scalars n (at most 100) and u. */
struct program {
	struct vm_names names;
	struct vm_signature sig;
	struct vm_instr code[CODE_MAX];
	uint32_t n;
	struct vm vm;
	struct vm_arguments args;
	uint32_t x[8];
	struct fault f;
};

static void program_init(struct program *p)
{
	memset(p, 0, sizeof *p);
	p->names.tensors[0] = "x";
	p->names.tensors[1] = "in";
	p->names.scalars[0] = "n";
	p->names.scalars[1] = "u";
	p->names.n_tensors = p->names.n_scalars = 2;
	p->names.functions[0] = (struct vm_function_name){ "child", 3 };
	p->names.n_functions = 1;
	p->sig = (struct vm_signature){ .n_tensors = 2,
		.n_scalars = 2,
		.access = { VM_INOUT, VM_IN },
		.scalar_max = { 100, 0 } };
	p->args.tensors[0] = (struct vm_tensor){ (uint8_t *)p->x, 8 };
	p->args.tensors[1] = (struct vm_tensor){ (uint8_t *)p->x, 8 };
}

/* Lines are separated by ';'. */
static void assemble(struct program *p, const char *text)
{
	char copy[2048], *rest = copy, *line;

	snprintf(copy, sizeof copy, "%s", text);
	p->n = 0;
	while ((line = strsep(&rest, ";"))) {
		int got = vm_assemble(line, &p->names, &p->code[p->n], &p->f);

		if (got < 0)
			fail_msg("%s: %s", line, p->f.reason);
		p->n += (uint32_t)got;
		assert_true(p->n < CODE_MAX);
	}
	vm_link(p->code, p->n);
}

static struct vm_code code_of(const struct program *p)
{
	return (struct vm_code){ (const uint8_t *)p->code, p->n, NULL, 0 };
}

static int verify(struct program *p, uint64_t *ret_steps)
{
	struct vm_code code = code_of(p);

	return vm_verify(&code, &p->sig, NULL, ret_steps, &p->f);
}

static enum vm_result run(struct program *p, const char *text)
{
	struct vm_code code;
	uint64_t steps;

	assemble(p, text);
	if (verify(p, &steps) < 0)
		fail_msg("%s: %s", text, p->f.reason);
	p->vm.args = &p->args;
	code = code_of(p);
	return vm_run(&p->vm, &code);
}

static uint32_t bits(float f)
{
	uint32_t b;

	memcpy(&b, &f, sizeof b);
	return b;
}

static void run__each_operation__its_known_value(void **state)
{
	static struct program p;
	static const struct {
		const char *op; /* of s1, s2 and s3, to s0 */
		const char *a, *b, *c;
		float f;
		int32_t i;
		bool is_float;
	} rows[] = {
		{ "mov s0, s1", "7", "0", "0", 0, 7, false },
		{ "fneg s0, s1", "1.5", "0", "0", -1.5f, 0, true },
		{ "fabs s0, s1", "-2.5", "0", "0", 2.5f, 0, true },
		{ "fexp s0, s1", "0.0", "0", "0", 1, 0, true },
		{ "fsqrt s0, s1", "9.0", "0", "0", 3, 0, true },
		{ "i2f s0, s1", "-3", "0", "0", -3, 0, true },
		{ "f2i s0, s1", "-3.9", "0", "0", 0, -3, false },
		{ "f2i s0, s1", "1e20", "0", "0", 0, INT32_MAX, false },
		{ "f2i s0, s1", "-1e20", "0", "0", 0, INT32_MIN, false },
		{ "f2i s0, s1", "nan", "0", "0", 0, 0, false },
		{ "fadd s0, s1, s2", "1.5", "2.25", "0", 3.75f, 0, true },
		{ "fsub s0, s1, s2", "1.5", "2.25", "0", -0.75f, 0, true },
		{ "fmul s0, s1, s2", "1.5", "2.0", "0", 3, 0, true },
		{ "fdiv s0, s1, s2", "1.0", "4.0", "0", 0.25f, 0, true },
		{ "fmin s0, s1, s2", "1.0", "-4.0", "0", -4, 0, true },
		{ "fmax s0, s1, s2", "1.0", "-4.0", "0", 1, 0, true },
		{ "iadd s0, s1, s2", "2147483647", "1", "0", 0, INT32_MIN, false },
		{ "isub s0, s1, s2", "3", "5", "0", 0, -2, false },
		{ "imul s0, s1, s2", "65536", "65537", "0", 0, 65536, false },
		{ "imin s0, s1, s2", "-1", "1", "0", 0, -1, false },
		{ "imax s0, s1, s2", "-1", "1", "0", 0, 1, false },
		/* 1.0000001 squared less 1.0000002: rounded once, something is left of it. */
		{ "fma s0, s1, s2, s3", "0x3f800001", "0x3f800001", "0xbf800002", 0x1p-46f, 0,
			true },
		{ "flt s0, s1, s2", "1.0", "2.0", "0", 0, -1, false },
		{ "fle s0, s1, s2", "2.0", "1.0", "0", 0, 0, false },
		{ "feq s0, s1, s2", "nan", "nan", "0", 0, 0, false },
		{ "ilt s0, s1, s2", "-1", "0", "0", 0, -1, false },
		{ "ile s0, s1, s2", "1", "1", "0", 0, -1, false },
		{ "ieq s0, s1, s2", "1", "2", "0", 0, 0, false },
		{ "select s0, s1, s2, s3", "-1", "5", "6", 0, 5, false },
		{ "select s0, s1, s2, s3", "0", "5", "6", 0, 6, false },
	};
	char text[256];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		uint32_t expected = rows[i].is_float ? bits(rows[i].f) : (uint32_t)rows[i].i;

		program_init(&p);
		snprintf(text, sizeof text,
			"const s1, %s; const s2, %s; const s3, %s; %s; "
			"st s0, x, s31",
			rows[i].a, rows[i].b, rows[i].c, rows[i].op);
		assert_int_equal(run(&p, text), VM_DONE);
		if (p.x[0] != expected)
			fail_msg("%s: 0x%08x, not 0x%08x", rows[i].op, p.x[0], expected);
	}
}

static void run__reductions__over_the_length_alone(void **state)
{
	static struct program p;

	(void)state;
	program_init(&p);
	for (int i = 0; i < 8; i++)
		p.x[i] = bits((float)(i - 2));
	assert_int_equal(run(&p,
				 "const s1, 3; vl s1; ld v0, x, s0; fredsum s2, v0; fredmin s3, v0;"
				 "fredmax s4, v0; st s2, x, s0; const s1, 1; st s3, x, s1;"
				 "const s1, 2; st s4, x, s1"),
		VM_DONE);
	assert_int_equal(p.x[0], bits(-3));
	assert_int_equal(p.x[1], bits(-2));
	assert_int_equal(p.x[2], bits(0));
	program_init(&p);
	for (uint32_t i = 0; i < 8; i++)
		p.x[i] = 10 - i;
	assert_int_equal(run(&p,
				 "const s1, 8; vl s1; ld v0, x, s0; iredsum s2, v0; iredmin s3, v0;"
				 "iredmax s4, v0; st s2, x, s0; const s1, 1; st s3, x, s1;"
				 "const s1, 2; st s4, x, s1"),
		VM_DONE);
	assert_int_equal(p.x[0], 52);
	assert_int_equal(p.x[1], 3);
	assert_int_equal(p.x[2], 10);
}

static void run__loops__rounds_by_limit_and_step(void **state)
{
	static struct program p;

	(void)state;
	program_init(&p);
	p.args.scalars[0] = 10; /* 0, 4, 8: three rounds of 5 */
	assert_int_equal(run(&p,
				 "const s5, 1; loop s0, n, 4; loop s1, 5, 1; iadd s2, s2, s5; end;"
				 "iadd s3, s3, s0; end; st s2, x, s31; st s3, x, s5"),
		VM_DONE);
	assert_int_equal(p.x[0], 15);
	assert_int_equal(p.x[1], 12);
	p.args.scalars[0] = 0; /* none, and on behind the end */
	assert_int_equal(run(&p,
				 "const s2, 9; loop s0, n, 1; loop s1, 5, 1; const s2, 1; end; end;"
				 "st s2, x, s31"),
		VM_DONE);
	assert_int_equal(p.x[0], 9);
}

/* Each call begins with its caller's scalars and with vectors of zeros, and gives nothing back. */
static void run__calls__fresh_registers_each_time(void **state)
{
	static struct program p, child;
	struct vm_functions functions = { { 0 } };
	struct vm_code code;
	uint64_t steps;

	(void)state;
	program_init(&p);
	program_init(&child);
	assemble(&child, "const s9, 1; vl s9; iadd v0, v0, s5; st v0, x, s0; iadd s5, s5, s9");
	assert_int_equal(verify(&child, &functions.steps[3]), 0);
	assemble(&p, "const s5, 7; loop s0, 3, 1; call child; end; const s0, 3; st s5, x, s0");
	code = code_of(&p);
	assert_int_equal(vm_verify(&code, &p.sig, &functions, &steps, &p.f), 0);
	assert_int_equal(steps, 1 + 1 + 3 * (1 + 5 + 1) + 2);
	p.vm.args = &p.args;
	p.vm.functions[3] = code_of(&child);
	assert_int_equal(vm_run(&p.vm, &code), VM_DONE);
	for (int i = 0; i < 4; i++)
		assert_int_equal(p.x[i], 7);
	p.vm.functions[3].n = 0;
	assert_int_equal(vm_run(&p.vm, &code), VM_NO_FUNCTION);
}

static void run__accesses_outside__stopped(void **state)
{
	static const char *const texts[] = {
		"const s0, 8; ld s1, x, s0",
		"const s0, -1; ld s1, x, s0",
		"const s0, 8; st s1, x, s0",
		"const s0, 0x80000000; st s1, x, s0",
		"const s0, 4; const s1, 5; vl s1; ld v0, x, s0",
		"const s1, 9; vl s1; st v0, x, s0",
		"ld v0, x, s0",
		"const s1, 65; vl s1",
		"const s1, -1; vl s1",
		"ldc s1, s0",
	};
	static struct program p;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		program_init(&p);
		if (run(&p, texts[i]) != VM_OUT_OF_BOUNDS)
			fail_msg("%s was done", texts[i]);
	}
	program_init(&p);
	assert_int_equal(run(&p, "const s0, 7; ld s1, x, s0; const s0, 8; vl s30; ld v0, x, s0"),
		VM_DONE); /* the last one; none at the end */
}

/* --- verification ----------------------------------------------------------------------------- */

static void verify__steps__known_sums(void **state)
{
	static struct program p;
	uint64_t steps;

	(void)state;
	program_init(&p);
	assemble(&p, "mov s0, s1; loop s0, n, 7; mov s1, s2; loop s3, 4, 1; mov s2, s3; end; end");
	assert_int_equal(verify(&p, &steps), 0);
	/* 15 rounds of (mov, loop, 4 * (mov, end), end) */
	assert_int_equal(steps, 2 + 15 * (2 + 4 * 2 + 1));
}

static void verify__what_would_not_end__refused(void **state)
{
	static const char *const texts[] = {
		"loop s0, 2147483647, 1; mov s1, s2; end",
		"loop s0, 100000, 1; loop s0, 100000, 1; loop s0, 100000, 1; loop s0, 100000, 1;"
		"loop s0, 100000, 1; end; end; end; end; end",
		"loop s0, 5, 0; end",
		"loop s0, 5, -1; end",
		"loop s0, -5, 1; end",
		"loop s0, u, 1; end", /* without a maximum */
		"loop s0, 5, 1",
		"end",
		"loop s0,2,1;loop s0,2,1;loop s0,2,1;loop s0,2,1;loop s0,2,1;loop s0,2,1;"
		"loop s0,2,1;loop s0,2,1;loop s0,2,1;end;end;end;end;end;end;end;end;end",
	};
	static struct program p;
	uint64_t steps;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		program_init(&p);
		assemble(&p, texts[i]);
		if (verify(&p, &steps) != -EINVAL)
			fail_msg("%s was taken", texts[i]);
	}
}

static void verify__operands_that_are_not_there__refused(void **state)
{
	static const struct {
		const char *text;
		struct vm_instr in; /* added to the instruction */
	} rows[] = {
		{ "mov s0, s1", { .op = 200 } }, { "mov s0, s1", { .d = VM_REGISTERS } },
		{ "mov v0, s1", { .a = VM_REGISTERS } }, { "fma v0, v1, v2, v3", { .c = 40 } },
		{ "mov s0, s1", { .a = VM_SCALARS } }, /* vector to scalar */
		{ "mov s0, s1", { .b = 1 } }, { "mov s0, s1", { .zero = 1 } },
		{ "mov s0, s1", { .jump = 1 } }, { "mov s0, s1", { .imm2 = 1 } },
		{ "arg s0, n", { .imm = 2 } }, { "ld s0, x, s1", { .a = 2 } },
		{ "ld s0, x, s1", { .b = VM_SCALARS } },
		{ "st s0, x, s1", { .a = 1 } }, /* into an input */
		{ "fredsum s0, v0", { .d = VM_SCALARS } }, { "loop s0, n, 1; end", { .imm = 2 } },
		{ "loop s0, n, 1; end", { .jump = 1 } },
		{ "call child", { .zero = 0 } }, /* not from a child */
	};
	static struct program p;
	uint64_t steps;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct vm_instr *in = &p.code[0];

		program_init(&p);
		assemble(&p, rows[i].text);
		in->op = (uint8_t)(in->op + rows[i].in.op);
		in->d = (uint8_t)(in->d + rows[i].in.d);
		in->a = (uint8_t)(in->a + rows[i].in.a);
		in->b = (uint8_t)(in->b + rows[i].in.b);
		in->c = (uint8_t)(in->c + rows[i].in.c);
		in->zero = rows[i].in.zero;
		in->jump = (uint16_t)(in->jump + rows[i].in.jump);
		in->imm += rows[i].in.imm;
		in->imm2 += rows[i].in.imm2;
		if (verify(&p, &steps) != -EINVAL || p.f.offset != 0)
			if (rows[i].in.jump == 0 || p.f.err != -EINVAL)
				fail_msg("row %zu (%s) was taken", i, rows[i].text);
	}
	program_init(&p);
	p.sig.access[0] = VM_OUT;
	assemble(&p, "ld s0, x, s1");
	assert_int_equal(verify(&p, &steps), -EINVAL);
	p.n = 0;
	assert_int_equal(verify(&p, &steps), -EINVAL);
}

/* --- text ------------------------------------------------------------------------------------- */

static void assemble__wrong_lines__said_what(void **state)
{
	static const struct {
		const char *line, *said;
	} rows[] = {
		{ "fadd s0, s1", "operands" },
		{ "fadd s0, s1, s2, s3", "operands" },
		{ "fadd s0, s1, s2, s3, s4", "operands" },
		{ "fadd s0, s1, s32", "s32" },
		{ "fadd v16, s1, s2", "v16" },
		{ "fadd s0, s1, r2", "r2" },
		{ "frob s0", "frob" },
		{ "ld s0, y, s1", "no such tensor" },
		{ "arg s0, x", "no such scalar" },
		{ "loop s0, x, 1", "no such scalar" },
		{ "const s0, 12x", "not a number" },
		{ "const s0, 4294967296x", "not a number" },
		{ "const s0, 4294967296", "not a number" }, /* without a point it is no float32 */
		{ "const s0, -2147483649", "not a number" },
		{ "const s0, 0x100000000", "not a number" },
		{ "const s0, 1e39", "not a number" },
		{ "call nobody", "no such child" },
	};
	static struct program p;
	struct vm_instr in;

	(void)state;
	program_init(&p);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		p.f = (struct fault)FAULT_NONE;
		assert_int_equal(vm_assemble(rows[i].line, &p.names, &in, &p.f), -EINVAL);
		if (!strstr(p.f.reason, rows[i].said))
			fail_msg("%s: %s", rows[i].line, p.f.reason);
	}
	assert_int_equal(vm_assemble("  # nothing", &p.names, &in, &p.f), 0);
	assert_int_equal(vm_assemble("", &p.names, &in, &p.f), 0);
}

static void disassemble__then_assemble__the_same(void **state)
{
	static struct program p;
	struct vm_instr again;

	(void)state;
	program_init(&p);
	assemble(&p,
		"const s1, -7; const s2, 0.5; arg s3, u; len s4, x; vl s1; mov v1, s2;"
		"fma v0, v1, s2, v15; select v2, v0, v1, s0; fredmax s5, v2; ld v0, x, s1;"
		"st s0, x, s1; ldc v3, s0; loop s0, n, 64; end; loop s0, 9, 3; end; call child");
	for (uint32_t i = 0; i < p.n; i++) {
		AUTO_BUF struct buf text = BUF_INIT;

		vm_disassemble(&p.code[i], &p.names, &text);
		assert_int_equal(vm_assemble(buf_text(&text), &p.names, &again, &p.f), 1);
		again.jump = p.code[i].jump;
		assert_memory_equal(&again, &p.code[i], sizeof again);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(add__random_lengths__as_plain_c),
		cmocka_unit_test(matmul__random_shapes__as_plain_c),
		cmocka_unit_test(softmax__random_shapes__as_plain_c),
		cmocka_unit_test(run__each_operation__its_known_value),
		cmocka_unit_test(run__reductions__over_the_length_alone),
		cmocka_unit_test(run__loops__rounds_by_limit_and_step),
		cmocka_unit_test(run__calls__fresh_registers_each_time),
		cmocka_unit_test(run__accesses_outside__stopped),
		cmocka_unit_test(verify__steps__known_sums),
		cmocka_unit_test(verify__what_would_not_end__refused),
		cmocka_unit_test(verify__operands_that_are_not_there__refused),
		cmocka_unit_test(assemble__wrong_lines__said_what),
		cmocka_unit_test(disassemble__then_assemble__the_same),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
