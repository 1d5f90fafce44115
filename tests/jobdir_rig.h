/* The folder jobs/ on an engine with the recording backend, and what a shell would do there. */
#ifndef NPUFS_TESTS_JOBDIR_RIG_H
#define NPUFS_TESTS_JOBDIR_RIG_H

#include "core/job/jobdir.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/mem.h"
#include "core/job/jobdir_impl.h"
#include "tests/fake_device.h"

#define ROOT 1
#define DE   "{\"prompt\":\"abc\",\"max_new_tokens\":2}"
#define D    "{\"prompt\":\"abc\",\"max_new_tokens\":1}"

static const struct cred root = { .uid = 0, .gid = 0, .pid = 1 },
			 alice = { .uid = 1000, .gid = 1000, .pid = 2 },
			 bob = { .uid = 1001, .gid = 1001, .pid = 3 };

static struct health health;
static struct models *models;
static struct engine *engine;
static struct spool *spool;
static struct jobdir *d;
static char store[64];
static uint64_t synced; /* jobdir_rename()'s */
static struct engine_config config;
static struct jobdir_limits limits;

static inline void start(void)
{
	struct fault f = FAULT_NONE;
	int ms = 0;

	health_init(&health, &fake_ops, NULL);
	assert_int_equal(models_new("", &fake_ops, &models, &f), 0);
	assert_int_equal(engine_new(&config, models, &health, &engine), 0);
	assert_int_equal(spool_open(store, SPOOL_USE, &spool, &f), 0);
	assert_int_equal(jobdir_new(&limits, spool, engine, models, ROOT, &d), 0);
	assert_int_equal(jobdir_load(d), 0);
	while (!health_is_ready(&health) && ms++ < 10000)
		usleep(1000);
}

static inline int prepare(void **state)
{
	(void)state;
	fake_reset();
	config = (struct engine_config){ .ops = &fake_ops,
		.device = { .threads = 1 },
		.max_active = 2,
		.queue_limit = 1000,
		.user_limit = 1000,
		.output_bytes = 1 << 20,
		.batch_bytes = 1 << 20,
		.file_bytes = 1 << 20 };
	limits = (struct jobdir_limits){ .files = 10000,
		.bytes = 1 << 20,
		.user_files = 10000,
		.user_bytes = 1 << 20,
		.request_bytes = 4096,
		.batch_bytes = 4096,
		.depth = 3 };
	strcpy(store, "/tmp/npufs-unit-XXXXXX");
	return mkdtemp(store) ? 0 : -1;
}

static inline int up(void **state)
{
	prepare(state);
	start();
	return 0;
}

/* As the daemon stops. */
static inline void stop(void)
{
	fake_let_go();
	engine_stop(engine, 10000);
	jobdir_free(d);
	spool_close(spool);
	engine_free(engine);
	models_free(models);
	health_done(&health);
}

static inline void restart(void)
{
	stop();
	start();
}

static inline int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static inline int down(void **state)
{
	(void)state;
	stop();
	return nftw(store, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* --- what a file system does ------------------------------------------------------------------ */

static inline int look(const struct cred *c, const char *name, struct jobdir_attr *a)
{
	int err = jobdir_lookup(d, c, ROOT, name, a);

	if (!err)
		jobdir_forget(d, a->ref.id, 1);
	return err;
}

static inline bool there(const char *name)
{
	struct jobdir_attr a;

	return look(&root, name, &a) == 0;
}

static inline int open_as(const struct cred *c, const char *name, int flags,
	struct jobdir_file **ret)
{
	struct jobdir_attr a;
	int err = look(c, name, &a);

	if (!err)
		return jobdir_open(d, c, a.ref.id, flags, ret);
	if (err != -ENOENT || !(flags & O_CREAT))
		return err;
	err = jobdir_create(d, c, ROOT, name, 0600, flags, &a, ret);
	if (!err)
		jobdir_forget(d, a.ref.id, 1);
	return err;
}

static inline int write_text(struct jobdir_file *f, uint64_t at, const char *text)
{
	return jobdir_write(d, f, at, text, strlen(text));
}

static inline int flush(struct jobdir_file *f, bool opener)
{
	bool sync;

	return jobdir_flush(d, f, opener, &sync);
}

/* echo TEXT > NAME: the first error that a shell sees. */
static inline int echo(const struct cred *c, const char *name, const char *text)
{
	struct jobdir_file *f;
	int err = open_as(c, name, O_WRONLY | O_CREAT | O_TRUNC, &f);

	if (err)
		return err;
	flush(f, false);
	err = write_text(f, 0, text);
	if (!err)
		err = flush(f, true);
	jobdir_release(d, f);
	return err;
}

static inline int rename_as(const struct cred *c, const char *from, const char *to)
{
	return jobdir_rename(d, c, ROOT, from, ROOT, to, false, &synced);
}

static inline int rm(const struct cred *c, const char *name)
{
	return jobdir_unlink(d, c, ROOT, name);
}

static inline struct job *result(const char *name)
{
	struct jobdir_attr a;
	struct job *j;

	assert_int_equal(look(&root, name, &a), 0);
	assert_int_equal(jobdir_open_result(d, &root, a.ref, O_RDONLY, &j), 0);
	return j;
}

static inline ssize_t cat_job(struct job *j, char ret[256])
{
	ssize_t n;
	int ms = 0;

	while (!job_ended(j) && ms++ < 20000)
		usleep(1000);
	n = job_read(j, JOB_OUT, 0, ret, 255);
	ret[n < 0 ? 0 : n] = '\0';
	job_put(j);
	return n;
}

static inline void check_out(const char *name, const char *want)
{
	char got[256];

	assert_true(cat_job(result(name), got) >= 0);
	assert_string_equal(got, want);
}

static inline void check_out_error(const char *name, int err)
{
	char got[256];

	assert_int_equal(cat_job(result(name), got), err);
}

static inline bool has_line(const char *name, const char *line)
{
	AUTO_BUF struct buf text = BUF_INIT;
	struct job *j = result(name);
	bool has;

	jobdir_status(d, j, &text);
	has = strstr(buf_text(&text), line) != NULL;
	job_put(j);
	return has;
}

/* Names are collected as " a.txt b.json " so that each is found with its blanks. */
static inline bool collect(void *context, const struct jobdir_entry *e)
{
	buf_printf(context, "%s ", e->name);
	return true;
}

static inline bool listed(const char *name)
{
	AUTO_BUF struct buf all = BUF_INIT;
	char blank[300];

	buf_puts(&all, " ");
	assert_int_equal(jobdir_list(d, ROOT, 0, collect, &all), 0);
	snprintf(blank, sizeof blank, " %s ", name);
	return strstr(buf_text(&all), blank) != NULL;
}

static inline void check_usage(uint64_t files, uint64_t bytes)
{
	struct jobdir_usage u;

	jobdir_usage(d, &u);
	assert_int_equal(u.files, files);
	assert_int_equal(u.bytes, bytes);
}

static inline size_t size_of(const char *name)
{
	struct jobdir_attr a;

	assert_int_equal(look(&root, name, &a), 0);
	return a.size;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, up, down)

#endif
