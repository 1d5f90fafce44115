/* A metric is a row of cells, one a label; one without labels uses the first. Cells are
 * independent: a reader may see one counter a moment before another, as with any scrape. */
#include "core/engine/metrics.h"

#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/device.h"
#include "core/engine/health.h"
#include "core/job/job.h"

#define MAX_LABELS 32
_Static_assert((int)NPU_ERROR_COUNT <= MAX_LABELS && (int)CALL_COUNT <= MAX_LABELS, "a cell each");

enum metric_unit { UNIT_COUNT, UNIT_NS, UNIT_CHOICE };

struct label_set {
	const char *label; /* NULL: the metric has one value */
	const char *(*value)(unsigned index);
	unsigned first, end;
};

struct metric_row {
	const char *name;
	const char *type;
	enum metric_unit unit;
	const struct label_set *labels;
	const char *help;
};

static const char *job_label(unsigned index)
{
	return job_state_name((enum job_state)index);
}

static const char *call_label(unsigned index)
{
	return device_call_name((enum device_call)index);
}

static const char *error_label(unsigned index)
{
	return npu_error_row((enum npu_error)index)->name;
}

static const char *reaction_label(unsigned index)
{
	return npu_reaction_name((enum npu_reaction)index);
}

static const char *health_label(unsigned index)
{
	return health_state_name((enum health_state)index);
}

static const struct label_set labels_NONE = { NULL, NULL, 0, 1 };
static const struct label_set labels_JOB_ENDS = { "state", job_label, JOB_DONE, JOB_STATE_COUNT };
static const struct label_set labels_CALLS = { "call", call_label, 0, CALL_COUNT };
static const struct label_set labels_ERRORS = { "code", error_label, NPU_SUCCESS + 1,
	NPU_ERROR_COUNT };
static const struct label_set labels_REACTIONS = { "reaction", reaction_label, NPU_REACT_RELOAD,
	NPU_REACTION_COUNT };
static const struct label_set labels_HEALTH = { "state", health_label, 0, HEALTH_STATE_COUNT };

static const struct metric_row rows[METRIC_COUNT] = {
#define METRIC(id, name, type, unit, labels, help) \
	[METRIC_##id] = { name, #type, UNIT_##unit, &labels_##labels, help },
#include "core/engine/metrics.def"
#undef METRIC
};

static _Atomic int64_t cells[METRIC_COUNT][MAX_LABELS];
static const char *version = ""; /* fixed after metrics_start(), as is the next */
static int64_t started;

static int64_t read_calls(unsigned index)
{
	return (int64_t)device_calls((enum device_call)index);
}

static int64_t read_dropped(unsigned index)
{
	(void)index;
	return (int64_t)log_dropped();
}

static int64_t read_uptime(unsigned index)
{
	(void)index;
	return clock_mono() - started;
}

/* Values that are kept elsewhere. */
static int64_t (*const readers[METRIC_COUNT])(unsigned index) = {
	[METRIC_DEVICE_CALLS] = read_calls,
	[METRIC_LOG_DROPPED] = read_dropped,
	[METRIC_UPTIME] = read_uptime,
};

void metrics_start(const char *version_text)
{
	version = version_text;
	started = clock_mono();
	for (size_t m = 0; m < METRIC_COUNT; m++)
		for (size_t i = 0; i < MAX_LABELS; i++)
			atomic_store_explicit(&cells[m][i], 0, memory_order_relaxed);
}

void metrics_add_at(enum metric m, unsigned label, int64_t n)
{
	assert(!readers[m] && label >= rows[m].labels->first && label < rows[m].labels->end);
	atomic_fetch_add_explicit(&cells[m][label], n, memory_order_relaxed);
}

void metrics_add(enum metric m, int64_t n)
{
	assert(!rows[m].labels->label);
	metrics_add_at(m, 0, n);
}

void metrics_set(enum metric m, int64_t value)
{
	assert(!readers[m] && (!rows[m].labels->label || rows[m].unit == UNIT_CHOICE));
	atomic_store_explicit(&cells[m][0], value, memory_order_relaxed);
}

void metrics_device_error(enum npu_error code)
{
	if (code == NPU_SUCCESS)
		return;
	if ((unsigned)code >= NPU_ERROR_COUNT)
		code = NPU_UNKNOWN;
	metrics_add_at(METRIC_DEVICE_ERRORS, code, 1);
}

static int64_t value_of(enum metric m, unsigned index)
{
	if (readers[m])
		return readers[m](index);
	if (rows[m].unit == UNIT_CHOICE)
		return atomic_load_explicit(&cells[m][0], memory_order_relaxed) == index;
	return atomic_load_explicit(&cells[m][index], memory_order_relaxed);
}

/* The format's three escapes and no others. */
static void put_label(struct buf *out, const char *label, const char *value)
{
	buf_printf(out, "{%s=\"", label);
	for (; *value; value++) {
		if (*value == '\n')
			buf_puts(out, "\\n");
		else if (*value == '"' || *value == '\\')
			buf_printf(out, "\\%c", *value);
		else
			buf_put(out, value, 1);
	}
	buf_puts(out, "\"}");
}

static void put_value(struct buf *out, enum metric_unit unit, int64_t v)
{
	if (unit == UNIT_NS)
		buf_printf(out, " %lld.%09lld\n", v / NS_PER_SEC, v % NS_PER_SEC);
	else
		buf_printf(out, " %" PRId64 "\n", v);
}

static void render_row(struct buf *out, enum metric m)
{
	const struct metric_row *row = &rows[m];
	const struct label_set *set = row->labels;

	buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", row->name, row->help, row->name, row->type);
	for (unsigned i = set->first; i < set->end; i++) {
		buf_puts(out, row->name);
		if (set->label)
			put_label(out, set->label, set->value(i));
		put_value(out, row->unit, value_of(m, i));
	}
}

void metrics_render(struct buf *out)
{
	for (unsigned m = 0; m < METRIC_COUNT; m++)
		render_row(out, (enum metric)m);
	buf_puts(out,
		"# HELP npufs_build_info The version that runs; always 1.\n"
		"# TYPE npufs_build_info gauge\nnpufs_build_info");
	put_label(out, "version", version);
	put_value(out, UNIT_COUNT, 1);
}
