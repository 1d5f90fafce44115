/* A folder is read whole each time it is needed: who was taken out of it counts no more, and there is
 * nothing to be told of a change. */
#include "core/artifact/keyring.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/buf.h"
#include "core/base/files.h"

/* --- a folder --------------------------------------------------------------------------------- */

static bool is_pem(const char *name)
{
	size_t len = strlen(name);

	return name[0] != '.' && len > 4 && strcmp(name + len - 4, ".pem") == 0;
}

static int add_key(int folder, const char *name, struct keyring *r, struct keyring_trouble *t)
{
	AUTO_BUF struct buf pem = BUF_INIT;
	int err;

	if (!is_pem(name))
		return 0;
	if (r->n == KEYRING_MAX)
		return -E2BIG;
	snprintf(t->name, sizeof t->name, "%s", name);
	err = files_load(folder, name, FILES_OWN, PEM_MAX_BYTES, &pem);
	if (err)
		return err;
	err = key_from_public_pem(buf_text(&pem), pem.len, &r->keys[r->n]);
	t->no_key = err == -EINVAL;
	if (err)
		return err;
	r->n++;
	t->name[0] = '\0';
	return 0;
}

int keyring_load(int store, const char *folder, struct keyring *ret, struct keyring_trouble *t)
{
	const struct dirent *entry;
	struct keyring r = { .n = 0 };
	int fd = -1, err;
	DIR *dir;

	*t = (struct keyring_trouble){ .no_key = false };
	err = files_open_folder(store, folder, FILES_OWN, &fd);
	if (err)
		return err;
	dir = fdopendir(fd);
	if (!dir) {
		files_close(&fd);
		return -ENOMEM;
	}
	while (!err && (errno = 0, entry = readdir(dir)))
		err = add_key(fd, entry->d_name, &r, t);
	if (!err)
		err = -errno;
	closedir(dir);
	if (err)
		keyring_done(&r);
	else
		*ret = r;
	return err;
}

const struct key *keyring_find(const struct keyring *r, const char *id)
{
	char have[KEY_ID_SIZE];

	for (size_t i = 0; i < r->n; i++) {
		key_id(r->keys[i], have);
		if (strcmp(have, id) == 0)
			return r->keys[i];
	}
	return NULL;
}

void keyring_done(struct keyring *r)
{
	while (r->n)
		key_free(r->keys[--r->n]);
}

/* --- a file ----------------------------------------------------------------------------------- */

int keyring_read_public(const char *path, struct key **ret, struct fault *f)
{
	AUTO_BUF struct buf pem = BUF_INIT;
	AUTO_CLOSE int fd = -1;
	int err = files_open_input(path, &fd);

	if (!err)
		err = files_read(fd, PEM_MAX_BYTES, &pem);
	if (err)
		return fault_set(f, err, "name a file that is there and readable",
			"cannot read the key: %s", strerror(-err));
	err = key_from_public_pem(buf_text(&pem), pem.len, ret);
	return err ? fault_set(f, err, "name the .pub.pem of npufs-admin key generate",
			     "this is no Ed25519 public key in PEM")
		   : 0;
}

static int read_key_file(const char *path, struct buf *ret, struct fault *f)
{
	AUTO_CLOSE int fd = -1;
	struct stat st;
	int err = files_open_input(path, &fd);

	if (!err && fstat(fd, &st) < 0)
		err = -errno;
	if (!err)
		err = files_read(fd, PEM_MAX_BYTES, ret);
	if (!err && strstr(buf_text(ret), "PUBLIC KEY"))
		return fault_set(f, -EINVAL,
			"name the private half: PREFIX.pem, not PREFIX.pub.pem",
			"this is a public key");
	if (!err && (st.st_mode & (S_IRWXG | S_IRWXO)))
		return fault_set(f, -EPERM,
			"chmod 600 the key file; if others may have read it, make a new key",
			"the private key can be read by others");
	return err ? fault_set(f, err, "name a key of npufs-admin key generate",
			     "cannot read the private key: %s", strerror(-err))
		   : 0;
}

int keyring_read_private(const char *path, struct key **ret, struct fault *f)
{
	struct buf pem = BUF_INIT;
	int err = read_key_file(path, &pem, f);

	if (!err) {
		err = key_from_private_pem(buf_text(&pem), pem.len, ret);
		if (err)
			fault_set(f, err, "name a key of npufs-admin key generate",
				"this is no Ed25519 private key in PEM without passphrase");
	}
	if (pem.data)
		explicit_bzero(pem.data, pem.cap);
	buf_done(&pem);
	return err;
}
