/* Two clocks: monotonic for durations and deadlines, wall for display only. Nanoseconds. */
#ifndef NPUFS_CORE_BASE_CLOCK_H
#define NPUFS_CORE_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

struct buf;

#define NS_PER_MS  1000000LL
#define NS_PER_SEC 1000000000LL

static inline int64_t clock_ns(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return t.tv_sec * NS_PER_SEC + t.tv_nsec;
}

static inline int64_t clock_mono(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

static inline int64_t clock_wall(void)
{
	return clock_ns(CLOCK_REALTIME);
}

static inline struct timespec clock_timespec(int64_t ns)
{
	return (struct timespec){ .tv_sec = ns / NS_PER_SEC, .tv_nsec = ns % NS_PER_SEC };
}

/* "2026-01-31T12:00:00.123Z" of a wall time; returns ret. */
#define CLOCK_TEXT_SIZE 40
const char *clock_text(int64_t wall_ns, char ret[CLOCK_TEXT_SIZE]);
/* "key: 2026-...\n"; nothing for 0, which did not happen. */
void clock_put(struct buf *out, const char *key, int64_t wall_ns);

#endif
