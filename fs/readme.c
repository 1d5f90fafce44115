#include "fs/readme.h"

#include <stdio.h>

#include "fs/area.h"

static void put_row(struct buf *out, const char *folder, const struct node_row *row)
{
	char path[300];

	snprintf(path, sizeof path, "%s%s%s", folder, row->name, row->area == AREA_ROOT ? "" : "/");
	buf_printf(out, "  %-26s %s\n", path, row->doc);
}

static void put_rows(struct buf *out, const char *folder, const struct node_row *rows)
{
	for (; rows->name; rows++)
		put_row(out, folder, rows);
}

static void put_jobs(struct buf *out)
{
	static const char *const docs[ROW_COUNT] = {
		[ROW_STATUS] = "its state, from creation on",
		[ROW_OUT] = "the output; reading it waits for the end",
		[ROW_ERR] = "why it failed",
		[ROW_STREAM] = "the text as it is made",
	};

	buf_puts(out,
		"  jobs/STEM.txt              a request: a prompt for the default model\n"
		"  jobs/STEM.json             a request: one JSON object\n"
		"  jobs/STEM.jsonl            a batch: one JSON object a line\n");
	for (unsigned row = ROW_STATUS; row < ROW_COUNT; row++)
		buf_printf(out, "  jobs/STEM%-17s %s\n", job_row_suffix((enum job_row)row),
			docs[row]);
}

void readme_render(struct npufs *fs, struct buf *out)
{
	(void)fs;
	buf_puts(out,
		"An NPU as files. Write a request into jobs/, read the answer beside it:\n\n"
		"  echo \"a prompt for the default model\" > jobs/a.txt; cat jobs/a.out\n"
		"  cp models/MODEL/example.json jobs/b.json; cat jobs/b.out jobs/b.status\n"
		"  rm jobs/a.txt        # cancels, and removes the results\n\n"
		"Here is:\n\n");
	put_rows(out, "", fixed_root.rows);
	put_rows(out, "models/MODEL/", fixed_models.object_rows);
	put_rows(out, "manifests/", fixed_manifests.object_rows);
	put_jobs(out);
	put_rows(out, "sessions/NAME/", session_rows);
	put_rows(out, "callables/", callable_rows);
	put_rows(out, "callables/NAME", callable_object_rows);
	control_put_docs(put_row, out);
}
