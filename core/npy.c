/* A file is
 *
 *   "\x93NUMPY", major, minor, length of the header (2 bytes in version 1, 4 in 2 and 3), header, data
 *
 * The header is a Python dictionary of the keys descr, fortran_order and shape, with spaces after it
 * to bring the data to a multiple of 64. It is read by hand for what NumPy writes, not as Python:
 * strings without escapes, True and False, tuples of integers. Offsets are always those of the
 * file. */
#include "core/npy.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "core/base/mem.h"

#define MAGIC       "\x93NUMPY"
#define MAGIC_SIZE  6
#define PREFIX_SIZE (MAGIC_SIZE + 2)
#define ALIGNMENT   64
#define SAVE_AGAIN  "write it with numpy.save"

static const struct type {
	const char *code; /* without the byte order */
	enum dtype dtype;
} types[] = {
	{ "b1", DTYPE_BOOL },
	{ "i1", DTYPE_INT8 },
	{ "u1", DTYPE_UINT8 },
	{ "i2", DTYPE_INT16 },
	{ "u2", DTYPE_UINT16 },
	{ "i4", DTYPE_INT32 },
	{ "u4", DTYPE_UINT32 },
	{ "i8", DTYPE_INT64 },
	{ "u8", DTYPE_UINT64 },
	{ "f2", DTYPE_FLOAT16 },
	{ "f4", DTYPE_FLOAT32 },
	{ "f8", DTYPE_FLOAT64 },
};

struct reader {
	const char *text; /* the file */
	size_t at, end;   /* of the header */
	struct tensor_spec spec;
	bool fortran;
	size_t fortran_at, shape_at;
	unsigned seen; /* bit i: keys[i] */
	struct fault *f;
};

/* --- pieces of the header --------------------------------------------------------------------- */

static int malformed(const struct reader *r, size_t at, const char *expected)
{
	return fault_at(r->f, -EINVAL, NULL, (long)at, SAVE_AGAIN, "the header has no %s here",
		expected);
}

static char peek(struct reader *r)
{
	while (r->at < r->end && strchr(" \t\r\n", r->text[r->at]) && r->text[r->at])
		r->at++;
	return r->at < r->end ? r->text[r->at] : '\0';
}

static bool take(struct reader *r, char c)
{
	if (peek(r) != c)
		return false;
	r->at++;
	return true;
}

static bool take_word(struct reader *r, const char *word)
{
	size_t n = strlen(word);

	peek(r);
	if (r->end - r->at < n || memcmp(r->text + r->at, word, n) != 0)
		return false;
	r->at += n;
	return true;
}

static int take_string(struct reader *r, const char **ret, size_t *ret_len)
{
	char quote = peek(r);
	const char *start = r->text + r->at + 1, *close;

	if (quote != '\'' && quote != '"')
		return malformed(r, r->at, "string");
	close = memchr(start, quote, r->end - r->at - 1);
	if (!close)
		return malformed(r, r->end, "end of a string");
	*ret = start;
	*ret_len = (size_t)(close - start);
	r->at += *ret_len + 2;
	return 0;
}

static bool string_is(const char *s, size_t len, const char *word)
{
	return len == strlen(word) && memcmp(s, word, len) == 0;
}

/* --- the three keys --------------------------------------------------------------------------- */

static const struct type *find_type(const char *code, size_t len)
{
	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if (string_is(code, len, types[i].code))
			return &types[i];
	return NULL;
}

static int not_taken(const struct reader *r, size_t at, const char *action, const char *what)
{
	return fault_at(r->f, -EOPNOTSUPP, NULL, (long)at, action, "%s", what);
}

static int read_descr(struct reader *r)
{
	const struct type *type;
	const char *s;
	size_t len, at;
	bool ordered;
	int err;

	if (peek(r) == '[')
		return not_taken(r, r->at, "save one plain array",
			"structured arrays are not taken");
	at = r->at;
	err = take_string(r, &s, &len);
	if (err)
		return err;
	if (string_is(s, len, "|O") || string_is(s, len, "O"))
		return not_taken(r, at, "convert it with astype",
			"arrays of objects are not taken");
	ordered = len > 0 && s[0] && strchr("<>|", s[0]);
	type = ordered ? find_type(s + 1, len - 1) : NULL;
	if (!type || (s[0] == '|' && dtype_size(type->dtype) > 1))
		return fault_at(r->f, -EOPNOTSUPP, NULL, (long)at, "convert it with astype",
			"the type \"%.*s\" is not taken", len > 16 ? 16 : (int)len, s);
	if (s[0] == '>' && dtype_size(type->dtype) > 1)
		return not_taken(r, at, "convert it with astype(\"<...\")",
			"big-endian data is not taken");
	r->spec.dtype = type->dtype;
	return 0;
}

static int read_fortran_order(struct reader *r)
{
	peek(r);
	r->fortran_at = r->at;
	r->fortran = take_word(r, "True");
	if (r->fortran || take_word(r, "False"))
		return 0;
	return malformed(r, r->at, "True or False");
}

static int read_dimension(struct reader *r, int64_t *ret)
{
	int64_t n = 0;
	size_t start;

	peek(r);
	start = r->at;
	for (; r->at < r->end && r->text[r->at] >= '0' && r->text[r->at] <= '9'; r->at++)
		if (__builtin_mul_overflow(n, 10, &n) ||
			__builtin_add_overflow(n, r->text[r->at] - '0', &n))
			return fault_at(r->f, -ERANGE, NULL, (long)start, SAVE_AGAIN,
				"a dimension exceeds 64 bits");
	if (r->at == start)
		return malformed(r, start, "dimension");
	if (r->at < r->end && r->text[r->at] == 'L')
		r->at++; /* Python 2 wrote its long integers so */
	*ret = n;
	return 0;
}

/* A tuple: one element alone is followed by a comma. */
static int read_shape(struct reader *r)
{
	bool comma = true;
	int err = 0;

	peek(r);
	r->shape_at = r->at;
	if (!take(r, '('))
		return malformed(r, r->at, "tuple");
	while (!take(r, ')')) {
		if (!comma)
			return malformed(r, r->at, "comma or end of the tuple");
		if (r->spec.rank == TENSOR_MAX_RANK)
			return not_taken(r, r->at, "reshape it", "more than 8 dimensions");
		err = read_dimension(r, &r->spec.dims[r->spec.rank]);
		if (err)
			return err;
		r->spec.rank++;
		comma = take(r, ',');
		if (!comma && r->spec.rank == 1)
			return malformed(r, r->at, "comma after a dimension");
	}
	return 0;
}

static const struct key {
	const char *name;
	int (*read)(struct reader *r);
} keys[] = {
	{ "descr", read_descr },
	{ "fortran_order", read_fortran_order },
	{ "shape", read_shape },
};

static int read_item(struct reader *r)
{
	size_t at, len, i = 0;
	const char *name;
	int err;

	peek(r);
	at = r->at;
	err = take_string(r, &name, &len);
	if (err)
		return err;
	while (i < ARRAY_SIZE(keys) && !string_is(name, len, keys[i].name))
		i++;
	if (i == ARRAY_SIZE(keys))
		return fault_at(r->f, -EINVAL, NULL, (long)at, SAVE_AGAIN,
			"the header has an unknown key \"%.*s\"", len > 32 ? 32 : (int)len, name);
	if (r->seen & 1u << i)
		return fault_at(r->f, -EINVAL, NULL, (long)at, SAVE_AGAIN,
			"the header has the key \"%s\" twice", keys[i].name);
	r->seen |= 1u << i;
	if (!take(r, ':'))
		return malformed(r, r->at, "colon");
	return keys[i].read(r);
}

static int read_dictionary(struct reader *r)
{
	bool comma = true;
	int err = 0;

	if (!take(r, '{'))
		return malformed(r, r->at, "dictionary");
	while (!err && !take(r, '}')) {
		if (!comma)
			return malformed(r, r->at, "comma or end of the dictionary");
		err = read_item(r);
		comma = take(r, ',');
	}
	if (err)
		return err;
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		if (!(r->seen & 1u << i))
			return fault_at(r->f, -EINVAL, NULL, (long)r->at, SAVE_AGAIN,
				"the header has no key \"%s\"", keys[i].name);
	peek(r);
	return r->at == r->end ? 0 : malformed(r, r->at, "end");
}

/* --- the whole file --------------------------------------------------------------------------- */

static int cut_short(struct fault *f, size_t len)
{
	return fault_at(f, -EINVAL, NULL, (long)len, "copy it again",
		"the file ends within its header");
}

/* Where the header's text begins and ends. */
static int find_header(const unsigned char *b, size_t len, struct reader *r)
{
	size_t n = len < MAGIC_SIZE ? len : MAGIC_SIZE, width;
	uint32_t size = 0;

	if (n == 0 || memcmp(b, MAGIC, n) != 0)
		return fault_at(r->f, -EINVAL, NULL, 0, SAVE_AGAIN, "this is no .npy file");
	if (len < PREFIX_SIZE)
		return cut_short(r->f, len);
	if (b[6] < 1 || b[6] > 3 || b[7] != 0)
		return fault_at(r->f, -EOPNOTSUPP, NULL, MAGIC_SIZE, SAVE_AGAIN,
			"version %u.%u of the format; 1.0, 2.0 and 3.0 are taken", b[6], b[7]);
	width = b[6] == 1 ? 2 : 4;
	if (len < PREFIX_SIZE + width)
		return cut_short(r->f, len);
	for (size_t i = 0; i < width; i++)
		size |= (uint32_t)b[PREFIX_SIZE + i] << (8 * i);
	r->at = PREFIX_SIZE + width;
	if (size > len - r->at)
		return cut_short(r->f, len);
	r->end = r->at + size;
	return 0;
}

static int check_data(const struct reader *r, size_t len)
{
	size_t have = len - r->end;
	int64_t want = tensor_bytes(&r->spec);
	char text[TENSOR_TEXT_SIZE];

	if (want < 0)
		return fault_at(r->f, -ERANGE, NULL, (long)r->shape_at, SAVE_AGAIN,
			"the shape stands for more bytes than 64 bits can count");
	if (r->fortran && r->spec.rank > 1)
		return not_taken(r, r->fortran_at, "save numpy.ascontiguousarray() of it",
			"data in Fortran order is not taken");
	if (have == (uint64_t)want)
		return 0;
	return fault_at(r->f, -EINVAL, NULL,
		(long)(have < (uint64_t)want ? len : r->end + (size_t)want), "copy it again",
		"%zu bytes of data where %s takes %" PRId64, have, tensor_text(&r->spec, text),
		want);
}

int npy_parse(const void *bytes, size_t len, struct tensor_spec *ret, size_t *ret_data,
	struct fault *f)
{
	struct reader r = { .text = bytes, .f = f };
	int err = find_header(bytes, len, &r);

	if (!err)
		err = read_dictionary(&r);
	if (!err)
		err = check_data(&r, len);
	if (err)
		return err;
	*ret = r.spec;
	*ret_data = r.end;
	return 0;
}

/* --- writing ---------------------------------------------------------------------------------- */

/* The longest header there can be: version 1 has room for it, so no other is written. */
#define HEADER_MAX \
	(sizeof "{'descr': '<f4', 'fortran_order': False, 'shape': (), }" + \
		TENSOR_MAX_RANK * sizeof "9223372036854775807, " + ALIGNMENT)
static_assert(HEADER_MAX <= UINT16_MAX, "version 1 gives the header's length in 16 bits");

static const char *code_of(enum dtype t)
{
	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if (types[i].dtype == t)
			return types[i].code;
	return "";
}

void npy_write(const struct tensor_spec *t, const void *data, struct buf *out)
{
	AUTO_BUF struct buf header = BUF_INIT;
	unsigned char length[2];

	buf_printf(&header, "{'descr': '%c%s', 'fortran_order': False, 'shape': (",
		dtype_size(t->dtype) > 1 ? '<' : '|', code_of(t->dtype));
	for (uint32_t d = 0; d < t->rank; d++)
		buf_printf(&header, "%s%" PRId64, d ? ", " : "", t->dims[d]);
	buf_puts(&header, t->rank == 1 ? ",), }" : "), }");
	while ((PREFIX_SIZE + sizeof length + header.len + 1) % ALIGNMENT && !buf_error(&header))
		buf_puts(&header, " ");
	buf_puts(&header, "\n");
	length[0] = (unsigned char)header.len;
	length[1] = (unsigned char)(header.len >> 8);
	buf_put(out, MAGIC "\x01\0", PREFIX_SIZE);
	buf_put(out, length, sizeof length);
	buf_put(out, buf_text(&header), header.len);
	buf_put(out, data, (size_t)tensor_bytes(t));
	out->failed |= header.failed;
}
