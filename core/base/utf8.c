/* The second byte of a character carries all that makes a sequence ill-formed beyond its shape:
 * overlong forms, surrogates and values above U+10FFFF are ruled out by its range (Unicode
 * standard, table 3-7). Every later byte is 80..BF. */
#include "core/base/utf8.h"

#include <stdint.h>
#include <string.h>

struct lead {
	unsigned char length; /* 0: no character starts so */
	unsigned char second_low, second_high;
};

static struct lead lead_of(unsigned char byte)
{
	if (byte < 0x80)
		return (struct lead){ 1, 0, 0 };
	if (byte < 0xc2 || byte > 0xf4)
		return (struct lead){ 0, 0, 0 };
	if (byte < 0xe0)
		return (struct lead){ 2, 0x80, 0xbf };
	if (byte < 0xf0)
		return (struct lead){ 3, byte == 0xe0 ? 0xa0 : 0x80, byte == 0xed ? 0x9f : 0xbf };
	return (struct lead){ 4, byte == 0xf0 ? 0x90 : 0x80, byte == 0xf4 ? 0x8f : 0xbf };
}

/* How many of the bytes at p are the beginning of one well-formed character; *ret_length is the
 * length that its first byte announces. */
static size_t match(const unsigned char *p, size_t len, size_t *ret_length)
{
	struct lead lead = lead_of(p[0]);
	size_t n = 1;

	*ret_length = lead.length;
	if (lead.length == 0)
		return 0;
	while (n < len && n < lead.length) {
		unsigned char low = n == 1 ? lead.second_low : 0x80;
		unsigned char high = n == 1 ? lead.second_high : 0xbf;

		if (p[n] < low || p[n] > high)
			break;
		n++;
	}
	return n;
}

static size_t ascii_run(const unsigned char *p, size_t len)
{
	size_t i = 0;
	uint64_t word;

	for (; i + sizeof word <= len; i += sizeof word) {
		memcpy(&word, p + i, sizeof word);
		if (word & 0x8080808080808080ULL)
			break;
	}
	while (i < len && p[i] < 0x80)
		i++;
	return i;
}

size_t utf8_valid_prefix(const char *text, size_t len)
{
	const unsigned char *p = (const unsigned char *)text;
	size_t at = 0, length;

	while (at < len) {
		at += ascii_run(p + at, len - at);
		if (at == len || match(p + at, len - at, &length) != length || length == 0)
			break;
		at += length;
	}
	return at;
}

size_t utf8_unfinished_tail(const char *text, size_t len)
{
	const unsigned char *p = (const unsigned char *)text;
	size_t length;

	for (size_t back = 1; back <= 3 && back <= len; back++) {
		const unsigned char *start = p + len - back;

		if ((*start & 0xc0) == 0x80)
			continue;
		return match(start, back, &length) == back && back < length ? back : 0;
	}
	return 0;
}

/* Longest marks first: UTF-32's little-endian mark begins with UTF-16's. 'x' stands for any byte
 * but 0. */
static const struct {
	const char *name;
	unsigned char length;
	char bytes[5];
} encodings[] = {
	{ "UTF-32", 4, "\xff\xfe\0\0" },
	{ "UTF-32", 4, "\0\0\xfe\xff" },
	{ "UTF-16", 2, "\xff\xfe" },
	{ "UTF-16", 2, "\xfe\xff" },
	{ "UTF-32", 4, "x\0\0\0" },
	{ "UTF-32", 4, "\0\0\0x" },
	{ "UTF-16", 2, "x\0" },
	{ "UTF-16", 2, "\0x" },
};

const char *utf8_other_encoding(const char *text, size_t len)
{
	for (size_t i = 0; i < sizeof encodings / sizeof encodings[0]; i++) {
		size_t n = 0;

		if (len < encodings[i].length)
			continue;
		while (n < encodings[i].length &&
			(encodings[i].bytes[n] == 'x' ? text[n] != '\0'
						      : text[n] == encodings[i].bytes[n]))
			n++;
		if (n == encodings[i].length)
			return encodings[i].name;
	}
	return NULL;
}
