/* Any bytes as a .npy file: refused with a place in it, or a tensor whose data end the file and that
 * is written again to a file which reads as the same. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/utf8.h"
#include "core/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition) \
	do { \
		if (!(condition)) \
			abort(); \
	} while (0)

static void check_written(const struct tensor_spec *t, const uint8_t *values)
{
	AUTO_BUF struct buf out = BUF_INIT;
	struct tensor_spec again;
	size_t at;

	npy_write(t, values, &out);
	CHECK(npy_parse(out.data, out.len, &again, &at, NULL) == 0);
	CHECK(again.dtype == t->dtype && tensor_same_shape(&again, t) && at % 64 == 0);
	CHECK(memcmp(out.data + at, values, out.len - at) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fault f = FAULT_NONE;
	struct tensor_spec t;
	uint8_t *bytes = malloc(size + !size); /* a block of its own: a byte too far is seen */
	size_t at;
	int err;

	CHECK(bytes);
	if (size)
		memcpy(bytes, data, size);
	err = npy_parse(bytes, size, &t, &at, &f);
	CHECK(err == f.err);
	if (err) {
		CHECK(f.reason[0] && f.action[0] && f.offset >= 0 && (size_t)f.offset <= size);
		CHECK(utf8_valid_prefix(f.reason, sizeof f.reason) == sizeof f.reason);
	} else {
		CHECK(tensor_bytes(&t) >= 0 && at + (size_t)tensor_bytes(&t) == size);
		check_written(&t, bytes + at);
	}
	free(bytes);
	return 0;
}
