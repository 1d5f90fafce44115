/* Loading a calbin folder, and the two kinds of programs that may be in one. Everything else is
 * device_soft.h's; the arithmetic is core/sim's. */
#include "core/device_sim.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/device_soft.h"
#include "core/sim/graph.h"
#include "core/sim/llama.h"
#include "core/sim/program.h"

#define GOLDEN_MAX_BYTES (1L << 30)

struct sim {
	struct sim_program *program;
	struct llama *llama;
	struct sim_graph **graphs; /* as many as the program has */
};

/* --- llama ------------------------------------------------------------------------------------ */

static enum npu_error forward(void *impl, void *state, const int32_t *tokens, uint32_t n,
	uint32_t past, float *logits)
{
	struct sim *sim = impl;

	return llama_forward(sim->llama, state, tokens, n, past, logits);
}

static void *state_new(void *impl)
{
	struct sim *sim = impl;

	return llama_kv_new(sim->llama);
}

static void state_free(void *state)
{
	llama_kv_free(state);
}

/* Threads meet several times a layer. With less than this to multiply in a layer each, they wait
 * for one another longer than they compute, and much longer where cores are shared. */
#define MACS_PER_THREAD (1u << 19)

static unsigned useful_threads(const struct llama_config *c, unsigned threads)
{
	uint64_t macs = (uint64_t)c->dim * (4ull * c->dim + 3ull * c->hidden_dim);
	uint64_t most = 1 + macs / MACS_PER_THREAD;

	return threads < most ? threads : (unsigned)most;
}

static enum npu_error load_llama(struct calbin *c, struct sim *sim,
	const struct safetensors *weights)
{
	const struct llama_config *config = &sim->program->llama;
	const struct soft_llm llm = {
		.ubatch = config->ubatch,
		.vocab_size = config->vocab_size,
		.max_seq_len = config->max_seq_len,
		.forward = forward,
		.state_new = state_new,
		.state_free = state_free,
	};
	enum npu_error code;

	code = llama_new(config, weights, kernels_at(0),
		useful_threads(config, soft_params(c)->threads), &sim->llama);
	return code == NPU_SUCCESS ? soft_add_llm(c, &llm) : code;
}

/* --- graphs ----------------------------------------------------------------------------------- */

static enum npu_error run_graph(const struct soft_run *r)
{
	return sim_graph_run(soft_program_of(r->model)->impl, r->inputs, r->outputs);
}

static enum npu_error load_graph(struct calbin *c, const struct sim_graph_desc *desc,
	const struct safetensors *weights, struct sim_graph **graph)
{
	enum npu_error code = sim_graph_new(desc, weights, kernels_at(0), graph);
	const struct soft_program program = {
		.info = { .name = desc->name,
			.type = "graph",
			.inputs = desc->inputs,
			.outputs = desc->outputs,
			.n_inputs = desc->n_inputs,
			.n_outputs = desc->n_outputs },
		.run = run_graph,
		.impl = *graph,
	};

	return code == NPU_SUCCESS ? soft_add_program(c, &program) : code;
}

static enum npu_error load_graphs(struct calbin *c, struct sim *sim,
	const struct safetensors *weights)
{
	enum npu_error code = NPU_SUCCESS;

	sim->graphs = calloc(sim->program->n_graphs, sizeof(struct sim_graph *));
	if (!sim->graphs)
		return NPU_MEMORY_ALLOCATION;
	for (size_t i = 0; code == NPU_SUCCESS && i < sim->program->n_graphs; i++)
		code = load_graph(c, &sim->program->graphs[i], weights, &sim->graphs[i]);
	return code;
}

/* --- calbin ----------------------------------------------------------------------------------- */

static enum npu_error open_weights(const char *path, struct safetensors **ret)
{
	AUTO_BUF struct buf file = BUF_INIT;

	buf_printf(&file, "%s/" SIM_WEIGHTS_FILE, path);
	return buf_error(&file) < 0 ? NPU_MEMORY_ALLOCATION : safetensors_open(file.data, ret);
}

static enum npu_error load(struct calbin *c, const char *path)
{
	struct safetensors *weights;
	enum npu_error code;
	struct sim *sim;

	if (!path)
		return NPU_FILE_NOT_FOUND;
	sim = calloc(1, sizeof(*sim));
	if (!sim)
		return NPU_MEMORY_ALLOCATION;
	soft_set_impl(c, sim);
	code = sim_program_load(path, &sim->program);
	if (code != NPU_SUCCESS)
		return code;
	soft_set_version(c, sim->program->version);
	code = open_weights(path, &weights);
	if (code != NPU_SUCCESS)
		return code;
	code = sim->program->architecture == SIM_LLAMA ? load_llama(c, sim, weights)
						       : load_graphs(c, sim, weights);
	safetensors_close(weights);
	return code;
}

static void unload(void *impl)
{
	struct sim *sim = impl;

	for (size_t i = 0; sim->graphs && i < sim->program->n_graphs; i++)
		sim_graph_free(sim->graphs[i]);
	free(sim->graphs);
	llama_free(sim->llama);
	sim_program_free(sim->program);
	free(sim);
}

/* --- golden data ------------------------------------------------------------------------------ */

static void read_whole(int fd, struct buf *ret)
{
	struct stat st;
	ssize_t got = 0;
	size_t want;
	char *room;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > GOLDEN_MAX_BYTES)
		return;
	want = (size_t)st.st_size;
	while (ret->len < want && (room = buf_room(ret, want - ret->len))) {
		got = read(fd, room, want - ret->len);
		if (got <= 0)
			break;
		ret->len += (size_t)got;
	}
	if (ret->len < want)
		buf_reset(ret);
}

/* Only a program's name becomes part of a path, and only when it is one of this calbin's. */
static void read_golden(struct calbin *c, const char *model, const char *suffix, struct buf *ret)
{
	AUTO_BUF struct buf file = BUF_INIT;
	int fd;

	buf_reset(ret);
	if (!soft_get_model_by_name(c, model) || strchr(model, '/'))
		return;
	buf_printf(&file, "%s/golden/%s%s", soft_folder(c), model, suffix);
	if (buf_error(&file) < 0)
		return;
	fd = open(file.data, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return;
	read_whole(fd, ret);
	close(fd);
}

static void get_golden_input(struct calbin *c, const char *model, struct buf *ret)
{
	read_golden(c, model, ".in", ret);
}

static void get_golden_output(struct calbin *c, const char *model, struct buf *ret)
{
	read_golden(c, model, ".out", ret);
}

static const struct soft_backend backend = {
	.info = { .runtime = "0.7.6",
		.driver = "sim-1",
		.firmware = "sim-1",
		.name = "npufs software device" },
	.load = load,
	.unload = unload,
};

static enum npu_error create_vdevice(const struct device_params *p, struct vdevice **ret)
{
	return soft_create_vdevice(&backend, p, ret);
}

const struct device_ops device_sim_ops = {
	.name = "sim",
	.summary = "a software NPU in this process: LLaMA-architecture models and operator graphs, "
		   "float and int8 weights",
	.create_vdevice = create_vdevice,
	.get_golden_input = get_golden_input,
	.get_golden_output = get_golden_output,
	SOFT_DEVICE_OPS,
};
