#include "core/capabilities.h"

#include <stddef.h>

#include "core/mem.h"
#include "core/npu_error.h"

/* Levels: C0 proven, C1 present but unproven, C3 planned for several boards, C4 privileged or
 * absent. */
struct capability {
	const char *what, *level, *policy;
};

static const struct capability calls[] = {
	{ "CreateVDevice", "C0", "at start; one device" },
	{ "Status", "C0", "at start and after configure; never in place of a golden run" },
	{ "GetDeviceInfo", "C1", "versions only, sanitised; never to count boards" },
	{ "CreateCalbin", "C0", "after signature and digests were verified" },
	{ "GetAllModels", "C0", "borrowed; count must be the manifest's" },
	{ "GetModelByName", "C0", "exact names of the manifest" },
	{ "GetModelByType", "C1", "never used: its metadata is known to be wrong" },
	{ "GetLLMInfo", "C0", "copied at load; must agree with the manifest" },
	{ "Version", "C0", "must be the manifest's" },
	{ "GetGoldenInputByModelName", "C1", "empty is no statement; the manifest decides" },
	{ "GetGoldenOutputByModelName", "C1", "empty is no statement; the manifest decides" },
	{ "GetModelWorloadByName", "C1", "never used: its unit is unknown" },
	{ "configure", "C0", "one generation at a time; dumpIni off" },
	{ "createInputBuf", "C0", "one a program, checked" },
	{ "createOutputBuf", "C0", "one a program, checked; never moved" },
	{ "SliceTensorByName", "C0", "bounds and alignment checked first" },
	{ "MapBuf, SliceTensor, UndoSlice", "C1",
		"never used: not to be mixed with the slices by name" },
	{ "ResetAllTensors", "C0", "after every inference" },
	{ "SetCsrByName", "C0", "both bounds checked first; its code decides" },
	{ "GetCsrValueByName", "C1", "never used: 0 is a value and an error" },
	{ "infer", "C0", "one in flight; two only where proven here" },
	{ "infer_with_fixed_task_type", "C1", "with evidence for this device and artifact only" },
	{ "SubmitJob", "C1",
		"never used: it tells nothing; in the matrix's compatibility run only" },
	{ "EnableParallelMode", "C1", "with evidence for this device and artifact only" },
	{ "Wait", "C0", "on the device's thread only; it has no time-out" },
	{ "GetStatus", "C0", "after Wait: DONE_CCU_EXCEPTION is never delivered" },
	{ "GetWaitTime and the other times", "C1", "not used: uncalibrated" },
	{ "EnableTraceDevice", "C1", "not offered" },
	{ "ReadMem, WriteMem", "C4", "not offered" },
	{ "ResetCCU", "C4", "not used" },
	{ "ResetConfiguration", "C4", "only to unload a generation, with nothing in flight" },
	{ "Reset", "C4", "not used" },
	{ "Shutdown", "C1", "at the end, with nothing in flight" },
	{ "RelocateTensorAddress, AllocDevMem", "C4", "absent from the runtime" },
};

static const struct capability kv[] = {
	{ "clear", "C0", "supported" },
	{ "remove tail", "C0", "supported; used to roll back and to trim sessions" },
	{ "allocate, free", "C0", "verified by existence and length" },
	{ "apply", "C1", "only a bool: false rolls back" },
	{ "min/max position", "C1", "not used" },
	{ "arbitrary remove", "C4", "refused" },
	{ "copy sequence, keep only", "C4", "refused" },
	{ "add/div positions (shift)", "C4", "refused" },
	{ "state save/load", "C4", "refused" },
};

static const struct capability unknowns[] = {
	{ "error to recovery", "unproven", "the table of errors, widest reach first" },
	{ "Wait: time-out, cancel, end of DMA", "unproven",
		"buffers stay untouched until it returns" },
	{ "status: atomicity", "unproven", "read once, after Wait; buffers are reused only then" },
	{ "Ping/Pong: depth, order, isolation", "unproven", "one in flight" },
	{ "why Apply fails, KV after a failure", "unproven",
		"committed length again, verified, or freed" },
	{ "reach of the three resets", "unproven", "none is automatic" },
	{ "trace and counters: schema, units, clocks", "unproven", "not offered" },
	{ "calls that only the vendor's PDF has", "unproven", "never called" },
};

static void put_table(struct buf *out, const char *title, const struct capability *t, size_t n)
{
	buf_printf(out, "%s\n", title);
	for (size_t i = 0; i < n; i++)
		buf_printf(out, "  %-40s %-9s %s\n", t[i].what, t[i].level, t[i].policy);
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

void capabilities_render(struct buf *out)
{
	buf_puts(out,
		"levels: C0 proven, C1 present but unproven, C3 planned for several boards, "
		"C4 privileged or absent\n");
	put_table(out, "calls:", calls, ARRAY_SIZE(calls));
	put_table(out, "kv:", kv, ARRAY_SIZE(kv));
	put_errors(out);
	put_table(out, "unknown until the vendor says:", unknowns, ARRAY_SIZE(unknowns));
}
