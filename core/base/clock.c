#include "core/base/clock.h"

#include <stdio.h>

#include "core/base/buf.h"

const char *clock_text(int64_t wall_ns, char ret[CLOCK_TEXT_SIZE])
{
	time_t seconds = (time_t)(wall_ns / NS_PER_SEC);
	struct tm tm;
	char date[24];

	gmtime_r(&seconds, &tm);
	strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(ret, CLOCK_TEXT_SIZE, "%s.%03dZ", date, (int)(wall_ns % NS_PER_SEC / NS_PER_MS));
	return ret;
}

void clock_put(struct buf *out, const char *key, int64_t wall_ns)
{
	char text[CLOCK_TEXT_SIZE];

	if (wall_ns)
		buf_printf(out, "%s: %s\n", key, clock_text(wall_ns, text));
}
