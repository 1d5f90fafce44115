/* Building an artifact's folder beside its place: begin, add files, write the manifest, end. It
 * gets its name at the end, so it is there whole or not at all. For the importers. */
#ifndef NPUFS_CORE_ARTIFACT_ARTIFACT_BUILD_H
#define NPUFS_CORE_ARTIFACT_ARTIFACT_BUILD_H

#include <stddef.h>

#include "core/base/fault.h"

struct artifact_build {
	char *path;       /* of the folder under construction, in `parent` */
	const char *name; /* of that folder, within path */
	const char *alias;
	int parent, dir;
};

/* `dest` must not exist; its last component must be an alias. After a success, end must follow. */
int artifact_build_begin(struct artifact_build *b, const char *dest, struct fault *f);
int artifact_build_file(struct artifact_build *b, const char *path, const void *bytes, size_t n,
	struct fault *f);
/* With what can be read from `from`. */
int artifact_build_copy(struct artifact_build *b, const char *path, int from, struct fault *f);
/* Write manifest.json: the template, which lists no files, and every file that was added. */
int artifact_build_manifest(struct artifact_build *b, const char *template, size_t len,
	struct fault *f);
/* err 0: give the folder its name; else remove it. Returns err, or why it could not get its name. */
int artifact_build_end(struct artifact_build *b, int err, struct fault *f);

#endif
