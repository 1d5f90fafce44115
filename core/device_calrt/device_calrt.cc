/* struct device_ops over the C++ interface of CalRT 0.7.6 (device contract 2).
 *
 * No exception leaves this file: what could throw runs inside guarded() or answer_or(), which keep
 * nothing of the exception but its class. Every pointer of the SDK is looked at before it is used.
 * What the SDK gives as unique_ptr is held by one here, in one object a handle; what it lends dies
 * with the calbin that lent it. The checked caller takes care of the order.
 *
 * A void function has nowhere to put what went wrong, so it is told elsewhere:
 *
 *   EnableParallelMode      the next status()
 *   SubmitJob               the next status(), and wait() of that buffer, which then does not Wait
 *   ResetCCU and the like   Status() right after it
 *   KV manager              its queries, which the checked caller asks after each
 *   queries                 an answer that the caller takes for a failure
 *
 * Which of the SDK's functions return a code and which nothing is known for some only; guarded()
 * takes either. This object uses no function of the daemon; its buffers (core/base/buf.c) are linked in. */
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <calrt/calrt.h>

extern "C" {
#include "core/device_calrt.h"
}
#include "core/device_calrt/beyond.h"

/* --- from their world to ours ----------------------------------------------------------------- */

namespace
{
enum npu_error code_of(enum npu_error code)
{
	return code;
}

/* Both number their errors alike (device contract 9). */
enum npu_error code_of(calrt::CalrtError_e code)
{
	const int n = static_cast<int>(code);

	return n >= 0 && n < NPU_ERROR_COUNT ? static_cast<enum npu_error>(n) : NPU_UNKNOWN;
}

/* What a call came to, whether it returns a code of either kind or nothing; `thrown` where it throws. */
template <typename Call>
enum npu_error guarded(Call call, enum npu_error thrown = NPU_UNKNOWN) noexcept
{
	try {
		if constexpr (std::is_void_v<decltype(call())>) {
			call();
			return NPU_SUCCESS;
		} else {
			return code_of(call());
		}
	} catch (const std::bad_alloc &) {
		return NPU_MEMORY_ALLOCATION;
	} catch (...) {
		return thrown;
	}
}

/* What a query answers, or `otherwise` when it throws. */
template <typename Answer, typename Call> Answer answer_or(Answer otherwise, Call call) noexcept
{
	try {
		return call();
	} catch (...) {
		return otherwise;
	}
}
} // namespace

/* --- handles ---------------------------------------------------------------------------------- */

struct vdevice {
	std::unique_ptr<calrt::VirtualDevice> sdk;
	enum npu_error untold = NPU_SUCCESS; /* of a void call; the next status() tells it */
};

struct model {
	calrt::CalbinModel *sdk = nullptr; /* the calbin's */
	struct description says;
	struct model_info info = {}; /* points into it */
};

struct calbin {
	std::unique_ptr<calrt::Calbin> sdk;
	std::string version;
	std::vector<std::unique_ptr<model>> models; /* those asked for so far */
};

struct inbuf {
	std::unique_ptr<calrt::CalrtInputBuf> sdk;
};

struct outbuf {
	std::unique_ptr<calrt::CalrtOutputBuf> sdk;
	enum npu_error refused = NPU_SUCCESS; /* the last submit's: then nothing is to wait for */
};

struct kvman {
	std::unique_ptr<KvManager> sdk;
};

template <typename Handle> static void destroy(Handle *h)
{
	delete h;
}

/* --- device ----------------------------------------------------------------------------------- */

/* The software device's parameters mean nothing here. */
static enum npu_error create_vdevice(const struct device_params *, struct vdevice **ret)
{
	return guarded([&] {
		auto d = std::make_unique<vdevice>();

		d->sdk = calrt::VirtualDevice::CreateVDevice(calrt::PCIE);
		if (!d->sdk)
			return NPU_NO_DEVICE;
		*ret = d.release();
		return NPU_SUCCESS;
	});
}

static enum npu_error status(struct vdevice *d)
{
	const enum npu_error untold = std::exchange(d->untold, NPU_SUCCESS);

	return untold ? untold : guarded([&] { return d->sdk->Status(); });
}

static enum npu_error get_device_info(struct vdevice *d, struct device_info *ret)
{
	return guarded([&] {
		struct device_info info = {};

		describe(*d->sdk, info);
		*ret = info;
	});
}

/* What a reset says of itself is not enough, and it may say nothing. */
static enum npu_error verified(struct vdevice *d, enum npu_error code)
{
	return code ? code : status(d);
}

static enum npu_error reset_configuration(struct vdevice *d)
{
	return verified(d, guarded([&] { return d->sdk->ResetConfiguration(); }));
}

static enum npu_error reset_ccu(struct vdevice *d)
{
	return verified(d, guarded([&] { return d->sdk->ResetCCU(); }));
}

static enum npu_error reset(struct vdevice *d)
{
	return verified(d, guarded([&] { return d->sdk->Reset(); }));
}

static void enable_parallel(struct vdevice *d, bool on)
{
	d->untold = guarded([&] { return d->sdk->EnableParallelMode(on); });
}

/* However the shutdown went, the object is gone after it. */
static void shutdown(struct vdevice *d)
{
	guarded([&] { return d->sdk->Shutdown(); });
	delete d;
}

/* --- calbin ----------------------------------------------------------------------------------- */

static enum npu_error create_calbin(struct vdevice *, const char *path, struct calbin **ret)
{
	if (!path)
		return NPU_INVALID_CALBIN;
	return guarded(
		[&] {
			auto c = std::make_unique<calbin>();

			c->sdk = calrt::Calbin::CreateCalbin(path);
			if (!c->sdk)
				return NPU_INVALID_CALBIN;
			c->version = c->sdk->Version();
			*ret = c.release();
			return NPU_SUCCESS;
		},
		NPU_INVALID_CALBIN); /* what it throws names no class, but it is of the artifact */
}

/* Asked for by setting it: the setter's code is what the contract gives, reading back is not. Every
 * inference sets both anew. */
static void find_registers(struct model &m)
{
	for (const char *name : { CSR_CUR_LEN, CSR_PAST_LEN })
		if (code_of(m.says.registers->SetCsrByName(name, 1)) == NPU_SUCCESS)
			m.info.csrs[m.info.n_csrs++] = name;
}

/* Our side of a model of theirs, made when it is first asked for. Throws. */
static struct model *model_of(struct calbin *c, calrt::CalbinModel *theirs)
{
	for (const auto &known : c->models)
		if (known->sdk == theirs)
			return known.get();
	auto m = std::make_unique<model>();

	m->sdk = theirs;
	describe(*theirs, m->says);
	m->info.name = m->says.name.c_str();
	m->info.type = m->says.type.c_str();
	m->info.inputs = m->says.inputs.data();
	m->info.outputs = m->says.outputs.data();
	m->info.n_inputs = m->says.inputs.size();
	m->info.n_outputs = m->says.outputs.size();
	find_registers(*m);
	c->models.push_back(std::move(m));
	return c->models.back().get();
}

static size_t model_count(struct calbin *c)
{
	return answer_or(size_t(0), [&] {
		const auto *all = c->sdk->GetAllModels();

		return all ? all->size() : 0;
	});
}

static struct model *model_at(struct calbin *c, size_t i)
{
	return answer_or(static_cast<struct model *>(nullptr), [&] {
		auto *all = c->sdk->GetAllModels();

		return all && i < all->size() ? model_of(c, &(*all)[i]) : nullptr;
	});
}

static struct model *get_model_by_name(struct calbin *c, const char *name)
{
	return answer_or(static_cast<struct model *>(nullptr), [&] {
		auto *theirs = c->sdk->GetModelByName(name);

		return theirs ? model_of(c, theirs) : nullptr;
	});
}

static void get_llm_info(struct calbin *c, struct llm_info *ret)
{
	*ret = answer_or(llm_info{}, [&] {
		const calrt::CalbinLLM_s &llm = c->sdk->GetLLMInfo();
		llm_info info = {};

		info.max_batch_size = static_cast<std::uint32_t>(llm.max_batch_size);
		info.max_seq_len = static_cast<std::uint32_t>(llm.max_seq_len);
		return info;
	});
}

static const char *version(struct calbin *c)
{
	return c->version.c_str();
}

static void put_bytes(struct buf *to, const std::vector<std::uint8_t> &bytes)
{
	buf_put(to, bytes.data(), bytes.size());
}

static void get_golden_input(struct calbin *c, const char *model, struct buf *ret)
{
	buf_reset(ret);
	guarded([&] { put_bytes(ret, c->sdk->GetGoldenInputByModelName(model)); });
}

static void get_golden_output(struct calbin *c, const char *model, struct buf *ret)
{
	buf_reset(ret);
	guarded([&] { put_bytes(ret, c->sdk->GetGoldenOutputByModelName(model)); });
}

static const struct model_info *model_info(struct model *m)
{
	return &m->info;
}

static enum npu_error configure(struct vdevice *d, struct calbin *c, bool dump_ini)
{
	return guarded([&] { return calrt::configure(d->sdk.get(), c->sdk.get(), dump_ini); });
}

/* --- buffers and CSRs ------------------------------------------------------------------------- */

/* Is what was made the buffer of that program (device contract 4)? */
template <typename Buf>
static enum npu_error check_buf(Buf *made, const std::vector<tensor_spec> &tensors)
{
	if (!made)
		return NPU_MEMORY_ALLOCATION;
	if (made->Name().empty() || made->GetTensorNum() != tensors.size())
		return NPU_INVALID_CALBIN;
	for (const tensor_spec &t : tensors)
		if (!made->GetTensorByName(t.name))
			return NPU_INVALID_CALBIN;
	return NPU_SUCCESS;
}

template <typename Handle, typename Make>
static enum npu_error create_buf(const std::vector<tensor_spec> &tensors, Make make, Handle **ret)
{
	return guarded([&] {
		auto b = std::make_unique<Handle>();

		b->sdk = make();
		const enum npu_error code = check_buf(b->sdk.get(), tensors);
		if (!code)
			*ret = b.release();
		return code;
	});
}

static enum npu_error create_input_buf(struct model *m, struct inbuf **ret)
{
	return create_buf(
		m->says.inputs, [&] { return calrt::createInputBuf(*m->sdk); }, ret);
}

static enum npu_error create_output_buf(struct model *m, struct outbuf **ret)
{
	return create_buf(
		m->says.outputs, [&] { return calrt::createOutputBuf(*m->sdk); }, ret);
}

/* The SDK takes a pointer to what it may write for inputs too; it only reads those. */
static enum npu_error slice_input(struct inbuf *b, const char *tensor, const void *host,
	uint64_t offset, uint64_t size)
{
	return guarded([&] {
		return b->sdk->SliceTensorByName(const_cast<void *>(host), tensor, offset, size);
	});
}

static enum npu_error slice_output(struct outbuf *b, const char *tensor, void *host,
	uint64_t offset, uint64_t size)
{
	return guarded([&] { return b->sdk->SliceTensorByName(host, tensor, offset, size); });
}

template <typename Buf> static void reset_buf(Buf *b)
{
	guarded([&] { return b->sdk->ResetAllTensors(); });
}

static enum npu_error set_csr(struct model *m, const char *name, uint32_t value)
{
	return guarded([&] { return m->says.registers->SetCsrByName(name, value); });
}

static uint32_t get_csr(struct model *m, const char *name)
{
	return answer_or(uint32_t(0), [&] { return m->says.registers->GetCsrValueByName(name); });
}

/* --- inference -------------------------------------------------------------------------------- */

/* Their numbers are ours: 0 ping, 1 pong, -1 auto (device contract 2). */
static calrt::TaskType_e task_type(enum device_task task)
{
	return static_cast<calrt::TaskType_e>(static_cast<int>(task));
}

static enum npu_error infer(struct vdevice *d, struct model *m, struct inbuf *in,
	struct outbuf *out, enum device_task task)
{
	out->refused = guarded([&] {
		if (task == DEVICE_AUTO)
			return calrt::infer(d->sdk.get(), m->sdk, in->sdk.get(), out->sdk.get());
		return calrt::infer_with_fixed_task_type(d->sdk.get(), m->sdk, in->sdk.get(),
			out->sdk.get(), task_type(task));
	});
	return out->refused;
}

static void submit_void(struct vdevice *d, struct model *m, struct inbuf *in, struct outbuf *out,
	enum device_task task)
{
	out->refused = guarded([&] {
		return d->sdk->SubmitJob(m->sdk, in->sdk.get(), out->sdk.get(), task_type(task));
	});
	d->untold = out->refused;
}

static enum npu_error wait(struct outbuf *out)
{
	return out->refused ? out->refused : guarded([&] { return out->sdk->Wait(); });
}

static enum device_run run_of(calrt::CalrtOutputBufStatus_e status)
{
	switch (status) {
	case calrt::DEFAULT:
		return RUN_DEFAULT;
	case calrt::PENDING:
		return RUN_PENDING;
	case calrt::RUNNING:
		return RUN_RUNNING;
	case calrt::DONE:
		return RUN_DONE;
	default:
		return RUN_DONE_CCU_EXCEPTION;
	}
}

/* What cannot be told is taken for the worst: an output of that state is never delivered. */
static enum device_run run_status(struct outbuf *out)
{
	if (out->refused)
		return RUN_DEFAULT;
	return answer_or(RUN_DONE_CCU_EXCEPTION, [&] { return run_of(out->sdk->GetStatus()); });
}

/* --- KV --------------------------------------------------------------------------------------- */

static enum npu_error create_kv(struct vdevice *d, struct calbin *c, struct kvman **ret)
{
	return guarded([&] {
		auto k = std::make_unique<kvman>();

		k->sdk = make_kv(d->sdk.get(), c->sdk.get());
		if (!k->sdk)
			return NPU_DEVICE_UNSUPPORT;
		*ret = k.release();
		return NPU_SUCCESS;
	});
}

static bool kv_can_allocate(struct kvman *k, size_t n_sequences)
{
	return answer_or(false, [&] { return k->sdk->canAllocate(n_sequences); });
}

static void kv_allocate(struct kvman *k, const struct kv_seq_info *seq)
{
	guarded([&] {
		calrt::KvSeqInfo info = sequence_of(seq);

		k->sdk->Allocate(info);
	});
}

static void kv_free(struct kvman *k, int32_t seq_id)
{
	guarded([&] { k->sdk->Free(seq_id); });
}

static void kv_remove_tokens_at_end(struct kvman *k, int32_t seq_id, size_t n)
{
	guarded([&] { k->sdk->RemoveTokensAtEnd(seq_id, n); });
}

/* A sequence that may be there is not gone, and its number not to be had. */
static bool kv_exists(struct kvman *k, int32_t seq_id)
{
	return answer_or(true, [&] { return k->sdk->isExist(seq_id); });
}

static bool kv_apply(struct kvman *k, const struct kv_seq_info *seq)
{
	return answer_or(false, [&] {
		calrt::KvSeqInfo info = sequence_of(seq);

		return k->sdk->Apply(info);
	});
}

/* What the SDK says of a sequence that is not there, the contract does not tell. */
static int32_t kv_seq_len(struct kvman *k, int32_t seq_id)
{
	return answer_or(int32_t(-1),
		[&] { return k->sdk->isExist(seq_id) ? k->sdk->GetSeqLen(seq_id) : -1; });
}

static void kv_clear(struct kvman *k)
{
	guarded([&] { k->sdk->Clear(); });
}

static int32_t kv_pos_min(struct kvman *k, int32_t seq_id)
{
	return answer_or(int32_t(-1), [&] { return k->sdk->seqPosMin(seq_id); });
}

static int32_t kv_pos_max(struct kvman *k, int32_t seq_id)
{
	return answer_or(int32_t(-1), [&] { return k->sdk->seqPosMax(seq_id); });
}

/* --- the table -------------------------------------------------------------------------------- */

static constexpr struct device_ops make_table()
{
	struct device_ops o = {};

	o.name = DEVICE_CALRT_NAME;
	o.summary = "the accelerator, through CalRT 0.7.6";
	o.create_vdevice = create_vdevice;
	o.status = status;
	o.get_device_info = get_device_info;
	o.reset_configuration = reset_configuration;
	o.reset_ccu = reset_ccu;
	o.reset = reset;
	o.enable_parallel = enable_parallel;
	o.shutdown = shutdown;
	o.create_calbin = create_calbin;
	o.destroy_calbin = destroy<calbin>;
	o.model_count = model_count;
	o.model_at = model_at;
	o.get_model_by_name = get_model_by_name;
	o.get_llm_info = get_llm_info;
	o.version = version;
	o.get_golden_input = get_golden_input;
	o.get_golden_output = get_golden_output;
	o.model_info = model_info;
	o.configure = configure;
	o.create_input_buf = create_input_buf;
	o.create_output_buf = create_output_buf;
	o.destroy_input_buf = destroy<inbuf>;
	o.destroy_output_buf = destroy<outbuf>;
	o.slice_input = slice_input;
	o.slice_output = slice_output;
	o.reset_input = reset_buf<inbuf>;
	o.reset_output = reset_buf<outbuf>;
	o.set_csr = set_csr;
	o.get_csr = get_csr;
	o.infer = infer;
	o.submit_void = submit_void;
	o.wait = wait;
	o.run_status = run_status;
	o.create_kv = create_kv;
	o.destroy_kv = destroy<kvman>;
	o.kv_can_allocate = kv_can_allocate;
	o.kv_allocate = kv_allocate;
	o.kv_free = kv_free;
	o.kv_remove_tokens_at_end = kv_remove_tokens_at_end;
	o.kv_exists = kv_exists;
	o.kv_apply = kv_apply;
	o.kv_seq_len = kv_seq_len;
	o.kv_clear = kv_clear;
	o.kv_pos_min = kv_pos_min;
	o.kv_pos_max = kv_pos_max;
	return o;
}

static constexpr struct device_ops table = make_table();

const struct device_ops *npufs_calrt_ops(size_t bytes)
{
	return bytes == sizeof table ? &table : nullptr;
}
