/* Mount options: values, ranges, refusals, and what mount(8) adds. */
#include "mountopts/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>

static struct mount_options parsed(const char *list)
{
	struct mount_options o;
	struct fault f = FAULT_NONE;

	options_defaults(&o);
	if (options_parse(list, &o, &f))
		fail_msg("\"%s\" refused: %s; %s", list, f.reason, f.action);
	return o;
}

static struct fault refusal(const char *list)
{
	struct mount_options o, before;
	struct fault f = FAULT_NONE;

	options_defaults(&o);
	before = o;
	if (options_parse(list, &o, &f) != -EINVAL || f.err != -EINVAL)
		fail_msg("\"%s\" not refused with EINVAL", list);
	assert_memory_equal(&o, &before, sizeof o);
	assert_true(f.reason[0] && f.action[0]);
	return f;
}

static void assert_contains(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("\"%s\" does not contain \"%s\"", text, part);
}

static void options_defaults__fresh__documented_values(void **state)
{
	struct mount_options o;

	(void)state;
	memset(&o, 0xff, sizeof o);
	options_defaults(&o);
	assert_string_equal(o.device, "sim");
	assert_string_equal(o.model, "");
	assert_int_equal(o.threads, 1);
	assert_int_equal(o.sim_delay_us, 0);
	assert_int_equal(o.kv_sequences, 64);
	assert_int_equal(o.max_active, 8);
	assert_int_equal(o.queue, 100000);
	assert_int_equal(o.user_queue, 50000);
	assert_int_equal(o.request_size, 4194304);
	assert_int_equal(o.output_size, 16777216);
	assert_int_equal(o.max_files, 1000000);
	assert_int_equal(o.batch_size, 268435456);
	assert_int_equal(o.max_bytes, 17179869184);
	assert_int_equal(o.user_files, 1000000);
	assert_int_equal(o.user_bytes, 8589934592);
	assert_int_equal(o.keep_us, 0);
	assert_int_equal(o.max_depth, 16);
	assert_int_equal(o.jobs_umask, 63);
	assert_int_equal(o.log, OPTION_LOG_AUTO);
	assert_int_equal(o.drain_us, 3000000);
	assert_false(o.durable);
	assert_false(o.private);
	assert_false(o.foreground);
	assert_false(o.debug);
}

static void options_parse__every_type__stored(void **state)
{
	struct mount_options o =
		parsed("threads=64,request_size=256M,max_bytes=3T,sim_delay=250us,"
		       "jobs_umask=027,log=syslog,private,device=fault,model=tiny-v1.2,drain=2m");

	(void)state;
	assert_int_equal(o.threads, 64);
	assert_int_equal(o.request_size, 268435456);
	assert_int_equal(o.max_bytes, 3298534883328);
	assert_int_equal(o.sim_delay_us, 250);
	assert_int_equal(o.jobs_umask, 23);
	assert_int_equal(o.log, OPTION_LOG_SYSLOG);
	assert_true(o.private);
	assert_false(o.foreground);
	assert_string_equal(o.device, "fault");
	assert_string_equal(o.model, "tiny-v1.2");
	assert_int_equal(o.drain_us, 120000000);
	assert_int_equal(o.queue, 100000);
}

static void options_parse__each_unit__scaled(void **state)
{
	static const struct {
		const char *list;
		uint64_t want;
	} sizes[] = { { "output_size=2048", 2048 }, { "output_size=3k", 3072 },
		{ "output_size=3K", 3072 }, { "output_size=2M", 2097152 },
		{ "output_size=1G", 1073741824 } };
	static const struct {
		const char *list;
		uint64_t want;
	} times[] = { { "drain=7", 7000000 }, { "drain=7us", 7 }, { "drain=7ms", 7000 },
		{ "drain=7s", 7000000 }, { "drain=7m", 420000000 }, { "drain=1h", 3600000000 },
		{ "drain=0d", 0 } };

	(void)state;
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		assert_int_equal(parsed(sizes[i].list).output_size, sizes[i].want);
	for (size_t i = 0; i < sizeof times / sizeof *times; i++)
		assert_int_equal(parsed(times[i].list).drain_us, times[i].want);
}

static void options_parse__limits__inclusive(void **state)
{
	(void)state;
	assert_int_equal(parsed("threads=1").threads, 1);
	assert_int_equal(parsed("queue=10000000").queue, 10000000);
	assert_int_equal(parsed("jobs_umask=0777").jobs_umask, 511);
	assert_int_equal(parsed("sim_delay=10s").sim_delay_us, 10000000);
	refusal("threads=0");
	refusal("threads=65");
	refusal("queue=10000001");
	refusal("jobs_umask=1000");
	refusal("sim_delay=10001ms");
	refusal("device=");
}

static void options_parse__bad_value__name_value_range(void **state)
{
	struct fault f = refusal("drain=1s,threads=99");

	(void)state;
	assert_string_equal(f.field, "threads");
	assert_contains(f.reason, "threads");
	assert_contains(f.reason, "99");
	assert_contains(f.reason, "1..64");
	f = refusal("log=file");
	assert_contains(f.reason, "file");
	assert_contains(f.action, "auto|stderr|syslog");
}

static void options_parse__malformed_value__refused(void **state)
{
	static const char *const bad[] = { "threads=", "threads", "threads=-1", "threads=+1",
		"threads= 1", "threads=1 ", "threads=0x1", "threads=1k", "threads=1.5",
		"threads=18446744073709551617", "threads=4294967297", "request_size=4MB",
		"request_size=M", "max_bytes=18014398509481985k", "drain=3sec", "drain=1.5s",
		"jobs_umask=8", "jobs_umask=08", "log=", "log=auto|stderr", "log=AUTO", "private=1",
		"foreground=", "debug=no", "device" };

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		refusal(bad[i]);
}

static void options_parse__string_too_long__refused(void **state)
{
	char list[100] = "model=";

	(void)state;
	memset(list + 6, 'a', 64);
	assert_int_equal(strlen(parsed(list).model), 64);
	list[70] = 'a';
	refusal(list);
}

static void options_parse__unknown__nearest_name(void **state)
{
	struct fault f = refusal("thread=2");

	(void)state;
	assert_string_equal(f.field, "thread");
	assert_contains(f.reason, "\"thread\"");
	assert_contains(f.action, "\"threads\"");
	assert_contains(refusal("nofial").action, "\"nofail\"");
	assert_contains(refusal("zzzzzzzzzzzzzz=1").action, "--help");
	refusal("=1");
	refusal("=");
	refusal("Threads=1");
}

static void options_parse__belongs_to_mount__ignored(void **state)
{
	static const char *const lists[] = { "nofail", "_netdev", "noauto", "user", "users",
		"user=anna", "x-systemd.automount", "x-systemd.requires=net.target",
		"X-mount.mkdir=0755", "defaults", "nonempty", "auto,exec", "comment=x",
		"comment=", "rw,nosuid,nodev,noexec,relatime", "allow_other",
		"owner,group,nouser,_rnetdev,iversion,dev,suid,async,sync",
		"atime,noatime,strictatime,nodiratime", NULL };
	struct mount_options plain = parsed("");

	(void)state;
	for (size_t i = 0; lists[i]; i++) {
		struct mount_options o = parsed(lists[i]);

		assert_memory_equal(&o, &plain, sizeof o);
	}
	refusal("nofail=1");
	refusal("comment");
}

static void options_parse__known_but_impossible__says_why(void **state)
{
	(void)state;
	assert_contains(refusal("ro").reason, "read-only");
	assert_contains(refusal("remount").reason, "fixed");
	refusal("default_permissions");
	refusal("allow_root");
}

static void options_parse__called_again__adds_and_overrides(void **state)
{
	struct mount_options o = parsed("threads=2,threads=3,debug");

	(void)state;
	assert_int_equal(o.threads, 3);
	assert_int_equal(options_parse("queue=7,threads=4", &o, NULL), 0);
	assert_int_equal(o.threads, 4);
	assert_int_equal(o.queue, 7);
	assert_true(o.debug);
	assert_int_equal(options_parse(NULL, &o, NULL), 0);
	assert_int_equal(options_parse("queue=8,nonsense", &o, NULL), -EINVAL);
	assert_int_equal(o.queue, 7);
}

static void options_parse__empty_items__skipped(void **state)
{
	(void)state;
	assert_int_equal(parsed(",,threads=2,,").threads, 2);
	assert_int_equal(parsed("").threads, 1);
}

static void options_parse__escapes__part_of_the_value(void **state)
{
	(void)state;
	assert_string_equal(parsed("model=a\\,b,threads=2").model, "a,b");
	assert_int_equal(parsed("model=a\\,b,threads=2").threads, 2);
	assert_string_equal(parsed("model=a\\\\,threads=5").model, "a\\");
	assert_int_equal(parsed("model=a\\\\,threads=5").threads, 5);
	assert_string_equal(parsed("model=a\\n").model, "a\\n");
	assert_string_equal(parsed("model=a\\").model, "a\\");
	assert_string_equal(parsed("model=a=b").model, "a=b");
	parsed("comment=one\\,threads=nonsense");
}

static void options_rows__each__fits_the_structure(void **state)
{
	size_t n = 0;
	const struct option_row *rows = options_rows(&n);

	(void)state;
	assert_true(n > 0);
	for (size_t i = 0; i < n; i++) {
		assert_true(rows[i].offset < sizeof(struct mount_options));
		assert_true(rows[i].help[0]);
		for (size_t j = 0; j < i; j++)
			assert_string_not_equal(rows[i].name, rows[j].name);
		for (const char *const *name = options_ignored(); *name; name++)
			assert_string_not_equal(rows[i].name, *name);
	}
}

static void options_help__all__every_name_in_narrow_lines(void **state)
{
	AUTO_BUF struct buf b = BUF_INIT;
	size_t n = 0, width = 0;
	const struct option_row *rows = options_rows(&n);

	(void)state;
	options_help(&b);
	assert_int_equal(buf_error(&b), 0);
	for (size_t i = 0; i < n; i++)
		assert_contains(b.data, rows[i].name);
	assert_contains(b.data, "1k..256M; default 4M");
	assert_contains(b.data, "x-*");
	for (const char *c = b.data; *c; c++) {
		width = *c == '\n' ? 0 : width + 1;
		assert_true(width <= 100);
	}
	assert_int_equal(b.data[b.len - 1], '\n');
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(options_defaults__fresh__documented_values),
		cmocka_unit_test(options_parse__every_type__stored),
		cmocka_unit_test(options_parse__each_unit__scaled),
		cmocka_unit_test(options_parse__limits__inclusive),
		cmocka_unit_test(options_parse__bad_value__name_value_range),
		cmocka_unit_test(options_parse__malformed_value__refused),
		cmocka_unit_test(options_parse__string_too_long__refused),
		cmocka_unit_test(options_parse__unknown__nearest_name),
		cmocka_unit_test(options_parse__belongs_to_mount__ignored),
		cmocka_unit_test(options_parse__known_but_impossible__says_why),
		cmocka_unit_test(options_parse__called_again__adds_and_overrides),
		cmocka_unit_test(options_parse__empty_items__skipped),
		cmocka_unit_test(options_parse__escapes__part_of_the_value),
		cmocka_unit_test(options_rows__each__fits_the_structure),
		cmocka_unit_test(options_help__all__every_name_in_narrow_lines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
