/* An attempt goes through the checks in the order of their table; the first that refuses names the
 * word that the audit trail gets. All that is shared by attempts are the buckets of the rates. A
 * token is taken by its check, so that attempts at the same time cannot share one, and given back
 * when nothing is done in the end. What waits for approval keeps it.
 *
 * An approval is in the trail before it counts. Of those who approve at the same time approvals_sign()
 * tells one that the operation is complete; that one acts, or makes it pending again. */
#include "core/control/privileged.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/lock.h"
#include "core/base/mem.h"
#include "core/base/npu_error.h"
#include "core/base/rate.h"
#include "core/control/privileged_words.h"
#include "core/control/roles.h"

#define SEC_PER_HOUR 3600

struct privileged {
	struct audit *audit;           /* fixed */
	struct privileged_owner owner; /* fixed */
	struct lock lock;
	/* by lock */
	struct rate rates[PRIVILEGED_COUNT];
	struct rate storm; /* of all resets together */
	bool locked;
};

struct attempt {
	struct privileged *p;
	const struct privileged_row *row; /* NULL: no such command */
	struct privileged_words words;
	struct privileged_order order;
	char *args;                /* order.args, owned */
	bool took;                 /* a token */
	bool counted;              /* among the resets of a storm */
	char name[AUDIT_NAME_MAX]; /* the record's command */
	char told[AUDIT_MESSAGE_MAX], comm[AUDIT_COMM_SIZE];
	const char *operation; /* the id of one that was approved; "" */
	struct audit_record record;
};

int privileged_new(struct audit *audit, const struct privileged_owner *o, struct privileged **ret)
{
	struct privileged *p = calloc(1, sizeof *p);

	if (!p)
		return -ENOMEM;
	p->audit = audit;
	p->owner = *o;
	lock_init(&p->lock, RANK_PRIVILEGED, "privileged");
	*ret = p;
	return 0;
}

bool privileged_locked(struct privileged *p)
{
	bool locked;

	lock_take(&p->lock);
	locked = p->locked;
	lock_drop(&p->lock);
	return locked;
}

void privileged_unlock(struct privileged *p)
{
	lock_take(&p->lock);
	p->locked = false;
	p->storm = (struct rate){ 0 };
	lock_drop(&p->lock);
}

void privileged_free(struct privileged *p)
{
	if (!p)
		return;
	lock_done(&p->lock);
	free(p);
}

static void read_command(struct attempt *t, const char *command)
{
	privileged_words_get(command, &t->words);
	t->row = t->words.row;
	t->order.forced = t->words.forced;
	snprintf(t->name, sizeof t->name, "%s%s", t->row ? t->row->name : "unknown",
		t->order.forced ? " " PRIVILEGED_FORCE : "");
	t->record.command = t->name;
	t->record.node = t->row ? t->row->node : "control";
	t->record.args = t->words.words;
}

/* --- what may refuse -------------------------------------------------------------------------- */

static int refuse_who(struct fault *f)
{
	return fault_set(f, -EACCES, "ask the operator; this attempt has been recorded",
		"this is not for who asked");
}

static int check_who(struct attempt *t, struct fault *f)
{
	/* What is no command at all is told to anybody who may use any. */
	if (roles_allow(t->order.who->roles, t->row ? t->row->roles : ~0u))
		return 0;
	return refuse_who(f);
}

static int unknown_command(const struct attempt *t, struct fault *f)
{
	const char *names[ARRAY_SIZE(privileged_rows) + 1] = { NULL }, *near;
	char action[96] = "write one of the commands that the README lists";

	for (size_t i = 0; i < ARRAY_SIZE(privileged_rows); i++)
		names[i] = privileged_rows[i].name;
	near = fault_nearest(t->words.words, names);
	if (near)
		snprintf(action, sizeof action, "did you mean \"%s\"?", near);
	return fault_set(f, -EINVAL, action, "there is no such command");
}

static int check_command(struct attempt *t, struct fault *f)
{
	const struct privileged_row *r = t->row;

	if (!r)
		return unknown_command(t, f);
	if (t->words.fits)
		return 0;
	return fault_set(f, -EINVAL, "write exactly that, with one blank between words",
		"the command is: %s%s%s%s", r->name, r->args[0] ? " " : "", r->args,
		r->needs_idle ? " [" PRIVILEGED_FORCE "]" : "");
}

static int check_reason(struct attempt *t, struct fault *f)
{
	if (privileged_words_are_reason(t->record.message))
		return 0;
	return fault_set(f, -EINVAL, "say in a few words why this is needed",
		"a reason of 1 to %d printable bytes is needed", PRIVILEGED_REASON_MAX);
}

static enum privileged_command command_of(const struct attempt *t)
{
	return (enum privileged_command)(t->row - privileged_rows);
}

static int check_support(struct attempt *t, struct fault *f)
{
	if (t->p->owner.act[command_of(t)])
		return 0;
	return fault_set(f, -EOPNOTSUPP, "see capabilities and the mount's options",
		"this device, as it is mounted, does not have the command");
}

static int64_t now(const struct privileged *p)
{
	return p->owner.now ? p->owner.now(p->owner.context) : clock_mono();
}

static int refuse_storm(struct fault *f)
{
	return fault_set(f, -EPERM,
		"find out why so many were needed, then write now: REASON to control/unlock",
		"all resets are locked: more than %d came in a short time",
		PRIVILEGED_STORM_RESETS);
}

static int check_storm(struct attempt *t, struct fault *f)
{
	return t->row->reset && privileged_locked(t->p) ? refuse_storm(f) : 0;
}

/* One more of all resets; true when it is one too many, which locks them. */
static bool count_reset(struct attempt *t)
{
	const int64_t refill = SEC_PER_HOUR * NS_PER_SEC / PRIVILEGED_STORM_RESETS, at = now(t->p);

	if (!t->row->reset)
		return false;
	lock_take(&t->p->lock);
	t->counted = rate_take(&t->p->storm, PRIVILEGED_STORM_RESETS, refill, at);
	t->p->locked |= !t->counted;
	lock_drop(&t->p->lock);
	return !t->counted;
}

static int check_count(struct attempt *t, struct fault *f)
{
	return count_reset(t) ? refuse_storm(f) : 0;
}

static int check_rate(struct attempt *t, struct fault *f)
{
	const int64_t refill = SEC_PER_HOUR * NS_PER_SEC / t->row->an_hour;
	const int64_t at = now(t->p);

	lock_take(&t->p->lock);
	t->took = rate_take(&t->p->rates[command_of(t)], t->row->an_hour, refill, at);
	lock_drop(&t->p->lock);
	if (t->took)
		return 0;
	count_reset(t);
	return fault_set(f, -EAGAIN, "find out what the last ones did, and wait",
		"too often: at most %u an hour, one more every %lld seconds", t->row->an_hour,
		(long long)(refill / NS_PER_SEC));
}

static int check_idle(struct attempt *t, struct fault *f)
{
	const struct privileged_owner *o = &t->p->owner;

	if (!t->row->needs_idle || t->order.forced || !o->busy || !o->busy(o->context))
		return 0;
	return fault_set(f, -EBUSY, "wait for the jobs, or add the word " PRIVILEGED_FORCE,
		"jobs are running");
}

static int check_memory(struct attempt *t, struct fault *f)
{
	t->args = strndup(t->words.words, t->words.args_len);
	t->order.args = t->args;
	return t->args ? 0 : fault_set(f, -ENOMEM, "try again", "no memory for the command");
}

static const struct {
	int (*refuses)(struct attempt *t, struct fault *f);
	const char *why; /* the word in the audit trail */
} checks[] = {
	{ check_who, "unauthorised" },
	{ check_command, "command" },
	{ check_reason, "reason" },
	{ check_support, "unsupported" },
	{ check_storm, "storm" },
	{ check_rate, "rate" },
	{ check_idle, "busy" },
	{ check_memory, "memory" },
	{ check_count, "storm" },
};

/* --- an attempt ------------------------------------------------------------------------------- */

static int record(struct attempt *t, enum audit_decision decision, const char *why)
{
	t->record.decision = decision;
	t->record.why = why;
	return audit_write(t->p->audit, &t->record);
}

static int not_audited(struct fault *f, int err, const char *what)
{
	return fault_set(f, -EIO, AUDIT_UNWRITTEN_ACTION,
		"%s: the audit trail cannot be written: %s", what, strerror(-err));
}

/* Refuse for the reason in `f`. */
static int refuse(struct attempt *t, int err, const char *why, struct fault *f)
{
	int lost = record(t, AUDIT_REFUSED, why);

	return lost ? not_audited(f, lost, "nothing was done") : err;
}

static int check(struct attempt *t, struct fault *f)
{
	for (size_t i = 0; i < ARRAY_SIZE(checks); i++) {
		int err = checks[i].refuses(t, f);

		if (err)
			return refuse(t, err, checks[i].why, f);
	}
	return 0;
}

static const char *error_name(int err, const struct fault *f)
{
	return f->device ? npu_error_row(f->device)->name : fault_errno_name(err);
}

static int act(struct attempt *t, struct fault *f)
{
	const struct privileged_owner *o = &t->p->owner;
	int err, lost;

	lock_assert_none();
	err = o->act[command_of(t)](o->context, &t->order, f);
	assert(err <= 0);
	if (!err && t->told[0])
		t->record.message = t->told;
	lost = err ? record(t, AUDIT_FAILED, error_name(err, f)) : record(t, AUDIT_DONE, "");
	if (!err && lost)
		return not_audited(f, lost, "the command WAS carried out, but not its result");
	return err;
}

static int announce(struct attempt *t, struct fault *f)
{
	int err = record(t, AUDIT_INTENT, t->operation);

	return err ? not_audited(f, err, "nothing was done") : 0;
}

static void give_back(struct attempt *t)
{
	lock_take(&t->p->lock);
	if (t->took)
		rate_give_back(&t->p->rates[command_of(t)]);
	if (t->took && t->counted)
		rate_give_back(&t->p->storm);
	lock_drop(&t->p->lock);
}

/* --- approval --------------------------------------------------------------------------------- */

static bool needs_approval(const struct attempt *t)
{
	return t->p->owner.approvals && t->row->destructive;
}

static int ask_approval(struct attempt *t, const char *command, struct fault *f)
{
	const struct approvals_order order = { t->order.who, t->record.login, command,
		t->row->summary, t->order.forced, t->record.message };
	struct approvals *a = t->p->owner.approvals;
	char id[APPROVAL_ID_SIZE];
	int err = approvals_submit(a, &order, id, f);

	if (err)
		return refuse(t, err, err == -EINVAL ? "text" : approvals_word(err), f);
	err = record(t, AUDIT_PENDING, id);
	if (err) {
		approvals_withdraw(a, id);
		return not_audited(f, err, "nothing was done");
	}
	return fault_set(f, -EINPROGRESS, "have approvers sign it with npufs-admin approve",
		"not done yet: operation %s waits for approval", id);
}

/* An attempt to approve, and what came of it. */
struct signing {
	struct attempt t;
	const char *id;
	int lost;             /* the error of the audit trail */
	struct approval what; /* large: not for the stack */
};

/* From here on the records are about the operation's own command. */
static int record_approval(void *context, const struct approval *what)
{
	struct signing *s = context;

	read_command(&s->t, what->command);
	s->t.record.message = s->id;
	s->lost = record(&s->t, AUDIT_APPROVED, what->key);
	return s->lost;
}

static int check_approver(struct attempt *t, const char **ret_why, struct fault *f)
{
	*ret_why = "unauthorised";
	if (!roles_allow(t->order.who->roles, PRIVILEGED_APPROVERS))
		return refuse_who(f);
	*ret_why = "unsupported";
	if (t->p->owner.approvals)
		return 0;
	return fault_set(f, -EOPNOTSUPP, "see the mount's option approvals",
		"nothing needs approval here");
}

static int sign(struct signing *s, const char *line, struct fault *f)
{
	const char *why;
	int err = check_approver(&s->t, &why, f);

	if (err)
		return refuse(&s->t, err, why, f);
	err = approvals_sign(s->t.p->owner.approvals, s->id, line, strlen(line), record_approval, s,
		&s->what, f);
	if (s->lost)
		return not_audited(f, s->lost, "the approval does not count");
	return err ? refuse(&s->t, err, s->what.why, f) : 0;
}

/* Whether it can be done now is asked again: it was long ago. */
static int prepare_approved(struct signing *s, struct fault *f)
{
	struct attempt *t = &s->t;
	int err;

	t->operation = s->id;
	t->record.message = s->what.reason;
	t->order.who = &s->what.who;
	t->order.approved = true;
	t->order.generation = s->what.generation;
	err = check_storm(t, f);
	if (err)
		return refuse(t, err, "storm", f);
	err = check_idle(t, f);
	if (err)
		return refuse(t, err, "busy", f);
	err = check_memory(t, f);
	return err ? refuse(t, err, "memory", f) : announce(t, f);
}

static int approve(struct signing *s, const char *line, struct fault *f)
{
	int err = sign(s, line, f);

	if (err || !s->what.complete)
		return err;
	err = prepare_approved(s, f);
	if (!err)
		return act(&s->t, f);
	approvals_reopen(s->t.p->owner.approvals, s->id, s->what.key);
	return err;
}

/* --- withdrawing ------------------------------------------------------------------------------ */

static int check_asker(struct attempt *t, const char *id, const char **ret_why, struct fault *f)
{
	uint32_t uid;
	int err = check_approver(t, ret_why, f);

	if (err)
		return err;
	err = approvals_asker(t->p->owner.approvals, id, &uid, f);
	*ret_why = err ? approvals_word(err) : "unauthorised";
	if (err || roles_allow(t->order.who->roles, ROLE_ROOT) || t->order.who->uid == uid)
		return err;
	return fault_set(f, -EPERM, "ask who asked for it, or root",
		"the operation is another operator's");
}

static int withdraw(struct attempt *t, const char *id, struct fault *f)
{
	const char *why;
	int err = check_asker(t, id, &why, f), lost;

	if (err)
		return refuse(t, err, why, f);
	err = announce(t, f);
	if (err)
		return err;
	err = approvals_withdraw(t->p->owner.approvals, id);
	if (err) { /* it was over in that moment */
		approvals_refuse(f, err);
		record(t, AUDIT_FAILED, approvals_word(err));
		return err;
	}
	lost = record(t, AUDIT_DONE, "withdrawn");
	return lost ? not_audited(f, lost, "it WAS withdrawn, but not its result") : 0;
}

/* --- the ways in ------------------------------------------------------------------------------ */

static int go(struct attempt *t, const char *command, struct fault *f)
{
	int err;

	read_command(t, command);
	err = check(t, f);
	if (!err && needs_approval(t)) {
		err = ask_approval(t, command, f);
		if (err == -EINPROGRESS)
			return err; /* the token is its own */
	} else if (!err) {
		err = announce(t, f);
		if (!err)
			return act(t, f);
	}
	give_back(t);
	return err;
}

static void begin(struct attempt *t, struct privileged *p, const struct cred *who)
{
	t->p = p;
	t->order.who = who;
	t->order.told = t->told;
	t->operation = "";
	t->record.who = who;
	t->record.login = audit_login(who->pid);
	audit_comm(who->pid, t->comm);
	t->record.comm = t->comm;
}

static int end(struct attempt *t, int err, struct fault *mine, struct fault *f)
{
	free(t->args);
	if (err && !mine->err)
		fault_set(mine, err, "", "the command failed: %s", strerror(-err));
	if (err && f)
		*f = *mine;
	return err;
}

int privileged_run(struct privileged *p, const struct cred *who, const char *command,
	const char *reason, struct fault *f)
{
	struct fault mine = FAULT_NONE;
	struct attempt t = { .p = p };

	begin(&t, p, who);
	t.record.message = reason;
	return end(&t, go(&t, command, &mine), &mine, f);
}

/* The records are about the operation `id` itself. */
static void name_operation(struct attempt *t, const char *command, const char *id)
{
	t->record.command = command;
	t->record.node = "control/approvals";
	t->record.args = t->record.message = id;
}

int privileged_withdraw(struct privileged *p, const struct cred *who, const char *id,
	struct fault *f)
{
	struct fault mine = FAULT_NONE;
	struct attempt t = { .p = p };

	begin(&t, p, who);
	name_operation(&t, "withdraw", id);
	return end(&t, withdraw(&t, id, &mine), &mine, f);
}

int privileged_approve(struct privileged *p, const struct cred *who, const char *id,
	const char *line, struct fault *f)
{
	AUTO_FREE struct signing *s = calloc(1, sizeof *s);
	struct fault mine = FAULT_NONE;

	if (!s)
		return fault_set(f, -ENOMEM, "try again", "no memory for the approval");
	begin(&s->t, p, who);
	s->id = id;
	name_operation(&s->t, "approve", id);
	return end(&s->t, approve(s, line, &mine), &mine, f);
}
