/* A plan of faults for the layer over a backend (device_layer.h): rules CALL@N:EFFECT joined by '/',
 * such as "Wait@3:DeviceCrash/infer@*:DeviceBusy".
 *
 * CALL is the runtime's own name of a call. N counts the calls of that name from 1, on the side
 * where the plan is in force: "3" the third alone, "3-" from it on, "*" every one. EFFECT is the name
 * of a device error, or one of the words of plan_effect_words(). What a call cannot do is refused. */
#ifndef NPUFS_CORE_FAULT_PLAN_H
#define NPUFS_CORE_FAULT_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/fault.h"
#include "core/base/npu_error.h"

#define FAULT_PLAN_MAX_RULES 32
#define FAULT_PLAN_MAX_DELAY 60000 /* ms */
#define FAULT_PLAN_MAX_BYTES 4096

/* SliceTensorByName, ResetAllTensors and GetGolden stand for the inputs' and the outputs' call. */
enum plan_call {
	PLAN_CREATE_VDEVICE,
	PLAN_STATUS,
	PLAN_DEVICE_INFO,
	PLAN_RESET_CONFIGURATION,
	PLAN_RESET_CCU,
	PLAN_RESET,
	PLAN_PARALLEL,
	PLAN_SHUTDOWN,
	PLAN_CREATE_CALBIN,
	PLAN_DESTROY_CALBIN,
	PLAN_ALL_MODELS,
	PLAN_MODEL_BY_NAME,
	PLAN_LLM_INFO,
	PLAN_VERSION,
	PLAN_GOLDEN,
	PLAN_CONFIGURE,
	PLAN_CREATE_INPUT,
	PLAN_CREATE_OUTPUT,
	PLAN_DESTROY_INPUT,
	PLAN_DESTROY_OUTPUT,
	PLAN_SLICE,
	PLAN_RESET_TENSORS,
	PLAN_SET_CSR,
	PLAN_GET_CSR,
	PLAN_INFER,
	PLAN_SUBMIT,
	PLAN_WAIT,
	PLAN_RUN_STATUS,
	PLAN_CREATE_KV,
	PLAN_DESTROY_KV,
	PLAN_CAN_ALLOCATE,
	PLAN_ALLOCATE,
	PLAN_FREE,
	PLAN_REMOVE,
	PLAN_EXISTS,
	PLAN_APPLY,
	PLAN_SEQ_LEN,
	PLAN_CLEAR,
	PLAN_POS_MIN,
	PLAN_POS_MAX,
	PLAN_CALLS
};

enum plan_effect {
	PLAN_NOTHING,
	PLAN_ERROR,   /* the call is not made (Wait: it is) and gives the rule's code */
	PLAN_HANG,    /* until device_layer_release(), or for ever; then the call goes on */
	PLAN_DELAY,   /* the rule's ms; then the call goes on */
	PLAN_SILENT,  /* nothing is done, success is said */
	PLAN_ACCEPT,  /* the call is made, success is said whatever it gave */
	PLAN_NULL,    /* success, and a NULL handle */
	PLAN_LAST,    /* what is refused: the folder that was opened last is opened again */
	PLAN_LATE,    /* put off until after the next ResetConfiguration */
	PLAN_TWICE,   /* the call is made twice */
	PLAN_CORRUPT, /* one bit of what it gives is flipped; numbers stay finite */
	PLAN_NAN,     /* the first number that it gives is none */
	PLAN_SWAP,    /* its first output and that of another buffer change places */
	PLAN_CCU,     /* the status is DONE_CCU_EXCEPTION, */
	PLAN_PENDING, /* PENDING, */
	PLAN_RUNNING, /* RUNNING, */
	PLAN_DONE,    /* DONE, whatever it is */
	PLAN_TRUE,    /* the answer is yes, nothing is done */
	PLAN_FALSE,   /* the answer is no, nothing is done */
	PLAN_GROW,    /* a length or number that is larger by one */
	PLAN_OTHER,   /* another version */
	PLAN_EFFECTS
};

struct plan_rule {
	enum plan_call call;
	uint64_t from, to; /* numbers of calls, both included; UINT64_MAX: no end */
	enum plan_effect effect;
	enum npu_error code; /* of PLAN_ERROR */
	unsigned ms;         /* of PLAN_DELAY */
};

struct fault_plan {
	struct plan_rule rules[FAULT_PLAN_MAX_RULES];
	size_t n;
};

/* -EINVAL with the place, the nearest right word and what the call could do; -E2BIG too many rules or
 * too long. "" is a plan of nothing. The plan is set only on success. */
int fault_plan_parse(const char *spec, struct fault_plan *ret, struct fault *f);

const char *plan_call_name(enum plan_call call);
/* The words that are no errors, NULL-ended; "delay=MS" stands for each number. */
const char *const *plan_effect_words(void);

#endif
