#include "core/admin/admin.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "core/base/files.h"
#include "core/base/files_write.h"
#include "core/base/mem.h"
#include "core/callable/image.h"

#define SPEC_MAX_BYTES (1ull << 30)

static int load(const char *path, uint64_t most, struct buf *ret, struct fault *f)
{
	AUTO_CLOSE int fd = -1;
	int err = files_open_input(path, &fd);

	if (!err)
		err = files_read(fd, most, ret);
	return err ? fault_set(f, err, "name a file that can be read", "cannot read it: %s",
			     strerror(-err))
		   : 0;
}

static int load_image(const char *path, struct buf *bytes, struct image *ret, struct fault *f)
{
	int err = load(path, CALLABLE_BYTES_MAX, bytes, f);

	return err ? err : image_validate(bytes->data, bytes->len, ret, f);
}

/* --- build ------------------------------------------------------------------------------------ */

static int write_image(const char *path, const struct buf *image, struct fault *f)
{
	AUTO_CLOSE int folder = -1;
	const char *name;
	int err = admin_open_folder(path, &folder, &name, f);

	if (err)
		return err;
	err = files_write(folder, name, 0644, image->data, image->len);
	if (err == -EEXIST)
		return fault_set(f, err, "choose another name, or move it away",
			"%s is there already", name);
	return err ? fault_set(f, err, "see that there is room and permission",
			     "cannot write %s: %s", name, strerror(-err))
		   : 0;
}

int admin_callable_build(const struct admin_call *c)
{
	AUTO_BUF struct buf spec = BUF_INIT;
	AUTO_BUF struct buf image = BUF_INIT;
	struct fault f = FAULT_NONE;

	if (load(c->args[0], SPEC_MAX_BYTES, &spec, &f) ||
		image_build(buf_text(&spec), spec.len, &image, &f) ||
		write_image(c->args[1], &image, &f))
		return admin_failed(c, &f, NULL);
	fprintf(c->out, "ok: %s, %zu bytes\n", c->args[1], image.len);
	return ADMIN_OK;
}

/* --- check, show ------------------------------------------------------------------------------ */

int admin_callable_check(const struct admin_call *c)
{
	AUTO_BUF struct buf bytes = BUF_INIT;
	struct fault f = FAULT_NONE;
	struct image image;

	if (load_image(c->args[0], &bytes, &image, &f))
		return admin_failed(c, &f, NULL);
	fprintf(c->out, "ok: %s, %" PRIu32 " children, at most %" PRIu64 " steps\n",
		image_name(&image, image.header.name), image.header.n_children, image.steps);
	return ADMIN_OK;
}

int admin_callable_show(const struct admin_call *c)
{
	AUTO_BUF struct buf bytes = BUF_INIT;
	AUTO_BUF struct buf text = BUF_INIT;
	struct fault f = FAULT_NONE;
	struct image image;

	if (load_image(c->args[0], &bytes, &image, &f))
		return admin_failed(c, &f, NULL);
	if (image_show(&image, &text)) {
		fault_set(&f, -ENOMEM, "free memory, then try again", "no memory");
		return admin_failed(c, &f, NULL);
	}
	fputs(buf_text(&text), c->out);
	return ADMIN_OK;
}
