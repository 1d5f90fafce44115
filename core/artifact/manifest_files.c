/* The listed files, and the names of files in other members. */
#include "core/artifact/manifest_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/mem.h"

struct file_members {
	const char *path, *sha256;
	uint64_t size;
};

static bool component_valid(const char *text, size_t len)
{
	return len > 0 && !(len == 1 && text[0] == '.') &&
		!(len == 2 && text[0] == '.' && text[1] == '.');
}

/* Names that are the folder's own are nobody else's. */
static bool path_valid(const char *path)
{
	unsigned depth = 0;

	if (strcmp(path, "manifest.json") == 0 || strcmp(path, "manifest.sig") == 0)
		return false;
	for (const char *c = path; *c; c++)
		if (*c < ' ' || *c > '~' || *c == '\\')
			return false;
	for (const char *end;; path = end + 1) {
		end = strchrnul(path, '/');
		if (!component_valid(path, (size_t)(end - path)) || ++depth > MANIFEST_PATH_DEPTH)
			return false;
		if (!*end)
			return true;
	}
}

#define PATH_FORM "a relative path of plain components in printable ASCII, not the manifest's own"

static bool digest_valid(const char *text)
{
	return strlen(text) == SHA256_HEX_SIZE - 1 &&
		strspn(text, "0123456789abcdef") == strlen(text);
}

static const struct member_row file_rows[] = {
	{ .name = "path",
		.kind = MEMBER_TEXT,
		.offset = offsetof(struct file_members, path),
		.low = 1,
		.high = MANIFEST_PATH_MAX,
		.valid = path_valid,
		.form = PATH_FORM },
	{ .name = "size",
		.kind = MEMBER_SIZE,
		.offset = offsetof(struct file_members, size),
		.high = MANIFEST_MAX_FILE_BYTES },
	{ .name = "sha256",
		.kind = MEMBER_TEXT,
		.offset = offsetof(struct file_members, sha256),
		.high = SHA256_HEX_SIZE - 1,
		.valid = digest_valid,
		.form = "64 lower-case hex digits" },
};

static int take_file(struct parser *p, const struct spot *at, const struct json_value *v)
{
	struct manifest *m = p->m;
	struct file_spec *file = &m->files[m->n_files];
	struct file_members d;
	int err = manifest_read_object(at, v, file_rows, ARRAY_SIZE(file_rows), &d, p->f);

	if (err)
		return err;
	if (manifest_file(m, d.path))
		return manifest_refuse(at, v, p->f, "list each file once",
			"has the path of an earlier one");
	err = manifest_copy_text(d.path, &file->path, p->f);
	if (err)
		return err;
	file->size = d.size;
	strcpy(file->sha256, d.sha256);
	m->n_files++;
	return 0;
}

int manifest_take_files(struct parser *p, const struct json_value *list, size_t names)
{
	const struct spot at = { &manifest_root, "files", 0 };
	int err = 0;

	if (p->need_files != (list != NULL))
		return manifest_refuse(&at, list, p->f,
			p->need_files ? "make the manifest with npufs-admin artifact import"
				      : "remove it: the tool lists the files itself",
			p->need_files ? "is missing" : "a template has no such member");
	p->m->files = calloc((list ? json_count(list) : names) + 1, sizeof *p->m->files);
	if (!p->m->files)
		return manifest_no_memory(p->f);
	for (const struct json_value *v = list ? json_first(list) : NULL; !err && v;
		v = json_next(v)) {
		const struct spot item = { &at, NULL, p->m->n_files };

		err = take_file(p, &item, v);
	}
	return err;
}

int manifest_name_file(struct parser *p, const struct spot *at, const struct json_value *v,
	const struct file_spec **ret)
{
	const char *path = json_string(v);
	struct manifest *m = p->m;
	int err;

	*ret = manifest_file(m, path);
	if (*ret)
		return 0;
	if (p->need_files)
		return manifest_refuse(at, v, p->f,
			"put the file into the artifact, then import it again",
			"names a file that the manifest does not list");
	if (!path_valid(path))
		return manifest_refuse(at, v, p->f, "write it in the form that the reason names",
			"must be " PATH_FORM);
	err = manifest_copy_text(path, &m->files[m->n_files].path, p->f);
	if (!err)
		*ret = &m->files[m->n_files++];
	return err;
}
