/* An artifact's manifest: what the files are (size, SHA-256), what programs the runtime must
 * report, and how text becomes tokens. It is signed; this is its parsed, fully validated, immutable
 * form. Schema "npufs-manifest-1"; unknown members are refused (design 6, device contract 3). */
#ifndef NPUFS_CORE_ARTIFACT_MANIFEST_H
#define NPUFS_CORE_ARTIFACT_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/crypto.h"
#include "core/base/fault.h"
#include "core/tensor.h"

#define MANIFEST_SCHEMA           "npufs-manifest-1"
#define MANIFEST_MAX_BYTES        (1 << 20)
#define MANIFEST_MAX_FILES        1024
#define MANIFEST_MAX_PROGRAMS     64
#define MANIFEST_MAX_TENSORS      64 /* inputs, and outputs, of one program */
#define MANIFEST_MAX_CSRS         8  /* of one program */
#define MANIFEST_MAX_GOLDEN       64
#define MANIFEST_MAX_VERSIONS     64 /* of one kind */
#define MANIFEST_MAX_IDS          64 /* in prefix, in suffix, in stop */
#define MANIFEST_MAX_BATCH        1024
#define MANIFEST_MAX_CONTEXT      (1 << 20)
#define MANIFEST_MAX_VOCAB        (1 << 20)
#define MANIFEST_MAX_TEMPERATURE  2 /* as in requests */
#define MANIFEST_MAX_TOLERANCE    1000000
#define MANIFEST_DESCRIPTION_MAX  1000 /* bytes */
#define MANIFEST_VERSION_MAX      31   /* bytes */
#define MANIFEST_PATH_MAX         255
#define MANIFEST_PATH_DEPTH       16 /* components */
#define MANIFEST_MAX_FILE_BYTES   ((uint64_t)64 << 30)
#define MANIFEST_MAX_TENSOR_BYTES ((int64_t)1 << 30)
#define ALIAS_MAX                 64

enum manifest_kind { MANIFEST_LLM, MANIFEST_TENSOR };

struct file_spec {
	char *path; /* relative, of plain components: none "..", "." or empty; printable ASCII */
	uint64_t size;
	char sha256[SHA256_HEX_SIZE];
};

struct program_spec {
	char name[TENSOR_NAME_MAX + 1];
	struct tensor_spec *inputs, *outputs;
	size_t n_inputs, n_outputs;
	char (*csrs)[TENSOR_NAME_MAX + 1];
	size_t n_csrs;
};

/* One golden run: the bytes of all inputs in the program's order, and of all outputs. */
struct golden_spec {
	const struct program_spec *program;
	const struct file_spec *input, *output;
	uint32_t valid;   /* cur_seq_len[0] of the run; 0 for programs without CSRs */
	double tolerance; /* absolute, for floating point outputs; integers are compared exactly */
};

enum tokenizer_type { TOKENIZER_NONE, TOKENIZER_BYTES, TOKENIZER_LLAMA2C };

struct tokenizer_spec {
	enum tokenizer_type type;
	const struct file_spec *file; /* NULL for bytes */
	uint32_t vocab_size;
	int32_t *prefix, *suffix; /* put before and after a prompt */
	int32_t *stop;            /* tokens that end the text */
	size_t n_prefix, n_suffix, n_stop;
};

struct manifest {
	enum manifest_kind kind;
	char *description;
	char *calbin_version;
	char **runtimes; /* versions it is compatible with; of the next two, empty: any */
	char **drivers, **firmwares;
	size_t n_runtimes, n_drivers, n_firmwares;
	uint32_t batch;
	uint32_t context_limit; /* tokens, prompt and output together; 0 for tensor artifacts */
	struct program_spec *programs;
	size_t n_programs;
	struct golden_spec *golden;
	size_t n_golden;
	struct tokenizer_spec tokenizer;
	uint32_t default_max_new_tokens; /* 0: as far as the context goes */
	double default_temperature;
	char *example; /* JSON text of a request that works, pretty, with a final newline */
	struct file_spec *files;
	size_t n_files;
};

/* Parse and check. -EINVAL with field ("golden[0].input") and reason, which never names a file;
 * -EILSEQ; -ENOMEM. `need_files` false takes the template that `npufs-admin artifact import
 * package` starts from, which has no member "files" (golden[].input/output and tokenizer.file then
 * make entries of size 0 and no digest in `files`). */
int manifest_parse(const char *text, size_t len, bool need_files, struct manifest **ret,
	struct fault *f);
void manifest_free(struct manifest *m); /* NULL is fine */

/* NULL: there is none of that name. */
const struct program_spec *manifest_program(const struct manifest *m, const char *name);
const struct file_spec *manifest_file(const struct manifest *m, const char *path);

/* An alias: 1..ALIAS_MAX of [A-Za-z0-9._-], starting with a letter or digit. */
bool alias_valid(const char *alias);

#endif
