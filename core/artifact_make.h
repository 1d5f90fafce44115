/* Building an artifact's folder: begin, add files, write the manifest, end. For the importers. */
#ifndef NPUFS_CORE_ARTIFACT_MAKE_H
#define NPUFS_CORE_ARTIFACT_MAKE_H

#include "core/fault.h"

struct build {
	const char *dest;
	char path[4096]; /* of the folder under construction */
	int dir;
};

/* `dest` must not exist, and its last component must be an alias. Whatever begin gave, end must follow. */
int build_begin(const char *dest, struct build *b, struct fault *f);
int build_file(struct build *b, const char *path, const void *bytes, size_t len, struct fault *f);
/* From a template without files: writes manifest.json with every file that was added. */
int build_manifest(struct build *b, const char *template, size_t len, struct fault *f);
/* err 0: the folder gets its name; else it is removed. Returns err, or why the rename failed. */
int build_end(struct build *b, int err, struct fault *f);

#endif
