/* The lines of a batch, read piece by piece through a bounded buffer: the file may be larger than
 * memory, and one line may be too long without harm to the others. Lines end with LF or CRLF, the
 * last one also with the file; a byte order mark at the start of the file is dropped. */
#ifndef NPUFS_CORE_JOB_BATCH_LINES_H
#define NPUFS_CORE_JOB_BATCH_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/engine/run.h"

#define BATCH_LINE_MAX   (4u << 20) /* bytes of one line, without its end */
#define BATCH_CHUNK_SIZE 16384

struct batch_line {
	uint64_t number;  /* from 1, blank ones counted */
	const char *text; /* without line end and byte order mark; valid until the next call */
	size_t len;
	bool blank;    /* nothing, or white space only */
	bool too_long; /* more than BATCH_LINE_MAX bytes: they were dropped */
};

struct batch_lines {
	int err; /* after BATCH_BROKEN: what the read or the memory said */
	/* private */
	struct run_source source;
	uint64_t offset, number;
	struct buf text;
	bool open; /* the present line has begun */
	bool blank, too_long, at_end;
	size_t at, end; /* in the chunk */
	char chunk[BATCH_CHUNK_SIZE];
};

enum batch_got { BATCH_LINE, BATCH_PAUSED, BATCH_END, BATCH_BROKEN };

/* The context of `source` must outlive the reader. */
void batch_lines_init(struct batch_lines *l, const struct run_source *source);
void batch_lines_done(struct batch_lines *l);

/* The next line. Every byte taken is subtracted from *budget; when it is used up, BATCH_PAUSED, and
 * a later call goes on in the middle of the line. */
enum batch_got batch_lines_next(struct batch_lines *l, size_t *budget, struct batch_line *ret);

#endif
