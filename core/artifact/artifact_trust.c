/* A signature file is one line of signature.h over the bytes of the manifest. */
#include "core/artifact/artifact_impl.h"

#include <errno.h>
#include <string.h>

#include "core/artifact/keyring.h"
#include "core/artifact/signature.h"
#include "core/base/mem.h"

#define SIGNATURE_WORD "npufs-signature-1"

int artifact_make_signature(const struct key *k, const struct buf *manifest, struct buf *ret)
{
	return signature_put(SIGNATURE_WORD, k, buf_text(manifest), manifest->len, ret);
}

static int refuse_keys(const struct findings *to, int err, const struct keyring_trouble *t)
{
	if (!t->name[0])
		return artifact_refuse_missing(to, err, "the trust folder", MAKE_STORE);
	artifact_refuse(to, err, "a key file of the trust folder", t->name);
	if (t->no_key)
		fault_set(to->f, err, "remove it from the trust folder",
			"a key file of the trust folder is no Ed25519 public key in PEM");
	return artifact_code(to, err);
}

static int wrong_signature(const struct findings *to, const char *reason)
{
	fault_set(to->f, -EBADMSG,
		"import the artifact again, or sign it if you trust what it holds now", "%s",
		reason);
	return artifact_code(to, -EBADMSG);
}

static int check_with(const struct keyring *keys, const struct buf *manifest,
	const struct signature *s, const struct findings *to)
{
	const struct key *k = keyring_find(keys, s->id);
	int err;

	if (!k)
		return artifact_refuse(to, -EKEYREJECTED, "the key that signed the artifact",
			s->id);
	err = signature_verify(s, k, buf_text(manifest), manifest->len);
	if (err == -EBADMSG)
		return wrong_signature(to, "the signature is not over this manifest");
	return err ? artifact_refuse(to, err, "the signature", NULL) : 0;
}

int artifact_check_signature(int store, const struct buf *manifest, const struct buf *sig,
	char ret_signer[KEY_ID_SIZE], const struct findings *to)
{
	AUTO_CLEANUP(keyring_done) struct keyring keys = { .n = 0 };
	struct keyring_trouble trouble;
	struct signature s;
	int err = keyring_load(store, TRUST_FOLDER, &keys, &trouble);

	if (err)
		return refuse_keys(to, err, &trouble);
	if (!signature_get(SIGNATURE_WORD, buf_text(sig), sig->len, &s))
		return wrong_signature(to, "the manifest's signature is not in the form of one");
	err = check_with(&keys, manifest, &s, to);
	if (err)
		return err;
	memcpy(ret_signer, s.id, KEY_ID_SIZE);
	return 0;
}
