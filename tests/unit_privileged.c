/* The privileged plane: who may do what, in which state, and what the audit trail has of it. */
#include "core/control/privileged.h"

#include "audit_rig.h"

#include <pthread.h>
#include <stdatomic.h>

#include "core/base/clock.h"

#define DAEMON 990

static const struct cred root = { .uid = 0, .gid = 0, .pid = 1, .roles = ROLE_ROOT };
static const struct cred own = { .uid = DAEMON, .gid = 12, .pid = 2, .roles = ROLE_ROOT };
static const struct cred operator_ = { .uid = 1001, .gid = 7, .pid = 4, .roles = ROLE_OPERATOR };
static const struct cred tracer = { .uid = 1002, .gid = 8, .pid = 5, .roles = ROLE_TRACE };
static const struct cred unasked = { .uid = 0,
	.gid = 0,
	.pid = 6 }; /* whose roles nobody asked for */
static const struct cred root_group = { .uid = 1000, .gid = 0, .pid = 3 };
static const struct cred nobody = { .uid = UINT32_MAX, .gid = UINT32_MAX, .pid = 0 };

static struct audit_rig *rig;
static struct privileged *plane;
static struct privileged_owner owner;

/* What the owner is, and what it saw. */
static struct {
	bool busy;
	int64_t now;
	int result;
	enum npu_error device;
	_Atomic int acts;
	char args[64];
	bool forced;
	char last[AUDIT_LINE_MAX + 1]; /* record, as the act saw it */
	bool disk_fails_in_act;
	const char *told;
} world;

/* The newest record, "" for none; straight from the file, since it is asked for very often. */
static void last_line(char ret[AUDIT_LINE_MAX + 1])
{
	char end[AUDIT_LINE_MAX + 1] = "", *line;
	int fd = open(work_path(&rig->w, FIRST), O_RDONLY);
	off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
	off_t from = size > AUDIT_LINE_MAX ? size - AUDIT_LINE_MAX : 0;

	assert_false(work_has(&rig->w, NEXT));
	if (size)
		assert_int_equal(pread(fd, end, AUDIT_LINE_MAX, from), size - from);
	if (fd >= 0)
		close(fd);
	if (size)
		end[size - from - 1] = '\0';
	line = strrchr(end, '\n');
	strcpy(ret, line ? line + 1 : end);
}

static int act(void *context, const struct privileged_order *o, struct fault *f)
{
	assert_ptr_equal(context, &world);
	atomic_fetch_add(&world.acts, 1);
	snprintf(world.args, sizeof world.args, "%s", o->args);
	world.forced = o->forced;
	last_line(world.last);
	if (world.disk_fails_in_act)
		disk_watch = rig_no_disk;
	if (world.told)
		snprintf(o->told, AUDIT_MESSAGE_MAX, "%s", world.told);
	return world.device ? fault_from_device(f, world.device, "reset") : world.result;
}

static bool busy(void *context)
{
	assert_ptr_equal(context, &world);
	return world.busy;
}

static int64_t now(void *context)
{
	assert_ptr_equal(context, &world);
	return world.now;
}

static void renew(struct audit *audit)
{
	privileged_free(plane);
	assert_int_equal(privileged_new(audit, &owner, &plane), 0);
}

static int set_up(void **state)
{
	rig_set_up(state);
	rig = *state;
	memset(&world, 0, sizeof world);
	world.now = 1000 * NS_PER_SEC;
	owner = (struct privileged_owner){ .busy = busy, .now = now, .context = &world };
	for (int i = 0; i < PRIVILEGED_COUNT; i++)
		owner.act[i] = act;
	renew(rig->audit);
	return 0;
}

static int tear_down(void **state)
{
	privileged_free(plane);
	plane = NULL;
	return rig_tear_down(state);
}

/* The newest record has this member. */
static void expect_last(const char *key, const char *value)
{
	char last[AUDIT_LINE_MAX + 1], member[AUDIT_MESSAGE_MAX + 32];

	snprintf(member, sizeof member, "\"%s\":\"%s\"", key, value);
	last_line(last);
	if (!strstr(last, member))
		fail_msg("no %s in %s", member, last);
}

/* How many records there have been, the checkpoints left out: every 65th line is one. */
static uint64_t records(void)
{
	char last[AUDIT_LINE_MAX + 1];
	uint64_t seq;

	last_line(last);
	seq = last[0] ? strtoull(last + strlen("{\"seq\":"), NULL, 10) : 0;
	return seq - seq / (AUDIT_CHECKPOINT_EVERY + 1);
}

/* Refused with this error, by one record that has this word, and nothing done. */
static void expect_refused(const struct cred *who, const char *command, const char *reason, int err,
	const char *why)
{
	struct fault f = FAULT_NONE;
	uint64_t before = records();
	int acts = world.acts, got = privileged_run(plane, who, command, reason, &f);

	if (got != err)
		fail_msg("\"%s\" by %u: %s, not %s", command, who->uid, fault_errno_name(got),
			fault_errno_name(err));
	assert_int_equal(f.err, err);
	assert_true(f.reason[0] && f.action[0]);
	assert_int_equal(world.acts, acts);
	assert_int_equal(records(), before + 1);
	expect_last("decision", "refused");
	expect_last("why", why);
}

/* Done, by an intent that was there before and a result. */
static void expect_done(const struct cred *who, const char *command, const char *args)
{
	struct fault f = FAULT_NONE;
	uint64_t before = records();
	int acts = world.acts, got = privileged_run(plane, who, command, "needed", &f);

	if (got)
		fail_msg("\"%s\" by %u: %s", command, who->uid, f.reason);
	assert_int_equal(world.acts, acts + 1);
	assert_string_equal(world.args, args);
	assert_non_null(strstr(world.last, "\"decision\":\"intent\""));
	assert_int_equal(records(), before + 2);
	expect_last("decision", "done");
	expect_last("message", "needed");
}

/* --- every command ---------------------------------------------------------------------------- */

static const struct {
	const char *name, *args, *level;
	bool destructive, needs_idle;
	unsigned an_hour, roles;
} commands[] = {
	{ "reset_ccu", "", "C4", true, true, 4, ROLE_OPERATOR },
	{ "reset_config", "", "C4", true, true, 4, ROLE_ROOT },
	{ "reset_device", "", "C4", true, true, 4, ROLE_ROOT },
	{ "load", "tiny", "C1", true, true, 30, ROLE_OPERATOR },
	{ "unload", "", "C4", true, true, 30, ROLE_OPERATOR },
	{ "configure", "", "C1", true, true, 30, ROLE_OPERATOR },
	{ "memory read", "0x1000 64", "C4", false, false, 600, ROLE_ROOT },
	{ "memory write", "0x1000 00ff", "C4", true, true, 60, ROLE_ROOT },
	{ "register read", "0x8 4", "C4", false, false, 600, ROLE_ROOT },
	{ "register write", "0xc 01000000", "C4", true, true, 60, ROLE_ROOT },
	{ "trace start", "5 4096", "C1", false, false, 12, ROLE_TRACE },
	{ "trace stop", "", "C1", false, false, 60, ROLE_TRACE },
	{ "parallel", "on", "C1", false, true, 12, ROLE_OPERATOR },
	{ "drain", "", "C1", false, false, 30, ROLE_OPERATOR },
	{ "faults", "none", "C1", false, false, 600, ROLE_ROOT },
	{ "unlock", "", "C1", false, false, 12, ROLE_OPERATOR },
	{ "prepare", "add 00ff", "C1", false, false, 100000, ROLE_OPERATOR },
	{ "close callables", "", "C1", true, true, 30, ROLE_OPERATOR },
};

static const char *command_text(size_t i, const char *more)
{
	static char text[2][96];
	static unsigned next;
	char *to = text[next++ % 2];

	snprintf(to, sizeof text[0], "%s%s%s%s", commands[i].name, commands[i].args[0] ? " " : "",
		commands[i].args, more);
	return to;
}

static void row__every_command__as_the_contract_says(void **state)
{
	(void)state;
	assert_int_equal(ARRAY_SIZE(commands), PRIVILEGED_COUNT);
	for (int i = 0; i < PRIVILEGED_COUNT; i++) {
		const struct privileged_row *r = privileged_row((enum privileged_command)i);

		assert_string_equal(r->name, commands[i].name);
		assert_string_equal(r->level, commands[i].level);
		assert_int_equal(r->destructive, commands[i].destructive);
		assert_int_equal(r->needs_idle, commands[i].needs_idle);
		assert_int_equal(r->an_hour, commands[i].an_hour);
		assert_true(strncmp(r->node, "control/", 8) == 0 ||
			strncmp(r->node, "callables/", 10) == 0);
		assert_int_equal(r->roles, commands[i].roles);
		assert_int_equal(r->reset, strncmp(r->name, "reset_", 6) == 0);
		assert_true(r->summary[0]);
	}
}

/* --- the cross product ------------------------------------------------------------------------ */

/* Each state is one bit of what may be wrong. The errors in the order in which they win. */
enum {
	BAD_WORDS = 1,
	NO_REASON = 2,
	NO_ACT = 4,
	TOO_OFTEN = 8,
	BUSY = 16,
	FAILS = 32,
	STATES = 64
};

static const struct {
	unsigned wrong;
	int err;
	const char *why;
} refusals[] = {
	{ BAD_WORDS, -EINVAL, "command" },
	{ NO_REASON, -EINVAL, "reason" },
	{ NO_ACT, -EOPNOTSUPP, "unsupported" },
	{ TOO_OFTEN, -EAGAIN, "rate" },
	{ BUSY, -EBUSY, "busy" },
};

static void enter_state(size_t command, unsigned wrong)
{
	world.busy = false;
	world.result = 0;
	owner.act[command] = act;
	renew(rig->audit);
	for (unsigned n = 0; wrong & TOO_OFTEN && n < commands[command].an_hour; n++)
		assert_int_equal(privileged_run(plane, &root, command_text(command, ""), "r", NULL),
			0);
	owner.act[command] = wrong & NO_ACT ? NULL : act;
	if (wrong & NO_ACT) /* as often as before, but not there any more */
		renew(rig->audit);
	world.busy = wrong & BUSY;
	world.result = wrong & FAILS ? -ENODEV : 0;
}

static void expect_state(const struct cred *who, size_t command, unsigned wrong)
{
	const char *text = command_text(command, wrong & BAD_WORDS ? " x y z" : "");
	const char *reason = wrong & NO_REASON ? "" : "needed";

	if (!commands[command].needs_idle)
		wrong &= ~(unsigned)BUSY;
	if (!(who->roles & (ROLE_ROOT | commands[command].roles))) {
		expect_refused(who, text, reason, -EACCES, "unauthorised");
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(refusals); i++)
		if (wrong & refusals[i].wrong) {
			expect_refused(who, text, reason, refusals[i].err, refusals[i].why);
			return;
		}
	if (!(wrong & FAILS)) {
		expect_done(who, text, commands[command].args);
		return;
	}
	assert_int_equal(privileged_run(plane, who, text, reason, NULL), -ENODEV);
	expect_last("decision", "failed");
	expect_last("why", "ENODEV");
}

/* A short trail is looked at quickly. */
static void begin_trail(void)
{
	rig_sound(rig, "");
	rig_close(rig);
	assert_int_equal(files_remove_tree(AT_FDCWD, work_path(&rig->w, "store/audit")), 0);
	rig_open(rig);
}

static void run__who_and_state_and_command__decided_and_audited(void **state)
{
	static const struct cred *const all[] = { &root, &own, &operator_, &tracer, &root_group,
		&nobody, &unasked };

	(void)state;
	for (size_t command = 0; command < ARRAY_SIZE(commands); command++) {
		begin_trail();
		for (unsigned wrong = 0; wrong < STATES; wrong++) {
			if (wrong & TOO_OFTEN && commands[command].an_hour > 4)
				continue; /* its own test below */
			for (size_t who = 0; who < ARRAY_SIZE(all); who++) {
				if (who % 2 == 0) /* too many at once would be a storm */
					enter_state(command, wrong);
				expect_state(all[who], command, wrong);
				expect_last("node", privileged_row(command)->node);
			}
		}
	}
	rig_sound(rig, "records 1 to ");
}

/* --- words and reasons ------------------------------------------------------------------------ */

static void run__wrong_words__refused(void **state)
{
	static const char *const wrong[] = { "", " ", "reset", "reset_cc", "reset_ccu ",
		" reset_ccu", "reset_ccu\n", "reset_ccu now", "RESET_CCU", "reset_ccu  force",
		"reset_ccu force ", "reset_ccu force force", "reset_ccuforce", "load", "load ",
		"load  tiny", "load a b", "load a b force", "memory", "memory read",
		"memory read 1", "memory read 1  2", "memory read 1 2 3", "memory read 1 2 force",
		"memory  read 1 2", "trace stop force", "parallel", "parallel on off", "shutdown",
		"reset_ccu;reset_device", "load a\x01", "load \x1b[2J", "load a\xff",
		"load a\x7f" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		expect_refused(&root, wrong[i], "needed", -EINVAL, "command");
}

static void run__a_slip__nearest_named(void **state)
{
	struct fault f;

	(void)state;
	assert_int_equal(privileged_run(plane, &root, "reset_cpu", "needed", &f), -EINVAL);
	assert_string_equal(f.action, "did you mean \"reset_ccu\"?");
	expect_last("command", "unknown");
	assert_int_equal(privileged_run(plane, &root, "memory write 1", "needed", &f), -EINVAL);
	assert_string_equal(f.reason, "the command is: memory write ADDRESS BYTES [force]");
}

static void run__force__last_word_only(void **state)
{
	(void)state;
	world.busy = true;
	expect_done(&root, "reset_ccu force", "");
	assert_true(world.forced);
	expect_last("command", "reset_ccu force");
	expect_done(&root, "memory write 1 2 force", "1 2");
	assert_true(world.forced);
	expect_done(&root, "load tiny force", "tiny");
	expect_refused(&root, "load force", "needed", -EBUSY, "busy");
	world.busy = false;
	expect_done(&root, "load force", "force"); /* an alias like any other */
	assert_false(world.forced);
}

static void run__reason__one_to_256_printable_bytes(void **state)
{
	static const char *const bad[] = { NULL, "", " ", "   ", "a\nb", "a\tb", "\x1b[2J", "\x7f",
		"a\xff", "\xc2\x85" };
	char longest[PRIVILEGED_REASON_MAX + 2];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		expect_refused(&root, "trace stop", bad[i], -EINVAL, "reason");
	memset(longest, 'x', sizeof longest);
	longest[257] = '\0';
	expect_refused(&root, "trace stop", longest, -EINVAL, "reason");
	longest[256] = '\0';
	assert_int_equal(privileged_run(plane, &root, "trace stop", longest, NULL), 0);
	expect_last("message", longest);
	assert_int_equal(privileged_run(plane, &root, "trace stop", "?", NULL), 0);
	assert_int_equal(privileged_run(plane, &root, "trace stop", "na\xc3\xafve", NULL), 0);
}

static void run__arguments__only_their_digest_is_kept(void **state)
{
	AUTO_BUF struct buf all = BUF_INIT;

	(void)state;
	expect_done(&root, "load abc", "abc");
	/* SHA-256 of "abc", FIPS 180-2, appendix B.1. */
	expect_last("args", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	expect_refused(&nobody, "memory write 1 secret", "needed", -EACCES, "unauthorised");
	expect_refused(&nobody, "the secret", "needed", -EACCES, "unauthorised");
	rig_show(rig, UINT64_MAX, &all);
	assert_null(strstr(all.data, "\"abc\""));
	assert_null(strstr(all.data, "secret"));
}

static void run__act_tells_more__in_the_record_of_a_good_result_alone(void **state)
{
	(void)state;
	world.told = "what was read";
	assert_int_equal(privileged_run(plane, &root, "memory read 1 2", "needed", NULL), 0);
	assert_non_null(strstr(world.last, "\"message\":\"needed\""));
	expect_last("message", "what was read");
	world.result = -ENODEV;
	assert_int_equal(privileged_run(plane, &root, "memory read 1 2", "needed", NULL), -ENODEV);
	expect_last("message", "needed");
}

/* --- how often -------------------------------------------------------------------------------- */

static void run__too_often__refused_till_time_passes(void **state)
{
	(void)state;
	for (size_t c = 0; c < ARRAY_SIZE(commands); c++) {
		const char *text = command_text(c, "");
		const int64_t refill = 3600 * NS_PER_SEC / commands[c].an_hour;

		if (commands[c].an_hour > 60)
			continue; /* takes long, and is the same code */
		for (unsigned n = 0; n < commands[c].an_hour; n++)
			assert_int_equal(privileged_run(plane, &root, text, "r", NULL), 0);
		expect_refused(&root, text, "r", -EAGAIN, "rate");
		expect_refused(&own, command_text(c, commands[c].needs_idle ? " force" : ""), "r",
			-EAGAIN, "rate");
		world.now += refill - 1;
		expect_refused(&root, text, "r", -EAGAIN, "rate");
		world.now += 1;
		assert_int_equal(privileged_run(plane, &root, text, "r", NULL), 0);
		expect_refused(&root, text, "r", -EAGAIN, "rate");
		world.now += 3600 * NS_PER_SEC; /* far from a storm */
	}
}

/* --- storms ----------------------------------------------------------------------------------- */

static void reset_often(const char *command, int n)
{
	for (int i = 0; i < n; i++)
		assert_int_equal(privileged_run(plane, &root, command, "r", NULL), 0);
}

static void run__a_storm_of_resets__all_locked_until_unlocked(void **state)
{
	(void)state;
	reset_often("reset_ccu", 4);
	reset_often("reset_config", 4);
	assert_false(privileged_locked(plane));
	expect_refused(&root, "reset_device", "r", -EPERM, "storm");
	assert_true(privileged_locked(plane));
	world.now += 24 * 3600 * NS_PER_SEC; /* time alone does not help */
	expect_refused(&root, "reset_ccu", "r", -EPERM, "storm");
	expect_refused(&root, "reset_device force", "r", -EPERM, "storm");
	expect_done(&root, "configure", ""); /* all else goes on */
	expect_refused(&tracer, "unlock", "r", -EACCES, "unauthorised");
	assert_true(privileged_locked(plane));
	privileged_unlock(plane);
	assert_false(privileged_locked(plane));
	reset_often("reset_ccu", 4);
	reset_often("reset_device", 4);
	expect_refused(&root, "reset_config", "r", -EPERM, "storm");
}

/* Attempts that were too often for their level are of the storm. */
static void run__refused_for_the_rate__counted_for_the_storm(void **state)
{
	(void)state;
	reset_often("reset_ccu", 4);
	for (int i = 0; i < 5; i++) {
		assert_false(privileged_locked(plane));
		expect_refused(&root, "reset_ccu", "r", -EAGAIN, "rate");
	}
	assert_true(privileged_locked(plane));
	expect_refused(&root, "reset_ccu", "r", -EPERM, "storm");
}

/* As often as every level may in the long run, and no more, is no storm of one. */
static void run__one_level_as_often_as_it_may__never_a_storm(void **state)
{
	(void)state;
	reset_often("reset_ccu", 4);
	for (int i = 0; i < 100; i++) {
		world.now += 3600 / PRIVILEGED_RESETS * NS_PER_SEC;
		reset_often("reset_ccu", 1);
	}
	assert_false(privileged_locked(plane));
}

/* Who may not, or is refused for another cause, uses up nothing. */
static void run__refused_often__others_are_not_held_up(void **state)
{
	(void)state;
	for (int i = 0; i < 20; i++) {
		expect_refused(&root_group, "reset_ccu", "r", -EACCES, "unauthorised");
		expect_refused(&root, "reset_ccu", "", -EINVAL, "reason");
		world.busy = true;
		expect_refused(&root, "reset_ccu", "r", -EBUSY, "busy");
		world.busy = false;
	}
	disk_watch = rig_no_disk;
	for (int i = 0; i < 20; i++)
		assert_int_equal(privileged_run(plane, &root, "reset_ccu", "r", NULL), -EIO);
	disk_watch = NULL;
	assert_int_equal(world.acts, 0);
	for (int i = 0; i < 4; i++)
		expect_done(&root, "reset_ccu", "");
	expect_refused(&root, "reset_ccu", "r", -EAGAIN, "rate");
}

static void run__without_a_clock_or_busy__works(void **state)
{
	(void)state;
	owner.busy = NULL;
	owner.now = NULL;
	renew(rig->audit);
	for (int i = 0; i < 4; i++)
		expect_done(&root, "reset_device", "");
	expect_refused(&root, "reset_device", "r", -EAGAIN, "rate");
}

/* --- the trail fails -------------------------------------------------------------------------- */

static int only_sync_fails(enum disk_call call, int fd, const char *name)
{
	(void)fd, (void)name;
	return call == DISK_FSYNC ? -EIO : 0;
}

static void run__not_audited__not_done(void **state)
{
	struct fault f = FAULT_NONE;

	(void)state;
	disk_watch = only_sync_fails;
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		assert_int_equal(privileged_run(plane, &root, command_text(i, ""), "r", &f), -EIO);
	assert_non_null(strstr(f.reason, "nothing was done"));
	assert_int_equal(privileged_run(plane, &nobody, "reset_ccu", "r", &f), -EIO);
	assert_int_equal(world.acts, 0);
	disk_watch = NULL;
	assert_int_equal(records(), 0);
	expect_done(&root, "reset_ccu", "");
}

static void run__no_trail__not_done(void **state)
{
	(void)state;
	renew(NULL);
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		assert_int_equal(privileged_run(plane, &root, command_text(i, ""), "r", NULL),
			-EIO);
	assert_int_equal(world.acts, 0);
}

static void run__result_not_audited__told_that_it_was_done(void **state)
{
	struct fault f = FAULT_NONE;

	(void)state;
	world.disk_fails_in_act = true;
	assert_int_equal(privileged_run(plane, &root, "reset_ccu", "r", &f), -EIO);
	assert_int_equal(world.acts, 1);
	assert_non_null(strstr(f.reason, "WAS carried out"));
	disk_watch = NULL;
	expect_last("decision", "intent");
	world.result = -ENODEV;
	assert_int_equal(privileged_run(plane, &root, "reset_ccu", "r", &f), -ENODEV);
}

static void run__device_refuses__its_error_named(void **state)
{
	struct fault f = FAULT_NONE;

	(void)state;
	world.device = NPU_DEVICE_BUSY;
	assert_int_equal(privileged_run(plane, &root, "reset_ccu", "r", &f), -EBUSY);
	assert_int_equal(f.device, NPU_DEVICE_BUSY);
	expect_last("decision", "failed");
	expect_last("why", npu_error_row(NPU_DEVICE_BUSY)->name);
}

/* --- threads ---------------------------------------------------------------------------------- */

static _Atomic int counted;

static int count_act(void *context, const struct privileged_order *o, struct fault *f)
{
	(void)context, (void)o, (void)f;
	atomic_fetch_add(&counted, 1);
	return 0;
}

#define TRIES 30

static void *try_often(void *failed)
{
	for (int i = 0; i < TRIES; i++) {
		int err = privileged_run(plane, &root, "unload", "r", NULL);

		*(int *)failed += err == -EAGAIN;
		assert_true(err == 0 || err == -EAGAIN);
	}
	return NULL;
}

/* Tokens are not shared: 30 of the 60 pass. */
static void run__threads_at_once__rate_holds(void **state)
{
	pthread_t threads[2];
	int refused[2] = { 0, 0 };

	(void)state;
	owner.act[PRIVILEGED_UNLOAD] = count_act;
	renew(rig->audit);
	atomic_store(&counted, 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, try_often, &refused[i]), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_int_equal(counted, 30);
	assert_int_equal(refused[0] + refused[1], 30);
	rig_sound(rig, "records 1 to 91 ");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(row__every_command__as_the_contract_says),
		TEST(run__who_and_state_and_command__decided_and_audited),
		TEST(run__wrong_words__refused),
		TEST(run__a_slip__nearest_named),
		TEST(run__force__last_word_only),
		TEST(run__reason__one_to_256_printable_bytes),
		TEST(run__arguments__only_their_digest_is_kept),
		TEST(run__act_tells_more__in_the_record_of_a_good_result_alone),
		TEST(run__too_often__refused_till_time_passes),
		TEST(run__a_storm_of_resets__all_locked_until_unlocked),
		TEST(run__refused_for_the_rate__counted_for_the_storm),
		TEST(run__one_level_as_often_as_it_may__never_a_storm),
		TEST(run__refused_often__others_are_not_held_up),
		TEST(run__without_a_clock_or_busy__works),
		TEST(run__not_audited__not_done),
		TEST(run__no_trail__not_done),
		TEST(run__result_not_audited__told_that_it_was_done),
		TEST(run__device_refuses__its_error_named),
		TEST(run__threads_at_once__rate_holds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
