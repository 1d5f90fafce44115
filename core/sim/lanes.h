/* Working memory of those who compute with one model at the same time. Each takes a lane that nobody
 * else has and gives it back; when none is idle the caller makes another. What a lane is made of is
 * the model's affair: a struct that begins with a struct lane. */
#ifndef NPUFS_CORE_SIM_LANES_H
#define NPUFS_CORE_SIM_LANES_H

#include "core/base/lock.h"

struct lane {
	struct lane *next; /* while it is idle */
};

struct lanes {
	struct lock lock;
	struct lane *idle; /* by lock */
};

void lanes_init(struct lanes *l);
/* Nobody uses any more: the idle ones are all there are, and were taken out to be freed. */
void lanes_done(struct lanes *l);

struct lane *lanes_take(struct lanes *l); /* NULL: none is idle */
void lanes_give(struct lanes *l, struct lane *lane);

#endif
