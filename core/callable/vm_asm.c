/* A name with more than one row ("loop" with a number or a scalar argument as its limit) is read by
 * the first row whose operands fit; what is wrong with the last one is told. Numbers are read by
 * strtof and strtoll: the C locale is assumed. */
#include "core/callable/vm_impl.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "core/base/mem.h"

#define LINE_MAX_BYTES 255
#define OPERANDS_MAX   4

struct line {
	char text[LINE_MAX_BYTES + 1];
	const char *name;
	const char *operands[OPERANDS_MAX];
	uint32_t n;
};

static int refuse(struct fault *f, const char *what, const char *word)
{
	return fault_at(f, -EINVAL, "code", -1, "see the list of instructions", "%s: \"%s\"", what,
		word);
}

/* --- splitting -------------------------------------------------------------------------------- */

static char *trim(char *text)
{
	size_t n;

	while (isspace((unsigned char)*text))
		text++;
	n = strlen(text);
	while (n && isspace((unsigned char)text[n - 1]))
		text[--n] = 0;
	return text;
}

static int split(const char *given, struct line *l, struct fault *f)
{
	size_t n = strcspn(given, "#");
	char *rest, *word;

	*l = (struct line){ 0 };
	if (n > LINE_MAX_BYTES)
		return refuse(f, "the line is too long", "");
	memcpy(l->text, given, n);
	rest = trim(l->text);
	l->name = rest;
	rest += strcspn(rest, " \t");
	if (*rest)
		*rest++ = 0;
	rest = trim(rest);
	if (!*rest)
		return 0;
	while ((word = strsep(&rest, ","))) {
		if (l->n == OPERANDS_MAX)
			return refuse(f, "too many operands", l->name);
		l->operands[l->n++] = trim(word);
	}
	return 0;
}

/* --- operands --------------------------------------------------------------------------------- */

static bool whole(const char *text, const char *end)
{
	return end != text && !*end;
}

static bool read_register(const char *text, uint8_t *ret)
{
	uint32_t first = text[0] == 'v' ? VM_SCALARS : 0, n;
	char *end;

	if ((text[0] != 'v' && text[0] != 's') || !isdigit((unsigned char)text[1]))
		return false;
	n = (uint32_t)strtoul(text + 1, &end, 10);
	if (*end || n >= (text[0] == 'v' ? VM_VECTORS : VM_SCALARS))
		return false;
	*ret = (uint8_t)(first + n);
	return true;
}

static bool read_int(const char *text, uint32_t *ret)
{
	char *end;
	long long n;

	errno = 0;
	n = strtoll(text, &end, 0);
	if (errno || !whole(text, end) || n < INT32_MIN || n > UINT32_MAX)
		return false;
	*ret = (uint32_t)n;
	return true;
}

/* An integer that does not fit is none of float32 either: that has a point or an exponent. */
static bool is_integer(const char *text)
{
	char *end;

	strtoll(text, &end, 0);
	return whole(text, end);
}

static bool read_number(const char *text, uint32_t *ret)
{
	char *end;
	float n;

	if (is_integer(text))
		return read_int(text, ret);
	errno = 0;
	n = strtof(text, &end);
	if (!whole(text, end) || (errno == ERANGE && isinf(n)))
		return false;
	memcpy(ret, &n, sizeof n);
	return true;
}

static bool find(const char *const *names, uint32_t n, const char *text, uint32_t *ret)
{
	for (uint32_t i = 0; i < n; i++)
		if (strcmp(names[i], text) == 0) {
			*ret = i;
			return true;
		}
	return false;
}

static bool find_tensor(const struct vm_names *names, const char *text, uint8_t *ret)
{
	uint32_t i;

	if (!find(names->tensors, names->n_tensors, text, &i))
		return false;
	*ret = (uint8_t)i;
	return true;
}

static bool find_function(const struct vm_names *names, const char *text, uint32_t *ret)
{
	for (uint32_t i = 0; i < names->n_functions; i++)
		if (strcmp(names->functions[i].name, text) == 0) {
			*ret = names->functions[i].id;
			return true;
		}
	return false;
}

static bool read_operand(char operand, const char *text, const struct vm_names *names,
	struct vm_instr *in)
{
	switch (operand) {
	case 'd':
	case 'D':
	case 'q':
		return read_register(text, &in->d);
	case 'a':
	case 'v':
		return read_register(text, &in->a);
	case 'b':
	case 's':
		return read_register(text, &in->b);
	case 'c':
		return read_register(text, &in->c);
	case 't':
		return find_tensor(names, text, &in->a);
	case 'k':
	case 'm':
		return find(names->scalars, names->n_scalars, text, &in->imm);
	case 'n':
		return read_int(text, &in->imm);
	case 'i':
		return read_number(text, &in->imm);
	case 'p':
		return read_int(text, &in->imm2);
	default:
		return find_function(names, text, &in->imm);
	}
}

static const char *operand_name(char operand)
{
	static const struct {
		const char *letters, *name;
	} names[] = {
		{ "t", "no such tensor" },
		{ "km", "no such scalar argument" },
		{ "x", "no such child" },
		{ "nip", "not a number of 32 bits" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strchr(names[i].letters, operand))
			return names[i].name;
	return "not a register s0..s31 or v0..v15";
}

static int read_operands(const struct line *l, uint8_t op, const struct vm_names *names,
	struct vm_instr *ret, struct fault *f)
{
	const char *operands = vm_ops[op].operands;

	*ret = (struct vm_instr){ .op = op };
	if (l->n != strlen(operands))
		return refuse(f, "not as many operands as it takes", l->name);
	for (uint32_t i = 0; i < l->n; i++)
		if (!read_operand(operands[i], l->operands[i], names, ret))
			return refuse(f, operand_name(operands[i]), l->operands[i]);
	return 0;
}

int vm_assemble(const char *line, const struct vm_names *names, struct vm_instr *ret,
	struct fault *f)
{
	struct line l;
	int err = split(line, &l, f);

	if (err || !*l.name)
		return err;
	err = refuse(f, "no such instruction", l.name);
	for (uint8_t op = VM_NONE + 1; err && op < VM_OPS; op++)
		if (strcmp(vm_ops[op].name, l.name) == 0)
			err = read_operands(&l, op, names, ret, f);
	if (err)
		return err;
	if (f)
		*f = (struct fault)FAULT_NONE;
	return 1;
}

void vm_link(struct vm_instr *code, uint32_t n)
{
	uint32_t open[VM_DEPTH_MAX], depth = 0;

	for (uint32_t i = 0; i < n; i++) {
		if (vm_is_loop(code[i].op)) {
			if (depth == VM_DEPTH_MAX)
				return;
			open[depth++] = i;
		} else if (code[i].op == VM_END && depth) {
			depth--;
			code[open[depth]].jump = (uint16_t)(i - open[depth]);
		}
	}
}

/* --- back to text ----------------------------------------------------------------------------- */

static void put_register(struct buf *out, uint8_t reg)
{
	buf_printf(out, "%c%u", vm_is_vector(reg) ? 'v' : 's', reg % VM_SCALARS);
}

/* Bits that are float32 more likely than not are better seen as they are. */
static void put_bits(struct buf *out, uint32_t bits)
{
	int32_t n = (int32_t)bits;

	if (n > -65536 && n < 65536)
		buf_printf(out, "%" PRId32, n);
	else
		buf_printf(out, "0x%08" PRIx32, bits);
}

static const char *function_name(const struct vm_names *names, uint32_t id)
{
	for (uint32_t i = 0; i < names->n_functions; i++)
		if (names->functions[i].id == id)
			return names->functions[i].name;
	return "?";
}

static void put_operand(struct buf *out, char operand, const struct vm_instr *in,
	const struct vm_names *names)
{
	switch (operand) {
	case 'd':
	case 'D':
	case 'q':
		put_register(out, in->d);
		break;
	case 'a':
	case 'v':
		put_register(out, in->a);
		break;
	case 'b':
	case 's':
		put_register(out, in->b);
		break;
	case 'c':
		put_register(out, in->c);
		break;
	case 't':
		buf_puts(out, names->tensors[in->a]);
		break;
	case 'k':
	case 'm':
		buf_puts(out, names->scalars[in->imm]);
		break;
	case 'x':
		buf_puts(out, function_name(names, in->imm));
		break;
	default:
		put_bits(out, operand == 'p' ? in->imm2 : in->imm);
	}
}

void vm_disassemble(const struct vm_instr *in, const struct vm_names *names, struct buf *out)
{
	const struct vm_op_row *row = &vm_ops[in->op];

	buf_puts(out, row->name);
	for (const char *o = row->operands; *o; o++) {
		buf_puts(out, o == row->operands ? " " : ", ");
		put_operand(out, *o, in, names);
	}
}
