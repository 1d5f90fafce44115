/* Parsing happens in three passes: the header's JSON to views (each in itself sound), the views by
 * offset (together they tile the data, so none overlaps another), the views by name (found by
 * bisection, and a duplicate would already have been refused as a duplicate JSON key). */
#include "core/sim/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/json.h"
#include "core/base/mem.h"

#define LENGTH_BYTES 8

struct safetensors {
	struct json_value *header; /* owns the names */
	struct safetensors_view *views;
	size_t n;
	void *map; /* NULL when the bytes are the caller's */
	size_t map_size;
};

struct dtype_row {
	const char *name;
	enum dtype dtype;
	size_t size;
};

static const struct dtype_row dtype_rows[] = {
	{ "BOOL", DTYPE_BOOL, 1 },
	{ "U8", DTYPE_UINT8, 1 },
	{ "I8", DTYPE_INT8, 1 },
	{ "I16", DTYPE_INT16, 2 },
	{ "U16", DTYPE_UINT16, 2 },
	{ "I32", DTYPE_INT32, 4 },
	{ "U32", DTYPE_UINT32, 4 },
	{ "I64", DTYPE_INT64, 8 },
	{ "U64", DTYPE_UINT64, 8 },
	{ "F16", DTYPE_FLOAT16, 2 },
	{ "F32", DTYPE_FLOAT32, 4 },
	{ "F64", DTYPE_FLOAT64, 8 },
	{ "BF16", DTYPE_INVALID, 2 },
	{ "F8_E5M2", DTYPE_INVALID, 1 },
	{ "F8_E4M3", DTYPE_INVALID, 1 },
};

static const struct dtype_row *dtype_row(const char *name)
{
	for (size_t i = 0; name && i < ARRAY_SIZE(dtype_rows); i++)
		if (strcmp(dtype_rows[i].name, name) == 0)
			return &dtype_rows[i];
	return NULL;
}

static uint64_t read_le64(const unsigned char *p)
{
	uint64_t n = 0;

	for (int i = LENGTH_BYTES - 1; i >= 0; i--)
		n = n << 8 | p[i];
	return n;
}

/* The shape into `v`, and the bytes it needs. */
static int read_shape(const struct json_value *shape, size_t item, struct safetensors_view *v)
{
	uint64_t bytes = item;

	if (!shape || json_type(shape) != JSON_ARRAY || json_count(shape) > TENSOR_MAX_RANK)
		return -EINVAL;
	for (const struct json_value *d = json_first(shape); d; d = json_next(d)) {
		int64_t dim;

		if (json_type(d) != JSON_NUMBER || json_int64(d, &dim) < 0 || dim < 0)
			return -EINVAL;
		if (__builtin_mul_overflow(bytes, (uint64_t)dim, &bytes))
			return -EINVAL;
		v->dims[v->rank++] = dim;
	}
	v->bytes = bytes;
	return 0;
}

static int read_offset(const struct json_value *v, uint64_t *ret)
{
	if (!v || json_type(v) != JSON_NUMBER)
		return -EINVAL;
	return json_uint64(v, ret);
}

static int read_view(const struct json_value *entry, const unsigned char *data, size_t data_size,
	struct safetensors_view *ret)
{
	struct safetensors_view v = { .name = json_key(entry) };
	const struct json_value *dtype, *offsets, *begin;
	const struct dtype_row *row;
	uint64_t from, to;

	if (json_type(entry) != JSON_OBJECT || json_count(entry) != 3)
		return -EINVAL;
	dtype = json_member(entry, "dtype");
	row = dtype_row(dtype ? json_string(dtype) : NULL);
	if (!row || read_shape(json_member(entry, "shape"), row->size, &v) < 0)
		return -EINVAL;
	offsets = json_member(entry, "data_offsets");
	if (!offsets || json_type(offsets) != JSON_ARRAY || json_count(offsets) != 2)
		return -EINVAL;
	begin = json_first(offsets);
	if (read_offset(begin, &from) < 0 || read_offset(json_next(begin), &to) < 0)
		return -EINVAL;
	if (from > to || to > data_size || to - from != v.bytes)
		return -EINVAL;
	v.dtype = row->dtype;
	v.data = data + from;
	*ret = v;
	return 0;
}

static int read_views(struct safetensors *s, const unsigned char *data, size_t data_size)
{
	size_t entries;

	if (json_type(s->header) != JSON_OBJECT)
		return -EINVAL;
	entries = json_count(s->header);
	if (entries > SAFETENSORS_MAX_TENSORS)
		return -EINVAL;
	s->views = calloc(entries + 1, sizeof(*s->views));
	if (!s->views)
		return -ENOMEM;
	for (const struct json_value *e = json_first(s->header); e; e = json_next(e)) {
		if (strcmp(json_key(e), "__metadata__") == 0)
			continue;
		if (read_view(e, data, data_size, &s->views[s->n]) < 0)
			return -EINVAL;
		s->n++;
	}
	return 0;
}

/* Empty tensors sort before the one that starts at the same place. */
static int by_place(const void *a, const void *b)
{
	const struct safetensors_view *x = a, *y = b;

	if (x->data != y->data)
		return (const char *)x->data < (const char *)y->data ? -1 : 1;
	return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static int by_name(const void *a, const void *b)
{
	const struct safetensors_view *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static int check_tiling(struct safetensors *s, const unsigned char *data, size_t data_size)
{
	const unsigned char *at = data;

	qsort(s->views, s->n, sizeof(*s->views), by_place);
	for (size_t i = 0; i < s->n; i++) {
		if (s->views[i].data != at)
			return -EINVAL;
		at += s->views[i].bytes;
	}
	return at == data + data_size ? 0 : -EINVAL;
}

static int parse(struct safetensors *s, const unsigned char *bytes, size_t n)
{
	const unsigned char *data;
	uint64_t length;
	size_t data_size;
	int err;

	if (n < LENGTH_BYTES)
		return -EINVAL;
	length = read_le64(bytes);
	if (length > SAFETENSORS_MAX_HEADER || length > n - LENGTH_BYTES)
		return -EINVAL;
	data = bytes + LENGTH_BYTES + length;
	data_size = n - LENGTH_BYTES - length;
	err = json_parse((const char *)bytes + LENGTH_BYTES, length, &s->header, NULL);
	if (err < 0)
		return err;
	err = read_views(s, data, data_size);
	if (err < 0)
		return err;
	err = check_tiling(s, data, data_size);
	if (err < 0)
		return err;
	qsort(s->views, s->n, sizeof(*s->views), by_name);
	return 0;
}

enum npu_error safetensors_parse(const void *bytes, size_t n, struct safetensors **ret)
{
	struct safetensors *s = calloc(1, sizeof(*s));
	int err = s ? parse(s, bytes, n) : -ENOMEM;

	if (err < 0) {
		safetensors_close(s);
		return err == -ENOMEM ? NPU_MEMORY_ALLOCATION : NPU_BROKEN_FILE;
	}
	*ret = s;
	return NPU_SUCCESS;
}

static int read_all(int fd, char *to, size_t n)
{
	ssize_t got;

	for (; n; to += got, n -= (size_t)got) {
		got = read(fd, to, n);
		if (got < 0 && errno == EINTR)
			got = 0;
		else if (got <= 0)
			return -EIO;
	}
	return 0;
}

static enum npu_error map_file(int fd, void **ret_map, size_t *ret_size)
{
	struct stat st;
	void *map;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size < LENGTH_BYTES)
		return NPU_BROKEN_FILE;
	/* Not the file itself: who cuts it while it is mapped would end the daemon (SIGBUS). */
	map = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		-1, 0);
	if (map == MAP_FAILED)
		return NPU_MEMORY_ALLOCATION;
	if (read_all(fd, map, (size_t)st.st_size) < 0) {
		munmap(map, (size_t)st.st_size);
		return NPU_BROKEN_FILE;
	}
	*ret_map = map;
	*ret_size = (size_t)st.st_size;
	return NPU_SUCCESS;
}

enum npu_error safetensors_open(const char *path, struct safetensors **ret)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct safetensors *s;
	enum npu_error code;
	size_t size;
	void *map;

	if (fd < 0)
		return NPU_FILE_NOT_FOUND;
	code = map_file(fd, &map, &size);
	close(fd);
	if (code != NPU_SUCCESS)
		return code;
	code = safetensors_parse(map, size, &s);
	if (code != NPU_SUCCESS) {
		munmap(map, size);
		return code;
	}
	s->map = map;
	s->map_size = size;
	*ret = s;
	return NPU_SUCCESS;
}

void safetensors_close(struct safetensors *s)
{
	if (!s)
		return;
	json_free(s->header);
	free(s->views);
	if (s->map)
		munmap(s->map, s->map_size);
	free(s);
}

size_t safetensors_count(const struct safetensors *s)
{
	return s->n;
}

const struct safetensors_view *safetensors_find(const struct safetensors *s, const char *name)
{
	const struct safetensors_view key = { .name = name };

	return bsearch(&key, s->views, s->n, sizeof(key), by_name);
}
