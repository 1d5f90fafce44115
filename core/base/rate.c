/* Tokens come back in whole ones, counted from `since`, which moves by whole refills: no part of a
 * refill is lost, however often the bucket is asked. */
#include "core/base/rate.h"

bool rate_take(struct rate *r, uint32_t burst, int64_t refill, int64_t now)
{
	int64_t tokens = (now - r->since) / refill;

	if (tokens >= r->used) {
		r->used = 0;
		r->since = now;
	} else if (tokens > 0) {
		r->used -= (uint32_t)tokens;
		r->since += tokens * refill;
	}
	if (r->used == burst)
		return false;
	r->used++;
	return true;
}

void rate_give_back(struct rate *r)
{
	if (r->used)
		r->used--;
}
