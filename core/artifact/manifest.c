#include "core/artifact/manifest.h"

#include <stdlib.h>
#include <string.h>

static void free_texts(char **texts, size_t n)
{
	for (size_t i = 0; texts && i < n; i++)
		free(texts[i]);
	free(texts);
}

static void free_programs(struct manifest *m)
{
	for (size_t i = 0; m->programs && i < m->n_programs; i++) {
		free(m->programs[i].inputs);
		free(m->programs[i].outputs);
		free(m->programs[i].csrs);
	}
	free(m->programs);
}

static void free_files(struct manifest *m)
{
	for (size_t i = 0; m->files && i < m->n_files; i++)
		free(m->files[i].path);
	free(m->files);
}

void manifest_free(struct manifest *m)
{
	if (!m)
		return;
	free(m->description);
	free(m->calbin_version);
	free_texts(m->runtimes, m->n_runtimes);
	free_texts(m->drivers, m->n_drivers);
	free_texts(m->firmwares, m->n_firmwares);
	free_programs(m);
	free(m->golden);
	free(m->tokenizer.prefix);
	free(m->tokenizer.suffix);
	free(m->tokenizer.stop);
	free(m->example);
	free_files(m);
	free(m);
}

const struct program_spec *manifest_program(const struct manifest *m, const char *name)
{
	for (size_t i = 0; i < m->n_programs; i++)
		if (strcmp(m->programs[i].name, name) == 0)
			return &m->programs[i];
	return NULL;
}

const struct file_spec *manifest_file(const struct manifest *m, const char *path)
{
	for (size_t i = 0; i < m->n_files; i++)
		if (strcmp(m->files[i].path, path) == 0)
			return &m->files[i];
	return NULL;
}

static bool alnum(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool alias_valid(const char *alias)
{
	size_t len = strnlen(alias, ALIAS_MAX + 1);

	if (len > ALIAS_MAX || !alnum(alias[0]))
		return false;
	for (size_t i = 0; i < len; i++)
		if (!alnum(alias[i]) && !strchr("._-", alias[i]))
			return false;
	return true;
}
