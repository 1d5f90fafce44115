/* What control/ consists of: its folders and their rows, with whose each is. */
#ifndef NPUFS_FS_CONTROL_ROWS_H
#define NPUFS_FS_CONTROL_ROWS_H

#include "core/control/control.h"
#include "core/control/roles.h"
#include "fs/area.h"

enum folder { CONTROL, OPERATIONS, APPROVALS, TRACE, FOLDER_COUNT };

struct folder_row {
	const char *node;
	unsigned roles;     /* who may list it */
	unsigned searchers; /* who else may look up the names that are for them */
};
extern const struct folder_row control_folders[FOLDER_COUNT];

/* A row of a command; the others only show something, or are folders. */
struct control_row {
	struct node_row row;
	enum privileged_command command; /* of rows that take one, or read by one */
	enum privileged_command writes;  /* of those whose bytes are read and written by two */
	enum folder in, opens;           /* where it is; the folder that it is, or CONTROL */
	int (*render)(struct control *c, struct buf *out); /* of a text that another thread makes */
	const char *node; /* for the audit trail; NULL: the command's, as are the roles */
	unsigned roles;   /* of rows that take no command */
};
extern const struct control_row control_rows[];
extern const size_t control_n_rows;

unsigned control_row_roles(const struct control_row *r); /* whose it is, besides root's */

#endif
