/* Each JSON object has a table of its members: name, kind, where the value goes. An object is right
 * when every required member of its table is there with the right kind, and the count of members
 * shows no other. */
#include "core/sim/program.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/buf.h"
#include "core/base/json.h"
#include "core/base/mem.h"

#define FORMAT "npufs-sim-program"

enum kind { TEXT, COUNT, REAL, FLAG, ARRAY, OBJECT };

struct member_row {
	const char *name;
	enum kind kind;
	bool optional;
	size_t offset; /* in the struct that is filled */
};

static const enum json_type kind_types[] = {
	[TEXT] = JSON_STRING,
	[COUNT] = JSON_NUMBER,
	[REAL] = JSON_NUMBER,
	[FLAG] = JSON_BOOL,
	[ARRAY] = JSON_ARRAY,
	[OBJECT] = JSON_OBJECT,
};

static bool take_count(const struct json_value *v, uint32_t *ret)
{
	uint64_t n;

	if (json_uint64(v, &n) < 0 || n > UINT32_MAX)
		return false;
	*ret = (uint32_t)n;
	return true;
}

static bool take_member(const struct json_value *v, enum kind kind, void *ret)
{
	if (json_type(v) != kind_types[kind])
		return false;
	switch (kind) {
	case TEXT:
		*(const char **)ret = json_string(v);
		return true;
	case COUNT:
		return take_count(v, ret);
	case REAL:
		*(double *)ret = json_double(v);
		return true;
	case FLAG:
		*(bool *)ret = json_bool(v);
		return true;
	case ARRAY:
	case OBJECT:
		*(const struct json_value **)ret = v;
		return true;
	}
	return false;
}

/* Fill `ret` from an object by its table. */
static bool take_object(const struct json_value *object, const struct member_row *rows, size_t n,
	void *ret)
{
	size_t found = 0;

	if (json_type(object) != JSON_OBJECT)
		return false;
	for (size_t i = 0; i < n; i++) {
		const struct json_value *v = json_member(object, rows[i].name);

		if (!v && rows[i].optional)
			continue;
		if (!v || !take_member(v, rows[i].kind, (char *)ret + rows[i].offset))
			return false;
		found++;
	}
	return found == json_count(object);
}

/* --- llama ------------------------------------------------------------------------------------ */

#define LLAMA(kind, field) \
	{ \
#field, kind, false, offsetof(struct llama_config, field) \
	}

static const struct member_row llama_rows[] = {
	LLAMA(COUNT, dim),
	LLAMA(COUNT, hidden_dim),
	LLAMA(COUNT, n_layers),
	LLAMA(COUNT, n_heads),
	LLAMA(COUNT, n_kv_heads),
	LLAMA(COUNT, vocab_size),
	LLAMA(COUNT, max_seq_len),
	LLAMA(COUNT, max_batch_size),
	LLAMA(COUNT, ubatch),
	LLAMA(REAL, rope_theta),
	LLAMA(REAL, norm_eps),
	LLAMA(FLAG, tied_embeddings),
};

static enum npu_error take_llama(const struct json_value *v, struct sim_program *p)
{
	p->architecture = SIM_LLAMA;
	if (!v || !take_object(v, llama_rows, ARRAY_SIZE(llama_rows), &p->llama))
		return NPU_INVALID_CALBIN;
	return llama_check(&p->llama);
}

/* --- graphs ----------------------------------------------------------------------------------- */

struct tensor_members {
	const char *name, *dtype;
	const struct json_value *shape;
};

static const struct member_row tensor_rows[] = {
	{ "name", TEXT, false, offsetof(struct tensor_members, name) },
	{ "dtype", TEXT, false, offsetof(struct tensor_members, dtype) },
	{ "shape", ARRAY, false, offsetof(struct tensor_members, shape) },
};

static const struct member_row node_rows[] = {
	{ "op", TEXT, false, offsetof(struct sim_node, op) },
	{ "input", TEXT, false, offsetof(struct sim_node, input) },
	{ "output", TEXT, false, offsetof(struct sim_node, output) },
	{ "other", TEXT, true, offsetof(struct sim_node, other) },
	{ "weight", TEXT, true, offsetof(struct sim_node, weight) },
	{ "bias", TEXT, true, offsetof(struct sim_node, bias) },
	{ "eps", REAL, true, offsetof(struct sim_node, eps) },
};

struct graph_members {
	const char *name;
	const struct json_value *inputs, *outputs, *nodes;
};

static const struct member_row graph_rows[] = {
	{ "name", TEXT, false, offsetof(struct graph_members, name) },
	{ "inputs", ARRAY, false, offsetof(struct graph_members, inputs) },
	{ "outputs", ARRAY, false, offsetof(struct graph_members, outputs) },
	{ "nodes", ARRAY, false, offsetof(struct graph_members, nodes) },
};

static bool name_valid(const char *name, size_t max)
{
	size_t n = strlen(name);

	return n >= 1 && n <= max;
}

static bool take_shape(const struct json_value *shape, struct tensor_spec *t)
{
	if (json_count(shape) < 1 || json_count(shape) > TENSOR_MAX_RANK)
		return false;
	for (const struct json_value *d = json_first(shape); d; d = json_next(d)) {
		uint32_t dim;

		if (json_type(d) != JSON_NUMBER || !take_count(d, &dim) || dim < 1)
			return false;
		t->dims[t->rank++] = dim;
	}
	return tensor_bytes(t) >= 0;
}

static enum npu_error take_tensor(const struct json_value *v, struct tensor_spec *ret)
{
	struct tensor_members m = { 0 };

	if (!take_object(v, tensor_rows, ARRAY_SIZE(tensor_rows), &m) ||
		!name_valid(m.name, TENSOR_NAME_MAX))
		return NPU_INVALID_CALBIN;
	strcpy(ret->name, m.name);
	ret->dtype = dtype_from_name(m.dtype);
	if (ret->dtype != DTYPE_FLOAT32)
		return NPU_INVALID_DATA_TYPE;
	return take_shape(m.shape, ret) ? NPU_SUCCESS : NPU_INVALID_DATA_SHAPE;
}

static enum npu_error take_tensors(const struct json_value *list, struct tensor_spec **ret,
	size_t *ret_n)
{
	size_t n = json_count(list);
	struct tensor_spec *t;

	if (n < 1 || n > SIM_MAX_TENSORS)
		return NPU_INVALID_CALBIN;
	t = calloc(n, sizeof(*t));
	if (!t)
		return NPU_MEMORY_ALLOCATION;
	*ret = t;
	*ret_n = n;
	for (const struct json_value *v = json_first(list); v; v = json_next(v)) {
		enum npu_error code = take_tensor(v, t++);

		if (code != NPU_SUCCESS)
			return code;
	}
	return NPU_SUCCESS;
}

static enum npu_error take_nodes(const struct json_value *list, struct sim_graph_desc *g)
{
	size_t n = json_count(list);

	if (n < 1 || n > SIM_MAX_NODES)
		return NPU_INVALID_CALBIN;
	g->nodes = calloc(n, sizeof(*g->nodes));
	if (!g->nodes)
		return NPU_MEMORY_ALLOCATION;
	for (const struct json_value *v = json_first(list); v; v = json_next(v))
		if (!take_object(v, node_rows, ARRAY_SIZE(node_rows), &g->nodes[g->n_nodes++]))
			return NPU_INVALID_CALBIN;
	return NPU_SUCCESS;
}

static enum npu_error take_graph(const struct json_value *v, struct sim_graph_desc *ret)
{
	struct graph_members m = { 0 };
	enum npu_error code;

	if (!take_object(v, graph_rows, ARRAY_SIZE(graph_rows), &m) ||
		!name_valid(m.name, TENSOR_NAME_MAX))
		return NPU_INVALID_CALBIN;
	ret->name = m.name;
	code = take_tensors(m.inputs, &ret->inputs, &ret->n_inputs);
	if (code == NPU_SUCCESS)
		code = take_tensors(m.outputs, &ret->outputs, &ret->n_outputs);
	if (code == NPU_SUCCESS)
		code = take_nodes(m.nodes, ret);
	return code;
}

static enum npu_error take_graphs(const struct json_value *list, struct sim_program *p)
{
	enum npu_error code = NPU_SUCCESS;

	p->architecture = SIM_GRAPH;
	if (!list || json_count(list) < 1 || json_count(list) > SIM_MAX_GRAPHS)
		return NPU_INVALID_CALBIN;
	p->graphs = calloc(json_count(list), sizeof(*p->graphs));
	if (!p->graphs)
		return NPU_MEMORY_ALLOCATION;
	for (const struct json_value *v = json_first(list); v && code == NPU_SUCCESS;
		v = json_next(v)) {
		for (size_t i = 0; i < p->n_graphs; i++)
			if (json_type(v) == JSON_OBJECT && json_member(v, "name") &&
				json_string(json_member(v, "name")) &&
				strcmp(json_string(json_member(v, "name")), p->graphs[i].name) == 0)
				return NPU_INVALID_CALBIN;
		code = take_graph(v, &p->graphs[p->n_graphs++]);
	}
	return code;
}

/* --- the whole -------------------------------------------------------------------------------- */

struct root_members {
	const char *format, *version, *architecture;
	const struct json_value *llama, *graphs;
};

static const struct member_row root_rows[] = {
	{ "format", TEXT, false, offsetof(struct root_members, format) },
	{ "version", TEXT, false, offsetof(struct root_members, version) },
	{ "architecture", TEXT, false, offsetof(struct root_members, architecture) },
	{ "llama", OBJECT, true, offsetof(struct root_members, llama) },
	{ "graphs", ARRAY, true, offsetof(struct root_members, graphs) },
};

/* Three numbers; 0.7 is this runtime's format. */
static enum npu_error check_version(const char *version, char ret[static 16])
{
	unsigned major, minor, patch;
	char again[40];

	if (strlen(version) > 15 || sscanf(version, "%5u.%5u.%5u", &major, &minor, &patch) != 3)
		return NPU_INVALID_CALBIN;
	snprintf(again, sizeof(again), "%u.%u.%u", major, minor, patch);
	if (strcmp(again, version) != 0)
		return NPU_INVALID_CALBIN;
	if (major > 0 || minor > 7)
		return NPU_REQUIRE_NEWER_RT;
	strcpy(ret, version);
	return minor == 7 ? NPU_SUCCESS : NPU_INVALID_CALBIN;
}

static enum npu_error take_root(const struct json_value *root, struct sim_program *p)
{
	struct root_members m = { 0 };
	const struct json_value *version;
	enum npu_error code;

	/* The version first: a later format may have other members. */
	version = json_type(root) == JSON_OBJECT ? json_member(root, "version") : NULL;
	if (!version || !json_string(version))
		return NPU_INVALID_CALBIN;
	code = check_version(json_string(version), p->version);
	if (code != NPU_SUCCESS)
		return code;
	if (!take_object(root, root_rows, ARRAY_SIZE(root_rows), &m) ||
		strcmp(m.format, FORMAT) != 0)
		return NPU_INVALID_CALBIN;
	if (strcmp(m.architecture, "llama") == 0 && !m.graphs)
		return take_llama(m.llama, p);
	if (strcmp(m.architecture, "graph") == 0 && !m.llama)
		return take_graphs(m.graphs, p);
	return NPU_INVALID_CALBIN;
}

enum npu_error sim_program_parse(const char *text, size_t len, struct sim_program **ret)
{
	struct sim_program *p = calloc(1, sizeof(*p));
	struct json_value *document;
	enum npu_error code;

	if (!p)
		return NPU_MEMORY_ALLOCATION;
	if (json_parse(text, len, &document, NULL) < 0) {
		free(p);
		return NPU_INVALID_CALBIN;
	}
	p->document = document;
	code = take_root(document, p);
	if (code != NPU_SUCCESS) {
		sim_program_free(p);
		return code;
	}
	*ret = p;
	return NPU_SUCCESS;
}

static enum npu_error read_text(int fd, struct buf *text)
{
	struct stat st;
	char *room;
	ssize_t got;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return NPU_FILE_NOT_FOUND;
	if (st.st_size > SIM_PROGRAM_MAX_BYTES)
		return NPU_INVALID_CALBIN;
	room = buf_room(text, (size_t)st.st_size + 1);
	if (!room)
		return NPU_MEMORY_ALLOCATION;
	do {
		got = read(fd, room + text->len, (size_t)st.st_size - text->len);
		if (got > 0)
			text->len += (size_t)got;
	} while (got > 0);
	return got == 0 ? NPU_SUCCESS : NPU_BROKEN_FILE;
}

enum npu_error sim_program_load(const char *folder, struct sim_program **ret)
{
	AUTO_BUF struct buf path = BUF_INIT, text = BUF_INIT;
	enum npu_error code;
	int fd;

	buf_printf(&path, "%s/" SIM_PROGRAM_FILE, folder);
	if (buf_error(&path) < 0)
		return NPU_MEMORY_ALLOCATION;
	fd = open(path.data, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return NPU_FILE_NOT_FOUND;
	code = read_text(fd, &text);
	close(fd);
	return code == NPU_SUCCESS ? sim_program_parse(buf_text(&text), text.len, ret) : code;
}

void sim_program_free(struct sim_program *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->n_graphs; i++) {
		free(p->graphs[i].inputs);
		free(p->graphs[i].outputs);
		free(p->graphs[i].nodes);
	}
	free(p->graphs);
	json_free(p->document);
	free(p);
}
