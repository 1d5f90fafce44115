/* The checked inference: the one way to the device (device contract 5). A `program` is one of the
 * configured calbin's programs together with a slot and host memory for each of its tensors. */
#ifndef NPUFS_CORE_ENGINE_INFER_H
#define NPUFS_CORE_ENGINE_INFER_H

#include "core/artifact/manifest.h"
#include "core/device.h"

struct program; /* dies with its generation */

/* `spec` is borrowed and must outlive the program; it must already have been validated against the
 * device. */
enum npu_error program_new(struct device *d, const struct program_spec *spec, struct program **ret);
void program_free(struct program *p); /* NULL is fine */

const struct program_spec *program_spec_of(const struct program *p);
/* Host memory of one tensor, tensor_bytes() long. Inputs are written before infer_checked(),
 * outputs read after it succeeded. */
void *program_input(struct program *p, size_t i);
const void *program_output(const struct program *p, size_t i);

/* How far an inference's failure reached: whether the device has seen it decides about KV and
 * buffers. What is not finite may be the input's own doing, so it is told apart from an output that
 * the device should not have given. */
enum infer_stage {
	INFER_NOT_SUBMITTED,
	INFER_SUBMITTED,
	INFER_OUTPUT_REFUSED,
	INFER_NOT_FINITE,
	INFER_DONE
};

struct infer_result {
	enum infer_stage stage;
	enum npu_error code;
	const char *what; /* static text: which step failed */
};

/* One inference of those that are in flight together. */
struct infer_order {
	struct program *program;
	uint32_t past, cur;    /* both lengths; cur 0: none */
	const int32_t *apply;  /* the sequence whose KV grows by `cur` for it; NULL: none */
	enum device_task task; /* another for each, where there are two */
};

/* n <= DEVICE_ENGINES of them, with programs of their own: all steps up to the submit for one after
 * the other, then Wait for each, then the checks. Two need a device that takes two. What one fails at
 * changes nothing for the others, unless its error reaches beyond its job: then those behind it are
 * not submitted (NPU_DEVICE_BUSY), and what those before it gave is not to be trusted. */
void infer_checked_many(const struct infer_order *orders, size_t n, struct infer_result *ret);

/* The one alone: bind buffers, set both lengths (cur > 0) or none (cur == 0), submit, wait, status,
 * numeric checks. Blocks until the device is done; no lock may be held. Output is valid only at
 * INFER_DONE. */
struct infer_result infer_checked(struct program *p, uint32_t past, uint32_t cur);

#endif
