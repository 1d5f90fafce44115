/* A run's part of a session, and the KV that idle sessions keep on the device. All of it runs on the
 * engine's thread, which alone sets `generation` and touches `kv`; others read the one under the
 * lock. */
#include "core/engine/sessions.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/mem.h"
#include "core/engine/metrics.h"
#include "core/engine/sessions_impl.h"

static int begin_locked(struct session *s, uint64_t job, const char *model_sha256, struct fault *f)
{
	if (!s || s->claim != job)
		return fault_set(f, -ECANCELED, "", "the job has ended");
	if (s->tokens.n && strcmp(s->model_sha256, model_sha256) != 0)
		return fault_at(f, -ESTALE, "session", -1, "rmdir the session and begin anew",
			"the model changed since the session \"%s\" began", s->name);
	s->running = true;
	return 0;
}

int sessions_begin(struct sessions *t, const char *name, uint64_t job, const char *model_sha256,
	struct session **ret, const int32_t **ret_tokens, uint32_t *ret_n, struct fault *f)
{
	struct session *s;
	int err;

	lock_take(&t->lock);
	s = sessions_find_locked(t, name);
	err = begin_locked(s, job, model_sha256, f);
	if (!err) {
		*ret = s;
		*ret_tokens = s->tokens.ids;
		*ret_n = s->tokens.n;
	}
	lock_drop(&t->lock);
	return err;
}

static void set_generation(struct sessions *t, struct session *s, uint64_t generation)
{
	lock_take(&t->lock);
	s->generation = generation;
	lock_drop(&t->lock);
}

bool sessions_take_kv(struct sessions *t, struct session *s, struct generation *g,
	struct sequence *ret)
{
	bool kept = s->generation == g->number;

	set_generation(t, s, 0);
	if (!kept)
		return false; /* it went with its generation, or gave way */
	*ret = s->kv;
	if (ret->committed > s->tokens.n)
		sequence_cut(g, ret, s->tokens.n);
	return !ret->lost;
}

int sessions_offer(struct sessions *t, struct session *s, uint64_t job, const int32_t *tokens,
	uint32_t n, uint32_t limit, const char *model_sha256)
{
	int32_t *copy = malloc(n * sizeof *copy);

	if (!copy)
		return -ENOMEM;
	memcpy(copy, tokens, n * sizeof *copy);
	lock_take(&t->lock);
	if (s->claim == job) {
		sessions_drop_tokens(&s->offered);
		s->offered = (struct tokens){ take_ptr(copy), n };
		s->offered_limit = limit;
		strncpy(s->offered_sha256, model_sha256, sizeof s->offered_sha256 - 1);
	}
	lock_drop(&t->lock);
	free(copy);
	return 0;
}

/* How many tokens the session has now, or is going to have if its job ends well. */
static uint32_t length_to_keep(struct sessions *t, const struct session *s)
{
	uint32_t n;

	lock_take(&t->lock);
	n = s->offered.ids ? s->offered.n : s->tokens.n;
	lock_drop(&t->lock);
	return n;
}

/* KV of nothing is not worth a place on the device. */
static enum npu_error keep_kv(struct sessions *t, struct session *s, struct generation *g,
	struct sequence *q)
{
	uint32_t n = length_to_keep(t, s);

	if (!q->lost && q->committed > n && n)
		sequence_cut(g, q, n);
	if (q->lost)
		return NPU_SUCCESS;
	if (!n || !q->committed)
		return sequence_close(g, q);
	s->kv = *q;
	set_generation(t, s, g->number);
	return NPU_SUCCESS;
}

enum npu_error sessions_end(struct sessions *t, struct session *s, struct generation *g,
	struct sequence *q)
{
	enum npu_error code = q ? keep_kv(t, s, g, q) : NPU_SUCCESS;

	lock_take(&t->lock);
	s->running = false;
	sessions_after_use_locked(t, s);
	lock_drop(&t->lock);
	return code;
}

/* One that runs has taken its KV. */
static struct session *oldest_kept(struct session *first, const struct generation *g)
{
	struct session *oldest = NULL;

	for (struct session *s = first; s; s = s->next)
		if (s->generation == g->number && (!oldest || s->used < oldest->used))
			oldest = s;
	return oldest;
}

bool sessions_can_evict(struct sessions *t, const struct generation *g)
{
	bool can;

	lock_take(&t->lock);
	can = oldest_kept(t->removed, g) || oldest_kept(t->first, g);
	lock_drop(&t->lock);
	return can;
}

static bool take_oldest(struct sessions *t, const struct generation *g, struct sequence *ret)
{
	struct session *s;

	lock_take(&t->lock);
	s = oldest_kept(t->first, g);
	if (s) {
		*ret = s->kv;
		s->generation = 0;
	}
	lock_drop(&t->lock);
	return s != NULL;
}

void sessions_make_room(struct sessions *t, struct generation *g)
{
	struct sequence q;

	if (!device_kv_can_allocate(g->device))
		sessions_free_removed(t, g); /* some may have been since the engine looked */
	while (!device_kv_can_allocate(g->device) && take_oldest(t, g, &q)) {
		metrics_add(METRIC_SESSION_EVICTIONS, 1);
		metrics_device_error(sequence_close(g, &q));
	}
}

bool sessions_has_removed(struct sessions *t)
{
	bool has;

	lock_take(&t->lock);
	has = t->removed != NULL;
	lock_drop(&t->lock);
	return has;
}

void sessions_free_removed(struct sessions *t, struct generation *g)
{
	struct session *s, *next;

	lock_take(&t->lock);
	s = take_ptr(t->removed);
	lock_drop(&t->lock);
	for (; s; s = next) {
		next = s->next;
		if (g && s->generation == g->number)
			metrics_device_error(sequence_close(g, &s->kv));
		sessions_free_one(s);
	}
}
