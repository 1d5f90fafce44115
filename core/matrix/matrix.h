/* The isolated runner: the contract's test matrix (device contract 11) against a backend, with the models
 * of a store. It talks to the device as the engine does, through the checked caller, with the fault
 * layer between them: where a case needs a device that fails it plants the fault itself, and after
 * each case the watch says whether a rule of use was broken and whether every handle came back.
 *
 * The output is TAP 13, one line a case: "ok 7 - csr: total length overflow: OutOfRange, nothing
 * submitted". The whole device is the runner's: no daemon may use it meanwhile. */
#ifndef NPUFS_CORE_MATRIX_MATRIX_H
#define NPUFS_CORE_MATRIX_MATRIX_H

#include <stdio.h>

#include "core/base/fault.h"
#include "core/device.h"
#include "core/device_layer.h"

#define MATRIX_CYCLES 100

/* A fault that the matrix must find, for tests of the matrix itself. It is in force in the cases whose
 * "group: name" begins with `scope`, from their first step, counted anew in each; never while a case
 * is prepared or cleared away. */
#define MATRIX_LOSES_AUDIT "audit" /* as spec: refusals leave no trace in the audit trail */

struct matrix_plant {
	const char *name;
	enum layer_side side;
	const char *spec, *scope;  /* scope "": all */
	const char *const *caught; /* the cases that must fail and no others, NULL-ended */
	bool llm;                  /* it needs an LLM; else a tensor artifact will do */
};

struct matrix_config {
	const struct device_ops *ops; /* the backend itself, without the layer */
	struct device_params device;
	const char *store;
	const char *model;               /* NULL: every one of the store */
	const struct fault_plan *faults; /* on the device's side, all the time; NULL: none */
	const struct matrix_plant *plant;
	const char *only; /* groups whose name begins so; NULL: all */
	unsigned cycles;  /* of the life cycle; 0: MATRIX_CYCLES */
	/* The version with which evidence is recorded in the store for each model none of whose cases
	 * failed, with no faults and all groups; NULL: none is. */
	const char *evidence;
};

/* How many cases failed; or a negative errno and `f` when there was nothing to run. */
int matrix_run(const struct matrix_config *c, FILE *out, struct fault *f);

#endif
