/* A line is the text of a JSON object of which the last member is cut off, digested, and put back
 * with the digest. Reading goes the other way: the end, of fixed length, is looked at first, then
 * the digest over the bytes as they stand, then the members: all of them, in the order of the
 * table. So two lines that differ in any byte never pass as the same record. */
#include "core/control/audit_line.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/fault.h"
#include "core/base/json.h"
#include "core/base/mem.h"

#define HASH_START ",\"hash\":\""
#define HASH_END   "\"}"
#define TAIL_BYTES (sizeof HASH_START - 1 + SHA256_HEX_SIZE - 1 + sizeof HASH_END - 1)

#define CHECKPOINT_WORD "npufs-audit-checkpoint-1"
#define SIGN_START      ",\"signature\":\""
#define SIGN_BYTES      (sizeof CHECKPOINT_WORD + KEY_ID_SIZE + ED25519_SIG_SIZE * 2)
#define SIGN_TAIL_BYTES (sizeof SIGN_START - 1 + SIGN_BYTES + 1)

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
	if (r->comm && r->comm[0])
		add_text(to, "comm", r->comm, AUDIT_COMM_SIZE);
	else
		json_add_null(to, "comm");
	if (r->login < 0)
		json_add_null(to, "loginuid");
	else
		json_add_int(to, "loginuid", r->login);
}

static void add_start(struct json_value *to, uint64_t seq, int64_t wall_ns)
{
	char when[CLOCK_TEXT_SIZE];

	json_add_uint(to, "seq", seq);
	json_add_string(to, "time", clock_text(wall_ns, when));
}

static void add_links(struct json_value *to, const struct audit_line *l)
{
	if (l->torn[0])
		json_add_string(to, "torn", l->torn);
	json_add_string(to, "prev", l->prev);
}

static void add_command(struct json_value *to, const struct audit_record *r, bool digests)
{
	add_who(to, r);
	add_text(to, "command", r->command, AUDIT_NAME_MAX);
	add_text(to, "node", r->node, AUDIT_NAME_MAX);
	if (digests)
		add_digest(to, "args", r->args);
	json_add_string(to, "decision", decisions[r->decision]);
	add_text(to, "why", r->why, AUDIT_NAME_MAX);
	add_text(to, "message", r->message, AUDIT_MESSAGE_MAX);
}

static void add_whole_command(struct json_value *to, const void *record)
{
	add_command(to, record, true);
}

static void add_known(struct json_value *to, const char *key, const char *digest)
{
	if (digest[0])
		json_add_string(to, key, digest);
	else
		json_add_null(to, key);
}

static void add_job(struct json_value *to, const void *record)
{
	const struct audit_job *r = record;

	json_add_uint(to, "job", r->job);
	json_add_uint(to, "uid", r->uid);
	json_add_uint(to, "gid", r->gid);
	add_known(to, "request_sha256", r->request);
	add_known(to, "model_sha256", r->model);
	add_known(to, "output_sha256", r->output);
	json_add_uint(to, "prompt_tokens", r->prompt_tokens);
	json_add_uint(to, "output_tokens", r->output_tokens);
	json_add_string(to, "verdict", r->verdict);
	json_add_string(to, "error", r->error);
	json_add_uint(to, "lost", r->lost);
}

static void (*const add_members[AUDIT_TRAIL_COUNT])(struct json_value *to, const void *record) = {
	[AUDIT_COMMANDS] = add_whole_command,
	[AUDIT_JOBS] = add_job,
};

/* Append the text of `object`, which is freed and may be NULL, up to the brace that closes it. */
static int put_open(struct json_value *object, struct buf *out)
{
	int err = json_render(object, false, out);

	json_free(object);
	if (!err)
		out->data[--out->len] = '\0';
	return err;
}

/* Close the line that began at `start` with the hash of its bytes. */
static int put_hash(struct audit_line *l, size_t start, struct buf *out)
{
	sha256_hex(out->data + start, out->len - start, l->hash);
	if (!l->hash[0])
		return -ENOMEM;
	buf_printf(out, HASH_START "%s" HASH_END "\n", l->hash);
	return out->len - start > AUDIT_LINE_MAX ? -EMSGSIZE : buf_error(out);
}

int audit_line_put(enum audit_trail trail, const void *record, int64_t wall_ns,
	struct audit_line *l, struct buf *out)
{
	struct json_value *to = json_new_object();
	size_t start = out->len;
	int err;

	if (to) {
		add_start(to, l->seq, wall_ns);
		add_members[trail](to, record);
		add_links(to, l);
	}
	err = put_open(to, out);
	return err ? err : put_hash(l, start, out);
}

int audit_line_checkpoint(const struct key *k, int64_t wall_ns, struct audit_line *l,
	struct buf *out)
{
	struct json_value *to = json_new_object();
	AUTO_BUF struct buf sign = BUF_INIT;
	size_t start = out->len;
	int err;

	if (to) {
		add_start(to, l->seq, wall_ns);
		json_add_uint(to, "checkpoint", l->seq - 1);
		add_links(to, l);
	}
	err = put_open(to, out);
	if (!err)
		err = signature_put(CHECKPOINT_WORD, k, out->data + start, out->len - start, &sign);
	if (err)
		return err;
	buf_printf(out, SIGN_START "%.*s\"", (int)sign.len - 1, sign.data);
	err = buf_error(out);
	return err ? err : put_hash(l, start, out);
}

int audit_line_plain(const struct audit_record *r, int64_t wall_ns, uint64_t seq, struct buf *out)
{
	struct json_value *to = json_new_object();
	int err;

	if (to) {
		add_start(to, seq, wall_ns);
		add_command(to, r, false);
	}
	err = json_render(to, false, out);
	json_free(to);
	return err;
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

static bool is_known(const struct json_value *v, struct audit_line *l)
{
	return json_type(v) == JSON_NULL || is_digest(v, l);
}

static bool is_login(const struct json_value *v, struct audit_line *l)
{
	return json_type(v) == JSON_NULL || is_integer(v, l);
}

static bool is_comm(const struct json_value *v, struct audit_line *l)
{
	return json_type(v) == JSON_NULL || is_text(v, l);
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

/* All records before it are in the trail, whatever was moved away. */
static bool get_count(const struct json_value *v, struct audit_line *l)
{
	return json_type(v) == JSON_NUMBER && json_uint64(v, &l->count) == 0 &&
		l->count == l->seq - 1;
}

struct member {
	const char *key;
	bool (*get)(const struct json_value *v, struct audit_line *l);
	bool optional;
};

static const struct member of_checkpoint[] = {
	{ "seq", get_seq, false },
	{ "time", is_text, false },
	{ "checkpoint", get_count, false },
	{ "torn", get_torn, true },
	{ "prev", get_prev, false },
	{ "signature", is_text, false },
	{ "hash", is_digest, false },
};

static const struct member of_command[] = {
	{ "seq", get_seq, false },
	{ "time", is_text, false },
	{ "uid", is_integer, false },
	{ "gid", is_integer, false },
	{ "pid", is_integer, false },
	{ "comm", is_comm, true }, /* earlier trails have none */
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

static const struct member of_job[] = {
	{ "seq", get_seq, false },
	{ "time", is_text, false },
	{ "job", is_integer, false },
	{ "uid", is_integer, false },
	{ "gid", is_integer, false },
	{ "request_sha256", is_known, false },
	{ "model_sha256", is_known, false },
	{ "output_sha256", is_known, false },
	{ "prompt_tokens", is_integer, false },
	{ "output_tokens", is_integer, false },
	{ "verdict", is_text, false },
	{ "error", is_text, false },
	{ "lost", is_integer, false },
	{ "torn", get_torn, true },
	{ "prev", get_prev, false },
	{ "hash", is_digest, false },
};

struct form {
	const struct member *members;
	size_t n;
};

static const struct form checkpoint_form = { of_checkpoint, ARRAY_SIZE(of_checkpoint) };

static const struct form record_forms[AUDIT_TRAIL_COUNT] = {
	[AUDIT_COMMANDS] = { of_command, ARRAY_SIZE(of_command) },
	[AUDIT_JOBS] = { of_job, ARRAY_SIZE(of_job) },
};

static bool get_members(const struct json_value *object, const struct form *form,
	struct audit_line *l)
{
	const struct json_value *v = json_first(object);

	for (size_t i = 0; i < form->n; i++) {
		const struct member *m = &form->members[i];
		bool same = v && strcmp(json_key(v), m->key) == 0;

		if (!same && m->optional)
			continue;
		if (!same || !m->get(v, l))
			return false;
		v = json_next(v);
	}
	return !v;
}

/* The signature is where it must be when nothing in it is written in another way than it was made. */
static bool get_signature(const char *line, size_t len, struct audit_line *l)
{
	const char *tail = line + len - TAIL_BYTES - SIGN_TAIL_BYTES;
	char sign[SIGN_BYTES + 1];

	if (len < TAIL_BYTES + SIGN_TAIL_BYTES ||
		memcmp(tail, SIGN_START, sizeof SIGN_START - 1) != 0)
		return false;
	memcpy(sign, tail + sizeof SIGN_START - 1, SIGN_BYTES);
	sign[SIGN_BYTES] = '\n';
	l->signed_len = (size_t)(tail - line);
	return signature_get(CHECKPOINT_WORD, sign, sizeof sign, &l->signature);
}

static bool get_object(enum audit_trail trail, const char *line, size_t len, struct audit_line *l)
{
	struct json_value *object;
	bool good = false;

	if (json_parse(line, len, &object, NULL))
		return false;
	if (json_type(object) == JSON_OBJECT && json_member(object, "checkpoint"))
		good = get_members(object, &checkpoint_form, l) && get_signature(line, len, l);
	else if (json_type(object) == JSON_OBJECT)
		good = get_members(object, &record_forms[trail], l);
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

const char *audit_line_get(enum audit_trail trail, const char *line, size_t len,
	struct audit_line *ret)
{
	struct audit_line l = { .seq = 0 };
	char real[SHA256_HEX_SIZE];

	if (len >= AUDIT_LINE_MAX)
		return "it is too long for a record";
	if (len < TAIL_BYTES || !get_hash(line + len - TAIL_BYTES, l.hash))
		return "it does not end as a record does";
	sha256_hex(line, len - TAIL_BYTES, real);
	if (strcmp(real, l.hash) != 0)
		return "its bytes are not those that its hash was made of";
	if (!get_object(trail, line, len, &l))
		return "it is not a record";
	*ret = l;
	return NULL;
}
