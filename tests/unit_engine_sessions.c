/* Sessions in the engine: what the device is fed, what gives way, and every way out of a job. The
 * fake's next token is the letter of the length, so "abc" goes on with "def", and what is fed shows
 * in the lengths it is told. */
#include "tests/engine_rig.h"

#define ASK(session, prompt, n) \
	"{\"session\":\"" session "\",\"prompt\":\"" prompt "\",\"max_new_tokens\":" #n "}"
#define FIRST ASK("s", "abc", 3) /* leaves 6 tokens, of which the device has 5 */

static struct sessions *table(void)
{
	return engine_sessions(r.engine);
}

static struct session_view look(const char *name)
{
	struct session_view v;

	if (!sessions_find(table(), name, &v))
		fail_msg("no session %s", name);
	return v;
}

static void check_length(const char *name, uint32_t length)
{
	assert_int_equal(look(name).length, length);
	assert_false(look(name).in_use);
}

static void await_idle(const char *name)
{
	int ms = 0;

	while (look(name).in_use && ms++ < PATIENCE_MS)
		nap();
	assert_false(look(name).in_use);
}

static void check_refused(const char *json, int err)
{
	struct job *j;

	assert_int_equal(submit_as(1000, json, &j), err);
	job_put(j);
}

/* The lengths that were told since the log was cleared, kv_update's left out. */
static void check_fed(const char *want)
{
	static char log[1 << 16];
	char got[256] = "", *save, *word;
	size_t n = 0;

	fake_log(log, sizeof log);
	for (word = strtok_r(log, " ", &save); word; word = strtok_r(NULL, " ", &save))
		if (strncmp(word, "cur=", 4) == 0 && n++ % 2 == 0) {
			strcat(got, word + 4);
			strcat(got, " ");
		}
	assert_string_equal(got, want);
}

static void begin(void)
{
	start(&fake_ops);
	await_health(HEALTH_READY);
	check_runs(FIRST, "def\n");
	check_length("s", 6);
	fake_log_clear();
}

/* --- going on --------------------------------------------------------------------------------- */

static void turn__kv_kept__only_what_is_new_is_fed(void **state)
{
	(void)state;
	begin();
	check_runs(ASK("s", "x", 2), "hi\n");
	check_fed("2 1 "); /* the last token of before and the prompt; the first picked */
	check_length("s", 9);
	assert_int_equal(fake_count("kv_allocate"), 0);
	assert_int_equal(fake_count("kv_free"), 0);
}

static void turn__counts_its_own_tokens(void **state)
{
	struct job_view v;
	struct job *j;

	(void)state;
	begin();
	j = submit(ASK("s", "xy", 2));
	check_output(j, "ij\n");
	job_look(j, &v);
	assert_int_equal(v.prompt_tokens, 2);
	assert_int_equal(v.output_tokens, 2);
	job_put(j);
}

static void turn__two_sessions_and_others_on_one_sequence__each_as_if_alone(void **state)
{
	(void)state;
	fake.kv_capacity = 1;
	begin();
	check_runs(ASK("t", "ab", 1), "c\n"); /* s gave way */
	check_runs("{\"prompt\":\"abc\",\"max_new_tokens\":1}", "d\n");
	fake_log_clear();
	check_runs(ASK("s", "x", 2), "hi\n");
	check_fed("4 3 1 "); /* all again */
	check_runs(ASK("t", "x", 1), "e\n");
	assert_int_equal(seen().recoveries, 0);
}

static void room__least_recently_used_gives_way(void **state)
{
	(void)state;
	fake.kv_capacity = 2;
	begin();
	check_runs(ASK("t", "ab", 1), "c\n");
	check_runs(ASK("s", "x", 1), "h\n");  /* 8 tokens */
	check_runs(ASK("u", "ab", 1), "c\n"); /* t gives way */
	assert_true(look("s").generation == 1 && look("t").generation == 0);
	fake_log_clear();
	check_runs(ASK("s", "x", 1), "j\n");
	check_fed("2 ");
}

/* A batch's lines, too, begin when only idle sessions have the device. */
static void room__idle_sessions_have_all__other_jobs_run(void **state)
{
	struct job *j[6];

	(void)state;
	fake.kv_capacity = 2;
	begin();
	check_runs(ASK("t", "ab", 1), "c\n");
	for (int i = 0; i < 6; i++)
		j[i] = submit("{\"prompt\":\"abc\",\"max_new_tokens\":3}");
	for (int i = 0; i < 6; i++) {
		check_output(j[i], "def\n");
		job_put(j[i]);
	}
	check_length("s", 6);
	assert_int_equal(look("s").generation, 0);
}

static void room__kv_that_gives_way_is_not_freed__recovered(void **state)
{
	(void)state;
	fake.kv_capacity = 1;
	begin();
	fake.silent_free = true;
	check_fails(ASK("t", "ab", 1), -EBUSY);
	fake.silent_free = false;
	check_runs(ASK("s", "x", 2), "hi\n");
	assert_int_equal(seen().recoveries, 1);
}

/* The engine's thread has not seen yet that the session is gone, and makes room for a job. */
static void room__removed_session_has_all__gives_way_too(void **state)
{
	struct run_limits limits = { .output_bytes = 4096 };
	struct blob *text = blob_new("abc", 3);
	struct fault f = FAULT_NONE;
	struct request *req = NULL;
	struct run *run = NULL;

	(void)state;
	fake.kv_capacity = 1;
	begin();
	limits.sessions = table();
	assert_int_equal(verdict_parse(JOB_FORMAT_TEXT, text, &req, &f), 0);
	blob_put(text);
	assert_int_equal(sessions_remove(table(), look("s").id), 0); /* nobody wakes the thread */
	assert_true(engine_has_room(r.engine));
	assert_int_equal(run_new(r.engine->generation, &r.engine->model, req, &limits, &run, &f),
		0);
	run->ops->free(run);
}

static void trim__goes_on_behind_the_rest(void **state)
{
	(void)state;
	begin();
	assert_int_equal(sessions_trim(table(), look("s").id, 2), 0);
	check_runs(ASK("s", "x", 2), "de\n");
	check_fed("1 1 ");
	assert_int_equal(fake_count("kv_remove"), 1);
	check_length("s", 5);
	assert_int_equal(sessions_trim(table(), look("s").id, 0), 0);
	check_runs(ASK("s", "abcd", 1), "e\n");
}

static void trim__device_does_not_cut__all_is_fed_again(void **state)
{
	(void)state;
	begin();
	fake.silent_remove = true;
	assert_int_equal(sessions_trim(table(), look("s").id, 2), 0);
	check_runs(ASK("s", "x", 1), "d\n");
	check_fed("3 ");
	assert_int_equal(fake_count("kv_free"), 1);
}

static void remove__kv_is_freed_by_the_engine(void **state)
{
	int ms = 0;

	(void)state;
	begin();
	assert_int_equal(sessions_remove(table(), look("s").id), 0);
	engine_wake(r.engine);
	while (!fake_count("kv_free") && ms++ < PATIENCE_MS)
		nap();
	assert_int_equal(fake_count("kv_free"), 1);
	check_runs(FIRST, "def\n"); /* another one of that name */
}

static void context__session_and_more_than_it__told(void **state)
{
	struct job *j;
	struct job_view v;

	(void)state;
	begin();
	j = submit(ASK("s", "xxx", 8));
	check_error(j, JOB_FAILED, -E2BIG);
	job_look(j, &v);
	assert_non_null(strstr(v.fault.reason, "the session's 6 tokens, the prompt's 3"));
	job_put(j);
	j = submit(ASK("s", "xxxxxxxxxx", 1)); /* no room for another one */
	check_error(j, JOB_FAILED, -E2BIG);
	job_look(j, &v);
	assert_non_null(strstr(v.fault.reason, "the session's 6 tokens, the prompt's 10"));
	job_put(j);
	check_length("s", 6);
	check_runs("{\"session\":\"s\",\"prompt\":\"xxx\"}", "jklmnop\n"); /* up to the context */
	check_length("s", 16);
	check_fails(ASK("s", "x", 1), -E2BIG);
}

/* --- other models and recoveries -------------------------------------------------------------- */

static void swap__between_turns__the_same_text_and_the_session_s_model(void **state)
{
	struct job *j;
	struct job_view v;

	(void)state;
	fake_store_new(r.store);
	fake_store_add(r.store, "alpha", fake_llm_template, NULL, 0);
	fake_store_add(r.store, "beta", fake_llm_template, NULL, 0);
	start(&fake_store_ops);
	await_health(HEALTH_READY);
	check_runs("{\"session\":\"s\",\"model\":\"beta\",\"prompt\":\"abc\",\"max_new_tokens\":3}",
		"def\n");
	check_runs("{\"prompt\":\"abc\",\"max_new_tokens\":1}", "d\n"); /* alpha, the default */
	check_refused("{\"session\":\"s\",\"model\":\"alpha\",\"prompt\":\"x\"}", -EINVAL);
	fake_log_clear();
	j = submit(ASK("s", "x", 2));
	check_output(j, "hi\n");
	job_look(j, &v);
	assert_string_equal(v.model_alias, "beta");
	assert_int_equal(v.generation, 4);
	check_fed("4 3 1 ");
	job_put(j);
}

static void recovery__between_turns__the_same_text(void **state)
{
	(void)state;
	begin();
	fake_fail("wait", 1, NPU_DEVICE_CRASH);
	check_fails("{\"prompt\":\"abc\"}", -EIO);
	await_health(HEALTH_READY);
	check_runs(ASK("s", "x", 2), "hi\n");
}

/* --- what a bad end leaves -------------------------------------------------------------------- */

static void fail__in_the_second_step__cut_back(void **state)
{
	(void)state;
	begin();
	fake_fail("infer", 3, NPU_INVALID_VALUE); /* the prompt's two went well */
	check_fails(ASK("s", "x", 3), -EINVAL);
	check_length("s", 6);
	assert_int_equal(fake_count("kv_remove"), 2); /* the step's token, then the prompt's */
	fake_log_clear();
	check_runs(ASK("s", "xyz", 1), "j\n");
	check_fed("3 "); /* the sixth token had been fed */
}

static void fail__and_not_cut_back__all_is_fed_again(void **state)
{
	(void)state;
	begin();
	fake.silent_remove = true;
	fake_fail("infer", 3, NPU_INVALID_VALUE);
	check_fails(ASK("s", "x", 3), -EINVAL);
	check_length("s", 6);
	fake_log_clear();
	check_runs(ASK("s", "xyz", 1), "j\n");
	check_fed("4 4 1 ");
}

static void fail__crash_in_a_turn__as_before_after_the_recovery(void **state)
{
	(void)state;
	begin();
	fake_fail("wait", 1, NPU_DEVICE_CRASH);
	check_fails(ASK("s", "x", 3), -EIO);
	await_health(HEALTH_READY);
	check_length("s", 6);
	check_runs(ASK("s", "x", 2), "hi\n");
}

/* The run had offered its tokens. */
static void fail__output_cannot_be_kept__as_before(void **state)
{
	(void)state;
	config.output_bytes = 60;
	begin();
	check_fails("{\"session\":\"s\",\"prompt\":\"x\",\"max_new_tokens\":2,\"output\":\"json\"}",
		-EFBIG);
	check_length("s", 6);
	fake_log_clear();
	check_runs(ASK("s", "xyz", 1), "j\n");
	check_fed("3 ");
}

static void fail__first_job__no_session_is_left(void **state)
{
	struct session_view v;

	(void)state;
	start(&fake_ops);
	await_health(HEALTH_READY);
	check_fails(ASK("s", "abcdefghijklmnopq", 1), -E2BIG);
	assert_false(sessions_find(table(), "s", &v));
}

/* --- ways out --------------------------------------------------------------------------------- */

static void second_job__while_one_waits_or_runs__busy(void **state)
{
	struct job *j;

	(void)state;
	begin();
	fake_hold();
	j = submit(ASK("s", "x", 2));
	check_refused(ASK("s", "y", 2), -EBUSY);
	fake_await_held();
	check_refused(ASK("s", "y", 2), -EBUSY);
	fake_let_go();
	check_output(j, "hi\n");
	check_runs(ASK("s", "y", 1), "k\n"); /* at once: free before the end can be seen */
	job_put(j);
}

static void done__each_time_at_once__free(void **state)
{
	(void)state;
	start(&fake_ops);
	for (int i = 0; i < 200; i++) {
		check_runs(ASK("s", "abc", 3), "def\n");
		check_runs(ASK("s", "x", 2), "hi\n");
		assert_int_equal(sessions_trim(table(), look("s").id, 0), 0);
	}
}

static void cancel__queued__free_at_once(void **state)
{
	struct job *other, *j;

	(void)state;
	config.max_active = 1;
	begin();
	fake_hold();
	other = submit("{\"prompt\":\"abc\",\"max_new_tokens\":1}");
	fake_await_held();
	j = submit(ASK("s", "x", 2));
	engine_cancel(r.engine, j);
	check_length("s", 6);
	job_put(j);
	j = submit(ASK("s", "xy", 1));
	fake_let_go();
	check_output(other, "d\n");
	check_output(j, "i\n");
	job_put(j);
	job_put(other);
}

static void cancel__on_the_device__free_when_it_has_left(void **state)
{
	struct job *j;

	(void)state;
	begin();
	fake_hold();
	j = submit(ASK("s", "x", 3));
	fake_await_held();
	engine_cancel(r.engine, j);
	assert_int_equal(job_state(j), JOB_CANCELLED);
	check_refused(ASK("s", "y", 2), -EBUSY);
	fake_let_go();
	await_idle("s");
	check_length("s", 6);
	fake_log_clear();
	check_runs(ASK("s", "y", 2), "hi\n");
	check_fed("1 1 "); /* cut back to the session's six tokens */
	job_put(j);
}

static void deadline__queued__free_at_once(void **state)
{
	struct job *other, *j;

	(void)state;
	config.max_active = 1;
	begin();
	fake_hold();
	other = submit("{\"prompt\":\"abc\",\"max_new_tokens\":1}");
	fake_await_held();
	j = submit("{\"session\":\"s\",\"prompt\":\"x\",\"deadline_ms\":20}");
	check_error(j, JOB_EXPIRED, -ETIMEDOUT);
	check_length("s", 6);
	fake_let_go();
	check_output(other, "d\n");
	job_put(j);
	job_put(other);
	check_runs(ASK("s", "x", 2), "hi\n");
}

static void deadline__on_the_device__free_when_it_has_left(void **state)
{
	struct job *j;

	(void)state;
	begin();
	fake_hold();
	j = submit("{\"session\":\"s\",\"prompt\":\"x\",\"deadline_ms\":30}");
	fake_await_held();
	check_error(j, JOB_EXPIRED, -ETIMEDOUT);
	check_refused(ASK("s", "y", 2), -EBUSY);
	fake_let_go();
	await_idle("s");
	check_length("s", 6);
	check_runs(ASK("s", "y", 2), "hi\n");
	job_put(j);
}

static void fail__the_model_itself__free(void **state)
{
	struct job *a, *b;

	(void)state;
	config.max_active = 1;
	begin();
	fake_hold();
	a = submit("{\"prompt\":\"abc\"}");
	fake_await_held();
	b = submit(ASK("s", "x", 2));
	fake_fail("infer", 1, NPU_DEVICE_CRASH);
	fake_fail("create_calbin", 0, NPU_INVALID_CALBIN);
	fake_let_go();
	check_error(b, JOB_FAILED, -EBADMSG);
	check_length("s", 6);
	await_health(HEALTH_FAILED);
	job_put(a);
	job_put(b);
}

static void refused__queue_full__free(void **state)
{
	struct session_view v;
	struct job *other;

	(void)state;
	config.max_active = 1;
	config.queue_limit = 1;
	begin();
	fake_hold();
	other = submit("{\"prompt\":\"abc\",\"max_new_tokens\":1}");
	fake_await_held();
	struct job *waits = submit("{\"prompt\":\"abc\",\"max_new_tokens\":1}");
	check_refused(ASK("s", "x", 2), -EAGAIN);
	check_refused(ASK("new", "x", 2), -EAGAIN);
	check_length("s", 6);
	assert_false(sessions_find(table(), "new", &v));
	fake_let_go();
	check_output(other, "d\n");
	check_output(waits, "d\n");
	job_put(other);
	job_put(waits);
}

static void *let_go_later(void *arg)
{
	(void)arg;
	usleep(100000);
	fake_let_go();
	return NULL;
}

static void stop__waiting_and_on_the_device__as_before(void **state)
{
	struct job *running, *waiting;
	pthread_t thread;

	(void)state;
	config.max_active = 1;
	begin();
	check_runs(ASK("t", "ab", 1), "c\n");
	fake_hold();
	running = submit(ASK("s", "x", 3));
	fake_await_held();
	waiting = submit(ASK("t", "x", 3));
	pthread_create(&thread, NULL, let_go_later, NULL);
	engine_stop(r.engine, 0);
	pthread_join(thread, NULL);
	r.stopped = true;
	check_length("s", 6);
	check_length("t", 3);
	check_error(running, JOB_FAILED, -ESHUTDOWN);
	check_error(waiting, JOB_FAILED, -ESHUTDOWN);
	job_put(running);
	job_put(waiting);
}

static void of_another_user__refused(void **state)
{
	struct job *j;

	(void)state;
	begin();
	assert_int_equal(sessions_make(table(), 7, 7, "theirs"), 0);
	check_refused(ASK("theirs", "x", 2), -EACCES);
	j = submit(ASK("s", "x", 2));
	check_output(j, "hi\n");
	job_put(j);
}

/* --- all at once ------------------------------------------------------------------------------ */

#define STORMERS 4
#define ROUNDS   150

struct stormer {
	pthread_t thread;
	unsigned seed;
	char own[8];
	const char *wrong; /* NULL: nothing was */
};

static void wait_idle(const char *name, struct session_view *ret)
{
	for (int ms = 0; ms < PATIENCE_MS; ms++) {
		if (!sessions_find(table(), name,
			    ret)) /* it was its first job's, and went with it */
			*ret = (struct session_view){ .length = 0 };
		if (!ret->in_use)
			return;
		nap();
	}
}

/* A session that all work with: whatever comes, it ends. */
static void disturb(struct stormer *s)
{
	struct session_view v;
	struct job *j;
	int err = submit_as(1000, ASK("shared", "ab", 2), &j);

	if (err && err != -EBUSY)
		s->wrong = "refused";
	if (!err && rand_r(&s->seed) % 2)
		engine_cancel(r.engine, j);
	if (!err)
		await_end(j);
	job_put(j);
	if (!sessions_find(table(), "shared", &v))
		return;
	sessions_trim(table(), v.id, v.length / 2);
	if (rand_r(&s->seed) % 3 == 0 && sessions_remove(table(), v.id) == 0)
		engine_wake(r.engine);
}

/* One's own: what a job says is always what follows the session's length. */
static void talk(struct stormer *s)
{
	struct session_view v = { .length = 0 };
	char json[128], want[4], got[8] = "";
	enum job_state state;
	uint32_t before;
	struct job *j;

	if (sessions_find(table(), s->own, &v) && v.length > 8)
		sessions_trim(table(), v.id, rand_r(&s->seed) % 5);
	sessions_find(table(), s->own, &v);
	before = v.length;
	snprintf(json, sizeof json, "{\"session\":\"%s\",\"prompt\":\"ab\",\"max_new_tokens\":2%s}",
		s->own, rand_r(&s->seed) % 4 ? "" : ",\"deadline_ms\":1");
	if (submit_as(1000, json, &j))
		s->wrong = "one's own is refused";
	if (rand_r(&s->seed) % 4 == 0)
		engine_cancel(r.engine, j);
	state = await_end(j);
	wait_idle(s->own, &v);
	snprintf(want, sizeof want, "%c%c\n", 'a' + before + 2, 'a' + before + 3);
	if (state == JOB_DONE && job_read(j, JOB_OUT, 0, got, sizeof got - 1) != 3)
		s->wrong = "no output";
	if (state == JOB_DONE && strcmp(got, want) != 0)
		s->wrong = "another text";
	if (v.in_use || v.length != before + (state == JOB_DONE ? 4 : 0))
		s->wrong = "another length";
	job_put(j);
}

static void *storm(void *arg)
{
	struct stormer *s = arg;

	for (int i = 0; i < ROUNDS && !s->wrong; i++) {
		talk(s);
		disturb(s);
	}
	return NULL;
}

static void storm__many_threads_on_little_room__every_text_right_and_all_room_back(void **state)
{
	struct stormer s[STORMERS];
	struct session_view v = { .id = 0 };

	(void)state;
	fake.kv_capacity = 3;
	start(&fake_ops);
	await_health(HEALTH_READY);
	for (unsigned i = 0; i < STORMERS; i++) {
		s[i] = (struct stormer){ .seed = i + 1 };
		snprintf(s[i].own, sizeof s[i].own, "own%u", i);
		pthread_create(&s[i].thread, NULL, storm, &s[i]);
	}
	for (int i = 0; i < STORMERS; i++)
		pthread_join(s[i].thread, NULL);
	for (int i = 0; i < STORMERS; i++)
		if (s[i].wrong)
			fail_msg("%s: %s", s[i].own, s[i].wrong);
	while (sessions_next(table(), v.id, &v)) {
		await_idle(v.name);
		sessions_remove(table(), v.id);
	}
	engine_wake(r.engine);
	for (int ms = 0; sessions_has_removed(table()) && ms < PATIENCE_MS; ms++)
		nap();
	fake.kv_capacity = 1; /* a sequence that was forgotten would be in its way */
	check_runs("{\"prompt\":\"abc\",\"max_new_tokens\":1}", "d\n");
	assert_int_equal(seen().recoveries, 0);
	assert_int_equal(health_state(&r.health), HEALTH_READY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(turn__kv_kept__only_what_is_new_is_fed),
		TEST(turn__counts_its_own_tokens),
		TEST(turn__two_sessions_and_others_on_one_sequence__each_as_if_alone),
		TEST(room__least_recently_used_gives_way),
		TEST(room__idle_sessions_have_all__other_jobs_run),
		TEST(room__removed_session_has_all__gives_way_too),
		TEST(room__kv_that_gives_way_is_not_freed__recovered),
		TEST(trim__goes_on_behind_the_rest),
		TEST(trim__device_does_not_cut__all_is_fed_again),
		TEST(remove__kv_is_freed_by_the_engine),
		TEST(context__session_and_more_than_it__told),
		TEST(swap__between_turns__the_same_text_and_the_session_s_model),
		TEST(recovery__between_turns__the_same_text),
		TEST(fail__in_the_second_step__cut_back),
		TEST(fail__and_not_cut_back__all_is_fed_again),
		TEST(fail__crash_in_a_turn__as_before_after_the_recovery),
		TEST(fail__output_cannot_be_kept__as_before),
		TEST(fail__first_job__no_session_is_left),
		TEST(second_job__while_one_waits_or_runs__busy),
		TEST(done__each_time_at_once__free),
		TEST(cancel__queued__free_at_once),
		TEST(cancel__on_the_device__free_when_it_has_left),
		TEST(deadline__queued__free_at_once),
		TEST(deadline__on_the_device__free_when_it_has_left),
		TEST(fail__the_model_itself__free),
		TEST(refused__queue_full__free),
		TEST(stop__waiting_and_on_the_device__as_before),
		TEST(of_another_user__refused),
		TEST(storm__many_threads_on_little_room__every_text_right_and_all_room_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
