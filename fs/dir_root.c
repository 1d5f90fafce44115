#include "fs/area.h"

#include <string.h>

#include "core/engine/capabilities.h"
#include "core/engine/metrics.h"
#include "fs/readme.h"

static int readme_show(struct npufs *fs, uint64_t object, struct buf *out)
{
	(void)object;
	readme_render(fs, out);
	return 0;
}

static int health_show(struct npufs *fs, uint64_t object, struct buf *out)
{
	uint64_t queued, running;

	(void)object;
	engine_counts(fs->engine, &queued, &running);
	health_render(&fs->health, queued, running, out);
	return 0;
}

static bool ready_exists(struct npufs *fs)
{
	return health_is_ready(&fs->health);
}

static int ready_show(struct npufs *fs, uint64_t object, struct buf *out)
{
	(void)fs, (void)object;
	buf_puts(out, "ready\n");
	return 0;
}

static void set_callables(struct npufs *fs)
{
	uint64_t launches;
	struct callable_figures now = callables_figures(engine_callables(fs->engine), &launches);

	metrics_set(METRIC_CALLABLES, now.registrations);
	metrics_set(METRIC_CALLABLE_BYTES, (int64_t)now.allocated_bytes);
	metrics_set(METRIC_LAUNCHES, (int64_t)launches);
}

static int metrics_show(struct npufs *fs, uint64_t object, struct buf *out)
{
	struct jobdir_usage usage;
	uint64_t queued, running;

	(void)object;
	engine_counts(fs->engine, &queued, &running);
	jobdir_usage(fs->jobs, &usage);
	metrics_set(METRIC_JOBS_QUEUED, (int64_t)queued);
	metrics_set(METRIC_JOBS_RUNNING, (int64_t)running);
	metrics_set(METRIC_SESSIONS, (int64_t)sessions_count(engine_sessions(fs->engine)));
	set_callables(fs);
	metrics_set(METRIC_FILES, (int64_t)usage.files);
	metrics_set(METRIC_BYTES, (int64_t)usage.bytes);
	metrics_set(METRIC_HEALTH_STATE, health_state(&fs->health));
	metrics_render(out);
	return 0;
}

static int version_show(struct npufs *fs, uint64_t object, struct buf *out)
{
	(void)object;
	health_render_version(&fs->health, NPUFS_VERSION, out);
	return 0;
}

static int capabilities_show(struct npufs *fs, uint64_t object, struct buf *out)
{
	struct capabilities_seen seen;

	(void)object;
	health_proven(&fs->health, &seen.golden, &seen.matrix);
	capabilities_render(&seen, out);
	return 0;
}

static const struct node_row root_rows[] = { TEXT("README", readme_show, "this text"),
	LIVE("health", health_show, "the state in one word, then why and since when"),
	{ .name = "ready",
		.mode = 0444,
		.show = ready_show,
		.live = true,
		.exists = ready_exists,
		.doc = "exists only while requests are answered: `test -e ready`" },
	LIVE("metrics", metrics_show, "counters for Prometheus"),
	LIVE("version", version_show, "versions of daemon, runtime, driver and firmware"),
	LIVE("capabilities", capabilities_show,
		"every device call: its level, what it is used for"),
	AREA("models", AREA_MODELS, 0555, "what can be asked, one folder a model"),
	AREA("manifests", AREA_MANIFESTS, 0555, "hashes, shapes and versions of each model"),
	AREA(JOBS_NAME, AREA_JOBS, 01777, "write requests here; results appear beside them"),
	AREA("sessions", AREA_SESSIONS, 01777,
		"conversations that go on; mkdir begins one, rmdir frees it"),
	AREA("callables", AREA_CALLABLES, 0755,
		"resident device programs: written by root and operators"),
	AREA("control", AREA_CONTROL, 0700, "for root and operators, and audited"), ROWS_END };

const struct fixed_area fixed_root = { .rows = root_rows };

const struct fixed_area *fixed_of(enum area area)
{
	static const struct fixed_area *const all[AREA_COUNT] = {
		[AREA_ROOT] = &fixed_root,
		[AREA_MODELS] = &fixed_models,
		[AREA_MANIFESTS] = &fixed_manifests,
	};

	return all[area];
}
