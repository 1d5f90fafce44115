/* The digest's implementation is fetched once: EVP_sha256() would look it up by name, under a lock,
 * each time. Keys are EVP_PKEYs of type Ed25519 and nothing else; whether one holds its private
 * half is asked of the key itself. OpenSSL's queue of errors is emptied after a failure, so that it
 * says nothing about a later call of someone else. */
#include "core/base/crypto.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>

#include "core/base/hex.h"
#include "core/base/mem.h"

#define SHA256_BYTES      32
#define ED25519_KEY_BYTES 32

/* --- SHA-256 ---------------------------------------------------------------------------------- */

struct sha256 {
	EVP_MD_CTX *ctx;
	bool failed;
};

static EVP_MD *algorithm; /* fixed after fetch_algorithm */

static void fetch_algorithm(void)
{
	algorithm = EVP_MD_fetch(NULL, "SHA256", NULL);
}

static const EVP_MD *sha256(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, fetch_algorithm);
	return algorithm;
}

static void sha256_free(struct sha256 *h)
{
	EVP_MD_CTX_free(h->ctx);
	free(h);
}

struct sha256 *sha256_new(void)
{
	struct sha256 *h = calloc(1, sizeof *h);

	if (!h)
		return NULL;
	h->ctx = EVP_MD_CTX_new();
	if (h->ctx && sha256() && EVP_DigestInit_ex2(h->ctx, sha256(), NULL) == 1)
		return h;
	ERR_clear_error();
	sha256_free(h);
	return NULL;
}

void sha256_update(struct sha256 *h, const void *bytes, size_t n)
{
	if (n && EVP_DigestUpdate(h->ctx, bytes, n) != 1)
		h->failed = true;
}

void sha256_finish(struct sha256 *h, char ret_hex[SHA256_HEX_SIZE])
{
	unsigned char digest[SHA256_BYTES];

	ret_hex[0] = '\0';
	if (!h)
		return;
	if (!h->failed && EVP_DigestFinal_ex(h->ctx, digest, NULL) == 1)
		hex_put(digest, sizeof digest, ret_hex);
	else
		ERR_clear_error();
	sha256_free(h);
}

void sha256_hex(const void *bytes, size_t n, char ret_hex[SHA256_HEX_SIZE])
{
	unsigned char digest[SHA256_BYTES];

	ret_hex[0] = '\0';
	if (sha256() && EVP_Digest(n ? bytes : "", n, digest, NULL, sha256(), NULL) == 1)
		hex_put(digest, sizeof digest, ret_hex);
	else
		ERR_clear_error();
}

/* --- Ed25519 ---------------------------------------------------------------------------------- */

struct key {
	EVP_PKEY *pkey;
	bool private;
	char id[KEY_ID_SIZE];
};

/* Without it OpenSSL would ask the terminal for the passphrase of an encrypted key. */
static int no_passphrase(char *to, int size, int writing, void *data)
{
	(void)to;
	(void)size;
	(void)writing;
	(void)data;
	return -1;
}

/* Takes over `pkey`, which may be NULL, also when it fails. */
static int key_new(EVP_PKEY *pkey, bool private, struct key **ret)
{
	unsigned char raw[ED25519_KEY_BYTES];
	char hex[SHA256_HEX_SIZE];
	size_t n = sizeof raw;
	struct key *k;

	if (!pkey || !EVP_PKEY_is_a(pkey, "ED25519") ||
		EVP_PKEY_get_raw_public_key(pkey, raw, &n) != 1) {
		EVP_PKEY_free(pkey);
		ERR_clear_error();
		return -EINVAL;
	}
	sha256_hex(raw, n, hex);
	k = calloc(1, sizeof *k);
	if (!k || !hex[0]) {
		EVP_PKEY_free(pkey);
		free(k);
		return -ENOMEM;
	}
	k->pkey = pkey;
	k->private = private;
	memcpy(k->id, hex, KEY_ID_SIZE - 1);
	*ret = k;
	return 0;
}

int key_generate(struct key **ret)
{
	EVP_PKEY *pkey = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");

	if (!pkey) {
		ERR_clear_error();
		return -EIO;
	}
	return key_new(pkey, true, ret);
}

typedef EVP_PKEY *pem_reader(BIO *, EVP_PKEY **, pem_password_cb *, void *);

static int key_from_pem(const char *pem, size_t len, pem_reader *read, bool private,
	struct key **ret)
{
	EVP_PKEY *pkey;
	BIO *bio;

	if (len > INT_MAX)
		return -EINVAL;
	bio = BIO_new_mem_buf(pem, (int)len);
	if (!bio)
		return -ENOMEM;
	pkey = read(bio, NULL, no_passphrase, NULL);
	BIO_free(bio);
	return key_new(pkey, private, ret);
}

int key_from_private_pem(const char *pem, size_t len, struct key **ret)
{
	return key_from_pem(pem, len, PEM_read_bio_PrivateKey, true, ret);
}

int key_from_public_pem(const char *pem, size_t len, struct key **ret)
{
	return key_from_pem(pem, len, PEM_read_bio_PUBKEY, false, ret);
}

/* Append what was written to `bio`, and free it. */
static int take_bio(BIO *bio, int written, struct buf *out)
{
	char *text;
	long n = written == 1 ? BIO_get_mem_data(bio, &text) : 0;

	if (n > 0)
		buf_put(out, text, (size_t)n);
	else
		ERR_clear_error();
	BIO_free(bio);
	return n > 0 ? buf_error(out) : -ENOMEM;
}

int key_private_pem(const struct key *k, struct buf *out)
{
	BIO *bio;

	if (!k->private)
		return -EINVAL;
	bio = BIO_new(BIO_s_secmem());
	if (!bio)
		return -ENOMEM;
	return take_bio(bio, PEM_write_bio_PKCS8PrivateKey(bio, k->pkey, NULL, NULL, 0, NULL, NULL),
		out);
}

int key_public_pem(const struct key *k, struct buf *out)
{
	BIO *bio = BIO_new(BIO_s_mem());

	return bio ? take_bio(bio, PEM_write_bio_PUBKEY(bio, k->pkey), out) : -ENOMEM;
}

void key_id(const struct key *k, char ret[KEY_ID_SIZE])
{
	memcpy(ret, k->id, KEY_ID_SIZE);
}

int key_sign(const struct key *k, const void *msg, size_t len, unsigned char ret[ED25519_SIG_SIZE])
{
	size_t n = ED25519_SIG_SIZE;
	EVP_MD_CTX *ctx;
	bool ok;

	if (!k->private)
		return -EINVAL;
	ctx = EVP_MD_CTX_new();
	ok = ctx && EVP_DigestSignInit(ctx, NULL, NULL, NULL, k->pkey) == 1 &&
		EVP_DigestSign(ctx, ret, &n, msg, len) == 1;
	EVP_MD_CTX_free(ctx);
	if (ok)
		return 0;
	ERR_clear_error();
	return -ENOMEM;
}

int key_verify(const struct key *k, const void *msg, size_t len, const unsigned char *sig,
	size_t sig_len)
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	bool ready = ctx && EVP_DigestVerifyInit(ctx, NULL, NULL, NULL, k->pkey) == 1;
	bool ok = ready && sig_len == ED25519_SIG_SIZE &&
		EVP_DigestVerify(ctx, sig, sig_len, msg, len) == 1;

	EVP_MD_CTX_free(ctx);
	if (ok)
		return 0;
	ERR_clear_error();
	return ready ? -EBADMSG : -ENOMEM;
}

void key_free(struct key *k)
{
	if (!k)
		return;
	EVP_PKEY_free(k->pkey);
	free(k);
}

/* --- random ----------------------------------------------------------------------------------- */

int random_bytes(void *out, size_t n)
{
	if (n <= INT_MAX && RAND_bytes(out, (int)n) == 1)
		return 0;
	ERR_clear_error();
	return -EIO;
}
