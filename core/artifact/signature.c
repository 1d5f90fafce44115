/* Every part has its fixed place, and lower-case digits are the only ones: two lines that differ are
 * never the same signature. */
#include "core/artifact/signature.h"

#include <errno.h>
#include <string.h>

#include "core/base/hex.h"

bool signature_get(const char *word, const char *line, size_t len, struct signature *ret)
{
	const size_t word_len = strlen(word);
	const char *id = line + word_len + 1, *hex = id + KEY_ID_SIZE;
	struct signature s = { "", { 0 } };

	if (len != word_len + 1 + KEY_ID_SIZE + sizeof s.bytes * 2 + 1 ||
		memcmp(line, word, word_len) != 0 || id[-1] != ' ' || hex[-1] != ' ' ||
		line[len - 1] != '\n')
		return false;
	memcpy(s.id, id, KEY_ID_SIZE - 1);
	if (strspn(s.id, "0123456789abcdef") != KEY_ID_SIZE - 1 ||
		!hex_get(hex, s.bytes, sizeof s.bytes))
		return false;
	*ret = s;
	return true;
}

int signature_put(const char *word, const struct key *k, const void *msg, size_t len,
	struct buf *out)
{
	unsigned char sig[ED25519_SIG_SIZE];
	char id[KEY_ID_SIZE];
	int err = key_sign(k, msg, len, sig);

	if (err)
		return err;
	key_id(k, id);
	buf_printf(out, "%s %s ", word, id);
	for (size_t i = 0; i < sizeof sig; i++)
		buf_printf(out, "%02x", sig[i]);
	buf_puts(out, "\n");
	return buf_error(out);
}

int signature_verify(const struct signature *s, const struct key *k, const void *msg, size_t len)
{
	char id[KEY_ID_SIZE];

	key_id(k, id);
	if (strcmp(id, s->id) != 0)
		return -EBADMSG;
	return key_verify(k, msg, len, s->bytes, sizeof s->bytes);
}
