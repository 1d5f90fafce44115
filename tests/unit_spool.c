#include "core/spool/spool.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/spool/disk.h"

static char store[64];
static struct spool *spool;
static uint64_t strange;
static _Thread_local bool is_main;

/* What a load found. */
static struct spool_entry found[16];
static size_t n_found;

static int note(void *context, const struct spool_entry *e)
{
	(void)context;
	assert_true(n_found < 16);
	found[n_found++] = *e;
	return 0;
}

static void start(void)
{
	struct fault f = FAULT_NONE;

	n_found = 0;
	assert_int_equal(spool_open(store, SPOOL_USE, &spool, &f), 0);
	assert_int_equal(spool_load(spool, note, NULL, &strange), 0);
}

static int up(void **state)
{
	(void)state;
	is_main = true;
	disk_watch = NULL;
	strcpy(store, "/tmp/npufs-unit-XXXXXX");
	if (!mkdtemp(store))
		return -1;
	start();
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static int down(void **state)
{
	(void)state;
	spool_close(spool);
	disk_watch = NULL;
	return nftw(store, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void restart(void)
{
	spool_close(spool);
	start();
}

/* In the child's own spool, which it does not close. */
static void in_killed_child(void (*live)(void))
{
	int status;
	pid_t pid;

	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		start();
		live();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
}

static struct spool_file *make(const char *name)
{
	struct record_node n = { .folder = 1, .mode = 0600 };
	struct spool_file *f;

	assert_int_equal(spool_create(spool, &f), 0);
	n.id = spool_file_id(f);
	strcpy(n.name, name);
	assert_int_equal(spool_put_node(f, &n), 0);
	return f;
}

static uint64_t make_one(const char *name)
{
	struct spool_file *f = make(name);
	uint64_t id = spool_file_id(f);

	spool_file_put(f);
	return id;
}

static const char *path_of(const char *below)
{
	static char path[256];

	snprintf(path, sizeof path, "%s/jobs/%s", store, below);
	return path;
}

static const char *entry_path(uint64_t id)
{
	static char path[256];

	snprintf(path, sizeof path, "%s/jobs/%llu/%llu", store, (unsigned long long)id / 4096,
		(unsigned long long)id);
	return path;
}

static bool exists(const char *below)
{
	struct stat st;

	return lstat(path_of(below), &st) == 0;
}

static void put_file(const char *path, const char *bytes, size_t n)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, n), n);
	close(fd);
}

/* --- files ------------------------------------------------------------------------------------ */

static void write__bytes__are_read_again_also_after_a_restart(void **state)
{
	struct spool_file *f = make("a.txt");
	uint64_t id = spool_file_id(f), size;
	char got[16] = "";

	(void)state;
	assert_int_equal(spool_write(f, 0, "hello", 5), 0);
	assert_int_equal(spool_write(f, 7, "x", 1), 0);
	assert_int_equal(spool_size(f, &size), 0);
	assert_int_equal(size, 8);
	spool_file_put(f);
	restart();
	assert_int_equal(n_found, 1);
	assert_int_equal(found[0].id, id);
	assert_int_equal(found[0].size, 8);
	assert_false(found[0].damaged || found[0].has_run);
	assert_string_equal(found[0].node.name, "a.txt");
	assert_int_equal(spool_get(spool, id, &f), 0);
	assert_int_equal(spool_read(f, 0, got, sizeof got), 8);
	assert_memory_equal(got, "hello\0\0x", 8);
	assert_int_equal(spool_read(f, 8, got, sizeof got), 0);
	assert_int_equal(spool_truncate(f, 2), 0);
	assert_int_equal(spool_read(f, 1, got, sizeof got), 1);
	assert_int_equal(spool_read(f, UINT64_MAX, got, 1), 0);
	assert_int_equal(spool_write(f, UINT64_MAX, "x", 1), -EFBIG);
	assert_int_equal(spool_truncate(f, UINT64_MAX), -EFBIG);
	spool_file_put(f);
}

static void put_run__with_bytes_behind_it__leaves_them(void **state)
{
	struct record_run r = { .view = { .id = 9, .finish_reason = "stop" } }, back;
	struct spool_file *f = make("a.txt");
	char got[4] = "";

	(void)state;
	assert_int_equal(spool_read_run(f, &back), -EIO);
	assert_int_equal(spool_write(f, 0, "abc", 3), 0);
	assert_int_equal(spool_put_run(f, &r), 0);
	assert_int_equal(spool_read_run(f, &back), 0);
	assert_int_equal(back.view.id, 9);
	assert_int_equal(spool_read(f, 0, got, 4), 3);
	assert_string_equal(got, "abc");
	spool_file_put(f);
}

static void remove__open_file__is_gone_but_readable(void **state)
{
	struct spool_file *f = make("a.txt"), *again;
	uint64_t id = spool_file_id(f);
	char got;

	(void)state;
	assert_int_equal(spool_write(f, 0, "a", 1), 0);
	assert_int_equal(spool_remove(spool, id), 0);
	assert_int_equal(spool_remove(spool, id), 0);
	assert_int_equal(spool_get(spool, id, &again), -ENOENT);
	assert_int_equal(spool_read(f, 0, &got, 1), 1);
	spool_file_put(f);
	restart();
	assert_int_equal(n_found, 0);
}

/* --- numbers ---------------------------------------------------------------------------------- */

static void create__after_restart__numbers_are_new(void **state)
{
	uint64_t id = make_one("a"), job = spool_next_job(spool);

	(void)state;
	assert_int_equal(spool_remove(spool, id), 0);
	restart();
	assert_true(make_one("b") > id);
	assert_true(spool_next_job(spool) > job);
}

/* Shared with the child. */
static int ends[2];

static void tell_numbers(void)
{
	uint64_t all[2] = { make_one("a"), spool_next_job(spool) };

	spool_remove(spool, all[0]);
	if (write(ends[1], all, sizeof all) != sizeof all)
		_exit(1);
}

static void hear_numbers(void)
{
	uint64_t all[2];

	assert_int_equal(read(ends[0], all, sizeof all), sizeof all);
	close(ends[0]);
	close(ends[1]);
	start();
	assert_true(make_one("b") > all[0]);
	assert_true(spool_next_job(spool) > all[1]);
}

static void create__after_kill__numbers_are_new(void **state)
{
	(void)state;
	assert_int_equal(pipe(ends), 0);
	spool_close(spool);
	in_killed_child(tell_numbers);
	hear_numbers();
}

static int others_hang(enum disk_call call, int fd, const char *name)
{
	(void)call, (void)fd, (void)name;
	while (!is_main)
		pause();
	return 0;
}

static void create__killed_before_the_thread_did_anything__numbers_are_new(void **state)
{
	(void)state;
	assert_int_equal(pipe(ends), 0);
	spool_close(spool);
	assert_int_equal(unlink(path_of("numbers")), 0);
	disk_watch = others_hang;
	in_killed_child(tell_numbers);
	disk_watch = NULL;
	hear_numbers();
}

static void load__largest_number_there_is__is_strange(void **state)
{
	(void)state;
	assert_int_equal(mkdir(path_of("4503599627370495"), 0700), 0);
	put_file(path_of("4503599627370495/18446744073709551615"), "x", 1);
	restart();
	assert_true(make_one("a") > 1);
	assert_true(make_one("b") < UINT64_MAX / 2);
}

/* --- opening ---------------------------------------------------------------------------------- */

static void open__used_by_another__is_busy(void **state)
{
	struct fault f = FAULT_NONE;
	struct spool *second;

	(void)state;
	assert_int_equal(spool_open(store, SPOOL_USE, &second, &f), -EBUSY);
	assert_int_equal(f.err, -EBUSY);
	assert_true(f.reason[0] && f.action[0]);
}

static int refuse_changes(enum disk_call call, int fd, const char *name)
{
	(void)fd, (void)name;
	return call == DISK_FSYNC ? 0 : -EROFS;
}

static void open__disk_not_writable__reads_and_says_so(void **state)
{
	struct record_node n = { .name = "b" };
	struct record_run r = { .view = { .finish_reason = "" } };
	struct spool_file *f = make("a.txt"), *other;
	uint64_t id = spool_file_id(f);
	char got;

	(void)state;
	assert_int_equal(spool_write(f, 0, "a", 1), 0);
	spool_file_put(f);
	spool_close(spool);
	disk_watch = refuse_changes;
	start();
	assert_int_equal(n_found, 1);
	assert_int_equal(spool_get(spool, id, &f), 0);
	assert_int_equal(spool_read(f, 0, &got, 1), 1);
	assert_int_equal(spool_create(spool, &other), -EROFS);
	assert_int_equal(spool_put_node(f, &n), -EROFS);
	assert_int_equal(spool_put_run(f, &r), -EROFS);
	assert_int_equal(spool_put_both(f, &n, &r), -EROFS);
	assert_int_equal(spool_write(f, 0, "b", 1), -EROFS);
	assert_int_equal(spool_truncate(f, 0), -EROFS);
	assert_int_equal(spool_remove(spool, id), -EROFS);
	assert_int_equal(spool_set_aside(spool, id), -EROFS);
	spool_file_put(f);
	spool_close(spool);
	disk_watch = NULL;
	start();
	assert_int_equal(n_found, 1);
	assert_int_equal(found[0].size, 1);
}

/* --- what a start finds ----------------------------------------------------------------------- */

static unsigned count_entries(void)
{
	char command[128];
	unsigned n = 0;
	FILE *p;

	snprintf(command, sizeof command, "ls %s/jobs/[0-9]* 2>/dev/null | wc -l", store);
	p = popen(command, "r");
	assert_non_null(p);
	assert_int_equal(fscanf(p, "%u", &n), 1);
	pclose(p);
	return n;
}

static void close__spares__are_removed(void **state)
{
	(void)state;
	make_one("a");
	usleep(50000); /* it may make some ahead */
	spool_close(spool);
	assert_int_equal(count_entries(), 1);
	start();
	assert_int_equal(n_found, 1);
}

static int die_at_mark(enum disk_call call, int fd, const char *name)
{
	static _Atomic int n;

	(void)fd, (void)name;
	if (!is_main && call == DISK_WRITE && ++n == 5) /* the first one is the numbers' */
		kill(getpid(), SIGKILL);
	return 0;
}

static void await_death(void)
{
	pause();
}

static void load__after_kill_while_making_ahead__finds_nothing(void **state)
{
	(void)state;
	spool_close(spool);
	disk_watch = die_at_mark;
	in_killed_child(await_death);
	disk_watch = NULL;
	start();
	assert_int_equal(n_found, 0);
	assert_int_equal(strange, 0);
	assert_false(exists("aside"));
}

static void load__damaged_entries__are_put_aside(void **state)
{
	uint64_t empty = make_one("a"), noise = make_one("b"), sparse = make_one("c");
	uint64_t other = make_one("e"), good = make_one("d");
	char bytes[4096], name[64], copy[300];

	(void)state;
	memset(bytes, 0xa5, sizeof bytes);
	spool_close(spool);
	assert_int_equal(truncate(entry_path(empty), 0), 0);
	put_file(entry_path(noise), bytes, sizeof bytes);
	assert_int_equal(truncate(entry_path(sparse), 0), 0);
	assert_int_equal(truncate(entry_path(sparse), 2LL << 30), 0);
	snprintf(copy, sizeof copy, "cp %s/jobs/0/%llu %s/jobs/0/%llu", store,
		(unsigned long long)good, store, (unsigned long long)other);
	assert_int_equal(system(copy), 0); /* another's head */
	start();
	assert_int_equal(n_found, 5);
	for (size_t i = 0; i < n_found; i++) {
		assert_int_equal(found[i].damaged, found[i].id != good);
		snprintf(name, sizeof name, "aside/%llu", (unsigned long long)found[i].id);
		assert_int_equal(exists(name), found[i].id != good);
	}
	restart();
	assert_int_equal(n_found, 1);
}

static void plant_strange(const char *outside)
{
	put_file(path_of("README"), "x", 1);
	assert_int_equal(symlink(outside, path_of("7")), 0);
	assert_int_equal(mkdir(path_of("0/4077"), 0700), 0);
	assert_int_equal(symlink(outside, path_of("0/4078")), 0);
	put_file(path_of("0/x"), "x", 1);
	put_file(path_of("0/05"), "x", 1);
	put_file(path_of("0/9999999"), "x", 1); /* of another folder */
	assert_int_equal(mkfifo(path_of("0/79"), 0600), 0);
}

static void load__what_is_no_entry__is_put_aside_and_links_not_followed(void **state)
{
	char outside[128];

	(void)state;
	make_one("a");
	snprintf(outside, sizeof outside, "%s/outside", store);
	put_file(outside, "mine", 4);
	for (int times = 0; times < 2; times++) {
		spool_close(spool);
		plant_strange(outside);
		start();
		assert_int_equal(n_found, 1);
		assert_int_equal(strange, 8);
		assert_false(
			exists("README") || exists("7") || exists("0/4077") || exists("0/4078"));
		assert_false(exists("0/x") || exists("0/05") || exists("0/9999999"));
		restart();
		assert_int_equal(strange, 0);
	}
	assert_int_equal(access(outside, F_OK), 0);
}

/* --- syncing ---------------------------------------------------------------------------------- */

static char order[64];
static _Atomic int sync_error;
static sem_t done, go;
static _Atomic unsigned root_syncs;
static _Atomic bool holds;
static int last_err;

/* f: the file, N: a folder N, s: the spool's folder. */
static int watch_sync(enum disk_call call, int fd, const char *name)
{
	char link[64], to[256];
	const char *last;
	ssize_t n;

	(void)name;
	if (call != DISK_FSYNC)
		return 0;
	if (atomic_exchange(&holds, false))
		sem_wait(&go);
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	n = readlink(link, to, sizeof to - 1);
	to[n < 0 ? 0 : n] = '\0';
	last = strrchr(to, '/');
	last = last ? last + 1 : "";
	strncat(order,
		strcmp(last, "jobs") == 0        ? "s"
			: strcmp(last, "0") == 0 ? "N"
						 : "f",
		sizeof order - 1 - strlen(order));
	root_syncs += strcmp(last, "jobs") == 0;
	return sync_error;
}

static void on_done(struct spool_sync *sync, int err)
{
	(void)sync;
	last_err = err;
	strncat(order, "!", sizeof order - 1 - strlen(order));
	sem_post(&done);
}

static int up_sync(void **state)
{
	sem_init(&done, 0, 0);
	sem_init(&go, 0, 0);
	order[0] = '\0';
	sync_error = 0;
	root_syncs = 0;
	holds = false;
	if (up(state))
		return -1;
	spool_close(spool);
	disk_watch = watch_sync; /* before the thread is there */
	start();
	return 0;
}

static void sync__one_file__goes_from_the_file_to_the_root(void **state)
{
	struct spool_sync s = { .file = make("a"), .done = on_done };

	(void)state;
	spool_sync(spool, &s);
	sem_wait(&done);
	assert_string_equal(order, "fNs!");
	assert_int_equal(last_err, 0);
}

static void sync__error__reaches_who_waits(void **state)
{
	struct spool_sync s = { .file = make("a"), .done = on_done };

	(void)state;
	sync_error = -EIO;
	spool_sync(spool, &s);
	sem_wait(&done);
	assert_int_equal(last_err, -EIO);
	assert_string_equal(order, "f!");
}

static void sync__whole_disk__says_when_it_is_done(void **state)
{
	struct spool_sync s = { .done = on_done };

	(void)state;
	spool_sync(spool, &s);
	sem_wait(&done);
	assert_int_equal(last_err, 0);
	assert_string_equal(order, "s!");
}

/* While the first is on its way, others come: they go together. */
static void sync__many_at_once__share_the_folders(void **state)
{
	struct spool_sync all[10];

	(void)state;
	holds = true;
	for (int i = 0; i < 10; i++) {
		all[i] = (struct spool_sync){ .file = make("a"), .done = on_done };
		spool_sync(spool, &all[i]);
		while (i == 0 && holds)
			usleep(1000);
	}
	sem_post(&go);
	for (int i = 0; i < 10; i++)
		sem_wait(&done);
	assert_string_equal(order, "fNs!fffffffffNs!!!!!!!!!");
}

static void close__with_syncs_waiting__does_them_first(void **state)
{
	struct spool_sync s = { .file = make("a"), .done = on_done };

	(void)state;
	spool_sync(spool, &s);
	spool_close(spool);
	assert_int_equal(sem_trywait(&done), 0);
	start();
}

#define TEST(name)      cmocka_unit_test_setup_teardown(name, up, down)
#define TEST_SYNC(name) cmocka_unit_test_setup_teardown(name, up_sync, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(write__bytes__are_read_again_also_after_a_restart),
		TEST(put_run__with_bytes_behind_it__leaves_them),
		TEST(remove__open_file__is_gone_but_readable),
		TEST(create__after_restart__numbers_are_new),
		TEST(create__after_kill__numbers_are_new),
		TEST(create__killed_before_the_thread_did_anything__numbers_are_new),
		TEST(load__largest_number_there_is__is_strange),
		TEST(open__used_by_another__is_busy),
		TEST(open__disk_not_writable__reads_and_says_so),
		TEST(close__spares__are_removed),
		TEST(load__after_kill_while_making_ahead__finds_nothing),
		TEST(load__damaged_entries__are_put_aside),
		TEST(load__what_is_no_entry__is_put_aside_and_links_not_followed),
		TEST_SYNC(sync__one_file__goes_from_the_file_to_the_root),
		TEST_SYNC(sync__error__reaches_who_waits),
		TEST_SYNC(sync__whole_disk__says_when_it_is_done),
		TEST_SYNC(sync__many_at_once__share_the_folders),
		TEST_SYNC(close__with_syncs_waiting__does_them_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
