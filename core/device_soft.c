/* The device and its calbin. One configured generation a device: configuring is refused while
 * another is. */
#include "core/device_soft.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/device_soft_internal.h"

enum npu_error soft_create_vdevice(const struct soft_backend *b, const struct device_params *p,
	struct vdevice **ret)
{
	struct vdevice *d = calloc(1, sizeof(*d));

	if (!d)
		return NPU_MEMORY_ALLOCATION;
	d->backend = b;
	d->params = *p;
	soft_queue_init(&d->queue);
	*ret = d;
	return NPU_SUCCESS;
}

enum npu_error soft_status(struct vdevice *d)
{
	if (!d)
		return NPU_NO_DEVICE;
	return d->no_engines ? NPU_MEMORY_ALLOCATION : NPU_SUCCESS;
}

enum npu_error soft_get_device_info(struct vdevice *d, struct device_info *ret)
{
	*ret = d->backend->info;
	return NPU_SUCCESS;
}

enum npu_error soft_reset_configuration(struct vdevice *d)
{
	if (soft_engines_busy(d))
		return NPU_DEVICE_BUSY;
	d->configured = NULL;
	return NPU_SUCCESS;
}

/* No compute unit of software stays broken. */
enum npu_error soft_reset_ccu(struct vdevice *d)
{
	return soft_engines_busy(d) ? NPU_DEVICE_BUSY : NPU_SUCCESS;
}

enum npu_error soft_reset(struct vdevice *d)
{
	enum npu_error code = soft_reset_configuration(d);

	if (!code)
		soft_memory_clear(d);
	return code;
}

void *soft_callable_context(struct vdevice *d)
{
	if (!d->callables)
		d->callables = memory_soft_new();
	return d->callables;
}

void soft_shutdown(struct vdevice *d)
{
	soft_engines_stop(d);
	memory_soft_free(d->callables);
	soft_memory_clear(d);
	free(d);
}

/* --- calbin ----------------------------------------------------------------------------------- */

enum npu_error soft_create_calbin(struct vdevice *d, const char *path, struct calbin **ret)
{
	struct calbin *c = calloc(1, sizeof(*c));
	enum npu_error code;

	if (!c)
		return NPU_MEMORY_ALLOCATION;
	c->device = d;
	c->folder = path ? strdup(path) : NULL;
	code = path && !c->folder ? NPU_MEMORY_ALLOCATION : d->backend->load(c, path);
	if (code != NPU_SUCCESS) {
		soft_destroy_calbin(c);
		return code;
	}
	*ret = c;
	return NPU_SUCCESS;
}

void soft_destroy_calbin(struct calbin *c)
{
	if (!c)
		return;
	if (c->device->engines)
		soft_engines_drain(c->device);
	if (c->device->configured == c)
		c->device->configured = NULL;
	for (size_t i = 0; i < c->n_models; i++)
		free(c->models[i]);
	if (c->impl)
		c->device->backend->unload(c->impl);
	free(c->folder);
	free(c);
}

const struct device_params *soft_params(const struct calbin *c)
{
	return &c->device->params;
}

void soft_set_impl(struct calbin *c, void *impl)
{
	c->impl = impl;
}

void *soft_impl(const struct calbin *c)
{
	return c->impl;
}

const char *soft_folder(const struct calbin *c)
{
	return c->folder;
}

void soft_set_version(struct calbin *c, const char *version)
{
	strncpy(c->version, version, sizeof(c->version) - 1);
}

enum npu_error soft_add_program(struct calbin *c, const struct soft_program *p)
{
	struct model *m;

	if (c->n_models == SOFT_MAX_PROGRAMS)
		return NPU_INVALID_CALBIN;
	m = calloc(1, sizeof(*m));
	if (!m)
		return NPU_MEMORY_ALLOCATION;
	m->calbin = c;
	m->program = *p;
	c->models[c->n_models++] = m;
	return NPU_SUCCESS;
}

struct calbin *soft_calbin_of(const struct model *m)
{
	return m->calbin;
}

const struct soft_program *soft_program_of(const struct model *m)
{
	return &m->program;
}

size_t soft_model_count(struct calbin *c)
{
	return c ? c->n_models : 0;
}

struct model *soft_model_at(struct calbin *c, size_t i)
{
	return i < soft_model_count(c) ? c->models[i] : NULL;
}

struct model *soft_get_model_by_name(struct calbin *c, const char *name)
{
	for (size_t i = 0; i < soft_model_count(c); i++)
		if (strcmp(c->models[i]->program.info.name, name) == 0)
			return c->models[i];
	return NULL;
}

void soft_get_llm_info(struct calbin *c, struct llm_info *ret)
{
	*ret = (struct llm_info){
		.max_batch_size = c->llm.forward ? 1 : 0,
		.max_seq_len = c->llm.max_seq_len,
	};
}

const char *soft_version(struct calbin *c)
{
	return c->version;
}

const struct model_info *soft_model_info(struct model *m)
{
	return &m->program.info;
}

/* As the real runtime does: a file in the working folder. There are no addresses to tell here. */
static void write_ini(const struct calbin *c)
{
	FILE *ini = fopen("calrt.ini", "we");

	if (!ini)
		return;
	fprintf(ini, "[calbin]\nversion=%s\nfolder=%s\n", c->version, c->folder ? c->folder : "");
	for (size_t i = 0; i < c->n_models; i++)
		fprintf(ini, "model=%s\n", c->models[i]->program.info.name);
	fclose(ini);
}

enum npu_error soft_configure(struct vdevice *d, struct calbin *c, bool dump_ini)
{
	if (d->configured)
		return NPU_ALREADY_CONFIGURED;
	if (c->device != d)
		return NPU_INVALID_CONFIGURATION;
	d->configured = c;
	if (dump_ini)
		write_ini(c);
	return NPU_SUCCESS;
}
