/* Packages, keys and stores made by tests, in a folder of their own. */
#ifndef NPUFS_TESTS_ARTIFACT_FILES_H
#define NPUFS_TESTS_ARTIFACT_FILES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/buf.h"
#include "core/base/crypto.h"
#include "core/base/files_write.h"

#define WORK_PATH_SIZE 160

struct work {
	char root[32]; /* absolute */
};

/* A path below the folder; each of a few calls has a place of its own. */
static inline const char *work_path(const struct work *w, const char *name)
{
	static char paths[8][WORK_PATH_SIZE];
	static unsigned next;
	char *path = paths[next++ % 8];

	assert_true(snprintf(path, WORK_PATH_SIZE, "%s/%s", w->root, name) < WORK_PATH_SIZE);
	return path;
}

static inline void work_make(struct work *w)
{
	strcpy(w->root, "/tmp/npufs-unit-XXXXXX");
	assert_non_null(mkdtemp(w->root));
}

static inline void work_remove(struct work *w)
{
	assert_int_equal(files_remove_tree(AT_FDCWD, w->root), 0);
}

static inline void work_write(const struct work *w, const char *name, const void *bytes, size_t n)
{
	int fd = open(work_path(w, name), O_WRONLY | O_CREAT | O_TRUNC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, n), n);
	assert_int_equal(fchmod(fd, 0644), 0);
	close(fd);
}

static inline void work_write_text(const struct work *w, const char *name, const char *text)
{
	work_write(w, name, text, strlen(text));
}

static inline void work_read(const struct work *w, const char *name, struct buf *ret)
{
	int fd = open(work_path(w, name), O_RDONLY);
	ssize_t got;

	assert_true(fd >= 0);
	while ((got = read(fd, buf_room(ret, 4096), 4096)) > 0)
		ret->len += (size_t)got;
	close(fd);
	buf_put(ret, "", 0);
}

static inline void work_mkdir(const struct work *w, const char *name)
{
	assert_int_equal(mkdir(work_path(w, name), 0755), 0);
	assert_int_equal(chmod(work_path(w, name), 0755), 0);
}

static inline bool work_has(const struct work *w, const char *name)
{
	struct stat st;

	return lstat(work_path(w, name), &st) == 0;
}

static inline mode_t work_mode(const struct work *w, const char *name)
{
	struct stat st;

	assert_int_equal(lstat(work_path(w, name), &st), 0);
	return st.st_mode & 07777;
}

/* Both files of a key, as npufs-admin makes them; `id` may be NULL. */
static inline void work_key(const struct work *w, const char *prefix, char id[KEY_ID_SIZE])
{
	AUTO_BUF struct buf private = BUF_INIT, public = BUF_INIT;
	char name[64];
	struct key *k;

	assert_int_equal(key_generate(&k), 0);
	assert_int_equal(key_private_pem(k, &private), 0);
	assert_int_equal(key_public_pem(k, &public), 0);
	snprintf(name, sizeof name, "%s.pem", prefix);
	work_write(w, name, private.data, private.len);
	assert_int_equal(chmod(work_path(w, name), 0600), 0);
	snprintf(name, sizeof name, "%s.pub.pem", prefix);
	work_write(w, name, public.data, public.len);
	if (id)
		key_id(k, id);
	key_free(k);
}

/* A small package of kind tensor in the folder `name`; its weights file is "weights of N", its
 * golden run 8 bytes in and 4 out, and there is a README, which is no part of an artifact. */
static inline void work_package(const struct work *w, const char *name)
{
	static const char template[] =
		"{\"schema\":\"npufs-manifest-1\",\"kind\":\"tensor\",\"description\":\"a test\","
		"\"calbin_version\":\"0.7.6\",\"compatible\":{\"runtime\":[\"0.7.6\"]},\"batch\":1,"
		"\"example\":{\"inputs\":[]},\"programs\":[{\"name\":\"mlp\","
		"\"inputs\":[{\"name\":\"x\",\"dtype\":\"float32\",\"shape\":[1,2]}],"
		"\"outputs\":[{\"name\":\"y\",\"dtype\":\"float32\",\"shape\":[1,1]}]}],"
		"\"golden\":[{\"program\":\"mlp\",\"input\":\"golden/mlp.in\",\"output\":\"golden/"
		"mlp.out\","
		"\"tolerance\":0.01}]}";
	static const struct {
		const char *file, *bytes;
		size_t n;
	} files[] = {
		{ "artifact.json", template, sizeof template - 1 },
		{ "README.md", "how it was made", 15 },
		{ "calbin/program.json", "{}\n", 3 },
		{ "calbin/parts/weights.bin", "weights", 7 },
		{ "golden/mlp.in", "\0\0\0\0\0\0\x80\x3f", 8 },
		{ "golden/mlp.out", "\0\0\x80\x3f", 4 },
	};
	static const char *const folders[] = { "", "calbin", "calbin/parts", "golden" };
	char path[96];

	for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
		snprintf(path, sizeof path, "%s/%s", name, folders[i]);
		work_mkdir(w, path);
	}
	for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
		snprintf(path, sizeof path, "%s/%s", name, files[i].file);
		work_write(w, path, files[i].bytes, files[i].n);
	}
}

#endif
