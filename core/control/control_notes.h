/* Records of attempts that were only decided, and neither take long nor do anything: opens, listings,
 * looks at names. A thread of its own writes them behind who attempts. */
#ifndef NPUFS_CORE_CONTROL_CONTROL_NOTES_H
#define NPUFS_CORE_CONTROL_CONTROL_NOTES_H

#include "core/access.h"
#include "core/control/audit.h"
#include "core/engine/health.h"

#define CONTROL_NOTES 1024 /* that wait; what comes on top is counted */

struct control_notes;

/* `audit` and `health`, which says when the one cannot be written, are borrowed; `audit` NULL: none is
 * written, and the log says so. */
int control_notes_new(struct audit *audit, struct health *health, struct control_notes **ret);
/* What waits is written first. NULL is fine. */
void control_notes_free(struct control_notes *n);

/* As control_note(). Never waits for the disk. */
void control_notes_add(struct control_notes *n, const struct cred *who, const char *what,
	const char *node, const char *why);

#endif
