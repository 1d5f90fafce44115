/* The models a store offers: which aliases there are is fixed at start, what is known of each is
 * learned on the engine's thread (verification reads every file) and read by anyone. A version that
 * was verified keeps its manifest and tokenizer until the end, also when a newer one replaced it. */
#ifndef NPUFS_CORE_ENGINE_MODELS_H
#define NPUFS_CORE_ENGINE_MODELS_H

#include "core/artifact/artifact.h"
#include "core/artifact/tokenizer.h"
#include "core/device.h"

enum model_state { MODEL_VERIFYING, MODEL_AVAILABLE, MODEL_READY, MODEL_FAILED };

struct models;

/* What there is to know of one model at this moment; pointers live as long as `models`. */
struct model_view {
	const char *alias;
	enum model_state state;
	const struct manifest *manifest;   /* NULL until verified */
	const struct artifact *artifact;   /* NULL until verified, and for a backend's own */
	const struct tokenizer *tokenizer; /* NULL where there is none */
	const char *sha256;                /* of the manifest; "" until verified */
	uint64_t generation;               /* the last that was configured; 0 none */
	struct fault fault;                /* why it failed */
	struct fault refused;              /* why a newer version of it is not used; err 0: none */
};

/* List the store's aliases, or the backend's own one ("echo") when it brings its manifest. */
int models_new(const char *store, const struct device_ops *ops, struct models **ret,
	struct fault *f);
void models_free(struct models *m); /* NULL is fine */

size_t models_count(const struct models *m);
int models_find(const struct models *m, const char *alias); /* index, or -1 */
/* The index for a request's model: NULL means the default. -ENOENT with the nearest alias in `f`. */
int models_choose(const struct models *m, const char *alias, struct fault *f);
const char *models_alias(const struct models *m, int index); /* NULL for -1 */
int models_default(const struct models *m);                  /* index, or -1 when there is none */
int models_set_default(struct models *m, const char *alias,
	struct fault *f); /* before any thread */
void models_get(struct models *m, int index, struct model_view *ret);
const char *model_state_name(enum model_state s);

/* --- for the engine's thread ------------------------------------------------------------------ */

/* Put the model's alias in front of a reason: health and log speak of one among several. */
void models_name(const struct models *m, int index, struct fault *f);
/* Verify the artifact and make its tokenizer: AVAILABLE, or FAILED with its fault, which is
 * returned. */
int models_verify(struct models *m, int index, struct fault *f);
/* Is what the store has of it another than was verified last? Reads no file. */
bool models_changed(struct models *m, int index);
/* Verify what the store has of it now. A good version takes the place of the old one, which is kept
 * to roll back to, and is AVAILABLE; a bad one is refused, and a model that did not fail stays as it
 * was. */
int models_reload(struct models *m, int index, struct fault *f);
/* A model that failed, but has a version that was verified, may be tried again. */
void models_revive(struct models *m, int index);
/* Back to the version before, because of `why`; false when there is none any more. */
bool models_roll_back(struct models *m, int index, const struct fault *why);
void models_set_state(struct models *m, int index, enum model_state s, uint64_t generation,
	const struct fault *why);

#endif
