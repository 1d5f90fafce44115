/* What a calbin folder of the software NPU contains: its program.json, parsed and checked. (struct
 * program elsewhere is a configured program of any device; this is the software device's own
 * description.)
 *
 *   FOLDER/program.json          this description
 *   FOLDER/weights.safetensors   the weights (safetensors.h)
 *   FOLDER/golden/NAME.in, .out  optional: bytes of all inputs, of all outputs of a program
 *
 * program.json, every member required and no other allowed:
 *
 *   { "format": "npufs-sim-program",
 *     "version": "0.7.6",              any 0.7.x; later ones need a newer runtime
 *     "architecture": "llama",
 *     "llama": {
 *       "dim": 64, "hidden_dim": 192, "n_layers": 4, "n_heads": 4, "n_kv_heads": 4,
 *       "vocab_size": 259, "max_seq_len": 64,
 *       "max_batch_size": 1,           1 is the only one
 *       "ubatch": 16,                  tokens a prefill takes at most; at most max_seq_len
 *       "rope_theta": 10000.0, "norm_eps": 1e-05, "tied_embeddings": true } }
 *
 * It gives the programs prefill (tokens int32[ubatch]), decode (tokens int32[1]), both with output
 * logits float32[vocab_size], and kv_update (output kv_length int32[1]). Weights: llama.h.
 *
 *   { "format": "npufs-sim-program", "version": "0.7.6",
 *     "architecture": "graph",
 *     "graphs": [ {
 *       "name": "mlp",
 *       "inputs":  [ { "name": "x", "dtype": "float32", "shape": [1, 2] } ],
 *       "outputs": [ { "name": "y", "dtype": "float32", "shape": [1, 1] } ],
 *       "nodes": [
 *         { "op": "linear", "input": "x", "weight": "fc1.weight", "bias": "fc1.bias",
 *           "output": "h" },
 *         { "op": "relu", "input": "h", "output": "a" }, ... ] } ] }
 *
 * gives one program a graph. Nodes run in order; a node reads graph inputs and earlier outputs;
 * graph.h lists the operators with the members each takes. Every value is float32. */
#ifndef NPUFS_CORE_SIM_PROGRAM_H
#define NPUFS_CORE_SIM_PROGRAM_H

#include <stddef.h>

#include "core/base/npu_error.h"
#include "core/sim/llama.h"
#include "core/tensor.h"

#define SIM_PROGRAM_FILE      "program.json"
#define SIM_WEIGHTS_FILE      "weights.safetensors"
#define SIM_PROGRAM_MAX_BYTES (1u << 20)
#define SIM_MAX_GRAPHS        64
#define SIM_MAX_TENSORS       64
#define SIM_MAX_NODES         4096
#define SIM_NAME_MAX          127 /* of a weight */

enum sim_architecture { SIM_LLAMA, SIM_GRAPH };

struct sim_node {
	/* Borrowed from the program; NULL where the node has none. */
	const char *op;
	const char *input, *other, *weight, *bias, *output;
	double eps; /* 0 where it has none */
};

struct sim_graph_desc {
	const char *name;
	struct tensor_spec *inputs, *outputs;
	size_t n_inputs, n_outputs;
	struct sim_node *nodes;
	size_t n_nodes;
};

struct sim_program {
	char version[16];
	enum sim_architecture architecture;
	struct llama_config llama;     /* of SIM_LLAMA; passed llama_check() */
	struct sim_graph_desc *graphs; /* of SIM_GRAPH */
	size_t n_graphs;
	void *document; /* the parsed JSON, which owns the strings */
};

/* NPU_FILE_NOT_FOUND, NPU_INVALID_CALBIN, NPU_REQUIRE_NEWER_RT (a version after 0.7),
 * NPU_INVALID_DATA_TYPE (a graph tensor that is not float32). `folder` is a path. */
enum npu_error sim_program_load(const char *folder, struct sim_program **ret);
enum npu_error sim_program_parse(const char *text, size_t len, struct sim_program **ret);
void sim_program_free(struct sim_program *p); /* NULL is fine */

#endif
