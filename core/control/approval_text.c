/* The text is read by the same table that says in which order its lines come: every line must be
 * there, begin with its label and have a value of printable bytes. So no value can pass for a line,
 * and what is shown to an approver has nothing in it that a terminal would hide. */
#include "core/control/approval_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/fault.h"
#include "core/base/mem.h"

#define FIRST  "npufs-approval-request-1\n"
#define LAST   "end of what is signed\n"
#define SIGNED "signed by "

static bool is_any(const char *text, size_t len)
{
	(void)text;
	return len > 0;
}

static bool is_ascii(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (text[i] < ' ' || text[i] > '~')
			return false;
	return len > 0;
}

static bool is_number(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (text[i] < '0' || text[i] > '9')
			return false;
	return len > 0;
}

static const struct line {
	const char *label;
	bool (*fits)(const char *value, size_t len);
} lines[] = {
	{ "store: ", approval_is_id },
	{ "daemon: ", approval_is_id },
	{ "generation: ", is_number },
	{ "operation: ", approval_is_id },
	{ "command: ", is_ascii },
	{ "effect: ", is_ascii },
	{ "reason: ", is_any },
	{ "asked by: ", is_ascii },
	{ "asked at: ", is_ascii },
	{ "expires: ", is_ascii },
	{ "approvers: ", is_number },
};
#define OPERATION_LINE 3

/* --- ids -------------------------------------------------------------------------------------- */

int approval_new_id(char ret[APPROVAL_ID_SIZE])
{
	uint64_t half[2];
	int err = random_bytes(half, sizeof half);

	if (!err)
		snprintf(ret, APPROVAL_ID_SIZE, "%016" PRIx64 "%016" PRIx64, half[0], half[1]);
	return err;
}

bool approval_is_id(const char *text, size_t len)
{
	size_t i = 0;

	while (i < len && text[i] && strchr("0123456789abcdef", text[i]))
		i++;
	return i == len && len == APPROVAL_ID_SIZE - 1;
}

/* --- making ----------------------------------------------------------------------------------- */

static bool is_clean(const char *text)
{
	char clean[APPROVAL_SHOW_MAX + 1];

	fault_clean(clean, sizeof clean, text);
	return strcmp(clean, text) == 0;
}

static void put_who(const struct approval_facts *facts, struct buf *out)
{
	buf_printf(out, "uid %" PRIu32 " gid %" PRIu32 " pid %" PRId32 " loginuid ",
		facts->who->uid, facts->who->gid, facts->who->pid);
	if (facts->login < 0)
		buf_puts(out, "unknown");
	else
		buf_printf(out, "%" PRId64, facts->login);
}

static void put_lines(const struct approval_facts *facts, struct buf *out)
{
	const struct line *l = lines;
	char when[CLOCK_TEXT_SIZE];

	buf_puts(out, FIRST);
	buf_printf(out, "%s%s\n", l++->label, facts->store);
	buf_printf(out, "%s%s\n", l++->label, facts->daemon);
	buf_printf(out, "%s%" PRIu64 "\n", l++->label, facts->generation);
	buf_printf(out, "%s%s\n", l++->label, facts->operation);
	buf_printf(out, "%s%s\n", l++->label, facts->command);
	buf_printf(out, "%s%s; %s\n", l++->label, facts->effect,
		facts->forced ? "jobs that run then fail" : "not while jobs run");
	buf_printf(out, "%s%s\n", l++->label, facts->reason);
	buf_puts(out, l++->label);
	put_who(facts, out);
	buf_printf(out, "\n%s%s\n", l++->label, clock_text(facts->asked, when));
	buf_printf(out, "%s%s\n", l++->label, clock_text(facts->expires, when));
	buf_printf(out, "%s%u\n" LAST, l++->label, facts->need);
}

int approval_text_put(const struct approval_facts *facts, struct buf *out)
{
	size_t start = out->len;

	if (strlen(facts->command) + strlen(facts->reason) >= APPROVAL_TEXT_MAX)
		return -E2BIG;
	if (!is_ascii(facts->command, strlen(facts->command)) ||
		!is_ascii(facts->effect, strlen(facts->effect)) || !facts->reason[0] ||
		!is_clean(facts->reason))
		return -EINVAL;
	put_lines(facts, out);
	if (buf_error(out))
		return buf_error(out);
	return out->len - start > APPROVAL_TEXT_MAX ? -E2BIG : 0;
}

/* --- reading ---------------------------------------------------------------------------------- */

struct reader {
	const char *at, *end;
};

/* Past these very bytes, or not at all. */
static bool take(struct reader *r, const char *bytes)
{
	size_t len = strlen(bytes);

	if ((size_t)(r->end - r->at) < len || memcmp(r->at, bytes, len) != 0)
		return false;
	r->at += len;
	return true;
}

/* The rest of a line. */
static bool take_value(struct reader *r, const char **ret, size_t *ret_len)
{
	const char *stop = memchr(r->at, '\n', (size_t)(r->end - r->at));

	if (!stop)
		return false;
	*ret = r->at;
	*ret_len = (size_t)(stop - r->at);
	r->at = stop + 1;
	return true;
}

static bool take_line(struct reader *r, const struct line *l, const char **ret)
{
	size_t len;

	return take(r, l->label) && take_value(r, ret, &len) && l->fits(*ret, len);
}

static bool take_signers(struct reader *r)
{
	const char *id;
	size_t len;

	while (r->at < r->end)
		if (!take(r, SIGNED) || !take_value(r, &id, &len) || len != KEY_ID_SIZE - 1 ||
			!is_ascii(id, len))
			return false;
	return true;
}

/* Nothing but lines of printable text. */
static bool is_printable(const char *text, size_t len)
{
	char copy[APPROVAL_SHOW_MAX + 1];

	for (size_t i = 0; i < len; i++)
		copy[i] = text[i] == '\n' ? ' ' : text[i];
	copy[len] = '\0';
	return strlen(copy) == len && is_clean(copy);
}

const char *approval_text_get(const char *text, size_t len, char ret_operation[APPROVAL_ID_SIZE],
	size_t *ret_signed)
{
	struct reader r = { text, text + len };
	const char *value, *operation = NULL;
	size_t signed_len;

	if (len > APPROVAL_SHOW_MAX)
		return "it is too long";
	if (!is_printable(text, len))
		return "it has bytes that would not be seen";
	if (!take(&r, FIRST))
		return "it does not begin as an approval's text does";
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		if (!take_line(&r, &lines[i], &value))
			return "a line is missing, or is not in its form";
		if (i == OPERATION_LINE)
			operation = value;
	}
	if (!take(&r, LAST))
		return "it does not end as an approval's text does";
	signed_len = (size_t)(r.at - text);
	if (!take_signers(&r))
		return "what follows the text is not who has signed it";
	*ret_signed = signed_len;
	memcpy(ret_operation, operation, APPROVAL_ID_SIZE - 1);
	ret_operation[APPROVAL_ID_SIZE - 1] = '\0';
	return NULL;
}
