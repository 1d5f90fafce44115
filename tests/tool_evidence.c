/* tool_evidence STORE NAME DEVICE DRIVER FIRMWARE RUNTIME ARTIFACT: sound evidence for these, as if a
 * runner had found it. */
#include <stdio.h>
#include <string.h>

#include "core/engine/evidence.h"

static void put(char *to, size_t size, const char *text)
{
	snprintf(to, size, "%s", text);
}

#define PUT(place, text) put((place), sizeof(place), (text))

/* P and Q in each order, and how many tokens they have. */
static void fill_orders(struct evidence *e)
{
	static const char *const inputs[] = { "PQ", "PQ", "PQ", "PP", "QQ", "PQ", "QP" };

	for (size_t i = 0; i < EVIDENCE_ORDERS; i++) {
		struct evidence_result *r = &e->orders[i];

		r->rounds = 1;
		for (size_t k = 0; k < 2; k++) {
			sha256_hex(&inputs[i][k], 1, r->sha256[k]);
			r->kv[k] = inputs[i][k] == 'P' ? 3 : 5;
		}
	}
}

int main(int argc, char **argv)
{
	struct evidence e = { .npufs = "test", .submitted = 14, .waited = 14 };
	int err;

	if (argc != 8)
		return 2;
	PUT(e.name, argv[2]);
	PUT(e.device.name, argv[3]);
	PUT(e.device.driver, argv[4]);
	PUT(e.device.firmware, argv[5]);
	PUT(e.device.runtime, argv[6]);
	PUT(e.artifact, argv[7]);
	fill_orders(&e);
	err = evidence_write(argv[1], &e);
	if (err)
		fprintf(stderr, "tool_evidence: %s\n", strerror(-err));
	return err ? 1 : 0;
}
