/* The records of jobs that ended, on their way to the audit trail of jobs (core/control/audit.h). Who ends a
 * job leaves its record here, which takes no time; a thread of its own writes what came meanwhile, all
 * with one sync. What does not fit, or cannot be written, is counted, in `metrics` and in the next
 * record. The end of a job waits for none of it: what was not written yet when the process is killed
 * is lost. */
#ifndef NPUFS_CORE_CONTROL_JOBAUDIT_H
#define NPUFS_CORE_CONTROL_JOBAUDIT_H

#include "core/control/audit.h"

#define JOBAUDIT_QUEUE     4096 /* records that wait; as many again are being written */
#define JOBAUDIT_GATHER_MS 200  /* for so long they are gathered, or until half of them are there */

/* Before any job ends. A trail that is broken or in use is told in the log, and every record is then
 * counted as lost. 0 or -ENOMEM. */
int jobaudit_start(const char *store);
/* Write what is there, and end the trail: of what ends later there is no record. Does nothing when it
 * is not running. */
void jobaudit_stop(void);
/* Any thread, with no lock; `lost` is set here. Nothing happens while it is not running. */
void jobaudit_ended(const struct audit_job *record);

#endif
