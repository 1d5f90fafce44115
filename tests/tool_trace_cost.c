/* tool_trace_cost: what a pair of trace hooks costs, off, on, and when the record is full. Of many short
 * rounds the best one counts: what else the machine does is not the hooks' cost. */
#include <stdio.h>

#include "core/engine/trace.h"

#define PAIRS  2000
#define ROUNDS 100 /* together fewer pairs than there is room for */

static void hooks(void)
{
	trace_step(trace_begin(), TRACE_COMPUTE, DEVICE_AUTO, 1, NPU_SUCCESS);
}

static void two_clocks(void)
{
	clock_mono();
	clock_mono();
}

static inline __attribute__((always_inline)) double best_ns(void (*what)(void), int rounds)
{
	int64_t best = INT64_MAX;

	while (rounds--) {
		int64_t begin = clock_mono(), ns;

		for (int i = 0; i < PAIRS; i++)
			what();
		ns = clock_mono() - begin;
		best = ns < best ? ns : best;
	}
	return (double)best / PAIRS;
}

static void show_render(void)
{
	AUTO_BUF struct buf out = BUF_INIT;
	int64_t begin = clock_mono();
	int err = trace_render(&out);

	printf("render %.1f ms, %zu bytes (error %d)\n", (double)(clock_mono() - begin) / NS_PER_MS,
		out.len, err);
}

int main(void)
{
	printf("off    %.2f ns a pair of hooks\n", best_ns(hooks, ROUNDS * 10));
	if (trace_start(TRACE_MAX_SECONDS, TRACE_MAX_BYTES, NULL))
		return 1;
	printf("on     %.2f ns\n", best_ns(hooks, ROUNDS));
	printf("clock  %.2f ns of these: it is read twice\n", best_ns(two_clocks, ROUNDS));
	best_ns(hooks, ROUNDS);
	printf("full   %.2f ns\n", best_ns(hooks, ROUNDS));
	trace_stop();
	show_render();
	trace_done();
	return 0;
}
