/* Every line that ends in a newline must be a record that follows the one before it. What a crash
 * tears has no newline, and the next record begins a file of its own: so such bytes only ever stand
 * at the end of a file, and there can be no line that is neither a record nor a break.
 *
 * The daemon's signatures are on top of that: a chain that was written anew, every hash of it right,
 * has no checkpoints, or does not come to the record that the head was signed for. */
#include "core/control/audit_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "core/base/files.h"

void audit_chain_init(struct audit_chain *c, enum audit_trail trail, bool whole)
{
	*c = (struct audit_chain){ .trail = trail, .whole = whole, .hash = AUDIT_NO_HASH };
}

void audit_chain_done(struct audit_chain *c)
{
	buf_done(&c->torn);
}

void audit_chain_torn(const struct audit_chain *c, char ret[SHA256_HEX_SIZE])
{
	ret[0] = '\0';
	if (c->torn.len)
		sha256_hex(c->torn.data, c->torn.len, ret);
}

/* The first record of a chain that begins later is taken as it is. */
static const char *wrong_link(const struct audit_chain *c, const struct audit_line *l)
{
	char torn[SHA256_HEX_SIZE];

	if (!c->last && (l->seq != 1 || !c->whole))
		return NULL;
	if (l->seq != c->last + 1)
		return "records before it are missing, or are there twice";
	if (strcmp(l->prev, c->hash) != 0)
		return "it does not follow the record before it";
	audit_chain_torn(c, torn);
	if (strcmp(l->torn, torn) != 0)
		return "the torn line before it is not what it says";
	return NULL;
}

/* Trails of before there were checkpoints have none at their start. */
static const char *wrong_seal(const struct audit_chain *c, const char *line,
	const struct audit_line *l)
{
	if (l->seq == c->mark.seq && strcmp(l->hash, c->mark.hash) != 0)
		return "it is not the record that the head was signed for";
	if (l->seq == c->mark.seq + 1 && c->mark.seq && strcmp(l->prev, c->mark.hash) != 0)
		return "it does not follow the record that the head was signed for";
	if (!l->signed_len)
		return c->checkpoint &&
				l->seq > c->checkpoint + audit_kinds[c->trail].checkpoint_every
			? "a checkpoint before it is missing"
			: NULL;
	if (!c->key)
		return "it is signed, and the daemon's public key is missing";
	return signature_verify(&l->signature, c->key, line, l->signed_len)
		? "it is not signed by the daemon's key"
		: NULL;
}

static int add_line(struct audit_chain *c, const char *line, size_t len)
{
	struct audit_line l;

	c->line++;
	c->wrong = audit_line_get(c->trail, line, len, &l);
	if (!c->wrong)
		c->wrong = wrong_link(c, &l);
	if (!c->wrong)
		c->wrong = wrong_seal(c, line, &l);
	if (c->wrong)
		return -EBADMSG;
	if (!c->last)
		c->first = l.seq;
	c->last = l.seq;
	if (l.signed_len)
		c->checkpoint = l.seq;
	memcpy(c->hash, l.hash, sizeof c->hash);
	buf_reset(&c->torn);
	return 0;
}

int audit_chain_add(struct audit_chain *c, const char *bytes, size_t n)
{
	const char *end;
	int err = c->wrong ? -EBADMSG : 0;

	if (err)
		return err;
	c->line = 0;
	c->offset = 0;
	while (!err && c->offset < n && (end = memchr(bytes + c->offset, '\n', n - c->offset))) {
		size_t len = (size_t)(end - bytes) - c->offset;

		err = add_line(c, bytes + c->offset, len);
		if (!err)
			c->offset += len + 1;
	}
	if (err)
		return err;
	buf_put(&c->torn, n ? bytes + c->offset : "", n - c->offset);
	return buf_error(&c->torn);
}

int audit_chain_file(struct audit_chain *c, int dir, uint32_t number, struct fault *f)
{
	AUTO_BUF struct buf bytes = BUF_INIT;
	int err = audit_file_load(dir, number, &bytes);

	if (err == -ENOENT && !c->last && audit_kinds[c->trail].oldest_goes)
		return 0; /* it went since the folder was listed */
	if (!err)
		err = audit_chain_add(c, buf_text(&bytes), bytes.len);
	if (!c->wrong)
		return err ? audit_file_fault(f, err, number) : 0;
	return fault_at(f, err, NULL, (long)c->offset,
		"rely only on what stands before it; move the folder's files to a safe place, to "
		"look at and to begin a new trail",
		"the audit trail is broken in " AUDIT_FILE_NAME ", line %" PRIu64 ": %s", number,
		c->line, c->wrong);
}

int audit_chain_end(struct audit_chain *c, uint32_t number, struct fault *f)
{
	static const char action[] = "rely on what is there, and find out who took the rest; move "
				     "all of the folder to a safe place to begin a new trail";

	if (c->last >= c->mark.seq)
		return 0;
	c->wrong = "records are missing at its end";
	if (!number)
		return fault_set(f, -EBADMSG, action,
			"the audit trail is broken: no file of it is left, and there were %" PRIu64
			" records",
			c->mark.seq);
	return fault_at(f, -EBADMSG, NULL, (long)c->offset, action,
		"the audit trail is broken after " AUDIT_FILE_NAME ", line %" PRIu64
		": records %" PRIu64 " to %" PRIu64 " are missing at its end",
		number, c->line, c->last + 1, c->mark.seq);
}
