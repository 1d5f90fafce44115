/* A line is made in memory of the caller's stack, passes its place's bucket under the lock, and
 * is written after the lock is dropped, by one write() of less than PIPE_BUF bytes: lines of
 * several threads do not mix. poll() first asks whether that write would wait, or raise SIGPIPE.
 *
 * To syslog a line goes as one datagram, in the form of syslog(3), which itself is not used: it
 * waits for a syslogd that does not read, and would hold up the mount with it. */
#include "core/base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/lock.h"
#include "core/base/mem.h"
#include "core/base/utf8.h"

static const struct {
	const char *name;
	int priority;
} levels[] = {
	[LEVEL_ERROR] = { "error", LOG_ERR },
	[LEVEL_WARNING] = { "warning", LOG_WARNING },
	[LEVEL_INFO] = { "info", LOG_INFO },
	[LEVEL_DEBUG] = { "debug", LOG_DEBUG },
};

static const struct sockaddr_un syslogd = { .sun_family = AF_UNIX, .sun_path = "/dev/log" };

/* Fixed after log_open(). */
static bool use_syslog;
static int syslog_fd = -1;
static enum log_level threshold = LEVEL_INFO;

static struct lock places = LOCK_INIT(RANK_LOG, "log"); /* guards every struct log_rate */
static _Atomic uint64_t dropped;

uint64_t log_dropped(void)
{
	return atomic_load_explicit(&dropped, memory_order_relaxed);
}

static void count_dropped(void)
{
	atomic_fetch_add_explicit(&dropped, 1, memory_order_relaxed);
}

bool log_rate_pass(struct log_rate *r, int64_t now)
{
	bool passes = rate_take(&r->rate, LOG_BURST, LOG_REFILL_SEC * NS_PER_SEC, now);

	r->dropped += !passes;
	return passes;
}

/* Control bytes, C1 controls too, and what is not UTF-8 become '?'. */
static void sanitise(char *text, size_t len)
{
	for (size_t i = 0, good = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];

		if (i >= good)
			good = i + utf8_valid_prefix(text + i, len - i);
		if (i >= good || c < 0x20 || c == 0x7f)
			text[i] = '?';
		else if (c == 0xc2 && (unsigned char)text[i + 1] < 0xa0)
			text[i] = text[i + 1] = '?';
	}
}

static void write_stderr(enum log_level level, const char *text)
{
	char line[LOG_LINE_MAX + 64];
	struct pollfd fd = { .fd = STDERR_FILENO, .events = POLLOUT };
	int n = snprintf(line, sizeof line, "npufs: %s: %s\n", levels[level].name, text);

	if (poll(&fd, 1, 0) != 1 || fd.revents != POLLOUT || write(fd.fd, line, (size_t)n) != n)
		count_dropped();
}

/* 0 or a negative errno, at once. */
static int send_syslog(int priority, const char *text)
{
	char head[96], when[32] = "";
	struct iovec parts[2] = { { .iov_base = head },
		{ .iov_base = (void *)(uintptr_t)text, .iov_len = strlen(text) } };
	struct sockaddr_un to = syslogd;
	const struct msghdr message = { .msg_name = &to,
		.msg_namelen = sizeof to,
		.msg_iov = parts,
		.msg_iovlen = ARRAY_SIZE(parts) };
	time_t now = time(NULL);
	struct tm tm;

	if (localtime_r(&now, &tm))
		strftime(when, sizeof when, "%b %e %H:%M:%S", &tm);
	parts[0].iov_len = (size_t)snprintf(head, sizeof head, "<%d>%s npufs[%ld]: ", priority,
		when, (long)getpid());
	return sendmsg(syslog_fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static void write_syslog(enum log_level level, const char *text)
{
	if (send_syslog(LOG_DAEMON | levels[level].priority, text))
		count_dropped();
}

void log_auth(const char *line)
{
	int err = syslog_fd < 0 ? 0 : send_syslog(LOG_AUTHPRIV | LOG_NOTICE, line);

	if (err && err != -ENOENT && err != -ECONNREFUSED)
		count_dropped();
}

static void put(enum log_level level, const char *text)
{
	if (use_syslog)
		write_syslog(level, text);
	else
		write_stderr(level, text);
}

void log_emit(struct log_rate *place, enum log_level level, const char *fmt, ...)
{
	char text[LOG_LINE_MAX];
	uint64_t left_out;
	size_t len;
	va_list ap;
	bool pass;

	if (level > threshold)
		return;
	lock_take(&places);
	pass = log_rate_pass(place, clock_mono());
	left_out = place->dropped;
	if (pass)
		place->dropped = 0;
	lock_drop(&places);
	if (!pass) {
		count_dropped();
		return;
	}
	va_start(ap, fmt);
	vsnprintf(text, sizeof text - 48, fmt, ap);
	va_end(ap);
	len = strlen(text);
	sanitise(text, len);
	if (left_out)
		snprintf(text + len, sizeof text - len, " (%" PRIu64 " like it left out)",
			left_out);
	put(level, text);
}

void log_open(bool to_syslog, enum log_level most)
{
	use_syslog = to_syslog;
	threshold = most;
	if (syslog_fd < 0 && (to_syslog || most > LEVEL_NONE))
		syslog_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
}

void log_close(void)
{
	char text[64];
	uint64_t n = log_dropped();

	if (n) {
		snprintf(text, sizeof text, "%" PRIu64 " messages were left out in all", n);
		put(LEVEL_INFO, text);
	}
	if (syslog_fd >= 0)
		close(syslog_fd);
	syslog_fd = -1;
	use_syslog = false;
	threshold = LEVEL_INFO;
}
