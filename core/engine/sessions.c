/* The table of sessions: who has which, and what the end of a job leaves. */
#include "core/engine/sessions.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/name.h"
#include "core/engine/sessions_impl.h"

bool session_name_valid(const char *name)
{
	return name_is_plain(name, SESSION_NAME_SIZE - 1);
}

/* --- the table -------------------------------------------------------------------------------- */

int sessions_new(const struct sessions_limits *limits, struct sessions **ret)
{
	struct sessions *t = calloc(1, sizeof *t);

	if (!t)
		return -ENOMEM;
	t->limits = *limits;
	t->next_id = 1;
	t->end = &t->first;
	lock_init(&t->lock, RANK_SESSIONS, "sessions");
	*ret = t;
	return 0;
}

void sessions_drop_tokens(struct tokens *k)
{
	free(k->ids);
	*k = (struct tokens){ NULL, 0 };
}

void sessions_free_one(struct session *s)
{
	sessions_drop_tokens(&s->tokens);
	sessions_drop_tokens(&s->offered);
	free(s);
}

static void free_list(struct session *s)
{
	struct session *next;

	for (; s; s = next) {
		next = s->next;
		sessions_free_one(s);
	}
}

void sessions_free(struct sessions *t)
{
	if (!t)
		return;
	free_list(t->first);
	free_list(t->removed);
	lock_done(&t->lock);
	free(t);
}

struct session *sessions_find_locked(struct sessions *t, const char *name)
{
	struct session *s = t->first;

	lock_assert_held(&t->lock);
	while (s && strcmp(s->name, name) != 0)
		s = s->next;
	return s;
}

static struct session *by_id_locked(struct sessions *t, uint64_t id)
{
	struct session *s = t->first;

	lock_assert_held(&t->lock);
	while (s && s->id != id)
		s = s->next;
	return s;
}

static bool in_use(const struct session *s)
{
	return s->claim || s->running;
}

static int room_locked(struct sessions *t, uint32_t uid, struct fault *f)
{
	uint32_t own = 0;

	for (struct session *s = t->first; s; s = s->next)
		own += s->uid == uid;
	if (t->count >= t->limits.all)
		return fault_at(f, -ENOSPC, "session", -1, "free one: rmdir sessions/NAME",
			"there are %u sessions, and no more may be", t->limits.all);
	if (own >= t->limits.user)
		return fault_at(f, -EDQUOT, "session", -1, "free one of yours: rmdir sessions/NAME",
			"you have %u sessions, and no more may be", t->limits.user);
	return 0;
}

static struct session *add_locked(struct sessions *t, uint32_t uid, uint32_t gid, const char *name)
{
	struct session *s = calloc(1, sizeof *s);

	if (!s)
		return NULL;
	s->id = t->next_id++;
	strcpy(s->name, name);
	s->uid = uid;
	s->gid = gid;
	s->model = -1;
	s->used = clock_mono();
	s->changed = clock_wall();
	*t->end = s;
	t->end = &s->next;
	t->count++;
	return s;
}

static void unlink_locked(struct sessions *t, struct session *s)
{
	struct session **link = &t->first;

	while (*link != s)
		link = &(*link)->next;
	*link = s->next;
	if (!s->next)
		t->end = link;
	t->count--;
}

/* It is not in use. */
static void remove_locked(struct sessions *t, struct session *s)
{
	unlink_locked(t, s);
	if (!s->generation) {
		sessions_free_one(s);
		return;
	}
	s->next = t->removed;
	t->removed = s;
}

void sessions_after_use_locked(struct sessions *t, struct session *s)
{
	s->used = clock_mono();
	if (s->fresh && !in_use(s))
		remove_locked(t, s);
}

/* --- jobs ------------------------------------------------------------------------------------- */

static int check_locked(struct sessions *t, uint32_t uid, const char *name, struct session **ret,
	struct fault *f)
{
	*ret = sessions_find_locked(t, name);
	if (!*ret)
		return room_locked(t, uid, f);
	if (uid && uid != (*ret)->uid)
		return fault_at(f, -EACCES, "session", -1, "take another name",
			"the session \"%s\" is another user's", name);
	if (in_use(*ret))
		return fault_at(f, -EBUSY, "session", -1, "write it when the answer is there",
			"the session \"%s\" has a job already", name);
	return 0;
}

int sessions_check(struct sessions *t, uint32_t uid, const char *name, int *ret_model,
	struct fault *f)
{
	struct session *s;
	int err;

	lock_take(&t->lock);
	err = check_locked(t, uid, name, &s, f);
	if (!err)
		*ret_model = s ? s->model : -1;
	lock_drop(&t->lock);
	return err;
}

static int claim_locked(struct sessions *t, uint32_t uid, uint64_t job,
	const struct job_order *order, struct fault *f)
{
	struct session *s;
	int err = check_locked(t, uid, order->session, &s, f);

	if (err)
		return err;
	if (s && s->model >= 0 && s->model != order->model)
		return fault_at(f, -EINVAL, "model", -1, "leave it out",
			"the session \"%s\" is of another model", order->session);
	if (!s) {
		s = add_locked(t, uid, order->gid, order->session);
		if (!s)
			return fault_set(f, -ENOMEM, "send it again later",
				"no memory for the session");
		s->fresh = true;
	}
	s->claim = job;
	s->claimed_model = order->model;
	s->used = clock_mono();
	return 0;
}

int sessions_claim(struct sessions *t, uint32_t uid, uint64_t job, const struct job_order *order,
	struct fault *f)
{
	int err;

	lock_take(&t->lock);
	err = claim_locked(t, uid, job, order, f);
	lock_drop(&t->lock);
	return err;
}

static void take_offer_locked(struct session *s)
{
	sessions_drop_tokens(&s->tokens);
	s->tokens = s->offered;
	s->offered = (struct tokens){ NULL, 0 };
	memcpy(s->model_sha256, s->offered_sha256, sizeof s->model_sha256);
	s->limit = s->offered_limit;
	s->model = s->claimed_model;
	s->fresh = false;
	s->changed = clock_wall();
}

void sessions_settle(struct sessions *t, const char *name, uint64_t job, bool done)
{
	struct session *s;

	lock_take(&t->lock);
	s = sessions_find_locked(t, name);
	if (s && s->claim == job) {
		if (done && s->offered.ids)
			take_offer_locked(s);
		sessions_drop_tokens(&s->offered);
		s->claim = 0;
		sessions_after_use_locked(t, s);
	}
	lock_drop(&t->lock);
}

/* --- the folder ------------------------------------------------------------------------------- */

int sessions_make(struct sessions *t, uint32_t uid, uint32_t gid, const char *name)
{
	int err;

	if (!session_name_valid(name))
		return -EINVAL;
	lock_take(&t->lock);
	err = sessions_find_locked(t, name) ? -EEXIST : room_locked(t, uid, NULL);
	if (!err && !add_locked(t, uid, gid, name))
		err = -ENOMEM;
	lock_drop(&t->lock);
	return err;
}

int sessions_remove(struct sessions *t, uint64_t id)
{
	struct session *s;
	int err;

	lock_take(&t->lock);
	s = by_id_locked(t, id);
	err = !s ? -ENOENT : in_use(s) ? -EBUSY : 0;
	if (!err)
		remove_locked(t, s);
	lock_drop(&t->lock);
	return err;
}

static int check_trim_locked(const struct session *s, uint64_t length)
{
	if (!s)
		return -ESTALE;
	if (in_use(s))
		return -EBUSY;
	if (s->limit && length > s->limit) /* 0: none before the first answer */
		return -EINVAL;
	return length > s->tokens.n ? -EOPNOTSUPP : 0;
}

static int trim_locked(struct session *s, uint64_t length)
{
	int err = check_trim_locked(s, length);

	if (err || length == s->tokens.n)
		return err;
	s->tokens.n = (uint32_t)length;
	s->used = clock_mono();
	s->changed = clock_wall();
	if (length)
		return 0;
	sessions_drop_tokens(&s->tokens); /* a beginning is for any model */
	s->model = -1;
	s->limit = 0;
	return 0;
}

int sessions_trim(struct sessions *t, uint64_t id, uint64_t length)
{
	int err;

	lock_take(&t->lock);
	err = trim_locked(by_id_locked(t, id), length);
	lock_drop(&t->lock);
	return err;
}

int sessions_check_trim(struct sessions *t, uint64_t id, uint64_t length)
{
	int err;

	lock_take(&t->lock);
	err = check_trim_locked(by_id_locked(t, id), length);
	lock_drop(&t->lock);
	return err;
}

/* NULL: false. */
static bool view_locked(const struct session *s, struct session_view *ret)
{
	if (!s)
		return false;
	*ret = (struct session_view){
		.id = s->id,
		.uid = s->uid,
		.gid = s->gid,
		.model = s->model,
		.length = s->tokens.n,
		.limit = s->limit,
		.in_use = in_use(s),
		.generation = s->generation,
		.changed = s->changed,
	};
	memcpy(ret->name, s->name, sizeof ret->name);
	return true;
}

bool sessions_find(struct sessions *t, const char *name, struct session_view *ret)
{
	bool found;

	lock_take(&t->lock);
	found = view_locked(sessions_find_locked(t, name), ret);
	lock_drop(&t->lock);
	return found;
}

bool sessions_look(struct sessions *t, uint64_t id, struct session_view *ret)
{
	bool found;

	lock_take(&t->lock);
	found = view_locked(by_id_locked(t, id), ret);
	lock_drop(&t->lock);
	return found;
}

bool sessions_next(struct sessions *t, uint64_t id, struct session_view *ret)
{
	struct session *s;
	bool found;

	lock_take(&t->lock);
	s = t->first;
	while (s && s->id <= id)
		s = s->next;
	found = view_locked(s, ret);
	lock_drop(&t->lock);
	return found;
}

size_t sessions_count(struct sessions *t)
{
	size_t n;

	lock_take(&t->lock);
	n = t->count;
	lock_drop(&t->lock);
	return n;
}

size_t sessions_tidy(struct sessions *t)
{
	int64_t before = clock_mono() - t->limits.idle_ns;
	struct session *s, *next;
	size_t n = 0;

	if (!t->limits.idle_ns)
		return 0;
	lock_take(&t->lock);
	for (s = t->first; s; s = next) {
		next = s->next;
		if (in_use(s) || s->used > before)
			continue;
		remove_locked(t, s);
		n++;
	}
	lock_drop(&t->lock);
	return n;
}
