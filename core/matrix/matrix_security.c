/* Security: who may not is refused, and the refusal is in the audit trail. The cases need the
 * privileged plane, which checks and audits; without it there is nothing to refuse. */
#include "core/matrix/matrix_impl.h"

#include "core/mem.h"

static void needs_plane(struct matrix *m, int arg)
{
	(void)arg;
	matrix_skip(m, "there is no privileged plane yet that would refuse and audit it");
}

static const struct matrix_case cases[] = {
	{ "unauthorised reset", FOR_ANY, NEEDS_NOTHING, needs_plane, 0 },
	{ "unauthorised read of memory", FOR_ANY, NEEDS_NOTHING, needs_plane, 0 },
	{ "unauthorised write of memory", FOR_ANY, NEEDS_NOTHING, needs_plane, 0 },
	{ "unauthorised trace", FOR_ANY, NEEDS_NOTHING, needs_plane, 0 },
};

const struct matrix_group matrix_security = { "security", cases, ARRAY_SIZE(cases) };
