/* A spool of finished jobs, for measuring what a start and an operation cost among many:
 *
 *   tool_fill_spool STORE N
 *
 * adds N requests old0.txt, old1.txt... to the folder jobs of the store, each done, with a request
 * and a result of a few bytes, as a daemon would have left them. No daemon may use the store. Prints
 * the seconds that took; ends with status 1 when something fails. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/spool/spool.h"

#define JOBS_ID 1 /* of the folder jobs/ itself */

static const char request[] = "hello\n", result[] = "hello again\n";

static void fail_if(int err, const char *what)
{
	if (!err)
		return;
	fprintf(stderr, "tool_fill_spool: %s: %s\n", what, strerror(-err));
	exit(1);
}

static void describe(struct record_node *node, struct record_run *run)
{
	struct job_view *v = &run->view;

	node->ctime = node->mtime = node->atime = clock_wall();
	v->id = node->job;
	v->uid = node->uid;
	v->state = JOB_DONE;
	v->made = v->queued = v->started = v->ended = node->ctime;
	v->queue_ns = 20000;
	v->run_ns = 40000;
	v->prompt_tokens = 2;
	v->output_tokens = 3;
	v->request_size = sizeof request - 1;
	v->out_size = sizeof result - 1;
	v->finish_reason = "stop";
	v->fault = (struct fault)FAULT_NONE;
	v->generation = 1;
	strcpy(v->model_alias, "default");
	sha256_hex(request, sizeof request - 1, v->request_sha256);
	sha256_hex(result, sizeof result - 1, v->output_sha256);
}

static void add(struct spool *s, long number)
{
	struct record_node node = { .folder = JOBS_ID,
		.uid = geteuid(),
		.gid = getegid(),
		.mode = 0644 };
	struct record_run run = { 0 };
	struct spool_file *f;

	fail_if(spool_create(s, &f), "create");
	node.id = spool_file_id(f);
	node.job = spool_next_job(s);
	snprintf(node.name, sizeof node.name, "old%ld.txt", number);
	describe(&node, &run);
	fail_if(spool_write(f, 0, request, sizeof request - 1), "request");
	fail_if(spool_write(f, sizeof request - 1, result, sizeof result - 1), "result");
	fail_if(spool_put_both(f, &node, &run), "head");
	spool_file_put(f);
}

int main(int argc, char **argv)
{
	struct fault f = FAULT_NONE;
	int64_t start = clock_mono();
	struct spool *s;

	if (argc != 3) {
		fprintf(stderr, "usage: tool_fill_spool STORE N\n");
		return 2;
	}
	fail_if(spool_open(argv[1], SPOOL_USE, &s, &f), f.reason);
	for (long i = 0; i < atol(argv[2]); i++)
		add(s, i);
	spool_close(s);
	printf("%.6f\n", (double)(clock_mono() - start) / (double)NS_PER_SEC);
	return 0;
}
