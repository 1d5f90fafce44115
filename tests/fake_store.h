/* A store in a folder of its own under /tmp, made and signed by the same functions as a real one. */
#ifndef NPUFS_TESTS_FAKE_STORE_H
#define NPUFS_TESTS_FAKE_STORE_H

#include <stddef.h>

struct fake_file {
	const char *path; /* "golden/in.bin" */
	const void *bytes;
	size_t len;
};

/* An empty store; fills in the path. The test fails when it cannot be made. */
void fake_store_new(char ret[64]);
/* Sign and add an artifact: a template of a manifest, without "files", and files beside
 * calbin/program.bin. */
void fake_store_add(const char *store, const char *alias, const char *template,
	const struct fake_file *files, size_t n_files);
void fake_store_remove(const char *store);

/* The LLM of fake_device.h, and a tensor artifact for its program "double": float32[2] to
 * float32[2]. */
extern const char fake_llm_template[];
extern const char fake_tensor_template[];

#endif
