/* Any bytes as a file of evidence. What is taken says the same of an input in every order. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/engine/evidence.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok)
{
	if (!ok)
		abort();
}

static void check_evidence(const struct evidence *e)
{
	const struct evidence_result *o = e->orders;

	check(e->submitted > 0 && e->submitted == e->waited);
	check(strlen(e->artifact) == 64 && strlen(o[EVIDENCE_AUTO].sha256[0]) == 64);
	check(strcmp(o[EVIDENCE_AUTO].sha256[0], o[EVIDENCE_AUTO].sha256[1]) != 0);
	check(strcmp(o[EVIDENCE_PP].sha256[0], o[EVIDENCE_PP].sha256[1]) == 0);
	check(strcmp(o[EVIDENCE_PQ].sha256[0], o[EVIDENCE_QP].sha256[1]) == 0);
	check(o[EVIDENCE_QQ].kv[0] == o[EVIDENCE_PONG].kv[1]);
	for (size_t i = 0; i < EVIDENCE_ORDERS; i++)
		check(o[i].rounds > 0);
	check(strlen(e->device.name) < sizeof e->device.name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct evidence e = { .waited = 7 };
	struct fault f = FAULT_NONE;
	int err = evidence_parse((const char *)data, size, &e, &f);

	check(err ? f.err == err && f.reason[0] && e.waited == 7 : 1);
	if (!err)
		check_evidence(&e);
	return 0;
}
