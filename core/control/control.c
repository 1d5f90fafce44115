/* Three threads: one carries out commands, one after the other, one renders texts, and one writes the
 * records of what was only looked at, so that a command that takes long, on a device that hangs for ever,
 * holds up no text and no record, and none of them a command. All queues are bounded. */
#include "core/control/control.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/control/control_acts.h"
#include "core/control/control_notes.h"
#include "core/control/privileged_words.h"
#include "core/engine/trace.h"

enum { COMMANDS, TEXTS, LINE_COUNT };

/* Orders for a thread. */
struct line {
	struct control *control; /* fixed */
	struct lock_cond work;
	/* by lock */
	struct control_order *first, **last;
	size_t waiting;
};

struct control {
	struct control_config config; /* fixed, as are audit, approvals and gate */
	struct audit *audit;          /* NULL: it could not be opened */
	struct approvals *approvals;  /* NULL: nothing needs them */
	struct privileged *gate;
	struct control_acts acts; /* fixed; what the present order reads is the worker's */
	pthread_t threads[LINE_COUNT];
	size_t n_threads; /* the owner's */
	struct control_notes *notes;
	struct line lines[LINE_COUNT];
	struct lock lock;
	/* by lock */
	bool stopping;
	struct control_operation operations[CONTROL_OPERATIONS]; /* the id's place is id modulo */
	struct control_operation last_bad; /* id 0: none yet; its place may be another's by now */
	uint64_t next_id;
};

/* --- a line ----------------------------------------------------------------------------------- */

static void put_form(enum privileged_command c, struct buf *out)
{
	const struct privileged_row *r = privileged_row(c);

	buf_printf(out, "write one line: %s%s: REASON", r->args[0] ? r->args : "now",
		r->needs_idle ? " [force]" : "");
}

void control_usage(enum privileged_command c, struct buf *out)
{
	buf_printf(out, "%s\n", privileged_row(c)->summary);
	put_form(c, out);
	buf_puts(out, "\n");
}

static int refuse_line(struct control *c, const struct control_order *o, struct fault *f)
{
	char comm[AUDIT_COMM_SIZE];
	const struct audit_record r = { .who = &o->who,
		.login = audit_login(o->who.pid),
		.comm = comm,
		.command = privileged_row(o->command)->name,
		.node = privileged_row(o->command)->node,
		.args = o->line,
		.decision = AUDIT_REFUSED,
		.why = "words" };

	audit_comm(o->who.pid, comm);
	if (audit_write(c->audit, &r))
		return fault_set(f, -EIO, AUDIT_UNWRITTEN_ACTION,
			"nothing was done: the audit trail cannot be written");
	return fault_set(f, -EINVAL, "write it as reading the node says", "not a command");
}

static int prepare_callable(struct control *c, struct control_order *o, struct fault *f)
{
	struct callables *t = engine_callables(c->config.engine);
	char command[CALLABLES_NAME_MAX + SHA256_HEX_SIZE + 16], sha256[SHA256_HEX_SIZE];
	int err = callables_digest(t, o->line, sha256);

	if (err)
		return fault_set(f, err, "write the image again", "nothing waits under the name");
	snprintf(command, sizeof command, "%s %.*s %s", privileged_row(o->command)->name,
		CALLABLES_NAME_MAX, o->line, sha256);
	err = privileged_run(c->gate, &o->who, command, "an image was written", f);
	if (err)
		callables_refuse(t, o->callable, f);
	return err;
}

static int access_raw(struct control *c, struct control_order *o, struct fault *f)
{
	c->acts.reading = &o->text;
	return control_raw_run(c->gate, &o->who, &o->raw, f);
}

static int approve(struct control *c, struct control_order *o, struct fault *f)
{
	return privileged_approve(c->gate, &o->who, o->approval, o->line, f);
}

static int withdraw(struct control *c, struct control_order *o, struct fault *f)
{
	return privileged_withdraw(c->gate, &o->who, o->approval, f);
}

/* Who may not is told that, whatever was written: by the gate. */
static int run_line(struct control *c, struct control_order *o, struct fault *f)
{
	const struct privileged_row *row = privileged_row(o->command);
	char command[CONTROL_LINE_MAX + 64];
	const char *reason;

	if (!privileged_words_of_line(row, o->line, command, sizeof command, &reason))
		return privileged_run(c->gate, &o->who, command, reason, f);
	if (roles_allow(o->who.roles, row->roles))
		return refuse_line(c, o, f);
	return privileged_run(c->gate, &o->who, row->name, "", f);
}

/* CONTROL_RENDER is no command. */
static const struct {
	int (*carry_out)(struct control *c, struct control_order *o, struct fault *f);
	const char *name; /* in operations/; NULL: the command's */
	bool untold;      /* not there */
} kinds[] = {
	[CONTROL_COMMAND] = { run_line, NULL, false },
	[CONTROL_APPROVE] = { approve, "approve", false },
	[CONTROL_WITHDRAW] = { withdraw, "withdraw", false },
	[CONTROL_RAW] = { access_raw, NULL, false },
	[CONTROL_PREPARE] = { prepare_callable, NULL, true }, /* NAME.id and NAME.err tell of it */
};

static const char *name_of(const struct control_order *o)
{
	return kinds[o->what].name ? kinds[o->what].name : privileged_row(o->command)->name;
}

static const char *node_of(const struct control_order *o)
{
	return kinds[o->what].name ? "control/approvals" : privileged_row(o->command)->node;
}

/* --- operations ------------------------------------------------------------------------------- */

static struct control_operation *place_of(struct control *c, uint64_t id)
{
	return &c->operations[id % CONTROL_OPERATIONS];
}

/* Others read what one has written: no byte of it may move their terminal. */
static uint64_t begin(struct control *c, const struct control_order *o)
{
	struct control_operation op = { .uid = o->who.uid,
		.name = name_of(o),
		.command = o->what == CONTROL_COMMAND ? o->command : PRIVILEGED_COUNT,
		.asked = clock_wall(),
		.fault = FAULT_NONE };

	fault_clean(op.line, sizeof op.line, o->line);
	lock_take(&c->lock);
	op.id = ++c->next_id;
	*place_of(c, op.id) = op;
	lock_drop(&c->lock);
	return op.id;
}

static void end(struct control *c, uint64_t id, const struct fault *f)
{
	struct control_operation *op = place_of(c, id);

	lock_take(&c->lock);
	if (op->id == id) {
		op->ended = clock_wall();
		op->fault = *f;
		if (f->err)
			c->last_bad = *op;
	}
	lock_drop(&c->lock);
}

bool control_look(struct control *c, uint64_t id, struct control_operation *ret)
{
	bool there;

	lock_take(&c->lock);
	there = id && place_of(c, id)->id == id;
	if (there)
		*ret = *place_of(c, id);
	lock_drop(&c->lock);
	return there;
}

bool control_next(struct control *c, uint64_t after, struct control_operation *ret)
{
	uint64_t last, first;

	lock_take(&c->lock);
	last = c->next_id;
	lock_drop(&c->lock);
	first = last < CONTROL_OPERATIONS ? 1 : last - CONTROL_OPERATIONS + 1;
	for (uint64_t id = after < first ? first : after + 1; id <= last; id++)
		if (control_look(c, id, ret))
			return true;
	return false;
}

bool control_last_error(struct control *c, struct control_operation *ret)
{
	lock_take(&c->lock);
	*ret = c->last_bad;
	lock_drop(&c->lock);
	return ret->id != 0;
}

void control_render(const struct control_operation *o, struct buf *out)
{
	buf_printf(out, "id: %llu\nstate: %s\ncommand: %s\nwritten: %s\nuid: %u\n",
		(unsigned long long)o->id,
		!o->ended              ? "under way"
			: o->fault.err ? "failed"
				       : "done",
		o->name, o->line, o->uid);
	clock_put(out, "asked", o->asked);
	clock_put(out, "ended", o->ended);
	if (!o->fault.err)
		return;
	buf_printf(out, "error: %s\n", fault_errno_name(o->fault.err));
	if (o->fault.device)
		buf_printf(out, "device_error: %s\n", npu_error_row(o->fault.device)->name);
	buf_printf(out, "reason: %s\naction: %s\n", o->fault.reason, o->fault.action);
	if (o->fault.err != -EINVAL || o->command == PRIVILEGED_COUNT)
		return;
	buf_puts(out, "usage: ");
	put_form(o->command, out);
	buf_puts(out, "\n");
}

/* --- the threads of commands and texts -------------------------------------------------------- */

static struct line *line_of(struct control *c, const struct control_order *o)
{
	return &c->lines[o->what == CONTROL_RENDER ? TEXTS : COMMANDS];
}

static int enqueue(struct control *c, struct control_order *o)
{
	struct line *l = line_of(c, o);
	int err = 0;

	lock_take(&c->lock);
	if (c->stopping)
		err = -ESHUTDOWN;
	else if (l->waiting == CONTROL_WAITING)
		err = -EAGAIN;
	if (!err) {
		o->next = NULL;
		*l->last = o;
		l->last = &o->next;
		l->waiting++;
		lock_cond_signal(&l->work);
	}
	lock_drop(&c->lock);
	return err;
}

int control_submit(struct control *c, struct control_order *o)
{
	int err = enqueue(c, o);

	if (err && o->what != CONTROL_RENDER) /* o is the caller's again, and nobody else's */
		control_note(c, &o->who, name_of(o), node_of(o), "queue");
	return err;
}

static void unlink_locked(struct line *l, struct control_order **link)
{
	lock_assert_held(&l->control->lock);
	*link = (*link)->next;
	if (!*link)
		l->last = link;
	l->waiting--;
}

bool control_take_back(struct control *c, struct control_order *o)
{
	struct line *l = line_of(c, o);
	struct control_order **link = &l->first;
	bool there;

	lock_take(&c->lock);
	while (*link && *link != o)
		link = &(*link)->next;
	there = *link;
	if (there)
		unlink_locked(l, link);
	lock_drop(&c->lock);
	if (there)
		control_note(c, &o->who, name_of(o), node_of(o), "taken back");
	return there;
}

static struct control_order *take_order(struct line *l, bool *ret_stopping)
{
	struct control *c = l->control;
	struct control_order *o;

	lock_take(&c->lock);
	while (!l->first && !c->stopping)
		lock_cond_wait(&l->work, &c->lock);
	*ret_stopping = c->stopping;
	o = l->first;
	if (o)
		unlink_locked(l, &l->first);
	lock_drop(&c->lock);
	return o;
}

/* What only this plane knows of. */
static void tell_health(const struct control *c)
{
	health_set_resets_locked(c->config.health, privileged_locked(c->gate));
	health_set_unaudited(c->config.health, audit_fails(c->audit));
}

static void run_order(struct control *c, struct control_order *o)
{
	struct fault f = FAULT_NONE;
	uint64_t id;
	int err;

	if (o->what == CONTROL_RENDER) {
		o->done(o, o->render(c, &o->text));
		return;
	}
	id = kinds[o->what].untold ? 0 : begin(c, o); /* of those NAME.id and NAME.err tell */
	err = kinds[o->what].carry_out(c, o, &f);
	tell_health(c);
	if (id)
		end(c, id, &f);
	if (err)
		log_warning("control: an order was not carried out: %s", f.reason);
	o->done(o, err);
}

static int add_line(void *out, const char *line)
{
	buf_printf(out, "%s\n", line);
	return 0;
}

int control_render_audit(struct control *c, struct buf *out)
{
	struct fault f = FAULT_NONE;

	return audit_show(c->config.store, AUDIT_COMMANDS, CONTROL_AUDIT_SHOWN, add_line, out, &f);
}

int control_render_trace(struct control *c, struct buf *out)
{
	int err = trace_render(out);

	(void)c;
	return err == -ENODATA ? 0 : err; /* without one there is no text */
}

/* It was not begun: an attempt all the same. */
static void leave_order(struct control *c, struct control_order *o)
{
	if (o->what != CONTROL_RENDER)
		control_note(c, &o->who, name_of(o), node_of(o), "stop");
	o->done(o, -ESHUTDOWN);
}

static void *worker_main(void *line)
{
	struct line *l = line;
	struct control_order *o;
	bool stopping;

	while ((o = take_order(l, &stopping)) || !stopping) {
		if (o && stopping)
			leave_order(l->control, o);
		else if (o)
			run_order(l->control, o);
	}
	return NULL;
}

/* --- start and end ---------------------------------------------------------------------------- */

static void init_lines(struct control *c)
{
	for (struct line *l = c->lines; l < c->lines + LINE_COUNT; l++) {
		l->control = c;
		l->last = &l->first;
		lock_cond_init(&l->work);
	}
}

static int start_thread(struct control *c, void *(*thread)(void *), void *of)
{
	if (pthread_create(&c->threads[c->n_threads], NULL, thread, of))
		return -EAGAIN;
	c->n_threads++;
	return 0;
}

static int start_threads(struct control *c)
{
	int err = 0;

	for (size_t i = 0; i < LINE_COUNT && !err; i++)
		err = start_thread(c, worker_main, &c->lines[i]);
	if (err)
		control_stop(c);
	return err;
}

static uint64_t generation(void *context)
{
	return health_generation(((struct control *)context)->config.health);
}

static int open_approvals(struct control *c)
{
	const struct approvals_owner owner = { .need = c->config.approvals,
		.generation = generation,
		.context = c };
	struct fault f = FAULT_NONE;
	int err = c->config.approvals ? approvals_open(c->config.store, &owner, &c->approvals, &f)
				      : 0;

	if (err)
		log_error("approvals: %s", f.reason);
	return err;
}

int control_new(const struct control_config *config, struct control **ret)
{
	struct control *c = calloc(1, sizeof *c);
	struct privileged_owner owner = { .act = { NULL } };
	struct fault f = FAULT_NONE;
	int err;

	if (!c)
		return -ENOMEM;
	c->config = *config;
	lock_init(&c->lock, RANK_CONTROL, "control");
	init_lines(c);
	if (audit_open(config->store, AUDIT_COMMANDS, &c->audit, &f))
		log_error("privileged commands are refused: %s", f.reason);
	err = open_approvals(c);
	c->acts = (struct control_acts){ .engine = config->engine,
		.models = config->models,
		.raw_access = config->raw_access };
	control_acts_give(&c->acts, &owner);
	owner.approvals = c->approvals;
	if (!err)
		err = privileged_new(c->audit, &owner, &c->gate);
	c->acts.gate = c->gate;
	if (!err)
		err = control_notes_new(c->audit, config->health, &c->notes);
	if (!err)
		tell_health(c);
	if (!err)
		err = start_threads(c);
	if (err)
		control_free(c);
	else
		*ret = c;
	return err;
}

struct approvals *control_approvals(struct control *c)
{
	return c->approvals;
}

void control_note(struct control *c, const struct cred *who, const char *what, const char *node,
	const char *why)
{
	if (c->notes)
		control_notes_add(c->notes, who, what, node, why);
}

static void end_lines(struct control *c)
{
	lock_take(&c->lock);
	c->stopping = true;
	for (size_t i = 0; i < LINE_COUNT; i++)
		lock_cond_signal(&c->lines[i].work);
	lock_drop(&c->lock);
}

void control_leave(struct control *c)
{
	struct control_order *o;
	bool stopping;

	end_lines(c);
	while ((o = take_order(&c->lines[COMMANDS], &stopping)))
		leave_order(c, o);
	control_notes_free(take_ptr(c->notes));
}

void control_stop(struct control *c)
{
	end_lines(c);
	for (size_t i = 0; i < c->n_threads; i++)
		pthread_join(c->threads[i], NULL);
	control_notes_free(take_ptr(c->notes));
}

void control_free(struct control *c)
{
	if (!c)
		return;
	control_notes_free(c->notes);
	privileged_free(c->gate);
	approvals_close(c->approvals);
	audit_close(c->audit);
	for (size_t i = 0; i < LINE_COUNT; i++)
		lock_cond_done(&c->lines[i].work);
	lock_done(&c->lock);
	free(c);
}
