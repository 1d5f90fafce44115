/* Any bytes as a manifest and as a template. What is taken must hold to its own bounds. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/artifact/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok)
{
	if (!ok)
		abort();
}

static void check_pointers(const struct manifest *m)
{
	const struct file_spec *end = m->files + m->n_files;

	for (size_t i = 0; i < m->n_golden; i++) {
		const struct golden_spec *g = &m->golden[i];

		check(g->program >= m->programs && g->program < m->programs + m->n_programs);
		check(g->input >= m->files && g->input < end && g->output >= m->files &&
			g->output < end);
	}
	check(!m->tokenizer.file || (m->tokenizer.file >= m->files && m->tokenizer.file < end));
}

/* With a slash at each end every component stands between two. */
static void check_path(const char *path)
{
	char whole[MANIFEST_PATH_MAX + 3];

	check(strlen(path) <= MANIFEST_PATH_MAX);
	snprintf(whole, sizeof whole, "/%s/", path);
	check(!strstr(whole, "//") && !strstr(whole, "/./") && !strstr(whole, "/../"));
}

static void check_manifest(const struct manifest *m)
{
	check(m->description && m->calbin_version && m->example && m->n_programs >= 1);
	check((m->kind == MANIFEST_LLM) == (m->context_limit > 0));
	check((m->kind == MANIFEST_LLM) == (m->tokenizer.type != TOKENIZER_NONE));
	for (size_t i = 0; i < m->n_programs; i++)
		for (size_t t = 0; t < m->programs[i].n_inputs; t++)
			check(tensor_bytes(&m->programs[i].inputs[t]) > 0);
	for (size_t i = 0; i < m->n_files; i++) {
		const char *path = m->files[i].path;

		check_path(path);
		check(manifest_file(m, path) == &m->files[i]);
	}
	for (size_t i = 0; i < m->tokenizer.n_stop; i++)
		check(m->tokenizer.stop[i] >= 0 &&
			(uint32_t)m->tokenizer.stop[i] < m->tokenizer.vocab_size);
	check_pointers(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	for (int need_files = 0; need_files < 2; need_files++) {
		struct fault f = FAULT_NONE;
		struct manifest *m = NULL;
		int err = manifest_parse((const char *)data, size, need_files, &m, &f);

		check(err ? f.err == err && f.reason[0] && !m : m != NULL);
		if (m)
			check_manifest(m);
		manifest_free(m);
	}
	return 0;
}
