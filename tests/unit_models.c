#include "core/engine/models.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/fake_device.h"
#include "tests/fake_store.h"

static char store[64];
static struct models *m;

static int up(void **state)
{
	struct fault f = FAULT_NONE;

	(void)state;
	fake_store_new(store);
	fake_store_add(store, "beta", fake_llm_template, NULL, 0);
	fake_store_add(store, "alpha", fake_llm_template, NULL, 0);
	return models_new(store, &fake_store_ops, &m, &f);
}

static int down(void **state)
{
	(void)state;
	models_free(m);
	fake_store_remove(store);
	return 0;
}

static void new__store__aliases_sorted_first_is_default(void **state)
{
	struct model_view v;

	(void)state;
	assert_int_equal(models_count(m), 2);
	assert_int_equal(models_find(m, "alpha"), 0);
	assert_int_equal(models_find(m, "beta"), 1);
	assert_int_equal(models_find(m, "gamma"), -1);
	assert_int_equal(models_default(m), 0);
	models_get(m, 1, &v);
	assert_string_equal(v.alias, "beta");
	assert_int_equal(v.state, MODEL_VERIFYING);
	assert_null(v.manifest);
	assert_string_equal(v.sha256, "");
}

static void choose__default_named_unknown(void **state)
{
	struct fault f = FAULT_NONE;

	(void)state;
	assert_int_equal(models_choose(m, NULL, &f), 0);
	assert_int_equal(models_choose(m, "beta", &f), 1);
	assert_int_equal(models_choose(m, "bata", &f), -ENOENT);
	assert_string_equal(f.field, "model");
	assert_non_null(strstr(f.reason, "\"beta\""));
	assert_int_equal(models_choose(m, "zzzzzzzz", NULL), -ENOENT);
	assert_int_equal(models_set_default(m, "beta", &f), 0);
	assert_int_equal(models_choose(m, NULL, &f), 1);
	assert_int_equal(models_set_default(m, "none", &f), -ENOENT);
	assert_int_equal(models_default(m), 1);
}

static void verify__sound_artifact__available_with_all_there_is(void **state)
{
	struct fault f = FAULT_NONE;
	struct model_view v;

	(void)state;
	assert_int_equal(models_verify(m, 0, &f), 0);
	models_get(m, 0, &v);
	assert_int_equal(v.state, MODEL_AVAILABLE);
	assert_non_null(v.manifest);
	assert_non_null(v.artifact);
	assert_non_null(v.tokenizer);
	assert_int_equal(strlen(v.sha256), 64);
	assert_int_equal(v.generation, 0);
	models_set_state(m, 0, MODEL_READY, 4, NULL);
	models_set_state(m, 0, MODEL_AVAILABLE, 0, NULL);
	models_get(m, 0, &v);
	assert_int_equal(v.generation, 4); /* the last that was configured */
}

static void verify__writable_by_others__failed_with_its_fault(void **state)
{
	struct fault f = FAULT_NONE;
	struct model_view v;
	char path[128];

	(void)state;
	strcpy(path, store);
	strcat(path, "/models/beta/calbin");
	assert_int_equal(chmod(path, 0777), 0);
	assert_int_equal(models_verify(m, 1, &f), -EPERM);
	models_get(m, 1, &v);
	assert_int_equal(v.state, MODEL_FAILED);
	assert_int_equal(v.fault.err, -EPERM);
	assert_null(v.tokenizer);
}

static void *look_on(void *arg)
{
	struct fault f = FAULT_NONE;

	(void)arg;
	for (int i = 0; i < 2000; i++) {
		struct model_view v;

		assert_int_equal(models_choose(m, "beta", &f), 1);
		models_get(m, 1, &v);
		assert_true(strlen(v.sha256) == 0 || strlen(v.sha256) == 64);
	}
	return NULL;
}

/* For ThreadSanitizer: what others read without the lock is not written. */
static void verify__while_others_look__whole_or_nothing(void **state)
{
	struct fault f = FAULT_NONE;
	pthread_t t;

	(void)state;
	pthread_create(&t, NULL, look_on, NULL);
	models_verify(m, 1, &f);
	pthread_join(t, NULL);
}

static void new__own_manifest__one_alias(void **state)
{
	struct fault f = FAULT_NONE;
	struct model_view v;
	struct models *own;

	(void)state;
	assert_int_equal(models_new("/nowhere", &fake_ops, &own, &f), 0);
	assert_int_equal(models_count(own), 1);
	assert_int_equal(models_verify(own, 0, &f), 0);
	models_get(own, 0, &v);
	assert_string_equal(v.alias, "echo");
	assert_null(v.artifact);
	assert_int_equal(v.manifest->context_limit, 16);
	models_free(own);
}

static void new__no_store_or_none_in_it__error_or_no_default(void **state)
{
	struct fault f = FAULT_NONE;
	struct models *none;
	char empty[64];

	(void)state;
	assert_int_equal(models_new("/nowhere/at/all", &fake_store_ops, &none, &f), -ENOENT);
	fake_store_new(empty);
	assert_int_equal(models_new(empty, &fake_store_ops, &none, &f), 0);
	assert_int_equal(models_default(none), -1);
	assert_int_equal(models_choose(none, NULL, &f), -ENOENT);
	models_free(none);
	models_free(NULL);
	fake_store_remove(empty);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(new__store__aliases_sorted_first_is_default),
		TEST(choose__default_named_unknown),
		TEST(verify__sound_artifact__available_with_all_there_is),
		TEST(verify__writable_by_others__failed_with_its_fault),
		TEST(verify__while_others_look__whole_or_nothing),
		cmocka_unit_test(new__own_manifest__one_alias),
		cmocka_unit_test(new__no_store_or_none_in_it__error_or_no_default),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
