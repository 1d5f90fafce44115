/* A signature file is one line, "npufs-signature-1 KEYID SIGNATURE", with the 128 hex digits of an
 * Ed25519 signature over the bytes of the manifest. KEYID only chooses the key, so that a
 * stranger's signature and a damaged one can be told apart; it proves nothing. */
#include "core/artifact_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "core/files.h"

#define SIGNATURE_WORD "npufs-signature-1"
#define LINE_BYTES     (sizeof SIGNATURE_WORD + KEY_ID_SIZE + 2 * ED25519_SIG_SIZE + 1)

struct signature {
	char id[KEY_ID_SIZE];
	unsigned char bytes[ED25519_SIG_SIZE];
};

/* --- the line --------------------------------------------------------------------------------- */

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_hex(const char *text, unsigned char *ret, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int high = hex_value(text[2 * i]), low = high < 0 ? -1 : hex_value(text[2 * i + 1]);

		if (low < 0)
			return false;
		ret[i] = (unsigned char)(high << 4 | low);
	}
	return true;
}

/* Every part has its fixed place. */
static bool read_signature(const struct buf *text, struct signature *ret)
{
	const char *line = buf_text(text), *id = line + sizeof SIGNATURE_WORD,
		   *hex = id + KEY_ID_SIZE;

	if (text->len != LINE_BYTES ||
		memcmp(line, SIGNATURE_WORD " ", sizeof SIGNATURE_WORD) != 0 || hex[-1] != ' ' ||
		line[LINE_BYTES - 1] != '\n')
		return false;
	memcpy(ret->id, id, KEY_ID_SIZE - 1);
	ret->id[KEY_ID_SIZE - 1] = '\0';
	return strspn(ret->id, "0123456789abcdef") == KEY_ID_SIZE - 1 &&
		read_hex(hex, ret->bytes, ED25519_SIG_SIZE);
}

int artifact_make_signature(const struct key *k, const struct buf *manifest, struct buf *ret)
{
	unsigned char sig[ED25519_SIG_SIZE];
	char id[KEY_ID_SIZE];
	int err = key_sign(k, buf_text(manifest), manifest->len, sig);

	if (err)
		return err;
	key_id(k, id);
	buf_printf(ret, SIGNATURE_WORD " %s ", id);
	for (size_t i = 0; i < sizeof sig; i++)
		buf_printf(ret, "%02x", sig[i]);
	buf_puts(ret, "\n");
	return buf_error(ret);
}

/* --- the trust folder ------------------------------------------------------------------------- */

static bool is_pem(const char *name)
{
	size_t len = strlen(name);

	return name[0] != '.' && len > 4 && strcmp(name + len - 4, ".pem") == 0;
}

static int load_key(int trust, const char *name, struct key **ret, const struct findings *to)
{
	AUTO_BUF struct buf pem = BUF_INIT;
	int err = files_load(trust, name, FILES_OWN, PEM_MAX_BYTES, &pem);

	if (err)
		return artifact_refuse(to, err, "a key file of the trust folder", name);
	err = key_from_public_pem(buf_text(&pem), pem.len, ret);
	if (!err)
		return 0;
	artifact_refuse(to, err, "a key file of the trust folder", name);
	if (err == -EINVAL)
		fault_set(to->f, err, "remove it from the trust folder",
			"a key file of the trust folder is no Ed25519 public key in PEM");
	return artifact_code(to, err);
}

/* Look at one entry; the key that is looked for goes to *ret. */
static int try_key(int trust, const char *name, const char *id, struct key **ret,
	const struct findings *to)
{
	char have[KEY_ID_SIZE];
	struct key *k;
	int err;

	if (!is_pem(name))
		return 0;
	err = load_key(trust, name, &k, to);
	if (err)
		return err;
	key_id(k, have);
	if (*ret || strcmp(have, id) != 0) {
		key_free(k);
		return 0;
	}
	*ret = k;
	return 0;
}

/* Every key is looked at, also after the right one: a folder with an unsound file is not to be
 * trusted. Takes over `trust`. */
static int find_key(int trust, const char *id, struct key **ret, const struct findings *to)
{
	DIR *dir = fdopendir(trust);
	const struct dirent *entry;
	struct key *k = NULL;
	int err = 0;

	if (!dir) {
		files_close(&trust);
		return artifact_refuse(to, -ENOMEM, "the trust folder", NULL);
	}
	while (!err && (errno = 0, entry = readdir(dir)))
		err = try_key(trust, entry->d_name, id, &k, to);
	if (!err && errno)
		err = artifact_refuse(to, -errno, "the trust folder", NULL);
	closedir(dir);
	if (!err && !k)
		err = artifact_refuse(to, -EKEYREJECTED, "the key that signed the artifact", id);
	if (err) {
		key_free(k);
		return err;
	}
	*ret = k;
	return 0;
}

static int wrong_signature(const struct findings *to, const char *reason)
{
	fault_set(to->f, -EBADMSG,
		"import the artifact again, or sign it if you trust what it holds now", "%s",
		reason);
	return artifact_code(to, -EBADMSG);
}

int artifact_check_signature(int store, const struct buf *manifest, const struct buf *sig,
	char ret_signer[KEY_ID_SIZE], const struct findings *to)
{
	struct signature s;
	struct key *k = NULL;
	int trust, err = files_open_folder(store, TRUST_FOLDER, FILES_OWN, &trust);

	if (err)
		return artifact_refuse_missing(to, err, "the trust folder", MAKE_STORE);
	if (!read_signature(sig, &s)) {
		files_close(&trust);
		return wrong_signature(to, "the manifest's signature is not in the form of one");
	}
	err = find_key(trust, s.id, &k, to);
	if (err)
		return err;
	err = key_verify(k, buf_text(manifest), manifest->len, s.bytes, sizeof s.bytes);
	key_free(k);
	if (err)
		return err == -EBADMSG
			? wrong_signature(to, "the signature is not over this manifest")
			: artifact_refuse(to, err, "the signature", NULL);
	memcpy(ret_signer, s.id, KEY_ID_SIZE);
	return 0;
}
