/* Readers that wait, for measuring: for the results of N requests that, being empty, never run.
 *
 *   tool_readers DIR N read|poll
 *
 * goes on by one step for each line of its input, and says on its output when the step is done:
 *
 *   opened     the requests are made in DIR, and each one's .out is open
 *   waiting    read: for each a thread was started that is in read(2); poll: epoll watches them all
 *   released   the requests were removed, and every wait ended by that
 *
 * Ends with status 1 when a call fails or a wait ends before its time. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/base/mem.h"

#define STACK_BYTES (64 * 1024)
#define SPARE_FILES 64

struct reader {
	pthread_t thread;
	int fd;
};

struct crowd {
	const char *dir;
	int n, epoll;
	struct reader *readers;
};

static atomic_int ended; /* reads that came back */

static void fail_if(bool bad, const char *what)
{
	if (!bad)
		return;
	fprintf(stderr, "tool_readers: %s: %s\n", what, strerror(errno));
	exit(1);
}

static const char *name(const struct crowd *c, int i, const char *suffix, char path[4096])
{
	snprintf(path, 4096, "%s/waits%d.%s", c->dir, i, suffix);
	return path;
}

/* --- opened ----------------------------------------------------------------------------------- */

static void allow(int resource, rlim_t least)
{
	struct rlimit limit;

	fail_if(getrlimit(resource, &limit), "getrlimit");
	if (limit.rlim_cur >= least)
		return;
	limit.rlim_cur = least;
	if (limit.rlim_max < least)
		limit.rlim_max = least;
	fail_if(setrlimit(resource, &limit), "setrlimit");
}

static void open_all(struct crowd *c)
{
	char path[4096];

	allow(RLIMIT_NOFILE, (rlim_t)c->n + SPARE_FILES);
	allow(RLIMIT_NPROC, 2 * (rlim_t)c->n + SPARE_FILES);
	for (int i = 0; i < c->n; i++) {
		int fd = open(name(c, i, "txt", path), O_CREAT | O_EXCL | O_WRONLY, 0644);

		fail_if(fd < 0 || close(fd), path);
		c->readers[i].fd = open(name(c, i, "out", path), O_RDONLY);
		fail_if(c->readers[i].fd < 0, path);
	}
}

/* --- waiting ---------------------------------------------------------------------------------- */

static void *read_once(void *arg)
{
	const struct reader *r = arg;
	char byte;

	while (read(r->fd, &byte, 1) < 0 && errno == EINTR)
		continue;
	atomic_fetch_add(&ended, 1);
	return NULL;
}

static void start_reads(struct crowd *c)
{
	pthread_attr_t small;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, STACK_BYTES);
	for (int i = 0; i < c->n; i++) {
		errno = pthread_create(&c->readers[i].thread, &small, read_once, &c->readers[i]);
		fail_if(errno != 0, "pthread_create");
	}
	pthread_attr_destroy(&small);
}

static void start_poll(struct crowd *c)
{
	c->epoll = epoll_create1(0);
	fail_if(c->epoll < 0, "epoll_create1");
	for (int i = 0; i < c->n; i++) {
		struct epoll_event e = { .events = EPOLLIN, .data.fd = c->readers[i].fd };

		fail_if(epoll_ctl(c->epoll, EPOLL_CTL_ADD, e.data.fd, &e) < 0, "epoll_ctl");
	}
}

/* --- released --------------------------------------------------------------------------------- */

static void fail_if_early(const struct crowd *c)
{
	struct epoll_event e;
	int early = c->epoll >= 0 ? epoll_wait(c->epoll, &e, 1, 0) : atomic_load(&ended);

	errno = EAGAIN;
	fail_if(early != 0, "a wait ended before its time");
}

static void remove_all(const struct crowd *c)
{
	char path[4096];

	for (int i = 0; i < c->n; i++)
		fail_if(unlink(name(c, i, "txt", path)) < 0, path);
}

static void end_poll(const struct crowd *c)
{
	struct epoll_event e;

	for (int left = c->n; left > 0; left--) {
		fail_if(epoll_wait(c->epoll, &e, 1, -1) != 1, "epoll_wait");
		fail_if(epoll_ctl(c->epoll, EPOLL_CTL_DEL, e.data.fd, NULL) < 0, "epoll_ctl");
	}
}

static void end_reads(const struct crowd *c)
{
	for (int i = 0; i < c->n; i++)
		pthread_join(c->readers[i].thread, NULL);
}

/* --- the steps -------------------------------------------------------------------------------- */

static void next_step(const char *done)
{
	char line[16];

	if (done)
		puts(done);
	fflush(stdout);
	if (!fgets(line, sizeof line, stdin))
		exit(1);
}

int main(int argc, char **argv)
{
	struct crowd c = { .epoll = -1 };
	bool polls = argc == 4 && strcmp(argv[3], "poll") == 0;

	if (argc != 4 || (!polls && strcmp(argv[3], "read") != 0)) {
		fprintf(stderr, "usage: tool_readers DIR N read|poll\n");
		return 2;
	}
	c.dir = argv[1];
	c.n = atoi(argv[2]);
	AUTO_FREE struct reader *readers = calloc((size_t)c.n + 1, sizeof *readers);
	c.readers = readers;
	fail_if(!readers, "calloc");
	next_step(NULL);
	open_all(&c);
	next_step("opened");
	polls ? start_poll(&c) : start_reads(&c);
	next_step("waiting");
	fail_if_early(&c);
	remove_all(&c);
	polls ? end_poll(&c) : end_reads(&c);
	puts("released");
	return 0;
}
