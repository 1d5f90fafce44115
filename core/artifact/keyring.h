/* Keys in files: the public ones of a folder of the store (who may sign, who may approve), and the
 * private one of who signs. */
#ifndef NPUFS_CORE_ARTIFACT_KEYRING_H
#define NPUFS_CORE_ARTIFACT_KEYRING_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/base/crypto.h"
#include "core/base/fault.h"

#define KEYRING_MAX   256         /* keys in a folder */
#define PEM_MAX_BYTES (16u << 10) /* of a key file */

struct keyring {
	struct key *keys[KEYRING_MAX];
	size_t n;
};

/* What was wrong with which file. */
struct keyring_trouble {
	char name[NAME_MAX + 1]; /* "": the folder itself */
	bool no_key;             /* a sound file that holds something else */
};

/* Every NAME.pem of the folder in the open folder `store`, by the rules of files.h; other names, and
 * those with a dot first, are not looked at. One unsound key file and none is loaded: such a folder is
 * not to be trusted. -E2BIG: more than KEYRING_MAX. */
int keyring_load(int store, const char *folder, struct keyring *ret, struct keyring_trouble *t);
const struct key *keyring_find(const struct keyring *r, const char *id); /* or NULL */
void keyring_done(struct keyring *r);

/* From a file at a path that the administrator gave. A private one must be closed to others. */
int keyring_read_public(const char *path, struct key **ret, struct fault *f);
int keyring_read_private(const char *path, struct key **ret, struct fault *f);

#endif
