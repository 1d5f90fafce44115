/* Each step believes only what the steps before it have settled:
 *
 *   header    magic, version, floor, counts within their limits, so no later sum can wrap
 *   layout    each section where its predecessor ends, and the sum of all is the length given
 *   names     the region ends in a NUL, so a name that begins in it ends in it
 *   rows      kinds and reserved fields
 *   children  ids once, offsets aligned and in range; sorted by offset, none reaches into the next
 *   code      every program, children first, for the orchestration counts their steps
 *
 * Rows are copied out before they are looked at: the bytes may stand anywhere. */
#include "core/callable/image.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "core/base/mem.h"

static_assert(sizeof(struct image_header) == IMAGE_HEADER, "layout");
static_assert(sizeof(struct image_row) == 16, "layout");
static_assert(sizeof(struct image_child) == 40, "layout");
static_assert(CALLABLE_ALIGN == 64, "as the texts say");

#define REFUSE(f, field, offset, ...) \
	fault_at(f, -EINVAL, field, (long)(offset), "build the image again", __VA_ARGS__)
#define AT(field) offsetof(struct image_header, field)

/* --- reading ---------------------------------------------------------------------------------- */

static uint64_t row_offset(uint32_t i)
{
	return IMAGE_HEADER + (uint64_t)i * sizeof(struct image_row);
}

static uint64_t names_offset(const struct image_header *h)
{
	return row_offset(h->n_tensors + h->n_scalars);
}

static uint64_t child_offset(const struct image_header *h, uint32_t i)
{
	return h->children_offset + (uint64_t)i * sizeof(struct image_child);
}

struct image_row image_row(const struct image *image, uint32_t i)
{
	struct image_row row;

	memcpy(&row, image->bytes + row_offset(i), sizeof row);
	return row;
}

struct image_child image_child(const struct image *image, uint32_t i)
{
	struct image_child c;

	memcpy(&c, image->bytes + child_offset(&image->header, i), sizeof c);
	return c;
}

struct vm_code image_child_code(const struct image *image, const struct image_child *c)
{
	const uint8_t *code = image->bytes + c->offset;
	uint64_t code_bytes = (uint64_t)c->n_code * sizeof(struct vm_instr);

	return (struct vm_code){ code, c->n_code, code + code_bytes, (c->bytes - code_bytes) / 4 };
}

const char *image_name(const struct image *image, uint32_t name)
{
	return (const char *)image->bytes + names_offset(&image->header) + name;
}

/* --- header ----------------------------------------------------------------------------------- */

static int check_head(const struct image_header *h, uint64_t len, struct fault *f)
{
	if (memcmp(h->magic, IMAGE_MAGIC, sizeof h->magic) != 0)
		return REFUSE(f, "magic", AT(magic), "not an image of a callable");
	if (h->version != IMAGE_VERSION)
		return REFUSE(f, "version", AT(version), "version %" PRIu32 ", not %u", h->version,
			IMAGE_VERSION);
	if (h->header_bytes != IMAGE_HEADER)
		return REFUSE(f, "header_bytes", AT(header_bytes),
			"a header of %" PRIu32 " bytes, not %u", h->header_bytes, IMAGE_HEADER);
	if (h->total_bytes != len)
		return REFUSE(f, "total_bytes", AT(total_bytes),
			"says %" PRIu64 " bytes, there are %" PRIu64, h->total_bytes, len);
	if (h->reserved[0] || h->reserved[1])
		return REFUSE(f, "reserved", AT(reserved), "not zero");
	return 0;
}

int image_peek(const void *bytes, uint64_t len, uint64_t *ret_total, struct fault *f)
{
	struct image_header h = { .total_bytes = 0 };
	size_t n = len < sizeof h ? len : sizeof h;
	size_t magic = n < sizeof h.magic ? n : sizeof h.magic;

	if (n)
		memcpy(&h, bytes, n);
	if (memcmp(h.magic, IMAGE_MAGIC, magic) != 0)
		return REFUSE(f, "magic", AT(magic), "not an image of a callable");
	*ret_total = n >= AT(n_tensors) ? h.total_bytes : 0;
	return 0;
}

static int check_counts(const struct image_header *h, struct fault *f)
{
	const struct {
		const char *field;
		size_t offset;
		uint32_t n, least, most;
	} counts[] = {
		{ "n_tensors", AT(n_tensors), h->n_tensors, 0, CALLABLE_TENSORS_MAX },
		{ "n_scalars", AT(n_scalars), h->n_scalars, 0, CALLABLE_SCALARS_MAX },
		{ "n_children", AT(n_children), h->n_children, 0, CALLABLE_CHILDREN_MAX },
		{ "names_bytes", AT(names_bytes), h->names_bytes, 1, CALLABLE_NAMES_BYTES },
		{ "n_code", AT(n_code), h->n_code, 1, VM_CODE_MAX },
	};

	for (size_t i = 0; i < ARRAY_SIZE(counts); i++)
		if (counts[i].n < counts[i].least || counts[i].n > counts[i].most)
			return REFUSE(f, counts[i].field, counts[i].offset,
				"%" PRIu32 " is not in %" PRIu32 "..%" PRIu32, counts[i].n,
				counts[i].least, counts[i].most);
	return 0;
}

/* --- layout ----------------------------------------------------------------------------------- */

static uint64_t code_end(const struct image_header *h)
{
	return h->code_offset + (uint64_t)h->n_code * sizeof(struct vm_instr);
}

static int check_padding(const struct image *image, uint64_t from, uint64_t to, struct fault *f)
{
	for (uint64_t i = from; i < to; i++)
		if (image->bytes[i])
			return REFUSE(f, "padding", i, "not zero");
	return 0;
}

/* A section begins where the one before it ends, but for its alignment. */
static int check_section(const struct image *image, const char *field, uint64_t at, uint32_t offset,
	uint64_t end, uint64_t align, struct fault *f)
{
	uint64_t begin = CALLABLE_ALIGN_UP(end, align);

	if (offset != begin)
		return REFUSE(f, field, at, "%" PRIu32 ", where %" PRIu64 " is next", offset,
			begin);
	if (begin > image->header.total_bytes)
		return REFUSE(f, "total_bytes", AT(total_bytes), "ends before %s", field);
	return check_padding(image, end, begin, f);
}

static int check_layout(const struct image *image, struct fault *f)
{
	const struct image_header *h = &image->header;
	uint64_t end = names_offset(h) + h->names_bytes;
	int err = check_section(image, "children_offset", AT(children_offset), h->children_offset,
		end, 8, f);

	if (err)
		return err;
	end = child_offset(h, h->n_children);
	err = check_section(image, "code_offset", AT(code_offset), h->code_offset, end,
		CALLABLE_ALIGN, f);
	if (err)
		return err;
	end = code_end(h);
	if (CALLABLE_ALIGN_UP(end, CALLABLE_ALIGN) > h->total_bytes)
		return REFUSE(f, "total_bytes", AT(total_bytes), "ends within the orchestration");
	return check_padding(image, end, CALLABLE_ALIGN_UP(end, CALLABLE_ALIGN), f);
}

/* --- names and rows --------------------------------------------------------------------------- */

bool image_name_valid(const char *name)
{
	size_t n = strnlen(name, CALLABLE_NAME_MAX + 1);

	for (size_t i = 0; i < n; i++)
		if (name[i] <= ' ' || name[i] >= 0x7f || strchr(",#\"\\", name[i]))
			return false;
	return n && n <= CALLABLE_NAME_MAX;
}

static int check_name(const struct image *image, uint32_t name, uint64_t at, struct fault *f)
{
	if (name >= image->header.names_bytes)
		return REFUSE(f, "name", at, "%" PRIu32 " is outside the names", name);
	if (!image_name_valid(image_name(image, name)))
		return REFUSE(f, "name", at, "not of the form of a name");
	return 0;
}

static int check_names(const struct image *image, struct fault *f)
{
	uint64_t last = names_offset(&image->header) + image->header.names_bytes - 1;

	if (image->bytes[last])
		return REFUSE(f, "names", last, "the last one is not NUL-terminated");
	return check_name(image, image->header.name, AT(name), f);
}

static int check_row(struct image *image, uint32_t i, struct fault *f)
{
	struct image_row row = image_row(image, i);
	bool tensor = i < image->header.n_tensors;
	uint64_t at = row_offset(i);

	if (row.type != VM_FLOAT32 && row.type != VM_INT32)
		return REFUSE(f, "type", at + offsetof(struct image_row, type), "%u", row.type);
	if (tensor ? row.access < VM_IN || row.access > VM_INOUT : row.access != 0)
		return REFUSE(f, "access", at + offsetof(struct image_row, access), "%u",
			row.access);
	if (row.max > INT32_MAX || (row.max && (tensor || row.type != VM_INT32)))
		return REFUSE(f, "max", at + offsetof(struct image_row, max), "%" PRIu32, row.max);
	if (row.reserved || row.reserved2)
		return REFUSE(f, "reserved", at + offsetof(struct image_row, reserved), "not zero");
	if (tensor)
		image->signature.access[i] = row.access;
	else
		image->signature.scalar_max[i - image->header.n_tensors] = row.max;
	return check_name(image, row.name, at + offsetof(struct image_row, name), f);
}

static int check_rows(struct image *image, struct fault *f)
{
	uint32_t n = image->header.n_tensors + image->header.n_scalars;
	int err = 0;

	image->signature.n_tensors = image->header.n_tensors;
	image->signature.n_scalars = image->header.n_scalars;
	for (uint32_t i = 0; !err && i < n; i++)
		err = check_row(image, i, f);
	return err;
}

/* --- children --------------------------------------------------------------------------------- */

/* The children of an image by offset, and the ids that were met. */
struct children {
	struct span {
		uint64_t offset, end; /* without the padding */
		uint32_t i;
	} spans[CALLABLE_CHILDREN_MAX];
	bool met[CALLABLE_FUNCTION_IDS];
};

#define CHILD_AT(image, i, field) \
	(child_offset(&(image)->header, i) + offsetof(struct image_child, field))

static int check_id(struct children *all, const struct image *image, uint32_t i, int32_t id,
	struct fault *f)
{
	if (id < 0 || id >= CALLABLE_FUNCTION_IDS)
		return REFUSE(f, "id", CHILD_AT(image, i, id), "%" PRId32 " is not in 0..%d", id,
			CALLABLE_FUNCTION_IDS - 1);
	if (all->met[id])
		return REFUSE(f, "id", CHILD_AT(image, i, id), "%" PRId32 " is there twice", id);
	all->met[id] = true;
	return 0;
}

static int check_extent(const struct image *image, uint32_t i, const struct image_child *c,
	struct fault *f)
{
	uint64_t total = image->header.total_bytes, begin = code_end(&image->header);

	if (c->offset % CALLABLE_ALIGN)
		return REFUSE(f, "offset", CHILD_AT(image, i, offset), "%" PRIu64 " is not aligned",
			c->offset);
	if (c->offset < begin || c->offset >= total)
		return REFUSE(f, "offset", CHILD_AT(image, i, offset),
			"%" PRIu64 " is not where children are", c->offset);
	if (!c->bytes || c->bytes > total - c->offset || c->bytes % 4)
		return REFUSE(f, "bytes", CHILD_AT(image, i, bytes),
			"%" PRIu64 " is not a size within the image", c->bytes);
	if (!c->n_code || c->n_code > VM_CODE_MAX ||
		(uint64_t)c->n_code * sizeof(struct vm_instr) > c->bytes)
		return REFUSE(f, "n_code", CHILD_AT(image, i, n_code),
			"%" PRIu32 " is too many or none", c->n_code);
	return 0;
}

/* Builders write them in order, so that this takes one step a child. */
static void insert(struct children *all, uint32_t n, struct span s)
{
	for (; n && all->spans[n - 1].offset > s.offset; n--)
		all->spans[n] = all->spans[n - 1];
	all->spans[n] = s;
}

static int check_child(struct children *all, const struct image *image, uint32_t i, struct fault *f)
{
	struct image_child c = image_child(image, i);
	int err = check_id(all, image, i, c.id, f);

	if (!err)
		err = check_extent(image, i, &c, f);
	if (!err && (c.reserved[0] || c.reserved[1] || c.reserved[2]))
		err = REFUSE(f, "reserved", CHILD_AT(image, i, reserved), "not zero");
	if (!err)
		err = check_name(image, c.name, CHILD_AT(image, i, name), f);
	if (err)
		return err;
	insert(all, i, (struct span){ c.offset, c.offset + c.bytes, i });
	return 0;
}

static int check_sum(const struct image *image, const struct children *all, struct fault *f)
{
	uint64_t end = CALLABLE_ALIGN_UP(code_end(&image->header), CALLABLE_ALIGN);
	const struct span *s = all->spans;

	for (uint32_t i = 0; i < image->header.n_children; i++, s++) {
		if (s->offset < end)
			return REFUSE(f, "offset", CHILD_AT(image, s->i, offset),
				"%" PRIu64 " overlaps what is before it", s->offset);
		if (s->offset > end)
			return REFUSE(f, "offset", CHILD_AT(image, s->i, offset),
				"a gap before %" PRIu64, s->offset);
		end = CALLABLE_ALIGN_UP(s->end, CALLABLE_ALIGN);
	}
	if (end != image->header.total_bytes)
		return REFUSE(f, "total_bytes", AT(total_bytes),
			"%" PRIu64 ", but the parts add up to %" PRIu64, image->header.total_bytes,
			end);
	return 0;
}

/* Only now is it known whose the bytes behind a child are. */
static int check_child_padding(const struct image *image, const struct children *all,
	struct fault *f)
{
	int err = 0;

	for (uint32_t i = 0; !err && i < image->header.n_children; i++)
		err = check_padding(image, all->spans[i].end,
			CALLABLE_ALIGN_UP(all->spans[i].end, CALLABLE_ALIGN), f);
	return err;
}

static int check_children(const struct image *image, struct fault *f)
{
	struct children all; /* spans are set before they are read, and zeroing them takes time */
	int err = 0;

	memset(all.met, 0, sizeof all.met);
	for (uint32_t i = 0; !err && i < image->header.n_children; i++)
		err = check_child(&all, image, i, f);
	if (!err)
		err = check_sum(image, &all, f);
	return err ? err : check_child_padding(image, &all, f);
}

/* --- code ------------------------------------------------------------------------------------- */

/* `name`: whose code it is. Without a fault to fill, nothing is printed, so nothing allocated. */
static int verify(const struct image *image, const char *name, const struct vm_code *p,
	const struct vm_functions *functions, uint64_t *ret_steps, struct fault *f)
{
	struct fault inner = FAULT_NONE;
	int err = vm_verify(p, &image->signature, functions, ret_steps, f ? &inner : NULL);

	return err ? fault_at(f, err, inner.field, inner.offset + (p->code - image->bytes),
			     inner.action, "%s, %s", name, inner.reason)
		   : 0;
}

static int check_code(struct image *image, struct fault *f)
{
	struct vm_functions functions = { { 0 } };
	const struct image_header *h = &image->header;
	int err = 0;

	for (uint32_t i = 0; !err && i < h->n_children; i++) {
		struct image_child c = image_child(image, i);
		struct vm_code code = image_child_code(image, &c);

		err = verify(image, image_name(image, c.name), &code, NULL, &functions.steps[c.id],
			f);
	}
	image->orchestration =
		(struct vm_code){ .code = image->bytes + h->code_offset, .n = h->n_code };
	return err ? err
		   : verify(image, "orchestration", &image->orchestration, &functions,
			     &image->steps, f);
}

int image_validate(const void *bytes, uint64_t len, struct image *ret, struct fault *f)
{
	struct image image = { .bytes = bytes };
	int err;

	if (!bytes || len < IMAGE_HEADER)
		return REFUSE(f, "header", len, "%" PRIu64 " bytes are less than a header", len);
	memcpy(&image.header, bytes, sizeof image.header);
	err = check_head(&image.header, len, f);
	if (!err)
		err = check_counts(&image.header, f);
	if (!err)
		err = check_layout(&image, f);
	if (!err)
		err = check_names(&image, f);
	if (!err)
		err = check_rows(&image, f);
	if (!err)
		err = check_children(&image, f);
	if (!err)
		err = check_code(&image, f);
	if (!err && ret)
		*ret = image;
	return err;
}
