/* What the devices that are software have in common: buffers, slices, CSRs, the states of an
 * inference, and for LLMs the KV bookkeeping with the programs prefill, decode and kv_update. A
 * backend supplies a struct soft_backend and uses SOFT_DEVICE_OPS in its table; in `load` it adds
 * its programs. */
#ifndef NPUFS_CORE_DEVICE_SOFT_H
#define NPUFS_CORE_DEVICE_SOFT_H

#include "core/callable/memory_soft.h"
#include "core/device.h"

/* A software device's memory and registers, as ReadMem and WriteMem reach them. */
#define SOFT_MEMORY_BASE       0x1000u
#define SOFT_MEMORY_BYTES      (1u << 20)
#define SOFT_REG_ID            0x0
#define SOFT_REG_STATUS        0x4
#define SOFT_REG_SUBMITS       0x8 /* inferences since the device was opened, modulo 2^32 */
#define SOFT_REG_SCRATCH       0xc /* the one that can be written */
#define SOFT_ID                0x4e505553u
#define SOFT_STATUS_CONFIGURED 1u
#define SOFT_STATUS_BUSY       2u

enum soft_csr { SOFT_CUR_LEN, SOFT_PAST_LEN, SOFT_CSRS };

/* One KV sequence. Positions below `written` are in the cache; `staged` more have been computed and
 * wait for kv_update; `len` is the logical length. written + staged <= len. */
struct soft_seq {
	bool used;
	_Atomic unsigned
		in_flight; /* on engines of parallel mode; the caller leaves it alone then */
	int engine;        /* which, while in flight */
	int32_t id;
	uint64_t birth; /* tells a sequence from a later one in its place */
	uint32_t len, written, staged;
	void *state; /* the backend's memory for it; kept for the next when this one is freed */
};

/* One submitted inference, as a program runs it. */
struct soft_run {
	struct model *model;
	const void *const *inputs; /* whole tensors in the program's order */
	void *const *outputs;
	uint32_t csrs[SOFT_CSRS]; /* as they were at submit */
	struct soft_seq *seq;     /* current at submit; NULL for none, or gone since */
};

struct soft_program {
	struct model_info info; /* `name` and the tensors must live as long as the calbin */
	/* Do it: in Wait, or on an engine's thread, where two may run at once with two sequences. */
	enum npu_error (*run)(const struct soft_run *r);
	/* Bytes of input 0 that a run needs with this cur_seq_len[0]; NULL: all of every input. */
	size_t (*needs)(uint32_t cur);
	void *impl; /* the backend's */
};

/* An LLM: what the backend computes and how large it is. */
struct soft_llm {
	uint32_t ubatch, vocab_size, max_seq_len;
	/* Tokens at positions past.. of a sequence; logits of the last. Several threads may be in
	 * it, each with another state. */
	enum npu_error (*forward)(void *impl, void *state, const int32_t *tokens, uint32_t n,
		uint32_t past, float *logits);
	void *(*state_new)(void *impl); /* NULL: no memory */
	void (*state_free)(void *state);
};

struct soft_backend {
	struct device_info info;
	/* Load from a folder (NULL for a backend with an artifact of its own), with
	 * soft_add_program() or soft_add_llm(); set impl. After a failure `unload` is called too,
	 * with whatever impl was set. */
	enum npu_error (*load)(struct calbin *c, const char *path);
	void (*unload)(void *impl);
};

enum npu_error soft_create_vdevice(const struct soft_backend *b, const struct device_params *p,
	struct vdevice **ret);

/* For `load`. */
const struct device_params *soft_params(const struct calbin *c);
void soft_set_impl(struct calbin *c, void *impl);
void soft_set_version(struct calbin *c, const char *version);
enum npu_error soft_add_program(struct calbin *c, const struct soft_program *p);
enum npu_error soft_add_llm(struct calbin *c, const struct soft_llm *llm);

/* For the programs. */
void *soft_impl(const struct calbin *c);
const char *soft_folder(const struct calbin *c); /* NULL when loaded without one */
struct calbin *soft_calbin_of(const struct model *m);
const struct soft_program *soft_program_of(const struct model *m);

/* The entries of struct device_ops that need nothing of the backend. */
enum npu_error soft_status(struct vdevice *d);
enum npu_error soft_get_device_info(struct vdevice *d, struct device_info *ret);
enum npu_error soft_reset_configuration(struct vdevice *d);
enum npu_error soft_reset_ccu(struct vdevice *d);
enum npu_error soft_reset(struct vdevice *d);
enum npu_error soft_read_mem(struct vdevice *d, uint64_t address, void *to, size_t size);
enum npu_error soft_write_mem(struct vdevice *d, uint64_t address, const void *from, size_t size);
enum npu_error soft_read_reg(struct vdevice *d, uint64_t address, uint32_t *ret);
enum npu_error soft_write_reg(struct vdevice *d, uint64_t address, uint32_t value);
void soft_enable_parallel(struct vdevice *d, bool on);
void *soft_callable_context(struct vdevice *d);
void soft_shutdown(struct vdevice *d);
enum npu_error soft_create_calbin(struct vdevice *d, const char *path, struct calbin **ret);
void soft_destroy_calbin(struct calbin *c);
size_t soft_model_count(struct calbin *c);
struct model *soft_model_at(struct calbin *c, size_t i);
struct model *soft_get_model_by_name(struct calbin *c, const char *name);
void soft_get_llm_info(struct calbin *c, struct llm_info *ret);
const char *soft_version(struct calbin *c);
const struct model_info *soft_model_info(struct model *m);
enum npu_error soft_configure(struct vdevice *d, struct calbin *c, bool dump_ini);
enum npu_error soft_create_input_buf(struct model *m, struct inbuf **ret);
enum npu_error soft_create_output_buf(struct model *m, struct outbuf **ret);
void soft_destroy_input_buf(struct inbuf *b);
void soft_destroy_output_buf(struct outbuf *b);
enum npu_error soft_slice_input(struct inbuf *b, const char *tensor, const void *host,
	uint64_t offset, uint64_t size);
enum npu_error soft_slice_output(struct outbuf *b, const char *tensor, void *host, uint64_t offset,
	uint64_t size);
void soft_reset_input(struct inbuf *b);
void soft_reset_output(struct outbuf *b);
enum npu_error soft_set_csr(struct model *m, const char *name, uint32_t value);
uint32_t soft_get_csr(struct model *m, const char *name);
enum npu_error soft_infer(struct vdevice *d, struct model *m, struct inbuf *in, struct outbuf *out,
	enum device_task task);
void soft_submit_void(struct vdevice *d, struct model *m, struct inbuf *in, struct outbuf *out,
	enum device_task task);
enum npu_error soft_wait(struct outbuf *out);
enum device_run soft_run_status(struct outbuf *out);
enum npu_error soft_create_kv(struct vdevice *d, struct calbin *c, struct kvman **ret);
void soft_destroy_kv(struct kvman *k);
bool soft_kv_can_allocate(struct kvman *k, size_t n_sequences);
void soft_kv_allocate(struct kvman *k, const struct kv_seq_info *seq);
void soft_kv_free(struct kvman *k, int32_t seq_id);
void soft_kv_remove_tokens_at_end(struct kvman *k, int32_t seq_id, size_t n);
bool soft_kv_exists(struct kvman *k, int32_t seq_id);
bool soft_kv_apply(struct kvman *k, const struct kv_seq_info *seq);
int32_t soft_kv_seq_len(struct kvman *k, int32_t seq_id);
void soft_kv_clear(struct kvman *k);
int32_t soft_kv_pos_min(struct kvman *k, int32_t seq_id);
int32_t soft_kv_pos_max(struct kvman *k, int32_t seq_id);

#define SOFT_DEVICE_OPS \
	.status = soft_status, .get_device_info = soft_get_device_info, \
	.reset_configuration = soft_reset_configuration, .reset_ccu = soft_reset_ccu, \
	.reset = soft_reset, .read_mem = soft_read_mem, .write_mem = soft_write_mem, \
	.read_reg = soft_read_reg, .write_reg = soft_write_reg, \
	.enable_parallel = soft_enable_parallel, .shutdown = soft_shutdown, \
	.create_calbin = soft_create_calbin, .destroy_calbin = soft_destroy_calbin, \
	.model_count = soft_model_count, .model_at = soft_model_at, \
	.get_model_by_name = soft_get_model_by_name, .get_llm_info = soft_get_llm_info, \
	.version = soft_version, .model_info = soft_model_info, .configure = soft_configure, \
	.create_input_buf = soft_create_input_buf, .create_output_buf = soft_create_output_buf, \
	.destroy_input_buf = soft_destroy_input_buf, \
	.destroy_output_buf = soft_destroy_output_buf, .slice_input = soft_slice_input, \
	.slice_output = soft_slice_output, .reset_input = soft_reset_input, \
	.reset_output = soft_reset_output, .set_csr = soft_set_csr, .get_csr = soft_get_csr, \
	.infer = soft_infer, .submit_void = soft_submit_void, .wait = soft_wait, \
	.run_status = soft_run_status, .create_kv = soft_create_kv, .destroy_kv = soft_destroy_kv, \
	.kv_can_allocate = soft_kv_can_allocate, .kv_allocate = soft_kv_allocate, \
	.kv_free = soft_kv_free, .kv_remove_tokens_at_end = soft_kv_remove_tokens_at_end, \
	.kv_exists = soft_kv_exists, .kv_apply = soft_kv_apply, .kv_seq_len = soft_kv_seq_len, \
	.kv_clear = soft_kv_clear, .kv_pos_min = soft_kv_pos_min, .kv_pos_max = soft_kv_pos_max, \
	.callables = &memory_soft_ops, .callable_context = soft_callable_context

#endif
