/* Two inferences at once, on two wholly independent sets of buffers, held against the same two one
 * after the other (device contract 6). */
#ifndef NPUFS_CORE_MATRIX_MATRIX_PARALLEL_H
#define NPUFS_CORE_MATRIX_MATRIX_PARALLEL_H

#include "core/matrix/matrix_impl.h"

/* One of the two tasks. */
struct parallel_task {
	enum matrix_work work;
	enum device_task engine;
	char hash[SHA256_HEX_SIZE]; /* of its first output */
	int32_t kv_length;          /* -1 for no LLM */
	enum device_run status;     /* after Wait */
};

struct parallel_seen {
	struct parallel_task together[2], alone[2];
	unsigned submits, waits, peak; /* of the run together; most in flight at once */
	enum npu_error code;           /* the first that failed */
	bool agrees;                   /* output, KV and status are those of the run alone */
	bool swapped_wait;             /* the second was waited for first */
};

/* Needs a generation and a backend with enable_parallel. The two alone are run by that engine. */
struct parallel_seen matrix_parallel_run(struct matrix *m, const enum matrix_work works[2],
	const enum device_task engines[2], enum device_task alone, bool swapped_wait);

/* The case that runs what evidence for two in flight needs. */
void matrix_evidence(struct matrix *m, int arg);

#endif
