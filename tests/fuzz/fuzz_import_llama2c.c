/* Any bytes as weights. What is taken is converted, and its golden run computed where that is
 * quick. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/artifact/import_golden.h"
#include "core/artifact/import_llama2c.h"
#include "core/artifact/manifest.h"
#include "core/sim/program.h"
#include "core/sim/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok)
{
	if (!ok)
		abort();
}

static void convert(const struct llama2c_weights *w)
{
	AUTO_BUF struct buf weights = BUF_INIT, program = BUF_INIT, template = BUF_INIT,
			    in = BUF_INIT, out = BUF_INIT;
	struct safetensors *s;
	struct sim_program *p;
	struct manifest *m;
	uint32_t valid = 1;
	int err;

	check(import_llama2c_safetensors(w, &weights) == 0);
	check(safetensors_parse(weights.data, weights.len, &s) == NPU_SUCCESS);
	check(safetensors_find(s, "model.norm.weight") != NULL);
	safetensors_close(s);
	check(import_llama2c_program(w, &program) == 0);
	check(sim_program_parse(program.data, program.len, &p) == NPU_SUCCESS);
	sim_program_free(p);
	err = import_golden(w, &in, &out, &valid);
	check(err == 0 || err == -EDOM);
	check(err || (out.len == w->vocab_size * sizeof(float) && valid <= w->ubatch));
	check(import_llama2c_template(w, valid, &template) == 0);
	if (w->vocab_size >= 259) {
		check(manifest_parse(template.data, template.len, false, &m, NULL) == 0);
		manifest_free(m);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fault f = FAULT_NONE;
	struct llama2c_weights w;
	float *aligned = malloc(size ? size : 1);
	int err;

	if (!aligned)
		return 0;
	if (size)
		memcpy(aligned, data, size);
	err = import_llama2c_parse(aligned, size, &w, &f);
	check(err ? f.err == err && f.reason[0] : 1);
	if (!err)
		convert(&w);
	free(aligned);
	return 0;
}
