/* A signature is judged in three steps:
 *
 *   locked     the operation is pending: copy its text and what it asks for
 *   unlocked   read the approvers' keys, verify, let the witness write it down
 *   locked     still pending? not signed by this key? then it counts, and if it is the last that was
 *              needed the operation is complete: by this very signature, whoever else waits */
#include "core/control/approvals_impl.h"

#include <errno.h>
#include <string.h>

#include "core/artifact/artifact.h"
#include "core/artifact/keyring.h"
#include "core/artifact/signature.h"
#include "core/base/mem.h"

/* --- signing ---------------------------------------------------------------------------------- */

struct attempt {
	struct approvals *a;
	const char *id;
	struct signature s;
	struct keyring keys;
	char text[APPROVAL_TEXT_MAX + 1]; /* what must have been signed */
	struct approval *what;
};

static void attempt_done(struct attempt *t)
{
	keyring_done(&t->keys);
}

static bool has_signed(const struct operation *op, const char *key)
{
	for (unsigned i = 0; i < op->n_signers; i++)
		if (strcmp(op->signers[i], key) == 0)
			return true;
	return false;
}

static int look(struct attempt *t)
{
	const struct moment m = approvals_moment(t->a);
	struct approval *what = t->what;
	struct operation *op;
	int err;

	lock_take(&t->a->lock);
	err = approvals_find_pending_locked(t->a, t->id, &m, &op);
	if (!err) {
		strcpy(t->text, op->text);
		strcpy(what->command, op->command);
		strcpy(what->reason, op->reason);
		what->who = op->who;
		what->login = op->login;
		what->generation = op->generation;
	}
	lock_drop(&t->a->lock);
	return err;
}

static int read_keys(struct attempt *t, struct fault *f)
{
	struct keyring_trouble trouble;
	int err = keyring_load(t->a->root, APPROVERS_FOLDER, &t->keys, &trouble);

	if (!err)
		return 0;
	return fault_set(f, err,
		"it must be root's or this user's, closed to others, and hold public keys",
		"%s of the store cannot be used: %s",
		trouble.name[0] ? "a key of the approvers folder" : "the approvers folder",
		trouble.no_key ? "it is no Ed25519 public key in PEM" : strerror(-err));
}

static int verify(const struct attempt *t)
{
	const struct key *k = keyring_find(&t->keys, t->s.id);

	if (!k)
		return -EKEYREJECTED;
	return signature_verify(&t->s, k, t->text, strlen(t->text));
}

/* Whether it would count now. */
static int check_locked(struct attempt *t, const struct moment *m, struct operation **ret)
{
	int err = approvals_find_pending_locked(t->a, t->id, m, ret);

	return !err && has_signed(*ret, t->s.id) ? -EEXIST : err;
}

static int check(struct attempt *t)
{
	const struct moment m = approvals_moment(t->a);
	struct operation *op;
	int err;

	lock_take(&t->a->lock);
	err = check_locked(t, &m, &op);
	lock_drop(&t->a->lock);
	return err;
}

/* Those whose key is there no more have not signed. */
static void drop_strangers_locked(struct operation *op, const struct keyring *keys)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < op->n_signers; i++)
		if (keyring_find(keys, op->signers[i]))
			memmove(op->signers[kept++], op->signers[i], KEY_ID_SIZE);
	op->n_signers = kept;
}

static int count(struct attempt *t)
{
	const struct moment m = approvals_moment(t->a);
	struct operation *op;
	int err;

	lock_take(&t->a->lock);
	err = check_locked(t, &m, &op);
	if (!err) {
		drop_strangers_locked(op, &t->keys);
		memcpy(op->signers[op->n_signers++], t->s.id, KEY_ID_SIZE);
		t->what->complete = op->n_signers >= t->a->owner.need;
		if (t->what->complete)
			op->state = COMPLETE;
	}
	lock_drop(&t->a->lock);
	return err;
}

/* The newline is the writer's habit, not part of what is judged. */
static bool read_line(const char *line, size_t len, struct signature *ret)
{
	AUTO_BUF struct buf whole = BUF_INIT;

	if (len > 0 && line[len - 1] == '\n')
		return signature_get(APPROVAL_WORD, line, len, ret);
	if (len > APPROVAL_SHOW_MAX)
		return false;
	buf_put(&whole, len ? line : "", len);
	buf_puts(&whole, "\n");
	return !buf_error(&whole) && signature_get(APPROVAL_WORD, whole.data, whole.len, ret);
}

/* Told with its word: errors of the folder are others' as well. */
static int refuse_signature(struct attempt *t, int err, struct fault *f)
{
	t->what->why = approvals_word(err);
	return approvals_refuse(f, err);
}

static int judge(struct attempt *t, struct fault *f)
{
	int err = look(t);

	if (err)
		return refuse_signature(t, err, f);
	err = read_keys(t, f);
	if (err) {
		t->what->why = "approvers";
		return err;
	}
	err = verify(t);
	if (!err)
		err = check(t);
	return err ? refuse_signature(t, err, f) : 0;
}

int approvals_sign(struct approvals *a, const char *id, const char *line, size_t len,
	approvals_witness *witness, void *context, struct approval *ret, struct fault *f)
{
	AUTO_CLEANUP(attempt_done) struct attempt t = { .a = a, .id = id, .what = ret };
	int err;

	*ret = (struct approval){ .why = "" };
	if (!read_line(line, len, &t.s))
		return refuse_signature(&t, -EINVAL, f);
	memcpy(ret->key, t.s.id, KEY_ID_SIZE);
	err = judge(&t, f);
	if (!err && witness) {
		lock_assert_none();
		err = witness(context, ret);
		if (err)
			return fault_set(f, err, "see to the audit folder of the store",
				"the approval could not be written down, and does not count: %s",
				strerror(-err));
	}
	if (err)
		return err;
	err = count(&t);
	return err ? refuse_signature(&t, err, f) : 0;
}

void approvals_reopen(struct approvals *a, const char *id, const char *key)
{
	struct operation *op;

	lock_take(&a->lock);
	op = approvals_find_locked(a, id);
	if (op && op->state == COMPLETE) {
		op->state = PENDING;
		for (unsigned i = 0; i < op->n_signers; i++)
			if (strcmp(op->signers[i], key) == 0)
				memmove(op->signers[i], op->signers[--op->n_signers], KEY_ID_SIZE);
	}
	lock_drop(&a->lock);
}
