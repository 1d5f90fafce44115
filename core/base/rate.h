/* A token bucket: so many events at once, and after that one in each time of refill. Not locked:
 * its owner is. */
#ifndef NPUFS_CORE_BASE_RATE_H
#define NPUFS_CORE_BASE_RATE_H

#include <stdbool.h>
#include <stdint.h>

struct rate {          /* zero-initialised it is full */
	int64_t since; /* monotonic ns: when the bucket last was as `used` says */
	uint32_t used; /* of the burst */
};

/* One event at `now`: false when there is no token for it. `refill` is the time, in ns, in which
 * one token comes back. */
bool rate_take(struct rate *r, uint32_t burst, int64_t refill, int64_t now);
/* The event that a token was taken for did not take place. */
void rate_give_back(struct rate *r);

#endif
