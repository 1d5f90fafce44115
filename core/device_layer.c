/* Plans and counts are looked at under a lock that nothing else is done under; a call that hangs waits
 * on a condition of it, so that it can be let go from any thread. The tables form a stack, each a copy
 * of the one below with its own functions in the places that are filled. */
#include "core/device_layer_impl.h"

#include <stdio.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/mem.h"

#define LAYER_MAX_LATE  32
#define LAYER_MAX_KEPT  256
#define LAYER_PATH_SIZE 4096

/* A plan in force and how often each call was made since it is. */
struct planted {
	struct fault_plan plan;
	uint64_t calls[PLAN_CALLS];
};

static struct lock lock = LOCK_INIT(RANK_LAYER, "device layer");
/* by lock */
static struct lock_cond released;
static bool released_ready, letting_go;
static struct planted plans[LAYER_SIDES], cases[LAYER_SIDES];
static uint64_t struck[LAYER_SIDES], releases;
static unsigned hanging;
static struct device_watch watch;
static void *kept[LAYER_MAX_KEPT];
static size_t n_kept;

/* fixed while a device is open; device side, watch, caller side */
static struct device_ops tables[3];
static char layer_name[64];
static const struct device_ops *backend;

/* --- strikes ---------------------------------------------------------------------------------- */

static void hang_locked(void)
{
	uint64_t before = releases;

	hanging++;
	while (!letting_go && releases == before) /* a plan may be set before it wakes */
		lock_cond_wait(&released, &lock);
	hanging--;
}

/* The first rule that is due for what the call gives; those that hold it up are added up. */
static bool find_rules_locked(struct planted *p, enum plan_call call, struct strike *s,
	unsigned *ms, bool *hang)
{
	uint64_t nth = ++p->calls[call];
	bool any = false;

	for (size_t i = 0; i < p->plan.n; i++) {
		const struct plan_rule *r = &p->plan.rules[i];

		if (r->call != call || nth < r->from || nth > r->to)
			continue;
		any = true;
		if (r->effect == PLAN_DELAY)
			*ms += r->ms;
		else if (r->effect == PLAN_HANG)
			*hang = true;
		else if (s->effect == PLAN_NOTHING)
			*s = (struct strike){ r->effect, r->code };
	}
	return any;
}

static void delay(unsigned ms)
{
	const struct timespec until = clock_timespec(clock_mono() + ms * NS_PER_MS);

	while (ms && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL))
		continue;
}

struct strike layer_strike(enum layer_side side, enum plan_call call)
{
	struct strike s = { PLAN_NOTHING, NPU_SUCCESS };
	bool hang = false, any;
	unsigned ms = 0;

	lock_take(&lock);
	any = find_rules_locked(&cases[side], call, &s, &ms, &hang);
	any |= find_rules_locked(&plans[side], call, &s, &ms, &hang);
	struck[side] += any;
	if (hang)
		hang_locked();
	lock_drop(&lock);
	delay(ms);
	return s;
}

static void set_plan(struct planted *p, const struct fault_plan *plan)
{
	lock_take(&lock);
	memset(p, 0, sizeof *p);
	if (plan)
		p->plan = *plan;
	letting_go = false;
	lock_drop(&lock);
}

void device_layer_plan(enum layer_side side, const struct fault_plan *plan)
{
	set_plan(&plans[side], plan);
}

void device_layer_case(enum layer_side side, const struct fault_plan *plan)
{
	set_plan(&cases[side], plan);
}

void device_layer_release(void)
{
	lock_take(&lock);
	letting_go = true;
	releases++;
	lock_cond_broadcast(&released);
	lock_drop(&lock);
}

bool device_layer_hangs(void)
{
	bool any;

	lock_take(&lock);
	any = hanging;
	lock_drop(&lock);
	return any;
}

uint64_t device_layer_struck(enum layer_side side)
{
	uint64_t n;

	lock_take(&lock);
	n = struck[side];
	lock_drop(&lock);
	return n;
}

/* --- spoiling --------------------------------------------------------------------------------- */

/* The sign of the first number that is not zero; where all are, one becomes 2, or a large integer.
 * Finite as before, and another number. */
static void flip_bit(uint8_t *bytes, size_t n, size_t element)
{
	static const uint8_t zero[8] = { 0 };

	for (size_t at = 0; at + element <= n; at += element)
		if (memcmp(bytes + at, zero, element) != 0) {
			bytes[at + element - 1] ^= 0x80;
			return;
		}
	if (n >= element)
		bytes[element - 1] ^= 0x40;
}

static void swap_bytes(uint8_t *a, uint8_t *b, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint8_t byte = a[i];

		a[i] = b[i];
		b[i] = byte;
	}
}

static void spoil_locked(enum plan_effect effect, const struct watch_handle *h,
	const struct watch_handle *other)
{
	size_t element = dtype_size(h->info->outputs[0].dtype);

	if (effect == PLAN_CORRUPT)
		flip_bit(h->host, h->size, element);
	else if (effect == PLAN_NAN && h->size >= element)
		memset(h->host, 0xff, element);
	else if (effect == PLAN_SWAP && other && other->size == h->size)
		swap_bytes(h->host, other->host, h->size);
}

void layer_spoil_output(enum plan_effect effect, struct outbuf *out)
{
	const struct watch_handle *h;

	lock_take(&lock);
	h = watch_output(&watch, out);
	if (h)
		spoil_locked(effect, h, watch_other_output(&watch, out));
	lock_drop(&lock);
}

void layer_spoil_bytes(struct buf *b)
{
	if (b->len)
		b->data[0] ^= 1;
}

void layer_keep(void *handle)
{
	lock_take(&lock);
	if (n_kept < LAYER_MAX_KEPT)
		kept[n_kept++] = handle;
	lock_drop(&lock);
}

/* --- the watch -------------------------------------------------------------------------------- */

struct device_watch *layer_watch(void)
{
	lock_take(&lock);
	return &watch;
}

void layer_watch_done(void)
{
	lock_drop(&lock);
}

void device_layer_allow_resets(bool allow)
{
	layer_watch()->resets_allowed = allow;
	layer_watch_done();
}

unsigned device_layer_breaches(char *ret_first, size_t size)
{
	const struct device_watch *w = layer_watch();
	unsigned n = w->breaches;

	snprintf(ret_first, size, "%s", w->first);
	layer_watch_done();
	return n;
}

void device_layer_clear_breaches(void)
{
	watch_clear(layer_watch());
	layer_watch_done();
}

void device_layer_new_book(void)
{
	watch_init(layer_watch());
	layer_watch_done();
}

unsigned device_layer_live(void)
{
	unsigned n = (unsigned)layer_watch()->n;

	layer_watch_done();
	return n;
}

/* --- the sides -------------------------------------------------------------------------------- */

#define SIDE     LAYER_DEVICE
#define FN(name) on_device_##name
#define BELOW    backend
#include "core/device_layer_template.h"

#define SIDE     LAYER_CALLER
#define FN(name) by_caller_##name
#define BELOW    (&tables[1])
#include "core/device_layer_template.h"

bool device_layer_is_there(void)
{
	return backend != NULL;
}

const struct device_ops *device_layer_over(const struct device_ops *inner)
{
	backend = inner;
	snprintf(layer_name, sizeof layer_name, "%s+fault", inner->name);
	tables[0] = *inner;
	tables[0].name = layer_name;
	tables[0].faults_planted = true;
	on_device_table(&tables[0]);
	tables[1] = tables[0];
	layer_watch_table(&tables[1], &tables[0], inner);
	tables[2] = tables[1];
	by_caller_table(&tables[2]);
	lock_take(&lock);
	if (!released_ready)
		lock_cond_init(&released);
	released_ready = true;
	memset(struck, 0, sizeof struck);
	watch_init(&watch);
	lock_drop(&lock);
	for (int side = 0; side < LAYER_SIDES; side++) {
		device_layer_plan((enum layer_side)side, NULL);
		device_layer_case((enum layer_side)side, NULL);
	}
	return &tables[2];
}
