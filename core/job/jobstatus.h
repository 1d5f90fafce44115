/* The text of STEM.status: "key: value" lines, the state first. The one renderer of it. */
#ifndef NPUFS_CORE_JOB_JOBSTATUS_H
#define NPUFS_CORE_JOB_JOBSTATUS_H

#include "core/base/buf.h"
#include "core/job/job.h"

/* `position` in the queue: 1 = next; 0 when it does not wait. */
void jobstatus_render(const struct job_view *v, size_t position, struct buf *out);

#endif
