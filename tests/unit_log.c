/* Log lines: one line each, clean, and few. */
#include "core/base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static char caught[200000];
static int saved_stderr, file;

/* What is logged from here on goes to a file. */
static void catch_begin(void)
{
	char name[] = "/tmp/unit_log.XXXXXX";

	file = mkstemp(name);
	assert_true(file >= 0);
	unlink(name);
	saved_stderr = dup(STDERR_FILENO);
	dup2(file, STDERR_FILENO);
}

static const char *catch_end(void)
{
	ssize_t n = pread(file, caught, sizeof caught - 1, 0);

	dup2(saved_stderr, STDERR_FILENO);
	close(saved_stderr);
	close(file);
	assert_true(n >= 0);
	caught[n] = '\0';
	return caught;
}

static size_t lines(const char *text)
{
	size_t n = 0;

	while ((text = strchr(text, '\n'))) {
		text++;
		n++;
	}
	return n;
}

static void log_info__plain__one_line(void **state)
{
	(void)state;
	catch_begin();
	log_info("started with %d models", 3);
	log_error("the device does not answer");
	assert_string_equal(catch_end(),
		"npufs: info: started with 3 models\n"
		"npufs: error: the device does not answer\n");
}

static void log_debug__threshold__kept_back(void **state)
{
	(void)state;
	catch_begin();
	log_debug("one");
	log_open(false, LEVEL_DEBUG);
	log_debug("two");
	log_open(false, LEVEL_WARNING);
	log_info("three");
	log_warning("four");
	log_open(false, LEVEL_INFO);
	assert_string_equal(catch_end(), "npufs: debug: two\nnpufs: warning: four\n");
}

static void log_info__control_bytes_and_bad_utf8__sanitised(void **state)
{
	(void)state;
	catch_begin();
	log_info("%s", "a\nb\tc\x1b[31m\x7f");
	log_info("%s", "\xc3\xa9 \xf0\x9f\x98\x80 \xe2\x82\xac");
	log_info("%s", "bad \xff\xc3 \xed\xa0\x80 end\xe2\x82");
	log_info("%s",
		"csi \xc2\x9b"
		"1m, nbsp \xc2\xa0.");
	assert_string_equal(catch_end(),
		"npufs: info: a?b?c?[31m?\n"
		"npufs: info: \xc3\xa9 \xf0\x9f\x98\x80 \xe2\x82\xac\n"
		"npufs: info: bad ?? ??? end??\n"
		"npufs: info: csi ??1m, nbsp \xc2\xa0.\n");
}

static void log_info__too_long__cut_to_one_line(void **state)
{
	char text[5000];
	const char *got;

	(void)state;
	memset(text, 'x', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	catch_begin();
	log_info("%s", text);
	got = catch_end();
	assert_int_equal(lines(got), 1);
	assert_true(strlen(got) > 900 && strlen(got) < LOG_LINE_MAX + 64);
}

static void log_info__ten_thousand_alike__under_a_hundred_lines(void **state)
{
	uint64_t before = log_dropped();
	const char *got;

	(void)state;
	catch_begin();
	for (int i = 0; i < 10000; i++)
		log_warning("request %d refused", i);
	log_warning("something else");
	got = catch_end();
	assert_true(lines(got) >= 2 && lines(got) < 100);
	assert_int_equal(log_dropped() - before, 10000 - (lines(got) - 1));
	assert_non_null(strstr(got, "request 0 refused\n"));
	assert_non_null(strstr(got, "something else\n"));
}

static void log_emit__after_drops__tells_how_many(void **state)
{
	struct log_rate place = { 0 };

	(void)state;
	for (int i = 0; i < LOG_BURST; i++)
		assert_true(log_rate_pass(&place, 1));
	assert_false(log_rate_pass(&place, 2));
	assert_false(log_rate_pass(&place, 3));
	place.rate.used = 0; /* as if time had passed */
	catch_begin();
	log_emit(&place, LEVEL_INFO, "once more");
	assert_string_equal(catch_end(), "npufs: info: once more (2 like it left out)\n");
	assert_int_equal(place.dropped, 0);
}

static void log_rate_pass__time__burst_then_steady(void **state)
{
	struct log_rate r = { 0 };
	const int64_t sec = 1000000000, start = 5000 * sec;
	int passed = 0;

	(void)state;
	for (int i = 0; i < 100; i++)
		passed += log_rate_pass(&r, start);
	assert_int_equal(passed, LOG_BURST);
	assert_int_equal(r.dropped, 100 - LOG_BURST);
	assert_false(log_rate_pass(&r, start + LOG_REFILL_SEC * sec - 1));
	assert_true(log_rate_pass(&r, start + LOG_REFILL_SEC * sec));
	assert_false(log_rate_pass(&r, start + LOG_REFILL_SEC * sec));
	assert_true(log_rate_pass(&r, start + 3 * LOG_REFILL_SEC * sec));
	assert_true(log_rate_pass(&r, start + 3 * LOG_REFILL_SEC * sec));
	assert_false(log_rate_pass(&r, start + 3 * LOG_REFILL_SEC * sec));
	passed = 0;
	for (int i = 0; i < 100; i++)
		passed += log_rate_pass(&r, start + 100000 * sec);
	assert_int_equal(passed, LOG_BURST);
}

static void log_error__nobody_reads_stderr__does_not_wait(void **state)
{
	int ends[2];
	char fill[4096] = { 0 };
	uint64_t before = log_dropped();

	(void)state;
	assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
	while (write(ends[1], fill, sizeof fill) > 0)
		continue;
	fcntl(ends[1], F_SETFL, 0); /* from now on a write would wait */
	saved_stderr = dup(STDERR_FILENO);
	dup2(ends[1], STDERR_FILENO);
	alarm(20);
	log_error("unheard");
	alarm(0);
	dup2(saved_stderr, STDERR_FILENO);
	close(saved_stderr);
	close(ends[0]);
	close(ends[1]);
	assert_int_equal(log_dropped() - before, 1);
}

static void log_error__reader_of_stderr_is_gone__survives(void **state)
{
	int ends[2];
	uint64_t before = log_dropped();

	(void)state;
	assert_int_equal(pipe(ends), 0);
	close(ends[0]);
	saved_stderr = dup(STDERR_FILENO);
	dup2(ends[1], STDERR_FILENO);
	log_error("to nobody");
	dup2(saved_stderr, STDERR_FILENO);
	close(saved_stderr);
	close(ends[1]);
	assert_int_equal(log_dropped() - before, 1);
}

static void log_close__lines_left_out__told_in_all(void **state)
{
	char want[100];

	(void)state;
	for (int i = 0; i < 2 * LOG_BURST; i++) {
		catch_begin();
		log_info("again");
		catch_end();
	}
	snprintf(want, sizeof want, "npufs: info: %llu messages were left out in all\n",
		(unsigned long long)log_dropped());
	catch_begin();
	log_close();
	assert_string_equal(catch_end(), want);
}

/* --- log_auth, with a /dev of its own in a child ---------------------------------------------- */

static const struct sockaddr_un dev_log = { .sun_family = AF_UNIX, .sun_path = "/dev/log" };

#define NO_NAMESPACE 77

static int own_dev(void)
{
	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
		mount("none", "/dev", "tmpfs", 0, NULL))
		_exit(NO_NAMESPACE);
	return socket(AF_UNIX, SOCK_DGRAM, 0);
}

/* Exits with the line of the step that went wrong, 0 when none has. */
#define STEP(condition) \
	do { \
		if (!(condition)) \
			_exit(__LINE__ % 256 ? __LINE__ % 256 : 1); \
	} while (0)

static void auth_child(void)
{
	char line[2001], got[4096];
	uint64_t before = log_dropped();
	int fd = own_dev();
	ssize_t n;

	log_open(false, LEVEL_INFO);
	log_auth("nobody is there");
	STEP(log_dropped() == before); /* no syslogd: nothing is lost that could have been had */
	STEP(bind(fd, (const struct sockaddr *)&dev_log, sizeof dev_log) == 0);
	memset(line, 'x', sizeof line - 1);
	line[sizeof line - 1] = '\0';
	log_auth(line);
	n = recv(fd, got, sizeof got - 1, MSG_DONTWAIT);
	STEP(n > 2000);
	got[n] = '\0';
	STEP(strncmp(got, "<85>", 4) == 0); /* authpriv, 10, and notice, 5: 10 * 8 + 5 */
	STEP(strcmp(got + n - 2000, line) == 0 && strstr(got, " npufs["));
	alarm(20);
	for (int i = 0; i < 100000 && log_dropped() == before; i++)
		log_auth(line); /* nobody reads */
	STEP(log_dropped() > before);
	_exit(0);
}

static void log_auth__syslog_slow_or_gone__whole_line_and_no_wait(void **state)
{
	int status;
	pid_t child = fork();

	(void)state;
	assert_true(child >= 0);
	if (child == 0)
		auth_child();
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == NO_NAMESPACE)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(log_info__plain__one_line),
		cmocka_unit_test(log_debug__threshold__kept_back),
		cmocka_unit_test(log_info__control_bytes_and_bad_utf8__sanitised),
		cmocka_unit_test(log_info__too_long__cut_to_one_line),
		cmocka_unit_test(log_info__ten_thousand_alike__under_a_hundred_lines),
		cmocka_unit_test(log_emit__after_drops__tells_how_many),
		cmocka_unit_test(log_rate_pass__time__burst_then_steady),
		cmocka_unit_test(log_error__nobody_reads_stderr__does_not_wait),
		cmocka_unit_test(log_error__reader_of_stderr_is_gone__survives),
		cmocka_unit_test(log_auth__syslog_slow_or_gone__whole_line_and_no_wait),
		cmocka_unit_test(log_close__lines_left_out__told_in_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
