#include "core/engine/models.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/lock.h"
#include "core/base/mem.h"

#define OWN_ALIAS "echo"

/* One version of a model; never changed and never freed before the end. */
struct version {
	struct version *older; /* those that came before, for the end */
	struct artifact *artifact;
	struct manifest *own;
	struct tokenizer *tokenizer;
	char sha256[SHA256_HEX_SIZE];
};

struct model_entry {
	char alias[ALIAS_MAX + 1]; /* fixed */
	/* by lock */
	enum model_state state;
	struct version *now, *all; /* in use, or NULL; the newest of all */
	uint64_t generation;
	struct fault fault, refused;
	/* the engine thread's */
	struct version *before;      /* to roll back to, or NULL */
	char stamp[SHA256_HEX_SIZE]; /* of what was verified last */
};

struct models {
	struct lock lock;
	char *store;
	const char *own_manifest;
	struct model_entry *entries;
	size_t n;
	int chosen; /* fixed after start */
};

static int list_aliases(struct models *m, char ***ret, struct fault *f)
{
	char **own;

	if (!m->own_manifest)
		return artifact_list(m->store, ret, f);
	own = calloc(2, sizeof *own);
	if (own)
		own[0] = strdup(OWN_ALIAS);
	if (!own || !own[0]) {
		free(own);
		return -ENOMEM;
	}
	*ret = own;
	return 0;
}

static int make_entries(struct models *m, char **aliases)
{
	while (aliases[m->n])
		m->n++;
	m->entries = calloc(m->n ? m->n : 1, sizeof *m->entries);
	if (!m->entries)
		return -ENOMEM;
	for (size_t i = 0; i < m->n; i++)
		strncpy(m->entries[i].alias, aliases[i], ALIAS_MAX);
	m->chosen = m->n ? 0 : -1;
	return 0;
}

int models_new(const char *store, const struct device_ops *ops, struct models **ret,
	struct fault *f)
{
	struct models *m = calloc(1, sizeof *m);
	char **aliases = NULL;
	int err;

	if (!m)
		return -ENOMEM;
	lock_init(&m->lock, RANK_MODELS, "models");
	m->own_manifest = ops->own_manifest;
	m->store = strdup(store);
	err = m->store ? list_aliases(m, &aliases, f) : -ENOMEM;
	if (!err)
		err = make_entries(m, aliases);
	artifact_list_free(aliases);
	if (err) {
		models_free(m);
		return err;
	}
	*ret = m;
	return 0;
}

static void free_version(struct version *v)
{
	if (!v)
		return;
	artifact_free(v->artifact);
	manifest_free(v->own);
	tokenizer_free(v->tokenizer);
	free(v);
}

static void free_versions(struct version *v)
{
	while (v) {
		struct version *older = v->older;

		free_version(v);
		v = older;
	}
}

void models_free(struct models *m)
{
	if (!m)
		return;
	for (size_t i = 0; m->entries && i < m->n; i++)
		free_versions(m->entries[i].all);
	free(m->entries);
	free(m->store);
	lock_done(&m->lock);
	free(m);
}

size_t models_count(const struct models *m)
{
	return m->n;
}

int models_find(const struct models *m, const char *alias)
{
	for (size_t i = 0; i < m->n; i++)
		if (strcmp(m->entries[i].alias, alias) == 0)
			return (int)i;
	return -1;
}

static const char *nearest_alias(const struct models *m, const char *alias)
{
	AUTO_FREE const char **names = calloc(m->n + 1, sizeof *names);

	for (size_t i = 0; names && i < m->n; i++)
		names[i] = m->entries[i].alias;
	return names ? fault_nearest(alias, names) : NULL;
}

static int unknown_model(const struct models *m, const char *alias, struct fault *f)
{
	const char *near = nearest_alias(m, alias);

	if (near)
		return fault_at(f, -ENOENT, "model", -1, "use an alias listed in models/",
			"there is no model \"%s\"; did you mean \"%s\"?", alias, near);
	return fault_at(f, -ENOENT, "model", -1, "use an alias listed in models/",
		"there is no model \"%s\"", alias);
}

int models_choose(const struct models *m, const char *alias, struct fault *f)
{
	int i = alias ? models_find(m, alias) : m->chosen;

	if (i >= 0)
		return i;
	if (alias)
		return unknown_model(m, alias, f);
	return fault_at(f, -ENOENT, "model", -1, "install and sign an artifact, then mount again",
		"the store has no model");
}

const char *models_alias(const struct models *m, int index)
{
	return index < 0 ? NULL : m->entries[index].alias;
}

int models_default(const struct models *m)
{
	return m->chosen;
}

int models_set_default(struct models *m, const char *alias, struct fault *f)
{
	int i = models_choose(m, alias, f);

	if (i < 0)
		return i;
	m->chosen = i;
	return 0;
}

void models_get(struct models *m, int index, struct model_view *ret)
{
	static const struct version none;
	struct model_entry *e = &m->entries[index];
	const struct version *v;

	assert(index >= 0 && (size_t)index < m->n);
	lock_take(&m->lock);
	v = e->now ? e->now : &none;
	*ret = (struct model_view){
		.alias = e->alias,
		.state = e->state,
		.manifest = v->artifact ? v->artifact->manifest : v->own,
		.artifact = v->artifact,
		.tokenizer = v->tokenizer,
		.sha256 = v->sha256,
		.generation = e->generation,
		.fault = e->fault,
		.refused = e->refused,
	};
	lock_drop(&m->lock);
}

const char *model_state_name(enum model_state s)
{
	static const char *const names[] = {
		[MODEL_VERIFYING] = "verifying",
		[MODEL_AVAILABLE] = "available",
		[MODEL_READY] = "ready",
		[MODEL_FAILED] = "failed",
	};

	return names[s];
}

/* --- verification: files are read without the lock, what was learned is published under it ---- */

static int load_own(struct models *m, struct version *learned, struct fault *f)
{
	size_t len = strlen(m->own_manifest);

	sha256_hex(m->own_manifest, len, learned->sha256);
	return manifest_parse(m->own_manifest, len, true, &learned->own, f);
}

static int load_artifact(struct models *m, const char *alias, struct version *learned,
	struct fault *f)
{
	int err = artifact_verify(m->store, alias, &learned->artifact, f);

	if (!err)
		memcpy(learned->sha256, learned->artifact->sha256, sizeof learned->sha256);
	return err;
}

static int load_tokenizer(struct version *learned, struct fault *f)
{
	const struct manifest *man = learned->artifact ? learned->artifact->manifest : learned->own;
	AUTO_FREE void *file = NULL;
	size_t len = 0;
	int err = 0;

	if (man->tokenizer.type == TOKENIZER_NONE)
		return 0;
	if (man->tokenizer.file)
		err = artifact_read(learned->artifact, man->tokenizer.file, &file, &len, f);
	return err ? err : tokenizer_new(&man->tokenizer, file, len, &learned->tokenizer, f);
}

/* What the store has now. The stamp is taken first: what changes meanwhile is looked at again. */
static int load_version(struct models *m, int index, struct version **ret, struct fault *f)
{
	struct model_entry *e = &m->entries[index];
	struct version *v = calloc(1, sizeof *v);
	int err = v ? 0 : -ENOMEM;

	*f = (struct fault)FAULT_NONE;
	if (!m->own_manifest)
		artifact_stamp(m->store, e->alias, e->stamp);
	if (!err)
		err = m->own_manifest ? load_own(m, v, f) : load_artifact(m, e->alias, v, f);
	if (!err)
		err = load_tokenizer(v, f);
	if (!err) {
		*ret = v;
		return 0;
	}
	free_version(v);
	if (!f->err)
		fault_set(f, err, "look at the daemon's log", "the model could not be loaded");
	models_name(m, index, f);
	return err;
}

void models_name(const struct models *m, int index, struct fault *f)
{
	char reason[sizeof f->reason + ALIAS_MAX + 16];

	snprintf(reason, sizeof reason, "model %s: %s", m->entries[index].alias, f->reason);
	memcpy(f->reason, reason, sizeof f->reason - 1);
}

static void use_locked(struct model_entry *e, struct version *v)
{
	v->older = e->all;
	e->all = v;
	e->now = v;
	e->state = MODEL_AVAILABLE;
	e->fault = (struct fault)FAULT_NONE;
	e->refused = (struct fault)FAULT_NONE;
}

int models_verify(struct models *m, int index, struct fault *f)
{
	struct model_entry *e = &m->entries[index];
	struct version *v = NULL;
	int err = load_version(m, index, &v, f);

	lock_take(&m->lock);
	if (!err) {
		use_locked(e, v);
	} else {
		e->state = MODEL_FAILED;
		e->fault = *f;
	}
	lock_drop(&m->lock);
	return err;
}

/* --- newer versions --------------------------------------------------------------------------- */

bool models_changed(struct models *m, int index)
{
	struct model_entry *e = &m->entries[index];
	char stamp[SHA256_HEX_SIZE];

	if (m->own_manifest)
		return false;
	artifact_stamp(m->store, e->alias, stamp);
	return strcmp(stamp, e->stamp) != 0;
}

/* Touched, copied or put back: the version in use is what the store has. */
static bool keep_same(struct models *m, struct model_entry *e, const struct version *v)
{
	bool same;

	lock_take(&m->lock);
	same = e->now && strcmp(e->now->sha256, v->sha256) == 0;
	if (same) {
		e->refused = (struct fault)FAULT_NONE;
		if (e->state == MODEL_FAILED)
			e->state = MODEL_AVAILABLE;
	}
	lock_drop(&m->lock);
	return same;
}

static void set_refused(struct models *m, struct model_entry *e, const struct fault *why)
{
	lock_take(&m->lock);
	e->refused = *why;
	if (e->state == MODEL_FAILED)
		e->fault = *why;
	lock_drop(&m->lock);
}

int models_reload(struct models *m, int index, struct fault *f)
{
	struct model_entry *e = &m->entries[index];
	struct version *v = NULL;
	int err = load_version(m, index, &v, f);

	if (err) {
		set_refused(m, e, f);
		return err;
	}
	if (keep_same(m, e, v)) {
		artifact_move(e->now->artifact, v->artifact);
		free_version(v);
		return 0;
	}
	e->before = e->now;
	lock_take(&m->lock);
	use_locked(e, v);
	lock_drop(&m->lock);
	return 0;
}

void models_revive(struct models *m, int index)
{
	struct model_entry *e = &m->entries[index];

	lock_take(&m->lock);
	if (e->state == MODEL_FAILED && e->now) {
		e->state = MODEL_AVAILABLE;
		e->fault = (struct fault)FAULT_NONE;
	}
	lock_drop(&m->lock);
}

bool models_roll_back(struct models *m, int index, const struct fault *why)
{
	struct model_entry *e = &m->entries[index];
	struct version *v = e->before;

	e->before = NULL;
	if (!v)
		return false;
	lock_take(&m->lock);
	e->now = v;
	e->refused = *why;
	lock_drop(&m->lock);
	return true;
}

void models_set_state(struct models *m, int index, enum model_state s, uint64_t generation,
	const struct fault *why)
{
	struct model_entry *e = &m->entries[index];

	lock_take(&m->lock);
	e->state = s;
	if (generation)
		e->generation = generation;
	if (why)
		e->fault = *why;
	lock_drop(&m->lock);
}
