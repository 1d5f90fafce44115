#include "core/spool/record.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A text that fills its place. */
static void fill(char *to, size_t size, char with)
{
	memset(to, with, size - 1);
	to[size - 1] = '\0';
}

#define FILL(member, with) fill(member, sizeof(member), with)

/* Every member as long as it gets. */
static struct record_node widest_node(void)
{
	struct record_node n = {
		.id = UINT64_MAX,
		.folder = UINT64_MAX - 1,
		.dir = true,
		.uid = UINT32_MAX,
		.gid = UINT32_MAX - 1,
		.mode = UINT32_MAX - 2,
		.atime = INT64_MIN,
		.mtime = INT64_MIN + 1,
		.ctime = INT64_MIN + 2,
		.job = UINT64_MAX - 2,
		.removed = UINT32_MAX - 3,
	};

	FILL(n.name, 'n');
	return n;
}

static struct record_run widest_run(void)
{
	struct record_run r = {
		.priority = INT32_MIN,
		.deadline_ms = INT64_MIN,
		.names_files = true,
		.in_session = true,
		.view = {
			.id = UINT64_MAX,
			.uid = UINT32_MAX,
			.state = JOB_CANCELLED,
			.format = JOB_FORMAT_BATCH,
			.shape = ANSWER_OPENAI,
			.stream = true,
			.stream_apart = true,
			.generation = UINT64_MAX - 1,
			.made = INT64_MIN + 1,
			.queued = INT64_MIN + 2,
			.started = INT64_MIN + 3,
			.ended = INT64_MIN + 4,
			.queue_ns = INT64_MIN + 5,
			.run_ns = INT64_MIN + 6,
			.prompt_tokens = UINT64_MAX - 2,
			.output_tokens = UINT64_MAX - 3,
			.request_size = UINT64_MAX - 4,
			.out_size = UINT64_MAX - 5,
			.stream_size = UINT64_MAX - 6,
			.lines = { UINT64_MAX - 7, UINT64_MAX - 8, UINT64_MAX - 9 },
			.finish_reason = "length",
			.seed_known = true,
			.seed = UINT64_MAX - 10,
			.fault = { .err = INT32_MIN, .device = (enum npu_error)INT32_MIN,
				.offset = INT64_MIN },
		},
	};

	FILL(r.view.model_alias, 'a');
	FILL(r.view.model_sha256, 'b');
	FILL(r.view.request_sha256, 'c');
	FILL(r.view.output_sha256, 'd');
	FILL(r.view.request_id, 'e');
	FILL(r.view.fault.field, 'f');
	FILL(r.view.fault.reason, 'g');
	FILL(r.view.fault.action, 'h');
	return r;
}

static void check_same_node(const struct record_node *a, const struct record_node *b)
{
	assert_int_equal(a->id, b->id);
	assert_int_equal(a->folder, b->folder);
	assert_string_equal(a->name, b->name);
	assert_int_equal(a->dir, b->dir);
	assert_int_equal(a->uid, b->uid);
	assert_int_equal(a->gid, b->gid);
	assert_int_equal(a->mode, b->mode);
	assert_int_equal(a->atime, b->atime);
	assert_int_equal(a->mtime, b->mtime);
	assert_int_equal(a->ctime, b->ctime);
	assert_int_equal(a->job, b->job);
	assert_int_equal(a->removed, b->removed);
}

static void check_same_run(const struct record_run *a, const struct record_run *b)
{
	const struct job_view *v = &a->view, *w = &b->view;

	assert_int_equal(a->priority, b->priority);
	assert_int_equal(a->deadline_ms, b->deadline_ms);
	assert_int_equal(a->names_files, b->names_files);
	assert_int_equal(a->in_session, b->in_session);
	assert_int_equal(v->id, w->id);
	assert_int_equal(v->uid, w->uid);
	assert_int_equal(v->state, w->state);
	assert_int_equal(v->format, w->format);
	assert_int_equal(v->shape, w->shape);
	assert_int_equal(v->stream, w->stream);
	assert_int_equal(v->stream_apart, w->stream_apart);
	assert_string_equal(v->model_alias, w->model_alias);
	assert_string_equal(v->model_sha256, w->model_sha256);
	assert_int_equal(v->generation, w->generation);
	assert_int_equal(v->made, w->made);
	assert_int_equal(v->queued, w->queued);
	assert_int_equal(v->started, w->started);
	assert_int_equal(v->ended, w->ended);
	assert_int_equal(v->queue_ns, w->queue_ns);
	assert_int_equal(v->run_ns, w->run_ns);
	assert_int_equal(v->prompt_tokens, w->prompt_tokens);
	assert_int_equal(v->output_tokens, w->output_tokens);
	assert_int_equal(v->request_size, w->request_size);
	assert_int_equal(v->out_size, w->out_size);
	assert_int_equal(v->stream_size, w->stream_size);
	assert_memory_equal(&v->lines, &w->lines, sizeof v->lines);
	assert_string_equal(v->finish_reason, w->finish_reason);
	assert_int_equal(v->seed_known, w->seed_known);
	assert_int_equal(v->seed, w->seed);
	assert_string_equal(v->request_sha256, w->request_sha256);
	assert_string_equal(v->output_sha256, w->output_sha256);
	assert_string_equal(v->request_id, w->request_id);
	assert_int_equal(v->fault.err, w->fault.err);
	assert_int_equal(v->fault.device, w->fault.device);
	assert_int_equal(v->fault.offset, w->fault.offset);
	assert_string_equal(v->fault.field, w->fault.field);
	assert_string_equal(v->fault.reason, w->fault.reason);
	assert_string_equal(v->fault.action, w->fault.action);
}

/* --- there and back --------------------------------------------------------------------------- */

static void put_node__widest_members__fit_and_come_back(void **state)
{
	/* In a block of its own: a byte too far is seen. */
	char *part = calloc(1, RECORD_NODE_SIZE);
	struct record_node n = widest_node(), back;

	(void)state;
	assert_true(record_put_node(&n, part) <= RECORD_NODE_SIZE);
	assert_true(record_get_node(part, &back));
	check_same_node(&back, &n);
	free(part);
}

static void put_run__widest_members__fit_and_come_back(void **state)
{
	char *part = calloc(1, RECORD_RUN_SIZE);
	struct record_run r = widest_run(), back;

	(void)state;
	assert_true(record_put_run(&r, part) <= RECORD_RUN_SIZE);
	assert_true(record_get_run(part, &back));
	check_same_run(&back, &r);
	free(part);
}

static void put_node__all_zero__comes_back(void **state)
{
	char part[RECORD_NODE_SIZE] = { 0 };
	struct record_node n = { 0 }, back = widest_node();

	(void)state;
	record_put_node(&n, part);
	assert_true(record_get_node(part, &back));
	check_same_node(&back, &n);
}

static void put_run__all_zero__comes_back_without_model(void **state)
{
	char part[RECORD_RUN_SIZE] = { 0 };
	struct record_run r = { .view = { .finish_reason = "" } }, back = widest_run();

	(void)state;
	record_put_run(&r, part);
	assert_true(record_get_run(part, &back));
	check_same_run(&back, &r);
	assert_int_equal(back.view.model, -1);
}

static void put_run__no_finish_reason__comes_back_empty(void **state)
{
	char part[RECORD_RUN_SIZE] = { 0 };
	struct record_run r = { .view = { .finish_reason = NULL } }, back;

	(void)state;
	record_put_run(&r, part);
	assert_true(record_get_run(part, &back));
	assert_string_equal(back.view.finish_reason, "");
}

static void put_run__every_word__comes_back(void **state)
{
	char part[RECORD_RUN_SIZE] = { 0 };
	struct record_run r = widest_run(), back;

	(void)state;
	for (int s = 0; s < JOB_STATE_COUNT; s++)
		for (int format = JOB_FORMAT_TEXT; format <= JOB_FORMAT_BATCH; format++)
			for (int shape = ANSWER_OWN; shape <= ANSWER_KSERVE; shape++) {
				r.view.state = (enum job_state)s;
				r.view.format = (enum job_format)format;
				r.view.shape = (enum answer_shape)shape;
				record_put_run(&r, part);
				assert_true(record_get_run(part, &back));
				check_same_run(&back, &r);
			}
}

static void put_run__small_negative_numbers__come_back(void **state)
{
	char part[RECORD_RUN_SIZE] = { 0 };
	struct record_run r = { .priority = -1,
		.deadline_ms = -1,
		.view = { .finish_reason = "stop",
			.made = -1,
			.ended = INT64_MAX,
			.fault = { .err = -5, .offset = -1 } } };
	struct record_run back;

	(void)state;
	record_put_run(&r, part);
	assert_true(record_get_run(part, &back));
	check_same_run(&back, &r);
}

/* Names may hold what the file format itself uses. */
static void put_node__colon_and_check_in_name__comes_back(void **state)
{
	char part[RECORD_NODE_SIZE] = { 0 };
	struct record_node n = { .id = 7, .name = "check: 0123: name: x.txt" }, back;

	(void)state;
	record_put_node(&n, part);
	assert_true(record_get_node(part, &back));
	assert_string_equal(back.name, n.name);
}

/* What was there before, longer, is behind the check and counts no more. */
static void get_node__shorter_over_longer__is_the_shorter(void **state)
{
	char part[RECORD_NODE_SIZE] = { 0 };
	struct record_node wide = widest_node(), n = { .id = 9, .name = "a" }, back;

	(void)state;
	record_put_node(&wide, part);
	record_put_node(&n, part);
	assert_true(record_get_node(part, &back));
	check_same_node(&back, &n);
}

/* --- what an administrator reads --------------------------------------------------------------- */

/* FNV-1a 64, by its definition. */
static uint64_t fnv(const char *text, size_t n)
{
	uint64_t h = 14695981039346656037ULL;

	for (size_t i = 0; i < n; i++) {
		h ^= (unsigned char)text[i];
		h *= 1099511628211ULL;
	}
	return h;
}

/* The lines, with the check that belongs to them. */
static void part_of(const char *lines, char *ret, size_t size)
{
	memset(ret, 0, size);
	snprintf(ret, size, "%scheck: %016llx\n", lines,
		(unsigned long long)fnv(lines, strlen(lines)));
}

static void put_node__plain_file__is_that_text(void **state)
{
	char part[RECORD_NODE_SIZE], want[RECORD_NODE_SIZE];
	struct record_node n = { .id = 5,
		.folder = 1,
		.name = "a.txt",
		.uid = 1000,
		.mode = 384,
		.mtime = -3,
		.job = 12 };

	(void)state;
	part_of("npufs-node 1\nid: 5\nfolder: 1\nname: a.txt\nuid: 1000\nmode: 384\nmtime: -3\n"
		"job: 12\n",
		want, sizeof want);
	assert_int_equal(record_put_node(&n, part), strlen(want) + 1);
	assert_string_equal(part, want);
}

static bool reads_node(const char *lines, struct record_node *ret)
{
	char part[RECORD_NODE_SIZE];

	part_of(lines, part, sizeof part);
	return record_get_node(part, ret);
}

static bool reads_run(const char *lines)
{
	char part[RECORD_RUN_SIZE];
	struct record_run r;

	part_of(lines, part, sizeof part);
	return record_get_run(part, &r);
}

static void get_node__unknown_keys_and_any_order__are_passed_over(void **state)
{
	struct record_node n;

	(void)state;
	assert_true(reads_node("npufs-node 1\nlater: 1\nname: b.txt\nid: 5\nlatest: x: y\n", &n));
	assert_int_equal(n.id, 5);
	assert_string_equal(n.name, "b.txt");
}

static void get_node__bad_lines_with_right_check__are_refused(void **state)
{
	static const char *const bad[] = {
		"npufs-node 2\nid: 5\n",
		"npufs-run 1\nid: 5\n",
		"id: 5\n",
		"",
		"npufs-node 1\nid 5\n",
		"npufs-node 1\nid:5\n",
		"npufs-node 1\n\n",
		"npufs-node 1\nid: \n",
		"npufs-node 1\nid: x\n",
		"npufs-node 1\nid: 5x\n",
		"npufs-node 1\nid:  5\n",
		"npufs-node 1\nid: +5\n",
		"npufs-node 1\nid: -5\n",
		"npufs-node 1\nuid: -5\n",
		"npufs-node 1\nmtime: -\n",
		"npufs-node 1\nmtime: --5\n",
		"npufs-node 1\nid: 18446744073709551616\n",
		"npufs-node 1\nid: 99999999999999999999999\n",
	};
	struct record_node n;

	(void)state;
	assert_true(reads_node("npufs-node 1\nid: 18446744073709551615\n", &n));
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		if (reads_node(bad[i], &n))
			fail_msg("taken: %s", bad[i]);
}

/* A number that its member cannot hold would come back as another. */
static void get_node__number_past_its_member__is_refused(void **state)
{
	struct record_node n;

	(void)state;
	assert_true(reads_node("npufs-node 1\nuid: 4294967295\n", &n));
	assert_false(reads_node("npufs-node 1\nuid: 4294967296\n", &n));
	assert_true(reads_node("npufs-node 1\nmtime: 9223372036854775807\n", &n));
	assert_false(reads_node("npufs-node 1\nmtime: 9223372036854775808\n", &n));
	assert_true(reads_node("npufs-node 1\nmtime: -9223372036854775808\n", &n));
	assert_false(reads_node("npufs-node 1\nmtime: -9223372036854775809\n", &n));
	assert_true(reads_run("npufs-run 1\npriority: -2147483648\n"));
	assert_false(reads_run("npufs-run 1\npriority: -2147483649\n"));
	assert_false(reads_run("npufs-run 1\npriority: 2147483648\n"));
	assert_false(reads_run("npufs-run 1\nstream: 2\n"));
}

static void get_run__unknown_words__are_refused(void **state)
{
	(void)state;
	assert_true(reads_run("npufs-run 1\nstate: queued\n"));
	assert_false(reads_run("npufs-run 1\nstate: asleep\n"));
	assert_false(reads_run("npufs-run 1\nstate: \n"));
	assert_false(reads_run("npufs-run 1\nformat: xml\n"));
	assert_false(reads_run("npufs-run 1\nshape: round\n"));
	assert_false(reads_run("npufs-run 1\nfinish_reason: tired\n"));
}

static void get_run__text_too_long_for_its_place__is_refused(void **state)
{
	char lines[256], text[MODEL_ALIAS_SIZE];

	(void)state;
	FILL(text, 'm');
	snprintf(lines, sizeof lines, "npufs-run 1\nmodel: %s\n", text);
	assert_true(reads_run(lines));
	snprintf(lines, sizeof lines, "npufs-run 1\nmodel: %sm\n", text);
	assert_false(reads_run(lines));
}

/* --- damage ----------------------------------------------------------------------------------- */

static void get_node__any_bit_flipped__is_refused(void **state)
{
	char part[RECORD_NODE_SIZE] = { 0 };
	struct record_node n = widest_node(), back;
	size_t len = record_put_node(&n, part) - 1;

	(void)state;
	for (size_t i = 0; i < len * 8; i++) {
		part[i / 8] ^= (char)(1 << i % 8);
		if (record_get_node(part, &back))
			fail_msg("bit %zu of %zu", i, len * 8);
		part[i / 8] ^= (char)(1 << i % 8);
	}
	assert_true(record_get_node(part, &back));
}

static void get_run__any_byte_damaged__is_refused(void **state)
{
	static const char other[] = { 0, '\n', ':', ' ', '0', (char)0xff };
	char part[RECORD_RUN_SIZE] = { 0 };
	struct record_run r = widest_run(), back;
	size_t len = record_put_run(&r, part) - 1;

	(void)state;
	for (size_t i = 0; i < len; i++)
		for (size_t k = 0; k < sizeof other; k++) {
			char was = part[i];

			part[i] = other[k];
			if (was != other[k] && record_get_run(part, &back))
				fail_msg("byte %zu", i);
			part[i] = was;
		}
	assert_true(record_get_run(part, &back));
}

static void get_node__cut_anywhere__is_refused(void **state)
{
	char part[RECORD_NODE_SIZE] = { 0 }, cut[RECORD_NODE_SIZE];
	struct record_node n = widest_node(), back;
	size_t len = record_put_node(&n, part) - 1;

	(void)state;
	for (size_t i = 0; i < len; i++) {
		memset(cut, 0, sizeof cut);
		memcpy(cut, part, i);
		assert_false(record_get_node(cut, &back));
	}
}

static void get__no_text_at_all__is_refused(void **state)
{
	char part[RECORD_RUN_SIZE];
	struct record_node n;
	struct record_run r;

	(void)state;
	memset(part, 0, sizeof part);
	assert_false(record_get_node(part, &n));
	assert_false(record_get_run(part, &r));
	memset(part, 'x', sizeof part);
	assert_false(record_get_node(part, &n));
	assert_false(record_get_run(part, &r));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(put_node__widest_members__fit_and_come_back),
		cmocka_unit_test(put_run__widest_members__fit_and_come_back),
		cmocka_unit_test(put_node__all_zero__comes_back),
		cmocka_unit_test(put_run__all_zero__comes_back_without_model),
		cmocka_unit_test(put_run__no_finish_reason__comes_back_empty),
		cmocka_unit_test(put_run__every_word__comes_back),
		cmocka_unit_test(put_run__small_negative_numbers__come_back),
		cmocka_unit_test(put_node__colon_and_check_in_name__comes_back),
		cmocka_unit_test(get_node__shorter_over_longer__is_the_shorter),
		cmocka_unit_test(put_node__plain_file__is_that_text),
		cmocka_unit_test(get_node__unknown_keys_and_any_order__are_passed_over),
		cmocka_unit_test(get_node__bad_lines_with_right_check__are_refused),
		cmocka_unit_test(get_node__number_past_its_member__is_refused),
		cmocka_unit_test(get_run__unknown_words__are_refused),
		cmocka_unit_test(get_run__text_too_long_for_its_place__is_refused),
		cmocka_unit_test(get_node__any_bit_flipped__is_refused),
		cmocka_unit_test(get_run__any_byte_damaged__is_refused),
		cmocka_unit_test(get_node__cut_anywhere__is_refused),
		cmocka_unit_test(get__no_text_at_all__is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
