/* The text of /metrics. promtool's verdict is asked for where it is installed. */
#include "core/engine/metrics.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/device.h"
#include "core/engine/health.h"
#include "core/job/job.h"

/* Whether the text has this line. */
static bool has_line(const struct buf *b, const char *line)
{
	size_t n = strlen(line);

	for (const char *at = b->data; at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL)
		if (strncmp(at, line, n) == 0 && at[n] == '\n')
			return true;
	return false;
}

static void assert_line(const char *line)
{
	AUTO_BUF struct buf b = BUF_INIT;

	metrics_render(&b);
	assert_int_equal(buf_error(&b), 0);
	if (!has_line(&b, line))
		fail_msg("no line \"%s\"", line);
}

static int restart(void **state)
{
	(void)state;
	metrics_start("1.2.3");
	return 0;
}

static void metrics_render__nothing_happened__whole_text(void **state)
{
	AUTO_BUF struct buf b = BUF_INIT;

	(void)state;
	metrics_render(&b);
	assert_true(b.len > 0);
	assert_int_equal(b.data[b.len - 1], '\n');
	assert_null(strstr(b.data, "\n\n"));
	assert_true(has_line(&b, "npufs_jobs_accepted_total 0"));
	assert_true(has_line(&b, "# TYPE npufs_jobs_accepted_total counter"));
	assert_true(has_line(&b, "# TYPE npufs_jobs_queued gauge"));
	assert_true(has_line(&b, "npufs_build_info{version=\"1.2.3\"} 1"));
	assert_true(has_line(&b, "npufs_health_state{state=\"starting\"} 1"));
}

static void metrics_add__several__summed(void **state)
{
	(void)state;
	metrics_add(METRIC_OUTPUT_TOKENS, 40);
	metrics_add(METRIC_OUTPUT_TOKENS, 2);
	metrics_add(METRIC_BYTES, 5000000000);
	metrics_add(METRIC_BYTES, -1);
	assert_line("npufs_output_tokens_total 42");
	assert_line("npufs_bytes 4999999999");
	assert_line("npufs_prompt_tokens_total 0");
}

static void metrics_set__again__replaced(void **state)
{
	(void)state;
	metrics_set(METRIC_JOBS_QUEUED, 9);
	metrics_set(METRIC_JOBS_QUEUED, 3);
	assert_line("npufs_jobs_queued 3");
}

static void metrics_add__nanoseconds__shown_as_seconds(void **state)
{
	(void)state;
	metrics_add(METRIC_DEVICE_BUSY, 1500000000);
	metrics_add(METRIC_DEVICE_BUSY, 7);
	assert_line("npufs_device_busy_seconds_total 1.500000007");
}

static void metrics_add_at__ended_jobs__one_line_a_state(void **state)
{
	(void)state;
	metrics_add_at(METRIC_JOBS_FINISHED, JOB_DONE, 1);
	metrics_add_at(METRIC_JOBS_FINISHED, JOB_EXPIRED, 2);
	assert_line("npufs_jobs_finished_total{state=\"done\"} 1");
	assert_line("npufs_jobs_finished_total{state=\"failed\"} 0");
	assert_line("npufs_jobs_finished_total{state=\"cancelled\"} 0");
	assert_line("npufs_jobs_finished_total{state=\"expired\"} 2");
}

static void metrics_device_error__any_code__a_fixed_label(void **state)
{
	(void)state;
	metrics_device_error(NPU_SUCCESS);
	metrics_device_error(NPU_TIMEOUT);
	metrics_device_error((enum npu_error)77);
	metrics_device_error((enum npu_error) - 1);
	assert_line("npufs_device_errors_total{code=\"Timeout\"} 1");
	assert_line("npufs_device_errors_total{code=\"Unknown\"} 2");
}

static void metrics_set__health__exactly_one_state(void **state)
{
	AUTO_BUF struct buf b = BUF_INIT;
	int ones = 0;

	(void)state;
	metrics_set(METRIC_HEALTH_STATE, HEALTH_DRAINING);
	metrics_render(&b);
	assert_true(has_line(&b, "npufs_health_state{state=\"draining\"} 1"));
	for (const char *at = b.data; (at = strstr(at, "npufs_health_state{")); at++)
		ones += strstr(at, "} ")[2] == '1';
	assert_int_equal(ones, 1);
}

static void metrics_start__odd_version__three_escapes_only(void **state)
{
	(void)state;
	metrics_start("a\"b\\c\nd\te'\xc3\xa9");
	assert_line("npufs_build_info{version=\"a\\\"b\\\\c\\nd\te'\xc3\xa9\"} 1");
}

static void metrics_render__device_calls__every_call(void **state)
{
	AUTO_BUF struct buf b = BUF_INIT;
	int lines = 0;

	(void)state;
	metrics_render(&b);
	for (const char *at = b.data; (at = strstr(at, "npufs_device_calls_total{")); at++)
		lines++;
	assert_int_equal(lines, CALL_COUNT);
	assert_true(has_line(&b, "npufs_device_calls_total{call=\"infer\"} 0"));
}

static void metrics_render__promtool__accepts(void **state)
{
	AUTO_BUF struct buf b = BUF_INIT;
	FILE *p;

	(void)state;
	if (system("command -v promtool >/dev/null") != 0) {
		print_message("promtool is not installed\n");
		skip();
	}
	metrics_add(METRIC_JOB_TIME, 123456789);
	metrics_set(METRIC_HEALTH_STATE, HEALTH_READY);
	metrics_render(&b);
	p = popen("promtool check metrics >&2", "w");
	assert_non_null(p);
	assert_int_equal(fwrite(b.data, 1, b.len, p), b.len);
	assert_int_equal(pclose(p), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(metrics_render__nothing_happened__whole_text, restart),
		cmocka_unit_test_setup(metrics_add__several__summed, restart),
		cmocka_unit_test_setup(metrics_set__again__replaced, restart),
		cmocka_unit_test_setup(metrics_add__nanoseconds__shown_as_seconds, restart),
		cmocka_unit_test_setup(metrics_add_at__ended_jobs__one_line_a_state, restart),
		cmocka_unit_test_setup(metrics_device_error__any_code__a_fixed_label, restart),
		cmocka_unit_test_setup(metrics_set__health__exactly_one_state, restart),
		cmocka_unit_test_setup(metrics_start__odd_version__three_escapes_only, restart),
		cmocka_unit_test_setup(metrics_render__device_calls__every_call, restart),
		cmocka_unit_test_setup(metrics_render__promtool__accepts, restart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
