/* A line is the text of a JSON object of which the last member is cut off, digested, and put back
 * with the digest. Reading goes the other way: the end, of fixed length, is looked at first, then
 * the digest over the bytes as they stand, then the members: all of them, in the order of the
 * table. So two lines that differ in any byte never pass as the same record. */
#include "core/audit_line.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "core/clock.h"
#include "core/fault.h"
#include "core/json.h"
#include "core/mem.h"

#define HASH_START ",\"hash\":\""
#define HASH_END   "\"}"
#define TAIL_BYTES (sizeof HASH_START - 1 + SHA256_HEX_SIZE - 1 + sizeof HASH_END - 1)

static const char *const decisions[AUDIT_DECISION_COUNT] = { "intent", "refused", "done", "failed",
	"pending", "approved" };

/* --- making ----------------------------------------------------------------------------------- */

static void add_text(struct json_value *to, const char *key, const char *text, size_t most)
{
	char clean[AUDIT_MESSAGE_MAX + 1];

	fault_clean(clean, most + 1, text ? text : "");
	json_add_string(to, key, clean);
}

static void add_digest(struct json_value *to, const char *key, const char *text)
{
	char hex[SHA256_HEX_SIZE];

	sha256_hex(text ? text : "", text ? strlen(text) : 0, hex);
	json_add_string(to, key, hex);
}

static void add_who(struct json_value *to, const struct audit_record *r)
{
	json_add_uint(to, "uid", r->who->uid);
	json_add_uint(to, "gid", r->who->gid);
	json_add_int(to, "pid", r->who->pid);
	if (r->login < 0)
		json_add_null(to, "loginuid");
	else
		json_add_int(to, "loginuid", r->login);
}

static struct json_value *make_object(const struct audit_record *r, int64_t wall_ns,
	const struct audit_line *l)
{
	struct json_value *to = json_new_object();
	char when[CLOCK_TEXT_SIZE];

	if (!to)
		return NULL;
	json_add_uint(to, "seq", l->seq);
	json_add_string(to, "time", clock_text(wall_ns, when));
	add_who(to, r);
	add_text(to, "command", r->command, AUDIT_NAME_MAX);
	add_text(to, "node", r->node, AUDIT_NAME_MAX);
	add_digest(to, "args", r->args);
	json_add_string(to, "decision", decisions[r->decision]);
	add_text(to, "why", r->why, AUDIT_NAME_MAX);
	add_text(to, "message", r->message, AUDIT_MESSAGE_MAX);
	if (l->torn[0])
		json_add_string(to, "torn", l->torn);
	json_add_string(to, "prev", l->prev);
	return to;
}

int audit_line_put(const struct audit_record *r, int64_t wall_ns, struct audit_line *l,
	struct buf *out)
{
	struct json_value *object = make_object(r, wall_ns, l);
	size_t start = out->len;
	int err = json_render(object, false, out);

	json_free(object);
	if (err)
		return err;
	out->data[--out->len] = '\0'; /* the brace that closes the object */
	sha256_hex(out->data + start, out->len - start, l->hash);
	if (!l->hash[0])
		return -ENOMEM;
	buf_printf(out, HASH_START "%s" HASH_END "\n", l->hash);
	return out->len - start > AUDIT_LINE_MAX ? -EMSGSIZE : buf_error(out);
}

/* --- reading ---------------------------------------------------------------------------------- */

static bool get_digest(const char *text, char ret[SHA256_HEX_SIZE])
{
	if (strlen(text) != SHA256_HEX_SIZE - 1 ||
		strspn(text, "0123456789abcdef") != SHA256_HEX_SIZE - 1)
		return false;
	memcpy(ret, text, SHA256_HEX_SIZE);
	return true;
}

static bool is_digest(const struct json_value *v, struct audit_line *l)
{
	char hex[SHA256_HEX_SIZE];

	(void)l;
	return json_type(v) == JSON_STRING && get_digest(json_string(v), hex);
}

static bool is_text(const struct json_value *v, struct audit_line *l)
{
	(void)l;
	return json_type(v) == JSON_STRING;
}

static bool is_integer(const struct json_value *v, struct audit_line *l)
{
	int64_t n;

	(void)l;
	return json_type(v) == JSON_NUMBER && json_int64(v, &n) == 0;
}

static bool is_login(const struct json_value *v, struct audit_line *l)
{
	return json_type(v) == JSON_NULL || is_integer(v, l);
}

static bool is_decision(const struct json_value *v, struct audit_line *l)
{
	(void)l;
	for (size_t i = 0; json_type(v) == JSON_STRING && i < ARRAY_SIZE(decisions); i++)
		if (strcmp(json_string(v), decisions[i]) == 0)
			return true;
	return false;
}

static bool get_seq(const struct json_value *v, struct audit_line *l)
{
	return json_type(v) == JSON_NUMBER && json_uint64(v, &l->seq) == 0 && l->seq > 0;
}

static bool get_torn(const struct json_value *v, struct audit_line *l)
{
	return json_type(v) == JSON_STRING && get_digest(json_string(v), l->torn);
}

static bool get_prev(const struct json_value *v, struct audit_line *l)
{
	return json_type(v) == JSON_STRING && get_digest(json_string(v), l->prev);
}

static const struct member {
	const char *key;
	bool (*get)(const struct json_value *v, struct audit_line *l);
	bool optional;
} members[] = {
	{ "seq", get_seq, false },
	{ "time", is_text, false },
	{ "uid", is_integer, false },
	{ "gid", is_integer, false },
	{ "pid", is_integer, false },
	{ "loginuid", is_login, false },
	{ "command", is_text, false },
	{ "node", is_text, false },
	{ "args", is_digest, false },
	{ "decision", is_decision, false },
	{ "why", is_text, false },
	{ "message", is_text, false },
	{ "torn", get_torn, true },
	{ "prev", get_prev, false },
	{ "hash", is_digest, false },
};

static bool get_members(const struct json_value *object, struct audit_line *l)
{
	const struct json_value *v = json_first(object);

	for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
		bool same = v && strcmp(json_key(v), members[i].key) == 0;

		if (!same && members[i].optional)
			continue;
		if (!same || !members[i].get(v, l))
			return false;
		v = json_next(v);
	}
	return !v;
}

static bool get_object(const char *line, size_t len, struct audit_line *l)
{
	struct json_value *object;
	bool good;

	if (json_parse(line, len, &object, NULL))
		return false;
	good = json_type(object) == JSON_OBJECT && get_members(object, l);
	json_free(object);
	return good;
}

static bool get_hash(const char *tail, char ret[SHA256_HEX_SIZE])
{
	const size_t start = sizeof HASH_START - 1, digits = SHA256_HEX_SIZE - 1;
	char hex[SHA256_HEX_SIZE] = "";

	memcpy(hex, tail + start, digits);
	return memcmp(tail, HASH_START, start) == 0 &&
		memcmp(tail + start + digits, HASH_END, sizeof HASH_END - 1) == 0 &&
		get_digest(hex, ret);
}

const char *audit_line_get(const char *line, size_t len, struct audit_line *ret)
{
	struct audit_line l = { 0 };
	char real[SHA256_HEX_SIZE];

	if (len >= AUDIT_LINE_MAX)
		return "it is too long for a record";
	if (len < TAIL_BYTES || !get_hash(line + len - TAIL_BYTES, l.hash))
		return "it does not end as a record does";
	sha256_hex(line, len - TAIL_BYTES, real);
	if (strcmp(real, l.hash) != 0)
		return "its bytes are not those that its hash was made of";
	if (!get_object(line, len, &l))
		return "it is not a record";
	*ret = l;
	return NULL;
}
