/* The last one given is the first one taken, so that one caller at a time always has the same memory,
 * which is still in the cache. */
#include "core/sim/lanes.h"

#include <assert.h>

void lanes_init(struct lanes *l)
{
	lock_init(&l->lock, RANK_DEVICE, "lanes");
	l->idle = NULL;
}

void lanes_done(struct lanes *l)
{
	assert(!l->idle);
	lock_done(&l->lock);
}

struct lane *lanes_take(struct lanes *l)
{
	struct lane *lane;

	lock_take(&l->lock);
	lane = l->idle;
	if (lane)
		l->idle = lane->next;
	lock_drop(&l->lock);
	return lane;
}

void lanes_give(struct lanes *l, struct lane *lane)
{
	lock_take(&l->lock);
	lane->next = l->idle;
	l->idle = lane;
	lock_drop(&l->lock);
}
