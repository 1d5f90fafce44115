/* Artifacts in a store: making, signing and verifying them (design 6, device contract 2).
 *
 *   STORE/models/ALIAS/  manifest.json  manifest.sig  calbin/...  tokenizer/...  golden/...
 *   STORE/trust/NAME.pem  public keys of those who may sign
 *
 * Verification trusts nothing it has not checked: trust folder, artifact folder, every folder below
 * it and every file must be owned by root or the daemon's user and not be writable by group or
 * others, must be a plain file or folder (never a link), and must be listed; the signature must be
 * a trusted key's over the manifest's bytes; every file must have the listed size and SHA-256.
 * Every trust/NAME.pem must be a sound key file. A signature is a line: "npufs-signature-1 KEYID
 * HEX". */
#ifndef NPUFS_CORE_ARTIFACT_ARTIFACT_H
#define NPUFS_CORE_ARTIFACT_ARTIFACT_H

#include "core/artifact/manifest.h"
#include "core/base/buf.h"
#include "core/base/crypto.h"
#include "core/base/fault.h"

#define APPROVERS_FOLDER "approvers" /* of a store: public keys of those who may approve */

#define ARTIFACT_MAX_READ_BYTES ((uint64_t)1 << 30) /* of a file that is read whole */

struct artifact {
	char alias[ALIAS_MAX + 1];
	char *dir; /* its absolute path then; never shown to users of the mount */
	int fd;    /* the folder that was verified */
	struct manifest *manifest;
	char sha256[SHA256_HEX_SIZE]; /* of the manifest's bytes: the artifact's identity */
	char signer[KEY_ID_SIZE];
};

/* Verify STORE/models/ALIAS. Each kind of damage has its own errno-and-reason in `f`:
 * -ENOENT missing file, -EBADMSG flipped byte or wrong signature, -EKEYREJECTED unknown key,
 * -EPERM ownership or modes, -EINVAL manifest, key file, or what is no plain file, -EFBIG truncated
 * or longer, -ELOOP links, -EEXIST unlisted files. f->device is the contract's code of the same
 * meaning (FileNotFound, BrokenFile, InvalidCalbin). Files are told by their number in the
 * manifest, never by name; f->field is "files[2]" for the third. */
int artifact_verify(const char *store, const char *alias, struct artifact **ret, struct fault *f);
/* The same for the administrator: `detail` gets the names, a line each, of the files at fault. */
int artifact_inspect(const char *store, const char *alias, struct artifact **ret, struct fault *f,
	struct buf *detail);
/* Are its files still those that were verified? */
int artifact_unchanged(const struct artifact *a, struct fault *f);
void artifact_free(struct artifact *a); /* NULL is fine */
/* The same artifact was verified in another folder: it is there from now on. */
void artifact_move(struct artifact *a, struct artifact *to);
/* The path of the folder that was verified, wherever it was moved to; of one that was removed the
 * path that it had. `ret` is room for one of them. */
#define ARTIFACT_FOLDER_SIZE 40
const char *artifact_folder(const struct artifact *a, char ret[ARTIFACT_FOLDER_SIZE]);
/* A digest of the names, sizes and times of what is in STORE/models/ALIAS: another one means that it
 * should be verified again. "" where it cannot be read. */
void artifact_stamp(const char *store, const char *alias, char ret_hex[SHA256_HEX_SIZE]);

/* Read one listed file whole, checking its digest again. The caller frees *ret. */
int artifact_read(const struct artifact *a, const struct file_spec *file, void **ret,
	size_t *ret_len, struct fault *f);

/* The aliases under STORE/models, sorted, NULL-ended; free with artifact_list_free. A store without
 * the folder is -ENOENT. */
int artifact_list(const char *store, char ***ret, struct fault *f);
void artifact_list_free(char **aliases);

/* --- for npufs-admin -------------------------------------------------------------------------- */

/* Make the folders of a store with their modes; an existing one is completed, never loosened. */
int store_init(const char *store, struct fault *f);
/* Put the public key of a PEM file into STORE/trust, as KEYID.pem; one that is there already stays.
 */
int store_trust(const char *store, const char *key_path, char ret_id[KEY_ID_SIZE], struct fault *f);
/* The same into STORE/approvers. */
int store_approver(const char *store, const char *key_path, char ret_id[KEY_ID_SIZE],
	struct fault *f);
/* Copy a package folder (artifact.json, calbin/, golden/, tokenizer/) to `dest` and write its
 * manifest.json with the size and SHA-256 of each file. `dest` must not exist; it appears whole or
 * not at all (made beside, then renamed). */
int artifact_import_package(const char *package, const char *dest, struct fault *f);
/* From llama2.c version-0 weights and tokenizer: makes the package, then as above. */
int artifact_import_llama2c(const char *weights, const char *tokenizer, const char *dest,
	struct fault *f);
/* Sign `dir`/manifest.json with a private PEM file, after checking that the files are as it says;
 * `detail` as in artifact_inspect. */
int artifact_sign(const char *dir, const char *key_path, struct fault *f, struct buf *detail);

#endif
