/* tool_callables: what resident callables cost, as lines "name value". It runs in the top folder, for
 * the example. Measures that are compared take turns, in many short rounds of which the best one
 * counts: what else the machine does is not their cost. Ends with a status that is not 0 when a sum
 * is wrong or a call fails.
 *
 *   direct_ns   z = x + y of ADDED elements, by a C function
 *   add_ns      the example of that name, launched on the same elements
 *   least_ns    the smallest program, launched
 *   run_ns      that program by itself, without the launch
 *   host_ns     what a launch costs before the device has it
 *   replay_ns   the smallest program, a launch of a graph of CAPTURED
 *   allocations of the host, during all of that
 *
 *   small_first_ns, small_middle_ns, small_last_ns   a registration among the first, middle, last
 *               STRETCH of as many small images as there can be
 *   many_...    of images of which 8 fill a block, on a device of paper: the library's part alone
 *
 *   registrations, image_bytes, resident_bytes, allocated_bytes   all small images
 *   host_bytes  that the library takes for them */
#include "callable_rig.h"

#include <limits.h>
#include <malloc.h>

#include "core/base/clock.h"

#define ADDED    64
#define CAPTURED 64
#define LAUNCHES 256 /* of one round */
#define ROUNDS   400
#define STRETCH  1024
#define PASSES   10 /* over all registrations */
#define MANY     (CALLABLE_BLOCK_BYTES / 8)

static const char least[] =
	"{\"format\":\"npufs-callable-1\",\"name\":\"least\",\"tensors\":[],\"scalars\":[],"
	"\"orchestration\":[\"const s0, 0\"],\"children\":[]}";

static void show(const char *name, double value)
{
	printf("%s %.1f\n", name, value);
}

/* --- launching -------------------------------------------------------------------------------- */

enum { ADD, LEAST }; /* ids, in the order of the prepares */

static struct rig soft, paper;
static struct packet_tensor tensors[3];
static float *x, *y, *z;
static const uint32_t added = ADDED;
static const struct callable_args add_args = { PACKET_VM, 3, 1, tensors, &added };
static const struct callable_args least_args = { .kind = PACKET_VM };
static struct callable_graph *graph;
static const struct vm_arguments no_args;
static struct vm vm = { .args = &no_args };
static struct image least_image;

static void launch(struct rig *r, int32_t id, const struct callable_args *args)
{
	if (callable_launch(r->c, id, args, &r->f) < 0)
		fail_msg("launch: %s", r->f.reason);
}

static void add_directly(const float *a, const float *b, float *sum, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		sum[i] = a[i] + b[i];
}

/* Not known to the compiler, as an id is not. */
static void (*volatile direct)(const float *, const float *, float *, uint32_t) = add_directly;

static void direct_ns(void)
{
	direct(x, y, z, added);
}

static void add_ns(void)
{
	launch(&soft, ADD, &add_args);
}

static void least_ns(void)
{
	launch(&soft, LEAST, &least_args);
}

static void run_ns(void)
{
	assert_int_equal(vm_run(&vm, &least_image.orchestration), VM_DONE);
}

static void host_ns(void)
{
	launch(&paper, LEAST, &least_args);
}

static void replay_ns(void)
{
	assert_int_equal(callable_graph_replay(graph, &soft.f), 0);
}

static const struct measure {
	const char *name;
	void (*what)(void);
	int launches; /* of a call */
} measures[] = {
	{ "direct_ns", direct_ns, 1 },
	{ "add_ns", add_ns, 1 },
	{ "least_ns", least_ns, 1 },
	{ "run_ns", run_ns, 1 },
	{ "host_ns", host_ns, 1 },
	{ "replay_ns", replay_ns, CAPTURED },
};

static double round_ns(const struct measure *m)
{
	int64_t begin = clock_mono();

	for (int i = 0; i < LAUNCHES; i += m->launches)
		m->what();
	return (double)(clock_mono() - begin) / LAUNCHES;
}

static void prepare_launches(const struct buf *add, const struct buf *smallest)
{
	rig_open(&soft, true);
	rig_open(&paper, false);
	rig_prepare(&soft, add);
	rig_prepare(&paper, add);
	rig_prepare(&soft, smallest);
	rig_prepare(&paper, smallest);
	assert_int_equal(image_validate(smallest->data, smallest->len, &least_image, &soft.f), 0);
	tensors[0] = rig_tensor(&soft, ADDED, &x);
	tensors[1] = rig_tensor(&soft, ADDED, &y);
	tensors[2] = rig_tensor(&soft, ADDED, &z);
	assert_int_equal(callable_graph_begin(soft.c, CAPTURE_GLOBAL, CAPTURED, &soft.f), 0);
	for (int i = 0; i < CAPTURED; i++)
		least_ns();
	assert_int_equal(callable_graph_end(soft.c, &graph, &soft.f), 0);
}

static void check_add(void)
{
	for (int i = 0; i < ADDED; i++) {
		x[i] = (float)i;
		y[i] = 0.5f;
	}
	add_ns();
	for (int i = 0; i < ADDED; i++)
		assert_true(z[i] == (float)i + 0.5f);
}

static void measure_launches(double best[ARRAY_SIZE(measures)])
{
	for (int r = 0; r < ROUNDS; r++)
		for (size_t i = 0; i < ARRAY_SIZE(measures); i++) {
			double ns = round_ns(&measures[i]);

			best[i] = r && best[i] < ns ? best[i] : ns;
		}
}

static void show_launches(const struct buf *add, const struct buf *smallest)
{
	double best[ARRAY_SIZE(measures)];
	size_t before;

	prepare_launches(add, smallest);
	check_add();
	before = host_calls;
	measure_launches(best);
	show("allocations", (double)(host_calls - before));
	for (size_t i = 0; i < ARRAY_SIZE(measures); i++)
		show(measures[i].name, best[i]);
	callable_graph_free(graph);
	rig_close(&soft);
	rig_close(&paper);
}

/* --- registering ------------------------------------------------------------------------------ */

static const struct {
	const char *name;
	int32_t first;
} stretches[] = {
	{ "first", 0 },
	{ "middle", (CALLABLE_IDS_MAX - STRETCH) / 2 },
	{ "last", CALLABLE_IDS_MAX - STRETCH },
};

static void prepare_until(struct rig *r, const struct buf *image, int32_t end)
{
	while (callable_figures(r->c).registrations < (uint32_t)end)
		rig_prepare(r, image);
}

static void time_stretches(struct rig *r, const struct buf *image,
	double best[ARRAY_SIZE(stretches)])
{
	for (size_t i = 0; i < ARRAY_SIZE(stretches); i++) {
		int64_t begin;
		double ns;

		prepare_until(r, image, stretches[i].first);
		begin = clock_mono();
		prepare_until(r, image, stretches[i].first + STRETCH);
		ns = (double)(clock_mono() - begin) / STRETCH;
		best[i] = !best[i] || ns < best[i] ? ns : best[i];
	}
}

static void show_registrations(const char *what, bool on_soft, const struct buf *image)
{
	double best[ARRAY_SIZE(stretches)] = { 0 };

	for (int i = 0; i < PASSES; i++) {
		rig_open(&soft, on_soft);
		time_stretches(&soft, image, best);
		rig_close(&soft);
	}
	for (size_t i = 0; i < ARRAY_SIZE(stretches); i++)
		printf("%s_%s_ns %.1f\n", what, stretches[i].name, best[i]);
}

/* --- memory ----------------------------------------------------------------------------------- */

static size_t host_bytes(void)
{
	struct mallinfo2 m = mallinfo2();

	return m.uordblks + m.hblkhd;
}

static void show_memory(const struct buf *image)
{
	size_t before = host_bytes();
	struct callable_figures f;

	rig_open(&paper, false);
	prepare_until(&paper, image, CALLABLE_IDS_MAX);
	f = callable_figures(paper.c);
	show("registrations", f.registrations);
	show("image_bytes", (double)image->len);
	show("resident_bytes", (double)f.resident_bytes);
	show("allocated_bytes", (double)f.allocated_bytes);
	show("host_bytes", (double)(host_bytes() - before));
	rig_close(&paper);
}

/* What was freed is used again, or new pages of the kernel's would be much of a registration. */
static void keep_pages(void)
{
	mallopt(M_MMAP_MAX, 0);
	mallopt(M_TRIM_THRESHOLD, INT_MAX);
}

int main(void)
{
	AUTO_BUF struct buf add = BUF_INIT;
	AUTO_BUF struct buf smallest = BUF_INIT;
	AUTO_BUF struct buf many = BUF_INIT;

	keep_pages();
	rig_example("add", &add);
	rig_build(least, &smallest);
	rig_image(MANY, &many);
	show_launches(&add, &smallest);
	show_registrations("small", true, &add);
	show_registrations("many", false, &many);
	show_memory(&add);
	return 0;
}
