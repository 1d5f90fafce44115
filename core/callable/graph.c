/* A packet names its callable by address and length, so a replay needs neither the cache's entries nor
 * the device's table to be up to date: the consumer loads on first use. Blocks live until the close,
 * and the close destroys the graphs first: no packet outlives what it refers to. */
#include "core/callable/graph.h"

#include <errno.h>
#include <inttypes.h>

#include "core/base/mem.h"
#include "core/callable/cache_impl.h"

/* --- capture ---------------------------------------------------------------------------------- */

static struct callable_graph *graph_new(struct callable_cache *c, uint32_t most)
{
	struct callable_graph *g = calloc(1, sizeof *g);

	if (!g)
		return NULL;
	g->packets = calloc(most, sizeof *g->packets);
	if (!g->packets) {
		free(g);
		return NULL;
	}
	g->cache = c;
	g->most = most;
	return g;
}

static int check_begin(const struct callable_cache *c, enum capture_mode mode, uint32_t most,
	struct fault *f)
{
	int err;

	if (mode != CAPTURE_GLOBAL && mode != CAPTURE_THREAD_LOCAL)
		return fault_at(f, -EINVAL, "mode", -1, "use one of the two modes of a capture",
			"mode %d is not of a capture", (int)mode);
	if (!most || most > CALLABLE_GRAPH_MAX)
		return fault_at(f, -EINVAL, "launches", -1, "capture fewer",
			"%" PRIu32 " is not in 1..%d", most, CALLABLE_GRAPH_MAX);
	err = cache_check_open(c, f);
	if (!err && c->capturing)
		return fault_set(f, -EBADFD, "end the other capture first", "a capture is on");
	return err;
}

int callable_graph_begin(struct callable_cache *c, enum capture_mode mode, uint32_t most,
	struct fault *f)
{
	struct callable_graph *g;
	enum npu_error code;
	int err = check_begin(c, mode, most, f);

	if (err)
		return err;
	g = graph_new(c, most);
	if (!g)
		return fault_set(f, -ENOMEM, "try again later", "no memory for a graph");
	code = memory_begin_capture(&c->memory, mode);
	if (code != NPU_SUCCESS) {
		callable_graph_free(g);
		return cache_device_failed(c, code, "beginning a capture", f);
	}
	c->capturing = g;
	return 0;
}

int graph_add(struct callable_graph *g, const struct packet *p, struct fault *f)
{
	if (g->n == g->most)
		return fault_at(f, -ENOSPC, "launches", -1, "begin the capture with room for more",
			"the graph has its %" PRIu32 " launches", g->most);
	g->packets[g->n++] = *p;
	return 0;
}

int callable_graph_end(struct callable_cache *c, struct callable_graph **ret, struct fault *f)
{
	int err = cache_check_open(c, f);
	enum npu_error code;

	if (err)
		return err;
	if (!c->capturing)
		return fault_set(f, -EBADFD, "begin one first", "no capture is on");
	code = memory_end_capture(&c->memory);
	if (code != NPU_SUCCESS)
		return cache_device_failed(c, code, "ending a capture", f);
	*ret = take_ptr(c->capturing);
	(*ret)->next = c->graphs;
	c->graphs = *ret;
	return 0;
}

void callable_graph_abandon(struct callable_cache *c)
{
	struct callable_graph *g = NULL;

	if (!c->capturing)
		return;
	if (callable_graph_end(c, &g, NULL) == 0)
		callable_graph_free(g);
	else
		c->poisoned = true;
}

/* --- replay ----------------------------------------------------------------------------------- */

static int check_replay(const struct callable_graph *g, struct fault *f)
{
	if (!g->cache)
		return fault_set(f, -EBADFD, "open another context",
			"the context of this graph is closed");
	if (g->cache->capturing)
		return fault_set(f, -EBADFD, "end the capture first", "a capture is on");
	return cache_check_open(g->cache, f);
}

int callable_graph_replay(struct callable_graph *g, struct fault *f)
{
	int err = check_replay(g, f);

	for (uint32_t i = 0; !err && i < g->n; i++) {
		enum npu_error code =
			memory_launch(&g->cache->memory, g->packets[i].data, g->packets[i].bytes);

		if (code != NPU_SUCCESS)
			err = cache_device_failed(g->cache, code, "replaying a graph", f);
	}
	return err;
}

uint32_t callable_graph_launches(const struct callable_graph *g)
{
	return g->n;
}

/* --- end -------------------------------------------------------------------------------------- */

void graph_destroy(struct callable_graph *g)
{
	free(take_ptr(g->packets));
	g->cache = NULL;
	g->next = NULL;
	g->n = 0;
}

static void unlink_graph(struct callable_graph *g)
{
	struct callable_graph **at = &g->cache->graphs;

	while (*at && *at != g)
		at = &(*at)->next;
	if (*at)
		*at = g->next;
}

void callable_graph_free(struct callable_graph *g)
{
	if (!g)
		return;
	if (g->cache)
		unlink_graph(g);
	graph_destroy(g);
	free(g);
}
