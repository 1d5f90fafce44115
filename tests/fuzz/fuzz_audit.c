/* Any bytes as a line of an audit trail, and as a file of it: refused, or a record whose hash is
 * that of its bytes. The hash would keep nearly all inputs out, so where the input begins with a 'c',
 * which is left off, each line gets the right one, and follows the one before it. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/control/audit_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition) \
	do { \
		if (!(condition)) \
			abort(); \
	} while (0)

#define HEX_LEN (SHA256_HEX_SIZE - 1)

static void check_record(const char *line, size_t len, const struct audit_line *l)
{
	char hex[SHA256_HEX_SIZE];
	const char *tail = line + len - HEX_LEN - strlen(",\"hash\":\"\"}");

	CHECK(len < AUDIT_LINE_MAX && l->seq > 0);
	CHECK(strlen(l->prev) == HEX_LEN && strlen(l->hash) == HEX_LEN);
	CHECK(strlen(l->torn) == HEX_LEN || !l->torn[0]);
	sha256_hex(line, (size_t)(tail - line), hex);
	CHECK(memcmp(tail, ",\"hash\":\"", strlen(",\"hash\":\"")) == 0);
	CHECK(strcmp(hex, l->hash) == 0);
}

/* A block of its own of exactly the line's size: a byte too far is seen. */
static bool try_line(enum audit_trail trail, const char *bytes, size_t len, struct audit_line *ret)
{
	char *line = malloc(len ? len : 1);
	const char *wrong;

	CHECK(line);
	memcpy(line, bytes, len);
	wrong = audit_line_get(trail, line, len, ret);
	if (wrong)
		CHECK(wrong[0]);
	else
		check_record(line, len, ret);
	free(line);
	return !wrong;
}

/* The line, its `prev` (what stands in its last 64 bytes before a quote) set, and its hash. */
static void put_right(const char *line, size_t len, char prev[SHA256_HEX_SIZE], struct buf *out)
{
	size_t start = out->len;

	buf_put(out, line, len);
	if (len > HEX_LEN && line[len - 1] == '"')
		memcpy(out->data + out->len - 1 - HEX_LEN, prev, HEX_LEN);
	sha256_hex(len ? out->data + start : "", len, prev);
	buf_printf(out, ",\"hash\":\"%s\"}\n", prev);
}

static void make_file(const uint8_t *data, size_t size, struct buf *out)
{
	const char *line = (const char *)data, *end = line + size, *stop;
	char prev[SHA256_HEX_SIZE] = AUDIT_NO_HASH;

	if (!size || *line != 'c') {
		buf_put(out, size ? line : "", size);
		return;
	}
	for (line++; line < end && (stop = memchr(line, '\n', (size_t)(end - line)));
		line = stop + 1)
		put_right(line, (size_t)(stop - line), prev, out);
	buf_put(out, line < end ? line : "", (size_t)(end - line)); /* torn */
}

/* What the lines that are taken for records say by themselves, the chain says as well. */
static void try_chain(enum audit_trail trail, const struct buf *file, bool whole)
{
	struct audit_line l = { 0 };
	struct audit_chain c;
	const char *line = buf_text(file), *stop;
	uint64_t n = 0;
	int err;

	audit_chain_init(&c, trail, whole);
	err = audit_chain_add(&c, line, file->len);
	CHECK(!err == !c.wrong);
	CHECK(c.offset <= file->len);
	for (; n + (c.wrong != NULL) < c.line; line = stop + 1, n++) {
		stop = memchr(line, '\n', file->len - (size_t)(line - buf_text(file)));
		CHECK(stop && try_line(trail, line, (size_t)(stop - line), &l));
	}
	CHECK((size_t)(line - buf_text(file)) == c.offset);
	CHECK(c.last == l.seq && (!n || c.last == c.first + n - 1));
	CHECK(c.wrong || c.torn.len == file->len - c.offset);
	audit_chain_done(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buf file = BUF_INIT;
	struct audit_line l;

	make_file(data, size, &file);
	CHECK(buf_error(&file) == 0);
	for (enum audit_trail trail = 0; trail < AUDIT_TRAIL_COUNT; trail++) {
		try_line(trail, buf_text(&file), file.len, &l);
		try_chain(trail, &file, true);
		try_chain(trail, &file, false);
	}
	buf_done(&file);
	return 0;
}
