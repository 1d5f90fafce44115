/* The audit trail on its disk: what crashes and failures leave, files that follow each other, modes. */
#include "core/control/audit.h"

#include "audit_rig.h"

/* --- crashes ---------------------------------------------------------------------------------- */

static void open__sound__goes_on(void **state)
{
	struct audit_rig *x = *state;

	for (int i = 0; i < 3; i++) {
		write_some(x, 2);
		rig_close(x);
		rig_open(x);
	}
	rig_sound(x, "records 1 to 9 in 1 files"); /* each end has a checkpoint */
}

static void open__torn_end__kept_and_named(void **state)
{
	static const char torn[] = "{\"seq\":3,\"time\":\"20", more[] = "\0\0half";
	struct audit_rig *x = *state;
	AUTO_BUF struct buf b = BUF_INIT;
	char hex[SHA256_HEX_SIZE], member[96];

	write_some(x, 2);
	rig_kill(x);
	add_bytes(x, FIRST, torn);
	rig_sound(x, "19 bytes at the end");
	put_file(x, NEXT, more, sizeof more - 1);
	rig_sound(x, "records 1 to 2 in 2 files");
	rig_open(x);
	assert_false(work_has(&x->w, "store/audit/00000003.jsonl"));
	write_some(x, 2);
	rig_sound(x, "records 1 to 4 in 3 files");
	sha256_hex("{\"seq\":3,\"time\":\"20\0\0half", 25, hex);
	snprintf(member, sizeof member, "\"torn\":\"%s\",\"prev\":", hex);
	rig_show(x, 2, &b);
	assert_non_null(strstr(b.data, member));
	assert_null(strstr(strchr(b.data, '\n'), "torn"));
	rig_kill(x);
	rig_open(x);
	write_some(x, 1);
	rig_sound(x, "records 1 to 6 in 3 files"); /* no checkpoint in the newest: one is due */
	put_file(x, NEXT, more, sizeof more - 2);
	expect_broken(x, "00000003.jsonl", 1, 0);
	assert_int_equal(unlink(work_path(&x->w, NEXT)), 0);
	expect_broken(x, "00000003.jsonl", 1, 0);
}

/* The first record ever, whole but for its newline: it was never confirmed. */
static void open__nothing_but_torn__begins_at_one(void **state)
{
	struct audit_rig *x = *state;
	AUTO_BUF struct buf b = BUF_INIT, head = BUF_INIT;

	read_file(x, HEAD, &head);
	write_some(x, 1);
	rig_kill(x);
	put_file(x, HEAD, head.data, head.len);
	read_file(x, FIRST, &b);
	put_file(x, FIRST, b.data, b.len - 1);
	rig_sound(x, "no records\n");
	rig_open(x);
	write_some(x, 1);
	rig_sound(x, "records 1 to 1 in 2 files");
	rig_kill(x);
	rig_open(x);
	write_some(x, 1);
	rig_sound(x, "records 1 to 3 in 2 files");
}

/* As a reader finds them while a daemon writes, and what a crash left. */
static void show__unfinished_line__only_whole_ones(void **state)
{
	struct audit_rig *x = *state;
	AUTO_BUF struct buf b = BUF_INIT;

	write_some(x, 2);
	rig_kill(x);
	add_bytes(x, FIRST, "{\"seq\":3,\"time\":\"20");
	rig_show(x, 1, &b);
	assert_memory_equal(b.data, "{\"seq\":2,", 9);
	assert_ptr_equal(strchr(b.data, '\n'), b.data + b.len - 1);
	rig_open(x);
	write_some(x, 1);
	assert_int_equal(rig_count(x), 3);
}

static void verify__torn_middle__broken(void **state)
{
	struct audit_rig *x = *state;
	AUTO_BUF struct buf b = BUF_INIT;

	write_some(x, 2);
	read_file(x, FIRST, &b);
	put_file(x, FIRST, b.data, line_at(&b, 1) + 40);
	put_file(x, NEXT, b.data + line_at(&b, 1), b.len - line_at(&b, 1));
	expect_broken(x, "00000002.jsonl", 1, 0);
}

/* --- the disk --------------------------------------------------------------------------------- */

static struct {
	enum disk_call fails[2]; /* DISK_CALL_COUNT: nothing */
	int err;
	bool half; /* a write that fails has written something */
	char calls[64];
	size_t n_calls;
} disk;

static int watch(enum disk_call call, int fd, const char *name)
{
	static const char letters[DISK_CALL_COUNT + 1] = "mcwptruf";
	struct stat st;

	(void)name;
	assert_int_equal(fstat(fd, &st), 0);
	if (disk.n_calls + 1 < sizeof disk.calls)
		disk.calls[disk.n_calls++] =
			call == DISK_FSYNC && S_ISDIR(st.st_mode) ? 'F' : letters[call];
	if (call != disk.fails[0] && call != disk.fails[1])
		return 0;
	if (call == DISK_WRITE && disk.half)
		assert_int_equal(pwrite(fd, "{\"seq\":", 7, st.st_size), 7);
	return disk.err;
}

static void disk_fails(enum disk_call one, enum disk_call two, int err, bool half)
{
	memset(&disk, 0, sizeof disk);
	disk.fails[0] = one;
	disk.fails[1] = two;
	disk.err = err;
	disk.half = half;
	disk_watch = watch;
}

static void write__returned__was_synced(void **state)
{
	struct audit_rig *x = *state;

	disk_fails(DISK_CALL_COUNT, DISK_CALL_COUNT, 0, false);
	write_some(x, 1);
	assert_string_equal(disk.calls, "cwfFucwpfrF"); /* the record, then its head */
	write_some(x, 2);
	assert_string_equal(disk.calls,
		"cwfFucwpfrF"
		"wfucwpfrF"
		"wfucwpfrF");
}

static void write__many_together__one_sync_and_one_head(void **state)
{
	struct audit_rig *x = *state;
	struct audit_record all[200];
	size_t n_written = 0;

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		all[i] = sample;
	write_some(x, 1);
	disk_fails(DISK_CALL_COUNT, DISK_CALL_COUNT, 0, false);
	assert_int_equal(audit_write_all(x->audit, all, ARRAY_SIZE(all), &n_written), 0);
	assert_string_equal(disk.calls, "wfucwpfrF");
	assert_int_equal(n_written, ARRAY_SIZE(all));
	disk_fails(DISK_WRITE, DISK_CALL_COUNT, -ENOSPC, true);
	assert_int_equal(audit_write_all(x->audit, all, ARRAY_SIZE(all), &n_written), -ENOSPC);
	assert_int_equal(n_written, 0);
	disk_watch = NULL;
	rig_sound(x, "records 1 to 204 in 1 files"); /* and three checkpoints */
}

static void write__disk_full__nothing_there_and_later_goes_on(void **state)
{
	struct audit_rig *x = *state;
	AUTO_BUF struct buf before = BUF_INIT, after = BUF_INIT;

	for (int half = 0; half < 2; half++) {
		write_some(x, 1);
		read_file(x, FIRST, &before);
		disk_fails(DISK_WRITE, DISK_CALL_COUNT, -ENOSPC, half);
		assert_int_equal(audit_write(x->audit, &sample), -ENOSPC);
		assert_int_equal(audit_write(x->audit, &sample), -ENOSPC);
		read_file(x, FIRST, &after);
		assert_string_equal(before.data, after.data);
		disk_watch = NULL;
	}
	write_some(x, 1);
	rig_sound(x, "records 1 to 3 in 1 files");
}

static void write__first_file_fails__later_goes_on(void **state)
{
	static const enum disk_call calls[] = { DISK_CREATE, DISK_WRITE, DISK_FSYNC };
	struct audit_rig *x = *state;

	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		disk_fails(calls[i], DISK_CALL_COUNT, -ENOSPC, true);
		assert_int_equal(audit_write(x->audit, &sample), -ENOSPC);
	}
	disk_fails(DISK_CALL_COUNT, DISK_CALL_COUNT, 0, false);
	write_some(x, 1);
	assert_string_equal(disk.calls, "wfFucwpfrF"); /* the folder was not synced before */
	rig_sound(x, "records 1 to 1 in 1 files");
}

static void write__not_synced__taken_back(void **state)
{
	struct audit_rig *x = *state;

	write_some(x, 1);
	disk_fails(DISK_FSYNC, DISK_CALL_COUNT, -EIO, false);
	assert_int_equal(audit_write(x->audit, &sample), -EIO);
	assert_int_equal(rig_count(x), 1);
	disk_watch = NULL;
	write_some(x, 1);
	rig_sound(x, "records 1 to 2 in 1 files");
}

/* What cannot be taken back is what a crash would have left. */
static void write__not_taken_back__named_by_the_next(void **state)
{
	struct audit_rig *x = *state;
	AUTO_BUF struct buf b = BUF_INIT;

	write_some(x, 1);
	disk_fails(DISK_WRITE, DISK_TRUNCATE, -EIO, true);
	assert_int_equal(audit_write(x->audit, &sample), -EIO);
	disk_watch = NULL;
	write_some(x, 1);
	rig_sound(x, "records 1 to 2 in 2 files");
	rig_show(x, 1, &b);
	assert_non_null(strstr(b.data, "\"torn\":"));
	/* A record that is whole though it failed is followed, not repeated. */
	disk_fails(DISK_FSYNC, DISK_TRUNCATE, -EIO, false);
	assert_int_equal(audit_write(x->audit, &sample), -EIO);
	disk_watch = NULL;
	write_some(x, 1);
	rig_sound(x, "records 1 to 5 in 2 files");
}

/* --- files ------------------------------------------------------------------------------------ */

static void fill_first_file(struct audit_rig *x)
{
	while (!work_has(&x->w, NEXT))
		write_some(x, 1);
}

static void write__file_full__chain_runs_on(void **state)
{
	struct audit_rig *x = *state;
	AUTO_BUF struct buf b = BUF_INIT;
	struct fault f = FAULT_NONE;
	struct stat st;
	size_t n;

	fill_first_file(x);
	n = rig_count(x);
	assert_int_equal(stat(work_path(&x->w, FIRST), &st), 0);
	assert_in_range(st.st_size, AUDIT_FILE_BYTES - AUDIT_LINE_MAX, AUDIT_FILE_BYTES);
	rig_sound(x, " in 2 files");
	rig_close(x);
	rig_open(x);
	write_some(x, 2);
	assert_int_equal(rig_count(x), n + 3); /* and a checkpoint */
	rig_sound(x, " in 2 files");
	rig_show(x, 5, &b);
	assert_int_equal(line_at(&b, 5), b.len);
	assert_int_equal(strtoul(b.data + strlen("{\"seq\":"), NULL, 10), n + 3 - 4);
	rig_show(x, 0, &b);
	assert_int_equal(b.len, 0);
	/* The second file alone begins later, the first alone ends earlier; both are sound. */
	assert_int_equal(rename(work_path(&x->w, FIRST), work_path(&x->w, "kept")), 0);
	rig_sound(x, "those before it are not here");
	assert_int_equal(rename(work_path(&x->w, NEXT), work_path(&x->w, "kept2")), 0);
	assert_int_equal(audit_verify(x->store, AUDIT_COMMANDS, &b, &f), -EBADMSG);
	assert_non_null(strstr(f.reason, "no file of it is left, and there were"));
	assert_int_equal(rename(work_path(&x->w, "kept2"), work_path(&x->w, FIRST)), 0);
	assert_int_equal(rename(work_path(&x->w, "kept"), work_path(&x->w, NEXT)), 0);
	expect_broken(x, "00000002.jsonl", 1, 0);
}

static void put_empty_files(struct audit_rig *x, unsigned from, unsigned to)
{
	char name[64];

	for (unsigned i = from; i <= to; i++) {
		snprintf(name, sizeof name, "store/audit/%08u.jsonl", i);
		put_file(x, name, "", 0);
	}
}

/* Anybody can be refused, and who may look can look for ever: so these stop first, and commands have
 * room. */
static void write__many_files__refusals_and_looks_stop_first(void **state)
{
	struct audit_rig *x = *state;
	struct audit_record refused = sample, look = sample;

	refused.decision = AUDIT_REFUSED;
	look.decision = AUDIT_DONE;
	look.look = true;
	rig_close(x);
	put_empty_files(x, 1, AUDIT_FILES_REFUSED);
	rig_open(x);
	assert_int_equal(audit_write(x->audit, &refused), 0);
	rig_close(x);
	put_empty_files(x, AUDIT_FILES_REFUSED + 1, AUDIT_FILES_REFUSED + 1);
	rig_open(x);
	assert_int_equal(audit_write(x->audit, &refused), -ENOSPC);
	assert_int_equal(audit_write(x->audit, &look), -ENOSPC);
	assert_false(audit_fails(x->audit)); /* for commands there is room */
	assert_int_equal(audit_write(x->audit, &sample), 0);
	assert_int_equal(unlink(work_path(&x->w, FIRST)), 0); /* moved away meanwhile */
	assert_int_equal(audit_write(x->audit, &refused), 0);
	rig_sound(x, "records 1 to 4 in 192 files");
}

static void write__all_files_full__refused(void **state)
{
	struct audit_rig *x = *state;
	struct stat st;
	int err = 0;

	rig_kill(x);
	put_empty_files(x, 1, AUDIT_FILES_MAX);
	rig_open(x);
	while (!err)
		err = audit_write(x->audit, &sample);
	assert_int_equal(err, -ENOSPC);
	assert_int_equal(stat(work_path(&x->w, "store/audit/00000256.jsonl"), &st), 0);
	assert_in_range(st.st_size, AUDIT_FILE_BYTES - AUDIT_LINE_MAX, AUDIT_FILE_BYTES);
	assert_int_equal(unlink(work_path(&x->w, FIRST)), 0);
	assert_int_equal(audit_write(x->audit, &sample), 0);
	rig_sound(x, " in 256 files");
}

static void open__in_use__is_busy(void **state)
{
	struct audit_rig *x = *state;
	struct audit *other = NULL;
	struct fault f = FAULT_NONE;

	assert_int_equal(audit_open(x->store, AUDIT_COMMANDS, &other, &f), -EBUSY);
	assert_true(f.reason[0] && f.action[0]);
	rig_close(x);
	rig_open(x);
}

static void open__modes__closed_to_others(void **state)
{
	struct audit_rig *x = *state;
	mode_t mask = umask(0);

	rig_close(x);
	assert_int_equal(files_remove_tree(AT_FDCWD, work_path(&x->w, "store/audit")), 0);
	rig_open(x);
	write_some(x, 1);
	umask(mask);
	assert_int_equal(work_mode(&x->w, "store/audit"), 0700);
	assert_int_equal(work_mode(&x->w, FIRST), 0600);
	for (size_t i = 0; i < 2; i++) { /* to their group alone, to all others alone */
		rig_close(x);
		assert_int_equal(chmod(work_path(&x->w, "store/audit"), i ? 0705 : 0750), 0);
		assert_int_equal(chmod(work_path(&x->w, FIRST), i ? 0604 : 0640), 0);
		rig_open(x);
		assert_int_equal(work_mode(&x->w, "store/audit"), 0700);
		assert_int_equal(work_mode(&x->w, FIRST), 0600);
	}
}

static void open__what_others_could_have_changed__refused(void **state)
{
	struct audit_rig *x = *state;
	AUTO_BUF struct buf out = BUF_INIT;
	struct fault f = FAULT_NONE;

	write_some(x, 1);
	rig_close(x);
	assert_int_equal(chmod(work_path(&x->w, FIRST), 0660), 0);
	assert_int_equal(audit_open(x->store, AUDIT_COMMANDS, &x->audit, &f), -EPERM);
	assert_int_equal(audit_verify(x->store, AUDIT_COMMANDS, &out, &f), -EPERM);
	assert_non_null(strstr(f.reason, "00000001.jsonl"));
	assert_int_equal(chmod(work_path(&x->w, FIRST), 0600), 0);
	assert_int_equal(symlink("00000001.jsonl", work_path(&x->w, NEXT)), 0);
	assert_int_equal(audit_open(x->store, AUDIT_COMMANDS, &x->audit, &f), -ELOOP);
	assert_int_equal(unlink(work_path(&x->w, NEXT)), 0);
	assert_int_equal(chmod(work_path(&x->w, "store/audit"), 0770), 0);
	assert_int_equal(audit_verify(x->store, AUDIT_COMMANDS, &out, &f), -EPERM);
	if (geteuid() == 0) {
		assert_int_equal(chown(work_path(&x->w, "store/audit"), 12345, 0), 0);
		assert_int_equal(audit_open(x->store, AUDIT_COMMANDS, &x->audit, &f), -EPERM);
		assert_int_equal(chown(work_path(&x->w, "store/audit"), 0, 0), 0);
	}
	assert_int_equal(rename(work_path(&x->w, "store/audit"), work_path(&x->w, "a")), 0);
	assert_int_equal(audit_verify(x->store, AUDIT_COMMANDS, &out, &f), -ENOENT);
	assert_int_equal(symlink("../a", work_path(&x->w, "store/audit")), 0);
	assert_true(audit_open(x->store, AUDIT_COMMANDS, &x->audit, &f) < 0);
	assert_null(x->audit);
}

/* Whatever is put in the place of folder, file or head: not believed, not written through, and what was
 * there is gone on with once it is back. */
static void write__another_in_its_place__refused_until_it_is_back(void **state)
{
	static const struct {
		const char *what;
		bool link;
		int err;
	} rows[] = {
		{ "store/audit", true, -ESTALE },
		{ "store/audit", false, -ESTALE },
		{ FIRST, true, -ELOOP },
		{ FIRST, false, -EBADMSG },
	};
	struct audit_rig *x = *state;
	AUTO_BUF struct buf decoy = BUF_INIT;

	write_some(x, 2);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		bool folder = strcmp(rows[i].what, FIRST) != 0;

		work_write_text(&x->w, "decoy", "");
		assert_int_equal(rename(work_path(&x->w, rows[i].what), work_path(&x->w, "away")),
			0);
		if (rows[i].link)
			assert_int_equal(symlink(work_path(&x->w, folder ? "away" : "decoy"),
						 work_path(&x->w, rows[i].what)),
				0);
		else if (folder)
			assert_int_equal(mkdir(work_path(&x->w, rows[i].what), 0700), 0);
		else
			put_file(x, rows[i].what, "", 0);
		for (int n = 0; n < 3; n++)
			assert_int_equal(audit_write(x->audit, &sample), rows[i].err);
		assert_int_equal(remove(work_path(&x->w, rows[i].what)), 0);
		assert_int_equal(audit_write(x->audit, &sample), folder ? -ESTALE : -EBADMSG);
		assert_int_equal(rename(work_path(&x->w, "away"), work_path(&x->w, rows[i].what)),
			0);
		work_read(&x->w, "decoy", &decoy);
		assert_int_equal(decoy.len, 0);
		write_some(x, 1);
	}
	rig_sound(x, "records 1 to 6 in 1 files");
}

/* As logrotate's copytruncate does it. */
static void write__file_was_cut__nothing_is_added(void **state)
{
	struct audit_rig *x = *state;
	struct stat st;

	write_some(x, 3);
	assert_int_equal(truncate(work_path(&x->w, FIRST), 0), 0);
	assert_int_equal(audit_write(x->audit, &sample), -EBADMSG);
	assert_int_equal(stat(work_path(&x->w, FIRST), &st), 0);
	assert_int_equal(st.st_size, 0);
}

static void write__head_is_a_link__replaced_and_not_followed(void **state)
{
	struct audit_rig *x = *state;
	AUTO_BUF struct buf decoy = BUF_INIT;
	struct stat st;

	write_some(x, 1);
	work_write_text(&x->w, "decoy", "");
	assert_int_equal(unlink(work_path(&x->w, HEAD)), 0);
	assert_int_equal(symlink(work_path(&x->w, "decoy"), work_path(&x->w, HEAD)), 0);
	write_some(x, 1);
	assert_int_equal(lstat(work_path(&x->w, HEAD), &st), 0);
	assert_true(S_ISREG(st.st_mode));
	work_read(&x->w, "decoy", &decoy);
	assert_int_equal(decoy.len, 0);
	rig_sound(x, "records 1 to 2 in 1 files");
}

static void verify__strange_names__not_looked_at(void **state)
{
	struct audit_rig *x = *state;

	write_some(x, 1);
	work_write_text(&x->w, "store/audit/README", "mine");
	work_write_text(&x->w, "store/audit/2.jsonl", "mine");
	work_write_text(&x->w, "store/audit/00000002.jsonl.gz", "mine");
	work_write_text(&x->w, "store/audit/-0000002.jsonl", "mine");
	rig_sound(x, "records 1 to 1 in 1 files");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(open__sound__goes_on),
		TEST(open__torn_end__kept_and_named),
		TEST(open__nothing_but_torn__begins_at_one),
		TEST(show__unfinished_line__only_whole_ones),
		TEST(verify__torn_middle__broken),
		TEST(write__returned__was_synced),
		TEST(write__many_together__one_sync_and_one_head),
		TEST(write__disk_full__nothing_there_and_later_goes_on),
		TEST(write__first_file_fails__later_goes_on),
		TEST(write__not_synced__taken_back),
		TEST(write__not_taken_back__named_by_the_next),
		TEST(write__file_full__chain_runs_on),
		TEST(write__many_files__refusals_and_looks_stop_first),
		TEST(write__all_files_full__refused),
		TEST(open__in_use__is_busy),
		TEST(open__modes__closed_to_others),
		TEST(open__what_others_could_have_changed__refused),
		TEST(write__another_in_its_place__refused_until_it_is_back),
		TEST(write__file_was_cut__nothing_is_added),
		TEST(write__head_is_a_link__replaced_and_not_followed),
		TEST(verify__strange_names__not_looked_at),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
