/* Messages for the operator: one line of valid UTF-8 each, to stderr or syslog, never a prompt, a
 * result, a path of the host or an address. Every place in the source that logs has a rate of its
 * own: LOG_BURST lines at once and then one in LOG_REFILL_SEC; what is left out is counted and
 * told with that place's next line, and in all at log_close(). May be called under any lock and
 * does not wait for a reader of stderr, or a syslogd, that is slow: such lines are left out as
 * well. */
#ifndef NPUFS_CORE_BASE_LOG_H
#define NPUFS_CORE_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/rate.h"

#define LOG_BURST      10
#define LOG_REFILL_SEC 10
#define LOG_LINE_MAX   1024 /* bytes of a message; the rest is cut */

enum log_level { LEVEL_NONE = -1, LEVEL_ERROR, LEVEL_WARNING, LEVEL_INFO, LEVEL_DEBUG };

/* Before any other thread. Until then messages up to LEVEL_INFO go to stderr. */
void log_open(bool to_syslog, enum log_level most);
void log_close(void);

/* Of one place; zero-initialised nothing has been logged. Not locked: its owner is. */
struct log_rate {
	struct rate rate;
	uint64_t dropped; /* since the last that passed */
};

/* One event at `now`: false when it is to be left out, which is counted in r->dropped. */
bool log_rate_pass(struct log_rate *r, int64_t now);

/* Log through the macros: each use is a place of its own. */
void log_emit(struct log_rate *place, enum log_level level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#define log_at(level, ...) \
	do { \
		static struct log_rate log_place_; \
		log_emit(&log_place_, level, __VA_ARGS__); \
	} while (0)

#define log_error(...)   log_at(LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_at(LEVEL_WARNING, __VA_ARGS__)
#define log_info(...)    log_at(LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)   log_at(LEVEL_DEBUG, __VA_ARGS__)

/* A line for those who watch over access, to syslog (LOG_AUTHPRIV) wherever the messages go, but not
 * before log_open(), nor with LEVEL_NONE: whole, without a rate. Not one to wait either: what syslog does not take at once
 * is left out, and counted unless there is no syslog at all. */
void log_auth(const char *line);

uint64_t log_dropped(void); /* lines left out since the start, for the metrics */

#endif
