/* A signature as a line of text: "WORD KEYID HEX\n", with the 128 hex digits of an Ed25519
 * signature. KEYID only chooses the key, so that a stranger's signature and a damaged one can be
 * told apart; it proves nothing. WORD says what is signed, and its version; since the word itself is
 * not signed, what is must not be taken for something else: each kind begins in its own way. */
#ifndef NPUFS_CORE_ARTIFACT_SIGNATURE_H
#define NPUFS_CORE_ARTIFACT_SIGNATURE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/buf.h"
#include "core/base/crypto.h"

struct signature {
	char id[KEY_ID_SIZE];
	unsigned char bytes[ED25519_SIG_SIZE];
};

/* Append the line. 0 or -ENOMEM, -EINVAL for a public half. */
int signature_put(const char *word, const struct key *k, const void *msg, size_t len,
	struct buf *out);
/* Any bytes; with the newline. False: they are no such line. */
bool signature_get(const char *word, const char *line, size_t len, struct signature *ret);
/* 0, or -EBADMSG when it is not this key's over this message, or names another key. */
int signature_verify(const struct signature *s, const struct key *k, const void *msg, size_t len);

#endif
