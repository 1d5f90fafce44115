/* What callables.c (names), callables_device.c (the context) and callables_store.c (what is kept) share. */
#ifndef NPUFS_CORE_ENGINE_CALLABLES_IMPL_H
#define NPUFS_CORE_ENGINE_CALLABLES_IMPL_H

#include "core/base/lock.h"
#include "core/engine/callables.h"

struct callables_entry {
	struct callables_view view;
	struct buf image; /* while it waits; only the thread that registers it frees it then */
	struct launch_signature *signature; /* of a resident */
	char sha256[SHA256_HEX_SIZE];       /* likewise, and once callables_digest() was asked */
};

enum callables_support { CALLABLES_UNKNOWN, CALLABLES_ABSENT, CALLABLES_OFFERED };

struct callables {
	const char *store; /* fixed */
	struct lock lock;
	/* by lock */
	struct callables_entry **all; /* by number */
	size_t n, cap;
	struct callables_entry **names; /* the same, sorted by name */
	size_t cap_names;
	struct callables_entry **ids; /* residents, by id; NULL: none */
	size_t n_ids, cap_ids;
	uint64_t last_number;
	uint64_t context; /* the number of the present one, or of the last */
	bool settled;     /* what the store has was registered with it */
	bool closing;     /* its end did not succeed yet */
	enum callables_support support;
	struct callable_figures figures; /* as of the last change */
	uint64_t launches;               /* likewise */

	/* the device's thread's */
	struct callable_cache *cache; /* NULL: no context */
	uint64_t room_taken;          /* of the buffers */
};

/* The place of a name in `names`; true when it is there. */
bool callables_search_locked(const struct callables *t, const char *name, size_t *ret);
/* A new entry of that name, which is not there yet; NULL: no memory. */
struct callables_entry *callables_add_locked(struct callables *t, const char *name);
void callables_drop_locked(struct callables *t, struct callables_entry *e);
/* Not resident any more, or not yet. */
void callables_unbind_locked(struct callables *t, struct callables_entry *e);
/* Why there is no context to use. */
int callables_no_context(const struct callables *t, struct fault *f);

/* The bytes of one that waits, which stay where they are until it is registered; NULL: it does not. */
const struct buf *callables_waiting_image(struct callables *t, const char *name);

/* The folder of the images; `make` it when it is not there, else -ENOENT. */
int callables_folder(const struct callables *t, bool make, int *ret_fd);
#define CALLABLES_SUFFIX    ".img"
#define CALLABLES_FILE_SIZE (CALLABLES_NAME_MAX + sizeof CALLABLES_SUFFIX)
void callables_file(const char *name, char ret[CALLABLES_FILE_SIZE]);

/* Remove what a daemon that was killed had of images it was keeping. Before anything is kept. */
void callables_remove_halves(const struct callables *t);

/* Names of the images that the store has, sorted. */
struct callables_kept {
	char **names;
	size_t n, cap;
};
/* -ENOENT: nothing was ever kept. After other errors `ret` has what could be read. */
int callables_list_kept(const struct callables *t, struct callables_kept *ret);
void callables_kept_done(struct callables_kept *k);

#endif
