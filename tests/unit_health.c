#include "core/engine/health.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/device_layer.h"
#include "core/device_null.h"
#include "tests/fake_device.h"

static struct health h;

static int up(void **state)
{
	(void)state;
	health_init(&h, &fake_ops, NULL);
	return 0;
}

static int down(void **state)
{
	(void)state;
	health_done(&h);
	return 0;
}

static bool says(const char *line)
{
	AUTO_BUF struct buf text = BUF_INIT;
	char whole[256];

	health_render(&h, 3, 1, &text);
	snprintf(whole, sizeof whole, "\n%s\n", line);
	return strstr(buf_text(&text), whole) != NULL;
}

static bool says_anywhere(const char *words)
{
	AUTO_BUF struct buf text = BUF_INIT;

	health_render(&h, 3, 1, &text);
	return strstr(buf_text(&text), words) != NULL;
}

static void check_first_word(const char *word)
{
	AUTO_BUF struct buf text = BUF_INIT;

	health_render(&h, 0, 0, &text);
	assert_int_equal(strncmp(buf_text(&text), word, strlen(word)), 0);
	assert_int_equal(buf_text(&text)[strlen(word)], '\n');
}

static void render__each_state__its_word_alone_on_the_first_line(void **state)
{
	static const char *const words[] = { "starting", "ready", "degraded", "draining",
		"recovering", "failed" };

	(void)state;
	check_first_word("starting");
	for (int s = 0; s < HEALTH_STATE_COUNT; s++) {
		health_set(&h, (enum health_state)s, NULL, NULL);
		check_first_word(words[s]);
		assert_int_equal(health_state(&h), s);
		assert_int_equal(health_is_ready(&h), s == HEALTH_READY || s == HEALTH_DEGRADED);
	}
}

static void render__nothing_yet__says_so(void **state)
{
	(void)state;
	assert_true(says("reason: verifying artifacts"));
	assert_true(says("device: fake"));
	assert_true(says("model: none"));
	assert_true(says("generation: 0"));
	assert_true(says("last_golden: never"));
	assert_true(says("queued: 3"));
	assert_true(says("running: 1"));
	assert_true(says("last_progress_seconds_ago: never"));
	assert_true(says("last_error: none"));
	assert_true(says("recoveries: 0"));
	assert_true(says("parallel: off"));
}

static void set_fault__device_error__told_with_its_action(void **state)
{
	struct fault f = FAULT_NONE;

	(void)state;
	fault_from_device(&f, NPU_DEVICE_CRASH, "computing");
	health_set_fault(&h, HEALTH_RECOVERING, &f);
	health_note_recovery(&h);
	health_set_generation(&h, "m", 9, HEALTH_GOLDEN);
	check_first_word("recovering");
	assert_true(says("last_error: DeviceCrash"));
	assert_true(says("recoveries: 1"));
	assert_true(says("model: m"));
	assert_true(says("generation: 9"));
	assert_false(says("last_golden: never"));
	health_set(&h, HEALTH_READY, NULL, NULL);
	assert_false(says("reason: verifying artifacts"));
	assert_true(says("last_error: DeviceCrash")); /* the last one stays */
	health_set_generation(&h, NULL, 0, HEALTH_NO_GOLDEN);
	assert_true(says("model: none"));
}

static void set__texts_too_long__cut(void **state)
{
	char text[1000];

	(void)state;
	memset(text, 'x', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	health_set(&h, HEALTH_FAILED, text, text);
	health_set_generation(&h, text, 1, HEALTH_GOLDEN_KV);
	assert_int_equal(strlen(h.reason), sizeof h.reason - 1);
	assert_int_equal(strlen(h.action), sizeof h.action - 1);
	assert_int_equal(strlen(h.model), sizeof h.model - 1);
}

#define STALLED "stalled: yes, jobs wait and the device has given nothing for long"

static void progress__long_ago_with_jobs__stalled(void **state)
{
	(void)state;
	health_note_entry(&h, clock_mono() - 31 * NS_PER_SEC);
	assert_true(says(STALLED));
	health_note_progress(&h);
	assert_false(says(STALLED));
	h.last_progress -= 31 * NS_PER_SEC;
	assert_true(says(STALLED));
	health_note_entry(&h, clock_mono()); /* it was idle, not stalled */
	assert_false(says(STALLED));
}

static void away__known__told_with_its_seconds(void **state)
{
	(void)state;
	assert_false(says_anywhere("quarantine:"));
	health_set_away(&h, clock_mono() - 5 * NS_PER_SEC);
	assert_true(says_anywhere("quarantine: an inference has not come back for 5 seconds"));
	health_set_away(&h, 0);
	assert_false(says_anywhere("quarantine:"));
}

static void recovery__lowered_and_cooling__told(void **state)
{
	(void)state;
	assert_false(says_anywhere("admission:") || says_anywhere("next_try:"));
	health_set_room(&h, 2, 8);
	health_set_next_try(&h, 1764444000 * NS_PER_SEC);
	assert_true(says("admission: lowered, 2 sequences at once instead of 8"));
	assert_true(says_anywhere("next_try: 2025-11-29T19:20:00"));
}

static void version__open_or_not__known_or_unknown(void **state)
{
	static const struct device_info info = { "0.7.6", "d1", "f1", "a device" };
	AUTO_BUF struct buf before = BUF_INIT, after = BUF_INIT;

	(void)state;
	health_render_version(&h, "1.2", &before);
	assert_non_null(strstr(buf_text(&before), "npufs: 1.2\n"));
	assert_non_null(strstr(buf_text(&before), "runtime: unknown\n"));
	health_set_device(&h, &info);
	health_render_version(&h, "1.2", &after);
	assert_non_null(strstr(buf_text(&after), "runtime: 0.7.6\n"));
	assert_non_null(strstr(buf_text(&after), "driver: d1\n"));
	assert_non_null(strstr(buf_text(&after), "firmware: f1\n"));
	assert_null(strstr(buf_text(&after), "measuring"));
}

static void render__measuring_backend__warns(void **state)
{
	struct health null;
	AUTO_BUF struct buf text = BUF_INIT;

	(void)state;
	health_init(&null, &device_null_ops, "echo");
	health_render(&null, 0, 0, &text);
	assert_non_null(strstr(buf_text(&text), "no inference"));
	health_done(&null);
}

static void render__planted_faults__said_in_health_and_version(void **state)
{
	AUTO_BUF struct buf text = BUF_INIT, version = BUF_INIT, before = BUF_INIT;
	struct health planted;

	(void)state;
	health_render(&h, 0, 0, &before);
	assert_null(strstr(buf_text(&before), "planted"));
	health_init(&planted, device_layer_over(&fake_ops), NULL);
	health_render(&planted, 0, 0, &text);
	health_render_version(&planted, "1", &version);
	assert_non_null(strstr(buf_text(&text), "\ndevice: fake+fault\nnote: faults are planted"));
	assert_non_null(
		strstr(buf_text(&version), "\ndevice: fake+fault\nnote: faults are planted"));
	health_done(&planted);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, up, down)

static void set_parallel__any_text__its_line(void **state)
{
	(void)state;
	health_set_parallel(&h, "one in flight, evidence is stale: firmware");
	assert_true(says("parallel: one in flight, evidence is stale: firmware"));
	assert_false(says("parallel: off"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(render__each_state__its_word_alone_on_the_first_line),
		TEST(render__nothing_yet__says_so),
		TEST(set_fault__device_error__told_with_its_action),
		TEST(set__texts_too_long__cut),
		TEST(progress__long_ago_with_jobs__stalled),
		TEST(away__known__told_with_its_seconds),
		TEST(recovery__lowered_and_cooling__told),
		TEST(version__open_or_not__known_or_unknown),
		TEST(render__measuring_backend__warns),
		TEST(set_parallel__any_text__its_line),
		TEST(render__planted_faults__said_in_health_and_version),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
