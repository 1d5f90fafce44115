/* What all tokenizers share: prefix, suffix, stops; and the one where a token is a byte. */
#include "core/artifact/tokenizer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/artifact/tokenizer_llama2c.h"
#include "core/base/mem.h"

#define BYTE_VALUES 256

struct ids {
	int32_t *ids;
	size_t n;
};

struct tokenizer {
	uint32_t vocab;
	struct ids prefix, suffix, stop;
	struct llama2c *llama2c; /* NULL: a token is a byte */
	char bytes[BYTE_VALUES];
};

static int copy_ids(struct ids *to, const int32_t *ids, size_t n, uint32_t vocab, const char *field,
	struct fault *f)
{
	for (size_t i = 0; i < n; i++)
		if (ids[i] < 0 || (uint32_t)ids[i] >= vocab)
			return fault_at(f, -EINVAL, field, -1, "use ids below vocab_size",
				"%s has the token %d; the vocabulary has %u", field, ids[i], vocab);
	to->ids = calloc(n ? n : 1, sizeof *ids);
	if (!to->ids)
		return fault_set(f, -ENOMEM, "try again", "no memory for the tokenizer");
	if (n)
		memcpy(to->ids, ids, n * sizeof *ids);
	to->n = n;
	return 0;
}

static int make_scheme(struct tokenizer *t, const struct tokenizer_spec *spec, const void *file,
	size_t len, struct fault *f)
{
	switch (spec->type) {
	case TOKENIZER_LLAMA2C:
		return llama2c_new(file, len, spec->vocab_size, &t->llama2c, f);
	case TOKENIZER_BYTES:
		if (spec->vocab_size < BYTE_VALUES)
			return fault_at(f, -EINVAL, "vocab_size", -1, "give at least 256",
				"a vocabulary of bytes needs 256 tokens, not %u", spec->vocab_size);
		for (int b = 0; b < BYTE_VALUES; b++)
			t->bytes[b] = (char)b;
		return 0;
	case TOKENIZER_NONE:
		break;
	}
	return fault_at(f, -EINVAL, "tokenizer", -1, "add a tokenizer to the manifest",
		"the artifact has no tokenizer");
}

int tokenizer_new(const struct tokenizer_spec *spec, const void *file, size_t len,
	struct tokenizer **ret, struct fault *f)
{
	struct tokenizer *t = calloc(1, sizeof *t);
	int err;

	if (!t)
		return fault_set(f, -ENOMEM, "try again", "no memory for the tokenizer");
	t->vocab = spec->vocab_size;
	err = make_scheme(t, spec, file, len, f);
	if (!err)
		err = copy_ids(&t->prefix, spec->prefix, spec->n_prefix, t->vocab, "prefix", f);
	if (!err)
		err = copy_ids(&t->suffix, spec->suffix, spec->n_suffix, t->vocab, "suffix", f);
	if (!err)
		err = copy_ids(&t->stop, spec->stop, spec->n_stop, t->vocab, "stop", f);
	if (err) {
		tokenizer_free(t);
		return err;
	}
	*ret = t;
	return 0;
}

void tokenizer_free(struct tokenizer *t)
{
	if (!t)
		return;
	llama2c_free(t->llama2c);
	free(t->prefix.ids);
	free(t->suffix.ids);
	free(t->stop.ids);
	free(t);
}

uint32_t tokenizer_vocab(const struct tokenizer *t)
{
	return t->vocab;
}

size_t tokenizer_least(const struct tokenizer *t, size_t len)
{
	size_t longest = t->llama2c ? llama2c_longest(t->llama2c) : 1;

	return t->prefix.n + len / longest + (len % longest != 0) + t->suffix.n;
}

size_t tokenizer_prefix_len(const struct tokenizer *t)
{
	return t->prefix.n;
}

static int encode_text(const struct tokenizer *t, const char *text, size_t len, int32_t *out,
	size_t *ret_n)
{
	if (t->llama2c)
		return llama2c_encode(t->llama2c, text, len, out, ret_n);
	for (size_t i = 0; i < len; i++)
		out[i] = (unsigned char)text[i];
	*ret_n = len;
	return 0;
}

static size_t append_ids(int32_t *out, size_t at, const struct ids *ids)
{
	memcpy(out + at, ids->ids, ids->n * sizeof *out);
	return at + ids->n;
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, int32_t **ret,
	size_t *ret_n)
{
	AUTO_FREE int32_t *out = NULL;
	size_t room, bytes, n, n_text;
	int32_t *less;
	int err;

	if (__builtin_add_overflow(len, t->prefix.n + t->suffix.n + 1, &room) ||
		__builtin_mul_overflow(room, sizeof *out, &bytes))
		return -ENOMEM;
	out = malloc(bytes);
	if (!out)
		return -ENOMEM;
	n = append_ids(out, 0, &t->prefix);
	err = encode_text(t, text, len, out + n, &n_text);
	if (err)
		return err;
	n = append_ids(out, n + n_text, &t->suffix);
	less = realloc(out, (n ? n : 1) * sizeof *out);
	if (less)
		out = less;
	*ret = take_ptr(out);
	*ret_n = n;
	return 0;
}

const char *tokenizer_piece(const struct tokenizer *t, int32_t prev, int32_t token, size_t *ret_len)
{
	*ret_len = 0;
	if (token < 0 || (uint32_t)token >= t->vocab || tokenizer_is_stop(t, token))
		return "";
	if (t->llama2c)
		return llama2c_piece(t->llama2c, prev, token, ret_len);
	if (token >= BYTE_VALUES)
		return "";
	*ret_len = 1;
	return &t->bytes[token];
}

bool tokenizer_is_stop(const struct tokenizer *t, int32_t token)
{
	for (size_t i = 0; i < t->stop.n; i++)
		if (t->stop.ids[i] == token)
			return true;
	return false;
}
