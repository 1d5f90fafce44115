/* What a software device has of its own for vendor diagnosis: a plain memory that nothing else uses, empty
 * until something is written and after a reset of the device, and a few registers. */
#include "core/device_soft_internal.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/mem.h"

static bool in_memory(uint64_t address, size_t size)
{
	return address >= SOFT_MEMORY_BASE && size <= SOFT_MEMORY_BYTES &&
		address - SOFT_MEMORY_BASE <= SOFT_MEMORY_BYTES - size;
}

enum npu_error soft_read_mem(struct vdevice *d, uint64_t address, void *to, size_t size)
{
	if (!in_memory(address, size))
		return NPU_OUT_OF_RANGE;
	if (d->memory)
		memcpy(to, d->memory + (address - SOFT_MEMORY_BASE), size);
	else
		memset(to, 0, size);
	return NPU_SUCCESS;
}

enum npu_error soft_write_mem(struct vdevice *d, uint64_t address, const void *from, size_t size)
{
	if (!in_memory(address, size))
		return NPU_OUT_OF_RANGE;
	if (!d->memory)
		d->memory = calloc(1, SOFT_MEMORY_BYTES);
	if (!d->memory)
		return NPU_MEMORY_ALLOCATION;
	memcpy(d->memory + (address - SOFT_MEMORY_BASE), from, size);
	return NPU_SUCCESS;
}

void soft_memory_clear(struct vdevice *d)
{
	free(d->memory);
	d->memory = NULL;
	d->scratch = 0;
}

/* --- registers -------------------------------------------------------------------------------- */

static uint32_t id_show(const struct vdevice *d)
{
	(void)d;
	return SOFT_ID;
}

static uint32_t status_show(const struct vdevice *d)
{
	return (d->configured ? SOFT_STATUS_CONFIGURED : 0) |
		(soft_engines_busy(d) ? SOFT_STATUS_BUSY : 0);
}

static uint32_t submits_show(const struct vdevice *d)
{
	return d->submits;
}

static uint32_t scratch_show(const struct vdevice *d)
{
	return d->scratch;
}

static void scratch_set(struct vdevice *d, uint32_t value)
{
	d->scratch = value;
}

/* By address / 4. */
static const struct soft_register {
	uint32_t (*show)(const struct vdevice *d);
	void (*set)(struct vdevice *d, uint32_t value); /* NULL: it can only be read */
} registers[] = {
	[SOFT_REG_ID / 4] = { id_show, NULL },
	[SOFT_REG_STATUS / 4] = { status_show, NULL },
	[SOFT_REG_SUBMITS / 4] = { submits_show, NULL },
	[SOFT_REG_SCRATCH / 4] = { scratch_show, scratch_set },
};

static enum npu_error find_register(uint64_t address, const struct soft_register **ret)
{
	if (address % 4)
		return NPU_INVALID_VALUE;
	if (address / 4 >= ARRAY_SIZE(registers))
		return NPU_OUT_OF_RANGE;
	*ret = &registers[address / 4];
	return NPU_SUCCESS;
}

enum npu_error soft_read_reg(struct vdevice *d, uint64_t address, uint32_t *ret)
{
	const struct soft_register *r;
	enum npu_error code = find_register(address, &r);

	if (!code)
		*ret = r->show(d);
	return code;
}

enum npu_error soft_write_reg(struct vdevice *d, uint64_t address, uint32_t value)
{
	const struct soft_register *r;
	enum npu_error code = find_register(address, &r);

	if (!code && !r->set)
		return NPU_INVALID_VALUE;
	if (!code)
		r->set(d, value);
	return code;
}
