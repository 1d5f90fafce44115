/* Any bytes as what approvals/ID shows, as a signature line, and as the audit trail's head. What is
 * taken must be all printable and have one meaning; and no line is a signature that nobody made. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/artifact/signature.h"
#include "core/control/approval_text.h"
#include "core/control/audit_seal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition) \
	do { \
		if (!(condition)) \
			abort(); \
	} while (0)

static void try_text(const char *text, size_t len)
{
	char id[APPROVAL_ID_SIZE], again[APPROVAL_ID_SIZE];
	const char *end = "end of what is signed\n";
	size_t n, same;

	if (approval_text_get(text, len, id, &n))
		return;
	CHECK(len <= APPROVAL_SHOW_MAX && n <= len && n > strlen(end));
	CHECK(memcmp(text + n - strlen(end), end, strlen(end)) == 0);
	CHECK(strlen(id) == APPROVAL_ID_SIZE - 1 && approval_is_id(id, strlen(id)));
	for (size_t i = 0; i < len; i++)
		CHECK((unsigned char)text[i] >= ' ' || text[i] == '\n');
	/* What is signed alone is a text as well, of the same operation. */
	CHECK(!approval_text_get(text, n, again, &same));
	CHECK(same == n && strcmp(again, id) == 0);
}

/* Read and written again it is the same line. */
static void try_line(const char *line, size_t len)
{
	struct signature s;
	char text[256], *to = text;

	if (!signature_get(APPROVAL_WORD, line, len, &s))
		return;
	to += sprintf(to, APPROVAL_WORD " %s ", s.id);
	for (size_t i = 0; i < sizeof s.bytes; i++)
		to += sprintf(to, "%02x", s.bytes[i]);
	*to++ = '\n';
	CHECK(len == (size_t)(to - text) && memcmp(line, text, len) == 0);
}

static void try_head(const char *text, size_t len)
{
	static struct key *k;
	struct audit_head h;

	if (!k)
		CHECK(key_generate(&k) == 0);
	CHECK(audit_head_get(text, len, k, &h)); /* the key is new: nothing is signed with it */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* A block of its own of exactly that size: a byte too far is seen. */
	char *text = calloc(1, size ? size : 1);

	CHECK(text);
	if (size)
		memcpy(text, data, size);
	try_text(text, size);
	try_line(text, size);
	try_head(text, size);
	free(text);
	return 0;
}
