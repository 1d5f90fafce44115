/* Whether the loop is alive is asked as a user would: by stat(2) of the mount's health, which the
 * kernel hands to the loop each time. With a loop that is stuck the thread is stuck too, and says
 * nothing: that is what the manager's watchdog waits for. The answer must come from this mount; one
 * that cannot be reached at its place, because something lies over it, counts as one that does not
 * answer. Between two checks nothing of the mount is held. */
#include "fs/notify.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/lock.h"
#include "core/base/mem.h"

#define STATUS_NS NS_PER_SEC        /* how often the state is looked at */
#define AGAIN_NS  (100 * NS_PER_MS) /* after a check that failed, or a word that was not taken */

static struct {
	/* fixed after notify_start() */
	int fd; /* -1: nobody listens */
	struct sockaddr_un to;
	socklen_t to_len;
	int64_t watchdog_ns; /* between two signs of life; 0: none are wanted */
	pid_t started_as;
	struct npufs *fs;
	pthread_t thread;
	bool running;
	struct lock lock;
	struct lock_cond changed;
	/* by lock */
	bool stop;
} service = { .fd = -1, .lock = LOCK_INIT(RANK_NOTIFY, "service manager") };

/* --- the socket ------------------------------------------------------------------------------- */

static bool set_address(const char *name)
{
	size_t len = strlen(name);

	if ((name[0] != '/' && name[0] != '@') || len < 2 || len >= sizeof service.to.sun_path)
		return false;
	service.to.sun_family = AF_UNIX;
	memcpy(service.to.sun_path, name, len);
	if (name[0] == '@')
		service.to.sun_path[0] = '\0';
	service.to_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
	return true;
}

/* $WATCHDOG_PID says for which process it is meant. */
static int64_t watchdog_of_environment(void)
{
	const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
	long long us = usec ? atoll(usec) : 0;

	if (us <= 0 || us > INT64_MAX / 1000 || (pid && atoll(pid) != getpid()))
		return 0;
	return us * 1000;
}

void notify_open(void)
{
	const char *name = getenv("NOTIFY_SOCKET");

	if (name && set_address(name))
		service.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	service.watchdog_ns = watchdog_of_environment();
	service.started_as = getpid();
	unsetenv("NOTIFY_SOCKET");
	unsetenv("WATCHDOG_USEC");
	unsetenv("WATCHDOG_PID");
}

bool notify_wanted(void)
{
	return service.fd >= 0;
}

/* False when the manager did not take it: it does not read just now. */
static bool say(const char *text)
{
	return sendto(service.fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT,
		       (const struct sockaddr *)&service.to, service.to_len) >= 0;
}

/* --- the thread ------------------------------------------------------------------------------- */

static bool say_ready(void)
{
	char text[64] = "READY=1";

	if (getpid() != service.started_as)
		snprintf(text, sizeof text, "MAINPID=%ld\nREADY=1", (long)getpid());
	return say(text);
}

static void say_status(enum health_state *said)
{
	enum health_state now = health_state(&service.fs->health);
	char text[64];

	snprintf(text, sizeof text, "STATUS=%s", health_state_name(now));
	if (now != *said && say(text))
		*said = now;
}

/* Does the loop answer? `dev`: the mount's number, 0 at first. */
static bool loop_answers(dev_t *dev)
{
	AUTO_FREE char *health = NULL;
	struct stat st;

	if (asprintf(&health, "%s/health", service.fs->mountpoint) < 0)
		health = NULL;
	if (!health || stat(health, &st) < 0)
		return false;
	if (!*dev)
		*dev = st.st_dev;
	return st.st_dev == *dev;
}

/* One check; false: to be made again soon. */
static bool check(dev_t *dev, bool *ready)
{
	if (!loop_answers(dev))
		return false;
	if (!*ready)
		*ready = say_ready();
	return *ready && (!service.watchdog_ns || say("WATCHDOG=1"));
}

/* Sleep until `due` or until the state is to be looked at; false: stop. */
static bool rest(int64_t due)
{
	int64_t until = clock_mono() + STATUS_NS;
	struct timespec t;
	bool goes_on;

	if (due < until)
		until = due;
	t = clock_timespec(until);
	lock_take(&service.lock);
	while (!service.stop && clock_mono() < until)
		lock_cond_wait_until(&service.changed, &service.lock, &t);
	goes_on = !service.stop;
	lock_drop(&service.lock);
	return goes_on;
}

static void *run(void *arg)
{
	enum health_state said = HEALTH_STATE_COUNT;
	int64_t due = 0, period = service.watchdog_ns ? service.watchdog_ns / 2 : INT64_MAX / 2;
	dev_t dev = 0;
	bool ready = false;

	(void)arg;
	do {
		int64_t now = clock_mono();

		if (now >= due)
			due = now + (check(&dev, &ready) ? period : AGAIN_NS);
		say_status(&said);
	} while (rest(due));
	return NULL;
}

int notify_start(struct npufs *fs)
{
	if (service.fd < 0)
		return 0;
	service.fs = fs;
	lock_cond_init(&service.changed);
	if (pthread_create(&service.thread, NULL, run, NULL))
		return -ENOMEM;
	service.running = true;
	return 0;
}

void notify_stopping(uint64_t ms)
{
	char text[96];

	snprintf(text, sizeof text, "STOPPING=1\nEXTEND_TIMEOUT_USEC=%llu",
		(unsigned long long)ms * 1000);
	if (service.fd >= 0)
		say(text);
}

void notify_stop(void)
{
	if (!service.running)
		return;
	lock_take(&service.lock);
	service.stop = true;
	lock_cond_signal(&service.changed);
	lock_drop(&service.lock);
	pthread_join(service.thread, NULL);
	service.running = false;
}
