#include "core/job/usage.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/mem.h"

void usage_done(struct usage *u)
{
	free(u->rows);
	*u = (struct usage){ 0 };
}

static size_t place_of(const struct usage *u, uint32_t uid)
{
	size_t low = 0, high = u->len;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (u->rows[mid].uid < uid)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static struct usage_row *insert(struct usage *u, size_t at, uint32_t uid)
{
	struct usage_row *rows = mem_grow(u->rows, u->len, &u->cap, 8, sizeof *rows);

	if (!rows)
		return NULL;
	u->rows = rows;
	memmove(u->rows + at + 1, u->rows + at, (u->len - at) * sizeof *u->rows);
	u->rows[at] = (struct usage_row){ .uid = uid };
	u->len++;
	return &u->rows[at];
}

void usage_add(struct usage *u, uint32_t uid, int64_t files, int64_t bytes)
{
	size_t at = place_of(u, uid);
	struct usage_row *r =
		at < u->len && u->rows[at].uid == uid ? &u->rows[at] : insert(u, at, uid);

	u->bytes += (uint64_t)bytes;
	if (!r)
		return;
	r->files += (uint64_t)files;
	r->bytes += (uint64_t)bytes;
	if (r->files || r->bytes)
		return;
	u->len--;
	memmove(r, r + 1, (size_t)(u->rows + u->len - r) * sizeof *r);
}

struct usage_row usage_of(const struct usage *u, uint32_t uid)
{
	size_t at = place_of(u, uid);

	if (at < u->len && u->rows[at].uid == uid)
		return u->rows[at];
	return (struct usage_row){ .uid = uid };
}
