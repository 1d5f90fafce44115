/* The mount options: one table (options.def) that the structure, the parser, the help and the
 * documents are made from. Options that belong to mount(8), systemd or libfuse are accepted and
 * do nothing. */
#ifndef NPUFS_MOUNTOPTS_OPTIONS_H
#define NPUFS_MOUNTOPTS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/fault.h"

#define OPTION_STRING_SIZE 256 /* with the NUL; no STRING range in options.def goes further */

enum option_type {
	OPTION_FLAG,
	OPTION_UINT,
	OPTION_SIZE,
	OPTION_DURATION,
	OPTION_MODE,
	OPTION_WORD,
	OPTION_STRING
};

/* Values of `log`, in the order of its words. */
enum option_log { OPTION_LOG_AUTO, OPTION_LOG_STDERR, OPTION_LOG_SYSLOG };

/* Likewise of `parallel`. */
enum option_parallel { OPTION_PARALLEL_OFF, OPTION_PARALLEL_PROVEN };

/* Likewise of `job_audit`. */
enum option_job_audit { OPTION_JOB_AUDIT_ON, OPTION_JOB_AUDIT_OFF };

#define OPTION_MEMBER_FLAG(name)     bool name
#define OPTION_MEMBER_UINT(name)     uint32_t name
#define OPTION_MEMBER_SIZE(name)     uint64_t name
#define OPTION_MEMBER_DURATION(name) uint64_t name##_us
#define OPTION_MEMBER_MODE(name)     uint32_t name
#define OPTION_MEMBER_WORD(name)     uint32_t name
#define OPTION_MEMBER_STRING(name)   char name[OPTION_STRING_SIZE]

/* Plain data: may be copied, needs no release. */
struct mount_options {
#define OPTION(name, type, def, range, help) OPTION_MEMBER_##type(name);
#include "mountopts/options.def"
#undef OPTION
};

struct option_row {
	const char *name;
	enum option_type type;
	const char *def;   /* in the option's notation */
	const char *range; /* "1..64", "auto|stderr|syslog"; "" for a flag */
	const char *help;  /* one line */
	size_t offset;     /* in struct mount_options */
};

/* For the documents and tests. */
const struct option_row *options_rows(size_t *ret_n);
/* Names accepted and ignored, NULL-ended; one that ends in '*' stands for all that begin so. */
const char *const *options_ignored(void);

void options_defaults(struct mount_options *o);

/* Apply a list as it follows -o: items between commas; "\," is a comma and "\\" a backslash
 * within an item; empty items are skipped; of a repeated option the last counts. May be called
 * again to add more; NULL is an empty list. -EINVAL with the option's name as field: unknown (the
 * action has the nearest name), refused, or a bad value (with the range). `o` is changed only on
 * success. -ENOMEM. */
int options_parse(const char *comma_list, struct mount_options *o, struct fault *f);

/* The table as text, for --help. */
void options_help(struct buf *out);

#endif
