/* What the store's folder has. Each file is judged by itself when it is read: one that is damaged, a
 * link or another user's spoils no other. */
#include "core/engine/callables_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/files.h"
#include "core/base/files_write.h"
#include "core/base/mem.h"

#define FOLDER      "callables"
#define HALF_SUFFIX CALLABLES_SUFFIX FILES_HALF_SUFFIX

int callables_folder(const struct callables *t, bool make, int *ret_fd)
{
	AUTO_CLOSE int store = -1;
	int err = t->store ? files_open_root(t->store, FILES_OWN, &store) : -ENOENT;

	if (!err && make)
		err = files_make_folder(store, FOLDER, 0700);
	return err ? err : files_open_folder(store, FOLDER, FILES_OWN, ret_fd);
}

void callables_file(const char *name, char ret[CALLABLES_FILE_SIZE])
{
	snprintf(ret, CALLABLES_FILE_SIZE, "%s%s", name, CALLABLES_SUFFIX);
}

const struct buf *callables_waiting_image(struct callables *t, const char *name)
{
	const struct buf *image = NULL;
	size_t at;

	lock_take(&t->lock);
	if (callables_search_locked(t, name, &at) && t->names[at]->view.state == CALLABLES_WAITING)
		image = &t->names[at]->image;
	lock_drop(&t->lock);
	return image;
}

int callables_digest(struct callables *t, const char *name, char ret[SHA256_HEX_SIZE])
{
	const struct buf *image = callables_waiting_image(t, name);
	size_t at;

	if (!image)
		return -ESTALE;
	sha256_hex(image->data, image->len, ret);
	lock_take(&t->lock);
	if (callables_search_locked(t, name, &at))
		memcpy(t->names[at]->sha256, ret, SHA256_HEX_SIZE);
	lock_drop(&t->lock);
	return 0;
}

int callables_keep(struct callables *t, const char *name, struct fault *f)
{
	const struct buf *image = callables_waiting_image(t, name);
	char file[CALLABLES_FILE_SIZE];
	AUTO_CLOSE int folder = -1;
	int err = image ? callables_folder(t, true, &folder) : -ESTALE;

	callables_file(name, file);
	if (!err)
		err = files_replace(folder, file, 0600, image->data, image->len);
	return err ? fault_set(f, err, "see to the callables folder of the store and its disk",
			     "the image could not be kept: %s", strerror(-err))
		   : 0;
}

void callables_unkeep(struct callables *t, const char *name)
{
	char file[CALLABLES_FILE_SIZE];
	AUTO_CLOSE int folder = -1;

	callables_file(name, file);
	if (callables_folder(t, false, &folder) == 0)
		unlinkat(folder, file, 0);
}

int callables_unkeep_all(struct callables *t, struct fault *f)
{
	AUTO_CLOSE int store = -1;
	int err = files_open_root(t->store, FILES_OWN, &store);

	if (!err)
		err = files_remove_tree(store, FOLDER);
	if (err && err != -ENOENT)
		return fault_set(f, err, "see to the callables folder of the store",
			"the images could not be removed: %s", strerror(-err));
	return 0;
}

int callables_open(struct callables *t, const char *name, int *ret_fd)
{
	char file[CALLABLES_FILE_SIZE];
	AUTO_CLOSE int folder = -1;
	uint64_t size;
	int err = callables_folder(t, false, &folder);

	callables_file(name, file);
	return err ? err : files_open(folder, file, FILES_OWN, ret_fd, &size);
}

/* --- what there is ---------------------------------------------------------------------------- */

static int add_file(struct callables_kept *k, const char *file)
{
	char name[CALLABLES_NAME_MAX + 1], **moved;

	if (!callables_name_of(file, CALLABLES_SUFFIX, name) || !callables_name_valid(name))
		return 0; /* it is nothing of ours */
	moved = mem_grow(k->names, k->n, &k->cap, 64, sizeof *moved);
	if (!moved)
		return -ENOMEM;
	k->names = moved;
	k->names[k->n] = strdup(name);
	return k->names[k->n] ? (k->n++, 0) : -ENOMEM;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int read_folder(DIR *dir, struct callables_kept *k)
{
	const struct dirent *entry;
	int err = 0;

	while (!err && (errno = 0, entry = readdir(dir)))
		err = add_file(k, entry->d_name);
	return err ? err : -errno;
}

/* To be closed, unless it fails. */
static int open_listing(const struct callables *t, DIR **ret)
{
	int fd = -1, err = callables_folder(t, false, &fd);

	if (err)
		return err;
	*ret = fdopendir(fd);
	if (*ret)
		return 0;
	close(fd);
	return -ENOMEM;
}

static bool is_half(const char *file)
{
	size_t len = strlen(file);

	return strncmp(file, FILES_HALF_PREFIX, strlen(FILES_HALF_PREFIX)) == 0 &&
		len > strlen(HALF_SUFFIX) &&
		strcmp(file + len - strlen(HALF_SUFFIX), HALF_SUFFIX) == 0;
}

void callables_remove_halves(const struct callables *t)
{
	const struct dirent *entry;
	DIR *dir;

	if (open_listing(t, &dir))
		return;
	while ((entry = readdir(dir)))
		if (is_half(entry->d_name))
			unlinkat(dirfd(dir), entry->d_name, 0);
	closedir(dir);
}

int callables_list_kept(const struct callables *t, struct callables_kept *ret)
{
	DIR *dir;
	int err = open_listing(t, &dir);

	*ret = (struct callables_kept){ .names = NULL };
	if (err)
		return err;
	err = read_folder(dir, ret);
	closedir(dir);
	if (ret->n)
		qsort(ret->names, ret->n, sizeof *ret->names, by_name);
	return err;
}

void callables_kept_done(struct callables_kept *k)
{
	for (size_t i = 0; i < k->n; i++)
		free(k->names[i]);
	free(k->names);
}
