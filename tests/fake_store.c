#include "tests/fake_store.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/artifact/artifact.h"
#include "core/base/mem.h"

#define CSRS   "\"csrs\":[\"cur_seq_len[0]\",\"past_kv_cur_seq_len[0]\"]"
#define LOGITS "{\"name\":\"logits\",\"dtype\":\"float32\",\"shape\":[257]}"
#define HEAD   "\"calbin_version\":\"1.0\",\"compatible\":{\"runtime\":[\"0.7.6\"]},\"batch\":1,"

const char fake_llm_template[] =
	"{\"schema\":\"npufs-manifest-1\",\"kind\":\"llm\",\"description\":\"for tests\"," HEAD
	"\"context_limit\":16,\"tokenizer\":{\"type\":\"bytes\",\"vocab_size\":257,\"prefix\":[],"
	"\"suffix\":[],\"stop\":[256]},\"defaults\":{\"temperature\":0},\"example\":{\"prompt\":"
	"\"hello\"},"
	"\"programs\":["
	"{\"name\":\"prefill\",\"inputs\":[{\"name\":\"tokens\",\"dtype\":\"int32\",\"shape\":[4]}]"
	","
	"\"outputs\":[" LOGITS "]," CSRS "},"
	"{\"name\":\"decode\",\"inputs\":[{\"name\":\"tokens\",\"dtype\":\"int32\",\"shape\":[1]}],"
	"\"outputs\":[" LOGITS "]," CSRS "},"
	"{\"name\":\"kv_update\",\"inputs\":[],"
	"\"outputs\":[{\"name\":\"kv_length\",\"dtype\":\"int32\",\"shape\":[1]}]," CSRS "}]}";

const char fake_tensor_template[] =
	"{\"schema\":\"npufs-manifest-1\",\"kind\":\"tensor\",\"description\":\"for tests\"," HEAD
	"\"example\":{\"inputs\":[{\"name\":\"x\",\"shape\":[2],\"datatype\":\"FP32\",\"data\":[1,"
	"2]}]},"
	"\"programs\":[{\"name\":\"double\","
	"\"inputs\":[{\"name\":\"x\",\"dtype\":\"float32\",\"shape\":[2]}],"
	"\"outputs\":[{\"name\":\"y\",\"dtype\":\"float32\",\"shape\":[2]}]}],"
	"\"golden\":[{\"program\":\"double\",\"input\":\"golden/in.bin\",\"output\":\"golden/"
	"out.bin\","
	"\"tolerance\":0.01}]}";

static void put_file(const char *dir, const char *path, const void *bytes, size_t len, mode_t mode)
{
	char full[512];
	int fd;

	snprintf(full, sizeof full, "%s/%s", dir, path);
	fd = open(full, O_CREAT | O_EXCL | O_WRONLY, mode);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, len), len);
	close(fd);
}

static void must(int err, const struct fault *f)
{
	if (err)
		fail_msg("%s: %s", f->field, f->reason);
}

void fake_store_new(char ret[64])
{
	AUTO_BUF struct buf private = BUF_INIT, public = BUF_INIT;
	char id[KEY_ID_SIZE], path[128];
	struct fault f = FAULT_NONE;
	struct key *k;

	strcpy(ret, "/tmp/npufs-storeXXXXXX");
	assert_non_null(mkdtemp(ret));
	must(store_init(ret, &f), &f);
	assert_int_equal(key_generate(&k), 0);
	assert_int_equal(key_private_pem(k, &private), 0);
	assert_int_equal(key_public_pem(k, &public), 0);
	key_free(k);
	put_file(ret, "key", private.data, private.len, 0600);
	put_file(ret, "key.pub", public.data, public.len, 0644);
	snprintf(path, sizeof path, "%s/key.pub", ret);
	must(store_trust(ret, path, id, &f), &f);
}

void fake_store_add(const char *store, const char *alias, const char *template,
	const struct fake_file *files, size_t n_files)
{
	static const char *const folders[] = { "calbin", "golden", "tokenizer" };
	AUTO_BUF struct buf detail = BUF_INIT;
	struct fault f = FAULT_NONE;
	char package[128], dest[192], key[128];

	snprintf(package, sizeof package, "%s/package-%s", store, alias);
	assert_int_equal(mkdir(package, 0755), 0);
	for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
		snprintf(dest, sizeof dest, "%s/%s", package, folders[i]);
		if (i == 0 || n_files)
			assert_int_equal(mkdir(dest, 0755), 0);
	}
	put_file(package, "artifact.json", template, strlen(template), 0644);
	put_file(package, "calbin/program.bin", "program", 7, 0644);
	for (size_t i = 0; i < n_files; i++)
		put_file(package, files[i].path, files[i].bytes, files[i].len, 0644);
	snprintf(dest, sizeof dest, "%s/models/%s", store, alias);
	snprintf(key, sizeof key, "%s/key", store);
	must(artifact_import_package(package, dest, &f), &f);
	must(artifact_sign(dest, key, &f, &detail), &f);
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(path);
}

void fake_store_remove(const char *store)
{
	nftw(store, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
