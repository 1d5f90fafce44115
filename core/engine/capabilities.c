#include "core/engine/capabilities.h"

#include <stddef.h>

#include "core/base/mem.h"
#include "core/base/npu_error.h"

/* Levels: C0 proven, C1 present but unproven, C3 planned for several boards, C4 privileged or
 * absent. */
/* What shows that it works as it must on this very device. */
enum proof {
	UNPROVEN,
	BY_MATRIX,   /* npufs-admin matrix passed for this device and artifact */
	BY_GOLDEN,   /* that, or the golden runs of this start: they use it */
	BY_GOLDEN_KV /* the same of a model with KV: those of another do not use it */
};

struct capability {
	const char *what, *level;
	enum proof proof;
	const char *policy;
};

static const struct capability calls[] = {
	{ "CreateVDevice", "C0", BY_GOLDEN, "at start; one device" },
	{ "Status", "C0", BY_GOLDEN,
		"at start and after configure; never in place of a golden run" },
	{ "GetDeviceInfo", "C1", BY_GOLDEN, "versions only, sanitised; never to count boards" },
	{ "CreateCalbin", "C0", BY_GOLDEN, "after signature and digests were verified" },
	{ "GetAllModels", "C0", BY_GOLDEN, "borrowed; count must be the manifest's" },
	{ "GetModelByName", "C0", BY_GOLDEN, "exact names of the manifest" },
	{ "GetModelByType", "C1", UNPROVEN, "never used: its metadata is known to be wrong" },
	{ "GetLLMInfo", "C0", BY_GOLDEN_KV, "copied at load; must agree with the manifest" },
	{ "Version", "C0", BY_GOLDEN, "must be the manifest's" },
	{ "GetGoldenInputByModelName", "C1", BY_GOLDEN,
		"empty is no statement; the manifest decides" },
	{ "GetGoldenOutputByModelName", "C1", BY_GOLDEN,
		"empty is no statement; the manifest decides" },
	{ "GetModelWorloadByName", "C1", UNPROVEN, "never used: its unit is unknown" },
	{ "GetCalbinBrief, GetGlobalMemInfo", "C1", UNPROVEN,
		"never used: paths and addresses are nobody's to see" },
	{ "GetPairedElf, GetStackLoc, Report", "C1", UNPROVEN,
		"never used: what is inside an artifact is nobody's to see" },
	{ "configure", "C0", BY_GOLDEN, "one generation at a time; dumpIni off" },
	{ "createInputBuf", "C0", BY_GOLDEN, "one a program, checked" },
	{ "createOutputBuf", "C0", BY_GOLDEN, "one a program, checked; never moved" },
	{ "SliceTensorByName", "C0", BY_GOLDEN, "bounds and alignment checked first" },
	{ "MapBuf, SliceTensor, UndoSlice", "C1", UNPROVEN,
		"never used: not to be mixed with the slices by name" },
	{ "ResetAllTensors", "C0", BY_GOLDEN, "after every inference" },
	{ "ResetTensorByName", "C1", UNPROVEN, "never used: all are reset at once" },
	{ "SetCsrByName", "C0", BY_GOLDEN_KV, "both bounds checked first; its code decides" },
	{ "GetCsrValueByName", "C1", BY_MATRIX, "never used: 0 is a value and an error" },
	{ "infer", "C0", BY_GOLDEN, "one in flight; two only where proven here" },
	{ "infer_with_fixed_task_type", "C1", BY_MATRIX,
		"with evidence for this device and artifact only" },
	{ "SubmitJob", "C1", BY_MATRIX,
		"never used: it tells nothing; in the matrix's compatibility run only" },
	{ "EnableParallelMode", "C1", BY_MATRIX,
		"with evidence for this device and artifact only" },
	{ "Wait", "C0", BY_GOLDEN, "on the device's thread only; it has no time-out" },
	{ "GetStatus", "C0", BY_GOLDEN, "after Wait: DONE_CCU_EXCEPTION is never delivered" },
	{ "GetWaitTime and the other times", "C1", UNPROVEN, "not used: uncalibrated" },
	{ "EnableTraceDevice", "C1", UNPROVEN, "not offered" },
	{ "ReadMem, WriteMem", "C4", UNPROVEN,
		"software devices, with raw_access, by root, audited; CalRT's: form unknown, not "
		"used" },
	{ "registers", "C4", UNPROVEN,
		"software devices, likewise; CalRT has no call that is known" },
	{ "ResetCCU", "C4", BY_MATRIX, "only when told in control/: audited, never automatic" },
	{ "ResetConfiguration", "C4", BY_MATRIX,
		"to unload a generation, with nothing in flight; or told in control/" },
	{ "Reset", "C4", BY_MATRIX, "only when root tells in control/: audited, never automatic" },
	{ "Shutdown", "C1", BY_MATRIX, "at the end, with nothing in flight" },
	{ "Release", "C1", UNPROVEN, "never used: Shutdown is the end" },
	{ "RelocateTensorAddress, AllocDevMem", "C4", UNPROVEN,
		"absent from the runtime: callables/ needs a software device" },
};

static const struct capability kv[] = {
	{ "clear", "C0", BY_MATRIX, "supported" },
	{ "remove tail", "C0", BY_MATRIX, "supported; used to roll back and to trim sessions" },
	{ "allocate, free", "C0", BY_GOLDEN_KV, "verified by existence and length" },
	{ "canAllocate, isExist, GetSeqLen", "C1", BY_GOLDEN_KV,
		"asked before and after what returns nothing" },
	{ "apply", "C1", BY_GOLDEN_KV, "only a bool: false rolls back" },
	{ "min/max position", "C1", BY_MATRIX, "not used" },
	{ "arbitrary remove", "C4", UNPROVEN, "refused" },
	{ "copy sequence, keep only", "C4", UNPROVEN, "refused" },
	{ "add/div positions (shift)", "C4", UNPROVEN, "refused" },
	{ "state save/load", "C4", UNPROVEN, "refused" },
};

static const struct capability unknowns[] = {
	{ "error to recovery", "unknown", UNPROVEN, "the table of errors, widest reach first" },
	{ "Wait: time-out, cancel, end of DMA", "unknown", UNPROVEN,
		"buffers stay untouched until it returns" },
	{ "status: atomicity", "unknown", UNPROVEN,
		"read once, after Wait; buffers are reused only then" },
	{ "Ping/Pong: depth, order, isolation", "unknown", UNPROVEN, "one in flight" },
	{ "why Apply fails, KV after a failure", "unknown", UNPROVEN,
		"committed length again, verified, or freed" },
	{ "reach of the three resets", "unknown", UNPROVEN, "none is automatic" },
	{ "trace and counters: schema, units, clocks", "unknown", UNPROVEN, "not offered" },
	{ "calls that only the vendor's PDF has", "unknown", UNPROVEN, "never called" },
};

static const char *here(enum proof p, const struct capabilities_seen *seen)
{
	if (seen->matrix && p != UNPROVEN)
		return "matrix";
	if (p == BY_GOLDEN_KV ? seen->golden == HEALTH_GOLDEN_KV : seen->golden && p == BY_GOLDEN)
		return "golden";
	return "no";
}

static void put_table(struct buf *out, const char *title, const struct capability *t, size_t n,
	const struct capabilities_seen *seen)
{
	buf_printf(out, "%s\n", title);
	for (size_t i = 0; i < n; i++)
		buf_printf(out, "  %-40s %-8s %-7s %s\n", t[i].what, t[i].level,
			here(t[i].proof, seen), t[i].policy);
}

static void put_errors(struct buf *out)
{
	buf_puts(out, "errors, and what the daemon does by itself:\n");
	for (int code = NPU_SUCCESS + 1; code < NPU_ERROR_COUNT; code++) {
		const struct npu_error_row *row = npu_error_row((enum npu_error)code);

		buf_printf(out, "  %2d %-24s %-10s %s\n", code, row->name,
			npu_reaction_name(row->reaction), row->message);
	}
}

void capabilities_render(const struct capabilities_seen *seen, struct buf *out)
{
	buf_puts(out,
		"levels: C0 proven, C1 present but unproven, C3 planned for several boards, "
		"C4 privileged or absent\n"
		"proven here: matrix, by npufs-admin matrix on this device with this model; "
		"golden, by "
		"the golden runs of this start; or no\n");
	put_table(out, "calls:", calls, ARRAY_SIZE(calls), seen);
	put_table(out, "kv:", kv, ARRAY_SIZE(kv), seen);
	put_errors(out);
	put_table(out, "unknown until the vendor says:", unknowns, ARRAY_SIZE(unknowns), seen);
}
