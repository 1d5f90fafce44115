/* What an administrator sees of the spool, with the daemon or without it: it is only read. */
#include "core/admin/admin.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/mem.h"
#include "core/job/jobname.h"
#include "core/spool/spool.h"

#define CHUNK (64 << 10)

static int open_to_look(const struct admin_call *c, struct spool **ret)
{
	struct fault f = FAULT_NONE;

	return spool_open(c->args[0], SPOOL_LOOK, ret, &f) ? admin_failed(c, &f, NULL) : ADMIN_OK;
}

static int failed(const struct admin_call *c, struct spool *s, int err, const char *action)
{
	struct fault f = FAULT_NONE;

	spool_close(s);
	fault_set(&f, err, action, "STORE/jobs could not be read: %s", strerror(-err));
	return admin_failed(c, &f, NULL);
}

/* --- list ------------------------------------------------------------------------------------- */

struct folder {
	uint64_t id, parent;
	char *name;
};

/* The folders are read first: their names are needed for the paths of the rest. */
struct listing {
	FILE *out;
	struct folder *folders; /* by rising id */
	size_t n, cap;
};

static int add_folder(void *context, const struct spool_entry *e)
{
	struct listing *l = context;

	struct folder *more;

	if (e->damaged || !e->node.dir)
		return 0;
	more = mem_grow(l->folders, l->n, &l->cap, 64, sizeof *more);
	if (!more)
		return -ENOMEM;
	l->folders = more;
	l->folders[l->n] = (struct folder){ e->id, e->node.folder, strdup(e->node.name) };
	return l->folders[l->n].name ? (l->n++, 0) : -ENOMEM;
}

static int compare_folders(const void *key, const void *row)
{
	const uint64_t *id = key;
	const struct folder *f = row;

	return *id < f->id ? -1 : *id > f->id;
}

/* Whoever may write to jobs/ has chosen it: it must not command the terminal. */
static void put_name(const struct listing *l, const char *name, const char *end)
{
	char clean[JOBNAME_MAX + 1];

	fault_clean(clean, sizeof clean, name);
	fprintf(l->out, "%s%s", clean, end);
}

/* A folder that is in itself, which only damage makes, ends at the depth of any path. */
static void put_path(const struct listing *l, uint64_t id, unsigned depth)
{
	const struct folder *f =
		l->n ? bsearch(&id, l->folders, l->n, sizeof *f, compare_folders) : NULL;

	if (!f || depth == 64)
		return;
	put_path(l, f->parent, depth + 1);
	put_name(l, f->name, "/");
}

static const char *state_of(const struct spool_entry *e)
{
	if (e->node.dir)
		return "folder";
	if (!e->node.job)
		return "file";
	if (!e->has_run || e->run.view.id != e->node.job)
		return job_state_name(JOB_WRITING);
	return job_state_name(e->run.view.state);
}

static int list_entry(void *context, const struct spool_entry *e)
{
	struct listing *l = context;
	bool run = e->has_run && e->run.view.id == e->node.job;

	if (e->damaged) {
		fprintf(l->out, "%" PRIu64 " - damaged - - -\n", e->id);
		return 0;
	}
	fprintf(l->out, "%" PRIu64 " ", e->id);
	fprintf(l->out, e->node.job ? "%" PRIu64 " " : "- ", e->node.job);
	fprintf(l->out, "%s %u %" PRIu64 " ", state_of(e), e->node.uid,
		run ? (uint64_t)e->run.view.request_size : e->size);
	put_path(l, e->node.folder, 0);
	put_name(l, e->node.name, "\n");
	return 0;
}

int admin_jobs_list(const struct admin_call *c)
{
	struct listing l = { .out = c->out };
	uint64_t strange = 0;
	struct spool *s;
	int err = open_to_look(c, &s);

	if (err)
		return err;
	err = spool_load(s, add_folder, &l, &strange);
	if (!err)
		err = spool_load(s, list_entry, &l, &strange);
	for (size_t i = 0; i < l.n; i++)
		free(l.folders[i].name);
	free(l.folders);
	if (err)
		return failed(c, s, err, "name the folder that npufs-admin store init made");
	spool_close(s);
	if (strange)
		fprintf(c->out, "%" PRIu64 " strange files, which the next start sets aside\n",
			strange);
	return ADMIN_OK;
}

/* --- get -------------------------------------------------------------------------------------- */

struct part {
	uint64_t at, size;
};

static int find_part(const struct spool_entry *e, const char *name, struct part *ret)
{
	const struct job_view *v = &e->run.view;
	bool run = e->has_run && v->id == e->node.job, done = run && v->state == JOB_DONE;

	if (strcmp(name, "request") == 0)
		*ret = (struct part){ 0, run ? v->request_size : e->size };
	else if (done && strcmp(name, "out") == 0)
		*ret = (struct part){ v->request_size, v->out_size };
	else if (done && strcmp(name, "stream") == 0 && v->stream_apart)
		*ret = (struct part){ v->request_size + v->out_size, v->stream_size };
	else if (done && strcmp(name, "stream") == 0)
		*ret = (struct part){ v->request_size, v->out_size };
	else
		return -ENOENT;
	return 0;
}

static int copy_part(struct spool_file *file, struct part p, FILE *out)
{
	AUTO_FREE char *chunk = malloc(CHUNK);

	while (chunk && p.size) {
		ssize_t n = spool_read(file, p.at, chunk, p.size < CHUNK ? p.size : CHUNK);

		if (n <= 0)
			return n ? (int)n : -EIO;
		if (fwrite(chunk, 1, (size_t)n, out) != (size_t)n)
			return -EIO;
		p.at += (uint64_t)n;
		p.size -= (uint64_t)n;
	}
	return chunk ? 0 : -ENOMEM;
}

int admin_jobs_get(const struct admin_call *c)
{
	struct spool_file *file = NULL;
	struct spool_entry e;
	struct part p = { 0 };
	struct spool *s;
	char *end;
	uint64_t id = strtoull(c->args[1], &end, 10);
	int err = open_to_look(c, &s);

	if (err)
		return err;
	err = *end || end == c->args[1] ? -EINVAL : spool_look(s, id, &e);
	if (!err)
		err = find_part(&e, c->args[2], &p);
	if (!err)
		err = spool_get(s, id, &file);
	if (!err)
		err = copy_part(file, p, c->out);
	spool_file_put(file);
	if (err)
		return failed(c, s, err, "npufs-admin jobs list STORE shows what there is");
	spool_close(s);
	return ADMIN_OK;
}
