/* A table of operations under one lock, which is held for nothing but looking and counting. Whether an
 * operation has expired or lost its generation is seen whenever it is looked at, and stays so. Clock
 * and generation are asked for before the lock is taken; who acts is told which generation was
 * approved, and can look again. */
#include "core/control/approvals_impl.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/files.h"
#include "core/base/files_write.h"
#include "core/base/mem.h"

#define ID_FILE "id"

struct moment approvals_moment(const struct approvals *a)
{
	const struct approvals_owner *o = &a->owner;

	lock_assert_none();
	return (struct moment){ o->now ? o->now(o->context) : clock_mono(),
		o->generation ? o->generation(o->context) : 0 };
}

/* --- opening ---------------------------------------------------------------------------------- */

static int load_store_id(struct approvals *a)
{
	AUTO_BUF struct buf text = BUF_INIT;
	int err = files_load(a->root, ID_FILE, FILES_OWN, APPROVAL_ID_SIZE, &text);

	if (err)
		return err == -EFBIG ? -EBADMSG : err;
	if (text.len != APPROVAL_ID_SIZE || !approval_is_id(text.data, text.len - 1) ||
		text.data[text.len - 1] != '\n')
		return -EBADMSG;
	memcpy(a->store, text.data, APPROVAL_ID_SIZE - 1);
	return 0;
}

static int make_store_id(struct approvals *a)
{
	char id[APPROVAL_ID_SIZE];
	int err = approval_new_id(id);

	if (err)
		return err;
	id[APPROVAL_ID_SIZE - 1] = '\n';
	return files_replace(a->root, ID_FILE, 0644, id, sizeof id);
}

static int take_ids(struct approvals *a, const char *store)
{
	int err = files_open_root(store, FILES_OWN, &a->root);

	if (!err)
		err = load_store_id(a);
	if (err == -ENOENT && a->root >= 0) {
		err = make_store_id(a);
		if (!err)
			err = load_store_id(a);
	}
	return err ? err : approval_new_id(a->daemon);
}

int approvals_open(const char *store, const struct approvals_owner *o, struct approvals **ret,
	struct fault *f)
{
	struct approvals *a = calloc(1, sizeof *a);
	int err;

	assert(o->need >= 1 && o->need <= APPROVALS_NEED_MAX);
	if (!a)
		return fault_set(f, -ENOMEM, "free memory, then try again",
			"no memory for the approvals");
	a->root = -1;
	a->owner = *o;
	if (!a->owner.expiry_ns)
		a->owner.expiry_ns = APPROVALS_EXPIRY_NS;
	lock_init(&a->lock, RANK_APPROVALS, "approvals");
	err = take_ids(a, store);
	if (!err) {
		*ret = a;
		return 0;
	}
	approvals_close(a);
	return fault_set(f, err,
		"the store and its file id must be root's or this user's; see its disk",
		"the store's id cannot be read or made: %s", strerror(-err));
}

static void clear(struct operation *op)
{
	free(op->text);
	free(op->command);
	free(op->reason);
	*op = (struct operation){ .state = UNUSED };
}

void approvals_close(struct approvals *a)
{
	if (!a)
		return;
	for (size_t i = 0; i < PLACES; i++)
		clear(&a->places[i]);
	files_close(&a->root);
	lock_done(&a->lock);
	free(a);
}

/* --- operations ------------------------------------------------------------------------------- */

static const struct refusal {
	int err;
	const char *word, *reason, *action;
} refusals[] = {
	{ -EINVAL, "line", "this is no signature of an approval",
		"write the one line that npufs-admin approve makes" },
	{ -ENOENT, "unknown", "there is no such operation",
		"see which ones wait; after a restart they must be asked for again" },
	{ -EALREADY, "done", "the operation was approved already", "see its result" },
	{ -ECANCELED, "withdrawn", "the operation was withdrawn", "ask for it again" },
	{ -ETIME, "expired", "the time for approving has passed", "ask for it again" },
	{ -ESTALE, "generation", "another generation is loaded than was asked for",
		"ask for it again if it is still needed" },
	{ -EKEYREJECTED, "key", "the key that signed is not an approver's",
		"sign with another, or npufs-admin approver add it" },
	{ -EBADMSG, "signature",
		"the signature is not over this operation's text, which no other has",
		"read the operation again and sign what it says now" },
	{ -EEXIST, "twice", "this key has signed the operation already",
		"have another approver sign it" },
	{ -EAGAIN, "pending", "too many operations wait for approval",
		"have them approved, or let them expire" },
	{ -E2BIG, "text", "the command is too long to be approved", "split it" },
	{ -ENOMEM, "memory", "no memory for the approval", "try again" },
};

static const struct refusal *refusal_of(int err)
{
	for (size_t i = 0; i < ARRAY_SIZE(refusals); i++)
		if (refusals[i].err == err)
			return &refusals[i];
	return NULL;
}

const char *approvals_word(int err)
{
	const struct refusal *r = refusal_of(err);

	return r ? r->word : "approvers";
}

int approvals_refuse(struct fault *f, int err)
{
	const struct refusal *r = refusal_of(err);

	return r ? fault_set(f, err, r->action, "%s", r->reason)
		 : fault_set(f, err, "try again", "approval failed: %s", strerror(-err));
}

/* What the state of an operation says to who would approve it. */
static int error_of(enum state s)
{
	static const int errors[] = { [UNUSED] = -ENOENT,
		[PENDING] = 0,
		[COMPLETE] = -EALREADY,
		[WITHDRAWN] = -ECANCELED,
		[EXPIRED] = -ETIME,
		[VOID] = -ESTALE };

	return errors[s];
}

static void update_locked(struct approvals *a, struct operation *op, const struct moment *m)
{
	lock_assert_held(&a->lock);
	if (op->state == PENDING && m->now >= op->deadline)
		op->state = EXPIRED;
	else if (op->state == PENDING && m->generation != op->generation)
		op->state = VOID;
}

struct operation *approvals_find_locked(struct approvals *a, const char *id)
{
	lock_assert_held(&a->lock);
	for (size_t i = 0; i < PLACES; i++)
		if (a->places[i].state != UNUSED && strcmp(a->places[i].id, id) == 0)
			return &a->places[i];
	return NULL;
}

int approvals_find_pending_locked(struct approvals *a, const char *id, const struct moment *m,
	struct operation **ret)
{
	*ret = approvals_find_locked(a, id);
	if (!*ret)
		return -ENOENT;
	update_locked(a, *ret, m);
	return error_of((*ret)->state);
}

/* --- submitting ------------------------------------------------------------------------------- */

/* An unused place, or that of the one that is over and oldest. -EAGAIN: too many are pending. */
static int find_place_locked(struct approvals *a, const struct moment *m, struct operation **ret)
{
	struct operation *best = NULL;
	size_t pending = 0;

	for (size_t i = 0; i < PLACES; i++) {
		struct operation *op = &a->places[i];

		update_locked(a, op, m);
		pending += op->state == PENDING;
		if (op->state != PENDING && (!best || op->number < best->number))
			best = op;
	}
	if (pending >= APPROVALS_PENDING_MAX)
		return -EAGAIN;
	*ret = best;
	return 0;
}

static int make_text(const struct approvals *a, const struct operation *op,
	const struct approvals_order *order, char **ret)
{
	const int64_t wall = clock_wall();
	struct approval_facts facts = { .generation = op->generation,
		.command = op->command,
		.effect = order->effect,
		.forced = order->forced,
		.reason = op->reason,
		.who = &op->who,
		.login = op->login,
		.asked = wall,
		.expires = wall + a->owner.expiry_ns,
		.need = a->owner.need };
	AUTO_BUF struct buf text = BUF_INIT;
	int err;

	strcpy(facts.store, a->store);
	strcpy(facts.daemon, a->daemon);
	strcpy(facts.operation, op->id);
	err = approval_text_put(&facts, &text);
	if (!err)
		*ret = take_buf(&text).data;
	return err;
}

static int make(const struct approvals *a, const struct approvals_order *order,
	const struct moment *m, struct operation *op)
{
	int err = approval_new_id(op->id);

	op->state = PENDING;
	op->generation = m->generation;
	op->deadline = m->now + a->owner.expiry_ns;
	op->who = (struct cred){ .uid = order->who->uid,
		.gid = order->who->gid,
		.pid = order->who->pid,
		.roles = order->who->roles };
	op->login = order->login;
	op->command = strdup(order->command);
	op->reason = strdup(order->reason);
	if (!err && (!op->command || !op->reason))
		err = -ENOMEM;
	return err ? err : make_text(a, op, order, &op->text);
}

static int put_in_place(struct approvals *a, const struct moment *m, struct operation *op)
{
	struct operation *place;
	int err;

	lock_take(&a->lock);
	err = find_place_locked(a, m, &place);
	if (!err) {
		struct operation old = *place;

		op->number = ++a->last;
		*place = *op;
		*op = old; /* freed by the caller, without the lock */
	}
	lock_drop(&a->lock);
	return err;
}

int approvals_submit(struct approvals *a, const struct approvals_order *order,
	char ret_id[APPROVAL_ID_SIZE], struct fault *f)
{
	AUTO_CLEANUP(clear) struct operation op = { .state = UNUSED };
	const struct moment m = approvals_moment(a);
	char id[APPROVAL_ID_SIZE];
	int err = make(a, order, &m, &op);

	memcpy(id, op.id, sizeof id);
	if (!err)
		err = put_in_place(a, &m, &op);
	if (err == -EINVAL)
		return fault_set(f, err, "use plain ASCII, and a reason",
			"the command cannot be shown to approvers as it is");
	if (err)
		return approvals_refuse(f, err);
	memcpy(ret_id, id, sizeof id);
	return 0;
}

int approvals_withdraw(struct approvals *a, const char *id)
{
	const struct moment m = approvals_moment(a);
	struct operation *op;
	int err;

	lock_take(&a->lock);
	err = approvals_find_pending_locked(a, id, &m, &op);
	if (!err)
		op->state = WITHDRAWN;
	lock_drop(&a->lock);
	return err ? -ENOENT : 0;
}

int approvals_asker(struct approvals *a, const char *id, uint32_t *ret_uid, struct fault *f)
{
	const struct moment m = approvals_moment(a);
	struct operation *op;
	int err;

	lock_take(&a->lock);
	err = approvals_find_pending_locked(a, id, &m, &op);
	if (!err)
		*ret_uid = op->who.uid;
	lock_drop(&a->lock);
	return err ? approvals_refuse(f, err) : 0;
}

/* --- showing ---------------------------------------------------------------------------------- */

static int compare_items(const void *x, const void *y)
{
	const struct approvals_item *a = x, *b = y;

	return a->number < b->number ? -1 : a->number > b->number;
}

size_t approvals_list(struct approvals *a, struct approvals_item ret[APPROVALS_PENDING_MAX])
{
	const struct moment m = approvals_moment(a);
	size_t n = 0;

	lock_take(&a->lock);
	for (size_t i = 0; i < PLACES; i++) {
		struct operation *op = &a->places[i];

		update_locked(a, op, &m);
		if (op->state != PENDING || n == APPROVALS_PENDING_MAX) /* some may be reopened */
			continue;
		ret[n].number = op->number;
		memcpy(ret[n++].id, op->id, APPROVAL_ID_SIZE);
	}
	lock_drop(&a->lock);
	qsort(ret, n, sizeof ret[0], compare_items);
	return n;
}

int approvals_text(struct approvals *a, const char *id, struct buf *out, struct fault *f)
{
	const struct moment m = approvals_moment(a);
	struct operation *op;
	int err;

	lock_take(&a->lock);
	err = approvals_find_pending_locked(a, id, &m, &op);
	if (!err) {
		buf_puts(out, op->text);
		for (unsigned i = 0; i < op->n_signers; i++)
			buf_printf(out, "signed by %s\n", op->signers[i]);
	}
	lock_drop(&a->lock);
	if (!err)
		err = buf_error(out);
	return err ? approvals_refuse(f, err) : 0;
}
