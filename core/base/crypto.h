/* SHA-256, Ed25519 and random bytes over OpenSSL (the only file that includes it). */
#ifndef NPUFS_CORE_BASE_CRYPTO_H
#define NPUFS_CORE_BASE_CRYPTO_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"

#define SHA256_HEX_SIZE  65 /* 64 lower-case digits and a NUL */
#define ED25519_SIG_SIZE 64
#define KEY_ID_SIZE      17 /* 16 hex digits and a NUL */

struct sha256; /* a running digest */

/* A digest that could not be computed (no memory) is the empty string, which equals no digest. */
struct sha256 *sha256_new(void); /* NULL: no memory */
void sha256_update(struct sha256 *h, const void *bytes, size_t n);
void sha256_finish(struct sha256 *h, char ret_hex[SHA256_HEX_SIZE]); /* frees h; NULL is fine */
void sha256_hex(const void *bytes, size_t n, char ret_hex[SHA256_HEX_SIZE]);

struct key; /* an Ed25519 key; private or public half */

int key_generate(struct key **ret);
/* From PEM text. -EINVAL: not PEM, or not Ed25519 (or a public half where the private is needed). */
int key_from_private_pem(const char *pem, size_t len, struct key **ret);
int key_from_public_pem(const char *pem, size_t len, struct key **ret);
int key_private_pem(const struct key *k, struct buf *out);
int key_public_pem(const struct key *k, struct buf *out);
/* The first 16 hex digits of SHA-256 over the raw public key: what messages call a key. */
void key_id(const struct key *k, char ret[KEY_ID_SIZE]);
int key_sign(const struct key *k, const void *msg, size_t len, unsigned char ret[ED25519_SIG_SIZE]);
/* 0, or -EBADMSG when the signature is not this key's over this message. */
int key_verify(const struct key *k, const void *msg, size_t len, const unsigned char *sig,
	size_t sig_len);
void key_free(struct key *k);

int random_bytes(void *out, size_t n); /* 0 or -EIO */

#endif
