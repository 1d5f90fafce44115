/* The matrix on the software device with the two example models: all well where nothing is planted,
 * and where something is, exactly the cases fail that must. */
#include "core/matrix/matrix.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/artifact/artifact.h"
#include "core/base/lock.h"
#include "core/base/mem.h"
#include "core/device_null.h"
#include "core/device_sim.h"
#include "core/engine/evidence.h"
#include "tests/artifact_files.h"
#include "tests/matrix_plants.h"

static struct work work;
static char store[64];
static struct matrix_config config;

static void must(int err, const struct fault *f)
{
	if (err)
		fail_msg("%s", f->reason);
}

/* Run from the top of the tree, where the examples are. */
static void add(const char *model)
{
	AUTO_BUF struct buf detail = BUF_INIT;
	struct fault f = FAULT_NONE;
	char from[64], to[128];

	snprintf(from, sizeof from, "examples/%s", model);
	snprintf(to, sizeof to, "%s/models/%s", store, model);
	must(artifact_import_package(from, to, &f), &f);
	must(artifact_sign(to, work_path(&work, "key.pem"), &f, &detail), &f);
}

static int make_store(void **state)
{
	struct fault f = FAULT_NONE;
	char id[KEY_ID_SIZE];

	(void)state;
	work_make(&work);
	work_key(&work, "key", NULL);
	snprintf(store, sizeof store, "%s/store", work.root);
	must(store_init(store, &f), &f);
	must(store_trust(store, work_path(&work, "key.pub.pem"), id, &f), &f);
	add("dates");
	add("xor");
	return 0;
}

static int remove_store(void **state)
{
	(void)state;
	work_remove(&work);
	return 0;
}

static int up(void **state)
{
	(void)state;
	config = (struct matrix_config){
		.ops = &device_sim_ops,
		.device = { .threads = 1, .kv_sequences = 4 },
		.store = store,
		.cycles = 20,
	};
	return 0;
}

/* The output; the caller frees it. */
static char *run(int *ret_failed)
{
	struct fault f = FAULT_NONE;
	char *text = NULL;
	size_t n;
	FILE *out = open_memstream(&text, &n);

	*ret_failed = matrix_run(&config, out, &f);
	fclose(out);
	if (*ret_failed < 0)
		fail_msg("%s", f.reason);
	return text;
}

static size_t count(const char *text, const char *word)
{
	size_t n = 0;

	while ((text = strstr(text, word))) {
		n++;
		text += strlen(word);
	}
	return n;
}

static void print_failed(const char *text)
{
	for (const char *p = text; (p = strstr(p, "\nnot ok ")); p++)
		fprintf(stderr, "  %.*s\n", (int)strcspn(p + 1, "\n"), p + 1);
}

/* All cases are there, numbered, none failed; the plan has their number. */
static void check_clean(size_t cases)
{
	AUTO_FREE char *text = NULL;
	char line[64];
	int failed;

	text = run(&failed);
	print_failed(text);
	assert_int_equal(failed, 0);
	assert_int_equal(count(text, "\nok "), cases);
	assert_int_equal(count(text, "\nnot ok "), 0);
	assert_int_equal(strncmp(text, "TAP version 13\n", 15), 0);
	snprintf(line, sizeof line, "\nok %zu - security: ", cases);
	assert_non_null(strstr(text, line));
	snprintf(line, sizeof line, "\n1..%zu\n", cases);
	assert_non_null(strstr(text, line));
}

#define CASES 103

static void clean__both_models__all_ok(void **state)
{
	(void)state;
	check_clean(2 * CASES);
}

static void clean__backends_own_model__all_ok(void **state)
{
	(void)state;
	config.ops = &device_null_ops;
	check_clean(CASES);
}

/* Slow, and with no golden data of its own, which is its right. */
static void clean__benign_faults__all_ok(void **state)
{
	struct fault f = FAULT_NONE;
	struct fault_plan plan;

	(void)state;
	must(fault_plan_parse("Wait@3-:delay=1/Status@*:delay=1/infer@2:delay=20/"
			      "GetGolden@*:silent",
		     &plan, &f),
		&f);
	config.model = "dates";
	config.faults = &plan;
	check_clean(CASES);
}

/* What is skipped, and nothing else is. */
static void clean__what_is_skipped__says_why(void **state)
{
	AUTO_FREE char *text = NULL;
	int failed;

	(void)state;
	config.model = "dates";
	text = run(&failed);
	assert_int_equal(count(text, "# SKIP"), 1);
	assert_int_equal(count(text, "csr: a program without lengths # SKIP"), 1);
}

/* --- two engines ------------------------------------------------------------------------------ */

static int check_evidence(const char *model, const struct device_info *info, struct fault *why)
{
	struct artifact *a;
	int err;

	must(artifact_verify(store, model, &a, why), why);
	err = evidence_check(store, info, a->sha256, why);
	artifact_free(a);
	return err;
}

static void parallel__nothing_failed__evidence_for_this_device_and_artifact(void **state)
{
	struct device_info info = { "0.7.6", "sim-1", "sim-1", "npufs software device" };
	AUTO_FREE char *text = NULL;
	struct fault why = FAULT_NONE;
	int failed;

	(void)state;
	config.evidence = "test";
	config.model = "dates";
	assert_int_equal(check_evidence("dates", &info, &why), -ENOENT);
	text = run(&failed);
	print_failed(text);
	assert_int_equal(failed, 0);
	assert_int_equal(count(text, "2 in flight, output, KV and status are"), 12);
	assert_int_equal(check_evidence("dates", &info, &why), 0);
	assert_int_equal(check_evidence("xor", &info, &why), -ESTALE);
	assert_string_equal(why.field, "artifact");
	strcpy(info.firmware, "sim-2");
	assert_int_equal(check_evidence("dates", &info, &why), -ESTALE);
	assert_string_equal(why.field, "firmware");
}

static void rename_model(const char *from, const char *to)
{
	char a[256], b[256];

	snprintf(a, sizeof a, "%s/models/%s", store, from);
	snprintf(b, sizeof b, "%s/models/%s", store, to);
	assert_int_equal(rename(a, b), 0);
}

/* The longest aliases there can be. */
static void parallel__aliases_alike_but_for_their_end__evidence_for_each(void **state)
{
	static const char *const models[] = { "dates", "xor" };
	struct device_info info = { "0.7.6", "sim-1", "sim-1", "npufs software device" };
	char alias[2][ALIAS_MAX + 1];
	struct fault why = FAULT_NONE;

	(void)state;
	config.evidence = "test";
	for (int i = 0; i < 2; i++) {
		AUTO_FREE char *text = NULL;
		int failed;

		memset(alias[i], 'a', ALIAS_MAX);
		alias[i][ALIAS_MAX - 1] = (char)('0' + i);
		alias[i][ALIAS_MAX] = '\0';
		rename_model(models[i], alias[i]);
		config.model = alias[i];
		text = run(&failed);
		assert_int_equal(count(text, "# evidence recorded"), 1);
	}
	for (int i = 0; i < 2; i++)
		rename_model(alias[i], models[i]);
	assert_int_equal(check_evidence("dates", &info, &why), 0);
	assert_int_equal(check_evidence("xor", &info, &why), 0);
}

static void parallel__faults_planted__nothing_is_recorded(void **state)
{
	struct fault f = FAULT_NONE;
	AUTO_FREE char *text = NULL;
	struct fault_plan plan;
	int failed;

	(void)state;
	must(fault_plan_parse("Status@*:delay=1", &plan, &f), &f);
	config.evidence = "test";
	config.model = "xor";
	config.faults = &plan;
	text = run(&failed);
	assert_int_equal(failed, 0);
	assert_int_equal(count(text, "# evidence"), 0);
}

/* --- plants ----------------------------------------------------------------------------------- */

static bool has_failed(const char *text, const char *name)
{
	for (const char *p = text; (p = strstr(p, "\nnot ok ")); p++) {
		const char *at = strstr(p, " - ") + 3;

		if (strncmp(at, name, strlen(name)) == 0 && at[strlen(name)] == ':')
			return true;
	}
	return false;
}

static unsigned bad; /* plants that were caught otherwise than they must */

static void check_caught(const struct matrix_plant *p)
{
	AUTO_FREE char *text = NULL;
	char group[32];
	size_t n = 0;
	int failed;

	snprintf(group, sizeof group, "%.*s", (int)strcspn(p->scope, ":"), p->scope);
	config.only = group;
	config.plant = p;
	text = run(&failed);
	for (; p->caught[n]; n++)
		if (!has_failed(text, p->caught[n])) {
			print_failed(text);
			print_error("%s: \"%s\" did not fail\n", p->name, p->caught[n]);
			bad++;
		}
	if ((size_t)failed != n || count(text, "\nnot ok ") != n) {
		print_failed(text);
		print_error("%s: %d cases failed, not %zu\n", p->name, failed, n);
		bad++;
	}
}

static void plants__each__exactly_the_right_cases_fail(void **state)
{
	(void)state;
	assert_true(ARRAY_SIZE(plants) >= 25);
	/* With a sanitizer's slowness one in four, it looks for other faults. */
	for (size_t i = 0; i < ARRAY_SIZE(plants); i += NPUFS_DEBUG ? 4 : 1) {
		up(NULL);
		config.model = "dates";
		check_caught(&plants[i]);
		if (plants[i].llm)
			continue;
		up(NULL);
		config.model = "xor";
		check_caught(&plants[i]);
	}
	assert_int_equal(bad, 0);
}

static void plants__crosstalk_of_two_engines__seen(void **state)
{
	const struct matrix_plant crosstalk = { "crosstalk of two engines", LAYER_DEVICE,
		"Wait@*:swap", "parallel",
		CAUGHT("parallel: Auto: P-Q", "parallel: Auto: Q-P", "parallel: Ping and Pong: P-Q",
			"parallel: Ping and Pong: Q-P", "parallel: Pong and Ping: P-Q",
			"parallel: Pong and Ping: Q-P", "parallel: evidence"),
		false };

	(void)state;
	config.model = "dates";
	bad = 0;
	check_caught(&crosstalk);
	assert_int_equal(bad, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(clean__both_models__all_ok, up),
		cmocka_unit_test_setup(clean__backends_own_model__all_ok, up),
		cmocka_unit_test_setup(clean__benign_faults__all_ok, up),
		cmocka_unit_test_setup(clean__what_is_skipped__says_why, up),
		cmocka_unit_test_setup(
			parallel__nothing_failed__evidence_for_this_device_and_artifact, up),
		cmocka_unit_test_setup(parallel__aliases_alike_but_for_their_end__evidence_for_each,
			up),
		cmocka_unit_test_setup(parallel__faults_planted__nothing_is_recorded, up),
		cmocka_unit_test_setup(plants__each__exactly_the_right_cases_fail, up),
		cmocka_unit_test_setup(plants__crosstalk_of_two_engines__seen, up),
	};

	return cmocka_run_group_tests(tests, make_store, remove_store);
}
