/* Names. An entry is made when its file is, and goes when it comes to nothing, when its refusal is
 * forgotten, or with the context. */
#include "core/engine/callables_impl.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/name.h"

bool callables_name_valid(const char *name)
{
	return name_is_plain(name, CALLABLES_NAME_MAX);
}

bool callables_name_of(const char *file, const char *suffix, char ret[CALLABLES_NAME_MAX + 1])
{
	size_t len = strlen(file), cut = strlen(suffix);

	if (len <= cut || len - cut > CALLABLES_NAME_MAX || strcmp(file + len - cut, suffix) != 0)
		return false;
	memcpy(ret, file, len - cut);
	ret[len - cut] = '\0';
	return true;
}

static void entry_free(struct callables_entry *e)
{
	buf_done(&e->image);
	free(e->signature);
	free(e);
}

/* --- the two orders --------------------------------------------------------------------------- */

bool callables_search_locked(const struct callables *t, const char *name, size_t *ret)
{
	size_t low = 0, high = t->n;

	lock_assert_held(&t->lock);
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int order = strcmp(t->names[middle]->view.name, name);

		if (order == 0) {
			*ret = middle;
			return true;
		}
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	*ret = low;
	return false;
}

static struct callables_entry *named_locked(const struct callables *t, const char *name)
{
	size_t at;

	return callables_search_locked(t, name, &at) ? t->names[at] : NULL;
}

static size_t place_locked(const struct callables *t, uint64_t number)
{
	size_t low = 0, high = t->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (t->all[middle]->view.number < number)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static struct callables_entry *numbered_locked(const struct callables *t, uint64_t number)
{
	size_t at = place_locked(t, number);

	return at < t->n && t->all[at]->view.number == number ? t->all[at] : NULL;
}

static bool grow_locked(struct callables *t)
{
	struct callables_entry **all = mem_grow(t->all, t->n, &t->cap, 16, sizeof *all), **names;

	if (all)
		t->all = all;
	names = mem_grow(t->names, t->n, &t->cap_names, 16, sizeof *names);
	if (names)
		t->names = names;
	return all && names;
}

struct callables_entry *callables_add_locked(struct callables *t, const char *name)
{
	struct callables_entry *e = grow_locked(t) ? calloc(1, sizeof *e) : NULL;
	size_t at;

	if (!e)
		return NULL;
	e->view.number = ++t->last_number;
	e->view.id = -1;
	e->view.changed = clock_wall();
	e->view.fault = (struct fault)FAULT_NONE;
	snprintf(e->view.name, sizeof e->view.name, "%s", name);
	callables_search_locked(t, name, &at);
	memmove(t->names + at + 1, t->names + at, (t->n - at) * sizeof *t->names);
	t->names[at] = e;
	t->all[t->n++] = e;
	return e;
}

void callables_unbind_locked(struct callables *t, struct callables_entry *e)
{
	lock_assert_held(&t->lock);
	if (e->view.id >= 0 && (size_t)e->view.id < t->n_ids)
		t->ids[e->view.id] = NULL;
	e->view.id = -1;
	free(take_ptr(e->signature));
	e->sha256[0] = '\0';
}

void callables_drop_locked(struct callables *t, struct callables_entry *e)
{
	size_t at = place_locked(t, e->view.number), name;

	callables_search_locked(t, e->view.name, &name);
	callables_unbind_locked(t, e);
	memmove(t->all + at, t->all + at + 1, (t->n - at - 1) * sizeof *t->all);
	memmove(t->names + name, t->names + name + 1, (t->n - name - 1) * sizeof *t->names);
	t->n--;
	entry_free(e);
}

/* --- start and end ---------------------------------------------------------------------------- */

/* What the store has keeps its name from the start: until the device is there, which may take long,
 * nobody may overwrite it. A folder that cannot be read is told by who loads it. */
static int reserve_kept(struct callables *t)
{
	struct callables_kept kept;
	int err = 0;

	callables_remove_halves(t);
	callables_list_kept(t, &kept);
	lock_take(&t->lock);
	for (size_t i = 0; !err && i < kept.n; i++) {
		struct callables_entry *e = callables_add_locked(t, kept.names[i]);

		if (e)
			e->view.state = CALLABLES_WAITING;
		err = e ? 0 : -ENOMEM;
	}
	lock_drop(&t->lock);
	callables_kept_done(&kept);
	return err;
}

int callables_new(const char *store, struct callables **ret)
{
	struct callables *t = calloc(1, sizeof *t);
	int err;

	if (!t)
		return -ENOMEM;
	t->store = store;
	lock_init(&t->lock, RANK_CALLABLES, "callables");
	err = reserve_kept(t);
	if (err)
		callables_free(t);
	else
		*ret = t;
	return err;
}

void callables_free(struct callables *t)
{
	if (!t)
		return;
	assert(!t->cache);
	for (size_t i = 0; i < t->n; i++)
		entry_free(t->all[i]);
	free(t->all);
	free(t->names);
	free(t->ids);
	lock_done(&t->lock);
	free(t);
}

/* --- writing ---------------------------------------------------------------------------------- */

static size_t count_locked(const struct callables *t, bool refused, struct callables_entry **ret)
{
	size_t n = 0;

	for (size_t i = 0; i < t->n; i++)
		if ((t->all[i]->view.state == CALLABLES_REFUSED) == refused && n++ == 0 && ret)
			*ret = t->all[i];
	return n;
}

static int create_locked(struct callables *t, const char *name, uint64_t *ret_number)
{
	struct callables_entry *e = named_locked(t, name);

	if (e && e->view.state != CALLABLES_REFUSED)
		return -EBUSY;
	if (e)
		callables_drop_locked(t, e);
	if (count_locked(t, false, NULL) >= CALLABLE_IDS_MAX + CALLABLES_REFUSED_MAX)
		return -ENOSPC; /* the limit of registrations says so itself, and why */
	e = callables_add_locked(t, name);
	if (!e)
		return -ENOMEM;
	*ret_number = e->view.number;
	return 0;
}

int callables_create(struct callables *t, const char *name, uint64_t *ret_number)
{
	int err;

	if (!callables_name_valid(name))
		return -EINVAL;
	lock_take(&t->lock);
	err = create_locked(t, name, ret_number);
	lock_drop(&t->lock);
	return err;
}

static uint64_t unregistered_locked(const struct callables *t)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < t->n; i++)
		bytes += t->all[i]->view.state == CALLABLES_WRITING ? t->all[i]->view.bytes
								    : t->all[i]->image.len;
	return bytes;
}

int callables_grow(struct callables *t, uint64_t number, uint64_t bytes)
{
	struct callables_entry *e;
	int err = 0;

	lock_take(&t->lock);
	e = numbered_locked(t, number);
	if (!e || e->view.state != CALLABLES_WRITING)
		err = -ESTALE;
	else if (unregistered_locked(t) - e->view.bytes + bytes > CALLABLES_UNREGISTERED_MAX)
		err = -ENOSPC;
	else
		e->view.bytes = bytes;
	lock_drop(&t->lock);
	return err;
}

int callables_commit(struct callables *t, uint64_t number, struct buf *image)
{
	struct callables_entry *e;

	lock_take(&t->lock);
	e = numbered_locked(t, number);
	if (e && e->view.state != CALLABLES_WRITING)
		e = NULL;
	if (e) {
		e->view.state = CALLABLES_WAITING;
		e->view.bytes = image->len;
		e->view.changed = clock_wall();
		e->image = take_buf(image);
	}
	lock_drop(&t->lock);
	return e ? 0 : -ESTALE;
}

static void refuse_locked(struct callables *t, struct callables_entry *e, const struct fault *why)
{
	struct callables_entry *oldest = NULL;

	if (!why->err) {
		callables_drop_locked(t, e);
		return;
	}
	if (count_locked(t, true, &oldest) >= CALLABLES_REFUSED_MAX)
		callables_drop_locked(t, oldest);
	buf_done(&e->image);
	e->view.state = CALLABLES_REFUSED;
	e->view.bytes = 0;
	e->view.changed = clock_wall();
	e->view.fault = *why;
}

void callables_refuse(struct callables *t, uint64_t number, const struct fault *why)
{
	struct callables_entry *e;

	lock_take(&t->lock);
	e = numbered_locked(t, number);
	if (e && (e->view.state == CALLABLES_WRITING || e->view.state == CALLABLES_WAITING))
		refuse_locked(t, e, why);
	lock_drop(&t->lock);
}

int callables_remove(struct callables *t, uint64_t number)
{
	struct callables_entry *e;
	int err = 0;

	lock_take(&t->lock);
	e = numbered_locked(t, number);
	if (!e)
		err = -ENOENT;
	else if (e->view.state != CALLABLES_REFUSED)
		err = -EBUSY;
	else
		callables_drop_locked(t, e);
	lock_drop(&t->lock);
	return err;
}

/* --- looking ---------------------------------------------------------------------------------- */

static bool give_locked(const struct callables_entry *e, struct callables_view *ret)
{
	if (e)
		*ret = e->view;
	return e != NULL;
}

bool callables_find(struct callables *t, const char *name, struct callables_view *ret)
{
	bool there;

	lock_take(&t->lock);
	there = give_locked(named_locked(t, name), ret);
	lock_drop(&t->lock);
	return there;
}

bool callables_look(struct callables *t, uint64_t number, struct callables_view *ret)
{
	bool there;

	lock_take(&t->lock);
	there = give_locked(numbered_locked(t, number), ret);
	lock_drop(&t->lock);
	return there;
}

bool callables_next(struct callables *t, uint64_t after, struct callables_view *ret)
{
	bool there;
	size_t at;

	lock_take(&t->lock);
	at = place_locked(t, after + 1);
	there = give_locked(at < t->n ? t->all[at] : NULL, ret);
	lock_drop(&t->lock);
	return there;
}

struct callable_figures callables_figures(struct callables *t, uint64_t *ret_launches)
{
	struct callable_figures now;

	lock_take(&t->lock);
	now = t->figures;
	*ret_launches = t->launches;
	lock_drop(&t->lock);
	return now;
}

static const char *state_word_locked(const struct callables *t)
{
	if (t->support == CALLABLES_ABSENT)
		return "this device has none";
	if (t->closing)
		return "closing";
	if (!t->settled)
		return "starting";
	return t->figures.poisoned ? "poisoned" : "open";
}

void callables_render(struct callables *t, struct buf *out)
{
	lock_take(&t->lock);
	buf_printf(out,
		"state: %s\ncontext: %llu\nregistrations: %u of %d\nresident_bytes: %llu\n"
		"allocated_bytes: %llu of %llu\nbuffer_bytes: %llu of %llu\nlaunches: %llu\n"
		"note: what is registered stays, and keeps its name, until callables/close\n",
		state_word_locked(t), (unsigned long long)t->context, t->figures.registrations,
		CALLABLE_IDS_MAX, (unsigned long long)t->figures.resident_bytes,
		(unsigned long long)t->figures.allocated_bytes, CALLABLE_BYTES_MAX,
		(unsigned long long)t->figures.buffer_bytes, CALLABLE_BUFFER_BYTES_MAX,
		(unsigned long long)t->launches);
	lock_drop(&t->lock);
}

/* --- launching -------------------------------------------------------------------------------- */

uint64_t callables_number(struct callables *t)
{
	uint64_t number;

	lock_take(&t->lock);
	number = t->settled && !t->closing ? t->context : 0;
	lock_drop(&t->lock);
	return number;
}

int callables_no_context(const struct callables *t, struct fault *f)
{
	if (t->support == CALLABLES_ABSENT)
		return fault_set(f, -EOPNOTSUPP, "use a device that has them",
			"this device has no resident callables");
	if (t->closing)
		return fault_set(f, -EBADFD, "write to callables/close again",
			"the callables are being closed");
	return fault_set(f, -EAGAIN, "wait until ready exists",
		"the callables of the store are not registered yet");
}

/* Among more the nearest one is not looked for: it takes a microsecond and more a name, of the thread
 * that serves everybody. */
#define NEAR_NAMES_MAX 512

static int unknown_locked(const struct callables *t, const struct request_launch *l,
	struct fault *f)
{
	const char **names = t->n <= NEAR_NAMES_MAX ? calloc(t->n + 1, sizeof *names) : NULL;
	const char *near = NULL;
	size_t n = 0;
	int err;

	for (size_t i = 0; names && l->callable && i < t->n; i++)
		if (t->names[i]->view.state == CALLABLES_RESIDENT)
			names[n++] = t->names[i]->view.name;
	if (names && l->callable)
		near = fault_nearest(l->callable, names);
	if (!l->callable)
		err = fault_at(f, -ENOENT, "callable", -1, "see callables/",
			"no callable %d is resident", l->id);
	else
		err = fault_at(f, -ENOENT, "callable", -1, "see callables/",
			"no callable \"%s\" is resident%s%s%s", l->callable,
			near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
	free(names);
	return err;
}

static struct callables_entry *resident_locked(const struct callables *t,
	const struct request_launch *l)
{
	struct callables_entry *e;

	if (l->callable)
		e = named_locked(t, l->callable);
	else
		e = (size_t)l->id < t->n_ids ? t->ids[l->id] : NULL;
	return e && e->view.state == CALLABLES_RESIDENT ? e : NULL;
}

static int find_resident(void *callables, const struct request_launch *l, int32_t *ret_id,
	const struct launch_signature **ret, struct fault *f)
{
	const struct callables *t = callables;
	const struct callables_entry *e = resident_locked(t, l);

	if (!e)
		return unknown_locked(t, l, f);
	*ret_id = e->view.id;
	*ret = e->signature;
	return 0;
}

int callables_plan(struct callables *t, const struct request *req, struct launch_plan **ret,
	struct fault *f)
{
	const struct launch_lookup lookup = { find_resident, t };
	int err;

	lock_take(&t->lock);
	if (!t->settled || t->closing)
		err = callables_no_context(t, f);
	else
		err = launch_plan_new(req, &lookup, ret, f);
	lock_drop(&t->lock);
	return err;
}

static bool waits_for_names(struct callables *t, const struct request *req)
{
	bool waits;

	lock_take(&t->lock);
	waits = !t->settled && !t->closing && t->support != CALLABLES_ABSENT;
	lock_drop(&t->lock);
	for (size_t i = 0; i < req->n_launches; i++)
		waits = waits && req->launches[i].callable;
	return waits;
}

int callables_check(struct callables *t, const struct request *req, struct fault *f)
{
	struct launch_plan *plan = NULL;
	int err = waits_for_names(t, req) ? 0 : callables_plan(t, req, &plan, f);

	free(plan);
	return err;
}

void callables_sha256(struct callables *t, const struct request_launch *l,
	char ret[SHA256_HEX_SIZE])
{
	const struct callables_entry *e;

	lock_take(&t->lock);
	e = resident_locked(t, l);
	memcpy(ret, e ? e->sha256 : "", e ? SHA256_HEX_SIZE : 1);
	lock_drop(&t->lock);
}
