/* Named callables: their states, what the store keeps, and contexts that end and begin. */
#include "core/engine/callables.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>

#include "core/engine/run.h"
#include "tests/launch_rig.h"
#include "tests/request_checks.h"

struct world {
	char store[32];
	struct callables *t;
	struct device *device;
	struct fault f;
};

static void open_device(struct world *w, const struct device_ops *ops)
{
	const struct device_params p = { .threads = 1 };

	assert_int_equal(device_open(ops, &p, &w->device), NPU_SUCCESS);
	callables_attach(w->t, w->device);
}

static int up(void **state)
{
	struct world *w = calloc(1, sizeof *w);

	assert_non_null(w);
	strcpy(w->store, "/tmp/npufs-unit-XXXXXX");
	assert_non_null(mkdtemp(w->store));
	assert_int_equal(callables_new(w->store, &w->t), 0);
	w->f = (struct fault)FAULT_NONE;
	*state = w;
	return 0;
}

static int down(void **state)
{
	struct world *w = *state;
	char command[64];

	memset(&launch_faults, 0, sizeof launch_faults);
	assert_int_equal(callables_detach(w->t, false, &w->f), 0);
	device_close(w->device);
	callables_free(w->t);
	snprintf(command, sizeof command, "rm -r %s", w->store);
	assert_int_equal(system(command), 0);
	free(w);
	return 0;
}

static void open_soft(struct world *w)
{
	open_device(w, launch_rig_ops(device_backend("sim")));
}

static void prepare(struct world *w, const char *name, const char *example)
{
	launch_rig_keep(w->t, name, example);
	if (callables_register(w->t, name, &w->f))
		fail_msg("%s: %s", name, w->f.reason);
}

static struct callables_view look(struct world *w, const char *name)
{
	struct callables_view v = { .number = 0 };

	if (!callables_find(w->t, name, &v))
		fail_msg("there is no %s", name);
	return v;
}

static void expect(struct world *w, const char *name, enum callables_state s, int id)
{
	struct callables_view v = look(w, name);

	if (v.state != s || v.id != id)
		fail_msg("%s: state %d, id %d", name, (int)v.state, v.id);
}

static int plan(struct world *w, const char *json, struct launch_plan **ret)
{
	struct request *req = accepted(json);
	int err;

	w->f = (struct fault)FAULT_NONE;
	err = callables_plan(w->t, req, ret, &w->f);
	request_free(req);
	assert_int_equal(err, w->f.err);
	return err;
}

#define V(name) "{\"name\":\"" name "\",\"shape\":[2],\"datatype\":\"FP32\",\"data\":[1,2]}"
#define ADD(which) \
	"{\"callable\":" which ",\"inputs\":[" V("x") "," V("y") "," V("z") "],\"scalars\":[2]}"

/* --- names ------------------------------------------------------------------------------------ */

static void grow__more_than_memory_is_for__refused_until_others_end(void **state)
{
	const struct fault none = FAULT_NONE;
	struct world *w = *state;
	uint64_t a, b;

	assert_int_equal(callables_create(w->t, "a", &a), 0);
	assert_int_equal(callables_create(w->t, "b", &b), 0);
	assert_int_equal(callables_grow(w->t, a, CALLABLES_UNREGISTERED_MAX - 1), 0);
	assert_int_equal(callables_grow(w->t, b, 1), 0);
	assert_int_equal(callables_grow(w->t, b, 2), -ENOSPC);
	assert_int_equal(look(w, "b").bytes, 1);
	callables_refuse(w->t, a, &none);
	assert_int_equal(callables_grow(w->t, a, 1), -ESTALE);
	assert_int_equal(callables_grow(w->t, b, 2), 0);
}

static void create__names__plain_ones_once(void **state)
{
	static const char *const bad[] = { "", ".", "..", ".a", "a/b", "a b", "a\n", "\xc3\xa4" };
	struct world *w = *state;
	char longest[66];
	uint64_t n;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(callables_create(w->t, bad[i], &n), -EINVAL);
	memset(longest, 'x', sizeof longest);
	longest[64] = '\0';
	assert_int_equal(callables_create(w->t, longest, &n), -EINVAL);
	longest[63] = '\0';
	assert_int_equal(callables_create(w->t, longest, &n), 0);
	assert_int_equal(callables_create(w->t, longest, &n), -EBUSY);
	expect(w, longest, CALLABLES_WRITING, -1);
	callables_refuse(w->t, n, &(struct fault)FAULT_NONE);
	assert_int_equal(callables_create(w->t, longest, &n), 0);
}

static void refuse__with_and_without_reason__remembered_or_gone(void **state)
{
	struct world *w = *state;
	struct fault why = FAULT_NONE;
	struct callables_view v;
	uint64_t n;

	assert_int_equal(callables_create(w->t, "a", &n), 0);
	callables_refuse(w->t, n, &why);
	assert_false(callables_find(w->t, "a", &v));
	assert_int_equal(callables_create(w->t, "a", &n), 0);
	fault_set(&why, -EINVAL, "mend it", "broken");
	callables_refuse(w->t, n, &why);
	expect(w, "a", CALLABLES_REFUSED, -1);
	assert_string_equal(look(w, "a").fault.reason, "broken");
	assert_int_equal(callables_remove(w->t, n), 0);
	assert_int_equal(callables_remove(w->t, n), -ENOENT);
}

static void refuse__more_than_are_remembered__oldest_forgotten(void **state)
{
	struct world *w = *state;
	struct fault why = FAULT_NONE;
	struct callables_view v;
	char name[16];
	uint64_t n;

	fault_set(&why, -EINVAL, "mend it", "broken");
	for (int i = 0; i <= CALLABLES_REFUSED_MAX; i++) {
		snprintf(name, sizeof name, "n%d", i);
		assert_int_equal(callables_create(w->t, name, &n), 0);
		callables_refuse(w->t, n, &why);
	}
	assert_false(callables_find(w->t, "n0", &v));
	expect(w, "n1", CALLABLES_REFUSED, -1);
	expect(w, name, CALLABLES_REFUSED, -1);
}

static void next__many_names__each_once_in_order_of_number(void **state)
{
	struct world *w = *state;
	struct callables_view v = { .number = 0 };
	uint64_t n, before = 0;
	char name[16];
	int seen = 0;

	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof name, "n%d", (i * 37) % 100);
		assert_int_equal(callables_create(w->t, name, &n), 0);
	}
	while (callables_next(w->t, v.number, &v)) {
		assert_true(v.number > before);
		before = v.number;
		seen++;
	}
	assert_int_equal(seen, 100);
}

/* --- registering ------------------------------------------------------------------------------ */

static void register__images__ids_in_order_and_names_busy(void **state)
{
	struct world *w = *state;
	AUTO_BUF struct buf usage = BUF_INIT;
	uint64_t n;

	open_soft(w);
	prepare(w, "b", "add");
	prepare(w, "a", "add");
	expect(w, "b", CALLABLES_RESIDENT, 0);
	expect(w, "a", CALLABLES_RESIDENT, 1);
	assert_int_equal(callables_create(w->t, "a", &n), -EBUSY);
	assert_int_equal(callables_remove(w->t, look(w, "a").number), -EBUSY);
	callables_render(w->t, &usage);
	assert_non_null(strstr(buf_text(&usage),
		"state: open\ncontext: 1\nregistrations: 2 of 8192\n"
		"resident_bytes: 896\nallocated_bytes: 2097152 of 2147483648\n"));
}

static void register__bytes_that_are_no_image__refused_and_nothing_used_up(void **state)
{
	struct world *w = *state;
	AUTO_BUF struct buf bytes = BUF_INIT;
	uint64_t n;

	open_soft(w);
	launch_rig_image("add", &bytes);
	bytes.data[9] ^= 1; /* of the version */
	assert_int_equal(callables_create(w->t, "bad", &n), 0);
	assert_int_equal(callables_commit(w->t, n, &bytes), 0);
	assert_int_equal(callables_register(w->t, "bad", &w->f), -EINVAL);
	assert_string_equal(w->f.field, "version");
	prepare(w, "good", "add");
	expect(w, "good", CALLABLES_RESIDENT, 0);
}

static void register__upload_that_fails__same_id_next_time(void **state)
{
	struct world *w = *state;

	open_soft(w);
	launch_faults = (struct launch_faults){ .code = NPU_DEVICE_BUSY, .copies = 1 };
	launch_rig_keep(w->t, "a", "add");
	assert_true(callables_register(w->t, "a", &w->f) < 0);
	assert_int_equal(w->f.device, NPU_DEVICE_BUSY);
	assert_false(callables_poisoned(w->t));
	assert_int_equal(callables_register(w->t, "a", &w->f), 0);
	expect(w, "a", CALLABLES_RESIDENT, 0);
	assert_int_equal(callables_register(w->t, "a", &w->f), 0); /* it is there */
}

static void register__all_ids__the_next_names_the_limit(void **state)
{
	struct world *w = *state;
	struct callables_view v;
	char name[16];

	open_soft(w);
	for (int i = 0; i < CALLABLE_IDS_MAX; i++) {
		snprintf(name, sizeof name, "n%d", i);
		launch_rig_write(w->t, name, "add");
		if (callables_register(w->t, name, &w->f))
			fail_msg("%s: %s", name, w->f.reason);
	}
	launch_rig_write(w->t, "more", "add");
	assert_int_equal(callables_register(w->t, "more", &w->f), -ENOSPC);
	assert_string_equal(w->f.field, "registrations");
	callables_refuse(w->t, look(w, "more").number, &w->f);
	assert_true(callables_find(w->t, "n8191", &v));
	assert_int_equal(v.id, 8191);
	expect(w, "n0", CALLABLES_RESIDENT, 0);
}

/* --- contexts --------------------------------------------------------------------------------- */

static void attach__after_detach__what_is_kept_under_other_ids(void **state)
{
	struct world *w = *state;
	struct request *req;
	uint64_t before;

	open_soft(w);
	prepare(w, "b", "add");
	prepare(w, "a", "softmax");
	before = callables_number(w->t);
	assert_int_equal(callables_detach(w->t, false, &w->f), 0);
	assert_int_equal(callables_number(w->t), 0);
	req = accepted(ADD("\"a\"")); /* meanwhile a request may wait for the name */
	assert_int_equal(callables_check(w->t, req, &w->f), 0);
	request_free(req);
	callables_attach(w->t, w->device);
	expect(w, "a", CALLABLES_RESIDENT, 0);
	expect(w, "b", CALLABLES_RESIDENT, 1);
	assert_int_equal(callables_number(w->t), before + 1);
	assert_null(callables_context(w->t, before));
	assert_non_null(callables_context(w->t, before + 1));
}

static void attach__device_that_was_lost__registered_with_the_next(void **state)
{
	struct world *w = *state;

	open_soft(w);
	prepare(w, "a", "add");
	launch_faults = (struct launch_faults){ .code = NPU_NO_DEVICE, .releases = 1000 };
	assert_int_equal(callables_detach(w->t, true, &w->f), 0);
	device_close(w->device);
	open_soft(w);
	expect(w, "a", CALLABLES_RESIDENT, 0);
}

static void attach__damaged_image_of_the_store__refused_and_the_rest_there(void **state)
{
	struct world *w = *state;
	char path[96];
	FILE *file;

	open_soft(w);
	prepare(w, "a", "add");
	prepare(w, "b", "add");
	assert_int_equal(callables_detach(w->t, false, &w->f), 0);
	snprintf(path, sizeof path, "%s/callables/a.img", w->store);
	file = fopen(path, "r+");
	assert_non_null(file);
	fputc('X', file);
	fclose(file);
	callables_attach(w->t, w->device);
	expect(w, "a", CALLABLES_REFUSED, -1);
	expect(w, "b", CALLABLES_RESIDENT, 0);
}

/* What is being written when a context begins is its writer's, whatever the store has of that name. */
static void attach__name_that_is_being_written__left_to_its_writer(void **state)
{
	struct world *w = *state;
	uint64_t n;

	open_soft(w);
	prepare(w, "a", "add");
	assert_int_equal(callables_close(w->t, &w->f), 0); /* the store still has it */
	assert_int_equal(callables_create(w->t, "a", &n), 0);
	launch_rig_write(w->t, "b", "softmax");
	callables_attach(w->t, w->device);
	expect(w, "a", CALLABLES_WRITING, -1);
	expect(w, "b", CALLABLES_WAITING, -1);
	assert_int_equal(callables_register(w->t, "b", &w->f), 0);
	expect(w, "b", CALLABLES_RESIDENT, 0);
}

static void attach__device_without_callables__unsupported(void **state)
{
	static struct device_ops ops; /* the device keeps its address */
	struct world *w = *state;
	struct launch_plan *p;

	ops = *device_backend("sim");
	ops.callables = NULL;
	ops.callable_context = NULL;
	open_device(w, &ops);
	assert_int_equal(plan(w, ADD("\"a\""), &p), -EOPNOTSUPP);
	launch_rig_write(w->t, "a", "add");
	assert_int_equal(callables_register(w->t, "a", &w->f), -EOPNOTSUPP);
}

static void close__release_that_fails__kept_until_it_succeeds(void **state)
{
	struct world *w = *state;
	AUTO_BUF struct buf usage = BUF_INIT;
	struct launch_plan *p;
	struct callables_view v;

	open_soft(w);
	prepare(w, "a", "add");
	launch_faults = (struct launch_faults){ .code = NPU_TIMEOUT, .releases = 1 };
	assert_true(callables_close(w->t, &w->f) < 0);
	callables_render(w->t, &usage);
	assert_non_null(strstr(buf_text(&usage), "state: closing\n"));
	assert_int_equal(plan(w, ADD("\"a\""), &p), -EBADFD);
	assert_int_equal(callables_close(w->t, &w->f), 0);
	assert_false(callables_find(w->t, "a", &v));
	assert_int_equal(callables_unkeep_all(w->t, &w->f), 0);
	callables_attach(w->t, w->device);
	assert_int_equal(callables_number(w->t), 2);
	assert_false(callables_find(w->t, "a", &v));
}

static void poisoned__fault_that_reaches_further__said_until_closed(void **state)
{
	struct world *w = *state;
	AUTO_BUF struct buf usage = BUF_INIT;

	open_soft(w);
	prepare(w, "a", "add");
	launch_faults = (struct launch_faults){ .code = NPU_DEVICE_CRASH, .copies = 1 };
	launch_rig_keep(w->t, "b", "add");
	assert_true(callables_register(w->t, "b", &w->f) < 0);
	assert_true(callables_poisoned(w->t));
	callables_render(w->t, &usage);
	assert_non_null(strstr(buf_text(&usage), "state: poisoned\n"));
	w->f = (struct fault)FAULT_NONE;
	assert_int_equal(callables_register(w->t, "b", &w->f), -ENOTRECOVERABLE);
	assert_int_equal(callables_detach(w->t, false, &w->f), 0);
	callables_attach(w->t, w->device);
	assert_false(callables_poisoned(w->t));
	expect(w, "a", CALLABLES_RESIDENT, 0);
	assert_int_equal(callables_register(w->t, "b", &w->f), 0);
	expect(w, "b", CALLABLES_RESIDENT, 1);
}

/* --- plans ------------------------------------------------------------------------------------ */

static void plan__by_name_and_id__the_resident(void **state)
{
	struct world *w = *state;
	struct launch_plan *p = NULL;

	open_soft(w);
	prepare(w, "first", "softmax");
	prepare(w, "add", "add");
	assert_int_equal(plan(w, ADD("\"add\""), &p), 0);
	assert_int_equal(p->steps[0].id, 1);
	free(p);
	assert_int_equal(plan(w, ADD("1"), &p), 0);
	assert_int_equal(p->steps[0].id, 1);
	free(p);
	assert_int_equal(plan(w, ADD("\"ad\""), &p), -ENOENT);
	assert_non_null(strstr(w->f.reason, "did you mean \"add\"?"));
	assert_int_equal(plan(w, ADD("2"), &p), -ENOENT);
	assert_int_equal(plan(w, ADD("8191"), &p), -ENOENT);
}

static void check__before_the_store_was_read__names_wait_and_ids_do_not(void **state)
{
	struct world *w = *state;
	struct request *req = accepted(ADD("\"later\""));

	assert_int_equal(callables_check(w->t, req, &w->f), 0);
	request_free(req);
	req = accepted(ADD("3"));
	assert_int_equal(callables_check(w->t, req, &w->f), -EAGAIN);
	request_free(req);
}

/* --- room ------------------------------------------------------------------------------------- */

/* Memory that is only said to be as large. */
static enum npu_error paper_allocate(void *m, uint64_t bytes, uint64_t align, uint64_t *ret)
{
	(void)bytes;
	return memory_soft_ops.allocate(m, CALLABLE_BLOCK_BYTES, align, ret);
}

static enum npu_error paper_copy(void *m, uint64_t to, const void *from, uint64_t n)
{
	(void)m, (void)to, (void)from, (void)n;
	return NPU_SUCCESS;
}

static const struct device_ops *paper_ops(void)
{
	static struct callable_memory_ops memory;
	static struct device_ops ops;

	ops = *launch_rig_ops(device_backend("sim"));
	memory = *ops.callables;
	memory.allocate = paper_allocate;
	memory.copy = paper_copy;
	ops.callables = &memory;
	return &ops;
}

#define LARGE \
	"{\"callable\":\"add\",\"inputs\":[" V("x") "," V( \
		"y") "],\"outputs\":[{\"name\":\"z\"," \
		     "\"shape\":[67108000]}],\"scalars\":[2],\"output\":\"raw\"}"
#define LARGE_AT_ONCE 4 /* as many as there is room for */

static struct run *large_run(struct world *w)
{
	const struct run_limits limits = { .output_bytes = 1 << 30, .callables = w->t };
	struct run *run;

	assert_int_equal(run_launch_new(accepted(LARGE), &limits, &run, &w->f), 0);
	return run;
}

/* Its tensors are taken, or wait for their turn. */
static void take_three(struct world *w, struct run *run)
{
	struct step_fault f = { .fault = FAULT_NONE };

	for (int i = 0; i < 3; i++)
		if (run->ops->step(run, NULL, &f) != STEP_MORE)
			fail_msg("%s", f.fault.reason);
	callables_refresh(w->t);
}

static void launch__buffers_of_others_have_the_room__waits_for_it(void **state)
{
	struct world *w = *state;
	struct run *runs[LARGE_AT_ONCE + 1];
	uint64_t launches, full;

	open_device(w, paper_ops());
	prepare(w, "add", "add");
	for (size_t i = 0; i < ARRAY_SIZE(runs); i++)
		runs[i] = large_run(w);
	for (size_t i = 0; i < LARGE_AT_ONCE; i++)
		take_three(w, runs[i]);
	full = callables_figures(w->t, &launches).buffer_bytes;
	take_three(w, runs[LARGE_AT_ONCE]);
	assert_int_equal(callables_figures(w->t, &launches).buffer_bytes, full);
	runs[0]->ops->free(runs[0]);
	take_three(w, runs[LARGE_AT_ONCE]);
	assert_int_equal(callables_figures(w->t, &launches).buffer_bytes, full);
	for (size_t i = 1; i < ARRAY_SIZE(runs); i++)
		runs[i]->ops->free(runs[i]);
	assert_int_equal(callables_figures(w->t, &launches).buffer_bytes, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(grow__more_than_memory_is_for__refused_until_others_end),
		TEST(create__names__plain_ones_once),
		TEST(refuse__with_and_without_reason__remembered_or_gone),
		TEST(refuse__more_than_are_remembered__oldest_forgotten),
		TEST(next__many_names__each_once_in_order_of_number),
		TEST(register__images__ids_in_order_and_names_busy),
		TEST(register__bytes_that_are_no_image__refused_and_nothing_used_up),
		TEST(register__upload_that_fails__same_id_next_time),
		TEST(register__all_ids__the_next_names_the_limit),
		TEST(attach__after_detach__what_is_kept_under_other_ids),
		TEST(attach__device_that_was_lost__registered_with_the_next),
		TEST(attach__damaged_image_of_the_store__refused_and_the_rest_there),
		TEST(attach__name_that_is_being_written__left_to_its_writer),
		TEST(attach__device_without_callables__unsupported),
		TEST(close__release_that_fails__kept_until_it_succeeds),
		TEST(poisoned__fault_that_reaches_further__said_until_closed),
		TEST(plan__by_name_and_id__the_resident),
		TEST(check__before_the_store_was_read__names_wait_and_ids_do_not),
		TEST(launch__buffers_of_others_have_the_room__waits_for_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
