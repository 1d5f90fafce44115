/* Between the files that parse a manifest: manifest_parse.c (the whole, versions, tokenizer),
 * manifest_files.c, and manifest_programs.c (programs, golden runs). */
#ifndef NPUFS_CORE_ARTIFACT_MANIFEST_IMPL_H
#define NPUFS_CORE_ARTIFACT_MANIFEST_IMPL_H

#include "core/artifact/manifest.h"
#include "core/artifact/manifest_read.h"

struct parser {
	struct manifest *m;
	bool need_files;
	struct fault *f;
};

extern const struct spot manifest_root;

int manifest_no_memory(struct fault *f);
int manifest_copy_text(const char *text, char **ret, struct fault *f);
bool manifest_printable(const char *text); /* ASCII from '!' to '~' */

/* `list` is NULL in a template, where manifest_name_file makes at most `names` entries. */
int manifest_take_files(struct parser *p, const struct json_value *list, size_t names);
/* The entry of the file that `v` names. */
int manifest_name_file(struct parser *p, const struct spot *at, const struct json_value *v,
	const struct file_spec **ret);

int manifest_take_programs(struct parser *p, const struct json_value *list);
int manifest_take_golden(struct parser *p, const struct json_value *list);

#endif
