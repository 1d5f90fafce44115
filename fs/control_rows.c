#include "fs/control_rows.h"

#include "core/base/mem.h"
#include "core/device_layer.h"
#include "core/engine/trace.h"

const struct folder_row control_folders[FOLDER_COUNT] = {
	[CONTROL] = { "control", ROLE_OPERATOR, ROLE_TRACE },
	[OPERATIONS] = { "control/operations", ROLE_OPERATOR, 0 },
	[APPROVALS] = { "control/approvals", PRIVILEGED_APPROVERS, 0 },
	[TRACE] = { "control/trace", ROLE_TRACE, 0 },
};

/* --- what the files show ---------------------------------------------------------------------- */

static int usage_show(struct npufs *fs, uint64_t command, struct buf *out)
{
	(void)fs;
	control_usage((enum privileged_command)command, out);
	return 0;
}

static int last_error_show(struct npufs *fs, uint64_t object, struct buf *out)
{
	struct control_operation o;

	(void)object;
	if (control_last_error(fs->control, &o))
		control_render(&o, out);
	return 0;
}

static bool faults_exist(struct npufs *fs)
{
	(void)fs;
	return device_layer_is_there();
}

static int trace_state_show(struct npufs *fs, uint64_t object, struct buf *out)
{
	static const char *const ends[] = { [TRACE_STILL_ON] = "on",
		[TRACE_BY_TIME] = "ended by its time",
		[TRACE_BY_SIZE] = "ended by its size",
		[TRACE_BY_STOP] = "stopped" };
	struct trace_view v;

	(void)fs, (void)object;
	trace_look(&v);
	buf_printf(out, "%s\n", v.any ? ends[v.ended] : "none");
	if (v.any)
		buf_printf(out, "seconds: %llu\nbytes: %llu\nevents: %llu\ndropped: %llu\n",
			(unsigned long long)v.seconds, (unsigned long long)v.bytes,
			(unsigned long long)v.events, (unsigned long long)v.dropped);
	return 0;
}

static bool raw_exists(struct npufs *fs)
{
	return fs->opts.raw_access;
}

static bool approvals_exist(struct npufs *fs)
{
	return control_approvals(fs->control) != NULL;
}

/* --- the table --------------------------------------------------------------------------------- */

#define ORDER(in_, name_, command_, doc_) \
	{ \
		.row = { .name = name_, .mode = 0600, .show = usage_show, .doc = doc_ }, \
		.command = command_, .in = in_ \
	}
#define RAW(name_, read_, write_, doc_) \
	{ \
		.row = { .name = name_, .mode = 0600, .exists = raw_exists, .doc = doc_ }, \
		.command = read_, .writes = write_ \
	}
#define SHOWN(in_, name_, show_, render_, node_, roles_, doc_) \
	{ \
		.row = { .name = name_, .mode = 0400, .show = show_, .doc = doc_ }, \
		.command = PRIVILEGED_COUNT, .in = in_, .render = render_, .node = node_, \
		.roles = roles_ \
	}
#define FOLDER(name_, opens_, exists_, doc_) \
	{ \
		.row = { .name = name_, \
			.mode = 0700, \
			.area = AREA_CONTROL, \
			.exists = exists_, \
			.doc = doc_ }, \
		.command = PRIVILEGED_COUNT, .opens = opens_, .node = "control/" name_ \
	}
const struct control_row control_rows[] = {
	ORDER(CONTROL, "load", PRIVILEGED_LOAD, "write ALIAS [force]: REASON to have it served"),
	ORDER(CONTROL, "unload", PRIVILEGED_UNLOAD, "take the model off the device; jobs wait"),
	ORDER(CONTROL, "configure", PRIVILEGED_CONFIGURE,
		"bring the model up anew; ends unload and drain"),
	ORDER(CONTROL, "drain", PRIVILEGED_DRAIN, "let what runs end, refuse new jobs"),
	ORDER(CONTROL, "reset_ccu", PRIVILEGED_RESET_CCU, "clear a compute-unit fault"),
	ORDER(CONTROL, "reset_config", PRIVILEGED_RESET_CONFIG,
		"forget the configuration, configure again"),
	ORDER(CONTROL, "reset_device", PRIVILEGED_RESET_DEVICE,
		"reset the device: the last resort"),
	ORDER(CONTROL, "parallel", PRIVILEGED_PARALLEL,
		"two inferences in flight, where proven: on or off"),
	ORDER(CONTROL, "unlock", PRIVILEGED_UNLOCK,
		"allow resets again, which too many had locked"),
	{ .row = { .name = "faults",
		  .mode = 0600,
		  .show = usage_show,
		  .exists = faults_exist,
		  .doc = "with -o fault: plant other faults, or none" },
		.command = PRIVILEGED_FAULTS },
	RAW("memory", PRIVILEGED_MEMORY_READ, PRIVILEGED_MEMORY_WRITE,
		"with -o raw_access: the device's memory; the offset is the address"),
	RAW("registers", PRIVILEGED_REGISTER_READ, PRIVILEGED_REGISTER_WRITE,
		"with -o raw_access: its registers, 4 bytes at a time"),
	SHOWN(CONTROL, "audit", NULL, control_render_audit, "control/audit", ROLE_ROOT,
		"the last records of the audit trail"),
	SHOWN(CONTROL, "last_error", last_error_show, NULL, "control/last_error", ROLE_OPERATOR,
		"the last command that did not go well, and why"),
	FOLDER("operations", OPERATIONS, NULL,
		"a file for each of the last commands: what became of it"),
	FOLDER("approvals", APPROVALS, approvals_exist,
		"with -o approvals: what waits to be signed (npufs-admin approve)"),
	FOLDER("trace", TRACE, NULL, "a bounded trace of what happens to jobs"),
	ORDER(TRACE, "start", PRIVILEGED_TRACE_START,
		"write SECONDS BYTES: REASON to record for so long and so much"),
	ORDER(TRACE, "stop", PRIVILEGED_TRACE_STOP, "end it early"),
	SHOWN(TRACE, "state", trace_state_show, NULL, "control/trace/state", ROLE_TRACE,
		"is one on, how it ended, events, dropped ones"),
	SHOWN(TRACE, "last.json", NULL, control_render_trace, "control/trace/last.json", ROLE_TRACE,
		"the last one, for Perfetto or chrome://tracing"),
};

const size_t control_n_rows = ARRAY_SIZE(control_rows);

void control_put_docs(void (*put)(struct buf *out, const char *folder, const struct node_row *row),
	struct buf *out)
{
	for (size_t i = 0; i < ARRAY_SIZE(control_rows); i++)
		put(out, control_rows[i].in == TRACE ? "control/trace/" : "control/",
			&control_rows[i].row);
}

unsigned control_row_roles(const struct control_row *r)
{
	if (r->command < PRIVILEGED_COUNT)
		return privileged_row(r->command)->roles;
	return r->opens ? control_folders[r->opens].roles : r->roles;
}
