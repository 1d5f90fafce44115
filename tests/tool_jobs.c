/* Jobs as fast as they go, for measuring:
 *
 *   tool_jobs DIR WRITERS N each|all remove|keep
 *
 * WRITERS threads do N jobs each in DIR: a small request is written and its result read. With
 * `each` one job after the other, with `all` first all requests, then all results. Prints the
 * seconds that took; removing the requests afterwards is not counted. Ends with status 1 when a
 * call fails or a result is empty. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/mem.h"

static const char text[] = "hello\n";

struct writer {
	pthread_t thread;
	const char *dir;
	int number, n;
	bool each, keep;
};

static void fail_if(bool bad, const char *what)
{
	if (!bad)
		return;
	fprintf(stderr, "tool_jobs: %s: %s\n", what, strerror(errno));
	exit(1);
}

static const char *name(const struct writer *w, int i, const char *suffix, char path[4096])
{
	snprintf(path, 4096, "%s/job%d-%d-%d.%s", w->dir, (int)getpid(), w->number, i, suffix);
	return path;
}

static void write_request(const struct writer *w, int i)
{
	char path[4096];
	int fd = open(name(w, i, "txt", path), O_CREAT | O_EXCL | O_WRONLY, 0644);

	fail_if(fd < 0, path);
	fail_if(write(fd, text, sizeof text - 1) != (ssize_t)sizeof text - 1, path);
	fail_if(close(fd) < 0, path);
}

static void read_result(const struct writer *w, int i)
{
	char path[4096], bytes[4096];
	int fd = open(name(w, i, "out", path), O_RDONLY);
	ssize_t got, total = 0;

	fail_if(fd < 0, path);
	while ((got = read(fd, bytes, sizeof bytes)) > 0)
		total += got;
	fail_if(got < 0 || total == 0, path);
	close(fd);
}

static void *work(void *arg)
{
	const struct writer *w = arg;

	for (int i = 0; i < w->n; i++) {
		write_request(w, i);
		if (w->each)
			read_result(w, i);
	}
	for (int i = 0; !w->each && i < w->n; i++)
		read_result(w, i);
	return NULL;
}

static void remove_requests(const struct writer *w)
{
	char path[4096];

	for (int i = 0; !w->keep && i < w->n; i++)
		fail_if(unlink(name(w, i, "txt", path)) < 0, path);
}

static void run(struct writer *writers, int count)
{
	int64_t start = clock_mono();

	for (int i = 0; i < count; i++) {
		errno = pthread_create(&writers[i].thread, NULL, work, &writers[i]);
		fail_if(errno != 0, "pthread_create");
	}
	for (int i = 0; i < count; i++)
		pthread_join(writers[i].thread, NULL);
	printf("%.6f\n", (double)(clock_mono() - start) / (double)NS_PER_SEC);
	for (int i = 0; i < count; i++)
		remove_requests(&writers[i]);
}

int main(int argc, char **argv)
{
	if (argc != 6) {
		fprintf(stderr, "usage: tool_jobs DIR WRITERS N each|all remove|keep\n");
		return 2;
	}
	int count = atoi(argv[2]);
	AUTO_FREE struct writer *writers = calloc((size_t)count + 1, sizeof *writers);

	fail_if(!writers, "calloc");
	for (int i = 0; i < count; i++)
		writers[i] = (struct writer){ .dir = argv[1],
			.number = i,
			.n = atoi(argv[3]),
			.each = strcmp(argv[4], "each") == 0,
			.keep = strcmp(argv[5], "keep") == 0 };
	run(writers, count);
	return 0;
}
