/* The accelerator behind one table of functions, and the one checked caller of it.
 *
 * `struct device_ops` mirrors the runtime's contract call by call (device contract 2, 4-8; names of
 * CalRT 0.7.6). A backend is one file `core/device_NAME.c` with one such table and one line in
 * device_registry.c. The comment at each field is the contract: what it gives, whether it may
 * block, whether it is optional. Handles belong to the backend and are opaque here.
 *
 * Only the device_*() functions below call a table. They check state and arguments, count every
 * call, and verify what a `void` call should have done. One thread (the engine's) uses a device;
 * only the counters and device_versions() may be read by others. */
#ifndef NPUFS_CORE_DEVICE_H
#define NPUFS_CORE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/fault.h"
#include "core/base/npu_error.h"
#include "core/callable/memory.h"
#include "core/tensor.h"

struct vdevice; /* VirtualDevice: owned */
struct calbin;  /* Calbin: owned */
struct model;   /* CalbinModel: borrowed, dies with its calbin */
struct inbuf;   /* CalrtInputBuf: owned, must not outlive its device */
struct outbuf;  /* CalrtOutputBuf: likewise */
struct kvman;   /* KV manager: likewise */

/* Which engine runs an inference (device contract 6). Auto is the runtime's own choice. */
enum device_task { DEVICE_AUTO = -1, DEVICE_PING = 0, DEVICE_PONG = 1 };
#define DEVICE_ENGINES 2

/* CalrtOutputBufStatus_e. Intermediate states may never be seen (device contract 5.4). */
enum device_run { RUN_DEFAULT, RUN_PENDING, RUN_RUNNING, RUN_DONE, RUN_DONE_CCU_EXCEPTION };

#define DEVICE_MAX_CSRS 8
#define CSR_CUR_LEN     "cur_seq_len[0]"
#define CSR_PAST_LEN    "past_kv_cur_seq_len[0]"

struct model_info {
	const char *name;
	const char
		*type; /* "prefill", "decode", "kv_update", "graph"; known to be wrong at times */
	const struct tensor_spec *inputs, *outputs;
	size_t n_inputs, n_outputs;
	const char *csrs[DEVICE_MAX_CSRS];
	size_t n_csrs;
};

struct llm_info {
	uint32_t max_batch_size; /* 0 when the calbin is not an LLM */
	uint32_t max_seq_len;
};

struct device_info { /* sanitised by the caller before anyone sees it */
	char runtime[32], driver[32], firmware[32], name[64];
};

struct device_params {
	unsigned threads;       /* arithmetic threads of a software device; at least 1 */
	unsigned step_delay_us; /* a software device waits so long before each result: for tests */
	unsigned kv_sequences;  /* how many KV sequences a software device holds */
	bool dump_ini;          /* configure(dumpIni): writes into the working folder */
};

struct kv_seq_info {
	int32_t seq_id;
	int32_t n_tokens;
};

struct device_ops {
	const char *name;
	const char *summary;      /* one line for `version` and the documents */
	bool measuring_only;      /* answers are not inference; `health` and `version` say so */
	bool faults_planted;      /* it fails where a test wants it; told in the same places */
	const char *own_manifest; /* JSON of a backend's built-in artifact; NULL: it loads others */

	/* --- VirtualDevice. NULL handle and an error, never a NULL with NPU_SUCCESS. */
	enum npu_error (*create_vdevice)(const struct device_params *p,
		struct vdevice **ret);               /* may block */
	enum npu_error (*status)(struct vdevice *d); /* quick */
	enum npu_error (*get_device_info)(struct vdevice *d, struct device_info *ret); /* quick */
	enum npu_error (*reset_configuration)(struct vdevice *d); /* may block; nothing in flight */
	/* The other two levels, privileged (device contract 7); they may block; nothing in flight.
	 * What they reach is not known, so what was configured is configured again afterwards.
	 * Optional. */
	enum npu_error (*reset_ccu)(struct vdevice *d);
	enum npu_error (*reset)(struct vdevice *d);
	/* ReadMem, WriteMem: the device's own memory, at addresses of its own; privileged (device
	 * contract 7, which gives no more of them than their names). They may block; nothing in
	 * flight. NPU_OUT_OF_RANGE unless all of it is there, and then nothing was done. Optional,
	 * both or none. */
	enum npu_error (*read_mem)(struct vdevice *d, uint64_t address, void *to, size_t size);
	enum npu_error (
		*write_mem)(struct vdevice *d, uint64_t address, const void *from, size_t size);
	/* Registers of 4 bytes, which the contract has no call for: likewise. NPU_INVALID_VALUE
	 * for an address that is no multiple of 4, or one that cannot be written. */
	enum npu_error (*read_reg)(struct vdevice *d, uint64_t address, uint32_t *ret);
	enum npu_error (*write_reg)(struct vdevice *d, uint64_t address, uint32_t value);
	/* EnableParallelMode: a void call, unproven (device contract 6). Optional: one engine. */
	void (*enable_parallel)(struct vdevice *d, bool on);
	void (*shutdown)(
		struct vdevice *d); /* releases it and frees the handle; nothing in flight */

	/* --- Calbin. `path` is a trusted, verified folder; NULL for own_manifest. May block. */
	enum npu_error (*create_calbin)(struct vdevice *d, const char *path, struct calbin **ret);
	void (*destroy_calbin)(struct calbin *c);
	size_t (*model_count)(struct calbin *c); /* GetAllModels()->size(); 0 when null */
	struct model *(*model_at)(struct calbin *c, size_t i);
	struct model *(
		*get_model_by_name)(struct calbin *c, const char *name); /* exact; NULL is normal */
	void (*get_llm_info)(struct calbin *c, struct llm_info *ret);
	const char *(*version)(struct calbin *c);
	/* Empty means none OR empty data: the manifest decides. Optional (NULL: always empty). */
	void (*get_golden_input)(struct calbin *c, const char *model, struct buf *ret);
	void (*get_golden_output)(struct calbin *c, const char *model, struct buf *ret);
	const struct model_info *(*model_info)(struct model *m); /* lives as long as the calbin */

	/* One generation at a time: AlreadyConfigured while another is. May block. */
	enum npu_error (*configure)(struct vdevice *d, struct calbin *c, bool dump_ini);

	/* --- buffers and CSRs */
	enum npu_error (*create_input_buf)(struct model *m, struct inbuf **ret);
	enum npu_error (*create_output_buf)(struct model *m, struct outbuf **ret);
	void (*destroy_input_buf)(struct inbuf *b);
	void (*destroy_output_buf)(struct outbuf *b);
	/* SliceTensorByName: bytes [offset, offset+size) of the tensor are `host` from now on,
	 * which must stay valid until the inference has been waited for; offset and size are
	 * multiples of DEVICE_SLICE_ALIGN. For inputs the bytes are read at submit, for outputs
	 * written before Wait returns. */
	enum npu_error (*slice_input)(struct inbuf *b, const char *tensor, const void *host,
		uint64_t offset, uint64_t size);
	enum npu_error (*slice_output)(struct outbuf *b, const char *tensor, void *host,
		uint64_t offset, uint64_t size);
	void (*reset_input)(struct inbuf *b); /* ResetAllTensors */
	void (*reset_output)(struct outbuf *b);
	enum npu_error (*set_csr)(struct model *m, const char *name, uint32_t value);
	uint32_t (*get_csr)(struct model *m,
		const char *name); /* 0 means error OR 0: read-back tests only */

	/* --- inference */
	enum npu_error (*infer)(struct vdevice *d, struct model *m, struct inbuf *in,
		struct outbuf *out, enum device_task task);
	/* A submit that tells nothing (SubmitJob, and the runtime's C interface); for the matrix's
	 * compatibility run only. Optional. */
	void (*submit_void)(struct vdevice *d, struct model *m, struct inbuf *in,
		struct outbuf *out, enum device_task task);
	enum npu_error (*wait)(struct outbuf *out);        /* blocks; no time-out, no cancel */
	enum device_run (*run_status)(struct outbuf *out); /* quick */

	/* --- KV manager. All NULL for a backend without KV. The void calls may fail silently. */
	enum npu_error (*create_kv)(struct vdevice *d, struct calbin *c, struct kvman **ret);
	void (*destroy_kv)(struct kvman *k);
	bool (*kv_can_allocate)(struct kvman *k, size_t n_sequences);
	void (*kv_allocate)(struct kvman *k, const struct kv_seq_info *seq);
	void (*kv_free)(struct kvman *k, int32_t seq_id);
	void (*kv_remove_tokens_at_end)(struct kvman *k, int32_t seq_id, size_t n);
	bool (*kv_exists)(struct kvman *k, int32_t seq_id);
	/* Make the sequence the one of the next inference, and of those that follow it on the same
	 * engine until that gets another, and its length n_tokens larger. */
	bool (*kv_apply)(struct kvman *k, const struct kv_seq_info *seq);
	int32_t (*kv_seq_len)(struct kvman *k, int32_t seq_id); /* -1 where it does not exist */
	void (*kv_clear)(struct kvman *k);
	/* First and last position of a sequence, -1 where there is none (C1). Optional. */
	int32_t (*kv_pos_min)(struct kvman *k, int32_t seq_id);
	int32_t (*kv_pos_max)(struct kvman *k, int32_t seq_id);

	/* --- memory and launch of resident callables (the rules of callables), which the SDK has no
	 * calls for. Both NULL for a device without. What `callable_context` gives is for the table's
	 * calls; it lives as long as the device and is used by one thread. NULL: no memory. */
	const struct callable_memory_ops *callables;
	void *(*callable_context)(struct vdevice *d);
};

#define DEVICE_SLICE_ALIGN 4

/* The backend of that name; NULL when there is none, or its shared object cannot be loaded here. Names
 * in order of registration; NULL past the end. */
const struct device_ops *device_backend(const char *name);
const char *device_backend_name(size_t i);
/* The same for a user's choice: `f`, which must be given, says what is wrong with it and what to do. */
int device_find(const char *name, const struct device_ops **ret, struct fault *f);

/* --- the checked caller ----------------------------------------------------------------------- */

struct device; /* one opened device and what is configured on it */
struct slot;   /* one pair of buffers for one program, with the state of its inference */

enum device_call {
	CALL_CREATE_VDEVICE,
	CALL_STATUS,
	CALL_INFO,
	CALL_CREATE_CALBIN,
	CALL_CONFIGURE,
	CALL_RESET_CONFIGURATION,
	CALL_RESET_CCU,
	CALL_RESET,
	CALL_READ_MEM,
	CALL_WRITE_MEM,
	CALL_READ_REG,
	CALL_WRITE_REG,
	CALL_PARALLEL,
	CALL_SHUTDOWN,
	CALL_CREATE_BUFFER,
	CALL_SLICE,
	CALL_CSR,
	CALL_INFER,
	CALL_WAIT,
	CALL_KV,
	CALL_COUNT
};

/* `ops` must have every required field (else NPU_DEVICE_UNSUPPORT). Creates the device and asks its
 * status. */
enum npu_error device_open(const struct device_ops *ops, const struct device_params *p,
	struct device **ret);
/* Nothing may be configured, loaded or in flight. NULL is fine. */
void device_close(struct device *d);
enum npu_error device_status(struct device *d);
void device_versions(const struct device *d, struct device_info *ret); /* as read at open */
uint64_t device_calls(enum device_call call); /* in this process, for metrics and tests */
const char *device_call_name(enum device_call call);

/* The privileged levels (device contract 7): NPU_DEVICE_BUSY with anything in flight,
 * NPU_DEVICE_UNSUPPORT where the backend has none. What was configured must be unloaded and
 * configured anew before it is used again. */
enum npu_error device_reset_ccu(struct device *d);
enum npu_error device_reset(struct device *d);
/* Memory and registers, privileged likewise and refused likewise; what they give is the backend's. */
#define DEVICE_REGISTER_BYTES 4
enum npu_error device_read_mem(struct device *d, uint64_t address, void *to, size_t size);
enum npu_error device_write_mem(struct device *d, uint64_t address, const void *from, size_t size);
enum npu_error device_read_reg(struct device *d, uint64_t address, uint32_t *ret);
enum npu_error device_write_reg(struct device *d, uint64_t address, uint32_t value);
/* Two engines or one. A void call, so the status is asked after it. Like the resets: what it does to
 * what is in flight is unknown, so nothing may be. */
enum npu_error device_set_parallel(struct device *d, bool on);
unsigned device_in_flight(const struct device *d);

/* Load a verified folder; configure it (status is asked again). One at a time: a second load is
 * refused here with NPU_ALREADY_CONFIGURED and does not reach the backend. */
enum npu_error device_load(struct device *d, const char *path);
enum npu_error device_configure(struct device *d);
/* In the order of device contract 2: KV, reset configuration, calbin. All slots must be gone. */
enum npu_error device_unload(struct device *d);

size_t device_model_count(struct device *d);
struct model *device_model(struct device *d, const char *name); /* NULL when there is none */
const struct model_info *device_model_info(struct device *d, struct model *m);
void device_llm_info(struct device *d, struct llm_info *ret);
const char *device_calbin_version(struct device *d);
void device_golden(struct device *d, const char *model, struct buf *ret_in, struct buf *ret_out);

/* Slots. Host memory given to device_slot_in/out must stay valid until device_slot_wait has
 * returned. */
enum npu_error device_slot_new(struct device *d, struct model *m, struct slot **ret);
void device_slot_free(struct slot *s); /* NULL is fine; never while in flight */
enum npu_error device_slot_in(struct slot *s, size_t input, const void *host, size_t capacity,
	uint64_t offset, uint64_t size);
enum npu_error device_slot_out(struct slot *s, size_t output, void *host, size_t capacity,
	uint64_t offset, uint64_t size);
/* Both lengths of an LLM program: 1 <= cur, past + cur <= max_seq_len, checked before the setter. */
enum npu_error device_slot_lengths(struct slot *s, uint32_t past, uint32_t cur);
/* One inference may be in flight; two, on the two engines, after device_set_parallel(d, true). Else
 * NPU_DEVICE_BUSY, and nothing is submitted. A slot whose inference failed in a way that reaches
 * beyond its job is spoiled: it takes nothing any more (device contract 5.2). What is mapped must
 * have been mapped since the last reset. */
enum npu_error device_slot_submit(struct slot *s, enum device_task task);
/* The compatibility run's: a submit that tells nothing, so the status of the buffer and of the
 * device are asked after it. NPU_DEVICE_UNSUPPORT where there is no such call. */
enum npu_error device_slot_submit_void(struct slot *s, enum device_task task);
enum device_run device_slot_status(struct slot *s); /* quick */
bool device_slot_spoiled(const struct slot *s);
/* Blocks. NPU_DEVICE_CRASH when the device reports a CCU exception. */
enum npu_error device_slot_wait(struct slot *s);
void device_slot_reset(struct slot *s); /* forget all host memory; not while in flight */

/* KV of the configured calbin. Every void call is verified: NPU_NOT_EXPECTED when it did not
 * happen. */
enum npu_error device_kv_open(struct device *d);
bool device_kv_can_allocate(struct device *d);
enum npu_error device_kv_allocate(struct device *d, int32_t seq);
enum npu_error device_kv_free(struct device *d, int32_t seq);
enum npu_error device_kv_apply(struct device *d, int32_t seq, int32_t n_tokens);
int32_t device_kv_len(struct device *d, int32_t seq);
/* Cut the sequence back to `len` tokens. */
enum npu_error device_kv_truncate(struct device *d, int32_t seq, int32_t len);
enum npu_error device_kv_clear(struct device *d, int32_t seq); /* all; verified for that one */
/* First and last position; NPU_DEVICE_UNSUPPORT where the backend does not tell them. */
enum npu_error device_kv_range(struct device *d, int32_t seq, int32_t *ret_min, int32_t *ret_max);

/* The calls and the context of resident callables, until device_close(): for a callable_cache, which
 * checks and counts them. NPU_DEVICE_UNSUPPORT where the backend has none. */
enum npu_error device_callables(struct device *d, const struct callable_memory_ops **ret_ops,
	void **ret_context);

#endif
