/* A table-driven automaton: next_of[state][class of the byte] is the next state, 0 where the byte
 * is refused, or an action that looks at the stack. The stack of open containers is one bit each.
 * Escapes and UTF-8 have states of their own, so that \u0000, half surrogate pairs and ill-formed
 * sequences need no arithmetic and may be cut anywhere by the end of a piece. Runs (text of
 * strings, digits, blanks) are transitions of a state to itself and stay in the innermost loop. */
#include "core/base/json.h"

#include <errno.h>

#include "core/base/mem.h"

#define TEXT_OF(x) #x
#define NUMBER(x)  TEXT_OF(x) /* the text of a constant */

/* Ranges of this list are used below: plain text of a string is SPACE..OTHER, hexadecimal digits
 * are ZERO..UPPER_E, the continuation bytes of UTF-8 are CONT_80..CONT_A0. */
enum byte_class {
	C_NUL,
	C_CONTROL,
	C_LINE,
	C_QUOTE,
	C_BACKSLASH,
	C_SPACE,
	C_SLASH,
	C_COMMA,
	C_COLON,
	C_LBRACE,
	C_RBRACE,
	C_LBRACKET,
	C_RBRACKET,
	C_PLUS,
	C_MINUS,
	C_DOT,
	C_ZERO,
	C_1_TO_7,
	C_8_9,
	C_A,
	C_B,
	C_UPPER_AB,
	C_C_UPPER_CF,
	C_F,
	C_D,
	C_E,
	C_UPPER_E,
	C_L,
	C_N,
	C_R,
	C_S,
	C_T,
	C_U,
	C_OTHER,
	C_CONT_80,
	C_CONT_90,
	C_CONT_A0,
	C_LEAD_2,
	C_LEAD_E0,
	C_LEAD_3,
	C_LEAD_ED,
	C_LEAD_F0,
	C_LEAD_4,
	C_LEAD_F4,
	C_NOT_UTF8,
	C_COUNT
};

static const unsigned char class_of[256] = {
	[0x00] = C_NUL,
	[0x01 ... 0x08] = C_CONTROL,
	['\t'] = C_LINE,
	['\n'] = C_LINE,
	[0x0b ... 0x0c] = C_CONTROL,
	['\r'] = C_LINE,
	[0x0e ... 0x1f] = C_CONTROL,
	[' '] = C_SPACE,
	['!'] = C_OTHER,
	['"'] = C_QUOTE,
	['#' ... '*'] = C_OTHER,
	['+'] = C_PLUS,
	[','] = C_COMMA,
	['-'] = C_MINUS,
	['.'] = C_DOT,
	['/'] = C_SLASH,
	['0'] = C_ZERO,
	['1' ... '7'] = C_1_TO_7,
	['8' ... '9'] = C_8_9,
	[':'] = C_COLON,
	[';' ... '@'] = C_OTHER,
	['A' ... 'B'] = C_UPPER_AB,
	['C'] = C_C_UPPER_CF,
	['D'] = C_D,
	['E'] = C_UPPER_E,
	['F'] = C_C_UPPER_CF,
	['G' ... 'Z'] = C_OTHER,
	['['] = C_LBRACKET,
	['\\'] = C_BACKSLASH,
	[']'] = C_RBRACKET,
	['^' ... '`'] = C_OTHER,
	['a'] = C_A,
	['b'] = C_B,
	['c'] = C_C_UPPER_CF,
	['d'] = C_D,
	['e'] = C_E,
	['f'] = C_F,
	['g' ... 'k'] = C_OTHER,
	['l'] = C_L,
	['m'] = C_OTHER,
	['n'] = C_N,
	['o' ... 'q'] = C_OTHER,
	['r'] = C_R,
	['s'] = C_S,
	['t'] = C_T,
	['u'] = C_U,
	['v' ... 'z'] = C_OTHER,
	['{'] = C_LBRACE,
	['|'] = C_OTHER,
	['}'] = C_RBRACE,
	['~' ... 0x7f] = C_OTHER,
	[0x80 ... 0x8f] = C_CONT_80,
	[0x90 ... 0x9f] = C_CONT_90,
	[0xa0 ... 0xbf] = C_CONT_A0,
	[0xc0 ... 0xc1] = C_NOT_UTF8,
	[0xc2 ... 0xdf] = C_LEAD_2,
	[0xe0] = C_LEAD_E0,
	[0xe1 ... 0xec] = C_LEAD_3,
	[0xed] = C_LEAD_ED,
	[0xee ... 0xef] = C_LEAD_3,
	[0xf0] = C_LEAD_F0,
	[0xf1 ... 0xf3] = C_LEAD_4,
	[0xf4] = C_LEAD_F4,
	[0xf5 ... 0xff] = C_NOT_UTF8,
};

enum state {
	S_REFUSED,
	S_START, /* perhaps a byte order mark */
	S_VALUE,
	S_FIRST_VALUE,
	S_FIRST_KEY,
	S_KEY,
	S_COLON,
	S_AFTER,
	S_MINUS,
	S_ZERO,
	S_INT,
	S_DOT,
	S_FRACTION,
	S_E,
	S_E_SIGN,
	S_EXPONENT,
	S_T,
	S_TR,
	S_TRU,
	S_F,
	S_FA,
	S_FAL,
	S_FALS,
	S_N,
	S_NU,
	S_NUL,
	S_STRING,
	S_ESCAPE,
	S_U,
	S_U_2,
	S_U_3,
	S_U_4, /* digits of \u, by the one to come */
	S_U_2_OF_0,
	S_U_3_OF_0,
	S_U_4_OF_0, /* only zeros so far */
	S_U_2_OF_D,
	S_U_3_HIGH,
	S_U_4_HIGH, /* \uD: the first half of a pair? */
	S_PAIR,
	S_PAIR_U,
	S_LOW_1,
	S_LOW_2, /* the second half, \uDC00..\uDFFF */
	S_TAIL_1,
	S_TAIL_2,
	S_TAIL_3,
	S_TAIL_E0,
	S_TAIL_ED,
	S_TAIL_F0,
	S_TAIL_F4,
	S_COUNT,
	A_FIRST = S_COUNT,
	A_OPEN_OBJECT = A_FIRST,
	A_OPEN_ARRAY,
	A_CLOSE_OBJECT,
	A_CLOSE_ARRAY,
	A_COMMA,
	A_BEGIN_KEY,
	A_END_STRING
};

#define BLANKS(to) [C_LINE] = (to), [C_SPACE] = (to)
#define DIGITS(to) [C_ZERO... C_8_9] = (to)
#define HEX(to)    [C_ZERO... C_UPPER_E] = (to)
#define CONT(to)   [C_CONT_80... C_CONT_A0] = (to)
#define VALUES \
	[C_QUOTE] = S_STRING, [C_LBRACE] = A_OPEN_OBJECT, [C_LBRACKET] = A_OPEN_ARRAY, \
	[C_MINUS] = S_MINUS, [C_ZERO] = S_ZERO, \
	[C_1_TO_7... C_8_9] = S_INT, [C_T] = S_T, [C_F] = S_F, [C_N] = S_N
#define FOLLOWERS \
	BLANKS(S_AFTER), [C_COMMA] = A_COMMA, [C_RBRACE] = A_CLOSE_OBJECT, \
			 [C_RBRACKET] = A_CLOSE_ARRAY

static const unsigned char next_of[S_COUNT][C_COUNT] = {
	[S_VALUE] = { BLANKS(S_VALUE), VALUES },
	[S_FIRST_VALUE] = { BLANKS(S_FIRST_VALUE), VALUES, [C_RBRACKET] = A_CLOSE_ARRAY },
	[S_FIRST_KEY] = { BLANKS(S_FIRST_KEY), [C_QUOTE] = A_BEGIN_KEY,
		[C_RBRACE] = A_CLOSE_OBJECT },
	[S_KEY] = { BLANKS(S_KEY), [C_QUOTE] = A_BEGIN_KEY },
	[S_COLON] = { BLANKS(S_COLON), [C_COLON] = S_VALUE },
	[S_AFTER] = { FOLLOWERS },

	[S_MINUS] = { [C_ZERO] = S_ZERO, [C_1_TO_7... C_8_9] = S_INT },
	[S_ZERO] = { FOLLOWERS, [C_DOT] = S_DOT, [C_E] = S_E, [C_UPPER_E] = S_E },
	[S_INT] = { FOLLOWERS, DIGITS(S_INT), [C_DOT] = S_DOT, [C_E] = S_E, [C_UPPER_E] = S_E },
	[S_DOT] = { DIGITS(S_FRACTION) },
	[S_FRACTION] = { FOLLOWERS, DIGITS(S_FRACTION), [C_E] = S_E, [C_UPPER_E] = S_E },
	[S_E] = { DIGITS(S_EXPONENT), [C_PLUS] = S_E_SIGN, [C_MINUS] = S_E_SIGN },
	[S_E_SIGN] = { DIGITS(S_EXPONENT) },
	[S_EXPONENT] = { FOLLOWERS, DIGITS(S_EXPONENT) },

	[S_T] = { [C_R] = S_TR },
	[S_TR] = { [C_U] = S_TRU },
	[S_TRU] = { [C_E] = S_AFTER },
	[S_F] = { [C_A] = S_FA },
	[S_FA] = { [C_L] = S_FAL },
	[S_FAL] = { [C_S] = S_FALS },
	[S_FALS] = { [C_E] = S_AFTER },
	[S_N] = { [C_U] = S_NU },
	[S_NU] = { [C_L] = S_NUL },
	[S_NUL] = { [C_L] = S_AFTER },

	[S_STRING] = { [C_SPACE... C_OTHER] = S_STRING,
		[C_QUOTE] = A_END_STRING,
		[C_BACKSLASH] = S_ESCAPE,
		[C_LEAD_2] = S_TAIL_1,
		[C_LEAD_E0] = S_TAIL_E0,
		[C_LEAD_3] = S_TAIL_2,
		[C_LEAD_ED] = S_TAIL_ED,
		[C_LEAD_F0] = S_TAIL_F0,
		[C_LEAD_4] = S_TAIL_3,
		[C_LEAD_F4] = S_TAIL_F4 },
	[S_ESCAPE] = { [C_QUOTE... C_BACKSLASH] = S_STRING,
		[C_SLASH] = S_STRING,
		[C_B] = S_STRING,
		[C_F] = S_STRING,
		[C_N] = S_STRING,
		[C_R] = S_STRING,
		[C_T] = S_STRING,
		[C_U] = S_U },
	[S_U] = { [C_ZERO] = S_U_2_OF_0,
		[C_1_TO_7... C_F] = S_U_2,
		[C_D] = S_U_2_OF_D,
		[C_E... C_UPPER_E] = S_U_2 },
	[S_U_2] = { HEX(S_U_3) },
	[S_U_3] = { HEX(S_U_4) },
	[S_U_4] = { HEX(S_STRING) },
	[S_U_2_OF_0] = { [C_ZERO] = S_U_3_OF_0, [C_1_TO_7... C_UPPER_E] = S_U_3 },
	[S_U_3_OF_0] = { [C_ZERO] = S_U_4_OF_0, [C_1_TO_7... C_UPPER_E] = S_U_4 },
	[S_U_4_OF_0] = { [C_1_TO_7... C_UPPER_E] = S_STRING },
	[S_U_2_OF_D] = { [C_ZERO... C_1_TO_7] = S_U_3, [C_8_9... C_UPPER_AB] = S_U_3_HIGH },
	[S_U_3_HIGH] = { HEX(S_U_4_HIGH) },
	[S_U_4_HIGH] = { HEX(S_PAIR) },
	[S_PAIR] = { [C_BACKSLASH] = S_PAIR_U },
	[S_PAIR_U] = { [C_U] = S_LOW_1 },
	[S_LOW_1] = { [C_D] = S_LOW_2 },
	[S_LOW_2] = { [C_C_UPPER_CF... C_UPPER_E] = S_U_3 },

	[S_TAIL_1] = { CONT(S_STRING) },
	[S_TAIL_2] = { CONT(S_TAIL_1) },
	[S_TAIL_3] = { CONT(S_TAIL_2) },
	[S_TAIL_E0] = { [C_CONT_A0] = S_TAIL_1 },
	[S_TAIL_ED] = { [C_CONT_80... C_CONT_90] = S_TAIL_1 },
	[S_TAIL_F0] = { [C_CONT_90... C_CONT_A0] = S_TAIL_2 },
	[S_TAIL_F4] = { [C_CONT_80] = S_TAIL_2 },
};

/* --- what to say ------------------------------------------------------------------------------ */

#define NOT_UTF8   "bytes that are not UTF-8"
#define HALF_PAIR  "an escape that is half of a surrogate pair"
#define NUMBER_BAD "a number that JSON does not know; it is like 12, -0.5 or 1e3"
#define WORD_BAD   "an unknown word; JSON has true, false and null, and text is in double quotes"

/* Per group of states: why a byte is refused, and what is open when the text ends. */
static const struct group {
	unsigned char first, last;
	const char *refused, *open;
} groups[] = {
	{ S_START, S_VALUE, "something else where a value should be",
		"a value is missing at the end" },
	{ S_FIRST_VALUE, S_FIRST_VALUE, "something else where a value should be",
		"an array is not closed" },
	{ S_FIRST_KEY, S_KEY, "something else where a key in double quotes should be",
		"an object is not closed" },
	{ S_COLON, S_COLON, "no colon after a key", "a value is missing at the end" },
	{ S_AFTER, S_AFTER, "no comma or closing bracket after a value",
		"a bracket is not closed at the end" },
	{ S_MINUS, S_EXPONENT, NUMBER_BAD, "the last number is cut short" },
	{ S_T, S_NUL, WORD_BAD, "the last word is cut short" },
	{ S_STRING, S_STRING, "a control byte in a string; write it as an escape such as \\n",
		"a string is not closed" },
	{ S_ESCAPE, S_ESCAPE, "an unknown escape; a backslash itself is written as two",
		"a string is not closed" },
	{ S_U, S_U_3_OF_0, "an escape \\u without four hexadecimal digits",
		"a string is not closed" },
	{ S_U_4_OF_0, S_U_4_OF_0, "a NUL character in a string", "a string is not closed" },
	{ S_U_2_OF_D, S_LOW_2, HALF_PAIR, "a string is not closed" },
	{ S_TAIL_1, S_TAIL_F4, NOT_UTF8, "a string is not closed" },
};

/* Slips made often, by the state and the byte. */
static const struct hint {
	unsigned char state;
	char byte;
	const char *reason;
} hints[] = {
	{ S_VALUE, '\'', "text in single quotes; JSON has double quotes" },
	{ S_FIRST_VALUE, '\'', "text in single quotes; JSON has double quotes" },
	{ S_FIRST_KEY, '\'', "a key in single quotes; JSON has double quotes" },
	{ S_KEY, '\'', "a key in single quotes; JSON has double quotes" },
	{ S_VALUE, ']', "a comma before the closing bracket" },
	{ S_KEY, '}', "a comma before the closing bracket" },
	{ S_VALUE, 'N', "NaN and None are not JSON; there is null" },
	{ S_VALUE, 'I', "Infinity is not JSON" },
	{ S_MINUS, 'I', "Infinity is not JSON" },
	{ S_VALUE, 'T', "true is written in small letters" },
	{ S_VALUE, 'F', "false is written in small letters" },
	{ S_VALUE, '/', "a comment; JSON has none" },
	{ S_KEY, '/', "a comment; JSON has none" },
	{ S_FIRST_KEY, '/', "a comment; JSON has none" },
	{ S_AFTER, '/', "a comment; JSON has none" },
	{ S_ZERO, 'x', "a hexadecimal number; JSON has decimal ones only" },
};

static const struct group *group_of(unsigned state)
{
	const struct group *g = groups;

	while (g < groups + ARRAY_SIZE(groups) - 1 && state > g->last)
		g++;
	return g;
}

static const char *refusal(unsigned state, char byte, unsigned depth)
{
	if (byte == '\0')
		return "a NUL byte";
	if (depth == 0 && state == S_AFTER)
		return "more text after the end of the value";
	for (size_t i = 0; i < ARRAY_SIZE(hints); i++)
		if (hints[i].state == state && hints[i].byte == byte)
			return hints[i].reason;
	return group_of(state)->refused;
}

static bool in_number(unsigned state)
{
	return state >= S_MINUS && state <= S_EXPONENT;
}

/* Whether a text that ends in this state at depth 0 is whole. */
static bool may_end(unsigned state)
{
	return state == S_AFTER || state == S_ZERO || state == S_INT || state == S_FRACTION ||
		state == S_EXPONENT;
}

static enum json_verdict hopeless(struct json_scanner *s, uint64_t offset, int err,
	const char *reason)
{
	s->offset = offset;
	s->err = err;
	s->reason = reason;
	s->verdict = JSON_HOPELESS;
	return s->verdict;
}

static void refuse(struct json_scanner *s, uint64_t offset, char byte)
{
	bool tail = s->state >= S_TAIL_1 && s->state <= S_TAIL_F4;
	unsigned class = class_of[(unsigned char)byte];
	bool not_utf8 = tail || class == C_NOT_UTF8 ||
		(s->state == S_STRING && class >= C_CONT_80 && class <= C_CONT_A0);

	if (not_utf8)
		hopeless(s, offset, -EILSEQ, NOT_UTF8);
	else
		hopeless(s, offset, -EINVAL, refusal(s->state, byte, s->depth));
}

/* --- containers ------------------------------------------------------------------------------- */

static bool is_object(const struct json_scanner *s)
{
	return s->in_object >> (s->depth - 1) & 1;
}

static unsigned open_container(struct json_scanner *s, bool object, uint64_t offset)
{
	if (s->depth == JSON_MAX_DEPTH) {
		hopeless(s, offset, -EINVAL, "nesting deeper than " NUMBER(JSON_MAX_DEPTH));
		return S_REFUSED;
	}
	s->in_object &= ~(1ULL << s->depth);
	s->in_object |= (uint64_t)object << s->depth;
	s->depth++;
	return object ? S_FIRST_KEY : S_FIRST_VALUE;
}

static unsigned close_container(struct json_scanner *s, bool object, uint64_t offset)
{
	if (s->depth == 0) {
		hopeless(s, offset, -EINVAL, "a closing bracket that nothing opened");
		return S_REFUSED;
	}
	if (is_object(s) != object) {
		hopeless(s, offset, -EINVAL,
			object ? "} where an array is open" : "] where an object is open");
		return S_REFUSED;
	}
	s->depth--;
	return S_AFTER;
}

/* The state after an action, or S_REFUSED (with the reason set, or left to refuse()). */
static unsigned act(struct json_scanner *s, unsigned action, uint64_t offset)
{
	bool key = s->in_key;

	switch (action) {
	case A_OPEN_OBJECT:
	case A_OPEN_ARRAY:
		return open_container(s, action == A_OPEN_OBJECT, offset);
	case A_CLOSE_OBJECT:
	case A_CLOSE_ARRAY:
		return close_container(s, action == A_CLOSE_OBJECT, offset);
	case A_COMMA:
		if (s->depth == 0)
			return S_REFUSED;
		return is_object(s) ? S_KEY : S_VALUE;
	case A_BEGIN_KEY:
		s->in_key = true;
		return S_STRING;
	default:
		s->in_key = false;
		return key ? S_COLON : S_AFTER;
	}
}

/* --- running ---------------------------------------------------------------------------------- */

void json_scanner_init(struct json_scanner *s)
{
	*s = (struct json_scanner){ .state = S_START, .reason = "the text is empty" };
}

/* The mark may be cut into pieces too: `offset` says which of its bytes is due. */
static size_t skip_mark(struct json_scanner *s, const char *bytes, size_t n)
{
	static const char mark[] = "\xef\xbb\xbf";
	size_t i = 0;

	while (i < n && s->offset < sizeof mark - 1 && bytes[i] == mark[s->offset]) {
		i++;
		s->offset++;
	}
	if (s->offset == sizeof mark - 1 || (i < n && s->offset == 0))
		s->state = S_VALUE;
	else if (i < n)
		hopeless(s, s->offset, -EINVAL, group_of(S_VALUE)->refused);
	return i;
}

/* False, and hopeless, when the number that is open at `offset` is too long. */
static bool number_fits(struct json_scanner *s, uint64_t offset)
{
	if (!in_number(s->state) || offset - s->number_start <= JSON_MAX_NUMBER)
		return true;
	hopeless(s, s->number_start, -EINVAL,
		"a number of more than " NUMBER(JSON_MAX_NUMBER) " bytes");
	return false;
}

static enum json_verdict pause_at(struct json_scanner *s, uint64_t offset)
{
	if (!number_fits(s, offset))
		return s->verdict;
	s->offset = offset;
	s->verdict = s->depth == 0 && may_end(s->state) ? JSON_COMPLETE : JSON_INCOMPLETE;
	s->reason = s->verdict == JSON_COMPLETE ? NULL : group_of(s->state)->open;
	return s->verdict;
}

/* Take the transition to another state at one byte; false when it is refused. */
static bool step(struct json_scanner *s, unsigned next, uint64_t offset, char byte)
{
	if (!number_fits(s, offset))
		return false;
	if (in_number(next) && !in_number(s->state))
		s->number_start = offset;
	if (next >= A_FIRST)
		next = act(s, next, offset);
	if (next == S_REFUSED && s->verdict != JSON_HOPELESS)
		refuse(s, offset, byte);
	s->state = (unsigned char)next;
	return next != S_REFUSED;
}

enum json_verdict json_scan(struct json_scanner *s, const char *bytes, size_t n)
{
	uint64_t base;
	size_t i = 0;

	if (s->state == S_START && s->verdict != JSON_HOPELESS) {
		i = skip_mark(s, bytes, n);
		bytes += i;
		n -= i;
	}
	if (s->verdict == JSON_HOPELESS || n == 0)
		return s->verdict;
	base = s->offset;
	for (i = 0; i < n; i++) {
		const unsigned char *on = next_of[s->state];
		unsigned next = s->state, here = s->state;

		while (i < n && (next = on[class_of[(unsigned char)bytes[i]]]) == here)
			i++;
		if (i < n && !step(s, next, base + i, bytes[i]))
			return s->verdict;
	}
	return pause_at(s, base + n);
}
