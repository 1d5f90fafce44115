/* What the adapter takes for granted of the SDK beyond the contract. Whoever has the SDK's headers
 * edits this file, and only this.
 *
 * Device contract 2 names none of these, so they are assumptions, which the double in tests/calrt_sdk
 * shares:
 *   calrt/calrt.h          the header to include
 *   CalbinModel            Name(), Type(), GetInputs(), GetOutputs(), GetHyperParameters()
 *   CalbinTensor_s         name, dtype, shape; CalrtDataType_e and its values
 *   CalrtDeviceInfo_s      what GetDeviceInfo() returns: runtime, driver, firmware, name
 *   CalrtKvManager         the class's name, and CreateKvManager(device, calbin)
 *   KvSeqInfo              seq_id, n_tokens
 * The enumerators of CalrtError_e and of TaskType_e are not needed: their numbers are in the contract.
 */
#ifndef NPUFS_CORE_DEVICE_CALRT_BEYOND_H
#define NPUFS_CORE_DEVICE_CALRT_BEYOND_H

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <calrt/calrt.h>

extern "C" {
#include "core/device.h"
}

using KvManager = calrt::CalrtKvManager;

/* What a model tells of itself. */
struct description {
	std::string name, type;
	std::vector<tensor_spec> inputs, outputs;
	calrt::ModelHyperParameters_s *registers = nullptr; /* the model's */
};

template <std::size_t Size> inline void copy_text(char (&to)[Size], const std::string &from)
{
	to[from.copy(to, Size - 1)] = '\0';
}

struct dtype_row {
	calrt::CalrtDataType_e theirs;
	enum dtype ours;
};

constexpr dtype_row dtypes[] = {
	{ calrt::DATA_BOOL, DTYPE_BOOL },
	{ calrt::DATA_INT8, DTYPE_INT8 },
	{ calrt::DATA_UINT8, DTYPE_UINT8 },
	{ calrt::DATA_INT16, DTYPE_INT16 },
	{ calrt::DATA_UINT16, DTYPE_UINT16 },
	{ calrt::DATA_INT32, DTYPE_INT32 },
	{ calrt::DATA_UINT32, DTYPE_UINT32 },
	{ calrt::DATA_INT64, DTYPE_INT64 },
	{ calrt::DATA_UINT64, DTYPE_UINT64 },
	{ calrt::DATA_FLOAT16, DTYPE_FLOAT16 },
	{ calrt::DATA_FLOAT32, DTYPE_FLOAT32 },
	{ calrt::DATA_FLOAT64, DTYPE_FLOAT64 },
};

/* What cannot be said here is left of no type, which fits no manifest. */
inline tensor_spec spec_of(const calrt::CalbinTensor_s &t)
{
	tensor_spec spec = {};

	copy_text(spec.name, t.name);
	if (t.name.size() > TENSOR_NAME_MAX || t.shape.size() > TENSOR_MAX_RANK)
		return spec;
	for (const dtype_row &row : dtypes)
		if (row.theirs == t.dtype)
			spec.dtype = row.ours;
	spec.rank = static_cast<std::uint32_t>(t.shape.size());
	std::copy(t.shape.begin(), t.shape.end(), spec.dims);
	return spec;
}

inline void describe(calrt::CalbinModel &from, struct description &to)
{
	to.name = from.Name();
	to.type = from.Type();
	for (const auto &t : from.GetInputs())
		to.inputs.push_back(spec_of(t));
	for (const auto &t : from.GetOutputs())
		to.outputs.push_back(spec_of(t));
	to.registers = &from.GetHyperParameters();
}

inline void describe(calrt::VirtualDevice &from, struct device_info &to)
{
	const auto &info = from.GetDeviceInfo(0);

	copy_text(to.runtime, info.runtime);
	copy_text(to.driver, info.driver);
	copy_text(to.firmware, info.firmware);
	copy_text(to.name, info.name);
}

inline std::unique_ptr<KvManager> make_kv(calrt::VirtualDevice *d, calrt::Calbin *c)
{
	return calrt::CreateKvManager(d, c);
}

inline calrt::KvSeqInfo sequence_of(const struct kv_seq_info *seq)
{
	calrt::KvSeqInfo info = {};

	info.seq_id = seq->seq_id;
	info.n_tokens = seq->n_tokens;
	return info;
}

#endif
