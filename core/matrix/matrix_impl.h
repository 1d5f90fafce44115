/* Between the files of the matrix: matrix.c runs, each other file is a group or part of one. */
#ifndef NPUFS_CORE_MATRIX_MATRIX_IMPL_H
#define NPUFS_CORE_MATRIX_MATRIX_IMPL_H

#include "core/engine/evidence.h"
#include "core/engine/generation.h"
#include "core/engine/sequence.h"
#include "core/matrix/matrix.h"

#define MATRIX_WORK_TEMPLATE "/tmp/npufs-matrix-XXXXXX"

/* What is there when a case begins. */
enum matrix_needs { NEEDS_NOTHING, NEEDS_DEVICE, NEEDS_GENERATION };
enum matrix_kind { FOR_ANY, FOR_LLM, FOR_TENSOR };

enum matrix_verdict { CASE_OPEN, CASE_OK, CASE_SKIPPED, CASE_FAILED };

struct matrix {
	const struct matrix_config *config;
	const struct device_ops *ops; /* the layer's table */
	FILE *out;
	unsigned number, failed;
	/* the model in hand */
	const char *alias;
	const struct manifest *manifest;
	struct artifact *artifact; /* NULL of a backend's own */
	/* of the case */
	struct device *device;
	struct generation *generation;
	uint64_t generations;
	enum matrix_verdict verdict;
	char text[256];
	uint64_t marks[CALL_COUNT];
	/* of the model: what was seen of two in flight, to be recorded when no case fails */
	struct evidence evidence;
	bool seen_parallel;
};

struct matrix_case {
	const char *name;
	enum matrix_kind kind;
	enum matrix_needs needs;
	void (*run)(struct matrix *m, int arg);
	int arg;
};

struct matrix_group {
	const char *name;
	const struct matrix_case *cases;
	size_t n;
};

extern const struct matrix_group matrix_life, matrix_calbin, matrix_tensor, matrix_csr,
	matrix_infer_group, matrix_engine, matrix_status, matrix_parallel, matrix_kv, matrix_reset,
	matrix_security;

/* One finding: the first that is wrong is the verdict, else the last one's text is what was seen. */
void matrix_judge(struct matrix *m, bool right, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void matrix_skip(struct matrix *m, const char *why);
void matrix_record(struct matrix *m);          /* the evidence, in the store */
const char *matrix_error(enum npu_error code); /* its name */

/* The case's own faults, on the device's side; NULL: none any more. Replaces earlier ones. */
void matrix_plant(const char *spec);

/* Device, and generation of the model in hand. The case's, or its preparation's; matrix_close() undoes
 * what there is and is called after each case anyhow. */
enum npu_error matrix_open_device(struct matrix *m);
enum npu_error matrix_open_generation(struct matrix *m);
enum npu_error matrix_close_generation(struct matrix *m);
void matrix_close(struct matrix *m);

/* How often a call was made since the last mark. */
void matrix_mark(struct matrix *m);
uint64_t matrix_calls(const struct matrix *m, enum device_call call);

/* --- running a program ------------------------------------------------------------------------ */

/* Two workloads that differ in every input, and for an LLM in length. */
enum matrix_work { WORK_P, WORK_Q };

void matrix_fill(const struct tensor_spec *t, uint32_t limit, enum matrix_work work, void *ret);
/* The first program (of an LLM: prefill on a sequence of its own) on a workload; the digest of its
 * first output, or "". */
struct infer_result matrix_infer(struct matrix *m, enum matrix_work work,
	char ret_hash[SHA256_HEX_SIZE]);
uint32_t matrix_work_length(const struct matrix *m, enum matrix_work work); /* tokens; 0 no LLM */

/* A slot of the first program with host memory for every tensor, bound and with its lengths set. */
struct matrix_set {
	struct slot *slot;
	const struct program_spec *spec;
	void *host[MANIFEST_MAX_TENSORS * 2]; /* inputs, then outputs */
	struct sequence sequence;
	bool open; /* the sequence is */
};

enum npu_error matrix_set_new(struct matrix *m, struct matrix_set *ret);
enum npu_error matrix_set_bind(struct matrix *m, struct matrix_set *s, enum matrix_work work);
void matrix_set_hash(const struct matrix_set *s, char ret[SHA256_HEX_SIZE]);
/* Nothing of it may be in flight. */
void matrix_set_free(struct matrix *m, struct matrix_set *s);

#endif
