/* Between the files about artifacts: artifact.c (verify, read, list), artifact_trust.c (signatures
 * and who may give them), artifact_build.c and artifact_make.c (import, sign). */
#ifndef NPUFS_CORE_ARTIFACT_ARTIFACT_IMPL_H
#define NPUFS_CORE_ARTIFACT_ARTIFACT_IMPL_H

#include "core/artifact/artifact.h"
#include "core/base/buf.h"

#define MANIFEST_FILE  "manifest.json"
#define SIGNATURE_FILE "manifest.sig"
#define MODELS_FOLDER  "models"
#define TRUST_FOLDER   "trust"

/* Where a check tells what it found; either may be NULL. `detail` gets the names that `f` must not
 * have. */
struct findings {
	struct fault *f;
	struct buf *detail;
};

/* Refuse `what` ("the trust folder") for the reason that `err` of files.h stands for; `name` goes
 * into the detail. Returns err. */
int artifact_refuse(const struct findings *to, int err, const char *what, const char *name);
/* The same for what the administrator makes, with how to make it where it is missing; no detail. */
int artifact_refuse_missing(const struct findings *to, int err, const char *what,
	const char *if_missing);
#define MAKE_STORE "make it with npufs-admin store init"
/* Set the device's code that has the meaning of `err`, and return err. */
int artifact_code(const struct findings *to, int err);

/* Owners, modes, links, missing and unlisted files, sizes and digests below the open folder `dir`.
 */
int artifact_check_content(int dir, const struct manifest *m, const struct findings *to);

/* Whether `sig`, the text of a manifest.sig, is a signature over `manifest` of a key in the store's
 * trust folder. */
int artifact_check_signature(int store, const struct buf *manifest, const struct buf *sig,
	char ret_signer[KEY_ID_SIZE], const struct findings *to);
/* The text of a manifest.sig. */
int artifact_make_signature(const struct key *k, const struct buf *manifest, struct buf *ret);

#endif
