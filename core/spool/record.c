/* One table a part: key, kind, place. Writing goes through the rows in order and leaves out what is
 * zero; reading expects that order, and finds a line that is out of it by going around once. Lines
 * with unknown keys are passed over, so that a later version may add some. */
#include "core/spool/record.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/mem.h"

enum kind { BOOL, U32, I32, U64, I64, TEXT, WORD, REASON };

struct row {
	const char *key;
	enum kind kind;
	size_t at, size; /* of its member */
	const char *const *words;
};

#define AT(type, member) offsetof(type, member), sizeof(((type *)0)->member)

static const char *const formats[] = { "text", "json", "batch", NULL };
static const char *const shapes[] = { "own", "openai", "kserve", NULL };
static const char *const reasons[] = { "", "stop", "length", NULL };

#define NODE(key, kind, member) \
	{ \
		key, kind, AT(struct record_node, member), NULL \
	}
static const struct row node_rows[] = {
	NODE("id", U64, id),
	NODE("folder", U64, folder),
	NODE("name", TEXT, name),
	NODE("is_folder", BOOL, dir),
	NODE("uid", U32, uid),
	NODE("gid", U32, gid),
	NODE("mode", U32, mode),
	NODE("atime", I64, atime),
	NODE("mtime", I64, mtime),
	NODE("ctime", I64, ctime),
	NODE("job", U64, job),
	NODE("removed", U32, removed),
};

#define RUN(key, kind, member) \
	{ \
		key, kind, AT(struct record_run, member), NULL \
	}
#define RUN_WORD(key, member, words) \
	{ \
		key, WORD, AT(struct record_run, member), words \
	}
#define RUN_REASON(key, member, words) \
	{ \
		key, REASON, AT(struct record_run, member), words \
	}
static const struct row run_rows[] = {
	RUN("job", U64, view.id),
	RUN("uid", U32, view.uid),
	RUN_WORD("state", view.state, job_state_names),
	RUN_WORD("format", view.format, formats),
	RUN_WORD("shape", view.shape, shapes),
	RUN("stream", BOOL, view.stream),
	RUN("stream_apart", BOOL, view.stream_apart),
	RUN("model", TEXT, view.model_alias),
	RUN("model_sha256", TEXT, view.model_sha256),
	RUN("priority", I32, priority),
	RUN("deadline_ms", I64, deadline_ms),
	RUN("names_files", BOOL, names_files),
	RUN("in_session", BOOL, in_session),
	RUN("generation", U64, view.generation),
	RUN("made", I64, view.made),
	RUN("queued", I64, view.queued),
	RUN("started", I64, view.started),
	RUN("ended", I64, view.ended),
	RUN("queue_ns", I64, view.queue_ns),
	RUN("run_ns", I64, view.run_ns),
	RUN("prompt_tokens", U64, view.prompt_tokens),
	RUN("output_tokens", U64, view.output_tokens),
	RUN("request_size", U64, view.request_size),
	RUN("out_size", U64, view.out_size),
	RUN("stream_size", U64, view.stream_size),
	RUN("lines", U64, view.lines.total),
	RUN("lines_done", U64, view.lines.done),
	RUN("lines_failed", U64, view.lines.failed),
	RUN_REASON("finish_reason", view.finish_reason, reasons),
	RUN("seed_known", BOOL, view.seed_known),
	RUN("seed", U64, view.seed),
	RUN("request_sha256", TEXT, view.request_sha256),
	RUN("output_sha256", TEXT, view.output_sha256),
	RUN("request_id", TEXT, view.request_id),
	RUN("error", I32, view.fault.err),
	RUN("device_error", I32, view.fault.device),
	RUN("offset", I64, view.fault.offset),
	RUN("field", TEXT, view.fault.field),
	RUN("reason", TEXT, view.fault.reason),
	RUN("action", TEXT, view.fault.action),
};

/* --- numbers and the check -------------------------------------------------------------------- */

/* FNV-1a: against accidents, not against anybody. */
static uint64_t check_of(const char *text, size_t n)
{
	uint64_t h = 0xcbf29ce484222325ULL;

	for (size_t i = 0; i < n; i++)
		h = (h ^ (unsigned char)text[i]) * 0x100000001b3ULL;
	return h;
}

static char *put_text(char *to, const char *text)
{
	size_t n = strlen(text);

	memcpy(to, text, n);
	return to + n;
}

static char *put_number(char *to, bool negative, uint64_t magnitude)
{
	char digits[20];
	size_t n = 0;

	if (negative)
		*to++ = '-';
	do
		digits[n++] = (char)('0' + magnitude % 10);
	while (magnitude /= 10);
	while (n)
		*to++ = digits[--n];
	return to;
}

static char *put_check(char *to, uint64_t check)
{
	to = put_text(to, "check: ");
	for (int shift = 60; shift >= 0; shift -= 4)
		*to++ = "0123456789abcdef"[check >> shift & 15];
	*to++ = '\n';
	return to;
}

static bool read_number(const char *text, bool *ret_negative, uint64_t *ret_magnitude)
{
	uint64_t value = 0;

	*ret_negative = *text == '-';
	text += *ret_negative;
	if (!*text)
		return false;
	for (; *text; text++) {
		unsigned digit = (unsigned)(*text - '0');

		if (digit > 9 || value > (UINT64_MAX - digit) / 10)
			return false;
		value = value * 10 + digit;
	}
	*ret_magnitude = value;
	return true;
}

/* --- one member ------------------------------------------------------------------------------- */

static int64_t get_integer(const struct row *r, const char *member)
{
	switch (r->kind) {
	case BOOL:
		return *(const bool *)member;
	case U32:
		return *(const uint32_t *)member;
	case I32:
	case WORD:
		return *(const int32_t *)member;
	default:
		return (int64_t) * (const uint64_t *)member;
	}
}

static void set_integer(const struct row *r, char *member, uint64_t value)
{
	switch (r->kind) {
	case BOOL:
		*(bool *)member = value != 0;
		break;
	case U32:
	case I32:
	case WORD:
		*(uint32_t *)member = (uint32_t)value;
		break;
	default:
		*(uint64_t *)member = value;
	}
}

/* The value's text, at `to`; `to` itself: it is nothing to write. */
static char *put_value(char *to, const struct row *r, const char *member)
{
	const char *text;
	int64_t n;

	if (r->kind == TEXT)
		return put_text(to, member);
	if (r->kind == REASON) {
		text = *(const char *const *)member;
		return put_text(to, text ? text : "");
	}
	n = get_integer(r, member);
	if (r->kind == WORD)
		return put_text(to, r->words[n]);
	if (n == 0)
		return to;
	if (r->kind == U64 || r->kind == U32 || n > 0)
		return put_number(to, false, (uint64_t)n);
	return put_number(to, true, -(uint64_t)n);
}

static bool read_word(const struct row *r, char *member, const char *text)
{
	for (unsigned i = 0; r->words[i]; i++)
		if (strcmp(text, r->words[i]) == 0) {
			if (r->kind == WORD)
				set_integer(r, member, i);
			else
				*(const char **)member = r->words[i];
			return true;
		}
	return false;
}

/* The largest magnitude that a member can hold. */
static uint64_t most_of(enum kind kind, bool negative)
{
	switch (kind) {
	case BOOL:
		return !negative;
	case U32:
		return negative ? 0 : UINT32_MAX;
	case I32:
		return (uint64_t)INT32_MAX + negative;
	case I64:
		return (uint64_t)INT64_MAX + negative;
	default:
		return negative ? 0 : UINT64_MAX;
	}
}

static bool read_value(const struct row *r, char *member, const char *text)
{
	bool negative;
	uint64_t n;

	if (r->kind == WORD || r->kind == REASON)
		return read_word(r, member, text);
	if (r->kind == TEXT) {
		if (strlen(text) >= r->size)
			return false;
		strcpy(member, text);
		return true;
	}
	if (!read_number(text, &negative, &n) || n > most_of(r->kind, negative))
		return false;
	set_integer(r, member, negative ? -n : n);
	return true;
}

/* --- a part ----------------------------------------------------------------------------------- */

static size_t put(const char *title, const struct row *rows, size_t n_rows, const void *from,
	char *ret, size_t room)
{
	char *to = put_text(ret, title);

	for (size_t i = 0; i < n_rows; i++) {
		char *line = to;
		char *value = put_text(put_text(to, rows[i].key), ": ");

		to = put_value(value, &rows[i], (const char *)from + rows[i].at);
		if (to == value)
			to = line;
		else
			*to++ = '\n';
	}
	to = put_check(to, check_of(ret, (size_t)(to - ret)));
	*to = '\0';
	assert((size_t)(to - ret) < room);
	return (size_t)(to - ret) + 1;
}

static bool read_line(const struct row *rows, size_t n_rows, size_t *next, char *line, void *to)
{
	char *value = strstr(line, ": ");

	if (!value)
		return false;
	*value = '\0';
	value += 2;
	for (size_t k = 0; k < n_rows; k++) {
		const struct row *r = &rows[(*next + k) % n_rows];

		if (strcmp(line, r->key) != 0)
			continue;
		*next = (size_t)(r - rows) + 1;
		return read_value(r, (char *)to + r->at, value);
	}
	return true;
}

static bool get(const char *title, const struct row *rows, size_t n_rows, const char *part,
	size_t size, void *to)
{
	char text[RECORD_RUN_SIZE + 1], *line, *end, *check;
	size_t next = 0, title_len = strlen(title);
	char want[32] = "";

	memcpy(text, part, size);
	text[size] = '\0';
	check = strstr(text, "\ncheck: ");
	if (!check || strncmp(text, title, title_len) != 0)
		return false;
	check++;
	put_check(want, check_of(text, (size_t)(check - text)));
	if (strncmp(check, want, strlen(want)) != 0)
		return false;
	*check = '\0';
	for (line = text + title_len; (end = strchr(line, '\n')); line = end + 1) {
		*end = '\0';
		if (!read_line(rows, n_rows, &next, line, to))
			return false;
	}
	return true;
}

#define NODE_TITLE "npufs-node 1\n"
#define RUN_TITLE  "npufs-run 1\n"

size_t record_put_node(const struct record_node *n, char ret[RECORD_NODE_SIZE])
{
	return put(NODE_TITLE, node_rows, ARRAY_SIZE(node_rows), n, ret, RECORD_NODE_SIZE);
}

size_t record_put_run(const struct record_run *r, char ret[RECORD_RUN_SIZE])
{
	return put(RUN_TITLE, run_rows, ARRAY_SIZE(run_rows), r, ret, RECORD_RUN_SIZE);
}

bool record_get_node(const char part[RECORD_NODE_SIZE], struct record_node *ret)
{
	struct record_node n = { 0 };

	if (!get(NODE_TITLE, node_rows, ARRAY_SIZE(node_rows), part, RECORD_NODE_SIZE, &n))
		return false;
	*ret = n;
	return true;
}

bool record_get_run(const char part[RECORD_RUN_SIZE], struct record_run *ret)
{
	struct record_run r = { .view = { .fault = FAULT_NONE, .model = -1, .finish_reason = "" } };

	r.view.fault.offset = 0; /* left out when it is 0 */
	if (!get(RUN_TITLE, run_rows, ARRAY_SIZE(run_rows), part, RECORD_RUN_SIZE, &r))
		return false;
	*ret = r;
	return true;
}
