/* The privileged plane at work: what an operator writes is carried out, and every attempt is audited,
 * on threads of its own, since both wait for the disk and the device (design 5).
 *
 * A command is one line, ARGUMENTS [force]: REASON; what takes no arguments has the word "now" in their
 * place ("now: the fan was replaced"). Who may and how often is core/control/privileged.h's, the trail is
 * core/control/audit.h's. What became of the last CONTROL_OPERATIONS commands can be read afterwards. */
#ifndef NPUFS_CORE_CONTROL_CONTROL_H
#define NPUFS_CORE_CONTROL_CONTROL_H

#include "core/control/control_raw.h"
#include "core/control/privileged.h"
#include "core/engine/engine.h"
#include "core/engine/models.h"

#define CONTROL_OPERATIONS  64 /* kept to be read afterwards */
#define CONTROL_WAITING     64 /* commands, and texts, that wait; then -EAGAIN */
#define CONTROL_AUDIT_SHOWN 1000
#define CONTROL_LINE_MAX    1024 /* bytes of a command and its reason */

enum control_what {
	CONTROL_COMMAND,
	CONTROL_APPROVE,  /* a signature for an operation that waits for approval */
	CONTROL_PREPARE,  /* a callable that waits; it is refused when that does not succeed */
	CONTROL_WITHDRAW, /* take such an operation back */
	CONTROL_RAW,      /* read or write the device's memory or registers */
	CONTROL_RENDER    /* a text that takes time or the disk */
};

struct control;

/* A command on its way; embedded by the owner. */
struct control_order {
	struct cred who; /* with its roles: in_group is not asked any more */
	enum control_what what;
	enum privileged_command command; /* of CONTROL_COMMAND, _RAW and _PREPARE */
	uint64_t callable;               /* of CONTROL_PREPARE */
	char approval[APPROVAL_ID_SIZE]; /* of CONTROL_APPROVE and _WITHDRAW */
	/* Of CONTROL_COMMAND and _APPROVE, "" where what was written is no line; of _RAW to be shown;
	 * the name of _PREPARE. */
	char line[CONTROL_LINE_MAX + 1];
	int (*render)(struct control *c, struct buf *out); /* of CONTROL_RENDER, into text */
	struct control_raw raw; /* of CONTROL_RAW; its bytes, where it writes, are the text's */
	struct buf text;        /* the owner's: also what CONTROL_RAW has read */
	/* Called once, without a lock, from a thread of control. 0 or why not. */
	void (*done)(struct control_order *o, int err);
	struct control_order *next; /* private */
};

/* The audit trail that cannot be opened is no error: then every command is refused with -EIO, and
 * the log says why. */
struct control_config {
	const char *store;
	struct engine *engine;
	struct models *models;
	struct health *health;
	bool raw_access;
	unsigned approvals; /* so many approvers must sign what is destructive; 0: none */
};
int control_new(const struct control_config *config, struct control **ret);
/* What is under way ends first; the rest is answered with -ESHUTDOWN. Before the engine is stopped. */
void control_stop(struct control *c);
/* In its place where what is under way does not come back from the device: the process is to end. */
void control_leave(struct control *c);
void control_free(struct control *c); /* after control_stop(); NULL is fine */

/* Neither waits. -EAGAIN: too many are under way, which is noted; then `done` is not called. */
int control_submit(struct control *c, struct control_order *o);
/* False: it has begun, and `done` is called. Else it was still waiting, and is the caller's again. */
bool control_take_back(struct control *c, struct control_order *o);
/* An open, a listing, a look at a name: the texts are static; `why` is a word for why it was refused, NULL
 * where it was not. Past CONTROL_NOTES, or too many a second, refused ones are only counted; the next
 * record tells how many. */
void control_note(struct control *c, const struct cred *who, const char *what, const char *node,
	const char *why);

/* --- what became of commands ------------------------------------------------------------------ */

struct control_operation {
	uint64_t id; /* from 1, in order */
	uint32_t uid;
	const char *name; /* of the command, or "approve", "withdraw" */
	enum privileged_command
		command; /* of what was written to its node; else PRIVILEGED_COUNT */
	char line[CONTROL_LINE_MAX + 1]; /* without control characters */
	int64_t asked, ended;            /* wall ns; 0 while it is under way */
	struct fault fault;              /* err 0: it went well */
};

/* The first with an id above `after`, or false. */
bool control_next(struct control *c, uint64_t after, struct control_operation *ret);
bool control_look(struct control *c, uint64_t id, struct control_operation *ret);
/* "key: value" lines. */
void control_render(const struct control_operation *o, struct buf *out);
/* The last one that did not go well; false where there is none. */
bool control_last_error(struct control *c, struct control_operation *ret);
/* What waits for approval; NULL where nothing needs it. */
struct approvals *control_approvals(struct control *c);
/* For CONTROL_RENDER: the last trace; the last CONTROL_AUDIT_SHOWN records of the audit trail. */
int control_render_trace(struct control *c, struct buf *out);
int control_render_audit(struct control *c, struct buf *out);
/* How a command is written. */
void control_usage(enum privileged_command c, struct buf *out);

#endif
