/* What the daemon's signatures add to the chain: the end cannot be removed, nor all of it written
 * anew; and what goes to syslog. */
#include "core/control/audit.h"

#include "audit_rig.h"

#include "core/artifact/signature.h"
#include "core/control/audit_seal.h"

#define PRIVATE "store/audit/daemon.pem"
#define PUBLIC  "store/audit/daemon.pub.pem"

static void expect_verify(struct audit_rig *x, int err, const char *reason)
{
	AUTO_BUF struct buf out = BUF_INIT;
	struct fault f = FAULT_NONE;
	int got = audit_verify(x->store, AUDIT_COMMANDS, &out, &f);

	if (got != err || !strstr(f.reason, reason))
		fail_msg("%d \"%s\", not %d \"%s\"", got, f.reason, err, reason);
	assert_true(f.action[0]);
}

static void expect_open(struct audit_rig *x, int err, const char *reason)
{
	struct fault f = FAULT_NONE;
	int got;

	x->audit = NULL;
	got = audit_open(x->store, AUDIT_COMMANDS, &x->audit, &f);
	if (got != err || !strstr(f.reason, reason))
		fail_msg("%d \"%s\", not %d \"%s\"", got, f.reason, err, reason);
	assert_null(x->audit);
}

static struct key *public_key(struct audit_rig *x)
{
	AUTO_BUF struct buf pem = BUF_INIT;
	struct key *k;

	read_file(x, PUBLIC, &pem);
	assert_int_equal(key_from_public_pem(pem.data, pem.len, &k), 0);
	return k;
}

/* --- checkpoints ------------------------------------------------------------------------------ */

static void write__65th__checkpoint_before_it_as_documented(void **state)
{
	struct audit_rig *x = *state;
	AUTO_BUF struct buf b = BUF_INIT;
	struct key *k = public_key(x);
	char *line, *sign, *hash, hex[SHA256_HEX_SIZE];
	struct signature s;

	write_some(x, 64);
	assert_int_equal(rig_count(x), 64);
	write_some(x, 1);
	assert_int_equal(rig_count(x), 66);
	read_file(x, FIRST, &b);
	line = b.data + line_at(&b, 64);
	assert_memory_equal(line, "{\"seq\":65,\"time\":\"", 18);
	assert_memory_equal(line + 42, "\",\"checkpoint\":64,\"prev\":\"", 26);
	sign = strstr(line, ",\"signature\":\"");
	hash = strstr(line, ",\"hash\":\"");
	assert_true(sign && hash > sign);
	sha256_hex(line, (size_t)(hash - line), hex);
	assert_memory_equal(hash + 9, hex, 64);
	hash[-1] = '\n'; /* the signature is a line of signature.h, its newline left out */
	assert_true(signature_get("npufs-audit-checkpoint-1", sign + 14,
		(size_t)(hash - (sign + 14)), &s));
	assert_int_equal(key_verify(k, line, (size_t)(sign - line), s.bytes, sizeof s.bytes), 0);
	key_free(k);
	write_some(x, 64);
	assert_int_equal(rig_count(x), 131);
	rig_sound(x, "signed up to record 131\n");
	rig_close(x);
	rig_sound(x, "records 1 to 132 "); /* the one at the end */
	rig_open(x);
	rig_close(x);
	rig_sound(x, "records 1 to 132 "); /* nothing was added */
	assert_int_equal(work_mode(&x->w, PRIVATE), 0600);
	assert_int_equal(work_mode(&x->w, HEAD), 0600);
}

/* Give every line from `at` on the hash of its bytes, and the one before as its prev. */
static void chain_anew(struct buf *b, size_t at)
{
	char hex[SHA256_HEX_SIZE] = "";

	while (at < b->len) {
		char *line = b->data + at, *hash = strstr(line, ",\"hash\":\"");

		if (hex[0])
			memcpy(strstr(line, "\"prev\":\"") + 8, hex, 64);
		sha256_hex(line, (size_t)(hash - line), hex);
		memcpy(hash + 9, hex, 64);
		at = (size_t)(strchr(line, '\n') + 1 - b->data);
	}
}

/* All hashes are right: only the signatures tell. */
static void verify__chain_written_anew__broken(void **state)
{
	struct audit_rig *x = *state;
	AUTO_BUF struct buf b = BUF_INIT, cut = BUF_INIT;
	size_t at;

	write_some(x, 70);
	read_file(x, FIRST, &b);
	memcpy(strstr(b.data + line_at(&b, 3), "noon"), "dawn", 4);
	chain_anew(&b, line_at(&b, 3));
	put_file(x, FIRST, b.data, b.len);
	expect_broken(x, "00000001.jsonl", 65, line_at(&b, 64));
	expect_verify(x, -EBADMSG, "it is not signed by the daemon's key");
	/* After the last checkpoint the head tells. */
	rig_kill(x);
	assert_int_equal(files_remove_tree(AT_FDCWD, work_path(&x->w, "store/audit")), 0);
	rig_open(x);
	write_some(x, 4);
	read_file(x, FIRST, &b);
	at = line_at(&b, 1);
	memcpy(strstr(b.data + at, "noon"), "dawn", 4);
	chain_anew(&b, at);
	put_file(x, FIRST, b.data, b.len);
	expect_broken(x, "00000001.jsonl", 4, line_at(&b, 3));
	expect_verify(x, -EBADMSG, "it is not the record that the head was signed for");
	rig_kill(x);
	expect_open(x, -EBADMSG, "it is not the record that the head was signed for");
	/* More of it, up to a record after the head. */
	buf_put(&cut, b.data, b.len);
	assert_int_equal(unlink(work_path(&x->w, FIRST)), 0);
	expect_open(x, -EBADMSG, "no file of it is left, and there were 4 records");
}

static void verify__checkpoint_spoiled__broken(void **state)
{
	struct audit_rig *x = *state;
	AUTO_BUF struct buf b = BUF_INIT;
	const char *sign;
	size_t start, from, to;

	write_some(x, 65);
	read_file(x, FIRST, &b);
	start = line_at(&b, 64);
	sign = strstr(b.data + start, "npufs-audit-checkpoint-1 ");
	from = (size_t)(sign - b.data) + 25 + 17; /* the signature's digits */
	to = from + 128;
	for (size_t i = from; i < to; i++) {
		char was = b.data[i];

		b.data[i] = was == 'a' ? 'b' : 'a';
		chain_anew(&b, start);
		put_file(x, FIRST, b.data, b.len);
		expect_broken(x, "00000001.jsonl", 65, start);
		b.data[i] = was;
	}
}

/* --- the end ---------------------------------------------------------------------------------- */

static void verify__end_removed__told_which(void **state)
{
	struct audit_rig *x = *state;
	AUTO_BUF struct buf b = BUF_INIT;

	write_some(x, 6);
	rig_kill(x);
	read_file(x, FIRST, &b);
	for (int kept = 0; kept < 6; kept++) {
		put_file(x, FIRST, b.data, line_at(&b, kept));
		expect_cut(x, "00000001.jsonl", kept, kept + 1, 6);
		expect_open(x, -EBADMSG, "are missing at its end");
		put_file(x, FIRST, b.data, line_at(&b, kept) + 30);
		expect_cut(x, "00000001.jsonl", kept, kept + 1, 6);
	}
	put_file(x, FIRST, b.data, b.len);
	rig_open(x);
	write_some(x, 1);
	rig_sound(x, "records 1 to 7 ");
}

/* As documented: nobody can tell. */
static void verify__end_and_head_rolled_back__not_seen(void **state)
{
	struct audit_rig *x = *state;
	AUTO_BUF struct buf b = BUF_INIT, head = BUF_INIT, newer = BUF_INIT;

	write_some(x, 3);
	read_file(x, HEAD, &head);
	read_file(x, FIRST, &b);
	write_some(x, 2);
	read_file(x, HEAD, &newer);
	put_file(x, HEAD, head.data, head.len); /* only the head: as a crash leaves it */
	rig_sound(x, "records 1 to 5 in 1 files");
	rig_sound(x, "signed up to record 3\n");
	put_file(x, FIRST, b.data, b.len);
	rig_sound(x, "records 1 to 3 in 1 files");
	put_file(x, HEAD, newer.data, newer.len);
	expect_cut(x, "00000001.jsonl", 3, 4, 5);
}

static void verify__head_spoiled__broken(void **state)
{
	struct audit_rig *x = *state;
	AUTO_BUF struct buf head = BUF_INIT;

	write_some(x, 2);
	rig_kill(x);
	read_file(x, HEAD, &head);
	for (size_t i = 0; i < head.len; i++)
		for (int bit = 0; bit < 8; bit += 1 + (i > 90)) {
			head.data[i] ^= (char)(1 << bit);
			put_file(x, HEAD, head.data, head.len);
			expect_verify(x, -EBADMSG, "the audit trail is broken: its head is not");
			head.data[i] ^= (char)(1 << bit);
		}
	expect_open(x, -EBADMSG, "its head");
	for (size_t n = 0; n < head.len; n += 5) {
		put_file(x, HEAD, head.data, n);
		expect_verify(x, -EBADMSG, "its head is not in the form of one");
	}
	assert_int_equal(unlink(work_path(&x->w, HEAD)), 0);
	expect_verify(x, -EBADMSG, "its head is missing");
	expect_open(x, -EBADMSG, "its head is missing");
	assert_int_equal(symlink("daemon.pem", work_path(&x->w, HEAD)), 0);
	expect_verify(x, -ELOOP, "head cannot be used");
}

/* --- the key ---------------------------------------------------------------------------------- */

static void open__keys_changed__refused(void **state)
{
	struct audit_rig *x = *state;
	AUTO_BUF struct buf private = BUF_INIT, public = BUF_INIT, other = BUF_INIT;

	write_some(x, 2);
	rig_close(x);
	read_file(x, PRIVATE, &private);
	read_file(x, PUBLIC, &public);
	work_key(&x->w, "other", NULL);
	work_read(&x->w, "other.pem", &other);
	put_file(x, PRIVATE, other.data, other.len);
	expect_open(x, -EBADMSG, "two keys do not belong together");
	read_file(x, "other.pub.pem", &other);
	work_write(&x->w, PUBLIC, other.data, other.len); /* both: all signatures are another's */
	expect_open(x, -EBADMSG, "its head is not signed by the daemon's key");
	expect_verify(x, -EBADMSG, "its head is not signed by the daemon's key");
	assert_int_equal(unlink(work_path(&x->w, PRIVATE)), 0);
	expect_open(x, -EBADMSG, "private key is missing");
	put_file(x, PRIVATE, private.data, private.len);
	assert_int_equal(unlink(work_path(&x->w, PUBLIC)), 0);
	expect_verify(x, -EBADMSG, "the daemon's public key is missing");
	expect_open(x, -EBADMSG, "it has checkpoints");
	work_write(&x->w, PUBLIC, public.data, public.len);
	assert_int_equal(chmod(work_path(&x->w, PRIVATE), 0640), 0);
	expect_open(x, -EPERM, "daemon.pem cannot be used");
	assert_int_equal(chmod(work_path(&x->w, PRIVATE), 0600), 0);
	rig_open(x);
	rig_sound(x, "records 1 to 3 ");
}

/* A trail of before: no key, no head, no checkpoints. */
static void open__unsigned_trail__goes_on_signed(void **state)
{
	struct audit_rig *x = *state;

	write_some(x, 64);
	rig_kill(x);
	assert_int_equal(unlink(work_path(&x->w, PRIVATE)), 0);
	assert_int_equal(unlink(work_path(&x->w, PUBLIC)), 0);
	assert_int_equal(unlink(work_path(&x->w, HEAD)), 0);
	rig_sound(x, "nothing is signed\n");
	rig_open(x);
	rig_sound(x, "records 1 to 64 in 1 files");
	rig_sound(x, "signed up to record 64\n");
	write_some(x, 1);
	rig_sound(x, "records 1 to 66 in 1 files");
}

/* --- the disk --------------------------------------------------------------------------------- */

static int step_that_fails, steps;

static int fail_from(enum disk_call call, int fd, const char *name)
{
	(void)call, (void)fd, (void)name;
	return steps++ >= step_that_fails ? -ENOSPC : 0;
}

static int fail_one(enum disk_call call, int fd, const char *name)
{
	(void)call, (void)fd, (void)name;
	return steps++ == step_that_fails ? -ENOSPC : 0;
}

typedef int disk_watcher(enum disk_call call, int fd, const char *name);
static disk_watcher *const watchers[] = { fail_from, fail_one };

/* The first start, cut short at each step: the next one succeeds. */
static void open__disk_full_at_each_step__next_start_goes_on(void **state)
{
	struct audit_rig *x = *state;

	for (size_t w = 0; w < ARRAY_SIZE(watchers); w++) {
		int err = -1;

		for (step_that_fails = 0; err; step_that_fails++) {
			struct fault f = FAULT_NONE;

			assert_true(step_that_fails < 60);
			rig_kill(x);
			files_remove_tree(AT_FDCWD, work_path(&x->w, "store/audit"));
			steps = 0;
			disk_watch = watchers[w];
			err = audit_open(x->store, AUDIT_COMMANDS, &x->audit, &f);
			disk_watch = NULL;
			assert_true(!err || err == -ENOSPC);
			if (err) {
				assert_int_equal(f.err, err);
				rig_open(x);
			}
			write_some(x, 1);
			rig_sound(x, "records 1 to 1 ");
		}
		assert_true(step_that_fails > 15); /* two keys and the head */
	}
}

/* A record with a checkpoint and the head, each step of it: what was confirmed is there, and the trail
 * is sound after a crash there. */
static void write__disk_full_at_each_step__sound_and_goes_on(void **state)
{
	struct audit_rig *x = *state;
	AUTO_BUF struct buf trail = BUF_INIT, head = BUF_INIT;
	int failed = 0;

	write_some(x, 64);
	read_file(x, FIRST, &trail);
	read_file(x, HEAD, &head);
	for (size_t w = 0; w < ARRAY_SIZE(watchers); w++) {
		for (step_that_fails = 0; step_that_fails < 14; step_that_fails++) {
			size_t before;
			int err;

			rig_kill(x);
			unlink(work_path(&x->w, NEXT));
			put_file(x, FIRST, trail.data, trail.len);
			put_file(x, HEAD, head.data, head.len);
			rig_open(x);
			steps = 0;
			disk_watch = watchers[w];
			err = audit_write(x->audit, &sample);
			disk_watch = NULL;
			failed += err != 0;
			before = rig_count(x);
			assert_true(err ? before <= 66 : before == 66);
			rig_sound(x, "records 1 to ");
			if (step_that_fails % 2) {
				rig_kill(x);
				rig_open(x);
			}
			write_some(x, 1);
			rig_sound(x, "records 1 to ");
			assert_true(rig_count(x) > before);
		}
	}
	assert_true(failed >= 6); /* writing it, and two syncs */
}

/* --- syslog ----------------------------------------------------------------------------------- */

static char mirrored[4][AUDIT_LINE_MAX];
static int n_mirrored;

static void catch_line(const char *line)
{
	assert_true(strlen(line) < AUDIT_LINE_MAX);
	strcpy(mirrored[n_mirrored++ % 4], line);
}

static void write__mirror__gets_what_is_on_the_disk(void **state)
{
	struct audit_rig *x = *state;
	void (*was)(const char *) = audit_mirror;
	struct audit_record r = sample;
	char want[512];

	audit_mirror = catch_line;
	n_mirrored = 0;
	disk_watch = rig_no_disk;
	assert_int_equal(audit_write(x->audit, &sample), -EIO);
	disk_watch = NULL;
	assert_int_equal(n_mirrored, 0); /* not written, so not told */
	r.message = "a\nb\"";
	assert_int_equal(audit_write(x->audit, &r), 0);
	assert_int_equal(n_mirrored, 1);
	assert_memory_equal(mirrored[0], "{\"seq\":1,\"time\":\"2", 18);
	strcpy(want,
		"\",\"uid\":0,\"gid\":5,\"pid\":77,\"comm\":\"sh\",\"loginuid\":1000,\"command\":"
		"\"reset_ccu\","
		"\"node\":\"control/reset_ccu\",\"decision\":\"intent\",\"why\":\"\","
		"\"message\":\"a?b\\\"\"}");
	assert_string_equal(mirrored[0] + 41, want);
	rig_close(x);
	audit_mirror = was;
	assert_int_equal(n_mirrored, 2);
	assert_memory_equal(mirrored[1], "{\"seq\":2,", 9);
	assert_non_null(strstr(mirrored[1], "\"checkpoint\":1,"));
	assert_non_null(strstr(mirrored[1], ",\"hash\":\""));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(write__65th__checkpoint_before_it_as_documented),
		TEST(verify__chain_written_anew__broken),
		TEST(verify__checkpoint_spoiled__broken),
		TEST(verify__end_removed__told_which),
		TEST(verify__end_and_head_rolled_back__not_seen),
		TEST(verify__head_spoiled__broken),
		TEST(open__keys_changed__refused),
		TEST(open__unsigned_trail__goes_on_signed),
		TEST(open__disk_full_at_each_step__next_start_goes_on),
		TEST(write__disk_full_at_each_step__sound_and_goes_on),
		TEST(write__mirror__gets_what_is_on_the_disk),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
