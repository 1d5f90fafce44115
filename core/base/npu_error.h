/* The device runtime's error codes and what each means for a job, for the daemon and for the user.
 * One table, one row a code (device contract 9; CalRT 0.7.6 manual, section 11). The
 * contamination column is our own caution, not the vendor's promise. */
#ifndef NPUFS_CORE_BASE_NPU_ERROR_H
#define NPUFS_CORE_BASE_NPU_ERROR_H

#include <stdbool.h>

enum npu_error {
	NPU_SUCCESS = 0,
	NPU_MEMORY_ALLOCATION,
	NPU_MEMORY_ALREADY_REGISTERED,
	NPU_ASSERT,
	NPU_INVALID_VALUE,
	NPU_INVALID_CONFIGURATION,
	NPU_NO_DEVICE,
	NPU_ALREADY_CONFIGURED,
	NPU_INCOMPATIBLE_DRIVER,
	NPU_REQUIRE_NEWER_RT,
	NPU_FILE_NOT_FOUND,
	NPU_BROKEN_FILE,
	NPU_INVALID_ELF,
	NPU_TIMEOUT,
	NPU_OUT_OF_RANGE,
	NPU_NOT_EXPECTED,
	NPU_MISS_CONFIGURATION,
	NPU_DEVICE_BUSY,
	NPU_DEVICE_UNAVAILABLE,
	NPU_INVALID_CALBIN,
	NPU_UNKNOWN,
	NPU_INVALID_DATA_TYPE,
	NPU_INVALID_DATA_SHAPE,
	NPU_INVALID_LIB_DEP,
	NPU_DEVICE_MAP_BROKEN,
	NPU_FAILED_SOFT_RESET,
	NPU_FAILED_CONNECT_SERVER,
	NPU_DEVICE_UNSUPPORT,
	NPU_DEVICE_CRASH,
	NPU_WRONG_DIRECTION,
	NPU_ERROR_COUNT
};

enum npu_retry { NPU_RETRY_NO, NPU_RETRY_CONDITIONAL, NPU_RETRY_BOUNDED };

/* How far the damage is taken to reach, smallest first. */
enum npu_contaminates {
	NPU_TAINTS_NOTHING,
	NPU_TAINTS_JOB,
	NPU_TAINTS_FEATURE,
	NPU_TAINTS_ARTIFACT,
	NPU_TAINTS_GENERATION,
	NPU_TAINTS_DEVICE,
	NPU_TAINTS_INSTANCE,
	NPU_TAINTS_UNKNOWN /* treated as the generation: drain */
};

/* What the daemon does about it by itself. Only what the contract lets be automatic is: no level of
 * reset is, beyond unloading a generation. */
enum npu_reaction {
	NPU_REACT_NONE,
	NPU_REACT_RETRY,     /* back off, try again, a bounded number of times; then as FAIL_JOB */
	NPU_REACT_FAIL_JOB,  /* nothing else notices */
	NPU_REACT_RELOAD,    /* drain the generation, configure and warm up again */
	NPU_REACT_LOWER,     /* that, with half as many sequences at once from then on */
	NPU_REACT_ROLL_BACK, /* drain; the artifact's last good version again, else out of use */
	NPU_REACT_WAIT,      /* drain; ask until the device is back; configure and warm up again */
	NPU_REACT_STOP,      /* nothing more is submitted: an operator is needed */
	NPU_REACTION_COUNT
};

struct npu_error_row {
	const char *name;
	enum npu_retry retry;
	enum npu_contaminates taints;
	enum npu_reaction reaction;
	int err;             /* negative errno a user sees */
	const char *message; /* for users: one line, no path, no address */
	const char *action;  /* what to do about it */
};

/* The row of a code; one outside 0..29 gives the row of NPU_UNKNOWN. */
const struct npu_error_row *npu_error_row(enum npu_error code);
/* Beyond the job that met it: its buffers are not used again, and all that is on the device ends. */
bool npu_error_reaches_further(enum npu_error code);
/* "retry", "wait", ...: for metrics and tests. */
const char *npu_reaction_name(enum npu_reaction r);

#endif
