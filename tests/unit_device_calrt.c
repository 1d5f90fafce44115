/* The adapter to the SDK, loaded as the daemon loads it and run through the checked caller, against a
 * double of the SDK that fails where it is told to (tests/calrt_sdk). What an inference gives is held
 * to what the software device gives without the adapter between. */
#include "core/device_calrt.h"

#include <dlfcn.h>
#include <errno.h>
#include <sys/stat.h>

#include "core/base/files.h"
#include "core/base/mem.h"
#include "core/device_sim.h"
#include "core/engine/generation.h"
#include "core/engine/sequence.h"
#include "fake_store.h"
#include "sim_files.h"
#include "tests/calrt_sdk/calrt_double.h"

#define VOCAB  41 /* of odd_llama */
#define UBATCH 19
#define SEQ    7
#define N      5 /* tokens of a run */

static const struct device_params params = { .threads = 1, .kv_sequences = 2 };
static const struct device_ops *ops;
static char built[400]; /* the folder of what was built for the tests */

static struct {
	void (*arm)(const char *call, int way);
	void (*record)(void);
	const char *(*log)(void);
	unsigned (*alive)(void);
} sdk;

/* --- loading ---------------------------------------------------------------------------------- */

static void name_file(const char *folder, const char *name)
{
	char path[600];

	snprintf(path, sizeof path, "%s%s%s", folder, name ? "/" : "", name ? name : "");
	assert_int_equal(setenv("NPUFS_CALRT_SO", path, 1), 0);
}

static void refused(int err, const char *says)
{
	struct fault f = FAULT_NONE;

	assert_null(device_calrt_load(&f));
	assert_int_equal(f.err, err);
	if (!strstr(f.reason, says))
		fail_msg("\"%s\" in \"%s\"", says, f.reason);
	assert_non_null(strstr(f.action, "CALRT_SDK=DIR"));
	assert_null(device_calrt_load(NULL));
}

static void load__missing_unsafe_or_no_adapter__refused_with_the_reason(void **state)
{
	struct folder folder;
	char path[512];

	(void)state;
	folder_make(&folder);
	name_file(folder.path, "weights.safetensors");
	refused(-ENOENT, "not installed");
	name_file("build/relative.so", NULL);
	refused(-EINVAL, "absolute");
	folder_write_text(&folder, "weights.safetensors", "no object");
	name_file(folder.path, "weights.safetensors");
	refused(-ELIBACC, "calrt cannot be used: /proc/self/fd/");
	snprintf(path, sizeof path, "%s/weights.safetensors", folder.path);
	chmod(path, 0622);
	refused(-EPERM, "others may write");
	chmod(path, 0600);
	chmod(folder.path, 0777);
	refused(-EPERM, "others may write");
	chmod(folder.path, 0700);
	snprintf(path, sizeof path, "%s/program.json", folder.path);
	assert_int_equal(symlink("weights.safetensors", path), 0);
	name_file(folder.path, "program.json");
	refused(-ELOOP, "");
	folder_remove(&folder);
	snprintf(path, sizeof path, "%s/calrt_sdk/lib", built);
	name_file(path, "libcalrt.so"); /* loads, and is none */
	refused(-ELIBBAD, "another npufs");
}

static void find__calrt__the_table_or_the_loaders_reason(void **state)
{
	struct fault f = FAULT_NONE;
	const struct device_ops *found = NULL;

	(void)state;
	name_file("/nowhere", "at.so");
	assert_int_equal(device_find("calrt", &found, &f), -ENOENT);
	assert_null(found);
	assert_null(device_backend("calrt"));
	assert_int_equal(device_find("calr", &found, &f), -EINVAL);
	assert_non_null(strstr(f.reason, "did you mean calrt?"));
	assert_int_equal(device_find("sim", &found, &f), 0);
	assert_ptr_equal(found, &device_sim_ops);
	name_file(built, DEVICE_CALRT_FILE);
	assert_int_equal(device_find("calrt", &found, &f), 0);
	assert_string_equal(found->name, "calrt");
	assert_ptr_equal(device_backend("calrt"), found);
	assert_false(found->measuring_only);
	assert_null(found->own_manifest);
}

static void find_strings(void **state)
{
	struct fault f = FAULT_NONE;
	char path[512];
	void *lib;

	(void)state;
	name_file(built, DEVICE_CALRT_FILE);
	ops = device_calrt_load(&f);
	if (!ops)
		fail_msg("%s", f.reason);
	snprintf(path, sizeof path, "%s/calrt_sdk/lib/libcalrt.so", built);
	lib = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
	assert_non_null(lib);
	*(void **)&sdk.arm = dlsym(lib, "calrt_double_arm");
	*(void **)&sdk.record = dlsym(lib, "calrt_double_record");
	*(void **)&sdk.log = dlsym(lib, "calrt_double_log");
	*(void **)&sdk.alive = dlsym(lib, "calrt_double_alive");
	assert_true(sdk.arm && sdk.record && sdk.log && sdk.alive);
	dlclose(lib);
}

static void table__another_size__none(void **state)
{
	const struct device_ops *(*table)(size_t);
	char path[512];
	void *object;

	(void)state;
	snprintf(path, sizeof path, "%s/" DEVICE_CALRT_FILE, built);
	object = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
	assert_non_null(object);
	*(void **)&table = dlsym(object, DEVICE_CALRT_SYMBOL);
	assert_null(table(sizeof(struct device_ops) - 1));
	assert_ptr_equal(table(sizeof(struct device_ops)), ops);
	dlclose(object);
}

/* --- what it calls ---------------------------------------------------------------------------- */

static const char *const contract[] = { "Calbin::CreateCalbin", "Calbin::GetAllModels",
	"Calbin::GetGoldenInputByModelName", "Calbin::GetGoldenOutputByModelName",
	"Calbin::GetLLMInfo", "Calbin::GetModelByName", "Calbin::Version", "Calbin::~Calbin",
	"CalrtInputBuf::GetTensorByName", "CalrtInputBuf::GetTensorNum", "CalrtInputBuf::Name",
	"CalrtInputBuf::ResetAllTensors", "CalrtInputBuf::SliceTensorByName",
	"CalrtInputBuf::~CalrtInputBuf", "CalrtOutputBuf::GetStatus",
	"CalrtOutputBuf::GetTensorByName", "CalrtOutputBuf::GetTensorNum", "CalrtOutputBuf::Name",
	"CalrtOutputBuf::ResetAllTensors", "CalrtOutputBuf::SliceTensorByName",
	"CalrtOutputBuf::Wait", "CalrtOutputBuf::~CalrtOutputBuf",
	"ModelHyperParameters_s::GetCsrValueByName", "ModelHyperParameters_s::SetCsrByName",
	"VirtualDevice::CreateVDevice", "VirtualDevice::EnableParallelMode",
	"VirtualDevice::GetDeviceInfo", "VirtualDevice::Reset", "VirtualDevice::ResetCCU",
	"VirtualDevice::ResetConfiguration", "VirtualDevice::Shutdown", "VirtualDevice::Status",
	"VirtualDevice::SubmitJob", "VirtualDevice::~VirtualDevice", "configure", "createInputBuf",
	"createOutputBuf", "infer", "infer_with_fixed_task_type",
	/* the KV manager's, of a class that the contract does not name */
	"CalrtKvManager::Allocate", "CalrtKvManager::Apply", "CalrtKvManager::Clear",
	"CalrtKvManager::Free", "CalrtKvManager::GetSeqLen", "CalrtKvManager::RemoveTokensAtEnd",
	"CalrtKvManager::canAllocate", "CalrtKvManager::isExist", "CalrtKvManager::seqPosMax",
	"CalrtKvManager::seqPosMin", "CalrtKvManager::~CalrtKvManager",
	/* assumed beyond the contract */
	"CalbinModel::GetHyperParameters", "CalbinModel::GetInputs", "CalbinModel::GetOutputs",
	"CalbinModel::Name", "CalbinModel::Type", "CreateKvManager" };

static bool allowed(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(contract); i++)
		if (strcmp(contract[i], name) == 0)
			return true;
	return false;
}

static void symbols__of_the_sdk__only_the_contracts(void **state)
{
	char line[4096], command[640];
	unsigned found = 0;
	FILE *nm;

	(void)state;
	snprintf(command, sizeof command, "nm -DC --undefined-only %s/" DEVICE_CALRT_FILE, built);
	nm = popen(command, "r");
	assert_non_null(nm);
	while (fgets(line, sizeof line, nm)) {
		char *name = strstr(line, " U calrt::");

		if (!name)
			continue;
		name += strlen(" U calrt::");
		name[strcspn(name, "([\n")] = '\0';
		if (!allowed(name))
			fail_msg("calls %s", name);
		found++;
	}
	assert_int_equal(pclose(nm), 0);
	assert_int_equal(found, ARRAY_SIZE(contract));
}

/* --- one run of everything -------------------------------------------------------------------- */

struct rig {
	struct folder folder;
	struct device *d;
	struct model *prefill;
	struct slot *slot;
	int32_t tokens[UBATCH];
	float logits[VOCAB];
};

static int rig_up(void **state)
{
	struct rig *r;

	if (!sdk.arm)
		return -1;
	r = calloc(1, sizeof *r);
	folder_make(&r->folder);
	folder_write_llama(&r->folder);
	for (int i = 0; i < UBATCH; i++)
		r->tokens[i] = i * 7 % VOCAB;
	sdk.arm(NULL, 0);
	sdk.record();
	*state = r;
	return 0;
}

static int rig_down(void **state)
{
	struct rig *r = *state;
	unsigned alive = sdk.alive();

	sdk.arm(NULL, 0);
	folder_remove(&r->folder);
	free(r);
	return alive == 0 ? 0 : -1;
}

/* The steps up to an idle slot with its tensors mapped. */
static enum npu_error set_up(struct rig *r)
{
	enum npu_error code = device_open(ops, &params, &r->d);

	if (!code)
		code = device_load(r->d, r->folder.path);
	if (!code)
		code = device_configure(r->d);
	if (!code)
		code = device_kv_open(r->d);
	if (!code)
		code = device_kv_allocate(r->d, SEQ);
	if (code)
		return code;
	r->prefill = device_model(r->d, "prefill");
	code = r->prefill ? device_slot_new(r->d, r->prefill, &r->slot) : NPU_INVALID_CALBIN;
	if (!code)
		device_slot_reset(r->slot);
	if (!code)
		code = device_slot_in(r->slot, 0, r->tokens, sizeof r->tokens, 0, sizeof r->tokens);
	if (!code)
		code = device_slot_out(r->slot, 0, r->logits, sizeof r->logits, 0,
			sizeof r->logits);
	return code;
}

static enum npu_error run(struct rig *r, enum device_task task)
{
	enum npu_error code = device_kv_apply(r->d, SEQ, N);

	if (!code)
		code = device_slot_lengths(r->slot, 0, N);
	if (!code)
		code = device_slot_submit(r->slot, task);
	if (!code)
		code = device_slot_wait(r->slot);
	return code;
}

/* The first error of it, or `code`. */
static enum npu_error tear_down(struct rig *r, enum npu_error code)
{
	enum npu_error reset;

	device_slot_free(r->slot);
	r->slot = NULL;
	if (!r->d)
		return code;
	reset = device_unload(r->d);
	device_close(r->d);
	r->d = NULL;
	return code ? code : reset;
}

static enum npu_error run_all(struct rig *r)
{
	enum npu_error code = set_up(r);

	if (!code)
		code = run(r, DEVICE_AUTO);
	if (!code)
		code = device_kv_truncate(r->d, SEQ, 1);
	if (!code)
		code = device_kv_free(r->d, SEQ);
	if (!code)
		code = device_kv_allocate(r->d, SEQ);
	if (!code)
		code = device_kv_clear(r->d, SEQ);
	return tear_down(r, code);
}

static void run__nothing_goes_wrong__every_call_in_its_order(void **state)
{
	struct rig *r = *state;

	assert_int_equal(run_all(r), NPU_SUCCESS);
	assert_string_equal(sdk.log(),
		"CreateVDevice Status GetDeviceInfo CreateCalbin Version GetLLMInfo configure "
		"Status CreateKvManager isExist canAllocate Allocate isExist isExist GetSeqLen "
		"GetModelByName Name GetInputs SetCsrByName SetCsrByName "
		"createInputBuf GetTensorNum GetTensorByName createOutputBuf "
		"ResetAllTensors ResetAllTensors SliceTensorByName SliceTensorByName "
		"isExist GetSeqLen Apply isExist GetSeqLen SetCsrByName SetCsrByName infer Wait "
		"GetStatus isExist GetSeqLen RemoveTokensAtEnd isExist GetSeqLen Free isExist "
		"isExist canAllocate Allocate isExist isExist GetSeqLen Clear isExist "
		"~CalrtInputBuf ~CalrtOutputBuf ~CalrtKvManager ResetConfiguration Status ~Calbin "
		"Shutdown ~VirtualDevice ");
}

static void run__each_call_goes_wrong__its_error_and_nothing_left(void **state)
{
	/* what the run ends with when the call throws, has no memory, and gives 18 or null */
	static const struct {
		const char *call;
		enum npu_error throws, no_memory, code;
	} rows[] = {
		{ "CreateVDevice", NPU_UNKNOWN, NPU_MEMORY_ALLOCATION, NPU_NO_DEVICE },
		{ "Status", NPU_UNKNOWN, NPU_MEMORY_ALLOCATION, NPU_DEVICE_UNAVAILABLE },
		{ "GetDeviceInfo", NPU_UNKNOWN, NPU_MEMORY_ALLOCATION, NPU_SUCCESS },
		{ "CreateCalbin", NPU_INVALID_CALBIN, NPU_MEMORY_ALLOCATION, NPU_INVALID_CALBIN },
		{ "Version", NPU_INVALID_CALBIN, NPU_MEMORY_ALLOCATION, NPU_SUCCESS },
		{ "GetLLMInfo", NPU_OUT_OF_RANGE, NPU_OUT_OF_RANGE, NPU_OUT_OF_RANGE },
		{ "configure", NPU_UNKNOWN, NPU_MEMORY_ALLOCATION, NPU_DEVICE_UNAVAILABLE },
		{ "GetModelByName", NPU_INVALID_CALBIN, NPU_INVALID_CALBIN, NPU_INVALID_CALBIN },
		{ "GetInputs", NPU_INVALID_CALBIN, NPU_INVALID_CALBIN, NPU_SUCCESS },
		{ "createInputBuf", NPU_UNKNOWN, NPU_MEMORY_ALLOCATION, NPU_MEMORY_ALLOCATION },
		{ "createOutputBuf", NPU_UNKNOWN, NPU_MEMORY_ALLOCATION, NPU_MEMORY_ALLOCATION },
		{ "GetTensorNum", NPU_UNKNOWN, NPU_MEMORY_ALLOCATION, NPU_INVALID_CALBIN },
		{ "GetTensorByName", NPU_UNKNOWN, NPU_MEMORY_ALLOCATION, NPU_INVALID_CALBIN },
		{ "ResetAllTensors", NPU_SUCCESS, NPU_SUCCESS, NPU_SUCCESS },
		{ "SliceTensorByName", NPU_UNKNOWN, NPU_MEMORY_ALLOCATION, NPU_DEVICE_UNAVAILABLE },
		{ "SetCsrByName", NPU_INVALID_CALBIN, NPU_INVALID_CALBIN, NPU_DEVICE_UNAVAILABLE },
		{ "infer", NPU_UNKNOWN, NPU_MEMORY_ALLOCATION, NPU_DEVICE_UNAVAILABLE },
		{ "Wait", NPU_UNKNOWN, NPU_MEMORY_ALLOCATION, NPU_DEVICE_UNAVAILABLE },
		{ "GetStatus", NPU_DEVICE_CRASH, NPU_DEVICE_CRASH, NPU_DEVICE_CRASH },
		{ "CreateKvManager", NPU_UNKNOWN, NPU_MEMORY_ALLOCATION, NPU_DEVICE_UNSUPPORT },
		{ "canAllocate", NPU_MEMORY_ALLOCATION, NPU_MEMORY_ALLOCATION,
			NPU_MEMORY_ALLOCATION },
		{ "Allocate", NPU_NOT_EXPECTED, NPU_NOT_EXPECTED, NPU_NOT_EXPECTED },
		{ "isExist", NPU_INVALID_VALUE, NPU_INVALID_VALUE, NPU_NOT_EXPECTED },
		{ "GetSeqLen", NPU_NOT_EXPECTED, NPU_NOT_EXPECTED, NPU_NOT_EXPECTED },
		{ "Apply", NPU_NOT_EXPECTED, NPU_NOT_EXPECTED, NPU_NOT_EXPECTED },
		{ "RemoveTokensAtEnd", NPU_NOT_EXPECTED, NPU_NOT_EXPECTED, NPU_NOT_EXPECTED },
		{ "Free", NPU_NOT_EXPECTED, NPU_NOT_EXPECTED, NPU_NOT_EXPECTED },
		{ "Clear", NPU_NOT_EXPECTED, NPU_NOT_EXPECTED, NPU_NOT_EXPECTED },
		{ "ResetConfiguration", NPU_UNKNOWN, NPU_MEMORY_ALLOCATION,
			NPU_DEVICE_UNAVAILABLE },
		{ "Shutdown", NPU_SUCCESS, NPU_SUCCESS, NPU_SUCCESS },
	};
	struct rig *r = *state;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct {
			int way;
			enum npu_error want;
		} ways[] = { { DOUBLE_THROWS, rows[i].throws },
			{ DOUBLE_THROWS_A_NUMBER, rows[i].throws },
			{ DOUBLE_NO_MEMORY, rows[i].no_memory },
			{ NPU_DEVICE_UNAVAILABLE, rows[i].code } };

		for (size_t w = 0; w < ARRAY_SIZE(ways); w++) {
			enum npu_error got;

			sdk.arm(rows[i].call, ways[w].way);
			got = run_all(r);
			if (got != ways[w].want)
				fail_msg("%s, way %d: %d, not %d", rows[i].call, ways[w].way, got,
					ways[w].want);
			assert_int_equal(sdk.alive(), 0);
		}
	}
	sdk.arm(NULL, 0);
	assert_int_equal(run_all(r), NPU_SUCCESS); /* and none of it lasts */
}

static void run__code_that_no_table_has__unknown(void **state)
{
	struct rig *r = *state;

	sdk.arm("configure", NPU_WRONG_DIRECTION);
	assert_int_equal(run_all(r), NPU_WRONG_DIRECTION);
	sdk.arm("configure", NPU_ERROR_COUNT);
	assert_int_equal(run_all(r), NPU_UNKNOWN);
}

static void load__no_path_missing_or_bad_folder__errors(void **state)
{
	struct rig *r = *state;

	assert_int_equal(device_open(ops, &params, &r->d), NPU_SUCCESS);
	assert_int_equal(device_load(r->d, NULL), NPU_INVALID_CALBIN);
	assert_int_equal(device_load(r->d, "/nowhere"), NPU_INVALID_CALBIN); /* it throws */
	folder_write_text(&r->folder, "program.json", "{}");
	assert_int_equal(device_load(r->d, r->folder.path), NPU_INVALID_CALBIN); /* it gives null */
	assert_int_equal(tear_down(r, NPU_SUCCESS), NPU_SUCCESS);
}

/* --- inference -------------------------------------------------------------------------------- */

static bool logged(const char *what)
{
	return strstr(sdk.log(), what) != NULL;
}

static void submit__task__the_call_of_that_kind(void **state)
{
	struct rig *r = *state;

	assert_int_equal(set_up(r), NPU_SUCCESS);
	assert_int_equal(run(r, DEVICE_AUTO), NPU_SUCCESS);
	assert_false(logged("infer_with_fixed_task_type"));
	assert_true(logged(" infer Wait GetStatus "));
	assert_int_equal(device_kv_truncate(r->d, SEQ, 0), NPU_SUCCESS);
	assert_int_equal(run(r, DEVICE_PING), NPU_SUCCESS);
	assert_true(logged(" infer_with_fixed_task_type 0 Wait "));
	assert_int_equal(device_kv_truncate(r->d, SEQ, 0), NPU_SUCCESS);
	assert_int_equal(run(r, DEVICE_PONG), NPU_SUCCESS);
	assert_true(logged(" infer_with_fixed_task_type 1 Wait "));
	assert_int_equal(tear_down(r, NPU_SUCCESS), NPU_SUCCESS);
}

static enum npu_error submit_void(struct rig *r, enum device_task task)
{
	assert_int_equal(device_kv_truncate(r->d, SEQ, 0), NPU_SUCCESS);
	assert_int_equal(device_kv_apply(r->d, SEQ, N), NPU_SUCCESS);
	assert_int_equal(device_slot_lengths(r->slot, 0, N), NPU_SUCCESS);
	memset(r->logits, 0, sizeof r->logits);
	return device_slot_submit_void(r->slot, task);
}

static void submit_void__goes_well__as_infer_does(void **state)
{
	struct rig *r = *state;
	float want[VOCAB];

	assert_int_equal(set_up(r), NPU_SUCCESS);
	assert_int_equal(run(r, DEVICE_AUTO), NPU_SUCCESS);
	memcpy(want, r->logits, sizeof want);
	assert_int_equal(submit_void(r, DEVICE_PONG), NPU_SUCCESS);
	assert_int_equal(device_slot_wait(r->slot), NPU_SUCCESS);
	assert_true(logged(" SubmitJob 1 Status Wait "));
	assert_memory_equal(r->logits, want, sizeof want);
	assert_int_equal(submit_void(r, DEVICE_AUTO), NPU_SUCCESS);
	assert_int_equal(device_slot_wait(r->slot), NPU_SUCCESS);
	assert_true(logged(" SubmitJob -1 "));
	assert_int_equal(tear_down(r, NPU_SUCCESS), NPU_SUCCESS);
}

static void submit_void__throws__told_by_status_and_never_waited_for(void **state)
{
	struct rig *r = *state;

	assert_int_equal(set_up(r), NPU_SUCCESS);
	sdk.arm("SubmitJob", DOUBLE_NO_MEMORY);
	assert_int_equal(submit_void(r, DEVICE_AUTO), NPU_MEMORY_ALLOCATION);
	assert_int_equal(device_slot_status(r->slot), RUN_DEFAULT);
	assert_int_equal(device_slot_wait(r->slot), NPU_MEMORY_ALLOCATION);
	assert_false(logged("Wait"));
	assert_int_equal(device_status(r->d), NPU_SUCCESS); /* told once */
	sdk.arm(NULL, 0);
	assert_int_equal(tear_down(r, NPU_SUCCESS), NPU_SUCCESS);
}

/* --- the device ------------------------------------------------------------------------------- */

static void set_parallel__throws__told_by_the_status_after_it(void **state)
{
	struct rig *r = *state;

	assert_int_equal(device_open(ops, &params, &r->d), NPU_SUCCESS);
	assert_int_equal(device_set_parallel(r->d, true), NPU_SUCCESS);
	assert_true(logged("EnableParallelMode Status"));
	sdk.arm("EnableParallelMode", DOUBLE_THROWS);
	assert_int_equal(device_set_parallel(r->d, false), NPU_UNKNOWN);
	assert_int_equal(device_status(r->d), NPU_SUCCESS);
	assert_int_equal(tear_down(r, NPU_SUCCESS), NPU_SUCCESS);
}

static void reset__void_or_not__verified_by_the_status(void **state)
{
	struct rig *r = *state;

	assert_int_equal(device_open(ops, &params, &r->d), NPU_SUCCESS);
	sdk.record();
	assert_int_equal(device_reset_ccu(r->d), NPU_SUCCESS);
	assert_int_equal(device_reset(r->d), NPU_SUCCESS);
	assert_string_equal(sdk.log(), "ResetCCU Status Reset Status ");
	sdk.arm("ResetCCU", DOUBLE_THROWS);
	assert_int_equal(device_reset_ccu(r->d), NPU_UNKNOWN);
	sdk.arm("Reset", DOUBLE_NO_MEMORY);
	assert_int_equal(device_reset(r->d), NPU_MEMORY_ALLOCATION);
	sdk.arm("Status", NPU_FAILED_SOFT_RESET);
	assert_int_equal(device_reset(r->d), NPU_FAILED_SOFT_RESET);
	assert_int_equal(device_reset_ccu(r->d), NPU_FAILED_SOFT_RESET);
	sdk.arm(NULL, 0);
	assert_int_equal(tear_down(r, NPU_SUCCESS), NPU_SUCCESS);
}

static void kv__queries__what_the_device_knows(void **state)
{
	struct rig *r = *state;
	int32_t min, max;

	assert_int_equal(set_up(r), NPU_SUCCESS);
	assert_int_equal(device_kv_len(r->d, SEQ), 0);
	assert_int_equal(device_kv_len(r->d, SEQ + 1), -1); /* of which the SDK says 0 */
	assert_int_equal(device_kv_apply(r->d, SEQ, N), NPU_SUCCESS);
	assert_int_equal(device_kv_range(r->d, SEQ, &min, &max), NPU_SUCCESS);
	assert_int_equal(min, 0);
	assert_int_equal(max, N - 1);
	sdk.arm("seqPosMin", DOUBLE_THROWS);
	assert_int_equal(device_kv_range(r->d, SEQ, &min, &max), NPU_SUCCESS);
	assert_int_equal(min, -1);
	assert_int_equal(tear_down(r, NPU_SUCCESS), NPU_SUCCESS);
}

/* --- what a calbin tells, against the software device itself ---------------------------------- */

static void assert_tensors_equal(const struct tensor_spec *a, const struct tensor_spec *b, size_t n)
{
	char one[TENSOR_TEXT_SIZE], other[TENSOR_TEXT_SIZE];

	for (size_t i = 0; i < n; i++) {
		assert_string_equal(a[i].name, b[i].name);
		assert_string_equal(tensor_text(&a[i], one), tensor_text(&b[i], other));
	}
}

static void model_info__each_program__as_the_software_devices(void **state)
{
	static const char *const names[] = { "prefill", "decode", "kv_update" };
	struct rig *r = *state;
	struct device_info versions;
	struct llm_info llm;
	struct vdevice *vd;
	struct calbin *c;

	assert_int_equal(device_sim_ops.create_vdevice(&params, &vd), NPU_SUCCESS);
	assert_int_equal(device_sim_ops.create_calbin(vd, r->folder.path, &c), NPU_SUCCESS);
	assert_int_equal(device_open(ops, &params, &r->d), NPU_SUCCESS);
	assert_int_equal(device_load(r->d, r->folder.path), NPU_SUCCESS);
	assert_int_equal(device_model_count(r->d), 3);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct model *m = device_model(r->d, names[i]);
		const struct model_info *got = device_model_info(r->d, m);
		const struct model_info *want =
			device_sim_ops.model_info(device_sim_ops.get_model_by_name(c, names[i]));

		assert_string_equal(got->name, want->name);
		assert_string_equal(got->type, want->type);
		assert_int_equal(got->n_inputs, want->n_inputs);
		assert_int_equal(got->n_outputs, want->n_outputs);
		assert_tensors_equal(got->inputs, want->inputs, want->n_inputs);
		assert_tensors_equal(got->outputs, want->outputs, want->n_outputs);
		assert_int_equal(got->n_csrs, 2);
		assert_string_equal(got->csrs[0], CSR_CUR_LEN);
		assert_string_equal(got->csrs[1], CSR_PAST_LEN);
		assert_ptr_equal(device_model(r->d, names[i]), m);
	}
	assert_null(device_model(r->d, "Prefill"));
	device_llm_info(r->d, &llm);
	assert_int_equal(llm.max_batch_size, 1);
	assert_int_equal(llm.max_seq_len, 43);
	assert_string_equal(device_calbin_version(r->d), "0.7.6");
	device_versions(r->d, &versions);
	assert_string_equal(versions.runtime, "0.7.6");
	assert_string_equal(versions.name, "npufs software device");
	assert_int_equal(tear_down(r, NPU_SUCCESS), NPU_SUCCESS);
	device_sim_ops.destroy_calbin(c);
	device_sim_ops.shutdown(vd);
}

static void models__none_from_the_sdk__none(void **state)
{
	struct rig *r = *state;

	assert_int_equal(device_open(ops, &params, &r->d), NPU_SUCCESS);
	assert_int_equal(device_load(r->d, r->folder.path), NPU_SUCCESS);
	sdk.arm("GetAllModels", NPU_UNKNOWN); /* null */
	assert_int_equal(device_model_count(r->d), 0);
	sdk.arm("GetAllModels", DOUBLE_THROWS);
	assert_int_equal(device_model_count(r->d), 0);
	sdk.arm(NULL, 0);
	assert_int_equal(device_model_count(r->d), 3);
	assert_int_equal(tear_down(r, NPU_SUCCESS), NPU_SUCCESS);
}

static void golden__there_then_throwing__the_bytes_then_none(void **state)
{
	AUTO_BUF struct buf in = BUF_INIT, out = BUF_INIT;
	struct rig *r = *state;
	char path[128];

	snprintf(path, sizeof path, "%s/golden", r->folder.path);
	assert_int_equal(mkdir(path, 0700), 0);
	folder_write(&r->folder, "golden/prefill.in", "in\0put", 6);
	folder_write(&r->folder, "golden/prefill.out", "output", 6);
	assert_int_equal(device_open(ops, &params, &r->d), NPU_SUCCESS);
	assert_int_equal(device_load(r->d, r->folder.path), NPU_SUCCESS);
	device_golden(r->d, "prefill", &in, &out);
	assert_int_equal(in.len, 6);
	assert_memory_equal(in.data, "in\0put", 6);
	assert_string_equal(out.data, "output");
	sdk.arm("GetGoldenOutputByModelName", DOUBLE_NO_MEMORY);
	device_golden(r->d, "prefill", &in, &out);
	assert_int_equal(in.len, 6);
	assert_int_equal(out.len, 0);
	assert_int_equal(tear_down(r, NPU_SUCCESS), NPU_SUCCESS);
}

/* --- a whole generation ----------------------------------------------------------------------- */

#define WORDS     257 /* of the tokenizer that a manifest may name without a file */
#define GENERATED 30

static const char program_json[] =
	"{\"format\":\"npufs-sim-program\",\"version\":\"0.7.6\",\"architecture\":\"llama\","
	"\"llama\":{\"dim\":36,\"hidden_dim\":53,\"n_layers\":2,\"n_heads\":6,\"n_kv_heads\":2,"
	"\"vocab_size\":257,\"max_seq_len\":43,\"max_batch_size\":1,\"ubatch\":19,"
	"\"rope_theta\":10000.0,\"norm_eps\":1e-05,\"tied_embeddings\":false}}";

#define CSRS   "\"csrs\":[\"" CSR_CUR_LEN "\",\"" CSR_PAST_LEN "\"]"
#define LOGITS "\"outputs\":[{\"name\":\"logits\",\"dtype\":\"float32\",\"shape\":[257]}],"
#define TOKENS(n) \
	"\"inputs\":[{\"name\":\"tokens\",\"dtype\":\"int32\",\"shape\":[" #n "]}]," LOGITS

static const char template[] =
	"{\"schema\":\"npufs-manifest-1\",\"kind\":\"llm\",\"description\":\"for tests\","
	"\"calbin_version\":\"0.7.6\",\"compatible\":{\"runtime\":[\"0.7.6\"]},\"batch\":1,"
	"\"context_limit\":43,\"tokenizer\":{\"type\":\"bytes\",\"vocab_size\":257,\"prefix\":[],"
	"\"suffix\":[],\"stop\":[256]},\"defaults\":{\"temperature\":0},"
	"\"example\":{\"prompt\":\"hello\"},\"programs\":["
	"{\"name\":\"prefill\"," TOKENS(19) CSRS "},{\"name\":\"decode\"," TOKENS(1) CSRS
	"},"
	"{\"name\":\"kv_update\",\"inputs\":[],\"outputs\":[{\"name\":\"kv_length\","
	"\"dtype\":\"int32\",\"shape\":[1]}]," CSRS "}]}";

static void make_store(char store[64])
{
	AUTO_BUF struct buf weights = BUF_INIT;
	struct llama_config config = odd_llama;
	struct weights all = { .n = 0 };

	config.vocab_size = WORDS;
	random_llama(&config, 42, &all);
	weights_file(&all, &weights);
	weights_free(&all);
	const struct fake_file files[] = {
		{ "calbin/program.json", program_json, strlen(program_json) },
		{ "calbin/weights.safetensors", weights.data, weights.len },
	};

	fake_store_new(store);
	fake_store_add(store, "small", template, files, ARRAY_SIZE(files));
}

static int32_t likeliest(const float *logits)
{
	int32_t best = 0;

	for (int32_t i = 1; i < WORDS; i++)
		if (logits[i] > logits[best])
			best = i;
	return best;
}

static void generate(struct generation *g, int32_t tokens[GENERATED], float last[WORDS])
{
	static const int32_t prompt[] = { 'h', 'e', 'l', 'l', 'o' };
	struct sequence s;
	const float *logits;

	assert_int_equal(sequence_open(g, &s), NPU_SUCCESS);
	assert_int_equal(sequence_feed(g, &s, prompt, ARRAY_SIZE(prompt), &logits).stage,
		INFER_DONE);
	for (int i = 0; i < GENERATED; i++) {
		tokens[i] = likeliest(logits);
		assert_int_equal(sequence_feed(g, &s, &tokens[i], 1, &logits).stage, INFER_DONE);
	}
	memcpy(last, logits, WORDS * sizeof *last);
	assert_int_equal(sequence_close(g, &s), NPU_SUCCESS);
}

static void generate_on(const struct device_ops *backend, const char *store,
	int32_t tokens[GENERATED], float last[WORDS])
{
	struct fault f = FAULT_NONE;
	struct generation *g;
	struct artifact *a;
	struct device *d;

	assert_int_equal(artifact_verify(store, "small", &a, &f), 0);
	assert_int_equal(device_open(backend, &params, &d), NPU_SUCCESS);
	if (generation_open(d, a->manifest, a, 1, &g, &f))
		fail_msg("%s", f.reason);
	generate(g, tokens, last);
	assert_int_equal(generation_close(g), NPU_SUCCESS);
	device_close(d);
	artifact_free(a);
}

static void generation__greedy_tokens__those_of_the_software_device(void **state)
{
	int32_t got[GENERATED], want[GENERATED], changes = 0;
	float got_last[WORDS], want_last[WORDS];
	char store[64];

	(void)state;
	assert_non_null(ops);
	make_store(store);
	generate_on(&device_sim_ops, store, want, want_last);
	generate_on(ops, store, got, got_last);
	generate_on(ops, store, got, got_last); /* and a second device after the first */
	fake_store_remove(store);
	assert_memory_equal(got, want, sizeof want);
	assert_memory_equal(got_last, want_last, sizeof want_last);
	for (int i = 1; i < GENERATED; i++)
		changes += want[i] != want[i - 1];
	assert_true(changes > 3); /* else it says little */
}

#define RIGGED(test) cmocka_unit_test_setup_teardown(test, rig_up, rig_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		/* in this order: once loaded it stays */
		cmocka_unit_test(load__missing_unsafe_or_no_adapter__refused_with_the_reason),
		cmocka_unit_test(find__calrt__the_table_or_the_loaders_reason),
		cmocka_unit_test(find_strings),
		cmocka_unit_test(table__another_size__none),
		cmocka_unit_test(symbols__of_the_sdk__only_the_contracts),
		RIGGED(run__nothing_goes_wrong__every_call_in_its_order),
		RIGGED(run__each_call_goes_wrong__its_error_and_nothing_left),
		RIGGED(run__code_that_no_table_has__unknown),
		RIGGED(load__no_path_missing_or_bad_folder__errors),
		RIGGED(submit__task__the_call_of_that_kind),
		RIGGED(submit_void__goes_well__as_infer_does),
		RIGGED(submit_void__throws__told_by_status_and_never_waited_for),
		RIGGED(set_parallel__throws__told_by_the_status_after_it),
		RIGGED(reset__void_or_not__verified_by_the_status),
		RIGGED(kv__queries__what_the_device_knows),
		RIGGED(model_info__each_program__as_the_software_devices),
		RIGGED(models__none_from_the_sdk__none),
		RIGGED(golden__there_then_throwing__the_bytes_then_none),
		cmocka_unit_test(generation__greedy_tokens__those_of_the_software_device),
	};
	ssize_t n = readlink("/proc/self/exe", built, sizeof built - 1);

	if (n < 0)
		return 1;
	built[n] = '\0';
	*strrchr(built, '/') = '\0';
	return cmocka_run_group_tests(tests, NULL, NULL);
}
