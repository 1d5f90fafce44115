/* What a name in jobs/ means (design 2). STEM.txt, STEM.json and STEM.jsonl are requests,
 * STEM.out, .err, .status and .stream results, everything else (dot files included) inert. */
#ifndef NPUFS_CORE_JOB_JOBNAME_H
#define NPUFS_CORE_JOB_JOBNAME_H

#include <stdbool.h>
#include <stddef.h>

enum name_class { NAME_INERT, NAME_TEXT, NAME_JSON, NAME_BATCH, NAME_RESULT };

/* The files of a request; the first is the request itself. */
enum job_row { ROW_REQUEST, ROW_STATUS, ROW_OUT, ROW_ERR, ROW_STREAM, ROW_COUNT };

struct jobname {
	enum name_class class;
	enum job_row row; /* ROW_REQUEST unless a result */
	size_t stem_len;  /* 0 for inert names */
};

#define JOBNAME_MAX 255

/* Classify. -ENAMETOOLONG past 255 bytes, or where a result's name would be; -EILSEQ not UTF-8;
 * -EINVAL control characters. */
int jobname_parse(const char *name, struct jobname *ret);

/* Classify without judging: for names that only are looked for. */
struct jobname jobname_class(const char *name);

const char *job_row_suffix(enum job_row row); /* ".status"; "" for the request */

static inline bool name_is_request(enum name_class c)
{
	return c == NAME_TEXT || c == NAME_JSON || c == NAME_BATCH;
}

#endif
