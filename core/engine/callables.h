/* callables/: the device's resident programs under names of their own, and what jobs launch. An image
 * that was written as NAME.img is kept in STORE/callables and registered with the device's context; its
 * id is the context's. When the context ends (the device was reset, or its state became unknown) what
 * the store has is registered anew with the next one, in the order of names, under other ids. So names
 * last and ids do not: what holds an id also holds the number of its context.
 *
 *   WRITING    NAME.img is being written; its bytes are the writer's
 *   WAITING    they are whole and on their way to the device
 *   RESIDENT   registered: it can neither be removed nor overwritten until the context is closed
 *   REFUSED    it was not taken, and `fault` says why: the name can be used again
 *
 * Any thread may look; what is said to be the device's thread's is for that one. Rules and numbers:
 * the specification of callables; errors: core/callable/limits.h. */
#ifndef NPUFS_CORE_ENGINE_CALLABLES_H
#define NPUFS_CORE_ENGINE_CALLABLES_H

#include "core/base/buf.h"
#include "core/base/crypto.h"
#include "core/callable/cache.h"
#include "core/device.h"
#include "core/engine/launch_plan.h"

#define CALLABLES_NAME_MAX    63
#define CALLABLES_REFUSED_MAX 64 /* refusals that are remembered; then the oldest is forgotten */
#define CALLABLES_UNREGISTERED_MAX \
	CALLABLE_BYTES_MAX /* of memory, for images that are written or wait; none can have more */
/* What such a job shows as its model: no alias can be like it. */
#define CALLABLES_ALIAS "callables/"

enum callables_state {
	CALLABLES_WRITING,
	CALLABLES_WAITING,
	CALLABLES_RESIDENT,
	CALLABLES_REFUSED
};

struct callables_view {
	uint64_t number; /* never used again */
	char name[CALLABLES_NAME_MAX + 1];
	enum callables_state state;
	int32_t id; /* -1 unless it is resident */
	uint64_t bytes;
	int64_t changed; /* wall ns */
	struct fault fault;
};

struct callables;

/* `store` outlives it. */
int callables_new(const char *store, struct callables **ret);
void callables_free(struct callables *t); /* detached; NULL is fine */

/* 1..CALLABLES_NAME_MAX letters, digits and . _ -, not beginning with a dot. */
bool callables_name_valid(const char *name);
/* What stands before `suffix` in a file's name, valid or not; false when there is no such form. */
bool callables_name_of(const char *file, const char *suffix, char ret[CALLABLES_NAME_MAX + 1]);

/* --- names ------------------------------------------------------------------------------------ */

/* A name is to be written. -EINVAL: none such; -EBUSY: it is resident, or being written; -ENOSPC: as
 * many names as ids, and CALLABLES_REFUSED_MAX more. */
int callables_create(struct callables *t, const char *name, uint64_t *ret_number);
/* So many bytes of it are to have been written. -ENOSPC: all that are not registered yet would have more
 * than CALLABLES_UNREGISTERED_MAX. */
int callables_grow(struct callables *t, uint64_t number, uint64_t bytes);
/* The image is whole, and taken. -ESTALE unless it was being written. */
int callables_commit(struct callables *t, uint64_t number, struct buf *image);
/* It was not taken. Without a reason (err 0) the name is as if it had never been. */
void callables_refuse(struct callables *t, uint64_t number, const struct fault *why);
/* Forget a refusal. -EBUSY for any other state. */
int callables_remove(struct callables *t, uint64_t number);

bool callables_find(struct callables *t, const char *name, struct callables_view *ret);
bool callables_look(struct callables *t, uint64_t number, struct callables_view *ret);
bool callables_next(struct callables *t, uint64_t after, struct callables_view *ret);
struct callable_figures callables_figures(struct callables *t, uint64_t *ret_launches);
/* "key: value" lines: the context and its figures. */
void callables_render(struct callables *t, struct buf *out);

/* --- the store; waits for the disk ------------------------------------------------------------- */

/* Digest of an image that waits. */
int callables_digest(struct callables *t, const char *name, char ret[SHA256_HEX_SIZE]);
/* Keep the image of a name that waits; take it back. */
int callables_keep(struct callables *t, const char *name, struct fault *f);
void callables_unkeep(struct callables *t, const char *name);
int callables_unkeep_all(struct callables *t, struct fault *f);
/* An open descriptor of a kept image, to be read. */
int callables_open(struct callables *t, const char *name, int *ret_fd);

/* --- the device's thread ----------------------------------------------------------------------- */

/* Open a context on the device, unless there is one, and register all that the store has; what is
 * refused is said of its name. A device without callables is no error. */
void callables_attach(struct callables *t, struct device *d);
/* The context ends; with `lost` the device has gone, and its memory with it. 0, or why something is
 * still held: then call it again. */
int callables_detach(struct callables *t, bool lost, struct fault *f);
/* Show what launching has changed of the figures. */
void callables_refresh(struct callables *t);
/* The device's state is unknown to the context. */
bool callables_poisoned(struct callables *t);
/* Register a name that waits. */
int callables_register(struct callables *t, const char *name, struct fault *f);
/* `err` and `f` of a name that was not registered, or -EINVAL and what is wrong with its image, which
 * comes before all that is wrong with device and context. */
int callables_blame(struct callables *t, const char *name, int err, struct fault *f);
/* End the context and forget all names; the store's part is callables_unkeep_all(). A new one is
 * opened by the next callables_attach(). */
int callables_close(struct callables *t, struct fault *f);
/* Room for `bytes` among the buffers (callable/buffer.h), which launches share; false: not now. */
bool callables_take_room(struct callables *t, uint64_t bytes);
void callables_give_room(struct callables *t, uint64_t bytes);
/* The present context's, or NULL when that is not the one with this number (0: whichever). */
struct callable_cache *callables_context(struct callables *t, uint64_t number);

/* --- launching --------------------------------------------------------------------------------- */

/* The number of the present context; 0 while what the store has is not registered yet. */
uint64_t callables_number(struct callables *t);
/* Plan a request. -ENOENT: no such name or id; -EOPNOTSUPP: the device has none. Any thread. */
int callables_plan(struct callables *t, const struct request *req, struct launch_plan **ret,
	struct fault *f);
/* Would it be planned? What names callables that are still to be registered may wait for them. */
int callables_check(struct callables *t, const struct request *req, struct fault *f);
/* SHA-256 of the image of a resident, "" when there is none. */
void callables_sha256(struct callables *t, const struct request_launch *l,
	char ret[SHA256_HEX_SIZE]);

#endif
