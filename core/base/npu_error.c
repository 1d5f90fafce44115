/* Where device contract 9 names two reaches of damage ("job/generation"), the wider one stands here:
 * the caution may only shrink on the vendor's evidence. DeviceBusy is EBUSY, not EAGAIN: EAGAIN
 * from a result means "not finished yet" to a reader that does not wait; it would ask for ever. */
#include "core/base/npu_error.h"

#include <assert.h>
#include <errno.h>

#include "core/base/mem.h"

#define OPERATOR "tell the operator; "

static const struct npu_error_row rows[] = {
	[NPU_SUCCESS] = { "Success", NPU_RETRY_NO, NPU_TAINTS_NOTHING, NPU_REACT_NONE, 0,
		"no error", "nothing to do" },
	[NPU_MEMORY_ALLOCATION] = { "MemoryAllocation", NPU_RETRY_CONDITIONAL,
		NPU_TAINTS_GENERATION, NPU_REACT_LOWER, -ENOMEM, "the device is out of memory",
		"send fewer or shorter requests at once; if it lasts, unload a model" },
	[NPU_MEMORY_ALREADY_REGISTERED] = { "MemoryAlreadyRegistered", NPU_RETRY_NO,
		NPU_TAINTS_GENERATION, NPU_REACT_RELOAD, -EIO,
		"memory was registered with the device twice",
		OPERATOR "the model must be drained and loaded again" },
	[NPU_ASSERT] = { "Assert", NPU_RETRY_NO, NPU_TAINTS_UNKNOWN, NPU_REACT_STOP, -EIO,
		"the device runtime found itself in a state it holds impossible",
		OPERATOR "no more work is sent; keep the logs and the audit trail" },
	[NPU_INVALID_VALUE] = { "InvalidValue", NPU_RETRY_NO, NPU_TAINTS_JOB, NPU_REACT_FAIL_JOB,
		-EINVAL, "the device refused a value of this request", "change the request" },
	[NPU_INVALID_CONFIGURATION] = { "InvalidConfiguration", NPU_RETRY_NO, NPU_TAINTS_GENERATION,
		NPU_REACT_ROLL_BACK, -EIO, "the device refused the model's configuration",
		OPERATOR "the previous artifact of this model should be put back" },
	[NPU_NO_DEVICE] = { "NoDevice", NPU_RETRY_CONDITIONAL, NPU_TAINTS_DEVICE, NPU_REACT_WAIT,
		-ENODEV, "there is no device",
		"wait until the device is back, or have the daemon restarted" },
	[NPU_ALREADY_CONFIGURED] = { "AlreadyConfigured", NPU_RETRY_NO, NPU_TAINTS_GENERATION,
		NPU_REACT_RELOAD, -EBUSY, "the device still holds another configuration",
		OPERATOR "unload the other model before this one is loaded" },
	[NPU_INCOMPATIBLE_DRIVER] = { "IncompatibleDriver", NPU_RETRY_NO, NPU_TAINTS_INSTANCE,
		NPU_REACT_STOP, -EOPNOTSUPP, "the device driver does not fit the runtime",
		OPERATOR "the driver must be upgraded" },
	[NPU_REQUIRE_NEWER_RT] = { "RequireNewerRT", NPU_RETRY_NO, NPU_TAINTS_INSTANCE,
		NPU_REACT_STOP, -EOPNOTSUPP, "the model needs a newer device runtime",
		OPERATOR "the runtime must be upgraded" },
	[NPU_FILE_NOT_FOUND] = { "FileNotFound", NPU_RETRY_NO, NPU_TAINTS_ARTIFACT,
		NPU_REACT_ROLL_BACK, -ENOENT, "a file of the model is missing",
		OPERATOR "the artifact must be repaired" },
	[NPU_BROKEN_FILE] = { "BrokenFile", NPU_RETRY_NO, NPU_TAINTS_ARTIFACT, NPU_REACT_ROLL_BACK,
		-EBADMSG, "a file of the model is damaged",
		OPERATOR "verify the artifact's hashes and install it again" },
	[NPU_INVALID_ELF] = { "InvalidELF", NPU_RETRY_NO, NPU_TAINTS_ARTIFACT, NPU_REACT_ROLL_BACK,
		-ENOEXEC, "a program of the model is not one this device runs",
		OPERATOR "check the compiler's version against the compatibility matrix" },
	[NPU_TIMEOUT] = { "Timeout", NPU_RETRY_CONDITIONAL, NPU_TAINTS_GENERATION, NPU_REACT_RELOAD,
		-ETIMEDOUT, "the device did not answer in time",
		"look at health; send the request again once it says ready" },
	[NPU_OUT_OF_RANGE] = { "OutOfRange", NPU_RETRY_NO, NPU_TAINTS_JOB, NPU_REACT_FAIL_JOB,
		-ERANGE, "the device found a length or an index of this request out of range",
		"shorten the request" },
	[NPU_NOT_EXPECTED] = { "NotExpected", NPU_RETRY_NO, NPU_TAINTS_UNKNOWN, NPU_REACT_RELOAD,
		-EIO, "the device did something unexpected",
		OPERATOR "the model is drained to be safe" },
	[NPU_MISS_CONFIGURATION] = { "MissConfiguration", NPU_RETRY_NO, NPU_TAINTS_GENERATION,
		NPU_REACT_RELOAD, -EIO, "the device is not configured for this model",
		OPERATOR "the model must be configured and warmed up again" },
	[NPU_DEVICE_BUSY] = { "DeviceBusy", NPU_RETRY_BOUNDED, NPU_TAINTS_JOB, NPU_REACT_RETRY,
		-EBUSY, "the device was busy at every try",
		"send the request again a little later" },
	[NPU_DEVICE_UNAVAILABLE] = { "DeviceUnavailable", NPU_RETRY_CONDITIONAL, NPU_TAINTS_DEVICE,
		NPU_REACT_WAIT, -ENXIO, "the device is not available",
		"look at health; send the request again once it says ready" },
	[NPU_INVALID_CALBIN] = { "InvalidCalbin", NPU_RETRY_NO, NPU_TAINTS_ARTIFACT,
		NPU_REACT_ROLL_BACK, -EBADMSG, "the model's calbin is not valid",
		OPERATOR "the previous artifact of this model should be put back" },
	[NPU_UNKNOWN] = { "Unknown", NPU_RETRY_NO, NPU_TAINTS_UNKNOWN, NPU_REACT_RELOAD, -EIO,
		"the device failed for a reason it does not know",
		OPERATOR "the model is drained to be safe; ask the vendor" },
	[NPU_INVALID_DATA_TYPE] = { "InvalidDataType", NPU_RETRY_NO, NPU_TAINTS_ARTIFACT,
		NPU_REACT_ROLL_BACK, -EINVAL, "the device refused a tensor's element type",
		"compare the request with the model's manifest" },
	[NPU_INVALID_DATA_SHAPE] = { "InvalidDataShape", NPU_RETRY_NO, NPU_TAINTS_ARTIFACT,
		NPU_REACT_ROLL_BACK, -EINVAL, "the device refused a tensor's shape",
		"compare the request with the model's manifest" },
	[NPU_INVALID_LIB_DEP] = { "InvalidLibDep", NPU_RETRY_NO, NPU_TAINTS_INSTANCE,
		NPU_REACT_STOP, -ELIBACC,
		"a library that the device runtime or the model needs is missing",
		OPERATOR "the dependencies must be repaired" },
	[NPU_DEVICE_MAP_BROKEN] = { "DeviceMapBroken", NPU_RETRY_NO, NPU_TAINTS_DEVICE,
		NPU_REACT_STOP, -EIO, "the device's memory map is broken",
		OPERATOR "the device must be reset or the daemon restarted" },
	[NPU_FAILED_SOFT_RESET] = { "FailedSoftReset", NPU_RETRY_NO, NPU_TAINTS_DEVICE,
		NPU_REACT_STOP, -EIO, "the device could not be reset",
		OPERATOR "the daemon, or the device itself, must be restarted" },
	[NPU_FAILED_CONNECT_SERVER] = { "FailedConnectServer", NPU_RETRY_CONDITIONAL,
		NPU_TAINTS_INSTANCE, NPU_REACT_WAIT, -ECONNREFUSED,
		"the device's service or emulator cannot be reached",
		OPERATOR "the service must be started" },
	[NPU_DEVICE_UNSUPPORT] = { "DeviceUnsupport", NPU_RETRY_NO, NPU_TAINTS_FEATURE,
		NPU_REACT_FAIL_JOB, -EOPNOTSUPP, "the device does not support this",
		"do without this feature" },
	[NPU_DEVICE_CRASH] = { "DeviceCrash", NPU_RETRY_NO, NPU_TAINTS_DEVICE, NPU_REACT_RELOAD,
		-EIO, "a compute unit of the device crashed",
		"look at health; send the request again once it says ready" },
	[NPU_WRONG_DIRECTION] = { "WrongDirection", NPU_RETRY_NO, NPU_TAINTS_JOB,
		NPU_REACT_FAIL_JOB, -EIO, "a copy between host and device went the wrong way",
		OPERATOR "this is a defect of the daemon" },
};

static_assert(ARRAY_SIZE(rows) == NPU_ERROR_COUNT, "one row for each code");

const struct npu_error_row *npu_error_row(enum npu_error code)
{
	unsigned i = (unsigned)code;

	return &rows[i < NPU_ERROR_COUNT ? i : NPU_UNKNOWN];
}

bool npu_error_reaches_further(enum npu_error code)
{
	return npu_error_row(code)->taints > NPU_TAINTS_FEATURE;
}

const char *npu_reaction_name(enum npu_reaction r)
{
	static const char *const names[NPU_REACTION_COUNT] = {
		[NPU_REACT_NONE] = "none",
		[NPU_REACT_RETRY] = "retry",
		[NPU_REACT_FAIL_JOB] = "fail_job",
		[NPU_REACT_RELOAD] = "reload",
		[NPU_REACT_LOWER] = "lower",
		[NPU_REACT_ROLL_BACK] = "roll_back",
		[NPU_REACT_WAIT] = "wait",
		[NPU_REACT_STOP] = "stop",
	};

	return names[r];
}
