/* What a request for resident callables comes to: which tensors there are, which launches are made on
 * them, and what is the answer. It is made of a parsed request and the signatures of what it names,
 * and says all that can be wrong before anything is on the device. */
#ifndef NPUFS_CORE_ENGINE_LAUNCH_PLAN_H
#define NPUFS_CORE_ENGINE_LAUNCH_PLAN_H

#include "core/callable/image.h"
#include "core/callable/limits.h"
#include "core/job/request.h"

#define LAUNCH_TENSORS_MAX (REQUEST_MAX_INPUTS + REQUEST_MAX_OUTPUTS)
#define LAUNCH_BYTES_MAX   (256ull << 20) /* of all tensors of one request */

/* What a callable takes, copied from its image. */
struct launch_parameter {
	char name[CALLABLE_NAME_MAX + 1];
	uint8_t type, access; /* enum vm_type; enum vm_access, 0 of a scalar */
	uint32_t max;         /* of an int32 scalar: 0..max; 0: any */
};

struct launch_signature {
	uint32_t n_tensors, n_scalars;
	uint64_t steps;                 /* of the machine, in the worst case */
	struct launch_parameter rows[]; /* tensors first */
};

/* Of a validated image; NULL: no memory. free() it. */
struct launch_signature *launch_signature_new(const struct image *image);

struct launch_tensor {
	struct tensor_spec spec;
	const void *data; /* borrowed from the request; NULL: it begins as zeros */
	uint64_t bytes;
	bool written; /* by a launch */
};

struct launch_step {
	int32_t id;
	uint32_t n_tensors, n_scalars;
	uint32_t tensors[CALLABLE_TENSORS_MAX]; /* places in the plan's */
	uint32_t scalars[CALLABLE_SCALARS_MAX]; /* bits */
};

struct launch_plan {
	struct launch_tensor tensors[LAUNCH_TENSORS_MAX];
	size_t n_tensors;
	uint64_t bytes;                     /* of all tensors */
	size_t outputs[LAUNCH_TENSORS_MAX]; /* places in the tensors, in the order of the answer */
	size_t n_outputs;
	uint64_t machine_steps; /* of all launches once, in the worst case */
	size_t n_steps;
	struct launch_step steps[REQUEST_MAX_LAUNCHES];
};

/* The resident that a launch names, with a signature that lasts as long as the call. */
struct launch_lookup {
	int (*find)(void *context, const struct request_launch *l, int32_t *ret_id,
		const struct launch_signature **ret, struct fault *f);
	void *context;
};

/* Tensors that come from files may still be without their data; what only these tell is checked when
 * they are there. -EINVAL, -E2BIG, -ENOMEM, or what the lookup says; `f` names the field. free()
 * the plan; it borrows from the request. */
int launch_plan_new(const struct request *req, const struct launch_lookup *lookup,
	struct launch_plan **ret, struct fault *f);

#endif
