/* Any bytes as program.json: refused, or a description whose graphs can be built or are refused. */
#include <stddef.h>
#include <stdint.h>

#include "core/sim/graph.h"
#include "core/sim/program.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int64_t total_elements(const struct sim_graph_desc *g)
{
	int64_t total = 0;

	for (size_t i = 0; i < g->n_inputs; i++)
		if (__builtin_add_overflow(total, tensor_elements(&g->inputs[i]), &total))
			return INT64_MAX;
	return total;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char no_weights[] = "\2\0\0\0\0\0\0\0{}";
	struct safetensors *weights;
	struct sim_program *p;
	struct sim_graph *g;

	if (sim_program_parse((const char *)data, size, &p) != NPU_SUCCESS)
		return 0;
	if (safetensors_parse(no_weights, sizeof(no_weights) - 1, &weights) == NPU_SUCCESS) {
		/* An artifact may be as large as it likes; a fuzzer's memory is not. */
		for (size_t i = 0; i < p->n_graphs; i++)
			if (total_elements(&p->graphs[i]) < 4096 && p->graphs[i].n_nodes < 64 &&
				sim_graph_new(&p->graphs[i], weights, kernels_at(0), &g) ==
					NPU_SUCCESS)
				sim_graph_free(g);
		safetensors_close(weights);
	}
	sim_program_free(p);
	return 0;
}
