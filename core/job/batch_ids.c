/* A hash set, open addressing, of the first 128 bits of SHA-256 over a random key and the id. Two
 * different ids that share those bits would have to be looked for 2^64 times, and without the key,
 * which never leaves the process, not even that can be done beforehand; by chance it happens to a
 * million ids once in 2^89 batches. The digest also spreads ids evenly, whatever a user chose. A
 * slot is five words of 32 bits, and the table doubles only when it is seven eighths full, so that
 * old and new table together stay small. */
#include "core/job/batch_ids.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/crypto.h"

#define FIRST_CAP 64

struct batch_id {
	uint32_t digest[4];
	uint32_t line; /* 0: an empty slot */
};

int batch_ids_init(struct batch_ids *s)
{
	*s = (struct batch_ids){ .slots = NULL };
	return random_bytes(s->key, sizeof s->key);
}

void batch_ids_done(struct batch_ids *s)
{
	free(s->slots);
	s->slots = NULL;
	s->cap = s->n = 0;
}

size_t batch_ids_bytes(const struct batch_ids *s)
{
	return s->cap * sizeof *s->slots;
}

static int digest(const struct batch_ids *s, const char *id, uint32_t ret[4])
{
	unsigned char text[sizeof s->key + BATCH_ID_MAX];
	char hex[SHA256_HEX_SIZE];
	size_t len = strlen(id);

	assert(len <= BATCH_ID_MAX);
	memcpy(text, s->key, sizeof s->key);
	memcpy(text + sizeof s->key, id, len);
	sha256_hex(text, sizeof s->key + len, hex);
	return sscanf(hex, "%8x%8x%8x%8x", &ret[0], &ret[1], &ret[2], &ret[3]) == 4 ? 0 : -ENOMEM;
}

/* Where it is, or the empty slot where it belongs. */
static struct batch_id *find(struct batch_id *slots, size_t cap, const uint32_t digest[4])
{
	size_t i = digest[0] & (cap - 1);

	while (slots[i].line && memcmp(slots[i].digest, digest, sizeof slots[i].digest) != 0)
		i = (i + 1) & (cap - 1);
	return &slots[i];
}

static int grow(struct batch_ids *s)
{
	size_t cap = s->cap ? s->cap * 2 : FIRST_CAP;
	struct batch_id *slots = calloc(cap, sizeof *slots);

	if (!slots)
		return -ENOMEM;
	for (size_t i = 0; i < s->cap; i++)
		if (s->slots[i].line)
			*find(slots, cap, s->slots[i].digest) = s->slots[i];
	free(s->slots);
	s->slots = slots;
	s->cap = cap;
	return 0;
}

int batch_ids_add(struct batch_ids *s, const char *id, uint32_t line, uint32_t *ret_earlier)
{
	struct batch_id new = { .line = line };
	struct batch_id *slot;
	int err = digest(s, id, new.digest);

	if (!err && s->n >= s->cap / 8 * 7)
		err = grow(s);
	if (err)
		return err;
	slot = find(s->slots, s->cap, new.digest);
	*ret_earlier = slot->line;
	if (!slot->line) {
		*slot = new;
		s->n++;
	}
	return 0;
}
