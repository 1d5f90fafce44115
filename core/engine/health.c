#include "core/engine/health.h"

#include <string.h>

#include "core/base/clock.h"
#include "core/base/mem.h"

void health_init(struct health *h, const struct device_ops *ops, const char *default_model)
{
	memset(h, 0, sizeof *h);
	lock_init(&h->lock, RANK_HEALTH, "health");
	strncpy(h->backend, ops->name, sizeof h->backend - 1);
	h->measuring_only = ops->measuring_only;
	h->faults_planted = ops->faults_planted;
	h->since = clock_wall();
	if (default_model)
		strncpy(h->default_model, default_model, sizeof h->default_model - 1);
	strcpy(h->reason, "verifying artifacts");
	strcpy(h->parallel, "off");
}

void health_done(struct health *h)
{
	lock_done(&h->lock);
}

static void copy_text(char *to, size_t size, const char *from)
{
	strncpy(to, from ? from : "", size - 1);
	to[size - 1] = '\0';
}

void health_set(struct health *h, enum health_state s, const char *reason, const char *action)
{
	lock_take(&h->lock);
	if (h->state != s)
		h->since = clock_wall();
	h->state = s;
	copy_text(h->reason, sizeof h->reason, reason);
	copy_text(h->action, sizeof h->action, action);
	lock_drop(&h->lock);
}

void health_set_fault(struct health *h, enum health_state s, const struct fault *f)
{
	health_set(h, s, f->reason, f->action);
	if (f->device)
		health_note_error(h, f->device);
}

void health_set_device(struct health *h, const struct device_info *info)
{
	lock_take(&h->lock);
	h->device = *info;
	h->device_open = true;
	lock_drop(&h->lock);
}

void health_set_generation(struct health *h, const char *model, uint64_t generation,
	enum health_golden golden)
{
	lock_take(&h->lock);
	copy_text(h->model, sizeof h->model, model);
	h->generation = generation;
	h->golden = golden;
	h->evidence = false;
	if (golden)
		h->last_golden = clock_wall();
	lock_drop(&h->lock);
}

void health_note_entry(struct health *h, int64_t mono)
{
	lock_take(&h->lock);
	h->last_entry = mono;
	lock_drop(&h->lock);
}

void health_set_evidence(struct health *h, bool matching)
{
	lock_take(&h->lock);
	h->evidence = matching;
	lock_drop(&h->lock);
}

void health_proven(struct health *h, enum health_golden *ret_golden, bool *ret_evidence)
{
	lock_take(&h->lock);
	*ret_golden = h->golden;
	*ret_evidence = h->evidence;
	lock_drop(&h->lock);
}

void health_set_parallel(struct health *h, const char *text)
{
	lock_take(&h->lock);
	copy_text(h->parallel, sizeof h->parallel, text);
	lock_drop(&h->lock);
}

void health_note_progress(struct health *h)
{
	int64_t now = clock_mono();

	lock_take(&h->lock);
	h->last_progress = now;
	lock_drop(&h->lock);
}

void health_note_error(struct health *h, enum npu_error code)
{
	lock_take(&h->lock);
	h->last_error = code;
	h->last_error_at = clock_wall();
	lock_drop(&h->lock);
}

void health_note_recovery(struct health *h)
{
	lock_take(&h->lock);
	h->recoveries++;
	lock_drop(&h->lock);
}

void health_note_golden(struct health *h)
{
	lock_take(&h->lock);
	h->last_golden = clock_wall();
	lock_drop(&h->lock);
}

void health_set_room(struct health *h, uint32_t room, uint32_t most)
{
	lock_take(&h->lock);
	h->room = room;
	h->most = most;
	lock_drop(&h->lock);
}

void health_set_next_try(struct health *h, int64_t wall)
{
	lock_take(&h->lock);
	h->next_try = wall;
	lock_drop(&h->lock);
}

void health_set_away(struct health *h, int64_t since)
{
	lock_take(&h->lock);
	h->away_since = since;
	lock_drop(&h->lock);
}

void health_set_resets_locked(struct health *h, bool locked)
{
	lock_take(&h->lock);
	h->resets_locked = locked;
	lock_drop(&h->lock);
}

void health_set_unaudited(struct health *h, bool unaudited)
{
	lock_take(&h->lock);
	h->unaudited = unaudited;
	lock_drop(&h->lock);
}

void health_set_poisoned(struct health *h, bool poisoned)
{
	lock_take(&h->lock);
	h->poisoned = poisoned;
	lock_drop(&h->lock);
}

enum health_state health_state(struct health *h)
{
	enum health_state s;

	lock_take(&h->lock);
	s = h->state;
	lock_drop(&h->lock);
	return s;
}

enum health_state health_why(struct health *h, struct fault *ret)
{
	enum health_state s;

	*ret = (struct fault)FAULT_NONE;
	lock_take(&h->lock);
	s = h->state;
	fault_clean(ret->reason, sizeof ret->reason, h->reason);
	fault_clean(ret->action, sizeof ret->action, h->action);
	lock_drop(&h->lock);
	return s;
}

uint64_t health_generation(struct health *h)
{
	uint64_t generation;

	lock_take(&h->lock);
	generation = h->generation;
	lock_drop(&h->lock);
	return generation;
}

const char *health_state_name(enum health_state s)
{
	static const char *const names[HEALTH_STATE_COUNT] = {
		[HEALTH_STARTING] = "starting",
		[HEALTH_READY] = "ready",
		[HEALTH_DEGRADED] = "degraded",
		[HEALTH_DRAINING] = "draining",
		[HEALTH_RECOVERING] = "recovering",
		[HEALTH_FAILED] = "failed",
	};

	return names[s];
}

bool health_is_ready(struct health *h)
{
	enum health_state s = health_state(h);

	return s == HEALTH_READY || s == HEALTH_DEGRADED;
}

/* --- the texts -------------------------------------------------------------------------------- */

static void put_time(struct buf *out, const char *key, int64_t wall)
{
	char text[CLOCK_TEXT_SIZE];

	buf_printf(out, "%s: %s\n", key, wall ? clock_text(wall, text) : "never");
}

static void put_backend(const struct health *h, struct buf *out)
{
	const struct {
		bool holds;
		const char *text;
	} notes[] = {
		{ h->measuring_only,
			"this backend is for measuring only; its answers are no inference" },
		{ h->faults_planted,
			"faults are planted into this device for tests; its failures are no news" },
	};

	buf_printf(out, "device: %s\n", h->backend);
	for (size_t i = 0; i < ARRAY_SIZE(notes); i++)
		if (notes[i].holds)
			buf_printf(out, "note: %s\n", notes[i].text);
}

static void put_error(const struct health *h, struct buf *out)
{
	const struct npu_error_row *row = npu_error_row(h->last_error);

	if (!h->last_error) {
		buf_puts(out, "last_error: none\n");
		return;
	}
	buf_printf(out, "last_error: %s\n", row->name);
	buf_printf(out, "last_error_action: %s\n", row->action);
	put_time(out, "last_error_at", h->last_error_at);
}

#define STALL_SECONDS 30

static double seconds_since(int64_t mono)
{
	return (double)(clock_mono() - mono) / (double)NS_PER_SEC;
}

static int64_t last_sign(const struct health *h)
{
	return h->last_progress > h->last_entry ? h->last_progress : h->last_entry;
}

/* A device that gives nothing while jobs wait is seen, whatever it says of itself. */
static void put_progress(const struct health *h, uint64_t jobs, struct buf *out)
{
	if (!h->last_progress)
		buf_puts(out, "last_progress_seconds_ago: never\n");
	else
		buf_printf(out, "last_progress_seconds_ago: %.3f\n",
			seconds_since(h->last_progress));
	if (jobs && h->last_entry && seconds_since(last_sign(h)) > STALL_SECONDS)
		buf_puts(out,
			"stalled: yes, jobs wait and the device has given nothing for long\n");
	if (h->away_since)
		buf_printf(out,
			"quarantine: an inference has not come back for %.0f seconds; "
			"its buffers stay untouched and the device is given nothing\n",
			seconds_since(h->away_since));
}

static void put_recovery(const struct health *h, struct buf *out)
{
	buf_printf(out, "recoveries: %llu\n", (unsigned long long)h->recoveries);
	if (h->room < h->most)
		buf_printf(out, "admission: lowered, %u sequences at once instead of %u\n", h->room,
			h->most);
	if (h->next_try)
		put_time(out, "next_try", h->next_try);
	if (h->resets_locked)
		buf_puts(out,
			"resets: locked, too many came in a short time; an operator who knows why "
			"writes now: REASON to control/unlock\n");
	if (h->unaudited)
		buf_puts(out,
			"audit: cannot be written, so that no command is carried out; see to the "
			"audit folder of the store and its disk\n");
	if (h->poisoned)
		buf_puts(out,
			"callables: poisoned, the state of the device is unknown to them; an "
			"operator "
			"writes now: REASON to callables/close\n");
}

void health_render(struct health *h, uint64_t queued, uint64_t running, struct buf *out)
{
	struct health now;

	lock_take(&h->lock);
	now = *h;
	lock_drop(&h->lock);
	buf_printf(out, "%s\n", health_state_name(now.state));
	if (now.reason[0])
		buf_printf(out, "reason: %s\n", now.reason);
	if (now.action[0])
		buf_printf(out, "action: %s\n", now.action);
	put_time(out, "since", now.since);
	put_backend(&now, out);
	buf_printf(out, "default_model: %s\n", now.default_model[0] ? now.default_model : "none");
	buf_printf(out, "model: %s\n", now.model[0] ? now.model : "none");
	buf_printf(out, "generation: %llu\n", (unsigned long long)now.generation);
	put_time(out, "last_golden", now.last_golden);
	buf_printf(out, "queued: %llu\n", (unsigned long long)queued);
	buf_printf(out, "running: %llu\n", (unsigned long long)running);
	put_progress(&now, queued + running, out);
	put_error(&now, out);
	put_recovery(&now, out);
	buf_printf(out, "parallel: %s\n", now.parallel);
}

void health_render_version(struct health *h, const char *daemon_version, struct buf *out)
{
	struct health now;

	lock_take(&h->lock);
	now = *h;
	lock_drop(&h->lock);
	buf_printf(out, "npufs: %s\n", daemon_version);
	put_backend(&now, out);
	buf_printf(out, "name: %s\n", now.device_open ? now.device.name : "unknown");
	buf_printf(out, "runtime: %s\n", now.device_open ? now.device.runtime : "unknown");
	buf_printf(out, "driver: %s\n", now.device_open ? now.device.driver : "unknown");
	buf_printf(out, "firmware: %s\n", now.device_open ? now.device.firmware : "unknown");
}
