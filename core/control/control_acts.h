/* What each command of the privileged plane does, for the gate to call (core/control/privileged.h). */
#ifndef NPUFS_CORE_CONTROL_CONTROL_ACTS_H
#define NPUFS_CORE_CONTROL_CONTROL_ACTS_H

#include "core/control/privileged.h"
#include "core/engine/engine.h"
#include "core/engine/models.h"

/* Outlives the gate. */
struct control_acts {
	struct engine *engine;
	struct models *models;
	bool raw_access;
	struct privileged *gate; /* set when it is there, before any command */
	struct buf *reading;     /* where what the present command reads goes; one at a time */
};

/* Its functions and their context; what was not mounted is left NULL. */
void control_acts_give(struct control_acts *a, struct privileged_owner *ret);

#endif
