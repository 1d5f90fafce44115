/* The order of writing (private key, head, public key) and of looking for them decides what a crash
 * may have left: without the public half the trail is being sealed, and that is done again with the
 * private key that is there; with it, whatever else is missing was taken away. */
#include "core/control/audit_seal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/artifact/keyring.h"
#include "core/artifact/signature.h"
#include "core/base/files.h"
#include "core/base/files_write.h"
#include "core/base/mem.h"
#include "core/control/audit_line.h"

#define PRIVATE_FILE "daemon.pem"
#define PUBLIC_FILE  "daemon.pub.pem"
#define HEAD_FILE    "head"
#define HEAD_WORD    "npufs-audit-head-1"
#define HEAD_MAX     512

/* --- faults ----------------------------------------------------------------------------------- */

static int file_fault(struct fault *f, int err, const char *name)
{
	return fault_set(f, err,
		"it must be as npufs wrote it, of root or this user, on a disk with room",
		"the audit trail's %s cannot be used: %s", name, strerror(-err));
}

int audit_seal_broken(struct fault *f, const char *what)
{
	return fault_set(f, -EBADMSG,
		"find out who changed the audit folder; move all of it to a safe place to begin a "
		"new trail",
		"the audit trail is broken: %s", what);
}

/* --- the head --------------------------------------------------------------------------------- */

static void put_head(const struct audit_head *h, struct buf *out)
{
	buf_printf(out, "npufs audit head\nseq %" PRIu64 "\nhash %s\n", h->seq, h->hash);
}

int audit_head_write(int dir, const struct key *k, const struct audit_head *h)
{
	AUTO_BUF struct buf text = BUF_INIT, line = BUF_INIT;
	int err;

	put_head(h, &text);
	err = buf_error(&text);
	if (!err)
		err = signature_put(HEAD_WORD, k, text.data, text.len, &line);
	if (err)
		return err;
	buf_puts(&text, line.data);
	err = buf_error(&text);
	return err ? err : files_replace(dir, HEAD_FILE, 0600, text.data, text.len);
}

/* Read, and written again: so there is one form of each head. */
const char *audit_head_get(const char *text, size_t len, const struct key *k,
	struct audit_head *ret)
{
	static const char form[] = "its head is not in the form of one";
	AUTO_BUF struct buf whole = BUF_INIT, again = BUF_INIT;
	struct audit_head h = { 0, "" };
	struct signature s;

	buf_put(&whole, len ? text : "", len);
	if (buf_error(&whole) ||
		sscanf(buf_text(&whole), "npufs audit head seq %" SCNu64 " hash %64s", &h.seq,
			h.hash) != 2)
		return form;
	put_head(&h, &again);
	if (buf_error(&again) || len <= again.len || memcmp(text, again.data, again.len) != 0 ||
		!signature_get(HEAD_WORD, text + again.len, len - again.len, &s))
		return form;
	if (signature_verify(&s, k, again.data, again.len))
		return "its head is not signed by the daemon's key";
	*ret = h;
	return NULL;
}

int audit_head_read(int dir, const struct key *k, bool needed, struct audit_head *ret,
	struct fault *f)
{
	AUTO_BUF struct buf text = BUF_INIT;
	const char *wrong;
	int err = files_load(dir, HEAD_FILE, FILES_OWN, HEAD_MAX, &text);

	if (err == -ENOENT)
		return needed ? audit_seal_broken(f, "its head is missing") : 0;
	if (err)
		return file_fault(f, err, HEAD_FILE);
	wrong = audit_head_get(text.data, text.len, k, ret);
	return wrong ? audit_seal_broken(f, wrong) : 0;
}

/* --- the key ---------------------------------------------------------------------------------- */

static int load_private(int dir, struct key **ret)
{
	struct buf pem = BUF_INIT;
	AUTO_CLOSE int fd = -1;
	struct stat st;
	uint64_t size;
	int err = files_open(dir, PRIVATE_FILE, FILES_OWN, &fd, &size);

	if (!err && fstat(fd, &st) < 0)
		err = -errno;
	if (!err && (st.st_mode & (S_IRWXG | S_IRWXO)))
		err = -EPERM;
	if (!err)
		err = files_read(fd, PEM_MAX_BYTES, &pem);
	if (!err)
		err = key_from_private_pem(buf_text(&pem), pem.len, ret);
	if (pem.data)
		explicit_bzero(pem.data, pem.cap);
	buf_done(&pem);
	return err;
}

static int load_public(int dir, struct key **ret)
{
	AUTO_BUF struct buf pem = BUF_INIT;
	int err = files_load(dir, PUBLIC_FILE, FILES_OWN, PEM_MAX_BYTES, &pem);

	return err ? err : key_from_public_pem(buf_text(&pem), pem.len, ret);
}

static int make_private(int dir, struct key **ret)
{
	struct buf pem = BUF_INIT;
	struct key *k = NULL;
	int err = key_generate(&k);

	if (!err)
		err = key_private_pem(k, &pem);
	if (!err)
		err = files_replace(dir, PRIVATE_FILE, 0600, pem.data, pem.len);
	if (pem.data)
		explicit_bzero(pem.data, pem.cap);
	buf_done(&pem);
	if (err)
		key_free(k);
	else
		*ret = k;
	return err;
}

static bool same_key(const struct key *a, const struct key *b)
{
	char x[KEY_ID_SIZE], y[KEY_ID_SIZE];

	key_id(a, x);
	key_id(b, y);
	return strcmp(x, y) == 0;
}

static int check_public(int dir, const struct key *private, bool *ret_sealed, struct fault *f)
{
	struct key *public = NULL;
	int err = load_public(dir, &public);

	*ret_sealed = !err;
	if (err)
		return err == -ENOENT ? 0 : file_fault(f, err, PUBLIC_FILE);
	if (!private)
		err = audit_seal_broken(f,
			"the daemon's private key is missing, the public one is there");
	else if (!same_key(private, public))
		err = audit_seal_broken(f, "the daemon's two keys do not belong together");
	key_free(public);
	return err;
}

int audit_seal_open(int dir, struct key **ret, bool *ret_sealed, struct fault *f)
{
	struct key *k = NULL;
	int err = load_private(dir, &k);

	if (err && err != -ENOENT)
		return file_fault(f, err, PRIVATE_FILE);
	err = check_public(dir, k, ret_sealed, f);
	if (!err && !k) {
		err = make_private(dir, &k);
		if (err)
			file_fault(f, err, PRIVATE_FILE);
	}
	if (err)
		key_free(k);
	else
		*ret = k;
	return err;
}

int audit_seal_finish(int dir, const struct key *k)
{
	AUTO_BUF struct buf pem = BUF_INIT;
	int err = key_public_pem(k, &pem);

	return err ? err : files_replace(dir, PUBLIC_FILE, 0644, pem.data, pem.len);
}

/* A daemon that was stopped between the first two and the third begins them again at its next start. */
static int check_unsealed(int dir, struct fault *f)
{
	static const char *const others[] = { PRIVATE_FILE, HEAD_FILE };
	struct stat st;

	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		if (fstatat(dir, others[i], &st, AT_SYMLINK_NOFOLLOW) == 0)
			return audit_seal_broken(f,
				"the daemon's public key is missing; if its first start "
				"was cut short, start it again");
	return 0;
}

int audit_seal_load(int dir, struct key **ret, struct audit_head *ret_head, struct fault *f)
{
	struct key *k = NULL;
	int err = load_public(dir, &k);

	*ret = NULL;
	if (err == -ENOENT)
		return check_unsealed(dir, f);
	if (err)
		return file_fault(f, err, PUBLIC_FILE);
	err = audit_head_read(dir, k, true, ret_head, f);
	if (err)
		key_free(k);
	else
		*ret = k;
	return err;
}
