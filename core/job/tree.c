/* Two hash tables (ids; names within a folder) and, for each folder, an array of entries in order
 * of linking. A place in a listing is an entry's number, never an index: numbers only grow, so a
 * listing resumes at the first one not yet seen whatever was added or removed meanwhile. Removed
 * entries leave holes, closed when half the array is holes. */
#include "core/job/tree.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/crypto.h"
#include "core/base/mem.h"
#include "core/engine/metrics.h"

#define FIRST_BUCKETS 16

struct slot_entry {
	uint64_t entry;
	struct tree_node *node; /* NULL: a hole */
};

struct tree_dir {
	struct tree_node **buckets;
	size_t n_buckets, count;
	struct slot_entry *entries;
	size_t n_entries, cap_entries;
	uint64_t next_entry;
	unsigned subdirs;
};

struct tree {
	struct tree_node *root;
	struct tree_node **buckets; /* by id */
	size_t n_buckets, n_nodes;
	uint64_t linked;
};

/* Unknown to users, who could choose names that fall into one chain. Set with the first tree. */
static uint64_t hash_seed;

/* --- by id ------------------------------------------------------------------------------------ */

static size_t hash_id(uint64_t id, size_t n_buckets)
{
	return (size_t)((id * 0x9e3779b97f4a7c15ULL) >> 20) & (n_buckets - 1);
}

static void ids_grow(struct tree *t)
{
	size_t n = t->n_buckets * 2;
	struct tree_node **buckets = calloc(n, sizeof *buckets);

	if (!buckets)
		return; /* longer chains, no harm */
	for (size_t i = 0; i < t->n_buckets; i++)
		for (struct tree_node *x = t->buckets[i], *next; x; x = next) {
			struct tree_node **b = &buckets[hash_id(x->id, n)];

			next = x->next_by_id;
			x->next_by_id = *b;
			*b = x;
		}
	free(t->buckets);
	t->buckets = buckets;
	t->n_buckets = n;
}

static void ids_add(struct tree *t, struct tree_node *n)
{
	struct tree_node **b;

	if (t->n_nodes >= t->n_buckets)
		ids_grow(t);
	b = &t->buckets[hash_id(n->id, t->n_buckets)];
	n->next_by_id = *b;
	*b = n;
	t->n_nodes++;
}

static void ids_remove(struct tree *t, struct tree_node *n)
{
	struct tree_node **b = &t->buckets[hash_id(n->id, t->n_buckets)];

	while (*b != n)
		b = &(*b)->next_by_id;
	*b = n->next_by_id;
	t->n_nodes--;
}

struct tree_node *tree_by_id(struct tree *t, uint64_t id)
{
	struct tree_node *n = t->buckets[hash_id(id, t->n_buckets)];

	while (n && n->id != id)
		n = n->next_by_id;
	return n;
}

/* --- nodes ------------------------------------------------------------------------------------ */

static void node_free(struct tree_node *n)
{
	assert(!n->job && !n->verdict);
	if (n->dir) {
		free(n->dir->buckets);
		free(n->dir->entries);
		free(n->dir);
	}
	spool_file_put(n->file);
	free(n->name);
	free(n);
}

static struct tree_node *node_new(uint64_t id, const struct owner *o)
{
	struct tree_node *n = calloc(1, sizeof *n);

	if (!n)
		return NULL;
	n->id = id;
	n->owner = *o;
	n->atime = n->mtime = n->ctime = clock_wall();
	if (!o->dir)
		return n;
	n->dir = calloc(1, sizeof *n->dir);
	if (!n->dir) {
		free(n);
		return NULL;
	}
	return n;
}

struct tree_node *tree_node_new(struct tree *t, uint64_t id, const struct owner *o)
{
	struct tree_node *n = node_new(id, o);

	if (n)
		ids_add(t, n);
	return n;
}

struct tree *tree_new(uint64_t root_id, const struct owner *root)
{
	struct tree *t = calloc(1, sizeof *t);

	if (!t)
		return NULL;
	if (!hash_seed && random_bytes(&hash_seed, sizeof hash_seed))
		hash_seed = (uint64_t)clock_mono(); /* better than none */
	t->n_buckets = FIRST_BUCKETS;
	t->buckets = calloc(t->n_buckets, sizeof *t->buckets);
	t->root = node_new(root_id, root);
	if (!t->buckets || !t->root) {
		if (t->root)
			node_free(t->root);
		free(t->buckets);
		free(t);
		return NULL;
	}
	ids_add(t, t->root);
	return t;
}

void tree_free(struct tree *t)
{
	for (size_t i = 0; i < t->n_buckets; i++)
		for (struct tree_node *n = t->buckets[i], *next; n; n = next) {
			next = n->next_by_id;
			node_free(n);
		}
	free(t->buckets);
	free(t);
}

struct tree_node *tree_root(struct tree *t)
{
	return t->root;
}

uint64_t tree_count(const struct tree *t)
{
	return t->linked;
}

void tree_release(struct tree *t, struct tree_node *n)
{
	bool known = n->dir && n->lookups;

	if (n->parent || n == t->root || known || n->opens || n->writers)
		return;
	if (n->lookups)
		metrics_add(METRIC_INODES, -1);
	ids_remove(t, n);
	node_free(n);
}

/* --- names in a folder ------------------------------------------------------------------------ */

/* Requests are filed under their stem, the rest under the whole name. */
static size_t hash_key(bool request, const char *key, size_t len, size_t n_buckets)
{
	uint64_t h = (request ? 0x84222325cbf29ce4ULL : 0xcbf29ce484222325ULL) ^ hash_seed;

	for (size_t i = 0; i < len; i++)
		h = (h ^ (unsigned char)key[i]) * 0x100000001b3ULL;
	return (size_t)(h ^ (h >> 29)) & (n_buckets - 1);
}

static size_t hash_name(const struct tree_node *n, size_t n_buckets)
{
	bool request = name_is_request(n->what.class);

	return hash_key(request, n->name, request ? n->what.stem_len : strlen(n->name), n_buckets);
}

static int names_grow(struct tree_dir *d)
{
	size_t n = d->n_buckets ? d->n_buckets * 2 : FIRST_BUCKETS;
	struct tree_node **buckets;

	if (d->count < d->n_buckets)
		return 0;
	buckets = calloc(n, sizeof *buckets);
	if (!buckets)
		return -ENOMEM;
	for (size_t i = 0; i < d->n_buckets; i++)
		for (struct tree_node *x = d->buckets[i], *next; x; x = next) {
			struct tree_node **b = &buckets[hash_name(x, n)];

			next = x->next_by_name;
			x->next_by_name = *b;
			*b = x;
		}
	free(d->buckets);
	d->buckets = buckets;
	d->n_buckets = n;
	return 0;
}

struct tree_node *tree_find_stem(struct tree_node *dir, const char *stem, size_t len)
{
	struct tree_dir *d = dir->dir;
	struct tree_node *n;

	if (!d->n_buckets)
		return NULL;
	n = d->buckets[hash_key(true, stem, len, d->n_buckets)];
	while (n &&
		!(name_is_request(n->what.class) && n->what.stem_len == len &&
			memcmp(n->name, stem, len) == 0))
		n = n->next_by_name;
	return n;
}

struct tree_node *tree_find(struct tree_node *dir, const char *name)
{
	struct tree_dir *d = dir->dir;
	struct jobname what = jobname_class(name);
	struct tree_node *n;

	if (!d->n_buckets)
		return NULL;
	if (name_is_request(what.class)) {
		n = tree_find_stem(dir, name, what.stem_len);
		return n && strcmp(n->name, name) == 0 ? n : NULL;
	}
	n = d->buckets[hash_key(false, name, strlen(name), d->n_buckets)];
	while (n && (name_is_request(n->what.class) || strcmp(n->name, name) != 0))
		n = n->next_by_name;
	return n;
}

/* --- entries in order ------------------------------------------------------------------------- */

static size_t entry_index(const struct tree_dir *d, uint64_t from)
{
	size_t low = 0, high = d->n_entries;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (d->entries[mid].entry < from)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static void entries_close_holes(struct tree_dir *d)
{
	size_t kept = 0;

	if (d->n_entries < FIRST_BUCKETS || d->count > d->n_entries / 2)
		return;
	for (size_t i = 0; i < d->n_entries; i++)
		if (d->entries[i].node)
			d->entries[kept++] = d->entries[i];
	d->n_entries = kept;
}

static int entries_room(struct tree_dir *d)
{
	struct slot_entry *entries =
		mem_grow(d->entries, d->n_entries, &d->cap_entries, FIRST_BUCKETS, sizeof *entries);

	if (!entries)
		return -ENOMEM;
	d->entries = entries;
	return 0;
}

struct tree_node *tree_entry_from(struct tree_node *dir, uint64_t from)
{
	struct tree_dir *d = dir->dir;

	for (size_t i = entry_index(d, from); i < d->n_entries; i++)
		if (d->entries[i].node)
			return d->entries[i].node;
	return NULL;
}

/* --- linking ---------------------------------------------------------------------------------- */

/* Room for one more, so that attach() cannot fail. */
static int make_room(struct tree_dir *d)
{
	return names_grow(d) || entries_room(d) ? -ENOMEM : 0;
}

static void attach(struct tree_node *dir, struct tree_node *n, char *name)
{
	struct tree_dir *d = dir->dir;
	struct tree_node **b;

	free(n->name);
	n->name = name;
	n->what = jobname_class(name);
	n->parent = dir;
	n->entry = d->next_entry++;
	b = &d->buckets[hash_name(n, d->n_buckets)];
	n->next_by_name = *b;
	*b = n;
	d->entries[d->n_entries++] = (struct slot_entry){ n->entry, n };
	d->count++;
	d->subdirs += n->owner.dir;
	dir->mtime = dir->ctime = clock_wall();
}

static void detach(struct tree_node *n)
{
	struct tree_node *dir = n->parent;
	struct tree_dir *d = dir->dir;
	struct tree_node **b = &d->buckets[hash_name(n, d->n_buckets)];

	while (*b != n)
		b = &(*b)->next_by_name;
	*b = n->next_by_name;
	d->entries[entry_index(d, n->entry)].node = NULL;
	d->count--;
	d->subdirs -= n->owner.dir;
	entries_close_holes(d);
	n->parent = NULL;
	dir->mtime = dir->ctime = n->ctime = clock_wall();
}

char *tree_reserve(struct tree_node *dir, const char *name)
{
	char *copy = strdup(name);

	if (copy && make_room(dir->dir)) {
		free(copy);
		copy = NULL;
	}
	return copy;
}

int tree_link(struct tree *t, struct tree_node *dir, struct tree_node *n, const char *name)
{
	char *copy = tree_reserve(dir, name);

	if (!copy)
		return -ENOMEM;
	attach(dir, n, copy);
	t->linked++;
	return 0;
}

void tree_unlink(struct tree *t, struct tree_node *n)
{
	detach(n);
	t->linked--;
	tree_release(t, n);
}

void tree_move(struct tree_node *n, struct tree_node *dir, char *reserved)
{
	detach(n);
	attach(dir, n, reserved);
}

/* The cursor: a bucket, and how many of its nodes were passed. */
#define PASSED_BITS 16

struct tree_node *tree_next(struct tree *t, uint64_t *cursor)
{
	uint64_t bucket = *cursor >> PASSED_BITS, passed = *cursor & ((1 << PASSED_BITS) - 1);

	for (; bucket < t->n_buckets; bucket++, passed = 0) {
		struct tree_node *n = t->buckets[bucket];

		for (uint64_t i = 0; n && i < passed; i++)
			n = n->next_by_id;
		for (; n; n = n->next_by_id) {
			passed++;
			if (!n->parent)
				continue;
			*cursor = bucket << PASSED_BITS | passed;
			return n;
		}
	}
	*cursor = 0;
	return NULL;
}

/* --- shape ------------------------------------------------------------------------------------ */

size_t tree_dir_count(const struct tree_node *dir)
{
	return dir->dir->count;
}

unsigned tree_dir_subdirs(const struct tree_node *dir)
{
	return dir->dir->subdirs;
}

bool tree_is_under(const struct tree_node *n, const struct tree_node *dir)
{
	while (n && n != dir)
		n = n->parent;
	return n != NULL;
}

unsigned tree_depth(const struct tree_node *dir)
{
	unsigned depth = 0;

	for (; dir->parent; dir = dir->parent)
		depth++;
	return depth;
}

unsigned tree_height(const struct tree_node *dir)
{
	unsigned highest = 0;

	for (size_t i = 0; dir->dir->subdirs && i < dir->dir->n_entries; i++) {
		const struct tree_node *n = dir->dir->entries[i].node;

		if (n && n->dir) {
			unsigned h = 1 + tree_height(n);

			highest = h > highest ? h : highest;
		}
	}
	return highest;
}
