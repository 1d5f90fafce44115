/* A store with three approvers a, b, c, a stranger x, and a clock and generation to turn. */
#ifndef NPUFS_TESTS_APPROVAL_RIG_H
#define NPUFS_TESTS_APPROVAL_RIG_H

#include "artifact_files.h"

#include <errno.h>
#include <stdatomic.h>

#include "core/artifact/artifact.h"
#include "core/artifact/signature.h"
#include "core/base/clock.h"
#include "core/base/fault.h"
#include "core/base/mem.h"
#include "core/control/approvals.h"

struct approval_rig {
	struct work w;
	char store[WORK_PATH_SIZE];
	struct approvals *a;
	struct approvals_owner owner;
	struct key *keys[4]; /* a, b, c, x */
	char ids[4][KEY_ID_SIZE];
	_Atomic int64_t now;
	_Atomic uint64_t generation;
};

static const struct cred approval_asker = { .uid = 0, .gid = 5, .pid = 77 };
static const struct approvals_order reset = { &approval_asker, 1000, "reset_device force",
	"reset it", true, "stuck since noon" };

static inline int64_t approval_now(void *context)
{
	return atomic_load(&((struct approval_rig *)context)->now);
}

static inline uint64_t approval_generation(void *context)
{
	return atomic_load(&((struct approval_rig *)context)->generation);
}

static inline void approvals_again(struct approval_rig *x)
{
	struct fault f = FAULT_NONE;

	approvals_close(x->a);
	x->a = NULL;
	if (approvals_open(x->store, &x->owner, &x->a, &f))
		fail_msg("approvals_open: %s", f.reason);
}

static inline void approval_add_key(struct approval_rig *x, int i)
{
	AUTO_BUF struct buf pem = BUF_INIT;
	char name[64];

	assert_int_equal(key_public_pem(x->keys[i], &pem), 0);
	snprintf(name, sizeof name, "store/approvers/%c.pem", "abcx"[i]);
	work_write(&x->w, name, pem.data, pem.len);
}

static inline void approval_rig_make(struct approval_rig *x)
{
	struct fault f;

	work_make(&x->w);
	strcpy(x->store, work_path(&x->w, "store"));
	assert_int_equal(store_init(x->store, &f), 0);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(key_generate(&x->keys[i]), 0);
		key_id(x->keys[i], x->ids[i]);
		if (i < 3)
			approval_add_key(x, i);
	}
	x->now = 5000 * NS_PER_SEC;
	x->generation = 7;
	x->owner = (struct approvals_owner){ .need = 2,
		.generation = approval_generation,
		.now = approval_now,
		.context = x };
	approvals_again(x);
}

static inline void approval_rig_remove(struct approval_rig *x)
{
	approvals_close(x->a);
	for (int i = 0; i < 4; i++)
		key_free(x->keys[i]);
	work_remove(&x->w);
}

/* The line of key `i` over what `id`'s text is now. */
static inline void approval_line(struct approval_rig *x, const char *id, int i, struct buf *ret)
{
	AUTO_BUF struct buf text = BUF_INIT;
	char operation[APPROVAL_ID_SIZE];
	struct fault f = FAULT_NONE;
	size_t n;

	buf_reset(ret);
	if (approvals_text(x->a, id, &text, &f))
		fail_msg("approvals_text: %s", f.reason);
	assert_null(approval_text_get(text.data, text.len, operation, &n));
	assert_string_equal(operation, id);
	assert_int_equal(signature_put(APPROVAL_WORD, x->keys[i], text.data, n, ret), 0);
}

#endif
