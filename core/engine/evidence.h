/* What a runner of the matrix recorded of two inferences in flight, STORE/evidence/NAME.json. Only
 * evidence for exactly this device, driver, firmware, runtime and artifact may switch the second one
 * on (device contract 6). Nobody signs it: the folder (0700) and its files belong to root or the
 * daemon's user and are written by nobody else (core/base/files.h).
 *
 * Two inputs P and Q, of different contents and lengths, run one after the other on each engine, and
 * then two at once, the first on Ping and the second on Pong, as P-P, Q-Q, P-Q and Q-P. Whatever the
 * order, P must give what it always gives and Q likewise: evidence that says otherwise is none. */
#ifndef NPUFS_CORE_ENGINE_EVIDENCE_H
#define NPUFS_CORE_ENGINE_EVIDENCE_H

#include "core/base/clock.h"
#include "core/base/crypto.h"
#include "core/base/fault.h"
#include "core/device.h"

#define EVIDENCE_FOLDER   "evidence"
#define EVIDENCE_SCHEMA   "npufs-evidence-1"
#define EVIDENCE_NAME_MAX 80 /* an alias fits, and what is put before it */

enum evidence_order {
	EVIDENCE_AUTO, /* P, then Q, by the runtime's choice */
	EVIDENCE_PING, /* P, then Q */
	EVIDENCE_PONG,
	EVIDENCE_PP, /* two at once from here on */
	EVIDENCE_QQ,
	EVIDENCE_PQ,
	EVIDENCE_QP,
	EVIDENCE_ORDERS
};

/* Of the first and the second inference of an order. */
struct evidence_result {
	uint64_t rounds;                 /* so often, each time with this result */
	char sha256[2][SHA256_HEX_SIZE]; /* of the output's bytes */
	uint32_t kv[2];                  /* length of the sequence afterwards; 0 without KV */
};

struct evidence {
	char name[EVIDENCE_NAME_MAX + 1]; /* of the file, without .json; "" after parsing */
	char npufs[32];                   /* the runner's version */
	char recorded[CLOCK_TEXT_SIZE];   /* set when it is written */
	struct device_info device;
	char artifact[SHA256_HEX_SIZE]; /* of the manifest's bytes */
	uint64_t submitted, waited;     /* inferences; as many as */
	struct evidence_result orders[EVIDENCE_ORDERS];
};

const char *evidence_order_name(enum evidence_order o); /* "auto", "P-Q" */

/* Write it as STORE/evidence/NAME.json, whole or not at all; an older one is replaced. -EINVAL:
 * the name is not 1 to EVIDENCE_NAME_MAX letters, digits, '-', '_' and '.' (not first), or the
 * evidence proves nothing: an order is missing, or the results of an input differ. */
int evidence_write(const char *store, const struct evidence *e);

/* Is there evidence for this device and artifact? 0; -ENOENT: none at all; -ESTALE: only for others,
 * and why->field names what differs of the nearest, of "device, driver, firmware, runtime,
 * artifact". Any other: a file of the folder is not to be trusted (core/base/files.h) or not evidence
 * (-EINVAL), and then none of them counts. */
int evidence_check(const char *store, const struct device_info *device, const char *artifact_sha256,
	struct fault *why);

/* A file's text: -EINVAL (-EILSEQ, -ENOMEM) with the place and reason. */
int evidence_parse(const char *text, size_t len, struct evidence *ret, struct fault *f);

#endif
