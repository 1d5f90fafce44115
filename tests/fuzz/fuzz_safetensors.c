/* Any bytes as a weights file: refused, or every tensor readable to its last byte. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "core/sim/matrix.h"
#include "core/sim/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const names[] = { "a", "b", "w", "w_scale" };
	struct safetensors *s;
	struct matrix m;

	if (safetensors_parse(data, size, &s) != NPU_SUCCESS)
		return 0;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const struct safetensors_view *v = safetensors_find(s, names[i]);
		volatile unsigned char sum = 0;

		for (size_t k = 0; v && k < v->bytes; k++)
			sum = (unsigned char)(sum + ((const unsigned char *)v->data)[k]);
	}
	matrix_load(s, "w", 2, 3, &m);
	matrix_done(&m);
	safetensors_close(s);
	return 0;
}
