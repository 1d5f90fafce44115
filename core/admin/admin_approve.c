/* Approving happens where the private key is: the text is read as any file is, judged here by its
 * form, shown whole, signed, and the line written back into the same file. So what was shown is what
 * was signed, whatever the file says a moment later. */
#include "core/admin/admin.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/artifact/artifact.h"
#include "core/artifact/keyring.h"
#include "core/artifact/signature.h"
#include "core/base/files.h"
#include "core/base/mem.h"
#include "core/control/approval_text.h"

/* MOUNT/control/approvals/ID. The id is digits, so it names nothing else. */
static int make_path(const struct admin_call *c, char **ret, struct fault *f)
{
	const char *id = c->args[1];

	if (!approval_is_id(id, strlen(id)))
		return fault_set(f, -EINVAL, "give a name that is in MOUNT/control/approvals",
			"an operation's id is %d hex digits", APPROVAL_ID_SIZE - 1);
	return asprintf(ret, "%s/control/approvals/%s", c->args[0], id) < 0
		? fault_set(f, -ENOMEM, "free memory, then try again", "no memory")
		: 0;
}

static int read_text(const char *path, struct buf *ret, struct fault *f)
{
	AUTO_CLOSE int fd = -1;
	int err = files_open_input(path, &fd);

	if (!err)
		err = files_read(fd, APPROVAL_SHOW_MAX, ret);
	return err ? fault_set(f, err,
			     "name the mount's folder, as root or the daemon's user; the operation "
			     "may be over",
			     "cannot read the operation: %s", strerror(-err))
		   : 0;
}

static int check_text(const struct buf *text, const char *id, size_t *ret_signed, struct fault *f)
{
	char operation[APPROVAL_ID_SIZE];
	const char *wrong = approval_text_get(buf_text(text), text->len, operation, ret_signed);

	if (!wrong && strcmp(operation, id) != 0)
		wrong = "it is the text of another operation";
	return wrong ? fault_set(f, -EBADMSG, "sign nothing; find out who serves this folder",
			       "this is not to be signed: %s", wrong)
		     : 0;
}

static int show(const struct buf *text, FILE *out, struct fault *f)
{
	fputs(buf_text(text), out);
	return fflush(out) != 0 || ferror(out)
		? fault_set(f, -EIO, "see that the output can be written, then try again",
			  "the operation could not be shown, so it was not signed")
		: 0;
}

/* In one write: it is the node's whole command. What it did is the result of that, or of closing. */
static int write_line(const char *path, const struct buf *line, struct fault *f)
{
	int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC), err = fd < 0 ? -errno : 0;
	ssize_t wrote = err ? 0 : write(fd, line->data, line->len);

	if (wrote < 0)
		err = -errno;
	else if (!err && (size_t)wrote < line->len)
		err = -EIO;
	if (fd >= 0 && close(fd) < 0 && !err)
		err = -errno;
	return err ? fault_set(f, err, "read MOUNT/control/last_error: it says why",
			     "the signature was refused, or the command failed: %s", strerror(-err))
		   : 0;
}

static int approve(const struct admin_call *c, const struct key *k, struct fault *f)
{
	AUTO_BUF struct buf text = BUF_INIT, line = BUF_INIT;
	AUTO_FREE char *path = NULL;
	size_t n;
	int err = make_path(c, &path, f);

	if (!err)
		err = read_text(path, &text, f);
	if (!err)
		err = check_text(&text, c->args[1], &n, f);
	if (err)
		return err;
	err = show(&text, c->out, f);
	if (err)
		return err;
	err = signature_put(APPROVAL_WORD, k, text.data, n, &line);
	return err ? fault_set(f, err, "try again", "cannot sign: %s", strerror(-err))
		   : write_line(path, &line, f);
}

int admin_approve(const struct admin_call *c)
{
	struct fault f = FAULT_NONE;
	char id[KEY_ID_SIZE];
	struct key *k = NULL;
	int err = c->value ? keyring_read_private(c->value, &k, &f)
			   : fault_set(&f, -EINVAL, "add --key KEY.pem", "no key is given");

	if (!err)
		err = approve(c, k, &f);
	if (!err) {
		key_id(k, id);
		fprintf(c->out, "ok: signed by %s\n", id);
	}
	key_free(k);
	return err ? admin_failed(c, &f, NULL) : ADMIN_OK;
}

int admin_approver_add(const struct admin_call *c)
{
	struct fault f = FAULT_NONE;
	char id[KEY_ID_SIZE];

	if (store_approver(c->args[0], c->args[1], id, &f))
		return admin_failed(c, &f, NULL);
	fprintf(c->out, "ok: key %s may approve in store %s\n", id, c->args[0]);
	return ADMIN_OK;
}
