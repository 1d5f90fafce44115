#include "core/admin/admin.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/crypto.h"
#include "core/base/files.h"
#include "core/base/files_write.h"
#include "core/base/mem.h"

/* Where the two files go: PREFIX's folder and its last component. */
struct place {
	int folder;
	char *private, *public;
};

static void place_done(struct place *p)
{
	files_close(&p->folder);
	free(p->private);
	free(p->public);
}

static int find_place(const char *prefix, struct place *p, struct fault *f)
{
	const char *name;
	int err = admin_open_folder(prefix, &p->folder, &name, f);

	if (err)
		return err;
	if (asprintf(&p->private, "%s.pem", name) < 0 ||
		asprintf(&p->public, "%s.pub.pem", name) < 0)
		return fault_set(f, -ENOMEM, "free memory, then try again", "no memory");
	return 0;
}

static int cannot_write(struct fault *f, int err, const char *name)
{
	if (err == -EEXIST)
		return fault_set(f, err, "choose another prefix, or move the old key away",
			"%s is there already", name);
	return fault_set(f, err, "see that there is room and permission", "cannot write %s: %s",
		name, strerror(-err));
}

/* Neither file without the other. */
static int write_both(const struct place *p, const struct buf *private, const struct buf *public,
	struct fault *f)
{
	struct stat st;
	int err;

	if (fstatat(p->folder, p->public, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return cannot_write(f, -EEXIST, p->public);
	err = files_write(p->folder, p->private, 0600, private->data, private->len);
	if (err)
		return cannot_write(f, err, p->private);
	err = files_write(p->folder, p->public, 0644, public->data, public->len);
	if (!err)
		return 0;
	unlinkat(p->folder, p->private, 0);
	return cannot_write(f, err, p->public);
}

static int generate(const char *prefix, char ret_id[KEY_ID_SIZE], struct fault *f)
{
	AUTO_CLEANUP(place_done) struct place p = { -1, NULL, NULL };
	AUTO_BUF struct buf public = BUF_INIT;
	struct buf private = BUF_INIT;
	struct key *k = NULL;
	int err = find_place(prefix, &p, f);

	if (err)
		return err;
	err = key_generate(&k);
	if (!err)
		err = key_private_pem(k, &private);
	if (!err)
		err = key_public_pem(k, &public);
	if (err)
		fault_set(f, err, "try again", "cannot make a key: %s", strerror(-err));
	else
		err = write_both(&p, &private, &public, f);
	if (!err)
		key_id(k, ret_id);
	key_free(k);
	if (private.data)
		explicit_bzero(private.data, private.cap);
	buf_done(&private);
	return err;
}

int admin_key_generate(const struct admin_call *c)
{
	struct fault f = FAULT_NONE;
	char id[KEY_ID_SIZE];

	if (generate(c->args[0], id, &f))
		return admin_failed(c, &f, NULL);
	fprintf(c->out, "ok: key %s in %s.pem (private) and %s.pub.pem\n", id, c->args[0],
		c->args[0]);
	return ADMIN_OK;
}
