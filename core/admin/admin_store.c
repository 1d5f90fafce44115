#include "core/admin/admin.h"

#include "core/artifact/artifact.h"

int admin_store_init(const struct admin_call *c)
{
	struct fault f = FAULT_NONE;

	if (store_init(c->args[0], &f))
		return admin_failed(c, &f, NULL);
	fprintf(c->out, "ok: store %s\n", c->args[0]);
	return ADMIN_OK;
}

int admin_store_trust(const struct admin_call *c)
{
	struct fault f = FAULT_NONE;
	char id[KEY_ID_SIZE];

	if (store_trust(c->args[0], c->args[1], id, &f))
		return admin_failed(c, &f, NULL);
	fprintf(c->out, "ok: store %s trusts key %s\n", c->args[0], id);
	return ADMIN_OK;
}
