/* Evidence: what is written is read again, what proves nothing is neither; and which is for whom. */
#include "core/engine/evidence.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/buf.h"
#include "core/base/files.h"
#include "core/base/mem.h"

#define P        "1111111111111111111111111111111111111111111111111111111111111111"
#define Q        "2222222222222222222222222222222222222222222222222222222222222222"
#define ARTIFACT "abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789"

static char store[64];

static const struct device_info device = { "0.7.6", "d1", "f1", "a device" };

static struct evidence sound(void)
{
	static const struct {
		const char *first, *second;
		uint32_t kv[2];
	} rows[] = { { P, Q, { 3, 5 } }, { P, Q, { 3, 5 } }, { P, Q, { 3, 5 } }, { P, P, { 3, 3 } },
		{ Q, Q, { 5, 5 } }, { P, Q, { 3, 5 } }, { Q, P, { 5, 3 } } };
	struct evidence e = { .name = "m",
		.npufs = "0.1.0",
		.device = device,
		.artifact = ARTIFACT,
		.submitted = 14,
		.waited = 14 };

	for (size_t i = 0; i < EVIDENCE_ORDERS; i++) {
		struct evidence_result *r = &e.orders[i];

		r->rounds = 2;
		strcpy(r->sha256[0], rows[i].first);
		strcpy(r->sha256[1], rows[i].second);
		memcpy(r->kv, rows[i].kv, sizeof r->kv);
	}
	return e;
}

static int up(void **state)
{
	(void)state;
	strcpy(store, "/tmp/npufs-unit-XXXXXX");
	return mkdtemp(store) ? 0 : -1;
}

static int down(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof command, "rm -rf %s", store);
	return system(command);
}

static const char *path(const char *name)
{
	static char whole[2][128]; /* two at a time */
	static unsigned turn;
	char *to = whole[turn++ % 2];

	snprintf(to, sizeof whole[0], "%s/%s", store, name);
	return to;
}

static void put_file(const char *name, const char *text)
{
	FILE *f = fopen(path(name), "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
	chmod(path(name), 0600);
}

static void get_file(const char *name, struct buf *out)
{
	AUTO_CLOSE int fd = -1;

	assert_int_equal(files_open_input(path(name), &fd), 0);
	assert_int_equal(files_read(fd, 1 << 20, out), 0);
}

static int check(struct fault *why)
{
	*why = (struct fault)FAULT_NONE;
	return evidence_check(store, &device, ARTIFACT, why);
}

static void write__sound__read_again_and_private(void **state)
{
	AUTO_BUF struct buf text = BUF_INIT;
	struct evidence e = sound(), again;
	struct fault f = FAULT_NONE;
	struct stat st;

	(void)state;
	assert_int_equal(evidence_write(store, &e), 0);
	assert_int_equal(stat(path("evidence"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	assert_int_equal(stat(path("evidence/m.json"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	get_file("evidence/m.json", &text);
	assert_int_equal(evidence_parse(text.data, text.len, &again, &f), 0);
	assert_string_equal(again.npufs, "0.1.0");
	assert_string_equal(again.device.firmware, "f1");
	assert_string_equal(again.artifact, ARTIFACT);
	assert_int_equal(again.recorded[0], '2'); /* a year */
	assert_int_equal(again.waited, 14);
	assert_string_equal(again.orders[EVIDENCE_QP].sha256[0], Q);
	assert_int_equal(again.orders[EVIDENCE_QP].kv[1], 3);
	assert_int_equal(again.orders[EVIDENCE_PP].rounds, 2);
	assert_int_equal(check(&f), 0);
}

static void spoil_hash(struct evidence *e)
{
	strcpy(e->orders[EVIDENCE_QP].sha256[1], Q);
}

static void spoil_kv(struct evidence *e)
{
	e->orders[EVIDENCE_PQ].kv[1] = 6;
}

static void spoil_rounds(struct evidence *e)
{
	e->orders[EVIDENCE_QQ].rounds = 0;
}

static void spoil_counts(struct evidence *e)
{
	e->waited--;
}

static void spoil_nothing_run(struct evidence *e)
{
	e->waited = e->submitted = 0;
}

static void spoil_artifact(struct evidence *e)
{
	e->artifact[5] = 'X';
}

static void spoil_digest(struct evidence *e)
{
	for (size_t i = 0; i < EVIDENCE_ORDERS; i++)
		for (size_t k = 0; k < 2; k++)
			e->orders[i].sha256[k][63] = '\0';
}

/* Where P and Q give the same, one in place of the other would not be seen. */
static void spoil_difference(struct evidence *e)
{
	for (size_t i = 0; i < EVIDENCE_ORDERS; i++)
		for (size_t k = 0; k < 2; k++)
			strcpy(e->orders[i].sha256[k], P);
}

static void spoil_name(struct evidence *e)
{
	strcpy(e->name, "../m");
}

static void spoil_hidden_name(struct evidence *e)
{
	strcpy(e->name, ".m");
}

static void spoil_no_name(struct evidence *e)
{
	e->name[0] = '\0';
}

static void write__proves_nothing__einval_and_the_old_one_stays(void **state)
{
	static void (*const spoils[])(struct evidence *) = { spoil_hash, spoil_kv, spoil_rounds,
		spoil_counts, spoil_nothing_run, spoil_artifact, spoil_digest, spoil_difference,
		spoil_name, spoil_hidden_name, spoil_no_name };
	struct evidence e = sound();
	struct fault f;

	(void)state;
	assert_int_equal(evidence_write(store, &e), 0);
	for (size_t i = 0; i < ARRAY_SIZE(spoils); i++) {
		e = sound();
		spoils[i](&e);
		assert_int_equal(evidence_write(store, &e), -EINVAL);
		assert_int_equal(check(&f), 0);
	}
}

static void check__another_of_each__stale_and_named(void **state)
{
	static const struct {
		size_t offset;
		const char *says;
	} rows[] = {
		{ offsetof(struct evidence, device.name), "device" },
		{ offsetof(struct evidence, device.driver), "driver" },
		{ offsetof(struct evidence, device.firmware), "firmware" },
		{ offsetof(struct evidence, device.runtime), "runtime" },
		{ offsetof(struct evidence, artifact), "artifact" },
	};
	struct evidence e;
	struct fault f;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		e = sound();
		((char *)&e)[rows[i].offset] = '9';
		assert_int_equal(evidence_write(store, &e), 0);
		assert_int_equal(check(&f), -ESTALE);
		assert_string_equal(f.field, rows[i].says);
		assert_non_null(strstr(f.reason, rows[i].says));
	}
	e.device = (struct device_info){ "r", "d", "f", "n" };
	assert_int_equal(evidence_write(store, &e), 0);
	assert_int_equal(check(&f), -ESTALE);
	assert_string_equal(f.field, "device, driver, firmware, runtime, artifact");
}

static void check__several__the_matching_or_else_the_nearest(void **state)
{
	struct evidence e = sound();
	struct fault f;

	(void)state;
	strcpy(e.name, "a");
	strcpy(e.device.firmware, "f0");
	strcpy(e.device.driver, "d0");
	assert_int_equal(evidence_write(store, &e), 0);
	strcpy(e.name, "b");
	strcpy(e.device.driver, "d1");
	assert_int_equal(evidence_write(store, &e), 0);
	assert_int_equal(check(&f), -ESTALE);
	assert_string_equal(f.field, "firmware");
	e = sound();
	strcpy(e.name, "c");
	assert_int_equal(evidence_write(store, &e), 0);
	assert_int_equal(check(&f), 0);
}

static void check__none__enoent(void **state)
{
	struct fault f;

	(void)state;
	assert_int_equal(check(&f), -ENOENT);
	assert_int_equal(mkdir(path("evidence"), 0700), 0);
	assert_int_equal(check(&f), -ENOENT);
	put_file("evidence/notes.txt", "not looked at");
	put_file("evidence/.m.json.new", "{");
	assert_int_equal(check(&f), -ENOENT);
}

static void check__others_could_have_written__eperm(void **state)
{
	struct evidence e = sound();
	struct fault f;

	(void)state;
	assert_int_equal(evidence_write(store, &e), 0);
	assert_int_equal(chmod(path("evidence/m.json"), 0660), 0);
	assert_int_equal(check(&f), -EPERM);
	assert_int_equal(chmod(path("evidence/m.json"), 0600), 0);
	assert_int_equal(chmod(path("evidence"), 0777), 0);
	assert_int_equal(check(&f), -EPERM);
	assert_int_equal(chmod(path("evidence"), 0700), 0);
	assert_int_equal(check(&f), 0);
	assert_int_equal(rename(path("evidence/m.json"), path("elsewhere")) |
			symlink("../elsewhere", path("evidence/m.json")),
		0);
	assert_int_equal(check(&f), -ELOOP);
}

/* One that cannot be read could be the one that says no. */
static void check__a_broken_file_beside_a_good_one__none_counts(void **state)
{
	struct evidence e = sound();
	struct fault f;

	(void)state;
	assert_int_equal(evidence_write(store, &e), 0);
	put_file("evidence/a.json", "{\"schema\":");
	assert_int_equal(check(&f), -EINVAL);
	assert_non_null(strstr(f.reason, "a.json"));
}

/* Each with one word replaced. */
static void parse__not_as_it_is_written__einval(void **state)
{
	static const struct {
		const char *from, *to;
	} rows[] = {
		{ "npufs-evidence-1", "npufs-evidence-2" },
		{ "\"npufs\"", "\"nqufs\"" },
		{ "\"submitted\"", "\"waited\"" },
		{ "\"P-P\"", "\"P-R\"" },
		{ "\"auto\"", "\"aute\"" },
		{ "\"submitted\": 14", "\"submitted\": -4" },
		{ "\"submitted\": 14", "\"submitted\": 15" },
		{ "\"first_kv\"", "\"first_kw\"" },
		{ "\"rounds\": 2", "\"rounds\": 0" },
		{ "\"f1\"", "null" },
	};
	AUTO_BUF struct buf text = BUF_INIT;
	struct evidence e = sound(), got;

	(void)state;
	assert_int_equal(evidence_write(store, &e), 0);
	get_file("evidence/m.json", &text);
	for (char *p = text.data; (p = strstr(p, ":\t"));)
		p[1] = ' '; /* however it is spaced */
	assert_int_equal(evidence_parse(text.data, text.len, &got, NULL), 0);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		AUTO_BUF struct buf bad = BUF_INIT;
		struct fault f = FAULT_NONE;
		const char *at = strstr(text.data, rows[i].from);

		assert_non_null(at);
		buf_put(&bad, text.data, (size_t)(at - text.data));
		buf_puts(&bad, rows[i].to);
		buf_puts(&bad, at + strlen(rows[i].from));
		assert_int_equal(evidence_parse(bad.data, bad.len, &got, &f), -EINVAL);
		assert_true(f.reason[0]);
	}
	for (size_t n = 0; n + 2 < text.len; n += 7)
		assert_int_equal(evidence_parse(text.data, n, &got, NULL), -EINVAL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(write__sound__read_again_and_private),
		TEST(write__proves_nothing__einval_and_the_old_one_stays),
		TEST(check__another_of_each__stale_and_named),
		TEST(check__several__the_matching_or_else_the_nearest),
		TEST(check__none__enoent),
		TEST(check__others_could_have_written__eperm),
		TEST(check__a_broken_file_beside_a_good_one__none_counts),
		TEST(parse__not_as_it_is_written__einval),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
