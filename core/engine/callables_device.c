/* The context. All that touches the device is done here, by its thread and without the lock; what the
 * others see of it is put in place afterwards, under the lock. */
#include "core/engine/callables_impl.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/files.h"
#include "core/base/log.h"
#include "core/base/mem.h"

static void show_figures_locked(struct callables *t)
{
	t->figures = t->cache ? callable_figures(t->cache) : (struct callable_figures){ 0 };
	t->launches = t->cache ? callable_counts(t->cache)->launch : 0;
}

void callables_refresh(struct callables *t)
{
	lock_take(&t->lock);
	show_figures_locked(t);
	lock_drop(&t->lock);
}

/* --- registering ------------------------------------------------------------------------------ */

static int no_memory(struct fault *f)
{
	return fault_set(f, -ENOMEM, "try again later", "no memory for another callable");
}

static int read_image(const struct buf *image, struct launch_signature **ret, struct fault *f)
{
	struct image seen;
	int err = image_validate(image->data, image->len, &seen, f);

	if (err)
		return err;
	*ret = launch_signature_new(&seen);
	return *ret ? 0 : no_memory(f);
}

/* Room for the next id: once it is prepared nothing can be taken back. */
static int reserve_id(struct callables *t)
{
	size_t want = callable_figures(t->cache).registrations + 1;
	int err = 0;

	lock_take(&t->lock);
	while (!err && t->n_ids < want) {
		struct callables_entry **moved =
			mem_grow(t->ids, t->n_ids, &t->cap_ids, 64, sizeof *moved);

		if (moved) {
			t->ids = moved;
			t->ids[t->n_ids++] = NULL;
		}
		err = moved ? 0 : -ENOMEM;
	}
	lock_drop(&t->lock);
	return err;
}

static void bind_id(struct callables *t, const char *name, int32_t id, uint64_t bytes,
	struct launch_signature *signature, const char *sha256)
{
	struct callables_entry *e;
	size_t at = 0;
	bool there;

	lock_take(&t->lock);
	there = callables_search_locked(t, name, &at);
	assert(there); /* what waits stays */
	e = t->names[at];
	buf_done(&e->image);
	e->signature = signature;
	memcpy(e->sha256, sha256, SHA256_HEX_SIZE);
	e->view.state = CALLABLES_RESIDENT;
	e->view.id = id;
	e->view.bytes = bytes;
	e->view.changed = clock_wall();
	t->ids[id] = e;
	show_figures_locked(t);
	lock_drop(&t->lock);
}

static int register_image(struct callables *t, const char *name, const struct buf *image,
	const char *sha256, struct fault *f)
{
	AUTO_FREE struct launch_signature *signature = NULL;
	uint64_t bytes = image->len;
	int err = read_image(image, &signature, f);
	int32_t id;

	if (!err && reserve_id(t))
		err = no_memory(f);
	if (err)
		return err;
	id = callable_prepare(t->cache, image->data, bytes, f);
	if (id < 0) {
		callables_refresh(t);
		return f->err ? f->err : -EIO;
	}
	bind_id(t, name, id, bytes, take_ptr(signature), sha256);
	return 0;
}

/* It may be resident already: a new context took it from the store meanwhile. */
int callables_register(struct callables *t, const char *name, struct fault *f)
{
	char sha256[SHA256_HEX_SIZE] = "";
	const struct buf *image = NULL;
	bool resident = false;
	size_t at;
	int err = 0;

	lock_take(&t->lock);
	if (!t->cache || t->closing)
		err = callables_no_context(t, f);
	else if (callables_search_locked(t, name, &at)) {
		resident = t->names[at]->view.state == CALLABLES_RESIDENT;
		if (t->names[at]->view.state == CALLABLES_WAITING)
			image = &t->names[at]->image;
		memcpy(sha256, t->names[at]->sha256, sizeof sha256);
	}
	lock_drop(&t->lock);
	if (err || resident)
		return err;
	if (!image)
		return fault_set(f, -ESTALE, "write the image again",
			"nothing waits under the name");
	if (!sha256[0]) /* nobody asked for it on the way */
		sha256_hex(image->data, image->len, sha256);
	return register_image(t, name, image, sha256, f);
}

int callables_blame(struct callables *t, const char *name, int err, struct fault *f)
{
	const struct buf *image = err ? callables_waiting_image(t, name) : NULL;
	struct fault own = FAULT_NONE;

	if (!image || !image->len || image_validate(image->data, image->len, NULL, &own) == 0)
		return err;
	*f = own;
	return own.err;
}

/* --- the store's ------------------------------------------------------------------------------ */

struct loading {
	struct callables *t;
	int folder;
};

/* Somebody writes it, or has, and brings it to the device himself. */
static bool has_writer(const struct callables_entry *e)
{
	return e->view.state == CALLABLES_WRITING ||
		(e->view.state == CALLABLES_WAITING && e->image.len);
}

/* An entry for a name that the store has; false: not now. */
static bool make_entry(struct callables *t, const char *name)
{
	struct callables_entry *e = NULL;
	size_t at;

	lock_take(&t->lock);
	if (!callables_search_locked(t, name, &at))
		e = callables_add_locked(t, name);
	else if (!has_writer(t->names[at]))
		e = t->names[at];
	if (e)
		e->view.state = CALLABLES_WAITING;
	lock_drop(&t->lock);
	return e != NULL;
}

static void mark_refused(struct callables *t, const char *name, const struct fault *why)
{
	struct callables_view v;

	log_warning("a callable of the store was not registered: %s", why->reason);
	if (callables_find(t, name, &v))
		callables_refuse(t, v.number, why);
}

static void load_one(struct loading *l, const char *name)
{
	AUTO_BUF struct buf image = BUF_INIT;
	char file[CALLABLES_FILE_SIZE], sha256[SHA256_HEX_SIZE];
	struct fault f = FAULT_NONE;
	int err;

	if (!make_entry(l->t, name))
		return;
	callables_file(name, file);
	err = files_load(l->folder, file, FILES_OWN, CALLABLE_BYTES_MAX, &image);
	if (err) {
		fault_set(&f, err, "write it again, or remove it from the store",
			"its image could not be read: %s", strerror(-err));
	} else {
		sha256_hex(image.data, image.len, sha256);
		err = register_image(l->t, name, &image, sha256, &f);
	}
	if (err)
		mark_refused(l->t, name, &f);
}

/* No image has come for it, neither from a writer nor from the store. */
static bool is_missing(const struct callables_entry *e)
{
	return e->view.state == CALLABLES_WAITING && !e->image.len;
}

/* What was removed from the store by hand must not keep its name for ever. */
static void refuse_missing(struct callables *t)
{
	struct callables_view v = { .number = 0 };
	struct fault f = FAULT_NONE;
	bool missing;

	fault_set(&f, -ENOENT, "write it again", "the store has no image of it any more");
	while (callables_next(t, v.number, &v)) {
		size_t at;

		lock_take(&t->lock);
		missing = callables_search_locked(t, v.name, &at) && is_missing(t->names[at]);
		lock_drop(&t->lock);
		if (missing)
			mark_refused(t, v.name, &f);
	}
}

static void load_all(struct callables *t)
{
	struct loading l = { .t = t, .folder = -1 };
	struct callables_kept kept;
	int err = callables_list_kept(t, &kept);

	if (!err)
		err = callables_folder(t, false, &l.folder);
	for (size_t i = 0; !err && i < kept.n; i++)
		load_one(&l, kept.names[i]);
	callables_kept_done(&kept);
	files_close(&l.folder);
	if (err && err != -ENOENT) /* nothing was ever kept */
		log_error("the callables of the store cannot be read: %s", strerror(-err));
	else
		refuse_missing(t);
}

/* --- life ------------------------------------------------------------------------------------- */

static void set_support(struct callables *t, enum callables_support support, bool settled)
{
	lock_take(&t->lock);
	t->support = support;
	t->context += support == CALLABLES_OFFERED && !settled;
	t->settled = settled;
	lock_drop(&t->lock);
}

void callables_attach(struct callables *t, struct device *d)
{
	const struct callable_memory_ops *ops;
	enum npu_error code;
	void *context;

	if (t->cache)
		return;
	code = device_callables(d, &ops, &context);
	if (code == NPU_SUCCESS)
		t->cache = callable_cache_new(ops, context);
	if (!t->cache) {
		set_support(t, CALLABLES_ABSENT, false);
		return;
	}
	set_support(t, CALLABLES_OFFERED, false);
	load_all(t);
	set_support(t, CALLABLES_OFFERED, true);
	callables_refresh(t);
}

/* Until the next context, requests that name callables may wait for it; while this one cannot be
 * closed, there is none to wait for. */
static void set_end(struct callables *t, bool closing)
{
	lock_take(&t->lock);
	t->settled = false;
	t->closing = closing;
	lock_drop(&t->lock);
}

/* Residents are as what waits, until the next context has them. */
static void unbind_all(struct callables *t)
{
	lock_take(&t->lock);
	for (size_t i = 0; i < t->n; i++) {
		struct callables_entry *e = t->all[i];

		if (e->view.state != CALLABLES_RESIDENT)
			continue;
		callables_unbind_locked(t, e);
		e->view.state = CALLABLES_WAITING;
	}
	t->n_ids = 0;
	t->closing = t->settled = false;
	show_figures_locked(t);
	lock_drop(&t->lock);
}

static int end_context(struct callables *t, bool lost, struct fault *f)
{
	int err = 0;

	if (!t->cache)
		return 0;
	set_end(t, false);
	if (lost)
		callable_lose(t->cache);
	else
		err = callable_close(t->cache, f);
	callables_refresh(t);
	set_end(t, err != 0);
	if (err)
		return err;
	callable_cache_free(take_ptr(t->cache));
	return 0;
}

int callables_detach(struct callables *t, bool lost, struct fault *f)
{
	int err = end_context(t, lost, f);

	if (!err)
		unbind_all(t);
	return err;
}

/* The folder is empty then, but for what is just written. */
static void forget_names(struct callables *t)
{
	lock_take(&t->lock);
	for (size_t i = t->n; i-- > 0;)
		if (!has_writer(t->all[i]))
			callables_drop_locked(t, t->all[i]);
	lock_drop(&t->lock);
}

int callables_close(struct callables *t, struct fault *f)
{
	int err;

	if (!t->cache)
		return callables_no_context(t, f);
	err = end_context(t, false, f);
	if (err)
		return err;
	forget_names(t);
	unbind_all(t);
	return 0;
}

bool callables_poisoned(struct callables *t)
{
	return t->cache && callable_figures(t->cache).poisoned;
}

bool callables_take_room(struct callables *t, uint64_t bytes)
{
	bool there = bytes <= CALLABLE_BUFFER_BYTES_MAX - t->room_taken;

	t->room_taken += there ? bytes : 0;
	return there;
}

void callables_give_room(struct callables *t, uint64_t bytes)
{
	t->room_taken -= bytes;
}

struct callable_cache *callables_context(struct callables *t, uint64_t number)
{
	return !number || number == t->context ? t->cache : NULL;
}
