/* npufs-admin: one row of the table in admin.c for each command. */
#ifndef NPUFS_CORE_ADMIN_ADMIN_H
#define NPUFS_CORE_ADMIN_ADMIN_H

#include <stdbool.h>
#include <stdio.h>

#include "core/base/buf.h"
#include "core/base/fault.h"

#define ADMIN_OK     0
#define ADMIN_FAILED 1 /* a check or an operation failed; `err` was told why and what to do */
#define ADMIN_USAGE  2

/* The whole program but for the streams. Returns its exit code. */
int admin_main(int argc, char **argv, FILE *out, FILE *err);

/* --- for the commands ------------------------------------------------------------------------- */

struct admin_call {
	char **args;       /* as many as the command's row says */
	int n_args;        /* those in brackets need not be there */
	const char *value; /* what follows the option that takes something; NULL: not given */
	bool flag;         /* the option that takes nothing was given */
	FILE *out, *err;
};

/* Tell what went wrong; `detail` is lines of file names, or NULL. Returns ADMIN_FAILED. */
int admin_failed(const struct admin_call *c, const struct fault *f, const struct buf *detail);

/* Where a new file at `path` goes: its folder, to be closed, and its name, which is part of path. */
int admin_open_folder(const char *path, int *ret_folder, const char **ret_name, struct fault *f);

int admin_key_generate(const struct admin_call *c);
int admin_store_init(const struct admin_call *c);
int admin_store_trust(const struct admin_call *c);
int admin_approver_add(const struct admin_call *c);
int admin_approve(const struct admin_call *c);
int admin_jobs_list(const struct admin_call *c);
int admin_jobs_get(const struct admin_call *c);
int admin_audit_verify(const struct admin_call *c);
int admin_audit_show(const struct admin_call *c);
int admin_artifact_import_llama2c(const struct admin_call *c);
int admin_artifact_import_package(const struct admin_call *c);
int admin_artifact_sign(const struct admin_call *c);
int admin_artifact_verify(const struct admin_call *c);
int admin_artifact_show(const struct admin_call *c);
int admin_matrix(const struct admin_call *c);
int admin_callable_build(const struct admin_call *c);
int admin_callable_check(const struct admin_call *c);
int admin_callable_show(const struct admin_call *c);

#endif
