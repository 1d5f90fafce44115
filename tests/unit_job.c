/* States, results and waiters. The threaded tests are for ThreadSanitizer as much as for the eye. */
#include "core/job/job.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define SHA_OF_ABC "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

static const struct job_outcome stop = { .prompt_tokens = 2,
	.output_tokens = 3,
	.finish_reason = "stop",
	.seed_known = true,
	.seed = 9 };

static struct job *queued(const char *text)
{
	struct job_order o = { .request = blob_new(text, strlen(text)),
		.model = 1,
		.priority = 5,
		.deadline_ms = 10,
		.stream = true };
	struct job *j = job_new(1000, JOB_FORMAT_TEXT, NULL, 0);

	assert_int_equal(job_queue(j, &o), 0);
	blob_put(o.request);
	return j;
}

static struct job *running(const char *text)
{
	struct job *j = queued(text);
	struct blob *request;

	assert_int_equal(job_content(j, &request), 0);
	assert_true(job_start(j, 4));
	assert_string_equal(blob_bytes(request), text);
	blob_put(request);
	return j;
}

static struct fault why(int err)
{
	struct fault f = FAULT_NONE;

	fault_set(&f, err, "do it", "because");
	return f;
}

static void new__fresh__writing_and_no_model(void **state)
{
	struct job *a = job_new(7, JOB_FORMAT_JSON, NULL, 0),
		   *b = job_new(7, JOB_FORMAT_TEXT, NULL, 0);
	struct job_view v;

	(void)state;
	job_look(a, &v);
	assert_int_equal(v.state, JOB_WRITING);
	assert_int_equal(v.model, -1);
	assert_int_equal(v.uid, 7);
	assert_int_equal(v.generation, 0);
	assert_int_equal(v.queued, 0);
	assert_true(v.made > 0);
	assert_int_not_equal(job_id(a), job_id(b));
	assert_int_equal(job_format(a), JOB_FORMAT_JSON);
	job_put(job_get(a));
	job_put(a);
	job_put(b);
	job_put(NULL);
}

static void queue__twice_or_after_the_end__ealready(void **state)
{
	struct job *j = queued("abc");
	struct job_order o = { .model = 0 };
	struct fault f = why(-ECANCELED);
	struct job *ended = job_new(1, JOB_FORMAT_TEXT, NULL, 0);

	(void)state;
	assert_int_equal(job_queue(j, &o), -EALREADY);
	assert_int_equal(job_order(j)->model, 1);
	assert_int_equal(job_queue_item(j)->uid, 1000);
	assert_int_equal(job_queue_item(j)->priority, 5);
	assert_ptr_equal(job_of_queue_item(job_queue_item(j)), j);
	assert_ptr_equal(job_of_deadline(job_deadline(j)), j);
	assert_true(job_deadline(j)->at > 0);
	job_end(ended, JOB_CANCELLED, NULL, &f);
	assert_int_equal(job_queue(ended, &o), -EALREADY);
	assert_false(job_start(ended, 1));
	job_put(j);
	job_put(ended);
}

static void way__queue_start_append_end__all_told(void **state)
{
	struct job *j = running("abc");
	struct job_view v;
	char text[16];

	(void)state;
	job_set_request_id(j, "mine");
	assert_int_equal(job_append(j, "ab", 2, 100), 0);
	assert_int_equal(job_append(j, "c", 1, 100), 0);
	assert_int_equal(job_read(j, JOB_STREAM, 1, text, sizeof text), 2);
	assert_memory_equal(text, "bc", 2);
	assert_true(job_end(j, JOB_DONE, &stop, NULL));
	job_look(j, &v);
	assert_int_equal(v.state, JOB_DONE);
	assert_int_equal(v.generation, 4);
	assert_string_equal(v.request_sha256, SHA_OF_ABC);
	assert_string_equal(v.output_sha256, SHA_OF_ABC);
	assert_string_equal(v.request_id, "mine");
	assert_string_equal(v.finish_reason, "stop");
	assert_int_equal(v.output_tokens, 3);
	assert_int_equal(v.out_size, 3);
	assert_int_equal(v.request_size, 3);
	assert_true(v.queue_ns >= 0 && v.run_ns >= 0 && v.ended >= v.started);
	assert_int_equal(job_read(j, JOB_OUT, 0, text, sizeof text), 3);
	assert_int_equal(job_read(j, JOB_OUT, 3, text, sizeof text), 0);
	assert_int_equal(job_read(j, JOB_ERR, 0, text, sizeof text), 0);
	assert_int_equal(job_append(j, "x", 1, 100), 0); /* too late: goes nowhere */
	assert_int_equal(job_read(j, JOB_STREAM, 0, text, sizeof text), 3);
	job_put(j);
}

static void end__twice__first_wins(void **state)
{
	struct job *j = running("x");
	struct fault f = why(-ETIMEDOUT);
	struct buf out = BUF_INIT;
	struct job_outcome late = stop;
	char text[64];

	(void)state;
	buf_puts(&out, "late");
	late.out = &out;
	assert_true(job_end(j, JOB_EXPIRED, NULL, &f));
	assert_false(job_end(j, JOB_DONE, &late, NULL));
	assert_string_equal(buf_text(&out), "late"); /* still the caller's */
	buf_done(&out);
	assert_int_equal(job_state(j), JOB_EXPIRED);
	assert_int_equal(job_read(j, JOB_OUT, 0, text, sizeof text), -ETIMEDOUT);
	assert_int_equal(job_read(j, JOB_STREAM, 0, text, sizeof text), -ETIMEDOUT);
	job_put(j);
}

static void note_state(void *context, struct job *j, bool done)
{
	enum job_state *seen = context;

	assert_true(done);
	*seen = job_state(j);
}

/* Who has read the answer finds the session free. */
static void end__settled__before_anybody_sees_it(void **state)
{
	struct job *j = running("x");
	enum job_state seen = JOB_DONE;

	(void)state;
	job_on_settled(j, note_state, &seen);
	assert_true(job_end(j, JOB_DONE, &stop, NULL));
	assert_int_equal(seen, JOB_RUNNING);
	assert_int_equal(job_state(j), JOB_DONE);
	job_put(j);
}

static void end__document__out_apart_from_the_stream(void **state)
{
	struct job *j = running("x");
	struct job_outcome o = stop;
	struct buf out = BUF_INIT;
	struct job_view v;
	char text[16];

	(void)state;
	job_append(j, "piece", 5, 100);
	buf_puts(&out, "abc");
	o.out = &out;
	assert_true(job_end(j, JOB_DONE, &o, NULL));
	assert_null(out.data); /* taken */
	assert_int_equal(job_read(j, JOB_OUT, 0, text, sizeof text), 3);
	assert_int_equal(job_read(j, JOB_STREAM, 0, text, sizeof text), 5);
	job_look(j, &v);
	assert_string_equal(v.output_sha256, SHA_OF_ABC);
	job_put(j);
}

static void end__failed__err_tells_and_half_a_result_is_gone(void **state)
{
	struct job *j = running("x");
	struct fault f = FAULT_NONE;
	struct job_view v;
	char text[128] = "";

	(void)state;
	job_append(j, "half", 4, 100);
	fault_at(&f, -EINVAL, "top_k", 12, "give less", "too much");
	assert_true(job_end(j, JOB_FAILED, NULL, &f));
	assert_int_equal(job_read(j, JOB_STREAM, 0, text, sizeof text), -EINVAL);
	assert_true(job_read(j, JOB_ERR, 0, text, sizeof text - 1) > 0);
	assert_string_equal(text,
		"error: 22 EINVAL\nfield: top_k\noffset: 12\nreason: too much\naction: give "
		"less\n");
	job_look(j, &v);
	assert_int_equal(v.stream_size, 0);
	job_put(j);
}

/* A reader that does not wait takes EAGAIN for "not yet" and would ask for ever. */
static void end__with_eagain__read_as_ebusy(void **state)
{
	struct job *j = job_new(1, JOB_FORMAT_TEXT, NULL, 0);
	struct fault f = why(-EAGAIN);
	char c;

	(void)state;
	job_end(j, JOB_FAILED, NULL, &f);
	assert_int_equal(job_read(j, JOB_OUT, 0, &c, 1), -EBUSY);
	job_put(j);
}

static void append__past_the_limit__efbig_and_no_more(void **state)
{
	struct job *j = running("x");
	char text[16];

	(void)state;
	assert_int_equal(job_append(j, "1234", 4, 6), 0);
	assert_int_equal(job_append(j, "567", 3, 6), -EFBIG);
	assert_int_equal(job_append(j, "56", 2, 6), 0);
	assert_int_equal(job_append(j, "7", 1, 6), -EFBIG);
	assert_int_equal(job_append(j, "too long", 8, 6), -EFBIG);
	assert_int_equal(job_read(j, JOB_STREAM, 0, text, sizeof text), 6);
	job_end(j, JOB_DONE, &stop, NULL);
	job_put(j);
}

static void state_name__all__the_words_of_the_design(void **state)
{
	static const char *const words[] = { "writing", "queued", "running", "done", "failed",
		"cancelled", "expired" };

	(void)state;
	for (int s = 0; s < JOB_STATE_COUNT; s++) {
		assert_string_equal(job_state_name((enum job_state)s), words[s]);
		assert_int_equal(job_state_ended((enum job_state)s), s >= 3);
	}
}

/* --- waiters ---------------------------------------------------------------------------------- */

struct counted {
	struct job_waiter w;
	_Atomic unsigned woken;
};

static void wake(struct job_waiter *w)
{
	atomic_fetch_add(&((struct counted *)w)->woken, 1);
}

static void wait__stream__woken_by_what_lies_beyond_its_offset(void **state)
{
	struct counted early = { .w = { .what = JOB_STREAM, .offset = 0, .wake = wake } };
	struct counted later = { .w = { .what = JOB_STREAM, .offset = 3, .wake = wake } };
	struct counted out = { .w = { .what = JOB_OUT, .wake = wake } };
	struct job *j = running("x");

	(void)state;
	assert_true(job_wait(j, &early.w));
	assert_true(job_wait(j, &later.w));
	assert_true(job_wait(j, &out.w));
	job_append(j, "abc", 3, 100);
	assert_int_equal(early.woken, 1);
	assert_int_equal(later.woken, 0);
	assert_true(job_ripe(j, JOB_STREAM, 2));
	assert_false(job_ripe(j, JOB_STREAM, 3));
	assert_false(job_ripe(j, JOB_OUT, 0));
	assert_false(job_wait(j, &early.w)); /* nothing to wait for */
	job_append(j, "d", 1, 100);
	assert_int_equal(later.woken, 1);
	job_end(j, JOB_DONE, &stop, NULL);
	assert_int_equal(out.woken, 1);
	assert_int_equal(early.woken, 1);
	assert_false(job_wait(j, &out.w));
	assert_false(job_unwait(j, &out.w));
	job_put(j);
}

static void unwait__in_any_order__never_woken(void **state)
{
	struct counted c[5] = { { .woken = 0 } };
	struct job *j = running("x");

	(void)state;
	for (int i = 0; i < 5; i++) {
		c[i].w = (struct job_waiter){ .what = JOB_OUT, .wake = wake };
		assert_true(job_wait(j, &c[i].w));
	}
	assert_true(job_unwait(j, &c[2].w));
	assert_true(job_unwait(j, &c[4].w));
	assert_true(job_unwait(j, &c[0].w));
	assert_false(job_unwait(j, &c[0].w));
	job_end(j, JOB_DONE, &stop, NULL);
	for (int i = 0; i < 5; i++)
		assert_int_equal(c[i].woken, i % 2);
	job_put(j);
}

#define ROUNDS  200
#define WAITERS 8

static void *producer(void *arg)
{
	struct job *j = arg;

	for (int i = 0; i < 20; i++)
		job_append(j, "x", 1, 1000);
	job_end(j, JOB_DONE, &stop, NULL);
	job_put(j);
	return NULL;
}

static void *canceller(void *arg)
{
	struct fault f = why(-ECANCELED);

	job_end(arg, JOB_CANCELLED, NULL, &f);
	job_put(arg);
	return NULL;
}

/* Each waiter that was taken on is either woken once or taken back, whoever ends the job meanwhile.
 */
static void end__while_others_wait_and_unwait__each_answered_once(void **state)
{
	(void)state;
	for (int round = 0; round < ROUNDS; round++) {
		struct counted c[WAITERS];
		bool waited[WAITERS], back[WAITERS];
		struct job *j = running("x");
		pthread_t a, b;

		pthread_create(&a, NULL, producer, job_get(j));
		pthread_create(&b, NULL, round % 2 ? canceller : producer, job_get(j));
		for (int i = 0; i < WAITERS; i++) {
			c[i] = (struct counted){ .w = { .what = i % 2 ? JOB_OUT : JOB_STREAM,
							 .offset = (size_t)i * 3,
							 .wake = wake } };
			waited[i] = job_wait(j, &c[i].w);
		}
		for (int i = 0; i < WAITERS; i++)
			back[i] = i % 3 == 0 && job_unwait(j, &c[i].w);
		pthread_join(a, NULL);
		pthread_join(b, NULL);
		for (int i = 0; i < WAITERS; i++)
			assert_int_equal(c[i].woken, waited[i] && !back[i]);
		job_put(j);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(new__fresh__writing_and_no_model),
		cmocka_unit_test(queue__twice_or_after_the_end__ealready),
		cmocka_unit_test(way__queue_start_append_end__all_told),
		cmocka_unit_test(end__twice__first_wins),
		cmocka_unit_test(end__settled__before_anybody_sees_it),
		cmocka_unit_test(end__document__out_apart_from_the_stream),
		cmocka_unit_test(end__failed__err_tells_and_half_a_result_is_gone),
		cmocka_unit_test(end__with_eagain__read_as_ebusy),
		cmocka_unit_test(append__past_the_limit__efbig_and_no_more),
		cmocka_unit_test(state_name__all__the_words_of_the_design),
		cmocka_unit_test(wait__stream__woken_by_what_lies_beyond_its_offset),
		cmocka_unit_test(unwait__in_any_order__never_woken),
		cmocka_unit_test(end__while_others_wait_and_unwait__each_answered_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
