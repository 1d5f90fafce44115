/* What makes a trail the daemon's own: its key, and the head, which says how far the trail has come.
 * In the folder audit of a store:
 *
 *   daemon.pem      0600, the private key, made when the trail is first opened
 *   head            "npufs audit head", "seq N", "hash HEX" and a line of signature.h over these three
 *   daemon.pub.pem  the public half; written last, so where it is, all three have been there
 */
#ifndef NPUFS_CORE_CONTROL_AUDIT_SEAL_H
#define NPUFS_CORE_CONTROL_AUDIT_SEAL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/crypto.h"
#include "core/base/fault.h"

struct audit_head {
	uint64_t seq; /* of the newest record; 0: there is none */
	char hash[SHA256_HEX_SIZE];
};

/* For who writes: the private key, made if need be. ret_sealed: all three are there. -EBADMSG: some
 * are, but not all that must be, or they do not fit each other. */
int audit_seal_open(int dir, struct key **ret, bool *ret_sealed, struct fault *f);
/* After the first head: write the public half. */
int audit_seal_finish(int dir, const struct key *k);
/* For who verifies. No key (NULL) and 0: nothing was ever signed. -EBADMSG as above. */
int audit_seal_load(int dir, struct key **ret, struct audit_head *ret_head, struct fault *f);

int audit_head_write(int dir, const struct key *k, const struct audit_head *h);
/* Where it need not be there, and is not, *ret stays. */
int audit_head_read(int dir, const struct key *k, bool needed, struct audit_head *ret,
	struct fault *f);
/* Tell that the trail is broken otherwise than in a line. Returns -EBADMSG. */
int audit_seal_broken(struct fault *f, const char *what);
/* Any bytes as such a file. NULL, or what is wrong with them (static text). */
const char *audit_head_get(const char *text, size_t len, const struct key *k,
	struct audit_head *ret);

#endif
