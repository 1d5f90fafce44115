/* The audit trail: its form, its chain, and what breaks it. */
#include "core/control/audit.h"

#include "audit_rig.h"

#include <pthread.h>
#include <sys/prctl.h>

#include "core/control/audit_line.h"

/* --- form ------------------------------------------------------------------------------------- */

#define ZEROS "0000000000000000000000000000000000000000000000000000000000000000"
/* SHA-256 of "abc", FIPS 180-2, appendix B.1. */
#define ABC "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

/* Line `i` begins with `start`, then has a time, then `rest`, then the hash of all that. */
static void expect_line(const struct buf *b, int i, const char *start, const char *rest,
	char ret_hash[SHA256_HEX_SIZE])
{
	const size_t time_len = strlen("2026-01-31T12:00:00.123Z");
	const char *at = b->data + line_at(b, i), *time = at + strlen(start);
	const char *end = time + time_len + strlen(rest);
	char hash[SHA256_HEX_SIZE], tail[SHA256_HEX_SIZE + 16];
	int year;

	assert_memory_equal(at, start, strlen(start));
	assert_int_equal(sscanf(time, "%4d-%*2d-%*2dT%*2d:%*2d:%*2d.%*3dZ", &year), 1);
	assert_in_range(year, 2024, 2200);
	assert_memory_equal(time + time_len, rest, strlen(rest));
	sha256_hex(at, (size_t)(end - at), hash);
	snprintf(tail, sizeof tail, ",\"hash\":\"%s\"}\n", hash);
	assert_memory_equal(end, tail, strlen(tail));
	strcpy(ret_hash, hash);
}

static void write__two_records__as_documented(void **state)
{
	struct audit_rig *x = *state;
	struct audit_record r = sample;
	AUTO_BUF struct buf b = BUF_INIT;
	char hash[SHA256_HEX_SIZE], rest[512];

	write_some(x, 1);
	r.decision = AUDIT_FAILED;
	r.why = "EIO";
	r.login = -1;
	r.comm = "";
	r.message = NULL;
	assert_int_equal(audit_write(x->audit, &r), 0);
	read_file(x, FIRST, &b);
	expect_line(&b, 0, "{\"seq\":1,\"time\":\"",
		"\",\"uid\":0,\"gid\":5,\"pid\":77,\"comm\":\"sh\",\"loginuid\":1000,\"command\":"
		"\"reset_ccu\","
		"\"node\":\"control/reset_ccu\",\"args\":\"" ABC "\",\"decision\":\"intent\","
		"\"why\":\"\",\"message\":\"stuck since noon\",\"prev\":\"" ZEROS "\"",
		hash);
	snprintf(rest, sizeof rest,
		"\",\"uid\":0,\"gid\":5,\"pid\":77,\"comm\":null,\"loginuid\":null,\"command\":"
		"\"reset_ccu\","
		"\"node\":\"control/reset_ccu\",\"args\":\"" ABC "\",\"decision\":\"failed\","
		"\"why\":\"EIO\",\"message\":\"\",\"prev\":\"%s\"",
		hash);
	expect_line(&b, 1, "{\"seq\":2,\"time\":\"", rest, hash);
	assert_int_equal(line_at(&b, 2), b.len);
	rig_sound(x, "records 1 to 2 in 1 files\nlast hash: ");
	rig_sound(x, hash);
}

static void write__wild_texts__sanitised_and_cut(void **state)
{
	struct audit_rig *x = *state;
	struct audit_record r = sample;
	AUTO_BUF struct buf b = BUF_INIT;
	char big[4000];

	r.message = "a\nb\x1b[2J\"\\\xff\xc2\x9b.\xe2\x82\xac";
	r.args = "what was asked for";
	assert_int_equal(audit_write(x->audit, &r), 0);
	rig_show(x, 1, &b);
	assert_null(strstr(b.data, r.args));
	assert_non_null(strstr(b.data, "\"message\":\"a?b?[2J\\\"\\\\??.\xe2\x82\xac\","));
	memset(big, '"', sizeof big - 1);
	big[sizeof big - 1] = '\0';
	r.message = r.command = r.node = r.why = r.args = big;
	assert_int_equal(audit_write(x->audit, &r), 0);
	rig_show(x, 1, &b);
	assert_true(b.len <= AUDIT_LINE_MAX);
	rig_sound(x, "records 1 to 2 ");
}

static void write__no_trail__is_an_error(void **state)
{
	(void)state;
	assert_int_equal(audit_write(NULL, &sample), -EIO);
}

static void login__this_process__as_the_kernel_says(void **state)
{
	unsigned uid = UINT32_MAX;
	FILE *f = fopen("/proc/self/loginuid", "r");

	(void)state;
	if (f) {
		assert_int_equal(fscanf(f, "%u", &uid), 1);
		fclose(f);
	}
	assert_int_equal(audit_login(getpid()), uid == UINT32_MAX ? -1 : (int64_t)uid);
	assert_int_equal(audit_login(0), -1);
	assert_int_equal(audit_login(-1), -1);
}

static void comm__this_process__as_it_called_itself(void **state)
{
	char was[AUDIT_COMM_SIZE], comm[AUDIT_COMM_SIZE];

	(void)state;
	assert_int_equal(prctl(PR_GET_NAME, was), 0);
	audit_comm(getpid(), comm);
	assert_string_equal(comm, was);
	assert_int_equal(prctl(PR_SET_NAME, "a name as long as it can be"), 0);
	audit_comm(getpid(), comm);
	assert_string_equal(comm, "a name as long ");
	prctl(PR_SET_NAME, was);
	audit_comm(0, comm);
	assert_string_equal(comm, "");
}

/* Of a trail that began before there was the member. */
static void verify__record_without_comm__is_one(void **state)
{
	const char *member = "\"comm\":\"sh\",";
	struct audit_rig *x = *state;
	AUTO_BUF struct buf b = BUF_INIT;
	char hash[SHA256_HEX_SIZE], *at;
	struct audit_line l;

	write_some(x, 1);
	read_file(x, FIRST, &b);
	at = strstr(buf_text(&b), member);
	assert_non_null(at);
	memmove(at, at + strlen(member), strlen(at + strlen(member)) + 1);
	at = strstr(b.data, ",\"hash\":\"");
	assert_string_equal(audit_line_get(AUDIT_COMMANDS, b.data, strlen(b.data) - 1, &l),
		"its bytes are not those that its hash was made of");
	sha256_hex(b.data, (size_t)(at - b.data), hash);
	memcpy(at + strlen(",\"hash\":\""), hash, SHA256_HEX_SIZE - 1);
	assert_null(audit_line_get(AUDIT_COMMANDS, b.data, strlen(b.data) - 1, &l));
	assert_int_equal(l.seq, 1);
}

/* --- what breaks the chain -------------------------------------------------------------------- */

/* Whatever the byte: digit, quote, blank, brace, hash, newline. Only the last newline's loss looks
 * like a crash: to who does not know the head. */
static void verify__any_byte_changed__told_where(void **state)
{
	struct audit_rig *x = *state;
	AUTO_BUF struct buf b = BUF_INIT;
	size_t starts[4];

	write_some(x, 3);
	read_file(x, FIRST, &b);
	for (int i = 0; i < 4; i++)
		starts[i] = line_at(&b, i);
	for (size_t at = 0; at < b.len - 1; at++) {
		int line = at < starts[1] ? 0 : at < starts[2] ? 1 : 2;

		b.data[at] ^= at % 3 == 0 ? 1 : at % 3 == 1 ? 0x20 : 0x80;
		put_file(x, FIRST, b.data, b.len);
		expect_broken(x, "00000001.jsonl", line + 1, starts[line]);
		b.data[at] ^= at % 3 == 0 ? 1 : at % 3 == 1 ? 0x20 : 0x80;
	}
	b.data[b.len - 1] = ' ';
	put_file(x, FIRST, b.data, b.len);
	expect_cut(x, "00000001.jsonl", 2, 3, 3);
}

static void verify__byte_added_or_removed__broken(void **state)
{
	struct audit_rig *x = *state;
	AUTO_BUF struct buf b = BUF_INIT, other = BUF_INIT;
	static const char added[] = "\n\0 {9";

	write_some(x, 2);
	read_file(x, FIRST, &b);
	for (size_t at = 0; at < line_at(&b, 1); at += 7) {
		struct fault f;

		buf_reset(&other);
		buf_put(&other, b.data, at);
		buf_put(&other, b.data + at + 1, b.len - at - 1);
		put_file(x, FIRST, other.data, other.len);
		assert_int_equal(audit_verify(x->store, AUDIT_COMMANDS, &other, &f), -EBADMSG);
		buf_reset(&other);
		buf_put(&other, b.data, at);
		buf_put(&other, added + at % 5, 1);
		buf_put(&other, b.data + at, b.len - at);
		put_file(x, FIRST, other.data, other.len);
		assert_int_equal(audit_verify(x->store, AUDIT_COMMANDS, &other, &f), -EBADMSG);
	}
}

/* Lines of a file of four, in another order. */
static void put_lines(struct audit_rig *x, const struct buf *b, const char *order)
{
	AUTO_BUF struct buf other = BUF_INIT;

	for (; *order; order++) {
		size_t at = line_at(b, *order - '0');

		buf_put(&other, b->data + at, line_at(b, *order - '0' + 1) - at);
	}
	put_file(x, FIRST, buf_text(&other), other.len);
}

static void verify__records_moved__broken(void **state)
{
	static const struct {
		const char *order;
		int line;
	} cases[] = { { "013", 3 }, { "0213", 2 }, { "01123", 3 }, { "1023", 2 }, { "00123", 2 } };
	struct audit_rig *x = *state;
	AUTO_BUF struct buf b = BUF_INIT, now = BUF_INIT;

	write_some(x, 4);
	read_file(x, FIRST, &b);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		put_lines(x, &b, cases[i].order);
		read_file(x, FIRST, &now);
		expect_broken(x, "00000001.jsonl", cases[i].line, line_at(&now, cases[i].line - 1));
	}
	put_lines(x, &b, "123");
	rig_sound(x, "records 2 to 4 in 1 files");
	rig_sound(x, "record 1 and those before it are not here");
	put_lines(x, &b, "01");
	expect_cut(x, "00000001.jsonl", 2, 3, 4);
	put_lines(x, &b, "");
	expect_cut(x, "00000001.jsonl", 0, 1, 4);
}

/* Change the line at `at`, and give it the hash of its new bytes. */
static void make_anew(struct buf *b, size_t at, const char *from, const char *to)
{
	char *line = b->data + at, *hash = strstr(line, ",\"hash\":\""), hex[SHA256_HEX_SIZE];

	memcpy(strstr(line, from), to, strlen(to));
	sha256_hex(line, (size_t)(hash - line), hex);
	memcpy(hash + strlen(",\"hash\":\""), hex, SHA256_HEX_SIZE - 1);
}

/* A sound line of its own does not help: the next one follows another. */
static void verify__record_made_anew__next_one_breaks(void **state)
{
	struct audit_rig *x = *state;
	AUTO_BUF struct buf b = BUF_INIT;

	write_some(x, 3);
	read_file(x, FIRST, &b);
	make_anew(&b, line_at(&b, 1), "noon", "dawn");
	put_file(x, FIRST, b.data, b.len);
	expect_broken(x, "00000001.jsonl", 3, line_at(&b, 2));
}

static void verify__last_record_made_anew__its_number_must_fit(void **state)
{
	struct audit_rig *x = *state;
	AUTO_BUF struct buf b = BUF_INIT;

	write_some(x, 3);
	read_file(x, FIRST, &b);
	make_anew(&b, line_at(&b, 2), "\"seq\":3", "\"seq\":4");
	put_file(x, FIRST, b.data, b.len);
	expect_broken(x, "00000001.jsonl", 3, line_at(&b, 2));
	make_anew(&b, line_at(&b, 2), "\"seq\":4", "\"seq\":3");
	make_anew(&b, line_at(&b, 2), "\"intent\"", "\"INTENT\"");
	put_file(x, FIRST, b.data, b.len);
	expect_broken(x, "00000001.jsonl", 3, line_at(&b, 2));
}

static void open__broken_end__refused(void **state)
{
	struct audit_rig *x = *state;
	AUTO_BUF struct buf b = BUF_INIT;
	struct fault f = FAULT_NONE;

	write_some(x, 3);
	rig_close(x);
	read_file(x, FIRST, &b);
	b.data[line_at(&b, 2) + 20] ^= 1;
	put_file(x, FIRST, b.data, b.len);
	assert_int_equal(audit_open(x->store, AUDIT_COMMANDS, &x->audit, &f), -EBADMSG);
	assert_non_null(strstr(f.reason, "00000001.jsonl, line 3: "));
	assert_true(f.action[0]);
	assert_null(x->audit);
}

/* --- threads ---------------------------------------------------------------------------------- */

#define EACH 150

static void *write_many(void *rig)
{
	struct audit_rig *x = rig;
	int failed = 0;

	for (int i = 0; i < EACH; i++)
		failed += audit_write(x->audit, &sample) != 0;
	return failed ? rig : NULL;
}

static void write__threads_at_once__one_chain(void **state)
{
	struct audit_rig *x = *state;
	pthread_t threads[3];
	void *failed;

	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, write_many, x), 0);
	for (int i = 0; i < 20; i++)
		rig_sound(x, ""); /* a reader never takes what is being written for a break */
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++) {
		assert_int_equal(pthread_join(threads[i], &failed), 0);
		assert_null(failed);
	}
	rig_sound(x, "records 1 to 457 in 1 files");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(write__two_records__as_documented),
		TEST(write__wild_texts__sanitised_and_cut),
		TEST(write__no_trail__is_an_error),
		TEST(login__this_process__as_the_kernel_says),
		TEST(comm__this_process__as_it_called_itself),
		TEST(verify__record_without_comm__is_one),
		TEST(verify__any_byte_changed__told_where),
		TEST(verify__byte_added_or_removed__broken),
		TEST(verify__records_moved__broken),
		TEST(verify__record_made_anew__next_one_breaks),
		TEST(verify__last_record_made_anew__its_number_must_fit),
		TEST(open__broken_end__refused),
		TEST(write__threads_at_once__one_chain),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
