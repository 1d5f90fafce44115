/* SHA-256 by the examples of FIPS 180, Ed25519 by the test vectors of RFC 8032 section 7.1. */
#include "core/base/crypto.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- SHA-256 ---------------------------------------------------------------------------------- */

static void sha256_hex__fips_examples__published_digests(void **state)
{
	static const struct {
		const char *text, *digest;
	} rows[] = {
		{ "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
		{ "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
		{ "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
			"248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
	};
	char hex[SHA256_HEX_SIZE];

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		sha256_hex(rows[i].text, strlen(rows[i].text), hex);
		assert_string_equal(hex, rows[i].digest);
	}
	sha256_hex(NULL, 0, hex);
	assert_string_equal(hex, rows[0].digest);
}

static void sha256_update__million_in_uneven_pieces__published_digest(void **state)
{
	struct sha256 *h = sha256_new();
	char hex[SHA256_HEX_SIZE], piece[977];
	size_t left = 1000000, n = 1;

	(void)state;
	assert_non_null(h);
	memset(piece, 'a', sizeof piece);
	for (; left; left -= n) {
		n = n % sizeof piece + 1;
		if (n > left)
			n = left;
		sha256_update(h, piece, n);
		sha256_update(h, NULL, 0);
	}
	sha256_finish(h, hex);
	assert_string_equal(hex,
		"cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void sha256_finish__null__equals_no_digest(void **state)
{
	char hex[SHA256_HEX_SIZE] = "something";

	(void)state;
	sha256_finish(NULL, hex);
	assert_string_equal(hex, "");
}

/* --- Ed25519 ---------------------------------------------------------------------------------- */

/* The fixed beginnings of an Ed25519 key in PKCS 8 and in SubjectPublicKeyInfo (RFC 8410). */
#define PRIVATE_DER "302e020100300506032b657004220420"
#define PUBLIC_DER  "302a300506032b6570032100"

struct vector {
	const char *secret, *public, *message, *signature;
};

static const struct vector vectors[] = {
	{ "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
		"d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
		"e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc6"
		"1e39701cf9"
		"b46bd25bf5f0595bbe24655141438e7a100b" },
	{ "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
		"3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
		"92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e45"
		"8f3613d0f1"
		"1d8c387b2eaeb4302aeeb00d291612bb0c00" },
	{ "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
		"fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
		"6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae"
		"67f760984d"
		"c6594a7c15e9716ed28dc027beceea1ec40a" },
};

#define VECTORS (sizeof vectors / sizeof vectors[0])

static size_t from_hex(const char *hex, unsigned char *ret)
{
	size_t n = strlen(hex) / 2;

	for (size_t i = 0; i < n; i++) {
		char byte[3] = { hex[2 * i], hex[2 * i + 1], '\0' };

		ret[i] = (unsigned char)strtoul(byte, NULL, 16);
	}
	return n;
}

static void put_base64(struct buf *out, const unsigned char *bytes, size_t n)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	for (size_t i = 0; i < n; i += 3) {
		unsigned long word = (unsigned long)bytes[i] << 16 |
			(i + 1 < n ? bytes[i + 1] : 0) << 8 | (i + 2 < n ? bytes[i + 2] : 0);
		char four[4] = { digits[word >> 18], digits[word >> 12 & 63],
			i + 1 < n ? digits[word >> 6 & 63] : '=',
			i + 2 < n ? digits[word & 63] : '=' };

		buf_put(out, four, 4);
	}
}

static void make_pem(struct buf *out, const char *label, const char *der_start, const char *key)
{
	unsigned char der[64];
	size_t n = from_hex(der_start, der);

	n += from_hex(key, der + n);
	buf_printf(out, "-----BEGIN %s-----\n", label);
	put_base64(out, der, n);
	buf_printf(out, "\n-----END %s-----\n", label);
}

static struct key *private_key(const struct vector *v)
{
	AUTO_BUF struct buf pem = BUF_INIT;
	struct key *k;

	make_pem(&pem, "PRIVATE KEY", PRIVATE_DER, v->secret);
	assert_int_equal(key_from_private_pem(pem.data, pem.len, &k), 0);
	return k;
}

static struct key *public_key(const struct vector *v)
{
	AUTO_BUF struct buf pem = BUF_INIT;
	struct key *k;

	make_pem(&pem, "PUBLIC KEY", PUBLIC_DER, v->public);
	assert_int_equal(key_from_public_pem(pem.data, pem.len, &k), 0);
	return k;
}

static void key_sign__rfc_8032_vectors__published_signatures(void **state)
{
	(void)state;
	for (size_t i = 0; i < VECTORS; i++) {
		struct key *k = private_key(&vectors[i]);
		unsigned char message[8], want[ED25519_SIG_SIZE], have[ED25519_SIG_SIZE];
		size_t n = from_hex(vectors[i].message, message);

		assert_int_equal(from_hex(vectors[i].signature, want), ED25519_SIG_SIZE);
		assert_int_equal(key_sign(k, message, n, have), 0);
		assert_memory_equal(have, want, sizeof want);
		key_free(k);
	}
}

static void key_verify__rfc_8032_vectors__right_one_only(void **state)
{
	(void)state;
	for (size_t i = 0; i < VECTORS; i++) {
		struct key *k = public_key(&vectors[i]),
			   *other = public_key(&vectors[(i + 1) % VECTORS]);
		unsigned char message[8], sig[ED25519_SIG_SIZE];
		size_t n = from_hex(vectors[i].message, message);

		from_hex(vectors[i].signature, sig);
		assert_int_equal(key_verify(k, message, n, sig, sizeof sig), 0);
		assert_int_equal(key_verify(other, message, n, sig, sizeof sig), -EBADMSG);
		assert_int_equal(key_verify(k, "x", 1, sig, sizeof sig), -EBADMSG);
		assert_int_equal(key_verify(k, message, n, sig, sizeof sig - 1), -EBADMSG);
		assert_int_equal(key_verify(k, message, n, sig, 0), -EBADMSG);
		for (size_t at = 0; at < sizeof sig; at += 9) {
			sig[at] ^= 1;
			assert_int_equal(key_verify(k, message, n, sig, sizeof sig), -EBADMSG);
			sig[at] ^= 1;
		}
		key_free(k);
		key_free(other);
	}
}

/* The halves of one key have one id: the SHA-256 of the raw public key begins with it. */
static void key_id__both_halves__digest_of_raw_key(void **state)
{
	struct key *private = private_key(&vectors[0]), *public = public_key(&vectors[0]);
	char a[KEY_ID_SIZE], b[KEY_ID_SIZE], hex[SHA256_HEX_SIZE];
	unsigned char raw[32];

	(void)state;
	from_hex(vectors[0].public, raw);
	sha256_hex(raw, sizeof raw, hex);
	key_id(private, a);
	key_id(public, b);
	assert_string_equal(a, b);
	assert_int_equal(strlen(a), 16);
	assert_memory_equal(a, hex, 16);
	key_free(private);
	key_free(public);
}

static void key_public_pem__private_key__the_public_half(void **state)
{
	AUTO_BUF struct buf have = BUF_INIT, want = BUF_INIT;
	struct key *k = private_key(&vectors[1]);

	(void)state;
	make_pem(&want, "PUBLIC KEY", PUBLIC_DER, vectors[1].public);
	assert_int_equal(key_public_pem(k, &have), 0);
	assert_string_equal(buf_text(&have), buf_text(&want));
	key_free(k);
}

static void key_private_pem__read_back__the_same_key(void **state)
{
	AUTO_BUF struct buf have = BUF_INIT, want = BUF_INIT;
	struct key *k = private_key(&vectors[2]);

	(void)state;
	make_pem(&want, "PRIVATE KEY", PRIVATE_DER, vectors[2].secret);
	assert_int_equal(key_private_pem(k, &have), 0);
	assert_string_equal(buf_text(&have), buf_text(&want));
	key_free(k);
}

static void key_public_half__private_operations__refused(void **state)
{
	AUTO_BUF struct buf pem = BUF_INIT;
	struct key *k = public_key(&vectors[0]);
	unsigned char sig[ED25519_SIG_SIZE];

	(void)state;
	assert_int_equal(key_sign(k, "x", 1, sig), -EINVAL);
	assert_int_equal(key_private_pem(k, &pem), -EINVAL);
	assert_int_equal(pem.len, 0);
	key_free(k);
}

static void key_generate__twice__two_working_keys(void **state)
{
	struct key *a, *b;
	char id_a[KEY_ID_SIZE], id_b[KEY_ID_SIZE];
	unsigned char sig[ED25519_SIG_SIZE];

	(void)state;
	assert_int_equal(key_generate(&a), 0);
	assert_int_equal(key_generate(&b), 0);
	key_id(a, id_a);
	key_id(b, id_b);
	assert_string_not_equal(id_a, id_b);
	assert_int_equal(key_sign(a, "message", 7, sig), 0);
	assert_int_equal(key_verify(a, "message", 7, sig, sizeof sig), 0);
	assert_int_equal(key_verify(b, "message", 7, sig, sizeof sig), -EBADMSG);
	key_free(a);
	key_free(b);
}

/* --- what is no key --------------------------------------------------------------------------- */

#define P256_PRIVATE \
	"-----BEGIN PRIVATE KEY-----\n" \
	"MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgdkhZ1cpfoUXDAehc\n" \
	"UsEZ2LHAr4tf9cvFBynd91g0lgqhRANCAATorUJIvFcuyqPCmC4D/2CeUJUfXXWQ\n" \
	"wx3xss+JEF6dhpSRytTrTZ7tIAkvPjrDJbNAaIINAJUYyjJndh0A0Yp/\n" \
	"-----END PRIVATE KEY-----\n"

#define P256_PUBLIC \
	"-----BEGIN PUBLIC KEY-----\n" \
	"MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE6K1CSLxXLsqjwpguA/9gnlCVH111\n" \
	"kMMd8bLPiRBenYaUkcrU602e7SAJLz46wyWzQGiCDQCVGMoyZ3YdANGKfw==\n" \
	"-----END PUBLIC KEY-----\n"

/* An Ed25519 key under a passphrase: it must not be asked for. */
#define ENCRYPTED \
	"-----BEGIN ENCRYPTED PRIVATE KEY-----\n" \
	"MIGbMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAjwJWgTBUUBRwICCAAw\n" \
	"DAYIKoZIhvcNAgkFADAdBglghkgBZQMEAQIEECVMYzpfl8uQ29/erYq6J+UEQNAF\n" \
	"SB+ILeVLlaC6AQ5B/B56skX/wz34AjFeM4vhxglcNScsYa85rGlZ3kzAXhtM3yHg\n" \
	"wxeRLq5MmOSsUYwsWWM=\n" \
	"-----END ENCRYPTED PRIVATE KEY-----\n"

static void key_from_pem__other_than_ed25519__einval(void **state)
{
	static const char *const texts[] = { "", "\n", "no PEM at all", P256_PRIVATE, P256_PUBLIC,
		ENCRYPTED, "-----BEGIN PRIVATE KEY-----\nMC4CAQAw\n-----END PRIVATE KEY-----\n",
		"-----BEGIN PUBLIC KEY-----\n!!!!\n-----END PUBLIC KEY-----\n" };
	struct key *k = NULL;

	(void)state;
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		assert_int_equal(key_from_private_pem(texts[i], strlen(texts[i]), &k), -EINVAL);
		assert_int_equal(key_from_public_pem(texts[i], strlen(texts[i]), &k), -EINVAL);
		assert_null(k);
	}
}

static void key_from_pem__the_other_half__einval(void **state)
{
	AUTO_BUF struct buf private = BUF_INIT, public = BUF_INIT;
	struct key *k;

	(void)state;
	make_pem(&private, "PRIVATE KEY", PRIVATE_DER, vectors[0].secret);
	make_pem(&public, "PUBLIC KEY", PUBLIC_DER, vectors[0].public);
	assert_int_equal(key_from_private_pem(public.data, public.len, &k), -EINVAL);
	assert_int_equal(key_from_public_pem(private.data, private.len, &k), -EINVAL);
}

/* --- random ----------------------------------------------------------------------------------- */

static void random_bytes__twice__filled_and_different(void **state)
{
	unsigned char a[64] = { 0 }, b[64] = { 0 }, zero[64] = { 0 };

	(void)state;
	assert_int_equal(random_bytes(a, sizeof a), 0);
	assert_int_equal(random_bytes(b, sizeof b), 0);
	assert_memory_not_equal(a, b, sizeof a);
	assert_memory_not_equal(a + 32, zero, 32);
	assert_int_equal(random_bytes(a, 0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sha256_hex__fips_examples__published_digests),
		cmocka_unit_test(sha256_update__million_in_uneven_pieces__published_digest),
		cmocka_unit_test(sha256_finish__null__equals_no_digest),
		cmocka_unit_test(key_sign__rfc_8032_vectors__published_signatures),
		cmocka_unit_test(key_verify__rfc_8032_vectors__right_one_only),
		cmocka_unit_test(key_id__both_halves__digest_of_raw_key),
		cmocka_unit_test(key_public_pem__private_key__the_public_half),
		cmocka_unit_test(key_private_pem__read_back__the_same_key),
		cmocka_unit_test(key_public_half__private_operations__refused),
		cmocka_unit_test(key_generate__twice__two_working_keys),
		cmocka_unit_test(key_from_pem__other_than_ed25519__einval),
		cmocka_unit_test(key_from_pem__the_other_half__einval),
		cmocka_unit_test(random_bytes__twice__filled_and_different),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
