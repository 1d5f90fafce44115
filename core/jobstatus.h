/* The text of STEM.status: "key: value" lines, the state first. The one renderer of it. */
#ifndef NPUFS_CORE_JOBSTATUS_H
#define NPUFS_CORE_JOBSTATUS_H

#include "core/buf.h"
#include "core/job.h"

struct jobstatus_extra {
	const char *model; /* alias; NULL while it is not known */
	const char *model_sha256;
	size_t position; /* in the queue, 1 = next; 0 when it does not wait */
};

void jobstatus_render(const struct job_view *v, const struct jobstatus_extra *x, struct buf *out);

#endif
