/* The table against section 9 of the device contract, copied by hand: number, name, retry,
 * contaminates. Where the contract names two reaches, both are given and the wider one, the second,
 * is due. */
#include "core/base/npu_error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>

static const struct {
	int value;
	const char *name;
	enum npu_retry retry;
	enum npu_contaminates taints;
} contract[] = {
	{ 0, "Success", NPU_RETRY_NO, NPU_TAINTS_NOTHING },
	{ 1, "MemoryAllocation", NPU_RETRY_CONDITIONAL, NPU_TAINTS_GENERATION },
	/* job/generation */
	{ 2, "MemoryAlreadyRegistered", NPU_RETRY_NO, NPU_TAINTS_GENERATION },
	{ 3, "Assert", NPU_RETRY_NO, NPU_TAINTS_UNKNOWN },
	{ 4, "InvalidValue", NPU_RETRY_NO, NPU_TAINTS_JOB },
	{ 5, "InvalidConfiguration", NPU_RETRY_NO, NPU_TAINTS_GENERATION },
	{ 6, "NoDevice", NPU_RETRY_CONDITIONAL, NPU_TAINTS_DEVICE },
	{ 7, "AlreadyConfigured", NPU_RETRY_NO, NPU_TAINTS_GENERATION },
	{ 8, "IncompatibleDriver", NPU_RETRY_NO, NPU_TAINTS_INSTANCE },
	{ 9, "RequireNewerRT", NPU_RETRY_NO, NPU_TAINTS_INSTANCE },
	{ 10, "FileNotFound", NPU_RETRY_NO, NPU_TAINTS_ARTIFACT },
	{ 11, "BrokenFile", NPU_RETRY_NO, NPU_TAINTS_ARTIFACT },
	{ 12, "InvalidELF", NPU_RETRY_NO, NPU_TAINTS_ARTIFACT },
	{ 13, "Timeout", NPU_RETRY_CONDITIONAL, NPU_TAINTS_GENERATION }, /* job,
	perhaps generation */
	{ 14, "OutOfRange", NPU_RETRY_NO, NPU_TAINTS_JOB },
	{ 15, "NotExpected", NPU_RETRY_NO, NPU_TAINTS_UNKNOWN },
	{ 16, "MissConfiguration", NPU_RETRY_NO, NPU_TAINTS_GENERATION },
	{ 17, "DeviceBusy", NPU_RETRY_BOUNDED, NPU_TAINTS_JOB }, /* job/queue */
	{ 18, "DeviceUnavailable", NPU_RETRY_CONDITIONAL, NPU_TAINTS_DEVICE },
	{ 19, "InvalidCalbin", NPU_RETRY_NO, NPU_TAINTS_ARTIFACT },
	{ 20, "Unknown", NPU_RETRY_NO, NPU_TAINTS_UNKNOWN },
	{ 21, "InvalidDataType", NPU_RETRY_NO, NPU_TAINTS_ARTIFACT },  /* artifact/job */
	{ 22, "InvalidDataShape", NPU_RETRY_NO, NPU_TAINTS_ARTIFACT }, /* artifact/job */
	{ 23, "InvalidLibDep", NPU_RETRY_NO, NPU_TAINTS_INSTANCE },    /* instance/artifact */
	{ 24, "DeviceMapBroken", NPU_RETRY_NO, NPU_TAINTS_DEVICE },
	{ 25, "FailedSoftReset", NPU_RETRY_NO, NPU_TAINTS_DEVICE },
	{ 26, "FailedConnectServer", NPU_RETRY_CONDITIONAL, NPU_TAINTS_INSTANCE },
	{ 27, "DeviceUnsupport", NPU_RETRY_NO, NPU_TAINTS_FEATURE },
	{ 28, "DeviceCrash", NPU_RETRY_NO, NPU_TAINTS_DEVICE }, /* device/generation */
	{ 29, "WrongDirection", NPU_RETRY_NO, NPU_TAINTS_JOB }, /* job/programming */
};

static void npu_error_row__every_code__as_in_the_contract(void **state)
{
	(void)state;
	assert_int_equal(sizeof contract / sizeof contract[0], 30);
	assert_int_equal(NPU_ERROR_COUNT, 30);
	for (int i = 0; i < 30; i++) {
		const struct npu_error_row *row = npu_error_row((enum npu_error)i);

		assert_int_equal(contract[i].value, i);
		assert_string_equal(row->name, contract[i].name);
		assert_int_equal(row->retry, contract[i].retry);
		assert_int_equal(row->taints, contract[i].taints);
	}
}

static void npu_error_row__named_codes__their_errno(void **state)
{
	(void)state;
	assert_int_equal(npu_error_row(NPU_SUCCESS)->err, 0);
	assert_int_equal(npu_error_row(NPU_MEMORY_ALLOCATION)->err, -ENOMEM);
	assert_int_equal(npu_error_row(NPU_INVALID_VALUE)->err, -EINVAL);
	assert_int_equal(npu_error_row(NPU_NO_DEVICE)->err, -ENODEV);
	assert_int_equal(npu_error_row(NPU_FILE_NOT_FOUND)->err, -ENOENT);
	assert_int_equal(npu_error_row(NPU_BROKEN_FILE)->err, -EBADMSG);
	assert_int_equal(npu_error_row(NPU_TIMEOUT)->err, -ETIMEDOUT);
	assert_int_equal(npu_error_row(NPU_DEVICE_BUSY)->err, -EBUSY);
	assert_int_equal(npu_error_row(NPU_DEVICE_UNSUPPORT)->err, -EOPNOTSUPP);
	assert_int_equal(npu_error_row(NPU_DEVICE_CRASH)->err, -EIO);
}

static void npu_error_row__failures__tell_one_line_each(void **state)
{
	(void)state;
	for (int i = 1; i < NPU_ERROR_COUNT; i++) {
		const struct npu_error_row *row = npu_error_row((enum npu_error)i);

		assert_true(row->err < 0);
		assert_int_not_equal(row->err, -EAGAIN); /* a reader would ask again for ever */
		assert_true(strlen(row->message) > 0 && strlen(row->message) < 100);
		assert_true(strlen(row->action) > 0 && strlen(row->action) < 160);
		assert_null(strpbrk(row->message, "\n/"));
		assert_null(strchr(row->action, '\n'));
	}
}

static void npu_error_row__outside_the_table__is_unknown(void **state)
{
	(void)state;
	assert_string_equal(npu_error_row((enum npu_error)30)->name, "Unknown");
	assert_string_equal(npu_error_row((enum npu_error)1000)->name, "Unknown");
	assert_string_equal(npu_error_row((enum npu_error) - 1)->name, "Unknown");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(npu_error_row__every_code__as_in_the_contract),
		cmocka_unit_test(npu_error_row__named_codes__their_errno),
		cmocka_unit_test(npu_error_row__failures__tell_one_line_each),
		cmocka_unit_test(npu_error_row__outside_the_table__is_unknown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
