/* For tests of resident callables beside a device: its memory fails where a test wants it, a store in a
 * folder of its own, images of the examples. Include it after cmocka.h. */
#ifndef NPUFS_TESTS_LAUNCH_RIG_H
#define NPUFS_TESTS_LAUNCH_RIG_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/files.h"
#include "core/base/mem.h"
#include "core/callable/image.h"
#include "core/callable/memory_soft.h"
#include "core/callable/packet.h"
#include "core/engine/callables.h"

/* The next so many calls fail with `code`. */
static struct launch_faults {
	enum npu_error code;
	unsigned copies, fetches, launches, releases, ends;
} launch_faults;

static bool launch_fails(unsigned *left)
{
	if (!*left)
		return false;
	--*left;
	return true;
}

static unsigned launch_rig_copies;  /* so many there were */
static unsigned launch_rig_copy_ms; /* each takes so long */

static enum npu_error launch_rig_copy(void *m, uint64_t to, const void *from, uint64_t n)
{
	launch_rig_copies++;
	usleep(launch_rig_copy_ms * 1000);
	return launch_fails(&launch_faults.copies) ? launch_faults.code
						   : memory_soft_ops.copy(m, to, from, n);
}

/* Tensors of what runs: a device that is asked for one before it was waited for does not have it yet.
 * Those of another launch, which was waited for, it has. */
static uint64_t launch_rig_running[128];
static size_t launch_rig_n_running;

static bool launch_rig_runs(uint64_t address)
{
	for (size_t i = 0; i < launch_rig_n_running; i++)
		if (launch_rig_running[i] == address)
			return true;
	return false;
}

static enum npu_error launch_rig_fetch(void *m, void *to, uint64_t from, uint64_t n)
{
	if (launch_rig_runs(from))
		return NPU_NOT_EXPECTED;
	return launch_fails(&launch_faults.fetches) ? launch_faults.code
						    : memory_soft_ops.fetch(m, to, from, n);
}

static void launch_rig_note(const uint8_t *packet)
{
	struct packet_prefix prefix;
	struct packet_tensor t;

	memcpy(&prefix, packet, sizeof prefix);
	packet += PACKET_PREFIX_BYTES + sizeof(struct packet_payload);
	for (uint32_t i = 0; i < prefix.n_tensors; i++, packet += sizeof t) {
		memcpy(&t, packet, sizeof t);
		if (launch_rig_runs(t.address))
			continue;
		assert_true(launch_rig_n_running < ARRAY_SIZE(launch_rig_running));
		launch_rig_running[launch_rig_n_running++] = t.address;
	}
}

static enum npu_error launch_rig_launch(void *m, const void *packet, uint64_t n)
{
	launch_rig_note(packet);
	return launch_fails(&launch_faults.launches) ? launch_faults.code
						     : memory_soft_ops.launch(m, packet, n);
}

static enum npu_error launch_rig_drain(void *m)
{
	launch_rig_n_running = 0;
	return memory_soft_ops.drain(m);
}

static enum npu_error launch_rig_release(void *m, uint64_t address)
{
	return launch_fails(&launch_faults.releases) ? launch_faults.code
						     : memory_soft_ops.release(m, address);
}

static enum npu_error launch_rig_end_capture(void *m)
{
	return launch_fails(&launch_faults.ends) ? launch_faults.code
						 : memory_soft_ops.end_capture(m);
}

/* Of a backend that has none itself. */
static struct memory_soft *launch_rig_memory;

static void *launch_rig_context(struct vdevice *d)
{
	(void)d;
	if (!launch_rig_memory)
		launch_rig_memory = memory_soft_new();
	return launch_rig_memory;
}

static inline void launch_rig_done(void)
{
	memory_soft_free(take_ptr(launch_rig_memory));
}

/* A backend like `like`, with that memory. */
static inline const struct device_ops *launch_rig_ops(const struct device_ops *like)
{
	static struct callable_memory_ops memory;
	static struct device_ops ops;

	memory = memory_soft_ops;
	memory.copy = launch_rig_copy;
	memory.fetch = launch_rig_fetch;
	memory.launch = launch_rig_launch;
	memory.drain = launch_rig_drain;
	memory.end_capture = launch_rig_end_capture;
	memory.release = launch_rig_release;
	ops = *like;
	ops.callables = &memory;
	if (!ops.callable_context)
		ops.callable_context = launch_rig_context;
	memset(&launch_faults, 0, sizeof launch_faults);
	launch_rig_n_running = 0;
	launch_rig_copy_ms = 0;
	return &ops;
}

static inline void launch_rig_image(const char *example, struct buf *ret)
{
	AUTO_BUF struct buf spec = BUF_INIT;
	struct fault f = FAULT_NONE;
	AUTO_CLOSE int fd = -1;
	char path[128];

	snprintf(path, sizeof path, "examples/callables/%s.json", example);
	assert_int_equal(files_open_input(path, &fd), 0);
	assert_int_equal(files_read(fd, 1 << 20, &spec), 0);
	if (image_build(buf_text(&spec), spec.len, ret, &f))
		fail_msg("%s: %s", path, f.reason);
}

/* As a writer of NAME.img does, up to where the device's thread takes over. */
static inline uint64_t launch_rig_write(struct callables *t, const char *name, const char *example)
{
	AUTO_BUF struct buf image = BUF_INIT;
	uint64_t number = 0;

	launch_rig_image(example, &image);
	assert_int_equal(callables_create(t, name, &number), 0);
	assert_int_equal(callables_commit(t, number, &image), 0);
	return number;
}

static inline void launch_rig_keep(struct callables *t, const char *name, const char *example)
{
	struct fault f = FAULT_NONE;

	launch_rig_write(t, name, example);
	if (callables_keep(t, name, &f))
		fail_msg("%s: %s", name, f.reason);
}

#endif
