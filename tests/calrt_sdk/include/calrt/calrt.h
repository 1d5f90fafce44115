/* A double of the SDK's headers for tests: what device contract 2 gives of CalRT 0.7.6, as far as the
 * adapter uses it, and little of our own making where the contract names nothing (the list of that is
 * in core/device_calrt/beyond.h). Of the functions whose return type is not known some return
 * a code here and some nothing. */
#ifndef CALRT_CALRT_H
#define CALRT_CALRT_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace calrt
{
enum CalrtError_e : int {
	Success,
	MemoryAllocation,
	MemoryAlreadyRegistered,
	Assert,
	InvalidValue,
	InvalidConfiguration,
	NoDevice,
	AlreadyConfigured,
	NotExpected = 15,
	WrongDirection = 29
};
enum CalrtDeviceType_e { PCIE };
enum TaskType_e { UNDEFINED_TASK = -1, PING_TASK, PONG_TASK };
enum CalrtOutputBufStatus_e : int { DEFAULT, PENDING, RUNNING, DONE, DONE_CCU_EXCEPTION };
enum CalrtDataType_e {
	DATA_BOOL,
	DATA_INT8,
	DATA_UINT8,
	DATA_INT16,
	DATA_UINT16,
	DATA_INT32,
	DATA_UINT32,
	DATA_INT64,
	DATA_UINT64,
	DATA_FLOAT16,
	DATA_FLOAT32,
	DATA_FLOAT64
};

using KvPos = std::int32_t;
using KvSeqId = std::int32_t;

struct CalrtDeviceInfo_s {
	std::string runtime, driver, firmware, name;
};

struct CalbinLLM_s {
	std::uint32_t max_batch_size, max_seq_len;
};

struct CalbinTensor_s {
	std::string name;
	CalrtDataType_e dtype;
	std::vector<std::int64_t> shape;
};

struct KvSeqInfo {
	KvSeqId seq_id;
	KvPos n_tokens;
};

struct ModelHyperParameters_s {
	std::uint32_t GetCsrValueByName(const std::string &);
	CalrtError_e SetCsrByName(const std::string &, std::uint32_t);
	void *handle; /* the double's */
};

class CalbinModel
{
      public:
	const std::string &Name() const;
	const std::string &Type() const;
	const std::vector<CalbinTensor_s> &GetInputs() const;
	const std::vector<CalbinTensor_s> &GetOutputs() const;
	ModelHyperParameters_s &GetHyperParameters();

	struct Impl; /* the double's, as in each class here */
	std::shared_ptr<Impl> impl;
};

class Calbin
{
      public:
	static std::unique_ptr<Calbin> CreateCalbin(const std::string &path);
	~Calbin();
	CalbinModel *GetModelByName(std::string_view);
	std::vector<CalbinModel> *GetAllModels();
	const CalbinLLM_s &GetLLMInfo() const;
	const std::string &Version() const;
	std::vector<std::uint8_t> GetGoldenInputByModelName(const std::string &);
	std::vector<std::uint8_t> GetGoldenOutputByModelName(const std::string &);

	struct Impl;
	std::unique_ptr<Impl> impl;

      private:
	Calbin();
};

class CalrtTensor
{
};

class CalrtInputBuf
{
      public:
	~CalrtInputBuf();
	const std::string &Name() const;
	std::size_t GetTensorNum() const;
	CalrtTensor *GetTensorByName(const std::string &);
	CalrtError_e SliceTensorByName(void *src, const std::string &, std::uint64_t offset,
		std::uint64_t size);
	void ResetAllTensors();

	struct Impl;
	std::unique_ptr<Impl> impl;

      private:
	CalrtInputBuf();
	friend std::unique_ptr<CalrtInputBuf> createInputBuf(const CalbinModel &);
};

class CalrtOutputBuf
{
      public:
	CalrtOutputBuf(const CalrtOutputBuf &) = delete;
	CalrtOutputBuf(CalrtOutputBuf &&) = delete;
	~CalrtOutputBuf();
	const std::string &Name() const;
	std::size_t GetTensorNum() const;
	CalrtTensor *GetTensorByName(const std::string &);
	CalrtError_e SliceTensorByName(void *src, const std::string &, std::uint64_t offset,
		std::uint64_t size);
	void ResetAllTensors();
	CalrtError_e Wait();
	CalrtOutputBufStatus_e GetStatus();

	struct Impl;
	std::unique_ptr<Impl> impl;

      private:
	CalrtOutputBuf();
	friend std::unique_ptr<CalrtOutputBuf> createOutputBuf(const CalbinModel &);
};

class VirtualDevice
{
      public:
	static std::unique_ptr<VirtualDevice> CreateVDevice(CalrtDeviceType_e type);
	~VirtualDevice();
	CalrtError_e Status();
	CalrtDeviceInfo_s GetDeviceInfo(std::size_t idx);
	void EnableParallelMode(bool);
	void SubmitJob(CalbinModel *, CalrtInputBuf *, CalrtOutputBuf *,
		TaskType_e forceEngineMode = UNDEFINED_TASK);
	void ResetCCU();
	CalrtError_e ResetConfiguration();
	void Reset();
	CalrtError_e Shutdown();

	struct Impl;
	std::unique_ptr<Impl> impl;

      private:
	VirtualDevice();
};

class CalrtKvManager
{
      public:
	~CalrtKvManager();
	bool canAllocate(std::size_t seq_num);
	void Allocate(KvSeqInfo &);
	void Free(KvSeqId);
	void RemoveTokensAtEnd(KvSeqId, std::size_t n_tokens);
	bool isExist(KvSeqId);
	bool Apply(KvSeqInfo &);
	KvPos GetSeqLen(KvSeqId) const;
	void Clear();
	KvPos seqPosMin(KvSeqId) const;
	KvPos seqPosMax(KvSeqId) const;

	struct Impl;
	std::unique_ptr<Impl> impl;

      private:
	CalrtKvManager();
	friend std::unique_ptr<CalrtKvManager> CreateKvManager(VirtualDevice *, Calbin *);
};

CalrtError_e configure(VirtualDevice *, Calbin *, bool dumpIni = false);
std::unique_ptr<CalrtInputBuf> createInputBuf(const CalbinModel &);
std::unique_ptr<CalrtOutputBuf> createOutputBuf(const CalbinModel &);
CalrtError_e infer(VirtualDevice *, CalbinModel *, CalrtInputBuf *, CalrtOutputBuf *);
CalrtError_e infer_with_fixed_task_type(VirtualDevice *, CalbinModel *, CalrtInputBuf *,
	CalrtOutputBuf *, TaskType_e);
std::unique_ptr<CalrtKvManager> CreateKvManager(VirtualDevice *, Calbin *);
} // namespace calrt

#endif
