/* A double of the SDK: the classes of calrt.h over the software device, through the C table of it.
 * Every entry passes enter(), which keeps the log and does what a test armed.
 *
 * It keeps the SDK's awkward habits. CreateCalbin throws for files that are missing or broken and
 * gives null for others. Nothing that is void tells anything. An object that dies in the wrong order
 * ends the process, where the SDK would touch freed memory. */
#include "tests/calrt_sdk/calrt_double.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <stdexcept>

#include <calrt/calrt.h>

extern "C" {
#include "core/device_sim.h"
}

/* --- strings to pull -------------------------------------------------------------------------- */

static const struct device_ops &ops = device_sim_ops;

static std::string armed_call, log_text;
static int armed_way;
static bool recording;

/* Alive, by what must outlive what. */
static unsigned devices, calbins, buffers, kvs;

void calrt_double_arm(const char *call, int way)
{
	armed_call = call ? call : "";
	armed_way = way;
}

void calrt_double_record(void)
{
	log_text.clear();
	recording = true;
}

const char *calrt_double_log(void)
{
	return log_text.c_str();
}

unsigned calrt_double_alive(void)
{
	return devices + calbins + buffers + kvs;
}

static void note(const std::string &what)
{
	if (recording)
		log_text += what + ' ';
}

/* The code with which this call is to fail, 0 for none. */
static int enter(const char *call)
{
	note(call);
	if (armed_call != call)
		return 0;
	switch (armed_way) {
	case DOUBLE_THROWS:
		throw std::runtime_error("cannot map /opt/secret/calbin at 0xdeadbeef");
	case DOUBLE_NO_MEMORY:
		throw std::bad_alloc();
	case DOUBLE_THROWS_A_NUMBER:
		throw 42;
	default:
		return armed_way;
	}
}

static void arm_from_environment(void)
{
	const char *text = getenv("CALRT_DOUBLE_ARM");
	const std::string all = text ? text : "";
	const std::size_t equals = all.find('=');

	if (equals != std::string::npos)
		calrt_double_arm(all.substr(0, equals).c_str(), atoi(all.c_str() + equals + 1));
}

static void born(unsigned &count)
{
	count++;
}

/* `above` is what should be gone by now. */
static void dies(const char *name, unsigned &count, unsigned above)
{
	note(std::string("~") + name);
	if (above) {
		fprintf(stderr, "calrt double: %s destroyed before what needs it\n", name);
		abort();
	}
	count--;
}

/* --- what is behind each class ---------------------------------------------------------------- */

namespace calrt
{
struct VirtualDevice::Impl {
	struct ::vdevice *d = nullptr;
};

struct CalbinModel::Impl {
	struct ::model *m = nullptr;
	std::string name, type;
	std::vector<CalbinTensor_s> inputs, outputs;
	ModelHyperParameters_s registers = {};
};

struct Calbin::Impl {
	struct ::calbin *c = nullptr;
	std::string version;
	CalbinLLM_s llm = {};
	std::vector<CalbinModel> models;
};

/* Of buffers: they lend a tensor a name. */
struct Tensors {
	std::string name;
	const std::vector<CalbinTensor_s> &specs;
	std::vector<CalrtTensor> tensors;

	explicit Tensors(const CalbinModel &m, const std::vector<CalbinTensor_s> &s)
	    : name(m.impl->name), specs(s), tensors(s.size())
	{
	}

	CalrtTensor *find(const std::string &wanted)
	{
		for (std::size_t i = 0; i < specs.size(); i++)
			if (specs[i].name == wanted)
				return &tensors[i];
		return nullptr;
	}
};

struct CalrtInputBuf::Impl {
	struct ::inbuf *b;
	Tensors tensors;
};

struct CalrtOutputBuf::Impl {
	struct ::outbuf *b;
	Tensors tensors;
};

struct CalrtKvManager::Impl {
	struct ::kvman *k;
};

static CalrtError_e error(int code)
{
	return static_cast<CalrtError_e>(code);
}

/* --- VirtualDevice ---------------------------------------------------------------------------- */

/* One physical device: a calbin is for the one there is. */
static struct ::vdevice *the_device;

VirtualDevice::VirtualDevice() : impl(std::make_unique<Impl>())
{
	born(devices);
}

VirtualDevice::~VirtualDevice()
{
	dies("VirtualDevice", devices, calbins + buffers + kvs);
	if (impl->d)
		ops.shutdown(impl->d);
	the_device = nullptr;
}

std::unique_ptr<VirtualDevice> VirtualDevice::CreateVDevice(CalrtDeviceType_e type)
{
	struct device_params params = {};

	arm_from_environment();
	if (enter("CreateVDevice") || type != PCIE || the_device)
		return nullptr;
	params.threads = 1;
	params.kv_sequences = 8;
	std::unique_ptr<VirtualDevice> device(new VirtualDevice);
	if (ops.create_vdevice(&params, &device->impl->d) != NPU_SUCCESS)
		return nullptr;
	the_device = device->impl->d;
	return device;
}

CalrtError_e VirtualDevice::Status()
{
	const int code = enter("Status");

	return error(code ? code : ops.status(impl->d));
}

CalrtDeviceInfo_s VirtualDevice::GetDeviceInfo(std::size_t)
{
	struct device_info info = {};

	if (enter("GetDeviceInfo") || ops.get_device_info(impl->d, &info) != NPU_SUCCESS)
		return {};
	return { info.runtime, info.driver, info.firmware, info.name };
}

void VirtualDevice::EnableParallelMode(bool on)
{
	if (!enter("EnableParallelMode") && ops.enable_parallel)
		ops.enable_parallel(impl->d, on);
}

void VirtualDevice::ResetCCU()
{
	if (!enter("ResetCCU"))
		ops.reset_ccu(impl->d);
}

CalrtError_e VirtualDevice::ResetConfiguration()
{
	const int code = enter("ResetConfiguration");

	return error(code ? code : ops.reset_configuration(impl->d));
}

void VirtualDevice::Reset()
{
	if (!enter("Reset"))
		ops.reset(impl->d);
}

CalrtError_e VirtualDevice::Shutdown()
{
	return error(enter("Shutdown"));
}

/* --- Calbin ----------------------------------------------------------------------------------- */

static std::vector<CalbinTensor_s> tensors_of(const struct tensor_spec *specs, std::size_t n)
{
	std::vector<CalbinTensor_s> all;

	for (std::size_t i = 0; i < n; i++)
		all.push_back(
			{ specs[i].name, static_cast<CalrtDataType_e>(specs[i].dtype - DTYPE_BOOL),
				{ specs[i].dims, specs[i].dims + specs[i].rank } });
	return all;
}

static CalbinModel model_of(struct ::model *m)
{
	const struct model_info *info = ops.model_info(m);
	CalbinModel model;

	model.impl = std::make_shared<CalbinModel::Impl>();
	model.impl->m = m;
	model.impl->name = info->name;
	model.impl->type = info->type;
	model.impl->inputs = tensors_of(info->inputs, info->n_inputs);
	model.impl->outputs = tensors_of(info->outputs, info->n_outputs);
	model.impl->registers.handle = m;
	return model;
}

Calbin::Calbin() : impl(std::make_unique<Impl>())
{
	born(calbins);
}

Calbin::~Calbin()
{
	dies("Calbin", calbins, buffers + kvs);
	if (impl->c)
		ops.destroy_calbin(impl->c);
}

std::unique_ptr<Calbin> Calbin::CreateCalbin(const std::string &path)
{
	struct llm_info llm;

	if (enter("CreateCalbin") || !the_device)
		return nullptr;
	std::unique_ptr<Calbin> made(new Calbin);
	const enum npu_error code = ops.create_calbin(the_device, path.c_str(), &made->impl->c);
	if (code == NPU_FILE_NOT_FOUND || code == NPU_BROKEN_FILE)
		throw std::runtime_error("cannot read " + path);
	if (code != NPU_SUCCESS)
		return nullptr;
	ops.get_llm_info(made->impl->c, &llm);
	made->impl->llm = { llm.max_batch_size, llm.max_seq_len };
	made->impl->version = ops.version(made->impl->c);
	for (std::size_t i = 0; i < ops.model_count(made->impl->c); i++)
		made->impl->models.push_back(model_of(ops.model_at(made->impl->c, i)));
	return made;
}

std::vector<CalbinModel> *Calbin::GetAllModels()
{
	return enter("GetAllModels") ? nullptr : &impl->models;
}

CalbinModel *Calbin::GetModelByName(std::string_view name)
{
	if (enter("GetModelByName"))
		return nullptr;
	for (CalbinModel &m : impl->models)
		if (m.impl->name == name)
			return &m;
	return nullptr;
}

const CalbinLLM_s &Calbin::GetLLMInfo() const
{
	static const CalbinLLM_s none = {};

	return enter("GetLLMInfo") ? none : impl->llm;
}

const std::string &Calbin::Version() const
{
	static const std::string none;

	return enter("Version") ? none : impl->version;
}

static std::vector<std::uint8_t> bytes_of(struct ::calbin *c, const std::string &model,
	void (*get)(struct ::calbin *, const char *, struct buf *))
{
	struct buf b = BUF_INIT;

	get(c, model.c_str(), &b);
	std::vector<std::uint8_t> bytes(b.data, b.data + b.len);
	buf_done(&b);
	return bytes;
}

std::vector<std::uint8_t> Calbin::GetGoldenInputByModelName(const std::string &model)
{
	if (enter("GetGoldenInputByModelName"))
		return {};
	return bytes_of(impl->c, model, ops.get_golden_input);
}

std::vector<std::uint8_t> Calbin::GetGoldenOutputByModelName(const std::string &model)
{
	if (enter("GetGoldenOutputByModelName"))
		return {};
	return bytes_of(impl->c, model, ops.get_golden_output);
}

CalrtError_e configure(VirtualDevice *d, Calbin *c, bool dumpIni)
{
	const int code = enter("configure");

	return error(code ? code : ops.configure(d->impl->d, c->impl->c, dumpIni));
}

/* --- models ----------------------------------------------------------------------------------- */

const std::string &CalbinModel::Name() const
{
	enter("Name");
	return impl->name;
}

const std::string &CalbinModel::Type() const
{
	return impl->type;
}

const std::vector<CalbinTensor_s> &CalbinModel::GetInputs() const
{
	enter("GetInputs");
	return impl->inputs;
}

const std::vector<CalbinTensor_s> &CalbinModel::GetOutputs() const
{
	return impl->outputs;
}

ModelHyperParameters_s &CalbinModel::GetHyperParameters()
{
	return impl->registers;
}

std::uint32_t ModelHyperParameters_s::GetCsrValueByName(const std::string &name)
{
	if (enter("GetCsrValueByName"))
		return 0;
	return ops.get_csr(static_cast<struct ::model *>(handle), name.c_str());
}

CalrtError_e ModelHyperParameters_s::SetCsrByName(const std::string &name, std::uint32_t value)
{
	const int code = enter("SetCsrByName");

	if (code)
		return error(code);
	return error(ops.set_csr(static_cast<struct ::model *>(handle), name.c_str(), value));
}

/* --- buffers ---------------------------------------------------------------------------------- */

CalrtInputBuf::CalrtInputBuf()
{
	born(buffers);
}

CalrtInputBuf::~CalrtInputBuf()
{
	dies("CalrtInputBuf", buffers, 0);
	if (impl)
		ops.destroy_input_buf(impl->b);
}

std::unique_ptr<CalrtInputBuf> createInputBuf(const CalbinModel &m)
{
	struct ::inbuf *b = nullptr;

	if (enter("createInputBuf") || ops.create_input_buf(m.impl->m, &b) != NPU_SUCCESS)
		return nullptr;
	std::unique_ptr<CalrtInputBuf> made(new CalrtInputBuf);
	made->impl.reset(new CalrtInputBuf::Impl{ b, Tensors(m, m.impl->inputs) });
	return made;
}

const std::string &CalrtInputBuf::Name() const
{
	return impl->tensors.name;
}

std::size_t CalrtInputBuf::GetTensorNum() const
{
	return enter("GetTensorNum") ? 0 : impl->tensors.tensors.size();
}

CalrtTensor *CalrtInputBuf::GetTensorByName(const std::string &name)
{
	return enter("GetTensorByName") ? nullptr : impl->tensors.find(name);
}

CalrtError_e CalrtInputBuf::SliceTensorByName(void *src, const std::string &tensor,
	std::uint64_t offset, std::uint64_t size)
{
	const int code = enter("SliceTensorByName");

	return error(code ? code : ops.slice_input(impl->b, tensor.c_str(), src, offset, size));
}

void CalrtInputBuf::ResetAllTensors()
{
	if (!enter("ResetAllTensors"))
		ops.reset_input(impl->b);
}

CalrtOutputBuf::CalrtOutputBuf()
{
	born(buffers);
}

CalrtOutputBuf::~CalrtOutputBuf()
{
	dies("CalrtOutputBuf", buffers, 0);
	if (impl)
		ops.destroy_output_buf(impl->b);
}

std::unique_ptr<CalrtOutputBuf> createOutputBuf(const CalbinModel &m)
{
	struct ::outbuf *b = nullptr;

	if (enter("createOutputBuf") || ops.create_output_buf(m.impl->m, &b) != NPU_SUCCESS)
		return nullptr;
	std::unique_ptr<CalrtOutputBuf> made(new CalrtOutputBuf);
	made->impl.reset(new CalrtOutputBuf::Impl{ b, Tensors(m, m.impl->outputs) });
	return made;
}

const std::string &CalrtOutputBuf::Name() const
{
	return impl->tensors.name;
}

std::size_t CalrtOutputBuf::GetTensorNum() const
{
	return impl->tensors.tensors.size();
}

CalrtTensor *CalrtOutputBuf::GetTensorByName(const std::string &name)
{
	return impl->tensors.find(name);
}

CalrtError_e CalrtOutputBuf::SliceTensorByName(void *src, const std::string &tensor,
	std::uint64_t offset, std::uint64_t size)
{
	const int code = enter("SliceTensorByName");

	return error(code ? code : ops.slice_output(impl->b, tensor.c_str(), src, offset, size));
}

void CalrtOutputBuf::ResetAllTensors()
{
	if (!enter("ResetAllTensors"))
		ops.reset_output(impl->b);
}

/* --- inference -------------------------------------------------------------------------------- */

static CalrtError_e submit(VirtualDevice *d, CalbinModel *m, CalrtInputBuf *in, CalrtOutputBuf *out,
	int task)
{
	return error(ops.infer(d->impl->d, m->impl->m, in->impl->b, out->impl->b,
		static_cast<enum device_task>(task)));
}

CalrtError_e infer(VirtualDevice *d, CalbinModel *m, CalrtInputBuf *in, CalrtOutputBuf *out)
{
	const int code = enter("infer");

	return code ? error(code) : submit(d, m, in, out, UNDEFINED_TASK);
}

CalrtError_e infer_with_fixed_task_type(VirtualDevice *d, CalbinModel *m, CalrtInputBuf *in,
	CalrtOutputBuf *out, TaskType_e task)
{
	const int code = enter("infer_with_fixed_task_type");

	note(std::to_string(task));
	return code ? error(code) : submit(d, m, in, out, task);
}

void VirtualDevice::SubmitJob(CalbinModel *m, CalrtInputBuf *in, CalrtOutputBuf *out,
	TaskType_e forceEngineMode)
{
	const int code = enter("SubmitJob");

	note(std::to_string(forceEngineMode));
	if (!code)
		submit(this, m, in, out, forceEngineMode);
}

CalrtError_e CalrtOutputBuf::Wait()
{
	const int code = enter("Wait");

	return error(code ? code : ops.wait(impl->b));
}

/* A code is the state to tell. */
CalrtOutputBufStatus_e CalrtOutputBuf::GetStatus()
{
	const int code = enter("GetStatus");

	return static_cast<CalrtOutputBufStatus_e>(code ? code : ops.run_status(impl->b));
}

/* --- KV --------------------------------------------------------------------------------------- */

CalrtKvManager::CalrtKvManager()
{
	born(kvs);
}

CalrtKvManager::~CalrtKvManager()
{
	dies("CalrtKvManager", kvs, 0);
	if (impl)
		ops.destroy_kv(impl->k);
}

std::unique_ptr<CalrtKvManager> CreateKvManager(VirtualDevice *d, Calbin *c)
{
	struct ::kvman *k = nullptr;

	if (enter("CreateKvManager") || ops.create_kv(d->impl->d, c->impl->c, &k) != NPU_SUCCESS)
		return nullptr;
	std::unique_ptr<CalrtKvManager> made(new CalrtKvManager);
	made->impl.reset(new CalrtKvManager::Impl{ k });
	return made;
}

static struct kv_seq_info seq_of(const KvSeqInfo &seq)
{
	struct kv_seq_info info = {};

	info.seq_id = seq.seq_id;
	info.n_tokens = seq.n_tokens;
	return info;
}

bool CalrtKvManager::canAllocate(std::size_t seq_num)
{
	return !enter("canAllocate") && ops.kv_can_allocate(impl->k, seq_num);
}

void CalrtKvManager::Allocate(KvSeqInfo &seq)
{
	const struct kv_seq_info info = seq_of(seq);

	if (!enter("Allocate"))
		ops.kv_allocate(impl->k, &info);
}

void CalrtKvManager::Free(KvSeqId id)
{
	if (!enter("Free"))
		ops.kv_free(impl->k, id);
}

void CalrtKvManager::RemoveTokensAtEnd(KvSeqId id, std::size_t n_tokens)
{
	if (!enter("RemoveTokensAtEnd"))
		ops.kv_remove_tokens_at_end(impl->k, id, n_tokens);
}

bool CalrtKvManager::isExist(KvSeqId id)
{
	return !enter("isExist") && ops.kv_exists(impl->k, id);
}

bool CalrtKvManager::Apply(KvSeqInfo &seq)
{
	const struct kv_seq_info info = seq_of(seq);

	return !enter("Apply") && ops.kv_apply(impl->k, &info);
}

/* 0 for one that is not there, too. */
KvPos CalrtKvManager::GetSeqLen(KvSeqId id) const
{
	if (enter("GetSeqLen") || !ops.kv_exists(impl->k, id))
		return 0;
	return ops.kv_seq_len(impl->k, id);
}

void CalrtKvManager::Clear()
{
	if (!enter("Clear"))
		ops.kv_clear(impl->k);
}

KvPos CalrtKvManager::seqPosMin(KvSeqId id) const
{
	return enter("seqPosMin") ? 0 : ops.kv_pos_min(impl->k, id);
}

KvPos CalrtKvManager::seqPosMax(KvSeqId id) const
{
	return enter("seqPosMax") ? 0 : ops.kv_pos_max(impl->k, id);
}
} // namespace calrt
