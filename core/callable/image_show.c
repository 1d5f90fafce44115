/* The names of operands are those that the specification gave, so the lines of a program read back
 * as the same instructions. */
#include "core/callable/image.h"

#include <errno.h>
#include <inttypes.h>

#include "core/base/mem.h"
#include "core/callable/vm_impl.h"

void image_names(const struct image *image, struct vm_names *ret)
{
	const struct image_header *h = &image->header;

	*ret = (struct vm_names){ .n_tensors = h->n_tensors,
		.n_scalars = h->n_scalars,
		.n_functions = h->n_children };
	for (uint32_t i = 0; i < h->n_tensors; i++)
		ret->tensors[i] = image_name(image, image_row(image, i).name);
	for (uint32_t i = 0; i < h->n_scalars; i++)
		ret->scalars[i] = image_name(image, image_row(image, h->n_tensors + i).name);
	for (uint32_t i = 0; i < h->n_children; i++) {
		struct image_child c = image_child(image, i);

		ret->functions[i] =
			(struct vm_function_name){ image_name(image, c.name), (uint32_t)c.id };
	}
}

static void show_rows(const struct image *image, struct buf *out)
{
	static const char *const access[] = { "", "in ", "out ", "inout " };
	const struct image_header *h = &image->header;

	for (uint32_t i = 0; i < h->n_tensors + h->n_scalars; i++) {
		struct image_row row = image_row(image, i);

		buf_printf(out, "%s: %s%s %s", i < h->n_tensors ? "tensor" : "scalar",
			access[row.access], row.type == VM_FLOAT32 ? "float32" : "int32",
			image_name(image, row.name));
		if (row.max)
			buf_printf(out, ", at most %" PRIu32, row.max);
		buf_puts(out, "\n");
	}
}

static void show_code(const struct vm_code *p, const struct vm_names *names, struct buf *out)
{
	for (uint32_t i = 0; i < p->n; i++) {
		struct vm_instr in = vm_fetch(p, i);

		buf_puts(out, "  ");
		vm_disassemble(&in, names, out);
		buf_puts(out, "\n");
	}
}

int image_show(const struct image *image, struct buf *out)
{
	const struct image_header *h = &image->header;
	AUTO_FREE struct vm_names *names = malloc(sizeof *names);

	if (!names)
		return -ENOMEM;
	image_names(image, names);
	buf_printf(out, "callable: %s\nbytes: %" PRIu64 "\nsteps: at most %" PRIu64 "\n",
		image_name(image, h->name), h->total_bytes, image->steps);
	show_rows(image, out);
	buf_puts(out, "orchestration:\n");
	show_code(&image->orchestration, names, out);
	for (uint32_t i = 0; i < h->n_children; i++) {
		struct image_child c = image_child(image, i);
		struct vm_code code = image_child_code(image, &c);

		buf_printf(out, "child %" PRId32 ": %s, %" PRIu64 " bytes at %" PRIu64 "\n", c.id,
			image_name(image, c.name), c.bytes, c.offset);
		show_code(&code, names, out);
	}
	return buf_error(out);
}
